# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numbers that users write down reach the kernels as they are: infinities, NaN, both zeros, the largest and smallest, and sums in the order written."""

import contextlib
import math

import piper
import pytest
import torch
from piper.importer import import_model
from piper.importer.constants import same_bits
from torch import nn
from torch.nn import functional as F

INF, NAN = float("inf"), float("nan")
TABLE = torch.tensor([1.0, INF, -INF, NAN, -0.0, 1e-38])
FORMS = {
    "masked": lambda x: x.masked_fill(x > 0.5, -INF).softmax(-1),
    "all but one masked": lambda x: (
        x.masked_fill(x < x.amax(-1, keepdim=True), -INF).logsumexp(-1, keepdim=True).expand(8, 6)
    ),
    "nan": lambda x: torch.where(x > 0, x, torch.full((8, 6), NAN)).nan_to_num(2.5),
    "compared with nan": lambda x: x * (x != NAN) + (x == NAN),
    "infinite bounds": lambda x: x.clamp(max=INF) * x.clamp(min=-INF) + F.hardtanh(x, -INF, 0.5),
    "inf - inf": lambda x: torch.nan_to_num(x * 0 + INF - INF, 3.0) * x,
    "both zeros": lambda x: (
        (1 / torch.full((6,), -0.0)).clamp(-1, 1) * x
        + (3 / torch.full((6,), 0.0)).clamp(-2, 2) * x
        + (1 / torch.tensor([0.0, 1, 1, 1, 1, 1])).clamp(-2, 2) * x.square()
        + (1 / torch.tensor([-0.0, 1, 1, 1, 1, 1])).clamp(-2, 2) * x
    ),
    "table": lambda x: torch.where(TABLE.isfinite(), x, (x * TABLE).nan_to_num(0.5, 2.0, -2.0)),
    "largest": lambda x: x + torch.finfo(torch.float32).min * (x > 5),
    "overflowing": lambda x: ((x > 0.5) * -1e300).nan_to_num(1.0, 2.0, -2.0) * x,
    "smallest": lambda x: x / (x.abs() + torch.finfo(torch.float32).tiny) + (x.double() + 1e-300).float(),
    "integers": lambda x: (
        ((x * 0).long() + 2**62 + 1).remainder(1000).float() * x + ((x * 0).int() + (2**31 - 1)) * 1e-9 * x
    ),
    "booleans": lambda x: x * torch.full((6,), True) + torch.where((x > 0) & True, x, False),
    "digits": lambda x: x * math.pi + 1.0000001 * x.square(),
    "rounded by adding": lambda x: ((x * 3 + 12582912.0) - 12582912.0) * x,
    "what is lost": lambda x: ((x + 1e8) - 1e8) * x + ((1 + x * 1e-9) - 1) * 1e9 * x,
    "a quotient of equals": lambda x: torch.floor((x * 0 + 41.0) / 41.0) * x,
}


class Every(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([torch.linspace(0.5, 1.5, 6) for _ in FORMS])

    def forward(self, x):
        return torch.stack([form(x * scale) for form, scale in zip(FORMS.values(), self.scales, strict=True)])


@pytest.fixture(scope="module")
def found():
    """For each form Piper's gradient and torch's; losses by each form's row of weights."""
    torch.manual_seed(0)
    x, weights = torch.randn(8, 6), torch.randn(len(FORMS), 8, 6)
    program = piper.compile(
        Every(),
        lambda o, w: ((o * w.transpose(0, 1)).nan_to_num(7.0, 5.0, -5.0).sum(), 1),
        (x, weights.transpose(0, 1).contiguous()),
        progress=False,
    )
    with contextlib.closing(program):
        gradients = program.gradients(x, weights.transpose(0, 1).contiguous())
        loss = program.evaluate(x, weights.transpose(0, 1).contiguous())
    truth = Every()
    true_loss = (truth(x) * weights).nan_to_num(7.0, 5.0, -5.0).sum()
    true_loss.backward()
    pairs = [(gradients[f"scales.{i}"], p.grad) for i, p in enumerate(truth.scales)]
    return dict(zip(FORMS, pairs, strict=True)), (loss.item(), true_loss.item())


@pytest.mark.parametrize("name", FORMS)
def test_gradients_are_torchs(found, name):
    ours, truth = found[0][name]
    torch.testing.assert_close(ours, truth, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_the_loss_is_torchs(found):
    ours, truth = found[1]
    assert ours == pytest.approx(truth, rel=1e-5)


def test_tables_are_equal_by_their_bits():
    assert same_bits(TABLE, TABLE.clone()) and not same_bits(torch.zeros(2), -torch.zeros(2))
    assert not same_bits(torch.zeros(2), torch.zeros(2, dtype=torch.int32)) and same_bits(
        torch.tensor(NAN), torch.tensor(NAN)
    )


def test_a_table_that_holds_nan_is_the_same_for_every_part_of_a_batch():
    class Masked(nn.Linear):
        def forward(self, x):
            return (super().forward(x)[..., None] + TABLE.abs()).nan_to_num(0.5, 1.0)

    batch = (torch.zeros(6, 4), torch.zeros(6, 2))
    imported = import_model(Masked(4, 2), lambda o, t: (o.sum(), len(t)), batch, rows=[4, 2], divided=True)
    assert imported.rows == (4, 2)
