# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's own operations in other arithmetic: all of them in float64, or each rounded at random as its type rounds.

The first gives numbers without rounding of a model whose code asks for float32; the second shows what rounding can do to a result, by doing it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .importer.capture import TorchDispatchMode, tree_leaves, tree_map

WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
#: Bits behind the point.
_MANTISSA = {torch.float32: 23, torch.bfloat16: 7, torch.float16: 10}
#: Operations that add up many numbers, whose rounding inside does not show in their results alone. Sums are of float32, also those of half precision.
_SUMS = frozenset(
    """mm bmm addmm baddbmm mv addmv dot convolution convolution_backward sum mean cumsum var var_mean std norm linalg_vector_norm logsumexp _softmax
    _softmax_backward_data _log_softmax _log_softmax_backward_data native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward
    native_batch_norm native_batch_norm_backward _native_batch_norm_legit embedding_dense_backward index_add index_put scatter_add nll_loss_forward
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward avg_pool2d _adaptive_avg_pool2d _cdist_forward""".split()
)


def widened(value: Any) -> Any:
    """A tensor in float64 (complex128), or a type for a type; what is as wide already, an integer, or anything else stays."""
    if isinstance(value, torch.Tensor):
        return value.to(WIDE[value.dtype]) if value.dtype in WIDE else value
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


class InFloat64(TorchDispatchMode):
    """Every operation computes in float64, also where the code says `.float()`, makes a tensor of the default type, or casts to half precision."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _aliases(func):
            return func(*args, **kwargs)
        return tree_map(widened, func(*tree_map(widened, args), **tree_map(widened, kwargs)))


class RoundedAtRandom(TorchDispatchMode):
    """Every operation keeps its type, and rounds up or down by chance instead of to the nearest: numbers that the type has stay what they are."""

    def __init__(self, seed: int):
        super().__init__()
        self._random = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if _aliases(func) or not any(_is_rounded(value) for value in tree_leaves(result)):
            return result
        prepared = self._disturbed if _name(func) in _SUMS else widened
        try:
            exact = func(*tree_map(prepared, args), **tree_map(prepared, kwargs))
        except (RuntimeError, NotImplementedError):
            # It has no float64: its own rounding has to do.
            return result
        values: Iterator[Any] = iter(tree_leaves(exact))
        return tree_map(lambda own: self._round(own, next(values)), result)

    def _disturbed(self, value: Any) -> Any:
        wide = widened(value)
        if wide is value or not isinstance(wide, torch.Tensor) or not wide.is_floating_point():
            return wide
        if bool((wide == wide.round()).all()):
            # Sums of whole numbers, as of those that count, are exact.
            return wide
        noise = torch.rand(wide.shape, dtype=torch.float64, generator=self._random) * 2 - 1
        return wide * (1 + noise * 2.0**-24)

    def _round(self, own: Any, exact: Any) -> Any:
        if not _is_rounded(own) or exact.shape != own.shape:
            return own
        spacing = torch.ldexp(torch.ones_like(exact), torch.frexp(exact).exponent - 1 - _MANTISSA[own.dtype])
        noise = torch.rand(exact.shape, dtype=torch.float64, generator=self._random) - 0.5
        nearest = exact.to(own.dtype)
        return torch.where(nearest.double() == exact, nearest, (exact + noise * spacing).to(own.dtype))


class Watch(TorchDispatchMode):
    """Notes whether something is computed in half precision."""

    def __init__(self):
        super().__init__()
        self.half = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.half = self.half or any(
            isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
            for value in tree_leaves(result)
        )
        return result


def _aliases(func: Any) -> bool:
    """Whether its result is memory of an operand, whose type can't be another then."""
    return func.is_view or func._schema.is_mutable


def _is_rounded(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _MANTISSA and value.numel() > 0


def _name(func: Any) -> str:
    return func.name().partition("::")[2].partition(".")[0]
