# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains public models with Piper and with plain PyTorch, and compares.

python test/zoo/run.py [MODEL …] [--ways one dp2 pp2 pp2xdp2] [--json FILE] [--seconds 900] [--list]

Every model runs in a process of its own, one after the other. Exit code 1 if one gives wrong numbers, crashes or takes longer than the limit; 0 else, also where
some are refused.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import catalogue
import table
from ways import PARTS

_WORKER = Path(__file__).with_name("worker.py")


def main() -> int:
    """Prints a line as each model is done, and the table at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all of them by default")
    parser.add_argument("--ways", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path, help="file for the results, too")
    parser.add_argument("--seconds", type=float, default=900, help="limit of each model")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    options = parser.parse_args()
    if options.list:
        print(*catalogue.names(), sep="\n")
        return 0
    unknown = set(options.models) - set(catalogue.names())
    if unknown:
        parser.error(f"no models named {', '.join(sorted(unknown))}; --list prints all")
    rows = {}
    for model in options.models or catalogue.names():
        rows[model] = _try(model, options.ways, options.seconds)
        print(model, *(f"{way}={row['verdict']}" for way, row in rows[model].items()), flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
    table.show(rows)
    return 1 if any(row["verdict"] in table.BAD for row in table.all_of(rows)) else 0


def _try(model: str, ways: list[str], seconds: float) -> dict[str, dict]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    with tempfile.TemporaryFile("w+") as lines, tempfile.TemporaryFile("w+") as said:
        try:
            code = subprocess.run(
                [sys.executable, _WORKER, model, *ways], stdout=lines, stderr=said, timeout=seconds, env=environment
            ).returncode
            end = f"exit code {code}"
        except subprocess.TimeoutExpired:
            end = f"not done after {seconds:.0f} s"
        lines.seek(0)
        said.seek(0)
        results = [json.loads(line) for line in lines if line.startswith("{")]
        last = (said.read().strip().splitlines() or [""])[-1]
    rows = {result["way"]: result for result in results}
    # The way that was under way, and those behind it.
    return {way: rows.get(way, {"verdict": "CRASHED", "message": f"{end}: {last}"}) for way in ways}


if __name__ == "__main__":
    sys.exit(main())
