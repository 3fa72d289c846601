# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One model with hooks, checkpoints and wrappers, under a pipeline and replicas: gradients, state dicts and verify against plain PyTorch."""

import copy

import piper
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import checkpoint

X, Y = torch.randn(8, 6, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 4


def loss_fn(scores, target):
    return F.mse_loss(scores, F.one_hot(target, 4).float())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = nn.Linear(6, 5), checkpoint_wrapper(nn.Linear(5, 5)), nn.Linear(5, 4)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        hidden = torch.tanh(self.a(x))
        gate = (hidden.detach().abs() > 0.3).float()
        if hidden.requires_grad:
            hidden.register_hook(lambda g: g * gate)
            hidden.register_hook(lambda g: g.clamp(-0.002, 0.002))
        return self.c(hidden + checkpoint(lambda value: torch.tanh(self.b(value)), hidden, use_reentrant=True))


def made():
    return piper.annotate_modules(Net(), {"stage": [["a"], ["b", "c", "unused"]]})


STRATEGIES = {
    "pipeline": lambda: piper.strategies.pipeline(piper.Mesh(pp=2), schedule="1f1b", microbatches=2),
    "replicas": lambda: piper.strategies.data_parallel(piper.Mesh(dp=2)),
}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_divided(strategy):
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(piper.UnusedParametersWarning, match="'unused.weight', 'unused.bias'"):
        program = piper.compile(model, loss_fn, (X, Y), strategy=strategy(), optimizer=optimizer, progress=False)
    expected = copy.deepcopy(model)
    loss_fn(expected(X), Y).backward()
    gradients = program.gradients(X, Y)
    for name, parameter in expected.named_parameters():
        if parameter.grad is None:
            assert name not in gradients
            continue
        scale = float(parameter.grad.abs().max())
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=0, atol=1e-5 * scale)
    torch.optim.SGD(expected.parameters(), lr=0.1).step()
    program.step(X, Y)
    assert list(program.state_dict()) == list(model.state_dict()) and not program.loss_state_dict()
    model.load_state_dict(program.state_dict())
    for got, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(got, wanted)
    program.load_state_dict(made().state_dict())
    torch.testing.assert_close(program.state_dict()["b.weight"], made().state_dict()["b.weight"])
    wrong = {f"module.{name}": value for name, value in model.state_dict().items()}
    with pytest.raises(piper.UsageError, match="fit: its names begin with 'module.': give "):
        program.load_state_dict(wrong)
    program.close()


@pytest.mark.filterwarnings("ignore::piper.UnusedParametersWarning")
def test_verify():
    report = piper.verify(made(), loss_fn, [(X, Y)], strategy=STRATEGIES["pipeline"]())
    assert not report.error and {row.name for row in report.rows} >= {"a.weight", "b._checkpoint_wrapped_module.weight"}
    assert report.ok, str(report)


def detached(layer, x):
    return layer(x).detach()


def without_gradients(layer, x):
    with torch.no_grad():
        value = layer(x)
    return value.requires_grad_() * 2


def behind_a_reentrant_checkpoint(layer, x):
    return checkpoint(layer, x, use_reentrant=True)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("run", [detached, without_gradients, behind_a_reentrant_checkpoint])
def test_nothing_would_train(run):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(6, 4)

        def forward(self, x):
            return run(self.a, x)

    with pytest.raises(piper.UsageError, match=r"none of the trainable parameters \('a.weight', 'a.bias'\)"):
        piper.compile(Model(), loss_fn, (X, Y), progress=False)
