# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Refuses code that changes a tensor in place which is neither the step's own nor a buffer: a step could not keep that from call to call."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from .capture import is_functorch_wrapped_tensor
from .errors import ImporterError
from .lines import user_line

#: What torch says of a graph in which something is changed in place after all.
NOT_FUNCTIONAL = "entirely functional graph"
_IN_PLACE = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__", "__iand__", "__ior__", "__ixor__"}  # fmt: skip
# Change no numbers.
_HARMLESS = {"requires_grad_", "share_memory_", "rename_"}


def in_place_of_constants(said: str) -> str:
    """What to say where torch says that a graph is not functional: what was written is made of tensors that the code closes over, and of none of the step's."""
    operations = ", ".join(dict.fromkeys(re.findall(r"ops\.aten\.(\w+)", said))) or "an operation"
    return (
        f"forward or loss changes a tensor in place ({operations}) that is made of tensors alone that it closes over: use the form that gives a new tensor "
        "(masked_fill for masked_fill_, torch.where for an assignment), or register those tensors as buffers"
    )


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
