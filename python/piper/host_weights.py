# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights of a loss whose summands have different ones: what the host computes of a batch before a program runs on it."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import torch

from .description import Description
from .execution import Execution
from .importer.loss_weights import SharedWeights
from .rows import division


class HostWeights:
    """The weights of one program's entries, with the buffers that they are computed from, which no step writes."""

    def __init__(self, description: Description, execution: Execution):
        self._description, self._execution = description, execution
        self._names = {name for weights in description.loss_weights.values() for name in weights.states()}
        self._states: dict[str, torch.Tensor] = {}

    def note(self, state: str, value: torch.Tensor) -> None:
        """A state has this value from now on."""
        if state in self._names:
            self._states[state] = value.clone()

    def are_of(self, entry: str) -> bool:
        """Whether the entry's loss has such weights."""
        return entry in self._description.loss_weights

    def of(self, entry: str, tensors: Mapping[str, torch.Tensor], local: bool) -> torch.Tensor:
        """What the program gets of a batch. local: `tensors` hold the rows of this process, and all processes come here together."""
        weights = self._description.loss_weights[entry]
        totals = self._sums(weights, tensors, local)
        if local:
            totals = self._of_all_ranks(totals)
        return weights.shared(totals, self._description.rows)

    def _sums(self, weights: SharedWeights, tensors: Mapping[str, torch.Tensor], local: bool) -> list[float]:
        description = self._description

        def operand(kind: str, name: str, first: int, end: int) -> torch.Tensor:
            if kind == "state":
                return self._states[name]
            return tensors[name][first:end] if description.inputs[name].split else tensors[name]

        replicas, microbatches = weights.parts
        parts = [division(replica, microbatches) for replica in division(description.rows, replicas)]
        if local:
            own = sorted({description.replicas[rank][0] for rank in self._execution.ranks})
            parts = [parts[index] for index in own]
        return weights.sums([size for part in parts for size in part], operand)

    def _of_all_ranks(self, totals: list[float]) -> list[float]:
        """The sums over the whole batch, from each part of it once."""
        if not self._execution.is_shared:
            return totals
        form = f"{len(totals)}d"
        heard = [struct.unpack(form, given) for given in self._execution.exchange(struct.pack(form, *totals))]
        firsts = set(self._description.peers())
        return [sum(values) for values in zip(*(heard[rank] for rank in sorted(firsts)), strict=True)]
