# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hand-written plans through Python: ranks as threads, as processes started by hand and by torchrun, and what happens when one of them ends."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import torch
from piper.errors import ProgramError, UsageError
from piper.execution import Execution
from plan_builder import ADD, Action, Plan, RankClass, address, collective, compile_kernels, when_clear

HERE = pathlib.Path(__file__).parent
WORLD = 4

KERNELS = """
extern "C" float expf(float);
extern "C" void piper_kernel_fail(const char *);
extern "C" void double_it(void *const *args) {
  for (int i = 0; i < 64; ++i)
    static_cast<float *>(args[1])[i] = 2 * static_cast<const float *>(args[0])[i];
}
extern "C" void exp_it(void *const *args) {
  for (int i = 0; i < 64; ++i)
    static_cast<float *>(args[1])[i] = expf(static_cast<const float *>(args[0])[i]);
}
extern "C" void pause(void *const *) {
  unsigned long long begin = __builtin_ia32_rdtsc();
  while (__builtin_ia32_rdtsc() - begin < 20000000)
    __builtin_ia32_pause();
}
extern "C" void fail(void *const *) { piper_kernel_fail("index 9 is out of range"); }
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory) -> bytes:
    return compile_kernels(KERNELS, tmp_path_factory.mktemp("kernels"))


def arena(offset: int) -> tuple:
    return address("arena", offset)


def sum_of_exponentials(flags: list[str] | None = None) -> Plan:
    """Four ranks: y = the sum over rows of exp(2 x), also written to the state "w"."""
    actions = [
        Action("launch", [address("input", 0, 0, 0, 256), arena(0)], [0], "double"),
        Action("launch", [arena(0), arena(256)], [1], "exp"),
        collective("all_reduce", 0, arena(256), arena(256), 64),
        Action("copy", [address("state", 0), arena(256)], [256], predicate=when_clear(0) if flags else 0),
    ]
    return Plan(
        WORLD,
        [RankClass([0, 1, 2, 3], {"step": [actions], "evaluate": [actions[:3]]}, ["compute"])],
        flags=flags or [],
        kernels=[("double_it", 0, [256, 256]), ("exp_it", 0, [256, 256])],
        communicators=[("all", [[0, 1, 2, 3]])],
        states=[("w", "parameter", "f32", [8, 8], [(0, "state", 0, 0, 64, -1, 0)])],
        inputs=[("x", "f32", 256, WORLD)],
        scalars=[("lr", "f32", 0)],
        outputs=[("y", "f32", 0, arena(256), [64])],
    )


def test_threads_give_the_formula(kernels):
    execution = Execution(sum_of_exponentials().encode(), {"kernels": kernels}, local=True)
    assert execution.ranks == [0, 1, 2, 3]
    x = torch.randn(WORLD, 64, generator=torch.Generator().manual_seed(1))
    expected = torch.exp(2 * x).sum(0)
    values = [execution.run("step", (), {"x": x})["y"] for _ in range(3)]
    torch.testing.assert_close(values[0], expected, rtol=1e-6, atol=0)
    assert torch.equal(values[0], values[1]) and torch.equal(values[0], values[2])
    assert torch.equal(execution.read_state("w").flatten(), values[0])
    execution.write_state("w", torch.eye(8))
    execution.run("evaluate", (), [x])
    assert torch.equal(execution.read_state("w"), torch.eye(8))
    copies = execution.copies("w")
    assert list(copies) == [0, 1, 2, 3] and all(torch.equal(copy, torch.eye(8)) for copy in copies.values())
    execution.close()


def test_traces_and_counters(kernels):
    execution = Execution(sum_of_exponentials(["dry"]).encode(), {"kernels": kernels}, local=True)
    x = torch.zeros(WORLD, 64)
    execution.start_trace()
    execution.run("step", {"dry"}, [x])
    execution.run("step", set(), [x])
    spans = execution.trace()
    assert [(span.rank, span.label) for span in spans[:4]] == [
        (0, "double"),
        (0, "exp"),
        (0, "all_reduce"),
        (1, "double"),
    ]
    assert len(spans) == 3 * WORLD
    assert all(span.start <= span.end for span in spans)
    first = execution.stats()[0]
    assert (first.actions, first.skipped, first.arena_bytes, first.planned_bytes) == (7, 1, 512, 4096)
    execution.close()


def test_scalars_flags_and_accumulation():
    """grad = grad * 0 if fresh + lr, by an accumulate whose mode is a flag."""
    actions = [Action("accumulate", [arena(0), address("scalar", 8)], [0, 1, 0])]
    actions.append(Action("accumulate", [arena(4), arena(0)], [0, 1, ADD]))
    plan = Plan(
        1,
        [RankClass([0], {"step": [actions]}, ["compute"])],
        flags=["fresh"],
        states=[("p:grad", "gradient", "f32", [], [(0, "arena", 0, 0, 1, -1, 0)])],
        scalars=[("lr", "f32", 8), ("step", "i64", 16)],
        outputs=[("sum", "f32", 0, arena(4), [])],
    )
    execution = Execution(plan.encode(), {}, local=True)
    assert execution.run("step", {"fresh"}, scalars={"lr": 0.5, "step": 3}) == {"sum": 0.5}
    assert execution.run("step", ()) == {"sum": 1.5}
    assert execution.read_gradient("p").item() == 1.0
    assert execution.run("step", {"fresh"}, scalars={"lr": 2.0}) == {"sum": 3.5}
    execution.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(entry="train"), "expected an entry out of evaluate, step, got 'train'"),
        (dict(flags={"dry", "wet"}), "expected flags out of dry, got 'wet'"),
        (dict(inputs={"y": None}), "expected inputs out of x, got y"),
        (dict(inputs=[]), "expected 1 inputs, got 0"),
        (dict(inputs=[torch.zeros(WORLD, 64, dtype=torch.float64)]), "input 'x': expected torch.float32"),
        (dict(inputs=[torch.zeros(64, WORLD).T]), "input 'x': expected a contiguous CPU tensor"),
        (dict(inputs=[torch.zeros(WORLD + 1, 64)]), "input 'x': expected 4 rows of 256 bytes"),
        (dict(scalars={"momentum": 1.0}), "expected scalars out of lr, got 'momentum'"),
    ],
)
def test_wrong_use_is_one_clear_error(kernels, arguments, message):
    execution = Execution(sum_of_exponentials(["dry"]).encode(), {"kernels": kernels}, local=True)
    right = dict(entry="step", flags=(), inputs=[torch.zeros(WORLD, 64)], scalars={})
    with pytest.raises(UsageError, match=re.escape(message)):
        execution.run(**{**right, **arguments})
    # Too few rows are found by what the ranks read.
    with pytest.raises(
        UsageError, match=r"input 'x': rank 2 reads bytes 512 to 768 of the global tensor, got bytes 0 to 512"
    ):
        execution.run("step", (), [torch.zeros(2, 64)])
    with pytest.raises(UsageError, match=r"state 'w': expected torch.float32 of shape \(8, 8\)"):
        execution.write_state("w", torch.zeros(64))
    with pytest.raises(UsageError, match="the program has no state 'v'"):
        execution.read_state("v")
    execution.run(**right)
    execution.close()
    for use in (
        lambda: execution.run(**right),
        lambda: execution.read_state("w"),
        lambda: execution.write_state("w", torch.zeros(8, 8)),
        execution.stats,
        execution.trace,
    ):
        with pytest.raises(UsageError, match="the program is closed"):
            use()


def test_damaged_programs_are_refused(kernels):
    plan = sum_of_exponentials().encode()
    with pytest.raises(ProgramError, match="checksum"):
        Execution(plan[:-1] + b"x", {"kernels": kernels}, local=True)
    with pytest.raises(ProgramError, match="expected plan version 2, got 3"):
        Execution(plan[:8] + b"\3" + plan[9:], {"kernels": kernels}, local=True)
    with pytest.raises(ProgramError, match="object 'kernels': expected a 64-bit little-endian ELF file"):
        Execution(plan, {"kernels": b"x" * 4096}, local=True)
    with pytest.raises(ProgramError, match="kernel 'double_it' is in none of the objects"):
        Execution(plan, {}, local=True)
    with pytest.raises(ProgramError, match="symbol 'double_it' is already defined by another object"):
        Execution(plan, {"kernels": kernels, "again": kernels}, local=True)


def test_objects_may_use_only_listed_functions(tmp_path):
    code = compile_kernels(
        'extern "C" int system(const char *); extern "C" void f(void *const *) { system("true"); }', tmp_path
    )
    with pytest.raises(ProgramError, match="object 'k': refers to 'system', which kernels may not use"):
        Execution(sum_of_exponentials().encode(), {"k": code}, local=True)


def test_world_size_must_be_the_plans(kernels, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="expected WORLD_SIZE = 4, the number of ranks of the program, got 2"):
        Execution(sum_of_exponentials().encode(), {"kernels": kernels})
    monkeypatch.setenv("PIPER_TIMEOUT_S", "soon")
    with pytest.raises(UsageError, match="expected seconds as PIPER_TIMEOUT_S, got 'soon'"):
        Execution(sum_of_exponentials().encode(), {"kernels": kernels})


def test_no_threads_stay(kernels):
    before = len(os.listdir("/proc/self/task"))
    execution = Execution(sum_of_exponentials().encode(), {"kernels": kernels}, local=True)
    assert len(os.listdir("/proc/self/task")) == before + WORLD
    execution.close()
    deadline = time.monotonic() + 5
    while len(os.listdir("/proc/self/task")) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/task")) == before


# Ranks as processes.


@pytest.fixture
def folder(kernels, tmp_path) -> pathlib.Path:
    (tmp_path / "kernels.o").write_bytes(kernels)
    return tmp_path


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Job:
    """Four workers with their exit codes and what they wrote to stderr, by rank."""

    def __init__(self, folder: pathlib.Path, *arguments: str, torchrun: bool = False, **environment: str):
        self.folder = folder
        self.memory_files = set(os.listdir("/dev/shm"))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        path = [str(HERE), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(part for part in path if part)
        worker = [sys.executable, str(HERE / "execution_worker.py"), str(folder), *arguments]
        self.processes = []
        if torchrun:
            # Each worker runs under a shell that notes its exit code, and that its SIGTERM does not end.
            script = 'trap : TERM; "$@" 2>"$0/stderr$RANK"; echo $? >"$0/code$RANK"; exit $(cat "$0/code$RANK")'
            launcher = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={WORLD}", "--standalone"]
            command = [*launcher, "--no-python", "bash", "-c", script, str(folder), *worker]
            log = open(folder / "torchrun", "w")
            self.processes = [subprocess.Popen(command, env=environment, stderr=log, stdout=log)]
        else:
            place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(WORLD)}
            for rank in range(WORLD):
                self.processes.append(
                    subprocess.Popen(
                        worker,
                        env={**environment, **place, "RANK": str(rank)},
                        stderr=open(folder / f"stderr{rank}", "w"),
                    )
                )
        self.torchrun = torchrun

    def pid(self, rank: int) -> int:
        path = self.folder / f"pid{rank}"
        deadline = time.monotonic() + 60
        while not (path.exists() and path.read_text()):
            assert time.monotonic() < deadline, self.describe()
            time.sleep(0.02)
        return int(path.read_text())

    def wait(self, timeout: float = 90) -> None:
        killer = threading.Timer(timeout, lambda: [process.kill() for process in self.processes])
        killer.start()
        for process in self.processes:
            process.wait()
        killer.cancel()
        assert set(os.listdir("/dev/shm")) <= self.memory_files

    def code(self, rank: int) -> int:
        if self.torchrun:
            return int((self.folder / f"code{rank}").read_text())
        return self.processes[rank].returncode

    def stderr(self, rank: int) -> str:
        path = self.folder / f"stderr{rank}"
        return path.read_text() if path.exists() else ""

    def describe(self) -> str:
        return "\n".join(f"rank {rank}: {self.stderr(rank)}" for rank in range(WORLD))

    def check_survivors(self, lost: int, message: str) -> None:
        """Every other rank ends with 3 and says in one line what was lost and where it was itself."""
        for rank in range(WORLD):
            if rank == lost:
                continue
            assert self.code(rank) == 3, self.describe()
            lines = [line for line in self.stderr(rank).splitlines() if line.startswith("piper:")]
            assert len(lines) == 1, self.describe()
            assert re.search(message, lines[0]), self.describe()
            place = rf"rank {rank} was (waiting for rank \d |waiting |in |between runs)"
            assert re.search(place, lines[0]), self.describe()
            assert "Traceback" not in self.stderr(rank), self.describe()


@pytest.mark.parametrize("torchrun", [False, True], ids=["by hand", "torchrun"])
def test_processes_give_the_formula(folder, torchrun):
    job = Job(folder, "none", torchrun=torchrun)
    job.wait()
    assert [job.code(rank) for rank in range(WORLD)] == [0] * WORLD, job.describe()
    x = torch.arange(WORLD * 64, dtype=torch.float32).reshape(WORLD, 64)
    for rank in range(WORLD):
        assert torch.equal(torch.load(folder / f"total{rank}.pt"), 2 * x.sum(0))


@pytest.mark.parametrize("torchrun", [False, True], ids=["by hand", "torchrun"])
def test_a_killed_rank_is_named(folder, torchrun):
    job = Job(folder, "none", torchrun=torchrun, STEPS="1000000")
    pids = [job.pid(rank) for rank in range(WORLD)]
    os.kill(pids[2], signal.SIGKILL)
    killed = time.monotonic()
    deadline = killed + 5
    alive = [pids[rank] for rank in (0, 1, 3)]
    while any(is_running(pid) for pid in alive):
        assert time.monotonic() < deadline, job.describe()
        time.sleep(0.01)
    job.wait()
    job.check_survivors(2, r"rank 2 \(process \d+\) died")
    # In the middle of a step, not between two.
    assert any("reduce rows" in job.stderr(rank) or "pause" in job.stderr(rank) for rank in (0, 1, 3)), job.describe()


def is_running(pid: int) -> bool:
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def test_an_exception_is_passed_on(folder):
    job = Job(folder, "raise", "2", "3")
    job.wait()
    job.check_survivors(2, "rank 2 raised ValueError: boom in the data iterator")
    assert job.code(2) == 1
    assert "ValueError: boom in the" in job.stderr(2)


def test_a_failing_kernel_is_passed_on(folder):
    job = Job(folder, "fail", "2", "1")
    job.wait()
    message = r"rank 2 failed in launch 'bad lookup' \(stream compute\): index 9 is out of range"
    job.check_survivors(2, message)
    assert job.code(2) == 1
    assert re.search(f"RunError: {message}.*runs no more", job.stderr(2))


def test_a_rank_that_leaves_early_is_an_error(folder):
    job = Job(folder, "exit", "1", "2")
    job.wait()
    assert job.code(1) == 0
    job.check_survivors(1, "rank 1 ended after 2 runs, before run 3")


def test_a_stopped_rank_is_named(folder):
    job = Job(folder, "none", STEPS="1000000", PIPER_TIMEOUT_S="1.5")
    pids = [job.pid(rank) for rank in range(WORLD)]
    os.kill(pids[1], signal.SIGSTOP)
    for rank in (0, 2, 3):
        job.processes[rank].wait(timeout=20)
    job.check_survivors(1, r"rank 1 made no progress for 1\.5 s")
    # Once it goes on, it finds that the others are gone.
    os.kill(pids[1], signal.SIGCONT)
    job.wait()
    assert job.code(1) == 3, job.describe()


def test_a_kill_between_runs_is_noticed(folder):
    """The survivors are not in Piper, but in Python code that does not return."""
    job = Job(folder, "sleep")
    pids = [job.pid(rank) for rank in range(WORLD)]
    os.kill(pids[3], signal.SIGKILL)
    for rank in (0, 1, 2):
        job.processes[rank].wait(timeout=5)
    job.wait()
    job.check_survivors(3, r"rank 3 \(process \d+\) died; rank \d was between runs \(1 done\)")


def test_sigterm_does_not_overtake_the_report(folder):
    """A launcher's SIGTERM that comes before the death was noticed: the survivors stand still meanwhile."""
    job = Job(folder, "none", STEPS="1000000")
    pids = [job.pid(rank) for rank in range(WORLD)]
    survivors = [pids[rank] for rank in (0, 1, 3)]
    for pid in survivors:
        os.kill(pid, signal.SIGSTOP)
    os.kill(pids[2], signal.SIGKILL)
    job.processes[2].wait(timeout=5)
    for pid in survivors:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
    job.wait()
    job.check_survivors(2, r"rank 2 \(process \d+\) died")


def test_sigterm_alone_ends_a_rank_as_usual(folder):
    job = Job(folder, "none", STEPS="1000000")
    pids = [job.pid(rank) for rank in range(WORLD)]
    os.kill(pids[0], signal.SIGTERM)
    job.wait()
    assert job.code(0) == -signal.SIGTERM
    job.check_survivors(0, r"rank 0 \(process \d+\) died")


def test_a_forked_child_leaves_the_job_alone(kernels):
    """What a data loader's worker does: it may end, and use the program only to find out that it is not its own."""
    execution = Execution(sum_of_exponentials().encode(), {"kernels": kernels}, local=True)
    x = torch.ones(WORLD, 64)
    execution.run("step", (), [x])
    child = os.fork()
    if child == 0:
        code = 0
        for use in (lambda: execution.run("step", (), [x]), lambda: execution.read_state("w"), execution.stats):
            try:
                use()
                code = 1
            except UsageError as error:
                code |= 0 if "belongs to the process that forked this one" in str(error) else 2
        execution.close()
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    execution.run("step", (), [x])
    execution.close()


@pytest.fixture
def interruptible():
    """What a shell starts in the background ignores interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_run_raises_keyboard_interrupt(kernels):
    actions = [Action("launch", [], [0], "pause")] * 10000
    plan = Plan(1, [RankClass([0], {"step": [actions]}, ["compute"])], kernels=[("pause", 0, [])])
    execution = Execution(plan.encode(), {"kernels": kernels}, local=True)
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        execution.run("step")
    assert time.monotonic() - begin < 10
    execution.close()


def test_threads_take_turns(kernels):
    """Each thread gets the outputs of its own run."""
    execution = Execution(sum_of_exponentials().encode(), {"kernels": kernels}, local=True)
    values = [0.0, 0.25, 0.5]
    expected = [
        {
            name: torch.as_tensor(output)
            for name, output in execution.run("step", (), [torch.full((WORLD, 64), value)]).items()
        }
        for value in values
    ]
    wrong = []

    def work(index):
        x = torch.full((WORLD, 64), values[index])
        for _ in range(200):
            outputs = execution.run("step", (), [x])
            if any(not torch.equal(torch.as_tensor(outputs[name]), value) for name, value in expected[index].items()):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(values))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len({str(value) for value in expected}) == len(values)
    execution.close()
