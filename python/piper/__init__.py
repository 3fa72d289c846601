# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Piper compiles PyTorch models and declared parallel strategies into programs for many devices."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import schedules, strategies
    from .compiler import compile
    from .compositions import verify_all
    from .directives import Strategy
    from .errors import (
        CompileError,
        CoupledRowsWarning,
        PiperError,
        ProgramError,
        RankLostError,
        UnusedParametersWarning,
        UsageError,
    )
    from .importer.annotate import annotate, annotate_modules, annotations_of
    from .mesh import Mesh
    from .plan_simulation import Simulation, simulate
    from .profile import MachineProfile
    from .program import Program, load, rehearse
    from .rehearsal import DelayDevice, Rehearsal
    from .verification import verify

# Names are loaded when first used, so that `import piper` costs nothing.
_HOMES = {
    "CompileError": "errors",
    "CoupledRowsWarning": "errors",
    "DelayDevice": "rehearsal",
    "MachineProfile": "profile",
    "Mesh": "mesh",
    "PiperError": "errors",
    "Program": "program",
    "ProgramError": "errors",
    "RankLostError": "errors",
    "Rehearsal": "rehearsal",
    "RunError": "errors",
    "Simulation": "plan_simulation",
    "Strategy": "directives",
    "StrategyError": "errors",
    "UnusedParametersWarning": "errors",
    "UsageError": "errors",
    "annotate": "importer.annotate",
    "annotate_modules": "importer.annotate",
    "annotations_of": "importer.annotate",
    "compile": "compiler",
    "load": "program",
    "rehearse": "program",
    "schedules": "schedules",
    "simulate": "plan_simulation",
    "strategies": "strategies",
    "verify": "verification",
    "verify_all": "compositions",
}
__all__ = [
    "CompileError",
    "CoupledRowsWarning",
    "DelayDevice",
    "MachineProfile",
    "Mesh",
    "PiperError",
    "Program",
    "ProgramError",
    "RankLostError",
    "Rehearsal",
    "RunError",
    "Simulation",
    "Strategy",
    "StrategyError",
    "UnusedParametersWarning",
    "UsageError",
    "annotate",
    "annotate_modules",
    "annotations_of",
    "compile",
    "load",
    "rehearse",
    "schedules",
    "simulate",
    "strategies",
    "verify",
    "verify_all",
]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'piper' has no attribute '{name}'")
    module = importlib.import_module(f".{_HOMES[name]}", __name__)
    value = module if name in ("schedules", "strategies") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
