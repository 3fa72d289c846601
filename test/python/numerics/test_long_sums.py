# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums over many elements are right to 1e-5 of float64, or as right as PyTorch's own."""

import copy

import piper
import pytest
import torch
import torch.nn.functional as F
from torch import nn


class Curve(nn.Module):
    """Few parameters, each of which every element reads."""

    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return F.gelu(x * self.scale + self.shift)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(500, 8), nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.table(x)).transpose(1, 2)


def images():
    """A bias between two batch norms: its gradient is a small difference of many large terms."""
    layers = [layer for i in (3, 8, 8) for layer in (nn.Conv2d(i, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


def difference(output, target):
    return (output - target).sum()


CASES = {
    "sum": lambda: (Curve(), difference, torch.randn(100000, 4), torch.randn(100000, 4)),
    "rows": lambda: (Tokens(), F.cross_entropy, torch.randint(0, 500, (4, 15000)), torch.randint(0, 10, (4, 15000))),
    "batch norm": lambda: (images(), F.cross_entropy, torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))),
}


def truth(model, loss_fn, x, y, dtype):
    model = copy.deepcopy(model).to(dtype)
    x, y = (t.to(dtype) if t.is_floating_point() else t for t in (x, y))
    loss_fn(model(x), y).backward()
    return {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_as_exact_as_pytorchs(case):
    torch.manual_seed(0)
    model, loss_fn, x, y = CASES[case]()
    exact, eager = (truth(model, loss_fn, x, y, dtype) for dtype in (torch.float64, torch.float32))
    program = piper.compile(model, loss_fn, (x, y))
    found = program.gradients(x, y)
    assert all(torch.equal(found[name], again) for name, again in program.gradients(x, y).items())
    program.close()
    for name, value in exact.items():
        error, allowed = ((other[name] - value).abs().max() / value.abs().max() for other in (found, eager))
        assert error <= max(1e-5, 1.5 * allowed), f"{name}: {error:.1e}, eager {allowed:.1e}"
