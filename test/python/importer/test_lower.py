# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decomposed functions compute what the captured ones do; all of them lower; what can't is named."""

import re

import pytest
import torch
import torch.nn.functional as F
import zoo
from executor import run_graph
from piper.importer import ImporterError, import_model
from piper.importer import decompositions as rules
from piper.importer.capture import decompose, decomposition_table
from piper.importer.graphs import calls
from piper.importer.library_ops import library_call
from piper.importer.lower import Lowering, lower_program
from torch import nn

TABLE = decomposition_table(rules.OWN, rules.EXTRA, rules.KEPT)
FOREIGN = re.compile(r"\b(torch|torch_c|tm_tensor|ml_program)\.\w+")


@pytest.fixture(scope="module")
def lowering():
    with Lowering(1) as pool:
        yield pool


def example(spec):
    if spec.dtype.is_floating_point:
        return torch.randn(spec.shape)
    return torch.randint(0, 2, spec.shape).to(spec.dtype)


def members(imported):
    return [function for family in imported.families.values() for function in family.members.values()]


@pytest.mark.parametrize("name", zoo.cases())
def test_decomposed_functions_agree(name):
    model, loss_fn, batches, options = zoo.cases()[name]
    for function in members(import_model(model, loss_fn, batches[0], **options)):
        specs = function.operands + function.saved_operands
        values = [example(spec) for spec in specs]
        decomposed = decompose(function.graph, specs, TABLE)
        for got, expected in zip(decomposed(*values), run_graph(function.graph, *values), strict=True):
            assert got.dtype == expected.dtype and got.shape == expected.shape
            scale = expected.double().abs().nan_to_num(0, 0, 0).max() if expected.numel() else 0
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-5 * float(scale), equal_nan=True)


@pytest.mark.parametrize("name", zoo.cases())
def test_everything_lowers(name, lowering):
    model, loss_fn, batches, options = zoo.cases()[name]
    imported = import_model(model, loss_fn, batches[0], **options)
    texts = lower_program([imported], lowering)
    for function in members(imported):
        text = texts[function.name]
        assert not FOREIGN.search(text)
        assert re.findall(r"func\.func (?!private)@(\w+)", text) == [function.name]
        header = re.search(r"func\.func @\w+\((.*?)\) -> ", text).group(1)
        assert header.count("tensor<") == len(function.operands) + len(function.saved_operands)


class Operation(nn.Module):
    """A model around one operation, with a parameter before it so that its backward is there too."""

    def __init__(self, run):
        super().__init__()
        self.weight, self.run = nn.Parameter(torch.randn(6, 5)), run

    def forward(self, x):
        return self.run(x * self.weight)


INDEX = torch.tensor([0, 3, 3, -1])
OPERATIONS = {
    "index": lambda x: x[INDEX],
    "index_two": lambda x: x[torch.tensor([0, 5, 0]), torch.tensor([1, -1, 1])],
    "index_second": lambda x: x[:, INDEX],
    "index_add": lambda x: torch.zeros(6, 5).index_add(0, torch.tensor([1, 1, 0, 5, 2, 1]), x),
    "index_add_columns": lambda x: torch.ones(6, 9).index_add(1, torch.tensor([1, 1, 0, 8, 2]), x, alpha=2),
    "index_put": lambda x: torch.ones(6, 5).index_put((torch.tensor([4, 0]),), x[:2]),
    "index_put_twice": lambda x: x.index_put((torch.tensor([4, 0, 4]),), torch.tensor(2.0)),
    "scatter_twice": lambda x: x * torch.zeros(6, 5).scatter(1, torch.tensor([[1, 3, 1]]).expand(6, 3), 1.0),
    "masked_put": lambda x: x.masked_fill(x > 0.5, 2.0),
    "gather": lambda x: x.gather(1, torch.tensor([[0, 4, 0]]).expand(6, 3)),
    "scatter": lambda x: torch.zeros(6, 7).scatter(1, torch.arange(5).expand(6, 5), x),
    "scatter_add": lambda x: torch.zeros(6, 3).scatter_add(1, (torch.arange(5) % 3).expand(6, 5), x),
    "topk": lambda x: x.topk(2, -1)[0],
    "topk_first_dim": lambda x: x.topk(3, 0, largest=False)[0],
    "sort": lambda x: x.sort(-1, descending=True)[0],
    "cumsum": lambda x: x.cumsum(0),
    "positions": lambda x: x * (x > 0).long().cumsum(1),
    "amax": lambda x: x.max(1)[0],
    "one_hot": lambda x: x * F.one_hot(torch.arange(6) % 5, 5),
    "group_norm": lambda x: F.group_norm(x[:, :4], 2),
    "layer_norm": lambda x: F.layer_norm(x, (5,)),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": F.softplus,
    "pad": lambda x: F.pad(x, (1, 2)),
    "roll": lambda x: x.roll(2, 0),
    "flip": lambda x: x.flip(1),
    "chunked": lambda x: torch.stack(x[:, :4].chunk(2, 1)),
    "einsum": lambda x: torch.einsum("ab,cb->ac", x, x),
    "norm": lambda x: F.normalize(x, dim=-1),
    "std": lambda x: x.std(0),
    "logsumexp": lambda x: x.logsumexp(1),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "prod": lambda x: torch.cumsum(x, 1).tanh().tril(),
    "attention": lambda x: F.scaled_dot_product_attention(*(x.reshape(1, 1, 6, 5),) * 3, is_causal=True),
    "masked_attention": lambda x: F.scaled_dot_product_attention(
        *(x.reshape(1, 1, 6, 5),) * 3, attn_mask=torch.ones(6, 6).tril().bool()
    ),
    "average_pool": lambda x: F.avg_pool1d(x[None], 2),
    "average_pool_ceil": lambda x: F.avg_pool2d(x[None], 2, ceil_mode=True, padding=1, count_include_pad=False),
    "average_pool_divisor": lambda x: F.avg_pool2d(x[None], (3, 2), 2, divisor_override=4),
    "adaptive_pool_3d": lambda x: F.adaptive_avg_pool3d(x.reshape(1, 3, 2, 5), 2),
    "adaptive_max_pool_3d": lambda x: F.adaptive_max_pool3d(x.reshape(1, 3, 2, 5), 2),
    "embedding_by_frequency": lambda x: F.embedding(torch.tensor([0, 3, 3, 1]), x, scale_grad_by_freq=True),
    "embedding_bag_weighed": lambda x: F.embedding_bag(
        torch.tensor([[0, 3], [3, 1]]), x, mode="sum", per_sample_weights=torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    ),
    "embedding_bag_empty": lambda x: F.embedding_bag(torch.tensor([[3, 3], [3, 1]]), x, mode="max", padding_idx=3),
    "cut_off": lambda x: F.pad(x, (-1, 2, 1, -2)),
    "strided": lambda x: x.as_strided((3, 2), (7, 2), 1),
    "strided_twice": lambda x: x.as_strided((3, 4), (5, 0), 2),
    "diagonals": lambda x: torch.cat([x.diagonal(1), x.diagonal(-2), x.diagonal(0, 1, 0)]),
    "running_products": lambda x: x.cumprod(0) * (x * (x > 0)).cumprod(1),
    "running_extremes": lambda x: x.cummax(0)[0] + x.round().cummin(1)[0],
    "middle": lambda x: x.median(0)[0] + x.median() + x.kthvalue(2, 0, keepdim=True)[0],
    "erfc": lambda x: torch.log(torch.erfc(x * 3)),
    "convolution_grouped": lambda x: F.conv1d(x[None], torch.ones(4, 3, 2), stride=2, groups=2),
    "convolution": lambda x: F.conv1d(x[None], torch.ones(3, 6, 2)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name, lowering):
    """Each operation with its backward: gradient as torch's, decomposed and lowered."""
    model, x = Operation(OPERATIONS[name]), torch.randn(6, 5)
    out = model(x)
    weights = torch.randn(out.shape)
    (out * weights).sum().backward()
    imported = import_model(
        model, lambda o, t: ((o * weights).sum(), 1), dict(args=(x,), kwargs={}, target=torch.zeros(6))
    )
    states = {name: state.value.detach() for name, state in imported.states.items()}
    states["x"] = x
    values: list = []
    saved: list = []
    for node in imported.nodes:
        function = imported.member(node, 6)
        operands = [
            values[r.node][r.result] if hasattr(r, "node") else states[r.name.replace("args.0", "x")]
            for r in node.operands
        ]
        operands += [kept for giver, number in node.takes for kept in saved[giver][number]]
        outputs = list(decompose(function.graph, function.operands + function.saved_operands, TABLE)(*operands))
        values.append(outputs[: len(node.results)])
        rest = iter(outputs[len(node.results) :])
        saved.append([[next(rest) for _ in range(count)] for count in node.gives])
    ref = imported.gradients["weight"][0]
    torch.testing.assert_close(values[ref.node][ref.result], model.weight.grad, rtol=1e-5, atol=1e-5)
    for text in lower_program([imported], lowering).values():
        assert not FOREIGN.search(text)


def test_no_one_hot_over_the_vocabulary():
    """Backward of the embedding and of the loss never multiply by a matrix of tokens by classes that they make up
    themselves.
    """
    imported = import_model(zoo.LanguageModel(vocab=101), zoo.token_loss, zoo.tokens(vocab=101))
    symbols = []
    for function in members(imported):
        decomposed = decompose(function.graph, function.operands + function.saved_operands, TABLE)
        symbols += [call.symbol for node in calls(decomposed.graph) if (call := library_call(node))]
        for node in calls(decomposed.graph):
            if node.target is torch.ops.aten.mm.default:
                sources = [operand.target for operand in node.all_input_nodes]
                assert torch.ops.aten.where.self not in sources and torch.ops.aten.eq.Tensor not in sources
    assert sorted(set(symbols)) == ["attention_backward", "attention_forward", "embedding_backward"]


def test_a_check_of_a_constant_leaves_nothing(lowering):
    """F.one_hot's, of a tensor that forward closes over: its value has been checked."""
    table = torch.tensor([0, 3, 3, 1, 4, 2])
    imported = import_model(
        Operation(lambda x: x * F.one_hot(table, 5)), lambda out, target: out.sum(), zoo.regression((5,), (2,))
    )
    assert lower_program([imported], lowering)


def test_a_batch_of_another_dtype_is_told(lowering):
    """Torch's own error for it, "mat1 and mat2 must have the same dtype", does not come where only shapes are traced."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).bfloat16()
    imported = import_model(model, zoo.squared, zoo.regression((4,), (4,)))
    with pytest.raises(
        ImporterError, match="has no lowering for torch.bfloat16 beside torch.float32: the model and the"
    ):
        lower_program([imported], lowering)


def test_every_missing_operation_is_named_with_its_line(lowering):
    model = nn.Sequential(nn.Linear(4, 4))

    def loss(out, target):
        a = torch.linalg.matrix_exp(out[:, None] * out[..., None])
        b = torch.special.i1(out)
        c = torch.special.bessel_j0(out) + torch.special.bessel_j0(out[:1])
        return ((a.sum() + b.sum() + c.sum()), 1)

    imported = import_model(model, loss, zoo.regression((4,), (2,)))
    with pytest.raises(ImporterError) as error:
        lower_program([imported], lowering)
    lines = str(error.value).splitlines()
    assert any("linalg_matrix_exp" in line and "test_lower.py:" in line for line in lines)
    [bessel] = [line for line in lines if "special_bessel_j0" in line]
    assert "test_lower.py:" in bessel and bessel.endswith("has no lowering (2 times)")
    assert any("special_i1" in line and "test_lower.py:" in line for line in lines)
    assert lower_program([import_model(model, zoo.squared, zoo.regression((4,), (4,)))], lowering)


def test_a_missing_operation_of_torchs_modules_is_named_by_the_module(lowering):
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.LPPool1d(3, 1), nn.Linear(4, 2)))
    imported = import_model(model, zoo.squared, zoo.regression((4,), (2,)))
    with pytest.raises(ImporterError, match=r"\n  '1\.0' \(LPPool1d\): 'aten\.avg_pool2d"):
        lower_program([imported], lowering)


def test_all_are_told_and_none_wrongly(lowering):
    """Of training and evaluation; what is checked of one_hot's classes is left out of a function, and is not what fails."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 2)

        def forward(self, x):
            x = x + F.one_hot((x > 0).long()[:, 0], 4)
            return self.a(torch.special.bessel_j0(x) if self.training else torch.special.bessel_y0(x))

    programs = [
        import_model(Both(), zoo.squared, zoo.regression((4,), (2,)), training=training) for training in (True, False)
    ]
    with pytest.raises(ImporterError) as error:
        lower_program(programs, lowering)
    _, *lines = str(error.value).splitlines()
    assert sorted(re.search(r"'aten\.(\w+)", line).group(1) for line in lines) == [
        "special_bessel_j0",
        "special_bessel_y0",
    ]


def test_a_crash_of_the_worker_is_an_error(monkeypatch):
    imported = import_model(nn.Linear(4, 2), zoo.squared, zoo.regression((4,), (2,)))
    with Lowering(1) as pool:
        pool._workers[0]._process.kill()
        with pytest.raises(ImporterError, match="signal 9"):
            lower_program([imported], pool)
        assert lower_program([imported], pool)


def test_an_error_ends_the_workers():
    with pytest.raises(RuntimeError, match="elsewhere"), Lowering(2) as pool:
        processes = [worker._process for worker in pool._workers]
        raise RuntimeError("elsewhere")
    assert all(process.poll() is not None for process in processes)
