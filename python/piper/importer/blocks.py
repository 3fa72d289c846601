# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the repeated blocks of a model: the layers that a compiler should translate once and a sharded run should
gather one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

_CONTAINERS = (nn.ModuleList, nn.ModuleDict)


def block_elements(model: nn.Module) -> list[nn.Module]:
    """The elements of the top-most block containers of `model`, in registration order, each once.

    A container is a ModuleList or ModuleDict, or a Sequential whose elements are modules with parts of their own (a
    Sequential of plain layers is one layer, not a stack of blocks), with at least two elements that have parameters.
    """
    found: dict[nn.Module, None] = {}
    for container in _top_most(model):
        for element in container.children():
            if _has_parameters(element):
                found.setdefault(element)
    return list(found)


def _top_most(module: nn.Module) -> Iterator[nn.Module]:
    if _is_block_container(module):
        yield module
        return
    for child in module.children():
        yield from _top_most(child)


def _is_block_container(module: nn.Module) -> bool:
    elements = [child for child in module.children() if _has_parameters(child)]
    if len(elements) < 2:
        return False
    if isinstance(module, _CONTAINERS):
        return True
    return isinstance(module, nn.Sequential) and all(any(True for _ in child.children()) for child in elements)


def _has_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


def callable_parts(module: nn.Module) -> Iterator[nn.Module]:
    """`module` itself, or, where it is a container that nobody calls, the modules in it that are called."""
    if isinstance(module, _CONTAINERS):
        for child in module.children():
            yield from callable_parts(child)
    else:
        yield module
