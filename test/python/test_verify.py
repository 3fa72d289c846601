# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The truth of `piper.verify`: plain PyTorch, in the arithmetic that it needs, on the user's own modules, and what rounding may do."""

from __future__ import annotations

import contextlib
import copy

import piper
import pytest
import torch
from piper.arithmetic import InFloat64, RoundedAtRandom
from piper.borrowed import borrowed
from piper.reference import Reference
from piper.truth import Truths
from piper.updates import VALUE, State, Updates
from piper.verification import coupling
from torch import nn
from torch.nn import functional as F


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def halves(output, _):
    chosen, rejected = output.chunk(2)
    return -F.logsigmoid(0.5 * (chosen - rejected)).sum(), len(chosen)


def ignoring(output, target):
    ignored = torch.where(target == 0, -100, target)
    return F.cross_entropy(output, ignored) + 0.01 * output.logsumexp(-1).pow(2).mean()


@pytest.mark.parametrize(
    "loss_fn, reduction",
    [
        (lambda z, y: torch.stack([F.cross_entropy(z, y), 0.1 * z.pow(2).mean()]).sum(), None),
        (halves, None),
        (ignoring, "mean_rows"),
        (lambda z, y: ((z - z.mean()) ** 2).mean(), None),
    ],
    ids=["sum-of-means", "halves", "ignored-targets", "centred"],
)
def test_the_truth_is_the_loss_on_the_whole_batch(loss_fn, reduction):
    """Whatever rule the loss has where a batch is divided, and also where it has none."""
    model, batch = net(), (torch.randn(8, 4), torch.randint(0, 3, (8,)))
    truths = Truths(model, loss_fn, [batch], None, loss_reduction=reduction)
    truths.prepare(piper.strategies.data_parallel(piper.Mesh(dp=2), microbatches=2))
    found = truths.of(None, None).outcome(0)
    truth = copy.deepcopy(model).double()
    loss = loss_fn(truth(batch[0].double()), batch[1])
    loss = loss[0] / loss[1] if isinstance(loss, tuple) else loss
    loss.backward()
    assert found.loss == pytest.approx(loss.item(), rel=1e-12)
    for name, parameter in truth.named_parameters():
        torch.testing.assert_close(found.gradients[name], parameter.grad, rtol=1e-10, atol=1e-14)


class Upcast(nn.Module):
    """A norm as language models have it, and numbers of tokens that are no power of two."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(16, 8), nn.Linear(8, 16)

    def forward(self, x):
        h = self.embed(x).float()
        return self.out(h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).float().transpose(1, 2)


@pytest.mark.parametrize("norm", [nn.Identity, lambda: nn.BatchNorm1d(16)])
def test_rows_are_coupled_only_where_they_are(norm):
    torch.manual_seed(0)
    model = nn.Sequential(Upcast(), norm())
    batch = torch.randint(0, 16, (8, 31)), torch.randint(0, 16, (8, 31))
    strategy = piper.strategies.data_parallel(piper.Mesh(dp=1), microbatches=4)
    truths = Truths(model, F.cross_entropy, [batch], None)
    truths.prepare(strategy)
    found, where = coupling(truths, truths.of(None, None), truths.of(None, (1, 4)), 0)
    assert (found is None, where == "") == ((True, True) if norm is nn.Identity else (False, False))


class Insists(nn.Module):
    """Types that its code names: a buffer in float64, logits and a product in float32."""

    def __init__(self, asks=False):
        super().__init__()
        self.a, self.b, self.asks = nn.Linear(4, 6), nn.Linear(6, 3), asks
        self.register_buffer("bins", torch.linspace(-1, 1, 6, dtype=torch.float64))

    def forward(self, x):
        assert not self.asks or x.dtype == torch.float32, "expected float32"
        h = torch.tanh(self.a(x)) * torch.tensor([0.5] * 6)
        h = h + (h.double() @ self.bins)[:, None].to(h.dtype)
        return self.b(h.float()).float()


def weighted(output, target):
    return F.cross_entropy(output, target, weight=torch.tensor([0.2, 1.0, 3.0]))


@pytest.mark.parametrize("asks", [False, True])
def test_code_that_insists_on_float32_is_verified(asks):
    torch.manual_seed(0)
    model, batches = Insists(asks), [(torch.randn(6, 4), torch.randint(0, 3, (6,))) for _ in range(2)]
    before = copy.deepcopy(model.state_dict())
    strategy = piper.strategies.data_parallel(piper.Mesh(dp=2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    report = piper.verify(model, weighted, batches, strategy=strategy, optimizer=optimizer)
    assert report.ok and report.coupling is None, str(report)
    said = "PyTorch ran in the model's own types, not in float64: AssertionError: expected float32"
    assert (said in str(report)) == asks
    assert all(
        torch.equal(value, before[name]) and value.dtype == before[name].dtype
        for name, value in model.state_dict().items()
    )


def test_a_model_that_computes_something_else_in_float64_is_compared_in_its_own_types():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 3)

        def forward(self, x):
            y = self.a(x)
            return y if y.dtype == torch.float32 else 2 * y

    torch.manual_seed(0)
    report = piper.verify(Branches(), F.cross_entropy, [(torch.randn(6, 4), torch.randint(0, 3, (6,)))])
    assert report.ok and "in float64 it computes something else" in str(report)


class Restless(nn.Module):
    """Can't be copied, and changes whenever it runs."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)
        self.scaled, self.kept, self.calls = self.a.weight * 2, [], 0
        self.register_buffer("average", torch.zeros(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        y = self.a(x) + 0.01 * torch.randn(3)
        self.kept.append(y)
        self.calls, self.last = self.calls + 1, y
        self.average = 0.9 * self.average + 0.1 * y.detach().mean(0)
        self.count += 1
        return y


def test_the_model_is_as_it_was():
    torch.manual_seed(0)
    model, x = Restless(), torch.randn(6, 4)
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(model)
    model(x).sum().backward()
    parameters = dict(model.named_parameters())
    values = {name: (value, value.clone()) for name, value in model.state_dict(keep_vars=True).items()}
    gradients = {name: parameter.grad.clone() for name, parameter in parameters.items()}
    attributes, kept, random = set(vars(model)), list(model.kept), torch.get_rng_state()
    reference = Reference(model, F.cross_entropy, None)
    start = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    for arithmetic in (None, contextlib.nullcontext()):
        outcome = reference.run((x, torch.zeros(6, dtype=torch.int64)), start, [reference.buffers()], None, arithmetic)
        assert outcome.buffers[0]["count"] == 2 and outcome.gradients.keys() == parameters.keys()
    with pytest.raises(ZeroDivisionError), borrowed([model]):
        model(x)
        raise ZeroDivisionError
    for name, (tensor, value) in values.items():
        assert model.state_dict(keep_vars=True)[name] is tensor and torch.equal(tensor, value)
    assert all(torch.equal(parameters[name].grad, value) for name, value in gradients.items())
    assert set(vars(model)) == attributes and model.calls == 1 and len(model.kept) == len(kept) == 1
    assert model.kept[0] is kept[0] and torch.equal(torch.get_rng_state(), random)


def test_a_loss_that_refers_to_the_model_itself():
    """A copy of the model would not train what the loss looks at."""
    model, batches = net(), [(torch.randn(8, 4), torch.randint(0, 3, (8,))) for _ in range(2)]

    def decayed(output, target):
        return F.cross_entropy(output, target) + 0.1 * model[0].weight.pow(2).sum()

    truths = Truths(model, decayed, batches, None)
    truths.prepare(None)
    found = truths.of(None, None).outcome(0)
    decayed(model(batches[0][0]), batches[0][1]).backward()
    torch.testing.assert_close(found.gradients["0.weight"].float(), model[0].weight.grad)


def test_everything_is_computed_in_float64():
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    with InFloat64():
        y = torch.nn.functional.softmax(x.float() @ torch.full((4, 3), 0.1), -1, dtype=torch.float32).half().sum(0)
        assert y.dtype == torch.float64
        (y * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    again = x.detach().clone().requires_grad_()
    weight = torch.full((4, 3), 0.1).double()
    ((again @ weight).softmax(-1).sum(0) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert torch.equal(x.grad, again.grad)


@pytest.mark.parametrize("dtype, unit", [(torch.float32, 2.0**-24), (torch.bfloat16, 2.0**-8)])
def test_rounding_at_random(dtype, unit):
    torch.manual_seed(0)
    x, y = torch.randn(200).to(dtype), torch.randn(200).to(dtype)
    exact = x.double() * y.double()
    samples = []
    for seed in range(64):
        with RoundedAtRandom(seed):
            samples.append(x * y)
            assert torch.equal(x + 0, x) and torch.equal((x > 0).to(dtype).sum(), (x > 0).sum().to(dtype))
    off = (torch.stack(samples).double() - exact) / exact
    assert samples[0].dtype == dtype and off.abs().max() <= 2 * unit
    # To the nearest all of them would be the same, and off by the same.
    assert off.mean().abs() < 0.02 * unit and off.std(0).mean() > 0.2 * unit
    with RoundedAtRandom(3):
        assert torch.equal(x * y, samples[3])


@pytest.mark.parametrize("make", ["sgd", "nesterov", "adam", "amsgrad", "adamw"])
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_where_an_update_may_lead(make, steps):
    """With gradients all over what is allowed, torch's own update stays within what is said, which is not much more where the gradient is clear."""
    torch.manual_seed(steps)
    size = 3000
    parameter = nn.Parameter(torch.randn(size))
    optimizer = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1),
        "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.01),
        "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, eps=1e-15),
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, eps=1e-15),
    }[make]
    # Clear gradients, rounding alone, and what is between; the same of the moments.
    gradient = torch.randn(size, dtype=torch.float64) * 10 ** -torch.linspace(0, 9, size, dtype=torch.float64)
    doubt = torch.full_like(gradient, 1e-5)
    taken = optimizer([parameter])
    for _ in range(steps):
        parameter.grad = (gradient * torch.randn(size)).float()
        taken.step()
    moments = {
        slot: value.clone() for slot, value in taken.state[parameter].items() if slot != "step" and value is not None
    }
    before = State({"p": parameter.detach().clone()}, {"p": moments}, steps)
    updates = Updates(taken, {id(parameter): "p"})
    reach = updates.reach(before, {"p": gradient}, {"p": doubt}, thorough=True)["p"]
    for seed in range(40):
        noise = torch.rand(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 2 - 1
        # Also close to zero, where Adam turns around.
        noise = torch.where(noise.abs() < 0.5, noise, noise.sign() * 10 ** (-8 * (noise.abs() - 0.5) * 2))
        moved = gradient + noise * doubt if seed % 2 else (noise * doubt).clamp(gradient - doubt, gradient + doubt)
        other = nn.Parameter(before.values["p"].clone())
        step = optimizer([other])
        if steps:
            step.state[other].update(step=torch.tensor(float(steps)), **{k: v.clone() for k, v in moments.items()})
        other.grad = moved.float()
        step.step()
        own = {VALUE: other.detach(), **{slot: step.state[other][slot] for slot in reach.exact if slot != VALUE}}
        for slot, value in own.items():
            excess = ((value.double() - reach.exact[slot]).abs() - reach.allowed[slot]).max().item()
            assert excess <= 0, (slot, excess)
    clear = gradient.abs() > 0.1
    assert reach.allowed[VALUE][clear].max() < 2e-5
