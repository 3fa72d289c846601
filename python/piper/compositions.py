# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`piper.verify_all`: every schedule with every ZeRO level on one mesh, each against plain PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from . import schedules, strategies
from .compiler import compile_with
from .directives import Strategy
from .errors import UsageError
from .importer.annotate import annotate_modules, annotations_of
from .importer.balance import stage_modules
from .importer.shared import SharedImports
from .mesh import Mesh
from .report import Report
from .truth import Truths
from .verification import check_coupled, compare

_STAGE = "stage"
HEADER = f"{'schedule':16}  stages  zero  gradient error  parameter error  seconds"


@dataclass(frozen=True)
class Composition:
    """One row of the table.

    Attributes:
        schedule: its name, "" without a pipeline.
        stages: how many it takes, None where it takes none here.
        zero: the ZeRO level.
        report: the comparison; None where the composition does not apply, for the `reason`.
        seconds: what compiling, training and comparing took.
    """

    schedule: str
    stages: int | None
    zero: int
    report: Report | None = None
    reason: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """False where it applies and differs, or could not be compiled."""
        return self.report is None or self.report.ok

    def _verdict(self) -> str:
        if self.ok or self.report.coupling is None:
            return "ok" if self.ok else "DIFFERENT"
        looped = ", equal to the loop over parts (--coupled parts)" if self.report.equals_parts else ""
        return f"DIFFERENT: rows are coupled, by {self.report.coupling:.1e}{looped}"

    def __str__(self) -> str:
        start = f"{self.schedule or '-':16}  {self.stages or '-':>6}  {self.zero:4}"
        if self.report is None:
            return f"{start}  does not apply: {self.reason}"
        if self.report.error:
            # `piper.verify` with this strategy alone gives the rest.
            return f"{start}  FAILED: {self.report.error.splitlines()[0]}"
        return (
            f"{start}  {self.report.gradient_error:14.1e}  {self.report.parameter_error:15.1e}  {self.seconds:7.1f}"
            f"  {self._verdict()}"
        )


def verify_all(
    model: nn.Module,
    loss_fn: Callable,
    batches: Sequence[Any],
    mesh: Mesh,
    *,
    microbatches: int = 1,
    optimizer: torch.optim.Optimizer | None = None,
    bucket_size: float = 25.0,
    batch_dims: Mapping[str, int | None] | None = None,
    loss_reduction: str | None = None,
    check_rows: bool = True,
    coupled: str | None = None,
) -> Iterator[Composition]:
    """Compares with plain PyTorch under every schedule and, where the mesh has replicas, every ZeRO level, one after the other.

    Without an axis 'pp' the mesh has replicas only. Where a schedule takes another number of stages than the model is annotated with, the model is cut by
    cost. What compositions have in common is imported once. `coupled` is that of `piper.verify`. In the end neither the model nor the optimizer has changed.
    """
    check_coupled(coupled)
    truths = Truths(model, loss_fn, list(batches), optimizer, batch_dims, loss_reduction)
    sweep = _Sweep(truths, loss_fn, mesh, microbatches, bucket_size, coupled, check_rows)
    before = annotations_of(truths.model)
    try:
        replicated = mesh.size > mesh.shape.get("pp", 1)
        for name in schedules.names() if "pp" in mesh.shape else [""]:
            for zero in range(4) if replicated else (0,):
                yield sweep.run(name, zero)
    finally:
        annotate_modules(truths.model, before)


@dataclass
class _Sweep:
    truths: Truths
    loss_fn: Callable
    mesh: Mesh
    microbatches: int
    bucket_size: float
    coupled: str | None
    check_rows: bool
    importing: SharedImports = field(default_factory=SharedImports)

    def __post_init__(self):
        self._annotations = annotations_of(self.truths.model)
        # Module names by number of stages, or why there can't be so many.
        self._cuts: dict[int, list[list[str]] | str] = {}
        if _STAGE in self._annotations:
            self._cuts[len(self._annotations[_STAGE])] = self._annotations[_STAGE]

    def run(self, name: str, zero: int) -> Composition:
        """Compiles and compares one composition."""
        try:
            strategy, stages = self._strategy(name, zero)
            self._annotate(stages)
        except UsageError as error:
            return Composition(name, None, zero, reason=str(error))
        report, start = Report(coupled=self.coupled), time.monotonic()
        try:
            options = self.truths.options(strategy)
            program = compile_with(
                self.importing,
                self.truths.model,
                self.loss_fn,
                self.truths.batches[0],
                strategy,
                self.truths.optimizer,
                check_rows=self.check_rows,
                **options,
            )
            compare(report, program, self.truths, strategy)
        except Exception as error:
            report.error = f"{type(error).__name__}: {error}"
        return Composition(name, stages, zero, report, seconds=time.monotonic() - start)

    def _strategy(self, name: str, zero: int) -> tuple[Strategy, int | None]:
        if not name:
            return strategies.data_parallel(self.mesh, zero, self.bucket_size, self.microbatches), None
        table = schedules.build(name, self.mesh.shape["pp"], self.microbatches)
        return strategies.pipeline(self.mesh, table, zero=zero, bucket_size=self.bucket_size), table.stages

    def _annotate(self, stages: int | None) -> None:
        """Raises UsageError where the model can't have so many stages."""
        if stages is None:
            return
        if stages not in self._cuts:
            self._cuts[stages] = self._cut(stages)
        cut = self._cuts[stages]
        if isinstance(cut, str):
            raise UsageError(cut)
        annotate_modules(self.truths.model, {**self._annotations, **({_STAGE: cut} if cut else {})})

    def _cut(self, stages: int) -> list[list[str]] | str:
        marked = 0 if _STAGE in self._annotations else self._marked_in_forward()
        if marked == stages:
            return []
        if marked:
            return f"takes {stages} stages, and the model's forward marks {marked}"
        try:
            return stage_modules(self.truths.model, stages, "cost", self.truths.batches[0], None)
        except UsageError as error:
            return str(error)

    def _marked_in_forward(self) -> int:
        annotate_modules(self.truths.model, self._annotations)
        imported = self.importing(
            self.truths.model, self.loss_fn, self.truths.batches[0], training=False, **self.truths.options(None)
        )
        return len({node.tags[_STAGE] for node in imported.nodes if _STAGE in node.tags})
