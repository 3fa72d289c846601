# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random faults on one of four processes: the others end within the limit with code 3 and name the rank, and nothing of the job stays.

PIPER_FAULTS=200 runs as many instead of 12; PIPER_FAULTS_SEED is the first of the seeds, which the tests' names show.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import random
import re
import socket
import subprocess
import sys

import piper
import pytest
import torch
from fault_zygote import CLASSES, FEATURES, LAST_STEP, WORLD, batch
from torch import nn

HERE = pathlib.Path(__file__).parent
FIRST = int(os.environ.get("PIPER_FAULTS_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("PIPER_FAULTS", "12")))
TIMEOUT_SECONDS = 2.0
KINDS = ["kill", "stop", "raise", "kernel", "memory", "nan"]
POINTS = {
    "kill": ["start", "load", "step", "between", "close"],
    "stop": ["start", "load", "step", "between", "close"],
    "raise": ["start", "between", "close"],
    "kernel": ["step"],
    "memory": ["start", "between"],
    "nan": ["step"],
}
# Longest delay of a fault behind its point: about what loading, a step and closing take.
DELAYS = {"load": 0.2, "step": 0.01, "close": 0.01}


class Model(nn.Module):
    """Two stages, with indices that can be out of range and features that can be no numbers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(CLASSES, 16)
        self.features = nn.Linear(FEATURES, 16)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, tokens, features):
        with piper.annotate("stage"):
            x = torch.relu(self.embed(tokens) + self.features(features))
        with piper.annotate("stage"):
            return self.head(x)


def make_fault(seed: int) -> dict:
    generator = random.Random(seed)
    # Seeds that follow each other meet all kinds.
    kind = KINDS[seed % len(KINDS)]
    point = generator.choice(POINTS[kind])
    return {
        "kind": kind,
        "rank": generator.randrange(WORLD),
        "point": point,
        "step": generator.randrange(LAST_STEP),
        "delay": generator.uniform(0, DELAYS[point]) if point in DELAYS and kind in ("kill", "stop") else 0,
    }


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> pathlib.Path:
    torch.manual_seed(3)
    model = Model()
    mesh = piper.Mesh(pp=2, dp=2)
    tokens, features, target = batch()
    compiled = piper.compile(
        model,
        nn.functional.cross_entropy,
        (tokens, features, target),
        strategy=piper.strategies.pipeline(mesh, schedule="1f1b", microbatches=2),
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
    )
    folder = tmp_path_factory.mktemp("faults") / "program"
    compiled.save(folder)
    compiled.close()
    return folder


class Jobs:
    """The process that starts jobs, and the folder where anything temporary of theirs would be."""

    def __init__(self, program: pathlib.Path, temporary: pathlib.Path):
        self.temporary = temporary
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PIPER_TIMEOUT_S": str(TIMEOUT_SECONDS)}
        environment |= {"TMPDIR": str(temporary), "TORCH_CPP_LOG_LEVEL": "FATAL"}
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            environment.pop(name, None)
        command = [sys.executable, str(HERE / "fault_zygote.py"), str(program)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, fault: dict, logs: pathlib.Path, port: int | None = None) -> Outcome:
        memory = set(os.listdir("/dev/shm"))
        spec = {**fault, "port": port or free_port(), "logs": str(logs)}
        self.process.stdin.write(json.dumps(spec) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the process that starts jobs ended"
        assert set(os.listdir("/dev/shm")) <= memory
        assert not os.listdir(self.temporary)
        return Outcome(fault, json.loads(line), logs)


class Outcome:
    """How a job ended."""

    def __init__(self, fault: dict, result: dict, logs: pathlib.Path):
        self.codes = result["codes"]
        self.hung = result["hung"]
        self.stderr = [(logs / f"stderr{rank}").read_text() for rank in range(WORLD)]
        losses = [logs / f"losses{rank}" for rank in range(WORLD)]
        self.losses = [json.loads(path.read_text()) if path.exists() else None for path in losses]
        self.text = "\n".join(
            [str(fault), str(result), *(f"rank {rank}: {self.stderr[rank]}" for rank in range(WORLD))]
        )


@pytest.fixture(scope="module")
def jobs(program, tmp_path_factory) -> Jobs:
    result = Jobs(program, tmp_path_factory.mktemp("temporary"))
    yield result
    result.process.stdin.close()
    result.process.wait(timeout=20)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fault_ends_the_job_and_nothing_stays(seed, jobs, tmp_path):
    fault = make_fault(seed)
    outcome = jobs.run(fault, tmp_path)
    assert not outcome.hung, outcome.text
    others = [rank for rank in range(WORLD) if rank != fault["rank"]]
    if fault["kind"] == "nan":
        assert outcome.codes == [0] * WORLD, outcome.text
        for losses in outcome.losses:
            # From that step on: the update has spread it.
            assert [math.isnan(loss) for loss in losses] == [step >= fault["step"] for step in range(LAST_STEP)]
        return
    if fault["point"] == "close":
        # Who needs nothing more of the rank may end in order.
        assert set(outcome.codes[rank] for rank in others) <= {0, 3}, outcome.text
    else:
        assert [outcome.codes[rank] for rank in others] == [3, 3, 3], outcome.text
    for rank in others:
        if outcome.codes[rank] == 3:
            lines = [line for line in outcome.stderr[rank].splitlines() if line.startswith("piper:")]
            assert len(lines) == 1 and re.search(rf"\brank {fault['rank']}\b", lines[0]), outcome.text
            assert "Traceback" not in outcome.stderr[rank], outcome.text
    # What was stopped and goes on finds that the others are gone.
    expected = {"kill": [-9], "stop": [3], "raise": [1], "kernel": [1], "memory": [1, 2]}[fault["kind"]]
    if fault["point"] == "close":
        expected = [*expected, 0]
    assert outcome.codes[fault["rank"]] in expected, outcome.text


def test_without_a_fault_all_ranks_train(jobs, tmp_path):
    outcome = jobs.run({"kind": "none", "rank": 0, "point": "none", "step": 0, "delay": 0}, tmp_path)
    assert outcome.codes == [0] * WORLD, outcome.text
    assert all(losses == outcome.losses[0] and losses[-1] < losses[0] for losses in outcome.losses), outcome.text


def test_a_port_in_use_is_said(jobs, tmp_path):
    """Somebody else listens where the ranks are told to meet, and does not answer."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        port = listener.getsockname()[1]
        outcome = jobs.run({"kind": "none", "rank": 0, "point": "none", "step": 0, "delay": 0}, tmp_path, port)
    assert not outcome.hung, outcome.text
    assert outcome.codes == [1, 3, 3, 3], outcome.text
    assert f"127.0.0.1:{port}" in outcome.stderr[0], outcome.text
