# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds by which rule each summand of a loss combines: from what the summands look like at two numbers of rows.

`x.sum() / 8` is a mean over eight rows or an eighth of a sum: only with another number of rows can that be told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from . import affine
from .affine import CONSTANT, MODEL_SCALAR, SUM, Piece, Pieces
from .loss_form import LossForm, Rule

_SAY = (
    "return a pair (sum, weight) from loss_fn whose parts both add up over the rows, or a sum of torch's losses, of .mean() or of .sum() / number, "
    "or declare loss_reduction='mean_rows' (a mean over the rows of dim 0) or 'sum', or leave the batch undivided"
)
#: Of numbers that were computed in different ways.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Trait:
    """A piece without its tensors. `weight`: number of its weight, elements, offset and floor."""

    kind: str
    factor: float
    elements: int
    weight: tuple[int, int, float, float | None] | None
    line: str


def traits_of(pieces: Pieces) -> tuple[Trait, ...]:
    """What can be compared of pieces."""
    numbers: dict[tuple, int] = {}
    return tuple(_trait(piece, numbers) for piece in pieces)


def _trait(piece: Piece, numbers: dict[tuple, int]) -> Trait:
    weight = piece.weight
    if weight is not None:
        key = (id(weight.base), weight.offset, weight.floor)
        weight = (numbers.setdefault(key, len(numbers)), weight.elements, weight.offset, weight.floor)
    return Trait(piece.kind, piece.factor * (piece.number or 1.0), piece.elements, weight, piece.line)


def weights_of(pieces: Pieces) -> list[affine.Weight]:
    """The different weights, in the order of their numbers."""
    found = {(id(p.weight.base), p.weight.offset, p.weight.floor): p.weight for p in pieces if p.weight is not None}
    return list(found.values())


def unknown(where: str, found: tuple[Trait, ...]) -> LossForm:
    """A loss that nothing is known of, but its line."""
    bad = next((trait for trait in found if trait.kind not in (SUM, CONSTANT)), None)
    line = bad.line if bad is not None and bad.line else where
    reason = f"the loss ({line}) is a scalar that is not recognised as a sum of means and sums over the rows"
    return LossForm("scalar", True, False, f"{reason}, so parts of a batch can't be combined: {_SAY}", traits=found)


def of_one_part(found: tuple[Trait, ...], where: str) -> LossForm:
    """The form of a loss that is seen with one number of rows, where the batch is not divided."""
    if len(found) == 1 and found[0].kind == SUM:
        (only,) = found
        if only.weight is not None and only.weight[2:] == (0.0, None):
            return LossForm("mean", True, True, rules=(Rule("weight", 0),), weights=(only.weight[2:],), traits=found)
        if only.weight is None and only.elements and math.isclose(only.factor * only.elements, 1.0):
            return LossForm("mean", True, True, rules=(Rule("rows"),), traits=found)
        if only.weight is None and only.factor == 1.0:
            return LossForm("sum", False, True, rules=(Rule("sum"),), traits=found)
    return unknown(where, found)


def settle(first: tuple[Trait, ...], second: tuple[Trait, ...], rows: tuple[int, int], where: str) -> LossForm:
    """The form of a loss whose summands look like this with so many rows."""
    if len(first) != len(second):
        return unknown(where, first)
    rules = []
    for one, two in zip(first, second, strict=True):
        rule = _rule(one, two, rows)
        if isinstance(rule, str):
            advice = f"the loss ({one.line or where}): {rule}, so parts of a batch can't be combined: {_SAY}"
            return LossForm("scalar", True, False, advice, traits=first)
        rules.append(rule)
    if all(rule.kind in ("constant", "scalar") for rule in rules):
        return unknown(where, first)
    weights: dict[int, tuple[float, float | None]] = {t.weight[0]: t.weight[2:] for t in first if t.weight is not None}
    kinds = {rule.kind for rule in rules}
    is_sum = kinds <= {"sum", "constant"}
    # One weight serves as that of the loss itself, unless something else wants another.
    different = len(weights) + bool(kinds & {"rows", "sum", "scalar"}) > 1
    floored = any(floor is not None for _, floor in weights.values())
    host_weights = bool(weights) and (different or floored)
    per_row = None if is_sum or weights and not host_weights else 1.0
    if len(rules) == 1 and rules[0].kind == "rows":
        per_row = first[0].elements / rows[0]
    return LossForm(
        "sum" if is_sum else "mean",
        not is_sum,
        True,
        rules=tuple(rules),
        weights=tuple(weights[number] for number in sorted(weights)),
        host_weights=host_weights,
        weight_per_row=per_row,
        scalars=tuple(dict.fromkeys(t.line or where for t in first if t.kind == MODEL_SCALAR)),
        traits=first,
    )


def without_host(form: LossForm) -> LossForm | None:
    """The form where weights are not known before a step: None where the summands have different ones."""
    if len(form.weights) > 1 or any(rule.kind not in ("weight", "constant") for rule in form.rules):
        return None
    # Where nothing counts the step is skipped, whatever the least weight is.
    return replace(form, host_weights=False, weights=((form.weights[0][0], None),))


def _rule(one: Trait, two: Trait, rows: tuple[int, int]) -> Rule | str:
    same = math.isclose(one.factor, two.factor, rel_tol=_ROUNDING)
    if one.kind != two.kind:
        return "its summands depend on the number of rows"
    if one.kind in (CONSTANT, MODEL_SCALAR):
        if not same or one.elements != two.elements or one.weight is not None:
            return "a summand that does not grow with the rows depends on their number"
        return Rule("constant" if one.kind == CONSTANT else "scalar")
    if one.kind != SUM or not one.elements:
        return "a summand is not recognised as a mean or a sum over the rows"
    if one.elements * rows[1] != two.elements * rows[0]:
        return "a summand is a mean or sum over a number of elements that does not grow with the rows of the batch"
    if one.weight is None:
        if same:
            return Rule("sum")
        if math.isclose(one.factor * rows[0], two.factor * rows[1], rel_tol=_ROUNDING):
            return Rule("rows")
        return "a summand is divided by a number that is neither fixed nor a count of the rows"
    if two.weight is None or one.weight[0] != two.weight[0] or one.weight[3] != two.weight[3]:
        return "its weights depend on the number of rows"
    if not same or not math.isclose(one.weight[2], two.weight[2], rel_tol=_ROUNDING, abs_tol=1e-30):
        return "a summand's weight is multiplied by a number that depends on the rows"
    if one.weight[1] * rows[1] != two.weight[1] * rows[0]:
        return "a summand is divided by a sum over a number of elements that does not grow with the rows of the batch"
    return Rule("weight", one.weight[0])
