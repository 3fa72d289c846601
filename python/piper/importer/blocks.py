# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds the repeated blocks of a model: the layers that a compiler should translate once and a sharded run should
gather one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

#: Modules of which it takes no time to read what is asked for: each stage that does reads them for itself.
TABLES = (nn.Embedding, nn.EmbeddingBag)
_CONTAINERS = (nn.ModuleList, nn.ModuleDict)

#: A Sequential of plain layers is worth a chunk for each of them if it has so many with matrices, or if these have so many elements on average: else the
#: layers cost less than what surrounds a chunk, and it stays one.
_MANY = 8
_LARGE = 1 << 20


def blocks(model: nn.Module) -> list[list[nn.Module]]:
    """The blocks of `model` in registration order, each as the modules that run one after the other in it: usually one.

    They are the elements of the top-most containers with at least two elements that have parameters. A container is a ModuleList, a ModuleDict, or a
    Sequential with modules that have parts of their own, or with many or large plain layers (a small Sequential of plain layers is one layer). Containers
    in containers are taken apart, too. In a Sequential a layer that has vectors alone, such as a norm, belongs to the block before it.
    """
    found: dict[nn.Module, None] = {}
    result: list[list[nn.Module]] = []
    for container in _top_most(model):
        for block in _blocks_of(container):
            new = [element for element in block if element not in found]
            found.update(dict.fromkeys(new))
            result += [new] if new else []
    return result


def block_elements(model: nn.Module) -> list[nn.Module]:
    """The modules of all blocks, in registration order, each once."""
    return [element for block in blocks(model) for element in block]


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
    return isinstance(module, nn.Sequential) and (_holds_blocks(elements) or _is_long(elements))


def _holds_blocks(elements: Sequence[nn.Module]) -> bool:
    return sum(any(True for _ in element.children()) for element in elements) >= 2


def _is_long(elements: Sequence[nn.Module]) -> bool:
    sizes = [sum(p.numel() for p in element.parameters()) for element in elements if not _has_vectors_alone(element)]
    return len(sizes) >= _MANY or (len(sizes) >= 2 and sum(sizes) >= len(sizes) * _LARGE)


def _blocks_of(container: nn.Module) -> Iterator[list[nn.Module]]:
    block: list[nn.Module] = []
    for element in container.children():
        if not _has_parameters(element):
            continue
        if block and isinstance(container, nn.Sequential) and _has_vectors_alone(element):
            block.append(element)
            continue
        if block:
            yield block
        block = []
        if _is_nested(element):
            yield from _blocks_of(element)
        else:
            block = [element]
    if block:
        yield block


def _is_nested(element: nn.Module) -> bool:
    """Whether it is a container in a container. A Sequential of plain layers is a layer there, whatever its size."""
    if isinstance(element, nn.Sequential):
        return _holds_blocks([child for child in element.children() if _has_parameters(child)])
    return isinstance(element, _CONTAINERS)


def _has_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


def _has_vectors_alone(module: nn.Module) -> bool:
    return all(parameter.dim() < 2 for parameter in module.parameters())


def callable_parts(module: nn.Module) -> Iterator[nn.Module]:
    """`module` itself, or, where it is a container that nobody calls, the modules in it that are called."""
    if isinstance(module, _CONTAINERS):
        for child in module.children():
            yield from callable_parts(child)
    else:
        yield module
