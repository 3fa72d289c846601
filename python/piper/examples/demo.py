# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a byte-level language model of the Llama family on the Python standard library with four ranks: two pipeline stages, two replicas each.

    python -m piper.examples.demo                              # ranks are threads of this process
    torchrun --nproc-per-node 4 -m piper.examples.demo         # ranks are processes

1F1B with 8 microbatches, ZeRO-1, AdamW. The first losses are compared with plain PyTorch while it runs, and the whole curve with one measured earlier
(reference_curve.json). The program, a picture of the losses and one of a measured step end up in runs/demo.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import piper

from ..view import loss_curve, timeline
from . import llama, recipe, reference_curve, text
from .table import Table
from .text import Corpus

PP, DP, MICROBATCHES, ZERO = 2, 2, 8, 1
CHECKED_STEPS, CHECK_TOLERANCE = 5, 1e-5
REFERENCE_TOLERANCE = 0.02


def main() -> int:
    """Runs the demo; 0 if every check held."""
    options = _options()
    is_first = int(os.environ.get("RANK", 0)) == 0
    corpus = text.standard_library()
    model = recipe.model()
    table = Table(is_first)
    table.note(
        f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} million parameters; {len(corpus.training) / 1e6:.1f} MB of text to"
        f" train on, {len(corpus.held_out) / 1e6:.1f} MB held out"
    )
    checked = min(CHECKED_STEPS, options.steps)
    expected = recipe.train_with_pytorch(recipe.model(), corpus, checked, evaluate=False)[0] if is_first else []
    piper.annotate_modules(model, {"stage": llama.stages(model.config, PP)})
    optimizer, scheduler = recipe.optimizer(model)
    started = time.monotonic()
    program = piper.compile(
        model,
        llama.loss,
        recipe.batch(corpus, 0),
        strategy=piper.strategies.pipeline(piper.Mesh(pp=PP, dp=DP), "1f1b", MICROBATCHES, ZERO),
        optimizer=optimizer,
    )
    table.note(f"compiled for {PP} stages x {DP} replicas in {time.monotonic() - started:.1f} s")
    run = _train(program, scheduler, corpus, options.steps, table, expected)
    program.save(options.out / "program")
    program.close()
    if not is_first:
        return 0
    reference = reference_curve.load(corpus)
    _draw(options.out, run, reference)
    table.note(f"saved program/, loss.png and timeline.png in {options.out}")
    table.note(_summary(run, expected, reference, options.steps))
    failures = _failures(run, expected, reference, options.steps)
    for failure in failures:
        table.note(f"FAILED: {failure}")
    return 1 if failures else 0


# Losses by step, and held-out losses by steps taken.
Reference = tuple[list[float], dict[int, float]] | None


@dataclass
class Run:
    """What a training run left: the loss of each step, the held-out loss by steps taken, and one measured step."""

    losses: list[float] = field(default_factory=list)
    held_out: dict[int, float] = field(default_factory=dict)
    spans: list[Any] = field(default_factory=list)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m piper.examples.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=recipe.STEPS)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    return parser.parse_args()


def _train(
    program: piper.Program, scheduler: Any, corpus: Corpus, steps: int, table: Table, expected: list[float]
) -> Run:
    run = Run()
    with table.live():
        for step in range(steps):
            ids, target = recipe.batch(corpus, step)
            started = time.monotonic()
            if step == steps // 2:
                loss, run.spans = program.trace(ids, target)
            else:
                loss = program.step(ids, target)
            seconds = time.monotonic() - started
            scheduler.step()
            run.losses.append(loss.item())
            if recipe.is_evaluated(step + 1, steps):
                run.held_out[step + 1] = recipe.held_out_loss(program.evaluate, corpus)
            known = expected[step] if step < len(expected) else None
            table.row(step + 1, run.losses[-1], known, ids.numel() / seconds, run.held_out.get(step + 1))
    return run


def _draw(out: Path, run: Run, reference: Reference) -> None:
    out.mkdir(parents=True, exist_ok=True)
    losses, held_out = reference or ([], {})
    loss_curve.draw(out / "loss.png", run.losses, run.held_out, losses[: len(run.losses)], held_out)
    timeline.draw(
        out / "timeline.png", run.spans, f"one step: {PP} stages x {DP} replicas, 1F1B, {MICROBATCHES} microbatches"
    )


def _failures(run: Run, expected: list[float], reference: Reference, steps: int) -> list[str]:
    failures = []
    for step, (loss, wanted) in enumerate(zip(run.losses, expected, strict=False), 1):
        if not abs(loss - wanted) <= CHECK_TOLERANCE * abs(wanted):
            failures.append(f"the loss of step {step} is {loss:.7f}, PyTorch's is {wanted:.7f}")
    loss, wanted = run.held_out[steps], reference[1].get(steps) if reference else None
    if wanted is not None and not abs(loss - wanted) <= REFERENCE_TOLERANCE:
        failures.append(f"the held-out loss is {loss:.4f}, PyTorch's was {wanted:.4f}")
    return failures


def _summary(run: Run, expected: list[float], reference: Reference, steps: int) -> str:
    worst = max((abs(a - b) / abs(b) for a, b in zip(run.losses, expected, strict=False)), default=0.0)
    wanted = reference[1].get(steps) if reference else None
    told = f"PyTorch's was {wanted:.4f}" if wanted is not None else "not measured in PyTorch on this Python's library"
    return (
        f"first {len(expected)} losses within {worst:.1e} of PyTorch's; held-out loss after {steps} steps"
        f" {run.held_out[steps]:.4f} nats per byte ({told})"
    )


if __name__ == "__main__":
    sys.exit(main())
