# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batches: from what the user hands over to the named tensors that a program takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .errors import UsageError
from .importer import inputs as importer_inputs
from .importer.imported import Input
from .importer.inputs import Batch

_KEYS = {"args", "kwargs", "target"}


def from_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Batch:
    """The batch of a call `step(x, y)`, `step(x, target=y, mask=m)` or `step(batch)`, a batch being a tuple or a dict of args, kwargs and target."""
    if len(args) == 1 and not kwargs:
        (only,) = args
        if isinstance(only, (Batch, tuple, list)) or (isinstance(only, Mapping) and set(only) <= _KEYS):
            return Batch.of(only)
    if "target" in kwargs:
        named = {name: value for name, value in kwargs.items() if name != "target"}
        return Batch(tuple(args), named, kwargs["target"])
    if not args:
        raise UsageError("expected a target as the last argument or by name")
    return Batch(tuple(args[:-1]), dict(kwargs), args[-1])


def bind(
    batch: Batch,
    inputs: Mapping[str, Input],
    static: Mapping[str, Any],
    rows: int | None,
    local_rows: tuple[int, int] | None = None,
) -> dict[str, torch.Tensor]:
    """The tensors of a batch by input name, dense and on the CPU.

    rows: those of the global batch. local_rows: (first, last + 1) where the batch holds only these.
    Raises UsageError for missing or further values, another shape, dtype or number of rows, and values other than those compiled in.
    """
    tensors = importer_inputs.bind(inputs, static, batch)
    wanted = rows if local_rows is None else local_rows[1] - local_rows[0]
    for name, tensor in tensors.items():
        if inputs[name].split and tensor.shape[0] != wanted:
            whose = "the global batch's" if local_rows is None else "this process's"
            raise UsageError(f"input '{name}': expected {whose} {wanted} rows, got {tensor.shape[0]}")
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_meta:
            raise UsageError(
                f"input '{name}': expected a dense tensor with values, got one on {tensor.device}, {tensor.layout}"
            )
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
