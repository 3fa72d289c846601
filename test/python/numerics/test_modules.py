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


class Double(torch.nn.Module):
    """Tables, pools, attention and normalization, whose sums the kernel library has in float32 only."""

    def __init__(self):
        super().__init__()
        self.table, self.inner = torch.nn.Embedding(9, 8, padding_idx=2), torch.nn.Linear(8, 8)
        self.norm, self.head = torch.nn.LayerNorm(4), torch.nn.Linear(4, 3)

    def forward(self, ids):
        h = self.inner(self.table(ids))
        h = h + torch.nn.functional.scaled_dot_product_attention(h, h, h, is_causal=True)
        return self.head(self.norm(torch.nn.functional.max_pool2d(h.unsqueeze(1), 2))).flatten(1)


def test_float64_is_as_near_as_float64():
    torch.manual_seed(0)
    model = Double().double()
    ids, target = torch.randint(0, 9, (6, 6)), torch.randn(6, 9, dtype=torch.float64)
    program = piper.compile(
        model, mean_squared, (ids, target), strategy=piper.strategies.data_parallel(piper.Mesh(dp=2))
    )
    mean_squared(model(ids), target).backward()
    gradients = program.gradients(ids, target)
    for name, parameter in model.named_parameters():
        assert (gradients[name] - parameter.grad).abs().max() <= 1e-13 * parameter.grad.abs().max(), name
    program.close()
