# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the zoo tries: a public model as its package makes it, with a loss and a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

#: Two replicas of four microbatches; one row for each, or two where a normalization over the rows needs them.
ROWS = 8
VOCABULARY = 61


@dataclass
class Subject:
    """A model to train.

    Attributes:
        model: in training mode, without dropout.
        batch: as `piper.compile` takes it; without loss_fn the model's arguments by name.
        loss_fn: None where the model computes its own loss.
        coupled: whether its rows meet, as they do in a BatchNorm or in a contrastive loss of the model's own: then plain PyTorch looped over the parts is the truth.
        double: in float64 on both sides, where rounding of float32 alone tells which way a ReLU or a pool goes, and gradients differ by percents then.
        batch_dims: as for `piper.compile`, where no labels tell the rows.
    """

    model: nn.Module
    batch: Any
    loss_fn: Callable | None = None
    coupled: bool = False
    double: bool = False
    batch_dims: dict[str, int | None] | None = None


def tokens(rows: int = ROWS, length: int = 12, low: int = 3, high: int = VOCABULARY) -> torch.Tensor:
    """Random tokens [rows, length], none of them a special one."""
    return torch.randint(low, high, (rows, length))


def some_ignored(labels: torch.Tensor) -> torch.Tensor:
    """Labels of which each row ignores another number."""
    lengths = torch.arange(labels.shape[0]).remainder(labels.shape[1] // 2)
    return labels.masked_fill(torch.arange(labels.shape[1]) < lengths[:, None], -100)


def padding(rows: int = ROWS, length: int = 12) -> torch.Tensor:
    """An attention mask [rows, length] with another number of ones in each row, at its begin."""
    lengths = length - torch.arange(rows).remainder(length // 2)
    return (torch.arange(length) < lengths[:, None]).long()


def images(rows: int = ROWS, size: int = 16, channels: int = 3) -> torch.Tensor:
    """Noise of the shape [rows, channels, size, size]."""
    return torch.randn(rows, channels, size, size)


def classes(rows: int = ROWS, count: int = 5) -> torch.Tensor:
    """Random targets [rows]."""
    return torch.randint(0, count, (rows,))


def stirred(model: nn.Module) -> nn.Module:
    """The model with numbers in parameters that start as zeros, for these would leave all gradients below them zero."""
    for parameter in model.parameters():
        if parameter.requires_grad and not parameter.detach().any():
            nn.init.normal_(parameter, std=0.1)
    return model
