# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Jobs of four ranks that are not alike, for test_ranks.py: python ranks_worker.py, with one job per line of stdin as JSON.

A job is {"name", "port", "folder", "program"}: the function of that name runs on each rank, a process forked from this one, and leaves what it returns in folder/<rank>.json and
standard error in folder/stderr<rank>. Prints the ranks' exit codes as JSON when all have ended.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable

import piper
import torch
from piper import agreement
from piper.broadcast import WINDOW_BYTES, from_rank_0
from torch import nn
from torch.nn import functional as F

# Everything that compiling and meeting import.
import piper.compiler  # isort: skip
import torch.distributed  # isort: skip

WORLD, ROWS, FEATURES, CLASSES = 4, 8, 6, 10
LIMIT_SECONDS = 150.0


class Model(nn.Module):
    """Two stages. `extra` layers are part of the model, and not of what it computes."""

    def __init__(self, extra: int = 0):
        super().__init__()
        self.first = nn.Linear(FEATURES, 4)
        self.second = nn.Linear(4, CLASSES)
        self.register_buffer("scale", torch.ones(FEATURES))
        self.extra = nn.ModuleList(nn.Linear(2, 2).requires_grad_(False) for _ in range(extra))

    def forward(self, x):
        with piper.annotate("stage"):
            x = torch.tanh(self.first(x * self.scale))
        with piper.annotate("stage"):
            return self.second(x)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(ROWS, FEATURES, generator=generator), torch.arange(ROWS) % CLASSES


def make(
    seed: int = 3,
    *,
    extra: int = 0,
    scale: float = 1.0,
    optimizing: Callable | None = None,
    zero: int = 0,
    loss=F.cross_entropy,
    **options,
):
    """A program on pp=2, dp=2 and its model and optimizer; optimizing=False: none."""
    torch.manual_seed(seed)
    model = Model(extra)
    model.scale *= scale
    optimizing = optimizing or (lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))
    optimizer = optimizing([p for p in model.parameters() if p.requires_grad])
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2, dp=2), schedule="gpipe", microbatches=1, zero=zero)
    program = piper.compile(model, loss, batch(), strategy=strategy, optimizer=optimizer, **options)
    return program, model, optimizer


class Log:
    """What became of each attempt: ["ok", value] or [the error's type, its message]."""

    def __init__(self):
        self.results: dict[str, list] = {}
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, attempt: Callable) -> None:
        begin = time.monotonic()
        try:
            self.results[name] = ["ok", attempt()]
        except Exception as error:
            self.results[name] = [type(error).__name__, str(error)]
        self.seconds[name] = time.monotonic() - begin


def calls(rank: int, spec: dict) -> dict:
    """Calls that differ in something. Where ranks compare before a run ("before") one program serves for all; "meanwhile" each takes a new one."""
    agreement._LONG_SECONDS = 0 if spec["compare"] == "before" else math.inf
    program = None
    log = Log()
    x, y = batch()
    part = rank % 2
    own = slice(part * ROWS // 2, (part + 1) * ROWS // 2)

    def attempt(name: str, call: Callable) -> None:
        nonlocal program
        if program is None or spec["compare"] == "meanwhile":
            program = piper.load(spec["program"])
        if spec["compare"] == "meanwhile":
            # The first run is not compared meanwhile.
            program.evaluate(x, y)
        log(name, lambda: call(program))
        if (
            spec["compare"] == "meanwhile"
            and log.results[name][0] == "RanksDifferError"
            and "no more" in log.results[name][1]
        ):
            log(f"after {name}", lambda: program.evaluate(x, y).item())

    def with_options(program: piper.Program, other: int, **options):
        group = program.param_groups[0]
        before = {name: group[name] for name in options}
        if rank == other:
            group.update(options)
        try:
            return program.step(x, y).item()
        finally:
            group.update(before)

    attempt("step", lambda p: p.step(x, y).item())
    attempt("evaluate", lambda p: (p.evaluate if rank == 0 else p.step)(x, y).item())
    attempt("gradients", lambda p: len((p.gradients if rank == 2 else p.evaluate)(x, y)))
    attempt("state_dict", lambda p: len(p.state_dict()) if rank == 0 else p.step(x, y).item())
    attempt("save", lambda p: p.save(spec["folder"] + "/saved") if rank == 0 else p.evaluate(x, y).item())
    attempt("lr", lambda p: with_options(p, 1, lr=0.2))
    attempt("weight_decay", lambda p: with_options(p, 3, weight_decay=0.01))
    attempt("momentum", lambda p: with_options(p, 0, momentum=0.8))
    attempt("update", lambda p: p.step(x, y, update=rank != 2).item())
    attempt("local", lambda p: (p.step(x, y) if rank < 2 else p.step(x[own], y[own], local=True)).item())
    attempt("input", lambda p: p.step(x + (rank == 3), y).item())
    attempt("shuffled", lambda p: p.step(x, y.roll(rank)).item())
    # Ranks 0 and 2 have the same rows, and so have 1 and 3: a sampler that goes by rank gives each its own.
    attempt("sampler", lambda p: p.step(x[own], (y + (rank == 2))[own], local=True).item())
    attempt("refused", lambda p: p.step(*((x[:5], y[:5]) if rank == 1 else (x, y))).item())
    attempt("refused by all", lambda p: p.step(x[:5], y[:5]).item())
    state, moments = program.state_dict(), program.optimizer_state_dict()
    other = {name: value + (name == "scale") for name, value in state.items()}
    attempt("load", lambda p: p.load_state_dict(state if rank else other))
    attempt("moments", lambda p: p.load_optimizer_state_dict({**moments, "steps": {"group0": 1 + (rank == 1)}}))
    # What is the same on all ranks is no error.
    attempt("alike", lambda p: [p.load_state_dict(state), p.load_optimizer_state_dict(moments)])
    attempt("local step", lambda p: p.step(x[own], y[own], local=True).item())
    attempt("accumulated", lambda p: [p.step(x, y, update=update).item() for update in (False, True)])
    attempt("last", lambda p: p.evaluate(x, y).item())
    return {"results": log.results, "seconds": log.seconds}


def programs(rank: int, spec: dict) -> dict:
    """Programs that are not those of the other ranks, one after the other."""
    log = Log()

    def begin(*args, **options):
        make(*args, **options)[0].close()

    adamw = torch.optim.AdamW
    log("seed", lambda: begin(rank // 2))
    log("buffer", lambda: begin(scale=1.0 + (rank == 3)))
    log("sync on one", lambda: begin(rank, sync_parameters=rank == 0))
    log("layers", lambda: begin(extra=rank == 1))
    log("rule", lambda: begin(optimizing=adamw if rank == 2 else None))
    log("zero", lambda: begin(zero=int(rank == 0)))
    log("loss", lambda: begin(loss=halved if rank == 3 else F.cross_entropy))
    log("saved state", lambda: piper.load(spec["program"] + ("2" if rank == 1 else "")).close())
    return {"results": log.results, "seconds": log.seconds}


def absent(rank: int, spec: dict) -> dict:
    """Mistakes of one rank alone, before the ranks meet. What others made of the store is there by then."""
    log = Log()
    log("meet", lambda: piper.load(spec["program"]).close())
    log("mesh", lambda: piper.load(spec["program"]) if rank else piper.compile(Model(), F.cross_entropy, batch()))
    log("folder", lambda: piper.load(spec["program"] if rank != 1 else spec["folder"] + "/nothing"))
    log("meet again", lambda: piper.load(spec["program"]).close())
    return {"results": log.results, "seconds": log.seconds}


def sent(rank: int, spec: dict) -> dict:
    """Rank 0's tensors."""
    log = Log()

    def start() -> list:
        program, model, _ = make(rank, sync_parameters=True)
        sample = torch.rand(1).item()
        states = [{name: value.tolist() for name, value in holder.state_dict().items()} for holder in (program, model)]
        program.close()
        return [*states, sample]

    def broadcast() -> bool:
        def tensors(seed: int) -> dict[str, torch.Tensor]:
            large = torch.arange(WINDOW_BYTES // 4 + 5, dtype=torch.float32) + seed
            small = {"scalar": torch.tensor(seed), "empty": torch.empty(0, 3), "bool": torch.tensor([seed == 0])}
            return {"half": torch.full((3,), float(seed), dtype=torch.bfloat16), "large": large, **small}

        program = piper.load(spec["program"])
        got, expected = from_rank_0(program._execution, tensors(rank)), tensors(0)
        program.close()
        return all(torch.equal(got[name], value) and got[name].dtype == value.dtype for name, value in expected.items())

    log("program", start)
    log("broadcast", broadcast)
    return {"results": log.results, "seconds": log.seconds}


def halved(output, target):
    return F.cross_entropy(output * 0.5, target)


def uncaught(rank: int, spec: dict) -> None:
    """Nobody catches the error."""
    program = piper.load(spec["program"])
    program.step(*batch())
    if rank == 0:
        program.state_dict()
    program.step(*batch())


def leaves(rank: int, spec: dict) -> None:
    """The others go on when rank 1 has ended in order."""
    program = piper.load(spec["program"])
    program.step(*batch())
    if rank != 1:
        program.state_dict()


def sleeps(rank: int, spec: dict) -> None:
    """The others wait for rank 1 until the time is over."""
    program = piper.load(spec["program"])
    if rank == 1:
        time.sleep(20)
    program.step(*batch())


def run_rank(spec: dict, rank: int) -> None:
    place = {"RANK": rank, "WORLD_SIZE": WORLD, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": spec["port"]}
    os.environ.update({name: str(value) for name, value in place.items()})
    os.environ["PIPER_TIMEOUT_S"] = str(spec.get("timeout", 100))
    folder = pathlib.Path(spec["folder"])
    os.dup2(os.open(folder / f"stderr{rank}", os.O_CREAT | os.O_WRONLY, 0o600), 2)
    result = globals()[spec["name"]](rank, spec)
    (folder / f"{rank}.json").write_text(json.dumps(result))


def main() -> None:
    """Forks the ranks of each job; a child leaves through the end of the script, as any script does."""
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        program, _, _ = make()
        program.save(sys.argv[1])
        program.step(*batch())
        program.save(sys.argv[1] + "2")
        program.close()
        print("saved", flush=True)
    for line in sys.stdin:
        spec = json.loads(line)
        pids = []
        for rank in range(WORLD):
            pid = os.fork()
            if pid == 0:
                return run_rank(spec, rank)
            pids.append(pid)
        print(json.dumps(supervise(pids)), flush=True)


def supervise(pids: list[int]) -> list[int]:
    """The exit codes; what hangs is killed."""
    codes: dict[int, int] = {}
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(codes) < WORLD:
        for rank, pid in enumerate(pids):
            if rank not in codes:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    codes[rank] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    return [codes[rank] for rank in range(WORLD)]


if __name__ == "__main__":
    main()
