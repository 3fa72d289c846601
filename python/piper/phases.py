# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the compiler's phases on a module: scheduling, planning, and the export of the plan."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping

from .diagnostics import describe
from .errors import CompileError, StrategyError

# The pipelines in order, the phase that each ends in, and what a failure means: what the directives ask for cannot be had, or the compiler is at fault.
PIPELINES = {
    "scheduled": ("piper-schedule-pipeline", StrategyError),
    "planned": ("piper-plan-pipeline", CompileError),
}


class Phases:
    """A module on its way from the imported to the planned phase. `text[phase]` is what each phase left behind."""

    def __init__(self, imported: str):
        """Runs every pipeline on the text of an imported module. Raises StrategyError or CompileError with a command that reproduces a failure."""
        from piper._mlir import ir

        self.text: dict[str, str] = {"imported": imported}
        self._context = ir.Context()
        with self._context:
            self._module = self._parse(imported)
            for phase, (pipeline, failure) in PIPELINES.items():
                self._run(pipeline, failure)
                self.text[phase] = self._print()

    def functions(self) -> dict[str, str]:
        """Every function that the plan launches, as a module of its own with one public function, by name."""
        from piper._mlir import ir
        from piper._mlir._mlir_libs import _piper

        with self._context:
            launched = set(_piper.plan_kernels(self._module))
            result = {}
            for op in self._module.body.operations:
                if op.operation.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value in launched:
                    result[ir.StringAttr(op.attributes["sym_name"]).value] = _standalone(op)
            return result

    def export(self, workspace_bytes: Mapping[str, int]) -> bytes:
        """The plan's binary form. `workspace_bytes`: scratch that each function needs, by name."""
        from piper._mlir._mlir_libs import _piper

        try:
            return _piper.export_plan(self._module, dict(workspace_bytes))
        except RuntimeError as error:
            raise CompileError(f"the plan cannot be exported: {error}") from None

    def _parse(self, text: str):
        from piper._mlir import ir

        try:
            return ir.Module.parse(text)
        except ir.MLIRError as error:
            raise reproducible(CompileError, describe(error), "", text) from None

    def _run(self, pipeline: str, failure: type[CompileError]) -> None:
        from piper._mlir import ir
        from piper._mlir.passmanager import PassManager

        before = self._module.operation.clone()
        try:
            PassManager.parse(f"builtin.module({pipeline})").run(self._module.operation)
        except ir.MLIRError as error:
            text = before.get_asm(enable_debug_info=True) + "\n"
            raise reproducible(failure, describe(error), f"--{pipeline}", text) from None

    def _print(self) -> str:
        return self._module.operation.get_asm() + "\n"


def private_function(text: str) -> str:
    """The one function of a module as text that can stand inside another module."""
    from piper._mlir import ir
    from piper._mlir.passmanager import PassManager

    with ir.Context():
        try:
            module = ir.Module.parse(text)
            # Data that stand beside the module would be lost.
            PassManager.parse("builtin.module(piper-inline-resources)").run(module.operation)
        except ir.MLIRError as error:
            raise reproducible(CompileError, describe(error), "", text) from None
        function = next(op for op in module.body.operations if op.operation.name == "func.func")
        function.attributes["sym_visibility"] = ir.StringAttr.get("private")
        return function.operation.get_asm(use_local_scope=True)


def _standalone(function) -> str:
    copy = function.operation.clone()
    if "sym_visibility" in copy.attributes:
        del copy.attributes["sym_visibility"]
    return "module {\n" + copy.get_asm(use_local_scope=True) + "\n}\n"


def reproducible(failure: type[CompileError], message: str, options: str, text: str) -> CompileError:
    """The error of a pass that failed on `text`, with the piper-opt command that repeats it."""
    try:
        name = _keep(text)
    except OSError as error:
        # A full disk must not hide what failed.
        return failure(f"{message}\n(what piper-opt needs to repeat this could not be kept: {error})")
    return failure(message, " ".join(filter(None, ["piper-opt", options, shlex.quote(name)])))


def _keep(text: str) -> str:
    handle, name = tempfile.mkstemp(prefix="piper-", suffix=".mlir", dir=os.environ.get("PIPER_REPRODUCER_DIR"))
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except BaseException:
        os.unlink(name)
        raise
    return name
