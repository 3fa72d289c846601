# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A user's modules, with other numbers in them for a while."""

from __future__ import annotations

import collections
import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

_CONTAINERS = (dict, list, set, collections.deque)


@contextlib.contextmanager
def borrowed(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Afterwards everything is as it was: values and gradients of parameters, buffers, attributes, and torch's random state.

    A copy would not do: what a loss or a hook refers to is the module itself, and not every module can be copied.
    """
    tensors = {id(tensor): tensor for module in modules for tensor in (*module.parameters(), *module.buffers())}
    kept = [(tensor, tensor.data, tensor.grad if tensor.is_leaf else None) for tensor in tensors.values()]
    attributes = [(part, _contents(vars(part))) for part in _parts(modules)]
    for tensor, data, gradient in kept:
        if gradient is not None:
            tensor.grad = None
        tensor.data = data.clone()
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), _uncompiled():
            yield
    finally:
        for part, (values, containers) in attributes:
            _refill(vars(part), values)
            for container, items in containers:
                _refill(container, items)
        for tensor, data, gradient in kept:
            if tensor.is_leaf:
                tensor.grad = None
            tensor.data = data
            if gradient is not None:
                tensor.grad = gradient


def _parts(modules: Sequence[nn.Module]) -> Sequence[nn.Module]:
    return list({id(part): part for module in modules for part in module.modules()}.values())


def _contents(attributes: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Any, Any]]]:
    """The attributes, and those that can change inside, each with what it holds."""
    return dict(attributes), [(value, value.copy()) for value in attributes.values() if isinstance(value, _CONTAINERS)]


def _refill(container: Any, items: Any) -> None:
    container.clear()
    container.extend(items) if isinstance(container, (list, collections.deque)) else container.update(items)


def _uncompiled() -> contextlib.AbstractContextManager:
    """torch.compile'd parts run as they are written: they would be compiled once more for every other arithmetic."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else contextlib.nullcontext()
