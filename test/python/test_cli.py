# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Wrong use of the command line: one message, exit code 2."""

import subprocess
import sys

import pytest

MODEL = """
import torch
def build():
    return torch.nn.Linear(4, 2), torch.nn.functional.mse_loss, [(torch.ones(4, 4), torch.zeros(4, 2))]
"""


def run(*arguments, cwd):
    command = [sys.executable, "-m", "piper.cli", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    "content, arguments, message",
    [
        (None, ["train", "m.py"], "m.py: no such file"),
        ("x = 1", ["train", "m.py"], "expected a function build() that returns (model, loss_fn, batches)"),
        ("def build(): return 3", ["verify", "m.py"], "expected build() to return (model, loss_fn, batches), got int"),
        (
            "def build(): return 1, 2, []",
            ["train", "m.py"],
            "expected batches to be a non-empty list or a function of the step, got list",
        ),
        (MODEL, ["train", "m.py", "--mesh", "2x2"], "--mesh: expected axes and ranks such as pp=2,dp=2, got '2x2'"),
        (
            MODEL,
            ["train", "m.py", "--mesh", "pp=2", "--schedule", "zb"],
            "expected a schedule out of gpipe, 1f1b, got 'zb'",
        ),
        (MODEL, ["compile", "m.py"], "Missing option"),
        (MODEL, ["train", "m.py", "--zero", "4"], "--zero"),
        (MODEL, ["train", "m.py", "--strategy", "none.json"], "No such file"),
    ],
)
def test_wrong_use(tmp_path, content, arguments, message):
    if content is not None:
        (tmp_path / "m.py").write_text(content)
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr
