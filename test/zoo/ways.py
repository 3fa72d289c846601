# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ways in which each model is trained."""

from __future__ import annotations

import piper

#: Replicas and microbatches of each.
PARTS = {"one": (1, 1), "dp2": (2, 1), "pp2": (1, 4), "pp2xdp2": (2, 4)}


def strategy(way: str) -> piper.Strategy | None:
    """One rank; two replicas; two stages with 1F1B; both, with ZeRO-3."""
    if way == "one":
        return None
    if way == "dp2":
        return piper.strategies.data_parallel(piper.Mesh(dp=2))
    if way == "pp2":
        return piper.strategies.pipeline(piper.Mesh(pp=2), schedule="1f1b", microbatches=4)
    return piper.strategies.pipeline(piper.Mesh(pp=2, dp=2), schedule="1f1b", microbatches=4, zero=3)
