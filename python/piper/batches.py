# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batches: from what the user hands over to the named tensors that a program takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .errors import UsageError

_KEYS = {"args", "kwargs", "target"}


@dataclass(frozen=True)
class Batch:
    """One call: the model's arguments and what the loss compares with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    target: Any


@dataclass(frozen=True)
class InputSpec:
    """A tensor that a program takes: its path in the batch, the shape of the global tensor, and whether dim 0 counts rows."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    split: bool


def as_batch(batch: Any) -> Batch:
    """A batch given as `(args…, target)` or `dict(args=…, kwargs=…, target=…)`."""
    if isinstance(batch, Batch):
        return batch
    if is_batch_dict(batch):
        args = batch.get("args", ())
        if isinstance(args, torch.Tensor) or not isinstance(args, Sequence):
            raise UsageError(f"expected a tuple as the batch's args, got {type(args).__name__}")
        return Batch(tuple(args), dict(batch.get("kwargs") or {}), batch.get("target"))
    if isinstance(batch, (tuple, list)) and len(batch) >= 2:
        return Batch(tuple(batch[:-1]), {}, batch[-1])
    raise UsageError(
        f"expected a batch (args..., target) or dict(args=..., kwargs=..., target=...), got {type(batch).__name__}"
    )


def is_batch_dict(value: Any) -> bool:
    """Whether a value is a batch in its dict form."""
    return isinstance(value, Mapping) and bool(value) and set(value) <= _KEYS


def from_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Batch:
    """The batch of a call `step(x, y)`, `step(x, target=y, mask=m)` or `step(batch)`."""
    if len(args) == 1 and not kwargs and (is_batch_dict(args[0]) or isinstance(args[0], (Batch, tuple, list))):
        return as_batch(args[0])
    kwargs = dict(kwargs)
    if "target" in kwargs:
        target = kwargs.pop("target")
        return Batch(args, kwargs, target)
    if not args:
        raise UsageError("expected a target as the last argument or by name")
    return Batch(args[:-1], kwargs, args[-1])


def flatten(batch: Batch) -> dict[str, Any]:
    """Every leaf of a batch by its path: "args.0", "kwargs.mask", "target", "target.labels", …"""
    leaves: dict[str, Any] = {}
    _flatten("args", batch.args, leaves)
    _flatten("kwargs", batch.kwargs, leaves)
    _flatten("target", batch.target, leaves)
    return leaves


def _flatten(path: str, value: Any, leaves: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(f"{path}.{key}", item, leaves)
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            _flatten(f"{path}.{index}", item, leaves)
    else:
        leaves[path] = value


def bind(
    batch: Batch, inputs: Sequence[InputSpec], static: Mapping[str, Any], rows: tuple[int, int] | None = None
) -> dict[str, torch.Tensor]:
    """The tensors of a batch by input name, dense and on the CPU.

    rows: (first, last + 1) where the batch holds only these rows of the global one.
    Raises UsageError for missing or further values, another shape, dtype or number of rows, and values other than those compiled in.
    """
    leaves = flatten(batch)
    tensors: dict[str, torch.Tensor] = {}
    for item in inputs:
        if item.name not in leaves:
            raise UsageError(f"expected a batch with '{item.name}', got {', '.join(leaves) or 'nothing'}")
        tensors[item.name] = _checked(item, leaves.pop(item.name), rows)
    for name, value in leaves.items():
        if name not in static:
            raise UsageError(f"'{name}' is not part of the batch that the program was compiled for")
        if isinstance(value, torch.Tensor) or value != static[name]:
            raise UsageError(
                f"'{name}' was {static[name]!r} when the program was compiled, got {value!r}: compile again for it"
            )
    for name in static:
        if name not in leaves and static[name] is not None:
            raise UsageError(f"expected a batch with '{name}' = {static[name]!r}, which was compiled in")
    return tensors


def _checked(item: InputSpec, value: Any, rows: tuple[int, int] | None) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise UsageError(f"'{item.name}': expected a tensor, got {type(value).__name__}")
    if value.dtype != item.dtype:
        raise UsageError(f"'{item.name}': expected {item.dtype}, got {value.dtype}")
    shape = item.shape
    if item.split and rows is not None:
        shape = (rows[1] - rows[0], *shape[1:])
    if item.split and value.dim() == len(shape) and value.shape[1:] == shape[1:] and value.shape[0] != shape[0]:
        owner = "this rank's" if rows is not None else "the global batch's"
        raise UsageError(f"'{item.name}': expected {owner} {shape[0]} rows, got {value.shape[0]}")
    if tuple(value.shape) != tuple(shape):
        raise UsageError(f"'{item.name}': expected shape {tuple(shape)}, got {tuple(value.shape)}")
    return value.detach().cpu().contiguous()
