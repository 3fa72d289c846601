# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models for which a backward in two parts, or a stage with two copies, could go wrong, against plain PyTorch."""

from __future__ import annotations

import copy
import functools

import cases
import piper
import pytest
import reference
import torch
from torch.nn import functional as F

MICROBATCHES = 8
STEPS = 3
PP2, PP2DP2 = dict(pp=2), dict(pp=2, dp=2)
MESHES = pytest.mark.parametrize("axes", [PP2, PP2DP2], ids=["pp2", "pp2dp2"])
SGD = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
DIVIDED = [name for name in piper.schedules.names() if "W" in str(piper.schedules.build(name, 2, MICROBATCHES).rows())]

# Stages in one piece each, or two by two.
PARTS = ["0", "1", "2", "3"]
TIED_PARTS = [["embed", "layers.0"], ["layers.1"], ["layers.2"], ["layers.3", "head"]]


def compiled(model, loss_fn, batch, parts, schedule, axes, zero=0):
    """A program of a copy of `model`, whose `parts` are the stages, or pairs of neighbours where the schedule takes half as many."""
    stages = piper.schedules.build(schedule, axes["pp"], MICROBATCHES).stages
    size = len(parts) // stages
    model = copy.deepcopy(model)
    piper.annotate_modules(model, {"stage": [sum(parts[s * size : (s + 1) * size], []) for s in range(stages)]})
    strategy = piper.strategies.pipeline(piper.Mesh(**axes), schedule, MICROBATCHES, zero)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad])
    return piper.compile(model, loss_fn, batch, strategy=strategy, optimizer=optimizer)


def check(program, model, loss_fn, batches):
    """Gradients of the first batch, losses of all, and what has become of the parameters; returns the program's state."""
    (x, y), *_ = batches
    _, gradients = reference.gradients(model, loss_fn, x, y)
    reference.assert_gradients(program.gradients(x, y), gradients)
    truth = copy.deepcopy(model)
    optimizer = SGD([p for p in truth.parameters() if p.requires_grad])
    for x, y in batches:
        optimizer.zero_grad()
        loss = loss_fn(truth(x), y)
        loss.backward()
        optimizer.step()
        assert float(program.step(x, y)) == pytest.approx(loss.item(), rel=1e-5)
    state = program.state_dict()
    for name, value in truth.named_parameters():
        assert (state[name] - value).abs().max() <= 1e-5 * value.abs().max(), name
    return state


def token_loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


@pytest.mark.parametrize("zero", [0, 2, 3])
@pytest.mark.parametrize("schedule", ["zb_h1", "zbv", "dualpipe"])
def test_weight_tied_between_first_and_last_stage(schedule: str, zero: int):
    torch.manual_seed(11)
    model = cases.TiedModel()
    tokens = torch.randint(0, 13, (STEPS, 16, 6))
    batches = [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in tokens]
    program = compiled(model, token_loss, batches[0], TIED_PARTS, schedule, PP2DP2, zero)
    state = check(program, model, token_loss, batches)
    assert torch.equal(state["embed.weight"], state["head.weight"])
    if zero < 3:
        copies = list(program._execution.copies("embed.weight").values())
        # In a V both ends are on the same ranks.
        assert len(copies) == (2 if schedule == "zbv" else 4)
        assert all(torch.equal(value, copies[0]) for value in copies)
    program.close()


@pytest.mark.parametrize("schedule", DIVIDED)
def test_operation_with_two_results(schedule: str):
    torch.manual_seed(3)
    model = cases.TwoOutputModel()
    batches = [(torch.randn(16, 5), torch.randn(16, 2)) for _ in range(STEPS)]
    program = compiled(model, cases.mean_squared, batches[0], [["a"], ["b"], ["project"], ["c"]], schedule, PP2DP2)
    check(program, model, cases.mean_squared, batches)
    program.close()


@pytest.mark.parametrize(
    "axes, zero", [(PP2, 0), (PP2DP2, 0), (PP2DP2, 3)], ids=["pp2", "pp2dp2-zero0", "pp2dp2-zero3"]
)
@pytest.mark.parametrize("schedule", ["1f1b", *DIVIDED])
def test_weight_used_at_three_depths_and_twice_at_one(schedule: str, axes: dict, zero: int):
    """Its gradient has four parts, which several weight gradients make at different times: each is summed and reduced once."""
    torch.manual_seed(5)
    model = cases.SharedAtDepths(piper.schedules.build(schedule, axes["pp"], MICROBATCHES).stages)
    batches = [(torch.randn(16, 4), torch.randn(16, 4)) for _ in range(STEPS)]
    strategy = piper.strategies.pipeline(piper.Mesh(**axes), schedule, MICROBATCHES, zero)
    optimizer = SGD(model.parameters())
    program = piper.compile(model, cases.mean_squared, batches[0], strategy=strategy, optimizer=optimizer)
    check(program, model, cases.mean_squared, batches)
    if zero < 3:
        copies = list(program._execution.copies("shared.weight").values())
        assert len(copies) == 2 * axes.get("dp", 1) and all(torch.equal(value, copies[0]) for value in copies)
    program.close()


@pytest.mark.parametrize("schedule", DIVIDED)
def test_memory_does_not_grow_with_the_microbatches(schedule: str):
    """Weight gradients that wait hold on to what they need: of how many microbatches is bounded (pytorch/pytorch#153833, zero-bubble-pipeline-parallelism#8)."""
    torch.manual_seed(6)
    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()) for _ in range(4)))
    peaks = []
    for microbatches in (8, 16, 32):
        batch = torch.randn(2 * microbatches, 16), torch.randn(2 * microbatches, 16)
        stages = piper.schedules.build(schedule, 2, microbatches).stages
        piper.annotate_modules(model, {"stage": [PARTS[i : i + 4 // stages] for i in range(0, 4, 4 // stages)]})
        strategy = piper.strategies.pipeline(piper.Mesh(pp=2), schedule, microbatches)
        program = piper.compile(model, cases.mean_squared, batch, strategy=strategy)
        found = program.simulate(piper.DelayDevice({"*": 1.0}))
        program.close()
        peaks.append([max(sum(live.values()) for _, live in found.memory(rank)) for rank in (0, 1)])
    assert peaks[0] == peaks[1] == peaks[2] and min(peaks[0]) > 0


@pytest.mark.parametrize(
    "schedule, frozen",
    [(s, f) for s in ("zb_h1", "dualpipe") for f in ("ab", "cd")]
    + [(s, f) for s in ("zbv", "dualpipev") for f in ("ad", "bc")],
)
def test_stage_without_trainable_parameters(schedule: str, frozen: str):
    torch.manual_seed(4)
    model = cases.PartlyFrozen()
    for name in frozen:
        getattr(model, name).requires_grad_(False)
    batches = [(torch.randn(16, 4), torch.randn(16, 2)) for _ in range(STEPS)]
    program = compiled(model, cases.mean_squared, batches[0], [["a"], ["b"], ["c"], ["d"]], schedule, PP2)
    state = check(program, model, cases.mean_squared, batches)
    for name, value in model.named_parameters():
        assert torch.equal(state[name], value) != value.requires_grad, name
    program.close()


@MESHES
@pytest.mark.parametrize("schedule", ["zb_h1", "zbv", "dualpipev"])
@pytest.mark.filterwarnings("ignore::piper.CoupledRowsWarning")
def test_batch_norm(schedule: str, axes: dict):
    """Every microbatch moves the statistics once, in order, though its weight gradients come later."""
    torch.manual_seed(14)
    model = cases.NormalizedModel()
    x, y = torch.randn(48, 4) * 2 + 1, torch.randn(48, 2)
    total, gradients, buffers = 0.0, {}, None
    for rows in torch.arange(48).tensor_split(axes.get("dp", 1)):
        truth = copy.deepcopy(model)
        for part in rows.tensor_split(MICROBATCHES):
            loss = cases.mean_squared(truth(x[part]), y[part]) * len(part) / 48
            loss.backward()
            total += loss.item()
        gradients = {name: gradients.get(name, 0) + p.grad for name, p in truth.named_parameters()}
        # Those of the first replica count.
        buffers = buffers or dict(truth.named_buffers())
    parts = [["a"], ["norm_a"], ["b"], ["norm_b", "c"]]
    program = compiled(model, cases.mean_squared, (x, y), parts, schedule, axes)
    reference.assert_gradients(program.gradients(x, y), gradients)
    assert float(program.step(x, y)) == pytest.approx(total, rel=1e-5)
    state = program.state_dict()
    for name, value in buffers.items():
        assert torch.allclose(state[name].double(), value.double(), rtol=1e-5, atol=1e-7), name
    program.close()


@pytest.mark.filterwarnings("ignore::piper.CoupledRowsWarning")
def test_buffers_of_two_copies_are_refused():
    """Microbatches move a buffer in order, and DualPipe runs them from both ends at once."""
    model = cases.NormalizedModel()
    batch = torch.randn(48, 4), torch.randn(48, 2)
    parts = [["a", "norm_a"], ["b", "norm_b", "c"]]
    with pytest.raises(piper.PiperError, match="an order that agrees with the data, got a cycle"):
        compiled(model, cases.mean_squared, batch, parts, "dualpipe", PP2)
