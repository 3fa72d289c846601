# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernel library, called through piper.library_call, against plain PyTorch."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from kernel_harness import Kernel, assert_close

TYPES = {torch.float32: "f32", torch.int64: "i64"}


def type_of(tensor: torch.Tensor) -> str:
    return "tensor<" + "".join(f"{n}x" for n in tensor.shape) + TYPES[tensor.dtype] + ">"


def library_call(symbol: str, inputs, outputs, params, scale: float | None = None) -> None:
    """Compiles and runs one call; writes to `outputs`."""
    ins, outs = [type_of(x) for x in inputs], [type_of(x) for x in outputs]
    names = [f"%r{i}" for i in range(len(outs))]
    attributes = f"params = array<i64: {', '.join(map(str, params))}>"
    if scale is not None:
        attributes += f", scale = {scale!r} : f64"
    arguments = [f"%a{i}" for i in range(len(ins))]
    Kernel(f"""
    func.func @call({", ".join(f"{n}: {t}" for n, t in zip(arguments, ins, strict=True))}) -> ({", ".join(outs)}) {{
      {", ".join(names)} = piper.library_call "{symbol}"({", ".join(arguments)}) {{{attributes}}}
          : ({", ".join(ins)}) -> ({", ".join(outs)})
      return {", ".join(names)} : {", ".join(outs)}
    }}""")(inputs, outputs)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "batch, heads, key_heads, queries, keys, dim",
    [(2, 4, 2, 130, 130, 24), (1, 3, 3, 7, 7, 5), (1, 6, 2, 65, 100, 32), (2, 2, 1, 100, 65, 16), (1, 1, 1, 1, 1, 1)],
)
def test_attention(batch, heads, key_heads, queries, keys, dim, causal):
    g = generator()
    q = torch.randn(batch, heads, queries, dim, generator=g, requires_grad=True)
    k = torch.randn(batch, key_heads, keys, dim, generator=g, requires_grad=True)
    v = torch.randn(batch, key_heads, keys, dim, generator=g, requires_grad=True)
    gradient = torch.randn(batch, heads, queries, dim, generator=g)
    scale = 1 / math.sqrt(dim)
    params = [batch, heads, key_heads, queries, keys, dim, int(causal)]

    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    scores = wide[0] @ wide[1].repeat_interleave(heads // key_heads, 1).transpose(-1, -2) * scale
    if causal:
        scores = scores.masked_fill(torch.ones(queries, keys, dtype=torch.bool).triu(1), -math.inf)
    expected = scores.softmax(-1) @ wide[2].repeat_interleave(heads // key_heads, 1)
    expected_gradients = torch.autograd.grad(expected, wide, gradient.double())

    q, k, v = q.detach(), k.detach(), v.detach()
    out, lse = torch.empty_like(q), torch.empty(batch, heads, queries)
    library_call("attention_forward", [q, k, v], [out, lse], params, scale)
    assert_close(out, expected.detach(), 1e-6)
    assert_close(lse, scores.logsumexp(-1).detach(), 1e-6)
    gradients = [torch.empty_like(t) for t in (q, k, v)]
    library_call("attention_backward", [gradient, q, k, v, out, lse], gradients, params, scale)
    for result, wanted, name in zip(gradients, expected_gradients, ("dq", "dk", "dv"), strict=True):
        # With one key, dq and dk are zero up to rounding.
        assert (result - wanted).abs().max() <= 2e-6 * max(wanted.abs().max(), 1.0), name


def test_attention_agrees_with_torch():
    q, k, v = (torch.randn(2, 4, 96, 32, generator=generator()) for _ in range(3))
    out, lse = torch.empty_like(q), torch.empty(2, 4, 96)
    library_call("attention_forward", [q, k, v], [out, lse], [2, 4, 4, 96, 96, 32, 1], 1 / math.sqrt(32))
    assert_close(out, F.scaled_dot_product_attention(q, k, v, is_causal=True), 1e-6)


@pytest.mark.parametrize("padding", [-1, 3])
def test_embedding_backward(padding):
    index = torch.randint(0, 11, (40,), generator=generator())
    gradient = torch.randn(40, 6, generator=generator())
    out = torch.empty(11, 6)
    library_call("embedding_backward", [gradient, index], [out], [40, 6, 11, padding])
    weight = torch.zeros(11, 6, requires_grad=True)
    F.embedding(index, weight, padding_idx=padding if padding >= 0 else None).backward(gradient)
    assert_close(out, weight.grad, 1e-6)


def test_index_put_accumulate():
    base, index = torch.randn(9, 4, generator=generator()), torch.tensor([0, -1, 3, 3, -9])
    value, out = torch.randn(5, 4, generator=generator()), torch.empty(9, 4)
    library_call("index_put_accumulate", [base, index, value], [out], [5, 4, 9])
    assert_close(out, base.index_put((index,), value, accumulate=True), 1e-6)


def test_scatter_add():
    base, source = torch.randn(3, 7, 4, generator=generator()), torch.randn(3, 5, 4, generator=generator())
    index, out = torch.randint(0, 7, (3, 5, 4), generator=generator()), torch.empty(3, 7, 4)
    library_call("scatter_add", [base, index, source], [out], [3, 5, 4, 7])
    assert_close(out, base.scatter_add(1, index, source), 1e-6)


@pytest.mark.parametrize("symbol", ["embedding_backward", "index_put_accumulate", "scatter_add"])
def test_index_out_of_range(symbol):
    index, rows = torch.tensor([1, 99]), torch.ones(2, 3)
    calls = {
        "embedding_backward": ([rows, index], torch.empty(4, 3), [2, 3, 4, -1]),
        "index_put_accumulate": ([torch.zeros(4, 3), index, rows], torch.empty(4, 3), [2, 3, 4]),
        "scatter_add": ([torch.zeros(4), index, torch.ones(2)], torch.empty(4), [1, 2, 1, 4]),
    }
    inputs, out, params = calls[symbol]
    with pytest.raises(RuntimeError, match="expected an index from 0 to 3, got 99"):
        library_call(symbol, inputs, [out], params)


@pytest.mark.parametrize("largest", [True, False])
def test_topk(largest):
    x = torch.randn(5, 20, generator=generator())
    x[0] = torch.arange(20) % 3  # ties
    x[1, 4] = math.nan
    values, indices = torch.empty(5, 6), torch.empty(5, 6, dtype=torch.int64)
    library_call("topk", [x], [values, indices], [5, 20, 6, int(largest), 1])
    order = torch.sort(x, dim=-1, descending=largest, stable=True)
    assert_close(values, order.values[:, :6], 0)
    assert torch.equal(indices, order.indices[:, :6])


@pytest.mark.parametrize("descending", [True, False])
def test_sort(descending):
    x = torch.randn(4, 33, generator=generator())
    x[0], x[1, 4] = torch.arange(33) % 5, math.nan
    values, indices = torch.empty_like(x), torch.empty(4, 33, dtype=torch.int64)
    library_call("sort", [x], [values, indices], [4, 33, int(descending)])
    order = torch.sort(x, dim=-1, descending=descending, stable=True)
    assert_close(values, order.values, 0)
    assert torch.equal(indices, order.indices)


def test_cumsum():
    x = torch.randn(3, 50, 4, generator=generator())
    out = torch.empty_like(x)
    library_call("cumsum", [x], [out], [3, 50, 4])
    assert_close(out, x.cumsum(1), 1e-6)


def test_random_uniform():
    def draw(seed: int, counter: int, stream: int, count: int = 100_003) -> torch.Tensor:
        out = torch.empty(count)
        library_call("random_uniform", [torch.tensor([seed, counter])], [out], [count, stream])
        return out

    x = draw(1, 2, 3)
    assert x.min() >= 0 and x.max() < 1
    assert abs(x.mean() - 0.5) < 0.005 and abs(x.var() - 1 / 12) < 0.005
    assert torch.equal(x, draw(1, 2, 3)) and torch.equal(x[:10], draw(1, 2, 3, 10))
    for other in (draw(2, 2, 3), draw(1, 3, 3), draw(1, 2, 4)):
        assert (x == other).float().mean() < 0.01
    # Known answer of Philox4x32-10 (Random123's kat_vectors) for counter and key zero: 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
    known = torch.tensor([0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8])
    assert torch.equal(draw(0, 0, 0, 4), (known >> 8).float() / 2**24)


def gemm_bf16(a, b, c, transpose_a, transpose_b, accumulate) -> torch.Tensor:
    """c after piper.gemm of bf16 operands [batch, …]; c of float32 or bf16."""
    flags = [
        n
        for n, on in (("transpose_lhs", transpose_a), ("transpose_rhs", transpose_b), ("accumulate", accumulate))
        if on
    ]
    types = [
        "tensor<" + "".join(f"{n}x" for n in t.shape) + {torch.bfloat16: "bf16", torch.float32: "f32"}[t.dtype] + ">"
        for t in (a, b, c)
    ]
    result = torch.empty_like(c)
    Kernel(f"""
    func.func @product(%a: {types[0]}, %b: {types[1]}, %c: {types[2]}) -> {types[2]} {{
      %r = piper.gemm ins(%a, %b : {types[0]}, {types[1]}) outs(%c : {types[2]}) {{{", ".join(flags)}}} -> {types[2]}
      return %r : {types[2]}
    }}""")([a, b, c], [result])  # fmt: skip
    return result


PRODUCTS = [(1, 4, 5, 6), (3, 7, 1, 5), (2, 33, 65, 130), (1, 1, 1, 1), (1, 64, 256, 128)]


def check_products(products=PRODUCTS) -> None:
    for batch, m, n, k in products:
        for transpose_a in (False, True):
            for transpose_b in (False, True):
                for accumulate, dtype in ((False, torch.float32), (True, torch.float32), (False, torch.bfloat16)):
                    a, b = (
                        torch.randn(batch, m, k, generator=generator()),
                        torch.randn(batch, k, n, generator=generator()),
                    )
                    a, b = a.bfloat16(), b.bfloat16()
                    c = torch.randn(batch, m, n, generator=generator()).to(dtype)
                    expected = a.double() @ b.double() + (c.double() if accumulate else 0)
                    shaped = [
                        x.transpose(1, 2).contiguous() if flag else x
                        for x, flag in ((a, transpose_a), (b, transpose_b))
                    ]
                    operands = [x[0] if batch == 1 else x for x in (*shaped, c)]
                    result = gemm_bf16(*operands, transpose_a, transpose_b, accumulate).double().reshape(batch, m, n)
                    # Sums in float32; a bf16 result is rounded once.
                    allowed = 1e-6 * math.sqrt(k) * expected.abs().max() + (
                        2**-8 * expected.abs() if dtype == torch.bfloat16 else 0
                    )
                    assert ((result - expected).abs() <= allowed).all(), (
                        batch,
                        m,
                        n,
                        k,
                        transpose_a,
                        transpose_b,
                        accumulate,
                        dtype,
                    )


def test_bf16_product():
    check_products()


def test_bf16_product_without_instructions_for_it():
    """oneDNN has no bf16 product for AVX2: the kernel multiplies in float32."""
    run = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_kernel_library as t; t.check_products(t.PRODUCTS[:3])"
    )
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(
        [sys.executable, "-c", run, os.path.dirname(__file__)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
