# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What models are made of, in pipelines with replicas, against plain PyTorch."""

import copy

import modules
import piper
import pytest
import reference
import torch


def mean_squared(output, target):
    return (output - target).pow(2).mean()


@pytest.mark.parametrize("family", modules.FAMILIES)
@pytest.mark.filterwarnings("error::piper.CoupledRowsWarning")
def test_gradients_equal_pytorch(family):
    torch.manual_seed(3)
    model, inputs = modules.branches(family)
    truth = copy.deepcopy(model)
    with torch.no_grad():
        target = torch.randn(truth(*inputs).shape)
    loss = mean_squared(truth(*inputs), target)
    loss.backward()
    gradients = {name: p.grad for name, p in truth.named_parameters() if p.grad is not None}
    names = [f"models.{name}" for name in model.models]
    piper.annotate_modules(model, {"stage": [names[: len(names) // 2], names[len(names) // 2 :]]})
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2, dp=2), microbatches=2)
    program = piper.compile(
        model, mean_squared, (*inputs, target), strategy=strategy, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)
    )
    reference.assert_gradients(program.gradients(*inputs, target), gradients)
    assert float(program.step(*inputs, target)) == pytest.approx(loss.item(), rel=1e-5)
    program.close()
