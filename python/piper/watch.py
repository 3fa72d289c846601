# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a step checks before it runs: that the Python values, buffers and frozen parameters it was compiled with are still the same."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping

import torch
from torch import nn

from .errors import UsageError
from .importer import fingerprint
from .importer.ambient import autocast_here
from .importer.imported import Imported, State, StateRef
from .importer.marks import TensorMark
from .importer.python_state import TRAINING, PythonState
from .notices import warn_user

_ADVICE = "give it to forward as a tensor of the batch (of 0 dims, for a number), which may differ in every step, or compile again"

# Elements that are compared where a tensor was written.
_FEW, _MANY = 1 << 8, 1 << 16
_MOST_LISTED = 6


class Watch:
    """Watches what the entries of a program have taken from the user's model, loss and modules.

    `check` raises UsageError for a change that would have no effect; not where the program would be the same. The model is not kept alive.
    """

    def __init__(self, model: nn.Module, entries: Mapping[str, Imported]):
        self._model = weakref.ref(model)
        self._python = {name: imported.python for name, imported in entries.items() if imported.python is not None}
        # Names of values that were seen to have changed without an effect.
        self._idle: set[str] = set()
        self._autocast = autocast_here()
        self._states: _States | None = _States(model, entries.values())

    def check(self, entry: str) -> None:
        """Before a run of "step" or "evaluate"."""
        self._check_autocast()
        python = self._python.get(entry)
        if python is not None and not python.is_same():
            self._compare(entry, python)
        if self._states is not None:
            if self._model() is None:
                self._forget()
            else:
                self._states.check()

    def given(self, values: Mapping[str, torch.Tensor]) -> None:
        """The program's states, by name, as the user reads or sets them: a model that has these is up to date."""
        if self._states is not None:
            self._states.given(values)

    def _check_autocast(self) -> None:
        here = autocast_here()
        if here is None or here == self._autocast:
            return
        compiled = "outside of it" if self._autocast is None else f"under torch.autocast of {self._autocast}"
        raise UsageError(
            f"a step under torch.autocast of {here} of a program that was compiled {compiled}: call piper.compile under that, too (forward and loss are "
            "then under it in every step), or the step outside"
        )

    def _forget(self) -> None:
        """The model is gone, and with it what only it could read."""
        self._states = None
        for python in self._python.values():
            python.look()

    def _compare(self, entry: str, python: PythonState) -> None:
        changes = python.changes()
        if not changes:
            python.look()
            return
        again = python.traced_again(changes)
        if again is None:
            modes = [change.name for change in changes if change.name.endswith(TRAINING)]
            if len(modes) == len(changes):
                raise UsageError(
                    f"the program was compiled in eval mode, and is to train in training mode ('{modes[0]}' is True now): call model.train() "
                    "before piper.compile"
                )
            listed = "; ".join(dict.fromkeys(map(str, changes[:_MOST_LISTED])))
            raise UsageError(f"the program was compiled with another value: {listed}: {_ADVICE}")
        self._python[entry] = again
        names = {change.name for change in changes if not change.name.endswith(TRAINING)} - self._idle
        if names:
            self._idle |= names
            listed = ", ".join(sorted(map(repr, names))[:_MOST_LISTED])
            warn_user(
                f"forward or loss may read {listed}, which changed without an effect on the program: to know this takes a trace after every change",
            )


class _States:
    """The user's buffers and parameters, of which the program has its own."""

    def __init__(self, model: nn.Module, imports: Iterable[Imported]):
        imports = list(imports)
        written = {name for imported in imports for name in imported.buffer_writes}
        read = {
            value.name
            for imported in imports
            for node in imported.nodes
            for value in node.operands
            if isinstance(value, StateRef)
        }
        states = {name: state for imported in imports for name, state in imported.states.items() if name in read}
        states = {name: state for name, state in states.items() if state.kind != "constant" and name not in written}
        tables = [table for part in model.modules() for table in (part._parameters, part._buffers)]
        homes = {id(tensor): (table, key) for table in tables for key, tensor in table.items()}
        self._fixed, self._trained = [], []
        for name, state in states.items():
            mark = _Mark(name, state, homes.get(id(state.value)))
            (self._trained if state.trainable else self._fixed).append(mark)

    def given(self, values: Mapping[str, torch.Tensor]) -> None:
        for mark in [*self._fixed, *self._trained]:
            if mark.name in values:
                mark.known = mark.fingerprint(values[mark.name])

    def check(self) -> None:
        for mark in self._fixed:
            if mark.moved() and not mark.is_known():
                raise UsageError(f"{mark} of the model has changed, and the program has its own: {mark.advice()}")
        moved = [mark for mark in self._trained if mark.moved()]
        other = [mark.name for mark in moved if not mark.is_known()]
        if other:
            # One warning: whoever trains or averages the model beside the program means to.
            self._trained = []
            warn_user(
                f"parameters of the model have changed ({', '.join(other[:_MOST_LISTED])}{', ...' if len(other) > _MOST_LISTED else ''}), and the "
                "program trains its own: program.load_state_dict(model.state_dict()) sets them",
            )


class _Mark:
    """A buffer or parameter of the user's model, with the last value that it and the program have had in common."""

    def __init__(self, name: str, state: State, home: tuple[dict[str, torch.Tensor], str] | None):
        self.name = name
        self._state = state
        self._home = home
        self._mark = TensorMark(state.value, sampled=not state.trainable)
        self.known = self.fingerprint(state.value)

    def __str__(self) -> str:
        return f"{'buffer' if self._state.kind == 'buffer' else 'frozen parameter'} '{self.name}'"

    def advice(self) -> str:
        if self._state.persistent:
            return f"program.load_state_dict({{**program.state_dict(), '{self.name}': ...}}) sets it"
        return _ADVICE

    def moved(self) -> bool:
        """Whether it may have changed."""
        return (
            self._mark.moved() or self._home is not None and self._home[0].get(self._home[1]) is not self._mark.tensor
        )

    def is_known(self) -> bool:
        """Whether it has that value; then it is marked anew."""
        tensor = self._mark.tensor if self._home is None else self._home[0].get(self._home[1])
        if tensor is None or self.fingerprint(tensor) != self.known:
            return False
        self._mark = TensorMark(tensor, sampled=not self._state.trainable)
        return True

    def fingerprint(self, value: torch.Tensor) -> bytes:
        # Masters of half-precision parameters are rounded as the model's are.
        value = value.detach().to(self._state.value.dtype)
        return fingerprint.of_tensor(value, _FEW if self._state.trainable else _MANY)
