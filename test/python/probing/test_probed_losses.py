# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A loss whose parts are not its whole is refused, by the graph or by numbers; what is let through equals PyTorch on the whole batch."""

import re

import piper
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from verdicts import error, verdict

ROWS = 8
DIVISIONS = [(2, 1), (1, 4), (1, 3)]


def data(seed=0, rows=ROWS):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 6, generator=g), torch.randint(0, 4, (rows,), generator=g)


def none(z, y):
    return F.cross_entropy(z, y, reduction="none")


def squares(z, y):
    return (z - y[:, None]).pow(2)


def halves(z):
    return z[: len(z) // 2] - z[len(z) // 2 :]


def dpo(z, y):
    chosen, rejected = z.sum(1).chunk(2)
    return -F.logsigmoid(0.5 * (chosen - rejected)).sum(), len(chosen)


#: None of them divides: refused in every division.
REFUSED = {
    "mean of a mean": lambda z, y: squares(z, y).mean(0).sum() * squares(z, y).mean(),
    "variance": lambda z, y: z.var(0).mean(),
    "log-sum-exp": lambda z, y: z.logsumexp(0).mean(),
    "softmax over rows": lambda z, y: (z.softmax(0) * z).sum(),
    "norm": lambda z, y: z.norm().sum(),
    "covariance": lambda z, y: ((z.T @ z) / len(z) - torch.eye(4)).pow(2).sum(),
    "halves, mean": lambda z, y: halves(z).pow(2).mean(),
    "halves, sum": lambda z, y: halves(z).pow(2).sum(),
    "halves, pair": lambda z, y: (halves(z).pow(2).sum(), len(z) // 2),
    "chunks": dpo,
    "unbound": lambda z, y: ((z.view(2, -1, 4)[0] - z.view(2, -1, 4)[1]).pow(2).sum(), len(z) // 2),
    "roll": lambda z, y: (z - z.roll(1, 0)).pow(2).mean(),
    "flip": lambda z, y: (z - z.flip(0)).pow(2).mean(),
    "cumsum": lambda z, y: z.cumsum(0).pow(2).mean(),
    "rank": lambda z, y: (z.sort(0).values * torch.arange(len(z))[:, None]).mean(),
    "largest": lambda z, y: (z - z.amax(0, keepdim=True)).pow(2).mean(),
    "centred": lambda z, y: (z - z.mean(0)).pow(2).mean(),
    "centred whole": lambda z, y: ((z - z.mean()) ** 2).mean(),
    "centred without gradient": lambda z, y: ((z - z.mean().detach()) ** 2).mean(),
    "advantage": lambda z, y: (((y.float() - y.float().mean()) / (y.float().std() + 1))[:, None] * z).mean(),
    "whitened": lambda z, y: ((z - z.mean(0)) / (z.std(0) + 1e-5)).pow(3).mean(),
    "ramp": lambda z, y: (torch.arange(len(z))[:, None] * z).mean(),
    "linspace": lambda z, y: (torch.linspace(0, 1, len(z))[:, None] * z).sum(),
    "first row": lambda z, y: (z - z[0]).pow(2).mean(),
    "contrast": lambda z, y: F.cross_entropy(z @ z.t(), torch.arange(len(z))),
    "root": lambda z, y: squares(z, y).mean().sqrt(),
    "mean and one": lambda z, y: (F.cross_entropy(z, y), 1),
    "mean and aux": lambda z, y: (F.cross_entropy(z, y), z.detach().pow(2).mean()),
    "sum and largest": lambda z, y: (none(z, y).sum(), (y + 1).max()),
    "weight with gradient": lambda z, y: (squares(z, y).sum(), z.abs().sum()),
    "product": lambda z, y: F.cross_entropy(z, y) * squares(z, y).mean(),
}
#: Right or refused, as the graph's rules go.
EITHER = {
    "sum of means": lambda z, y: torch.stack([F.cross_entropy(z, y), 0.1 * z.pow(2).mean()]).sum(),
    "mean of means": lambda z, y: torch.stack([F.cross_entropy(z, y, ignore_index=3), F.cross_entropy(z, y)]).mean(),
    "divided by rows": lambda z, y: (none(z, y) / len(y)).sum(),
    "mean, then sum": lambda z, y: squares(z, y).mean(0).sum(),
    "mean, then mean": lambda z, y: squares(z, y).mean(0).mean(),
    "masked": lambda z, y: (none(z, y) * (y > 1) / (y > 1).sum()).sum(),
    "sorted": lambda z, y: z.sort(0).values.pow(2).mean(),
    "neighbours": lambda z, y: ((z[::2] - z[1::2]).pow(2).sum(), len(z) // 2),
    "neighbours, viewed": lambda z, y: z.view(-1, 2, 4).diff(dim=1).pow(2).mean(),
}
RIGHT = {
    "cross entropy": F.cross_entropy,
    "ignored": lambda z, y: F.cross_entropy(z, y, ignore_index=1),
    "smoothed": lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1),
    "squares": lambda z, y: squares(z, y).mean(),
    "sum": lambda z, y: none(z, y).sum(),
    "pair": lambda z, y: (none(z, y).sum(), len(y)),
    "counted pair": lambda z, y: ((none(z, y) * (y > 0)).sum(), (y > 0).sum()),
    "pair per row": lambda z, y: (-F.logsigmoid(z[:, :2].sum(1) - z[:, 2:].sum(1)).sum(), len(z)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    # One division each, as importing takes most of the time.
    division = DIVISIONS[list(REFUSED).index(name) % 2]
    assert verdict(nn.Linear(6, 4), REFUSED[name], data(), *division).error


@pytest.mark.parametrize("name", [*EITHER, *RIGHT])
def test_right_where_not_refused(name):
    model, loss_fn = nn.Linear(6, 4), EITHER.get(name) or RIGHT[name]
    for division in DIVISIONS[: 2 if name in EITHER else 1] + DIVISIONS[2:] * (name in RIGHT):
        found = verdict(model, loss_fn, data(), *division)
        if name in RIGHT:
            assert found.silent, (division, found)
        if not found.error:
            assert error(model, loss_fn, found.imported, data(1), division) < 1e-5


def test_what_is_declared_is_tried_too():
    model = nn.Linear(6, 4)
    for name in ("halves, mean", "roll", "root", "centred whole"):
        found = verdict(model, REFUSED[name], data(), loss_reduction="mean_rows")
        assert found.tried and "as loss_reduction='mean_rows' declares" in found.error, name
    assert verdict(model, F.cross_entropy, data(), loss_reduction="sum").error
    assert not verdict(model, lambda z, y: squares(z, y).mean(), data(), loss_reduction="mean_rows").error


def test_the_message_names_the_line_and_how_far_it_is_off():
    found = verdict(nn.Linear(6, 4), dpo, data())
    assert found.tried
    line = dpo.__code__.co_firstlineno
    whole, parts = re.search(
        rf"^{__file__}:{line}: .* for parts of 4, 4 rows its (?:sum|value) is ([\d.]+) whole, ([\d.]+) from the parts",
        found.error,
    ).groups()
    assert float(whole) != float(parts)


def test_its_advice_works():
    """One pair per row, (sum, weight) that add up, or an undivided batch."""
    model = nn.Linear(6, 4)
    for loss_fn in (RIGHT["pair per row"], RIGHT["counted pair"]):
        assert verdict(model, loss_fn, data()).silent
    assert verdict(model, dpo, data(), 1, 1, numbers=False).silent


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 6), nn.Linear(6, 11)

    def forward(self, ids):
        return self.head(self.embed(ids))


def token_loss(z, y):
    return F.cross_entropy(z.flatten(0, 1), y.flatten()) * 1.0 + 1e-2 * z.logsumexp(-1).pow(2).mean().sqrt().square()


def test_a_declared_mean_over_rows_of_tokens_that_may_be_ignored():
    """All of them count in the example, and sooner or later some do not."""
    ids = torch.randint(0, 11, (ROWS, 5))
    found = verdict(Tokens(), token_loss, (ids, ids), loss_reduction="mean_rows")
    assert found.tried and "some ignored (-100) in 'target'" in found.error


def test_a_declared_mean_over_rows_of_labels():
    """A row's label is seldom ignored: that it must not be is said, and no more."""

    def loss(z, y):
        return F.cross_entropy(z, y) + 0.1 * F.cross_entropy(z, y).square().sqrt()

    model = nn.Linear(6, 4)
    found = verdict(model, loss, data(), loss_reduction="mean_rows")
    assert not found.error and len(found.words) == 1 and "some ignored (-100)" in found.words[0]


MASKED = {
    "bool": lambda z, y: (_masked(z, y) * len(z), len(z)),
    "float": lambda z, y: (_masked(z, {**y, "mask": y["floats"]}) * len(z), len(z)),
    "lengths": lambda z, y: (_inside(z, y).sum() / y["lengths"].sum() * len(z), len(z)),
}


def _masked(z, y):
    return ((z - y["value"]).pow(2).mean(1) * y["mask"]).sum() / y["mask"].sum()


def _inside(z, y):
    return (z - y["value"]).pow(2) * (torch.arange(4) < y["lengths"][:, None])


@pytest.mark.parametrize("name", MASKED)
def test_masks_and_lengths_that_are_even_in_the_example(name):
    x, _ = data()
    target = {
        "value": torch.randn(ROWS, 4),
        "mask": torch.ones(ROWS, dtype=torch.bool),
        "floats": torch.ones(ROWS),
        "lengths": torch.tensor([3, 4] * (ROWS // 2)),
    }
    found = verdict(nn.Linear(6, 4), MASKED[name], (x, target))
    assert found.tried and found.error
    # The same loss as a pair that adds up.
    right = verdict(
        nn.Linear(6, 4),
        lambda z, y: (((z - y["value"]).pow(2).mean(1) * y["mask"]).sum(), y["mask"].sum()),
        (x, target),
    )
    assert right.silent


def test_an_example_of_zeros_and_a_head_of_zeros_hide_nothing():
    model = nn.Linear(6, 4)
    nn.init.zeros_(model.weight), nn.init.zeros_(model.bias)
    batch = torch.zeros(ROWS, 6), torch.zeros(ROWS, dtype=torch.int64)
    for name in ("centred whole", "roll", "halves, sum", "softmax over rows"):
        assert verdict(model, REFUSED[name], batch).error, name
    assert verdict(model, F.cross_entropy, batch).silent


#: Not wrong on an example of classes 0 to 2, whose losses are near to each other.
GATED = {
    "share of a class": lambda z, y: (none(z, y) * (1 + (y == 3).float().mean())).mean(),
    "whether there is a class": lambda z, y: (none(z, y) * (1 + (y == 3).any().float())).mean(),
    "more than the mean": lambda z, y: torch.maximum(none(z, y), none(z, y).mean() - 50).mean(),
    "at most the largest": lambda z, y: (none(z, y) * (none(z, y) <= none(z, y).max())).mean(),
    "near the smallest": lambda z, y: none(z, y).clamp(max=none(z, y).min() + 100).mean(),
    "summed up": lambda z, y: torch.where(z.sum(1) > 50, none(z, y).cumsum(0), none(z, y)).mean(),
    "turned": lambda z, y: torch.where(z.sum(1) > 50, none(z, y).flip(0), none(z, y)).mean(),
    "ranked": lambda z, y: torch.where(z.sum(1) > 50, none(z, y).sort().values, none(z, y)).mean(),
}


@pytest.mark.parametrize("name", GATED)
def test_nothing_is_wrong_without_a_word_on_other_data_than_the_example(name):
    x, y = data()
    found = verdict(nn.Linear(6, 4), GATED[name], (x, y % 3))
    # Weights by what the targets are: these will come. That outputs are a hundred times as large may never be.
    assert bool(found.error) == name.endswith("class")
    assert not found.silent


@pytest.mark.parametrize(
    "along", [lambda h: h.roll(1, 0), lambda h: h.sort(0).values, lambda h: h[torch.arange(len(h)).flip(0)]]
)
def test_rows_that_meet_where_numbers_are_large(along):
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 4)

        def forward(self, x):
            h = self.layer(x)
            return torch.where(h > 4, along(h), h)

    torch.manual_seed(0)
    model = Gated()
    assert model(data()[0]).max() < 4
    assert verdict(model, F.cross_entropy, data()).words


class Modules(nn.Module):
    """A loss with parameters and class weights of its own."""

    def __init__(self, mixing):
        super().__init__()
        self.scale, self.mixing = nn.Parameter(torch.ones(4)), mixing
        self.register_buffer("weight", torch.tensor([0.5, 1.0, 2.0, 1.5]))

    def forward(self, z, y):
        z = z * (self.scale - (z.detach().mean() if self.mixing else 0))
        return F.cross_entropy(z, y, weight=self.weight)


def test_losses_that_are_modules():
    model = nn.Linear(6, 4)
    assert verdict(model, Modules(False), data()).silent
    found = verdict(model, Modules(True), data())
    assert found.error.startswith(f"{__file__}:{Modules.forward.__code__.co_firstlineno}: ")


class Weighted(nn.Module):
    """Hands its loss the weights of two tasks, which it learns (Kendall et al., arXiv:1705.07115, equation 10)."""

    def __init__(self):
        super().__init__()
        self.value, self.scores = nn.Linear(6, 1), nn.Linear(6, 4)
        self.logs, self.scale = nn.Parameter(torch.tensor([0.1, -0.2])), nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        return self.value(x).squeeze(-1), self.scores(x), self.logs, self.scale.exp()


def test_outputs_that_are_parameters():
    def loss(output, y):
        value, scores, logs, scale = output
        tasks = F.mse_loss(value, y.float()), F.cross_entropy(scores, y, ignore_index=2)
        return sum((-log).exp() * task + log for log, task in zip(logs, tasks, strict=True)) * scale

    model = Weighted()
    found = verdict(model, loss, data(), 2, 3)
    assert found.silent and found.tried
    assert error(model, loss, found.imported, data(1), (2, 3)) < 1e-5


def test_losses_that_only_run_in_the_users_own_precision():
    weight = torch.tensor([0.5, 1.0, 2.0, 1.5])
    model = nn.Linear(6, 4)
    assert verdict(model, lambda z, y: F.cross_entropy(z, y, weight=weight), data()).silent
    assert verdict(model, lambda z, y: (F.cross_entropy(z - z.mean(), y, weight) * 1, 1), data()).error
    # Rounding of float32 in a step of float64 is no difference.
    assert verdict(model, lambda z, y: F.cross_entropy(torch.tanh(z.float() * 3), y), data()).silent


def test_compile_refuses_and_check_rows_leaves_it_to_the_graph(monkeypatch):
    def roll(z, y):
        return (z - z.roll(1, 0)).pow(2).mean()

    class AcceptedError(Exception):
        pass

    def accepted(*_):
        raise AcceptedError

    # What follows takes seconds and is the same for both.
    monkeypatch.setattr("piper.compiler.function_texts", accepted)
    strategy = piper.strategies.data_parallel(piper.Mesh(dp=2))
    with pytest.raises(piper.UsageError, match=f"{__file__}:{roll.__code__.co_firstlineno}: the loss of a whole batch"):
        piper.compile(nn.Linear(6, 4), roll, data(), strategy=strategy)
    with pytest.raises(AcceptedError):
        piper.compile(nn.Linear(6, 4), roll, data(), strategy=strategy, check_rows=False)
    # An undivided batch needs no check.
    with pytest.raises(AcceptedError):
        piper.compile(nn.Linear(6, 4), roll, data())
