# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ready-made strategies. They only call the directives that a user could write by hand."""

from __future__ import annotations

from . import schedules
from .directives import Strategy
from .errors import UsageError
from .mesh import Mesh


def pipeline(
    mesh: Mesh, schedule: str | None = "1f1b", microbatches: int = 1, zero: int = 0, bucket_size: float = 25.0
) -> Strategy:
    """Pipeline parallelism over axis 'pp' (stage i, by the tag "stage", on slice i), replicated over the other axes.

    schedule: "1f1b", "gpipe", or None to leave the order to the compiler's list scheduler.
    microbatches: parts of each replica's rows; any number from 1.
    zero: 0 keeps everything on every replica, 1, 2, 3 shard the optimizer, + gradients, + parameters.
    bucket_size: MiB of gradients that are reduced at once.
    """
    stages = _extent(mesh, "pp")
    order = schedules.by_name(schedule)(stages, microbatches) if schedule is not None else []
    strategy = Strategy(mesh).split({}, dim_name="MB", num_microbatches=microbatches)
    for stage in range(stages):
        strategy.place({"stage": stage}, devices={"pp": stage})
    if mesh.size > stages:
        for stage in range(stages):
            strategy.replicate({"stage": stage}, devices={"pp": stage}, bucket_size=bucket_size, **_zero(zero))
    for actions in order:
        if len(actions) > 1:
            strategy.order([[{"stage": stage, "MB": m, "PASS": pass_}] for stage, m, pass_ in actions])
    return strategy


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
