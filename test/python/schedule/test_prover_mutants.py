# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""piper-verify-planned against an oracle of its own: plans with one mistake are refused exactly if some interleaving of them goes wrong.

PIPER_MUTANTS=100 makes that many mutants of each kind, of all compositions and not of a few; PIPER_MUTANTS_SEED draws others. With -s the
counts are shown.
"""

from __future__ import annotations

import difflib
import math
import os
import random
import time
from collections import Counter
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


@pytest.fixture(scope="module")
def counts():
    """By kind, fault and refusal, over all compositions."""
    total: Counter = Counter()
    begin = time.monotonic()
    yield total
    for kind in KINDS:
        faulty, sound = total[kind, True], total[kind, False]
        print(f"\n{kind}: {faulty + sound} mutants, {faulty} faulty", end="")
    print(f"\n{len(CHOSEN)} compositions, {time.monotonic() - begin:.0f} s")


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


@pytest.mark.parametrize("composition", CHOSEN, ids=str)
def test_prover_agrees_with_all_interleavings(composition, program, counts) -> None:
    text = planned_text(composition)
    plan = Plan(text)
    # What is read and written again is the text, lifetimes included.
    assert plan.text([entry.with_lifetimes() for entry in plan.entries]) == text
    assert not refusal(text)
    oracle = plan_oracle.Oracle(program, plan, INTERLEAVINGS)
    disagreements = []
    for kind in KINDS:
        rng = random.Random(f"{SEED} {composition} {kind}")
        made: set[str] = set()
        for _ in range(100 * quota(kind, composition)):
            if len(made) == quota(kind, composition):
                break
            mutants = make_mutant(kind, plan, rng)
            if mutants is None or oracle.is_unchanged(mutants):
                continue
            mutant = plan.text(mutants)
            if mutant in made:
                continue
            made.add(mutant)
            fault, error = oracle.find_fault(mutants), refusal(mutant)
            counts[kind, bool(fault)] += 1
            if bool(fault) != bool(error):
                finding = f"{kind}: oracle {fault or 'sound'}, prover {error or 'accepts'}"
                disagreements.append(f"{finding}\n{difference(text, mutant)}")
    oracle.close()
    assert not disagreements, "\n\n".join(disagreements)


def test_there_are_faulty_and_sound_mutants(counts) -> None:
    """The comparison says something only if both occur; runs after all compositions, if they run in one process."""
    if not counts or "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("the compositions ran elsewhere")
    for kind in KINDS:
        assert counts[kind, True] + counts[kind, False] >= int(REQUESTED or len(KINDS)), kind
        assert counts[kind, True] > 0, kind
    assert counts["a wait dropped", False] + counts["memory freed early", False] > 0


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
