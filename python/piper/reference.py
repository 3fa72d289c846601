# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One batch in plain PyTorch, to compare with: its loss, gradients, and the buffers that forward leaves."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .arithmetic import WIDE, InFloat64, widened
from .borrowed import borrowed
from .importer import loss as losses
from .importer.build import LOSS
from .importer.inputs import Batch, describe

Values = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Outcome:
    """What one batch gives.

    Attributes:
        loss: NaN where no target counts; then there are no gradients.
        gradients: by parameter, of those that have one.
        buffers: of each replica, after forward.
    """

    loss: float
    gradients: Values
    buffers: list[Values]


class Reference:
    """A model with its loss, which PyTorch runs on a batch: at once, or part by part as the documentation of coupled rows says."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable | None,
        batch_dims: Mapping[str, int | None] | None = None,
        loss_reduction: str | None = None,
    ):
        self._model = model
        self._modules = [model, *([loss_fn] if isinstance(loss_fn, nn.Module) else [])]
        self._loss_fn = loss_fn if loss_fn is not None else losses.own_loss
        self._where = losses.where_is(self._loss_fn, model)
        self._batch_dims, self._reduction = batch_dims, loss_reduction
        self._form: losses.LossForm | None = None

    def parameters(self) -> dict[str, nn.Parameter]:
        """By first name; those of a loss that is a module follow with a prefix."""
        return _named(self._modules, nn.Module.named_parameters)

    def buffers(self) -> Values:
        """As the model has them now, in float64 where they are of a floating type."""
        return _wide(_named(self._modules, nn.Module.named_buffers))

    def run(
        self,
        batch: Any,
        values: Mapping[str, torch.Tensor],
        buffers: Sequence[Values],
        parts: tuple[int, int] | None = None,
        arithmetic: contextlib.AbstractContextManager | None = None,
    ) -> Outcome:
        """The batch with the parameters `values`, as the model's own types hold them.

        buffers: of each replica; the first ones are those of the whole batch.
        parts: (replicas, microbatches) to go through one after the other; None takes the batch at once.
        arithmetic: None computes in float64. Another mode leaves all types as they are.
        """
        mode = InFloat64() if arithmetic is None else arithmetic
        own_types = {name: value.dtype for name, value in _named(self._modules, nn.Module.named_buffers).items()}
        with borrowed(self._modules):
            for name, parameter in self.parameters().items():
                value = values[name].to(parameter.dtype)
                parameter.data = (widened(value) if arithmetic is None else value).clone()
            session = _Session(self, mode, own_types if arithmetic is not None else {})
            converted = Batch.of(batch).map(lambda _, value: widened(value) if arithmetic is None else value)
            if parts is None:
                return session.whole(converted, buffers[0])
            self._settle_form(session, batch, converted, buffers[0])
            return session.looped(list(self._divide(Batch.of(batch), converted, parts)), buffers)

    def _settle_form(self, session: _Session, batch: Any, converted: Batch, buffers: Values) -> None:
        """How the loss combines over parts is asked of the whole batch, and of half of it."""
        if self._form is None:
            inputs, _, rows = describe(Batch.of(batch), self._batch_dims)
            session.set_buffers(buffers)
            value = session.value(converted)
            if rows is None or rows < 2:
                self._form = losses.form_of(value, self._where)
                return
            fewer = _chosen(converted, inputs, torch.arange(rows // 2))
            self._form = losses.settled_form([(rows, value), (rows // 2, session.value(fewer))], self._where)
            session.set_buffers(buffers)

    def _divide(
        self, original: Batch, batch: Batch, parts: tuple[int, int]
    ) -> Iterator[list[tuple[Batch, int | None]]]:
        """For each replica its microbatches, each with its rows."""
        inputs, _, rows = describe(original, self._batch_dims)
        if rows is None:
            yield [(batch, None)]
            return
        replicas, microbatches = parts
        for replica in torch.arange(rows).tensor_split(replicas):
            yield [(_chosen(batch, inputs, part), len(part)) for part in replica.tensor_split(microbatches)]


class _Session:
    """The runs of one batch, inside of `borrowed`."""

    def __init__(self, reference: Reference, mode: contextlib.AbstractContextManager, types: Mapping[str, torch.dtype]):
        self._reference, self._mode, self._types = reference, mode, types
        self._buffers = _named(reference._modules, nn.Module.named_buffers)
        self._places = [
            (part, name, buffer)
            for module in reference._modules
            for part in module.modules()
            for name, buffer in part.named_buffers(recurse=False, remove_duplicate=False)
        ]

    def whole(self, batch: Batch, buffers: Values) -> Outcome:
        self.set_buffers(buffers)
        with self._mode:
            output = self._reference._model(*batch.args, **batch.kwargs)
            loss = _scalar(self._reference._loss_fn(output, batch.target))
            if not loss.isnan():
                loss.backward()
        return Outcome(loss.item(), _wide(self._take_gradients()), [self._read_buffers()])

    def looped(self, replicas: Sequence[Sequence[tuple[Batch, int | None]]], buffers: Sequence[Values]) -> Outcome:
        """Backward of each term of each part by itself: a buffer that one part writes may be what another has read."""
        parts, gradients, after = [], [], []
        for index, microbatches in enumerate(replicas):
            self.set_buffers(buffers[index])
            for batch, rows in microbatches:
                terms = self.terms(batch, rows, self._reference._form)
                with self._mode:
                    gradients.append(self._gradients_of([term.numerator for term in terms]))
                parts.append([_leaf(term) for term in terms])
            after.append(self._read_buffers())
        loss = losses.combined(parts)
        factors = torch.autograd.grad(loss, [term.numerator for terms in parts for term in terms], allow_unused=True)
        total: Values = {}
        for factor, own in zip(factors, (own for of_part in gradients for own in of_part), strict=True):
            for name, value in own.items() if factor is not None else ():
                total[name] = total.get(name, 0.0) + value.to(torch.float64) * factor
        value = loss.item()
        return Outcome(value, {} if value != value else total, after)

    def value(self, batch: Batch) -> losses.LossValue:
        """The loss of a part of the batch, with what is known of it."""
        own, batch_tensors = self._reference, list(batch.leaves().values())
        tensors = [t for module in own._modules for t in (*module.parameters(), *module.buffers())]
        with self._mode:
            return losses.step_value(
                lambda: own._model(*batch.args, **batch.kwargs),
                tensors,
                batch_tensors,
                own._loss_fn,
                batch.target,
                own._reduction,
            )

    def terms(self, batch: Batch, rows: int | None, form: losses.LossForm) -> list[losses.Term]:
        value = self.value(batch)
        with self._mode:
            return losses.terms_of(value, form, rows)

    def set_buffers(self, values: Values) -> None:
        for part, name, buffer in self._places:
            # Forward may have put another tensor in its place.
            if getattr(part, name) is not buffer:
                setattr(part, name, buffer)
        for name, buffer in self._buffers.items():
            value = values[name]
            buffer.data = (value.to(self._types[name]) if name in self._types else value).clone()

    def _read_buffers(self) -> Values:
        return {
            name: value.clone()
            for name, value in _wide(_named(self._reference._modules, nn.Module.named_buffers)).items()
        }

    def _gradients_of(self, numerators: Sequence[torch.Tensor]) -> list[Values]:
        result = []
        for index, numerator in enumerate(numerators):
            if numerator.requires_grad:
                numerator.backward(retain_graph=index + 1 < len(numerators))
            result.append(self._take_gradients())
        return result

    def _take_gradients(self) -> Values:
        taken = {}
        for name, parameter in self._reference.parameters().items():
            if parameter.grad is not None:
                taken[name], parameter.grad = parameter.grad, None
        return taken


def _named(modules: Sequence[nn.Module], named: Callable) -> dict[str, Any]:
    found = dict(named(modules[0]))
    known = {id(value) for value in found.values()}
    for module in modules[1:]:
        found.update({f"{LOSS}.{name}": value for name, value in named(module) if id(value) not in known})
    return found


def _chosen(batch: Batch, inputs: Mapping[str, Any], rows: torch.Tensor) -> Batch:
    return batch.map(lambda name, value: value[rows] if name in inputs and inputs[name].split else value)


def _leaf(term: losses.Term) -> losses.Term:
    numerator = term.numerator.detach().double().requires_grad_()
    weight = None if term.weight is None else term.weight.detach().double()
    return dataclasses.replace(term, numerator=numerator, weight=weight)


def _scalar(result: Any) -> torch.Tensor:
    """The loss itself, of a pair (sum, weight) too."""
    if not isinstance(result, (tuple, list)):
        return result
    total, weight = result
    return total / (weight.detach() if isinstance(weight, torch.Tensor) else weight)


def _wide(values: Mapping[str, torch.Tensor]) -> Values:
    return {name: widened(value.detach()) if value.dtype in WIDE else value.detach() for name, value in values.items()}
