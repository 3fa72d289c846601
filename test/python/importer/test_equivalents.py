# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a message names instead of an operation that has no lowering gives torch's numbers, and is imported and lowered."""

import pytest
import torch
import torch.nn.functional as F
from piper.importer import ImporterError, import_model
from piper.importer.equivalents import instead_of
from piper.importer.lower import Lowering, lower_program
from torch import nn

X, Y = torch.randn(8, 6, generator=torch.Generator().manual_seed(0)), torch.zeros(8, 6)
OTHER = torch.linspace(-1, 1, 30).reshape(5, 6)
INDEX = torch.tensor([0, 1, 1, 2, 3, 0]).expand(8, 6)
EDGES = torch.linspace(-2, 2, 6)
POINTS = torch.rand(8, 2, 3, 2, generator=torch.Generator().manual_seed(1)) * 1.6 - 0.8


@pytest.fixture(scope="module")
def lowering():
    with Lowering(1) as pool:
        yield pool


class Operation(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.weight, self.run = nn.Parameter(torch.ones(6)), run

    def forward(self, x):
        return self.run(x * self.weight)


def by_class(src, start, reduce):
    """Over the classes of the last dim."""
    found = torch.where(INDEX[..., None] == torch.arange(4), src[..., None], start)
    return found.amax(-2) if reduce == "amax" else found.amin(-2)


def masked_scatter(x):
    mask, src = x > 0, OTHER.repeat(2, 1).flatten()
    return torch.where(mask, src.flatten()[(mask.flatten().cumsum(0) - 1).clamp(min=0)].reshape(x.shape), x)


def logcumsumexp(x):
    m = x.amax(1, keepdim=True)
    return (x - m).exp().cumsum(1).log() + m


def transformed(x):
    n = x.shape[1]
    k = torch.arange(n)
    a = 2 * torch.pi / n * k[:, None] * k
    return torch.cat([x @ a.cos(), -(x @ a.sin())], 1)


def neighbours(x):
    """Bilinear, with the corners at the outer edges of the outer elements."""
    images = x.reshape(8, 1, 2, 3)
    row, column = ((POINTS[..., 1] + 1) * 2 - 1) / 2, ((POINTS[..., 0] + 1) * 3 - 1) / 2
    total = 0
    for down in (0, 1):
        for right in (0, 1):
            i, j = row.floor() + down, column.floor() + right
            weight = (1 - (row - i).abs()) * (1 - (column - j).abs()) * ((i >= 0) & (i < 2) & (j >= 0) & (j < 3))
            index = (i.clamp(0, 1) * 3 + j.clamp(0, 2)).long().reshape(8, 1, 6)
            total = total + images.flatten(2).gather(2, index) * weight.reshape(8, 1, 6)
    return total.flatten(1)


def square(x):
    return x.T @ x + torch.eye(6)


def eliminated(a):
    """The inverse of a positive definite matrix."""
    n = a.shape[0]
    both = torch.cat([a, torch.eye(n)], 1)
    for column in range(n):
        pivot = both[column] / both[column, column]
        here = (torch.arange(n) == column)[:, None]
        both = torch.where(here, pivot, both - both[:, column : column + 1] * pivot)
    return both[:, n:]


def largest_eigenvalue(a):
    v = torch.ones(6)
    for _ in range(200):
        v = F.normalize(a @ v, dim=0)
    return v @ (a @ v)


def largest_singular_value(a):
    v = torch.ones(6)
    for _ in range(200):
        v = F.normalize(a.T @ (a @ v), dim=0)
    return (a @ v).norm()


def counted(x):
    return ((x.flatten()[:, None] >= EDGES[:-1]) & (x.flatten()[:, None] < EDGES[1:])).sum(0)


def classes(x):
    return (x.detach() * 3).long().abs() % 5


def pairs(x):
    i, j = torch.triu_indices(8, 8, 1)
    return (x[i] - x[j]).norm(dim=-1)


#: By the operation that the message names: torch's own form, and the one to write.
FORMS = {
    "sort": (lambda x: x * (x * 9).long().sort(1)[0], lambda x: x * (x * 9).long().float().sort(1)[0].long()),
    "topk": (lambda x: x * (x * 9).long().topk(6, 1)[0], lambda x: x * (x * 9).long().float().topk(6, 1)[0].long()),
    "scatter_reduce": (
        lambda x: torch.full((8, 4), -torch.inf).scatter_reduce(1, INDEX, x, "amax"),
        lambda x: by_class(x, -torch.inf, "amax"),
    ),
    "index_reduce": (
        lambda x: torch.full((8, 4), torch.inf).index_reduce(1, INDEX[0], x, "amin"),
        lambda x: by_class(x, torch.inf, "amin"),
    ),
    "cdist": (lambda x: torch.cdist(x, OTHER), lambda x: (x[..., :, None, :] - OTHER[..., None, :, :]).norm(dim=-1)),
    "pdist": (F.pdist, pairs),
    "histc": (lambda x: x * x.histc(5, -2, 2).sum(), lambda x: x * counted(x).sum()),
    "searchsorted": (
        lambda x: x * torch.searchsorted(EDGES, x.detach()),
        lambda x: x * (x[..., None] > EDGES).sum(-1),
    ),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), logcumsumexp),
    "masked_scatter": (lambda x: x.masked_scatter(x > 0, OTHER.repeat(2, 1)), masked_scatter),
    "aten.mode.default": (
        lambda x: x * classes(x).mode(-1)[0][:, None],
        lambda x: x * F.one_hot(classes(x), 5).sum(-2).argmax(-1)[:, None],
    ),
    "aten.put.default": (lambda x: x.take(INDEX), lambda x: x.flatten()[INDEX]),
    "hypot": (lambda x: torch.hypot(x, x * 2), lambda x: (x * x + x * 2 * (x * 2)).sqrt()),
    "grid_sampler": (lambda x: F.grid_sample(x.reshape(8, 1, 2, 3), POINTS, align_corners=False), neighbours),
    "masked_select": (
        lambda x: x.masked_select(x > 0).mean(),
        lambda x: torch.where(x > 0, x, 0).sum() / (x > 0).sum(),
    ),
    "nonzero": (lambda x: x[x > 0].mean(), lambda x: torch.where(x > 0, x, 0).sum() / (x > 0).sum()),
    "unique": (
        lambda x: x * classes(x).unique().numel(),
        lambda x: x * F.one_hot(classes(x), 5).flatten(0, 1).amax(0).sum(),
    ),
    "fft": (lambda x: torch.view_as_real(torch.fft.fft(x)).transpose(1, 2), transformed),
    "linalg_inv": (lambda x: torch.linalg.inv(square(x)), lambda x: eliminated(square(x))),
    "eigh": (lambda x: torch.linalg.eigvalsh(square(x))[-1], lambda x: largest_eigenvalue(square(x))),
    "svd": (lambda x: torch.linalg.svdvals(square(x))[0], lambda x: largest_singular_value(square(x))),
}


def imported(run):
    return import_model(Operation(run), lambda o, t: o.float().sum(), (X, Y))


@pytest.mark.parametrize("name", FORMS)
def test_the_message_names_a_form(name, lowering):
    run = FORMS[name][0]
    with pytest.raises(ImporterError) as error:
        lower_program([imported(run)], lowering)
    found = [line for line in str(error.value).splitlines() if instead_of(name) and instead_of(name) in line]
    assert found and "test_equivalents.py:" in found[0]


@pytest.mark.parametrize("name", FORMS)
def test_the_form_is_right_and_runs(name, lowering):
    results = []
    for run in FORMS[name]:
        x = X.clone().requires_grad_()
        value = run(x)
        value.sum().backward()
        results.append((value.detach().reshape(-1), x.grad))
    # Power iteration ends near the value, its gradient later.
    accuracy = {"rtol": 1e-3, "atol": 1e-3} if name in ("eigh", "svd") else {"rtol": 1e-4, "atol": 1e-5}
    for got, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, expected, **accuracy)
    assert lower_program([imported(FORMS[name][1])], lowering)
