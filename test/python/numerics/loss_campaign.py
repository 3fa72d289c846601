# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles each loss of importer/loss_forms.py under dp2, and under pp2 with three microbatches, on seven rows, and compares loss and gradients with plain
PyTorch on the whole batch: a line each, `right`, `refused` or `WRONG`.

    python numerics/loss_campaign.py [NAME ...]

No test, for it takes half an hour: importer/test_loss_forms.py runs the same losses without compiling them.
"""

import sys
import time
import warnings
from pathlib import Path

import piper
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "importer"))

import loss_forms  # noqa: E402

STRATEGIES = {
    "dp2": lambda: piper.strategies.data_parallel(piper.Mesh(dp=2)),
    "pp2": lambda: piper.strategies.pipeline(piper.Mesh(pp=2), schedule="1f1b", microbatches=3),
}


def plain(model, loss_fn, batch):
    x, y = batch
    modules = [m for m in (model, loss_fn) if isinstance(m, nn.Module)]
    for module in modules:
        module.zero_grad()
    loss = loss_fn(model(x), y)
    loss = loss if isinstance(loss, torch.Tensor) else loss[0] / loss[1]
    loss.backward()
    return loss.detach(), {f"{i}.{n}": p.grad.clone() for i, m in enumerate(modules) for n, p in m.named_parameters()}


def trial(kind, loss_fn, strategy):
    """What happened, and the largest error of a gradient over its maximum."""
    model, batch = loss_forms.model(kind), loss_forms.batch(kind)
    piper.annotate_modules(model, {"stage": [["0"], ["2"]]})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = piper.compile(model, loss_fn, batch, strategy=strategy, progress=False)
    except piper.PiperError as error:
        return ("refused" if "loss_forms.py:" in str(error) else "REFUSED WITHOUT A LINE"), str(error).splitlines()[0]
    try:
        got = program.gradients(*batch)
        loss = program.evaluate(*batch)
    finally:
        program.close()
    want_loss, want = plain(model, loss_fn, batch)
    if len(got) != len(want):
        return "WRONG", f"{sorted(got)} instead of {sorted(want)}"
    errors = [
        float((a - b).abs().max() / b.abs().max().clamp(min=1e-6))
        for a, b in zip(got.values(), want.values(), strict=True)
    ]
    right = max(errors) <= 1e-5 and torch.allclose(loss.float(), want_loss.float(), rtol=1e-5, atol=1e-6)
    return ("right" if right else "WRONG"), f"{max(errors):.1e}, loss {float(loss):.6f} for {float(want_loss):.6f}"


def main(chosen):
    counts = {}
    for name, (kind, loss_fn) in (loss_forms.FORMS | loss_forms.COUPLED).items():
        if chosen and name not in chosen:
            continue
        for label, strategy in STRATEGIES.items():
            started = time.perf_counter()
            verdict, why = trial(kind, loss_fn, strategy())
            counts[verdict] = counts.get(verdict, 0) + 1
            print(f"{name:36} {label} {verdict:8} {time.perf_counter() - started:5.1f} s  {why[:120]}", flush=True)
    print(counts)
    return 0 if counts.keys() <= {"right", "refused"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
