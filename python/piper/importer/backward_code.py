# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User code that autograd runs: hooks on tensors, and the backwards of the user's own functions.

What a hook computes is told apart from what autograd itself adds up by who calls it: torch asks a TorchFunctionMode about the calls of Python code alone.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from .errors import ImporterError

_REGISTER = torch.Tensor.register_hook
_REGISTER_LATE = torch.Tensor.register_post_accumulate_grad_hook
_PRINTS = {torch.Tensor.__repr__, torch.Tensor.__format__, torch.Tensor.tolist, torch.Tensor.numpy}
#: What works instead of a hook on a parameter, which each rank would have to call on its part of a gradient.
PARAMETER_ADVICE = (
    "put it in forward on a copy of the parameter that is used in its place (w = weight.clone(); if w.requires_grad: "
    "w.register_hook(hook))"
)


@dataclass(frozen=True)
class Caller:
    """Who made an operation while autograd ran: the line, and for a hook the sequence of the value that it is on."""

    line: str
    sequence: int | None


class BackwardCode(TorchFunctionMode):
    """Stamps operations that user code makes while autograd runs.

    Args:
        line: the line of user code that autograd has called and that led here, "" where it has called other Python code; None where it has called none.
        stamp: a context manager in which the tracer stamps operations with a `Caller`.
    """

    def __init__(
        self, line: Callable[[], str | None], stamp: Callable[[Caller], contextlib.AbstractContextManager[None]]
    ):
        super().__init__()
        self._line, self._stamp = line, stamp
        self._hook: Caller | None = None
        self._seen: list[tuple[weakref.ref, str]] = []
        #: Set once the forward is done.
        self.running = False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        found = self._line() if self.running else None
        if found is None:
            return func(*args, **kwargs)
        hook = self._hook or Caller("", None)
        line = found or hook.line
        if func in _PRINTS:
            raise ImporterError(
                f"{line}: a hook prints a gradient, whose numbers a trace has not: read program.gradients()"
            )
        if not line:
            return func(*args, **kwargs)
        with self._stamp(Caller(line, hook.sequence)):
            result = func(*args, **kwargs)
        if self._hook is not None:
            self._note(result, line)
        return result

    def register(self, tensor: torch.Tensor, hook: Callable, line: str, sequence: int) -> RemovableHandle:
        """Puts the hook on the tensor; `sequence` is that of the operation which made the tensor."""

        def called(gradient: torch.Tensor) -> Any:
            outer, self._hook = self._hook, Caller(line, sequence)
            try:
                self._note(gradient, line)
                result = hook(gradient)
                # As an operation of the hook's, also where it is a value that was there before.
                return result.view_as(result) if isinstance(result, torch.Tensor) else result
            finally:
                self._hook = outer

        return _REGISTER(tensor, called)

    @contextlib.contextmanager
    def watching(self, children: Mapping[str, nn.Module]) -> Iterator[None]:
        """Notes what backward hooks on modules are given."""
        parts = [part for child in children.values() for part in child.modules()]
        tables = [table for part in parts for table in (part._backward_hooks, part._backward_pre_hooks) if table]
        before = [dict(table) for table in tables]
        for table in tables:
            for key, hook in table.items():
                table[key] = self._noting(hook)
        try:
            yield
        finally:
            for table, hooks in zip(tables, before, strict=True):
                table.update((key, hook) for key, hook in hooks.items() if key in table)

    def _noting(self, hook: Callable) -> Callable:
        code = getattr(hook, "__code__", None)
        line = f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "unknown line"

        def called(module: nn.Module, *gradients: Any) -> Any:
            for value in (value for of_side in gradients for value in of_side):
                self._note(value, line)
            return hook(module, *gradients)

        return called

    def _note(self, value: object, line: str) -> None:
        if isinstance(value, torch.Tensor):
            self._seen.append((weakref.ref(value), line))

    def refuse_kept(self) -> None:
        """Raises ImporterError where a hook has kept what it was given, or what it made of it: a step would not fill that again."""
        if not self._seen:
            return
        gc.collect()
        lines = dict.fromkeys(line for value, line in self._seen if value() is not None)
        if lines:
            raise ImporterError(
                "; ".join(lines)
                + ": a hook keeps a gradient, which a compiled step can't hand out: return what is to be changed, or "
                "read program.gradients()"
            )


def refuse_parameter_hook(line: str, names: Sequence[str]) -> None:
    """Raises ImporterError where forward puts a hook on one of its parameters; "" is one without a name."""
    if names:
        what = f"parameter '{names[0]}'" if names[0] else "a parameter"
        raise ImporterError(
            f"{line}: {what} gets a hook on its gradient, which a compiled step does not call: {PARAMETER_ADVICE}"
        )


def registers(func: Callable) -> bool:
    """Whether the call that a mode is asked about puts a hook on a tensor's gradient."""
    return func is _REGISTER or func is _REGISTER_LATE


def ignored() -> RemovableHandle:
    """The handle of a hook that is never called, as nothing has a gradient."""
    return RemovableHandle(OrderedDict())


class HooksIgnored(TorchFunctionMode):
    """A forward without gradients, in which hooks on tensors have nothing to do."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return ignored() if registers(func) else func(*args, **(kwargs or {}))


@contextlib.contextmanager
def checkpoints_inlined() -> Iterator[None]:
    """Runs what torch.utils.checkpoint's reentrant form wraps as it stands, with the gradients that this form gives.

    Its backward starts autograd anew, which a trace of gradients can't follow. What is kept and what is made again is Piper's own choice anyway.
    """
    from torch.utils import checkpoint

    function = checkpoint.CheckpointFunction
    before = function.__dict__.get("apply")
    function.apply = staticmethod(_run_checkpointed)
    try:
        yield
    finally:
        if before is None:
            del function.apply
        else:
            function.apply = before


def _run_checkpointed(run: Callable, _preserve_rng_state: bool, *args: Any) -> Any:
    from torch.utils.checkpoint import check_backward_validity

    check_backward_validity(args)
    # Where no argument needs a gradient the function gives none, whatever it reads beside them.
    needed = torch.is_grad_enabled() and any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
    with torch.set_grad_enabled(needed):
        return run(*args)
