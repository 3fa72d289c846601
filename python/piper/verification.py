# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`piper.verify`: a compiled program against plain PyTorch, parameter by parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .compiler import compile
from .directives import Strategy
from .errors import PiperError
from .importer.half_precision import is_half
from .importer.inputs import settled_dims
from .importer.wrapped import plain_module
from .reference import Reference

# Of the largest absolute gradient of a parameter (of all parameters where its own is zero).
GRADIENT_TOLERANCE = 1e-5
# Of the loss.
LOSS_TOLERANCE = 1e-5
# Of a model with half-precision parameters: the loss within the spacing of bf16 numbers, gradients against PyTorch's own error in that precision.
HALF_LOSS_TOLERANCE, HALF_GRADIENT_FACTOR = 2.0**-8, 3.0
# Times the error of float32 PyTorch against float64, after the steps; what is below the floor (of the largest value) is rounding.
PARAMETER_FACTOR, PARAMETER_FLOOR = 3.0, 1e-6


@dataclass(frozen=True)
class Row:
    """One parameter: its gradient's error and, after the steps, its own, each with what is allowed."""

    name: str
    gradient_error: float
    gradient_allowed: float
    parameter_error: float
    parameter_allowed: float

    @property
    def ok(self) -> bool:
        """Whether both errors are allowed (a NaN never is)."""
        return self.gradient_error <= self.gradient_allowed and self.parameter_error <= self.parameter_allowed


@dataclass
class Report:
    """What a verification found.

    Attributes:
        rows: one for each parameter that has a gradient.
        losses: for each batch Piper's loss and PyTorch's.
        half: whether parameters are of half precision, so that PyTorch's own error in it is the measure.
        coupled: whether rows of the batch influence each other (batch norm, say), so that PyTorch went part by part.
        parts: replicas and microbatches of each.
        error: why it could not be done, "" if it was.
        exit_code: that of the command line: 0 equal, 1 different or failed, else that of the error.
    """

    rows: list[Row] = field(default_factory=list)
    losses: list[tuple[float, float]] = field(default_factory=list)
    half: bool = False
    coupled: bool = False
    parts: tuple[int, int] = (1, 1)
    error: str = ""
    exit_code: int = 1

    @property
    def ok(self) -> bool:
        """Whether everything agrees."""
        return (
            not self.error
            and bool(self.rows)
            and all(row.ok for row in self.rows)
            and all(map(self._close, self.losses))
        )

    def _close(self, pair: tuple[float, float]) -> bool:
        tolerance = HALF_LOSS_TOLERANCE if self.half else LOSS_TOLERANCE
        return abs(pair[0] - pair[1]) <= tolerance * max(abs(pair[1]), 1e-6)

    def __str__(self) -> str:
        if self.error:
            return f"could not be verified: {self.error}"
        width = max((len(row.name) for row in self.rows), default=9)
        lines = [f"{'parameter':{width}}  gradient error  allowed   parameter error  allowed"]
        for row in self.rows:
            lines.append(
                f"{row.name:{width}}  {row.gradient_error:14.2e}  {row.gradient_allowed:7.1e}  {row.parameter_error:16.2e}"
                f"  {row.parameter_allowed:7.1e}  {'' if row.ok else '<-- differs'}".rstrip()
            )
        for index, pair in enumerate(self.losses):
            lines.append(
                f"loss of batch {index}: {pair[0]:.7f}, PyTorch {pair[1]:.7f}{'' if self._close(pair) else '  <-- differs'}"
            )
        how = "on the whole batch"
        if self.coupled:
            how = f"looped over {self.parts[0]} replicas x {self.parts[1]} microbatches (the whole batch at once gives other numbers: rows are coupled)"
        lines.append(f"{'equal to' if self.ok else 'DIFFERENT from'} PyTorch {how}")
        return "\n".join(lines)


def verify(
    model: nn.Module,
    loss_fn: Callable,
    batches: Sequence[Any],
    *,
    strategy: Strategy | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    batch_dims: Mapping[str, int | None] | None = None,
    loss_reduction: str | None = None,
) -> Report:
    """Compiles, takes one step per batch, and compares with plain PyTorch in float32 (or the model's own half precision) and float64.

    Compares the loss of each batch, the gradients of the first, and the parameters after all steps. Arguments are those of `piper.compile`; neither the model
    nor the optimizer changes. Raises nothing: `report.ok` tells, `report.error` says why it could not be done.
    """
    report = Report()
    options = {"batch_dims": batch_dims, "loss_reduction": loss_reduction}
    try:
        _verify(report, model, loss_fn, list(batches), strategy, optimizer, options)
        report.exit_code = 0 if report.ok else 1
    except Exception as error:
        report.error = f"{type(error).__name__}: {error}"
        report.exit_code = error.exit_code if isinstance(error, PiperError) else 1
    return report


def _verify(report: Report, model, loss_fn, batches, strategy, optimizer, options) -> None:
    model = plain_module(model)
    own = list(loss_fn.parameters()) if isinstance(loss_fn, nn.Module) else []
    optimizer = optimizer or torch.optim.SGD([*model.parameters(), *own], lr=0.1)
    report.parts = (strategy.num_replicas, strategy.num_microbatches) if strategy is not None else (1, 1)
    dims = settled_dims(batches[0], options["batch_dims"], math.prod(report.parts), options["loss_reduction"])
    options = {**options, "batch_dims": dims}
    program = compile(model, loss_fn, batches[0], strategy=strategy, optimizer=optimizer, progress=False, **options)
    try:
        make = _reference_maker(model, loss_fn, optimizer, report.parts, options)
        report.coupled = _is_coupled(make, batches[0])
        report.half = any(p.requires_grad and is_half(p) for p in [*model.parameters(), *own])
        eager, exact = make(None if report.half else torch.float32, report.coupled), make(torch.float64, report.coupled)
        gradients, wanted = program.gradients(batches[0]), exact.gradients(batches[0])
        rounded = eager.gradients(batches[0]) if report.half else None
        for batch in batches:
            report.losses.append((program.step(batch).item(), exact.step(batch)))
            eager.step(batch)
        report.rows = _rows(gradients, wanted, rounded, program.state_dict(), eager.parameters(), exact.parameters())
    finally:
        program.close()


def _reference_maker(model, loss_fn, optimizer, parts, options) -> Callable[[torch.dtype | None, bool], Reference]:
    def make(dtype: torch.dtype | None, coupled: bool) -> Reference:
        return Reference(model, loss_fn, optimizer, dtype, parts if coupled else (1, 1), **options)

    return make


def _is_coupled(make: Callable[[torch.dtype, bool], Reference], batch: Any) -> bool:
    whole, divided = (make(torch.float64, coupled).gradients(batch) for coupled in (False, True))
    scale = max((value.abs().max().item() for value in whole.values()), default=0.0)
    return any((whole[name] - divided[name]).abs().max().item() > 1e-9 * scale for name in whole)


def _rows(gradients, wanted_gradients, rounded_gradients, parameters, eager, exact) -> list[Row]:
    largest = max((value.abs().max().item() for value in wanted_gradients.values()), default=0.0)
    rows = []
    for name, wanted in wanted_gradients.items():
        scale = wanted.abs().max().item()
        # A gradient that is zero in exact arithmetic (a bias before batch norm) is rounding alone.
        scale = largest if scale <= 1e-9 * largest else scale
        error = _distance(gradients[name], wanted) if name in gradients else float("inf")
        gradient_allowed = GRADIENT_TOLERANCE * scale
        if rounded_gradients is not None:
            gradient_allowed += HALF_GRADIENT_FACTOR * _distance(rounded_gradients[name], wanted)
        eager_error = _distance(eager[name], exact[name])
        allowed = PARAMETER_FACTOR * eager_error + PARAMETER_FLOOR * exact[name].abs().max().item()
        rows.append(Row(name, error, gradient_allowed, _distance(parameters[name], exact[name]), allowed))
    return rows


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a.double() - b.double()).abs().max().item() if a.numel() else 0.0
