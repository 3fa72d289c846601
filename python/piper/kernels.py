# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles the functions of a program to objects: in parallel, each once per host, from the cache where it has them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from .cache import CompiledObject, ObjectCache, content_key
from .errors import CompileError
from .phases import reproducible
from .progress import Progress


def compile_functions(
    functions: Mapping[str, str], cache: ObjectCache, progress: Progress
) -> dict[str, CompiledObject]:
    """Objects by function name.

    functions: a module with one public function each, as text.
    Raises CompileError with the compiler's diagnostics and the name of the function.
    """
    from piper._mlir._mlir_libs import _piperCodegen

    cpu, features = _piperCodegen.host_cpu()
    version = _compiler_version()

    def build(name: str) -> CompiledObject:
        def make() -> CompiledObject:
            code, metadata = _piperCodegen.compile_object(functions[name], cpu, features)
            return CompiledObject(bytes(code), json.loads(metadata))

        try:
            return cache.get_or_make(content_key(functions[name], cpu, features, version), make)
        except RuntimeError as error:
            message = f"function '{name}': {error}"
            raise reproducible(CompileError, message, "--piper-lower-to-llvm", functions[name]) from None

    objects: dict[str, CompiledObject] = {}
    # The longest functions first, so that none is left alone at the end; names break ties, so that all processes go the same way.
    order = sorted(functions, key=lambda name: (-len(functions[name]), name))
    progress.step("compiling", len(order))
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        pending = {pool.submit(build, name): name for name in order}
        try:
            for done in as_completed(pending):
                objects[pending[done]] = done.result()
                progress.done()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {name: objects[name] for name in functions}


def _compiler_version() -> str:
    """Changes whenever the compiler does: objects of another build are not taken from the cache."""
    from piper import _mlir

    libraries = Path(_mlir.__path__[0], "_mlir_libs").glob("libPiperMLIR*")
    return " ".join(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in sorted(libraries))
