# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts of a model between which a pipeline may be cut: its layers, embeddings and heads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from .blocks import TABLES, block_elements, callable_parts

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


@dataclass(frozen=True)
class Group:
    """Neighbouring units that no cut may part: usually one."""

    names: tuple[str, ...]
    # The unit that runs again after others of the group, if that is why they are together.
    repeated: str | None = None


def units(model: nn.Module, opened: Collection[nn.Module] = ()) -> dict[str, nn.Module]:
    """Elements of lists and sequences, and other modules with parameters, by name, in the order of registration.

    Elements of repeated blocks are not taken apart, nor are modules that have parameters of their own beside parts. Modules without parameters are no
    units: they run with what was called before them. Of those in `opened` the parts are units.
    """
    blocks = set(block_elements(model))
    found: dict[nn.Module, str] = {}
    for name, part in _parts(model, "", blocks, opened):
        found.setdefault(part, name)
    return {name: part for part, name in found.items()}


def has_parts(unit: nn.Module) -> bool:
    """Whether all its parameters are those of modules in it, so that a cut may lie between these."""
    return not any(True for _ in unit.parameters(recurse=False)) and any(True for _ in unit.children())


def _parts(
    module: nn.Module, name: str, blocks: set[nn.Module], opened: Collection[nn.Module]
) -> Iterator[tuple[str, nn.Module]]:
    for child_name, child in module.named_children():
        path = f"{name}.{child_name}" if name else child_name
        if not any(True for _ in child.parameters()):
            continue
        inside = isinstance(child, _CONTAINERS) or any(part in blocks or part in opened for part in child.modules())
        if child in opened or (inside and child not in blocks and has_parts(child)):
            yield from _parts(child, path, blocks, opened)
        else:
            yield path, child


def groups(found: Mapping[str, nn.Module], calls: Sequence[str] | None) -> list[Group]:
    """The units in the order of their first calls, with those together that a unit which is called again encloses.

    calls: names of units as a forward calls them; None: as they are registered. Units that are never called go with the one registered before them.
    A table that is called again encloses nothing: each stage reads it for itself, or one that encoder and decoder share would hold the whole encoder together.
    """
    order = list(dict.fromkeys(found if calls is None else calls))
    last: dict[str, int] = {}
    position = -1
    for name in order if calls is None else calls:
        # How far the forward has come when it calls the unit.
        position = max(position, order.index(name))
        if name not in last or not isinstance(found[name], TABLES):
            last[name] = position
    result: list[Group] = []
    begin = 0
    while begin < len(order):
        end, repeated, at = begin, None, begin
        while at <= end:
            if last[order[at]] > end:
                end, repeated = last[order[at]], order[at]
            at += 1
        result.append(Group(tuple(order[begin : end + 1]), repeated))
        begin = end + 1
    return _with_uncalled(result, found)


def _with_uncalled(called: list[Group], found: Mapping[str, nn.Module]) -> list[Group]:
    """Every parameter has a stage, also of a module that the forward leaves out."""
    place = {name: index for index, group in enumerate(called) for name in group.names}
    names = [list(group.names) for group in called]
    current = 0
    for name in found:
        current = place.get(name, current)
        if name not in place:
            names[current].append(name)
    return [Group(tuple(some), group.repeated) for some, group in zip(names, called, strict=True)]


def called_parts(found: Mapping[str, nn.Module]) -> dict[nn.Module, str]:
    """The modules whose calls are calls of a unit, with its name."""
    return {part: name for name, unit in found.items() for part in callable_parts(unit)}
