# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that meet in a model are warned of with the line where they do, in whatever form; and no others."""

import inspect
import warnings

import piper
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from verdicts import error, verdict

ROWS = 8


def data(*shape):
    return torch.randn(ROWS, *shape), torch.randn(ROWS, *shape)


class Calls(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.layer, self.call = nn.Linear(6, 6), call

    def forward(self, x):
        return self.call(self.layer(x))


MEETING = {
    "halves": lambda h: torch.cat([h.chunk(2)[0] - h.chunk(2)[1], h.chunk(2)[1]]),
    "advantage": lambda h: h * ((h.detach() - h.detach().mean()) / h.detach().std()),
    "without gradient": lambda h: h + h.detach().norm(),
    "softmax": lambda h: h.softmax(0),
    "cumsum": lambda h: h.cumsum(0),
    "roll": lambda h: h + h.roll(1, 0),
    "sorted": lambda h: h + h.sort(0).values,
    "variance": lambda h: h / h.var(),
    "ramp": lambda h: h * torch.linspace(0, 1, len(h))[:, None],
    "viewed": lambda h: (h.view(2, -1, 6) + h.view(2, -1, 6).flip(0)).view(-1, 6),
    "contrast": lambda h: (h @ h.t()).softmax(-1) @ h,
}
APART = {
    "tanh": torch.tanh,
    "norm": lambda h: F.layer_norm(h, (6,)),
    "upcast": lambda h: F.layer_norm(h.float(), (6,)).tanh(),
    "indexed": lambda h: h[torch.arange(len(h))],
    "there and back": lambda h: h.flip(0).flip(0),
    "transposed": lambda h: h.t().tanh().t(),
}


def summed(o, t):
    return (o - t).pow(2).sum(), t.numel()


@pytest.mark.parametrize("name", MEETING)
def test_the_line_is_named(name):
    found = verdict(Calls(MEETING[name]), summed, data(6), 1, 4)
    line = f"{__file__}:{inspect.getsourcelines(MEETING[name])[1]}"
    assert not found.error and any(line in place for place in found.imported.coupled), found.words


@pytest.mark.parametrize("name", APART)
def test_rows_apart_are_not_accused(name):
    model = Calls(APART[name])
    found = verdict(model, summed, data(6), 1, 3)
    assert found.silent
    assert error(model, summed, found.imported, data(6), (1, 3)) < 1e-5


class Exchanged(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient - gradient.cumsum(0)


class Adapter(nn.Module):
    """Its second half is zero, so that the first does nothing yet."""

    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(3, 6, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x).softmax(0))


class Sequences(nn.Module):
    """Time before rows, as one dimension."""

    def __init__(self, mixes):
        super().__init__()
        self.layer, self.mixes = nn.Linear(6, 4), mixes

    def forward(self, x):
        h = self.layer(x)
        return (h.softmax(0) if self.mixes else h).transpose(0, 1).reshape(-1, 4)


class Balanced(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.layer, self.number = nn.Linear(6, 6), number

    def forward(self, x):
        h = self.layer(x)
        return h, self.number(h)


def balanced(o, t):
    return (o[0] - t).pow(2).sum() + o[1] * t.numel(), t.numel()


def test_rows_that_meet_in_the_backward_only():
    found = verdict(Calls(Exchanged.apply), summed, data(6), 1, 4)
    assert "the backward of the model (Calls" in found.imported.coupled[0]


def test_nothing_hides_behind_zeros():
    assert verdict(Adapter(), summed, data(6)).imported.coupled
    zeros = torch.zeros(ROWS, 6), torch.zeros(ROWS, 6)
    assert verdict(Calls(MEETING["cumsum"]), summed, zeros).imported.coupled
    assert verdict(Calls(torch.tanh), summed, zeros).silent


def sequence_loss(z, y):
    return F.cross_entropy(z, y.t().reshape(-1))


def test_rows_that_lie_behind_another_dimension():
    batch = torch.randn(ROWS, 5, 6), torch.randint(0, 4, (ROWS, 5))
    assert verdict(Sequences(False), sequence_loss, batch, 1, 3).silent
    found = verdict(Sequences(True), sequence_loss, batch, 1, 3)
    assert not found.error and found.imported.coupled


def test_a_number_that_the_model_gives_beside_its_rows():
    mean = verdict(Balanced(lambda h: h.pow(2).mean()), balanced, data(6))
    assert mean.imported.coupled == ()
    found = verdict(Balanced(lambda h: h.softmax(1).mean(0).pow(2).sum()), balanced, data(6))
    assert "output.1 of the model (Balanced" in found.imported.coupled[0]


def test_modules_are_named_where_no_line_is_known():
    sequences = torch.randn(ROWS, 5, 6), torch.randn(ROWS, 5, 6)

    def encoder(first):
        return nn.Sequential(nn.Linear(6, 6), nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=first))

    found = verdict(encoder(False), summed, sequences)
    assert found.imported.coupled == ("module '1.self_attn' (MultiheadAttention)",)
    assert verdict(encoder(True), summed, sequences).silent


class OwnLoss(nn.Module):
    """As Hugging Face's models do it: tokens that are ignored count in no part."""

    def __init__(self, change=lambda h: h, weight=lambda z: 1.0):
        super().__init__()
        self.embed, self.head, self.change, self.weight = nn.Embedding(9, 6), nn.Linear(6, 9), change, weight

    def forward(self, input_ids, labels):
        logits = self.head(self.change(self.embed(input_ids)))
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten()) * self.weight(logits)
        return {"loss": loss, "logits": logits}


def test_a_models_own_loss():
    ids = torch.randint(0, 9, (ROWS, 5))
    labels = ids.masked_fill(torch.rand(ROWS, 5) < 0.4, -100)
    for example in (ids, labels):
        batch = {"input_ids": ids, "labels": example}
        assert verdict(OwnLoss(), None, batch, 1, 3).silent
        for model in (OwnLoss(lambda h: h.softmax(0)), OwnLoss(weight=lambda z: z.norm().detach())):
            found = verdict(model, None, batch, 1, 3)
            assert found.error or found.imported.coupled


def test_compiling_warns_of_it(monkeypatch):
    class ImportedError(Exception):
        pass

    def imported(*_):
        raise ImportedError

    monkeypatch.setattr("piper.compiler.function_texts", imported)
    strategy = piper.strategies.data_parallel(piper.Mesh(dp=2))
    line = inspect.getsourcelines(MEETING["halves"])[1]
    with (
        pytest.warns(
            piper.CoupledRowsWarning, match=f"rows meet at {__file__}:{line} in the model.*looped over 2 rep"
        ) as caught,
        pytest.raises(ImportedError),
    ):
        piper.compile(Calls(MEETING["halves"]), summed, data(6), strategy=strategy)
    assert caught[0].filename == __file__
    with warnings.catch_warnings(), pytest.raises(ImportedError):
        warnings.simplefilter("error")
        piper.compile(Calls(MEETING["halves"]), summed, data(6), strategy=strategy, check_rows=False)


def test_what_can_not_be_tried_is_said():
    x, y = data(6)
    for batch, why in (
        ((x * float("nan"), y), "'args.0' of the example batch holds NaN"),
        ((x.to("meta"), y), "is on meta"),
    ):
        found = verdict(Calls(torch.tanh), summed, batch)
        assert not found.error and len(found.words) == 1 and why in found.words[0]


class FourOrEight(nn.Module):
    """As models are that were written for one batch size, and its halves."""

    def forward(self, x):
        return x.view({4: 4, 8: 8}[len(x)], 6)


def test_code_of_fixed_sizes_is_tried_at_those(monkeypatch):
    monkeypatch.setattr("piper.probing.check.OWN_DIVISION", 0.0)
    model = nn.Sequential(nn.Linear(6, 6), FourOrEight())
    assert verdict(model, summed, data(6)).silent
    mixing = nn.Sequential(nn.Linear(6, 6), FourOrEight(), Calls(MEETING["roll"]))
    assert verdict(mixing, summed, data(6)).imported.coupled


def test_few_rows_where_all_would_take_long(monkeypatch):
    monkeypatch.setattr("piper.probing.check.OWN_DIVISION", 0.0)
    assert verdict(Calls(torch.tanh), F.mse_loss, data(6), 1, 4).silent
    assert verdict(Calls(MEETING["softmax"]), F.mse_loss, data(6), 1, 4).imported.coupled
    assert verdict(Calls(torch.tanh), lambda o, t: ((o - o.mean()) ** 2).mean(), data(6), 1, 4).error
    # Neighbours stay together in the strategy's parts, and do not in parts of two and three rows.
    paired = verdict(Calls(torch.tanh), lambda o, t: ((o[::2] - o[1::2]).pow(2).sum(), len(o)), data(6), 1, 4)
    assert paired.silent


def test_of_a_model_too_large_to_run_the_loss_alone(monkeypatch):
    for limit in ("OWN_DIVISION", "AT_MOST"):
        monkeypatch.setattr(f"piper.probing.check.{limit}", 0.0)
    model = Calls(torch.tanh)
    found = verdict(model, F.mse_loss, data(6), 1, 4)
    assert not found.error and "the model is too large to be run" in found.words[0]
    assert verdict(model, lambda o, t: ((o - o.mean()) ** 2).mean(), data(6), 1, 4).error
