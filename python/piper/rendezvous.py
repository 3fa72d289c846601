# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the processes of a job find each other: through torch's key-value store, at the address that torchrun or the user put in the environment."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from .agreement import Fact, decode, difference, encode
from .errors import PiperError, RankLostError, RanksDifferError, UsageError

if TYPE_CHECKING:
    from torch.distributed import Store

# One store per process and one number per meeting, so that several programs of one process do not collide.
_store: Store | None = None
_meetings = 0

_POLL_SECONDS = 0.01
# A store answers within this time.
_ANSWER_SECONDS = 1.0

# Threads that may still be in a call of the store.
_asking: list[threading.Thread] = []


def _in_background(work: Callable[[], None]) -> None:
    """Runs what may never return, such as a call of a store that does not answer."""
    _asking[:] = [thread for thread in _asking if thread.is_alive()]
    _asking.append(threading.Thread(target=work, daemon=True, name="rendezvous"))
    _asking[-1].start()


@atexit.register
def _await_answers() -> None:
    """A call that returns while the interpreter ends would abort the process, so those that are about to return may do so first."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    for thread in _asking:
        thread.join(max(deadline - time.monotonic(), 0))


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


def meet(
    process: Process,
    handles: Sequence[str],
    connect: Callable[[Sequence[str]], None],
    timeout: float,
    facts: Sequence[Fact] = (),
) -> None:
    """Exchanges the handles of all processes' ranks, calls `connect` with all of them, and returns when every process has.

    facts: what all processes are to have in common. Raises RanksDifferError, in all of them, where they have not.
    Raises RankLostError if a process ends meanwhile or does not come within `timeout` seconds, UsageError if another process has this one's rank, or if this is
    the process that the others are to meet at and it cannot listen there.
    """
    global _meetings
    address = _address()
    prefix = _prefix()
    _meetings += 1
    deadline = time.monotonic() + timeout
    known: list[str] = []
    own = encode(facts)

    def exchange() -> None:
        store = _open_store(process, address, prefix, deadline)
        store.set(f"{prefix}/facts/{process.rank}", own)
        store.set(f"{prefix}/digest/{process.rank}", hashlib.sha256(own.encode()).hexdigest())
        _claim(store, process, prefix, "\n".join(handles))
        for rank in range(process.world_size):
            _await_key(store, f"{prefix}/handle/{rank}", known, deadline, f"rank {rank} did not come")
            known.extend(store.get(f"{prefix}/handle/{rank}").decode().split("\n"))
        if len({store.get(f"{prefix}/digest/{rank}") for rank in range(process.world_size)}) > 1:
            _raise_difference(store, process, prefix, known, deadline)

    def await_others() -> None:
        _store.set(f"{prefix}/ready/{process.rank}", "")
        for rank in range(process.world_size):
            _await_key(_store, f"{prefix}/ready/{rank}", known, deadline, f"rank {rank} did not get ready")

    _ask_store(exchange, address, deadline)
    connect(known)
    _ask_store(await_others, address, deadline)


@contextlib.contextmanager
def on_the_way() -> Iterator[None]:
    """What leads to the next meeting. Where it fails the other processes, which wait there, hear of it, if the store is there by then."""
    number = _meetings
    try:
        yield
    except Exception as error:
        if number == _meetings and not getattr(error, "raised_on_all_ranks", False):
            _give_up(error)
        raise


def _give_up(error: Exception) -> None:
    global _meetings
    try:
        process = process_from_environment()
        if process is None or process.world_size == 1 or (_store is None and not _is_served()):
            return
        store = _open_store(process, _address(), "", time.monotonic() + _ANSWER_SECONDS)
        message = f"rank {process.rank} does not come: {type(error).__name__}: {error}"
        store.set(f"{_prefix()}/gone/{process.rank}", message)
    except (RuntimeError, PiperError):
        # The others find out later.
        return
    # They have met without this one.
    _meetings += 1
    error.raised_on_all_ranks = True


def _prefix() -> str:
    return f"piper/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{_meetings}"


def _address() -> tuple[str, int]:
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise UsageError(f"expected {name} in the environment beside RANK and WORLD_SIZE")
    host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    if not port.isdecimal():
        raise UsageError(f"expected a number as MASTER_PORT, got {port!r}")
    return host, int(port)


def _is_served() -> bool:
    """torchrun's agent serves a store already; otherwise rank 0 does, and shares the port with torch.distributed."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def check_world_size(expected: int) -> Process | None:
    """This process's place in a job, if it is part of one. Raises UsageError unless that has `expected` ranks."""
    process = process_from_environment()
    if process is not None and process.world_size != expected:
        raise UsageError(
            f"expected WORLD_SIZE = {expected}, the number of ranks of the program, got {process.world_size}"
        )
    return process


def _claim(store: Store, process: Process, prefix: str, handles: str) -> None:
    """Puts this process's handles where the others look for its rank, unless another process that still lives is there."""
    key = f"{prefix}/handle/{process.rank}"
    found = store.compare_set(key, "", handles).decode()
    if found == handles:
        return
    if _lives(found):
        raise _taken(process, found)
    store.set(key, handles)


def _raise_difference(store: Store, process: Process, prefix: str, known: Sequence[str], deadline: float) -> NoReturn:
    ranks = [decode(store.get(f"{prefix}/facts/{rank}").decode()) for rank in range(process.world_size)]
    store.set(f"{prefix}/read/{process.rank}", "")
    if process.rank == 0:
        # Who serves the store stays until all have read.
        for rank in range(process.world_size):
            _await_key(store, f"{prefix}/read/{rank}", known, deadline, f"rank {rank} did not read what differs")
    raise RanksDifferError(f"the ranks come with different programs: {difference(ranks)}")


def _lives(handle: str) -> bool:
    return os.path.exists(f"/proc/{handle.split()[1]}")


def _taken(process: Process, handle: str) -> UsageError:
    return UsageError(
        f"expected one process per rank: RANK = {process.rank} is taken by process {handle.split()[1]} already; "
        f"give each of the {process.world_size} processes a RANK of its own"
    )


def _open_store(process: Process, address: tuple[str, int], prefix: str, deadline: float) -> Store:
    global _store
    if _store is not None:
        return _store
    from torch.distributed import TCPStore

    is_master = process.rank == 0 and not _is_served()
    if not is_master:
        _await_listener(address, deadline)
    # Once somebody listens there an answer takes no time; what is left is for the others to come.
    patience = timedelta(seconds=max((deadline - time.monotonic()) / 2, _ANSWER_SECONDS / 2))
    try:
        _store = TCPStore(*address, is_master=is_master, timeout=patience, wait_for_workers=False, multi_tenant=True)
    except RuntimeError as error:
        if not is_master:
            raise
        handle = _other_master(address, prefix)
        if handle is not None:
            raise _taken(process, handle) from None
        where = f"{address[0]}:{address[1]}"
        raise UsageError(f"rank 0 cannot meet the others at {where}: {_first_line(error)}") from None
    return _store


def _other_master(address: tuple[str, int], prefix: str) -> str | None:
    """The handle of another process that is rank 0 of the same job and serves the store already."""
    from torch.distributed import TCPStore

    found: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def ask() -> None:
        try:
            patience = timedelta(seconds=_ANSWER_SECONDS)
            store = TCPStore(*address, is_master=False, timeout=patience, wait_for_workers=False)
            found.put(store.get(f"{prefix}/handle/0").decode())
        except RuntimeError:
            found.put(None)

    # Who listens there may be no store, and never answer.
    _in_background(ask)
    try:
        return found.get(timeout=_ANSWER_SECONDS)
    except queue.Empty:
        return None


def _await_listener(address: tuple[str, int], deadline: float) -> None:
    while True:
        try:
            socket.create_connection(address, timeout=max(deadline - time.monotonic(), _POLL_SECONDS)).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                server = "the launcher's store" if _is_served() else "rank 0"
                where = f"{address[0]}:{address[1]}"
                raise RankLostError(f"{server} did not come to {where} within the time limit: {error}") from None
        time.sleep(_POLL_SECONDS)


def _ask_store(work: Callable[[], None], address: tuple[str, int], deadline: float) -> None:
    """Calls `work` and gives up on a store that does not answer, as if its process had gone."""
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def body() -> None:
        try:
            work()
            ended.put(None)
        except BaseException as error:
            ended.put(error)

    server = "the launcher's store" if _is_served() else "rank 0"
    failure = f"{server}, where the ranks meet ({address[0]}:{address[1]}), "
    # Calls of the store end late or never where its process is stopped, or is none.
    _in_background(body)
    try:
        error = _next_of(ended, max(deadline - time.monotonic(), 0), _ANSWER_SECONDS)
    except queue.Empty:
        raise RankLostError(failure + "does not answer within the time limit") from None
    if isinstance(error, RuntimeError):
        raise RankLostError(failure + f"cannot be reached: {_first_line(error)}")
    if error is not None:
        raise error


def _next_of(ended: queue.SimpleQueue, *patience: float) -> BaseException | None:
    """What comes within all the patience together. Raises queue.Empty.

    In parts: where this process itself was stopped for long, the first is over at once though the store would answer, and a thread that is then in the
    middle of a call would break the interpreter's end.
    """
    for seconds in patience[:-1]:
        try:
            return ended.get(timeout=seconds)
        except queue.Empty:
            pass
    return ended.get(timeout=patience[-1])


def _await_key(store: Store, key: str, known: Sequence[str], deadline: float, failure: str) -> None:
    # Only who does not come says so.
    gone = key.replace("/handle/", "/gone/")
    while not store.check([key]):
        if gone != key and store.check([gone]):
            raise RanksDifferError(store.get(gone).decode())
        for handle in known:
            rank, pid = handle.split()[:2]
            if not _lives(handle):
                raise RankLostError(f"rank {rank} (process {pid}) ended while the ranks met")
        if time.monotonic() > deadline:
            raise RankLostError(f"{failure} within the time limit")
        time.sleep(_POLL_SECONDS)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]
