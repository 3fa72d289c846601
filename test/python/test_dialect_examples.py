# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documentation is true: every example in dialect/*.td parses and verifies, and every op has all parts of it."""

import pathlib
import re
import textwrap
from collections import Counter
from dataclasses import dataclass

import pytest
from piper._mlir import ir
from piper._mlir.passmanager import PassManager

DIALECT = pathlib.Path(__file__).parents[2] / "dialect"

# What the examples name and do not define themselves. A symbol that an example defines replaces the one here.
SYMBOLS = """
piper.mesh @mesh ["pp", "dp"] [2, 2]
piper.stream @compute
piper.stream @pp
piper.stream @dp
piper.state @"a.weight" : tensor<64x64xf32> parameter trainable ["a.weight"]
piper.state @"a.bias" : tensor<64xf32> parameter trainable ["a.bias"]
piper.state @"bn.mean" : tensor<64xf32> buffer ["bn.mean"]
piper.optimizer @group0 "sgd" slots [] scalars ["lr"] config {}
piper.bucket @bucket0 [@"a.weight", @"a.bias"] offsets [0, 4096] elements 4160 padded 4160 ranks [0, 1] optimizer @group0 {shard_optimizer}
func.func private @block_F_rows4(tensor<4x64xf32>, tensor<64x64xf32>) -> (tensor<4x64xf32>, tensor<4x64xf32>, tensor<64x64xf32>, tensor<4xf32>)
func.func private @block_F_rows3(tensor<3x64xf32>, tensor<64x64xf32>) -> (tensor<3x64xf32>, tensor<3x64xf32>, tensor<64x64xf32>, tensor<3xf32>)
func.func private @sums_member() -> (tensor<f32>, tensor<f32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64xf32>)
piper.chunk @sums B operands [] results [1, 1, 1, 1, 1] [{binding = {rows = 1}, function = @sums_member}]
piper.chunk @block_F F operands [1, 1] results [1, 3] [{binding = {rows = 4}, function = @block_F_rows4}, {binding = {rows = 3}, function = @block_F_rows3}]
""".strip().splitlines()
VALUES = """
%x = piper.input "x" 100 split : tensor<?x64xf32>
%mean = piper.input "mean" 103 : tensor<64xf32>
%flat = piper.input "flat" 108 : tensor<4160xf32>
%shard = piper.input "shard" 109 : tensor<2080xf32>
%both = piper.input "both" 110 : tensor<2xf32>
%w = piper.read @"a.weight" : tensor<64x64xf32>
""".strip()
MADE = """
%y_made, %kept, %t_made = piper.compute @block_F(%x, %w) F {} on [2, 3] : (tensor<?x64xf32>, tensor<64x64xf32>) -> (tensor<?x64xf32>, !piper.bundle)
%loss, %weight, %gw0, %gw1, %gb, %t_sums = piper.compute @sums() B {} on [2, 3] : () -> (tensor<f32>, tensor<f32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64xf32>)
%sum, %t_sum = piper.accumulate @"a.weight" (%gw0) on [3] : tensor<64x64xf32> -> tensor<64x64xf32>
""".strip()
KERNEL_ARGUMENTS = (
    "%x: tensor<8x4xf32>, %w: tensor<16x4xf32>, %init: tensor<8x16xf32>, "
    "%q: tensor<2x4x8x16xf32>, %k: tensor<2x4x8x16xf32>, %v: tensor<2x4x8x16xf32>"
)
PLAN_TOP = {"communicator", "kernel", "state", "input", "scalar", "output"}
COMMUNICATORS = "dp_stream.0 gather_stream.0 comm.0 ep.0 group0".split()


@dataclass
class Op:
    file: str
    name: str
    text: str

    @property
    def example(self) -> str:
        found = re.search(r"```mlir\n(.*?)```", self.text, re.DOTALL)
        return textwrap.dedent(found.group(1)) if found else ""


def _ops() -> list[Op]:
    """Every definition of an operation, with its text up to the next definition."""
    ops = []
    for path in sorted(DIALECT.glob("*Ops.td")):
        for definition in re.split(r"\n(?=def |class )", path.read_text()):
            named = re.match(r"def Piper_\w+Op\b", definition)
            mnemonic = re.search(r'<\s*"([a-z_.]+)"', definition)
            if named and mnemonic:
                ops.append(Op(path.name, mnemonic.group(1), definition))
    return ops


OPS = _ops()


def _symbols_for(example: str) -> str:
    defined = set(re.findall(r'^piper\.\w+ (@"[^"]+"|@[\w.]+)', example, re.MULTILINE))
    singletons = {kind for kind in ("piper.mesh", "piper.strategy") if re.search(rf"^{kind} ", example, re.MULTILINE)}
    lines = []
    for line in SYMBOLS:
        symbol = re.search(r'@"[^"]+"|@[\w.]+', line).group(0)
        if symbol not in defined and line.split()[0] not in singletons:
            lines.append(line)
    return "\n".join(lines)


def _graph(example: str) -> str:
    end = "" if "piper.return" in example else "piper.return %both : tensor<2xf32>"
    return f"piper.graph @step rows 16 {{\n{VALUES}\n{MADE}\n{example}\n{end}\n}}"


def _plan(op: Op) -> str:
    communicators = "\n".join(f"piper.plan.communicator @{name} [[0, 1]]" for name in COMMUNICATORS)
    before = f"{communicators}\npiper.plan.communicator @pp_stream.p2p0 [[0, 1], [2, 3]]\n"
    streams = "\n".join(
        f"piper.plan.stream @{name}" for name in "compute pp_stream dp_stream gather_stream comm ep".split()
    )
    kind = op.name.removeprefix("plan.")
    if kind in PLAN_TOP:
        others = "\n".join(
            f"piper.plan.communicator @{name} [[0, 1]]" for name in COMMUNICATORS if f"@{name}" not in op.example
        )
        return f"{others}\n{op.example}"
    recorded = "piper.plan.record 3 on @compute\n" if kind == "wait" else ""
    body = {"plan": "", "stream": op.example, "entry": f"{streams}\n{op.example}"}.get(
        kind, f'{streams}\npiper.plan.entry "step" {{\n{recorded}{op.example}\n}}'
    )
    return f"{before}piper.plan @class0 ranks [0, 1] arena 65536 state 1048576 scalar 64 peak 65536 events 4 {{\n{body}\n}}"


def _module(op: Op) -> str:
    """A whole module around the example of an operation."""
    if op.file == "PiperPlanOps.td":
        return _plan(op)
    if op.file == "PiperKernelOps.td":
        return f"func.func @example({KERNEL_ARGUMENTS}) {{\n{op.example}\nreturn\n}}"
    if op.file == "PiperSymbolOps.td" or op.name in ("graph", "strategy"):
        return f"{_symbols_for(op.example)}\n{op.example}"
    if op.file == "PiperDirectiveOps.td":
        return f"{_symbols_for('')}\npiper.strategy @strategy {{\n{op.example}\n}}"
    return f"{_symbols_for('')}\n{_graph(op.example)}"


def _is_self_contained(op: Op) -> bool:
    return "..." not in op.example


def test_finds_the_ops():
    names = {op.name for op in OPS}
    assert {"mesh", "compute", "all_reduce", "recv", "order", "graph", "return"} <= names
    assert sum(_is_self_contained(op) for op in OPS) >= len(OPS) - 1


@pytest.mark.parametrize("op", [op for op in OPS if _is_self_contained(op)], ids=lambda op: op.name)
def test_example_parses_and_uses_the_op(op):
    assert f"piper.{op.name}" in op.example
    with ir.Context():
        module = ir.Module.parse(_module(op))
        assert module.operation.verify()
        assert f"piper.{op.name}" in str(module)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_documentation_is_complete(op):
    assert re.search(r'let summary = "[^"]+"', op.text)
    description = re.search(r"let description = \[\{(.*?)\}\];", op.text, re.DOTALL).group(1)
    before, _, after = description.partition("Example:")
    # What an action of a plan does stands in its summary and in runtime/plan/Plan.h.
    assert before.split() or op.file == "PiperPlanOps.td", "semantics are missing"
    constraints = after.partition("Constraints:")[2]
    assert re.search(r"^\s+- \S", constraints, re.MULTILINE), "the list of constraints is missing"


@pytest.mark.parametrize("op", ["all_reduce", "pack"])
def test_a_wrong_example_is_found(op):
    op = next(candidate for candidate in OPS if candidate.name == op)
    broken = Op(op.file, op.name, op.text.replace("tensor<4160xf32>", "tensor<4161xf32>", 1))
    with ir.Context(), pytest.raises(ir.MLIRError):
        ir.Module.parse(_module(broken))


def _count_ops(module: ir.Module) -> Counter[str]:
    names: Counter[str] = Counter()

    def visit(op: ir.Operation) -> ir.WalkResult:
        names[op.name] += 1
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return names


def test_readme_shows_what_scheduling_makes():
    texts = re.findall(r"```mlir\n(.*?)```", (DIALECT / "README.md").read_text(), re.DOTALL)
    with ir.Context():
        imported, scheduled = (ir.Module.parse(text) for text in texts)
        PassManager.parse("builtin.module(piper-schedule-pipeline)").run(imported.operation)
        # Two valid orders may differ; what there is to order may not.
        assert _count_ops(imported) == _count_ops(scheduled)
