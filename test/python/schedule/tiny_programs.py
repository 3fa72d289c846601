# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Planned text of small pipelines: ten schedules, three meshes, ZeRO 0 to 3, microbatches from 2 to 8."""

from __future__ import annotations

from dataclasses import dataclass

import piper
import torch
from torch import nn

WIDTH = 2
TWO_STAGES_PER_RANK = ("interleaved_1f1b", "looped_bfs", "interleaved_zb", "zbv", "dualpipev")


@dataclass(frozen=True)
class Composition:
    schedule: str
    pp: int
    dp: int
    zero: int
    microbatches: int

    def __str__(self) -> str:
        return f"{self.schedule}-pp{self.pp}-dp{self.dp}-zero{self.zero}-m{self.microbatches}"


COMPOSITIONS = [
    *(
        Composition(schedule, pp, 1, 0, m)
        for schedule, *counts in (
            ("gpipe", 3, 5),
            ("1f1b", 2, 6),
            ("interleaved_1f1b", 4, 4),
            ("looped_bfs", 2, 4),
            ("zb_h1", 3, 5),
            ("zb_h2", 4, 7),
            ("interleaved_zb", 4, 4),
            ("zbv", 4, 8),
            ("dualpipe", 4, 8),
            ("dualpipev", 4, 8),
        )
        for pp, m in zip((2, 4), counts, strict=True)
    ),
    *(
        Composition(schedule, 2, 2, (first + step) % 4, m)
        for schedule, first, *counts in (
            ("gpipe", 0, 2, 4),
            ("1f1b", 1, 4, 5),
            ("interleaved_1f1b", 2, 2, 4),
            ("looped_bfs", 3, 2, 4),
            ("zb_h1", 0, 4, 6),
            ("zb_h2", 1, 4, 6),
            ("interleaved_zb", 2, 4, 6),
            ("zbv", 3, 4, 4),
            ("dualpipe", 0, 4, 6),
            ("dualpipev", 1, 4, 6),
        )
        for step, m in zip((0, 2), counts, strict=True)
    ),
    Composition("1f1b", 2, 2, 0, 8),
    Composition("zb_h1", 2, 2, 3, 3),
]


class Layers(nn.Module):
    def __init__(self, count: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(count))

    def forward(self, x):
        for layer in self.layers:
            with piper.annotate("stage"):
                x = torch.tanh(layer(x))
        return x


def planned_text(one: Composition) -> str:
    torch.manual_seed(1)
    model = Layers(one.pp * (2 if one.schedule in TWO_STAGES_PER_RANK else 1))
    rows = one.dp * one.microbatches
    x, y = torch.randn(rows, WIDTH), torch.randn(rows, WIDTH)
    mesh = piper.Mesh(pp=one.pp, dp=one.dp) if one.dp > 1 else piper.Mesh(pp=one.pp)
    program = piper.compile(
        model,
        nn.functional.mse_loss,
        (x, y),
        strategy=piper.strategies.pipeline(mesh, schedule=one.schedule, microbatches=one.microbatches, zero=one.zero),
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    )
    text = program.ir("planned")
    program.close()
    return text
