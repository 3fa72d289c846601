# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of imported programs as linalg text, from the cache where it has them: torch-mlir takes seconds to load."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from .cache import CompiledObject, ObjectCache, content_key
from .importer.imported import Function, Imported
from .importer.lower import Lowering
from .importer.serialize import flatten
from .phases import private_function
from .progress import Progress


def function_texts(programs: Sequence[Imported], cache: ObjectCache, progress: Progress) -> dict[str, str]:
    """Every function of the programs by name, as text that can stand inside a module.

    Raises ImporterError that names every operation without a lowering, with the model's source line.
    """
    functions = {
        function.name: function
        for program in programs
        for family in program.families.values()
        for function in family.members.values()
    }
    keys = {name: _key(function) for name, function in functions.items()}
    texts = _cached(keys, cache)
    if len(texts) < len(functions):
        # One process of a host lowers; the others find what it left.
        with cache.lock(content_key(*keys.values())):
            texts = _cached(keys, cache)
            missing = [function for name, function in functions.items() if name not in texts]
            texts |= _lower(missing, keys, cache, progress)
    return {name: texts[name] for name in functions}


def _cached(keys: dict[str, str], cache: ObjectCache) -> dict[str, str]:
    found = {name: cache.read(key) for name, key in keys.items()}
    return {name: item.code.decode() for name, item in found.items() if item is not None}


def _lower(
    functions: Sequence[Function], keys: dict[str, str], cache: ObjectCache, progress: Progress
) -> dict[str, str]:
    if not functions:
        return {}
    progress.step("lowering", len(functions))
    with Lowering() as lowering:
        modules = lowering.lower(functions, lambda *_: progress.done())
    texts = {name: private_function(text) for name, text in modules.items()}
    for name, text in texts.items():
        cache.write(keys[name], CompiledObject(text.encode(), {}))
    return texts


def _key(function: Function) -> str:
    flat = flatten(function.name, function.graph)
    # Source lines are for errors only.
    steps = [(step.target, step.args, step.kwargs) for step in flat.steps]
    return content_key("linalg", repr((flat.name, flat.inputs, steps, flat.results)), _versions())


@functools.cache
def _versions() -> str:
    """Changes with torch, torch-mlir and the importer's own code."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).with_name("importer").glob("*.py")):
        digest.update(path.read_bytes())
    return f"torch {version('torch')} torch-mlir {version('torch-mlir')} {digest.hexdigest()}"
