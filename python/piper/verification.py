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
from .program import Program
from .reference import Reference

# Of the largest absolute gradient of a parameter (of all parameters where its own is zero).
GRADIENT_TOLERANCE = 1e-5
# Of the loss.
LOSS_TOLERANCE = 1e-5
# Of a model with half-precision parameters: the loss within the spacing of bf16 numbers, gradients against PyTorch's own error in that precision.
HALF_LOSS_TOLERANCE, HALF_GRADIENT_FACTOR = 2.0**-8, 3.0
# Times the error of float32 PyTorch against float64, after the steps; what is below the floor (of the largest value) is rounding. The error is that of
# the worst parameter, as where rounding hits is chance.
PARAMETER_FACTOR, PARAMETER_FLOOR = 3.0, 1e-6
# Adam divides by the size of gradients: an element whose gradient is rounding alone (the bias of attention's keys) moves by the whole learning rate, in
# any direction. Elements below this part of the largest gradient are measured by what PyTorch does to such, and the others by the others.
CLEAR_GRADIENT = 1e-3


@dataclass(frozen=True)
class Row:
    """One parameter: its gradient's error and, after the steps, its own, each with what is allowed and with the largest true value."""

    name: str
    gradient_error: float
    gradient_allowed: float
    gradient_scale: float
    parameter_error: float
    parameter_allowed: float
    parameter_scale: float

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

    @property
    def gradient_error(self) -> float:
        """The worst of all parameters, as a part of the largest element of its gradient."""
        return max((_part(row.gradient_error, row.gradient_scale) for row in self.rows), default=math.nan)

    @property
    def parameter_error(self) -> float:
        """The worst after the steps, as a part of the parameter's largest element."""
        return max((_part(row.parameter_error, row.parameter_scale) for row in self.rows), default=math.nan)

    def _close(self, pair: tuple[float, float]) -> bool:
        if math.isnan(pair[0]) and math.isnan(pair[1]):
            # No target of the batch counts.
            return True
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
    truths = Truths(model, loss_fn, batches, optimizer, **options)
    program = compile(
        truths.model,
        loss_fn,
        batches[0],
        strategy=strategy,
        optimizer=truths.optimizer,
        progress=False,
        **truths.options(strategy),
    )
    compare(report, program, truths, strategy)


def compare(report: Report, program: Program, truths: Truths, strategy: Strategy | None) -> None:
    """Fills the report with what `program` does on the batches of `truths`, and closes it."""
    try:
        truth = truths.of(strategy)
        report.parts, report.coupled, report.half = parts_of(strategy), truth.coupled, truth.rounded is not None
        gradients = program.gradients(truths.batches[0])
        for batch, loss in zip(truths.batches, truth.losses, strict=True):
            report.losses.append((program.step(batch).item(), loss))
        report.rows = _rows(gradients, program.state_dict(), truth)
    finally:
        program.close()


@dataclass(frozen=True)
class Truth:
    """What plain PyTorch gives in float64, and in float32 (or the model's own precision): gradients of the first batch, parameters after all.

    `rounded`: gradients in half precision, None of other models.
    """

    coupled: bool
    gradients: dict[str, torch.Tensor]
    rounded: dict[str, torch.Tensor] | None
    losses: list[float]
    eager: dict[str, torch.Tensor]
    exact: dict[str, torch.Tensor]


class Truths:
    """Plain PyTorch on some batches, run once for all strategies that divide the rows alike."""

    def __init__(self, model, loss_fn, batches, optimizer, batch_dims=None, loss_reduction=None):
        self.model = plain_module(model)
        own = list(loss_fn.parameters()) if isinstance(loss_fn, nn.Module) else []
        self.optimizer = optimizer or torch.optim.SGD([*self.model.parameters(), *own], lr=0.1)
        self.batches = batches
        self._loss_fn = loss_fn
        self._half = any(p.requires_grad and is_half(p) for p in [*self.model.parameters(), *own])
        self._batch_dims, self._reduction = batch_dims, loss_reduction
        self._known: dict[tuple[int, int], Truth] = {}

    def options(self, strategy: Strategy | None) -> dict[str, Any]:
        """The options of `piper.compile` that say how batches are divided."""
        dims = settled_dims(self.batches[0], self._batch_dims, math.prod(parts_of(strategy)), self._reduction)
        return {"batch_dims": dims, "loss_reduction": self._reduction}

    def of(self, strategy: Strategy | None) -> Truth:
        """The truth for a strategy: where rows of the batch influence each other it depends on how they are divided."""
        parts = parts_of(strategy)
        if parts not in self._known:
            self._known[parts] = self._run(parts, self.options(strategy))
        return self._known[parts]

    def _run(self, parts: tuple[int, int], options: dict[str, Any]) -> Truth:
        make = _reference_maker(self.model, self._loss_fn, self.optimizer, parts, options)
        coupled = _is_coupled(make, self.batches[0])
        eager, exact = make(None if self._half else torch.float32, coupled), make(torch.float64, coupled)
        gradients = exact.gradients(self.batches[0])
        rounded = eager.gradients(self.batches[0]) if self._half else None
        losses = []
        for batch in self.batches:
            losses.append(exact.step(batch))
            eager.step(batch)
        return Truth(coupled, gradients, rounded, losses, eager.parameters(), exact.parameters())


def parts_of(strategy: Strategy | None) -> tuple[int, int]:
    """Replicas, and microbatches of each."""
    return (strategy.num_replicas, strategy.num_microbatches) if strategy is not None else (1, 1)


def _reference_maker(model, loss_fn, optimizer, parts, options) -> Callable[[torch.dtype | None, bool], Reference]:
    def make(dtype: torch.dtype | None, coupled: bool) -> Reference:
        return Reference(model, loss_fn, optimizer, dtype, parts if coupled else (1, 1), **options)

    return make


def _is_coupled(make: Callable[[torch.dtype, bool], Reference], batch: Any) -> bool:
    whole, divided = (make(torch.float64, coupled).gradients(batch) for coupled in (False, True))
    scale = max((value.abs().max().item() for value in whole.values()), default=0.0)
    return any((whole[name] - divided[name]).abs().max().item() > 1e-9 * scale for name in whole)


def _rows(gradients: dict[str, torch.Tensor], parameters: dict[str, torch.Tensor], truth: Truth) -> list[Row]:
    largest = max((value.abs().max().item() for value in truth.gradients.values()), default=0.0)
    updates = _Updates(truth, largest)
    rows = []
    for name, wanted in truth.gradients.items():
        scale = wanted.abs().max().item()
        # A gradient that is zero in exact arithmetic (a bias before batch norm) is rounding alone.
        scale = largest if scale <= 1e-9 * largest else scale
        error = _distance(gradients[name], wanted) if name in gradients else float("inf")
        gradient_allowed = GRADIENT_TOLERANCE * scale
        if truth.rounded is not None:
            gradient_allowed += HALF_GRADIENT_FACTOR * _distance(truth.rounded[name], wanted)
        exact = truth.exact[name]
        size = exact.abs().max().item()
        off, allowed = updates.error(name, parameters[name], PARAMETER_FLOOR * size)
        rows.append(Row(name, error, gradient_allowed, scale, off, allowed, size))
    return rows


class _Updates:
    """Errors of parameters after the steps, in two parts: of elements with a clear gradient, and of the others."""

    def __init__(self, truth: Truth, largest: float):
        self._truth = truth
        self._clear: dict[str, torch.Tensor] = {}
        self._eager = [0.0, 0.0]
        for name, gradient in truth.gradients.items():
            size = max(gradient.abs().max().item(), 1e-9 * largest)
            self._clear[name] = gradient.abs() > CLEAR_GRADIENT * size
            for is_clear, off in enumerate(self._parts(name, truth.eager[name])):
                self._eager[is_clear] = max(self._eager[is_clear], off)

    def error(self, name: str, value: torch.Tensor, floor: float) -> tuple[float, float]:
        """How far it is off where that is worst, and how far it may be there."""
        allowed = [PARAMETER_FACTOR * eager + floor for eager in self._eager]
        pairs = zip(self._parts(name, value), allowed, strict=True)
        return max(pairs, key=lambda pair: math.inf if math.isnan(pair[0]) else _part(*pair))

    def _parts(self, name: str, value: torch.Tensor) -> list[float]:
        exact, clear = self._truth.exact[name], self._clear[name]
        return [_distance(value[part], exact[part]) for part in (~clear, clear)]


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a.double() - b.double()).abs().max().item() if a.numel() else 0.0


def _part(error: float, scale: float) -> float:
    return error / scale if scale else error
