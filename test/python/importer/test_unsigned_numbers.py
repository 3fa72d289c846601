# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""uint8 without a value of uint8: the numbers, and how they wrap, are torch's. Other unsigned types are refused."""

import pytest
import torch
import zoo
from executor import run_graph
from piper.importer import ImporterError, import_model
from piper.importer import decompositions as rules
from piper.importer.capture import decompose, decomposition_table
from piper.importer.graphs import calls
from piper.importer.unsigned import compute_in_int64
from torch import nn

TABLE = decomposition_table(rules.OWN, rules.EXTRA, rules.KEPT)
NUMBERS = torch.tensor([[0, 1, 100, 127], [128, 200, 254, 255], [3, 250, 77, 129]], dtype=torch.uint8)
OTHER = torch.tensor([[255, 2, 200, 127], [128, 7, 1, 255], [4, 250, 99, 2]], dtype=torch.uint8)
FORMS = {
    "float": lambda x, y: x.float() / 255,
    "divided": lambda x, y: x / y.clamp(min=1),
    "double": lambda x, y: x.double() * 0.1 + y.sqrt(),
    "bfloat16": lambda x, y: x.bfloat16(),
    "index": lambda x, y: torch.arange(256.0)[x.long()],
    "wrap": lambda x, y: (x + y) * (x - y) - 3,
    "scalars": lambda x, y: (x + 300, x - 1, -x, 10 - x, x * -1),
    "floors": lambda x, y: (x // 7, x % 5, x // y.clamp(min=1), torch.fmod(x, 7), x // -2),
    "bits": lambda x, y: (x & 15, x | 130, x ^ y, ~x, x >> 1, x << 2, x | 300),
    "compare": lambda x, y: (x > 127, x <= y, x == 255, x != 128, x > -1, x < 300),
    "extremes": lambda x, y: (x.max(), x.amin(1), x.max(1)[0], torch.maximum(x, y), x.argmax(1), x.clamp(10, 220)),
    "sums": lambda x, y: (x.sum(), x.sum(1), x.float().mean(0), x.sum(0, dtype=torch.uint8)),
    "masks": lambda x, y: (torch.where(x > 127, x, y), x.masked_fill(y > 127, 200), x.masked_fill(x > 3, -1), x.bool()),
    "moved": lambda x, y: (
        x.flip(1),
        torch.cat([x, y]),
        x[1:, 2],
        x.t().reshape(6, 2),
        x.gather(1, y.long() % 4),
        torch.stack([x, y]).unbind()[1],
        x.expand(2, 3, 4),
        x.chunk(2, 1)[1],
    ),
    "converted": lambda x, y: (x.to(torch.int8), x.to(torch.int16) - 300, (x.int() * 3).to(torch.uint8)),
    "from floats": lambda x, y: ((x.float() * 1.7).to(torch.uint8), (-x.float()).to(torch.uint8)),
    "from masks": lambda x, y: (x > 127).to(torch.uint8) * 255,
    "promoted": lambda x, y: (x + y.to(torch.int16), x + y.to(torch.int8), x * 2.5, x + (y > 3), x * y.float()),
    "made": lambda x, y: (
        torch.full((2,), 200, dtype=torch.uint8) + x[:2, :1],
        torch.zeros_like(x) + 255,
        x.new_ones(3),
    ),
    "0-dim": lambda x, y: (x[1, 2] + y, x > torch.tensor(300), x + torch.tensor(-3), x[0, 2] / 3),
}


class Step(nn.Module):
    """A step whose sum is of everything that a form gives, each element with a weight of its own."""

    def __init__(self, form):
        super().__init__()
        self.form, self.weight = form, nn.Parameter(torch.tensor(1.0))

    def forward(self, x, y):
        given = self.form(x, y)
        values = [v.double().reshape(-1) for v in (given if isinstance(given, tuple) else (given,))]
        return torch.cat([v * torch.arange(1.0, 1 + len(v), dtype=torch.float64) for v in values]).sum() * self.weight


@pytest.mark.parametrize("name", FORMS)
def test_numbers_are_torchs(name):
    model = Step(FORMS[name])
    imported = import_model(model, lambda o, t: (o, 1), (NUMBERS, OTHER, torch.zeros(())), training=False)
    [node] = imported.nodes
    function = imported.member(node, None)
    module = decompose(function.graph, function.operands, TABLE)
    compute_in_int64(module.graph)
    kinds = {v.dtype for n in calls(module.graph) if isinstance(v := n.meta["val"], torch.Tensor)}
    assert torch.uint8 not in kinds
    values = {"args.0": NUMBERS.view(torch.int8), "args.1": OTHER.view(torch.int8)}
    operands = [values[r.name] if r.name in values else imported.states[r.name].value.detach() for r in node.operands]
    operands = [v.view(torch.int8) if v.dtype == torch.uint8 else v for v in operands]
    got = run_graph(module.graph, *operands)[0]
    assert got.item() == pytest.approx(model(NUMBERS, OTHER).item(), rel=1e-6)


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [
        (torch.uint16, r"cast it with .to\(torch.int32\)"),
        (torch.uint32, r"cast it with .to\(torch.int64\)"),
        (torch.uint64, r"cast it with .to\(torch.int64\)"),
        (torch.float8_e4m3fn, r"cast it with .to\(torch.float32\)"),
        (torch.complex64, "as torch.view_as_real gives them"),
    ],
)
def test_other_types_are_refused_by_name(dtype, advice):
    x = torch.zeros(6, 4).to(dtype)
    with pytest.raises(ImporterError, match=f"input 'args.0' is of {dtype}, which is not supported: .*{advice}"):
        import_model(nn.Linear(4, 2), zoo.squared, (x, torch.zeros(6, 2)))
    model = nn.Linear(4, 2)
    model.register_buffer("table", torch.zeros(6).to(dtype))
    with pytest.raises(ImporterError, match=f"buffer 'table' is of {dtype}"):
        import_model(model, zoo.squared, (torch.zeros(6, 4), torch.zeros(6, 2)))


def test_other_types_in_forward_are_refused_by_line():
    def loss(out, target):
        return (out * target.to(torch.uint16).float()).sum(), 1

    with pytest.raises(
        ImporterError, match=r"test_unsigned_numbers.py:\d+: .* is of torch.uint16, .* cast it with .to\(torch.int32\)"
    ):
        import_model(nn.Linear(4, 2), loss, (torch.zeros(6, 4), torch.zeros(6, 2)))
