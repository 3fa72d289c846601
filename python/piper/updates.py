# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where one step of an optimizer may carry parameters and moments whose gradients are known to some accuracy.

Adam divides by the size of gradients: an element whose gradient is rounding alone moves by the whole learning rate, in any direction. So torch's optimizer
steps from one state with gradients all over what rounding allows, and what it reaches is what may be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

Values = dict[str, torch.Tensor]
#: The name of the parameter itself beside those of its moments.
VALUE = "value"
#: The relative error of one float32 operation.
UNIT = 2.0**-24
#: Operations that follow one another in an update, and what is added for points between those that are tried.
_OPERATIONS, _BETWEEN = 16, 1.25
_FIRST_MOMENTS = ("momentum_buffer", "exp_avg")
_PLAIN = {"foreach": False, "fused": False, "capturable": False, "differentiable": False}


@dataclass(frozen=True)
class State:
    """Parameters, their moments by slot, and how many steps were taken."""

    values: Values
    moments: dict[str, Values]
    steps: int


@dataclass(frozen=True)
class Reach:
    """Of one parameter, by slot (`VALUE` is its own): where the true gradient leads, and how far from there, upwards and downwards alike, rounding may."""

    exact: Values
    allowed: Values


class Updates:
    """One step of a torch optimizer, in float64."""

    def __init__(self, optimizer: torch.optim.Optimizer, names: Mapping[int, str]):
        """names: of each parameter by id."""
        self._class, self._lr = type(optimizer), optimizer.defaults["lr"]
        self._groups = [
            (
                {key: _PLAIN.get(key, value) for key, value in group.items() if key != "params"},
                [names[id(parameter)] for parameter in group["params"] if id(parameter) in names],
            )
            for group in optimizer.param_groups
        ]

    def reach(self, before: State, gradients: Values, uncertain: Values, thorough: bool) -> dict[str, Reach]:
        """Where the parameters that have `gradients` may be after a step from `before`, each gradient being known to ± `uncertain`.

        thorough: with many gradients out of that range instead of its ends, which is enough where zero is not in it.
        """
        doubt = {name: uncertain[name] + self._rounding(name, before, gradient) for name, gradient in gradients.items()}
        exact = self._step(before, gradients)
        farthest = {name: {slot: torch.zeros_like(value) for slot, value in own.items()} for name, own in exact.items()}
        for tried in _tried(gradients, doubt, thorough):
            for name, own in self._step(before, tried).items():
                for slot, value in own.items():
                    distance = (value - exact[name][slot]).abs()
                    farthest[name][slot] = torch.maximum(farthest[name][slot], distance)
        return {name: self._reach(before, name, exact[name], farthest[name]) for name in gradients}

    def _reach(self, before: State, name: str, exact: Values, farthest: Values) -> Reach:
        allowed = {}
        for slot, value in exact.items():
            start = before.values[name] if slot == VALUE else before.moments.get(name, {}).get(slot)
            start = torch.zeros_like(value) if start is None else start.double()
            size = torch.maximum(start.abs(), value.abs())
            own = 2 * _OPERATIONS * UNIT * (value - start).abs() + 4 * UNIT * size
            allowed[slot] = _BETWEEN * farthest[slot] + own
        return Reach(exact, allowed)

    def _rounding(self, name: str, before: State, gradient: torch.Tensor) -> torch.Tensor:
        """What the arithmetic of the update adds to the doubt about a gradient: where it and a moment, or the decay, all but cancel."""
        options = next(options for options, names in self._groups if name in names)
        size = _OPERATIONS * gradient.abs() + 4 * options["weight_decay"] * before.values[name].double().abs()
        for slot in _FIRST_MOMENTS:
            if slot in before.moments.get(name, {}):
                # A moment of weight 0.9 beside a gradient of weight 0.1.
                size = size + 4 * _OPERATIONS * before.moments[name][slot].double().abs()
        return UNIT * size

    def _step(self, before: State, gradients: Values) -> dict[str, Values]:
        parameters = {name: nn.Parameter(before.values[name].to(torch.float64, copy=True)) for name in gradients}
        groups = [
            {**options, "params": [parameters[name] for name in dict.fromkeys(names) if name in parameters]}
            for options, names in self._groups
        ]
        optimizer = self._class([group for group in groups if group["params"]], lr=self._lr)
        for name, parameter in parameters.items():
            parameter.grad = gradients[name].double()
            if before.steps:
                moments = {slot: value.to(torch.float64, copy=True) for slot, value in before.moments[name].items()}
                optimizer.state[parameter].update(step=torch.tensor(float(before.steps)), **moments)
        optimizer.step()
        return {
            name: {VALUE: parameter.detach(), **_moments(optimizer.state.get(parameter, {}))}
            for name, parameter in parameters.items()
        }


def _moments(state: Mapping[str, torch.Tensor]) -> Values:
    return {slot: value for slot, value in state.items() if slot != "step" and isinstance(value, torch.Tensor)}


def _tried(gradients: Values, doubt: Values, thorough: bool) -> Sequence[Values]:
    """Gradients in the range: its ends; thoroughly also points between them, and points ever closer to zero, about which Adam turns around."""
    shifts = [1.0, -1.0, *((0.5, -0.5, 0.25, -0.25) if thorough else ())]
    tried = [{name: value + shift * doubt[name] for name, value in gradients.items()} for shift in shifts]
    for power in range(18) if thorough else ():
        for sign in (1.0, -1.0):
            tried.append({name: _within(value, doubt[name], sign * 0.4**power) for name, value in gradients.items()})
    return tried


def _within(gradient: torch.Tensor, doubt: torch.Tensor, part: float) -> torch.Tensor:
    return torch.minimum(torch.maximum(part * doubt, gradient - doubt), gradient + doubt)
