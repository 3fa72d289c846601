# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models for the importer's tests, each with what makes importing hard. `dict(args, kwargs, target)` batches; losses
return scalars or pairs.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Attention(nn.Module):
    def __init__(self, dim, heads, kv):
        super().__init__()
        self.heads, self.kv, self.size = heads, kv, dim // heads
        self.q, self.o = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.k, self.v = nn.Linear(dim, kv * self.size, bias=False), nn.Linear(dim, kv * self.size, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v = (
            f(x).view(b, t, n, self.size).transpose(1, 2)
            for f, n in ((self.q, self.heads), (self.k, self.kv), (self.v, self.kv))
        )
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))


class Layer(nn.Module):
    def __init__(self, dim, heads, kv):
        super().__init__()
        self.n1, self.n2, self.attention = RMSNorm(dim), RMSNorm(dim), Attention(dim, heads, kv)
        self.gate, self.up, self.down = (
            nn.Linear(dim, 3 * dim, bias=False),
            nn.Linear(dim, 3 * dim, bias=False),
            nn.Linear(3 * dim, dim, bias=False),
        )

    def forward(self, x, cos, sin):
        x = x + self.attention(self.n1(x), cos, sin)
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LanguageModel(nn.Module):
    """Llama-style: RMSNorm, rotary embedding from buffers, grouped-query attention, SwiGLU."""

    def __init__(self, dim=16, layers=4, heads=4, kv=2, vocab=23, seq=8):
        super().__init__()
        self.embed, self.layers = nn.Embedding(vocab, dim), nn.ModuleList(Layer(dim, heads, kv) for _ in range(layers))
        self.norm, self.head = RMSNorm(dim), nn.Linear(dim, vocab, bias=False)
        angle = torch.outer(
            torch.arange(seq).float(), 100.0 ** (-torch.arange(0, dim // heads, 2) / (dim // heads))
        ).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x))


def token_loss(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def tokens(batch=6, vocab=23, seq=8):
    ids = torch.randint(0, vocab, (batch, seq + 1))
    return dict(args=(ids[:, :-1].contiguous(),), kwargs={}, target=ids[:, 1:].contiguous())


class Tied(nn.Module):
    """Embedding and head are one parameter, used by the first and the last chunk."""

    def __init__(self, vocab=11, dim=8):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab, bias=False)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU()) for _ in range(3))
        self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class Normed(nn.Module):
    """BatchNorm and a counter: buffers that forward writes."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=0.3), nn.ReLU()) for _ in range(2)
        )
        self.out = nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class Remembering(nn.Module):
    """Buffers that the next forward reads: a lost write changes its loss."""

    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(4, 4), nn.Linear(4, 2)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("table", torch.zeros(1, 3), persistent=False)
        self.scale = nn.Parameter(torch.rand(4))

    def forward(self, x):
        h, k = torch.tanh(self.f(x)) * (self.mean + 1) * self.scale, self.step.clone()
        with torch.no_grad():
            self.step += 1
            self.mean.mul_(0.5).add_(0.5 * h.mean(0))
            self.table[0, 1] = x.sum()
        return self.g(h - self.mean) + 0.1 * k + 0.01 * self.table.sum()


class Adapter(nn.Module):
    def __init__(self, dim, trainable):
        super().__init__()
        self.base, self.trainable = nn.Linear(dim, dim).requires_grad_(False), trainable
        if trainable:
            self.a, self.b = nn.Parameter(torch.randn(2, dim) * 0.2), nn.Parameter(torch.randn(dim, 2) * 0.2)

    def forward(self, x):
        y = self.base(x)
        return x + torch.tanh(y + x @ self.a.t() @ self.b.t() if self.trainable else y)


class Adapted(nn.Module):
    """Frozen weights with low-rank adapters; the first block and the embedding have nothing to train."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 6).requires_grad_(False), nn.Linear(6, 9).requires_grad_(False)
        self.blocks = nn.ModuleList(Adapter(6, i > 0) for i in range(3))

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Masked(nn.Module):
    """Ids, a mask, positions, an undivided table and Python scalars, some by keyword, used in every block."""

    def __init__(self, dim=8):
        super().__init__()
        self.embed, self.head = nn.Embedding(10, dim), nn.Linear(dim, 10)
        self.blocks = nn.ModuleList(nn.ModuleDict({n: nn.Linear(dim, dim) for n in "qkv"}) for _ in range(3))

    def forward(self, ids, *, mask, bias, positions=None, temperature=2.0, shift=True):
        h = self.embed(ids)
        if positions is None:
            positions = torch.arange(ids.shape[1]).expand_as(ids)
        for block in self.blocks:
            scores = block["q"](h) @ block["k"](h).transpose(1, 2) / temperature + bias
            scores = scores.masked_fill(~mask[:, None, :], float("-inf"))
            h = h + torch.softmax(scores, -1) @ block["v"](h) + 0.01 * positions[..., None].to(h.dtype)
        out = self.head(h)
        return out[:, :-1] if shift else out


def masked_batch(batch=4, seq=6):
    ids = torch.randint(0, 10, (batch, seq))
    mask = torch.arange(seq)[None] < torch.tensor([6, 4, 5, 3])[:batch, None]
    return dict(
        args=(ids,),
        kwargs=dict(temperature=1.5, mask=mask, bias=torch.randn(seq, seq) * 0.3),
        target=ids[:, 1:].contiguous(),
    )


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class MixtureLayer(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim) for _ in range(experts))

    def forward(self, x):
        weights, chosen = F.softmax(self.router(x), -1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        full = torch.zeros(*x.shape[:-1], len(self.experts)).scatter(-1, chosen, weights)
        return x + sum(expert(x) * full[..., i : i + 1] for i, expert in enumerate(self.experts))


class Mixture(nn.Module):
    """A mixture of experts in its dense form: every expert sees every token, most with weight zero."""

    def __init__(self, dim=8, vocab=13):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)
        self.layers = nn.ModuleList(MixtureLayer(dim, 4) for _ in range(2))

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Skipping(nn.Module):
    """Activations that skip over several chunks; their gradients meet again at the producer."""

    def __init__(self, dim=8, depth=3):
        super().__init__()
        self.first, self.last = nn.Linear(5, dim), nn.Linear(dim, 3)
        self.down = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.up = nn.ModuleList(nn.Linear(2 * dim, dim) for _ in range(depth))

    def forward(self, x):
        x, kept = torch.tanh(self.first(x)), []
        for layer in self.down:
            kept.append(x)
            x = torch.tanh(layer(x)) + 0.1 * x
        for layer in self.up:
            x = torch.tanh(layer(torch.cat([x, kept.pop()], -1)))
        return self.last(x)


class Viewed(nn.Module):
    """In-place operations on a received activation, strided views between stages, a slice that aliases another
    output.
    """

    def __init__(self):
        super().__init__()
        self.f1, self.f2, self.f3 = nn.Linear(4, 6), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, x):
        h = self.f1(x)
        h.mul_(1.5)
        h[:, 0] = 0.0
        h = F.leaky_relu_(self.f2(h.transpose(1, 2).relu_()), 0.1)
        v = h[:, ::2]
        h = h + 1
        h[:, ::2] += v
        return self.f3(h).sum(1)


class Structured(nn.Module):
    """Nested output with tensors, a scalar, None and an int; the loss has two terms."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        h = torch.tanh(self.a(x))
        k = torch.tanh(self.b(h))
        return OrderedDict(
            logits=self.c(k), reg=self.a.weight.pow(2).sum() * 0.1 + h.var(), past=None, n=x.shape[0], hidden=(h, k)
        )


def structured_loss(out, target):
    return F.cross_entropy(out["logits"], target) + 0.3 * out["reg"] + 0.2 * out["hidden"][0].pow(2).mean()


class Shared(nn.Module):
    """One block called three times, and a parameter that nothing uses."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4)] * 3 + [nn.Linear(4, 4)])
        self.unused, self.out = nn.Linear(3, 3), nn.Linear(4, 2)

    def forward(self, x):
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.out(x)


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5)
        self.body = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(2))
        )

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 2)
        return self.head(F.adaptive_avg_pool2d(self.body(x), 1).flatten(1))


class Uneven(nn.Module):
    """Seven layers, each of another width."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(4, 6), nn.Linear(6, 2)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 4 + 3 * i), nn.ReLU(), nn.Linear(4 + 3 * i, 6)) for i in range(7)
        )

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.out(x)


class TwoNames(nn.Module):
    """A weight and a buffer under two names each, all in one chunk."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.b.weight = self.a.weight
        scale = torch.rand(4) + 0.5
        self.a.register_buffer("scale", scale)
        self.b.register_buffer("scale", scale, persistent=False)

    def forward(self, x):
        h = torch.tanh(self.a(x) * self.a.scale)
        return self.out(torch.tanh(self.b(h) * self.b.scale))


def squared(out, target):
    return (out - target).pow(2).mean()


def regression(inputs, outputs, batch=6):
    return dict(args=(torch.randn(batch, *inputs),), kwargs={}, target=torch.randn(batch, *outputs))


def cases():
    """name → (model, loss_fn, batches that are microbatches of one step, options of import_model)."""
    ids = torch.randint(0, 9, (4, 6))
    return {
        "language_model": (LanguageModel(), token_loss, [tokens()], {}),
        "tied": (Tied(), token_loss, [tokens(vocab=11, seq=5)], {}),
        "normed": (Normed(), squared, [regression((4,), (2,)) for _ in range(3)], {}),
        "remembering": (Remembering(), squared, [regression((4,), (2,)) for _ in range(3)], {}),
        "adapted": (
            Adapted(),
            token_loss,
            [dict(args=(ids[:, :-1].contiguous(),), kwargs={}, target=ids[:, 1:].contiguous())],
            {},
        ),
        "masked": (Masked(), token_loss, [masked_batch()], {}),
        "mixture": (Mixture(), token_loss, [tokens(4, 13, 5)], {}),
        "skipping": (Skipping(), squared, [regression((5,), (3,))], {}),
        "viewed": (Viewed(), squared, [regression((5, 4), (2,), 3) for _ in range(2)], {}),
        "structured": (
            Structured(),
            structured_loss,
            [dict(args=(torch.randn(6, 5),), kwargs={}, target=torch.randint(0, 3, (6,))) for _ in range(2)],
            dict(loss_reduction="mean_rows"),
        ),
        "shared": (Shared(), squared, [regression((4,), (2,))], {}),
        "convolutional": (
            Convolutional(),
            F.cross_entropy,
            [dict(args=(torch.randn(4, 3, 8, 8),), kwargs={}, target=torch.randint(0, 5, (4,))) for _ in range(2)],
            {},
        ),
        "two_names": (TwoNames(), squared, [regression((4,), (2,)) for _ in range(2)], {}),
        "uneven": (Uneven(), squared, [regression((4,), (2,))], {}),
    }


STAGES = {
    "tied": [["embed", "blocks.0"], ["blocks.1", "blocks.2", "head"]],
    "normed": [["blocks.0"], ["blocks.1", "out"]],
    "remembering": [["f"], ["g"]],
    "adapted": [["embed", "blocks.0"], ["blocks.1"], ["blocks.2", "head"]],
    "masked": [["embed", "blocks.0"], ["blocks.1", "blocks.2", "head"]],
    "skipping": [["first", "down.0"], ["down.1", "down.2"], ["up.0", "up.1"], ["up.2", "last"]],
    "viewed": [["f1"], ["f2"], ["f3"]],
    "structured": [["a"], ["b", "c"]],
    "language_model": [["embed", "layers.0", "layers.1"], ["layers.2", "layers.3", "norm", "head"]],
}
