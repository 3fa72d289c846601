# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the importer makes, run chunk by chunk, gives the numbers of plain PyTorch."""

import copy

import pytest
import torch
import zoo
from executor import train
from piper.importer import ImporterError, annotate, annotate_modules, import_model, saving
from torch import nn


def eager(model, loss_fn, batches):
    """Gradients of the mean of the microbatches' losses, and the buffers afterwards, by plain PyTorch."""
    model, losses = copy.deepcopy(model), []
    for batch in batches:
        loss = loss_fn(model(*batch["args"], **batch["kwargs"]), batch["target"])
        (loss / len(batches)).backward()
        losses.append(loss.detach())
    return torch.stack(losses).mean(), {n: p.grad for n, p in model.named_parameters()}, dict(model.named_buffers())


def check_gradients(got, expected, tolerance=1e-5):
    scale = max(g.abs().max() for g in expected.values() if g is not None)
    for name, gradient in expected.items():
        if gradient is None:
            assert got.get(name) is None, name
            continue
        # A gradient that is zero in exact arithmetic is all rounding: it is measured against the largest one.
        reference = gradient.abs().max() if gradient.abs().max() > 1e-4 * scale else scale
        assert (got[name] - gradient).abs().max() <= tolerance * reference, name


def snapshot(model):
    return {name: tensor.clone() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}


@pytest.mark.parametrize("divided", [False, True], ids=["B", "IW"])
@pytest.mark.parametrize(
    ("name", "staged"),
    [
        pytest.param(name, staged, id=f"{name}-{'stages' if staged else 'blocks'}")
        for name in zoo.cases()
        for staged in ([False, True] if name in zoo.STAGES else [False])
    ],
)
def test_equals_eager(name, staged, divided):
    model, loss_fn, batches, options = zoo.cases()[name]
    if staged:
        annotate_modules(model, {"stage": zoo.STAGES[name]})
    before, random_state = snapshot(model), torch.get_rng_state()
    attributes = [sorted(vars(part)) for part in model.modules()]
    imported = import_model(model, loss_fn, batches[0], divided=divided, **options)
    assert all(p.grad is None for p in model.parameters()) and torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(tensor, before[n]) for n, tensor in snapshot(model).items())
    assert attributes == [sorted(vars(part)) for part in model.modules()]
    outcome = train(imported, batches)
    loss, gradients, buffers = eager(model, loss_fn, batches)
    assert torch.allclose(outcome.loss_sum / outcome.loss_weight, loss, rtol=1e-5)
    check_gradients(outcome.gradients, gradients)
    for buffer, value in outcome.writes.items():
        assert torch.allclose(value, buffers[buffer], rtol=1e-6, atol=1e-7), buffer
    if staged:
        assert {node.tags["stage"] for node in imported.nodes} == set(range(len(zoo.STAGES[name])))


@pytest.mark.parametrize("split", [[3, 3, 1, 1], [5, 3]])
@pytest.mark.parametrize("name", ["language_model", "tied", "masked", "skipping", "uneven", "adapted"])
def test_ragged_microbatches(name, split):
    model, loss_fn, _, options = zoo.cases()[name]
    rows = sum(split)
    whole = {
        "language_model": lambda: zoo.tokens(rows),
        "tied": lambda: zoo.tokens(rows, 11, 5),
        "skipping": lambda: zoo.regression((5,), (3,), rows),
        "uneven": lambda: zoo.regression((4,), (2,), rows),
        "adapted": lambda: zoo.tokens(rows, 9, 5),
    }
    if name == "masked":
        batch = zoo.masked_batch()
        rows, split = 4, [3, 1]
    else:
        batch = whole[name]()
    imported = import_model(model, loss_fn, batch, rows=sorted(set(split)), **options)

    def part(value, index):
        return value.split(split)[index] if isinstance(value, torch.Tensor) and value.shape[0] == rows else value

    batches = [
        dict(
            args=tuple(part(v, i) for v in batch["args"]),
            kwargs={k: part(v, i) for k, v in batch["kwargs"].items()},
            target=part(batch["target"], i),
        )
        for i in range(len(split))
    ]
    outcome = train(imported, batches)
    loss, gradients, _ = eager(model, loss_fn, [batch])
    assert torch.allclose(outcome.loss_sum / outcome.loss_weight, loss, rtol=1e-5)
    check_gradients(outcome.gradients, gradients)


class SequenceFirst(nn.Module):
    """At one row the transposed activation is contiguous already: no copy is made."""

    def __init__(self):
        super().__init__()
        self.f1, self.f2 = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        with annotate("stage"):
            h = torch.tanh(self.f1(x))
        with annotate("stage"):
            return self.f2(h.transpose(0, 1).contiguous()).transpose(0, 1)


def test_one_row_takes_another_path(monkeypatch):
    # Copies are saved, so that at two rows there is something to save which is not there at one.
    monkeypatch.setattr(saving, "CHEAP", saving.CHEAP - {torch.ops.aten.clone.default})
    model, batch = SequenceFirst(), zoo.regression((5, 4), (5, 2), 3)
    alone = [import_model(model, zoo.squared, batch, rows=[rows]) for rows in (2, 1)]
    bundles = [[len(n.operands) for n in imported.nodes] + [n.gives for n in imported.nodes] for imported in alone]
    assert bundles[0] != bundles[1]
    imported = import_model(model, zoo.squared, batch, rows=[2, 1])
    parts = zip(batch["args"][0].split([2, 1]), batch["target"].split([2, 1]), strict=True)
    outcome = train(imported, [dict(args=(x,), kwargs={}, target=t) for x, t in parts])
    check_gradients(outcome.gradients, eager(model, zoo.squared, [batch])[1])
    for family in imported.families.values():
        counts = {(len(f.operands), len(f.saved_operands), len(f.saved_results)) for f in family.members.values()}
        assert len(counts) == 1


def test_programs_that_pass_other_values_are_refused():
    """In place on a view, one row leaves another tensor to the next stage than two do."""
    model = annotate_modules(zoo.Viewed(), {"stage": zoo.STAGES["viewed"]})
    with pytest.raises(ImporterError, match="not the same program for 2 and for 1 rows"):
        import_model(model, zoo.squared, zoo.regression((5, 4), (2,), 3), rows=[2, 1])


def test_weighted_tokens():
    """Microbatches with unequal numbers of valid tokens give the mean over all tokens."""
    model, batch = zoo.LanguageModel(), zoo.tokens(8)
    for row, valid in enumerate([6, 6, 2, 1, 1, 0, 0, 3]):
        batch["target"][row, valid:] = -100
    imported = import_model(model, zoo.token_loss, batch, rows=[2])
    parts = zip(batch["args"][0].split(2), batch["target"].split(2), strict=False)
    outcome = train(imported, [dict(args=(x,), kwargs={}, target=t) for x, t in parts])
    loss, gradients, _ = eager(model, zoo.token_loss, [batch])
    assert outcome.loss_weight == 19 and torch.allclose(outcome.loss_sum / outcome.loss_weight, loss, rtol=1e-5)
    check_gradients(outcome.gradients, gradients)


def products(imported, pass_):
    """Matrix products in the functions that nodes of a pass call."""
    kinds = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.addmm.default)
    graphs = [imported.member(node, imported.rows[0]).graph for node in imported.nodes if node.pass_ == pass_]
    return sum(node.target in kinds for graph in graphs for node in graph.nodes)


def test_divided_backwards_divide_the_work():
    """Nothing waits for W, which has one product per weight matrix; I and W together have the products of B, none twice."""
    model, loss_fn, batches, options = zoo.cases()["language_model"]
    whole, divided = (import_model(model, loss_fn, batches[0], divided=flag, **options) for flag in (False, True))
    passes = [node.pass_ for node in divided.nodes]
    assert {"I", "W"} <= set(passes) and "B" not in passes
    read = {operand.node for node in divided.nodes for operand in node.operands if hasattr(operand, "node")}
    read |= {giver for node in divided.nodes for giver, _ in node.takes}
    assert not any(divided.nodes[index].pass_ == "W" for index in read)
    matrices = sum(parameter.dim() == 2 for name, parameter in model.named_parameters() if "embed" not in name)
    assert products(divided, "W") == matrices
    assert products(divided, "I") + products(divided, "W") == products(whole, "B")


@pytest.mark.parametrize("name", ["language_model", "normed", "convolutional"])
def test_evaluation(name):
    model, loss_fn, batches, options = zoo.cases()[name]
    imported = import_model(model, loss_fn, batches[0], training=False, **options)
    assert (
        model.training
        and not imported.gradients
        and all(node.pass_ == "F" and not any(node.gives) for node in imported.nodes)
    )
    outcome = train(imported, batches[:1])
    loss, _, _ = eager(model.eval(), loss_fn, batches[:1])
    assert torch.allclose(outcome.loss_sum / outcome.loss_weight, loss, rtol=1e-5)
