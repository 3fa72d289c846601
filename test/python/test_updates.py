# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Update functions as planning writes them and code generation compiles them, against the single-tensor path of torch.optim."""

from __future__ import annotations

import pytest
import torch
from kernel_harness import Kernel
from piper import optimizers
from piper._mlir import ir
from piper._mlir.passmanager import PassManager

SIZE = 1000
CASES = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd_decay_maximize": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.03, "maximize": True}),
    "sgd_momentum_dampening": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.4, "weight_decay": 0.01}),
    "sgd_nesterov": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.02}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "adam_amsgrad_decay": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1, "betas": (0.4, 0.95)}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "adamw_maximize": (torch.optim.AdamW, {"lr": 0.02, "maximize": True, "amsgrad": True, "eps": 1e-5}),
}


def compile_update(group: optimizers.Group, dtype: torch.dtype) -> Kernel:
    """The kernel of one group for SIZE elements, through piper-materialize-updates."""
    element, width = ("f32", 4) if dtype == torch.float32 else ("f64", 8)
    vectors = [SIZE * width] * (2 + len(group.slots))
    sizes = [*vectors, 4 * len(group.scalars(1)), 8]
    access = "xr" + "x" * len(group.slots) + "rr"
    text = f'{group.to_mlir()}\npiper.plan.kernel "update" {sizes} "{access}" {{optimizer = @{group.name}, type = {element}}}'
    with ir.Context():
        module = ir.Module.parse(text)
        PassManager.parse("builtin.module(piper-materialize-updates)").run(module.operation)
        function = next(op for op in module.body.operations if op.operation.name == "func.func")
        return Kernel("module {\n" + function.operation.get_asm(use_local_scope=True) + "\n}")


class Update:
    """One parameter that the compiled function trains."""

    def __init__(self, rule: type, options: dict, value: torch.Tensor):
        self.reference = torch.nn.Parameter(value.clone())
        self.optimizer = rule([self.reference], foreach=False, **options)
        self.group = optimizers.read(self.optimizer, {id(self.reference): "w"})[0]
        self.kernel = compile_update(self.group, value.dtype)
        self.value = value.clone()
        self.slots = [torch.zeros_like(value) for _ in self.group.slots]
        self.steps = 0

    def run(self, gradient: torch.Tensor, weight: float) -> None:
        scalars = torch.tensor(list(self.group.scalars(self.steps + 1).values()), dtype=torch.float32)
        scale = torch.tensor([123.0, weight], dtype=torch.float32)
        self.kernel([self.value, gradient, *self.slots, scalars, scale], [])
        self.steps += 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES)
def test_steps_equal_torch(case: str, dtype: torch.dtype) -> None:
    rule, options = CASES[case]
    generator = torch.Generator().manual_seed(3)
    update = Update(rule, options, torch.randn(SIZE, generator=generator, dtype=dtype))
    for step in range(6):
        weight = 8.0  # a power of two: the division is exact
        gradient = torch.randn(SIZE, generator=generator, dtype=dtype)
        update.reference.grad = gradient / weight
        # A learning-rate scheduler changes what the next step is given.
        update.optimizer.param_groups[0]["lr"] = options["lr"] * (1.0 - 0.1 * step)
        update.optimizer.step()
        update.run(gradient.clone(), weight)
    # Scalars are handed over in f32, whatever the parameters are.
    torch.testing.assert_close(update.value, update.reference.detach(), rtol=2e-6, atol=2e-6)
    state = update.optimizer.state[update.reference]
    for name, slot in zip(update.group.slots, update.slots, strict=True):
        torch.testing.assert_close(slot, state[name], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("case", ["sgd_nesterov", "adam_amsgrad_decay", "adamw"])
def test_no_weight_changes_nothing(case: str) -> None:
    rule, options = CASES[case]
    update = Update(rule, options, torch.linspace(-1, 1, SIZE))
    update.run(torch.ones(SIZE), 4.0)
    before = [update.value.clone(), *(slot.clone() for slot in update.slots)]
    update.run(torch.full((SIZE,), float("nan")), 0.0)
    for old, new in zip(before, [update.value, *update.slots], strict=True):
        assert torch.equal(old, new)
