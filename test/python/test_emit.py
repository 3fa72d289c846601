# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The imported module: what it says, that the dialect's verifiers accept it, and that it is the same every time."""

import piper
import pytest
import torch
from piper import emit, optimizers
from piper.importer import import_model
from piper.phases import private_function
from piper.rows import part_rows
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x, scale):
        with piper.annotate("stage"):
            h = F.relu(self.norm(self.a(x)))
        with piper.annotate("stage"):
            return self.b(h) * scale + torch.tensor([1.0, 2.0, 3.0, 4.0 if self.training else 5.0])


def graphs(rows):
    torch.manual_seed(0)
    model = Model()
    batch = (torch.randn(10, 8), torch.randn(4), torch.randint(4, (10,)))
    training = import_model(model, F.cross_entropy, batch, rows=rows)
    evaluation = import_model(model, F.cross_entropy, batch, rows=rows, training=False)
    evaluation = emit.with_own_constants(evaluation, training, "evaluate.")
    return model, [emit.Graph("step", 10, training), emit.Graph("evaluate", 10, evaluation)]


def declarations(found):
    """Functions without bodies."""
    members = (f for g in found for family in g.imported.families.values() for f in family.members.values())

    def types(specs):
        return ", ".join(emit.tensor_type(spec.shape, spec.dtype) for spec in specs)

    return {
        f.name: f"func.func private @{f.name}({types(f.operands + f.saved_operands)}) -> ({types(f.results + f.saved_results)})"
        for f in members
    }


def module(rows, strategy):
    model, found = graphs(rows)
    names = {id(state.value): state.name for state in emit.states_of(found).values() if state.trainable}
    groups = optimizers.read(torch.optim.SGD(model.parameters(), lr=0.1), names)
    return emit.module_text(found, declarations(found), groups, strategy)


@pytest.fixture(scope="module")
def ragged():
    return module([3, 2], piper.strategies.pipeline(piper.Mesh(pp=2), microbatches=4))


def test_the_dialect_accepts_it(ragged):
    from piper._mlir import ir

    with ir.Context():
        assert ir.Module.parse(ragged).operation.verify()


def test_rows_are_open_and_all_else_is_fixed(ragged):
    assert '%input0 = piper.input "args.0" 0 split : tensor<?x8xf32>' in ragged
    assert '= piper.input "args.1" 1 : tensor<4xf32>' in ragged
    assert "binding = {rows = 3 : i64}" in ragged and "binding = {rows = 2 : i64}" in ragged
    updates = [line for line in ragged.splitlines() if "piper.update" in line]
    assert len(updates) == 6 and not any("?" in line for line in updates)


def test_buffers_are_written_by_the_step_only(ragged):
    step, evaluate = ragged.split("piper.graph @evaluate")
    assert step.count("piper.write @norm.running_mean") == 1
    assert "piper.write" not in evaluate and "piper.update" not in evaluate and " B {" not in evaluate


def test_the_same_text_every_time(ragged):
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2), microbatches=4)
    again = module([3, 2], strategy)

    def body(text):
        return text.split("piper.strategy")[0]

    assert body(again) == body(ragged)


def test_constants_of_the_two_graphs_stay_apart():
    _, (step, evaluate) = graphs([10])
    mine, other = ({n: s for n, s in g.imported.states.items() if s.kind == "constant"} for g in (step, evaluate))
    values = {name: state.value.tolist() for name, state in {**mine, **other}.items()}
    assert [1.0, 2.0, 3.0, 4.0] in values.values() and [1.0, 2.0, 3.0, 5.0] in values.values()


@pytest.mark.parametrize(
    "rows, replicas, microbatches",
    [(16, 1, 1), (10, 1, 4), (7, 2, 1), (16, 2, 8), (11, 3, 2), (5, 1, 5)],
)
def test_part_rows_are_those_of_tensor_split(rows, replicas, microbatches):
    parts = [m for r in torch.arange(rows).tensor_split(replicas) for m in r.tensor_split(microbatches)]
    assert part_rows(rows, replicas, microbatches) == sorted({len(part) for part in parts}, reverse=True)


@pytest.mark.parametrize("rows, replicas, microbatches", [(3, 2, 2), (7, 2, 4)])
def test_empty_parts_are_refused(rows, replicas, microbatches):
    with pytest.raises(piper.UsageError, match="expected at least one row per microbatch"):
        part_rows(rows, replicas, microbatches)


def test_data_beside_a_module_move_into_its_function():
    text = """
func.func @constant() -> tensor<2xi64> {
  %0 = arith.constant dense_resource<table> : tensor<2xi64>
  return %0 : tensor<2xi64>
}
{-#
  dialect_resources: { builtin: { table: "0x080000000100000000000000FFFFFFFFFFFFFFFF" } }
#-}
"""
    assert "dense<[1, -1]> : tensor<2xi64>" in private_function(text)
