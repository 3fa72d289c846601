# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ready-made strategies. They only call the directives that a user could write by hand."""

from __future__ import annotations

from . import schedules
from .directives import Strategy
from .errors import UsageError
from .mesh import Mesh
from .schedules import Schedule


def pipeline(
    mesh: Mesh,
    schedule: str | Schedule | None = "1f1b",
    microbatches: int | None = None,
    zero: int = 0,
    bucket_size: float = 25.0,
    stages: int | None = None,
) -> Strategy:
    """Pipeline parallelism over axis 'pp' of a model with the tag "stage", replicated over the other axes.

    schedule: a name out of `piper.schedules.names()`; or a schedule that was built or read from a file; or None to leave the order
        to the compiler's list scheduler.
    microbatches: parts of each replica's rows; any number from 1, which is the default. A schedule from a file has its own.
    zero: 0 keeps everything on every replica, 1, 2, 3 shard the optimizer, + gradients, + parameters.
    bucket_size: MiB of gradients that are reduced at once.
    stages: how many there are; without it one per slice of 'pp', or two for the schedules that take several.
        A schedule says where each of them lives: stage s on slice s % pp, or in a V. Without one it is s % pp.
    """
    table = _table(mesh, schedule, microbatches, stages)
    count = table.microbatches if table else 1 if microbatches is None else microbatches
    strategy = Strategy(mesh).split({}, dim_name="MB", num_microbatches=count)
    places = _places(table) if table else _looped(mesh, stages)
    strategy.stages = len({filter["stage"] for filter, _ in places})
    for filter, rank in places:
        strategy.place(filter, devices={"pp": rank})
    if mesh.size > mesh.shape["pp"]:
        for filter, rank in places:
            strategy.replicate(filter, devices={"pp": rank}, bucket_size=bucket_size, **_zero(zero))
    else:
        _zero(zero)
    for row in table.rows() if table else []:
        if len(row) > 1:
            # What shares a cell is a group: its members may run in any order, or at the same time.
            strategy.order([[{"stage": s, "MB": m, "PASS": pass_} for s, m, pass_ in cell] for cell in row])
    return strategy


def _table(
    mesh: Mesh, schedule: str | Schedule | None, microbatches: int | None, stages: int | None
) -> Schedule | None:
    ranks = _extent(mesh, "pp")
    if schedule is None:
        return None
    if not isinstance(schedule, Schedule):
        return schedules.build(schedule, ranks, 1 if microbatches is None else microbatches, stages)
    for what, wanted, got in (
        ("slices of 'pp' in the mesh", ranks, schedule.ranks),
        ("microbatches", microbatches, schedule.microbatches),
        ("stages", stages, schedule.stages),
    ):
        if wanted is not None and wanted != got:
            raise UsageError(f"{schedule.name}: expected {wanted} {what}, got a schedule for {got}")
    return schedule


def _places(table: Schedule) -> list[tuple[dict[str, int], int]]:
    """Filters and the slices of 'pp' that they go to; a stage with two copies by microbatch."""
    places = []
    for stage, ranks in table.placement().items():
        if len(set(ranks.values())) == 1:
            places.append(({"stage": stage}, next(iter(ranks.values()))))
        else:
            places += [({"stage": stage, "MB": m}, rank) for m, rank in ranks.items()]
    return places


def _looped(mesh: Mesh, stages: int | None) -> list[tuple[dict[str, int], int]]:
    ranks = _extent(mesh, "pp")
    stages = ranks if stages is None else stages
    if isinstance(stages, bool) or not isinstance(stages, int) or stages < ranks:
        raise UsageError(f"expected at least one stage for each of the {ranks} slices of 'pp', got {stages!r}")
    return [({"stage": stage}, stage % ranks) for stage in range(stages)]


def data_parallel(mesh: Mesh, zero: int = 0, bucket_size: float = 25.0, microbatches: int = 1) -> Strategy:
    """The whole model on every rank of the mesh, each with its part of the rows; `zero` and `bucket_size` as in `pipeline`."""
    strategy = Strategy(mesh)
    strategy.split({}, dim_name="MB", num_microbatches=microbatches)
    strategy.replicate({}, devices=mesh.ranks(), bucket_size=bucket_size, **_zero(zero))
    return strategy


def _zero(level: int) -> dict[str, bool]:
    if level not in (0, 1, 2, 3) or isinstance(level, bool):
        raise UsageError(f"expected zero to be 0, 1, 2 or 3, got {level!r}")
    return {"shard_optimizer": level >= 1, "shard_grads": level >= 2, "shard_params": level >= 3}


def _extent(mesh: Mesh, axis: str) -> int:
    if axis not in mesh.shape:
        raise UsageError(f"expected a mesh with an axis '{axis}', got {mesh}")
    return mesh.shape[axis]
