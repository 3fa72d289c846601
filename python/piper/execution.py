# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A loaded plan: its ranks in this process, and what the host gives to and reads from them."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from . import _runtime
from .agreement import Fact
from .errors import PiperError, ProgramError, RankLostError, RunError, UsageError
from .memory import plain
from .rendezvous import Process, check_world_size, meet

if TYPE_CHECKING:
    from .rehearsal import DelayDevice

_DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "i1": torch.bool,
}
# A plan's types have no sign, as MLIR's: what the host gives and takes of eight bits may be of either kind.
_UNSIGNED = {"i8": torch.uint8}
_DEFAULT_TIMEOUT_SECONDS = 300.0
# Within this time the watcher has seen that a process died.
_NOTICE_SECONDS = 1.0

_runtime.set_rank_lost(RankLostError)


class Span(NamedTuple):
    """One action of one stream of one rank; times in seconds, on one clock for all ranks of a machine.

    `waited` is the part of it that the stream waited for others.
    """

    rank: int
    stream: str
    label: str
    opcode: str
    start: float
    end: float
    waited: float
    where: str


class RankStats(NamedTuple):
    """What a rank did since it was loaded.

    `arena_bytes` is the end of the highest byte of working memory that executed actions touched, `planned_bytes` what the plan says.
    """

    rank: int
    actions: int
    skipped: int
    waited: float
    arena_bytes: int
    planned_bytes: int


class Execution:
    """A plan and its kernels, ready to run.

    Without RANK and WORLD_SIZE in the environment all ranks are threads of this process; with them (torchrun sets them) this process is one rank, and meets the
    others at MASTER_ADDR:MASTER_PORT. Then every method but `write_state`, `stats` and `trace` is collective: all processes call it, in the same order.

    Raises ProgramError for a damaged plan or object, UsageError if WORLD_SIZE is not the plan's, RankLostError if a process of the job is gone.
    """

    def __init__(
        self,
        plan: bytes,
        kernels: Mapping[str, bytes],
        *,
        local: bool = False,
        device: DelayDevice | None = None,
        facts: Sequence[Fact] = (),
    ):
        """kernels: object files by name. local: all ranks are threads of this process, whatever the environment says.

        device: where to run instead of this machine's cores. It needs no kernels and no inputs, and its outputs say nothing.
        facts: what the plan is of, so that processes that come with different ones can say why.
        """
        try:
            parsed = _runtime.Plan.parse(plan)
        except ValueError as error:
            raise ProgramError(str(error)) from None
        self._info = parsed.describe()
        self._flags = {name: 1 << number for number, name in enumerate(self._info["flags"])}
        self._scalars = {item[0]: (number, item[1]) for number, item in enumerate(self._info["scalars"])}
        self._output_specs = [
            (name, _DTYPES[dtype], math.prod(shape) * _DTYPES[dtype].itemsize, shape)
            for name, dtype, _, shape in self._info["outputs"]
        ]
        self._states = {name: (dtype, shape) for name, _, dtype, shape in self._info["states"]}
        self._closed = False
        # Threads take turns. Again by the thread that has it: a method of Program keeps it from a run until results are read.
        self._turn = threading.RLock()
        #: What is known of the indices that a kernel has refused.
        self._indices = ""
        self._owner = os.getpid()
        self._tracing = False
        self._traced_entry: str | None = None
        timeout = _timeout()
        process = None if local else check_world_size(self._info["world_size"])
        self.world_size: int = self._info["world_size"]
        self.ranks: list[int] = list(range(self.world_size)) if process is None else [process.rank]
        self._is_shared = len(self.ranks) != self.world_size
        self._is_delayed = device is not None
        try:
            costs = None if device is None else device.costs()
            self._program = _runtime.Program(parsed, list(kernels.items()), self.ranks, timeout, costs)
        except RuntimeError as error:
            raise (ProgramError if device is None else UsageError)(str(error)) from None
        if process is not None and self._is_shared:
            self._meet(process, timeout, [*facts, Fact("the plan", hashlib.sha256(plan).hexdigest(), "is another")])
        _watch(self)

    def _meet(self, process: Process, timeout: float, facts: Sequence[Fact]) -> None:
        connected = False

        def connect(handles: Sequence[str]) -> None:
            nonlocal connected
            self._program.connect(handles)
            connected = True

        try:
            meet(process, self._program.handles(), connect, timeout, facts)
        except RankLostError as error:
            # Once the ranks are connected the watcher says what happened; it may notice a moment later than the store.
            deadline = time.monotonic() + _NOTICE_SECONDS
            while connected and not self._program.has_failed() and time.monotonic() < deadline:
                time.sleep(0.01)
            if not self._program.has_failed():
                print(f"piper: rank {process.rank}: {error}", file=sys.stderr, flush=True)
            raise

    def run(
        self,
        entry: str,
        flags: Iterable[str] = (),
        inputs: Mapping[str, torch.Tensor] | Sequence[torch.Tensor] = (),
        scalars: Mapping[str, float] | None = None,
        *,
        first_row: int = 0,
    ) -> dict[str, Any]:
        """Runs an entry on all ranks of this process and returns its outputs: numbers, or tensors where an output is no scalar.

        inputs: dense CPU tensors, the global batch's or, of inputs that are divided by rows, this process's rows, which begin at row `first_row` of the global
        tensor. scalars: those given replace earlier values.
        Raises UsageError for unknown names and wrong dtypes or sizes, RunError if a kernel fails (then the program runs no more), RankLostError if another
        process's rank is lost.
        """
        self._check_usable()
        if entry not in self._info["entries"]:
            raise UsageError(f"expected an entry out of {', '.join(self._info['entries'])}, got {entry!r}")
        given = self._order_inputs(inputs) if inputs or not self._is_delayed else [None] * len(self._info["inputs"])
        # Held until the run is over.
        tensors = [v if v is None or isinstance(v, torch.Tensor) else torch.as_tensor(v, device="cpu") for v in given]
        arguments = [
            self._input_argument(spec, tensor, first_row)
            for spec, tensor in zip(self._info["inputs"], tensors, strict=True)
        ]
        bits, values = self._flag_bits(flags), self._scalar_arguments(scalars or {})
        # Outputs are read before the next run overwrites them.
        with self._turn:
            self._check_usable()
            trace, self._tracing = self._tracing, False
            stopped = self._program.has_failed()
            try:
                self._program.run(entry, bits, arguments, values, trace)
            except RuntimeError as error:
                given = dict(zip((spec[0] for spec in self._info["inputs"]), tensors, strict=True))
                raise self._explained(str(error), stopped, given) from None
            if trace:
                self._traced_entry = entry
            return self._outputs()

    def exchange(self, given: bytes) -> list[bytes]:
        """Gives bytes to all processes of the job and returns what each gave, by rank; only the own where all ranks are threads of this process.

        Microseconds for up to 4096 bytes; any number of bytes, of which each process may give another. Collective, between runs.
        """
        self._check_usable()
        if not self._is_shared:
            return [given]
        return self._told(lambda: self._program.exchange(given))

    def offer(self, given: bytes) -> bool:
        """Begins an exchange of at most 4096 bytes, which `collect` ends; what runs between is stopped where ranks differ in the first 8 bytes.

        False if one that is here already differs.
        """
        return self._told(lambda: self._program.offer(given))

    def collect(self) -> list[bytes]:
        """What each process offered, by rank. Once for each offer."""
        return self._told(self._program.collect)

    def stop_differing(self) -> None:
        """Ends all runs, here and elsewhere, and lets none begin; the processes may still exchange what they have to say."""
        self._program.stop_differing()

    @property
    def ranks_differ(self) -> bool:
        """Whether a run was begun by ranks that are not alike."""
        return not self._closed and self._program.differs()

    def _told(self, ask: Callable[[], Any]) -> Any:
        with self._turn:
            self._check_usable()
            stopped = self._program.has_failed()
            try:
                return ask()
            except RuntimeError as error:
                raise self._explained(str(error), stopped) from None

    @property
    def turn(self) -> contextlib.AbstractContextManager:
        """Inside it no other thread runs or reads the program."""
        # In a fork the thread that has it may not be there; what is called then says that the program belongs to another process.
        return self._turn if self._owner == os.getpid() else contextlib.nullcontext()

    @property
    def is_shared(self) -> bool:
        """Whether other processes have some of the ranks."""
        return self._is_shared

    @property
    def is_usable(self) -> bool:
        """Whether the program is this process's own, open, and no rank has failed."""
        return self._owner == os.getpid() and not self._closed and not self._program.has_failed()

    def _check_usable(self) -> None:
        """Memory of a closed program, or of another process's, is not there any more."""
        if self._owner != os.getpid():
            raise UsageError("the program belongs to the process that forked this one: load it again here")
        if self._closed:
            raise UsageError("the program is closed")

    def _explained(
        self, message: str, stopped: bool, given: Mapping[str, torch.Tensor | None] | None = None
    ) -> PiperError:
        """given: the batch that the program ran on."""
        if stopped:
            return RunError(f"the program stopped earlier, when {message}{self._indices}: load or compile it again")
        if not self._program.has_failed():
            return UsageError(message)
        if "index" in message:
            self._indices = f" (an index is out of range, such as a token or a class of the target{_integers(given)})"
        return RunError(f"{message}{self._indices}; the program runs no more: load or compile it again")

    def _flag_bits(self, flags: Iterable[str]) -> int:
        bits = 0
        for flag in flags:
            if flag not in self._flags:
                raise UsageError(f"expected flags out of {', '.join(self._flags)}, got {flag!r}")
            bits |= self._flags[flag]
        return bits

    def _order_inputs(self, inputs: Mapping[str, torch.Tensor] | Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        names = [spec[0] for spec in self._info["inputs"]]
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(names):
                raise UsageError(f"expected {len(names)} inputs, got {len(inputs)}")
            return list(inputs)
        unknown = [name for name in inputs if name not in names]
        if unknown:
            raise UsageError(f"expected inputs out of {', '.join(names)}, got {', '.join(unknown)}")
        # An input that the entry does not read may be left out; the runtime checks the others.
        return [inputs.get(name) for name in names]

    def _input_argument(
        self, spec: tuple[str, str, int, int], tensor: torch.Tensor | None, first_row: int
    ) -> tuple[int, int, int]:
        name, dtype, row_bytes, rows = spec
        if tensor is None:
            return 0, 0, 0
        if tensor.dtype not in (_DTYPES[dtype], _UNSIGNED.get(dtype)):
            raise UsageError(f"input '{name}': expected {_DTYPES[dtype]}, got {tensor.dtype}")
        is_plain = tensor.layout == torch.strided and tensor.is_contiguous() and not tensor.is_neg()
        if tensor.device.type != "cpu" or not is_plain:
            raise UsageError(f"input '{name}': expected a contiguous CPU tensor")
        size = tensor.numel() * tensor.element_size()
        if size == row_bytes * rows:
            return tensor.data_ptr(), size, 0
        if rows == 1 or size > row_bytes * (rows - first_row) or (row_bytes and size % row_bytes):
            raise UsageError(
                f"input '{name}': expected {rows} rows of {row_bytes} bytes, or some of them from row {first_row}, "
                f"got {size} bytes"
            )
        return tensor.data_ptr(), size, first_row * row_bytes

    def _scalar_arguments(self, scalars: Mapping[str, float]) -> list[tuple[int, float, int]]:
        arguments = []
        for name, value in scalars.items():
            if name not in self._scalars:
                raise UsageError(f"expected scalars out of {', '.join(self._scalars)}, got {name!r}")
            number, dtype = self._scalars[name]
            arguments.append((number, float(value), int(value) if dtype.startswith("i") else 0))
        return arguments

    def _outputs(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, dtype, size, shape in self._output_specs:
            if name in values:
                continue
            data = self._program.output(name, size)
            if data is None:
                continue
            tensor = (
                torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype, device="cpu")
            )
            values[name] = tensor.reshape(shape) if shape else tensor.item()
        return values

    def read_state(self, name: str) -> torch.Tensor:
        """The whole logical tensor of a state, assembled from the ranks that hold its parts; of equal holders the lowest rank is read."""
        self._check_usable()
        dtype, shape = self._state(name)
        tensor = torch.empty(shape, dtype=_DTYPES[dtype], device="cpu")
        # Nobody may be in a run while others read its memory.
        if self._is_shared:
            self._program.barrier()
        self._program.read_state(name, tensor.data_ptr())
        if self._is_shared:
            self._program.barrier()
        return tensor

    def copies(self, name: str) -> dict[int, torch.Tensor]:
        """What each rank that holds a whole state has of it, by rank: replicas are equal, bit by bit."""
        self._check_usable()
        dtype, shape = self._state(name)
        result = {}
        if self._is_shared:
            self._program.barrier()
        for rank in range(self.world_size):
            tensor = torch.empty(shape, dtype=_DTYPES[dtype], device="cpu")
            if self._program.read_copy(name, rank, tensor.data_ptr()):
                result[rank] = tensor
        if self._is_shared:
            self._program.barrier()
        return result

    def write_state(self, name: str, value: torch.Tensor) -> None:
        """Sets a state on the ranks of this process that hold parts of it. Raises UsageError unless dtype and shape are the state's."""
        self._check_usable()
        dtype, shape = self._state(name)
        if not isinstance(value, torch.Tensor):
            value = torch.as_tensor(value, device="cpu")
        if value.dtype not in (_DTYPES[dtype], _UNSIGNED.get(dtype)) or tuple(value.shape) != tuple(shape):
            raise UsageError(
                f"state '{name}': expected {_DTYPES[dtype]} of shape {tuple(shape)}, "
                f"got {value.dtype} of shape {tuple(value.shape)}"
            )
        value = plain(value)
        self._program.write_state(name, value.data_ptr())

    def read_gradient(self, name: str) -> torch.Tensor:
        """The whole gradient of the parameter `name`, as the last run left it: a sum, not divided by weights."""
        return self.read_state(f"{name}:grad")

    def _state(self, name: str) -> tuple[str, tuple[int, ...]]:
        if name not in self._states:
            raise UsageError(f"the program has no state {name!r}")
        return self._states[name]

    def duration(self) -> float:
        """Seconds that the last run took on a device of stated times, without the lateness of threads; 0 on others."""
        return self._program.duration()

    @property
    def flags(self) -> list[str]:
        """The names of all flags."""
        return list(self._flags)

    @property
    def inputs(self) -> list[str]:
        """The names of the inputs that some rank reads."""
        return [spec[0] for spec in self._info["inputs"]]

    @property
    def states(self) -> list[str]:
        """The names of all states."""
        return list(self._states)

    def start_trace(self) -> None:
        """The next run is traced."""
        self._tracing = True

    def trace(self) -> list[Span]:
        """What the ranks of this process did in the last traced run, in the order of ranks, streams and actions."""
        self._check_usable()
        if self._traced_entry is None:
            return []
        return [
            Span(rank, stream, label or opcode, opcode, begin * 1e-9, end * 1e-9, waited * 1e-9, where)
            for rank, stream, _, opcode, label, where, begin, end, waited in self._program.trace(self._traced_entry)
        ]

    def stats(self) -> list[RankStats]:
        """Counters of the ranks of this process."""
        self._check_usable()
        planned = {rank: item["peak_bytes"] for item in self._info["classes"] for rank in item["ranks"]}
        totals = {rank: [0, 0, 0, 0] for rank in self.ranks}
        for rank, _, actions, skipped, waited, arena in self._program.stats():
            total = totals[rank]
            totals[rank] = [total[0] + actions, total[1] + skipped, total[2] + waited, max(total[3], arena)]
        return [
            RankStats(rank, actions, skipped, waited * 1e-9, arena, planned[rank])
            for rank, (actions, skipped, waited, arena) in totals.items()
        ]

    def buffers(self, rank: int) -> list[tuple[str, str, int, int, int, int]]:
        """The planned buffers of a rank: label, kind, offset and bytes in the arena, first and last action."""
        return [item[:6] for found in self._info["classes"] if rank in found["ranks"] for item in found["buffers"]]

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Ends the threads and frees the memory of this process's ranks."""
        if not self._closed:
            self._closed = True
            self._program.close()


def _integers(given: Mapping[str, torch.Tensor | None] | None) -> str:
    """Which integers a batch holds: a kernel knows neither where its index came from nor of which input it is."""
    listed = []
    for name, value in (given or {}).items():
        if value is not None and value.numel() and not (value.is_floating_point() or value.dtype == torch.bool):
            least, most = (int(number) for number in torch.aminmax(value))
            listed.append(f"'{name}' from {least} to {most}")
    return f"; integers in this batch: {', '.join(listed)}" if listed else ""


def _timeout() -> float:
    text = os.environ.get("PIPER_TIMEOUT_S")
    if text is None:
        return _DEFAULT_TIMEOUT_SECONDS
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise UsageError(f"expected seconds as PIPER_TIMEOUT_S, got {text!r}")
    return value


# Executions of jobs of several processes: the others learn from these why this process ends.
_alive: weakref.WeakSet[Execution] = weakref.WeakSet()
_previous_hook = None


def _watch(execution: Execution) -> None:
    global _previous_hook
    if not _alive and _previous_hook is None:
        _previous_hook = sys.excepthook
        sys.excepthook = _report_exception
        atexit.register(_close_all)
    _alive.add(execution)


def _report_exception(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
    """Tells the other processes what ends this one, then shows it as usual."""
    for execution in list(_alive):
        if getattr(error, "raised_on_all_ranks", False):
            continue
        if execution._is_shared and not execution._closed and execution._owner == os.getpid():
            text = " ".join(str(error).split())
            execution._program.fail(f"rank {execution.ranks[0]} raised {kind.__name__}: {text}")
    _previous_hook(kind, error, traceback)


def _close_all() -> None:
    for execution in list(_alive):
        if execution._owner == os.getpid():
            execution.close()
