# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled kernels against plain PyTorch: operators, special values, boundary shapes, refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from kernel_harness import Kernel, assert_close, assert_matches, linalg, with_gradients
from piper._mlir._mlir_libs import _piperCodegen
from torch import nn
from torch.func import functional_call

INF, NAN = float("inf"), float("nan")


_GENERATOR = torch.Generator().manual_seed(0)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=_GENERATOR)


def randint(low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=_GENERATOR)


def rms_norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def batch_norm(x, w, b):
    mean, variance = x.mean(0), x.var(0, unbiased=False)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * w + b


def cross_entropy(logits, target):
    return -torch.gather(F.log_softmax(logits, -1), 1, target[:, None]).sum()


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def returned_twice(x):
    y = x * 2
    return y, y


def accumulated(x, y):
    first = x @ y
    return first, first + y @ x


GRADIENT_CASES = {
    "linear": (F.linear, 3, [randn(2, 7, 5), randn(2, 7, 3), randn(5, 3), randn(5)]),
    "rms_norm": (rms_norm, 2, [randn(33, 20), randn(33, 20), randn(20)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (16,), w, b), 3, [randn(40, 16), randn(40, 16), randn(16), randn(16)]),
    "softmax": (lambda x: F.softmax(x, -1), 1, [randn(33, 20), randn(33, 20)]),
    "batch_norm": (batch_norm, 3, [randn(16, 6), randn(16, 6), randn(6), randn(6)]),
    "silu": (F.silu, 1, [torch.ones(4001), torch.linspace(-20, 20, 4001)]),
    "gelu": (F.gelu, 1, [torch.ones(4001), torch.linspace(-8, 8, 4001)]),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), 1, [torch.ones(4001), torch.linspace(-8, 8, 4001)]),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, padding=1), 3, [randn(2, 8, 9), randn(2, 3, 9), randn(8, 3, 3), randn(8)]),
    "conv2d": (lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), 3, [randn(2, 8, 8, 8), randn(2, 3, 8, 8), randn(8, 3, 3, 3), randn(8)]),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), 2, [randn(3, 4, 6), randn(3, 4, 5), randn(3, 6, 5)]),
    "matmul_4d": (lambda a, b: a @ b.transpose(-1, -2), 2, [randn(2, 3, 4, 6), randn(2, 3, 4, 5), randn(2, 3, 6, 5)]),
    "vector_matrix": (lambda a, b: a @ b, 2, [randn(4), randn(4, 5), randn(5)]),
    "dot": (lambda a, b: a @ b, 2, [torch.tensor(2.0), randn(5), randn(5)]),
    "attention": (attention, 3, [randn(2, 3, 7, 8), randn(2, 3, 7, 8), randn(2, 3, 7, 8), randn(2, 3, 7, 8)]),
    "grouped_attention": (attention, 3, [randn(2, 4, 7, 8), randn(2, 4, 7, 8), randn(2, 2, 7, 8), randn(2, 2, 7, 8)]),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENT_CASES)
def test_function_and_gradients(name):
    function, count, arguments = GRADIENT_CASES[name]
    assert_matches(with_gradients(function, count), arguments, tolerance=2e-6)


FORWARD_CASES = {
    "cross_entropy": (cross_entropy, [randn(32, 100), randint(0, 100, 32)]),
    "embedding": (lambda w, i: F.embedding(i, w), [randn(100, 16), randint(0, 100, 4, 8)]),
    "index": (lambda w, i: w[i], [randn(100, 16), randint(-100, 100, 4, 8)]),
    "gather": (lambda x, i: torch.gather(x, 1, i), [randn(10, 16), randint(0, 16, 10, 3)]),
    "bool": (lambda x, y: (x > y, (x > y) & (x > 0), torch.where(x > y, x, y), ~(x > y), (x > y).sum()), [randn(5, 7), randn(5, 7)]),
    "bool_input": (lambda b, x: (x.masked_fill(b, -1.0), ~b, b.float()), [randn(5, 7) > 0, randn(5, 7)]),
    "int64": (lambda a, b: (a + b, a * b, a // 3, a % 5, a.sum(), a < b, a.float(), a.max()), [randint(-9, 9, 6, 7), randint(-9, 9, 6, 7)]),
    "int32": (lambda a: (a + 1, a.long()), [randint(-9, 9, 6, 7).int()]),
    "rank_0": (lambda a, b: (a * b, torch.exp(a)), [torch.tensor(2.0), torch.tensor(3.0)]),
    "argument_returned": (lambda a: (a, a, a + 1), [randn(4, 5)]),
    "returned_twice": (returned_twice, [randn(4, 5)]),
    "used_and_accumulated": (accumulated, [randn(4, 4), randn(4, 4)]),
    "constants": (lambda a: (a + 1, torch.ones(3, 4), torch.zeros(2)), [randn(4, 5)]),
    "mirrored": (lambda a: a * 2 + (a * 2).flip(0), [randn(6, 5)]),
    "views": (lambda a: (a.t().contiguous(), a.reshape(2, 10), a[1:3], a[:, ::2], a.flip(0)), [randn(4, 5)]),
    "concat": (lambda a, b: (torch.cat([a, b]), torch.cat([a, b], -1), torch.stack([a, b], 1)), [randn(4, 5), randn(4, 5)]),
    "pad": (lambda a: F.pad(a, (1, 2, 3, 4), value=2.0), [randn(4, 5)]),
    "index_ops": (lambda a: (torch.arange(10), torch.tril(a), torch.triu(a, 1), torch.eye(3)), [randn(6, 6)]),
    "one_hot": (lambda a: F.one_hot(a, 7), [randint(0, 7, 5)]),
    "conv_groups": (lambda x, w: F.conv2d(x, w, groups=2, stride=2), [randn(2, 4, 8, 8), randn(8, 2, 3, 3)]),
    "pooling": (lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1)), [randn(2, 3, 8, 8)]),
    "empty": (lambda a: (a.sum(0), a * 2), [randn(0, 5)]),
    "float64": (lambda a, b: torch.exp(a @ b), [randn(4, 5).double(), randn(5, 4).double()]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARD_CASES)
def test_function(name):
    function, arguments = FORWARD_CASES[name]
    assert_matches(function, arguments)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rows_of_any_length_are_rounded_and_widened(dtype):
    """LLVM unrolls short rows, and takes the vectors apart whose length is no power of two."""
    rows = [randn(count, length) for count in (1, 3, 10) for length in range(1, 35)]
    rows[-1][0, :3] = torch.tensor([INF, -INF, NAN])
    assert_matches(lambda *x: tuple(row.to(dtype) for row in x), rows)
    narrow = [row.to(dtype) for row in rows]
    assert_matches(lambda *x: tuple(row.float() * 3 for row in x), narrow)
    assert_matches(lambda *x: tuple(F.pad(row.flip(1), (1, 2), value=1.0) for row in x), narrow)


@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 1e-2), (torch.float16, 2e-3)])
def test_half_precision(dtype, tolerance):
    arguments = [randn(4, 5).to(dtype), randn(5, 4).to(dtype)]
    assert_matches(lambda a, b: (a @ b, a.float(), a + a, torch.exp(a)), arguments, tolerance)


SPECIAL = torch.cat([torch.linspace(-110, 95, 4001), torch.tensor([INF, -INF, NAN, 0.0, -0.0, 1e-30])])
MATH = {
    "exp": torch.exp, "tanh": torch.tanh, "erf": torch.erf, "sigmoid": torch.sigmoid, "log": torch.log,
    "log1p": torch.log1p, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "sin": torch.sin, "cos": torch.cos,
    "cube": lambda x: x**3, "power": lambda x: x.abs() ** 2.5, "root": lambda x: x.abs() ** 0.5,
    "sincos": lambda x: torch.sin(x) * torch.cos(x), "exp10": lambda x: 10.0**(x / 4), "reciprocal": torch.reciprocal,
    "round": torch.round, "floor": torch.floor, "relu": torch.relu, "softplus": lambda x: F.softplus(x),
}  # fmt: skip


@pytest.mark.parametrize("name", MATH)
def test_math(name):
    assert_matches(MATH[name], [SPECIAL], tolerance=5e-7)


@pytest.mark.parametrize(
    "function, low, high", [(torch.exp, -87.0, 88.7), (torch.tanh, -10.0, 10.0), (torch.erf, -5.0, 5.0)]
)
def test_relative_accuracy(function, low, high):
    x = torch.cat([torch.linspace(low, high, 200_001), torch.logspace(-30, 0, 1000)])
    kernel, y = Kernel(linalg(function, [x])), torch.empty_like(x)
    kernel([x], [y])
    exact = function(x.double())
    assert ((y.double() - exact).abs() / exact.abs().clamp(min=2e-38)).max() < 2 * 2**-23


def test_masked_softmax():
    x = randn(8, 20)
    x[x > 1] = -INF
    x[3] = -INF  # all masked: NaN, as in torch
    x[4, 2], x[5, 3] = NAN, INF
    assert_matches(lambda x: (F.softmax(x, -1), x.amax(-1), x.amin(-1), x.sum(-1), x.max()), [x])
    assert F.softmax(x, -1)[0].isfinite().all()


class Transformer(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, time, dim = x.shape
        q, k, v = (t.view(batch, time, 4, dim // 4).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, time, dim))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def test_transformer_gradients():
    torch.manual_seed(0)
    model = Transformer(32)
    names = [name for name, _ in model.named_parameters()]
    parameters = [p.detach() for p in model.parameters()]

    def forward(x, *values):
        return functional_call(model, dict(zip(names, values, strict=True)), (x,))

    arguments = [randn(2, 16, 32), randn(2, 16, 32), *parameters]
    assert_matches(with_gradients(forward, 1 + len(parameters)), arguments, tolerance=2e-6)


def test_update_in_place():
    text = """
    #id = affine_map<(d0) -> (d0)>
    #scalar = affine_map<(d0) -> ()>
    func.func @sgd(%p: memref<1000xf32>, %m: memref<1000xf32>, %g: tensor<1000xf32>, %lr: tensor<f32>) -> tensor<f32> {
      %gm = bufferization.to_buffer %g read_only : tensor<1000xf32> to memref<1000xf32>
      %lrm = bufferization.to_buffer %lr read_only : tensor<f32> to memref<f32>
      %beta = arith.constant 0.9 : f32
      linalg.generic {indexing_maps = [#id, #scalar, #id, #id], iterator_types = ["parallel"]}
          ins(%gm, %lrm : memref<1000xf32>, memref<f32>) outs(%p, %m : memref<1000xf32>, memref<1000xf32>) {
      ^bb0(%gi: f32, %lri: f32, %pi: f32, %mi: f32):
        %0 = arith.mulf %mi, %beta : f32
        %1 = arith.addf %0, %gi : f32
        %2 = arith.mulf %1, %lri : f32
        %3 = arith.subf %pi, %2 : f32
        linalg.yield %3, %1 : f32, f32
      }
      return %lr : tensor<f32>
    }
    """
    p, m, g, lr = randn(1000), randn(1000), randn(1000), torch.tensor(0.1)
    new_m = m * 0.9 + g
    new_p = p - 0.1 * new_m
    result = torch.empty(())
    kernel = Kernel(text)
    kernel([p, m, g, lr], [result])
    assert_close(p, new_p, 1e-6)
    assert_close(m, new_m, 1e-6)
    assert result == lr
    assert kernel.metadata == {
        "symbol": "sgd",
        "workspace_bytes": 0,
        "inputs": 4,
        "results": 1,
        # A loop over 1000 elements and the copy of one, each as long as 12 multiply-adds.
        "work": 12 * 1001,
        "target_cpu": kernel.metadata["target_cpu"],
        "target_features": kernel.metadata["target_features"],
    }


@pytest.mark.parametrize(
    ("function", "shapes", "work"),
    [
        (lambda a, b: a @ b, [(8, 16), (16, 32)], 8 * 16 * 32),
        (lambda a, b: a.T @ b, [(16, 8), (16, 32)], 8 * 16 * 32),
        (lambda a, b: a @ b.transpose(-1, -2), [(3, 8, 16), (3, 32, 16)], 3 * 8 * 16 * 32),
        # Loops count once they are fused.
        (lambda a, b, c: torch.relu(a * b + c) * b, [(40, 25)] * 3, 12 * 1000),
        # A product of sums is a loop: nothing of the library makes it.
        (lambda a, b: (a * b).sum(-1), [(40, 25)] * 2, 12 * (1000 + 40)),
    ],
)
def test_work(function, shapes, work):
    """Multiply-adds of products, and 12 for each iteration of a loop."""
    kernel = Kernel(linalg(function, [randn(*shape) for shape in shapes]))
    assert kernel.metadata["work"] == work


def test_index_out_of_range_is_reported():
    weight, index, y = randn(10, 4), torch.tensor([3, 10]), torch.empty(2, 4)
    kernel = Kernel(linalg(lambda w, i: F.embedding(i, w), [weight, torch.tensor([3, 9])]))
    with pytest.raises(RuntimeError, match="index must be smaller than dim size"):
        kernel([weight, index], [y])
    assert torch.equal(y[0], weight[3])
    with pytest.raises(RuntimeError, match="index must be larger or equal to 0"):
        kernel([weight, torch.tensor([3, -(2**40)])], [y])


def test_deterministic_bytes():
    text = linalg(with_gradients(rms_norm, 2), [randn(33, 20), randn(33, 20), randn(20)])
    expected = _piperCodegen.compile_object(text)
    with ThreadPoolExecutor(4) as pool:
        assert all(made == expected for made in pool.map(lambda _: _piperCodegen.compile_object(text), range(8)))


def test_lesser_processor():
    x = randn(1000)
    text = linalg(torch.exp, [x])
    kernel, y = Kernel(text, cpu="x86-64", features=""), torch.empty_like(x)
    kernel([x], [y])
    assert_close(y, x.exp(), 3e-7)
    assert kernel.metadata["target_cpu"] == "x86-64"


@pytest.mark.parametrize(
    "text, message",
    [
        ("func.func @f(", "expected"),
        ("func.func private @f()", "expected one public function, got none"),
        ("func.func @f(%x: tensor<?xf32>) { return }", "expected argument 0 to have a static shape"),
        ("func.func @f(%x: tensor<4xf8E4M3FN>) { return }", "expected argument 0 of f32, f64"),
        ("func.func @f(%x: index) { return }", "expected argument 0 to be a ranked tensor or a memref"),
        ('func.func @f(%x: tensor<4xf32>) { "foreign.op"(%x) : (tensor<4xf32>) -> () return }', "unregistered dialect"),
        ("func.func @f(%x: tensor<4xf64>) -> tensor<4xf64> { %y = piper.library_call \"cumsum\"(%x) "
         "{params = array<i64: 1, 4, 1>} : (tensor<4xf64>) -> tensor<4xf64> return %y : tensor<4xf64> }",
         "expected input 0 to have element type f32"),
    ],
)  # fmt: skip
def test_refused(text, message):
    with pytest.raises(RuntimeError, match=message):
        _piperCodegen.compile_object(text)


def test_unknown_processor_is_refused():
    with pytest.raises(RuntimeError, match="expected an x86-64 processor, got 'pdp11'"):
        _piperCodegen.compile_object("func.func @f(%x: tensor<4xf32>) { return }", cpu="pdp11")
