# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How a loss combines over parts of a batch, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rule:
    """How one summand of a loss combines.

    Attributes:
        kind: "sum": the summands of parts add up. "rows": a mean over the rows, so that a part counts as its rows do. "weight": a sum over a sum of weights,
            which adds up too. "constant": the same for every part. "scalar": what the model gives for its own rows; counts as its rows do.
        weight: of "weight", its number in `LossForm.weights`.
    """

    kind: str
    weight: int | None = None


@dataclass(frozen=True)
class LossForm:
    """How a loss combines over parts of a batch.

    Attributes:
        kind: "pair" (the user returned it), "mean_rows" (declared), "sum" (recognised or declared: no division), "mean" (a sum of recognised
            means, sums and constants), or "scalar" (nothing is known of it: its sum is the value itself and its weight 1).
        divide: whether the global loss is Σ sum / Σ weight; otherwise it is Σ sum.
        splittable: whether the batch may be divided over microbatches or replicas.
        advice: what to do where it may not; empty otherwise.
        rules: of a recognised loss those of its summands.
        weights: (offset, floor) of each different weight: the summand is divided by max(Σ weight + offset, floor).
        host_weights: whether the program is told the weights of the whole batch before a step: its summands have different ones.
        weight_per_row: what each row adds to the weight, where that is a number.
        scalars: lines at which the model gives numbers for its own rows (an auxiliary loss, say): rows meet there.
        traits: what the summands looked like when the rules were found.
    """

    kind: str
    divide: bool
    splittable: bool
    advice: str = ""
    rules: tuple[Rule, ...] = ()
    weights: tuple[tuple[float, float | None], ...] = ()
    host_weights: bool = False
    weight_per_row: float | None = None
    scalars: tuple[str, ...] = ()
    traits: Any = field(default=None, compare=False, repr=False)
