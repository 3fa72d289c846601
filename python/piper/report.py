# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What `piper.verify` found, and how it says so."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One parameter: the error of its gradient, of itself and of its moments after a step, each with what is allowed there and with the largest true value.

    Each is of the element that is worst against what is allowed for it, out of all steps.
    """

    name: str
    gradient_error: float
    gradient_allowed: float
    gradient_scale: float
    parameter_error: float
    parameter_allowed: float
    parameter_scale: float
    moment_error: float = 0.0
    moment_allowed: float = 0.0
    moment: str = ""

    @property
    def ok(self) -> bool:
        """Whether all errors are allowed (a NaN never is)."""
        return (
            self.gradient_error <= self.gradient_allowed
            and self.parameter_error <= self.parameter_allowed
            and self.moment_error <= self.moment_allowed
        )

    def _remark(self) -> str:
        if self.ok:
            return ""
        only_moment = self.gradient_error <= self.gradient_allowed and self.parameter_error <= self.parameter_allowed
        return f"<-- {self.moment} differs" if only_moment else "<-- differs"


@dataclass(frozen=True)
class BufferRow:
    """One buffer of the model after a step: its error, with what is allowed, where that is worst."""

    name: str
    error: float
    allowed: float

    @property
    def ok(self) -> bool:
        """Whether the error is allowed."""
        return self.error <= self.allowed


@dataclass(frozen=True)
class LossRow:
    """The loss of one batch: the program's, PyTorch's, and how far they may be apart."""

    program: float
    pytorch: float
    allowed: float

    @property
    def ok(self) -> bool:
        """Whether they are as close as that. A loss over no target is NaN on both sides."""
        both_nan = math.isnan(self.program) and math.isnan(self.pytorch)
        return both_nan or self.program == self.pytorch or abs(self.program - self.pytorch) <= self.allowed


@dataclass
class Findings:
    """A program against one truth."""

    rows: list[Row] = field(default_factory=list)
    buffers: list[BufferRow] = field(default_factory=list)
    losses: list[LossRow] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything agrees, and there is something."""
        everything = [*self.rows, *self.buffers, *self.losses]
        return bool(self.rows) and not self.problems and all(row.ok for row in everything)


@dataclass
class Report:
    """What a verification found.

    Attributes:
        findings: the program against `truth`.
        truth: "whole", PyTorch on the whole batch, or "parts", PyTorch looped over replicas and microbatches.
        parts: replicas and microbatches of each.
        coupling: by how much the whole batch gives something else than the loop, where rows of the batch influence each other: of the gradient of the parameter that
            differs most (or of the loss), as a part of its largest element. None: it gives the same.
        coupled_at: that parameter.
        coupled: "parts" where the user takes the loop for the truth.
        equals_parts: whether the program equals the loop, where that gives other numbers.
        half: whether something is computed in half precision, so that gradients are held to what rounding does there.
        own_types: why PyTorch ran in the model's own types, "" where it ran in float64.
        error: why it could not be done, "" if it was.
        exit_code: that of the command line: 0 equal, 1 different or failed, else that of the error.
    """

    findings: Findings = field(default_factory=Findings)
    truth: str = "whole"
    parts: tuple[int, int] = (1, 1)
    coupling: float | None = None
    coupled_at: str = ""
    coupled: str | None = None
    equals_parts: bool = False
    half: bool = False
    own_types: str = ""
    error: str = ""
    exit_code: int = 1

    @property
    def ok(self) -> bool:
        """Whether everything agrees with the truth. Where rows are coupled a program that equals the loop does not, unless that is what the user wants."""
        accepted = self.coupling is None or self.coupled == "parts" or not self.equals_parts
        return not self.error and accepted and self.findings.ok

    @property
    def rows(self) -> list[Row]:
        """One for each parameter that has a gradient, or that should have stayed and has not."""
        return self.findings.rows

    @property
    def losses(self) -> list[tuple[float, float]]:
        """For each batch Piper's loss and PyTorch's."""
        return [(row.program, row.pytorch) for row in self.findings.losses]

    @property
    def gradient_error(self) -> float:
        """The worst of all parameters, as a part of the largest element of its gradient."""
        return max((_part(row.gradient_error, row.gradient_scale) for row in self.rows), default=math.nan)

    @property
    def parameter_error(self) -> float:
        """The worst after a step, as a part of the parameter's largest element."""
        return max((_part(row.parameter_error, row.parameter_scale) for row in self.rows), default=math.nan)

    def __str__(self) -> str:
        if self.error:
            return f"could not be verified: {self.error}"
        return "\n".join([*self._table(), self.verdict(), *self._notes()])

    def _table(self) -> list[str]:
        width = max((len(row.name) for row in self.rows), default=9)
        lines = [f"{'parameter':{width}}  gradient error  allowed   parameter error  allowed"]
        for row in self.rows:
            lines.append(
                f"{row.name:{width}}  {row.gradient_error:14.2e}  {row.gradient_allowed:7.1e}  {row.parameter_error:16.2e}"
                f"  {row.parameter_allowed:7.1e}  {row._remark()}".rstrip()
            )
        for buffer in self.findings.buffers:
            if not buffer.ok:
                lines.append(
                    f"buffer {buffer.name}: off by {buffer.error:.2e}, allowed {buffer.allowed:.1e}  <-- differs"
                )
        for index, loss in enumerate(self.findings.losses):
            mark = "" if loss.ok else "  <-- differs"
            lines.append(f"loss of batch {index}: {loss.program:.7f}, PyTorch {loss.pytorch:.7f}{mark}")
        return lines + self.findings.problems

    def verdict(self) -> str:
        """What it comes to, in a sentence or two."""
        loop = f"PyTorch looped over {self.parts[0]} replicas x {self.parts[1]} microbatches"
        if self.coupling is None:
            return f"{'equal to' if self.findings.ok else 'DIFFERENT from'} PyTorch on the whole batch"
        # Two digits say all, and one part in 100,000 is what is claimed at least.
        other = f"the whole batch at once gives other numbers, by {self.coupling:.1e} of the largest in '{self.coupled_at}': rows are coupled"
        if self.coupled == "parts":
            return f"{'equal to' if self.findings.ok else 'DIFFERENT from'} {loop} ({other})"
        if not self.equals_parts and self.findings.ok:
            return f"equal to PyTorch on the whole batch; {loop} would give other numbers, by {self.coupling:.1e} of the largest in '{self.coupled_at}'"
        if not self.equals_parts:
            return f"DIFFERENT from PyTorch on the whole batch, and from {loop} ({other})"
        return (
            f"DIFFERENT from PyTorch on the whole batch, though equal to {loop}: {other}, or the loss is no mean over all rows. If the loop is what you mean (as with"
            " BatchNorm), say coupled='parts' (--coupled parts); else divide the batch into fewer parts, or return (sum, weight) from the loss, both of which add up over rows"
        )

    def _notes(self) -> list[str]:
        lines = [f"PyTorch ran in the model's own types, not in float64: {self.own_types}"] if self.own_types else []
        return lines + (["held to what rounding does in half precision"] if self.half else [])


def _part(error: float, scale: float) -> float:
    return error / scale if scale else error
