# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What strategies.py does, guided by coverage: python guided_strategies.py [OPTIONS OF LIBFUZZER] FOLDER...

Needs atheris, which brings libFuzzer to Python. Inputs that are JSON are changed as trees, others as bytes. The last folder gets the strategies to begin with.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["piper"]):
    # What is loaded only when it is used would go without.
    import piper.directives
    import piper.strategy_json  # noqa: F401
    import strategies
from mutations import mutate


def change(data: bytes, max_size: int, seed: int) -> bytes:
    """An input made of another."""
    generator = random.Random(seed)
    try:
        entries = json.loads(data)
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list) or generator.random() < 0.1:
        return atheris.Mutate(data, max_size)
    try:
        return mutate(generator, entries)[:max_size]
    except RecursionError:
        return atheris.Mutate(data, max_size)


def main() -> None:
    folder = Path(sys.argv[-1])
    folder.mkdir(parents=True, exist_ok=True)
    for number, strategy in enumerate(strategies.strategies()):
        strategy.save(folder / f"{number}.json")
    atheris.Setup(sys.argv, lambda data: strategies.outcome_of(data, strategies.MESH), custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
