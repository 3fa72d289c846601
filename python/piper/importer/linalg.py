# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One function from an aten graph to linalg text, by torch-mlir. Runs in a worker process (lower_worker.py): torch-mlir
can crash the process that calls it.

Library calls are unknown to torch-mlir. They are cut out of the graph (their results become inputs, their operands
outputs), and put back into the lowered function as `piper.library_call` operations.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import fx
from torch_mlir import ir
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.extras.fx_importer import FxImporter
from torch_mlir.passmanager import PassManager

from .graphs import aten, calls
from .library_ops import LibraryCall, library_call

_PIPELINES = (
    "builtin.module(func.func(torch-match-quantized-custom-ops),torchdynamo-export-to-torch-backend-pipeline{extra-library=})",
    "builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline{allow-non-finites=true})",
)


#: Dialects of torch-mlir that are none of MLIR's.
_FOREIGN = ("torch", "torch_c", "tm_tensor", "ml_program")


@dataclass
class _Cut:
    """A library call outside of the graph: `operands` are positions among the graph's outputs, `results` among its
    inputs.
    """

    call: LibraryCall
    operands: list[int]
    results: list[int]


def linalg_text(name: str, module: fx.GraphModule) -> str:
    """The lowered function as a module with one public function `name`. `module` is decomposed (capture.decompose) and
    is changed.

    Raises:
        Exception: whatever torch-mlir says.
    """
    _inline_constants(module)
    inputs, results = _counts(module.graph)
    cuts = _cut_library_calls(module.graph)
    module.recompile()
    context = ir.Context()
    context.allow_unregistered_dialects = True
    torch_dialect.register_dialect(context)
    importer = FxImporter(context=context)
    importer.import_stateless_graph(module.graph, func_name=name)
    with context, ir.Location.unknown():
        for pipeline in _PIPELINES:
            PassManager.parse(pipeline).run(importer.module.operation)
        function = next(op for op in importer.module.body.operations if op.operation.name == "func.func")
        _stitch(function, cuts, inputs, results)
        return _clean_text(importer.module)


def _counts(graph: fx.Graph) -> tuple[int, int]:
    return sum(node.op == "placeholder" for node in graph.nodes), len(graph.output_node().args[0])


def _inline_constants(module: fx.GraphModule) -> None:
    """Numbers that decompositions made as tensors become fills."""
    graph = module.graph
    for node in [n for n in graph.nodes if n.op == "get_attr"]:
        value = getattr(module, node.target)
        if value.numel() != 1:
            raise ValueError(f"a constant of shape {tuple(value.shape)} inside a function")
        with graph.inserting_before(node):
            fill = graph.call_function(aten.full.default, (list(value.shape), value.item()), {"dtype": value.dtype})
        fill.meta = dict(node.meta)
        node.replace_all_uses_with(fill)
        graph.erase_node(node)
    for node in calls(graph):
        if node.target in (aten.lift_fresh_copy.default, aten.detach.default, aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _cut_library_calls(graph: fx.Graph) -> list[_Cut]:
    found = [(node, call) for node in calls(graph) if (call := library_call(node)) is not None]
    output = graph.output_node()
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    last = placeholders[-1] if placeholders else None
    cuts, operands = [], []
    for node, call in found:
        cut = _Cut(call, [], [])
        for part, users in _parts(node):
            with graph.inserting_after(last) if last else graph.inserting_before(next(iter(graph.nodes))):
                last = graph.placeholder(f"call{len(cuts)}_{len(cut.results)}")
            last.meta = {"val": part}
            cut.results.append(len(placeholders))
            placeholders.append(last)
            for user in users:
                user.replace_all_uses_with(last)
                graph.erase_node(user) if user is not node else None
        cuts.append(cut)
    results = list(output.args[0])
    for cut, (node, _) in zip(cuts, found, strict=True):
        for operand in node.args:
            if isinstance(operand, fx.Node):
                cut.operands.append(len(results) + len(operands))
                operands.append(operand)
    output.args = (tuple(results + operands),)
    for node, _ in reversed(found):
        graph.erase_node(node)
    return cuts


def _parts(node: fx.Node) -> list[tuple[torch.Tensor, list[fx.Node]]]:
    """Each tensor that a library call gives, with the nodes that stand for it."""
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return [(value, [node])]
    items = [user for user in node.users if user.target is operator.getitem]
    return [(part, [user for user in items if user.args[1] == index]) for index, part in enumerate(value)]


def _stitch(function: ir.OpView, cuts: list[_Cut], inputs: int, results: int) -> None:
    block = function.regions[0].blocks[0]
    terminator = list(block.operations)[-1]
    arguments = list(block.arguments)
    for cut in cuts:
        attributes = {
            "symbol": ir.StringAttr.get(cut.call.symbol),
            "params": ir.DenseI64ArrayAttr.get(list(cut.call.params)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(cut.operands), 0]),
        }
        if cut.call.scale is not None:
            attributes["scale"] = ir.FloatAttr.get(ir.F64Type.get(), cut.call.scale)
        # Operands are read again each time: they may be results of calls that were put back before.
        operands = [terminator.operands[position] for position in cut.operands]
        with ir.InsertionPoint(terminator):
            op = ir.Operation.create(
                "piper.library_call",
                results=[arguments[p].type for p in cut.results],
                operands=operands,
                attributes=attributes,
            )
        for position, result in zip(cut.results, op.results, strict=True):
            arguments[position].replace_all_uses_with(result)
    values = list(terminator.operands)[:results]
    with ir.InsertionPoint(terminator):
        ir.Operation.create("func.return", operands=values)
    terminator.operation.erase()
    _sort(block)
    for position in reversed(range(inputs, len(arguments))):
        block.erase_argument(position)
    types = ir.FunctionType.get([a.type for a in block.arguments], [v.type for v in values])
    function.attributes["function_type"] = ir.TypeAttr.get(types)


def _sort(block: ir.Block) -> None:
    """Puts definitions before uses, otherwise keeping the order: the calls put back at the end are used further up."""
    operations = [op.operation for op in block.operations]
    *body, terminator = operations
    producer = {result: position for position, op in enumerate(body) for result in op.results}
    placed: set[int] = set()

    def place(position: int) -> None:
        stack = [(position, False)]
        while stack:
            at, ready = stack.pop()
            if at in placed:
                continue
            if ready:
                placed.add(at)
                body[at].move_before(terminator)
                continue
            stack.append((at, True))
            needed = sorted({producer[value] for value in _used(body[at]) if value in producer}, reverse=True)
            stack.extend((other, False) for other in needed if other not in placed)

    for position in range(len(body)):
        place(position)


def _walk(op: ir.Operation) -> Iterator[ir.Operation]:
    yield op
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _walk(inner.operation)


def _used(op: ir.Operation) -> list[ir.Value]:
    return [value for inner in _walk(op) for value in inner.operands]


def _clean_text(module: ir.Module) -> str:
    """The text without what torch-mlir leaves for its own runtime."""
    for op in list(module.body.operations):
        if op.operation.name == "ml_program.global":
            op.operation.erase()
    module.operation.verify()
    foreign = sorted({op.name for op in _walk(module.operation) if op.name.partition(".")[0] in _FOREIGN})
    if foreign:
        raise ValueError(f"it lowers to {', '.join(foreign)}, which MLIR does not know")
    return module.operation.get_asm(use_local_scope=False)
