# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The installed package stands alone: no library of the build environment, no symbol but the C API."""

import pathlib
import re
import shutil
import subprocess

import pytest

PACKAGE = pathlib.Path(__import__("piper").__file__).parent
LIBRARIES = sorted(p for p in PACKAGE.rglob("*.so*") if p.is_file())
SYSTEM = re.compile(r"^(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|gomp|z|zstd))[.-]")


def run(*command) -> str:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout


def test_libraries_found():
    assert any(p.name == "libPiperMLIR.so" for p in LIBRARIES)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda p: p.name)
def test_needs_only_itself_and_the_system(library):
    for line in run("ldd", library).splitlines():
        name, _, target = line.strip().partition(" => ")
        assert "not found" not in target, line
        inside = target and pathlib.Path(target.split(" (")[0]).resolve().is_relative_to(PACKAGE.resolve())
        assert inside or SYSTEM.match(pathlib.Path(name.split(" (")[0]).name), line


def test_exports_only_the_c_api():
    if not shutil.which("nm"):
        pytest.skip("no binutils on this machine")
    library = next(p for p in LIBRARIES if p.name == "libPiperMLIR.so")
    names = {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}
    assert names, "the library exports nothing"
    assert not [n for n in names if not re.match("mlir|piper", n)]
    assert "piperOptMain" in names


def test_piper_opt_runs_from_the_package_and_from_path():
    installed = PACKAGE / "bin" / "piper-opt"
    tools = [t for t in (installed if installed.exists() else None, shutil.which("piper-opt")) if t]
    assert tools
    for tool in tools:
        assert "LLVM version 22" in run(tool, "--version")
