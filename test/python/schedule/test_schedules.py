# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules against torch.distributed.pipelining, which the test runs itself, and against published numbers."""

from __future__ import annotations

import csv
import io
import json

import piper
import pytest
import torch_schedules
from piper import schedules

SIZES = [
    (name, ranks, m, ranks * per_rank)
    for name in torch_schedules.CLASSES
    for ranks in (2, 3, 4, 8)
    for per_rank in ((1,) if name in torch_schedules.SINGLE else (2,) if name in ("zbv", "dualpipev") else (1, 2, 3))
    for m in (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 32)
]


def cells(schedule: schedules.Schedule) -> list[list[str]]:
    """As in the CSV, without blanks."""
    rows = csv.reader(io.StringIO(schedule.csv()))
    return [[cell for cell in row if cell] for row in rows]


@pytest.mark.parametrize("name", torch_schedules.CLASSES)
def test_order_is_that_of_torch(name):
    compared = 0
    for _, ranks, m, stages in (size for size in SIZES if size[0] == name):
        # Sizes that torch refuses have no table to compare with: 1F1B and DualPipeV with few microbatches, unequal rounds.
        try:
            expected = torch_schedules.compute_order(name, ranks, m, stages)
        except ValueError:
            continue
        assert cells(schedules.build(name, ranks, m, stages)) == expected, (ranks, m, stages)
        compared += 1
    assert compared >= 20


@pytest.mark.parametrize("name", ["interleaved_1f1b", "interleaved_zb", "dualpipev"])
def test_what_torch_refuses_is_done(name):
    microbatches, stages = {"dualpipev": (7, 8)}.get(name, (9, 8))
    with pytest.raises(ValueError):
        torch_schedules.build(name, 4, microbatches, stages)
    schedule = schedules.build(name, 4, microbatches)
    schedule.prove()
    assert (schedule.stages, schedule.ranks, schedule.microbatches) == (stages, 4, microbatches)


@pytest.mark.parametrize("name", [name for name in torch_schedules.CLASSES if name not in torch_schedules.SINGLE])
def test_communication_of_torch_is_proved(name):
    """torch orders its sends and receives so that they would meet even if sends waited; the CSV holds them all."""
    schedule = torch_schedules.build(name, 4, 8, 8)
    text = "\n".join(",".join(str(action) for action in schedule.pipeline_order_with_comms[rank]) for rank in range(4))
    loaded = schedules.parse(text)
    assert loaded.csv() == text + "\n"
    loaded.prove()
    assert sum(len(row) for row in loaded.rows()) < sum(line.count(",") + 1 for line in text.splitlines())
    # Communication that takes no time changes nothing, as long as nobody waits for it.
    assert loaded.simulate().peak_live == schedules.parse(_computed(text)).simulate().peak_live


@pytest.mark.parametrize("name", [name for name in torch_schedules.CLASSES if name not in torch_schedules.SINGLE])
@pytest.mark.parametrize("ranks, microbatches", [(2, 4), (4, 8), (3, 6)])
def test_transfers_are_those_of_torch(name, ranks, microbatches):
    expected = torch_schedules.with_transfers(name, ranks, microbatches, 2 * ranks)
    schedule = schedules.build(name, ranks, microbatches).with_transfers()
    assert cells(schedule) == expected
    assert schedule.with_transfers() == schedule
    # Sends that wait cost time, but end.
    free = schedule.simulate()
    assert free.makespan <= schedule.simulate(sends_wait=True).makespan < 3 * free.makespan


def _computed(text: str) -> str:
    words = ("SEND", "RECV", "SHARD", "GRAD")
    rows = [[cell for cell in line.split(",") if not any(word in cell for word in words)] for line in text.splitlines()]
    return "\n".join(",".join(row) for row in rows)


def test_swapped_sends_are_refused():
    schedule = torch_schedules.build("interleaved_1f1b", 2, 4, 4)
    rows = [[str(action) for action in schedule.pipeline_order_with_comms[rank]] for rank in range(2)]
    first, second = (i for i, cell in enumerate(rows[0]) if cell in ("0SEND_F0", "0SEND_F1"))
    rows[0][first], rows[0][second] = rows[0][second], rows[0][first]
    with pytest.raises(piper.UsageError) as error:
        schedules.parse("\n".join(map(",".join, rows)), "swapped.csv")
    assert "swapped.csv: row 2, column" in str(error.value)
    assert "got 0SEND_F1 taken for 1RECV_F0" in str(error.value)
    assert "<-- rank 0 sends it" in str(error.value)


@pytest.mark.parametrize(
    "name, ranks, microbatches, makespan, bubble, peak",
    [
        ("gpipe", 4, 8, 33, 9, [8, 8, 8, 8]),
        ("1f1b", 4, 8, 33, 9, [4, 3, 2, 1]),
        ("1f1b", 8, 20, 81, 21, None),
        ("interleaved_1f1b", 4, 8, 57, 9, [11, 9, 7, 5]),
        ("interleaved_1f1b", 8, 16, 117, 21, None),
        ("dualpipe", 8, 20, 66, 6, [9] * 8),
        ("dualpipe", 4, 10, 32, 2, [5] * 4),
        ("dualpipev", 4, 10, 66, 6, [9] * 4),
        ("dualpipev", 8, 20, 134, 14, [17] * 8),
    ],
)
def test_published_numbers_at_unit_costs(name, ranks, microbatches, makespan, bubble, peak):
    simulation = schedules.build(name, ranks, microbatches).simulate()
    assert (simulation.makespan, simulation.bubble) == (makespan, bubble)
    assert peak in (None, simulation.peak_live)


def test_both_copies_of_dualpipe():
    schedule = schedules.build("dualpipe", 4, 10)
    for stage, ranks in schedule.placement().items():
        assert list(ranks.values()) == [stage] * 5 + [3 - stage] * 5


def test_simulation_as_json():
    simulation = schedules.build("1f1b", 2, 2).simulate({"F": 2, "B": 3}, latency=1, transfer=0.5)
    data = json.loads(json.dumps(simulation.to_json()))
    assert data["costs"] == [{"F": 2, "B": 3, "I": 1, "W": 1}]
    assert data["cells"][1][0] == {"actions": ["1F0"], "start": 3.5, "end": 5.5}
    # F0, link, F0, B0, F1, B1 of the second rank, link, B1.
    assert data["per_rank"][0]["last_end"] == data["makespan"] == 2 + 1.5 + 2 + 3 + 2 + 3 + 1.5 + 3
    assert data["per_rank"][0]["peak_live"] == 2


@pytest.mark.parametrize(
    "costs, message",
    [
        ({"X": 1}, "expected costs of F, B, I, W, got one of 'X'"),
        ({"F": "a"}, "expected a number as cost of F, got 'a'"),
        ({"F": 10**400}, "expected a number as cost of F up to 1e18, got 1000"),
        ({"F": float("nan")}, "expected costs from 0 to 1e18, got nan"),
        (3, "expected costs such as {'F': 1, 'B': 2}, for all stages or each of them, got 3"),
        ([1, 2], "expected costs such as {'F': 1, 'B': 2}, for all stages or each of them, got [1, 2]"),
        ([{}, {}, {}], "expected the costs of 2 stages, got those of 3"),
    ],
)
def test_bad_costs_are_refused(costs, message):
    with pytest.raises(piper.UsageError) as error:
        schedules.build("1f1b", 2, 2).simulate(costs)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("dualpipe", 3, 8), "expected an even number of ranks for dualpipe, got 3; the nearest are 2 and 4"),
        (("zbv", 4, 8, 4), "expected two stages per rank for zbv, got 4 stages on 4 ranks"),
        (("1f1b", 2, 2.0), "expected a number of microbatches, got 2.0"),
        (("1f1b", 2**70, 2), "expected a number of ranks, got 1180591620717411303424"),
        (("1f1b", 0, 2), "expected at least 1 rank, got 0"),
    ],
)
def test_bad_sizes_are_refused(arguments, message):
    with pytest.raises(piper.UsageError) as error:
        schedules.build(*arguments)
    assert str(error.value) == message


def test_csv_round_trip(tmp_path):
    for name in schedules.names():
        schedule = schedules.build(name, 4, 9)
        schedule.save(tmp_path / "s.csv")
        assert schedules.load(tmp_path / "s.csv") == schedule


@pytest.mark.parametrize("name", [name for name in schedules.names() if name != "dualpipe"])
def test_torch_reads_what_is_saved(name, tmp_path):
    """Of DualPipe's two copies of a stage torch knows nothing."""
    schedule = schedules.build(name, 4, 9)
    schedule.save(tmp_path / "s.csv")
    assert torch_schedules.read_csv(tmp_path / "s.csv", 4, 9, schedule.stages) == cells(schedule)


def test_bad_csv_files_are_refused(tmp_path):
    path = tmp_path / "s.csv"
    path.write_bytes(b"0F0,0\xff0,0B0\n")
    with pytest.raises(piper.UsageError) as error:
        schedules.load(path)
    assert str(error.value).startswith(f"{path}: row 1, column 2: expected an action such as 2F0")
    with pytest.raises(piper.UsageError, match="No such file"):
        schedules.load(tmp_path / "none.csv")
    with pytest.raises(piper.UsageError, match="Is a directory"):
        schedules.load(tmp_path)
