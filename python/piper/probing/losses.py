# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether a loss divides as its rule says: the model's outputs are held fixed, and the rule's parts are set against the user's own whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..importer.inputs import Batch
from ..importer.loss import LossForm, Term, combined, loss_terms
from ..importer.recognizer import LossRecognizer
from .differences import Difference, distance, largest
from .rows_of_outputs import Layout, leaves, replaced
from .subject import Subject


class NotTriedError(Exception):
    """The user's code does not run on these rows, or gives no number on them, so that nothing follows."""


@dataclass(frozen=True)
class Rule:
    """How the importer combines the loss: `form` is that of the imported step, `reduction` what the user declared."""

    form: LossForm
    reduction: str | None


@dataclass(frozen=True)
class Fixed:
    """The outputs of some rows and their target, to be evaluated whole and in parts of `sizes` rows.

    Attributes:
        output: the model's output on all rows; its tensors stand in `tensors` by path.
        layouts: where each of the tensors has its rows.
        targets: tensors of the target that are divided, by path.
        target: gives the target with other tensors in their place.
        constants: tensors of the output that are made of parameters alone, by path.
    """

    output: Any
    tensors: Mapping[str, torch.Tensor]
    layouts: Mapping[str, Layout]
    targets: Mapping[str, torch.Tensor]
    target: Any
    sizes: Sequence[int]
    constants: Collection[str] = ()


@dataclass(frozen=True)
class Value:
    """A loss with its gradients; `total` and `weight` where it is the user's pair."""

    loss: torch.Tensor
    gradients: list[torch.Tensor | None]
    total: torch.Tensor | None = None
    weight: torch.Tensor | None = None


def whole_loss(result: Any) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """The loss that plain PyTorch trains on, and the two halves of a pair. A weight keeps its gradient, as it would there."""
    if isinstance(result, torch.Tensor):
        return result, None, None
    total, weight = result
    weight = weight if isinstance(weight, torch.Tensor) else torch.tensor(float(weight), dtype=total.dtype)
    return total / weight, total, weight


def difference(subject: Subject, rule: Rule, fixed: Fixed) -> tuple[Difference | None, Difference | None]:
    """How far the loss of parts is off that of the whole, and the same of the two halves of a pair; None where it is not at all.

    Raises NotTriedError if the whole gives no finite number.
    """
    leaves = {
        path: tensor.detach().clone().requires_grad_(tensor.is_floating_point())
        for path, tensor in fixed.tensors.items()
    }
    own = list(subject.loss_fn.parameters()) if isinstance(subject.loss_fn, nn.Module) else []
    trained = [leaf for leaf in leaves.values() if leaf.requires_grad] + [p for p in own if p.requires_grad]
    whole = _whole(subject, fixed, leaves, trained)
    parts = _parts(subject, rule, fixed, leaves, trained)
    # A loss near zero is a difference of numbers as large as its gradient times what it is of.
    floor = largest(whole.gradients) * max(largest(trained), 1e-3)
    found = None
    size = distance([whole.loss], [parts.loss], floor)
    if size:
        found = Difference("value", size, whole.loss.item(), parts.loss.item())
    size = distance(whole.gradients, parts.gradients)
    if size and (found is None or size > found.size > 0):
        value = found
        found = Difference("gradient with respect to the model's outputs", size)
        # The numbers say more where they differ clearly, too.
        if value is not None and value.size > 1e-3:
            found = Difference("value", max(size, value.size), value.whole, value.parts)
    return found, _pair_difference(whole, parts, floor)


def _pair_difference(whole: Value, parts: Value, floor: float) -> Difference | None:
    if whole.total is None or parts.total is None:
        return None
    for what, one, two in (("weight", whole.weight, parts.weight), ("sum", whole.total, parts.total)):
        size = distance([one], [two], floor * abs(float(whole.weight)) if what == "sum" else 0.0)
        if size:
            return Difference(what, size, one.item(), two.item())
    return None


def _whole(subject: Subject, fixed: Fixed, leaves: Mapping[str, torch.Tensor], trained: list) -> Value:
    output = replaced(fixed.output, lambda path, value: leaves[path].clone() if path in leaves else value)
    with subject.fresh() as loss_fn:
        loss, total, weight = whole_loss(loss_fn(output, _target(fixed, lambda _, value: value.clone())))
    gradients = gradients_of(loss, trained)
    if not loss.isfinite() or any(g is not None and not g.isfinite().all() for g in gradients):
        raise NotTriedError("the loss or its gradient is no finite number")
    return Value(loss, gradients, total, weight)


def _parts(subject: Subject, rule: Rule, fixed: Fixed, leaves: Mapping[str, torch.Tensor], trained: list) -> Value:
    rows, start, terms = sum(fixed.sizes), 0, []
    for count in fixed.sizes:

        def part(path: str, value: Any, start: int = start, count: int = count) -> Any:
            return fixed.layouts[path].of_part(leaves[path], start, count, rows) if path in leaves else value

        output = replaced(fixed.output, part)
        target = _target(fixed, lambda path, value, s=start, c=count: value[s : s + c].clone())
        with subject.fresh() as loss_fn:
            terms.append(terms_of_part(loss_fn, rule, output, target, count, fixed.constants))
        start += count
    loss = combined(terms)
    total = weight = None
    if rule.form.kind == "pair":
        total, weight = sum(t[0].numerator for t in terms), sum(t[0].weight for t in terms)
    return Value(loss, gradients_of(loss, trained), total, weight)


def terms_of_part(
    loss_fn: Callable, rule: Rule, output: Any, target: Any, rows: int, constants: Collection[str]
) -> list[Term]:
    """The terms of the loss of one part of `rows` rows, of whose output `constants` are made of parameters alone."""
    own = loss_fn.parameters() if isinstance(loss_fn, nn.Module) else ()
    given = [value for path, value in leaves(output).items() if path in constants]
    return loss_terms(loss_fn, output, target, rule.reduction, rows, rule.form, LossRecognizer([*own, *given]))[0]


def _target(fixed: Fixed, leaf: Callable[[str, torch.Tensor], torch.Tensor]) -> Any:
    return (
        Batch((), {}, fixed.target)
        .map(lambda path, value: leaf(path, fixed.targets[path]) if path in fixed.targets else value)
        .target
    )


def gradients_of(loss: torch.Tensor, inputs: Sequence[torch.Tensor], keep: bool = False) -> list[torch.Tensor | None]:
    """Of each input; None where it has none. keep: the graph is used again."""
    if not inputs or not loss.requires_grad:
        return [None] * len(inputs)
    return list(torch.autograd.grad(loss, inputs, allow_unused=True, retain_graph=keep))
