# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A stage that the forward comes back to is named with module and line where orders can't be kept."""

import piper
import pytest
import torch
import torch.nn.functional as F
from torch import nn

X, Y = torch.randn(8, 4), torch.randn(8, 4)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        hidden = self.b(torch.tanh(self.a(x)))
        return self.a(hidden)


def compiled(stages, microbatches):
    model = piper.annotate_modules(Shared(), {"stage": stages})
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2), schedule="1f1b", microbatches=microbatches)
    return model, piper.compile(model, F.mse_loss, (X, Y), strategy=strategy, progress=False)


def test_the_module_and_line_are_named_and_the_advice_works():
    with pytest.raises(piper.StrategyError) as error:
        compiled([["a"], ["b"]], 2)
    first, reason, advice, *_ = str(error.value).splitlines()
    assert first == "the forward comes back to a stage that it has left:"
    line = Shared.forward.__code__.co_firstlineno + 2
    assert reason.startswith("  module 'a' at ")
    assert reason.endswith(f"test_revisits.py:{line} runs in stage 0 again, after stage 1")
    assert "one microbatch" in advice and "piper-opt" in str(error.value)
    model, program = compiled([["a"], ["b"]], 1)
    F.mse_loss(model(X), Y).backward()
    for name, gradient in program.gradients(X, Y).items():
        torch.testing.assert_close(gradient, dict(model.named_parameters())[name].grad, rtol=1e-5, atol=1e-6)
    program.close()
