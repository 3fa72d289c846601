# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Wrong use of the command line: one message, exit code 2."""

import json
import subprocess
import sys
from pathlib import Path

import piper
import pytest

PACKAGE = Path(piper.__file__).parent
MODEL = """
import torch
def build():
    return torch.nn.Linear(4, 2), torch.nn.functional.mse_loss, [(torch.ones(4, 4), torch.zeros(4, 2))]
"""


FORWARD = """import torch
class Model(torch.nn.Linear):
    def forward(self, x):
        {}
def build():
    return Model(4, 2), torch.nn.functional.mse_loss, [(torch.ones(3, 4), torch.zeros(3, 2))]
"""


def run(*arguments, cwd):
    command = [sys.executable, "-m", "piper.cli", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    "content, arguments, message",
    [
        (None, ["train", "m.py"], "m.py: no such file"),
        ("x = 1", ["train", "m.sh"], "m.sh: expected a Python file, whose name ends in .py"),
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
            "interleaved_zb, zbv, dualpipe, dualpipev, got 'zb'",
        ),
        (MODEL, ["compile", "m.py"], "Missing option"),
        (MODEL, ["train", "m.py", "--mesh", "pp=2,pp=3"], "expected each axis once, got 'pp' twice"),
        (MODEL, ["train", "m.py", "--mesh", "pp=99999999999999999999"], "--mesh: expected axes and ranks"),
        (MODEL, ["train", "m.py", "--mesh", "dp=9999999"], "expected a mesh of at most 1048576 ranks"),
        (MODEL, ["train", "m.py", "--lr", "-1"], "--lr"),
        (MODEL, ["train", "m.py", "--lr", "nan"], "--lr"),
        (MODEL, ["train", "m.py", "--mesh", "dp=2", "--bucket-size", "inf"], "expected a bucket_size in MiB"),
        (MODEL, ["train", "m.py", "--mesh", "pp=2"], "unknown tag 'stage'"),
        (MODEL, ["train", "m.py", "--zero", "4"], "--zero"),
        (MODEL, ["train", "m.py", "--strategy", "none.json"], "No such file"),
        ("0F0,0Q1,0B0", ["simulate", "s.csv"], "s.csv: row 1, column 2: expected an action such as 2F0"),
        ("0F0,0B0", ["simulate", "s.csv", "--costs", "F"], "--costs: expected times such as F=1,B=2,I=1,W=1, got 'F'"),
        (None, ["simulate", "--schedule", "dualpipe", "--ranks", "3"], "got 3; the nearest are 2 and 4"),
        ("0F0,0B0", ["simulate", "s.csv", "--ranks", "3"], "--ranks has no meaning beside s.csv"),
        (None, ["simulate", "--costs", "F=1,F=2"], "--costs: expected each pass once, got 'F' twice in 'F=1,F=2'"),
        (None, ["simulate", "--json", "--csv"], "--csv and --json exclude each other"),
        (
            MODEL.replace("functional.mse_loss", "MSELoss"),
            ["train", "m.py"],
            "expected loss_fn to be a function or a module, got the class MSELoss",
        ),
        (None, ["simulate", "--latency", "-1"], "expected costs from 0 to 1e18, got -1"),
    ],
)
def test_wrong_use(tmp_path, content, arguments, message):
    if content is not None:
        (tmp_path / arguments[1]).write_text(content)
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "content, shown",
    [
        ("import math\nmath.sqrt(-1)", ["m.py raised ValueError", 'm.py", line 2', "math.sqrt(-1)", "ValueError:"]),
        ("def build():\n    return {}['size']", ["m.py raised KeyError", 'm.py", line 2', "KeyError: 'size'"]),
        ("def build(:", ["m.py raised SyntaxError", 'm.py", line 1', "def build(:"]),
        ("import no_such_module_here", ["m.py raised ModuleNotFoundError", 'm.py", line 1']),
        ("def build():\n    raise SystemExit(0)", ["m.py raised SystemExit", 'm.py", line 2']),
        (
            FORWARD.format("return {}['size']"),
            ["the model or its loss raised KeyError", 'm.py", line 4', "KeyError: 'size'"],
        ),
        (FORWARD.format("return x @ x"), ["the model or its loss raised RuntimeError", 'm.py", line 4']),
        (FORWARD.format("return None"), ["the model or its loss raised AttributeError", "mse_loss"]),
        (FORWARD.format("return self.forward(x)"), ["the model or its loss raised RecursionError", 'm.py", line 4']),
    ],
)
def test_what_the_file_raises_is_shown_from_its_own_line(tmp_path, content, shown):
    # A file of a user in a folder of the package's name is the user's.
    folder = tmp_path / "with space" / "piper"
    folder.mkdir(parents=True)
    (folder / "m.py").write_text(content)
    result = run("train", "m.py", cwd=folder)
    assert result.returncode == 1, result.stderr
    # torch logs what fails under its fake tensors.
    message = result.stderr[result.stderr.index("piper: error: ") :]
    assert str(PACKAGE) not in message and len(message.splitlines()) < 25
    assert all(part in result.stderr for part in shown), result.stderr


TRAINABLE = """
import torch
from torch import nn
import piper

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    piper.annotate_modules(model, {"stage": [["0", "1"], ["2"]]})
    return model, nn.functional.mse_loss, [(torch.randn(6, 4), torch.randn(6, 2)) for _ in range(2)]
"""


def test_train_saves_a_program(tmp_path):
    (tmp_path / "m.py").write_text(TRAINABLE)
    done = run("train", "m.py", "--mesh", "pp=2", "--microbatches", "3", "--steps", "2", "--save", "p", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["step", "1"], ["step", "2"]]
    code = "import piper; p = piper.load('p'); print(p.optimizer_state_dict()['steps'])"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert loaded.stdout == "{'group0': 2}\n", loaded.stderr


def test_compile_keeps_every_phase(tmp_path):
    (tmp_path / "m.py").write_text(TRAINABLE)
    done = run("compile", "m.py", "--mesh", "dp=2", "--zero", "2", "-o", "p", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "p" / "ir").iterdir()} == {
        "imported.mlir",
        "scheduled.mlir",
        "planned.mlir",
    }


def test_verify_tells_by_its_exit_code(tmp_path):
    (tmp_path / "m.py").write_text(TRAINABLE)
    done = run("verify", "m.py", "--mesh", "pp=2,dp=2", "--steps", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal to PyTorch on the whole batch" in done.stdout
    (tmp_path / "m.py").write_text(
        TRAINABLE + "\ndef optimizer(model):\n    return torch.optim.RMSprop(model.parameters())\n"
    )
    done = run("verify", "m.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "could not be verified" in done.stdout and "RMSprop" in done.stdout


def test_simulate(tmp_path):
    """Makespan and bubble of DualPipeV by its formula: m chunks of 6 and (p - 1)(F + B + B - 3W)."""
    result = run("simulate", "--schedule", "dualpipev", "--ranks", "4", "--microbatches", "10", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("makespan 66, bubble 6\n")
    assert "rank 0 | 0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7W0 " in result.stdout


def test_simulate_as_json_and_csv(tmp_path):
    arguments = ["simulate", "--schedule", "gpipe", "--ranks", "2", "--microbatches", "2"]
    assert run(*arguments, "--csv", cwd=tmp_path).stdout == "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"
    (tmp_path / "g.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n")
    data = json.loads(run("simulate", "g.csv", "--json", "--costs", "F=2,B=3", cwd=tmp_path).stdout)
    assert (data["schedule"], data["stages"], data["ranks"], data["microbatches"]) == ("g.csv", 2, 2, 2)
    assert data["makespan"] == (2 + 1) * (2 + 3)
