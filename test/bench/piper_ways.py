# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Piper's ways of training the model: compiled by one process into a folder, loaded by those that are measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import models
import piper
import torch
from models import MICROBATCHES, OPTIONS
from piper.examples import llama
from torch import Tensor

Strategy = piper.Strategy


def _replicas(zero: int) -> Strategy:
    return piper.strategies.data_parallel(piper.Mesh(dp=2), zero=zero)


def _pipeline(schedule: str) -> Strategy:
    return piper.strategies.pipeline(piper.Mesh(pp=2), schedule=schedule, microbatches=MICROBATCHES)


#: By name: how many ranks, how many stages, the strategy.
WAYS: dict[str, tuple[int, int, Callable[[], Strategy | None]]] = {
    "piper": (1, 0, lambda: None),
    "piper_ddp": (2, 0, lambda: _replicas(0)),
    "piper_zero1": (2, 0, lambda: _replicas(1)),
    "piper_zero2": (2, 0, lambda: _replicas(2)),
    "piper_zero3": (2, 0, lambda: _replicas(3)),
    "piper_gpipe": (2, 2, lambda: _pipeline("gpipe")),
    "piper_1f1b": (2, 2, lambda: _pipeline("1f1b")),
}


def compile_to(folder: Path, way: str, config: llama.Config, dtype: torch.dtype) -> None:
    """Compiles and saves."""
    _, stages, strategy = WAYS[way]
    model = llama.create(config).to(dtype)
    if stages:
        piper.annotate_modules(model, {"stage": llama.stages(config, stages)})
    optimizer = torch.optim.AdamW(model.parameters(), **OPTIONS)
    batch = models.batches(config, 1)[0]
    program = piper.compile(model, models.loss, batch, strategy=strategy(), optimizer=optimizer)
    program.save(folder)
    program.close()


def load(folder: Path) -> Callable[[Tensor, Tensor], Tensor]:
    """A step: the whole batch in, the whole loss out."""
    return piper.load(folder).step
