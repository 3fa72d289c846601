# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One division of some rows of the example, tried in plain PyTorch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..importer.inputs import Batch
from ..importer.loss import Term, combined, step_value, terms_of
from . import variants
from .differences import TOLERANCES, CoarsestType, Difference, distance
from .losses import Fixed, NotTriedError, Rule, difference, gradients_of, terms_of_part, whole_loss
from .made_up import made_up
from .models import Outputs, gradient_difference, outputs
from .places import described, meeting_place
from .rows_of_outputs import Layout, leaves, replaced
from .subject import Subject

#: Numbers in the outputs of a few rows above which their loss is not tried, and above which it is not tried on all changed data: about half a second.
MOST_NUMBERS, VARIED_NUMBERS, LEAST_VARIANTS = 30_000_000, 8_000_000, 3
#: What numbers are multiplied by to see what comes of large ones: outputs, and a model's inputs.
LARGE, LARGER = 100, 8
_LARGE_OUTPUTS = "the model's outputs are too large for it"


@dataclass(frozen=True)
class LossSeen:
    """How the loss of parts differs from that of the whole, if it does.

    Attributes:
        is_pair: whether it is a half of the user's pair that does not add up.
        how: how the data were changed for that, and whether data look like that sooner or later (`expected`).
        sizes: rows of the parts, where they are others than the trial's.
    """

    difference: Difference | None = None
    is_pair: bool = False
    how: str = ""
    expected: bool = True
    sizes: tuple[int, ...] = ()

    @property
    def refused(self) -> bool:
        return self.difference is not None and self.expected


@dataclass(frozen=True)
class Seen:
    """What a trial of parts of `sizes` rows showed. `meets`: where rows meet in the model; `untried`: what was left out, and why."""

    sizes: tuple[int, ...]
    loss: LossSeen = LossSeen()
    meets: str = ""
    untried: str = ""


class Trial:
    """Tries divisions of rows of the example.

    split: the names of the tensors that are divided.
    own_loss: whether the loss is an output of the model itself, so that a difference is the model's.
    gradients: whether gradients of parameters are compared, which takes three times as long.
    thorough: whether a second set of numbers is tried.
    """

    def __init__(
        self,
        subject: Subject,
        rule: Rule,
        example: Batch,
        split: set[str],
        own_loss: bool = False,
        gradients: bool = True,
        thorough: bool = True,
    ):
        self._subject, self._rule, self._split = subject, rule, split
        self._example, self._own_loss, self._gradients = example, own_loss, gradients
        self._thorough = thorough
        self._tolerance: float | None = None

    def see(self, sizes: Sequence[int]) -> Seen:
        """Whole and parts of the first rows. Raises whatever the user's code raises, and NotTriedError where it gives no numbers."""
        rows = sum(sizes)
        batch = self._example.map(lambda path, value: self._of_rows(path, value, 0, rows))
        found = self._run(batch, sizes)
        meets = self._meets(found, batch)
        for other in () if meets else self._other_data(batch):
            meets = meets or self._quietly(lambda b=other: self._meets(self._run(b, sizes), b)) or ""
        if self._own_loss:
            return Seen(tuple(sizes), meets=meets or self._own_loss_meets(batch, sizes))
        if not found.told:
            return Seen(tuple(sizes), meets=meets)
        if _numbers(found.tensors) > MOST_NUMBERS:
            return Seen(tuple(sizes), meets=meets, untried=_LARGE_OUTPUTS)
        return Seen(tuple(sizes), self._loss(found, batch), meets)

    def see_loss(self, model: nn.Module, sizes: Sequence[int]) -> Seen:
        """The loss alone, on numbers in place of what `model` would give; only shapes of it are computed."""
        batch = self._example.map(lambda path, value: self._of_rows(path, value, 0, sum(sizes)))
        # Shapes are those that the user's own types give.
        plain = [self._example.map(self._rows_of(start, count)) for start, count in _bounds(sizes)]
        found = made_up(model, self._example.map(self._rows_of(0, sum(sizes))), plain, sizes, MOST_NUMBERS)
        if not found.told:
            raise NotTriedError("the model is too large to be run for it, and rows meet in the shape of its output")
        with CoarsestType() as mode, self._subject.fresh() as loss_fn:
            loss_fn(replaced(found.whole, lambda _, value: self._subject.convert(value)), batch.target)
        self._tolerance = TOLERANCES[mode.found]
        return Seen(tuple(sizes), self._loss(found, batch))

    def _rows_of(self, start: int, count: int) -> Callable[[str, Any], Any]:
        return lambda path, value: value[start : start + count] if path in self._split else value

    # The model.

    def _of_rows(self, path: str, value: Any, start: int, count: int) -> Any:
        chosen = value[start : start + count] if path in self._split else value
        return self._subject.convert(chosen)

    def _part(self, batch: Batch, start: int, count: int) -> Batch:
        return batch.map(lambda path, value: self._of_rows(path, value, start, count))

    def _divided(self, batch: Batch, sizes: Sequence[int]) -> Iterator[Batch]:
        for start, count in _bounds(sizes):
            yield self._part(batch, start, count)

    def _run(self, batch: Batch, sizes: Sequence[int]) -> Outputs:
        whole = self._subject.output(self._part(batch, 0, sum(sizes)))
        return outputs(whole, [self._subject.output(part) for part in self._divided(batch, sizes)], sizes)

    def _meets(self, found: Outputs, batch: Batch) -> str:
        """Where rows meet in the model, "" if nothing shows that they do."""
        if any(not value.isfinite().all() for value in _floating(found.whole)) and found.apart == float("inf"):
            raise NotTriedError("the model gives numbers that are not finite")
        if found.apart == float("inf") or self._beyond(found.apart, batch):
            whole = self._part(batch, 0, sum(found.sizes))
            again = leaves(self._subject.output(whole))
            pairs = [(value.detach(), again[path]) for path, value in found.tensors.items() if value.numel()]
            if any(distance([value], [other]) > 0.01 * found.apart for value, other in pairs):
                raise NotTriedError("the model gives other numbers each time")
            batches = [whole, *self._divided(batch, found.sizes)]
            return meeting_place(self._subject, batches, found.sizes, self._most(batch))
        if self._gradients:
            off = gradient_difference(self._subject, found)
            if off is not None and self._beyond(off.size, batch):
                return f"the backward of {self._model_named()}"
            return self._sums_meet(found, batch)
        return ""

    def _sums_meet(self, found: Outputs, batch: Batch) -> str:
        """Outputs without rows (an auxiliary loss) are each part's own: whether the loss of the parts is that of the whole all the same."""
        own = [path for path, layout in found.layouts.items() if layout.dim is None]
        changed = [path for path in own if self._beyond(_apart(found, path), batch)]
        if not changed or self._own_loss or not self._composite_differs(found, batch):
            return ""
        return f"{', '.join(changed)} of {self._model_named()}"

    def _own_loss_meets(self, batch: Batch, sizes: Sequence[int]) -> str:
        found = self._run(batch, sizes)
        differs = self._composite_differs(found, batch)
        inputs = {path: value for path, value in batch.leaves().items() if path in self._split}
        for variant in variants.of_rows(inputs, sizes[0]):
            if differs:
                break
            other = batch.map(lambda path, value, v=variant: v.tensor if path == v.name else value)
            differs = bool(self._quietly(lambda b=other: self._composite_differs(self._run(b, sizes), b)))
        return f"the loss of {self._model_named()}" if differs else ""

    def _composite_differs(self, found: Outputs, batch: Batch) -> bool:
        """Loss and gradients of the whole step, of model and loss together."""
        terms = []
        target = self._part(batch, 0, sum(found.sizes)).target
        with self._subject.fresh() as loss_fn:
            whole, *_ = whole_loss(loss_fn(_cloned(found.whole), target))
        for part, output, count in zip(self._divided(batch, found.sizes), found.parts, found.sizes, strict=True):
            terms.append(self._terms(part, output, count, found.constants))
        parts = combined(terms)
        if not whole.isfinite():
            raise NotTriedError("the loss is no finite number")
        one, two = gradients_of(whole, self._subject.parameters), gradients_of(parts, self._subject.parameters)
        return self._beyond(max(distance([whole], [parts], 1e-6), distance(one, two)), batch)

    def _terms(self, part: Batch, output: Any, count: int, constants: Collection[str]) -> list[Term]:
        rule, model = self._rule, self._subject.model
        if not self._own_loss:
            with self._subject.fresh() as loss_fn:
                return terms_of_part(loss_fn, rule, _cloned(output), part.target, count, constants)
        own = [*model.parameters(), *model.buffers()]
        value = step_value(
            lambda: self._subject.output(part),
            own,
            list(part.leaves().values()),
            self._subject.loss_fn,
            None,
            rule.reduction,
        )
        return terms_of(value, rule.form, count)

    def _other_data(self, batch: Batch) -> Iterator[Batch]:
        """The batch with rows that differ in every tensor whose rows are all alike; and, if there is time, with other numbers."""
        tensors = {path: value for path, value in batch.leaves().items() if path in self._split}
        same = {path for path, value in tensors.items() if variants.alike(value)}
        if same:
            yield batch.map(lambda path, value: variants.told_apart(value, len(path)) if path in same else value)
        numbers = {path for path, value in tensors.items() if value.is_floating_point() and path not in same}
        if self._thorough and numbers and not same:
            yield batch.map(lambda path, value: variants.turned(value) if path in numbers else value)
            yield batch.map(lambda path, value: value * LARGER if path in numbers else value)

    # The loss.

    def _loss(self, found: Outputs, batch: Batch) -> LossSeen:
        tensors = {path: self._subject.convert(value) for path, value in found.tensors.items()}
        targets = {
            path: value for path, value in batch.leaves().items() if path in self._split and path.startswith("target")
        }
        first = None
        for outer in (True, False):
            # Where the model's rows meet, nothing tells which of two layouts it is.
            known = {path: self._layout(found, path, layout, outer, batch) for path, layout in found.layouts.items()}
            fixed = Fixed(found.whole, tensors, known, targets, batch.target, found.sizes, found.constants)
            result = self._loss_of(fixed, batch)
            if result.difference is None:
                return result
            first = first or result
            if known == found.layouts:
                break
        return first

    def _layout(self, found: Outputs, path: str, layout: Layout, outer: bool, batch: Batch) -> Layout:
        each = layout.dim is not None and found.tensors[path].shape[layout.dim] > sum(found.sizes)
        return Layout(layout.dim, outer) if each and self._beyond(found.apart, batch) else layout

    def _loss_of(self, fixed: Fixed, batch: Batch) -> LossSeen:
        result = self._differs(fixed, batch)
        if result is not None:
            return LossSeen(*result)
        doubt = LossSeen()
        backwards = dataclasses.replace(fixed, sizes=tuple(reversed(fixed.sizes)))
        others = [("", True, backwards)] if backwards.sizes != tuple(fixed.sizes) else []
        most = max(LEAST_VARIANTS, VARIED_NUMBERS // max(_numbers(fixed.tensors), 1))
        for label, expected, other in itertools.islice([*others, *_varied(fixed)], most):
            result = self._quietly(lambda o=other: self._differs(o, batch))
            if result is None or result[0].size == float("inf"):
                continue
            seen = LossSeen(*result, label, expected, other.sizes)
            if expected:
                return seen
            doubt = doubt if doubt.difference else seen
        return doubt

    def _differs(self, fixed: Fixed, batch: Batch) -> tuple[Difference, bool] | None:
        """A difference that is none of rounding, and whether it is one of the halves of a pair."""
        loss, pair = difference(self._subject, self._rule, fixed)
        for found, is_pair in ((pair, True), (loss, False)):
            if found is not None and self._beyond(found.size, batch):
                again, again_pair = difference(self._subject, self._rule, fixed)
                same = again_pair if is_pair else again
                if same is None or abs(same.size - found.size) > 1e-6 * found.size:
                    raise NotTriedError("the loss is another number each time")
                return found, is_pair
        return None

    # What counts.

    def _beyond(self, size: float, batch: Batch) -> bool:
        if size <= TOLERANCES[torch.float64]:
            return False
        return size > max(TOLERANCES.values()) or size > self._most(batch)

    def _most(self, batch: Batch) -> float:
        """What rounding may do in the types that the user's code computes in."""
        if self._tolerance is None:
            with CoarsestType() as mode:
                output = self._subject.output(self._part(batch, 0, len(_first(batch, self._split))))
                with self._subject.fresh() as loss_fn:
                    self._quietly(lambda: loss_fn(output, batch.target))
            self._tolerance = TOLERANCES[mode.found]
        return self._tolerance

    def _model_named(self) -> str:
        return described("", self._subject.model)

    @staticmethod
    def _quietly(run: Callable[[], Any]) -> Any:
        """What `run` gives, or None: changed data may be none for the user's code."""
        try:
            return run()
        except Exception:  # noqa: BLE001
            return None


def _bounds(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """The first row and the number of rows of each part."""
    return [(sum(sizes[:index]), count) for index, count in enumerate(sizes)]


def _varied(fixed: Fixed) -> Iterator[tuple[str, bool, Fixed]]:
    """The same outputs and target in other forms: near the given ones, and with parts that weigh unequally; whether data look like that sooner or later."""
    near = {path: variants.shaken(value, len(path)) for path, value in fixed.tensors.items()}
    yield "with outputs near the given ones", True, dataclasses.replace(fixed, tensors=near)
    same = {
        path: variants.told_apart(value, len(path)) for path, value in fixed.targets.items() if variants.alike(value)
    }
    if same:
        yield "with targets that differ", True, dataclasses.replace(fixed, targets={**fixed.targets, **same})
    yield (
        "with outputs in other places",
        True,
        dataclasses.replace(fixed, tensors=_each(fixed.tensors, variants.turned)),
    )
    for variant in variants.of_rows(fixed.targets, fixed.sizes[0], _classes(fixed)):
        targets = {**fixed.targets, variant.name: variant.tensor}
        yield variant.label, variant.expected, dataclasses.replace(fixed, targets=targets)
    # What the model hands on to its loss, such as a mask.
    handed = {
        path: value
        for path, value in fixed.tensors.items()
        if fixed.layouts[path].dim == 0 and (not value.is_floating_point() or bool(((value == 0) | (value == 1)).all()))
    }
    for variant in variants.of_rows(handed, fixed.sizes[0]):
        tensors = {**fixed.tensors, variant.name: variant.tensor}
        yield variant.label, variant.expected, dataclasses.replace(fixed, tensors=tensors)

    large = _each(fixed.tensors, lambda value: value * LARGE)
    yield f"with outputs {LARGE} times as large", False, dataclasses.replace(fixed, tensors=large)


def _each(tensors: Mapping[str, torch.Tensor], change: Callable) -> dict[str, torch.Tensor]:
    return {path: change(value) if value.is_floating_point() else value for path, value in tensors.items()}


def _classes(fixed: Fixed) -> set[int]:
    """How many classes the outputs may have scores of."""
    scores = [value for value in fixed.tensors.values() if value.is_floating_point() and value.dim() > 1]
    return {size for value in scores for size in (value.shape[1], value.shape[-1]) if size > 1}


def _numbers(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(value.numel() for value in tensors.values())


def _cloned(output: Any) -> Any:
    return replaced(output, lambda _, value: value.clone() if isinstance(value, torch.Tensor) else value)


def _floating(output: Any) -> list[torch.Tensor]:
    return [v for v in leaves(output).values() if isinstance(v, torch.Tensor) and v.is_floating_point()]


def _apart(found: Outputs, path: str) -> float:
    return max(distance([found.tensors[path]], [leaves(part)[path]]) for part in found.parts)


def _first(batch: Batch, split: set[str]) -> torch.Tensor:
    return next(value for path, value in batch.leaves().items() if path in split)
