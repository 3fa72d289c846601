# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What users call their modules, parameters, buffers and tags is theirs: names of Piper's own symbols, and such as no identifier has."""

import copy

import piper
import pytest
import torch
from piper.importer import ImporterError, import_model
from torch import nn
from torch.nn import functional as F

SYMBOLS = [
    "step",
    "mesh",
    "evaluate",
    "strategy",
    "group0",
    "bucket0",
    "bucket1",
    "class0",
    "compute",
    "pp_stream",
    "output",
]
ODD = ['a"b', "a b", "ü", "a\\b", "a:b", "a-b", "a_b", "a\nb", "%x", "日本", "a'b", "step'", "0", "exp_avg", "target"]


class Named(nn.Module):
    """Also modules called model, loss_fn and constant, with parameters of their own, in each other."""

    def __init__(self):
        super().__init__()
        for name in SYMBOLS + ODD:
            self.register_parameter(name, nn.Parameter(torch.linspace(0.1, 0.2, 6) * (1 + len(name))))
        self.register_buffer("reduce_stream", torch.full((6,), 0.5))
        self.head, self.loss_fn, self.model = nn.Linear(6, 6), nn.Linear(6, 6), nn.Module()
        self.model.head, self.model.model = nn.Linear(6, 6), nn.Linear(6, 6)
        self.constant = nn.ParameterList([torch.ones(6), torch.ones(6)])

    def forward(self, x):
        with piper.annotate("step"), piper.annotate("stage"):
            x = self.model.head(torch.tanh(self.head(x)))
            for name in SYMBOLS:
                x = x + torch.tanh(x) * self._parameters[name]
        with piper.annotate("stage"):
            for name in ODD:
                x = x + torch.tanh(x) * self._parameters[name]
            x = self.loss_fn(self.model.model(x)) * self.constant[0] + self.reduce_stream * self.constant[1]
            # Computed in forward, and another number in evaluation.
            return x + torch.arange(6.0) * torch.arange(6.0) / (30 if self.training else 40)


def test_every_name_works(tmp_path):
    torch.manual_seed(0)
    model, x, y = Named(), torch.randn(8, 6), torch.randint(0, 6, (8,))
    truth = copy.deepcopy(model)
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2, dp=2), microbatches=2, zero=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    program = piper.compile(model, F.cross_entropy, (x, y), strategy=strategy, optimizer=optimizer, progress=False)
    gradients = program.gradients(x, y)
    true_optimizer = torch.optim.AdamW(truth.parameters(), lr=0.01)
    for _ in range(2):
        true_optimizer.zero_grad()
        loss = F.cross_entropy(truth(x), y)
        loss.backward()
        if gradients:
            assert set(gradients) == {name for name, _ in truth.named_parameters()}
            for name, parameter in truth.named_parameters():
                torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)
            gradients = {}
        true_optimizer.step()
        assert program.step(x, y).item() == pytest.approx(loss.item(), rel=1e-5)
    program.save(tmp_path / "p")
    loaded = piper.load(tmp_path / "p")
    for one in (program, loaded):
        state = one.state_dict()
        assert list(state) == list(truth.state_dict())
        for name, value in truth.state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5)
        assert one.evaluate(x, y).item() == pytest.approx(F.cross_entropy(truth.eval()(x), y).item(), rel=1e-5)
        assert set(one.optimizer_state_dict()["state"]) == {name for name, _ in truth.named_parameters()}
    loaded.load_optimizer_state_dict(program.optimizer_state_dict())
    loaded.close()
    program.close()


def test_names_that_stand_for_two_tensors_are_refused():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 6)

        def forward(self, output, target):
            return F.cross_entropy(self.inner(output), target)

    class Model(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.weight, self.loss_fn = nn.Parameter(torch.ones(6)), nn.Module()
            self.register_parameter(name, nn.Parameter(torch.ones(6)))
            self.loss_fn.inner = nn.Linear(6, 6)

        def forward(self, x):
            return self.loss_fn.inner(x * self.weight)

    batch = (torch.zeros(4, 6), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ImporterError, match="'loss_fn.inner.weight' is a name of the model and of the loss.*rename"):
        import_model(Model("other"), Loss(), batch)
    assert import_model(Model("other"), F.cross_entropy, batch)
    with pytest.raises(ImporterError, match="'weight:grad' could be something of 'weight': rename it"):
        import_model(Model("weight:grad"), F.cross_entropy, batch)
