# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every schedule at pp2, pp4 and pp2 x dp2 with every ZeRO level: gradients and updates of a language model against plain PyTorch."""

from __future__ import annotations

import functools

import language_model as lm
import piper
import pytest
import reference
import torch
from piper.compiler import compile_with
from piper.importer.shared import SharedImports

MICROBATCHES = 8
ROWS = 16
# Each replica has another number of rows (19 and 18), and so have its microbatches (3 and 2).
RAGGED_ROWS = 37
STEPS = 3
# Smaller than a layer (30 kB), so that a stage has several buckets.
BUCKET_MIB = 0.01
OPTIMIZER = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
SCHEDULES = pytest.mark.parametrize("schedule", piper.schedules.names())


@functools.cache
def model_of(stages: int) -> lm.LanguageModel:
    """One layer per stage, and four at least."""
    torch.manual_seed(0)
    model = lm.LanguageModel(max(stages, 4), dim=32, heads=2, kv_heads=1, ffn=48)
    return piper.annotate_modules(model, {"stage": lm.stages(model, stages)})


@functools.cache
def imports(stages: int, rows: int) -> SharedImports:
    return SharedImports()


@functools.cache
def expected(layers: int, rows: int):
    """Loss and gradients of the first batch, and parameters after one and all steps."""
    model, batches = model_of(layers), lm.batches(STEPS, rows)
    return (
        reference.gradients(model, lm.loss_fn, *batches[0]),
        [reference.train(model, lm.loss_fn, batches[:count], OPTIMIZER) for count in (1, STEPS)],
    )


def compiled(schedule: str, rows: int = ROWS, zero: int = 0, **axes):
    mesh = piper.Mesh(**axes)
    stages = piper.schedules.build(schedule, axes["pp"], MICROBATCHES).stages
    model = model_of(stages)
    strategy = piper.strategies.pipeline(mesh, schedule, MICROBATCHES, zero, BUCKET_MIB)
    optimizer = OPTIMIZER(model.parameters())
    batch = lm.batches(1, rows)[0]
    return compile_with(imports(stages, rows), model, lm.loss_fn, batch, strategy, optimizer), model


def check(program, model, rows: int = ROWS) -> None:
    (loss, gradients), trained = expected(len(model.blocks), rows)
    batches = lm.batches(STEPS, rows)
    before = program.state_dict()
    reference.assert_gradients(program.gradients(*batches[0]), gradients)
    after = program.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before), "gradients() changed the state"
    losses = []
    for step, batch in enumerate(batches, 1):
        losses.append(program.step(*batch).item())
        for expected_losses, parameters in trained:
            if step == len(expected_losses):
                assert losses == pytest.approx(expected_losses, rel=1e-5)
                assert_updates(program.state_dict(), parameters, before)
    assert losses[0] == pytest.approx(loss, rel=1e-5)


def assert_updates(state, wanted, start) -> None:
    """What each parameter has moved by, to 1e-5 of the largest such distance beside the rounding of the parameter itself."""
    for name, value in wanted.items():
        moved = (value - start[name]).abs().max().item()
        allowed = 1e-5 * moved + 3 * torch.finfo(torch.float32).eps * value.abs().max().item()
        off = (state[name] - value).abs().max().item()
        assert off <= allowed, f"{name} moved by {moved:.2e} and is off by {off:.2e}, allowed {allowed:.2e}"


@pytest.mark.parametrize("pp", [2, 4])
@SCHEDULES
def test_pipeline(schedule: str, pp: int):
    program, model = compiled(schedule, pp=pp)
    check(program, model)
    program.close()


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@SCHEDULES
def test_pipeline_with_replicas(schedule: str, zero: int):
    program, model = compiled(schedule, zero=zero, pp=2, dp=2)
    check(program, model)
    program.close()


@SCHEDULES
def test_ragged_rows(schedule: str):
    program, model = compiled(schedule, rows=RAGGED_ROWS, zero=1, pp=2, dp=2)
    check(program, model, RAGGED_ROWS)
    program.close()


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_copies_of_a_stage_stay_equal(zero: int):
    """DualPipe has each stage twice, on ranks that train different microbatches; replicas double that."""
    program, model = compiled("dualpipe", zero=zero, pp=2, dp=2)
    for batch in lm.batches(STEPS, ROWS):
        program.step(*batch)
    for name, start in model.named_parameters():
        copies = program._execution.copies(name)
        assert sorted(copies) == [0, 1, 2, 3], name
        assert all(torch.equal(copy, copies[0]) for copy in copies.values()), name
        assert not torch.equal(copies[0], start), f"{name} did not move"
    program.close()


def test_stages_cut_by_cost():
    """The head multiplies by twice as many weights as a layer of width 32, so its stage has fewer layers than the other."""
    torch.manual_seed(0)
    model = lm.LanguageModel(4, dim=32, heads=2, kv_heads=1, ffn=48)
    batch = lm.batches(1, ROWS)[0]
    piper.annotate_modules(model, stages=2)
    first, last = piper.annotations_of(model)["stage"]
    assert first == ["embed", "blocks.0", "blocks.1", "blocks.2"] and last == ["blocks.3", "norm", "head"]
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2), "1f1b", MICROBATCHES)
    program = piper.compile(model, lm.loss_fn, batch, strategy=strategy, optimizer=OPTIMIZER(model.parameters()))
    check(program, model)
    program.close()
