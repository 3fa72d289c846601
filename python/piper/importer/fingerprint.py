# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Short forms of graphs and tensors that are equal where these are."""

from __future__ import annotations

import hashlib

import torch
from torch import fx

from .capture import Joint

_MOST_ELEMENTS = 1 << 20


def of_joint(joint: Joint) -> str:
    """The operations of a captured step, with its numbers and the values of its constants."""
    digest = hashlib.sha256()
    index: dict[fx.Node, int] = {}
    for node in joint.module.graph.nodes:
        index[node] = len(index)
        # Slices hold nodes, too: text of all arguments, with nodes as their numbers.
        args = fx.map_arg((node.args, node.kwargs), lambda operand: _Number(index[operand]))
        digest.update(f"{node.op} {node.target} {args}\n".encode())
        if node.op == "get_attr":
            value = getattr(joint.module, node.target)
            digest.update(of_tensor(value) if isinstance(value, torch.Tensor) else repr(value).encode())
    return digest.hexdigest()


def of_tensor(tensor: torch.Tensor, most: int = _MOST_ELEMENTS) -> bytes:
    """Type, shape and values of a tensor. Of one that is larger than `most`, elements at even distances stand for all."""
    tensor = tensor.detach()
    digest = hashlib.sha256(f"{tensor.dtype}{list(tensor.shape)}".encode())
    if tensor.layout == torch.strided and tensor.device.type == "cpu" and tensor.numel():
        flat = tensor.resolve_conj().resolve_neg().reshape(-1)
        flat = flat[:: -(-flat.numel() // most)].contiguous()
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.digest()


class _Number(int):
    """An operand in the text of arguments, which is no number of them."""

    def __repr__(self) -> str:
        return f"%{int(self)}"
