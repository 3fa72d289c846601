# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiler's deadlock proof against execution: orders that are shuffled at random are refused exactly if the ranks get stuck."""

from __future__ import annotations

import random

import pytest
from made_up_models import Model, imported_module
from piper._mlir import ir
from piper._mlir.passmanager import PassManager
from symbolic_cluster import Cluster, Deadlock, graph_named, part_rows
from test_schedule_pipeline import directives

MOVED = ("piper.send", "piper.recv", "piper.all_reduce", "piper.reduce_scatter", "piper.all_gather")


def shuffle(graph, rng: random.Random, moves: int) -> None:
    """Moves transfers and collectives, each to a place behind what it uses and before what uses it."""
    for _ in range(moves):
        ops = list(graph.body.blocks[0].operations)
        places = {op.operation: i for i, op in enumerate(ops)}
        index = rng.choice([i for i, op in enumerate(ops) if op.operation.name in MOVED])
        op = ops[index].operation
        first = max((places[v.owner] for v in op.operands), default=-1) + 1
        last = min((places[use.owner.operation] for result in op.results for use in result.uses), default=len(ops) - 1)
        op.move_before(ops[rng.randint(first, last)].operation)


def gets_stuck(module, ranks: int, sends_wait: bool) -> bool:
    try:
        Cluster(module, graph_named(module, "step"), ranks, sends_wait, random.Random(0)).run()
    except Deadlock:
        return True
    return False


@pytest.mark.parametrize("mesh", [(2, 1), (3, 1), (2, 2)])
def test_shuffled_orders(mesh):
    model, microbatches = Model(stages=mesh[0], skip=True, tied=True), 2
    rows = {part_rows(part_rows(model.rows, mesh[1], r), microbatches, m) for r in range(mesh[1]) for m in range(2)}
    text = imported_module(model, mesh, sorted(rows), directives(model, mesh, microbatches, 1, "1f1b", 2**20))
    found = {"refused": 0, "sound": 0}
    with ir.Context() as context, ir.Location.unknown():
        scheduled = ir.Module.parse(text)
        PassManager.parse("builtin.module(piper-schedule-pipeline)").run(scheduled.operation)
        start = str(scheduled)
        for seed in range(40):
            module = ir.Module.parse(start)
            shuffle(graph_named(module, "step"), random.Random(seed), moves=seed % 16 + 1)
            messages: list[str] = []
            with context.attach_diagnostic_handler(lambda d, log=messages: (log.append(d.message), True)[1]):
                try:
                    PassManager.parse("builtin.module(piper-verify-scheduled)").run(module.operation)
                except ir.MLIRError as error:
                    messages.append(str(error))
            text_of = " ".join(messages)
            if "in the order they are sent in" in text_of:
                continue  # messages would be mistaken for each other: another rule
            refused = "without deadlock" in text_of
            assert refused or not messages, text_of
            waits = gets_stuck(module, mesh[0] * mesh[1], sends_wait=True)
            runs_free = gets_stuck(module, mesh[0] * mesh[1], sends_wait=False)
            assert refused == (waits or runs_free), text_of
            found["refused" if refused else "sound"] += 1
    # Both outcomes occur, so that agreement means something.
    assert min(found.values()) >= 3, found
