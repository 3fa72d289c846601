# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the loss curve of the demo in plain PyTorch and writes it as JSON beside this file.

python -m piper.examples.reference_curve            # about ten minutes on two cores
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import torch

from . import recipe, text

PATH = Path(__file__).with_name("reference_curve.json")
COMMAND = "python -m piper.examples.reference_curve"


def main() -> None:
    """Trains and writes the file."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=recipe.STEPS)
    parser.add_argument("--out", type=Path, default=PATH)
    options = parser.parse_args()
    corpus = text.standard_library()
    losses, held_out = recipe.train_with_pytorch(recipe.model(), corpus, options.steps, report=_print)
    curve = {
        "command": f"{COMMAND} --steps {options.steps}",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "text": corpus.fingerprint,
        "losses": losses,
        "held_out": held_out,
    }
    options.out.write_text(json.dumps(curve, indent=1) + "\n")


def _print(step: int, loss: float, held_out: float | None) -> None:
    print(
        f"step {step:4d}  loss {loss:.6f}" + (f"  held out {held_out:.6f}" if held_out is not None else ""), flush=True
    )


if __name__ == "__main__":
    main()
