# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs ways of training in turn and compares them pair by pair.

python test/bench/run.py [PAIR …] [--rounds 7] [--size d256] [--dtype f32] [--out runs/bench]

A pair is `piper_ddp/ddp`: the ratio is that of the first to the second. Every way runs once in each round, in processes of its own, so that a drift of the
machine's speed meets all of them; the ratio of a pair is the median over the rounds of the ratios within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import models
import table

WORKER = Path(__file__).with_name("worker.py")
PAIRS = [
    "piper/eager",
    "piper/compile",
    "piper_ddp/ddp",
    "piper_zero3/fsdp2_reshard",
    "piper_zero2/fsdp2",
    "piper_1f1b/1f1b",
    "piper_gpipe/gpipe",
]
TWO_RANKS = {"ddp", "ddp_compile", "fsdp2", "fsdp2_reshard", "gpipe", "1f1b", "interleaved_1f1b", "zbv", "dualpipev"}
TIMEOUT_SECONDS = 900


def main() -> None:
    """Measures, prints the table, writes results.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="*", default=PAIRS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", choices=models.SIZES, default="d256")
    parser.add_argument("--dtype", choices=models.DTYPES, default="f32")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    options = parser.parse_args()
    pairs = [tuple(pair.split("/")) for pair in options.pairs]
    if any(len(pair) != 2 for pair in pairs):
        parser.error("expected pairs like piper_ddp/ddp")
    ways = list(dict.fromkeys(way for pair in pairs for way in pair))
    options.out.mkdir(parents=True, exist_ok=True)
    common = ["--size", options.size, "--dtype", options.dtype]
    common += ["--layers", str(options.layers)] if options.layers else []
    folders, compile_seconds = {}, {}
    for way in ways:
        if way.startswith("piper"):
            folders[way] = options.out / f"{way}-{options.size}-{options.dtype}"
            line = _run([sys.executable, WORKER, "compile-piper", way, folders[way], *common])
            compile_seconds[way] = line[0]["compile_s"]
    rounds: list[dict[str, list[dict]]] = []
    for number in range(options.rounds):
        rounds.append({})
        for way in ways if number % 2 == 0 else reversed(ways):
            arguments = ["measure", way, *([folders[way]] if way in folders else []), *common]
            rounds[-1][way] = _run([*_launcher(way), WORKER, *arguments, "--steps", str(options.steps)])
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    result = {
        "size": options.size,
        "dtype": options.dtype,
        "compile_s": compile_seconds,
        "ways": {way: _summary([entry[way] for entry in rounds]) for way in ways},
        "pairs": {"/".join(pair): _ratios(rounds, *pair) for pair in pairs},
    }
    (options.out / f"results-{options.size}-{options.dtype}.json").write_text(json.dumps(result, indent=1) + "\n")
    table.show(result)


def _launcher(way: str) -> list[str]:
    if way in TWO_RANKS or (way.startswith("piper_")):
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [sys.executable]


def _run(command: list) -> list[dict]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    words = [str(word) for word in command]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        sys.exit(f"{' '.join(words)}\nended with {done.returncode}:\n{done.stderr[-4000:]}")
    return sorted(lines, key=lambda line: line.get("rank", 0))


def _highest(ranks: list[dict], figure: str) -> float:
    return max(rank[figure] for rank in ranks)


def _summary(runs: list[list[dict]]) -> dict:
    """Medians over the rounds of the rank with the highest figure, and the first losses."""
    figures = {name: statistics.median(_highest(run, name) for run in runs) for name in ("ms", "cpu_ms", "rss_mb")}
    return {**figures, "ranks": len(runs[0]), "losses": runs[0][0]["losses"]}


def _ratios(rounds: list[dict[str, list[dict]]], ours: str, theirs: str) -> dict:
    """Median, lowest and highest over the rounds."""
    result = {}
    for name in ("ms", "cpu_ms", "rss_mb"):
        values = [_highest(entry[ours], name) / _highest(entry[theirs], name) for entry in rounds]
        result[name] = {"median": statistics.median(values), "low": min(values), "high": max(values)}
    return result


if __name__ == "__main__":
    main()
