# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Refuses code that changes a tensor in place which is neither the step's own nor a buffer: a step could not keep that from call to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from .capture import is_functorch_wrapped_tensor
from .errors import ImporterError
from .lines import user_line

_IN_PLACE = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__", "__iand__", "__ior__", "__ixor__"}  # fmt: skip
# Change no numbers.
_HARMLESS = {"requires_grad_", "share_memory_", "rename_"}


class NoForeignWrites(TorchFunctionMode):
    """Inside it a write into a tensor with numbers raises ImporterError, before it is made: the step's own tensors have shapes alone."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        written = _written(func, args, kwargs)
        # Inside of vmap and its like tensors of the step have no type of their own.
        if type(written) in (torch.Tensor, nn.Parameter) and not is_functorch_wrapped_tensor(written):
            raise ImporterError(
                f"{user_line() or 'unknown line'}: '{func.__name__}' changes a tensor in place that forward or loss closes over, which a compiled step "
                "can't keep: make it a buffer (register_buffer) of the model, or of a loss that is a module"
            )
        return func(*args, **kwargs)


def _written(func: Callable, args: tuple, kwargs: dict) -> Any:
    name = getattr(func, "__name__", "")
    if kwargs.get("out") is not None:
        return kwargs["out"]
    if kwargs.get("inplace") is True:
        return args[0] if args else kwargs.get("input")
    in_place = name in _IN_PLACE or name.endswith("_") and not name.endswith("__") and name not in _HARMLESS
    return args[0] if in_place and args else None
