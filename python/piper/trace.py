# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a program did on some batches, under the names that PyTorch has for everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .importer.build import LOSS
from .program import Program
from .reference import Reference
from .updates import State, Values


@dataclass(frozen=True)
class Trace:
    """What a program did.

    Attributes:
        gradients: of the first batch, before the first step.
        states: parameters and moments before the first step and after each.
        buffers: after each step; those that are saved.
        losses: of each step.
    """

    gradients: Values
    states: list[State]
    buffers: list[Values]
    losses: list[float]


class Names:
    """The names that a program may have for PyTorch's parameters and buffers: a wrapper's state dict leaves parts of names out."""

    def __init__(self, model: nn.Module, loss_fn: Any, reference: Reference):
        modules = [("", model), *([(f"{LOSS}.", loss_fn)] if isinstance(loss_fn, nn.Module) else [])]
        known: dict[int, list[str]] = {}
        for prefix, module in modules:
            for name, value in _all_names(module):
                known.setdefault(id(value), []).append(prefix + name)
        self.parameters = {name: [name, *known[id(value)]] for name, value in reference.parameters().items()}
        buffers = [(prefix + name, value) for prefix, module in modules for name, value in module.named_buffers()]
        self.buffers = {name: [name, *known[id(value)]] for name, value in buffers}


def record(program: Program, batches: Sequence[Any], names: Names) -> Trace:
    """Takes one step per batch. Under torchrun all ranks call it."""
    found = program.gradients(batches[0])
    gradients = {**_unknown(found, names), **_renamed(found, names.parameters)}
    states, buffers, losses = [_read(program, names)[0]], [], []
    for batch in batches:
        losses.append(program.step(batch).item())
        state, own = _read(program, names)
        states.append(state)
        buffers.append(own)
    return Trace(gradients, states, buffers, losses)


def _read(program: Program, names: Names) -> tuple[State, Values]:
    held = {**program.state_dict(), **{f"{LOSS}.{name}": value for name, value in program.loss_state_dict().items()}}
    optimizer = program.optimizer_state_dict()
    steps = max(optimizer["steps"].values(), default=0)
    values, buffers = (_renamed(held, known) for known in (names.parameters, names.buffers))
    return State(values, _renamed(optimizer["state"], names.parameters), steps), buffers


def _renamed(values: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """By PyTorch's names, those that there are."""
    found = {name: next((known for known in candidates if known in values), None) for name, candidates in names.items()}
    return {name: values[known] for name, known in found.items() if known is not None}


def _unknown(values: Mapping[str, Any], names: Names) -> dict[str, Any]:
    known = {candidate for candidates in names.parameters.values() for candidate in candidates}
    return {name: value for name, value in values.items() if name not in known}


def _all_names(module: nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)
    yield from (
        (name, value) for name, value in module.state_dict(keep_vars=True).items() if isinstance(value, torch.Tensor)
    )
