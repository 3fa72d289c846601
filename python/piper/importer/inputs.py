# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The batch as the importer sees it: named tensors, the values that are no tensors, and which tensors are divided over
microbatches and replicas.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import torch

from .dtypes import refuse_unsupported
from .errors import ImporterError
from .imported import Input

#: The forms of a batch, for messages.
FORMS = "(args..., target) or dict(args=(...), kwargs={...}, target=...)"


class RowsInDoubt(ImporterError):
    """It can't be told which tensors of a batch are divided over microbatches and replicas."""


@dataclass(frozen=True)
class Batch:
    """What a step is called with: `model(*args, **kwargs)`, and the target of the loss."""

    args: tuple
    kwargs: dict[str, Any]
    target: Any

    @staticmethod
    def of(batch: Any) -> Batch:
        """A batch from `(args…, target)` or `dict(args=…, kwargs=…, target=…)`.

        Raises:
            ImporterError: it has neither form.
        """
        if isinstance(batch, Batch):
            return batch
        if isinstance(batch, Mapping):
            unknown = set(batch) - {"args", "kwargs", "target"}
            if unknown or "target" not in batch:
                raise ImporterError(
                    f"expected a batch {FORMS}, got a dict with the keys {', '.join(map(repr, batch))}{_form_of(batch)}"
                )
            args = batch.get("args", ())
            return Batch(
                tuple(args) if isinstance(args, (tuple, list)) else (args,),
                dict(batch.get("kwargs", {})),
                batch["target"],
            )
        if isinstance(batch, (tuple, list)) and len(batch) >= 2:
            return Batch(tuple(batch[:-1]), {}, batch[-1])
        raise ImporterError(f"expected a batch {FORMS}, got {type(batch).__name__}")

    @staticmethod
    def without_target(batch: Any) -> Batch:
        """A batch of a model that computes its own loss: its arguments `(args…)`, by name `{name: value}`, or `dict(args=…, kwargs=…)`.

        Raises:
            ImporterError: it has none of these forms.
        """
        if isinstance(batch, Batch):
            return batch
        if isinstance(batch, torch.Tensor):
            return Batch((batch,), {}, None)
        if isinstance(batch, Mapping) and all(isinstance(name, str) for name in batch):
            if not set(batch) <= {"args", "kwargs", "target"}:
                return Batch((), dict(batch), None)
            if batch.get("target") is not None:
                raise ImporterError(
                    "without loss_fn the model computes the loss from its arguments, and takes no target"
                )
            args = batch.get("args", ())
            return Batch(
                tuple(args) if isinstance(args, (tuple, list)) else (args,), dict(batch.get("kwargs", {})), None
            )
        if isinstance(batch, (tuple, list)) and batch:
            return Batch(tuple(batch), {}, None)
        raise ImporterError(
            f"expected the arguments of the model as (args...), as a dict by name or as dict(args=(...), kwargs={{...}}), got {type(batch).__name__}"
        )

    def map(self, leaf: Callable[[str, Any], Any]) -> Batch:
        """A batch of the same structure, each leaf replaced by `leaf(path, value)`."""
        args = tuple(_map(value, f"args.{i}", leaf) for i, value in enumerate(self.args))
        kwargs = {name: _map(self.kwargs[name], f"kwargs.{name}", leaf) for name in sorted(self.kwargs)}
        return Batch(args, kwargs, _map(self.target, "target", leaf))

    def leaves(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.map(found.__setitem__)
        return found


def _form_of(batch: Mapping) -> str:
    """The form for a dict of the model's arguments, which is what a tokenizer gives."""
    if not batch or set(batch) & {"args", "kwargs"} or not all(isinstance(name, str) for name in batch):
        return ""
    target = next((name for name in batch if name in ("labels", "label", "targets", "target", "y")), None)
    if target is None:
        return ": where they are the model's arguments, give dict(kwargs=dict(batch), target=...)"
    return (
        f': where they are the model\'s arguments, give dict(kwargs={{k: v for k, v in batch.items() if k != "{target}"}}, '
        f'target=batch["{target}"])'
    )


def _map(value: Any, path: str, leaf: Callable[[str, Any], Any]) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map(getattr(value, name), f"{path}.{name}", leaf) for name in value._fields))
    if isinstance(value, (tuple, list)):
        return type(value)(_map(item, f"{path}.{i}", leaf) for i, item in enumerate(value))
    if isinstance(value, Mapping):
        items = {key: _map(item, f"{path}.{key}", leaf) for key, item in value.items()}
        return items if type(value) is dict else type(value)(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(
            value, **{name: _map(getattr(value, name), f"{path}.{name}", leaf) for name in fields}
        )
    return leaf(path, value)


def describe(
    batch: Batch, batch_dims: Mapping[str, int | None] | None
) -> tuple[dict[str, Input], dict[str, Any], int | None]:
    """The tensor inputs, the values that are no tensors, and the rows of the example.

    A tensor whose dim 0 equals the target's (or, without a target, that of `labels`) is divided; `batch_dims` maps names to 0 (divided) or None (whole) and
    overrides.

    Raises:
        RowsInDoubt: it can't be told which tensors are divided; names the inputs in doubt.
        ImporterError: `batch_dims` does not fit the batch.
    """
    leaves = batch.leaves()
    tensors = {name: value for name, value in leaves.items() if isinstance(value, torch.Tensor)}
    for name, value in leaves.items():
        _refuse_hidden_numbers(name, value)
    for name, value in tensors.items():
        _refuse_not_dense(name, value)
        refuse_unsupported(f"input '{name}'", value.dtype)
    static = {name: value for name, value in leaves.items() if not isinstance(value, torch.Tensor)}
    given = dict(batch_dims or {})
    for name, dim in given.items():
        if name not in tensors:
            raise ImporterError(
                f"batch_dims names '{name}', which is no tensor of the batch (it has {', '.join(tensors)})"
            )
        if dim not in (0, None):
            raise ImporterError(f"batch_dims: expected 0 or None for '{name}', got {dim}")
        if dim == 0 and tensors[name].dim() == 0:
            raise ImporterError(f"batch_dims: '{name}' is a scalar and has no dim 0")
    rows = _rows(tensors, given)
    _refuse_lists_of_rows(batch, rows)
    matching = {name for name, value in tensors.items() if value.dim() and value.shape[0] == rows}
    _refuse_doubt(tensors, given, matching, rows)
    split = {name: given[name] == 0 if name in given else name in matching for name in tensors}
    return (
        {name: Input(name, tuple(value.shape), value.dtype, split[name]) for name, value in tensors.items()},
        static,
        rows,
    )


def _refuse_hidden_numbers(name: str, value: Any) -> None:
    """Numbers that are no tensor would stay what they are in the example."""
    if isinstance(value, torch.Tensor):
        return
    if hasattr(value, "__array__") and getattr(value, "ndim", 1) > 0:
        kind = "numpy array" if type(value).__module__ == "numpy" else type(value).__name__
        raise ImporterError(f"'{name}' is a {kind} and is not divided: make it a tensor")
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict) and not callable(value) and any(isinstance(item, torch.Tensor) for item in own.values()):
        raise ImporterError(
            f"'{name}' is a {type(value).__name__}, whose tensors would stay what they are now: give them as tensors, or in a tuple, "
            "list, dict or dataclass"
        )


def _refuse_not_dense(name: str, value: torch.Tensor) -> None:
    if value.is_nested:
        raise ImporterError(
            f"input '{name}' is a nested tensor: expected a dense one, padded (torch.nested.to_padded_tensor)"
        )
    if value.layout != torch.strided:
        raise ImporterError(f"input '{name}' has the layout {value.layout}: expected a dense tensor (.to_dense())")


def _refuse_lists_of_rows(batch: Batch, rows: int | None) -> None:
    """A list of numbers, as a loader without a collate function gives them."""
    for name, value in _lists(batch):
        if name == "target" or len(value) == rows:
            aside = "" if name == "target" else ", or a tuple if they are not those of the rows"
            raise ImporterError(
                f"'{name}' is a list of {len(value)} numbers and is not divided: make it a tensor{aside}"
            )


def _lists(batch: Batch) -> Iterator[tuple[str, list]]:
    """The arguments and the target that are lists of numbers, or of lists of numbers."""
    named = {f"args.{index}": value for index, value in enumerate(batch.args)}
    named |= {f"kwargs.{name}": value for name, value in batch.kwargs.items()}
    for name, value in {**named, "target": batch.target}.items():
        if isinstance(value, list) and value and is_numbers(value):
            yield name, value


def is_numbers(value: Any) -> bool:
    """Whether it is a number, or a list or tuple of such."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(is_numbers, value))
    return isinstance(value, Number)


def _rows(tensors: Mapping[str, torch.Tensor], given: Mapping[str, int | None]) -> int | None:
    counts = {name: tensors[name].shape[0] for name, dim in given.items() if dim == 0}
    if not counts:
        counts = {
            name: value.shape[0]
            for name, value in tensors.items()
            if name in _references(tensors) and value.dim() and name not in given
        }
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"'{name}' has {count}" for name, count in counts.items())
        raise RowsInDoubt(
            f"the tensors to be divided differ in dim 0: {listed}; say which of them are divided, as in "
            f"{_literal({name: None for name in list(counts)[1:]})}"
        )
    return next(iter(counts.values()), None)


def _references(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """The tensors whose dim 0 counts the rows: the target's, or what a model that computes its own loss gets as `labels`."""
    targets = [name for name in tensors if name == "target" or name.startswith("target.")]
    return targets or [name for name in tensors if name.rpartition(".")[2] == "labels"]


def _refuse_doubt(
    tensors: Mapping[str, torch.Tensor], given: Mapping[str, int | None], matching: set[str], rows: int | None
) -> None:
    references = _references(tensors)
    inputs = {name: value for name, value in tensors.items() if name not in references}
    shapes = ", ".join(f"'{name}' {list(value.shape)}" for name, value in tensors.items())
    if (
        rows is not None
        and inputs
        and not any(name in matching for name in inputs)
        and not any(name in given for name in inputs)
    ):
        target = [*references, *given][0]
        raise RowsInDoubt(
            f"no input has dim 0 equal to the target's {rows} ({shapes}): give a target with one row per row of the "
            f"input, or say which tensors are divided (0) and which are not (None), as in "
            f"{_literal({next(iter(inputs)): 0, target: None})}"
        )
    square = [
        name
        for name in inputs
        if name in matching and name not in given and inputs[name].dim() > 1 and inputs[name].shape[1] == rows
    ]
    if square and len([name for name in inputs if name in matching]) > 1:
        raise RowsInDoubt(
            f"it can't be told whether dim 0 of {', '.join(repr(n) for n in square)} counts the {rows} rows of the "
            f"batch ({shapes}): write {_literal(dict.fromkeys(square, 0))} if it does, "
            f"{_literal(dict.fromkeys(square))} if not"
        )


def _literal(dims: Mapping[str, int | None]) -> str:
    return "batch_dims={" + ", ".join(f'"{name}": {dim}' for name, dim in dims.items()) + "}"


def settled_dims(
    batch: Any, batch_dims: Mapping[str, int | None] | None, parts: int, reduction: str | None
) -> Mapping[str, int | None] | None:
    """`batch_dims`, or None for every tensor where it is in doubt what is divided and nothing depends on it: there is
    one part only, and the loss does not count rows.

    Raises:
        RowsInDoubt: as `describe`, where something depends on it.
    """
    try:
        describe(Batch.of(batch), batch_dims)
    except RowsInDoubt:
        if parts > 1 or reduction == "mean_rows":
            raise
        tensors = (name for name, value in Batch.of(batch).leaves().items() if isinstance(value, torch.Tensor))
        return dict.fromkeys(tensors)
    return batch_dims


def forward_parameters(forward: Callable) -> tuple[str, ...]:
    """The names of the parameters that `forward` takes by position or by name; none where it does not say."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in parameters if p.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD)


def explain_call(forward: Callable, batch: Batch, error: Exception) -> str | None:
    """Why calling the model with `batch` may have ended in `error`, or None if it isn't the batch's form."""
    try:
        signature = inspect.signature(forward)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*batch.args, **batch.kwargs)
    except TypeError as mismatch:
        return f"the batch does not fit forward{signature}: {mismatch}; a batch is {FORMS}"
    structured = {
        f"args.{index}": type(value).__name__
        for index, value in enumerate(batch.args)
        if isinstance(value, (tuple, list, Mapping))
    }
    if not structured:
        return None
    listed = ", ".join(f"{name} is a {kind}" for name, kind in structured.items())
    return f"forward{signature} failed, and {listed}: a batch is {FORMS} ({type(error).__name__}: {error})"


def arrange(batch: Batch, expected: Sequence[str], parameters: Sequence[str]) -> Batch:
    """`batch` with each argument given the way it was at compile time, by position or by name.

    Args:
        expected: the paths of all leaves at compile time.
        parameters: those of forward (`forward_parameters`).
    """
    count = positional(expected)
    named = {path.split(".")[1] for path in expected if path.startswith("kwargs.")}
    args, kwargs = list(batch.args), dict(batch.kwargs)
    while len(args) < count and len(args) < len(parameters) and parameters[len(args)] in kwargs:
        args.append(kwargs.pop(parameters[len(args)]))
    while len(args) > count and len(args) <= len(parameters) and parameters[len(args) - 1] in named - set(kwargs):
        value = args.pop()
        kwargs[parameters[len(args)]] = value
    return Batch(tuple(args), kwargs, batch.target)


def positional(paths: Sequence[str]) -> int:
    """How many arguments are given by position."""
    return max((int(path.split(".")[1]) + 1 for path in paths if path.startswith("args.")), default=0)


def bind(inputs: Mapping[str, Input], static: Mapping[str, Any], batch: Batch) -> dict[str, torch.Tensor]:
    """The tensors of `batch` by input name, checked against what was captured (any number of rows).

    Raises:
        ImporterError: an input is missing, is unknown, has another shape or dtype, or a value that is no tensor differs
            from the captured one.
    """
    leaves = batch.leaves()
    for name in sorted({*inputs, *static} - set(leaves)):
        if any(path.startswith(f"{name}.") for path in leaves):
            raise ImporterError(f"input '{name}': expected one value, as at compile time, got several")
    for name in sorted(set(leaves) ^ {*inputs, *static}):
        raise ImporterError(
            f"input '{name}' was given, but not at compile time"
            if name in leaves
            else f"expected input '{name}', got none"
        )
    for name, value in static.items():
        if isinstance(leaves[name], torch.Tensor) or not _same(leaves[name], value):
            raise ImporterError(
                f"input '{name}': the program is compiled for {value!r}, got {leaves[name]!r}; compile another one for that value"
                + (
                    ", or for a tensor of 0 dims, which may differ in every step"
                    if isinstance(value, (int, float))
                    else ""
                )
            )
    rows = {}
    for name, described in inputs.items():
        tensor = leaves[name]
        if not isinstance(tensor, torch.Tensor):
            raise ImporterError(f"input '{name}': expected a tensor, got {type(tensor).__name__}")
        expected = list(described.shape)
        if tensor.dtype != described.dtype:
            raise ImporterError(f"input '{name}': expected {described.dtype}, got {tensor.dtype}")
        if tensor.dim() != len(expected) or list(tensor.shape[described.split :]) != expected[described.split :]:
            raise ImporterError(
                f"input '{name}': expected shape {['rows', *expected[1:]] if described.split else expected}, got "
                f"{list(tensor.shape)}"
            )
        if described.split:
            rows[name] = tensor.shape[0]
    if len(set(rows.values())) > 1:
        raise ImporterError(
            "the divided inputs differ in dim 0: " + ", ".join(f"'{name}' has {count}" for name, count in rows.items())
        )
    return {name: leaves[name] for name in inputs}


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and bool(a == b))
