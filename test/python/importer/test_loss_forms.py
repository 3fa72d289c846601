# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses of training code on a batch in uneven parts: value and gradients of plain PyTorch on the whole batch, or a refusal that names the line."""

import loss_forms
import piper
import pytest
import torch
from executor import train
from loss_forms import FORMS, REFUSED
from piper.importer import ImporterError, import_model
from torch import nn
from torch.nn import functional as F

#: Seven rows as two replicas with two microbatches each, and as three microbatches.
DIVISIONS = [2, 2, 2, 1], [3, 2, 2]


def plain(model, loss_fn, batch):
    x, y = batch
    loss = loss_fn(model(x), y)
    loss = loss if isinstance(loss, torch.Tensor) else loss[0] / loss[1]
    model.zero_grad()
    if isinstance(loss_fn, nn.Module):
        loss_fn.zero_grad()
    loss.backward()
    return loss, gradients_of(model, loss_fn)


def gradients_of(model, loss_fn):
    own = loss_fn.named_parameters() if isinstance(loss_fn, nn.Module) else ()
    found = [*model.named_parameters(), *((f"loss_fn.{name}", p) for name, p in own)]
    return {name: parameter.grad.clone() for name, parameter in found}


def assert_equal(got, want):
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert (got[name] - value).abs().max() <= 1e-5 * value.abs().max().clamp(min=1e-6), name


@pytest.mark.parametrize("name", [name for name in FORMS if name not in REFUSED])
def test_parts_of_a_batch_give_the_loss_of_the_whole(name):
    kind, loss_fn = FORMS[name]
    model, (x, y) = loss_forms.model(kind), loss_forms.batch(kind)
    piper.annotate_modules(model, {"stage": [["0"], ["2"]]})
    imported = import_model(model, loss_fn, (x, y), rows=(3, 2, 1))
    assert not imported.mixing
    loss, gradients = plain(model, loss_fn, (x, y))
    for sizes in DIVISIONS:
        outcome = train(imported, list(zip(x.split(sizes), y.split(sizes), strict=True)))
        value = outcome.loss_sum / outcome.loss_weight if imported.loss.divide else outcome.loss_sum
        assert torch.allclose(value, loss.float(), rtol=1e-5, atol=1e-6)
        assert_equal(outcome.gradients, gradients)


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_add_up_is_refused_by_its_line(name):
    kind, loss_fn = FORMS[name]
    batch, model = loss_forms.batch(kind), loss_forms.model(kind)
    try:
        form = import_model(model, loss_fn, batch, rows=(3, 2)).loss
    except ImporterError as error:
        assert "loss_forms.py:" in str(error)
        return
    assert not form.splittable and "loss_forms.py:" in form.advice and "return" in form.advice


def test_there_are_as_many_as_were_promised():
    assert len(FORMS) >= 80 and len(FORMS) - len(REFUSED) >= 65


#: Losses of (output, rows' targets, one number for the whole batch).
NUMBERS = {
    "mixup": lambda z, y, n: n * F.cross_entropy(z, y) + (1 - n) * F.cross_entropy(z, 3 - y),
    "annealed penalty": lambda z, y, n: F.cross_entropy(z, y) + n * z.pow(2).mean(),
    "annealed in place": lambda z, y, n: F.cross_entropy(z, y).mul_(n).add_(n * z.sum()),
    "tokens of the batch": lambda z, y, n: F.cross_entropy(z, y, reduction="sum") / n,
    "temperature": lambda z, y, n: F.cross_entropy(z / n, y) * n**2,
    "offset": lambda z, y, n: F.cross_entropy(z, y) + n,
    "both": lambda z, y, n: F.cross_entropy(z, y, ignore_index=1) * torch.exp(-n) + z.mean() / n,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_a_step_are_the_same_for_all_parts(name, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))
    x, y = torch.randn(7, 6), torch.randint(0, 4, (7,))
    loss_fn = lambda z, t: NUMBERS[name](z, *t)  # noqa: E731
    imported = import_model(model, loss_fn, (x, (y, torch.tensor(1, dtype=dtype))), rows=(3, 2, 1))
    assert imported.loss.splittable, imported.loss.advice
    for number in (3, 2):
        n = torch.tensor(number, dtype=dtype) if dtype == torch.int64 else torch.tensor(number / 4)
        loss = loss_fn(model(x), (y, n))
        model.zero_grad()
        loss.backward()
        for sizes in DIVISIONS:
            parts = [(a, (b, n)) for a, b in zip(x.split(sizes), y.split(sizes), strict=True)]
            outcome = train(imported, parts)
            value = outcome.loss_sum / outcome.loss_weight if imported.loss.divide else outcome.loss_sum
            assert torch.allclose(value, loss.detach(), rtol=1e-5, atol=1e-6)
            assert_equal(outcome.gradients, gradients_of(model, loss_fn))


def test_a_number_that_the_model_hands_on_is_the_same_for_all_parts():
    class Vae(nn.Linear):
        def forward(self, x, beta):
            return super().forward(x), beta

    torch.manual_seed(0)
    model, x, y, beta = Vae(6, 4), torch.randn(7, 6), torch.randn(7, 4), torch.tensor(0.3)
    loss_fn = lambda o, t: F.mse_loss(o[0], t) + o[1] * o[0].exp().sum(1).mean()  # noqa: E731
    imported = import_model(model, loss_fn, (x, beta, y), rows=(3, 2))
    assert imported.loss.splittable, imported.loss.advice
    assert imported.mixing == ()
    loss_fn(model(x, beta), y).backward()
    outcome = train(imported, [(a, beta, b) for a, b in zip(x.split([3, 2, 2]), y.split([3, 2, 2]), strict=True)])
    assert_equal(outcome.gradients, gradients_of(model, loss_fn))
