# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors without elements: those that forward makes count for nothing, as in PyTorch; states have elements."""

import piper
import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Linear):
    def forward(self, x, before):
        return x + torch.cat([before, super().forward(x)], dim=-2)


class Cached(nn.Module):
    """The cache of a language model, which starts empty, as transformers' encoder-decoder models make it."""

    def __init__(self, **buffers):
        super().__init__()
        self.layers = nn.ModuleList(Layer(8, 8) for _ in range(2))
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x):
        before = self.before if hasattr(self, "before") else torch.tensor([], dtype=x.dtype, device=x.device)
        for layer in self.layers:
            x = layer(x, before)
        return x.mean(1)


def compiled(model, batch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return piper.compile(model, F.mse_loss, batch, optimizer=optimizer, progress=False)


@pytest.mark.parametrize("buffers", [{}, {"unread": torch.tensor([])}], ids=["made in forward", "and an unread buffer"])
def test_an_empty_table_is_no_state(buffers):
    model, batch = Cached(**buffers), (torch.randn(4, 3, 8), torch.randn(4, 8))
    gradients = compiled(model, batch).gradients(*batch)
    F.mse_loss(model(batch[0]), batch[1]).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-5, atol=1e-6)


def test_an_empty_buffer_that_is_read_is_refused():
    model = Cached(before=torch.tensor([]))
    with pytest.raises(
        piper.UsageError, match="buffers without elements are not supported: before: make them in forward"
    ):
        compiled(model, (torch.randn(4, 3, 8), torch.randn(4, 8)))


def test_a_parameter_without_elements_is_refused():
    model = Cached()
    model.layers[0].register_parameter("nothing", nn.Parameter(torch.empty(0)))
    with pytest.raises(piper.UsageError, match="parameters without elements .*: layers.0.nothing: leave them out"):
        compiled(model, (torch.randn(4, 3, 8), torch.randn(4, 8)))
