# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors are known by identity, whatever wrappers and hooks make of the names under which they are saved."""

import pytest
import torch
import zoo
from executor import train
from piper.importer import import_model
from piper.importer.saved_names import extra_states, renaming_advice, saved_names
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

BATCH = zoo.regression((4,), (2,))


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


class OnlyLast(Blocks):
    """As adapters do it."""

    def state_dict(self, *args, **kwargs):
        return {n: value for n, value in super().state_dict(*args, **kwargs).items() if n.startswith("last")}


class Renaming(Blocks):
    def state_dict(self):
        return {f"net.{n}".replace("first", "body"): v.detach() for n, v in nn.Module.state_dict(self).items()}


class Nested(Blocks):
    def state_dict(self, *args, **kwargs):
        return {"net": super().state_dict(*args, **kwargs)}


class WithExtra(Blocks):
    def get_extra_state(self):
        return {"seen": 3}


def wrapped(implementation):
    model = Blocks()
    model.first = checkpoint_wrapper(model.first, checkpoint_impl=implementation)
    return model


def with_hook():
    model = Blocks()

    def rename(module, state, prefix, _):
        for name in [name for name in state if name.startswith("last.")]:
            state[f"head.{name[5:]}"] = state.pop(name)

    model.register_state_dict_post_hook(rename)
    return model


def normalized():
    model = Blocks()
    nn.utils.parametrizations.weight_norm(model.last)
    return model


MODELS = {
    "plain": Blocks,
    "checkpoint_wrapper": lambda: wrapped(CheckpointImpl.NO_REENTRANT),
    "reentrant": lambda: wrapped(CheckpointImpl.REENTRANT),
    "whole": lambda: checkpoint_wrapper(Blocks(), checkpoint_impl=CheckpointImpl.NO_REENTRANT),
    "hook": with_hook,
    "weight norm": normalized,
    "adapters": OnlyLast,
    "override": Renaming,
    "extra": WithExtra,
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_every_saved_tensor_is_found(make):
    model = make()
    imported = import_model(model, zoo.squared, BATCH)
    tensors = {name: state.value for name, state in imported.states.items() if state.kind != "constant"}
    found, saved = saved_names(model, tensors), model.state_dict()
    assert list(found) == [name for name in saved if name not in extra_states(model)]
    for name, state in found.items():
        assert tensors[state].data_ptr() == saved[name].data_ptr()
    # Gradients have the names of the parameters.
    gradients = train(imported, [BATCH]).gradients
    model.zero_grad()
    zoo.squared(model(*BATCH["args"]), BATCH["target"]).backward()
    assert set(gradients) == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-5, atol=1e-6)
    assert all(state.persistent for state in imported.states.values() if "running" in state.name) or make is OnlyLast


def test_a_nested_state_dict_leaves_the_modules_own_names():
    model = Nested()
    assert list(saved_names(model, dict(model.named_parameters()))) == [name for name, _ in model.named_parameters()]


def test_extra_states():
    assert extra_states(WithExtra()) == {"_extra_state": {"seen": 3}}


NAMES = {"a.weight": "", "a.bias": "", "layers.0.weight": ""}


@pytest.mark.parametrize(
    "given, wanted, names",
    [
        ({f"module.{name}" for name in NAMES}, "begin with 'module.'", NAMES),
        ({f"_orig_mod.{name}" for name in NAMES}, "begin with '_orig_mod.'", NAMES),
        ({name.replace("0", "0._orig_mod") for name in NAMES}, "hold '_orig_mod.'", NAMES),
        (set(NAMES), "lack '_orig_mod.'", {name.replace("0", "0._orig_mod"): "" for name in NAMES}),
        (set(NAMES), "lack 'net.' in front", {f"net.{name}": "" for name in NAMES}),
    ],
)
def test_a_prefix_is_named_and_the_advice_works(given, wanted, names):
    given = {name: torch.zeros(1) for name in given}
    advice = renaming_advice(given, names)
    assert wanted in advice

    class program:
        state_dict = staticmethod(lambda: names)

    renamed = eval(advice.partition("give ")[2], {"state_dict": given, "program": program})
    assert set(renamed) == set(names)


def test_other_differences_have_no_such_advice():
    assert renaming_advice({"a.weight": 0, "b.bias": 0}, NAMES) is None
    assert renaming_advice({name: 0 for name in NAMES}, NAMES) is None
    assert renaming_advice({"module.a.weight": 0}, NAMES) is None
    assert "'net' is a mapping itself" in renaming_advice({"net": {}}, NAMES)
