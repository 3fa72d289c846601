# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compositions of parallelism that the language model is trained under."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable

import language_model as lm
import piper
from piper.compiler import compile_with
from piper.importer.shared import SharedImports

# Smaller than one layer of the model (2.6 MB), so that several buckets make one layer.
SMALL_BUCKET_MIB = 0.5


@functools.cache
def _model(layers: int, stages: int | None):
    """No compilation changes it, so that all may have it, and what is captured of it, in common."""
    model = lm.build(layers)
    return model if stages is None else piper.annotate_modules(model, {"stage": lm.stages(model, stages)})


@functools.cache
def _imports(rows: int) -> SharedImports:
    return SharedImports()


@dataclasses.dataclass(frozen=True)
class Composition:
    name: str
    pp: int = 1
    dp: int = 1
    zero: int = 0
    microbatches: int = 1
    schedule: str | piper.schedules.Schedule | None = None
    rows: int = 16
    bucket_size: float = 25.0
    layers: int = 4
    # In all; several per rank where there are more than ranks.
    stages: int | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def ranks(self) -> int:
        return self.pp * self.dp

    def strategy(self) -> piper.Strategy:
        if self.pp > 1:
            mesh = piper.Mesh(pp=self.pp, dp=self.dp) if self.dp > 1 else piper.Mesh(pp=self.pp)
            return piper.strategies.pipeline(
                mesh,
                schedule=self.schedule,
                microbatches=self.microbatches,
                zero=self.zero,
                bucket_size=self.bucket_size,
                stages=self.stages,
            )
        return piper.strategies.data_parallel(
            piper.Mesh(dp=self.dp), zero=self.zero, bucket_size=self.bucket_size, microbatches=self.microbatches
        )

    def compile(self, x, y, make_optimizer: Callable):
        model = _model(self.layers, (self.stages or self.pp) if self.pp > 1 else None)
        optimizer = (
            make_optimizer(model.parameters(), lr=0.1)
            if isinstance(make_optimizer, type)
            else make_optimizer(model.parameters())
        )
        return compile_with(_imports(len(x)), model, lm.loss_fn, (x, y), self.strategy(), optimizer)


def whole_backwards(name: str, ranks: int, microbatches: int) -> piper.schedules.Schedule:
    """A schedule with every backward in the place of its I."""
    text = piper.schedules.build(name, ranks, microbatches).csv()
    return piper.schedules.parse(re.sub(r"\d+W\d+", "", text).replace("I", "B"))


def _all() -> list[Composition]:
    out = [Composition("one"), Composition("one-mb3", microbatches=3)]
    for dp in (2, 4):
        for zero in range(4):
            out.append(Composition(f"dp{dp}-zero{zero}", dp=dp, zero=zero))
            out.append(Composition(f"dp{dp}-zero{zero}-small", dp=dp, zero=zero, bucket_size=SMALL_BUCKET_MIB))
    for pp in (2, 4):
        for schedule in ("gpipe", "1f1b"):
            for m in (1, 3, 4, 8):
                out.append(Composition(f"pp{pp}-{schedule}-mb{m}", pp=pp, schedule=schedule, microbatches=m))
    for zero in range(4):
        out.append(Composition(f"pp2dp2-1f1b-zero{zero}", pp=2, dp=2, schedule="1f1b", microbatches=4, zero=zero))
    out.append(Composition("pp8-1f1b-mb8", pp=8, schedule="1f1b", microbatches=8, layers=8))
    out.append(Composition("pp2-unordered", pp=2, microbatches=4))
    out.append(Composition("pp2-1f1b-rows10", pp=2, schedule="1f1b", microbatches=4, rows=10))
    out.append(Composition("pp2dp2-1f1b-rows10", pp=2, dp=2, schedule="1f1b", microbatches=4, rows=10, zero=1))
    for schedule in ("interleaved_1f1b", "looped_bfs"):
        out.append(Composition(f"pp2-{schedule}-mb4", pp=2, schedule=schedule, microbatches=4, stages=4))
    out.append(
        Composition(
            "pp2dp2-interleaved-zero3", pp=2, dp=2, schedule="interleaved_1f1b", microbatches=3, stages=4, zero=3
        )
    )
    # Forwards and backwards that may overlap, and two copies of each stage in opposite directions.
    out.append(
        Composition("pp2-v-mb5", pp=2, schedule=whole_backwards("dualpipev", 2, 5), microbatches=5, stages=4),
    )
    for dp, zero in ((1, 0), (2, 2)):
        out.append(
            Composition(
                f"pp2dp{dp}-two-copies-zero{zero}",
                pp=2,
                dp=dp,
                zero=zero,
                schedule=whole_backwards("dualpipe", 2, 4),
                microbatches=4,
            )
        )
    # Backwards in two parts.
    for schedule in ("zbv", "interleaved_zb"):
        out.append(Composition(f"pp2-{schedule}-mb4", pp=2, schedule=schedule, microbatches=4, stages=4))
    out.append(Composition("pp2dp2-dualpipe-zero2", pp=2, dp=2, schedule="dualpipe", microbatches=4, zero=2))
    out.append(Composition("dp2-rows7", dp=2, rows=7))
    out.append(Composition("dp2-rows7-zero3", dp=2, rows=7, zero=3))
    return out


COMPOSITIONS = _all()
