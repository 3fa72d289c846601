# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Meshes, directives and ready-made strategies."""

import json
import os

import piper
import pytest
from piper import schedules


def test_ranks_are_row_major():
    mesh = piper.Mesh(pp=2, dp=3)
    assert mesh.shape == {"pp": 2, "dp": 3}
    assert mesh.size == 6
    assert mesh.ranks({"pp": 1}) == [3, 4, 5]
    assert mesh.ranks({"dp": 1}) == [1, 4]
    assert mesh.ranks({"pp": 1, "dp": 2}) == [5]
    assert mesh.ranks([4, 0]) == [4, 0]
    assert mesh.ranks() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "devices, message",
    [
        ({"tp": 0}, "expected an axis of the mesh (pp, dp), got 'tp'"),
        ({"pp": 2}, "expected 0 to 1 along axis 'pp', got 2"),
        ([6], "expected a device inside the mesh of 6 ranks (0 to 5), got 6"),
        ([-1], "expected a device inside the mesh of 6 ranks (0 to 5), got -1"),
        ([1, 1], "expected distinct devices, got [1, 1]"),
        ([], "expected at least one device, got an empty list"),
        ([True], "expected a rank (an integer), got True"),
        ("01", "expected a list of ranks or a slice such as {'pp': 0} as devices, got '01'"),
    ],
)
def test_devices_outside_the_mesh_are_refused(devices, message):
    with pytest.raises(piper.UsageError) as error:
        piper.Strategy(piper.Mesh(pp=2, dp=3)).place({}, devices)
    assert str(error.value) == f"place: {message}"


@pytest.mark.parametrize("axes", [{}, {"pp": 0}, {"pp": True}, {"pp": 1.0}])
def test_bad_meshes_are_refused(axes):
    with pytest.raises(piper.UsageError):
        piper.Mesh(**axes)


@pytest.mark.parametrize(
    "method, arguments, message",
    [
        ("split", ({}, "", 2), "split: expected a tag name as dim_name, got ''"),
        ("split", ({}, "MB", 0), "split: num_microbatches: expected an integer from 1 to 2147483647, got 0"),
        ("split", ([], "MB", 1), "split: expected a filter such as {'stage': 0}, got []"),
        ("place", ({"stage": -1}, [0]), "place: expected an index, '*' or None for tag 'stage', got -1"),
        ("place", ({"PASS": "X"}, [0]), "place: expected PASS to be one of F, B, I, W (or BI, BW), got 'X'"),
        ("order", ([[{}]],), "order: expected at least two groups, got 1"),
        ("order", ([[{}], []],), "order: expected a non-empty group of filters, got []"),
        ("replicate", ({}, [0], "g", "r", 1), "replicate: expected true or false as shard_params, got 1"),
    ],
)
def test_bad_fields_are_refused(method, arguments, message):
    strategy = piper.Strategy(piper.Mesh(pp=2, dp=2))
    with pytest.raises(piper.UsageError) as error:
        getattr(strategy, method)(*arguments)
    assert str(error.value) == message
    assert strategy.directives == []


def test_bucket_size_must_be_positive():
    with pytest.raises(piper.UsageError, match="expected a bucket_size in MiB"):
        piper.Strategy(piper.Mesh(dp=2)).replicate({}, [0, 1], bucket_size=0)


def test_stronger_sharding_implies_weaker():
    strategy = piper.Strategy(piper.Mesh(dp=2)).replicate({}, {}, shard_params=True)
    directive = strategy.directives[0]
    assert directive.shard_params and directive.shard_grads and directive.shard_optimizer


def test_unknown_tags_list_the_known_ones():
    strategy = piper.Strategy(piper.Mesh(pp=2)).split({}, "MB", 2).place({"stge": 0}, [0])
    with pytest.raises(piper.UsageError) as error:
        strategy.check({"stage": {0, 1}, "_block": {0}})
    assert "place: unknown tag 'stge'; known tags are MB, PASS, _block, stage" in str(error.value)
    assert __file__ in str(error.value)


@pytest.mark.parametrize("method, arguments", [("shard", ({}, [0])), ("overlap", ([{}, {}],)), ("recompute", ({},))])
def test_directives_without_a_pass_are_refused_when_compiled(method, arguments):
    strategy = getattr(piper.Strategy(piper.Mesh(pp=1)), method)(*arguments)
    with pytest.raises(piper.UsageError, match=f"does not compile the directive '{method}'"):
        strategy.check({"stage": {0}})


def test_indices_that_nothing_has_are_refused():
    strategy = piper.strategies.pipeline(piper.Mesh(pp=3), microbatches=2)
    with pytest.raises(piper.UsageError, match="expected a model of 3 stages, as many as the schedule has, got 2"):
        strategy.check({"stage": {0, 1}})
    strategy = piper.Strategy(piper.Mesh(pp=2)).split({}, "MB", 2).order([{"MB": 1}, {"MB": 2}])
    with pytest.raises(piper.UsageError, match="order: expected 'MB' to be 0 to 1, got 2"):
        strategy.check({})


def test_models_without_annotations_are_told_how():
    with pytest.raises(piper.UsageError, match="unknown tag 'stage'.*piper.annotate_modules"):
        piper.strategies.pipeline(piper.Mesh(pp=2)).check({})


def test_a_strategy_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2))
    strategy.save(tmp_path / "s.json")
    before = (tmp_path / "s.json").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(piper.UsageError, match="s.json: cannot be written: No space left"):
        strategy.save(tmp_path / "s.json")
    assert (tmp_path / "s.json").read_bytes() == before
    assert os.listdir(tmp_path) == ["s.json"]


def test_text_form():
    strategy = piper.Strategy(piper.Mesh(pp=2, dp=2))
    strategy.split({}, dim_name="MB", num_microbatches=2)
    strategy.place({"stage": "0", "PASS": "BI"}, devices={"pp": 0})
    strategy.replicate({"stage": "*", "x y": None}, devices=[0, 1], shard_optimizer=True)
    strategy.order([{"stage": 0, "MB": 0}, [{"stage": 0, "MB": 1, "PASS": "F"}]])
    lines = [line.split(" loc(")[0].strip() for line in strategy.to_mlir().splitlines()]
    assert lines == [
        "piper.strategy @strategy {",
        'piper.split {} "MB" into 2',
        'piper.place {stage = 0 : i64, PASS = "I"} on [0, 1] stream "pp_stream"',
        'piper.replicate {stage = "*", "x y"} on [0, 1] gather_stream "gather_stream" reduce_stream "reduce_stream" '
        "{shard_optimizer, bucket_size = 25.0 : f64}",
        'piper.order [[{stage = 0 : i64, MB = 0 : i64}], [{stage = 0 : i64, MB = 1 : i64, PASS = "F"}]]',
        "}",
    ]
    assert f'loc("{__file__}":' in strategy.to_mlir()


def test_json_round_trip(tmp_path):
    mesh = piper.Mesh(pp=2, dp=2)
    strategy = piper.strategies.pipeline(mesh, microbatches=3, zero=2, bucket_size=0.5)
    strategy.save(tmp_path / "a.json")
    again = piper.Strategy.load(tmp_path / "a.json", mesh)
    again.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    strip = [line.split(" loc(")[0] for line in strategy.to_mlir().splitlines()]
    assert again.to_mlir().splitlines() == strip


def test_json_accepts_one_device_and_finds_the_mesh(tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps([{"op": "place", "filter": {"PP": "1"}, "device": 3}]))
    strategy = piper.Strategy.load(path)
    assert strategy.mesh == piper.Mesh(rank=4)
    assert strategy.directives[0].devices == [3]
    assert strategy.directives[0].filter == {"PP": 1}


@pytest.mark.parametrize(
    "text, message",
    [
        ("[", "expected JSON"),
        ("{}", "expected a list of directives, got dict"),
        ("[1]", "entry 0: expected an object, got 1"),
        ('[{"op": "splt"}]', "entry 0: expected op to be one of split, place"),
        ('[{"op": "split", "filter": {}, "dim_name": "MB"}]', "entry 0: split lacks the field 'num_microbatches'"),
        (
            '[{"op": "split", "filter": {}, "dim": 1}]',
            "entry 0: unknown field 'dim' of split; known fields are op, filter",
        ),
        ('[{"op": "replicate", "filter": {}, "devices": [0], "stream": "s"}]', "unknown field 'stream' of replicate"),
        (
            '[{"op": "place", "filter": {}, "devices": [9]}]',
            "entry 0: place: expected a device inside the mesh of 4 ranks",
        ),
    ],
)
def test_bad_json_is_refused(tmp_path, text, message):
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(piper.UsageError) as error:
        piper.Strategy.load(path, piper.Mesh(pp=4))
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(piper.UsageError, match="No such file"):
        piper.Strategy.load(tmp_path / "none.json")


def test_gpipe_runs_all_forwards_first():
    assert schedules.gpipe(2, 2) == [
        [(0, 0, "F"), (0, 1, "F"), (0, 0, "B"), (0, 1, "B")],
        [(1, 0, "F"), (1, 1, "F"), (1, 0, "B"), (1, 1, "B")],
    ]


def test_1f1b_by_hand():
    text = ["".join(f"{p}{m} " for _, m, p in actions).strip() for actions in schedules.one_f_one_b(3, 4)]
    assert text == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
@pytest.mark.parametrize("microbatches", [1, 2, 3, 8, 11])
def test_1f1b_is_complete_and_bounded(stages, microbatches):
    for stage, actions in enumerate(schedules.one_f_one_b(stages, microbatches)):
        live = peak = 0
        for where, m, pass_ in actions:
            assert where == stage
            live += 1 if pass_ == "F" else -1
            peak = max(peak, live)
            assert pass_ == "F" or (stage, m, "F") in actions[: actions.index((stage, m, "B"))]
        assert peak == min(stages - stage, microbatches)
        assert sorted(actions) == sorted((stage, m, p) for m in range(microbatches) for p in "FB")


def test_unknown_schedule_lists_the_known():
    with pytest.raises(piper.UsageError, match="gpipe, 1f1b, .*dualpipev, got 'zigzag'"):
        piper.strategies.pipeline(piper.Mesh(pp=2), schedule="zigzag")


def test_pipeline_needs_its_axis():
    with pytest.raises(piper.UsageError, match="axis 'pp'"):
        piper.strategies.pipeline(piper.Mesh(dp=2))


def test_replicas_and_microbatches():
    mesh = piper.Mesh(pp=2, dp=2)
    strategy = piper.strategies.pipeline(mesh, microbatches=5)
    assert (strategy.num_replicas, strategy.num_microbatches) == (2, 5)
    assert piper.strategies.data_parallel(mesh).num_replicas == 4
    assert piper.Strategy(mesh).num_replicas == 1


@pytest.mark.parametrize(
    "text, message",
    [
        ("[" * 100000, "too many levels"),
        ('[{"op": ["place"]}]', r"entry 0: expected op to be one of .*got \['place'\]"),
        ('[{"op": "replicate", "filter": {}, "devices": [0], "bucket_size": 1e400}]', "expected a bucket_size in MiB"),
        ('[{"op": "place", "filter": {"stage": 1000000000000000000000}, "devices": [0]}]', "expected an index"),
        ('[{"op": "place", "filter": {"stage": 0}, "devices": [true]}]', "expected a rank"),
    ],
)
def test_json_that_nobody_meant(tmp_path, text, message):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(piper.UsageError, match=message):
        piper.Strategy.load(tmp_path / "s.json", piper.Mesh(pp=2))


def order_of(strategy):
    return [directive.filters for directive in strategy.directives if directive.op == "order"]


def test_stages_live_where_the_schedule_says():
    def places(name, stages=None):
        strategy = piper.strategies.pipeline(piper.Mesh(pp=2), name, microbatches=2, stages=stages)
        return [(d.filter, d.devices) for d in strategy.directives if d.op == "place"]

    assert places("interleaved_1f1b", 6) == [({"stage": s}, [s % 2]) for s in range(6)]
    assert places("zbv") == [({"stage": s}, [rank]) for s, rank in enumerate([0, 1, 1, 0])]
    assert places("dualpipe") == [
        ({"stage": 0, "MB": 0}, [0]),
        ({"stage": 0, "MB": 1}, [1]),
        ({"stage": 1, "MB": 0}, [1]),
        ({"stage": 1, "MB": 1}, [0]),
    ]
    assert places(None, 4) == [({"stage": s}, [s % 2]) for s in range(4)]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(schedule=None, microbatches=0), "split: num_microbatches: expected an integer from 1"),
        (dict(schedule=None, stages=1), "expected at least one stage for each of the 2 slices of 'pp', got 1"),
        (dict(schedule="zbv", stages=3), "expected two stages per rank for zbv, got 3 stages on 2 ranks"),
        (dict(schedule="zbv", microbatches=0), "expected at least 1 stage and 1 microbatch, got 4 and 0"),
    ],
)
def test_pipelines_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(piper.UsageError) as error:
        piper.strategies.pipeline(piper.Mesh(pp=2), **arguments)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("schedule", "ranks", "stages", "found"),
    [("1f1b", 2, 2, 4), ("dualpipe", 2, 2, 4), ("zbv", 2, 4, 2), (None, 2, 2, 3)],
)
def test_a_model_of_another_number_of_stages(schedule, ranks, stages, found):
    strategy = piper.strategies.pipeline(piper.Mesh(pp=ranks), schedule, microbatches=2)
    strategy.check({"stage": set(range(stages))})
    with pytest.raises(piper.UsageError, match=f"expected a model of {stages} stages, .*, got {found}"):
        strategy.check({"stage": set(range(found))})


@pytest.mark.parametrize("path", [None, 1, "", ["s.json"]])
def test_what_is_no_path(path):
    """Above all not 1, which Python's own `open` takes for the standard output."""
    schedule = piper.schedules.build("gpipe", 2, 2)
    for use in (
        piper.Strategy.load,
        piper.Strategy(piper.Mesh(pp=2)).save,
        piper.schedules.load,
        schedule.save,
        piper.MachineProfile.load,
        piper.load,
        piper.MachineProfile().save,
    ):
        with pytest.raises(piper.UsageError, match="expected a path, got"):
            use(path)
    assert repr(schedule) == "<gpipe: 2 stages on 2 ranks, 2 microbatches>"


def test_what_overlaps_is_one_group():
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2), "dualpipev", microbatches=4)
    groups = [group for order in order_of(strategy) for group in order if len(group) == 2]
    assert [{"stage": 0, "MB": 3, "PASS": "F"}, {"stage": 3, "MB": 1, "PASS": "B"}] in groups
    assert {"stage": 3, "MB": 0, "PASS": "I"} in [group[0] for group in order_of(strategy)[0]]


def test_replicas_of_several_stages_per_rank():
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2, dp=2), "interleaved_1f1b", microbatches=2, zero=1)
    replicas = [(d.filter, d.devices, d.shard_optimizer) for d in strategy.directives if d.op == "replicate"]
    assert replicas == [({"stage": s}, [s % 2 * 2, s % 2 * 2 + 1], True) for s in range(4)]


def test_schedules_as_csv(tmp_path):
    """A file gives the directives of the schedule that it holds."""
    path = tmp_path / "s.csv"
    path.write_text("0F0, 0F1 ,0B0,0B1,,\r\n1F0,1B0,1F1,1B1\r\n")
    strategy = piper.Strategy.load(path)
    assert strategy.mesh.shape == {"pp": 2}
    assert strategy.num_microbatches == 2
    assert order_of(strategy)[1] == [
        [{"stage": 1, "MB": m, "PASS": p}] for m, p in ((0, "F"), (0, "B"), (1, "F"), (1, "B"))
    ]
    named = piper.strategies.pipeline(piper.Mesh(pp=2, dp=2), "1f1b", microbatches=2, zero=2, bucket_size=3)
    loaded = piper.Strategy.load(path, piper.Mesh(pp=2, dp=2), zero=2, bucket_size=3)
    assert [d.to_json() for d in loaded.directives] == [d.to_json() for d in named.directives]


@pytest.mark.parametrize(
    "mesh, microbatches, message",
    [
        (piper.Mesh(pp=3), None, "s.csv: expected 3 slices of 'pp' in the mesh, got a schedule for 2"),
        (piper.Mesh(dp=2), None, "expected a mesh with an axis 'pp', got"),
        (None, 8, "s.csv: expected 8 microbatches, got a schedule for 1"),
    ],
)
def test_a_schedule_file_that_does_not_fit_is_refused(tmp_path, mesh, microbatches, message):
    (tmp_path / "s.csv").write_text("0F0,0B0\n1F0,1B0\n")
    with pytest.raises(piper.UsageError) as error:
        piper.Strategy.load(tmp_path / "s.csv", mesh, microbatches=microbatches)
    assert message in str(error.value)


def test_a_strategy_is_printed_in_a_line():
    strategy = piper.strategies.pipeline(piper.Mesh(pp=4, dp=2), "zbv", 10, zero=2)
    assert (
        repr(strategy).startswith("<piper.Strategy over pp=4, dp=2: 1 split, 8 place, ") and len(repr(strategy)) < 120
    )
    assert repr(piper.Strategy(piper.Mesh(dp=1))) == "<piper.Strategy over dp=1: no directives>"
