# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the ranks of a job have to have in common, compared before they compute together.

A call compares 16 bytes. Only where these differ do the ranks tell each other what they were about to do, so that all of them raise the same error. Where a run takes
long the ranks compare before it begins, and may go on after the error. To wait for each other would make short runs longer: there they compare while they
run, and a program whose ranks differ runs no more.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from .errors import PiperError, RanksDifferError, RunError, UsageError

if TYPE_CHECKING:
    from .execution import Execution

_TOKEN_BYTES = 8
# An exchange takes some microseconds, or where cores are few as long as it takes until another process gets one.
_LONG_SECONDS = 0.02
_REFUSAL = b"\xff" * (2 * _TOKEN_BYTES)
#: What is said of values that are too long to show.
OTHER_VALUES = "has other values"
_SAME_ORDER = "all ranks call the same methods of a program, in the same order"


@dataclass(frozen=True)
class Fact:
    """One thing that all ranks have in common.

    Attributes:
        what: how a message names it.
        value: what it is on this rank.
        differs: what is said where the value itself says nothing: OTHER_VALUES, for hashes.
        advice: what to do where ranks differ.
        among: only ranks that say the same here are compared.
    """

    what: str
    value: str
    differs: str = ""
    advice: str = ""
    among: str = ""


def encode(facts: Iterable[Fact]) -> str:
    """Facts as text, which `decode` reads."""
    return json.dumps([astuple(fact) for fact in facts])


def decode(text: str) -> list[Fact]:
    """The facts that `encode` wrote."""
    return [Fact(*values) for values in json.loads(text)]


def difference(ranks: Sequence[Sequence[Fact]]) -> str | None:
    """Says which is the first fact that is not the same on all ranks, and what to do; None if all are."""
    tables = [{(fact.what, fact.among): fact for fact in facts} for facts in ranks]
    found: list[str] = []
    first: Fact | None = None
    for key in _merged(tables):
        given = {rank: table.get(key) for rank, table in enumerate(tables) if not key[1] or key in table}
        if len({fact and fact.value for fact in given.values()}) == 1:
            continue
        fact = next(fact for fact in given.values() if fact is not None)
        first = first or fact
        if fact.differs == first.differs:
            found.append(_sentence(fact, given))
    if first is None:
        return None
    text = found[0]
    if first.differs == OTHER_VALUES and len(found) > 1:
        text += f", and {len(found) - 1} more like it"
    return f"{text}: {first.advice}" if first.advice else text


def _merged(tables: Iterable[Iterable[tuple[str, str]]]) -> list[tuple[str, str]]:
    """All keys: one that not all ranks have stands behind the key that it follows on its own."""
    merged: list[tuple[str, str]] = []
    for table in tables:
        place = 0
        for key in table:
            if key in merged:
                place = merged.index(key) + 1
            else:
                merged.insert(place, key)
                place += 1
    return merged


def _sentence(fact: Fact, given: dict[int, Fact | None]) -> str:
    groups: dict[str | None, list[int]] = {}
    for rank, item in given.items():
        groups.setdefault(item and item.value, []).append(rank)
    if fact.differs and None not in groups:
        (_, reference), *others = groups.items()
        ranks = sorted(rank for _, group in others for rank in group)
        return f"{fact.what} {fact.differs} on {ranks_text(ranks)} than on {ranks_text(reference)}"
    shown = {value: "missing" if value is None else "there" if fact.differs else value for value in groups}
    return f"{fact.what} is " + ", ".join(f"{shown[value]} on {ranks_text(group)}" for value, group in groups.items())


def ranks_text(ranks: Sequence[int]) -> str:
    """ "rank 1" or "ranks 0, 2 and 3"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return "ranks " + ", ".join(map(str, ranks[:-1])) + f" and {ranks[-1]}"


class _Call(threading.local):
    """The collective method that this thread is in."""

    name: str | None = None
    agreed = False


class Agreement:
    """How one program's ranks agree; where all are threads of this process they need not.

    peers: for each rank the first that has the same rows of a batch.
    """

    def __init__(self, execution: Execution, peers: Sequence[int]):
        self.active = execution.is_shared
        self._execution = execution
        self._peers = list(peers)
        self._call = _Call()
        # What the last run took.
        self._seconds = math.inf

    def run(self, name: str, work: Callable[[], Any]) -> Any:
        """Calls `work`, the body of the collective method `name`. What it calls in turn is part of it."""
        call = self._call
        if not self.active or call.name is not None:
            return work()
        if self._execution.ranks_differ:
            raise RunError("the program stopped earlier, when its ranks were not alike: load or compile it again")
        call.name, call.agreed = name, False
        try:
            return work()
        except UsageError as error:
            self.refuse(error)
            raise
        finally:
            call.name = None

    def agree(self, common: bytes = b"", own: int = 0, facts: Callable[[], list[Fact]] = list) -> None:
        """Raises RanksDifferError, on all ranks, unless all call the same method with equal values.

        common: what is to be equal on all. own: a hash that is to be equal among ranks that have the same rows. facts: what both are made of.
        """
        token = self._token(common, own)
        if token is not None and not self._alike(token, self._execution.exchange(token)):
            raise self._error(facts)

    def agree_while(self, work: Callable[[], Any], common: bytes, own: int, facts: Callable[[], list[Fact]]) -> Any:
        """Calls `work`, a run of which the last took so long that waiting for the others first adds little; else they agree meanwhile."""
        if self._seconds >= _LONG_SECONDS:
            self.agree(common, own, facts)
        token = self._token(common, own)
        begin = time.perf_counter()
        result = work() if token is None else self._watched(work, token, facts)
        self._seconds = time.perf_counter() - begin
        return result

    def _watched(self, work: Callable[[], Any], token: bytes, facts: Callable[[], list[Fact]]) -> Any:
        execution = self._execution
        result = None
        if execution.offer(token):
            try:
                result = work()
            except PiperError:
                if not execution.ranks_differ:
                    raise
        if self._alike(token, execution.collect()):
            return result
        # Whether a rank has run is known to all once all have said what they were about to do.
        if result is not None:
            execution.stop_differing()
        raise self._error(facts)

    def _token(self, common: bytes, own: int) -> bytes | None:
        """What this rank's call is like; None if there is nothing to compare."""
        call = self._call
        if not self.active or call.name is None or call.agreed:
            return None
        call.agreed = True
        return _digest(call.name.encode() + b" " + common) + own.to_bytes(_TOKEN_BYTES, "little")

    def refuse(self, error: UsageError) -> None:
        """Tells the others, which wait for this rank, that it does not make the call; nothing if they agreed before."""
        call = self._call
        if call.agreed or not self._execution.is_usable:
            return
        call.agreed = True
        # The others do not hear of it a second time when this one ends.
        error.raised_on_all_ranks = True
        if any(other != _REFUSAL for other in self._execution.exchange(_REFUSAL)):
            self._difference(call.name, [], str(error))

    def _alike(self, token: bytes, heard: Sequence[bytes]) -> bool:
        if all(other == token for other in heard):
            return True
        common = {token[:_TOKEN_BYTES] for token in heard}
        own = [token[_TOKEN_BYTES:] for token in heard]
        return len(common) == 1 and all(own[rank] == own[peer] for rank, peer in enumerate(self._peers))

    def _error(self, facts: Callable[[], list[Fact]]) -> RanksDifferError:
        text = self._difference(self._call.name, facts())
        if self._execution.ranks_differ:
            text += "; the program runs no more: load or compile it again"
        return RanksDifferError(text)

    def _difference(self, name: str, facts: list[Fact], refusal: str = "") -> str:
        said = json.dumps([name, refusal, encode(facts)]).encode()
        heard = [json.loads(text) for text in self._execution.exchange(said)]
        groups: dict[str, list[int]] = {}
        for rank, (called, _, _) in enumerate(heard):
            groups.setdefault(called, []).append(rank)
        if len(groups) > 1:
            calls = ", ".join(f"{ranks_text(ranks)} called {called}" for called, ranks in groups.items())
            return f"{calls}: {_SAME_ORDER}"
        for rank, (_, error, _) in enumerate(heard):
            if error:
                return f"rank {rank} refused {name}: {error}"
        found = difference([decode(text) for _, _, text in heard])
        return f"{name}: {found or 'the ranks differ'}"


def collective(method: Callable) -> Callable:
    """A method of `Program` that all ranks call together: somewhere in it they agree. Threads of one rank take turns.

    Where it raises UsageError on one rank before that, it does so on all.
    """
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._execution.turn:
            return self._agreement.run(name, functools.partial(method, self, *args, **kwargs))

    return call


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_TOKEN_BYTES).digest()
