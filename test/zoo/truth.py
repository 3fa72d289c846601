# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What plain PyTorch makes of a subject: gradients, and three steps of AdamW."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from piper.arithmetic import InFloat64, widened
from subject import Subject
from torch import nn

STEPS = 3
RATE = 1e-3
Values = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Outcome:
    """Of each step the loss and the gradients by parameter; the parameters behind the last one."""

    losses: list[float]
    gradients: list[Values]
    parameters: Values


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of both sides, over all parameters that train."""
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE, weight_decay=0.01)


def run(subject: Subject, parts: Sequence[int] = (1, 1), wide: bool = True) -> Outcome:
    """Trains a copy of the model.

    parts: replicas and microbatches; a coupled subject goes through them in a loop, its rows being as many in each, any other takes the batch at once.
    wide: in float64 whatever types the model's code asks for, else as the model is.
    """
    model = copy.deepcopy(subject.model)
    if wide:
        model = model.double()
    optimizer = adamw(model)
    batches = _divide(subject.batch, parts[0] * parts[1]) if subject.coupled else [subject.batch]
    losses, gradients = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for batch in batches:
            with InFloat64() if wide else contextlib.nullcontext():
                loss = _loss(model, subject, mapped(batch, widened) if wide else batch) / len(batches)
                loss.backward()
            total += loss.item()
        losses.append(total)
        gradients.append({n: p.grad.double() for n, p in model.named_parameters() if p.grad is not None})
        optimizer.step()
    return Outcome(losses, gradients, {n: p.detach().double() for n, p in model.named_parameters()})


def _loss(model: nn.Module, subject: Subject, batch: Any) -> torch.Tensor:
    if subject.loss_fn is None:
        return model(**batch.get("kwargs", batch)).loss
    if isinstance(batch, dict):
        return subject.loss_fn(model(**batch["kwargs"]), batch["target"])
    return subject.loss_fn(model(*batch[:-1]), batch[-1])


def mapped(batch: Any, change: Any) -> Any:
    """The batch with each of its values changed."""
    if isinstance(batch, dict):
        return {name: mapped(value, change) for name, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(mapped(value, change) for value in batch)
    return change(batch)


def _divide(batch: Any, count: int) -> list[Any]:
    return [
        mapped(
            batch,
            lambda value, part=part: value.tensor_split(count)[part] if isinstance(value, torch.Tensor) else value,
        )
        for part in range(count)
    ]
