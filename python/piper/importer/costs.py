# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the units of a model cost: counted under an example batch, or guessed from the shapes of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from .capture import fake_call, tree_leaves, tree_map
from .inputs import Batch
from .units import called_parts

#: Operations in the time that one byte takes from or to memory: a core's 100 GFLOP/s over 10 GB/s.
FLOP_PER_BYTE = 10.0


def from_shapes(units: Mapping[str, nn.Module]) -> dict[str, float]:
    """Six operations per element of a parameter (two forward, four backward), as if each row met each weight once; an embedding's table is only read."""
    return {name: float(sum(map(_size_of_own, unit.modules()))) for name, unit in units.items()}


def _size_of_own(module: nn.Module) -> int:
    parameters = list(module.parameters(recurse=False))
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return sum(parameter.shape[-1] for parameter in parameters)
    return 6 * sum(parameter.numel() for parameter in parameters)


def counted(model: nn.Module, units: Mapping[str, nn.Module], batch: Any) -> tuple[dict[str, float], list[str]]:
    """Costs by unit, in operations, and the names of units as the forward calls them.

    A cost is the operations of forward and backward that torch's flop counter knows, and FLOP_PER_BYTE for each byte that moves: of parameters (and their
    gradients), of what is kept for the backward, and of results, each twice. Only shapes are computed with.
    """
    batch = Batch.of(batch)
    owner = called_parts(units)
    costs, calls = dict.fromkeys(units, 0.0), []
    for name, unit in units.items():
        costs[name] += FLOP_PER_BYTE * 2 * sum(map(_bytes, unit.parameters()))

    def before(module: nn.Module, args: tuple, kwargs: dict) -> None:
        calls.append(owner[module])
        costs[owner[module]] += _cost_of_call(module, args, kwargs)

    handles = [module.register_forward_pre_hook(before, with_kwargs=True) for module in owner]
    try:
        with sdpa_kernel(SDPBackend.MATH):
            fake_call(model, batch.args, batch.kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return costs, calls


def _cost_of_call(module: nn.Module, args: tuple, kwargs: dict) -> float:
    kept = 0

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += _bytes(tensor)
        return tensor

    def leaf(value: Any) -> Any:
        return value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value

    args, kwargs = tree_map(leaf, args), tree_map(leaf, kwargs)
    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        results = [value for value in tree_leaves(module.forward(*args, **kwargs)) if isinstance(value, torch.Tensor)]
        trained = [value for value in results if value.requires_grad]
        if trained:
            torch.autograd.backward(trained, [torch.ones_like(value) for value in trained])
    return counter.get_total_flops() + FLOP_PER_BYTE * 2 * (kept + sum(map(_bytes, results)))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
