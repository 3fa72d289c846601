# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the units of a model cost: counted under an example batch, or guessed from the shapes of parameters."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .capture import ProductCounter, fake_call, tree_leaves
from .errors import ImporterError
from .inputs import Batch
from .places import Places
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

    A cost is the operations of products (matrices, convolutions) in forward and backward, and FLOP_PER_BYTE for each byte that moves: of parameters (and
    their gradients), of what is kept for the backward, and of results, each twice. What runs outside of all units counts for the one called before it, as it
    runs there. The forward runs once, with shapes alone.

    Raises:
        ImporterError: the forward fails on the shapes of the batch, or depends on its data.
    """
    batch = _called_with(batch)
    count = _Count(units)
    try:
        with Places({"model": model}).kept(), sdpa_kernel(SDPBackend.MATH), torch.enable_grad(), count:
            fake_call(model, batch.args, batch.kwargs, ProductCounter(count.add_operations))
    except ImporterError:
        raise
    except Exception as error:
        where = f" in '{count.calls[-1]}'" if count.calls else ""
        raise ImporterError(
            f"the forward of the model can't be counted with the shapes of the batch: {type(error).__name__}{where}: {error}; "
            "without batch, annotate_modules guesses costs from the shapes of parameters"
        ) from error
    return count.costs, count.calls


def _called_with(batch: Any) -> Batch:
    """A batch without a target is one of a model that computes its own loss, and holds its arguments."""
    return Batch.without_target(batch) if isinstance(batch, Mapping) and "target" not in batch else Batch.of(batch)


class _Count:
    """Adds up what the units of a model cost while it is called within the context."""

    def __init__(self, units: Mapping[str, nn.Module]):
        self.costs = {name: FLOP_PER_BYTE * 2 * sum(map(_bytes, unit.parameters())) for name, unit in units.items()}
        self.calls: list[str] = []
        self._owner = called_parts(units)
        self._entered: list[str] = []
        self._before_all = 0.0
        # By identity: a tensor that one unit hands on unchanged, or puts into a cache that every unit returns, is made once.
        self._results: dict[int, torch.Tensor] = {}

    def __enter__(self) -> None:
        self._stack = contextlib.ExitStack()
        for module in self._owner:
            self._stack.callback(module.register_forward_pre_hook(self._enter).remove)
            self._stack.callback(module.register_forward_hook(self._leave, always_call=True).remove)
        self._stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor))

    def __exit__(self, *_error: object) -> None:
        self._stack.close()
        if self.calls:
            self.costs[self.calls[0]] += self._before_all

    def add_operations(self, operations: float) -> None:
        current = self._entered[-1] if self._entered else self.calls[-1] if self.calls else None
        if current is None:
            self._before_all += operations
        else:
            self.costs[current] += operations

    def _enter(self, module: nn.Module, _args: tuple) -> None:
        self.calls.append(self._owner[module])
        self._entered.append(self._owner[module])

    def _leave(self, _module: nn.Module, _args: tuple, output: Any) -> None:
        for value in tree_leaves(output):
            if isinstance(value, torch.Tensor) and id(value) not in self._results:
                self._results[id(value)] = value
                self.add_operations(FLOP_PER_BYTE * 2 * _bytes(value))
        self._entered.pop()

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        self.add_operations(FLOP_PER_BYTE * 2 * _bytes(tensor))
        return tensor


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
