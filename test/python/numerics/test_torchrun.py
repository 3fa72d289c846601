# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same compositions with every rank a process of its own, started by torchrun."""

from __future__ import annotations

import functools
import pathlib
import subprocess
import sys

import language_model as lm
import piper
import pytest
import reference
import torch
from compositions import COMPOSITIONS

HERE = pathlib.Path(__file__).parent
# All run as threads (test_language_model.py); what processes do otherwise is how bytes travel: each collective in small and large buckets, each shape of pipeline.
CHOSEN = [
    "dp2-zero0",
    "dp2-zero1-small",
    "dp2-zero2",
    "dp2-zero3-small",
    "pp2-gpipe-mb3",
    "pp2-1f1b-rows10",
    "pp2-v-mb5",
    "pp2-zbv-mb4",
    "dp2-rows7-zero3",
    "dp4-zero0-small",
    "dp4-zero3",
    "pp4-1f1b-mb8",
    "pp2dp2-interleaved-zero3",
    "pp2dp2-dualpipe-zero2",
]
BY_RANKS = {ranks: [str(c) for c in COMPOSITIONS if c.ranks == ranks and str(c) in CHOSEN] for ranks in (2, 4)}
assert sorted(CHOSEN) == sorted(BY_RANKS[2] + BY_RANKS[4])


# 37 rows: each replica has another number of them (19 and 18), and so have its eight microbatches (3 and 2).
RAGGED = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 12), nn.Tanh()) for _ in range(4)]
    return nn.Sequential(*layers), nn.functional.mse_loss, [(torch.randn(37, 12), torch.randn(37, 12)) for _ in range(2)]

def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
"""


def torchrun(ranks: int, *arguments: str | pathlib.Path, timeout: float = 900) -> subprocess.CompletedProcess:
    """Runs a script, or a module after "-m", under torchrun on a free port of this machine."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
        *map(str, arguments),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=HERE)


@pytest.fixture(scope="module", params=(2, 4))
def results(request, tmp_path_factory):
    ranks = request.param
    folder = tmp_path_factory.mktemp(f"torchrun{ranks}")
    done = torchrun(ranks, HERE / "torchrun_worker.py", str(folder), *BY_RANKS[ranks])
    assert done.returncode == 0, done.stderr[-4000:]
    return ranks, {name: [torch.load(folder / f"{name}.{r}.pt") for r in range(ranks)] for name in BY_RANKS[ranks]}


def test_gradients_updates_and_replicas(results):
    ranks, by_name = results
    make = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    expected = {}
    failures = []
    for name, outcomes in by_name.items():
        rows = next(c.rows for c in COMPOSITIONS if str(c) == name)
        if rows not in expected:
            batches = lm.batches(5, rows, seed=2)
            expected[rows] = (
                reference.gradients(lm.build(), lm.loss_fn, *batches[0]),
                reference.train(lm.build(), lm.loss_fn, batches, make),
            )
        (_, gradients), (losses, parameters) = expected[rows]
        error, worst = reference.worst_gradient_error(outcomes[0]["gradients"], gradients)
        if error > 1e-5:
            failures.append(f"{name}: gradient of {worst} off by {error:.2e}")
        if outcomes[0]["losses"] != pytest.approx(losses, rel=1e-5):
            failures.append(f"{name}: losses {outcomes[0]['losses']}, expected {losses}")
        for key, value in parameters.items():
            off = float((outcomes[0]["state"][key] - value).abs().max() / value.abs().max())
            if off > 1e-5:
                failures.append(f"{name}: {key} off by {off:.2e} after 5 steps")
        if len({o["digest"] for o in outcomes}) != 1 or any(o["losses"] != outcomes[0]["losses"] for o in outcomes):
            failures.append(f"{name}: ranks disagree")
    assert not failures, "\n".join(failures)


def test_every_schedule_with_every_zero_level(tmp_path):
    file = tmp_path / "ragged.py"
    file.write_text(RAGGED)
    options = ("--mesh", "pp=2,dp=2", "--microbatches", "8", "--steps", "2")
    done = torchrun(4, "-m", "piper.cli", "verify", file, "--all", *options)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    _, *rows, summary = done.stdout.splitlines()
    wanted = [(name, str(zero)) for name in piper.schedules.names() for zero in range(4)]
    assert [(row.split()[0], row.split()[2]) for row in rows] == wanted
    assert all(row.endswith("ok") for row in rows)
    assert summary == "40 of 40 equal to PyTorch"
