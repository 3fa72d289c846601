# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that become calls of Piper's kernel library, because neither linalg nor torch-mlir has a good form of
them.

Each is a torch custom operation with a plain CPU body, so graphs that hold them run anywhere, and a signature: the
shape parameters of the library's function of the same name. (attention.py has two more.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from . import attention  # noqa: F401  (registers its operations)


def _operation(name: str):
    return torch.library.custom_op(f"piper::{name}", mutates_args=())


@_operation("embedding_backward")
def embedding_backward(grad: Tensor, index: Tensor, classes: int, padding: int) -> Tensor:
    """grad [N, D], index [N] → [classes, D]: the rows of grad summed by index; rows with index `padding` (none if "
    "negative) are left out."""
    grad = grad.masked_fill((index == padding)[:, None], 0) if padding >= 0 else grad
    return grad.new_zeros(classes, grad.shape[1]).index_add_(0, index, grad)


@embedding_backward.register_fake
def _(grad, index, classes, padding):
    return grad.new_empty(classes, grad.shape[1])


@_operation("index_put_accumulate")
def index_put_accumulate(base: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """base [V, D], index [N], values [N, D] → base with the values added to the rows named by index; negative "
    "indices count from the end."""
    return base.index_put((index,), values, accumulate=True)


@_operation("scatter_add")
def scatter_add(base: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """base [outer, V, inner], index and values [outer, N, inner] → base with the values added along the middle "
    "dimension."""
    return torch.scatter_add(base, 1, index, values)


@_operation("cumsum")
def cumsum(x: Tensor) -> Tensor:
    """x [outer, N, inner] → running sums along the middle dimension."""
    return torch.cumsum(x, 1)


for _op in (index_put_accumulate, scatter_add, cumsum):
    _op.register_fake(lambda base, *_rest: torch.empty(base.shape, dtype=base.dtype, device=base.device))


@_operation("topk")
def topk(x: Tensor, k: int, largest: bool, ordered: bool) -> tuple[Tensor, Tensor]:
    """x [outer, N] → the k largest or smallest of each row and their positions; of equal values the one at the "
    "lower position comes first."""
    values, positions = torch.sort(x, dim=1, descending=largest, stable=True)
    return values[:, :k].clone(), positions[:, :k].clone()


@topk.register_fake
def _(x, k, largest, ordered):
    return x.new_empty(x.shape[0], k), x.new_empty(x.shape[0], k, dtype=torch.int64)


@_operation("sort")
def sort(x: Tensor, descending: bool) -> tuple[Tensor, Tensor]:
    """x [outer, N] → each row in order and the positions that its values had; stable."""
    return torch.sort(x, dim=1, descending=descending, stable=True)


@sort.register_fake
def _(x, descending):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device), torch.empty(
        x.shape, dtype=torch.int64, device=x.device
    )


@dataclass(frozen=True)
class LibraryCall:
    """A call of the kernel library: its function, shape parameters and, for attention, the scale of the scores."""

    symbol: str
    params: tuple[int, ...]
    scale: float | None = None


def _attention(q, k, causal, scale) -> tuple[tuple[int, ...], float]:
    return (q[0], q[1], k[1], q[2], k[2], q[3], int(causal)), scale


#: From the shapes of a call's tensors, in order, and its other arguments to the parameters of the library's function.
_SIGNATURES: dict[str, Callable[[list, list], tuple]] = {
    "attention_forward": lambda shapes, rest: _attention(shapes[0], shapes[1], *rest),
    "attention_backward": lambda shapes, rest: _attention(shapes[1], shapes[2], *rest),
    "embedding_backward": lambda shapes, rest: ((shapes[1][0], shapes[0][1], rest[0], max(rest[1], -1)), None),
    "index_put_accumulate": lambda shapes, rest: ((shapes[1][0], shapes[0][1], shapes[0][0]), None),
    "scatter_add": lambda shapes, rest: ((shapes[0][0], shapes[1][1], shapes[0][2], shapes[0][1]), None),
    "cumsum": lambda shapes, rest: (tuple(shapes[0]), None),
    "topk": lambda shapes, rest: ((*shapes[0], rest[0], int(rest[1]), int(rest[2])), None),
    "sort": lambda shapes, rest: ((*shapes[0], int(rest[0])), None),
}


def library_call(node: fx.Node) -> LibraryCall | None:
    """The library call that an operation of namespace `piper` stands for, or None."""
    if node.op != "call_function" or getattr(node.target, "namespace", "") != "piper":
        return None
    symbol = node.target._schema.name.removeprefix("piper::")
    shapes = [tuple(argument.meta["val"].shape) for argument in node.args if isinstance(argument, fx.Node)]
    params, scale = _SIGNATURES[symbol](
        shapes, [argument for argument in node.args if not isinstance(argument, fx.Node)]
    )
    return LibraryCall(symbol, params, scale)
