# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What people get wrong, from the command line on: one message that names what is at fault, exit code 2, nothing half-written.

The finer cases of each kind are with the part that refuses them: test_strategy.py, test_folder.py, test_program.py, importer/test_inputs.py, importer/test_lower.py,
test_execution.py and the *-invalid.mlir files.
"""

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time

import piper
import pytest
import torch
from piper import cli, folder, instructions
from torch import nn

HEADER = """
import torch
from torch import nn
import piper
"""
PIPELINE = (
    HEADER
    + """
def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    piper.annotate_modules(model, {"stage": [["0", "1"], ["2"]]})
    return model, nn.functional.mse_loss, [(torch.randn(6, 4), torch.randn(6, 2)) for _ in range(2)]
"""
)
# The way everybody writes a mixture of experts first.
EXPERTS = (
    HEADER
    + """
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 2)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
    def forward(self, x):
        choice = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            BODY
        return out
def build():
    return Experts(), nn.functional.mse_loss, [(torch.randn(6, 4), torch.randn(6, 4))]
"""
)
MISSING = (
    HEADER
    + """
class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
    def forward(self, x):
        y = torch.special.ndtri(self.a(x))
        return torch.special.i1(y)
def build():
    return Odd(), nn.functional.mse_loss, [(torch.randn(6, 4), torch.randn(6, 4))]
"""
)


@pytest.fixture
def piper_main(tmp_path, monkeypatch, capsys):
    """Calls the command line in a folder of its own; returns what it wrote to standard error, after it ended with 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIPER_REPRODUCER_DIR", str(tmp_path))

    def call(content: str, *arguments: str) -> str:
        name = f"bad_input_{len(sys.modules)}.py"
        (tmp_path / name).write_text(content)
        monkeypatch.setattr("sys.argv", ["piper", arguments[0], name, *arguments[1:]])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        assert ended.value.code == 2, captured
        assert captured.err.count("piper: error: ") == 1 and "Traceback" not in captured.err, captured.err
        return captured.err

    return call


def nothing_was_written(path) -> bool:
    return not [name for name in os.listdir(path) if name == "out" or name.startswith(".out")]


FORWARD_LAST = [
    {"op": "place", "filter": {"stage": 0}, "devices": [0]},
    {"op": "place", "filter": {"stage": 1}, "devices": [1]},
    {"op": "order", "filters": [[{"stage": 1, "PASS": "F"}], [{"stage": 0, "PASS": "F"}]]},
]


@pytest.mark.parametrize(
    "entries, parts",
    [
        (
            [{"op": "place", "filter": {"stgae": 0}, "devices": [0]}],
            ["place: unknown tag 'stgae'; known tags are PASS, "],
        ),
        ([{"op": "place", "filter": {"stage": 5}, "devices": [0]}], ["place: expected 'stage' to be 0 to 1, got 5"]),
        (
            [{"op": "place", "filter": {"stage": 0}, "devices": [7]}],
            ["s.json: entry 0: place: expected a device inside the mesh of 2 ranks (0 to 1), got 7"],
        ),
        (
            [*FORWARD_LAST[:2], {"op": "place", "filter": {"PASS": "B"}, "devices": [0]}],
            ["expected one device group for B {", "stage = 1}, got [1] and [0]"],
        ),
        (FORWARD_LAST[:1], ["expected a directive that places", "stage = 1"]),
        (
            FORWARD_LAST,
            [
                "expected an order that agrees with the data, got a cycle of 4 operations",
                "comes before piper.send by data",
                "stage = 0} by order",
            ],
        ),
        (
            [{"op": "place", "filter": {"stage": 0}, "devices": [0], "steam": "s"}],
            ["s.json: entry 0: unknown field 'steam' of place; known fields are op, filter, devices, stream"],
        ),
        ([{"op": "recompute", "filter": {}}], ["does not compile the directive 'recompute'"]),
    ],
    ids=["tag", "index", "device", "placed twice", "not placed", "cycle", "field", "no pass"],
)
def test_strategies(piper_main, tmp_path, entries, parts):
    (tmp_path / "s.json").write_text(json.dumps(entries))
    error = piper_main(PIPELINE, "compile", "--mesh", "pp=2", "--strategy", "s.json", "-o", "out")
    for part in parts:
        assert part in error, error
    assert nothing_was_written(tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        "rows = (choice == index).nonzero()[:, 0]; out = out.index_add(0, rows, expert(x[rows]))",
        "rows = torch.where(choice == index)[0]; out[rows] = expert(x[rows])",
        "out[choice == index] = expert(x[choice == index])",
        "out = out + (expert(x) if (choice == index).any() else 0)",
        "out = out + expert(x[: int((choice == index).sum())]).sum()",
    ],
)
def test_a_loop_over_experts_that_depends_on_data_names_its_line(piper_main, tmp_path, body):
    error = piper_main(EXPERTS.replace("BODY", body), "compile", "-o", "out")
    line = next(number for number, text in enumerate(EXPERTS.splitlines(), 1) if "BODY" in text)
    assert f".py:{line}: the result of 'aten." in error and "depends on data" in error, error
    assert "mixture of experts" in error and nothing_was_written(tmp_path)


def test_all_operations_that_cannot_be_imported_are_named(piper_main, tmp_path):
    error = piper_main(MISSING, "compile", "-o", "out")
    lines = MISSING.splitlines()
    for name in ("ndtri", "i1"):
        number = next(number for number, text in enumerate(lines, 1) if name in text)
        assert any(f".py:{number}: " in line and name in line for line in error.splitlines()), error
    assert nothing_was_written(tmp_path)


@pytest.mark.parametrize(
    "second, message",
    [
        ("(torch.randn(6, 3), torch.randn(6, 2))", "'args.0': expected shape"),
        ("(torch.randn(6, 4).double(), torch.randn(6, 2))", "'args.0': expected torch.float32, got torch.float64"),
        ("(torch.randn(4, 4), torch.randn(4, 2))", "expected the global batch's 6 rows, got 4"),
    ],
)
def test_a_batch_unlike_the_first(piper_main, tmp_path, second, message):
    content = PIPELINE.replace("for _ in range(2)]", f"for _ in range(2)][:1] + [{second}]")
    error = piper_main(content, "train", "--steps", "2", "--save", "out")
    assert message in error and nothing_was_written(tmp_path)


@pytest.mark.parametrize(
    "environment, message",
    [
        ({"RANK": "0", "WORLD_SIZE": "3"}, "expected WORLD_SIZE = 2, the number of ranks of the program, got 3"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "expected RANK below WORLD_SIZE = 2, got 2"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "expected a number as RANK, got 'x'"),
        ({"RANK": "0"}, "expected WORLD_SIZE in the environment"),
    ],
)
def test_a_job_of_another_size_is_told_before_the_model_is_compiled(piper_main, monkeypatch, environment, message):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("piper.compiler.import_model", lambda *_, **__: pytest.fail("compiled"))
    assert message in piper_main(PIPELINE, "train", "--mesh", "pp=2")


@pytest.mark.parametrize("command, option", [("train", "--save"), ("compile", "--output")])
def test_where_nothing_can_be_saved_is_told_before_the_work(piper_main, tmp_path, monkeypatch, command, option):
    monkeypatch.setattr("piper.compiler.import_model", lambda *_, **__: pytest.fail("compiled"))
    (tmp_path / "file").write_text("")
    (tmp_path / "photos").mkdir()
    assert "file/out: cannot be written: " in piper_main(PIPELINE, command, option, "file/out")
    assert "photos: exists and is not a program folder" in piper_main(PIPELINE, command, option, "photos")
    assert os.listdir(tmp_path / "photos") == []


# Files, disks and processors.


def make_program(width: int = 8) -> piper.Program:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batch = (torch.randn(6, 4), torch.randn(6, 2))
    return piper.compile(model, nn.functional.mse_loss, batch, optimizer=optimizer, progress=False)


@contextlib.contextmanager
def largest_file(size: int):
    """No file of this process can become larger, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [100, 3000, 40000], ids=["plan", "kernels", "state"])
def test_a_full_disk_leaves_the_old_program(tmp_path, size):
    """The limit ends the save at different files: the state's has 240 kB."""
    with contextlib.closing(make_program(10000)) as program:
        program.save(tmp_path / "p")
        before = {path: path.read_bytes() for path in (tmp_path / "p").rglob("*") if path.is_file()}
        program.load_state_dict({name: value + 1 for name, value in program.state_dict().items()})
        for name in ("p", "q"):
            with (
                largest_file(size),
                pytest.raises(piper.ProgramError, match=rf"{name}: cannot be written: .*[Ff]ile too large"),
            ):
                program.save(tmp_path / name)
        assert os.listdir(tmp_path) == ["p"]
        assert {path: path.read_bytes() for path in (tmp_path / "p").rglob("*") if path.is_file()} == before
        program.save(tmp_path / "q")


def test_a_full_disk_leaves_the_old_strategy(tmp_path):
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2), microbatches=4)
    strategy.save(tmp_path / "s.json")
    before = (tmp_path / "s.json").read_bytes()
    with largest_file(50), pytest.raises(piper.UsageError, match="s.json: cannot be written: File too large"):
        strategy.save(tmp_path / "s.json")
    assert (tmp_path / "s.json").read_bytes() == before and os.listdir(tmp_path) == ["s.json"]


def test_a_full_disk_keeps_no_reproducer_and_hides_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PIPER_REPRODUCER_DIR", str(tmp_path))
    model = piper.annotate_modules(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), {"stage": [["0"], ["1"]]})
    strategy = piper.Strategy(piper.Mesh(pp=2)).place({"stage": 0}, [0])
    batch = (torch.ones(2, 4), torch.ones(2, 4))
    with pytest.raises(piper.StrategyError):
        piper.compile(model, nn.functional.mse_loss, batch, strategy=strategy, progress=False)
    [kept] = os.listdir(tmp_path)
    os.unlink(tmp_path / kept)
    with largest_file(100), pytest.raises(piper.StrategyError, match="expected a directive that places") as caught:
        piper.compile(model, nn.functional.mse_loss, batch, strategy=strategy, progress=False)
    assert caught.value.command is None and "could not be kept" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_lesser_processor_is_told_what_it_lacks(tmp_path, monkeypatch):
    with contextlib.closing(make_program()) as program:
        program.save(tmp_path / "p")
    needed = json.loads((tmp_path / "p" / "manifest.json").read_text())["instructions"]
    # Every x86-64 processor that people have today has these, so compiled functions use them.
    assert {"avx", "fma"} <= set(needed) <= instructions.here()
    lesser = instructions.here() - {"avx", "fma"}
    monkeypatch.setattr(instructions, "here", lambda: lesser)
    with pytest.raises(
        piper.ProgramError, match="p: compiled for a processor with avx, fma, which this one lacks"
    ) as caught:
        piper.load(tmp_path / "p")
    assert caught.value.exit_code == 2


def test_newer_programs_are_told_from_damaged_ones(tmp_path):
    with contextlib.closing(make_program()) as program:
        program.save(tmp_path / "p")
    manifest = tmp_path / "p" / "manifest.json"
    content = json.loads(manifest.read_text())
    plan = (tmp_path / "p" / "plan.bin").read_bytes()

    def rewrite(**change):
        changed = {**content, **change}
        changed["sha256"] = folder._manifest_digest(changed)
        manifest.write_text(json.dumps(changed))

    rewrite(version=folder.VERSION + 1)
    with pytest.raises(piper.ProgramError, match="p: expected version 1, got 2"):
        piper.load(tmp_path / "p")
    # A plan of a newer compiler, in a folder that says of it what is true.
    (tmp_path / "p" / "plan.bin").write_bytes(plan[:8] + b"\3" + plan[9:])
    digest, size = folder._digest(tmp_path / "p" / "plan.bin")
    rewrite(files={**content["files"], "plan.bin": {"sha256": digest, "bytes": size}})
    with pytest.raises(piper.ProgramError, match="expected plan version 2, got 3"):
        piper.load(tmp_path / "p")


def test_states_of_another_program_are_refused(tmp_path):
    programs = {"small": make_program(8), "large": make_program(9)}
    for name, program in programs.items():
        program.save(tmp_path / name)
        program.close()
    state = "state.safetensors"
    (tmp_path / "small" / state).write_bytes((tmp_path / "large" / state).read_bytes())
    with pytest.raises(piper.ProgramError, match="state.safetensors: damaged: expected"):
        piper.load(tmp_path / "small")
    manifest = tmp_path / "small" / "manifest.json"
    content = json.loads(manifest.read_text())
    digest, size = folder._digest(tmp_path / "small" / state)
    content["files"][state] = {"sha256": digest, "bytes": size}
    content["sha256"] = folder._manifest_digest(content)
    manifest.write_text(json.dumps(content))
    with pytest.raises(piper.ProgramError, match=r"small: damaged: state '0.bias': expected .*\(8,\).*\(9,\)"):
        piper.load(tmp_path / "small")


# The cache.

TRAIN = """
import json, warnings
import torch, piper
from torch import nn
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 2))
    batch = (torch.randn(6, 4), torch.randn(6, 2))
    program = piper.compile(model, nn.functional.mse_loss, batch, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), progress=False)
    losses = [program.step(*batch).item() for _ in range(3)]
print(json.dumps([losses, [str(item.message) for item in caught if issubclass(item.category, RuntimeWarning)]]))
"""


def start(cache) -> subprocess.Popen:
    environment = {**os.environ, "PIPER_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", TRAIN]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def true_losses() -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 2))
    x, y = torch.randn(6, 4), torch.randn(6, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_trained(process: subprocess.Popen) -> list[str]:
    """The warnings of a process that trained rightly."""
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    losses, warned = json.loads(output)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(true_losses()), rtol=1e-5, atol=1e-6)
    return warned


def test_two_processes_that_begin_with_one_empty_cache(tmp_path):
    processes = [start(tmp_path / "cache") for _ in range(2)]
    assert [check_trained(process) for process in processes] == [[], []]
    assert not [name for _, _, names in os.walk(tmp_path) for name in names if name.startswith(".")]


def test_a_cache_that_cannot_be_written_to_is_said_once(tmp_path):
    (tmp_path / "file").write_text("")
    [warning] = check_trained(start(tmp_path / "file"))
    assert warning == f"compiled objects are not kept: {tmp_path / 'file'}: Not a directory"


# Jobs.

STEP = "import sys, torch, piper; print(piper.load(sys.argv[1]).step(torch.ones(6, 4), torch.zeros(6, 2)).item())"


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    torch.manual_seed(0)
    model, batch = nn.Linear(4, 2), (torch.randn(6, 4), torch.randn(6, 2))
    program = piper.compile(
        model,
        nn.functional.mse_loss,
        batch,
        strategy=piper.strategies.data_parallel(piper.Mesh(dp=2)),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        progress=False,
    )
    path = tmp_path_factory.mktemp("two") / "p"
    program.save(path)
    program.close()
    return path, nn.functional.mse_loss(model(torch.ones(6, 4)), torch.zeros(6, 2)).item()


def start_rank(path, rank: int, port: int) -> subprocess.Popen:
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-c", STEP, str(path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **place}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("twice", [0, 1])
def test_of_two_processes_with_one_rank_the_second_ends_and_the_first_goes_on(two_ranks, twice):
    path, loss = two_ranks
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    same = [start_rank(path, twice, port) for _ in range(2)]
    # Without rank 0 there is nowhere to meet, so nobody can know.
    other = start_rank(path, 0, port) if twice == 1 else None
    deadline = time.monotonic() + 120
    while not any(process.poll() for process in same):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # The other one may be done already, with 0.
    refused, first = sorted(same, key=lambda process: not process.poll())
    _, errors = refused.communicate()
    assert refused.returncode == 1
    assert (
        f"UsageError: expected one process per rank: RANK = {twice} is taken by process {first.pid} already" in errors
    )
    other = other or start_rank(path, 1, port)
    for process in (first, other):
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert float(output) == pytest.approx(loss, rel=1e-5)
