# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`piper verify --all`: which compositions apply, and that one which differs is told."""

import subprocess
import sys

import piper
import pytest
import torch
from torch import nn
from torch.nn import functional as F

TWO_STAGES = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    return model, nn.functional.mse_loss, [(torch.randn(6, 4), torch.randn(6, 2)) for _ in range(2)]
"""
# The model has two parts, which cannot be four stages.
APPLY = {"gpipe", "1f1b", "zb_h1", "zb_h2", "dualpipe"}


def verify(folder, *arguments):
    command = [sys.executable, "-m", "piper.cli", "verify", "m.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_table_of_a_pipeline(tmp_path):
    (tmp_path / "m.py").write_text(TWO_STAGES)
    done = verify(tmp_path, "--all", "--mesh", "pp=2", "--microbatches", "3", "--steps", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    _, *rows, summary = done.stdout.splitlines()
    assert [row.split()[0] for row in rows] == piper.schedules.names()
    assert {row.split()[0] for row in rows if row.endswith("ok")} == APPLY
    reasons = {row.split()[0]: row for row in rows if "does not apply" in row}
    assert "at most 2 stages" in reasons["zbv"] and "got 4" in reasons["zbv"]
    assert summary == "5 of 5 equal to PyTorch, 5 do not apply"


def test_exit_code_where_nothing_can_be_compiled(tmp_path):
    (tmp_path / "m.py").write_text(
        TWO_STAGES + "\ndef optimizer(model):\n    return torch.optim.RMSprop(model.parameters())\n"
    )
    done = verify(tmp_path, "--all", "--mesh", "dp=2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("FAILED") == 4 and "RMSprop" in done.stdout
    done = verify(tmp_path, "--all", "--strategy", "s.json")
    assert done.returncode == 2 and "--all: expected no --strategy beside it" in done.stderr


def test_a_difference_is_told():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    batches = [(torch.randn(6, 4), torch.randn(6, 2))]
    results = piper.verify_all(model, F.mse_loss, batches, piper.Mesh(dp=2), microbatches=3)
    first = next(results)
    assert first.ok and str(first).endswith("ok") and (first.schedule, first.stages, first.zero) == ("", None, 0)
    # From here on programs start elsewhere than PyTorch has.
    with torch.no_grad():
        model[0].weight.mul_(1.01)
    rest = list(results)
    assert [result.zero for result in rest] == [1, 2, 3]
    assert not any(result.ok for result in rest) and all(str(result).endswith("DIFFERENT") for result in rest)


def test_rows_that_meet_are_told_and_accepted_on_demand():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    batches = [(torch.randn(6, 4), torch.randn(6, 2))]
    for coupled in (None, "parts"):
        results = piper.verify_all(model, F.mse_loss, batches, piper.Mesh(dp=2), coupled=coupled)
        result = next(results)
        results.close()
        assert result.ok == (coupled is not None)
        assert ("equal to the loop over parts (--coupled parts)" in str(result)) == (coupled is None)
    with pytest.raises(piper.UsageError, match="expected coupled"):
        next(piper.verify_all(model, F.mse_loss, batches, piper.Mesh(dp=2), coupled="rows"))


class Shifted(nn.Module):
    """Softmax does not see one number added to all: the gradients of `shift` and of the keys' bias are rounding alone, and Adam makes whole steps of them."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.net, self.shift = nn.Linear(8, 4), nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.net(self.attention(x, x, x, need_weights=False)[0][:, 0]) + self.shift


@pytest.mark.parametrize("change", [None, "none", "double", "part"])
def test_updates_are_held_to_what_rounding_does_to_clear_gradients(monkeypatch, change):
    torch.manual_seed(0)
    model = Shifted()
    # One batch: the loss of a second would tell as well.
    batches = [(torch.randn(6, 5, 8), torch.randint(0, 4, (6,)))]
    step = piper.Program.step

    def changed(self, batch):
        before = self.state_dict()
        loss = step(self, batch, update=change != "none")
        after = self.state_dict()
        if change == "double":
            self.load_state_dict({name: 2 * value - before[name] for name, value in after.items()})
        if change == "part":
            # A third of one bias stays where it was.
            after["attention.in_proj_bias"][16:] = before["attention.in_proj_bias"][16:]
            self.load_state_dict(after)
        return loss

    monkeypatch.setattr(piper.Program, "step", changed)
    report = piper.verify(
        model, F.cross_entropy, batches, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1e-15)
    )
    assert report.ok == (change is None), str(report)


def test_the_truth_is_the_loss_itself(monkeypatch):
    """Whatever the importer takes it for: here a third of it."""
    from piper.importer import loss as forms

    def scaled(output, target):
        value = F.mse_loss(output, target)
        value *= 3
        return value

    torch.manual_seed(0)
    model, batches = nn.Linear(4, 2), [(torch.randn(6, 4), torch.randn(6, 2))]
    assert piper.verify(model, scaled, batches).ok
    monkeypatch.setattr(forms, "call_loss", lambda loss_fn, output, target: F.mse_loss(output, target))
    report = piper.verify(model, scaled, batches)
    assert not report.ok and not report.error and report.losses[0][0] == pytest.approx(report.losses[0][1] / 3)


class Marked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        with piper.annotate("stage"):
            x = torch.tanh(self.a(x))
        with piper.annotate("stage"):
            return self.b(x)


@pytest.mark.parametrize("annotate", [False, True], ids=["in-forward", "by-name"])
def test_stages_of_the_model_itself(annotate):
    torch.manual_seed(0)
    model = Marked() if not annotate else nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
    outputs = 4 if annotate else 2
    if annotate:
        piper.annotate_modules(model, {"stage": [["0", "1", "2"], ["3"]]})
    batches = [(torch.randn(8, 4), torch.randn(8, outputs))]
    results = {r.schedule: r for r in piper.verify_all(model, F.mse_loss, batches, piper.Mesh(pp=2), microbatches=4)}
    assert all(result.ok for result in results.values())
    assert results["1f1b"].report is not None and results["1f1b"].stages == 2
    if annotate:
        assert results["zbv"].report is not None and results["zbv"].stages == 4
        assert piper.annotations_of(model) == {"stage": [["0", "1", "2"], ["3"]]}
    else:
        assert results["zbv"].reason == "takes 4 stages, and the model's forward marks 2"
