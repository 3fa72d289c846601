# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lines whose operations mix rows of the batch are found, and no others."""

import inspect
import re

import pytest
import torch
import torch.nn.functional as F
import zoo
from executor import train
from piper.importer import ImporterError, import_model
from torch import nn


class Calls(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.layer, self.call = nn.Linear(6, 6), call

    def forward(self, x):
        return self.call(self.layer(x))


BATCH = torch.randn(8, 6), torch.randn(8, 6)
MIXING = {
    "sum": lambda h: h + h.sum(0),
    "largest": lambda h: h - h.max(0, keepdim=True).values,
    "pairs": lambda h: torch.softmax(h @ h.t(), -1) @ h,
    "first row": lambda h: h * h[0],
    "covariance": lambda h: h @ torch.einsum("bi,bj->ij", h, h),
    "variance": lambda h: h / h.var(),
    # What numbers of the example do not show.
    "rolled where it is large": lambda h: torch.where(h > 100, h.roll(1, 0), h),
    "rolled as a whole": lambda h: torch.where(h > 100, h.roll(1), h),
    "turned where it is large": lambda h: torch.where(h > 100, h.flip(0), h),
    "summed up where it is large": lambda h: torch.where(h > 100, h.cumsum(0), h),
    "softmax over rows": lambda h: h.clamp(min=-100) + 0 * h.softmax(0),
}
APART = {
    "norm": lambda h: F.layer_norm(h, (6,)),
    "per row": lambda h: h - h.mean(-1, keepdim=True),
    "attention": lambda h: F.scaled_dot_product_attention(*[h.view(-1, 3, 2)] * 3).flatten(1),
    "made after it": lambda h: h + h.new_ones(6) + torch.zeros_like(h),
    "first columns": lambda h: F.pad(h[:, :2], (0, 4)),
    "flat": lambda h: h.reshape(-1, 3).cumsum(-1).view(-1, 6),
    "a row of copies": lambda h: h * torch.arange(6.0).expand(len(h), 6)[:1].repeat(len(h), 1),
    "there and back": lambda h: h.flip(0).roll(2, 0).flip(0).roll(2, 0).clone(),
    "along columns": lambda h: h.roll(1, 1).flip(-1).cumsum(1).softmax(1),
}


def mixing(model, loss_fn=zoo.squared, batch=BATCH, rows=4):
    return import_model(model, loss_fn, batch, rows=(rows,)).mixing


@pytest.mark.parametrize("call", MIXING.values(), ids=MIXING)
def test_rows_that_meet_are_found_with_their_line(call):
    line = inspect.getsourcelines(call)[1]
    assert mixing(Calls(call)) == (f"{__file__}:{line}",)


@pytest.mark.parametrize("call", APART.values(), ids=APART)
def test_rows_apart_are_not(call):
    assert mixing(Calls(call)) == ()


def test_losses():
    """A loss is a sum over the rows, but for what is in it."""
    model = nn.Linear(6, 6)
    for loss_fn in (
        F.mse_loss,
        lambda o, t: ((o - t).pow(2).sum(), o.numel()),
        lambda o, t: F.l1_loss(o, t) + o.mean(),
        lambda o, t: (F.cross_entropy(o, t.argmax(1), reduction="none").sum(), len(o)),
    ):
        assert mixing(model, loss_fn) == ()
    assert len(mixing(model, lambda o, t: (o.sum(0).pow(2).sum(), 1))) == 1
    assert len(mixing(model, lambda o, t: F.cross_entropy(o @ t.t(), torch.arange(len(o))))) == 1


def entropy(o, t):
    return F.cross_entropy(o, t.argmax(1), reduction="none")


#: Losses that are right for data such as the example's, and not for others.
GATED = {
    "share of a class": lambda o, t: (entropy(o, t) * (1 + (t.argmax(1) == 7).float().mean())).mean(),
    "whether there is a class": lambda o, t: (entropy(o, t) * (1 + (t.argmax(1) == 7).any().float())).mean(),
    "more than the mean": lambda o, t: torch.maximum(entropy(o, t), entropy(o, t).mean() - 50).mean(),
    "at most the largest": lambda o, t: (entropy(o, t) * (entropy(o, t) <= entropy(o, t).max())).mean(),
    "near the smallest": lambda o, t: entropy(o, t).clamp(max=entropy(o, t).min() + 100).mean(),
    "over the largest": lambda o, t: (entropy(o, t) / t.max().ceil()).mean(),
    "summed up": lambda o, t: torch.where(o.sum(1) > 100, entropy(o, t).cumsum(0), entropy(o, t)).mean(),
}
#: Losses that are sums over the rows, whatever they are made of.
SUMS = {
    "over a mask's sum": lambda o, t: (entropy(o, t) * (t[:, 0] > 0) / (t[:, 0] > 0).sum()).sum(),
    "shares of a mask": lambda o, t: (entropy(o, t) * ((t[:, 0] > 0) / (t[:, 0] > 0).sum().clamp(min=1))).sum(),
    "columns first": lambda o, t: (o.sum(0) / len(t)).sum(),
    "columns with weights": lambda o, t: ((o - t).pow(2).mean(0) * torch.arange(6.0)).sum(),
}


@pytest.mark.parametrize("loss_fn", GATED.values(), ids=GATED)
def test_what_a_loss_makes_of_all_rows_meets_rows_again(loss_fn):
    (line,) = mixing(nn.Linear(6, 6), loss_fn)
    assert line.startswith(f"{__file__}:")


@pytest.mark.parametrize("loss_fn", SUMS.values(), ids=SUMS)
def test_or_it_does_not(loss_fn):
    assert mixing(nn.Linear(6, 6), loss_fn) == ()


def test_undivided_batches_are_not_looked_at():
    assert mixing(Calls(MIXING["sum"]), rows=8) == ()


class FixedRows(nn.Module):
    def forward(self, x):
        return x.view(4, 6)


def test_a_model_of_one_number_of_rows():
    model = nn.Sequential(nn.Linear(6, 6), FixedRows())
    assert mixing(model, lambda o, t: (F.mse_loss(o, t, reduction="sum"), t.numel())) == ()
    with pytest.raises(ImporterError, match="runs with 4 rows and not with 5.*: return a pair"):
        mixing(model)


def test_what_fails_with_the_rows_of_a_part_says_so_and_where():
    pairs = lambda o, t: (o.view(-1, 2, o.shape[1]).diff(dim=1) - t.view(-1, 2, 6)[:, :1]).pow(2).mean()  # noqa: E731
    top = lambda o, t: (o - t).pow(2).mean(1).topk(3).values.mean()  # noqa: E731
    batch = torch.randn(8, 6), torch.randn(8, 6)
    for loss_fn, reason in ((pairs, "invalid for input"), (top, "out of range|not in range")):
        with pytest.raises(ImporterError) as raised:
            import_model(nn.Linear(6, 6), loss_fn, batch, rows=[3, 2] if loss_fn is pairs else [2])
        message = str(raised.value)
        assert re.search(rf"{__file__}:\d+: .* with the batch's 8 rows, and not with a part of \d of them", message)
        assert re.search(reason, message)
    # What is wrong with all rows, too, is PyTorch's to tell.
    with pytest.raises(RuntimeError, match="reduction dim|shapes"):
        import_model(nn.Linear(5, 6), loss_fn, batch, rows=[3, 2])


class WithLoss(nn.Linear):
    """Gives numbers of its own, of which `use` makes something."""

    def __init__(self, use):
        super().__init__(6, 6)
        self.use = use

    def forward(self, x, y):
        z = super().forward(x)
        return self.use(z, F.mse_loss(z, y))


def test_numbers_of_the_model_that_only_become_its_loss_mix_nothing():
    batch = (*BATCH, BATCH[1])
    for use, loss_fn in (
        (lambda z, loss: (z, loss), lambda o, t: o[1]),
        (lambda z, loss: {"a": loss, "b": z.pow(2).mean()}, lambda o, t: sum(o.values())),
        (lambda z, loss: {"loss": 2 * loss, "logits": z}, lambda o, t: o["loss"] / 4),
    ):
        assert mixing(WithLoss(use), loss_fn, batch) == ()
    for use, loss_fn in (
        (lambda z, loss: z / loss, zoo.squared),
        (lambda z, loss: z * loss.sqrt().view(1, 1), zoo.squared),
        (lambda z, loss: (z, loss), lambda o, t: ((o[0] - o[1]) ** 2).mean()),
        (lambda z, loss: (z, loss), lambda o, t: (o[1] * len(t), len(t))),
        (lambda z, loss: (z, loss), lambda o, t: (o[1], 1)),
    ):
        (line,) = mixing(WithLoss(use), loss_fn, batch)
        assert line.startswith(__file__)


class Forces(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(6, 5), nn.SiLU(), nn.Linear(5, 1))

    def forward(self, x):
        x = x.detach().requires_grad_(True)
        return torch.autograd.grad(self.layer(x).sum(), x, create_graph=True)[0]


def test_a_derivative_in_forward_mixes_nothing():
    torch.manual_seed(0)
    model, x, y = Forces(), *BATCH
    pair = lambda o, t: (F.mse_loss(o, t, reduction="sum"), t.numel())  # noqa: E731
    assert import_model(model, pair, BATCH, rows=(3, 2)).mixing == ()
    imported = import_model(model, zoo.squared, BATCH, rows=(3, 2))
    assert imported.mixing == ()
    import_model(model, zoo.squared, BATCH, rows=(3, 2), training=False, form=imported.loss)
    zoo.squared(model(x), y).backward()
    outcome = train(imported, list(zip(x.split(3), y.split(3), strict=True)))
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and parameter.grad.abs().max():
            assert torch.allclose(outcome.gradients[name], parameter.grad, rtol=1e-4, atol=1e-6), name
