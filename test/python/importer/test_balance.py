# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cutting a model into stages by cost: the optimum against every possible cut, and what counts as a part and as its cost."""

import itertools
import random
import warnings

import piper
import pytest
import torch
import zoo
from executor import train
from piper.importer import ImporterError, import_model
from piper.importer.balance import cut
from piper.importer.costs import counted
from piper.importer.inputs import Batch
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


class Cache:
    """What layers put in, the next call of the forward finds."""

    def __init__(self, works):
        self.works, self.keys = works, {}

    def update(self, layer, keys):
        if self.works:
            keys = self.keys[layer] = torch.cat([self.keys[layer], keys], 1) if layer in self.keys else keys
        return keys


class CachedLayer(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index, self.q, self.k = index, nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, *, cache, mask):
        k = cache.update(self.index, self.k(x))
        return x + torch.softmax(self.q(x) @ k.transpose(1, 2) + mask, -1) @ k, cache


class Cached(nn.Module):
    """A language model with a key-value cache, keyword arguments, tuples, tied weights and a loss of its own."""

    def __init__(self, works=True):
        super().__init__()
        self.works, self.embed = works, nn.Embedding(16, 8)
        self.layers, self.head = nn.ModuleList(CachedLayer(i) for i in range(4)), nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, *, tokens, labels):
        x, cache, mask = self.embed(tokens), Cache(self.works), torch.zeros(tokens.shape[1], tokens.shape[1])
        for layer in self.layers:
            x, cache = layer(x, cache=cache, mask=mask)
        scores = self.head(x)
        return {"loss": nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten()), "scores": scores}


def test_layers_that_fill_a_cache_are_called_once(capfd):
    batch = dict(kwargs=dict(zip(("tokens", "labels"), tokens(16), strict=True)))
    model = Cached()
    costs, calls = counted(model, units(model), batch)
    without = Cached(works=False)
    assert (costs, calls) == counted(without, units(without), batch)
    assert calls == ["embed", "layers.0", "layers.1", "layers.2", "layers.3", "head"]
    assert stages_of(model, stages=2, batch=batch) == [
        ["embed", "layers.0", "layers.1"],
        ["layers.2", "layers.3", "head"],
    ]
    assert stages_of(model, stages=2, batch={**batch, "target": None}) == stages_of(model, stages=2, batch=batch)
    # As piper.compile takes them where there is no loss_fn.
    assert stages_of(model, stages=2, batch=batch["kwargs"]) == stages_of(model, stages=2, batch=batch)
    assert capfd.readouterr() == ("", "")


def test_backward_counts_products_of_what_is_trained():
    model = nn.Sequential(nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False))
    model[0].weight.requires_grad_(False)
    products = []
    for rows in (4, 8):
        costs, _ = counted(model, units(model), (torch.randn(rows, 32), None))
        products.append(costs)
    # What depends on the rows: operations, and bytes of the input that is kept and of the result, each twice.
    by_row = [(products[1][name] - products[0][name]) / 4 for name in ("0", "1", "2")]
    product, row = 2 * 32 * 32, 10 * 2 * 4 * 32
    # The first layer is not trained, the second needs no gradient of its input.
    assert by_row == [product + row, 2 * product + 2 * row, 3 * product + 2 * row]


class NanoGPT(nn.Module):
    """All parts in a dict, the layers in a list of it."""

    def __init__(self, layers=4, width=16):
        super().__init__()
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(width, width),
                h=nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)),
                ln_f=nn.LayerNorm(width),
            )
        )
        self.lm_head = nn.Linear(width, width)

    def forward(self, x):
        x = self.transformer.wte(x)
        for layer in self.transformer.h:
            x = x + layer(x)
        return self.lm_head(self.transformer.ln_f(x))


def test_containers_in_containers_are_cut_element_by_element():
    layers = [f"transformer.h.{i}" for i in range(4)]
    assert list(units(NanoGPT())) == ["transformer.wte", *layers, "transformer.ln_f", "lm_head"]
    for batch in (None, tokens(16)):
        stages = stages_of(NanoGPT(), stages=2, batch=batch)
        assert {"transformer.h.0", "transformer.h.1"} <= {*stages[0]} and "transformer.h.3" in stages[1]
    pairs = nn.Module()
    pairs.layers = nn.ModuleList(nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]) for _ in range(2))
    assert list(units(pairs)) == ["layers.0.0", "layers.0.1", "layers.1.0", "layers.1.1"]


class EncoderDecoder(nn.Module):
    """Encoder and decoder read one table, whose weight is the head's as well; every decoder layer reads the encoder's output."""

    def __init__(self, width=16):
        super().__init__()
        self.shared, self.head = nn.Embedding(width, width), nn.Linear(width, width, bias=False)
        self.encoder = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.decoder = nn.ModuleList(nn.Bilinear(width, width, width) for _ in range(3))
        self.head.weight = self.shared.weight

    def forward(self, source, tokens):
        context = self.shared(source)
        for layer in self.encoder:
            context = torch.tanh(layer(context))
        x = self.shared(tokens)
        for layer in self.decoder:
            x = torch.tanh(layer(x, context))
        return self.head(x)


def test_a_table_is_read_where_it_is_needed():
    batch = (torch.randint(0, 16, (4, 8)), *tokens(16))
    model = annotate_evenly(EncoderDecoder(), stages=4, batch=batch)
    assert piper.annotations_of(model)["stage"][:2] == [["shared", "encoder.0"], ["encoder.1", "encoder.2"]]
    imported = import_model(model, zoo.token_loss, batch)
    stages = [node.tags["stage"] for node in imported.nodes if node.pass_ == "F"]
    assert stages == sorted(stages) and set(stages) == {0, 1, 2, 3}
    outcome = train(imported, [Batch.of(batch)])
    zoo.token_loss(model(*batch[:2]), batch[2]).backward()
    for name, parameter in model.named_parameters():
        assert torch.allclose(outcome.gradients[name], parameter.grad, rtol=1e-4, atol=1e-6), name


def annotate_evenly(model, **options):
    costs = dict.fromkeys(units(model), 1.0)
    return piper.annotate_modules(model, costs=costs, **options)


def test_a_useless_cut_is_said():
    model, costs = Net(4), {"embed": 1, "layers.0": 1, "layers.1": 90, "layers.2": 1, "layers.3": 1, "head": 6}
    with pytest.warns(
        UserWarning, match="2 ranks are at most 1.1 times as fast as one; 90% is 'layers.1', which can't be cut"
    ):
        piper.annotate_modules(model, stages=2, costs=costs)
    with pytest.warns(UserWarning, match="% is 'c', 'b', 'c' runs again after others"):
        costs = {"unused": 0, "a": 1, "b": 10, "c": 10, "d": 1}
        piper.annotate_modules(Swapped(), stages=2, costs=costs, batch=(torch.randn(4, 4), None))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        piper.annotate_modules(model, stages=2, costs={**costs_of_equal_parts(model), "head": 2.0})
        piper.annotate_modules(Net(4), stages=4, balance="count")


def costs_of_equal_parts(model):
    return dict.fromkeys(units(model), 1.0)


class Pair(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.b(torch.tanh(self.a(x)))


class Tower(nn.Module):
    """One of several resolutions, as vision models have them: a module with layers of its own."""

    def __init__(self, layers, width=16):
        super().__init__()
        self.down, self.blocks = nn.Linear(width, width), nn.Sequential(*(Pair(width) for _ in range(layers)))

    def forward(self, x):
        return self.blocks(self.down(x))


@pytest.mark.filterwarnings("error")
def test_a_unit_too_large_for_even_stages_is_cut_inside():
    model = nn.Sequential(Tower(1), Tower(8), Tower(1))
    assert list(units(model)) == ["0", "1", "2"]
    stages = stages_of(model, stages=2, batch=(torch.randn(64, 16), None))
    assert stages[0][0] == "0" and stages[1][-1] == "2"
    assert all(any(name.startswith("1.blocks.") for name in stage) for stage in stages)
    # As whole units where that is good enough.
    assert stages_of(nn.Sequential(Tower(2), Tower(2)), stages=2, batch=(torch.randn(64, 16), None)) == [["0"], ["1"]]


def test_a_forward_that_fails_on_shapes_is_named_and_can_do_without(capfd):
    class Reads(nn.Linear):
        def forward(self, x):
            return super().forward(x[:, :3])

    model = Net(2)
    model.layers[1] = Reads(16, 16)
    with pytest.raises(ImporterError, match="RuntimeError in 'layers.1': .*; without batch, annotate_modules guesses"):
        piper.annotate_modules(model, stages=2, batch=tokens(16))
    assert capfd.readouterr() == ("", "")
    assert len(stages_of(model, stages=2)) == 2


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
