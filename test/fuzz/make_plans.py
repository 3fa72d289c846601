# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs for the fuzzer of plan files: plans that the compiler makes of small models. python make_plans.py FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

from piper._mlir import ir
from piper._mlir._mlir_libs import _piper
from piper._mlir.passmanager import PassManager

PLANS = Path(__file__).parent.parent / "plan"
SCHEDULE, PLAN = "piper-schedule-pipeline", "piper-plan-pipeline"
MODULES = {
    "pp2dp2.mlir": [PLAN],
    "memory-1f1b.mlir": [SCHEDULE, PLAN],
    "memory-zero3.mlir": [SCHEDULE, PLAN],
}


def plan_of(name: str) -> bytes:
    """The plan file of a module of test/plan."""
    with ir.Context():
        module = ir.Module.parse((PLANS / name).read_text())
        PassManager.parse(f"builtin.module({','.join(MODULES[name])})").run(module.operation)
        return _piper.export_plan(module, {})


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODULES:
        (folder / name).with_suffix(".bin").write_bytes(plan_of(name))


if __name__ == "__main__":
    main()
