# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures one way in this process, which is one rank under torchrun or the only one; rank 0 prints a line of JSON.

python worker.py compile-piper WAY FOLDER [options]        torchrun … worker.py measure WAY [FOLDER] [options]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import models


def main() -> None:
    """Does what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["compile-piper", "measure"])
    parser.add_argument("way")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--size", choices=models.SIZES, default="d256")
    parser.add_argument("--dtype", choices=models.DTYPES, default="f32")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=3)
    options = parser.parse_args()
    config, dtype = models.config(options.size, options.layers), models.DTYPES[options.dtype]
    if options.command == "compile-piper":
        import piper_ways

        begin = time.perf_counter()
        piper_ways.compile_to(options.folder, options.way, config, dtype)
        print(json.dumps({"way": options.way, "compile_s": time.perf_counter() - begin}))
        return
    if options.way.startswith("piper"):
        import piper_ways

        _report(options.way, measure(piper_ways.load(options.folder), config, options, None))
    else:
        _measure_pytorch(options, config, dtype)


def _measure_pytorch(options: argparse.Namespace, config, dtype) -> None:
    import torch.distributed as dist
    from piper.examples import llama
    from pytorch_ways import WAYS

    size, build = WAYS[options.way]
    if size > 1:
        dist.init_process_group("gloo")
    step = build(llama.create(config).to(dtype))
    _report(options.way, measure(step, config, options, dist if size > 1 else None))
    if size > 1:
        # Gloo's threads of FSDP may abort the process when the groups are taken down.
        dist.barrier()
        os._exit(0)


def measure(step, config, options, dist) -> dict:
    """Milliseconds and CPU milliseconds of each counted step, peak memory of this process in MB, losses."""
    wall, cpu, losses = [], [], []
    for number, (ids, target) in enumerate(models.batches(config, options.steps)):
        if dist:
            dist.barrier()
        begin, used = time.perf_counter(), time.process_time()
        loss = step(ids, target)
        spent = time.process_time() - used
        if dist:
            dist.barrier()
        if number >= options.warmup:
            wall.append((time.perf_counter() - begin) * 1e3)
            cpu.append(spent * 1e3)
        if dist:
            dist.all_reduce(loss)
        losses.append(loss.item())
    return {"ms": statistics.median(wall), "cpu_ms": statistics.median(cpu), "rss_mb": _peak(), "losses": losses}


def _peak() -> float:
    """Peak resident memory in MB. getrusage would count that of the process which started this one."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def _report(way: str, result: dict) -> None:
    # A line a rank; whoever started the ranks puts them together.
    line = json.dumps({"way": way, "rank": int(os.environ.get("RANK", 0)), **result})
    os.write(1, (line + "\n").encode())


if __name__ == "__main__":
    main()
