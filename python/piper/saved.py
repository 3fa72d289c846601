# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs on disk: what `Program.save` writes and `piper.load` reads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from . import folder, instructions
from .cache import CompiledObject
from .description import Description
from .errors import ProgramError

_STATE = "state.safetensors"


class Saved(NamedTuple):
    """The parts of a program folder. `digest`: a hash of the states and steps."""

    description: Description
    plan: bytes
    kernels: dict[str, CompiledObject]
    texts: dict[str, str]
    states: Mapping[str, torch.Tensor]
    steps: dict[str, int]
    digest: str


def write(
    path: str | os.PathLike,
    description: Description,
    plan: bytes,
    kernels: Mapping[str, CompiledObject],
    texts: Mapping[str, str],
    states: Mapping[str, torch.Tensor],
    steps: Mapping[str, int],
) -> None:
    """Writes a program folder."""
    files: dict[str, folder.Content] = {"plan.bin": plan, _STATE: lambda file: _write_states(states, file)}
    files |= {f"kernels/{name}.o": item.code for name, item in kernels.items()}
    files |= {f"ir/{phase}.mlir": text.encode() for phase, text in texts.items()}
    manifest = {
        "program": description.to_json(),
        "kernels": {name: item.metadata for name, item in kernels.items()},
        "instructions": instructions.needed(str(item.metadata.get("target_features", "")) for item in kernels.values()),
        "phases": list(texts),
        "steps": dict(steps),
        "torch": torch.__version__,
    }
    try:
        json.dumps(manifest)
    except TypeError as error:
        raise ProgramError(f"the program holds a value that cannot be saved: {error}") from None
    folder.write(path, manifest, files)


def _write_states(states: Mapping[str, torch.Tensor], file: Path) -> None:
    try:
        save_file(dict(states), file)
    except SafetensorError as error:
        raise OSError(str(error)) from None


def read(path: str | os.PathLike) -> Saved:
    """Reads and checks a program folder. The states are read from the file as they are asked for."""
    manifest, files = folder.read(path, large={_STATE})
    try:
        needed = [str(name) for name in manifest["instructions"]]
        _check_instructions(path, needed)
        description = Description.from_json(manifest["program"])
        kernels = {
            name: CompiledObject(files[f"kernels/{name}.o"], metadata) for name, metadata in manifest["kernels"].items()
        }
        texts = {phase: files[f"ir/{phase}.mlir"].decode() for phase in manifest["phases"]}
        steps = {name: int(count) for name, count in manifest["steps"].items()}
        states = States(files[_STATE])
        plan = files["plan.bin"]
        digest = f"{manifest['files'][_STATE]['sha256']} {sorted(steps.items())}"
    except (KeyError, TypeError, ValueError, AttributeError, SafetensorError) as error:
        raise ProgramError(f"{path}: damaged manifest: {type(error).__name__}: {error}") from None
    return Saved(description, plan, kernels, texts, states, steps, digest)


class States(Mapping[str, torch.Tensor]):
    """The tensors of a safetensors file: each is in memory only while somebody holds it."""

    def __init__(self, path: Path):
        self._file = safe_open(path, framework="pt")
        self._names = list(self._file.keys())

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._file.get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _check_instructions(path: str | os.PathLike, needed: list[str]) -> None:
    """Refuses objects that use instructions this machine lacks."""
    missing = sorted(set(needed) - instructions.here())
    if missing:
        raise ProgramError(
            f"{path}: compiled for a processor with {', '.join(missing)}, which this one lacks: compile again"
        )
