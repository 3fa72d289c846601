# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""When two results of the same arithmetic in another order count as different."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Of the largest value, by the coarsest type that was computed in. Rounding stays far below these, rows that meet are far above.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 3e-2, torch.bfloat16: 1e-1}


@dataclass(frozen=True)
class Difference:
    """How far parts are off the whole: `size` in relation to the largest value; `whole` and `parts` where they are one number."""

    what: str
    size: float
    whole: float | None = None
    parts: float | None = None

    def __str__(self) -> str:
        if self.whole is not None:
            return f"its {self.what} is {self.whole:.6g} whole, {self.parts:.6g} from the parts"
        return f"its {self.what} differs by {100 * self.size:.3g} % of the largest"


def distance(whole: Iterable[torch.Tensor | None], parts: Iterable[torch.Tensor | None], floor: float = 0.0) -> float:
    """The largest difference of tensors in relation to their largest value; None stands for zeros. Not finite numbers are infinitely far from finite ones."""
    largest, off = floor, 0.0
    for one, two in zip(whole, parts, strict=True):
        for value in (one, two):
            if value is not None and value.numel():
                largest = max(largest, _finite(value).abs().max().item())
        if one is None and two is None:
            continue
        gap = _gap(one if one is not None else torch.zeros_like(two), two if two is not None else torch.zeros_like(one))
        off = max(off, gap)
    return off / largest if largest and off else off


def _gap(one: torch.Tensor, two: torch.Tensor) -> float:
    if not one.numel():
        return 0.0
    one, two = one.detach().double(), two.detach().double()
    alike = (one == two) | (one.isnan() & two.isnan())
    gap = torch.where(alike, torch.zeros_like(one), (one - two).abs())
    return torch.where(gap.isnan(), torch.full_like(gap, float("inf")), gap).max().item()


def _finite(value: torch.Tensor) -> torch.Tensor:
    value = value.detach().double()
    return torch.where(value.isfinite(), value, torch.zeros_like(value))


def largest(values: Sequence[torch.Tensor | None]) -> float:
    """The largest absolute value."""
    return max((_finite(v).abs().max().item() for v in values if v is not None and v.numel()), default=0.0)


class CoarsestType(TorchDispatchMode):
    """Notes the coarsest floating type that operations inside it give: what a `.float()` in the user's code leaves of float64."""

    def __init__(self):
        super().__init__()
        self.found = torch.float64

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, torch.Tensor) and TOLERANCES.get(value.dtype, 0.0) > TOLERANCES[self.found]:
                self.found = value.dtype
        return result
