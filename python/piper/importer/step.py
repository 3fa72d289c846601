# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One step of the user's model and loss, as a function of the batch's tensors: run on shapes to learn how it divides, and captured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from . import loss_rules
from .ambient import user_autocast
from .capture import Joint, capture, dry_run
from .carried import Observer
from .errors import ImporterError
from .imported import Input
from .in_place import NOT_FUNCTIONAL, NoForeignWrites, in_place_of_constants
from .inputs import Batch, explain_call
from .lines import MODEL, last_user_line
from .loss import LossValue, evaluate, form_of, graph_pair, own_loss, settled_form, weights_to_share, where_is
from .loss_form import LossForm
from .loss_weights import SHARED_WEIGHTS, WeightGraph
from .recognizer import LossRecognizer
from .row_mixing import Recorder, mixing_lines
from .take_weights import take_weights

LOSS = "loss_fn"


@dataclass(frozen=True)
class Survey:
    """What runs on shapes alone tell of a step: how its loss combines (None: the step's own capture tells), and which lines mix rows."""

    form: LossForm | None = None
    mixing: tuple[str, ...] = ()


class _OtherLoss(ImporterError):
    """The loss is not made of the same summands."""


class Step:
    """Model, loss and example batch. `form` is that of the loss once the step is captured, `inputs` also hold what the program gets beside the batch."""

    def __init__(
        self,
        children: Mapping[str, nn.Module],
        loss_fn: Callable,
        example: Batch,
        inputs: Mapping[str, Input],
        reduction: str | None,
        total_rows: int | None,
        observer: Observer,
    ):
        self.children = dict(children)
        self.inputs = dict(inputs)
        self.form: LossForm | None = None
        self._loss_fn = loss_fn
        self._example = example
        self._reduction = reduction
        self._total_rows = total_rows
        self._observer = observer
        self._where = where_is(loss_fn, children[MODEL])
        #: A number of rows, and what the loss of so many is to look like.
        self._expected: tuple[int, Any] | None = None

    def options(self, example: Batch) -> tuple:
        """What `again` makes this step of, with an example batch that holds no tensors: without the model."""
        return example, dict(self.inputs), self._reduction, self._total_rows, self.form

    @staticmethod
    def again(children: Mapping[str, nn.Module], loss_fn: Callable, options: tuple, observer: Observer) -> Step:
        """A step with the `options` of another."""
        example, inputs, reduction, total_rows, form = options
        step = Step(children, loss_fn, example, inputs, reduction, total_rows, observer)
        step.form = form
        return step

    def survey(self, rows: int) -> Survey:
        """Runs the step with `rows` rows and with twice as many.

        Raises:
            ImporterError: the step runs with one number of rows only, and nothing is said of its loss.
        """
        values: dict[int, LossValue] = {}

        def run(count: int, recorder: Recorder | None) -> None:
            def look(value: LossValue) -> None:
                values[count] = value

            self._dry_run(count, look, recorder)

        try:
            mixing = mixing_lines(run, rows, lambda: values[rows].weight is None and self._reduction is None)
        except Exception:  # noqa: BLE001  (a model may refuse other numbers of rows than it is used with, in any way)
            mixing = ()
        return Survey(self._settled(rows, values, run), mixing)

    def _settled(self, rows: int, values: dict[int, LossValue], run: Callable) -> LossForm:
        other = 2 * rows
        try:
            for count in (rows, other):
                if count not in values:
                    other = rows + 1 if count == other else other
                    run(other if count != rows else rows, None)
        except Exception as error:
            if rows not in values:
                with self._part(rows):
                    raise
            return self._of_one_number(rows, values[rows], error)
        return settled_form([(rows, values[rows]), (other, values[other])], self._where)

    @contextlib.contextmanager
    def _part(self, rows: int | None) -> Iterator[None]:
        """What fails inside with the rows of a part of the batch, and not with all of them, is explained."""
        try:
            yield
        except ImporterError:
            raise
        except Exception as error:
            line = last_user_line(error.__traceback__)
            if rows in (None, self._total_rows) or not self._runs_whole():
                raise
            raise ImporterError(
                f"{line}: forward and loss run with the batch's {self._total_rows} rows, and not with a part of {rows} of them "
                f"({type(error).__name__}: {error}): let rows that belong together be one row, or choose numbers of replicas and microbatches whose parts fit"
            ) from error

    def _runs_whole(self) -> bool:
        try:
            self._dry_run(self._total_rows, lambda value: None, None)
        except Exception:  # noqa: BLE001  (what is wrong then is wrong without division, too)
            return False
        return True

    def _of_one_number(self, rows: int, value: LossValue, error: Exception) -> LossForm:
        if value.weight is not None or self._reduction is not None:
            return form_of(value, self._where)
        raise ImporterError(
            f"the model runs with {rows} rows and not with {rows + 1}, so nothing tells whether its loss is a mean over them: return a pair "
            f"(sum, weight) from loss_fn, or declare loss_reduction='mean_rows' or 'sum' ({type(error).__name__}: {error})"
        ) from error

    def capture(
        self, wanted_rows: Sequence[int | None], form: LossForm | None, training: bool, aliases: Mapping[str, str]
    ) -> tuple[dict[int | None, Joint], dict[int, WeightGraph]]:
        """The joint graphs by number of rows, and the weights that the host computes.

        aliases: from a buffer's name in the traced step to that of its state.
        """
        if form is not None and form.host_weights:
            self.inputs[SHARED_WEIGHTS] = Input(SHARED_WEIGHTS, (1 + len(form.weights),), torch.float32, False)
        joints, weights = {}, {}
        for count in wanted_rows:
            self.form = form
            joints[count] = self.capture_part(count, training)
            if form is not None and form.host_weights:
                found = take_weights(joints[count], list(self.inputs), aliases)
                if found is None:
                    return self._without_host(wanted_rows, form, training, aliases)
                weights[count] = found
        return joints, weights

    def capture_alike(
        self, wanted_rows: Sequence[int], form: LossForm, aliases: Mapping[str, str]
    ) -> tuple[dict[int | None, Joint], dict[int, WeightGraph]]:
        """`capture` in eval mode by the form that the loss has in training, or by its own where it is made otherwise."""
        self._expected = (wanted_rows[0], form.traits)
        try:
            return self.capture(wanted_rows, form, False, aliases)
        except _OtherLoss:
            self.inputs.pop(SHARED_WEIGHTS, None)
        finally:
            self._expected = None
        return self.capture(wanted_rows, self.survey(wanted_rows[0]).form, False, aliases)

    def _without_host(self, wanted_rows, form: LossForm, training: bool, aliases):
        del self.inputs[SHARED_WEIGHTS]
        other = loss_rules.without_host(form)
        if other is not None:
            return self.capture(wanted_rows, other, training, aliases)
        raise ImporterError(
            f"the loss ({self._where}) divides its summands by different weights, one of which depends on what the model computes, so that it "
            "is not known before the whole batch has been computed: return a pair (sum, weight) with one weight, or compute that weight from the batch"
        )

    def capture_part(self, rows: int | None, training: bool) -> Joint:
        """The joint graph of a part of the batch, with the weights that the host computes as further outputs."""
        form = self.form

        def finish(value: LossValue, tensors: Mapping[str, torch.Tensor]):
            if self._expected is not None and rows == self._expected[0] and value.traits() != self._expected[1]:
                raise _OtherLoss
            self.form = form or form_of(value, self._where)
            total, weight = graph_pair(value, self.form, rows, self._total_rows, tensors.get(SHARED_WEIGHTS))
            shared = weights_to_share(value) if self.form.host_weights else ()
            return total.to(torch.float32), weight.to(torch.float32), *shared

        run, examples, observer = self._run(rows, finish), self._examples(rows), self._observer
        with observer.places.kept(), self._part(rows):
            joint = self._captured(observer.watch(run), examples, training)
        observer.took(joint)
        observer.refuse(self.children, run, examples, training)
        return joint

    def _captured(self, run: Callable, examples: Sequence[torch.Tensor], training: bool) -> Joint:
        try:
            return capture(self.children, self.children[MODEL], run, examples, training)
        except AssertionError as error:
            if NOT_FUNCTIONAL not in str(error):
                raise
            raise ImporterError(in_place_of_constants(str(error))) from error
        except RuntimeError as error:
            # A forward that takes a derivative itself needs what evaluation is without.
            if training or "does not require grad" not in str(error):
                raise
            return capture(self.children, self.children[MODEL], _with_gradients(run), examples, training)

    def _dry_run(self, rows: int, look: Callable[[LossValue], None], recorder: Recorder | None) -> None:
        def finish(value: LossValue, _tensors):
            look(value)
            if recorder is not None:
                recorder.end([value.result, value.weight])
            # A loss is a sum over the rows, but for what is in it.
            return value.result

        def run(tensors):
            in_loss = recorder.inside_loss if recorder else contextlib.nullcontext
            # Where the model computes its own loss, any of its scalars may be part of that.
            with (
                recorder or contextlib.nullcontext(),
                in_loss() if self._loss_fn is own_loss else contextlib.nullcontext(),
            ):
                return self._run(rows, finish, in_loss)(tensors)

        with self._observer.unwatched():
            dry_run(self.children, run, self._examples(rows), grad=True)

    def _run(self, rows: int | None, finish: Callable, in_loss=contextlib.nullcontext) -> Callable:
        """A function of the inputs' tensors that gives what `finish` makes of the loss."""

        def run(tensors):
            # Forward may ask for gradients of an input, which then is not the step's own tensor.
            named = dict(zip(self.inputs, (tensor.detach() for tensor in tensors), strict=False))
            call = self._example.map(lambda path, value: named.get(path, value))
            own = (tensor for child in self.children.values() for tensor in _own(child))
            # What all parts of a batch are given alike, as the weight of a summand in this step.
            is_shared = {name for name, item in self.inputs.items() if rows is not None and not item.split}
            shared = [tensor for name, tensor in named.items() if name in is_shared]
            recognizer = LossRecognizer([*own, *shared], list(named.values()))
            with user_autocast(), NoForeignWrites():
                with recognizer:
                    output = _call(self.children[MODEL], call)
                with in_loss():
                    value = evaluate(recognizer, self._loss_fn, output, call.target, self._reduction)
            return finish(value, named)

        return run

    def _examples(self, rows: int | None) -> list[torch.Tensor]:
        shapes = [i.spec(rows).shape if rows is not None else i.shape for i in self.inputs.values()]
        return [torch.empty(s, dtype=i.dtype) for s, i in zip(shapes, self.inputs.values(), strict=True)]


def _with_gradients(run: Callable) -> Callable:
    def enabled(tensors):
        with torch.enable_grad():
            results = run(tensors)
        return tuple(result.detach() for result in results)

    return enabled


def _own(module: nn.Module):
    yield from module.parameters()
    yield from module.buffers()


def _call(model: nn.Module, batch: Batch) -> Any:
    try:
        return model(*batch.args, **batch.kwargs)
    except (TypeError, AttributeError) as error:
        reason = explain_call(model.forward, batch, error)
        if reason is None:
            raise
        raise ImporterError(reason) from error
