# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""uint8 through all phases: inputs, buffers that forward writes, what crosses stages, shards, evaluation, saved programs."""

import copy

import piper
import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.embed = nn.Linear(6, 8), nn.Linear(8, 4), nn.Embedding(256, 8)
        self.register_buffer("offset", torch.arange(250, 256, dtype=torch.uint8))
        self.register_buffer("count", torch.tensor([250, 1], dtype=torch.uint8))

    def forward(self, x, mask):
        with piper.annotate("stage"):
            self.count += 3
            wrapped = x + self.offset
            h = torch.tanh(self.a(x.float() / 255) + self.a(wrapped / 100)) + self.embed(x[:, 0].long())
        with piper.annotate("stage"):
            bright = (wrapped > 200).float().sum(1, keepdim=True) + x.sum(1, keepdim=True) / 1000
            return self.b(h * torch.where(mask > 127, 1.0, 0.5)) * bright


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (8, 6), dtype=torch.uint8, generator=generator)
    return x, torch.randint(0, 256, (8, 1), dtype=torch.uint8, generator=generator), torch.randint(0, 4, (8,))


@pytest.mark.filterwarnings("ignore::piper.CoupledRowsWarning")
@pytest.mark.parametrize(
    "strategy",
    [lambda: None, lambda: piper.strategies.pipeline(piper.Mesh(pp=2, dp=2), microbatches=1, zero=3)],
    ids=["one rank", "pp2 x dp2 ZeRO-3"],
)
def test_a_program_of_pixels_is_pytorchs(strategy, tmp_path):
    torch.manual_seed(0)
    model = Pixels()
    truth = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    program = piper.compile(model, F.cross_entropy, batch(0), strategy=strategy(), optimizer=optimizer, progress=False)
    true_optimizer = torch.optim.SGD(truth.parameters(), lr=0.05)
    for seed in range(3):
        x, mask, y = batch(seed)
        assert program.evaluate(x, mask, y).item() == pytest.approx(
            F.cross_entropy(copy.deepcopy(truth)(x, mask), y).item(), rel=1e-5
        )
        true_optimizer.zero_grad()
        loss = F.cross_entropy(truth(x, mask), y)
        loss.backward()
        true_optimizer.step()
        assert program.step(x, mask, y).item() == pytest.approx(loss.item(), rel=1e-5)
    state = program.state_dict()
    for name, value in truth.state_dict().items():
        assert state[name].dtype == value.dtype
        torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5)
    # Its sign is the batch's own, whatever the plan's types say.
    with pytest.raises(piper.UsageError, match="'args.0': expected torch.uint8, got torch.int8"):
        program.step(x.view(torch.int8), mask, y)
    program.save(tmp_path / "p")
    loss = program.evaluate(x, mask, y)
    program.close()
    loaded = piper.load(tmp_path / "p")
    assert loaded.evaluate(x, mask, y).item() == loss.item()
    assert torch.equal(loaded.state_dict()["offset"], truth.offset)
    loaded.close()
