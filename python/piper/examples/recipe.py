# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the example model is trained: what the demo and the plain PyTorch run that it is compared with have in common."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from . import llama
from .text import Corpus

STEPS = 160
ROWS = 16
LEARNING_RATE = 3e-3
WARMUP_STEPS = 20
EVALUATE_EVERY = 20
HELD_OUT_BATCHES = 4

Batch = tuple[Tensor, Tensor]


def model() -> llama.Llama:
    """The model before training; every call gives the same numbers."""
    return llama.create()


def optimizer(model: llama.Llama) -> tuple[torch.optim.AdamW, torch.optim.lr_scheduler.LRScheduler]:
    """AdamW, and a learning rate that rises linearly over the first steps."""
    adamw = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    return adamw, torch.optim.lr_scheduler.LambdaLR(adamw, lambda step: min(1.0, (step + 1) / WARMUP_STEPS))


def batch(corpus: Corpus, step: int) -> Batch:
    """The batch of a step (0 is the first): ids and targets, [16, 256]."""
    return corpus.training_batch(step, ROWS, llama.Config().context)


def held_out_loss(evaluate: Callable[[Tensor, Tensor], Tensor], corpus: Corpus) -> float:
    """The mean loss of the held-out batches."""
    batches = corpus.held_out_batches(HELD_OUT_BATCHES, ROWS, llama.Config().context)
    return sum(evaluate(x, y).item() for x, y in batches) / len(batches)


def is_evaluated(steps_taken: int, steps: int) -> bool:
    """Whether the held-out loss is measured after this many of `steps` steps."""
    return steps_taken % EVALUATE_EVERY == 0 or steps_taken == steps


def train_with_pytorch(
    model: llama.Llama,
    corpus: Corpus,
    steps: int,
    evaluate: bool = True,
    report: Callable[[int, float, float | None], None] = lambda *_: None,
) -> tuple[list[float], dict[int, float]]:
    """The same training in plain PyTorch: loss of each step, and held-out loss by steps taken.

    evaluate: whether to measure the held-out loss.
    report: called with steps taken, loss, and held-out loss where it was measured.
    """
    adamw, scheduler = optimizer(model)
    losses: list[float] = []
    held_out: dict[int, float] = {}
    for step in range(steps):
        ids, target = batch(corpus, step)
        adamw.zero_grad()
        loss = llama.loss(model(ids), target)
        loss.backward()
        adamw.step()
        scheduler.step()
        losses.append(loss.item())
        if evaluate and is_evaluated(step + 1, steps):
            with torch.no_grad():
                held_out[step + 1] = held_out_loss(lambda x, y: llama.loss(model(x), y), corpus)
        report(step + 1, losses[-1], held_out.get(step + 1))
    return losses, held_out
