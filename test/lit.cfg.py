# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lit configuration: tests run on the piper-opt that is on PATH, or the one that PIPER_OPT names."""

import os
import shutil
import sys

import lit.formats

config.name = "piper"
config.test_format = lit.formats.ShTest()
config.suffixes = [".mlir"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.environ.get("PIPER_LIT_OUT", os.path.join(config.test_source_root, "Output"))


def tool(name: str, variable: str) -> str:
    found = os.environ.get(variable) or shutil.which(name, path=os.path.dirname(sys.executable)) or shutil.which(name)
    if not found:
        lit_config.fatal(f"expected {name} on PATH or {variable} in the environment")
    return found


config.substitutions += [
    (r"\bpiper-opt\b", tool("piper-opt", "PIPER_OPT")),
    (r"\bFileCheck\b", tool("filecheck", "FILECHECK")),
    ("%python", sys.executable),
]
