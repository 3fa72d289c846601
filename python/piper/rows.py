# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the rows of a batch are divided over replicas, and a replica's over microbatches: both as torch.tensor_split does."""

from __future__ import annotations

from .errors import UsageError


def part_rows(rows: int, replicas: int, microbatches: int) -> list[int]:
    """The distinct numbers of rows that a microbatch of a replica has: both divisions as torch.tensor_split does.

    Raises UsageError if a part would be empty.
    """
    if rows < replicas * microbatches:
        raise UsageError(
            f"expected at least one row per microbatch: the batch has {rows} rows for {replicas} replicas x {microbatches} microbatches"
        )
    sizes = {part for replica in division(rows, replicas) for part in division(replica, microbatches)}
    if min(sizes) < 1:
        raise UsageError(
            f"expected at least one row per microbatch: {rows} rows on {replicas} replicas leave one with {min(division(rows, replicas))}"
            f" rows for {microbatches} microbatches"
        )
    return sorted(sizes, reverse=True)


def division(rows: int, parts: int) -> list[int]:
    """Rows of each part."""
    return [rows // parts + (index < rows % parts) for index in range(parts)]
