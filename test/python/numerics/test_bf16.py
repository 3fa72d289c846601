# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""bf16 parameters: float32 masters and gradients; as near to a float64 run as bf16 PyTorch is, or nearer."""

from __future__ import annotations

import copy
import functools

import language_model as lm
import piper
import pytest
import torch
from compositions import Composition
from torch import nn
from torch.nn import functional as F

COMPOSITIONS = [
    Composition("one"), Composition("dp2-zero2", dp=2, zero=2, microbatches=2), Composition("dp2-zero3", dp=2, zero=3),
    Composition("pp2-1f1b-rows10", pp=2, schedule="1f1b", microbatches=4, rows=10),
    Composition("pp2dp2-1f1b-zero1", pp=2, dp=2, schedule="1f1b", microbatches=2, zero=1),
]  # fmt: skip


def model_of(composition: Composition) -> lm.LanguageModel:
    model = lm.build(2).bfloat16()
    if composition.pp > 1:
        piper.annotate_modules(model, {"stage": lm.stages(model, composition.pp)})
    return model


@functools.cache
def eager(rows: int, dtype: torch.dtype):
    """Loss and gradients of plain PyTorch at the values that bf16 parameters have."""
    ((x, y),) = lm.batches(1, rows)
    model = lm.build(2).bfloat16().to(dtype)
    logits = model(x)
    loss = (
        F.cross_entropy(logits.view(-1, logits.shape[-1]), y.reshape(-1))
        if dtype == torch.float64
        else lm.loss_fn(logits, y)
    )
    loss.backward()
    return loss.item(), {name: p.grad.double() for name, p in model.named_parameters()}


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b).norm() / b.norm())


@pytest.mark.parametrize("composition", COMPOSITIONS, ids=str)
def test_gradients(composition: Composition):
    ((x, y),) = lm.batches(1, composition.rows)
    exact_loss, exact = eager(composition.rows, torch.float64)
    rounded_loss, rounded = eager(composition.rows, torch.bfloat16)
    model = model_of(composition)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    program = piper.compile(
        model,
        lm.loss_fn,
        (x, y),
        strategy=composition.strategy(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    )
    try:
        gradients, state = program.gradients(x, y), program.state_dict()
        loss = float(program.step(x, y))
        after = program.state_dict()
    finally:
        program.close()
    assert abs(loss - exact_loss) <= max(2 * abs(rounded_loss - exact_loss), 1e-3)
    for name, wanted in exact.items():
        assert gradients[name].dtype == state[name].dtype == torch.float32
        assert torch.equal(state[name], before[name].float()), f"{name} is not what the model had"
        mine, theirs = relative(gradients[name], wanted), relative(rounded[name], wanted)
        assert mine <= 1.5 * theirs, f"gradient of {name}: error {mine:.1e}, bf16 PyTorch has {theirs:.1e}"
        # The update is done on the master: exactly one rounding of float32.
        step = state[name].double() - 0.1 * gradients[name].double()
        assert (after[name] - step).abs().max() <= 2**-23 * state[name].abs().max(), name
    total = sum(relative(gradients[name], wanted) for name, wanted in exact.items())
    assert total <= sum(relative(rounded[name], wanted) for name, wanted in exact.items())


class Scaled(nn.Module):
    """After DeepSpeed issues 1800, 2352 and 2768: many microbatches of like gradients, and a weight at 1 that moves by small steps."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8, dtype=torch.bfloat16))
        self.f = nn.Linear(8, 1, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        return self.f(x.to(torch.bfloat16) * self.scale)


def test_many_small_contributions():
    torch.manual_seed(0)
    count, rows = 400, 2
    x, target = 1 + 0.25 * torch.rand(count * rows, 8), torch.zeros(count * rows, 1)
    model = Scaled()
    with torch.no_grad():
        model.f.weight.fill_(0.5)
    strategy = piper.strategies.data_parallel(piper.Mesh(dp=2), microbatches=count // 2)

    def loss_fn(output, target):
        return (output.float() - target).sum(), len(target)

    # One microbatch at a time, summed in float64: what a gradient of bf16 products adds up to.
    expected = torch.zeros(1, 8, dtype=torch.float64)
    in_bf16 = torch.zeros(1, 8, dtype=torch.bfloat16)
    for part, wanted in zip(x.split(rows), target.split(rows), strict=True):
        model.zero_grad()
        loss_fn(model(part), wanted)[0].backward()
        expected += model.f.weight.grad.double()
        in_bf16 += model.f.weight.grad
    program = piper.compile(
        model, loss_fn, (x, target), strategy=strategy, optimizer=torch.optim.SGD(model.parameters(), lr=1e-3)
    )
    try:
        total = program.gradients(x, target)["f.weight"] * count * rows
    finally:
        program.close()
    assert relative(total, expected) <= 2e-3
    assert relative(in_bf16, expected) > 0.05, "the case would not show the fault"


class Drift(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8, dtype=torch.bfloat16))

    def forward(self, x):
        return x * self.scale


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW], ids=["sgd", "adamw"])
def test_small_steps_are_not_lost(make):
    model = Drift()
    x, target = torch.ones(2, 8, dtype=torch.bfloat16), torch.zeros(2, 8)
    optimizer = make(model.parameters(), lr=1e-3, weight_decay=0.0)
    program = piper.compile(
        model, lambda o, t: ((o.float() - t).sum(), torch.tensor(16.0)), (x, target), optimizer=optimizer
    )
    wide = copy.deepcopy(model).float()
    reference = make(wide.parameters(), lr=1e-3, weight_decay=0.0)
    try:
        for _ in range(20):
            program.step(x, target)
            reference.zero_grad()
            ((wide(x) - target).sum() / 16.0).backward()
            reference.step()
        state = program.state_dict()["scale"]
    finally:
        program.close()
    assert state.dtype == torch.float32
    torch.testing.assert_close(state, wide.scale.detach(), rtol=1e-6, atol=0)
    assert (state < 1).all()


def test_saved_and_loaded(tmp_path):
    ((x, y),) = lm.batches(1, 4)
    model = model_of(COMPOSITIONS[0])
    program = piper.compile(model, lm.loss_fn, (x, y), optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3))
    program.step(x, y)
    program.save(tmp_path / "program")
    state = program.state_dict()
    loaded = piper.load(tmp_path / "program")
    again = loaded.state_dict()
    assert all(torch.equal(state[name], again[name]) for name in state)
    assert loaded.step(x, y) == program.step(x, y)
    loaded.close()
    # A checkpoint of the bf16 model itself fits, too.
    program.load_state_dict({name: value.bfloat16() for name, value in state.items()})
    assert torch.equal(program.state_dict()["head.weight"], state["head.weight"].bfloat16().float())
    program.close()


def test_verify():
    batches = lm.batches(2, 8)
    model = lm.build(1).bfloat16()
    report = piper.verify(
        model, lambda o, t: F.cross_entropy(o.view(-1, o.shape[-1]), t.reshape(-1)), batches,
        strategy=piper.strategies.data_parallel(piper.Mesh(dp=2), zero=1), optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
    )  # fmt: skip
    assert report.ok, str(report)


def test_sums_are_made_in_float32():
    """A mean of many bf16 numbers in bf16 would stop growing."""

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))

        def forward(self, x):
            return (x + self.bias).sum(1, keepdim=True) / x.shape[1]

    x, target = torch.ones(8, 3000, 4, dtype=torch.bfloat16), torch.zeros(8, 1, 4)
    model = Mean()
    program = piper.compile(
        model, lambda o, t: F.mse_loss(o.float(), t), (x, target), optimizer=torch.optim.SGD(model.parameters(), lr=0.1)
    )
    try:
        # The loss is the mean of (1 + b)^2 over four of them.
        torch.testing.assert_close(program.gradients(x, target)["bias"], torch.full((4,), 2 / 4), rtol=1e-2, atol=0)
        assert float(program.step(x, target)) == pytest.approx(1.0, rel=1e-2)
    finally:
        program.close()


def test_autocast_inside_forward():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(16, 32), nn.Linear(32, 4)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                return self.b(torch.relu(self.a(x)))

    torch.manual_seed(0)
    model, x, target = Model(), torch.randn(12, 16), torch.randn(12, 4)
    exact = copy.deepcopy(model).double()
    F.mse_loss(exact.b(torch.relu(exact.a(x.double()))), target.double()).backward()
    rounded = copy.deepcopy(model)
    F.mse_loss(rounded(x).float(), target).backward()
    program = piper.compile(
        model, lambda o, t: F.mse_loss(o.float(), t), (x, target), strategy=piper.strategies.data_parallel(piper.Mesh(dp=2)),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    )  # fmt: skip
    try:
        gradients = program.gradients(x, target)
    finally:
        program.close()
    theirs = dict(rounded.named_parameters())
    for name, parameter in exact.named_parameters():
        assert relative(gradients[name], parameter.grad) <= 2 * relative(theirs[name].grad, parameter.grad) + 1e-6, name
