# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of a torchrun job: gradients and five SGD steps of the compositions named on the command line."""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import sys

import language_model as lm
import torch
from compositions import COMPOSITIONS


def main(folder: pathlib.Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    for name in names:
        composition = next(c for c in COMPOSITIONS if str(c) == name)
        batches = lm.batches(5, composition.rows, seed=2)
        program = composition.compile(*batches[0], functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9))
        gradients = program.gradients(*batches[0])
        losses = [float(program.step(x, target=y)) for x, y in batches]
        state = program.state_dict()
        digest = hashlib.sha256(b"".join(state[k].numpy().tobytes() for k in sorted(state))).hexdigest()
        torch.save(
            dict(gradients=gradients, losses=losses, digest=digest, state=state if rank == 0 else None),
            folder / f"{name}.{rank}.pt",
        )
        program.close()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
