# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python state that forward or loss reads, changes or draws: what is refused by line, what is not, and that the user's objects stay as they are."""

import copy
import datetime
import functools
import itertools
import logging
import os
import random
import re
import secrets
import time
import types
import uuid
from time import perf_counter

import numpy as np
import pytest
import torch
from piper.importer import ImporterError, annotate_modules, import_model
from torch import nn
from torch.nn import functional as F

X, Y = torch.randn(8, 6), torch.arange(8) % 4
COUNT, KEPT, CACHE, SCALE = 0, [], {}, 1.0
STATE = {"beta": 1.0, "epoch": 0}


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 4)
        self.calls, self.kept, self.aux, self.table, self.last = 0, [], {}, None, None
        self.config = types.SimpleNamespace(beta=1.0, seen=[], other=0)
        self.generator, self.numbers = np.random.default_rng(0), random.Random(0)
        self.register_buffer("count", torch.zeros(()))


def model(forward):
    """A model with this forward; `line` is that of the forward's last line but one."""
    kind = type("Net", (Base,), {"forward": forward})
    return kind()


def importing(net, loss=F.cross_entropy, training=True):
    return import_model(net, loss, (X, Y), training=training)


def line_of(function, offset=1):
    return f"test_python_state.py:{function.__code__.co_firstlineno + offset}: "


def snapshot(net):
    return (
        {name: value for name, value in vars(net).items() if not name.startswith("_")},
        list(net.kept),
        dict(net.aux),
        dict(vars(net.config)),
        list(net.config.seen),
        (COUNT, list(KEPT), dict(CACHE)),
        (random.getstate(), net.numbers.getstate(), net.generator.bit_generator.state),
        np.random.get_state()[1].tolist(),
    )


def counts(self, x):
    self.calls += 1
    return self.a(x)


def counts_and_reads(self, x):
    self.calls += 1
    return self.a(x) * min(1.0, self.calls / 100)


def keeps(self, x):
    self.kept.append(x.detach())
    return self.a(x)


def keeps_in_config(self, x):
    self.config.seen.append(x.shape[0])
    return self.a(x)


def counts_globally(self, x):
    global COUNT
    COUNT += 1
    return self.a(x)


def keeps_globally(self, x):
    KEPT.append(1)
    return self.a(x)


def is_recurrent(self, x):
    z = self.a(x) if self.last is None else self.a(x) + self.last
    self.last = z.detach()
    return z


def starts_once(self, x):
    if self.table is None:
        self.table = self.count.copy_(x.mean()).shape
    return self.a(x - self.count)


def counts_on_its_class(self, x):
    type(self).seen = getattr(type(self), "seen", 0) + 1
    return self.a(x)


CHANGES = {
    counts: (1, "'model.calls' is 1 after one call and 2 after two"),
    counts_and_reads: (1, "'model.calls' is 1"),
    keeps: (1, "'model.kept' grows"),
    keeps_in_config: (1, "'model.config.seen' grows"),
    counts_globally: (2, "'COUNT' is 1"),
    keeps_globally: (1, "'KEPT' grows"),
    is_recurrent: (2, "'model.last' is a tensor of one call that the next one reads"),
    starts_once: (2, "'model.table' is set by the first call, and the next one computes something else"),
    counts_on_its_class: (1, "'Net.seen' is 1"),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("forward", CHANGES, ids=lambda forward: forward.__name__)
def test_state_that_the_next_call_sees_is_refused_by_line(forward, training):
    net = model(forward)
    before = snapshot(net)
    offset, what = CHANGES[forward]
    with pytest.raises(ImporterError) as error:
        importing(net, training=training)
    assert line_of(forward, offset) + what in str(error.value)
    assert snapshot(net) == before and not hasattr(type(net), "seen")
    copy.deepcopy(net)


def test_the_advice_is_followed_with_a_buffer():
    def forward(self, x):
        self.count += 1
        return self.a(x) * self.count

    assert set(importing(model(forward)).buffer_writes) == {"count"}


def test_changes_of_a_loss_and_its_closure_are_refused():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.total = 0

        def forward(self, z, y):
            self.total += 1
            return F.cross_entropy(z, y)

    steps = 0

    def loss(z, y):
        nonlocal steps
        steps += 1
        return F.cross_entropy(z, y)

    module = Loss()
    with pytest.raises(ImporterError, match="'loss_fn.total' is 1"):
        importing(nn.Linear(6, 4), module)
    with pytest.raises(ImporterError, match="'steps' is 1") as error:
        importing(nn.Linear(6, 4), loss)
    assert line_of(loss, 2) in str(error.value)
    assert (module.total, steps) == (0, 0)


def caches(self, x):
    if self.table is None or len(self.table) < x.shape[1]:
        self.table = torch.cos(torch.arange(x.shape[1]).float())
    return self.a(x * self.table)


def caches_globally(self, x):
    if x.shape[1] not in CACHE:
        CACHE[x.shape[1]] = torch.ones(x.shape[1])
    return self.a(x * CACHE[x.shape[1]])


@functools.lru_cache
def ones(size):
    return torch.ones(size)


def caches_by_decorator(self, x):
    return self.a(x * ones(x.shape[1]))


def passes_on(self, x):
    self.aux["loss"] = self.a(x).pow(2).mean()
    self.last = self.a(x)
    return self.last + self.aux["loss"]


def collects_and_clears(self, x):
    self.kept.append(self.a(x))
    z = sum(self.kept)
    self.kept.clear()
    return z


def sets_a_flag(self, x):
    self.rows = x.shape[0]
    self.config.other = "eager"
    return self.a(x)


@pytest.mark.parametrize(
    "forward",
    [caches, caches_globally, caches_by_decorator, passes_on, collects_and_clears, sets_a_flag],
    ids=lambda forward: forward.__name__,
)
def test_what_one_step_sets_for_itself_is_no_state(forward, recwarn):
    net = model(forward)
    before = snapshot(net)
    for training in (True, False):
        importing(net, training=training)
        assert snapshot(net) == before
    copy.deepcopy(net)
    net(X)
    assert not recwarn.list


def test_a_cache_of_a_function_holds_no_traced_tensors():
    importing(model(caches_by_decorator))
    assert type(ones(6)) is torch.Tensor and ones(6).sum() == 6


def test_a_tensor_kept_for_others_is_told_and_not_left():
    def forward(self, x):
        self.shown = self.a(x)
        self.aux["shown"] = x * 2
        return self.a(x)

    net = model(forward)
    with pytest.warns(UserWarning) as caught:
        importing(net)
    (message,) = [str(warning.message) for warning in caught]
    assert line_of(forward) + "'model.shown'" in message and "'model.aux['shown']'" in message
    assert not hasattr(net, "shown") and not net.aux
    copy.deepcopy(net)


def test_counting_costs_leaves_lists_as_they_are():
    net = model(keeps)
    annotate_modules(net, stages=1, batch=(X, Y))
    assert not net.kept
    copy.deepcopy(net)


def draws(self, x):
    return self.a(x) if random.random() < 0.5 else self.a(2 * x)


def draws_uniformly(self, x):
    return self.a(x) * random.uniform(0, 1)


def draws_from_numpy(self, x):
    return self.a(x) * float(np.random.rand())


def draws_from_a_generator(self, x):
    return self.a(x) * float(self.generator.random())


def draws_from_its_own(self, x):
    return self.a(x) * self.numbers.random()


DRAWS = {
    draws: "random",
    draws_uniformly: "random",
    draws_from_numpy: "numpy.random",
    draws_from_a_generator: "model.generator",
    draws_from_its_own: "model.numbers",
}


@pytest.mark.parametrize("forward", DRAWS, ids=lambda forward: forward.__name__)
def test_random_numbers_of_python_and_numpy_are_refused_by_line(forward):
    net = model(forward)
    before = snapshot(net)
    with pytest.raises(ImporterError) as error:
        importing(net)
    assert line_of(forward) + f"draws from '{DRAWS[forward]}'" in str(error.value)
    assert snapshot(net) == before


def test_random_numbers_in_a_loss_are_refused_and_those_outside_are_not():
    with pytest.raises(ImporterError, match="draws from 'random'"):
        importing(nn.Linear(6, 4), lambda z, y: F.cross_entropy(z * random.random(), y))
    random.seed(3)
    np.random.seed(3)
    expected = random.Random(3).random(), np.random.RandomState(3).rand()
    importing(nn.Linear(6, 4))
    assert (random.random(), np.random.rand()) == expected


class Reads(Base):
    factor = 1.0

    def __init__(self):
        super().__init__()
        self.beta, self.weights, self.log, self.norm = 1.0, {"w": [1.0, 2.0]}, False, nn.LayerNorm(4)
        self.fixed, self.array = torch.ones(4), np.ones(4, dtype=np.float32)
        self.half = functools.partial(torch.mul, other=0.5)

    @property
    def temperature(self):
        return self.config.beta

    def forward(self, x):
        if self.log:
            print(COUNT)
        z = self.half(self.norm(self.a(x))) * self.beta * self.factor * self.temperature * getattr(self, "bet" + "a")
        return z * self.weights["w"][0] * self.fixed * torch.from_numpy(self.array) * SCALE * STATE["beta"]


def set_global(name, value):
    globals()[name] = value


READ = {
    "model.beta": lambda net: setattr(net, "beta", 0.5),
    "Reads.factor": lambda net: setattr(Reads, "factor", 0.5),
    "model.factor": lambda net: setattr(net, "factor", 0.5),
    "model.config.beta": lambda net: setattr(net.config, "beta", 0.5),
    "model.config": lambda net: setattr(net, "config", types.SimpleNamespace(beta=0.5, other=0)),
    "model.weights['w'][0]": lambda net: net.weights["w"].__setitem__(0, 0.5),
    "model.fixed": lambda net: net.fixed.mul_(0.5),
    "model.array": lambda net: net.array.__setitem__(2, 0.5),
    "model.norm.eps": lambda net: setattr(net.norm, "eps", 0.5),
    "model.half.keywords['other']": lambda net: net.half.keywords.__setitem__("other", 0.25),
    "SCALE": lambda net: set_global("SCALE", 0.5),
    "STATE['beta']": lambda net: STATE.__setitem__("beta", 0.5),
}


@pytest.fixture
def globals_kept():
    before = SCALE, COUNT, dict(STATE)
    yield
    Reads.factor = 1.0
    set_global("SCALE", before[0])
    set_global("COUNT", before[1])
    STATE.update(before[2])


@pytest.mark.parametrize("name", READ)
def test_a_value_that_the_step_has_read_is_found_to_change(name, globals_kept):
    net = Reads()
    state = importing(net).python
    assert state.is_same() and not state.changes()
    READ[name](net)
    assert not state.is_same()
    changes = state.changes()
    assert name in [change.name for change in changes]
    assert state.traced_again(changes) is None


UNREAD = {
    "an attribute": lambda net: setattr(net, "calls", net.calls + 1),
    "another attribute of the config": lambda net: setattr(net.config, "other", 1),
    "a list": lambda net: net.kept.append(1),
    "a new attribute": lambda net: setattr(net, "history", [1]),
    "an equal value": lambda net: setattr(net, "beta", float("1.0")),
    "an equal list": lambda net: net.weights.update(w=[1.0, 2.0]),
    "equal elements": lambda net: net.fixed.fill_(1.0),
    "an unread buffer": lambda net: net.count.fill_(3),
    "a mode": lambda net: net.eval(),
    "an eager call": lambda net: net(X),
    "another global": lambda net: set_global("KEPT", [2]),
    "a global of a line that did not run": lambda net: set_global("COUNT", 7),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_the_step_has_not_read_may_change(name, globals_kept):
    net = Reads()
    state = importing(net).python
    UNREAD[name](net)
    assert not state.changes()


def test_a_value_without_an_effect_is_no_other_program(globals_kept):
    def forward(self, x):
        return self.a(x) * (0.5 if self.calls > 100 else 1.0) * STATE["beta"]

    net = model(forward)
    state = importing(net).python
    net.calls, STATE["epoch"] = 7, 1
    changes = state.changes()
    assert {change.name for change in changes} == {"model.calls", "STATE['epoch']"}
    state = state.traced_again(changes)
    assert state.is_same()
    # No code names the key.
    STATE["epoch"] = 2
    assert state.is_same()
    net.calls = 101
    assert state.traced_again(state.changes()) is None


def test_training_mode_after_an_import_in_eval_mode_is_another_program():
    def forward(self, x):
        return self.a(x) * (2.0 if self.training else 1.0)

    net = model(forward).eval()
    state, evaluation = importing(net).python, importing(net, training=False).python
    plain = importing(nn.Sequential(nn.Linear(6, 4)).eval()).python
    net.train()
    assert evaluation.is_same() and plain.is_same()
    (change,) = [change for change in state.changes() if change.name == "model.training"]
    assert state.traced_again([change]) is None
    net.eval()
    assert state.is_same()


def test_eval_mode_between_steps_is_no_change():
    def forward(self, x):
        return self.a(x) * (2.0 if self.training else 1.0)

    net = model(forward)
    state = importing(net).python
    net.eval()
    assert state.is_same()


def test_values_of_closures_defaults_and_custom_backwards_are_found():
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return -ctx.factor * outer[0] * gradient, None

    outer, beta, alpha = [1.0], 1.0, 1.0

    def scaled(z, options={"scale": 1.0}):  # noqa: B006
        return z * options["scale"] * beta

    class Net(Base):
        def forward(self, x):
            return self.a(Reverse.apply(torch.tanh(self.a.weight.sum() + x), alpha))

    net = Net()
    loss = lambda z, y: F.cross_entropy(scaled(z), y)  # noqa: E731

    def found():
        state = importing(net, loss).python
        yield
        changes = state.changes()
        yield [change.name for change in changes], state.traced_again(changes) is None

    def after(change):
        steps = found()
        next(steps)
        change()
        return next(steps)

    assert after(lambda: outer.__setitem__(0, 0.5)) == (["outer[0]"], True)
    assert after(lambda: scaled.__defaults__[0].update(scale=0.5)) == (["scaled.__defaults__[0]['scale']"], True)

    def set_cells():
        nonlocal alpha, beta
        alpha = beta = 0.5

    names, is_other = after(set_cells)
    assert sorted(names) == ["alpha", "beta"] and is_other


def test_the_model_is_not_kept_alive():
    import gc
    import weakref

    net = Reads()
    state, reference = importing(net).python, weakref.ref(net)
    del net
    gc.collect()
    assert reference() is None and state.is_same()


class Island(nn.Module):
    """A part in float32 where all else may be in half precision."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return self.b(torch.tanh(self.a(x)))


def dtypes(imported):
    return {
        value.dtype
        for family in imported.families.values()
        for function in family.members.values()
        for node in function.graph.nodes
        if isinstance(value := node.meta.get("val"), torch.Tensor) and value.is_floating_point()
    }


def test_autocast_around_the_import_holds_for_the_forward_and_leaves_backward_its_types():
    with torch.autocast("cpu", torch.bfloat16):
        island, all_ = importing(Island()), importing(nn.Linear(6, 4))
        assert torch.is_autocast_enabled("cpu")
    # No line of it asks for half precision, so the backward must not either.
    assert dtypes(island) == {torch.float32}
    assert dtypes(all_) == {torch.float32, torch.bfloat16}


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, lambda: torch.device("meta")])
def test_other_contexts_change_nothing(context):
    torch.manual_seed(1)
    net = Island()
    outside = importing(net)
    with context():
        inside = importing(net)
    assert list(inside.families) == list(outside.families)


class Parts(Base):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 6), nn.GELU())

    def forward(self, x):
        return self.a(F.relu(self.layers(x))) * self.helped()

    def helped(self):
        return help_with(2.0)


def help_with(number, times=1.0):
    return number * times


def other_forward(self, x):
    return self.a(self.layers(x))


def other_help(number, times=1.0):
    return 3 * number * times


def doubled(*arguments):
    return 2 * arguments[-1] if isinstance(arguments[-1], torch.Tensor) else (2 * arguments[-1][0],)


def doubled_gradient(_, gradients, *others):
    return tuple(2 * gradient for gradient in gradients)


def replacing(holder, name, value):
    return lambda net, monkeypatch: monkeypatch.setattr(holder(net), name, value)


CODE = {
    "the code of 'help_with' has changed": replacing(lambda net: help_with, "__code__", other_help.__code__),
    "the default arguments of 'help_with' have changed": replacing(lambda net: help_with, "__defaults__", (2.0,)),
    "'Parts.forward' is another function now (": replacing(lambda net: Parts, "forward", other_forward),
    "'Parts.helped' is another function now (": replacing(lambda net: Parts, "helped", lambda self: 5.0),
    "'GELU.forward' is another function now (": replacing(lambda net: nn.GELU, "forward", lambda self, x: x),
    "'Linear.forward' is another function now (": replacing(lambda net: nn.Linear, "forward", lambda self, x: x[:, :4]),
    "'model.forward' was added": lambda net, _: setattr(net, "forward", lambda x: net.a(x)),
    "'model.layers.1.forward' was added": lambda net, _: setattr(net.layers[1], "forward", lambda x: x),
    "'model.a' is another Sequential now": lambda net, _: setattr(net, "a", nn.Sequential(nn.Linear(6, 4), nn.Tanh())),
    "'model.layers.1' is another Tanh now": lambda net, _: net.layers.__setitem__(1, nn.Tanh()),
    "'model.layers.2' was added": lambda net, _: net.layers.append(nn.Tanh()),
    "a forward hook was added to 'model.a'": lambda net, _: net.a.register_forward_hook(doubled),
    "a forward pre hook was added to 'model.layers.1'": lambda net, _: net.layers[1].register_forward_pre_hook(doubled),
    "a backward hook was added to 'model.a'": lambda net, _: net.a.register_full_backward_hook(doubled_gradient),
    "a backward pre hook was added to 'model.a'": lambda net, _: net.a.register_full_backward_pre_hook(
        doubled_gradient
    ),
    "'F.relu' is another function now (": replacing(lambda net: F, "relu", lambda x: x),
    "'F.cross_entropy' is another function now (": replacing(lambda net: F, "cross_entropy", lambda z, y: z.mean()),
    "'F.gelu' is another function now (": replacing(lambda net: F, "gelu", lambda x, approximate: x),
}


@pytest.mark.parametrize("what", CODE)
def test_other_code_is_another_program(what, monkeypatch):
    net = Parts()
    state = importing(net, lambda z, y: F.cross_entropy(z, y)).python
    assert state.is_same() and not state.changes()
    CODE[what](net, monkeypatch)
    assert not state.is_same()
    changes = state.changes()
    assert any(str(change).startswith(what) for change in changes), list(map(str, changes))
    assert state.traced_again(changes) is None


def test_hooks_that_are_removed_or_do_nothing():
    net = Parts()
    handle = net.a.register_forward_hook(doubled)
    state = importing(net).python
    net.layers[0].register_forward_hook(lambda *_: None)
    changes = state.changes()
    assert [str(change) for change in changes] == ["a forward hook was added to 'model.layers.0'"]
    state = state.traced_again(changes)
    assert state.is_same()
    handle.remove()
    changes = state.changes()
    assert [str(change) for change in changes] == ["a forward hook was removed from 'model.a'"]
    assert state.traced_again(changes) is None and not state.failure


def test_code_that_fails_says_why():
    net = Parts()
    state = importing(net).python
    net.forward = lambda x: net.a(x[:, :1])
    assert state.traced_again(state.changes()) is None
    assert state.failure.startswith(__file__) and "a and b must have same reduction dim" in state.failure


def test_what_loops_do_to_models_between_steps_is_no_change(monkeypatch):
    net = Parts()
    state = importing(net, F.cross_entropy).python
    scheduled = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.optim.lr_scheduler.StepLR(scheduled, 1)
    monkeypatch.setattr(F, "dropout", None)
    monkeypatch.setattr(Parts, "shown", lambda self: None, raising=False)
    with torch.profiler.profile(), torch.autograd.profiler.record_function("step"):
        F.cross_entropy(torch.utils.checkpoint.checkpoint(net, X, use_reentrant=False), Y).backward()
        assert state.is_same()
    net.eval()
    net.compile(backend="eager")
    torch.compile(net, backend="eager")
    net.train()
    net.zero_grad()
    copy.deepcopy(net)
    assert not state.changes()


NUMBERS, CHANGING = itertools.count(), iter([1.0, 2.0, 3.0])


def odd_numbers():
    number = 1
    while True:
        yield number
        number += 2


def advances(self, x):
    return self.a(x) * next(NUMBERS)


def advances_a_list(self, x):
    return self.a(x) * next(CHANGING)


def advances_its_generator(self, x):
    return self.a(x) * next(self.odd)


def loops(self, x):
    for _, number in zip(range(2), self.numbers_left, strict=False):
        x = x + number
    return self.a(x)


def advances_a_default(self, x, numbers=itertools.count(1)):  # noqa: B008
    return self.a(x) * next(numbers)


ADVANCES = {
    advances: (1, "'NUMBERS' is a count"),
    advances_a_list: (1, "'CHANGING' is a list_iterator"),
    advances_its_generator: (1, "'model.odd' is a generator"),
    loops: (1, "'model.numbers_left' is a dict_keyiterator"),
    advances_a_default: (1, "'Net.forward.__defaults__[0]' is a count"),
}


@pytest.mark.parametrize("rows", [None, [4]], ids=["whole", "divided"])
@pytest.mark.parametrize("forward", ADVANCES, ids=lambda forward: forward.__name__)
def test_iterators_that_go_on_are_refused_by_line_and_stay_where_they_are(forward, rows):
    net = model(forward)
    net.odd, net.numbers_left = odd_numbers(), iter({5: 1, 6: 2})
    offset, what = ADVANCES[forward]
    with pytest.raises(ImporterError) as error:
        import_model(net, F.cross_entropy, (X, Y), rows=rows, training=True)
    assert line_of(forward, offset) + what in str(error.value)
    assert next(net.odd) == 1 and next(net.numbers_left) == 5
    assert repr(NUMBERS) == "count(0)" and CHANGING.__length_hint__() == 3
    assert repr(advances_a_default.__defaults__) == "(count(1),)"


def test_iterators_of_a_closure_and_of_the_loss_are_refused_and_fresh_ones_are_not(recwarn):
    numbers = itertools.count()
    with pytest.raises(ImporterError, match="'numbers' is a count that goes on with every call"):
        importing(nn.Linear(6, 4), lambda z, y: F.cross_entropy(z * next(numbers), y))
    assert next(numbers) == 0

    def forward(self, x):
        self.odd = odd_numbers()
        first = next(iter(x)).shape[0] + next(self.odd)
        for part, number in zip(self.children(), itertools.count(1), strict=False):
            x = part(x) * number
        x = x.to(next(self.parameters()).device)
        return x * sum(number for number in [1.0, first])

    net = model(forward)
    net.odd = odd_numbers()
    importing(net)
    assert next(net.odd) == 1 and not recwarn.list


def counts_on_a_function(self, x):
    help_with.calls = getattr(help_with, "calls", 0) + 1
    return self.a(x)


def counts_on_its_method(self, x):
    forward = type(self).forward
    forward.step += 1
    return self.a(x)


def counts_in_the_environment(self, x):
    os.environ["PIPER_TEST_COUNT"] = str(int(os.environ["PIPER_TEST_COUNT"]) + 1)
    return self.a(x)


@pytest.mark.parametrize("rows", [None, [4]], ids=["whole", "divided"])
def test_counters_on_functions_and_in_the_environment_are_refused_by_line(monkeypatch, rows):
    monkeypatch.setenv("PIPER_TEST_COUNT", "7")
    monkeypatch.setattr(counts_on_its_method, "step", 3, raising=False)
    for forward, offset, what in (
        (counts_on_a_function, 1, "'help_with.calls' is 1 after one call and 2 after two"),
        (counts_on_its_method, 2, "'Net.forward.step' is 4 after one call and 5 after two"),
        (counts_in_the_environment, 1, "'os.environ['PIPER_TEST_COUNT']' is '8' after one call and '9' after two"),
    ):
        with pytest.raises(ImporterError) as error:
            import_model(model(forward), F.cross_entropy, (X, Y), rows=rows, training=True)
        assert line_of(forward, offset) + what in str(error.value)
    assert not hasattr(help_with, "calls") and counts_on_its_method.step == 3
    assert os.environ["PIPER_TEST_COUNT"] == os.getenv("PIPER_TEST_COUNT") == "7"


def test_values_on_functions_and_in_the_environment_are_found_to_change(monkeypatch):
    def forward(self, x):
        return self.a(x) * float(os.environ.get("PIPER_TEST_SCALE", "1")) * float(os.getenv("PIPER_TEST_OTHER", 1))

    def loss(z, y):
        return F.cross_entropy(z * loss.scale, y)

    loss.scale = 1.0
    monkeypatch.setenv("PIPER_TEST_OTHER", "1")
    state = importing(model(forward), loss).python

    def changed():
        changes = state.changes()
        assert bool(changes) != state.is_same()
        return list(map(str, changes)), bool(changes) and state.traced_again(changes) is None

    assert changed() == ([], False)
    monkeypatch.setenv("PIPER_TEST_UNREAD", "1")
    assert changed() == ([], False)
    monkeypatch.setenv("PIPER_TEST_SCALE", "2")
    assert changed() == (["'os.environ['PIPER_TEST_SCALE']' was missing and is '2' now"], True)
    monkeypatch.delenv("PIPER_TEST_SCALE")
    monkeypatch.setenv("PIPER_TEST_OTHER", "3")
    assert changed() == (["'os.environ['PIPER_TEST_OTHER']' was '1' and is '3' now"], True)
    monkeypatch.setenv("PIPER_TEST_OTHER", "1")
    loss.scale = 2.0
    assert changed() == (["'loss_fn.scale' was 1.0 and is 2.0 now"], True)


OS_RANDOM = {
    "posix.urandom" if os.name == "posix" else "os.urandom": lambda: os.urandom(1)[0],
    "uuid.uuid4": lambda: uuid.uuid4().int % 7,
    "secrets.randbelow": lambda: secrets.randbelow(5),
    "random.random": lambda: random.SystemRandom().random(),
}


@pytest.mark.parametrize("rows", [None, [4]], ids=["whole", "divided"])
@pytest.mark.parametrize("name", OS_RANDOM)
def test_random_numbers_of_the_system_are_refused_by_line(name, rows):
    def forward(self, x):
        return self.a(x) * OS_RANDOM[name]()

    with pytest.raises(ImporterError, match="random numbers of the operating system") as error:
        import_model(model(forward), F.cross_entropy, (X, Y), rows=rows, training=True)
    assert line_of(OS_RANDOM[name], 0) + f"draws from '{name.replace('posix', 'os')}'" in str(error.value)


CLOCKS = {
    "time.time": lambda: time.time(),
    "time.perf_counter": lambda: perf_counter(),
    "time.monotonic_ns": lambda: time.monotonic_ns(),
    "datetime.now": lambda: datetime.datetime.now().second,
}


@pytest.mark.parametrize("rows", [None, [4]], ids=["whole", "divided"])
@pytest.mark.parametrize("name", CLOCKS)
def test_clocks_are_told_by_line(name, rows):
    def forward(self, x):
        began = CLOCKS[name]()
        if began < 0:
            time.process_time()
        return self.a(x)

    with pytest.warns(UserWarning) as caught:
        import_model(model(forward), F.cross_entropy, (X, Y), rows=rows, training=True)
    (message,) = [str(warning.message) for warning in caught]
    assert "is what it was at compile, in every step" in message
    assert message.endswith(line_of(CLOCKS[name], 0) + f"'{name}'")


def test_a_logger_and_a_clock_that_is_not_read_are_no_concern(recwarn):
    def forward(self, x):
        logging.getLogger("piper-test").warning("in forward")
        if self.log:
            time.time()
        return self.a(x)

    net = model(forward)
    net.log = False
    importing(net)
    assert not recwarn.list


SHARED = torch.ones(4)


def scales_in_place(self, x):
    SHARED.mul_(2)
    return self.a(x) * SHARED


def sets_an_element(self, x):
    self.table[0] = 5.0
    return self.a(x) * self.table


def writes_a_result(self, x):
    torch.add(self.table, 1.0, out=self.table)
    return self.a(x) * self.table


@pytest.mark.parametrize("rows", [(8,), (4,)])
@pytest.mark.parametrize("forward", [scales_in_place, sets_an_element, writes_a_result])
def test_tensors_that_are_closed_over_are_not_changed_in_place(forward, rows):
    net = model(forward)
    net.table = torch.ones(4)
    with pytest.raises(ImporterError, match=re.escape(line_of(forward)) + ".* changes a tensor in place"):
        import_model(net, F.cross_entropy, (X, Y), rows=rows)
    assert torch.equal(SHARED, torch.ones(4)) and torch.equal(net.table, torch.ones(4))


def test_what_a_transform_makes_may_be_written():
    def row(x):
        y = torch.zeros_like(x)
        y += x
        y[0] = 0.0
        return y.mul_(2)

    def forward(self, x):
        return self.a(torch.func.vmap(row)(x))

    importing(model(forward))


def test_a_copy_of_what_is_closed_over_is_not_changed_in_place_either():
    table = torch.tensor([1.0, -1.0, 2.0, 0.0])

    def forward(self, x):
        return self.a(x) * F.relu(table.clone(), inplace=True)

    def instead(self, x):
        return self.a(x) * F.relu(table.clone())

    with pytest.raises(
        ImporterError, match=r"changes a tensor in place \(relu_\) .*: use the form that gives a new tensor"
    ):
        importing(model(forward))
    importing(model(instead))
