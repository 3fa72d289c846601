# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The process that lowers functions for lower.py: reads pickled FlatGraphs from standard input, writes ("ok", text) or
("error", message) to standard output.
"""

from __future__ import annotations

import os
import pickle
import sys

from .serialize import FlatGraph, unflatten


def lower(flat: FlatGraph) -> str:
    """The linalg text of a function."""
    from . import decompositions
    from .capture import decompose, decomposition_table
    from .half_precision import compute_in_float32
    from .linalg import linalg_text
    from .long_sums import make_long_sums_wide
    from .unsigned import compute_in_int64

    table = decomposition_table(decompositions.OWN, decompositions.EXTRA, decompositions.KEPT)
    module = decompose(unflatten(flat), flat.inputs, table)
    compute_in_float32(module.graph)
    make_long_sums_wide(module.graph)
    compute_in_int64(module.graph)
    return linalg_text(flat.name, module)


def main() -> None:
    import torch

    torch.set_num_threads(1)
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What libraries print must not mix with the replies.
    os.dup2(2, 1)
    while True:
        try:
            flat = pickle.load(requests)
        except EOFError:
            return
        try:
            reply = ("ok", lower(flat))
        except Exception as error:  # noqa: BLE001  (whatever torch-mlir raises is reported by the parent)
            reply = ("error", f"{type(error).__name__}: {error}")
        pickle.dump(reply, replies)
        replies.flush()


if __name__ == "__main__":
    main()
