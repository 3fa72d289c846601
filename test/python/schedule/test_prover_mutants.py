# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""piper-verify-planned against an oracle of its own: plans with one mistake are refused exactly if some interleaving of them goes wrong.

PIPER_MUTANTS=100 makes that many mutants of each kind, of all compositions and not of a few; PIPER_MUTANTS_SEED draws others. With -s the
counts are shown.
"""

from __future__ import annotations

import difflib
import functools
import math
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import plan_oracle
import pytest
from piper._mlir import ir
from piper._mlir.passmanager import PassManager
from plan_mutants import KINDS, make_mutant, without_each_wait
from planned_text import Plan
from tiny_programs import COMPOSITIONS, Composition, planned_text

REQUESTED = os.environ.get("PIPER_MUTANTS")
SEED = os.environ.get("PIPER_MUTANTS_SEED", "0")
INTERLEAVINGS = 1000
# One of each mesh, with the schedules and shardings that differ most.
QUICK = [one for one in COMPOSITIONS if COMPOSITIONS.index(one) in (1, 2, 6, 12, 23, 24, 33, 41)]
CHOSEN = COMPOSITIONS if REQUESTED else QUICK
FOLDER = Path(__file__).parent.parent.parent / "plan"
PIPELINES = {
    "pp2dp2.mlir": "piper-plan-pipeline",
    "memory-1f1b.mlir": "piper-schedule-pipeline,piper-plan-pipeline",
    "memory-zero3.mlir": "piper-schedule-pipeline,piper-plan-pipeline",
}
COLLECTIVES = "collectives of a class reordered"


def quota(kind: str, one: Composition) -> int:
    """How many mutants of a kind to make of a composition."""
    # Without replicas the only collective is that of the loss.
    if kind == COLLECTIVES and one.dp == 1:
        return 0
    if not REQUESTED:
        return 3
    places = [other for other in COMPOSITIONS if kind != COLLECTIVES or other.dp > 1]
    return math.ceil(int(REQUESTED) / len(places)) + (kind == COLLECTIVES)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return plan_oracle.build(tmp_path_factory.mktemp("oracle"))


def refusal(text: str) -> str:
    with ir.Context():
        module = ir.Module.parse(text)
        try:
            PassManager.parse("builtin.module(piper-verify-planned)").run(module.operation)
        except ir.MLIRError as error:
            return str(error)
        return ""


def difference(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=0)
    return "\n".join(line for line in lines if line[0] in "+-" and "plan.buffer" not in line)


@functools.cache
def planned(composition: Composition) -> Plan:
    """The plan of a composition, which is accepted as it is, and what is read and written again is its text, lifetimes included."""
    text = planned_text(composition)
    plan = Plan(text)
    assert plan.text([entry.with_lifetimes() for entry in plan.entries]) == text
    assert not refusal(text)
    return plan


def draw(kind: str, composition: Composition, plan: Plan, oracle: plan_oracle.Oracle) -> Iterator[tuple[list, str]]:
    """Different mutants of one kind, as entries and as text."""
    rng = random.Random(f"{SEED} {composition} {kind}")
    made: set[str] = set()
    for _ in range(100 * quota(kind, composition)):
        if len(made) == quota(kind, composition):
            return
        mutants = make_mutant(kind, plan, rng)
        if mutants is None or oracle.is_unchanged(mutants):
            continue
        mutant = plan.text(mutants)
        if mutant not in made:
            made.add(mutant)
            yield mutants, mutant


@pytest.mark.parametrize("kind", KINDS)
def test_prover_agrees_with_all_interleavings(kind, program) -> None:
    begin, counts, disagreements = time.monotonic(), Counter(), []
    for composition in CHOSEN:
        plan = planned(composition)
        oracle = plan_oracle.Oracle(program, plan, INTERLEAVINGS)
        for mutants, text in draw(kind, composition, plan, oracle):
            fault, error = oracle.find_fault(mutants), refusal(text)
            counts[bool(fault)] += 1
            if bool(fault) != bool(error):
                finding = f"{composition}: oracle {fault or 'sound'}, prover {error or 'accepts'}"
                disagreements.append(f"{finding}\n{difference(chr(10).join(plan.lines), text)}")
        oracle.close()
    took = time.monotonic() - begin
    print(f"\n{kind}: {counts.total()} mutants of {len(CHOSEN)} compositions, {counts[True]} faulty, {took:.0f} s")
    assert not disagreements, "\n\n".join(disagreements)
    # The comparison says something only if there are faulty ones, and of those that only take a little away also sound ones.
    assert counts.total() >= int(REQUESTED or len(KINDS)) and counts[True] > 0
    assert counts[False] > 0 or kind not in ("a wait dropped", "memory freed early")


def test_oracle_finds_a_deadlock_and_a_race(program) -> None:
    """Two mistakes that are one beyond doubt."""
    plan = Plan(planned_text(Composition("1f1b", 2, 1, 0, 2)))
    oracle = plan_oracle.Oracle(program, plan, INTERLEAVINGS)
    for opcode, expected in (("wait", "differ"), ("record", "stuck")):
        entries = [
            entry.with_actions(action for action in entry.actions if action.opcode != opcode) for entry in plan.entries
        ]
        assert expected in oracle.find_fault(entries)
    oracle.close()


@pytest.mark.parametrize("name", PIPELINES)
def test_each_wait_and_release(name, program) -> None:
    """Without one of them a plan is refused, unless other ranks' answers say the same."""
    with ir.Context():
        module = ir.Module.parse((FOLDER / name).read_text())
        PassManager.parse(f"builtin.module({PIPELINES[name]})").run(module.operation)
        plan = Plan(str(module))
    oracle = plan_oracle.Oracle(program, plan, INTERLEAVINGS)
    refused = 0
    for mutants in without_each_wait(plan):
        fault, error = oracle.find_fault(mutants), refusal(plan.text(mutants))
        assert bool(fault) == bool(error), (fault, error, difference("\n".join(plan.lines), plan.text(mutants)))
        refused += bool(error)
    assert refused > 0
    oracle.close()
