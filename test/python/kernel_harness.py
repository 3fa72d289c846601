# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles a function to an object and runs it on torch tensors, for tests against plain PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import torch
from piper import _runtime
from piper._mlir._mlir_libs import _piperCodegen
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

aten = torch.ops.aten
_DECOMPOSED = [
    aten._softmax, aten._softmax_backward_data, aten._log_softmax, aten._log_softmax_backward_data, aten.silu,
    aten.silu_backward, aten.gelu, aten.gelu_backward, aten.native_layer_norm, aten.native_layer_norm_backward,
    aten.select_backward, aten.slice_backward, aten._unsafe_view, aten.nll_loss_forward,
]  # fmt: skip


def linalg(function: Callable, arguments: Sequence[torch.Tensor]) -> str:
    """The function as linalg on tensors, by torch-mlir."""
    from torch_mlir import fx
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    table = {**get_decomposition_table(), **get_decompositions(_DECOMPOSED)}
    # Their decompositions end in operators that torch-mlir does not know.
    table = {op: rule for op, rule in table.items() if "rsqrt" not in str(op) and "squeeze" not in str(op)}
    graph = make_fx(function, decomposition_table=table, tracing_mode="fake")(*arguments)
    for node in list(graph.graph.nodes):
        if node.op == "call_function" and node.target in (aten.detach.default, aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    module = fx.stateless_fx_import(graph, output_type="raw")
    return str(fx._module_lowering(False, False, fx.OutputType.get("linalg-on-tensors"), module))


def with_gradients(function: Callable, count: int) -> Callable:
    """`(g, *x) -> (y, dx_0, …)`: the function, and the gradients of its first `count` arguments."""

    def run(gradient, *arguments):
        leaves = [x.detach().requires_grad_(i < count) for i, x in enumerate(arguments)]
        with sdpa_kernel(SDPBackend.MATH):
            y = function(*leaves)
        return (y.detach(), *torch.autograd.grad(y, leaves[:count], gradient))

    return run


class Kernel:
    """One compiled kernel."""

    def __init__(self, text: str, **options):
        code, metadata = _piperCodegen.compile_object(text, **options)
        self.metadata = json.loads(metadata)
        self._object = _runtime.KernelObject(code)

    def __call__(self, arguments: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
        """Writes to `results`; memory that the kernel must fill holds garbage before."""
        assert len(arguments) == self.metadata["inputs"] and len(results) == self.metadata["results"]
        for tensor in results:
            tensor.view(torch.uint8 if tensor.dim() else tensor.dtype).fill_(0x7F)
        size = self.metadata["workspace_bytes"]
        workspace = torch.full((size + 64,), 0xFF, dtype=torch.uint8)
        aligned = workspace.data_ptr() + -workspace.data_ptr() % 64 if size else 0
        addresses = [tensor.data_ptr() for tensor in (*arguments, *results)]
        self._object.launch(self.metadata["symbol"], [*addresses, aligned])


def assert_matches(function: Callable, arguments: Sequence[torch.Tensor], tolerance: float = 1e-6) -> None:
    """The compiled function's results equal PyTorch's: integers exactly, floats within `tolerance` of the largest."""
    arguments = [x.contiguous() for x in arguments]
    expected = function(*arguments)
    expected = expected if isinstance(expected, tuple) else (expected,)
    kept = [x.clone() for x in arguments]
    results = [torch.empty(x.shape, dtype=x.dtype) for x in expected]
    Kernel(linalg(function, arguments))(arguments, results)
    for index, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        assert_close(result, wanted, tolerance, f"result {index}")
    for argument, before in zip(arguments, kept, strict=True):
        assert torch.equal(argument.nan_to_num(), before.nan_to_num()), "an input was written"


def assert_close(result: torch.Tensor, wanted: torch.Tensor, tolerance: float, name: str = "result") -> None:
    if not wanted.is_floating_point():
        assert torch.equal(result, wanted), f"{name}: {result} != {wanted}"
        return
    result, wanted = result.double(), wanted.double()
    assert torch.equal(result.isnan(), wanted.isnan()), f"{name}: other elements are NaN"
    assert torch.equal(result[wanted.isinf()], wanted[wanted.isinf()]), f"{name}: infinities differ"
    finite = wanted.isfinite()
    if finite.any():
        error = (result[finite] - wanted[finite]).abs().max()
        assert error <= tolerance * wanted[finite].abs().max(), f"{name}: error {error}"
