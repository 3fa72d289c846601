# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program as its user holds it: steps, accumulation, evaluation, gradients, state, saving, and what is refused."""

import contextlib
import copy
import json
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import warnings

import piper
import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4, bias=False)
        self.norm = nn.LayerNorm(16)
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, *, scale=1.0):
        with piper.annotate("stage"):
            self.calls += 1
            h = torch.tanh(self.a(x))
        with piper.annotate("stage"):
            return self.c(self.norm(torch.tanh(self.b(h)))) * scale


def make():
    torch.manual_seed(0)
    return Model()


def batch(seed, rows=10):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 8, generator=generator), torch.randint(4, (rows,), generator=generator)


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def compile_(model, optimizer=None, strategy=None, loss=F.cross_entropy, example=None):
    return piper.compile(model, loss, example or batch(0), strategy=strategy, optimizer=optimizer, progress=False)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


STRATEGIES = {
    "one rank": lambda: None,
    "pp2 x dp2": lambda: piper.strategies.pipeline(piper.Mesh(pp=2, dp=2), microbatches=2, zero=1),
}


@pytest.fixture(params=STRATEGIES)
def strategy(request):
    return STRATEGIES[request.param]()


def test_training_equals_pytorch_and_leaves_the_model_alone(strategy):
    model = make()
    before = copy.deepcopy(model.state_dict())
    optimizer = optimizer_of(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    program = compile_(model, optimizer, strategy)
    truth = make()
    true_optimizer = optimizer_of(truth)
    true_scheduler = torch.optim.lr_scheduler.LambdaLR(true_optimizer, lambda step: 1 / (1 + step))
    for seed in range(4):
        x, y = batch(seed)
        loss = program.step(x, target=y) if seed % 2 else program.step(x, y)
        scheduler.step()
        true_optimizer.zero_grad()
        true_loss = F.cross_entropy(truth(x), y)
        true_loss.backward()
        true_optimizer.step()
        true_scheduler.step()
        assert loss.dim() == 0 and loss.dtype == torch.float32
        close(loss, true_loss.detach())
    state = program.state_dict()
    assert list(state) == list(truth.state_dict())
    for name, value in truth.named_parameters():
        close(state[name], value.detach())
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value)
    program.close()


def test_gradients_change_nothing(strategy):
    model = make()
    program = compile_(model, optimizer_of(model), strategy)
    x, y = batch(1)
    before = program.state_dict()
    gradients = program.gradients(x, y)
    F.cross_entropy(model(x), y).backward()
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert set(gradients) == set(expected) and "unused" not in gradients
    for name, value in expected.items():
        close(gradients[name], value)
    after = program.state_dict()
    for name, value in before.items():
        assert torch.equal(after[name], value), name
    program.close()


def test_steps_without_update_accumulate(strategy):
    model = make()
    program = compile_(model, optimizer_of(model), strategy)
    truth = make()
    optimizer = optimizer_of(truth)
    for start in (0, 3):
        total = weight = 0
        for seed in range(start, start + 3):
            x, y = batch(seed)
            loss = program.step(x, y, update=seed == start + 2)
            part = F.cross_entropy(truth(x), y, reduction="sum")
            close(loss, (part / len(y)).detach())
            total, weight = total + part, weight + len(y)
        optimizer.zero_grad()
        (total / weight).backward()
        optimizer.step()
    state = program.state_dict()
    for name, value in truth.named_parameters():
        close(state[name], value.detach())
    program.step(*batch(0), update=False)
    with pytest.raises(piper.UsageError, match="would drop what"):
        program.gradients(*batch(0))
    program.close()


def test_evaluation_changes_nothing(strategy):
    model = make()
    program = compile_(model, optimizer_of(model), strategy)
    before = program.state_dict()
    x, y = batch(2)
    loss = program.evaluate(x, y)
    with torch.no_grad():
        close(loss, F.cross_entropy(make().eval()(x), y))
    for name, value in program.state_dict().items():
        assert torch.equal(before[name], value), name
    program.close()


def test_saved_programs_go_on_where_they_stopped(tmp_path, strategy):
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    program = compile_(model, optimizer, strategy)
    program.step(*batch(0))
    program.save(tmp_path / "p")
    again = piper.load(tmp_path / "p")
    for seed in (1, 2):
        optimizer.param_groups[0]["lr"] = again.param_groups[0]["lr"] = 0.01 / seed
        assert torch.equal(program.step(*batch(seed)), again.step(*batch(seed)))
    for name, value in program.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    assert again.optimizer_state_dict()["steps"] == {"group0": 3}
    assert again.ir("scheduled") == program.ir("scheduled")
    program.close()
    again.close()


def test_a_saved_program_needs_no_model(tmp_path):
    model = make()
    program = compile_(model, optimizer_of(model))
    program.save(tmp_path / "p")
    expected = program.step(*batch(3)).item()
    program.close()
    torch.save(batch(3), tmp_path / "batch.pt")
    code = (
        "import piper, torch, sys; p = piper.load(sys.argv[1]); print(p.step(*torch.load(sys.argv[2])).item());"
        " assert not [m for m in sys.modules if m in ('torch_mlir', 'piper.importer.capture', 'piper.compiler')]"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "p", tmp_path / "batch.pt"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == expected


def test_states_move_between_strategies():
    model = make()
    one = compile_(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    for seed in range(2):
        one.step(*batch(seed))
    other_model = make()
    four = compile_(other_model, torch.optim.AdamW(other_model.parameters(), lr=0.01), STRATEGIES["pp2 x dp2"]())
    four.load_state_dict(one.state_dict())
    four.load_optimizer_state_dict(one.optimizer_state_dict())
    close(one.step(*batch(5)), four.step(*batch(5)))
    for name, _ in model.named_parameters():
        close(four.state_dict()[name], one.state_dict()[name])
    one.close()
    four.close()


def test_state_dicts_that_do_not_fit_are_refused():
    model = make()
    program = compile_(model, optimizer_of(model))
    before = program.state_dict()
    wrong = {**before, "extra": torch.ones(1), "c.weight": torch.ones(2, 2)}
    del wrong["a.bias"]
    with pytest.raises(piper.UsageError) as error:
        program.load_state_dict(wrong)
    for part in ("'a.bias' is missing", "'extra' is unknown", "'c.weight' expected shape (4, 16), got (2, 2)"):
        assert part in str(error.value)
    with pytest.raises(piper.UsageError, match="expected the moments"):
        program.load_optimizer_state_dict({"steps": {"group0": 1}, "state": {}})
    for name, value in program.state_dict().items():
        assert torch.equal(before[name], value)
    program.close()


@pytest.fixture(scope="module")
def program():
    model = make()
    program = compile_(model, optimizer_of(model), STRATEGIES["pp2 x dp2"]())
    yield program
    program.close()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x, y: (x[:8], y[:8]), "expected the global batch's 10 rows, got 8"),
        (lambda x, y: (x, y[:8]), "differ in dim 0"),
        (lambda x, y: (x.double(), y), "'args.0': expected torch.float32, got torch.float64"),
        (lambda x, y: (x[:, :4], y), "'args.0': expected shape"),
        (lambda x, y: (x, x, y), "'argument 1' given, but not at compile time"),
        (lambda x, y: (y,), "expected 'x', got none"),
        (lambda x, y: ([x, x], y), "'args.0': expected one value, as at compile time, got several"),
        (lambda x, y: ([1, 2], y), "'args.0': expected a tensor, as at compile time, got a list of numbers: make it a"),
    ],
)
def test_batches_that_do_not_fit_are_refused(program, call, message):
    with pytest.raises(piper.UsageError, match=message.replace("(", r"\(")):
        program.step(*call(*batch(0)))


def test_views_that_negate_as_they_are_read(program):
    x, y = batch(5)
    wanted = program.gradients(-x, y)
    for name, gradient in program.gradients(torch._neg_view(x), y).items():
        assert torch.equal(gradient, wanted[name]), name
    imaginary = torch.complex(torch.zeros_like(x), x).conj().imag
    assert imaginary.is_neg()
    assert torch.equal(program.evaluate(imaginary, y), program.evaluate(-x, y))


def test_copies_are_made_by_saving(program):
    for copied in copy.copy, copy.deepcopy, pickle.dumps:
        with pytest.raises(piper.UsageError, match="program.save"):
            copied(program)


def test_threads_of_one_rank_take_turns(program, monkeypatch):
    """What a thread reads after its run is of that run."""
    read = program._execution.read_gradient

    def read_later(name):
        # Long enough for another thread to run in between.
        time.sleep(0.002)
        return read(name)

    monkeypatch.setattr(program._execution, "read_gradient", read_later)
    batches = [batch(seed) for seed in range(4)]
    wanted = [program.gradients(*each) for each in batches]
    wrong = []

    def work(index):
        for _ in range(5):
            got = program.gradients(*batches[index])
            wrong.extend(name for name, value in got.items() if not torch.equal(value, wanted[index][name]))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not torch.equal(wanted[0]["a.weight"], wanted[1]["a.weight"])


def _adamw(model, groups=1):
    parameters = [p for name, p in model.named_parameters() if name != "unused"]
    halves = [parameters[:3], parameters[3:]] if groups == 2 else [parameters]
    return torch.optim.AdamW([{"params": half} for half in halves] + [{"params": [model.unused]}], lr=0.01)


def test_moments_of_a_torch_run_go_on_in_the_form_that_the_messages_ask_for():
    """AdamW after two steps of PyTorch, its parameters in two groups and then in one."""
    truth = make()
    optimizer = _adamw(truth)
    for seed in range(2):
        optimizer.zero_grad()
        F.cross_entropy(truth(batch(seed)[0]), batch(seed)[1]).backward()
        optimizer.step()
    model = make()
    model.load_state_dict(truth.state_dict())
    with pytest.raises(piper.UsageError, match="taken no step yet: .*load_optimizer_state_dict"):
        compile_(truth, optimizer)
    program = compile_(model, _adamw(model, groups=2))
    with pytest.raises(piper.UsageError, match='torch.optim\'s own, which counts parameters.*expected {"steps"'):
        program.load_optimizer_state_dict(optimizer.state_dict())
    moments = {
        name: {slot: optimizer.state[p][slot] for slot in ("exp_avg", "exp_avg_sq")}
        for name, p in truth.named_parameters()
        if name != "unused"
    }
    with pytest.raises(piper.UsageError, match="'b.wieght' is no parameter that the optimizer has"):
        program.load_optimizer_state_dict(
            {"steps": {"group0": 2}, "state": {**moments, "b.wieght": moments["b.weight"]}}
        )
    with pytest.raises(piper.UsageError, match="expected steps of the groups"):
        program.load_optimizer_state_dict({"steps": {"one": 2, "two": 3}, "state": moments})
    program.load_optimizer_state_dict({"steps": {"group0": 2}, "state": moments})
    x, y = batch(5)
    optimizer.zero_grad()
    loss = F.cross_entropy(truth(x), y)
    loss.backward()
    optimizer.step()
    close(program.step(x, y), loss.detach())
    state = program.state_dict()
    for name, value in truth.named_parameters():
        close(state[name], value.detach())
    program.close()


def test_another_optimizer_steps_by_itself():
    """RMSprop, as the refusal says."""
    model, truth = make(), make()
    optimizer, true_optimizer = (torch.optim.RMSprop(m.parameters(), lr=0.01) for m in (model, truth))
    with pytest.raises(piper.UsageError, match=r"SGD, Adam, AdamW as optimizer, got RMSprop; .*program.gradients\(\)"):
        compile_(model, optimizer)
    program = compile_(model)
    for seed in range(2):
        x, y = batch(seed)
        for name, gradient in program.gradients(x, y).items():
            model.get_parameter(name).grad = gradient
        optimizer.step()
        program.load_state_dict(model.state_dict())
        true_optimizer.zero_grad()
        F.cross_entropy(truth(x), y).backward()
        true_optimizer.step()
    for name, value in truth.named_parameters():
        close(program.state_dict()[name], value.detach())
    program.close()


def test_the_last_batch_is_padded(program):
    """As the refusal of a smaller batch says."""
    x, y = batch(3, rows=7)
    with pytest.raises(piper.UsageError, match=r"10 rows, got 7: pad it with rows whose targets the loss ignores"):
        program.evaluate(x, y)
    with pytest.raises(piper.UsageError, match="10 rows, got 12: divide it, or compile a program for that size"):
        program.evaluate(*batch(3, rows=12))
    padded = torch.cat([x, torch.zeros(3, 8)]), torch.cat([y, torch.full((3,), -100)])
    close(program.evaluate(*padded), F.cross_entropy(make()(x), y).detach())


def test_without_a_target_batch_dims_tells_the_rows():
    strategy = piper.strategies.data_parallel(piper.Mesh(dp=2), microbatches=2)
    model, x = nn.Linear(8, 4), batch(0)[0]

    def loss(output, _):
        return output.square().mean()

    with pytest.raises(
        piper.UsageError, match=r'over 2 microbatches, and the target has none: .*batch_dims={"args.0": 0}'
    ):
        compile_(model, strategy=strategy, loss=loss, example=(x, None))
    program = piper.compile(model, loss, (x, None), strategy=strategy, batch_dims={"args.0": 0}, progress=False)
    close(program.evaluate(x, None), loss(model(x), None).detach())
    program.close()


def test_other_python_values_than_those_compiled_are_refused():
    model = make()
    example = {"args": (batch(0)[0],), "kwargs": {"scale": 2.0}, "target": batch(0)[1]}
    program = compile_(model, optimizer_of(model), example=example)
    x, y = batch(0)
    loss = program.step(x, target=y, scale=2.0)
    close(loss, F.cross_entropy(make()(x, scale=2.0), y).detach())
    program.step(example)
    with pytest.raises(piper.UsageError, match="compiled for 2.0, got 3.0"):
        program.step(x, target=y, scale=3.0)
    program.close()


def test_without_an_optimizer_there_are_gradients_only():
    model = make()
    program = compile_(model)
    x, y = batch(0)
    F.cross_entropy(model(x), y).backward()
    close(program.gradients(x, y)["a.weight"], model.a.weight.grad)
    with pytest.raises(piper.UsageError, match="compiled without an optimizer"):
        program.step(x, y)
    program.close()


def test_sums_are_not_divided():
    model = make()
    strategy = piper.strategies.data_parallel(piper.Mesh(dp=2), microbatches=3)
    program = compile_(
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        strategy,
        lambda o, t: F.cross_entropy(o, t, reduction="sum"),
    )
    x, y = batch(0)
    loss = F.cross_entropy(model(x), y, reduction="sum")
    loss.backward()
    gradients = program.gradients(x, y)
    close(gradients["b.weight"], model.b.weight.grad)
    close(program.step(x, y), loss.detach())
    with pytest.raises(piper.UsageError, match="return a pair"):
        program.step(x, y, update=False)
    program.close()


def test_a_batch_without_weight_is_no_step(strategy):
    model = make()
    program = compile_(model, torch.optim.AdamW(model.parameters(), lr=0.1), strategy)
    before = program.state_dict()
    x, y = batch(0)
    ignored = torch.full_like(y, -100)
    assert program.evaluate(x, ignored).isnan() and F.cross_entropy(model(x), ignored).isnan()
    with pytest.warns(UserWarning, match="a step was skipped: the weight of its batch is zero"):
        assert program.step(x, ignored).isnan()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert program.step(x, ignored).isnan()
    after = program.state_dict()
    for name, _ in model.named_parameters():
        assert torch.equal(after[name], before[name]), name
    assert program.optimizer_state_dict()["steps"] == {"group0": 0}
    assert all(value.abs().max() == 0 for value in program.gradients(x, ignored).values())
    # The next step is the first that counts.
    truth = make()
    optimizer = torch.optim.AdamW(truth.parameters(), lr=0.1)
    F.cross_entropy(truth(x), y).backward()
    optimizer.step()
    program.step(x, y)
    for name, value in truth.named_parameters():
        close(program.state_dict()[name], value.detach())
    program.close()


def test_two_programs_are_equal_bit_by_bit(strategy, tmp_path):
    results = []
    for index in range(2):
        model = make()
        program = compile_(model, optimizer_of(model), STRATEGIES["pp2 x dp2"]())
        losses = [program.step(*batch(seed)).item() for seed in range(3)]
        program.save(tmp_path / str(index))
        results.append((losses, program.state_dict()))
        program.close()
    assert results[0][0] == results[1][0]
    for name, value in results[0][1].items():
        assert torch.equal(results[1][1][name], value)
    manifests = [json.loads((tmp_path / str(index) / "manifest.json").read_text()) for index in range(2)]
    assert manifests[0] == manifests[1]


def test_unknown_phases_and_tags_are_refused(program):
    assert "piper.graph @step" in program.ir("imported")
    with pytest.raises(piper.UsageError, match="expected a phase out of imported, scheduled, planned, got 'lowered'"):
        program.ir("lowered")
    strategy = piper.Strategy(piper.Mesh(pp=2)).place({"stge": 0}, [0])
    with pytest.raises(piper.UsageError, match="unknown tag 'stge'; known tags are PASS, stage"):
        compile_(make(), strategy=strategy)


def test_a_program_shows_itself_in_one_line(program, tmp_path):
    wanted = "Mesh(pp=2, dp=2): 4 ranks, 10 rows, {} chunks; split into 2, place x 2, replicate x 2 (ZeRO-1), order x 2"
    chunks = program.ir("imported").count("piper.chunk @")
    assert chunks >= 4 and repr(program) == f"<piper.Program on {wanted.format(chunks)}>"
    program.save(tmp_path / "p")
    loaded = piper.load(tmp_path / "p")
    assert repr(loaded) == repr(program)
    loaded.close()
    assert repr(loaded) == repr(program)[:-1] + ", closed>"
    one = compile_(make())
    assert repr(one).endswith(" chunks; no directives>") and "on Mesh(dp=1): 1 rank, 10 rows, " in repr(one)


def test_names_in_any_script(tmp_path):
    class Größe(nn.Module):
        def __init__(self):
            super().__init__()
            self.länge = nn.Linear(8, 4)
            self.add_module('a"b\\\n', nn.Linear(4, 4))

        def forward(self, x):
            with piper.annotate("stufe_ä"):
                h = self.länge(x)
            with piper.annotate("stufe_ä"):
                return self.get_submodule('a"b\\\n')(h)

    torch.manual_seed(0)
    model = Größe()
    strategy = piper.Strategy(piper.Mesh(stränge=2)).split({}, "微批", 2)
    for index in range(2):
        strategy.place({"stufe_ä": index}, {"stränge": index}, stream="流")
    expected = gradients_of(copy.deepcopy(model), batch(0))
    program = compile_(model, optimizer_of(model), strategy)
    gradients = program.gradients(*batch(0))
    assert set(gradients) == set(expected) == {name for name, _ in model.named_parameters()}
    for name, gradient in expected.items():
        close(gradients[name], gradient)
    program.save(tmp_path / "p")
    loaded = piper.load(tmp_path / "p")
    assert torch.equal(loaded.step(*batch(1)), program.step(*batch(1)))
    program.close()
    loaded.close()


def test_a_strategy_that_leaves_nodes_unplaced_names_its_command():
    strategy = piper.Strategy(piper.Mesh(pp=2)).place({"stage": 0}, [0])
    with pytest.raises(piper.CompileError) as error:
        compile_(make(), strategy=strategy)
    command = error.value.command
    assert command and command.split()[0] == "piper-opt" and os.path.isfile(command.split()[-1])
    assert "stage = 1" in str(error.value)


def test_a_measured_step_shows_every_rank(program):
    loss, spans = program.trace(*batch(0))
    assert loss.dim() == 0
    assert {span.rank for span in spans} == {0, 1, 2, 3}
    assert all(span.end >= span.start for span in spans)
    assert {span.label.split()[0] for span in spans if span.opcode == "launch"} >= {"F", "B"}


def test_verify_finds_equality_and_says_why_not():
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    report = piper.verify(
        model, F.cross_entropy, [batch(0), batch(1)], strategy=STRATEGIES["pp2 x dp2"](), optimizer=optimizer
    )
    assert report.ok, str(report)
    assert {row.name for row in report.rows} == {n for n, _ in model.named_parameters() if n != "unused"}
    refused = piper.verify(model, F.cross_entropy, [batch(0)], optimizer=torch.optim.RMSprop(model.parameters()))
    assert not refused.ok and "RMSprop" in refused.error and "RMSprop" in str(refused)


def test_a_bad_index_ends_the_program_and_says_so():
    program = compile_(make())
    x, y = batch(0)
    holds = rf"an index is out of range.*'target' from {int(y.min()) + 100} to {int(y.max()) + 100}\)"
    with pytest.raises(
        piper.RunError, match=f"index must be smaller than dim size .{holds}; the program runs no more: load or"
    ):
        program.evaluate(x, y + 100)
    with pytest.raises(
        piper.RunError, match=f"the program stopped earlier, when rank 0 failed.*{holds}: load or compile it again"
    ):
        program.evaluate(x, y)
    assert set(program.state_dict()) == set(make().state_dict())


class Lookup(nn.Module):
    """Reads rows of a table by indices that torch-mlir does not check."""

    def __init__(self, how):
        super().__init__()
        self.table = nn.Parameter(torch.arange(40.0).reshape(5, 8))
        self.how = how

    def forward(self, index):
        if self.how == "index_select":
            return self.table.index_select(0, index.flatten()).sum(1).view(index.shape)
        if self.how == "one dim":
            return self.table[0][index]
        return self.table[index, index]


@pytest.mark.parametrize(
    "how, bad", [("index_select", 5), ("index_select", -1), ("one dim", 8), ("one dim", -9), ("two", 5)]
)
def test_indices_that_pytorch_refuses_are_refused(how, bad):
    index, target = torch.randint(5, (4, 3)), torch.randn(4, 3)
    model = Lookup(how)
    program = compile_(model, loss=F.mse_loss, example=(index, target))
    close(program.evaluate(index, target), F.mse_loss(model(index), target).detach())
    index[1, 1] = bad
    with pytest.raises((IndexError, RuntimeError)):
        model(index)
    with pytest.raises(piper.RunError, match="index must be"):
        program.evaluate(index, target)
    program.close()


def test_a_target_that_the_loss_leaves_out():
    model = nn.Linear(3, 2)
    x, y = torch.randn(4, 3), torch.randn(4, 2)
    program = compile_(model, loss=lambda output, _: (output**2).mean(), example=(x, y))
    close(program.evaluate(x, y), (model(x) ** 2).mean().detach())


@pytest.mark.parametrize("size", [1e-5, 1e9])
def test_bucket_sizes_of_any_magnitude(size):
    strategy = piper.strategies.data_parallel(piper.Mesh(dp=2), zero=1, bucket_size=size)
    model = make()
    program = compile_(model, optimizer_of(model), strategy)
    for name, gradient in gradients_of(make(), batch(0)).items():
        close(program.gradients(*batch(0))[name], gradient)


@pytest.mark.parametrize("size", [0, -1.0, float("inf"), float("nan"), 10**400, True, "25"])
def test_bucket_sizes_that_are_none(size):
    with pytest.raises(piper.UsageError, match="expected a bucket_size in MiB"):
        piper.strategies.data_parallel(piper.Mesh(dp=2), bucket_size=size)


def gradients_of(model, example):
    x, y = example
    F.cross_entropy(model(x), y).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def unfit(value):
    def change(state):
        state["a.weight"] = value

    return change


@pytest.mark.parametrize(
    "change, message",
    [
        (unfit(torch.zeros(16, 8, device="meta")), "'a.weight' expected a dense tensor"),
        (unfit(torch.zeros(16, 8).to_sparse()), "'a.weight' expected a dense tensor"),
        (unfit(torch.zeros(16, 8, dtype=torch.complex64)), "'a.weight' expected torch.float32, got torch.complex64"),
        (unfit(None), "'a.weight' expected a tensor, got NoneType"),
        (unfit(torch.zeros(8, 16)), r"'a.weight' expected shape \(16, 8\), got \(8, 16\)"),
        (lambda state: state.pop("a.weight"), "'a.weight' is missing"),
        (lambda state: state.update(more=torch.zeros(1)), "'more' is unknown"),
    ],
)
def test_state_that_does_not_fit_changes_nothing(program, change, message):
    before = program.state_dict()
    state = {name: value + 1 for name, value in before.items()}
    change(state)
    with pytest.raises(piper.UsageError, match=message):
        program.load_state_dict(state)
    assert all(torch.equal(value, before[name]) for name, value in program.state_dict().items())


@pytest.mark.parametrize("steps", ["3", -1, True, 1.5])
def test_optimizer_state_that_does_not_fit_changes_nothing(program, steps):
    before = program.optimizer_state_dict()
    state = copy.deepcopy(before)
    for slots in state["state"].values():
        for slot in slots:
            slots[slot] = slots[slot] + 1
    state["steps"] = {name: steps for name in state["steps"]}
    with pytest.raises(piper.UsageError, match="expected a number of steps"):
        program.load_optimizer_state_dict(state)
    after = program.optimizer_state_dict()
    assert after["steps"] == before["steps"]
    for name, slots in before["state"].items():
        assert all(torch.equal(value, after["state"][name][slot]) for slot, value in slots.items())


def test_options_that_are_no_numbers_are_refused():
    model = make()
    optimizer = optimizer_of(model)
    program = compile_(model, optimizer)
    for value in (float("nan"), float("inf"), "fast", None):
        optimizer.param_groups[0]["lr"] = value
        with pytest.raises(piper.UsageError):
            program.step(*batch(0))
    optimizer.param_groups[0]["lr"] = 0.1
    assert torch.isfinite(program.step(*batch(0)))


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)

    def forward(self, x, z=None, *, scale=1.0):
        return self.a(x) * scale + (0 if z is None else z)


def test_arguments_are_given_by_position_or_by_name(tmp_path):
    torch.manual_seed(1)
    model, x, z, y = Shifted(), torch.randn(6, 4), torch.randn(6, 3), torch.randint(3, (6,))
    wanted = F.cross_entropy(model(x, z), y)
    for example in ((x, z, y), dict(args=(x,), kwargs={"z": z}, target=y), dict(kwargs={"z": z, "x": x}, target=y)):
        program = piper.compile(model, F.cross_entropy, example, progress=False)
        program.save(tmp_path / "program")
        for one in (program, piper.load(tmp_path / "program")):
            calls = (one.evaluate(x, z, y), one.evaluate(x, y, z=z), one.evaluate(target=y, x=x, z=z))
            for loss in (*calls, one.evaluate(dict(args=(x, z), target=y))):
                close(loss, wanted.detach())
            for call, message in (
                (lambda one=one: one.evaluate(x, y), "expected 'z', got none: the program is compiled for forward("),
                (lambda one=one: one.evaluate(x, z, y, scale=2.0), "'scale' given, but not at compile time"),
                (lambda one=one: one.evaluate(x, z, z, y), "argument 2"),
                (lambda one=one: one.evaluate((x,)), "expected a batch (args..., target) or dict("),
                (lambda one=one: one.evaluate(x.double(), z, y), "expected torch.float32, got torch.float64"),
            ):
                with pytest.raises(piper.UsageError, match=re.escape(message)) as error:
                    call()
                assert type(error.value) is piper.UsageError
            one.close()


@pytest.mark.parametrize(
    "inputs, target",
    [((torch.randn(4, 4), torch.randn(4, 4)), torch.randn(4)), ((torch.randn(3, 5),), torch.randn(15))],
    ids=["square", "flattened"],
)
def test_what_is_divided_is_no_question_where_nothing_is(inputs, target):
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(inputs[0].shape[1], target.numel() // 3 if len(inputs) == 1 else 1)

        def forward(self, *tensors):
            return sum(self.a(t) for t in tensors).flatten()

    torch.manual_seed(2)
    model = Flat()
    program = piper.compile(model, F.mse_loss, (*inputs, target), progress=False)
    F.mse_loss(model(*inputs), target).backward()
    close(program.gradients(*inputs, target)["a.weight"], model.a.weight.grad)
    assert piper.verify(model, F.mse_loss, [(*inputs, target)]).ok
    two = piper.strategies.data_parallel(piper.Mesh(dp=2))
    for options in (dict(strategy=two), dict(loss_reduction="mean_rows")):
        with pytest.raises(piper.UsageError, match="batch_dims={"):
            piper.compile(model, F.mse_loss, (*inputs, target), progress=False, **options)


class Weighed(nn.Module):
    """A loss with a buffer and a parameter that trains."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.3))
        self.register_buffer("weight", torch.tensor([1.0, 2.0, 0.5, 1.0]))

    def forward(self, output, target):
        return F.cross_entropy(output * self.scale.exp(), target, weight=self.weight)


def test_state_of_the_loss_is_apart_from_the_models(tmp_path):
    model, loss_fn = make(), Weighed()
    truth, true_loss = copy.deepcopy(model), copy.deepcopy(loss_fn)
    parameters = [*model.parameters(), *loss_fn.parameters()]
    program = piper.compile(
        model,
        loss_fn,
        batch(0),
        optimizer=torch.optim.SGD(parameters, lr=0.1),
        strategy=STRATEGIES["pp2 x dp2"](),
        progress=False,
    )
    optimizer = torch.optim.SGD([*truth.parameters(), *true_loss.parameters()], lr=0.1)
    for seed in (0, 1):
        x, y = batch(seed)
        optimizer.zero_grad()
        true_loss(truth(x), y).backward()
        optimizer.step()
        program.step(x, y)
    model.load_state_dict(program.state_dict())
    loss_fn.load_state_dict(program.loss_state_dict())
    close(model.c.weight, truth.c.weight)
    close(loss_fn.scale, true_loss.scale)
    program.save(tmp_path / "program")
    program.close()
    with contextlib.closing(piper.load(tmp_path / "program")) as loaded:
        close(loaded.loss_state_dict()["scale"], true_loss.scale)
        assert set(loaded.loss_state_dict()) == {"scale", "weight"} and not set(loaded.state_dict()) & {
            "scale",
            "loss_fn.scale",
        }
    assert piper.verify(make(), Weighed(), [batch(0), batch(1)]).ok


class Normalized(nn.Module):
    def __init__(self, functional=False):
        super().__init__()
        self.a, self.c, self.functional = nn.Linear(8, 6), nn.Linear(6, 4), functional
        self.norm = nn.Identity() if functional else nn.BatchNorm1d(6)

    def forward(self, x):
        h = self.a(x)
        return self.c(F.batch_norm(h, None, None, training=True) if self.functional else self.norm(h))


@pytest.mark.parametrize("functional, named", [(False, "'norm'"), (True, "test_program.py:")])
def test_coupled_rows_are_warned_of_where_the_batch_is_divided(functional, named):
    model, strategy = Normalized(functional), piper.strategies.data_parallel(piper.Mesh(dp=2), microbatches=2)
    with pytest.warns(piper.CoupledRowsWarning, match="2 replicas x 2 microbatches") as caught:
        compile_(model, strategy=strategy, example=batch(0, 12)).close()
    assert len(caught) == 1 and named in str(caught[0].message) and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", piper.CoupledRowsWarning)
        compile_(model, example=batch(0, 12)).close()
        instance = nn.Sequential(nn.Linear(8, 8), nn.Unflatten(1, (2, 4)), nn.InstanceNorm1d(2), nn.Flatten())
        compile_(instance, strategy=strategy, example=batch(0, 12)).close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", piper.CoupledRowsWarning)
        reports = [
            piper.verify(model, F.cross_entropy, [batch(0, 12)], strategy=strategy, coupled=coupled)
            for coupled in ("parts", None, "rows")
        ]
    assert reports[0].ok and "equal to PyTorch looped over 2 replicas x 2 microbatches" in str(reports[0])
    assert not reports[1].ok and "say coupled='parts'" in str(reports[1])
    assert reports[0].coupling == reports[1].coupling == pytest.approx(_coupling(model, batch(0, 12)), rel=1e-6)
    assert reports[2].exit_code == 2 and "expected coupled to be 'parts' or None, got 'rows'" in reports[2].error


def _coupling(model, whole):
    """How far gradients of the whole batch are from those of the loop over four parts, in plain PyTorch."""
    gradients = []
    for parts in ([whole], list(zip(*(tensor.tensor_split(4) for tensor in whole), strict=True))):
        copied = copy.deepcopy(model).double()
        sum(F.cross_entropy(copied(x.double()), y) / len(parts) for x, y in parts).backward()
        gradients.append({name: parameter.grad for name, parameter in copied.named_parameters()})
    one, loop = gradients
    largest = max(g.abs().max() for g in loop.values())
    sizes = {name: g.abs().max() for name, g in loop.items()}
    sizes = {name: size if size > 1e-9 * largest else largest for name, size in sizes.items()}
    return max(((one[name] - loop[name]).abs().max() / sizes[name]).item() for name in loop)
