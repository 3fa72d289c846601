# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random small training programs, to see what `piper.verify` says of them: models, losses, optimizers and strategies of everyday kinds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import piper
import torch
from piper.program import Program
from piper.report import Report
from piper.truth import Truths
from piper.verification import compare
from torch import nn
from torch.nn import functional as F

WIDTH, TOKENS, WORDS, CLASSES = 8, 5, 11, 4


class FloatNorm(nn.Module):
    """A norm that computes in float32, as those of language models do."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        h = x.float()
        return self.weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Attention(nn.Module):
    """Its keys have a bias, whose gradient is rounding alone."""

    def __init__(self, causal):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.causal = causal

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (2, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return x + self.out(y.transpose(1, 2).flatten(2))


class Feed(nn.Module):
    def __init__(self, act, frozen=False):
        super().__init__()
        self.up, self.down, self.act = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH), act
        self.up.requires_grad_(not frozen)

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = (
            nn.Linear(a, b, bias=False) for a, b in ((WIDTH, 10), (WIDTH, 10), (10, WIDTH))
        )
        self.gain = nn.Parameter(torch.tensor(0.7))

    def forward(self, x):
        return x + self.gain * self.down(F.silu(self.gate(x)) * self.up(x))


class Convolved(nn.Module):
    """Over the tokens of a row."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(WIDTH, WIDTH, 3, padding=1), nn.GroupNorm(2, WIDTH)

    def forward(self, x):
        return x + F.gelu(self.norm(self.conv(x.transpose(1, 2)))).transpose(1, 2)


class Counted(nn.Module):
    """Moves a buffer on that nothing else reads."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(WIDTH))

    def forward(self, x):
        with torch.no_grad():
            self.seen += 1
            self.average.mul_(0.9).add_(0.1 * x.float().flatten(0, -2).mean(0))
        return x * self.scale


class Shifted(nn.Module):
    """A softmax over the output does not see the shift."""

    def __init__(self, outputs):
        super().__init__()
        self.head, self.shift = nn.Linear(WIDTH, outputs), nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.head(x) + self.shift


class Tied(nn.Module):
    """A head whose weight is that of an embedding."""

    def __init__(self, embedding):
        super().__init__()
        self.weight = embedding.weight

    def forward(self, x):
        return F.linear(x, self.weight)


class Chain(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


def masked(output, target):
    return F.cross_entropy(output.flatten(0, -2).float(), target.flatten())


def weighed(output, target):
    """The weights are made where they are used, in float32."""
    weight = torch.linspace(0.5, 2.0, output.shape[-1])
    return F.cross_entropy(output.flatten(0, -2).float(), target.flatten(), weight=weight)


def pair(output, target):
    losses = F.cross_entropy(output.flatten(0, -2).float(), target.flatten(), reduction="none")
    return losses.sum(), (target != -100).sum()


def squares(output, target):
    return (output.float() - target).pow(2).mean()


CLASS_LOSSES = [masked, weighed, pair]
VALUE_LOSSES = [
    squares,
    lambda o, t: F.mse_loss(o.float(), t),
    lambda o, t: F.l1_loss(o.float(), t),
    lambda o, t: F.smooth_l1_loss(o.float(), t),
    lambda o, t: F.binary_cross_entropy_with_logits(o.float(), t.sigmoid()),
    lambda o, t: F.kl_div(o.float().log_softmax(-1), t.softmax(-1), reduction="batchmean"),
]
ACTIVATIONS = [F.gelu, F.silu, torch.tanh, F.relu]


@dataclass
class Case:
    """A program to be: `batch(generator)` gives a batch."""

    name: str
    model: nn.Module
    loss_fn: Callable
    batch: Callable[[torch.Generator], Any]
    optimizer: torch.optim.Optimizer
    strategy: piper.Strategy | None

    def compile(self) -> Program:
        example = self.batch(torch.Generator().manual_seed(0))
        return piper.compile(
            self.model, self.loss_fn, example, strategy=self.strategy, optimizer=self.optimizer, progress=False
        )

    def redraw(self, seed: int) -> None:
        """Other parameters, about as large."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.model.parameters():
                size = 0.05 if parameter.dim() < 2 else parameter.float().std().item()
                noise = torch.randn(parameter.shape, generator=generator) * size
                parameter.copy_(0.8 * parameter + 0.6 * noise)

    def truths(self, seed: int, batches: int = 3) -> Truths:
        generator = torch.Generator().manual_seed(seed)
        return Truths(self.model, self.loss_fn, [self.batch(generator) for _ in range(batches)], self.optimizer)


def again(program: Program, model: nn.Module, plan: bytes | None = None, kernels: Any = None) -> Program:
    """A program of the same code, or of some other plan and kernels, that starts with the model's state and without moments."""
    made = Program(program._description, plan or program._plan, kernels or program._kernels, program._texts)
    # Constants of the model's code are states, too.
    made.write_states({name: program._read(name) for name in program._description.states})
    made.load_state_dict(model.state_dict())
    return made


def verified(case: Case, program: Program, truths: Truths) -> Report:
    """What `piper.verify` says after it has compiled."""
    report = Report()
    compare(report, program, truths, case.strategy)
    return report


def random_case(seed: int) -> Case:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    rows = draw.choice([8, 8, 8, 7])
    front, kind = _front(draw, rows)
    blocks = [_block(draw, kind) for _ in range(draw.randint(1, 3))]
    classes = kind == "tokens" or draw.random() < 0.4
    outputs = WORDS if kind == "tokens" else CLASSES
    head = Tied(front) if kind == "tokens" and draw.random() < 0.4 else _head(draw, outputs)
    model = Chain([front, *blocks, head])
    half = draw.random() < 0.12
    if half:
        model = model.bfloat16()
    loss_fn = draw.choice(CLASS_LOSSES if classes else VALUE_LOSSES)
    strategy, name = _strategy(draw, model, len(blocks))
    optimizer, rule = _optimizer(draw, model)
    inputs = _inputs(kind, rows, half)

    def batch(generator):
        return inputs(generator), _target(generator, kind, rows, outputs, classes)

    parts = "-".join(type(part).__name__ for part in model.parts)
    return Case(f"{seed}: {parts} {name} {rule}{' bf16' if half else ''}", model, loss_fn, batch, optimizer, strategy)


def _front(draw, rows):
    kind = draw.choice(["tokens", "tokens", "vectors", "sequences"])
    return (nn.Embedding(WORDS, WIDTH), kind) if kind == "tokens" else (nn.Linear(6, WIDTH), kind)


def _block(draw, kind):
    makers = [
        lambda: Feed(draw.choice(ACTIVATIONS)),
        lambda: Feed(draw.choice(ACTIVATIONS), frozen=True),
        Gated,
        FloatNorm,
        lambda: nn.LayerNorm(WIDTH),
        Counted,
    ]
    if kind != "vectors":
        makers += [lambda: Attention(True), lambda: Attention(False), Convolved]
    return draw.choice(makers)()


def _head(draw, outputs):
    return draw.choice([lambda: nn.Linear(WIDTH, outputs), lambda: Shifted(outputs)])()


def _inputs(kind, rows, half):
    def make(generator):
        if kind == "tokens":
            return torch.randint(0, WORDS, (rows, TOKENS), generator=generator)
        shape = (rows, 6) if kind == "vectors" else (rows, TOKENS, 6)
        value = torch.randn(shape, generator=generator)
        return value.bfloat16() if half else value

    return make


def _target(generator, kind, rows, outputs, classes):
    shape = (rows,) if kind == "vectors" else (rows, TOKENS)
    if not classes:
        return torch.randn(*shape, outputs, generator=generator)
    target = torch.randint(0, outputs, shape, generator=generator)
    ignored = torch.rand(shape, generator=generator) < 0.2
    ignored.view(-1)[0] = False
    return torch.where(ignored, -100, target)


def _optimizer(draw, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    wide, flat = [p for p in trained if p.dim() > 1], [p for p in trained if p.dim() < 2]
    lr = draw.choice([1e-4, 1e-3, 1e-2])
    groups = [{"params": wide}, {"params": flat, "weight_decay": 0.0, "lr": lr / 2}] if draw.random() < 0.5 else trained
    rule = draw.choice(["sgd", "momentum", "adam", "adamw", "adamw", "adamw"])
    if rule == "sgd":
        return torch.optim.SGD(groups, lr=10 * lr, weight_decay=0.01), rule
    if rule == "momentum":
        return torch.optim.SGD(groups, lr=10 * lr, momentum=0.9, nesterov=draw.random() < 0.5, weight_decay=0.01), rule
    options = dict(lr=lr, eps=draw.choice([1e-8, 1e-15]), amsgrad=draw.random() < 0.2)
    make = torch.optim.Adam if rule == "adam" else torch.optim.AdamW
    return make(groups, weight_decay=draw.choice([0.0, 0.01, 0.1]), **options), rule


def _strategy(draw, model, blocks):
    kind = draw.choice(["one", "parts", "dp2", "zero1", "zero2", "zero3", "pp2", "pp2", "pp2dp2"])
    if kind == "one":
        return None, kind
    if kind == "parts":
        return piper.strategies.data_parallel(piper.Mesh(dp=1), microbatches=3), kind
    if not kind.startswith("pp"):
        zero = int(kind[4:]) if kind.startswith("zero") else 0
        return piper.strategies.data_parallel(piper.Mesh(dp=2), zero=zero, microbatches=draw.choice([1, 2])), kind
    names = [f"parts.{index}" for index in range(blocks + 2)]
    cut = draw.randint(1, len(names) - 1)
    piper.annotate_modules(model, {"stage": [names[:cut], names[cut:]]})
    schedule = draw.choice(["1f1b", "gpipe", "zb_h1"])
    if kind == "pp2":
        return piper.strategies.pipeline(piper.Mesh(pp=2), schedule=schedule, microbatches=draw.choice([2, 4])), kind
    zero = draw.choice([0, 1, 3])
    return piper.strategies.pipeline(
        piper.Mesh(pp=2, dp=2), schedule=schedule, microbatches=2, zero=zero
    ), f"{kind} zero{zero}"
