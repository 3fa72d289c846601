# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""piper-verify-planned on plans that are slightly wrong: each is refused, and the plan itself is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from piper._mlir import ir
from piper._mlir.passmanager import PassManager

FOLDER = Path(__file__).parent.parent / "plan"
PIPELINES = {
    "pp2dp2.mlir": "piper-plan-pipeline",
    "memory-1f1b.mlir": "piper-schedule-pipeline,piper-plan-pipeline",
    "memory-zero3.mlir": "piper-schedule-pipeline,piper-plan-pipeline",
}


def planned(name: str) -> list[str]:
    """The lines of the planned module, one operation each."""
    with ir.Context():
        module = ir.Module.parse((FOLDER / name).read_text())
        PassManager.parse(f"builtin.module({PIPELINES[name]})").run(module.operation)
        return str(module).split("\n")


def is_refused(lines: list[str]) -> bool:
    with ir.Context():
        module = ir.Module.parse("\n".join(lines))
        try:
            PassManager.parse("builtin.module(piper-verify-planned)").run(module.operation)
        except ir.MLIRError:
            return True
        return False


def find(lines: list[str], pattern: str) -> list[int]:
    return [i for i, line in enumerate(lines) if re.search(pattern, line)]


@pytest.fixture(scope="module", params=PIPELINES)
def lines(request) -> list[str]:
    return planned(request.param)


def test_plan_is_accepted(lines) -> None:
    assert not is_refused(lines)


@pytest.mark.parametrize("pattern", [r"piper\.plan\.send ", r"piper\.plan\.(all_reduce|all_gather|reduce_scatter) "])
def test_neighbours_in_another_order(lines, pattern: str) -> None:
    places = find(lines, pattern)
    for a, b in zip(places, places[1:], strict=False):
        # Equal transfers may change places, and so may those over two communicators, if no data is in the way.
        communicator = [re.search(r" (over|through) (\S+)", lines[i]).group(2) for i in (a, b)]
        if lines[a].split(" label")[0] == lines[b].split(" label")[0] or communicator[0] != communicator[1]:
            continue
        swapped = list(lines)
        swapped[a], swapped[b] = lines[b], lines[a]
        assert is_refused(swapped), (lines[a], lines[b])


def test_result_in_foreign_memory(lines) -> None:
    for i in find(lines, r"piper\.plan\.launch .*arena\["):
        offset = re.findall(r"arena\[(\d+)\]", lines[i])[-1]
        for wrong in (int(offset) + 4, 10**6):
            head, tail = lines[i].rsplit(f"arena[{offset}]", 1)
            assert is_refused([*lines[:i], f"{head}arena[{wrong}]{tail}", *lines[i + 1 :]]), lines[i]
