# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiled program: it holds the training state and runs steps."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from . import profile, saved
from .agreement import Agreement, Fact, collective
from .batches import bind, from_call
from .broadcast import from_rank_0
from .cache import CompiledObject
from .description import Description
from .errors import ProgramError, RanksDifferError, UsageError
from .execution import Execution
from .host_weights import HostWeights
from .identity import SAMPLE_BYTES, call_facts, fingerprint, program_facts, value_facts
from .importer.inputs import Batch
from .importer.loss_weights import SHARED_WEIGHTS
from .importer.saved_names import is_extra, renaming_advice
from .memory import plain
from .notices import warn_user
from .optimizers import STATE_FORM, Group
from .plan_simulation import Simulation
from .profile import MachineProfile
from .rehearsal import DelayDevice, Rehearsal
from .rendezvous import on_the_way
from .summary import describe

if TYPE_CHECKING:
    from .watch import Watch

_SAME_START = (
    "make the model alike on all ranks (torch.manual_seed before it is made), or give piper.compile sync_parameters=True,"
    " which takes rank 0's values"
)


class Program:
    """A compiled training step and evaluation, with parameters, buffers and moments of its own.

    Every method that computes is collective: under torchrun all ranks call it, in the same order. A batch is given as `(x, y)`, as `(x, target=y)`, with
    further arguments of the model by position or by name, or as one `dict(args=…, kwargs=…, target=…)`. Tensors are the global batch's; with `local=True` those
    that are divided hold this process's rows only.
    """

    def __init__(
        self,
        description: Description,
        plan: bytes,
        kernels: Mapping[str, CompiledObject],
        texts: Mapping[str, str],
        optimizer_steps: Mapping[str, int] | None = None,
        watch: Watch | None = None,
    ):
        self._description = description
        self._plan = plan
        self._kernels = dict(kernels)
        self._texts = dict(texts)
        # What the user may change after compile without an effect on the program; a loaded program has nothing to do with it.
        self._watch = watch
        self._steps = {group.name: 0 for group in description.groups} | dict(optimizer_steps or {})
        # Whether the accumulators hold gradients of steps without update.
        self._accumulating = False
        self._warned_of_nothing = False
        self._execution = Execution(
            plan,
            {name: item.code for name, item in self._kernels.items()},
            facts=program_facts(description, kernels, texts.get("imported", "")),
        )
        self._agreement = Agreement(self._execution, description.peers())
        # States that no part of the program reads or writes stay with the host.
        self._unused: dict[str, torch.Tensor] = {}
        self._host_weights = HostWeights(description, self._execution)

    @collective
    def step(self, *args: Any, update: bool = True, local: bool = False, **kwargs: Any) -> torch.Tensor:
        """Trains on one global batch; returns its loss, a 0-dim float32 tensor.

        update=False adds the gradients up and leaves the parameters; the next step with update applies the whole sum, divided by the weights of all its batches.
        Where no target counts, so that the weight of the loss is zero, the loss is nan and parameters, moments and step counts stay as they are; the first time a
        UserWarning says so.
        Raises UsageError for a batch of another shape, dtype or number of rows, RankLostError if another rank is gone.
        """
        if update and not self._description.updates:
            raise UsageError(
                "the program was compiled without an optimizer: give one to piper.compile, or use gradients()"
            )
        if not update and not self._description.divide:
            raise UsageError(
                "a loss that is a sum cannot be accumulated over steps: return a pair (sum, weight) from loss_fn"
            )
        flags = {"buffers"} | ({"reduce", "update"} if update else set()) | (set() if self._accumulating else {"fresh"})
        scalars = self._scalars() if update else {}
        outputs = self._run("step", flags, from_call(args, kwargs, self._description.own_loss), local, scalars)
        self._accumulating = not update
        if update and outputs.get("weight_total", outputs["weight_sum"]) != 0:
            self._steps = {name: count + 1 for name, count in self._steps.items()}
            self._description.on_update()
        elif update and not self._warned_of_nothing:
            self._warned_of_nothing = True
            warn_user(
                "a step was skipped: the weight of its batch is zero (all targets are ignored, say), so its loss is nan and nothing has changed "
                "but buffers; this is said once",
            )
        return self._loss(outputs)

    @collective
    def evaluate(self, *args: Any, local: bool = False, **kwargs: Any) -> torch.Tensor:
        """The loss of one global batch in eval mode, a 0-dim float32 tensor; nothing changes."""
        return self._loss(self._run("evaluate", set(), from_call(args, kwargs, self._description.own_loss), local, {}))

    @collective
    def gradients(self, *args: Any, local: bool = False, **kwargs: Any) -> dict[str, torch.Tensor]:
        """The full gradient of the global loss for every trainable parameter that has one, by its first name; nothing changes.

        Runs the step's own plan up to the updates, so this is what an optimizer step would use.
        """
        if self._accumulating:
            raise UsageError(
                "gradients() would drop what step(update=False) has accumulated: take a step with update first"
            )
        outputs = self._run("step", {"fresh", "reduce"}, from_call(args, kwargs, self._description.own_loss), local, {})
        weight = outputs["weight_sum"]
        result = {}
        for name in self._description.trainable:
            total = self._execution.read_gradient(self._symbol(name))
            result[name] = total / weight if weight != 0 else torch.zeros_like(total)
        return result

    @collective
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Parameters and persistent buffers under the model's own names, in full. Names of one tied tensor share one copy."""
        self._agreement.agree()
        return {**self._named(self._description.names), **self._description.extra}

    @collective
    def loss_state_dict(self) -> dict[str, torch.Tensor]:
        """The same of a loss that is a module, under that module's own names; empty of any other."""
        self._agreement.agree()
        return self._named(self._description.loss_names)

    @collective
    def read_parameters(self) -> dict[str, torch.Tensor]:
        """Every trained parameter in full, by its first name in the model, as `gradients` gives them: also one that the model's state_dict leaves out."""
        self._agreement.agree()
        return {name: self._read(name) for group in self._description.groups for name in group.parameters}

    @collective
    def load_state_dict(self, state_dict: Mapping[str, torch.Tensor]) -> None:
        """Sets parameters and persistent buffers. Raises UsageError that lists missing, unknown and unfit entries; then nothing has changed."""
        names = self._description.names
        given = _mapping(state_dict, "a state dict")
        advice = renaming_advice(given, names)
        if advice is not None:
            raise UsageError(f"the state dict does not fit: {advice}")
        problems = [f"'{name}' is missing" for name in names if name not in given]
        problems += [f"'{name}' is unknown" for name in given if name not in names and not is_extra(name)]
        states = self._description.states
        values = {}
        for name, state in names.items():
            if name in given:
                values[state] = _fit(given[name], states[state].shape, states[state].dtype, name, problems)
        if problems:
            raise UsageError("the state dict does not fit: " + "; ".join(problems))
        self._agree_on_values(values)
        self.write_states(values)
        self._description.extra.update((name, value) for name, value in given.items() if is_extra(name))

    @collective
    def optimizer_state_dict(self) -> dict[str, Any]:
        """Steps taken by group, and each parameter's moments in full: {"steps": {group: n}, "state": {parameter: {slot: tensor}}}."""
        self._agreement.agree()
        state = {
            parameter: {slot: self._read(f"{parameter}:{slot}") for slot in group.slots}
            for group in self._description.groups
            for parameter in self._trained(group)
        }
        return {"steps": dict(self._steps), "state": state}

    @collective
    def load_optimizer_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Sets what `optimizer_state_dict` gives. Groups may be others if all have taken the same steps.

        Raises UsageError if parameters, slots or steps differ; then nothing has changed.
        """
        given = _mapping(state_dict, "an optimizer's state dict")
        if "param_groups" in given:
            raise UsageError(
                f"the state dict is torch.optim's own, which counts parameters instead of naming them: expected {STATE_FORM}"
            )
        moments: dict[str, torch.Tensor] = {}
        problems: list[str] = []
        state = _mapping(given.get("state", {}), "'state'")
        slots_of = {name: group.slots for group in self._description.groups for name in self._trained(group)}
        problems += [f"'{name}' is no parameter that the optimizer has" for name in state if name not in slots_of]
        for parameter, expected in slots_of.items():
            slots = _mapping(state.get(parameter, {}), f"'{parameter}'")
            if set(slots) != set(expected):
                problems.append(f"'{parameter}' expected the moments {expected}, got {sorted(map(str, slots))}")
                continue
            spec = self._description.states[parameter]
            for slot, value in slots.items():
                name = f"{parameter}:{slot}"
                moments[name] = _fit(value, spec.shape, spec.dtype, name, problems)
        steps = _mapping(given.get("steps", {}), "'steps'")
        if set(steps) != set(self._steps):
            counts = set(steps.values())
            if len(counts) == 1:
                # Moments have names; groups that took the same steps may have been put together otherwise.
                steps = dict.fromkeys(self._steps, counts.pop())
            else:
                problems.append(f"expected steps of the groups {sorted(self._steps)}, got {sorted(map(str, steps))}")
        problems += [
            f"expected a number of steps of '{name}', got {count!r}"
            for name, count in steps.items()
            if isinstance(count, bool) or not isinstance(count, int) or count < 0
        ]
        if problems:
            raise UsageError("the optimizer's state dict does not fit: " + "; ".join(problems))
        self._agree_on_values(moments, dict(steps))
        for name, value in moments.items():
            self._write(name, value)
        self._steps = dict(steps)

    def __repr__(self) -> str:
        return f"<piper.Program {describe(self._description, self._texts)}{', closed' if self._execution.is_closed else ''}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UsageError(
            "a program can't be copied or pickled, for it has threads and memory of its own: program.save(path) and piper.load(path) give another one"
        )

    @property
    def param_groups(self) -> list[Mapping[str, Any]]:
        """The optimizer's options by group, as they are read at each step: torch's own dicts, or plain ones of a loaded program."""
        return [group.options for group in self._description.groups]

    def ir(self, phase: str) -> str:
        """The program as MLIR at the end of a phase: "imported", "scheduled" or "planned"."""
        if phase not in self._texts:
            raise UsageError(f"expected a phase out of {', '.join(self._texts)}, got {phase!r}")
        return self._texts[phase]

    def trace(self, *args: Any, local: bool = False, **kwargs: Any) -> tuple[torch.Tensor, list[Any]]:
        """One training step that is also measured: its loss, and what every rank of this process did when."""
        with self._execution.turn:
            self._execution.start_trace()
            loss = self.step(*args, local=local, **kwargs)
            return loss, self._execution.trace()

    def rehearse(self, device: DelayDevice) -> Rehearsal:
        """The program's plan on a device whose kernels and links take stated times: to see order, overlap and waits, on any number of ranks."""
        return Rehearsal(self._plan, device)

    def simulate(self, costs: DelayDevice | MachineProfile, entry: str = "step") -> Simulation:
        """When the program's plan does what at stated or recorded costs, for all ranks: makespan, bubbles, memory, critical path.

        Raises UsageError for costs that make no sense, or that say nothing of one of the program's kernels.
        """
        if isinstance(costs, MachineProfile):
            costs = costs.costs(self._work())
        return Simulation(self._plan, costs, entry)

    def profile(self, batches: Iterable[Any]) -> MachineProfile:
        """Takes one training step per batch and records what kernels and links take. The first step, in which memory is touched first, is not counted.

        Under torchrun it records this process's rank; kernels that only other ranks run are estimated from those that it runs.
        """
        # Known before the first step: a refusal must not train.
        batches = list(batches) if isinstance(batches, Iterable) else batches
        if not isinstance(batches, list) or len(batches) < 2:
            got = len(batches) if isinstance(batches, list) else type(batches).__name__
            raise UsageError(f"expected at least two batches to record costs, got {got}")
        traces = [self.trace(batch)[1] for batch in batches]
        return profile.record(self._plan, self._work(), traces[1:])

    def _work(self) -> dict[str, float]:
        return {name: float(item.metadata.get("work", 0)) for name, item in self._kernels.items()}

    @collective
    def save(self, path: str | os.PathLike) -> None:
        """Writes the program with its state as a folder that `piper.load` reads, also on a machine without the model."""
        if self._accumulating:
            raise UsageError("accumulated gradients are not saved: take a step with update first")
        self._agreement.agree()
        states = self._read_all()
        if 0 not in self._execution.ranks:
            return
        saved.write(path, self._description, self._plan, self._kernels, self._texts, states, self._steps)

    def begin(
        self, values: Mapping[str, torch.Tensor], kinds: Mapping[str, str], sync_parameters: bool = False
    ) -> None:
        """Sets the states that training begins with. Raises RanksDifferError unless they are equal on all ranks, or rank 0's are to be taken."""
        specs = self._description.states
        values = {name: plain(value, specs[name].dtype) for name, value in values.items()}
        self._agreement.run("compile", lambda: self._begin(values, kinds, sync_parameters))

    def _begin(self, values: Mapping[str, torch.Tensor], kinds: Mapping[str, str], sync_parameters: bool) -> None:
        own = [] if sync_parameters else list(values.values())
        if self._agreement.active:
            self._agreement.agree(
                f"{sync_parameters} {fingerprint(own)}".encode(),
                facts=lambda: [
                    Fact("sync_parameters", str(sync_parameters)),
                    *value_facts({} if sync_parameters else values, kinds, _SAME_START),
                ],
            )
        if sync_parameters and self._agreement.active:
            values = from_rank_0(self._execution, values)
        self.write_states(values)

    def write_states(self, values: Mapping[str, torch.Tensor]) -> None:
        """Sets states by name."""
        for name, value in values.items():
            self._write(name, plain(value, self._description.states[name].dtype))
        if self._watch is not None:
            self._watch.given(values)

    def close(self) -> None:
        """Ends the program's threads and frees its memory."""
        self._execution.close()

    def _read_all(self) -> dict[str, torch.Tensor]:
        return {name: self._read(name) for name in self._all_states()}

    def _restore(self, values: Mapping[str, torch.Tensor]) -> None:
        """Sets everything that `save` wrote. Raises UsageError if something is missing, unknown or unfit."""
        names = self._all_states()
        if missing := [name for name in names if name not in values]:
            raise UsageError(f"state '{missing[0]}' is missing")
        if unknown := [name for name in values if name not in names]:
            raise UsageError(f"state '{unknown[0]}' is unknown")
        for name, value in values.items():
            self._write(name, value)

    def _agree_on_folder(self, digest: str) -> None:
        fact = Fact("the saved state", digest, "is another", "all ranks load the same folder")
        self._agreement.run("load", lambda: self._agreement.agree(digest.encode(), facts=lambda: [fact]))

    def _all_states(self) -> list[str]:
        moments = [
            f"{parameter}:{slot}"
            for group in self._description.groups
            for parameter in self._trained(group)
            for slot in group.slots
        ]
        return [*self._description.states, *moments]

    def _symbol(self, name: str) -> str:
        """What the plan calls a state, or a moment "state:slot"."""
        symbols = self._description.symbols
        if name in self._description.states:
            return symbols.get(name, name)
        state, _, slot = name.rpartition(":")
        return f"{symbols.get(state, state)}:{slot}"

    def _trained(self, group: Group) -> list[str]:
        return [name for name in group.parameters if name in self._description.trainable]

    def _read(self, name: str) -> torch.Tensor:
        if name in self._unused:
            return self._unused[name].clone()
        value, spec = self._execution.read_state(self._symbol(name)), self._description.states.get(name)
        # The plan knows eight bits, not whether they have a sign.
        return value.view(torch.uint8) if spec is not None and spec.dtype == torch.uint8 else value

    def _write(self, name: str, value: torch.Tensor) -> None:
        symbol = self._symbol(name)
        if symbol in self._execution.states:
            self._execution.write_state(symbol, value)
        else:
            self._unused[name] = value.clone()
        self._host_weights.note(name, value)

    def _named(self, names: Mapping[str, str]) -> dict[str, torch.Tensor]:
        values = {state: self._read(state) for state in dict.fromkeys(names.values())}
        if self._watch is not None:
            self._watch.given(values)
        return {name: values[state] for name, state in names.items()}

    def _run(
        self, entry: str, flags: set[str], batch: Batch, local: bool, scalars: Mapping[str, float]
    ) -> dict[str, float]:
        if self._watch is not None:
            self._watch.check(entry)
        rows = self._description.local_rows(self._execution.ranks) if local else None
        description = self._description
        tensors = bind(batch, description.inputs, description.static, description.parameters, description.rows, rows)
        first = rows[0] if rows is not None else 0
        comparison = self._comparison(flags, local, rows, scalars, tensors) if self._agreement.active else None
        # What no rank reads, a target that the loss leaves out say, is no input of the plan.
        read = {name: tensors[name] for name in self._execution.inputs if name in tensors}
        if self._host_weights.are_of(entry):
            if local and comparison is not None:
                # The ranks are about to add up their weights, which only the same calls can.
                self._agreement.agree(*comparison)
            read[SHARED_WEIGHTS] = self._host_weights.of(entry, tensors, local)

        def run() -> dict[str, float]:
            return self._execution.run(entry, flags, read, scalars, first_row=first)

        return run() if comparison is None else self._agreement.agree_while(run, *comparison)

    def _comparison(
        self,
        flags: set[str],
        local: bool,
        rows: tuple[int, int] | None,
        scalars: Mapping[str, float],
        tensors: Mapping[str, torch.Tensor],
    ) -> tuple[bytes, int, Callable[[], list[Fact]]]:
        """What says that a run is the same on all ranks, on the same batch, of `local` rows among ranks that have the same."""
        inputs = self._description.inputs
        everywhere = [tensor for name, tensor in tensors.items() if not (local and inputs[name].split)]
        here = [tensor for name, tensor in tensors.items() if local and inputs[name].split]
        # The bytes of numbers: to print them would take longer than all the rest.
        numbers = struct.pack(f"{len(scalars)}d", *scalars.values())
        common = f"{sorted(flags)} {local} {fingerprint(everywhere, SAMPLE_BYTES)} ".encode() + numbers
        arguments = {"update": "update" in flags, "local": local, "accumulating": "fresh" not in flags}
        return (
            common,
            fingerprint(here, SAMPLE_BYTES),
            lambda: call_facts(self._description, arguments, self._steps, tensors, rows),
        )

    def _agree_on_values(self, values: Mapping[str, torch.Tensor], steps: Mapping[str, int] | None = None) -> None:
        """All ranks are about to load the same."""
        if not self._agreement.active:
            return
        self._agreement.agree(
            repr((sorted((steps or {}).items()), list(values), fingerprint(values.values()))).encode(),
            facts=lambda: [
                *(Fact(f"the number of steps of '{name}'", str(count)) for name, count in (steps or {}).items()),
                *value_facts(values, dict.fromkeys(values, "entry"), "load the same on all ranks"),
            ],
        )

    def _scalars(self) -> dict[str, float]:
        self._description.before_update()
        return {
            f"{group.name}.{name}": value
            for group in self._description.groups
            for name, value in group.scalars(self._steps[group.name] + 1).items()
        }

    def _loss(self, outputs: Mapping[str, float]) -> torch.Tensor:
        weight = outputs["weight_sum"] if self._description.divide else 1.0
        value = outputs["loss_sum"] / weight if weight != 0 else float("nan")
        return torch.tensor(value, dtype=torch.float32, device="cpu")


def rehearse(path: str | os.PathLike, device: DelayDevice) -> Rehearsal:
    """The plan of a program folder on a device whose kernels and links take stated times. Needs no memory for the model.

    Raises ProgramError if a file is missing or damaged, UsageError for costs that make no sense.
    """
    return Rehearsal(saved.read(path).plan, device)


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"expected {what} to be a mapping, got {type(value).__name__}")
    return value


def _fit(value: Any, shape: Any, dtype: torch.dtype, name: str, problems: list[str]) -> torch.Tensor:
    """The value as a dense tensor of this dtype on the CPU, or a further problem."""
    if not isinstance(value, torch.Tensor):
        problems.append(f"'{name}' expected a tensor, got {type(value).__name__}")
    elif tuple(value.shape) != tuple(shape):
        problems.append(f"'{name}' expected shape {tuple(shape)}, got {tuple(value.shape)}")
    elif value.layout != torch.strided or value.is_meta:
        problems.append(f"'{name}' expected a dense tensor with values, got one on {value.device}, {value.layout}")
    elif not torch.can_cast(value.dtype, dtype):
        problems.append(f"'{name}' expected {dtype}, got {value.dtype}")
    else:
        return plain(value, dtype)
    return torch.empty(0)


def load(path: str | os.PathLike) -> Program:
    """Reads a program folder and starts it with the state it was saved with.

    Raises ProgramError if a file is missing or damaged, or if the program needs instructions that this machine lacks.
    """
    with on_the_way():
        parts = saved.read(path)
        program = Program(parts.description, parts.plan, parts.kernels, parts.texts, parts.steps)
    try:
        program._agree_on_folder(parts.digest)
        program._restore(parts.states)
    except RanksDifferError:
        program.close()
        raise
    except UsageError as error:
        program.close()
        raise ProgramError(f"{path}: damaged: {error}") from None
    return program
