# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models in which other systems' pipelines and data parallelism went wrong.

Each class says where the failure was reported.
"""

from __future__ import annotations

import collections

import piper
import torch
from torch import nn
from torch.nn import functional as F


def mean_squared(output, target):
    return (output - target).pow(2).mean()


class TiedModel(nn.Module):
    """Input embedding and output head are one tensor on two stages (pytorch/pytorch#51931, Megatron-LM#844)."""

    def __init__(self, vocabulary=13, dim=8):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
            for _ in range(4)
        )
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


class TwoProjections(torch.autograd.Function):
    """Two products with the halves of one weight."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        low, high = weight.chunk(2)
        return x @ low.t(), x @ high.t()

    @staticmethod
    def backward(ctx, low_gradient, high_gradient):
        x, weight = ctx.saved_tensors
        low, high = weight.chunk(2)
        return low_gradient @ low + high_gradient @ high, torch.cat([low_gradient.t() @ x, high_gradient.t() @ x])


class Projections(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 6) * 0.3)

    def forward(self, x):
        low, high = TwoProjections.apply(x, self.weight)
        return torch.tanh(low) * torch.sigmoid(high)


class TwoOutputModel(nn.Module):
    """One operation with a weight and two results, whose backward is divided (pytorch/pytorch#170277)."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.project, self.c = nn.Linear(5, 6), nn.Linear(6, 6), Projections(), nn.Linear(4, 2)

    def forward(self, x):
        return self.c(self.project(torch.tanh(self.b(torch.tanh(self.a(x))))))


class SharedAtDepths(nn.Module):
    """One layer at three depths, twice at one of them: gradients that bypass a reduction, or are reduced twice, show (pytorch/pytorch#144530)."""

    CALLS = (1, 0, 2, 1)

    def __init__(self, stages: int):
        super().__init__()
        self.shared, self.own = nn.Linear(4, 4), nn.ModuleList(nn.Linear(4, 4) for _ in self.CALLS)
        self.stages = stages

    def forward(self, x):
        depth = len(self.CALLS) // self.stages
        for stage in range(self.stages):
            with piper.annotate("stage"):
                for layer in range(stage * depth, (stage + 1) * depth):
                    x = torch.tanh(self.own[layer](x))
                    for _ in range(self.CALLS[layer]):
                        x = torch.tanh(self.shared(x))
        return x


class NormalizedModel(nn.Module):
    """BatchNorm and a counter: every microbatch moves the statistics once, in order (pytorch/pytorch PR 188763)."""

    def __init__(self):
        super().__init__()
        self.a, self.norm_a = nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.b, self.norm_b = nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=0.3)
        self.c = nn.Linear(6, 2)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.calls += 1
        return self.c(torch.relu(self.norm_b(self.b(torch.relu(self.norm_a(self.a(x)))))))


class Adapter(nn.Module):
    def __init__(self, dim, rank, trainable):
        super().__init__()
        self.base = nn.Linear(dim, dim).requires_grad_(False)
        self.trainable = trainable
        if trainable:
            self.down, self.up = nn.Parameter(torch.randn(rank, dim) * 0.2), nn.Parameter(torch.randn(dim, rank) * 0.2)

    def forward(self, x):
        y = self.base(x)
        if self.trainable:
            y = y + x @ self.down.t() @ self.up.t()
        return x + torch.tanh(y)


class AdapterModel(nn.Module):
    """Frozen weights with small adapters; nothing in the first stage trains (pytorch/pytorch#91167, #171709)."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 6).requires_grad_(False)
        self.layers = nn.ModuleList(Adapter(6, 2, i > 0) for i in range(3))
        self.head = nn.Linear(6, 9).requires_grad_(False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class MaskedBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x, mask, position, bias, temperature):
        scores = self.q(x) @ self.k(x).transpose(1, 2) / temperature + bias
        weights = torch.softmax(scores.masked_fill(~mask[:, None, :], float("-inf")), -1)
        return x + weights @ self.v(x) + 0.01 * position[..., None].to(x.dtype)


class MaskedModel(nn.Module):
    """Integers, booleans, scalars and keywords cross stages beside activations (pytorch/pytorch#183024)."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.layers = nn.ModuleList(MaskedBlock(8) for _ in range(4))
        self.head = nn.Linear(8, 10)

    def forward(self, tokens, *, mask, bias, position=None, temperature=2.0, shift=True):
        x = self.embed(tokens)
        if position is None:
            position = torch.arange(tokens.shape[1]).expand_as(tokens)
        for layer in self.layers:
            x = layer(x, mask, position, bias, temperature)
        x = self.head(x)
        return x[:, :-1] if shift else x


class ThreeLinear(nn.Module):
    def __init__(self, inputs=4, outputs=2):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(inputs, 8), nn.Linear(8, 8), nn.Linear(8, outputs)

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


class TokenModel(nn.Module):
    """Microbatches and ranks hold different numbers of valid tokens (pytorch/torchtitan#2972)."""

    def __init__(self):
        super().__init__()
        self.embed, self.a, self.b = nn.Embedding(12, 8), nn.Linear(8, 8), nn.Linear(8, 12)

    def forward(self, tokens):
        return self.b(torch.tanh(self.a(self.embed(tokens))))


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(4, 6)

    def forward(self, x):
        h = self.f(x)
        h.mul_(1.5)
        h[:, 0] = 0.0
        return h.transpose(1, 2)


class Second(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(5, 5)

    def forward(self, h):
        h = F.leaky_relu_(self.f(h.relu_()), 0.1)
        return h, h[:, ::2]


class Third(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(5, 2)

    def forward(self, h, view):
        h = h + 1
        h[:, ::2] += view
        return self.f(h).sum(1)


class InPlaceModel(nn.Module):
    """In-place changes of a stage's input, outputs that share memory (PiPPy PR 881, pytorch/pytorch#93363)."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = First(), Second(), Third()

    def forward(self, x):
        return self.third(*self.second(self.first(x)))


class MemoryModel(nn.Module):
    """Buffers that one forward writes and the next one reads (pytorch/pytorch#120424, #114967)."""

    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(4, 4), nn.Linear(4, 2)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("history", torch.zeros(1, 3), persistent=False)

    def forward(self, x):
        h = torch.tanh(self.f(x))
        seen = self.count.clone()
        with torch.no_grad():
            self.count += 1
            self.average.mul_(0.5).add_(0.5 * h.mean(0))
            self.history[0, 1] = x.sum()
        return self.g(h - self.average) + 0.1 * seen + 0.01 * self.history.sum()


class DictionaryModel(nn.Module):
    """A dictionary output with None, an int and nested tensors; a loss of three terms (pytorch/pytorch PR 50693)."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x, return_hidden=True):
        first = torch.tanh(self.a(x))
        second = torch.tanh(self.b(first))
        regularizer = self.a.weight.pow(2).sum() * 0.1 + first.var()
        return collections.OrderedDict(
            logits=self.c(second),
            regularizer=regularizer,
            cache=None,
            rows=x.shape[0],
            hidden=(first, second) if return_hidden else None,
        )


def dictionary_loss(output, target):
    return (
        F.cross_entropy(output["logits"], target)
        + 0.3 * output["regularizer"]
        + 0.2 * output["hidden"][0].pow(2).mean()
    )


class PartlyFrozen(nn.Module):
    """Parts without trainable parameters first, in the middle and last: their backward has no weight gradients."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.d(torch.tanh(self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))))


class UnevenLayer(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.a, self.b = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


class UnevenModel(nn.Module):
    """Seven layers on 2, 3 or 4 stages: none may get lost (Megatron-LM#1304, torchtitan PR 963)."""

    def __init__(self, layers=7):
        super().__init__()
        self.enter = nn.Linear(4, 6)
        self.layers = nn.ModuleList(UnevenLayer(6, 4 + 3 * i) for i in range(layers))
        self.leave = nn.Linear(6, 2)

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers:
            x = layer(x)
        return self.leave(x)
