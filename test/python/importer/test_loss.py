# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Σ sum / Σ weight over unequal parts is torch's loss of the whole."""

import functools
import inspect
import re

import piper
import pytest
import torch
import torch.nn.functional as F
import zoo
from executor import train
from piper.importer import ImporterError, import_model
from piper.importer.loss import combined, evaluate, loss_terms, settled_form, where_is
from piper.importer.recognizer import LossRecognizer
from torch import nn

WEIGHTS = torch.tensor([0.2, 1.0, 0.7, 2.0, 0.1])


def probabilities(out, target):
    return F.cross_entropy(out, F.softmax(target, -1))


def in_place(loss):
    loss *= 3
    return loss


CLASSES = {
    "multi_margin": lambda o, t: F.multi_margin_loss(o, t, weight=WEIGHTS),
    "cross_entropy": F.cross_entropy,
    "ignored": lambda o, t: F.cross_entropy(o, t, ignore_index=1),
    "weighted": lambda o, t: F.cross_entropy(o, t, weight=WEIGHTS),
    "smoothed": lambda o, t: F.cross_entropy(o, t, WEIGHTS, label_smoothing=0.1),
    "module": nn.CrossEntropyLoss(WEIGHTS, ignore_index=2),
    "nll": lambda o, t: F.nll_loss(F.log_softmax(o, -1), t, weight=WEIGHTS),
    "summed": lambda o, t: F.cross_entropy(o, t, reduction="sum"),
    "pair": lambda o, t: (F.cross_entropy(o, t, reduction="sum"), t.numel()),
}
VALUES = {
    "mse_weighted": lambda o, t: F.mse_loss(o, t, weight=t.abs()),
    "huber_weighted": lambda o, t: F.huber_loss(o, t, weight=t.abs()),
    "gaussian": lambda o, t: F.gaussian_nll_loss(o, t, t.abs() + 0.1),
    "poisson": F.poisson_nll_loss,
    "margin": lambda o, t: F.margin_ranking_loss(o, t, torch.sign(t)),
    "hinge": lambda o, t: F.hinge_embedding_loss(o, torch.sign(t)),
    "cosine": lambda o, t: F.cosine_embedding_loss(o, t, torch.ones(len(o))),
    "triplet": lambda o, t: F.triplet_margin_loss(o, t, -t),
    "multilabel": lambda o, t: F.multilabel_soft_margin_loss(o, (t > 0).float(), WEIGHTS),
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "huber": F.huber_loss,
    "smooth_l1": lambda o, t: F.smooth_l1_loss(o, t, beta=0.5),
    "mean": zoo.squared,
    "bce": lambda o, t: F.binary_cross_entropy_with_logits(o, torch.sigmoid(t)),
    "soft_margin": lambda o, t: F.soft_margin_loss(o, torch.sign(t)),
    "kl": lambda o, t: F.kl_div(F.log_softmax(o, -1), F.softmax(t, -1), reduction="batchmean"),
    "probabilities": probabilities,
    "function": lambda o, t: torch.mean((o - t).abs()),
    "sum": lambda o, t: (o - t).pow(2).sum(),
    "bce_module": nn.BCEWithLogitsLoss(pos_weight=WEIGHTS),
}


@pytest.mark.parametrize("name", [*CLASSES, *VALUES])
def test_parts_combine(name):
    """As plain PyTorch runs them, without a graph."""
    loss_fn = CLASSES.get(name) or VALUES[name]
    out = torch.randn(7, 5)
    target = (
        torch.randint(0, 5, (7,))
        if name in CLASSES
        else torch.rand(7, 5)
        if name == "bce_module"
        else torch.randn(7, 5)
    )
    form = settled(loss_fn, out, target)
    assert form.splittable, form.advice
    parts = [
        loss_terms(loss_fn, o, t, None, len(o), form)[0]
        for o, t in zip(out.split([4, 2, 1]), target.split([4, 2, 1]), strict=False)
    ]
    whole = loss_fn(out, target)
    whole = whole[0] / whole[1] if name == "pair" else whole
    assert torch.allclose(combined(parts), whole, rtol=1e-5)


def settled(loss_fn, out, target, reduction=None):
    """The form by four rows and by two."""
    values = [(n, evaluate(LossRecognizer(), loss_fn, out[:n], target[:n], reduction)) for n in (2, 4)]
    return settled_form(values, where_is(loss_fn))


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda o, t: (o - t).pow(2).mean(0).max(),
        lambda o, t: F.mse_loss(o, t).sqrt(),
        lambda o, t: F.mse_loss(o, t).sqrt_(),
        lambda o, t: F.mse_loss(o, t) * o.std(),
        lambda o, t: F.mse_loss(o, t) / o.sum(),
    ],
    ids=["largest", "root", "root in place", "product", "divided by what has a gradient"],
)
def test_other_scalars_say_what_to_do(loss_fn):
    out, target = torch.randn(7, 5).requires_grad_(), torch.randn(7, 5)
    form = settled(loss_fn, out, target)
    assert not form.splittable and "loss_reduction" in form.advice and "test_loss.py:" in form.advice
    (term,), _ = loss_terms(loss_fn, out, target, None, 7)
    assert term.weight == 1 and torch.equal(term.numerator, loss_fn(out, target))
    form = settled(loss_fn, out, target, "mean_rows")
    (term,), _ = loss_terms(loss_fn, out, target, "mean_rows", 7, form)
    assert form.splittable and torch.allclose(term.numerator / term.weight, loss_fn(out, target)) and term.weight == 7


def test_whole_batches_of_them_are_exact():
    """Also by a truth that knows nothing of how the importer takes a loss apart."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    batch = torch.randn(6, 4), torch.randn(6, 3)
    for loss_fn in (lambda o, t: in_place(F.mse_loss(o, t)), lambda o, t: F.l1_loss(o, t) + o.pow(2).mean()):
        loss_fn(model(batch[0]), batch[1]).backward()
        program = piper.compile(model, loss_fn, batch)
        gradients = program.gradients(*batch)
        program.close()
        for name, parameter in model.named_parameters():
            assert torch.allclose(gradients[name], parameter.grad, rtol=1e-5, atol=1e-7), name
        model.zero_grad()


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda output, target: F.mse_loss(output.sum(0), target.sum(0)),
        lambda output, target: ((output.mean(0) - target.mean(0)) ** 2).mean(),
        lambda output, target: ((output - target) ** 2)[:1].mean(),
        lambda output, target: ((output - target) ** 2)[:2].mean(),
    ],
)
@pytest.mark.parametrize("rows", [[4], [3, 2]])
def test_a_mean_that_does_not_grow_with_the_rows_is_refused(loss_fn, rows):
    """Four outputs, four rows a part: at this number of rows alone the counts fit."""
    batch = (torch.randn(8, 8), torch.randn(8, 4))
    form = import_model(nn.Linear(8, 4), loss_fn, batch, rows=rows).loss
    assert not form.splittable and "does not grow with the rows" in form.advice


@pytest.mark.parametrize(
    "result, message",
    [
        (lambda o, t: o, "shape"),
        (lambda o, t: 3.0, "float"),
        (lambda o, t: (o.sum(), 1, 2), "3 values"),
        (lambda o, t: (o, 1), "scalar"),
        (lambda o, t: (o.sum(), "1"), "expected the weight of the loss to be a number, got str"),
        (lambda o, t: (o.sum(), o.requires_grad_().mean()), "return their sum"),
    ],
)
def test_bad_results(result, message):
    with pytest.raises(ImporterError, match=message):
        loss_terms(result, torch.randn(3, 2), torch.randn(3, 2), None, 3)


def test_reduction_names():
    with pytest.raises(ImporterError, match="mean_rows, sum"):
        loss_terms(zoo.squared, torch.randn(3, 2), torch.randn(3, 2), "mean", 3)
    with pytest.raises(ImporterError, match="does not apply"):
        loss_terms(CLASSES["pair"], torch.randn(3, 5), torch.tensor([0, 1, 2]), "sum", 3)


def test_a_weight_that_torch_would_drop_is_refused():
    weighted = lambda o, t: F.l1_loss(o, t, weight=t.abs())  # noqa: E731
    with pytest.raises(ImporterError, match="l1_loss with a weight"):
        loss_terms(weighted, torch.randn(3, 2), torch.randn(3, 2), None, 3)
    with pytest.raises(ImporterError, match="l1_loss with a weight"):
        inside = nn.Linear(4, 2)
        inside.forward = lambda x: weighted(F.linear(x, inside.weight), torch.ones(6, 2))
        import_model(inside, lambda o, t: (o, 1), zoo.regression((4,), (2,)))


def test_loss_module_with_a_parameter():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.log = nn.Parameter(torch.tensor(0.3))

        def forward(self, out, target):
            return F.mse_loss(out * self.log.exp(), target)

    model, loss_fn, batch = nn.Linear(4, 2), Scaled(), zoo.regression((4,), (2,))
    outcome = train(import_model(model, loss_fn, batch), [batch])
    loss_fn(model(*batch["args"]), batch["target"]).backward()
    assert torch.allclose(outcome.gradients["loss_fn.log"], loss_fn.log.grad, rtol=1e-5)
    assert torch.allclose(outcome.gradients["weight"], model.weight.grad, rtol=1e-5, atol=1e-7)


def test_closed_over_tensors_are_constants():
    imported = import_model(
        nn.Linear(4, 5),
        CLASSES["weighted"],
        dict(args=(torch.randn(6, 4),), kwargs={}, target=torch.randint(0, 5, (6,))),
    )
    constants = [state for state in imported.states.values() if state.kind == "constant"]
    assert len(constants) == 1 and torch.equal(constants[0].value, WEIGHTS)


@pytest.mark.parametrize(
    "loss_fn",
    [
        F.cross_entropy,
        lambda o, t: F.cross_entropy(o, t, ignore_index=1),
        lambda o, t: F.cross_entropy(o, t, reduction="none").mean(),
        lambda o, t: 0.5 * (F.cross_entropy(o, t) + F.cross_entropy(o, t, ignore_index=1)),
        lambda o, t: (F.cross_entropy(o, t, reduction="sum"), len(t)),
    ],
    ids=["mean", "ignored", "rows", "two weights", "pair"],
)
def test_counts_that_bf16_has_no_number_for(loss_fn):
    model = nn.Linear(6, 4).bfloat16()
    x, y = torch.randn(514, 6).bfloat16(), torch.cat([torch.full((257,), 2), torch.arange(257) % 4])
    imported = import_model(model, loss_fn, (x, y), rows=(257,))
    outcome = train(imported, [(x[:257], y[:257]), (x[257:], y[257:])])
    wide = nn.Linear(6, 4)
    wide.load_state_dict(model.state_dict())
    loss = loss_fn(wide(x.float()), y)
    (loss if isinstance(loss, torch.Tensor) else loss[0] / loss[1]).backward()
    # Each addend is rounded to 8 bits, up or down; with a weight of 256 or 258 all gradients would be off by 4e-3.
    errors = [
        (outcome.gradients[name].float() / parameter.grad - 1).flatten() for name, parameter in wide.named_parameters()
    ]
    assert torch.cat(errors).median().abs() < 1.2e-3


def correct(o, t):
    return (o.argmax(-1) == t).float()


@pytest.mark.parametrize("rows", [None, (3, 2)], ids=["whole", "parts"])
@pytest.mark.parametrize(
    "loss_fn, message",
    [
        (lambda o, t: (F.cross_entropy(o, t), correct(o, t).mean()), "the second of the pair .* is a mean"),
        (
            lambda o, t: (F.cross_entropy(o, t).sqrt(), correct(o, t).sum() / len(t)),
            "the second of the pair .* is a mean",
        ),
        (lambda o, t: (F.cross_entropy(o, t), correct(o, t).sum()), "the first of the pair .* is a mean"),
        (lambda o, t: (F.cross_entropy(o, t), len(t)), "the first of the pair .* is a mean"),
    ],
)
def test_a_loss_with_a_metric_is_no_pair(loss_fn, message, rows):
    batch = torch.randn(5, 6), torch.arange(5) % 4
    if rows is None:
        with pytest.raises(ImporterError, match=rf"test_loss.py:\d+: {message}"):
            import_model(nn.Linear(6, 4), loss_fn, batch)
    else:
        form = import_model(nn.Linear(6, 4), loss_fn, batch, rows=rows).loss
        assert not form.splittable and message[:22] in form.advice


def test_a_pair_whose_rows_meet_is_right_for_the_whole_batch():
    def halves(o, t):
        chosen, rejected = o.chunk(2)
        return -F.logsigmoid(chosen - rejected).sum(), len(chosen)

    model, batch = nn.Linear(6, 1), (torch.randn(6, 6), torch.zeros(6))
    outcome = train(import_model(model, halves, batch), [batch])
    total, weight = halves(model(batch[0]), batch[1])
    assert torch.allclose(outcome.loss_sum / outcome.loss_weight, total / weight)


def root(o, t, eps=0.0):
    found = F.mse_loss(o, t)
    return torch.sqrt(found + eps)


class Root(nn.Module):
    def forward(self, o, t):
        found = F.mse_loss(o, t)
        return found**0.5


def larger(o, t):
    found = F.mse_loss(o, t)
    return torch.where(found > 1, found, F.l1_loss(o, t))


NOT_RECOGNISED = {
    "def": (root, 2),
    "module": (Root(), 3),
    "partial": (functools.partial(root, eps=1.0), 2),
    "where": (larger, 2),
    "lambda": (lambda o, t: F.mse_loss(o, t).sqrt(), 0),
    "exp": (lambda o, t: F.mse_loss(o, t).exp() + F.l1_loss(o, t), 0),
    "max": (lambda o, t: torch.max(F.mse_loss(o, t), F.l1_loss(o, t)), 0),
    "max over columns": (lambda o, t: (o - t).pow(2).mean(0).max(), 0),
    "one of many": (lambda o, t: (o - t).pow(2).mean(0).unbind()[0], 0),
    "clamp": (lambda o, t: F.mse_loss(o, t).clamp(max=2), 0),
    "norm": (lambda o, t: (o - t).norm(), 0),
    "abs": (lambda o, t: (o - t).mean().abs(), 0),
}


@pytest.mark.parametrize("rows", [[4], [2]], ids=["whole", "divided"])
@pytest.mark.parametrize("name", NOT_RECOGNISED)
def test_what_is_not_recognised_is_named_by_its_own_line(name, rows):
    loss_fn, down = NOT_RECOGNISED[name]
    form = import_model(nn.Linear(3, 2), loss_fn, (torch.randn(4, 3), torch.randn(4, 2)), rows).loss
    written = loss_fn.func if isinstance(loss_fn, functools.partial) else loss_fn
    code = type(written) if isinstance(written, nn.Module) else written
    assert f"test_loss.py:{inspect.getsourcelines(code)[1] + down})" in form.advice
    assert "return a pair (sum, weight)" in form.advice and "leave the batch undivided" in form.advice


class Scaled(torch.autograd.Function):
    """Whose gradient is not that of its forward."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        return grad * 7


class OwnMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, o, t):
        ctx.save_for_backward(o - t)
        return F.mse_loss(o, t)

    @staticmethod
    def backward(ctx, grad):
        (difference,) = ctx.saved_tensors
        return grad * 3 * difference, None


class Cloned(Scaled):
    @staticmethod
    def forward(ctx, x):
        return x.clone()


@pytest.mark.parametrize(
    "loss_fn",
    [
        lambda o, t: Scaled.apply(F.mse_loss(o, t)),
        lambda o, t: Cloned.apply(F.mse_loss(o, t)),
        lambda o, t: Scaled.apply(o - t).mean(),
        lambda o, t: Cloned.apply(F.mse_loss(o, t)) + F.l1_loss(o, t),
        OwnMean.apply,
    ],
    ids=["a mean", "a copy", "elements", "a summand", "the loss itself"],
)
def test_a_backward_of_the_losses_own_is_what_counts(loss_fn):
    model, batch = nn.Linear(3, 2), (torch.randn(4, 3), torch.randn(4, 2))
    found = train(import_model(model, loss_fn, batch), [batch])
    loss_fn(model(batch[0]), batch[1]).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found.gradients[name], parameter.grad)
    parts = import_model(model, loss_fn, batch, [2])
    if not parts.loss.splittable:
        assert "test_loss.py:" in parts.loss.advice
        return
    found = train(parts, list(zip(*(tensor.split(2) for tensor in batch), strict=True)))
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found.gradients[name], parameter.grad)


@pytest.mark.parametrize(
    "loss_fn, name",
    [
        (F.cross_entropy, "loss_fn torch.nn.functional.cross_entropy"),
        (nn.CrossEntropyLoss(), "loss_fn torch.nn.CrossEntropyLoss"),
        (functools.partial(F.cross_entropy, label_smoothing=0.1), "loss_fn torch.nn.functional.cross_entropy"),
        (lambda o, t: F.cross_entropy(o, t), r".*test_loss.py:\d+"),
    ],
    ids=["function", "module", "partial", "lambda"],
)
def test_a_mean_that_is_declared_a_sum_is_named(loss_fn, name):
    batch = torch.randn(4, 3), torch.arange(4) % 3
    form = import_model(nn.Linear(3, 3), loss_fn, batch, [2], loss_reduction="sum").loss
    assert re.match(f"{name}: the loss declared as a sum is a mean", form.advice) and "reduction='sum'" in form.advice
