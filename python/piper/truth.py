# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plain PyTorch on the batches of a verification, with what rounding can do to each of its numbers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .arithmetic import RoundedAtRandom, Watch
from .directives import Strategy
from .importer.inputs import Batch, settled_dims
from .importer.wrapped import plain_module
from .reference import Outcome, Reference
from .trace import Names, Trace
from .updates import Updates, Values

# What is promised: of the largest absolute gradient of a parameter (of all parameters where its own is zero but for rounding); of the loss.
TOLERANCE = 1e-5
_ZERO = 1e-9
# The loss of a model in half precision: the spacing of bf16 numbers.
HALF_LOSS_TOLERANCE = 2.0**-8
# Runs that round at random, and how many of their standard deviations a right program may be off: its sums have another order than PyTorch's.
_SAMPLES, _DEVIATIONS = 8, 10.0
# A model that casts, or asks for a type, may compute something else in float64: then its mean over roundings is elsewhere.
_ELSEWHERE = 1e-3

Parts = tuple[int, int] | None


@dataclass(frozen=True)
class Doubt:
    """How far a right program may be from the truth, for every element."""

    loss: float
    gradients: Values
    buffers: Values


class Truths:
    """PyTorch on some batches, for all strategies: of the first batch everything is kept, the others depend on the steps before them."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable | None,
        batches: Sequence[Any],
        optimizer: torch.optim.Optimizer | None,
        batch_dims: Mapping[str, int | None] | None = None,
        loss_reduction: str | None = None,
    ):
        self.model = plain_module(model)
        self.loss_fn = loss_fn
        own = list(loss_fn.parameters()) if isinstance(loss_fn, nn.Module) else []
        self.optimizer = optimizer or torch.optim.SGD([*self.model.parameters(), *own], lr=0.1)
        # A model that computes its own loss has no target.
        self.batches = [Batch.without_target(batch) for batch in batches] if loss_fn is None else list(batches)
        self._dims, self._reduction = batch_dims, loss_reduction
        self._first: dict[tuple, Any] = {}
        self._ready = False

    def options(self, strategy: Strategy | None) -> dict[str, Any]:
        """The options of `piper.compile` that say how batches are divided."""
        dims = settled_dims(self.batches[0], self._dims, math.prod(parts_of(strategy)), self._reduction)
        return {"batch_dims": dims, "loss_reduction": self._reduction}

    def prepare(self, strategy: Strategy | None) -> None:
        """Keeps the model as it is now, and runs the first batch once in its own types.

        It comes after compiling, which refuses a model that does not run, or changes when it runs, with a better message.
        """
        if self._ready:
            return
        options = self.options(strategy)
        self.reference = Reference(self.model, self.loss_fn, options["batch_dims"], self._reduction)
        self.names = Names(self.model, self.loss_fn, self.reference)
        parameters = self.reference.parameters()
        self.start = {name: value.detach().clone() for name, value in parameters.items()}
        self.updates = Updates(self.optimizer, {id(value): name for name, value in parameters.items()})
        self.buffers = {name: value.clone() for name, value in self.reference.buffers().items()}
        self.half, self.own_types = False, ""
        watch = Watch()
        self._first[None, "own"] = self.reference.run(self.batches[0], self.start, [self.buffers], None, watch)
        self.half = watch.half
        try:
            self._first[None, "wide"] = self.reference.run(self.batches[0], self.start, [self.buffers])
        except Exception as error:
            self.own_types = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        self._ready = True

    def of(self, trace: Trace, parts: Parts) -> Truth:
        """PyTorch on the batches that a program has stepped through."""
        return Truth(self, trace, parts, self._first)


class Truth:
    """PyTorch on each batch, with the parameters that the program had before that step; buffers are PyTorch's own throughout."""

    def __init__(self, truths: Truths, trace: Trace, parts: Parts, first: dict[tuple, Any]):
        self._truths, self._trace, self._parts = truths, trace, parts
        self._first, self._rest = first, {}

    def outcome(self, step: int) -> Outcome:
        """In float64, or in the model's own types if it does not run in that."""
        return self._kept(step, "own" if self._truths.own_types else "wide", self._run)

    def doubt(self, step: int) -> Doubt:
        """What is allowed without a look at rounding."""
        truth = self.outcome(step)
        scales = gradient_scales(truth.gradients)
        gradients = {name: torch.full_like(value, TOLERANCE * scales[name]) for name, value in truth.gradients.items()}
        buffers = {name: _buffer_doubt(value, step) for name, value in truth.buffers[0].items()}
        return Doubt(TOLERANCE * max(abs(truth.loss), 1e-6), gradients, buffers)

    def rounding(self, step: int) -> Doubt:
        """What is allowed after a look at what rounding does: to each element, and to elements of its parameter in general."""
        plain = self.doubt(step)
        samples = self._kept(step, "samples", self._sample)
        if self._computes_elsewhere(step, samples):
            self._truths.own_types = "in float64 it computes something else"
            return self.rounding(step)
        truth = self.outcome(step)
        gradients = {
            name: _spread([sample.gradients[name] for sample in samples], value, plain.gradients[name])
            for name, value in truth.gradients.items()
        }
        buffers = {
            name: _spread([sample.buffers[0][name] for sample in samples], value, plain.buffers[name])
            for name, value in truth.buffers[0].items()
            if value.is_floating_point()
        }
        losses = [torch.tensor(sample.loss, dtype=torch.float64) for sample in samples]
        loss = _spread(losses, torch.tensor(truth.loss), torch.tensor(plain.loss)).item()
        if self._truths.half:
            loss = max(loss, HALF_LOSS_TOLERANCE * abs(truth.loss))
        return Doubt(loss, gradients, {**plain.buffers, **buffers})

    @property
    def replicas(self) -> int:
        """Those that have buffers of their own."""
        return 1 if self._parts is None else self._parts[0]

    def _computes_elsewhere(self, step: int, samples: Sequence[Outcome]) -> bool:
        if self._truths.own_types or self._truths.half:
            return False
        truth = self.outcome(step)
        scales = gradient_scales(truth.gradients)
        for name, value in truth.gradients.items():
            stacked = torch.stack([sample.gradients[name].double() for sample in samples])
            off = (stacked.mean(0) - value).abs()
            if bool((off > _ELSEWHERE * scales[name] + 3 * _DEVIATIONS * _typical(stacked.std(0))).any()):
                return True
        return False

    def _sample(self, step: int) -> list[Outcome]:
        return [self._run(step, RoundedAtRandom(seed)) for seed in range(_SAMPLES)]

    def _run(self, step: int, arithmetic: contextlib.AbstractContextManager | None = None) -> Outcome:
        truths = self._truths
        if arithmetic is None and truths.own_types:
            arithmetic = contextlib.nullcontext()
        values = truths.start if step == 0 else {**truths.start, **self._trace.states[step].values}
        buffers = [truths.buffers] * self.replicas if step == 0 else self.outcome(step - 1).buffers
        return truths.reference.run(truths.batches[step], values, buffers, self._parts, arithmetic)

    def _kept(self, step: int, what: str, make: Callable[[int], Any]) -> Any:
        known = self._first if step == 0 else self._rest
        key = (self._parts, what) if step == 0 else (step, what)
        if key not in known:
            known[key] = make(step)
        return known[key]


def parts_of(strategy: Strategy | None) -> tuple[int, int]:
    """Replicas, and microbatches of each."""
    return (strategy.num_replicas, strategy.num_microbatches) if strategy is not None else (1, 1)


def gradient_scales(gradients: Values) -> dict[str, float]:
    """The largest element of each; of all where its own is zero in exact arithmetic, and it is rounding alone (a bias before batch norm)."""
    sizes = {name: value.abs().max().item() if value.numel() else 0.0 for name, value in gradients.items()}
    largest = max(sizes.values(), default=0.0)
    return {name: largest if size <= _ZERO * largest else size for name, size in sizes.items()}


def _buffer_doubt(value: torch.Tensor, step: int) -> torch.Tensor:
    if not (value.is_floating_point() or value.is_complex()) or not value.numel():
        return torch.zeros(value.shape, dtype=torch.float64)
    size = value.abs().max().item()
    # PyTorch's own go on from step to step.
    return torch.full(value.shape, TOLERANCE * (step + 1) * size, dtype=torch.float64)


def _typical(deviations: torch.Tensor) -> torch.Tensor:
    return deviations.square().mean().sqrt()


def _spread(samples: Sequence[torch.Tensor], truth: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """What is allowed of each element: its own deviations, or those of others if it has been lucky. What is zero whatever the rounding has to be zero."""
    stacked = torch.stack([sample.double() for sample in samples])
    deviations = stacked.std(0)
    allowed = torch.maximum(least, _DEVIATIONS * torch.maximum(deviations, _typical(deviations)))
    return torch.where((truth == 0) & (stacked == 0).all(0), torch.zeros_like(allowed), allowed)
