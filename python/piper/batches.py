# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batches: from what the user hands over to the named tensors that a program takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from .errors import UsageError
from .importer import inputs as importer_inputs
from .importer.errors import ImporterError
from .importer.imported import Input
from .importer.inputs import Batch
from .memory import plain

_KEYS = {"args", "kwargs", "target"}


def from_call(args: tuple[Any, ...], kwargs: Mapping[str, Any], own_loss: bool = False) -> Batch:
    """The batch of a call `step(x, y)`, `step(x, target=y, mask=m)` or `step(batch)`, a batch being a tuple or a dict of args, kwargs and target.

    own_loss: the model computes its loss, so that there is no target, and a dict holds the model's arguments by name.
    """
    if own_loss:
        return _without_target(args, kwargs)
    if len(args) == 1 and not kwargs:
        (only,) = args
        if isinstance(only, (Batch, tuple, list)) or (isinstance(only, Mapping) and set(only) <= _KEYS):
            try:
                return Batch.of(only)
            except ImporterError as error:
                raise UsageError(str(error)) from None
    if "target" in kwargs:
        named = {name: value for name, value in kwargs.items() if name != "target"}
        return Batch(tuple(args), named, kwargs["target"])
    if not args:
        raise UsageError("expected a target as the last argument or by name")
    return Batch(tuple(args[:-1]), dict(kwargs), args[-1])


def _without_target(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Batch:
    if len(args) == 1 and not kwargs and isinstance(args[0], (Batch, tuple, list, Mapping)):
        try:
            return Batch.without_target(args[0])
        except ImporterError as error:
            raise UsageError(str(error)) from None
    return Batch(tuple(args), dict(kwargs), None)


def bind(
    batch: Batch,
    inputs: Mapping[str, Input],
    static: Mapping[str, Any],
    parameters: Sequence[str],
    rows: int | None,
    local_rows: tuple[int, int] | None = None,
) -> dict[str, torch.Tensor]:
    """The tensors of a batch by input name, dense and on the CPU.

    parameters: what the model's forward takes; an argument may be given by position or by name, whichever way it was compiled.
    rows: those of the global batch. local_rows: (first, last + 1) where the batch holds only these.
    Raises UsageError for missing or further values, another shape, dtype or number of rows, and values other than those compiled in.
    """
    expected = [*inputs, *static]
    batch = importer_inputs.arrange(batch, expected, parameters)
    _check_arguments(batch, expected, parameters)
    _refuse_other_kinds(batch, inputs)
    try:
        tensors = importer_inputs.bind(inputs, static, batch)
    except ImporterError as error:
        # It is the batch, not the model, that doesn't fit now.
        raise UsageError(str(error)) from None
    wanted = rows if local_rows is None else local_rows[1] - local_rows[0]
    for name, tensor in tensors.items():
        if inputs[name].split and tensor.shape[0] != wanted:
            whose = "the global batch's" if local_rows is None else "this process's"
            raise UsageError(
                f"input '{name}': expected {whose} {wanted} rows, got {tensor.shape[0]}: {_other_rows(wanted, tensor.shape[0])}"
            )
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_meta:
            raise UsageError(
                f"input '{name}': expected a dense tensor with values, got one on {tensor.device}, {tensor.layout}"
            )
    return {name: plain(tensor) for name, tensor in tensors.items()}


def _refuse_other_kinds(batch: Batch, inputs: Mapping[str, Input]) -> None:
    """A list where a tensor was compiled for would look like several inputs."""
    given = {f"args.{index}": value for index, value in enumerate(batch.args)}
    given |= {f"kwargs.{name}": value for name, value in batch.kwargs.items()} | {"target": batch.target}
    for name, value in given.items():
        if name in inputs and isinstance(value, (list, tuple)) and importer_inputs.is_numbers(value):
            raise UsageError(
                f"input '{name}': expected a tensor, as at compile time, got a {type(value).__name__} of numbers: make it a tensor"
            )


def _other_rows(wanted: int | None, got: int) -> str:
    """What to do with a batch of another size."""
    if wanted is not None and got < wanted:
        return "pad it with rows whose targets the loss ignores (ignore_index, a weight of 0), or compile a program for that size"
    return "divide it, or compile a program for that size"


def _check_arguments(batch: Batch, expected: Sequence[str], parameters: Sequence[str]) -> None:
    """Every argument of compile time is there, and no other."""
    compiled, given = _arguments(expected, parameters), _arguments(batch.leaves(), parameters)
    form = ", ".join(name if path.startswith("args.") else f"{name}=..." for path, name in compiled.items())
    missing = [name for path, name in compiled.items() if path not in given]
    further = [name for path, name in given.items() if path not in compiled]
    problems = [f"expected {', '.join(map(repr, missing))}, got none"] if missing else []
    problems += [f"{', '.join(map(repr, further))} given, but not at compile time"] if further else []
    if problems:
        raise UsageError(f"{'; '.join(problems)}: the program is compiled for forward({form})")


def _arguments(paths: Iterable[str], parameters: Sequence[str]) -> dict[str, str]:
    """The model's arguments among `paths` to their names in forward's signature."""
    found = {}
    for path in paths:
        kind, _, rest = path.partition(".")
        name = rest.partition(".")[0]
        if kind == "args":
            named = int(name) < len(parameters)
            found[f"args.{name}"] = parameters[int(name)] if named else f"argument {name}"
        elif kind == "kwargs":
            found[f"kwargs.{name}"] = name
    return found
