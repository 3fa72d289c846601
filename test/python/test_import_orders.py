# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch, torch-mlir and Piper hold three copies of LLVM or MLIR; every import order must work in one process."""

import itertools
import subprocess
import sys

import pytest

# Each statement also uses what it imports, since a clash of symbols shows only then.
USES = {
    "torch": "import torch; assert (torch.ones(3, 3) @ torch.ones(3, 3)).sum() == 27",
    "torch_mlir": """
from torch_mlir import ir as upstream
with upstream.Context():
    assert "arith.constant" in str(upstream.Module.parse("func.func @f() { %c = arith.constant 1 : i32 return }"))
""",
    "piper": """
import piper
import piper._runtime
from piper._mlir import ir, passmanager
with ir.Context():
    module = ir.Module.parse("func.func @f() { %c = arith.constant 1 : i32 return }")
    passmanager.PassManager.parse("builtin.module(canonicalize)").run(module.operation)
    assert "arith.constant" not in str(module)
""",
}


@pytest.mark.parametrize("order", list(itertools.permutations(USES)), ids="-".join)
def test_import_order(order):
    program = "\n".join(USES[name] for name in order)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
