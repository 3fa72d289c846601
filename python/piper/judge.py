# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Holds what a program did against PyTorch: gradients, losses, and every step by itself from the state in which the program took it.

So the errors of one step do not hide in, or add to, those of another, and each update can be held to what rounding of its own gradient can do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from .report import BufferRow, Findings, LossRow, Row
from .trace import Trace
from .truth import Doubt, Truth, Truths, gradient_scales
from .updates import VALUE, State, Values


@dataclass(frozen=True)
class _Worst:
    """The element that is worst against what is allowed for it."""

    error: float = 0.0
    allowed: float = 0.0
    what: str = ""

    @property
    def excess(self) -> float:
        if math.isnan(self.error):
            return math.inf
        return self.error / self.allowed if self.allowed else (math.inf if self.error else 0.0)


def judge(truths: Truths, trace: Trace, truth: Truth, written: Truth | None = None) -> Findings:
    """The program against one truth; `written`: against another for the buffers that forward writes."""
    written = written or truth
    findings = Findings()
    rows = _Rows(truths, trace, truth)
    taken = 0
    for step in range(len(truths.batches)):
        before = _before(truths, trace, step, taken)
        checked = _Step(truths, trace, truth, written, step, before)
        counts = not math.isnan(truth.outcome(step).loss)
        taken += counts
        result = checked.check()
        findings.losses.append(result.loss)
        findings.buffers += result.buffers
        rows.add(result)
        if trace.states[step + 1].steps != taken:
            findings.problems.append(
                f"after batch {step} the program had taken {trace.states[step + 1].steps} steps of the optimizer, PyTorch {taken}  <-- differs"
            )
    rows.check_start()
    findings.rows = rows.result()
    return findings


def _before(truths: Truths, trace: Trace, step: int, taken: int) -> State:
    state = trace.states[step]
    # A parameter that the program does not give is told as one that differs.
    values = truths.start if step == 0 else {**truths.start, **state.values}
    return State(values, state.moments, taken)


@dataclass
class _Result:
    loss: LossRow
    buffers: list[BufferRow]
    gradients: dict[str, _Worst]
    parameters: dict[str, _Worst]
    moments: dict[str, _Worst]

    @property
    def ok(self) -> bool:
        """Whether nothing is further off than allowed."""
        errors = [*self.gradients.values(), *self.parameters.values(), *self.moments.values()]
        return self.loss.ok and all(row.ok for row in self.buffers) and all(worst.excess <= 1 for worst in errors)


class _Step:
    """One step of the program."""

    def __init__(self, truths: Truths, trace: Trace, truth: Truth, written: Truth, step: int, before: State):
        self._truths, self._trace, self._truth, self._written = truths, trace, truth, written
        self._step, self._state = step, before
        self._after = trace.states[step + 1]

    def check(self) -> _Result:
        """Everything about it. What rounding does is looked at only if something is off, or if there is much of it."""
        rounds = self._truths.half or bool(self._truths.own_types)
        if not rounds:
            result = self._check(self._without_rounding(), thorough=False)
            if result.ok:
                return result
        doubt = replace(self._truth.rounding(self._step), buffers=self._written.rounding(self._step).buffers)
        return self._check(doubt, thorough=True)

    def _without_rounding(self) -> Doubt:
        """Where a gradient is exactly zero, an update that it would cause is no rounding."""
        doubt, gradients = self._truth.doubt(self._step), self._truth.outcome(self._step).gradients
        exact = {name: torch.where(value == 0, 0.0, doubt.gradients[name]) for name, value in gradients.items()}
        return replace(doubt, gradients=exact, buffers=self._written.doubt(self._step).buffers)

    def _check(self, doubt: Doubt, thorough: bool) -> _Result:
        truth = self._truth.outcome(self._step)
        loss = LossRow(self._trace.losses[self._step], truth.loss, doubt.loss)
        parameters, moments = self._updates(truth.gradients, doubt, thorough)
        gradients = dict(self._gradients(truth.gradients, doubt)) if self._step == 0 else {}
        return _Result(loss, list(self._buffers(doubt)), gradients, parameters, moments)

    def _gradients(self, truth: Values, doubt: Doubt) -> Iterator[tuple[str, _Worst]]:
        """Those of the first batch."""
        own, least = self._trace.gradients, self._truth.doubt(self._step).gradients
        for name, value in truth.items():
            # Of the promise, an element that has to be zero is no exception.
            allowed = torch.maximum(doubt.gradients[name], least[name])
            yield name, _worst(own[name], value, allowed) if name in own else _Worst(math.inf)
        for name in own.keys() - truth.keys():
            yield name, _worst(own[name], torch.zeros_like(own[name]), torch.zeros_like(own[name]))

    def _buffers(self, doubt: Doubt) -> Iterator[BufferRow]:
        truth, own = self._written.outcome(self._step).buffers[0], self._trace.buffers[self._step]
        for name, value in truth.items():
            if name in own:
                worst = _worst(own[name], value, doubt.buffers[name])
                yield BufferRow(name, worst.error, worst.allowed)

    def _updates(self, gradients: Values, doubt: Doubt, thorough: bool) -> tuple[dict[str, _Worst], ...]:
        reached = self._truths.updates.reach(self._state, gradients, doubt.gradients, thorough) if gradients else {}
        parameters, moments = {}, {}
        for name, own in reached.items():
            after = self._after.moments.get(name, {})
            values = {slot: self._after.values.get(name) if slot == VALUE else after.get(slot) for slot in own.exact}
            worst = {
                slot: _worst(value, own.exact[slot], own.allowed[slot], slot) if value is not None else _Worst(math.inf)
                for slot, value in values.items()
            }
            parameters[name] = worst.pop(VALUE)
            moments[name] = max(worst.values(), key=lambda one: one.excess, default=_Worst())
        for name, value in self._state.values.items():
            # What has no gradient stays.
            if name not in reached and name in self._after.values:
                parameters[name] = _worst(self._after.values[name], value, torch.zeros_like(value, dtype=torch.float64))
        return parameters, moments


class _Rows:
    """The worst of all steps, by parameter."""

    def __init__(self, truths: Truths, trace: Trace, truth: Truth):
        self._truths, self._trace, self._truth = truths, trace, truth
        self._worst: dict[tuple[str, str], _Worst] = {}

    def add(self, result: _Result) -> None:
        for kind in ("gradients", "parameters", "moments"):
            for name, worst in getattr(result, kind).items():
                self._take(kind, name, worst)

    def check_start(self) -> None:
        """The program starts with the model's parameters, and without moments."""
        first = self._trace.states[0]
        for name, value in self._truths.start.items():
            if name in first.values:
                self._take(
                    "parameters", name, _worst(first.values[name], value, torch.zeros_like(value, dtype=torch.float64))
                )
        for name, slots in first.moments.items():
            for slot, value in slots.items():
                self._take("moments", name, _worst(value, torch.zeros_like(value), torch.zeros_like(value), slot))

    def result(self) -> list[Row]:
        truth = self._truth.outcome(0).gradients
        scales = gradient_scales(truth)
        names = [*truth, *(name for name in self._truths.start if name not in truth)]
        names += [name for _, name in self._worst if name not in self._truths.start]
        rows = [self._row(name, scales) for name in dict.fromkeys(names)]
        return [row for row in rows if row.name in truth or not row.ok]

    def _row(self, name: str, scales: dict[str, float]) -> Row:
        kinds = [self._worst.get((kind, name), _Worst()) for kind in ("gradients", "parameters", "moments")]
        gradient, parameter, moment = kinds
        start = self._truths.start.get(name)
        size = start.abs().max().item() if start is not None and start.numel() else 0.0
        return Row(
            name,
            gradient.error,
            gradient.allowed,
            scales.get(name, 0.0),
            parameter.error,
            parameter.allowed,
            size,
            moment.error,
            moment.allowed,
            moment.what,
        )

    def _take(self, kind: str, name: str, worst: _Worst) -> None:
        known = self._worst.get((kind, name))
        if known is None or worst.excess > known.excess:
            self._worst[kind, name] = worst


def _worst(own: torch.Tensor, truth: torch.Tensor, allowed: torch.Tensor, what: str = "") -> _Worst:
    if own.shape != truth.shape:
        return _Worst(math.inf, 0.0, what)
    if not own.numel():
        return _Worst()
    wide = torch.complex128 if truth.is_complex() else torch.float64
    error = (own.to(wide) - truth.to(wide)).abs()
    error = torch.where(own == truth, 0.0, error)
    excess = torch.where(error == 0, 0.0, error / allowed).nan_to_num(nan=math.inf, posinf=math.inf)
    index = excess.argmax()
    return _Worst(error.flatten()[index].item(), allowed.flatten()[index].item(), what)
