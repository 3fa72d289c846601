# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cutting a model into stages by cost: the optimum against every possible cut, and what counts as a part and as its cost."""

import itertools
import random

import piper
import pytest
import torch
import zoo
from piper.importer import ImporterError
from piper.importer.balance import cut
from piper.importer.costs import counted
from piper.importer.units import units
from torch import nn


def stages_of(model, *args, **kwargs):
    return piper.annotations_of(piper.annotate_modules(model, *args, **kwargs))["stage"]


@pytest.mark.parametrize("seed", range(40))
def test_cut_is_the_best_of_all(seed):
    generator = random.Random(seed)
    count = generator.randint(1, 9)
    costs = [generator.choice([0, 1, 1, 2, 3, 7, generator.random() * 5]) for _ in range(count)]
    for parts in range(1, count + 1):

        def sums(bounds):
            return [sum(costs[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)]

        every = [(0, *inner, count) for inner in itertools.combinations(range(1, count), parts - 1)]
        slowest = min(max(sums(bounds)) for bounds in every)
        evenest = min(sum(s * s for s in sums(b)) for b in every if max(sums(b)) <= slowest + 1e-9)
        bounds = cut(costs, parts)
        assert bounds[0] == 0 and bounds[-1] == count and all(a < b for a, b in zip(bounds, bounds[1:], strict=False))
        assert max(sums(bounds)) == pytest.approx(slowest)
        assert sum(s * s for s in sums(bounds)) == pytest.approx(evenest)


class Net(nn.Module):
    """A table, layers, and a head whose width is given."""

    def __init__(self, layers=6, width=16, classes=16):
        super().__init__()
        self.embed = nn.Embedding(classes, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh()) for _ in range(layers)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def tokens(classes):
    return torch.randint(0, classes, (4, 8)), torch.randint(0, classes, (4, 8))


def test_parts_are_elements_and_other_modules_with_parameters():
    assert list(units(Net(2))) == ["embed", "layers.0", "layers.1", "head"]
    assert list(units(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)))) == ["0", "2"]
    outer = nn.Module()
    outer.body, outer.norm = Net(2), nn.LayerNorm(4)
    assert list(units(outer)) == ["body.embed", "body.layers.0", "body.layers.1", "body.head", "norm"]
    # A module with parameters of its own beside its parts stays whole.
    outer.body.scale = nn.Parameter(torch.ones(3))
    assert list(units(outer)) == ["body", "norm"]


@pytest.mark.parametrize("batch", [None, tokens(256)], ids=["shapes", "batch"])
def test_the_stage_of_a_heavy_head_has_fewer_layers(batch):
    counts = [
        len([name for name in stage if name.startswith("layers")])
        for stage in stages_of(Net(8, 16, 256), stages=3, batch=batch)
    ]
    assert sum(counts) == 8 and counts[2] < counts[1] and counts[2] < counts[0]


def test_counted_operations():
    """A linear layer has 2 x rows x in x out in the forward, and that again for each of the two gradients in the backward."""
    model = Net(2, 16, 32)
    costs, calls = counted(model, units(model), tokens(32))
    assert calls == ["embed", "layers.0", "layers.1", "head"]
    rows, elements = 32, 16 * 32 + 32
    flops = 3 * 2 * rows * 16 * 32
    # Bytes: parameters, the result, and what the backward needs (the input and the weight, each at most).
    least = 10 * 2 * 4 * (elements + rows * 32)
    assert flops + least <= costs["head"] <= flops + least + 10 * 2 * 4 * (rows * 16 + elements)
    assert costs["embed"] < costs["layers.0"] < costs["head"]


def test_counting_changes_nothing():
    model, batch = zoo.LanguageModel(), zoo.tokens()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    piper.annotate_modules(model, stages=2, batch=batch)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_given_costs_and_equal_counts():
    model = Net(4)
    costs = {"embed": 0, "layers.0": 9, "layers.1": 1, "layers.2": 1, "layers.3": 1, "head": 1.5}
    assert stages_of(model, stages=2, costs=costs) == [
        ["embed", "layers.0"],
        ["layers.1", "layers.2", "layers.3", "head"],
    ]
    assert stages_of(model, stages=3, balance="count") == [
        ["embed", "layers.0"],
        ["layers.1", "layers.2"],
        ["layers.3", "head"],
    ]


class Swapped(nn.Module):
    """Parts are called in another order than they are registered, one of them again after others, one never."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(4, 4)
        self.c, self.b, self.a, self.d = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x):
        return self.d(self.c(self.b(self.c(self.a(x)))))


def test_order_of_calls_counts_where_there_is_a_batch():
    batch = torch.randn(4, 4), torch.randn(4, 4)
    assert stages_of(Swapped(), stages=3, batch=batch) == [["a", "unused"], ["c", "b"], ["d"]]
    with pytest.raises(ImporterError, match="at most 3 stages.*c.b.*got 4; 'c' runs again after others"):
        piper.annotate_modules(Swapped(), stages=4, batch=batch)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(stages=9), "at most 8 stages, one for each part of the model .embed, layers.0, .*, got 9"),
        (dict(stages=0), "positive number of stages, got 0"),
        (dict(stages=2, balance="time"), "'cost' or 'count', got 'time'"),
        (dict(stages=2, costs={"layers": 1.0}), "'layers' is none of the parts, 'embed' is missing"),
        (dict(stages=2, costs=dict.fromkeys(units(Net()), -1.0)), "finite number from 0 on for 'embed', got -1.0"),
        (dict(), "either lists of module names by tag, or a number of stages"),
        (dict(annotations={"stage": [["embed"], ["layers", "head"]]}, stages=2), "either lists of module names"),
        (dict(annotations={"layer": []}, batch=1), "batch and costs only with a number of stages"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ImporterError, match=message):
        piper.annotate_modules(Net(), **options)
