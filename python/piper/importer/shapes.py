# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reshapes that decompositions share."""

from __future__ import annotations

import math

from torch import Tensor


def three(x: Tensor, dim: int) -> Tensor:
    """x as [outer, extent of dim, inner]."""
    return x.reshape(math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :]))


def rows(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """x with `dim` moved to the end, and that as a matrix."""
    moved = x.movedim(dim, -1)
    return moved, moved.reshape(-1, moved.shape[-1])
