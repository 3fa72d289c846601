# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random losses and random small models, of what people write and of what goes wrong where a batch is divided."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from torch import nn

ROWS, CLASSES = 12, 4


def batch(seed: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """x, and a target of labels, numbers and a mask whose parts have unequal weights."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (ROWS,), generator=g)
    labels[torch.rand(ROWS, generator=g) < 0.2] = -100
    mask = (torch.rand(ROWS, generator=g) < 0.7).float()
    mask[0::4] = 1.0
    return torch.randn(ROWS, 5, generator=g), {
        "labels": labels.clamp(min=0),
        "ignoring": labels,
        "numbers": torch.randn(ROWS, CLASSES, generator=g),
        "mask": mask,
    }


ELEMENTS = {
    "squared": lambda z, t: (z - t["numbers"]) ** 2,
    "absolute": lambda z, t: (z - t["numbers"]).abs(),
    "huber": lambda z, t: F.huber_loss(z, t["numbers"], reduction="none"),
    "tanh": lambda z, t: torch.tanh(z) * t["numbers"],
    "entropy": lambda z, t: F.cross_entropy(z, t["labels"], reduction="none"),
    "ignoring": lambda z, t: F.cross_entropy(z, t["ignoring"], reduction="none"),
    "logits": lambda z, t: F.binary_cross_entropy_with_logits(z, torch.sigmoid(t["numbers"]), reduction="none"),
    "log_sum": lambda z, t: z.logsumexp(1) ** 2,
}


def _across(e, t):
    return (-1,) + (1,) * (e.dim() - 1)


CHANGES = {
    "masked": lambda e, t: e * t["mask"].view(_across(e, t)),
    "scaled": lambda e, t: 0.3 * e,
    "shifted": lambda e, t: e + 0.1,
    "by_rows": lambda e, t: e / len(e),
    "by_mask": lambda e, t: e * t["mask"].view(_across(e, t)) / t["mask"].sum(),
    "centred": lambda e, t: e - e.mean(0),
    "centred_whole": lambda e, t: e - e.mean(),
    "centred_detached": lambda e, t: e - e.mean().detach(),
    "normed": lambda e, t: e / e.norm(),
    "softmax": lambda e, t: e.softmax(0) * e,
    "cumulated": lambda e, t: e.cumsum(0),
    "rolled": lambda e, t: (e - e.roll(1, 0)) ** 2,
    "flipped": lambda e, t: e * e.flip(0),
    "halves": lambda e, t: e.chunk(2)[0] * e.chunk(2)[1],
    "sliced": lambda e, t: e[: len(e) // 2] - e[len(e) // 2 :] ** 2,
    "viewed": lambda e, t: e.reshape(2, -1).prod(0),
    "neighbours": lambda e, t: e[::2] * e[1::2],
    "ranked": lambda e, t: e.sort(0).values * torch.arange(len(e)).view(_across(e, t)),
    "ramp": lambda e, t: e * torch.linspace(0, 1, len(e)).view(_across(e, t)),
    "first": lambda e, t: e * e[0],
    "largest": lambda e, t: e - e.amax(0, keepdim=True),
    "weighed": lambda e, t: e * (t["mask"] / t["mask"].mean()).view(_across(e, t)),
    "advantage": lambda e, t: e * ((t["mask"] - t["mask"].mean()) / (t["mask"].std() + 1)).view(_across(e, t)),
}
REDUCTIONS = {
    "mean": lambda e, t: e.mean(),
    "sum": lambda e, t: e.sum(),
    "torch_mean": lambda e, t: torch.mean(e),
    "sum_over_rows": lambda e, t: e.sum() / len(e),
    "sum_over_mask": lambda e, t: e.sum() / t["mask"].sum(),
    "mean_then_sum": lambda e, t: e.mean(0).sum(),
    "sum_then_mean": lambda e, t: e.sum(0).mean(),
    "rows_then_mean": lambda e, t: e.flatten(1).sum(1).mean() if e.dim() > 1 else e.mean(),
    "norm": lambda e, t: e.norm(),
    "norms": lambda e, t: e.flatten(1).norm(dim=-1).sum() if e.dim() > 1 else e.norm().sum(),
    "largest": lambda e, t: e.max(),
    "log_sum": lambda e, t: e.logsumexp(0).sum(),
    "variance": lambda e, t: e.var(),
}
WEIGHTS = {
    "rows": lambda z, t: len(z),
    "elements": lambda z, t: z.numel(),
    "mask": lambda z, t: t["mask"].sum(),
    "valid": lambda z, t: (t["ignoring"] >= 0).sum(),
    "one": lambda z, t: 1,
    "half": lambda z, t: len(z) // 2,
    "trained": lambda z, t: z.abs().sum(),
    "largest": lambda z, t: t["mask"].max(),
}
WHOLE = {
    "cross_entropy": lambda z, t: F.cross_entropy(z, t["labels"]),
    "ignoring": lambda z, t: F.cross_entropy(z, t["ignoring"]),
    "smoothed": lambda z, t: F.cross_entropy(z, t["ignoring"], label_smoothing=0.1),
    "mse": lambda z, t: F.mse_loss(z, t["numbers"]),
    "contrast": lambda z, t: F.cross_entropy(z @ t["numbers"].t(), torch.arange(len(z))),
    "covariance": lambda z, t: (z.t() @ z / len(z) - torch.eye(CLASSES)).pow(2).sum(),
}


class RandomLoss:
    """A loss made of the pieces above; `text` says which."""

    def __init__(self, seed: int):
        self._choose = random.Random(seed)
        self._run, self.text = self._loss()
        self.reduction = self._choose.choice([None] * 6 + ["mean_rows", "sum"])
        if "pair" in self.text:
            self.reduction = None
        self.text += f" {self.reduction}" if self.reduction else ""

    def __call__(self, z, t):
        return self._run(z, t)

    def _loss(self):
        kind = self._choose.choice(
            ["one", "one", "one", "pair", "pair", "scaled", "added", "stacked", "product", "root"]
        )
        one, text = self._scalar()
        if kind == "pair":
            # Mostly sums, which are what a pair is meant for.
            element, inner = self._element()
            name = self._choose.choice(list(WEIGHTS))
            if self._choose.random() < 0.7:
                return lambda z, t: (element(z, t).sum(), WEIGHTS[name](z, t)), f"pair(sum({inner}), {name})"
            return lambda z, t: (one(z, t), WEIGHTS[name](z, t)), f"pair({text}, {name})"
        if kind == "scaled":
            return lambda z, t: -0.5 * one(z, t), f"-0.5 * {text}"
        if kind == "root":
            return lambda z, t: (one(z, t).abs() + 1).sqrt(), f"root({text})"
        if kind == "one":
            return one, text
        two, other = self._scalar()
        if kind == "added":
            return lambda z, t: one(z, t) + 0.1 * two(z, t), f"{text} + 0.1 * {other}"
        if kind == "product":
            return lambda z, t: one(z, t) * two(z, t), f"{text} * {other}"
        mean = self._choose.random() < 0.5
        both = lambda z, t: torch.stack([one(z, t), two(z, t)])  # noqa: E731
        return (lambda z, t: both(z, t).mean() if mean else both(z, t).sum()), f"stack({text}, {other}) {mean}"

    def _scalar(self):
        if self._choose.random() < 0.2:
            name = self._choose.choice(list(WHOLE))
            return WHOLE[name], name
        element, text = self._element()
        name = self._choose.choice(["mean", "sum", *REDUCTIONS])
        return lambda z, t: REDUCTIONS[name](element(z, t), t), f"{name}({text})"

    def _element(self):
        name = self._choose.choice(list(ELEMENTS))
        changes = [self._choose.choice(list(CHANGES)) for _ in range(self._choose.choice([0, 0, 1, 1, 2]))]

        def element(z, t):
            e = ELEMENTS[name](z, t)
            for change in changes:
                e = CHANGES[change](e, t)
            return e

        return element, ".".join([name, *changes])


MIXERS = {
    "centred": lambda h: h - h.mean(0),
    "centred_whole": lambda h: h - h.mean(),
    "detached": lambda h: h * ((h - h.mean()) / (h.std() + 1)).detach(),
    "softmax": lambda h: h.softmax(0),
    "cumulated": lambda h: h.cumsum(0) * 0.3,
    "rolled": lambda h: h + h.roll(1, 0),
    "flipped": lambda h: h * h.flip(0),
    "halves": lambda h: torch.cat([h.chunk(2)[0] - h.chunk(2)[1], h.chunk(2)[1]]),
    "doubled_halves": lambda h: torch.cat([h[: len(h) // 2], h[len(h) // 2 :] * h[: len(h) // 2]]),
    "viewed": lambda h: (h.view(2, -1, h.shape[-1]) * 2 - h.view(2, -1, h.shape[-1]).sum(0)).view_as(h),
    "sorted": lambda h: h + h.sort(0).values,
    "ramp": lambda h: h * torch.linspace(0.5, 1, len(h))[:, None],
    "counted": lambda h: h * (len(h) / ROWS),
    "first": lambda h: h + h[0],
    "pairs": lambda h: (h @ h.t()).softmax(-1) @ h,
    "largest": lambda h: h - h.max(),
    "threshold": lambda h: h * (h.detach().sum() > 0),
    "no_gradient": lambda h: h + h.detach().norm(),
    "gradient": lambda h: h - h.detach().mean(0) + h.mean(0) + h.detach().mean(0) - h.mean(0).detach(),
    "batch_norm": lambda h: F.batch_norm(h, None, None, training=True),
    "rows_as_channels": lambda h: F.layer_norm(h.t(), (len(h),)).t(),
}
APART = {
    "tanh": torch.tanh,
    "norm": lambda h: F.layer_norm(h, h.shape[-1:]),
    "softmax_rows": lambda h: h.softmax(-1),
    "cumulated_rows": lambda h: h.cumsum(-1) * 0.3,
    "halved_rows": lambda h: torch.cat([h.chunk(2, 1)[1], h.chunk(2, 1)[0]], 1),
    "indexed": lambda h: h[torch.arange(len(h))],
    "pairs_of_columns": lambda h: h.view(len(h), 2, -1).flip(1).flatten(1),
    "there_and_back": lambda h: h.flip(0).flip(0),
    "upcast": lambda h: F.gelu(h.float()).to(h.dtype),
    "transposed": lambda h: h.t().tanh().t(),
}


class RandomModel(nn.Module):
    """Layers with functions between them, of which some mix rows; sometimes a second output that is a number."""

    def __init__(self, seed: int):
        super().__init__()
        choose = random.Random(seed)
        names = [choose.choice(list(APART)) for _ in range(3)]
        if choose.random() < 0.6:
            names[choose.randrange(3)] = choose.choice(list(MIXERS))
        self.layers = nn.ModuleList(nn.Linear(5 if i == 0 else 6, 6) for i in range(3))
        self.head = nn.Linear(6, CLASSES)
        self.names = names
        self.aux = choose.choice([None, None, None, "mean", "balance"])
        if choose.random() < 0.2:
            # An adapter at its start.
            nn.init.zeros_(self.head.weight)

    @property
    def text(self) -> str:
        return f"{self.names} {self.aux} {'zero head' if not self.head.weight.any() else ''}"

    def forward(self, x):
        for layer, name in zip(self.layers, self.names, strict=True):
            x = (APART.get(name) or MIXERS[name])(layer(x))
        z = self.head(x)
        if self.aux is None:
            return z
        return z, x.pow(2).mean() if self.aux == "mean" else x.softmax(1).mean(0).pow(2).sum()


def with_auxiliary(output, target):
    """(sum, weight) of a loss with the model's own number in it, if it has one."""
    z, aux = output if isinstance(output, tuple) else (output, 0.0)
    return (z - target["numbers"]).pow(2).sum() + aux * z.numel(), z.numel()
