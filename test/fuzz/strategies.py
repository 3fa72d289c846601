# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fuzzes strategies: whatever a JSON file holds ends in a plan, a UsageError or a StrategyError.

    python strategies.py [-runs=N] [-seed=N] [-max_total_time=SECONDS] [FILE]

Each input is a JSON strategy with random changes, always the same ones for a seed. It is read, checked against a model's tags, written into the model's module,
scheduled and planned. A crash leaves its input in ./fuzz-input.json; with FILE only that one is tried.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import piper
from mutations import mutate
from piper.phases import Phases
from piper.rows import part_rows

sys.path.insert(0, str(Path(__file__).parent.parent / "python" / "schedule"))
from made_up_models import Model, imported_module  # noqa: E402

INPUT = Path("fuzz-input.json")
ROWS = 16
LIMIT_SECONDS = 60
MESH = piper.Mesh(pp=2, dp=2)


def strategies() -> list[piper.Strategy]:
    """What is mutated: every directive with a pass, and those without."""
    pipeline = piper.strategies.pipeline
    by_hand = piper.Strategy(MESH).split({}, "MB", 2)
    by_hand.place({"stage": 0}, {"pp": 0}).place({"stage": 1}, {"pp": 1}, stream="other")
    by_hand.order(
        [{"stage": 0, "PASS": "F", "MB": 0}, [{"stage": 0, "MB": 1, "PASS": "F"}, {"_block": 0, "PASS": "B"}]]
    )
    others = piper.Strategy(MESH).shard({"stage": 0}, [0, 1], dim=0).overlap([{"MB": 0}, {"MB": 1}], sms=4)
    return [
        pipeline(MESH, microbatches=2, zero=1),
        pipeline(MESH, schedule="gpipe", microbatches=4, zero=3, bucket_size=1e-4),
        pipeline(piper.Mesh(pp=2), schedule=None, microbatches=3),
        piper.strategies.data_parallel(MESH, zero=2, microbatches=2),
        by_hand,
        others.recompute({"PASS": "B"}),
    ]


def outcome_of(data: bytes, mesh: piper.Mesh | None) -> str:
    """What becomes of a file: "planned", or the kind of its error. Raises whatever it should not."""
    INPUT.write_bytes(data)
    try:
        strategy = piper.Strategy.load(INPUT, mesh)
    except piper.UsageError as error:
        assert str(error).startswith(str(INPUT)), str(error)
        return "not read"
    strategy.save("fuzz-again.json")
    again = piper.Strategy.load("fuzz-again.json", strategy.mesh)
    assert again.directives == strategy.directives, "differs from what was saved"
    model = Model(rows=ROWS)
    try:
        rows = part_rows(ROWS, strategy.num_replicas, strategy.num_microbatches)
        strategy.check({"stage": range(model.stages), "_block": range(model.layers)})
    except piper.UsageError:
        return "not checked"
    text = imported_module(model, (1, 1), rows, strategy.to_mlir().splitlines()[1:-1])
    # The made-up model has a mesh of its own, and an optimizer that nobody plans.
    text = text.replace('piper.mesh @mesh ["pp", "dp"] [1, 1]', strategy.mesh.to_mlir())
    text = text.replace('scalars ["lr"] config {}', 'scalars ["lr", "first_step"] config {momentum = 9.0e-1 : f64}')
    try:
        Phases(text)
    except piper.StrategyError as error:
        os.unlink(error.command.split()[-1])
        return "not scheduled"
    return "planned"


def run(runs: int, seed: int, seconds: float) -> int:
    """Tries inputs until one of the limits; returns the exit code."""
    generator = random.Random(seed)
    originals = [([item.to_json() for item in strategy.directives], strategy.mesh) for strategy in strategies()]
    outcomes: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    while outcomes.total() < runs and time.monotonic() < deadline:
        entries, own_mesh = generator.choice(originals)
        data = mutate(generator, entries)
        mesh = generator.choice([own_mesh, own_mesh, own_mesh, own_mesh, MESH, piper.Mesh(pp=2), None])
        # Also ends what hangs in the compiler.
        faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True)
        try:
            outcomes[outcome_of(data, mesh)] += 1
        except Exception:
            traceback.print_exc()
            print(f"input {outcomes.total()} of seed {seed}, mesh {mesh}, in {INPUT.resolve()}", file=sys.stderr)
            return 1
    faulthandler.cancel_dump_traceback_later()
    print(f"Done {outcomes.total()} runs: {dict(sorted(outcomes.items()))}")
    # Inputs that are refused early say nothing of what comes later.
    return 0 if len(outcomes) == 4 or runs < 100 else 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-runs", type=int, default=2**62)
    parser.add_argument("-seed", type=int, default=1)
    parser.add_argument("-max_total_time", type=float, default=float("inf"))
    parser.add_argument("-child", action="store_true")
    parser.add_argument("file", nargs="?")
    options = parser.parse_args()
    if options.file:
        print(outcome_of(Path(options.file).read_bytes(), MESH))
        return 0
    if options.child:
        return run(options.runs, options.seed, options.max_total_time)
    # What takes the process down is to be told from here.
    with tempfile.TemporaryDirectory() as reproducers:
        environment = {**os.environ, "PIPER_REPRODUCER_DIR": reproducers}
        code = subprocess.run([sys.executable, *sys.argv, "-child"], env=environment).returncode
    if code < 0:
        print(f"ended by signal {-code} on {INPUT.resolve()}", file=sys.stderr)
    for name in () if code else (INPUT, Path("fuzz-again.json")):
        name.unlink(missing_ok=True)
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
