# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Refuses what a compiled step can't do beside its tensors: keep Python state from call to call, draw Python's random numbers.

Whether a change matters is seen by a second call after the first: values that change again, lists that grow again, tensors of the first call that the second
reads, and a second call that computes something else are refused. What the second call leaves as it is (a cache of constants, a flag) is not.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from ..notices import warn_user
from . import fingerprint
from .capture import Joint, dry_run, tree_leaves
from .dependence import Dependence, storage_key
from .errors import ImporterError
from .place import MISSING, Change, Place, is_random, is_same
from .places import Places
from .python_state import PythonState
from .sources import Sources
from .user_code import Executed, Names, Watchpoints

_GROWING = (list, set, collections.deque)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), tuple)


class Observer:
    """Watches the Python code of one import: what it uses, and what it changes, which is undone.

    `names` and `executed.codes` say what the first run used. `quiet`: what there is to tell was told before.
    """

    def __init__(self, model: nn.Module, loss_fn: Callable, quiet: bool = False):
        self._quiet = quiet
        self._model, self._loss_fn = weakref.ref(model), loss_fn
        self.places = Places(
            {"model": model, "loss_fn": loss_fn, "random": _python_random(), "numpy.random": _numpy_random()}
        )
        self._sources = Sources()
        self.executed = Executed(self.places.see, self._sources.see)
        self.names = Names()
        self.fingerprint = ""
        self._changes: list[Change] | None = None

    def took(self, joint: Joint) -> None:
        """The graph that came of the watched run."""
        self.fingerprint = self.fingerprint or fingerprint.of_joint(joint)

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """Inside it a run that is not watched leaves no trace of itself."""
        with self.places.kept(), Executed(self.places.see):
            yield

    def watch(self, run: Callable) -> Callable:
        """`run`, which leaves no trace of itself, and of which the first call is watched."""

        def watched(tensors: Sequence[torch.Tensor]):
            with self.places.kept():
                if self._changes is not None:
                    return run(tensors)
                with self.executed:
                    result = run(tensors)
                self.names = self.executed.names()
                self._changes = self.places.changes(self.names, self.executed.codes)
                return result

        return watched

    def state(self, retrace: Callable[[str], PythonState | None], training: bool) -> PythonState:
        """What the watched run has taken from Python."""
        again = functools.partial(retrace, self.fingerprint)
        return PythonState(self._model, self._loss_fn, self.names, self.executed.codes, again, training)

    def refuse(
        self, children: dict[str, nn.Module], run: Callable, tensors: Sequence[torch.Tensor], grad: bool
    ) -> None:
        """Raises ImporterError if the run that was watched changed what later calls see, or is another each time, and names the lines."""
        self._sources.refuse()
        if not self._quiet:
            self._sources.warn()
        if not self._changes:
            return
        calls = _TwoCalls(self.places, list(self._changes), self.names)
        dry_run(children, lambda inputs: calls.run(run, inputs), tensors, grad)
        calls.refuse()
        if not self._quiet:
            calls.warn()


class _Spot:
    """A value that a call changes: one key of a place, or all of a place that grows."""

    def __init__(self, place: Place, key: Any):
        self.place = place
        self.key = MISSING if isinstance(place.holder, _GROWING) else key
        self.name = place.path if self.key is MISSING else place.name_of(key)
        self.values: list[Any] = [self.value()]
        self.sizes: list[int] = [self.size()]

    def value(self) -> Any:
        content = self.place.read()
        return tuple(content.values()) if self.key is MISSING else content.get(self.key, MISSING)

    def size(self) -> int:
        return len(self.place.holder) if isinstance(self.place.holder, (*_GROWING, dict)) else 0

    def note(self) -> None:
        self.values.append(self.value())
        self.sizes.append(self.size())

    def probe(self) -> Any:
        value = self.value()
        if isinstance(value, bytes):
            return value
        return tuple(map(id, value)) if self.key is MISSING else id(value)

    @property
    def is_growing(self) -> bool:
        first, second, third = self.sizes
        return not self.place.named and third > second > first

    @property
    def is_moving(self) -> bool:
        _, once, twice = self.values
        return self.key is not MISSING and isinstance(twice, _PLAIN) and not is_same(once, twice)

    def tensors(self) -> list[torch.Tensor]:
        """Those that the first call left here."""
        return [leaf for leaf in tree_leaves(self.values[1]) if isinstance(leaf, torch.Tensor)]


class _TwoCalls:
    """Two calls of a step, one after the other, without undoing what the first did."""

    def __init__(self, places: Places, changes: Sequence[Change], names: Names):
        self._places, self._names = places, names
        spots = {(change.place, change.key): _Spot(change.place, change.key) for change in changes}
        self._spots = list(
            {(spot.place, id(spot.key) if spot.key is MISSING else spot.key): spot for spot in spots.values()}.values()
        )
        self._first = Dependence()
        self._second = Dependence(self._first)
        self._lines: dict[int, str] = {}

    def run(self, run: Callable, inputs: Sequence[torch.Tensor]) -> Any:
        with self._places.kept():
            points = Watchpoints([spot.probe for spot in self._spots])
            with points, self._first:
                run(inputs)
            self._note()
            with self._second:
                result = run(inputs)
            self._note()
        self._lines = points.lines
        return result

    def _note(self) -> None:
        for spot in self._spots:
            spot.note()

    def refuse(self) -> None:
        random, kept = {}, {}
        other = self._first.calls != self._second.calls
        for index, spot in enumerate(self._spots):
            line = self._lines.get(index)
            if is_random(spot.place.holder):
                # A library that draws for itself, in no line of the user's, draws nothing for the step.
                if line is not None:
                    random[f"{line}: draws from '{spot.name}'"] = None
            elif reason := self._reason(spot, other):
                kept[f"{line or 'unknown line'}: '{spot.name}' {reason}"] = None
        if random:
            raise ImporterError(
                "random numbers of Python or NumPy in forward or loss would be drawn once, at compile, and be the same in every step (draw "
                "them outside and give them to forward as a tensor of the batch, of 0 dims for a single number):\n  "
                + "\n  ".join(random)
            )
        if kept:
            raise ImporterError(
                "forward or loss changes Python state that its next call sees, which a compiled step can't (make numbers and tensors "
                "buffers: register_buffer; keep lists outside of forward):\n  " + "\n  ".join(kept)
            )

    def _reason(self, spot: _Spot, other: bool) -> str:
        _, once, twice = spot.values
        if spot.is_growing:
            return "grows with every call"
        if any(storage_key(tensor) in self._second.carried for tensor in spot.tensors()):
            return "is a tensor of one call that the next one reads"
        if spot.is_moving and self._is_read(spot):
            return f"is {_short(once)} after one call and {_short(twice)} after two"
        if other:
            return "is set by the first call, and the next one computes something else"
        return ""

    def warn(self) -> None:
        """Says which tensors of a call stay unset, where nothing but code outside of the step can want them."""
        lines = {}
        for index, spot in enumerate(self._spots):
            if any(map(self._first.has_made, spot.tensors())) and not self._is_read(spot):
                lines[f"{self._lines.get(index, 'unknown line')}: '{spot.name}'"] = None
        if lines:
            warn_user(
                "a compiled step runs no Python code, so these stay what they are at compile, where forward keeps a tensor in them: "
                + "; ".join(lines),
            )

    def _is_read(self, spot: _Spot) -> bool:
        if spot.place.is_environment or spot.place.keys is not None or spot.key == "" or spot.key is MISSING:
            return True
        return self._names.reads(spot.key) if spot.place.named else self._names.reads_item(spot.key)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _python_random() -> Any:
    import random

    return random.random.__self__


def _numpy_random() -> Any:
    import sys

    numpy = sys.modules.get("numpy.random")
    return numpy.random.__self__ if numpy is not None else None
