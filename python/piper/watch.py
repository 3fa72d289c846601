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
from .importer.backward_code import PARAMETER_ADVICE
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
            what, advice = (
                ("other code", "compile again")
                if all(change.text for change in changes)
                else ("another value", _ADVICE)
            )
            failed = f" (captured again, it fails: {python.failure})" if python.failure else ""
            raise UsageError(f"the program was compiled with {what}: {listed}{failed}: {advice}")
        self._python[entry] = again
        if self._states is not None and any(change.part for change in changes):
            self._states.take_homes()
        # Of another part only its parameters and buffers count, which are compared next.
        names = {
            change.name for change in changes if not change.name.endswith(TRAINING) and not change.part
        } - self._idle
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
        losses = [imported.python.loss_fn for imported in imports if imported.python is not None]
        self._model = weakref.ref(model)
        self._losses = [loss for loss in losses[:1] if isinstance(loss, nn.Module)]
        homes = {id(table.get(key)): where for where, (table, key) in self._homes().items()}
        self._fixed, self._trained = [], []
        for name, state in states.items():
            (self._trained if state.trainable else self._fixed).append(_Mark(name, state, homes.get(id(state.value))))
        self.take_homes()
        self._parameters = [(mark.name, mark.tensor) for mark in self._trained]

    def _homes(self) -> dict[tuple, tuple[dict[str, torch.Tensor], str]]:
        """Where modules have each parameter and buffer, by the way that leads there."""
        return {
            (root, path, kind, key): (table, key)
            for root, module in enumerate([self._model(), *self._losses])
            for path, part in module.named_modules(remove_duplicate=False)
            for kind, table in (("parameter", part._parameters), ("buffer", part._buffers))
            for key in table
        }

    def take_homes(self) -> None:
        """Finds the modules anew, which may be others in the same places."""
        homes = self._homes()
        for mark in [*self._fixed, *self._trained]:
            mark.home = homes.get(mark.where)

    def given(self, values: Mapping[str, torch.Tensor]) -> None:
        for mark in [*self._fixed, *self._trained]:
            if mark.name in values:
                mark.known = mark.fingerprint(values[mark.name])

    def check(self) -> None:
        for name, tensor in self._parameters:
            if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
                raise UsageError(
                    f"parameter '{name}' has a hook on its gradient, which a compiled step does not call: remove it, or {PARAMETER_ADVICE} and compile again"
                )
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
    """A buffer or parameter of the user's model, with the last value that it and the program have had in common.

    `where` is the way to it, `home` the module's table that has it there, and its key.
    """

    def __init__(self, name: str, state: State, where: tuple | None):
        self.name = name
        self.where = where
        self.home: tuple[dict[str, torch.Tensor], str] | None = None
        self._state = state
        self._mark = TensorMark(state.value, sampled=not state.trainable)
        self.known = self.fingerprint(state.value)

    def __str__(self) -> str:
        return f"{'buffer' if self._state.kind == 'buffer' else 'frozen parameter'} '{self.name}'"

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor that was last looked at."""
        return self._mark.tensor

    def advice(self) -> str:
        if self._state.persistent:
            return f"program.load_state_dict({{**program.state_dict(), '{self.name}': ...}}) sets it"
        return _ADVICE

    def moved(self) -> bool:
        """Whether it may have changed."""
        return self._mark.moved() or self.home is not None and self.home[0].get(self.home[1]) is not self._mark.tensor

    def is_known(self) -> bool:
        """Whether it has that value; then it is marked anew."""
        tensor = self._mark.tensor if self.home is None else self.home[0].get(self.home[1])
        if tensor is None or self.fingerprint(tensor) != self.known:
            return False
        self._mark = TensorMark(tensor, sampled=not self._state.trainable)
        return True

    def fingerprint(self, value: torch.Tensor) -> bytes:
        # Masters of half-precision parameters are rounded as the model's are.
        value = value.detach().to(self._state.value.dtype)
        return fingerprint.of_tensor(value, _FEW if self._state.trainable else _MANY)
