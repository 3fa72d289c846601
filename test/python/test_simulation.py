# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Simulated plans against the same plans on a device of stated times, against formulas, and against schedules."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys

import piper
import pytest
import torch
from piper.profile import record
from plan_builder import Action, Plan, RankClass, address
from test_rehearsal import Layers, compile_1f1b, compile_layers, makespan_1f1b, stage_times
from torch import nn


@pytest.mark.parametrize("name", piper.schedules.names())
def test_equals_the_delay_device(name):
    """16 ranks: the same nanoseconds as the executor's threads have on stated times, with links that take time."""
    strategy = piper.strategies.pipeline(piper.Mesh(pp=4, dp=4), schedule=name, microbatches=16)
    stages = 1 + max(item.filter["stage"] for item in strategy.directives if "stage" in getattr(item, "filter", {}))
    program = compile_layers(stages, 64, strategy)
    try:
        planned = program.ir("planned")
        times = {"F": 0.004, "B": 0.008, "I": 0.003, "W": 0.005}
        kernels = {f"{kind} *": seconds for kind, seconds in times.items() if f'label "{kind} ' in planned}
        device = piper.DelayDevice(kernels, {"*": {"latency": 2e-4, "bandwidth": 1e6}}, memory_bandwidth=1e8)
        simulation = program.simulate(device)
        with program.rehearse(device) as rehearsal:
            assert rehearsal.run() == simulation.makespan
            ran = rehearsal.trace()
    finally:
        program.close()
    # Action by action, waiting apart; the clock of a run begins elsewhere.
    begin = min(span.start for span in ran)
    for rank in range(16):
        for stream in {span.stream for span in ran if span.rank == rank}:
            real, simulated = (
                [span for span in spans if (span.rank, span.stream) == (rank, stream) and span.end > span.start]
                for spans in (ran, simulation.spans)
            )
            assert [(s.opcode, s.label) for s in real] == [(s.opcode, s.label) for s in simulated]
            for one, other in zip(real, simulated, strict=True):
                expected = (other.start, other.end, other.waited)
                assert (one.start - begin, one.end - begin, one.waited) == pytest.approx(expected, abs=2e-8), other


def test_1f1b_by_its_formula():
    program = compile_1f1b(4, 2, 8)
    try:
        simulation = program.simulate(stage_times())
    finally:
        program.close()
    assert simulation.makespan == pytest.approx(makespan_1f1b(4, 8), rel=1e-9)
    # (p - 1) (F + B) of every rank's span is idle, on the last rank none.
    bubbles = [item.bubble for item in simulation.ranks]
    assert bubbles[-1] == pytest.approx(0, abs=1e-9) and simulation.bubble == pytest.approx(3 * 0.030, rel=1e-6)
    assert all(item.busy == pytest.approx(8 * 0.030, rel=1e-6) for item in simulation.ranks)
    # The chain begins at the beginning, has no gaps, and is as long as everything.
    path = simulation.critical_path
    assert path[0].start == 0 and path[-1].end == simulation.makespan
    for before, after in zip(path, path[1:], strict=False):
        assert after.start + after.waited == pytest.approx(before.end, abs=1e-12) or after.start == before.end
    text = str(simulation)
    assert "makespan 330 ms" in text and simulation.timeline().count("\n") == 7


def test_exposed_communication():
    """One message of one second between two kernels of a second: nothing hides it; behind a third kernel it is hidden."""
    kernels = [("k", 0, [64])]
    pair = [("pair", [[0, 1]])]

    def ranks(behind: bool):
        launch = Action("launch", [address("arena")], [0], "k")
        one = [launch, Action("send", [address("arena")], [0, 64], "s"), *([launch] if behind else [])]
        two = [Action("recv", [address("arena")], [0, 64], "r"), launch]
        other = [*([Action("launch", [address("arena", 128)], [0], "k")] * 2 if behind else [])]
        return [RankClass([0], {"step": [one]}, ["main"]), RankClass([1], {"step": [two, other]}, ["main", "side"])]

    for behind, exposed in ((False, 1.0), (True, 0.0)):
        plan = Plan(2, ranks(behind), kernels=kernels, communicators=pair).encode()
        device = piper.DelayDevice({"k": 1.0}, {"pair": {"bandwidth": 64}})
        simulation = piper.Simulation(plan, device, flags=())
        assert simulation.makespan == 3.0
        assert simulation.ranks[1].communication == 1.0
        assert simulation.ranks[1].exposed == exposed


def test_a_plan_that_hangs_is_said_to():
    """Each rank receives before it sends."""

    def rank(number: int):
        receive, send = (
            Action("recv", [address("arena")], [1 - number, 64], "r"),
            Action("send", [address("arena")], [number, 64], "s"),
        )
        return RankClass([number], {"step": [[receive, send]]}, ["main"])

    plan = Plan(2, [rank(0), rank(1)], communicators=[("there", [[0, 1]]), ("back", [[1, 0]])]).encode()
    with pytest.raises(piper.UsageError, match=r"wait for each other for ever: rank 0 at recv 'r', rank 1 at recv 'r'"):
        piper.Simulation(plan, piper.DelayDevice({}), flags=())


def test_memory_by_kind():
    """What 1F1B keeps: p - s microbatches of activations on stage s (Narayanan et al. 2021), so the first rank has most."""
    program = compile_layers(
        4, 32, piper.strategies.pipeline(piper.Mesh(pp=4), schedule="1f1b", microbatches=8), width=64
    )
    try:
        simulation = program.simulate(stage_times())
        ranks = simulation.ranks
        stats = program.simulate(piper.DelayDevice({}))
    finally:
        program.close()
    saved = [item.memory.get("saved", 0) + item.memory.get("activation", 0) for item in ranks]
    assert saved[0] > saved[1] > saved[2] > saved[3] > 0
    assert all(sum(item.memory.values()) <= item.peak_bytes for item in ranks)
    for item in ranks:
        curve = simulation.memory(item.rank)
        # Nothing is left at the end, and what lives at once fits where it is planned.
        assert curve[-1][1] == {} and [time for time, _ in curve] == sorted(time for time, _ in curve)
        assert 0 < max(sum(live.values()) for _, live in curve) <= item.peak_bytes
    assert stats.makespan == 0 and stats.bubble == 0


def test_saved_programs_and_files(tmp_path):
    program = compile_1f1b(2, 1, 4)
    program.save(tmp_path / "program")
    wanted = program.simulate(stage_times())
    program.close()
    simulation = piper.simulate(tmp_path / "program", stage_times())
    assert simulation.to_json() == wanted.to_json()
    simulation.save(tmp_path / "times.json")
    assert json.loads((tmp_path / "times.json").read_text())["makespan"] == wanted.makespan
    simulation.save(tmp_path / "times.svg")
    assert "<svg" in (tmp_path / "times.svg").read_text()


def test_profiles():
    """Recorded costs give back the program's own kernels; another program's come from the work that they do."""
    torch.manual_seed(0)
    model = Layers(2, 64)
    batches = [(torch.randn(16, 64), torch.randn(16, 64)) for _ in range(4)]
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2), schedule="1f1b", microbatches=4)
    program = piper.compile(
        model,
        nn.functional.mse_loss,
        batches[0],
        strategy=strategy,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    )
    try:
        profile = program.profile(batches)
        own = program.simulate(profile)
        assert set(profile.kernels) <= set(program._kernels) and all(v >= 0 for v in profile.kernels.values())
        launches = [span for span in own.spans if span.opcode == "launch"]
        assert sum(span.end - span.start for span in launches) == pytest.approx(sum(item.busy for item in own.ranks))
        before = program.state_dict()
        for refused in (batches[:1], iter(batches[:1]), None):
            with pytest.raises(piper.UsageError, match="at least two batches"):
                program.profile(refused)
        assert all(torch.equal(value, before[name]) for name, value in program.state_dict().items())
        for refused in (None, {"F *": 1}, "costs.json"):
            with pytest.raises(
                piper.UsageError, match="expected costs in a piper.DelayDevice or a piper.MachineProfile"
            ):
                program.simulate(refused)
        with pytest.raises(piper.UsageError, match="expected a piper.DelayDevice, got None"):
            program.rehearse(None)
    finally:
        program.close()
    divided = piper.strategies.pipeline(piper.Mesh(pp=2), schedule="zb_h1", microbatches=4)
    other = piper.compile(
        model,
        nn.functional.mse_loss,
        batches[0],
        strategy=divided,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    )
    try:
        simulation = other.simulate(profile)
        assert 0 < simulation.makespan < math.inf
        whole, halves = (
            sum(amount for name, amount in item._work().items() if name.partition("_")[0] in "BIW")
            for item in (program, other)
        )
        # The two halves of a backward do what it does, and hand something over.
        assert whole <= halves < 1.2 * whole
        with pytest.raises(piper.UsageError, match="neither it nor another . was recorded"):
            other.simulate(piper.MachineProfile())
    finally:
        other.close()


def test_recorded_costs_are_those_of_the_device(pp2):
    """A trace on a device of stated times gives these times back, also those of links, whose messages have two sizes."""
    stated = {"F": 0.003, "B": 0.007}
    device = piper.DelayDevice(
        {f"{kind}_*": seconds for kind, seconds in stated.items()}, {"*": {"latency": 4e-3, "bandwidth": 1e6}}, 1e8
    )
    with pp2.rehearse(device) as rehearsal:
        rehearsal.run()
        found = record(pp2._plan, pp2._work(), [rehearsal.trace()] * 2)
    kinds = {name: name.partition("_")[0] for name in found.kernels}
    for name, seconds in found.kernels.items():
        assert seconds == pytest.approx(stated.get(kinds[name], 0.0), abs=1e-8), name
    assert set(stated) <= set(kinds.values())
    assert found.links["*"]["latency"] == pytest.approx(4e-3, rel=1e-3)
    assert found.links["*"]["bandwidth"] == pytest.approx(1e6, rel=1e-2)
    assert pp2.simulate(found).makespan == pytest.approx(pp2.simulate(device).makespan, rel=1e-3)


@pytest.fixture(scope="module")
def pp2():
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2), schedule="1f1b", microbatches=4)
    program = compile_layers(2, 16, strategy, width=64)
    yield program
    program.close()


def test_profiles_are_files(tmp_path):
    profile = piper.MachineProfile({"F_1": 0.5}, {"F": 1e-9}, {"*": {"latency": 1e-6, "bandwidth": 1e9}}, 1e10)
    profile.save(tmp_path / "machine.json")
    assert piper.MachineProfile.load(tmp_path / "machine.json") == profile
    assert profile.costs({"F_1": 3, "F_2": 1e6}).kernels == {"F_1": 0.5, "F_2": pytest.approx(1e-3)}
    (tmp_path / "other.json").write_text('{"kernel": {}}')
    with pytest.raises(piper.UsageError, match="other.json: expected the fields kernels, rates"):
        piper.MachineProfile.load(tmp_path / "other.json")
    with pytest.raises(piper.UsageError, match="No such file"):
        piper.MachineProfile.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kernels": 5}', "kernels: expected a dictionary whose keys are text, got 5"),
        ('{"kernels": {"F_1": -1}}', "kernels['F_1']: expected a number from 0, got -1"),
        ('{"rates": [1]}', "rates: expected a dictionary whose keys are text, got [1]"),
        ('{"rates": {"F": "fast"}}', "rates['F']: expected a number from 0, got 'fast'"),
        ('{"rates": {"F": 1%s}}' % ("0" * 400), "rates['F']: expected a number that a float holds, got 1000"),
        ('{"links": []}', "links: expected a dictionary whose keys are text, got []"),
        ('{"memory_bandwidth": true}', "memory_bandwidth: expected a number from 0, got True"),
        ("[" * 100000, "JSON of too many levels"),
    ],
)
def test_profiles_that_are_none(tmp_path, text, message):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(piper.UsageError, match=re.escape(message)) as caught:
        piper.MachineProfile.load(tmp_path / "p.json")
    assert str(caught.value).startswith(f"{tmp_path / 'p.json'}: ")


def test_command_line(tmp_path):
    program = compile_1f1b(2, 1, 4)
    program.save(tmp_path / "program")
    program.close()
    (tmp_path / "costs.json").write_text(json.dumps({"kernels": {"F *_block=*": 0.01, "B *_block=*": 0.02}}))

    def run(*arguments):
        command = [sys.executable, "-m", "piper", "simulate", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)

    done = run("program", "--profile", "costs.json", "-o", "picture.svg")
    assert done.returncode == 0 and f"makespan {makespan_1f1b(2, 4) * 1e3:.4g} ms" in done.stdout, done.stderr
    assert (tmp_path / "picture.svg").exists()
    plain = json.loads(run("program", "--json").stdout)
    # Every chunk's forward takes one second here: the stage's layer, and on the last rank the loss.
    assert plain["makespan"] >= 3 * 5 and len(plain["ranks"]) == 2
    (tmp_path / "wrong.json").write_text('{"speed": 1}')
    for arguments, message in (
        (["program", "--profile", "none.json"], "none.json: No such file"),
        (["program", "--profile", "wrong.json"], "wrong.json: .*unexpected keyword argument 'speed'"),
        (["program", "-o", "picture.xyz"], "picture.xyz: expected a file named .svg, .png, .pdf or .json"),
        (["program", "-o", "none/picture.svg"], "none/picture.svg: cannot be written: No such file"),
        (["program", "--csv"], "--csv has no meaning beside program"),
        (["program", "--schedule", "zbv"], "--schedule has no meaning beside program"),
        (["--profile", "costs.json"], "--profile and --output are for the folder of a compiled program"),
    ):
        done = run(*arguments)
        assert done.returncode == 2 and re.search(message, done.stderr), done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved_1f1b", "zb_h2"])
@pytest.mark.parametrize(("latency", "transfer"), [(0.1, 0.0), (0.0, 0.3)])
def test_messages_hold_up_nobody_else(name, latency, transfer):
    """As long as the schedule's table takes, where a message delays only who needs it: neither sends nor other receives wait behind it."""
    ranks, microbatches = 4, 12
    strategy = piper.strategies.pipeline(piper.Mesh(pp=ranks), schedule=name, microbatches=microbatches)
    stages = 1 + max(item.filter["stage"] for item in strategy.directives if "stage" in getattr(item, "filter", {}))
    program = compile_layers(stages, microbatches, strategy)
    try:
        planned = program.ir("planned")
        times = {"F": 1, "B": 2, "I": 1, "W": 1}
        kernels = {f"{kind} *_block=*": seconds for kind, seconds in times.items() if f'label "{kind} ' in planned}
        # A message is one row of 8 floats.
        link = {"latency": latency, "bandwidth": 32 / transfer if transfer else math.inf}
        took = program.simulate(piper.DelayDevice(kernels, {"*p2p*": link})).makespan
    finally:
        program.close()
    table = piper.schedules.build(name, ranks, microbatches).simulate(times, latency=latency, transfer=transfer)
    assert took == pytest.approx(table.makespan, rel=1e-6)
    if name == "gpipe" and latency:
        assert took == pytest.approx((microbatches + ranks - 1) * 3 + 2 * (ranks - 1) * latency)
