# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The element types that a program can have, and what to do with a tensor of another one."""

from __future__ import annotations

import torch

from .errors import ImporterError

SUPPORTED = frozenset(
    {
        torch.float32,
        torch.float64,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    }
)
_WIDER = {torch.uint16: "torch.int32", torch.uint32: "torch.int64", torch.uint64: "torch.int64"}


def refuse_unsupported(what: str, dtype: torch.dtype) -> None:
    """Raises ImporterError, which says how to hand `what` over, unless a program can have such elements."""
    if dtype in SUPPORTED:
        return
    if dtype.is_complex:
        advice = "hand its real and imaginary parts over, as torch.view_as_real gives them"
    else:
        advice = f"cast it with .to({_WIDER.get(dtype, 'torch.float32')})"
    raise ImporterError(f"{what} is of {dtype}, which is not supported: {advice}")
