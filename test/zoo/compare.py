# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Holds a program against plain PyTorch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import piper
import torch
from subject import Subject
from truth import RATE, STEPS, Outcome, Values, run

#: The promise: of the largest gradient of a parameter, or of all where its own is zero but for rounding.
TOLERANCE = 1e-5
_ZERO = 1e-9
#: After steps of AdamW: times the error of PyTorch's own float32.
_TIMES_EAGER = 3.0
_UNIT = 2.0**-23


@dataclass
class Difference:
    """Each is an error over what is allowed: right up to 1. `where` names the worst of the gradients, `loss` is the largest relative difference.

    A number is right that is as near to float64's as PyTorch's own float32, or as near to that as the promise says: float32 inputs and ops that both round
    alike put both at the same distance from float64, and then a little more or less says nothing.
    """

    gradients: float
    losses: float
    parameters: float
    where: str
    loss: float

    @property
    def right(self) -> bool:
        """Whether everything is within what is allowed."""
        return all(value <= 1 for value in (self.gradients, self.losses, self.parameters))


class Truths:
    """PyTorch's outcomes of one subject, which several programs share."""

    def __init__(self, subject: Subject):
        self._subject, self._known = subject, {}

    def of(self, parts: tuple[int, int]) -> tuple[Outcome, Outcome]:
        """In float64, and in the model's own types."""
        parts = parts if self._subject.coupled else (1, 1)
        if parts not in self._known:
            self._known[parts] = (run(self._subject, parts, wide=True), run(self._subject, parts, wide=False))
        return self._known[parts]


def compare(program: piper.Program, subject: Subject, truths: Truths, parts: tuple[int, int]) -> Difference:
    """Gradients of the first batch, then losses and parameters of three steps."""
    exact, eager = truths.of(parts)
    arguments = _arguments(subject)
    gradients = program.gradients(arguments)
    losses = [program.step(arguments).item() for _ in range(STEPS)]
    parameters = program.read_parameters()
    worst, where = _worst_gradient(gradients, exact.gradients[0], eager.gradients[0])
    pairs = list(zip(losses, exact.losses, eager.losses, strict=True))
    return Difference(
        worst,
        max(_ratio(abs(own - true), max(TOLERANCE * abs(true), abs(other - true))) for own, true, other in pairs),
        _worst_parameter(parameters, exact, eager),
        where,
        max(abs(own - true) / abs(true) for own, true, _ in pairs),
    )


def _arguments(subject: Subject):
    batch = subject.batch
    return batch["kwargs"] if subject.loss_fn is None and "kwargs" in batch else batch


def _worst_gradient(own: Values, exact: Values, eager: Values) -> tuple[float, str]:
    """What PyTorch has no gradient of must be zero, and is unlike any other if it is not."""
    scales, allowed = _scales(exact), _allowed(exact, eager)
    found = {}
    for name, value in exact.items():
        if name not in own:
            found[name] = math.inf
            continue
        to_exact = _ratio(_largest(own[name] - value), allowed[name])
        to_eager = _ratio(_largest(own[name] - eager[name]), TOLERANCE * scales[name])
        found[name] = min(to_exact, to_eager)
    found |= {name: math.inf for name, value in own.items() if name not in exact and value.any()}
    where = max(found, key=found.get)
    return found[where], where


def _allowed(exact: Values, eager: Values) -> dict[str, float]:
    scales = _scales(exact)
    return {name: max(TOLERANCE * scales[name], _largest(eager[name] - value)) for name, value in exact.items()}


def _scales(exact: Values) -> dict[str, float]:
    sizes = {name: _largest(value) for name, value in exact.items()}
    most = max(sizes.values())
    return {name: most if size <= _ZERO * most else size for name, size in sizes.items()}


def _worst_parameter(own: Values, exact: Outcome, eager: Outcome) -> float:
    """AdamW divides by the gradient's size: an element whose gradient is little more than rounding goes anywhere, and is left out.

    Where nothing is left there is no agreement either.
    """
    worst, compared = 0.0, 0
    allowed = [_allowed(a, b) for a, b in zip(exact.gradients, eager.gradients, strict=True)]
    for name, value in exact.parameters.items():
        if name not in exact.gradients[0] or name not in own:
            continue
        doubts = [allowed[k][name] / exact.gradients[k][name].abs() for k in range(STEPS)]
        clear = torch.stack(doubts).max(0).values < 1e-2
        compared += int(clear.sum())
        moved = 4 * RATE * torch.stack(doubts).sum(0) + 4 * _UNIT * value.abs().clamp(min=RATE)
        least = _TIMES_EAGER * (eager.parameters[name] - value).abs()
        error = (own[name].double() - value).abs()
        ratios = torch.where(clear, error / torch.maximum(moved, least), 0.0)
        worst = max(worst, ratios.max().item() if ratios.numel() else 0.0)
        if not own[name].isfinite().all():
            worst = math.inf
    return worst if compared else math.inf


def _largest(value: torch.Tensor) -> float:
    return value.double().abs().max().item() if value.numel() else 0.0


def _ratio(error: float, allowed: float) -> float:
    if math.isnan(error):
        return math.inf
    return error / allowed if allowed else (math.inf if error else 0.0)
