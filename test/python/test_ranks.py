# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that are not alike: one error on all of them, which names rank and thing, at once; the same on all is none.

The jobs are in ranks_worker.py: four processes on pp=2, dp=2.
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest
import torch
from piper.agreement import OTHER_VALUES, Fact, decode, difference, encode
from ranks_worker import WORLD, Model, batch
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent
NO_MORE = "; the program runs no more: load or compile it again"
ORDER = "all ranks call the same methods of a program, in the same order"
WHOLE = "every rank gives the whole batch, in the same order; where each has its own rows, give local=True"
OPTIONS = "set the same options on all ranks"
ARGUMENTS = "all ranks give the same arguments"
DIFFERENT_CALLS = {
    "evaluate": f"rank 0 called evaluate, ranks 1, 2 and 3 called step: {ORDER}",
    "gradients": f"ranks 0, 1 and 3 called evaluate, rank 2 called gradients: {ORDER}",
    "state_dict": f"rank 0 called state_dict, ranks 1, 2 and 3 called step: {ORDER}",
    "save": f"rank 0 called save, ranks 1, 2 and 3 called evaluate: {ORDER}",
    "lr": f"step: optimizer option 'lr' is 0.1 on ranks 0, 2 and 3, 0.2 on rank 1: {OPTIONS}",
    "weight_decay": f"step: optimizer option 'weight_decay' is 0 on ranks 0, 1 and 2, 0.01 on rank 3: {OPTIONS}",
    "momentum": f"step: optimizer option 'momentum' is 0.8 on rank 0, 0.9 on ranks 1, 2 and 3: {OPTIONS}",
    "update": f"step: update is True on ranks 0, 1 and 3, False on rank 2: {ARGUMENTS}",
    "local": f"step: local is False on ranks 0 and 1, True on ranks 2 and 3: {ARGUMENTS}",
    "input": f"step: input 'args.0' has other values on rank 3 than on ranks 0, 1 and 2: {WHOLE}",
    "shuffled": f"step: input 'target' has other values on ranks 1, 2 and 3 than on rank 0: {WHOLE}",
    "sampler": "step: input 'target' has other values on rank 2 than on rank 0: these ranks have the same rows of the batch: "
    "give them the same, whatever a sampler says by rank",
    "load": "load_state_dict: entry 'scale' has other values on ranks 1, 2 and 3 than on rank 0: load the same on all ranks",
    "moments": "load_optimizer_state_dict: the number of steps of 'group0' is 1 on ranks 0, 2 and 3, 2 on rank 1",
}
SAME_PROGRAM = "every rank compiles the same model, loss, shapes, strategy and optimizer"
SEED = (
    "make the model alike on all ranks (torch.manual_seed before it is made), or give piper.compile sync_parameters=True,"
    " which takes rank 0's values"
)
ABSENT = "expected WORLD_SIZE = 1, the number of ranks of the program, got 4"


class Jobs:
    """The process that forks ranks, and the program that they load."""

    def __init__(self, folder: pathlib.Path):
        self.program = folder / "program"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "FATAL"}
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            environment.pop(name, None)
        command = [sys.executable, str(HERE / "ranks_worker.py"), str(self.program)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout.readline() == "saved\n"

    def run(self, name: str, folder: pathlib.Path, **spec) -> Outcome:
        memory = set(os.listdir("/dev/shm"))
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        spec = {"name": name, "port": port, "folder": str(folder), "program": str(self.program), **spec}
        self.process.stdin.write(json.dumps(spec) + "\n")
        self.process.stdin.flush()
        codes = json.loads(self.process.stdout.readline())
        assert set(os.listdir("/dev/shm")) <= memory
        return Outcome(codes, folder)


class Outcome:
    """How a job ended, by rank."""

    def __init__(self, codes: list[int], folder: pathlib.Path):
        self.codes = codes
        self.stderr = [(folder / f"stderr{rank}").read_text() for rank in range(WORLD)]
        self._files = [folder / f"{rank}.json" for rank in range(WORLD)]

    def results(self) -> tuple[list[dict], list[dict]]:
        assert self.codes == [0] * WORLD, "\n".join(self.stderr)
        texts = [json.loads(file.read_text()) for file in self._files]
        return [text["results"] for text in texts], [text["seconds"] for text in texts]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory) -> Jobs:
    result = Jobs(tmp_path_factory.mktemp("ranks"))
    yield result
    result.process.stdin.close()
    result.process.wait(timeout=20)


def expected_losses() -> tuple[float, float]:
    """Plain PyTorch from where the program was saved: the loss of a step, and that after it."""
    torch.manual_seed(3)
    model = Model()
    x, y = batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[1]


@pytest.mark.parametrize("compare", ["before", "meanwhile"])
def test_calls_that_differ_are_named_on_all_ranks(compare, jobs, tmp_path):
    """Before: nothing has run, and the same program goes on. Meanwhile: it has, and a program whose ranks ran different things runs no more."""
    ranks, seconds = jobs.run("calls", tmp_path, compare=compare).results()
    first, second = expected_losses()
    for results in ranks:
        assert results["step"] == ["ok", pytest.approx(first, rel=1e-5)]
        for name, message in DIFFERENT_CALLS.items():
            kind, text = results[name]
            assert (kind, text.removesuffix(NO_MORE)) == ("RanksDifferError", message), name
            assert compare == "meanwhile" or not text.endswith(NO_MORE), name
        # One step has been taken where one program serves for all, none by one that was loaded anew.
        loss = second if compare == "before" else first
        assert results["alike"][0] == "ok"
        assert results["local step"] == ["ok", pytest.approx(loss, rel=1e-5)]
        assert results["accumulated"][0] == results["last"][0] == "ok"
    for name in ("lr", "input", "evaluate"):
        if compare == "meanwhile":
            assert all(results[name][1].endswith(NO_MORE) for results in ranks)
            assert all("the program stopped earlier" in results[f"after {name}"][1] for results in ranks)
    refusal = (
        "input 'args.0': expected the global batch's 8 rows, got 5: pad it with rows whose targets the loss ignores (ignore_index, a weight of 0), or "
        "compile a program for that size"
    )
    assert ranks[1]["refused"] == ["UsageError", refusal]
    for rank in (0, 2, 3):
        kind, text = ranks[rank]["refused"]
        assert (kind, text.removesuffix(NO_MORE)) == ("RanksDifferError", f"rank 1 refused step: {refusal}")
    assert all(results["refused by all"] == ["UsageError", refusal] for results in ranks)
    assert max(taken[name] for taken in seconds for name in DIFFERENT_CALLS) < 5


def test_programs_that_differ_are_named_on_all_ranks(jobs, tmp_path):
    ranks, _ = jobs.run("programs", tmp_path).results()
    others = "the ranks come with different programs: "
    expected = {
        "seed": "compile: parameter 'first.weight' has other values on ranks 2 and 3 than on ranks 0 and 1, and 3 more like it: "
        + SEED,
        "buffer": f"compile: buffer 'scale' has other values on rank 3 than on ranks 0, 1 and 2: {SEED}",
        "sync on one": "compile: sync_parameters is True on rank 0, False on ranks 1, 2 and 3",
        "layers": others
        + "'extra.0.weight' is missing on ranks 0, 2 and 3, float32 of shape (2, 2) on rank 1: "
        + SAME_PROGRAM,
        "rule": others
        + "the rule of optimizer group 'group0' is sgd(nesterov=False, maximize=False) with momentum_buffer on ranks"
        " 0, 1 and 3, adamw(beta1=0.9, beta2=0.999, amsgrad=False, maximize=False) with exp_avg, exp_avg_sq on rank 2: "
        + SAME_PROGRAM,
        "loss": others
        + "the code of the model or its loss is another on rank 3 than on ranks 0, 1 and 2: "
        + SAME_PROGRAM,
        "saved state": "load: the saved state is another on rank 1 than on ranks 0, 2 and 3: all ranks load the same folder",
    }
    for results in ranks:
        for name, message in expected.items():
            assert results[name] == ["RanksDifferError", message]
        kind, text = results["zero"]
        assert kind == "RanksDifferError" and "of the strategy is" in text and "shard_optimizer" in text, text


def test_a_rank_that_does_not_come_says_why(jobs, tmp_path):
    ranks, _ = jobs.run("absent", tmp_path).results()
    assert ranks[0]["mesh"] == ["UsageError", ABSENT]
    assert ranks[1]["folder"][0] == "ProgramError"
    for rank in (1, 2, 3):
        assert ranks[rank]["mesh"] == ["RanksDifferError", f"rank 0 does not come: UsageError: {ABSENT}"]
    for rank in (0, 2, 3):
        kind, text = ranks[rank]["folder"]
        assert kind == "RanksDifferError" and text == f"rank 1 does not come: ProgramError: {ranks[1]['folder'][1]}"


def test_rank_0s_parameters_are_sent(jobs, tmp_path):
    """More bytes than go at once, of all dtypes; the models stay as they are, and so does torch's random state."""
    ranks, _ = jobs.run("sent", tmp_path).results()
    torch.manual_seed(0)
    expected = {name: value.tolist() for name, value in Model().state_dict().items()}
    for rank, results in enumerate(ranks):
        torch.manual_seed(rank)
        own = {name: value.tolist() for name, value in Model().state_dict().items()}
        assert results["program"] == ["ok", [expected, own, torch.rand(1).item()]]
        assert results["broadcast"] == ["ok", True]


def test_an_uncaught_difference_is_said_once_by_each_rank(jobs, tmp_path):
    outcome = jobs.run("uncaught", tmp_path)
    assert outcome.codes == [1] * WORLD, outcome.stderr
    message = f"piper.errors.RanksDifferError: rank 0 called state_dict, ranks 1, 2 and 3 called step: {ORDER}"
    for text in outcome.stderr:
        assert text.splitlines()[-1].removesuffix(NO_MORE) == message
        assert text.count("rank 0 called") == 1 and "piper: " not in text


def test_a_rank_that_leaves_is_lost(jobs, tmp_path):
    outcome = jobs.run("leaves", tmp_path)
    assert outcome.codes == [3, 0, 3, 3], outcome.stderr
    for rank in (0, 2, 3):
        assert outcome.stderr[rank].startswith("piper: rank 1 ended after 1 runs, before run 2"), outcome.stderr


def test_a_rank_that_does_not_call_is_lost_in_time(jobs, tmp_path):
    outcome = jobs.run("sleeps", tmp_path, timeout=2)
    assert outcome.codes == [3] * WORLD, outcome.stderr
    assert all(text.startswith("piper: rank 1 made no progress for 2.0 s") for text in outcome.stderr), outcome.stderr


def test_the_first_difference_is_the_one_that_says_most():
    """What only one rank has stands where it has it, and not after all that the others have."""
    rest = Fact("the rest", "1")
    ranks = [[Fact("a", "1"), rest], [Fact("a", "1"), Fact("b", "2"), Fact("the rest", "2")], [Fact("a", "1"), rest]]
    assert difference(ranks) == "b is missing on ranks 0 and 2, 2 on rank 1"
    assert difference([ranks[0], ranks[2]]) is None
    hashes = [[Fact("x", value, OTHER_VALUES, "do so"), Fact("y", value, OTHER_VALUES)] for value in "aba"]
    assert difference(hashes) == "x has other values on rank 1 than on ranks 0 and 2, and 1 more like it: do so"
    assert [decode(encode(facts)) for facts in hashes] == hashes


def test_only_ranks_with_the_same_rows_are_compared():
    def facts(value: str, rows: str) -> list[Fact]:
        return [Fact("x", value, OTHER_VALUES, among=rows)]

    assert difference([facts("a", "0 to 3"), facts("b", "4 to 7"), facts("a", "0 to 3"), facts("b", "4 to 7")]) is None
    found = difference([facts("a", "0 to 3"), facts("b", "4 to 7"), facts("a", "0 to 3"), facts("c", "4 to 7")])
    assert found == "x has other values on rank 3 than on rank 1"
