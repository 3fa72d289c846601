# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What every way trains: the example's model with 8,192 words, on random tokens."""

from __future__ import annotations

from dataclasses import replace

import torch
from piper.examples import llama
from torch import Tensor

SIZES = {
    "d256": llama.Config(vocab=8192),
    "d512": llama.Config(vocab=8192, dim=512, hidden=1408),
    # Seconds instead of minutes: to try the benchmark itself.
    "tiny": llama.Config(vocab=512, dim=64, hidden=176, layers=2, context=64),
}
ROWS = 8
MICROBATCHES = 4
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
OPTIONS = dict(lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)


def config(size: str, layers: int | None = None) -> llama.Config:
    """The sizes by name, with another number of layers if given."""
    return SIZES[size] if layers is None else replace(SIZES[size], layers=layers)


def batches(config: llama.Config, count: int) -> list[tuple[Tensor, Tensor]]:
    """Ids and targets, int64 [8, context], the same in every process."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, config.vocab, (count, ROWS, config.context + 1), generator=generator)
    return [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in tokens]


def loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy, in float32 whatever the logits are."""
    return llama.loss(logits.float(), target)
