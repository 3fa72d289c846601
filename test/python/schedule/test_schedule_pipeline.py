# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scheduled graphs against their definition: a loop over replicas and microbatches. Many models, meshes and strategies, at many timings."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from dataclasses import replace

import piper
import pytest
from made_up_models import Model, imported_module
from piper import schedules
from piper._mlir import ir
from piper._mlir.passmanager import PassManager
from symbolic_cluster import Cluster, Deadlock, graph_named, part_rows, run_imported


def whole_backwards(schedule: schedules.Schedule) -> schedules.Schedule:
    """The same order where backwards are not divided: each in the place of its I."""
    rows = [re.sub(r"\d+W\d+", "", row).replace("I", "B") for row in schedule.csv().splitlines()]
    return schedules.parse("\n".join(rows))


def directives(
    model: Model,
    mesh: tuple[int, int],
    microbatches: int,
    zero: int,
    schedule: str | schedules.Schedule | None,
    bucket_bytes: int,
) -> list[str]:
    pp, dp = mesh
    if isinstance(schedule, str):
        schedule = schedules.build(schedule, pp, microbatches, model.stages)
    strategy = piper.strategies.pipeline(
        piper.Mesh(pp=pp, dp=dp), schedule, microbatches, zero, bucket_bytes / 2**20, model.stages
    )
    return [line.strip() for line in re.sub(r" loc\(.*\)", "", strategy.to_mlir()).splitlines()[1:-1]]


def check(
    model: Model,
    mesh: tuple[int, int],
    microbatches: int,
    zero: int = 0,
    schedule: str | schedules.Schedule | None = None,
    bucket_bytes: int = 2**20,
) -> None:
    pp, dp = mesh
    rows = {part_rows(part_rows(model.rows, dp, r), microbatches, m) for r in range(dp) for m in range(microbatches)}
    text = imported_module(
        model, mesh, sorted(rows), directives(model, mesh, microbatches, zero, schedule, bucket_bytes)
    )
    with ir.Context(), ir.Location.unknown():
        imported, scheduled = ir.Module.parse(text), ir.Module.parse(text)
        PassManager.parse("builtin.module(piper-schedule-pipeline)").run(scheduled.operation)
        for name, sends_wait, seed in itertools.product(("step", "evaluate"), (False, True), range(2)):
            expected = run_imported(graph_named(imported, name), dp, microbatches)
            cluster = Cluster(scheduled, graph_named(scheduled, name), pp * dp, sends_wait, random.Random(seed))
            cluster.run()
            outcomes = cluster.outcome()
            for outcome in outcomes:
                assert outcome.losses == expected.losses
                assert outcome.weights == expected.weights
                for state, gradient in outcome.gradients.items():
                    assert gradient == expected.gradients[state], state
                for state, values in outcome.buffers.items():
                    for replica, value in values.items():
                        assert value == expected.buffers[state][replica], state
            # What is to be trained is updated somewhere, and what is written is written on every replica.
            assert {s for o in outcomes for s in o.gradients} == set(expected.gradients)
            written = {(s, r) for o in outcomes for s, values in o.buffers.items() for r in values}
            assert written == {(s, r) for s in expected.buffers for r in range(dp)}


@pytest.mark.parametrize("schedule", [None, "gpipe", "1f1b"])
@pytest.mark.parametrize("microbatches", [1, 2, 3, 8])
@pytest.mark.parametrize("stages", [2, 4])
def test_pipelines(stages, microbatches, schedule):
    check(Model(stages=stages), (stages, 1), microbatches, schedule=schedule)


@pytest.mark.parametrize("bucket_bytes", [64, 700, 2**20])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("dp", [2, 4])
def test_data_parallel(dp, zero, bucket_bytes):
    check(Model(stages=1, blocks=4, buffer=True), (1, dp), 2, zero, bucket_bytes=bucket_bytes)


@pytest.mark.parametrize("schedule", [None, "gpipe", "1f1b"])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_pipeline_with_replicas(zero, schedule):
    check(Model(stages=2, blocks=3, tied=True, skip=True, buffer=True), (2, 2), 4, zero, schedule, bucket_bytes=600)


@pytest.mark.parametrize("schedule", [None, "1f1b"])
@pytest.mark.parametrize(
    "change",
    [
        dict(tied=True),
        dict(skip=True),
        dict(frozen=True),
        dict(buffer=True),
        dict(buffer=True, shared_buffer=True),
        dict(rows=10),
        dict(rows=7),
        dict(tied=True, skip=True, buffer=True, shared_buffer=True, rows=11),
    ],
    ids=lambda change: "-".join(f"{k}{v}" for k, v in change.items()),
)
def test_models(change, schedule):
    model = replace(Model(stages=3, blocks=2), **change)
    check(model, (3, 1), 4, schedule=schedule)
    check(model, (3, 2), 3, zero=1, schedule=schedule)


@pytest.mark.parametrize("mesh", [(2, 1), (2, 2)])
def test_stages_that_share_a_rank(mesh):
    check(Model(stages=4, blocks=1, skip=True, buffer=True), mesh, 4, zero=3 if mesh[1] > 1 else 0)


@pytest.mark.parametrize("schedule", ["interleaved_1f1b", "looped_bfs"])
@pytest.mark.parametrize("microbatches", [1, 3, 4, 8])
@pytest.mark.parametrize("stages", [2, 4, 6])
def test_several_stages_per_rank(stages, microbatches, schedule):
    check(Model(stages=stages), (2, 1), microbatches, schedule=schedule)


@pytest.mark.parametrize("schedule", ["interleaved_1f1b", "looped_bfs"])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_several_stages_per_rank_with_replicas(zero, schedule):
    check(Model(stages=4, tied=True, skip=True, buffer=True), (2, 2), 4, zero, schedule, bucket_bytes=600)


@pytest.mark.parametrize("pp", [2, 4])
@pytest.mark.parametrize("microbatches", [3, 4, 8])
def test_forwards_and_backwards_that_share_a_cell(pp, microbatches):
    schedule = whole_backwards(schedules.build("dualpipev", pp, microbatches))
    assert "OVERLAP_F_B" in schedule.csv() or microbatches < 2 * pp
    check(Model(stages=2 * pp), (pp, 1), microbatches, schedule=schedule)


@pytest.mark.parametrize("microbatches", [1, 2, 4, 7])
@pytest.mark.parametrize("mesh, zero", [((2, 1), 0), ((4, 1), 0), ((2, 2), 0), ((2, 2), 1), ((2, 2), 3)])
def test_two_copies_of_a_stage(mesh, zero, microbatches):
    schedule = whole_backwards(schedules.build("dualpipe", mesh[0], microbatches))
    check(Model(stages=mesh[0]), mesh, microbatches, zero, schedule)


def scheduled(model: Model, mesh: tuple[int, int], microbatches: int, strategy: piper.Strategy) -> str:
    """The scheduled module of a strategy, without locations."""
    rows = {
        part_rows(part_rows(model.rows, mesh[1], r), microbatches, m)
        for r in range(mesh[1])
        for m in range(microbatches)
    }
    lines = re.sub(r" loc\(.*\)", "", strategy.to_mlir()).splitlines()[1:-1]
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(imported_module(model, mesh, sorted(rows), [line.strip() for line in lines]))
        PassManager.parse("builtin.module(piper-schedule-pipeline)").run(module.operation)
        return str(module)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved_1f1b", "looped_bfs"])
def test_all_forms_of_a_strategy_give_one_program(name, tmp_path):
    mesh = piper.Mesh(pp=2, dp=2)
    called = piper.strategies.pipeline(mesh, name, microbatches=4, zero=2, bucket_size=0.001)
    schedules.build(name, 2, 4).save(tmp_path / "s.csv")
    from_csv = piper.Strategy.load(tmp_path / "s.csv", mesh, zero=2, bucket_size=0.001)
    from_csv.save(tmp_path / "s.json")
    from_json = piper.Strategy.load(tmp_path / "s.json", mesh)
    model = Model(stages=schedules.build(name, 2, 4).stages, tied=True, skip=True)
    expected = scheduled(model, (2, 2), 4, called)
    assert scheduled(model, (2, 2), 4, from_csv) == expected
    assert scheduled(model, (2, 2), 4, from_json) == expected
    # Which kind of directive stands first in a file says nothing.
    kinds = ["order", "replicate", "place", "split"]
    moved = piper.Strategy(mesh, sorted(called.directives, key=lambda directive: kinds.index(directive.op)))
    assert scheduled(model, (2, 2), 4, moved) == expected


@pytest.mark.parametrize("name", ["zb_h1", "zb_h2", "interleaved_zb", "zbv", "dualpipe", "dualpipev"])
def test_divided_backwards_of_a_program_without_them_are_refused(name):
    with pytest.raises(ir.MLIRError) as error:
        check(Model(stages=schedules.build(name, 2, 4).stages), (2, 1), 4, schedule=name)
    assert "expected a program whose backward is divided into I and W" in str(error.value)


def test_the_cluster_sees_a_reduction_that_is_left_out():
    """The check above can fail: with a gradient that is not reduced, and with one that is counted twice."""
    model, mesh = Model(stages=1), (1, 2)
    text = imported_module(model, mesh, [8], directives(model, mesh, 1, 0, None, 2**20))
    with ir.Context(), ir.Location.unknown():
        imported, scheduled = ir.Module.parse(text), ir.Module.parse(text)
        PassManager.parse("builtin.module(piper-schedule-pipeline)").run(scheduled.operation)
        expected = run_imported(graph_named(imported, "step"), 2, 1).gradients["w0"]
        graph = graph_named(scheduled, "step")
        (update,) = (op for op in graph.body.blocks[0].operations if op.operation.name == "piper.update")
        reduction = update.gradient.owner.opview
        update.operation.operands[0] = reduction.operand
        cluster = Cluster(scheduled, graph, 2, False, random.Random(0))
        cluster.run()
        assert cluster.outcome()[0].gradients["w0"] != expected
        assert cluster.outcome()[0].gradients["w0"] == Counter([next(iter(expected))])


def test_the_cluster_sees_a_deadlock():
    """Crossing sends hang where sends wait."""
    text = """
      piper.mesh @mesh ["pp"] [2]
      piper.stream @pp_stream
      piper.graph @step rows 1 {
        %x = piper.input "args.0" 0 split : tensor<?xf32>
        %m0, %t0 = piper.send %x on [0] to [1] stream @pp_stream : tensor<?xf32>
        %m1, %t1 = piper.send %x on [1] to [0] stream @pp_stream : tensor<?xf32>
        %r1, %t2 = piper.recv %m1 on [0] from [1] stream @pp_stream : tensor<?xf32>
        %r0, %t3 = piper.recv %m0 on [1] from [0] stream @pp_stream : tensor<?xf32>
        %both = piper.pack () on [0, 1] : () -> tensor<2xf32>
        piper.return %both : tensor<2xf32>
      }
    """
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        Cluster(module, graph_named(module, "step"), 2, False, random.Random(0)).run()
        with pytest.raises(Deadlock):
            Cluster(module, graph_named(module, "step"), 2, True, random.Random(0)).run()
