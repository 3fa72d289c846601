# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One rank of test_execution.py's jobs of several processes: python execution_worker.py FOLDER ACTION [RANK [STEP]].

Every rank adds a row of the input up over all ranks, then the ranks pass a message around. ACTION says what RANK does in step STEP: "raise", "exit" or "none";
with "fail", a kernel of rank 2 fails; with "sleep", all ranks sleep after the first run. FOLDER holds kernels.o; each rank leaves its pid, and its results if it gets that far.
"""

import os
import pathlib
import sys
import time

import torch
from piper.execution import Execution
from plan_builder import Action, Plan, RankClass, address, collective, when_set

WORLD = 4
ROW = 64


def plan() -> bytes:
    def arena(offset: int) -> tuple:
        return address("arena", offset)

    bytes_per_row = 4 * ROW
    classes = []
    for rank in range(WORLD):
        following, previous = rank, (rank - 1) % WORLD
        compute = [
            Action("launch", [address("input", rank * bytes_per_row), arena(0)], [0], f"F rank={rank}"),
            Action("launch", [], [1], "pause"),
            *([Action("launch", [], [2], "bad lookup", when_set(0))] if rank == 2 else []),
            collective("all_reduce", WORLD, arena(0), arena(0), ROW, label="reduce rows"),
            Action("copy", [address("state", 0), arena(0)], [bytes_per_row]),
            Action("record", [], [0]),
        ]
        communicate = [
            Action("wait", [], [0]),
            Action("send", [arena(0)], [following, bytes_per_row], "pass on"),
            Action("recv", [arena(1024)], [previous, bytes_per_row], "pass on"),
        ]
        classes.append(RankClass([rank], {"step": [compute, communicate]}, ["compute", "comm"], events=1))
    channels = [(f"channel{rank}", [[rank, (rank + 1) % WORLD]]) for rank in range(WORLD)]
    shard = [(rank, "state", 0, 0, ROW, -1, 0) for rank in range(WORLD)]
    return Plan(
        WORLD,
        classes,
        flags=["fail"],
        kernels=[("double_it", 0, [bytes_per_row, bytes_per_row]), ("pause", 0, []), ("fail", 0, [])],
        communicators=[*channels, ("all", [list(range(WORLD))])],
        states=[("total", "parameter", "f32", [ROW], shard)],
        inputs=[("x", "f32", bytes_per_row, WORLD)],
        outputs=[("total", "f32", rank, arena(0), [ROW]) for rank in range(WORLD)]
        + [("passed", "f32", rank, arena(1024), [ROW]) for rank in range(WORLD)],
    ).encode()


def main() -> None:
    folder, action = pathlib.Path(sys.argv[1]), sys.argv[2]
    victim, step = (int(value) for value in (sys.argv[3:5] + ["-1", "-1"])[:2])
    rank = int(os.environ["RANK"])
    execution = Execution(plan(), {"kernels": (folder / "kernels.o").read_bytes()})
    steps = int(os.environ.get("STEPS", "5"))
    x = torch.arange(WORLD * ROW, dtype=torch.float32).reshape(WORLD, ROW)
    total = None
    for number in range(steps):
        flags = set()
        if rank == victim and number == step:
            if action == "raise":
                raise ValueError("boom in the\ndata iterator")
            if action == "exit":
                sys.exit(0)
        if action == "fail" and number == step:
            flags = {"fail"}
        total = execution.run("step", flags, {"x": x if number % 2 else x[rank : rank + 1]}, first_row=rank)["total"]
        # The pid appears once the ranks have met and run.
        (folder / f"pid{rank}").write_text(str(os.getpid()))
        if action == "sleep":
            time.sleep(60)
    assert torch.equal(execution.read_state("total"), total)
    execution.write_state("total", total + 1)
    assert torch.equal(execution.read_state("total"), total + 1)
    torch.save(total, folder / f"total{rank}.pt")
    # A second program in the same processes finds its own peers.
    second = Execution(plan(), {"kernels": (folder / "kernels.o").read_bytes()})
    assert torch.equal(second.run("step", (), [x])["total"], total)
    second.close()


main()
