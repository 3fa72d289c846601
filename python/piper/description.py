# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the host has to know of a program beside its plan: names, shapes, options. JSON can hold all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from . import optimizers
from .errors import ProgramError, UsageError
from .importer.imported import Input
from .importer.loss_weights import SharedWeights
from .mesh import Mesh
from .optimizers import Group
from .rows import division


@dataclass(frozen=True)
class StateSpec:
    """Shape and dtype of a parameter, buffer or constant."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass
class Description:
    """A program as its host sees it.

    Attributes:
        inputs: the tensors of a batch by name.
        static: values of the batch that are no tensors and are compiled in, by path.
        rows: rows of the global batch; None if nothing is divided.
        divide: whether the loss is the sum of losses over the sum of weights, or the sum alone.
        mesh: the ranks.
        replicas: for each rank (its part, number of parts) of the batch.
        states: every tensor that outlives a step, by name.
        names: for each name in the model's state_dict the state that holds it.
        loss_names: the same of a loss that is a module.
        parameters: what the model's forward takes by position or by name, in order.
        trainable: states that have gradients.
        groups: the optimizer's groups.
        updates: whether the user gave an optimizer.
        own_loss: whether the model computes its loss, so that batches have no target.
        symbols: states that the plan knows by another name, as theirs is taken.
        before_update, on_update: called before and after each optimizer step; the first raises where the optimizer's own would do more.
        loss_weights: by entry, the weights of the loss that the host computes before it runs.
        extra: what the model's state_dict holds beside tensors of the program (get_extra_state); not saved.
    """

    inputs: Mapping[str, Input]
    static: Mapping[str, Any]
    rows: int | None
    divide: bool
    mesh: Mesh
    replicas: Sequence[tuple[int, int]]
    states: Mapping[str, StateSpec]
    names: Mapping[str, str]
    loss_names: Mapping[str, str]
    parameters: Sequence[str]
    trainable: Sequence[str]
    groups: Sequence[Group]
    updates: bool
    own_loss: bool = False
    symbols: Mapping[str, str] = field(default_factory=dict)
    before_update: Callable[[], None] = field(default=lambda: None, compare=False)
    on_update: Callable[[], None] = field(default=lambda: None, compare=False)
    loss_weights: Mapping[str, SharedWeights] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict, compare=False)

    def peers(self) -> list[int]:
        """For each rank the first that has the same rows of the batch."""
        return [self.replicas.index(part) for part in self.replicas]

    def local_rows(self, ranks: Sequence[int]) -> tuple[int, int]:
        """(first, last + 1) of the rows that the ranks of this process read, which must be contiguous."""
        if self.rows is None:
            raise UsageError("local=True: the batch has no rows that are divided")
        spans = sorted({self._span(rank) for rank in ranks})
        for (_, end), (start, _) in zip(spans, spans[1:], strict=False):
            if end != start:
                raise UsageError(f"local=True: the rows of ranks {list(ranks)} are not contiguous")
        return spans[0][0], spans[-1][1]

    def _span(self, rank: int) -> tuple[int, int]:
        part, parts = self.replicas[rank]
        sizes = division(self.rows, parts)
        first = sum(sizes[:part])
        return first, first + sizes[part]

    def to_json(self) -> dict[str, Any]:
        """JSON values that `from_json` reads."""
        return {
            "inputs": [
                [item.name, list(item.shape), _dtype_name(item.dtype), item.split] for item in self.inputs.values()
            ],
            "static": dict(self.static),
            "rows": self.rows,
            "divide": self.divide,
            "mesh": dict(self.mesh.shape),
            "replicas": [list(item) for item in self.replicas],
            "states": {name: [list(item.shape), _dtype_name(item.dtype)] for name, item in self.states.items()},
            "names": dict(self.names),
            "loss_names": dict(self.loss_names),
            "parameters": list(self.parameters),
            "trainable": list(self.trainable),
            "optimizer": optimizers.describe(self.groups),
            "updates": self.updates,
            "own_loss": self.own_loss,
            "loss_weights": {entry: weights.to_json() for entry, weights in self.loss_weights.items()},
            "symbols": dict(self.symbols),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Description:
        """The description in a manifest. Raises ProgramError if it is not one."""
        try:
            return cls(
                inputs={
                    name: Input(name, tuple(shape), _dtype(dtype), split)
                    for name, shape, dtype, split in data["inputs"]
                },
                static=data["static"],
                rows=data["rows"],
                divide=data["divide"],
                mesh=Mesh(**data["mesh"]),
                replicas=[tuple(item) for item in data["replicas"]],
                states={
                    name: StateSpec(tuple(shape), _dtype(dtype)) for name, (shape, dtype) in data["states"].items()
                },
                names=data["names"],
                loss_names=data["loss_names"],
                parameters=data["parameters"],
                trainable=data["trainable"],
                groups=optimizers.restore(data["optimizer"]),
                updates=data["updates"],
                own_loss=data.get("own_loss", False),
                loss_weights={
                    entry: SharedWeights.from_json(item) for entry, item in data.get("loss_weights", {}).items()
                },
                symbols=data.get("symbols", {}),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProgramError(f"damaged manifest: {type(error).__name__}: {error}") from None


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"expected an element type, got {name!r}")
    return dtype
