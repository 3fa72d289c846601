# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lowers functions to linalg text, each in one of a few worker processes, so that torch-mlir never takes the user's
process down.

A function that fails is taken apart: its operations are lowered one by one, and every one that fails or crashes is
reported with the user's line.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from torch import fx

from . import advice, decompositions
from .capture import decompose, decomposition_table
from .equivalents import instead_of
from .errors import ImporterError
from .graphs import calls, subgraph
from .imported import Function, Imported
from .library_ops import library_call
from .serialize import FlatGraph, flatten, unflatten


@dataclass(frozen=True)
class _Failure:
    message: str
    crashed: bool


class _Worker:
    """One process of lower_worker.py; a crash is an answer, and the next request starts another process."""

    def __init__(self):
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        package = str(Path(__file__).parents[2])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])]),
            "OMP_NUM_THREADS": "1",
        }
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "piper.importer.lower_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )

    def request(self, flat: FlatGraph) -> str | _Failure:
        if self._process is None:
            self.start()
        try:
            pickle.dump(flat, self._process.stdin)
            self._process.stdin.flush()
            kind, reply = pickle.load(self._process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            return _Failure(self._ended(), True)
        return reply if kind == "ok" else _Failure(reply, False)

    def _ended(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        tail = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        self.stop()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"torch-mlir ended with {how}" + "".join(f": {line}" for line in tail)

    def kill(self) -> None:
        process = self._process
        if process is not None:
            process.kill()

    def stop(self) -> None:
        if self._process is None:
            return
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream.close()
        self._process.wait()
        self._errors.close()
        self._process = None


class Lowering:
    """A pool of worker processes. Use it as a context manager; the processes start at once, so open it before the model
    is captured.

    Args:
        workers: how many processes; by default one per core this process may use, four at most.
    """

    def __init__(self, workers: int | None = None):
        count = workers or min(4, len(os.sched_getaffinity(0)))
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._workers = [_Worker() for _ in range(count)]
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="piper-lowering")

    def __enter__(self) -> Lowering:
        for worker in self._workers:
            worker.start()
            self._idle.put(worker)
        return self

    def __exit__(self, exception, *_details) -> None:
        # After an error nobody waits for what is still being lowered.
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers if exception else ():
            worker.kill()
        self._threads.shutdown(wait=True)
        for worker in self._workers:
            worker.stop()

    def lower(
        self, functions: Iterable[Function], progress: Callable[[int, int], None] | None = None
    ) -> dict[str, str]:
        """Function name to module text, with one public function of that name.

        Args:
            progress: called with (functions done, functions in all) whenever one is done, from any thread.

        Raises:
            ImporterError: naming every operation that can't be lowered and where the model uses it.
        """
        flats = {function.name: flatten(function.name, function.graph) for function in functions}
        done, lock = [0], threading.Lock()

        def run(flat: FlatGraph) -> str | _Failure:
            reply = self._request(flat)
            with lock:
                done[0] += 1
                if progress:
                    progress(done[0], len(flats))
            return reply

        replies = dict(zip(flats, self._threads.map(run, flats.values()), strict=True))
        failed = {name: reply for name, reply in replies.items() if isinstance(reply, _Failure)}
        if failed:
            raise ImporterError(self._explain(failed, flats))
        return replies

    def _request(self, flat: FlatGraph) -> str | _Failure:
        worker = self._idle.get()
        try:
            return worker.request(flat)
        finally:
            self._idle.put(worker)

    def _explain(self, failed: Mapping[str, _Failure], flats: Mapping[str, FlatGraph]) -> str:
        suspects: dict[str, tuple[FlatGraph, list[str]]] = {}
        owners: dict[str, set[str]] = {}
        lines: dict[str, int] = {}
        forms: dict[str, str] = {}
        explained: set[str] = set()
        for name in failed:
            try:
                operations = _single_operations(flats[name])
            except Exception as error:  # noqa: BLE001  (a decomposition of torch may raise anything)
                explained.add(name)
                lines[f"{_sources(flats[name])}: can't be decomposed: {type(error).__name__}: {error}"] = 1
                continue
            for operation, source in operations:
                key = repr((operation.inputs, [(step.target, step.args, step.kwargs) for step in operation.steps]))
                suspects.setdefault(key, (operation, []))[1].append(source)
                owners.setdefault(key, set()).add(name)
        replies = self._threads.map(lambda entry: self._request(entry[0]), suspects.values())
        for (key, (operation, sources)), reply in zip(suspects.items(), replies, strict=True):
            if isinstance(reply, _Failure):
                explained |= owners[key]
                how = f"crashes torch-mlir ({reply.message})" if reply.crashed else "has no lowering"
                how += _of_several_dtypes(operation)
                for source in sources:
                    line = f"{source or 'unknown line'}: '{operation.steps[0].target}' {how}"
                    lines[line] = lines.get(line, 0) + 1
                    forms[line] = instead_of(operation.steps[0].target)
        for name, failure in failed.items():
            if name not in explained:
                # Each operation lowers by itself: only together they don't.
                lines[f"{_sources(flats[name])}: a function can't be lowered: {failure.message}"] = 1
        listed = [
            line + (f" ({count} times)" if count > 1 else "") + (f"; instead: {forms[line]}" if forms.get(line) else "")
            for line, count in lines.items()
        ]
        if any(map(advice.is_of_transformers, lines)):
            listed.append(advice.TRANSFORMERS_EXPERTS)
        return "operations that can't be imported:\n  " + "\n  ".join(listed)


def _of_several_dtypes(flat: FlatGraph) -> str:
    """What most often is wrong then: a batch of float32 for a model of bf16, which torch itself would refuse."""
    found = sorted({str(spec.dtype) for spec in flat.inputs if spec.dtype.is_floating_point})
    return f" for {' beside '.join(found)}: the model and the batch should have one dtype" if len(found) > 1 else ""


def _sources(flat: FlatGraph) -> str:
    lines = list(dict.fromkeys(step.source for step in flat.steps if step.source)) or ["unknown line"]
    return ", ".join(lines[:4]) + (", ..." if len(lines) > 4 else "")


def _single_operations(flat: FlatGraph) -> list[tuple[FlatGraph, str]]:
    """Each operation of the decomposed function as a function of its own, with the user's line."""
    table = decomposition_table(decompositions.OWN, decompositions.EXTRA, decompositions.KEPT)
    module = decompose(unflatten(flat), flat.inputs, table)
    found = []
    for node in calls(module.graph):
        # What has no result, a check of indices say, is left out of the function, too.
        if (
            not node.users
            or library_call(node) is not None
            or isinstance(node.args and node.args[0], fx.Node)
            and _is_item(node)
        ):
            continue
        items = [user for user in node.users if _is_item(user)]
        single = subgraph([node, *items], node.all_input_nodes, items or [node])
        found.append((flatten(f"{flat.name}_{node.name}", single), node.meta["source"]))
    return found


def _is_item(node: fx.Node) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def lower_program(
    programs: Iterable[Imported], lowering: Lowering, progress: Callable[[int, int], None] | None = None
) -> dict[str, str]:
    """The text of every function of `programs` by name."""
    functions = {
        f.name: f for program in programs for family in program.families.values() for f in family.members.values()
    }
    return lowering.lower(functions.values(), progress)
