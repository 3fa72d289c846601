# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the processes of a job find each other: through torch's key-value store, at the address that torchrun or the user put in the environment."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from .errors import RankLostError, UsageError

if TYPE_CHECKING:
    from torch.distributed import Store

# One store per process and one number per meeting, so that several programs of one process do not collide.
_store: Store | None = None
_meetings = 0

_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Process:
    """This process's place in a job: its rank, and how many there are."""

    rank: int
    world_size: int


def process_from_environment(environment: Mapping[str, str] = os.environ) -> Process | None:
    """The place that RANK and WORLD_SIZE give, or None if neither is set. Raises UsageError if they make no sense."""
    if "RANK" not in environment and "WORLD_SIZE" not in environment:
        return None
    values = {}
    for name in ("RANK", "WORLD_SIZE"):
        text = environment.get(name)
        if text is None:
            raise UsageError(f"expected {name} in the environment beside RANK or WORLD_SIZE")
        if not text.isdecimal():
            raise UsageError(f"expected a number as {name}, got {text!r}")
        values[name] = int(text)
    if values["RANK"] >= values["WORLD_SIZE"]:
        raise UsageError(f"expected RANK below WORLD_SIZE = {values['WORLD_SIZE']}, got {values['RANK']}")
    return Process(values["RANK"], values["WORLD_SIZE"])


def meet(process: Process, handles: Sequence[str], connect: Callable[[Sequence[str]], None], timeout: float) -> None:
    """Exchanges the handles of all processes' ranks, calls `connect` with all of them, and returns when every process has.

    Raises RankLostError if a process ends meanwhile or does not come within `timeout` seconds.
    """
    global _meetings
    store = _open_store(process, timeout)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefix = f"piper/{attempt}/{_meetings}"
    _meetings += 1
    deadline = time.monotonic() + timeout
    store.set(f"{prefix}/handle/{process.rank}", "\n".join(handles))
    known: list[str] = []
    for rank in range(process.world_size):
        _await_key(store, f"{prefix}/handle/{rank}", known, deadline, f"rank {rank} did not come")
        known += store.get(f"{prefix}/handle/{rank}").decode().split("\n")
    connect(known)
    store.set(f"{prefix}/ready/{process.rank}", "")
    for rank in range(process.world_size):
        _await_key(store, f"{prefix}/ready/{rank}", known, deadline, f"rank {rank} did not get ready")


def _open_store(process: Process, timeout: float) -> Store:
    global _store
    if _store is not None:
        return _store
    from torch.distributed import TCPStore

    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise UsageError(f"expected {name} in the environment beside RANK and WORLD_SIZE")
    host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"expected a port from 1 to 65535 as MASTER_PORT, got {port!r}")
    # torchrun's agent serves a store already; otherwise rank 0 does, and shares the port with torch.distributed.
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        _store = TCPStore(
            host,
            int(port),
            is_master=process.rank == 0 and not served,
            timeout=timedelta(seconds=timeout),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"rank {process.rank} cannot meet the others at {host}:{port}: {reason}") from None
    return _store


def _await_key(store: Store, key: str, known: Sequence[str], deadline: float, failure: str) -> None:
    while not store.check([key]):
        for handle in known:
            rank, pid = handle.split()[:2]
            if not os.path.exists(f"/proc/{pid}"):
                raise RankLostError(f"rank {rank} (process {pid}) ended while the ranks met")
        if time.monotonic() > deadline:
            raise RankLostError(f"{failure} within the time limit")
        time.sleep(_POLL_SECONDS)
