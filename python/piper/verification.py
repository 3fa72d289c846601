# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`piper.verify`: a compiled program against plain PyTorch, parameter by parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .compiler import compile
from .directives import Strategy
from .errors import PiperError, UsageError
from .judge import judge
from .program import Program
from .reference import Outcome
from .report import Report
from .trace import Trace, record
from .truth import TOLERANCE, Truth, Truths, gradient_scales, parts_of

PARTS = "parts"


def verify(
    model: nn.Module,
    loss_fn: Callable | None = None,
    batches: Sequence[Any] = (),
    *,
    strategy: Strategy | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    batch_dims: Mapping[str, int | None] | None = None,
    loss_reduction: str | None = None,
    check_rows: bool = True,
    coupled: str | None = None,
) -> Report:
    """Compiles, takes one step per batch, and compares with plain PyTorch on the whole batch, by the user's own loss.

    Compares the gradients of the first batch, the loss of each, and what each step makes of parameters, moments and buffers, starting from what the program had
    before it. PyTorch computes in float64, in the model's own types if it does not run in that (`report.own_types`). Gradients may be off by 1e-5 of a parameter's
    largest, or by what random rounding of PyTorch's operations does; updates by what that does to them. Other arguments are those of `piper.compile`; neither the
    model nor the optimizer changes. Raises nothing: `report.ok` tells, `report.error` says why it could not be done.

    Where rows of the batch influence each other (BatchNorm, say) a program of several parts equals PyTorch looped over replicas, then microbatches, and not
    PyTorch on the whole batch: `report.coupling` says how far these are apart, and `report.ok` is False, unless coupled="parts" says that the loop is what you mean.
    """
    report = Report(coupled=coupled)
    options = {"batch_dims": batch_dims, "loss_reduction": loss_reduction}
    try:
        check_coupled(coupled)
        truths = Truths(model, loss_fn, list(batches), optimizer, **options)
        program = compile(
            truths.model,
            loss_fn,
            truths.batches[0],
            strategy=strategy,
            optimizer=truths.optimizer,
            progress=False,
            check_rows=check_rows,
            **truths.options(strategy),
        )
        compare(report, program, truths, strategy)
    except Exception as error:
        report.error = f"{type(error).__name__}: {error}"
        report.exit_code = error.exit_code if isinstance(error, PiperError) else 1
    return report


def check_coupled(coupled: str | None) -> None:
    """Raises UsageError for anything but None and "parts"."""
    if coupled not in (None, PARTS):
        raise UsageError(f"expected coupled to be '{PARTS}' or None, got {coupled!r}")


def compare(report: Report, program: Program, truths: Truths, strategy: Strategy | None) -> None:
    """Fills the report with what `program` does on the batches of `truths`, and closes it."""
    try:
        truths.prepare(strategy)
        trace = record(program, truths.batches, truths.names)
    finally:
        program.close()
    report.parts = parts_of(strategy)
    whole = truths.of(trace, None)
    if report.parts == (1, 1):
        report.findings = judge(truths, trace, whole)
    else:
        _judge_parts(report, truths, trace, whole)
    report.half, report.own_types = truths.half, truths.own_types
    report.exit_code = 0 if report.ok else 1


def _judge_parts(report: Report, truths: Truths, trace: Trace, whole: Truth) -> None:
    """The program against the whole batch; and whether that gives something else than the loop over its parts, and which of them the program equals."""
    parts = truths.of(trace, report.parts)
    try:
        parts.outcome(0)
    except Exception:
        if report.coupled == PARTS:
            raise
        # The truth is the whole batch, which needs no loop.
        report.findings = judge(truths, trace, whole)
        return
    # Buffers are written part by part, in the order of the loop.
    report.findings = judge(truths, trace, whole, parts if truths.buffers else None)
    # A later batch counts only if the program differs from the whole one.
    steps = [0] if report.findings.ok else range(len(truths.batches))
    found = max((coupling(truths, whole, parts, step) for step in steps), key=lambda pair: pair[0] or 0.0)
    report.coupling, report.coupled_at = found
    if report.coupling is not None:
        looped = judge(truths, trace, parts)
        report.equals_parts = looped.ok
        if report.coupled == PARTS:
            report.findings, report.truth = looped, PARTS


def coupling(truths: Truths, whole: Truth, parts: Truth, step: int) -> tuple[float | None, str]:
    """By how much the whole batch differs from the loop, as a part of the largest in the loop, and where; None if that is no more than rounding."""
    one, other = whole.outcome(step), parts.outcome(step)
    # In float64 rounding is far below what counts.
    doubt = whole.rounding(step).gradients if truths.own_types else {}
    found = _apart(one, other, doubt)
    name = max(found, key=found.get, default="")
    return (found[name], name) if name and found[name] > TOLERANCE else (None, "")


def _apart(one: Outcome, other: Outcome, doubt: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Of the gradients by parameter, and of the loss."""
    scales = gradient_scales(other.gradients)
    found = {}
    for name in one.gradients.keys() | other.gradients.keys():
        if name not in one.gradients or name not in other.gradients:
            found[name] = math.inf
            continue
        off = (one.gradients[name].double() - other.gradients[name].double()).abs()
        off = torch.where(off > 3 * doubt[name], off, 0.0) if name in doubt else off
        found[name] = _part(off.max().item(), scales[name]) if off.numel() else 0.0
    loss = abs(one.loss - other.loss)
    return {**found, "the loss": _part(loss if loss > TOLERANCE * max(abs(other.loss), 1e-6) else 0.0, abs(other.loss))}


def _part(off: float, scale: float) -> float:
    return off / scale if scale else (math.inf if off else 0.0)
