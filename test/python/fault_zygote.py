# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs jobs of four ranks, one of which meets with a fault: python fault_zygote.py PROGRAM, with one fault per line of stdin as JSON.

Every rank is a process forked from this one, which has imported everything before: jobs begin within milliseconds. For each job prints one line of JSON: the
ranks' exit codes, the seconds that they took, and what hung.

A fault is {"kind", "rank", "point", "step", "delay", "port", "logs"}. Points: "start" (before the program is loaded), "load" (`delay` seconds after that begins,
the ranks' meeting included), "step" (`delay` seconds after step `step` begins), "between" (before step `step`), "close" (as "load", for closing).
"""

from __future__ import annotations

import json
import os
import pathlib
import resource
import signal
import sys
import threading
import time

import piper
import torch

# Everything that loading imports.
import piper.program  # isort: skip
import torch.distributed  # isort: skip

WORLD = 4
ROWS, FEATURES, CLASSES = 8, 6, 10
LAST_STEP = 4
LIMIT_SECONDS = 30.0


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, features and target of the model that test_faults.py compiles."""
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(CLASSES, (ROWS,), generator=generator)
    return tokens, torch.randn(ROWS, FEATURES, generator=generator), (tokens * 3) % CLASSES


class Fault:
    """What happens to this process, and when."""

    def __init__(self, spec: dict, rank: int):
        self.spec = spec
        self.concerns_me = spec["rank"] == rank

    def at(self, point: str, step: int = 0) -> None:
        spec = self.spec
        if not self.concerns_me or spec["point"] != point or (point in ("step", "between") and spec["step"] != step):
            return
        if spec["kind"] in ("kill", "stop"):
            number = signal.SIGKILL if spec["kind"] == "kill" else signal.SIGSTOP
            if spec["delay"] > 0:
                timer = threading.Timer(spec["delay"], os.kill, (os.getpid(), number))
                timer.daemon = True
                timer.start()
            else:
                os.kill(os.getpid(), number)
        elif spec["kind"] == "raise":
            raise ValueError("boom")
        elif spec["kind"] == "memory":
            size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (size + 65536, size + 65536))

    def change(self, step: int, tensors: tuple) -> tuple:
        """The batch of a step, the same on all ranks: the rank's kernels find an index out of range, or everybody gets a NaN."""
        tokens, features, target = tensors
        if self.spec["step"] == step and self.spec["kind"] == "kernel":
            # Stage 0 reads tokens, stage 1 the target; each replica half of the rows.
            stage, replica = divmod(self.spec["rank"], 2)
            wrong = torch.arange(ROWS) // (ROWS // 2) == replica
            bad = (target if stage else tokens).masked_fill(wrong, 10**6)
            return (tokens, features, bad) if stage else (bad, features, target)
        if self.spec["step"] == step and self.spec["kind"] == "nan":
            return tokens, torch.full_like(features, float("nan")), target
        return tensors


def run_rank(folder: str, spec: dict, rank: int) -> None:
    """A training script: loads, takes steps, closes."""
    place = {"RANK": rank, "WORLD_SIZE": WORLD, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": spec["port"]}
    os.environ.update({name: str(value) for name, value in place.items()})
    log = os.open(pathlib.Path(spec["logs"], f"stderr{rank}"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    os.dup2(log, 2)
    fault = Fault(spec, rank)
    fault.at("start")
    fault.at("load")
    program = piper.load(folder)
    losses, leak = [], []
    # What ends a job is to end it; the others go on until they notice.
    last = LAST_STEP if spec["point"] == "close" or spec["kind"] in ("nan", "none") else 10**9
    step = 0
    while step < last:
        fault.at("between", step)
        fault.at("step", step)
        tokens, features, target = fault.change(step, batch())
        if spec["kind"] == "memory":
            leak.append(torch.ones(1 << 18))
        losses.append(float(program.step(tokens, features, target=target)))
        del losses[:-LAST_STEP]
        step += 1
    fault.at("close")
    program.close()
    pathlib.Path(spec["logs"], f"losses{rank}").write_text(json.dumps(losses))


def supervise(pids: list[int], spec: dict) -> dict:
    """Waits for all ranks; one that was stopped goes on when the others have ended."""
    codes: dict[int, int] = {}
    seconds: dict[int, float] = {}
    hung: list[int] = []
    begin, deadline = time.monotonic(), time.monotonic() + LIMIT_SECONDS
    others = [rank for rank in range(WORLD) if spec["kind"] != "stop" or rank != spec["rank"]]
    while len(codes) < WORLD:
        for rank, pid in enumerate(pids):
            if rank in codes:
                continue
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[rank] = os.waitstatus_to_exitcode(status)
                seconds[rank] = round(time.monotonic() - begin, 2)
        if all(rank in codes for rank in others) and len(others) < WORLD:
            others = list(range(WORLD))
            deadline = time.monotonic() + LIMIT_SECONDS
            os.kill(pids[spec["rank"]], signal.SIGCONT)
        if time.monotonic() > deadline:
            hung += [rank for rank in range(WORLD) if rank not in codes]
            for rank in hung:
                os.kill(pids[rank], signal.SIGKILL)
            deadline = float("inf")
        time.sleep(0.002)
    return {"codes": [codes[rank] for rank in range(WORLD)], "seconds": seconds, "hung": hung}


def main() -> None:
    """Forks the ranks of each job; a child leaves through the end of the script, as any script does."""
    for line in sys.stdin:
        spec = json.loads(line)
        pids = []
        for rank in range(WORLD):
            pid = os.fork()
            if pid == 0:
                return run_rank(sys.argv[1], spec, rank)
            pids.append(pid)
        print(json.dumps(supervise(pids, spec)), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
