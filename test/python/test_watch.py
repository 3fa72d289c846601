# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a program does where the Python values, buffers and contexts that it was compiled with are others at a step."""

import collections
import copy
import gc
import re
import warnings

import piper
import pytest
import torch
from piper.importer import import_model
from piper.watch import Watch
from torch import nn
from torch.nn import functional as F

FACTOR = 1.0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 4)
        self.beta, self.calls = 1.0, 0
        self.register_buffer("fleeting", torch.tensor(1.0), persistent=False)
        self.register_buffer("kept", torch.tensor(1.0))
        self.register_buffer("seen", torch.zeros(()))
        self.frozen = nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x, temperature):
        self.seen += 1
        z = self.b(torch.tanh(self.a(x)) * self.frozen)
        return z * temperature * self.beta * FACTOR * self.fleeting * self.kept


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.history = 1.0, []

    def forward(self, z, y):
        return F.cross_entropy(z * self.scale, y)


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 6, generator=generator), torch.randint(4, (8,), generator=generator)


def named(x, y, temperature):
    return {"args": (x,), "kwargs": {"temperature": torch.tensor(temperature)}, "target": y}


def optimizer_of(model):
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)


Compiled = collections.namedtuple("Compiled", "program model loss optimizer")


@pytest.fixture(scope="module")
def compiled():
    torch.manual_seed(0)
    model, loss = Model(), Loss()
    optimizer = optimizer_of(model)
    program = piper.compile(model, loss, named(*batch(0), 1.0), optimizer=optimizer, progress=False)
    yield Compiled(program, model, loss, optimizer)
    program.close()


def test_a_number_that_changes_as_a_tensor_of_the_batch(compiled):
    program, model, loss, _ = compiled
    truth = copy.deepcopy(model)
    truth.load_state_dict(program.state_dict())
    optimizer = optimizer_of(truth)
    for step in range(3):
        temperature = 1.0 - 0.3 * step
        expected = loss(truth(batch(step)[0], torch.tensor(temperature)), batch(step)[1])
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        # What a loop does beside the steps is nobody's business.
        model.calls += 1
        loss.history.append(temperature)
        assert program.step(named(*batch(step), temperature)).item() == pytest.approx(expected.item(), rel=1e-5)


def test_changed_values_are_refused_by_name_and_taken_back(compiled):
    global FACTOR
    program, model, loss, _ = compiled
    example = named(*batch(0), 1.0)
    before = program.state_dict()
    model.beta = 0.7
    for method in (program.step, program.evaluate, program.gradients):
        with pytest.raises(
            piper.UsageError, match=r"'model.beta' was 1.0 and is 0.7 now: give it to forward as a tensor of the batch"
        ):
            method(example)
    model.beta, loss.scale = 1.0, 0.7
    with pytest.raises(piper.UsageError, match=r"'loss_fn.scale' was 1.0 and is 0.7 now"):
        program.evaluate(example)
    loss.scale, FACTOR = 1.0, 0.7
    with pytest.raises(piper.UsageError, match=r"'FACTOR' was 1.0 and is 0.7 now"):
        program.step(example)
    FACTOR = 1.0
    assert all(map(torch.equal, program.state_dict().values(), before.values()))
    assert program.gradients(example)


def scaled(function):
    return lambda *args, **kwargs: 2 * function(*args, **kwargs)


CODE = {
    r"with other code: 'Model.forward' is another function now \(.*: compile again": lambda model, loss, patch: (
        patch.setattr(Model, "forward", scaled(Model.forward))
    ),
    r"'Loss.forward' is another function now": lambda model, loss, patch: patch.setattr(
        Loss, "forward", scaled(Loss.forward)
    ),
    r"'F.cross_entropy' is another function now": lambda model, loss, patch: patch.setattr(
        F, "cross_entropy", scaled(F.cross_entropy)
    ),
    r"'model.b' is another Identity now.*fails: .*test_watch.py:\d+.*: compile again": lambda model, loss, patch: (
        patch.setitem(model._modules, "b", nn.Identity())
    ),
    r"a forward hook was added to 'model.b'": lambda model, loss, patch: patch.setitem(
        model.b._forward_hooks, 0, lambda module, inputs, output: 2 * output
    ),
    r"parameter 'a.weight' has a hook on its gradient": lambda model, loss, patch: patch.setattr(
        model.a.weight, "_post_accumulate_grad_hooks", {0: print}
    ),
}


@pytest.mark.parametrize("message", CODE)
def test_changed_code_is_refused_and_taken_back(compiled, monkeypatch, message):
    program, model, loss, _ = compiled
    example = named(*batch(0), 1.0)
    CODE[message](model, loss, monkeypatch)
    for method in (program.step, program.evaluate, program.gradients):
        with pytest.raises(piper.UsageError, match=message):
            method(example)
    monkeypatch.undo()
    program.gradients(example)


def test_another_part_is_used_where_it_is_the_same_and_told_where_it_is_not(recwarn):
    model = Plain()
    watch = Watch(model, {"step": import_model(model, F.cross_entropy, batch(0), training=True)})
    model.b = copy.deepcopy(model.b)
    watch.check("step")
    assert not recwarn.list
    model.b = nn.Linear(16, 4)
    with pytest.warns(UserWarning, match=r"parameters of the model have changed \(b.weight, b.bias\)"):
        watch.check("step")


def test_a_step_of_the_optimizers_own_is_refused_where_it_would_run(compiled, monkeypatch):
    program, *_ = compiled
    example, optimizer = named(*batch(0), 1.0), compiled.optimizer
    torch.optim.lr_scheduler.StepLR(optimizer, 100)
    program.step(example)
    monkeypatch.setattr(optimizer, "step", lambda: None)
    with pytest.raises(
        piper.UsageError, match=r"it has another one \(.*test_watch.py:\d+\), which a compiled step does"
    ):
        program.step(example)
    program.step(example, update=False)
    monkeypatch.undo()
    program.step(example)


def set_data(tensor):
    tensor.data.mul_(0.5)


def set_in_place(tensor):
    with torch.no_grad():
        tensor.fill_(0.5)


@pytest.mark.parametrize("change", [set_in_place, set_data])
@pytest.mark.parametrize("name", ["fleeting", "kept", "frozen"])
def test_changed_buffers_and_frozen_parameters_are_refused(compiled, name, change):
    program, model, *_ = compiled
    example, value = named(*batch(0), 1.0), getattr(model, name).clone()
    change(getattr(model, name))
    with pytest.raises(piper.UsageError, match=f"'{name}' of the model has changed, and the program has its own"):
        program.step(example)
    with torch.no_grad():
        getattr(model, name).copy_(value)
    program.gradients(example)


def test_the_advice_for_a_buffer_is_followed(compiled):
    program, model, loss, _ = compiled
    example = named(*batch(0), 1.0)
    model.kept = torch.tensor(0.5)
    with pytest.raises(piper.UsageError) as error:
        program.evaluate(example)
    (advice,) = re.findall(r"program\.load_state_dict\(\{.*\}\)", str(error.value))
    eval(advice.replace("...", "model.kept"), {"program": program, "model": model})
    model.load_state_dict(program.state_dict())
    expected = loss(model(batch(0)[0], torch.tensor(1.0)), batch(0)[1])
    model.load_state_dict(program.state_dict())
    assert program.evaluate(example).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_model_that_is_brought_up_to_date_is_no_change(compiled, recwarn):
    program, model, *_ = compiled
    example = named(*batch(0), 1.0)
    for _ in range(2):
        program.step(example)
        model.load_state_dict(program.state_dict())
        model.eval()
        model(batch(1)[0], torch.tensor(1.0))
        program.evaluate(example)
        model.train()
    assert not recwarn.list


def test_parameters_that_are_changed_beside_the_program_are_told_once(compiled):
    program, model, *_ = compiled
    example = named(*batch(0), 1.0)
    with torch.no_grad():
        model.a.weight.mul_(0.5)
    with pytest.warns(UserWarning, match=r"parameters of the model have changed \(a.weight\)"):
        program.evaluate(example)
    with torch.no_grad():
        model.a.weight.mul_(0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.evaluate(example)


def test_a_step_in_a_context_that_it_was_not_compiled_in(compiled):
    program, *_ = compiled
    example = named(*batch(0), 1.0)
    expected = program.gradients(example)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(piper.UsageError, match="compiled outside of it"):
        program.step(example)
    for context in (
        torch.no_grad(),
        torch.inference_mode(),
        torch.device("meta"),
        torch.autocast("cpu", enabled=False),
    ):
        with context:
            assert all(map(torch.equal, program.gradients(example).values(), expected.values()))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(6, 16), nn.Linear(16, 4), nn.LayerNorm(16)

    def forward(self, x):
        h = self.norm(torch.relu(self.a(x)))
        with torch.autocast("cpu", enabled=False):
            h = h.to(self.b.weight.dtype)
            return self.b(h.softmax(-1) * h)


def test_autocast_around_compile_is_that_of_every_step():
    torch.manual_seed(0)
    weight = [1.0]
    loss = lambda z, y: F.cross_entropy(z * weight[0], y)  # noqa: E731
    x, y = batch(0)
    model = Plain()

    def eager(net, x, **options):
        net.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, **options):
            value = loss(net(x), y)
        value.backward()
        return {name: parameter.grad.double() for name, parameter in net.named_parameters()}

    rounded, exact = eager(model, x), eager(copy.deepcopy(model).double(), x.double(), enabled=False)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        program = piper.compile(model, loss, (x, y), progress=False)
        found = program.gradients(x, y)
    for name, gradient in program.gradients(x, y).items():
        assert torch.equal(gradient, found[name])
        off, allowed = ((value - exact[name]).abs().max() for value in (gradient.double(), rounded[name]))
        assert off <= 3 * allowed + 1e-6 * exact[name].abs().max(), name
    # Without the model its own values are out of reach; those of the loss are not.
    del model
    gc.collect()
    program.evaluate(x, y)
    weight[0] = 0.5
    with pytest.raises(piper.UsageError, match=r"'weight\[0\]' was 1.0 and is 0.5 now"):
        program.evaluate(x, y)
    program.close()
