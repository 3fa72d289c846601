# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A failing pass names one piper-opt command, and that command fails in the same way."""

import os
import shlex
import shutil
import subprocess
import sys

import piper
import pytest
import torch
from piper.cache import ObjectCache
from piper.kernels import compile_functions
from piper.phases import Phases
from piper.progress import Progress
from torch import nn
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PIPER_REPRODUCER_DIR", str(tmp_path))


def check(error: piper.CompileError, message: str, folder) -> None:
    assert message in str(error)
    assert "see current operation" not in str(error)
    assert f"reproduce with: {error.command}" in str(error)
    words = shlex.split(error.command)
    assert words[0] == "piper-opt" and os.path.dirname(words[-1]) == str(folder)
    # As installed, beside this Python, or on the path.
    places = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    again = subprocess.run(
        [shutil.which(words[0], path=places), *words[1:]], capture_output=True, text=True, timeout=60
    )
    assert again.returncode == 1
    assert message in again.stderr


def test_scheduling(tmp_path):
    model = piper.annotate_modules(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), {"stage": [["0"], ["1"]]})
    strategy = piper.Strategy(piper.Mesh(pp=2)).place({"stage": 0}, [0])
    with pytest.raises(piper.StrategyError) as caught:
        piper.compile(model, F.mse_loss, (torch.ones(2, 4), torch.ones(2, 4)), strategy=strategy, progress=False)
    check(caught.value, "expected a directive that places", tmp_path)


def test_parsing(tmp_path):
    with pytest.raises(piper.CompileError) as caught:
        Phases("module { piper.mesh @mesh [] [2] }")
    check(caught.value, "expected", tmp_path)


def test_lowering(tmp_path):
    text = "module { func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> } }"
    with pytest.raises(piper.CompileError) as caught:
        compile_functions({"f": text}, ObjectCache(tmp_path / "cache"), Progress(False))
    check(caught.value, "expected", tmp_path)
