# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The data of a few rows in other forms: parts that weigh unequally where the example's do not.

A rule that is right holds for all of them, as far as the user's code accepts them. Some are what data of that kind look like sooner or later (masks, lengths,
tokens that are ignored); others (a class that is ignored, a number that is missing) may never come.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import torch

#: More of them would cost time and show nothing new.
MOST, MOST_CLASSES = 24, 6
#: Numbers among which it is looked which classes there are.
_MOST_KNOWN = 1 << 16
_IGNORED, _SIGNED = -100, (torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class Variant:
    """`tensor` in place of the one called `name`. `expected`: whether data look like that sooner or later."""

    label: str
    name: str
    tensor: torch.Tensor
    expected: bool


def of_rows(tensors: Mapping[str, torch.Tensor], count: int, classes: Collection[int] = ()) -> Iterator[Variant]:
    """For tensors whose first `count` rows are one part: some of that part's entries are changed, and no others.

    classes: numbers of classes that integers may be of.
    """
    made = 0
    for name, tensor in tensors.items():
        for label, value, expected in [*_other_values(tensor), *_other_classes(tensor, classes)]:
            changed = tensor.clone()
            changed[:count].view(-1)[_some(changed[:count].numel())] = value
            if not torch.equal(changed, tensor):
                yield Variant(f"with {label} in '{name}'", name, changed, expected)
                made += 1
            if made == MOST:
                return


def _some(count: int) -> slice:
    """Every second entry but for the first; the only one where there is no other."""
    return slice(1, None, 2) if count > 1 else slice(None)


def _other_values(tensor: torch.Tensor) -> list[tuple[str, float | int | bool, bool]]:
    if not tensor.numel() or tensor.is_complex():
        return []
    if tensor.dtype == torch.bool:
        return [("some set to False", False, True), ("some set to True", True, True)]
    low, high = tensor.min().item(), tensor.max().item()
    if not tensor.is_floating_point():
        own = [low, high] if low != high else [0, 1]
        found = [(f"some set to {value}", value, True) for value in own]
        # Labels of tokens are ignored in most data, those of rows in few.
        ignored = [("some ignored (-100)", _IGNORED, tensor.dim() > 1)] if tensor.dtype in _SIGNED else []
        return ignored + found
    if {low, high} <= {0.0, 1.0}:
        return [("some set to 0", 0.0, True), ("some set to 1", 1.0, True), ("some missing (NaN)", math.nan, False)]
    return [("some missing (NaN)", math.nan, False), ("some set to 0", 0.0, False), ("some set to -1", -1.0, False)]


def _other_classes(tensor: torch.Tensor, classes: Collection[int]) -> list[tuple[str, int, bool]]:
    """Classes that the example lacks."""
    if tensor.dtype not in _SIGNED or not tensor.numel() or int(tensor.max()) < 0:
        return []
    known = set(tensor.unique().tolist()) if tensor.numel() <= _MOST_KNOWN else set(range(int(tensor.max()) + 1))
    found = {}
    for count in classes:
        if int(tensor.max()) < count:
            found |= dict.fromkeys(value for value in range(count) if value not in known)
    # Of many, some from each end: padding, begin and end stand there.
    values = (
        list(found)
        if len(found) <= MOST_CLASSES
        else [*list(found)[: MOST_CLASSES // 2], *list(found)[-MOST_CLASSES // 2 :]]
    )
    return [(f"some set to {value}", value, True) for value in values]


def shaken(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Floating numbers near the given ones, none equal to another, of the same signs; integers stay."""
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    generator = torch.Generator().manual_seed(seed)
    noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.dtype)
    if tensor.numel() > 1 and bool((tensor == tensor.flatten()[0]).all()):
        return tensor + noise
    return tensor * (0.9 + 0.2 * noise)


def alike(tensor: torch.Tensor) -> bool:
    """Whether all its rows are equal, so that nothing shows whether they meet."""
    return tensor.dim() > 0 and len(tensor) > 1 and bool((tensor == tensor[:1]).all())


def told_apart(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Rows that differ where they are all alike. Integers become neighbours of theirs."""
    if tensor.is_floating_point():
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.dtype)
        return tensor * (1 + 0.1 * noise) + noise
    if tensor.dtype == torch.bool:
        changed = tensor.clone()
        changed[1::2] = ~changed[1::2]
        return changed
    steps = torch.arange(tensor.numel()).view(tensor.shape) % 3
    return tensor - steps.to(tensor.dtype) if bool((tensor >= 2).all()) else tensor + steps.to(tensor.dtype)


def turned(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in other places, half of them with the other sign: what compares with a limit goes other ways. Zeros and ones only change places."""
    generator = torch.Generator().manual_seed(3)
    moved = tensor.flatten()[torch.randperm(tensor.numel(), generator=generator)].view(tensor.shape)
    if bool(((tensor >= 0) & (tensor <= 1)).all()):
        return moved
    return moved * torch.where(torch.rand(tensor.shape, generator=generator) < 0.5, 1, -1)
