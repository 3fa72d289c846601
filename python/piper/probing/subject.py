# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The user's model and loss, called in plain PyTorch without leaving a trace of it."""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from ..importer.inputs import Batch

_TABLES = ("_parameters", "_buffers")


class Subject:
    """A model and its loss to call on rows, each time from the same state.

    Attributes:
        model, loss_fn: copies of the user's where they can be copied.
        dtype: what floating inputs are converted to; None leaves them.
        parameters: the trainable ones of the model, and then of the loss.
    """

    def __init__(self, model: nn.Module, loss_fn: Callable, dtype: torch.dtype | None):
        self.model, self.loss_fn, self.dtype = model, loss_fn, dtype
        own = [loss_fn] if isinstance(loss_fn, nn.Module) else []
        parameters = [parameter for module in (model, *own) for parameter in module.parameters()]
        self.parameters = list({id(p): p for p in parameters if p.requires_grad}.values())
        self._state = Snapshot([model, *own], reached(loss_fn))

    def output(self, batch: Batch) -> Any:
        """What the model gives for a batch, with its graph."""
        self._state.restore(renew=True)
        return self.model(*batch.args, **batch.kwargs)

    @contextlib.contextmanager
    def fresh(self) -> Iterator[Callable]:
        """The loss, from the same state as every time."""
        self._state.restore(renew=True)
        yield self.loss_fn

    def convert(self, value: Any) -> Any:
        """A tensor of its own, floating ones of the subject's dtype."""
        if not isinstance(value, torch.Tensor):
            return value
        floating = value.is_floating_point() and self.dtype is not None
        return value.detach().to(self.dtype if floating else value.dtype, copy=True)


class Snapshot:
    """Attributes, buffers and tensors as they were, to go back to. `parameters`: their values, too, which code may write without autograd's knowing."""

    def __init__(self, modules: list[nn.Module], others: list[Any] = (), parameters: bool = False):
        roots = [*modules, *(other for other in others if isinstance(other, nn.Module))]
        parts = list(dict.fromkeys(part for module in roots for part in module.modules()))
        self._attributes = [(part, _attributes(part)) for part in parts]
        self._containers = [
            (value, copy.copy(value))
            for _, kept in self._attributes
            for value in kept.values()
            if type(value) in (list, dict, set)
        ]
        tensors = [tensor for part in parts for tensor in part._buffers.values() if tensor is not None]
        tensors += [other for other in others if isinstance(other, torch.Tensor)]
        if parameters:
            tensors += [parameter for part in parts for parameter in part.parameters(recurse=False)]
        self._tensors = [(t, t.detach().clone(), t._version) for t in dict.fromkeys(tensors)]

    def restore(self, renew: bool = False) -> None:
        """Everything as it was; costs little where nothing has changed.

        renew: buffers that have changed are replaced, since a backward that is still to come may read the changed ones.
        """
        for part, kept in self._attributes:
            own = vars(part)
            for name in [name for name in own if name not in kept]:
                del own[name]
            for name, value in kept.items():
                if name in _TABLES:
                    own[name].clear()
                    own[name].update(value)
                else:
                    own[name] = value
        for value, kept in self._containers:
            if isinstance(value, list):
                value[:] = kept
            else:
                value.clear()
                value.update(kept)
        changed = [(t, kept) for t, kept, version in self._tensors if t._version != version or not torch.equal(t, kept)]
        new = self._renew(dict(changed)) if renew and changed else ()
        with torch.no_grad():
            for tensor, kept in changed:
                if tensor not in new:
                    tensor.data.copy_(kept)

    def _renew(self, changed: dict[torch.Tensor, torch.Tensor]) -> set[torch.Tensor]:
        """Puts copies of what they were in the place of buffers; gives those that have been replaced."""
        copies: dict[torch.Tensor, torch.Tensor] = {}
        for part, _ in self._attributes:
            for name, buffer in part._buffers.items():
                if buffer is not None and buffer in changed:
                    copies.setdefault(buffer, changed[buffer].clone())
                    part._buffers[name] = copies[buffer]
        return set(copies)


def _attributes(part: nn.Module) -> dict[str, Any]:
    return {name: dict(value) if name in _TABLES else value for name, value in vars(part).items()}


def reached(function: Any, depth: int = 3) -> list[Any]:
    """Modules and tensors that a loss uses without being given them: of its closure, the globals it names, the object it is a method of."""
    if isinstance(function, (nn.Module, torch.Tensor)):
        return [function]
    if depth == 0:
        return []
    if isinstance(function, functools.partial):
        inside = [function.func, *function.args, *function.keywords.values()]
    elif hasattr(function, "__func__"):
        inside = [function.__self__, function.__func__]
    elif hasattr(function, "__code__"):
        inside = [value for cell in function.__closure__ or () for value in _contents(cell)]
        inside += [function.__globals__.get(name) for name in function.__code__.co_names]
        inside += list(function.__defaults__ or ())
    elif isinstance(function, (list, tuple)):
        inside = list(function)
    elif isinstance(function, dict):
        inside = list(function.values())
    elif hasattr(function, "__dict__") and type(function).__module__ not in ("builtins", "types"):
        inside = list(vars(function).values()) if not isinstance(function, type) else []
    else:
        inside = []
    return [found for value in inside for found in reached(value, depth - 1)]


def _is_of_modules(loss_fn: Any) -> bool:
    """Whether a copy of it holds modules and little else: a method of a trainer would take its data along."""
    if isinstance(loss_fn, functools.partial):
        return _is_of_modules(loss_fn.func)
    return isinstance(getattr(loss_fn, "__self__", loss_fn), nn.Module)


def _contents(cell: Any) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


@contextlib.contextmanager
def subject(model: nn.Module, loss_fn: Callable, dtype: torch.dtype | None, stir: bool) -> Iterator[Subject]:
    """A copy of both in `dtype`; where they can't be copied, themselves in their own types, put back as they were in the end.

    stir: parameters that are zero (the second half of an adapter) become small random numbers, since they would hide what is multiplied by them. Never
        those of the user's own model.
    """
    try:
        copied, loss_copy = (
            copy.deepcopy((model, loss_fn)) if _is_of_modules(loss_fn) else (copy.deepcopy(model), loss_fn)
        )
    except Exception:  # noqa: BLE001  (a model holds anything)
        kept = Snapshot([model, *([loss_fn] if isinstance(loss_fn, nn.Module) else [])], reached(loss_fn), True)
        try:
            with undisturbed(None):
                yield Subject(model, loss_fn, None)
        finally:
            kept.restore()
        return
    # What the loss only refers to is no copy.
    kept = Snapshot([], reached(loss_fn))
    try:
        for module in (copied, loss_copy):
            if isinstance(module, nn.Module):
                _prepare(module, dtype, stir)
        with undisturbed(dtype):
            yield Subject(copied, loss_copy, dtype)
    finally:
        kept.restore()


def _prepare(module: nn.Module, dtype: torch.dtype | None, stir: bool) -> None:
    if dtype is not None:
        module.to(dtype)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters() if stir else ():
            if parameter.is_floating_point() and not parameter.any():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)


@contextlib.contextmanager
def undisturbed(dtype: torch.dtype | None) -> Iterator[None]:
    """Random state, warnings and the default dtype (`dtype` inside) are afterwards what they were."""
    states = random.getstate(), sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None
    default = torch.get_default_dtype()
    with (
        torch.random.fork_rng(devices=[]),
        warnings.catch_warnings(),
        torch.enable_grad(),
        torch.compiler.set_stance("force_eager"),
    ):
        warnings.simplefilter("ignore")
        if dtype is not None:
            torch.set_default_dtype(dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(default)
            random.setstate(states[0])
            if states[1] is not None:
                sys.modules["numpy"].random.set_state(states[1])
