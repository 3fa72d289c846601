# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contexts of torch that are in force around `piper.compile` or a step, and change what operations mean."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import torch

_outer: contextvars.ContextVar[tuple[torch.dtype | None] | None] = contextvars.ContextVar(
    "piper_autocast", default=None
)


def autocast_here() -> torch.dtype | None:
    """The type that torch.autocast casts to on the CPU where the user is, or None outside of it."""
    outer = _outer.get()
    if outer is not None:
        return outer[0]
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


@contextlib.contextmanager
def set_aside() -> Iterator[None]:
    """Inside it is no torch.autocast, inference mode or default device, whatever there is outside; `autocast_here` tells still."""
    token = _outer.set((autocast_here(),))
    try:
        with torch.inference_mode(False), torch.device("cpu"), torch.autocast("cpu", enabled=False):
            yield
    finally:
        _outer.reset(token)


def user_autocast() -> contextlib.AbstractContextManager:
    """torch.autocast as it was before `set_aside`: for forward and loss, and not for their backward, which follows the types of the forward."""
    dtype = autocast_here()
    return torch.autocast("cpu", dtype) if dtype is not None else contextlib.nullcontext()


@contextlib.contextmanager
def with_autocast(dtype: torch.dtype | None) -> Iterator[None]:
    """Inside it the user's torch.autocast is this one, though nothing is under it."""
    token = _outer.set((dtype,))
    try:
        yield
    finally:
        _outer.reset(token)
