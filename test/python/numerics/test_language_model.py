# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients and updates of a small language model under every composition, against plain PyTorch."""

from __future__ import annotations

import functools

import language_model as lm
import pytest
import reference
import torch
from compositions import COMPOSITIONS, Composition


@functools.cache
def expected_gradients(rows: int, layers: int):
    ((x, y),) = lm.batches(1, rows)
    return reference.gradients(lm.build(layers), lm.loss_fn, x, y)


@pytest.mark.parametrize("composition", COMPOSITIONS, ids=str)
def test_gradients(composition: Composition):
    ((x, y),) = lm.batches(1, composition.rows)
    loss, expected = expected_gradients(composition.rows, composition.layers)
    program = composition.compile(x, y, torch.optim.SGD)
    try:
        before = program.state_dict()
        reference.assert_gradients(program.gradients(x, y), expected)
        after = program.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before), "gradients() changed the state"
        assert float(program.step(x, target=y)) == pytest.approx(loss, rel=1e-5)
    finally:
        program.close()


TRAINED = [
    c
    for c in COMPOSITIONS
    if str(c)
    in ("one", "dp2-zero0", "dp4-zero3", "pp4-1f1b-mb8", "pp2dp2-1f1b-zero1", "pp2dp2-1f1b-zero2", "pp2dp2-1f1b-zero3")
]


@pytest.mark.parametrize("composition", TRAINED, ids=str)
def test_sgd_momentum(composition: Composition):
    batches = lm.batches(5, composition.rows, seed=2)
    make = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    losses, expected = reference.train(lm.build(), lm.loss_fn, batches, make)
    program = composition.compile(*batches[0], make)
    try:
        for (x, y), loss in zip(batches, losses, strict=True):
            assert float(program.step(x, y)) == pytest.approx(loss, rel=1e-5)
        state = program.state_dict()
    finally:
        program.close()
    for name, value in expected.items():
        error = float((state[name] - value).abs().max() / value.abs().max())
        assert error <= 1e-5, f"{name} is off by {error:.2e} after 5 steps"


@pytest.mark.parametrize("composition", TRAINED, ids=str)
def test_adamw(composition: Composition):
    batches = lm.batches(5, composition.rows, seed=3)
    make = functools.partial(torch.optim.AdamW, lr=3e-4)
    _, eager = reference.train(lm.build(), lm.loss_fn, batches, make)
    _, exact = reference.train(lm.build(), lm.loss_fn, batches, make, torch.float64)
    program = composition.compile(*batches[0], make)
    try:
        for x, y in batches:
            program.step(x, y)
        state = program.state_dict()
    finally:
        program.close()
    # AdamW divides by the root of the second moment, which amplifies rounding: eager's own error is the yardstick.
    mine = max(float((state[name].double() - value).abs().max()) for name, value in exact.items())
    eagers = max(float((eager[name].double() - value).abs().max()) for name, value in exact.items())
    assert mine <= 3 * eagers, f"error {mine:.2e} against float64, float32 eager has {eagers:.2e}"


@pytest.mark.parametrize(
    "composition",
    [c for c in COMPOSITIONS if str(c) in ("pp2dp2-1f1b-zero0", "pp2dp2-1f1b-zero1", "dp4-zero3")],
    ids=str,
)
def test_two_runs_are_bit_identical(composition: Composition):
    batches = lm.batches(3, composition.rows, seed=4)

    def run():
        program = composition.compile(*batches[0], functools.partial(torch.optim.AdamW, lr=1e-3))
        try:
            losses = [float(program.step(x, y)) for x, y in batches]
            return losses, program.state_dict()
        finally:
            program.close()

    (losses, state), (again, state_again) = run(), run()
    assert losses == again
    assert all(torch.equal(state[name], state_again[name]) for name in state)
