# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights of a loss that the host computes before a step: where summands of a loss are divided by different sums, all of the whole batch.

Such weights depend on the batch alone (how many targets count, the sum of a mask), so that they can be known before anything else is. Their operations are
taken out of the captured graph, are kept with the program, and are run by torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .imported import TensorSpec
from .serialize import FlatGraph, NodeRef, Step, unflatten

#: The input through which a program gets them: whether anything counts (1 or 0), then rows of the whole batch / weight of each.
SHARED_WEIGHTS = "loss.weights"


@dataclass(frozen=True)
class WeightGraph:
    """The weights of a part of the batch with a certain number of rows.

    Attributes:
        operands: what the graph is called with: ("input", its name), ("state", a buffer's) or ("constant", a tensor).
        graph: aten operations; gives one 0-dimensional tensor for each weight.
    """

    operands: tuple[tuple[str, Any], ...]
    graph: FlatGraph

    def run(self, value_of: Callable[[str, str], torch.Tensor]) -> list[float]:
        """The weights; `value_of(kind, name)` gives operands."""
        values = [operand if kind == "constant" else value_of(kind, operand) for kind, operand in self.operands]
        with torch.no_grad():
            results = fx.Interpreter(torch.nn.Module(), graph=unflatten(self.graph)).run(*values)
        return [float(value) for value in results]


@dataclass(frozen=True)
class SharedWeights:
    """The weights of a program's loss.

    Attributes:
        members: by the number of rows of a part.
        weights: (offset, floor) of each.
        parts: the number of replicas, and of microbatches of each.
    """

    members: Mapping[int, WeightGraph]
    weights: tuple[tuple[float, float | None], ...]
    parts: tuple[int, int]

    def states(self) -> set[str]:
        """The buffers that they are computed from."""
        return {name for member in self.members.values() for kind, name in member.operands if kind == "state"}

    def sums(self, sizes: Sequence[int], value_of: Callable[[str, str, int, int], torch.Tensor]) -> list[float]:
        """The sums over parts of these sizes, one behind the other; `value_of(kind, name, first row, last + 1)` gives operands."""
        totals, first = [0.0] * len(self.weights), 0
        for rows in sizes:

            def operand(kind: str, name: str, first: int = first, rows: int = rows) -> torch.Tensor:
                return value_of(kind, name, first, first + rows)

            totals = [t + w for t, w in zip(totals, self.members[rows].run(operand), strict=True)]
            first += rows
        return totals

    def shared(self, totals: Sequence[float], rows: int) -> torch.Tensor:
        """What the program gets, from the sums over the whole batch of so many rows."""
        divisors = [
            total + offset if floor is None else max(total + offset, floor)
            for total, (offset, floor) in zip(totals, self.weights, strict=True)
        ]
        counts = all(divisor != 0 for divisor in divisors)
        return torch.tensor([float(counts), *(rows / divisor if counts else 0.0 for divisor in divisors)])

    def to_json(self) -> dict[str, Any]:
        """JSON values that `from_json` reads."""
        return {
            "members": [[rows, _member_to_json(member)] for rows, member in self.members.items()],
            "weights": [list(weight) for weight in self.weights],
            "parts": list(self.parts),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SharedWeights:
        """Raises KeyError, TypeError or ValueError where `data` is none."""
        members = {int(rows): _member_from_json(member) for rows, member in data["members"]}
        return cls(members, tuple((o, f) for o, f in data["weights"]), tuple(data["parts"]))


def _member_to_json(member: WeightGraph) -> dict[str, Any]:
    return {
        "operands": [[kind, _encode(value)] for kind, value in member.operands],
        "inputs": [[list(spec.shape), _encode(spec.dtype)] for spec in member.graph.inputs],
        "steps": [[step.target, _encode(step.args), _encode(step.kwargs)] for step in member.graph.steps],
        "results": _encode(member.graph.results),
    }


def _member_from_json(data: Mapping[str, Any]) -> WeightGraph:
    inputs = tuple(TensorSpec(tuple(shape), _decode(dtype)) for shape, dtype in data["inputs"])
    steps = tuple(Step(target, _decode(args), _decode(kwargs), "") for target, args, kwargs in data["steps"])
    graph = FlatGraph("weights", inputs, steps, _decode(data["results"]))
    return WeightGraph(tuple((kind, _decode(value)) for kind, value in data["operands"]), graph)


def _encode(value: Any) -> Any:
    """A value of an operation's arguments as JSON: what JSON does not know is a list whose first item says what it is."""
    if isinstance(value, NodeRef):
        return ["node", value.index]
    if isinstance(value, (tuple, list)):
        return ["tuple" if isinstance(value, tuple) else "list", [_encode(item) for item in value]]
    if isinstance(value, dict):
        return ["dict", {key: _encode(item) for key, item in value.items()}]
    if isinstance(value, torch.Tensor):
        return ["tensor", str(value.dtype), list(value.shape), value.flatten().tolist()]
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return ["torch", str(value)]
    if isinstance(value, torch.device):
        return ["device", str(value)]
    if isinstance(value, float):
        return ["float", value.hex()]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"expected a plain argument of an operation, got {type(value).__name__}")


def _decode(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, *rest = value
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(map(_decode, rest[0]))
    if kind == "dict":
        return {key: _decode(item) for key, item in rest[0].items()}
    if kind == "tensor":
        return torch.tensor(rest[2], dtype=_torch(rest[0])).reshape(rest[1])
    makers = {"node": NodeRef, "torch": _torch, "device": torch.device, "float": float.fromhex}
    return makers[kind](rest[0])


def _torch(name: str) -> Any:
    value = getattr(torch, name.removeprefix("torch."))
    if not isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        raise ValueError(f"expected a constant of torch, got {name!r}")
    return value
