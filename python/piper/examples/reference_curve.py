# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the loss curve of the demo in plain PyTorch and writes it as JSON beside this file, one curve for each text.

Python versions differ in the text of their library, so a curve is found by the text's fingerprint.

python -m piper.examples.reference_curve            # about ten minutes on two cores
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from . import recipe, text

PATH = Path(__file__).with_name("reference_curve.json")
COMMAND = "python -m piper.examples.reference_curve"


def main() -> None:
    """Trains and adds the curve to the file."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=recipe.STEPS)
    parser.add_argument("--library", type=Path, help="the folder of another Python's library")
    parser.add_argument("--out", type=Path, default=PATH)
    options = parser.parse_args()
    corpus = text.standard_library(options.library)
    losses, held_out = recipe.train_with_pytorch(recipe.model(), corpus, options.steps, report=_print)
    curves = json.loads(options.out.read_text()) if options.out.is_file() else {}
    curves[corpus.fingerprint] = {
        "command": f"{COMMAND} --steps {options.steps}" + (f" --library {options.library}" if options.library else ""),
        "torch": torch.__version__,
        "losses": losses,
        "held_out": held_out,
    }
    options.out.write_text(json.dumps(curves, indent=1) + "\n")


def load(corpus: text.Corpus) -> tuple[list[float], dict[int, float]] | None:
    """Losses by step and held-out losses by steps taken that were measured on this text; None if it was never measured on it."""
    curve = json.loads(PATH.read_text()).get(corpus.fingerprint) if PATH.is_file() else None
    if curve is None:
        return None
    return curve["losses"], {int(steps): loss for steps, loss in curve["held_out"].items()}


def _print(step: int, loss: float, held_out: float | None) -> None:
    print(
        f"step {step:4d}  loss {loss:.6f}" + (f"  held out {held_out:.6f}" if held_out is not None else ""), flush=True
    )


if __name__ == "__main__":
    main()
