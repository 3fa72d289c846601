# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs on disk: what `Program.save` writes and `piper.load` reads."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import NamedTuple

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from . import folder
from .cache import CompiledObject
from .description import Description
from .errors import ProgramError


class Saved(NamedTuple):
    """The parts of a program folder."""

    description: Description
    plan: bytes
    kernels: dict[str, CompiledObject]
    texts: dict[str, str]
    states: dict[str, torch.Tensor]
    steps: dict[str, int]


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
    files = {"plan.bin": plan, "state.safetensors": save_tensors(dict(states))}
    files |= {f"kernels/{name}.o": item.code for name, item in kernels.items()}
    files |= {f"ir/{phase}.mlir": text.encode() for phase, text in texts.items()}
    manifest = {
        "program": description.to_json(),
        "kernels": {name: item.metadata for name, item in kernels.items()},
        "phases": list(texts),
        "steps": dict(steps),
        "torch": torch.__version__,
    }
    try:
        json.dumps(manifest)
    except TypeError as error:
        raise ProgramError(f"the program holds a value that cannot be saved: {error}") from None
    folder.write(path, manifest, files)


def read(path: str | os.PathLike) -> Saved:
    """Reads and checks a program folder."""
    manifest, files = folder.read(path)
    try:
        description = Description.from_json(manifest["program"])
        kernels = {
            name: CompiledObject(files[f"kernels/{name}.o"], metadata) for name, metadata in manifest["kernels"].items()
        }
        texts = {phase: files[f"ir/{phase}.mlir"].decode() for phase in manifest["phases"]}
        steps = {name: int(count) for name, count in manifest["steps"].items()}
        states = load_tensors(files["state.safetensors"])
        plan = files["plan.bin"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProgramError(f"{path}: damaged manifest: {type(error).__name__}: {error}") from None
    _check_instructions(path, kernels)
    return Saved(description, plan, kernels, texts, states, steps)


def _check_instructions(path: str | os.PathLike, kernels: Mapping[str, CompiledObject]) -> None:
    """Refuses objects that use instructions this machine lacks."""
    from piper._mlir._mlir_libs import _piperCodegen

    here = _enabled(_piperCodegen.host_cpu()[1])
    needed: set[str] = set()
    for item in kernels.values():
        needed |= _enabled(str(item.metadata.get("target_features", "")))
    missing = sorted(needed - here)
    if missing:
        raise ProgramError(
            f"{path}: compiled for a processor with {', '.join(missing)}, which this one lacks: compile again"
        )


def _enabled(features: str) -> set[str]:
    return {item[1:] for item in features.split(",") if item.startswith("+")}
