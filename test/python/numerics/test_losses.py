# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled programs of losses whose summands have different weights, and of models that compute their own, on uneven parts."""

import piper
import pytest
import torch
import torch.nn.functional as F
from piper.importer import ImporterError
from torch import nn

SGD = {"lr": 0.1}


def worst(got, want):
    assert got.keys() == want.keys()
    return max(((got[n] - want[n]).abs().max() / want[n].abs().max()).item() for n in want)


class OwnLoss(nn.Module):
    """As models of transformers: labels that are -100 do not count; without labels there is no loss."""

    def __init__(self):
        super().__init__()
        self.embed, self.middle, self.head = nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 11)

    def forward(self, input_ids, labels=None, attention_mask=None):
        logits = self.head(torch.tanh(self.middle(self.embed(input_ids))))
        loss = None
        if labels is not None:
            shifted = F.pad(labels, (0, 1), value=-100)[..., 1:]
            loss = F.cross_entropy(logits.flatten(0, 1), shifted.flatten(), ignore_index=-100, reduction="mean")
        return {"loss": loss, "logits": logits}


def tokens():
    ids = torch.randint(0, 11, (7, 5))
    labels = ids.clone()
    labels[0, :4], labels[3, 2:] = -100, -100
    return {"input_ids": ids, "labels": labels}


def test_a_model_that_computes_its_own_loss(tmp_path):
    torch.manual_seed(0)
    model, batch = OwnLoss(), tokens()
    piper.annotate_modules(model, {"stage": [["embed", "middle"], ["head"]]})
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2, dp=2), schedule="1f1b", microbatches=2, zero=2)
    optimizer = torch.optim.SGD(model.parameters(), **SGD)
    program = piper.compile(model, batch=batch, strategy=strategy, optimizer=optimizer, progress=False)
    loss = model(**batch)["loss"]
    loss.backward()
    want = {name: p.grad.clone() for name, p in model.named_parameters()}
    assert worst(program.gradients(**batch), want) < 1e-5
    assert worst(program.gradients(batch), want) < 1e-5
    assert program.evaluate(batch).item() == pytest.approx(loss.item(), rel=1e-6)
    program.save(tmp_path / "saved")
    assert program.step(batch["input_ids"], batch["labels"]).item() == pytest.approx(loss.item(), rel=1e-6)
    optimizer.step()
    assert worst(program.state_dict(), {n: p.detach() for n, p in model.named_parameters()}) < 1e-5
    with pytest.raises(piper.UsageError, match="takes no target"):
        program.step(dict(kwargs=batch, target=batch["labels"]))
    program.close()
    again = piper.load(tmp_path / "saved")
    assert again.step(**batch).item() == pytest.approx(loss.item(), rel=1e-6)
    again.close()


class OtherInEvaluation(nn.Module):
    """A term that only training has, or only evaluation; beside a mean over labels that count it wants another weight."""

    def __init__(self, when):
        super().__init__()
        self.body, self.head, self.when = nn.Linear(6, 8), nn.Linear(8, 4), when

    def forward(self, x, labels):
        logits = self.head(torch.tanh(self.body(x)))
        loss = F.cross_entropy(logits, labels, ignore_index=2)
        return loss + 0.1 * logits.pow(2).mean() if self.training == self.when else loss


@pytest.mark.parametrize("when", [True, False])
def test_a_loss_that_is_made_otherwise_in_eval_mode(when):
    torch.manual_seed(0)
    model = OtherInEvaluation(when)
    batch = {"x": torch.randn(7, 6), "labels": torch.tensor([0, 1, 2, 3, 2, 1, 2])}
    strategy = piper.strategies.data_parallel(piper.Mesh(dp=2))
    program = piper.compile(model, batch=batch, strategy=strategy, progress=False)
    loss = model(**batch)
    loss.backward()
    assert worst(program.gradients(**batch), {name: p.grad for name, p in model.named_parameters()}) < 1e-5
    assert program.evaluate(batch).item() == pytest.approx(model.eval()(**batch).item(), rel=1e-6)
    program.close()


class Contrastive(nn.Module):
    """As CLIP: each image is compared with every text."""

    def __init__(self):
        super().__init__()
        self.image, self.text = nn.Linear(4, 3), nn.Linear(5, 3)

    def forward(self, image, text):
        scores = F.normalize(self.image(image), dim=-1) @ F.normalize(self.text(text), dim=-1).t()
        own = torch.arange(len(scores))
        return {"loss": (F.cross_entropy(scores, own) + F.cross_entropy(scores.t(), own)) / 2}


def test_rows_that_meet_in_a_models_own_loss():
    torch.manual_seed(0)
    model, batch = Contrastive(), {"image": torch.randn(8, 4), "text": torch.randn(8, 5)}
    strategy = piper.strategies.data_parallel(piper.Mesh(dp=2))
    with pytest.raises(piper.UsageError, match=r"the loss \(.*test_losses\.py:\d+\).*can't be combined"):
        piper.compile(model, batch=batch, strategy=strategy, progress=False)
    # By their rows they are divided, and that is the loop over parts.
    rows = {"kwargs.image": 0, "kwargs.text": 0}
    with pytest.warns(piper.CoupledRowsWarning, match=r"the loss of the model"):
        program = piper.compile(model, batch=batch, strategy=strategy, batch_dims=rows, progress=False)
    losses = [model(**{name: value[part] for name, value in batch.items()})["loss"] for part in (slice(4), slice(4, 8))]
    (sum(losses) / 2).backward()
    assert worst(program.gradients(**batch), {name: p.grad for name, p in model.named_parameters()}) < 1e-5
    program.close()


@pytest.mark.parametrize("output", [lambda x: x, lambda x: {"logits": x}, lambda x: (x.mean(), x)])
def test_models_without_a_loss_of_their_own_are_refused(output):
    model = nn.Linear(4, 4)
    model.forward = lambda x: output(F.linear(x, model.weight))
    with pytest.raises(ImporterError, match=r"without loss_fn the model has to give its own loss.*labels"):
        piper.compile(model, None, (torch.randn(4, 4),), progress=False)
    with pytest.raises(piper.UsageError, match="expected an example of the global batch"):
        piper.compile(model, F.mse_loss)


class Weighted(nn.Module):
    """Class weights in a buffer, targets that are ignored, a learned factor, and a penalty of every row."""

    def __init__(self):
        super().__init__()
        self.classes = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0, 4.0]), ignore_index=2)
        self.log = nn.Parameter(torch.tensor(0.3))

    def forward(self, output, target):
        loss = torch.exp(-self.log) * self.classes(output, target) + self.log
        mask = (target != 1).float()
        masked = (output.pow(2).sum(-1) * mask).sum() / mask.sum().clamp(min=1)
        return loss + 0.1 * masked + 0.01 * output.pow(2).mean() - 0.3


def test_summands_with_different_weights(tmp_path):
    torch.manual_seed(0)
    model, loss_fn = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)), Weighted()
    piper.annotate_modules(model, {"stage": [["0"], ["2"]]})
    x, y = torch.randn(7, 6), torch.tensor([0, 1, 2, 3, 3, 1, 0])
    strategy = piper.strategies.pipeline(piper.Mesh(pp=2, dp=2), schedule="zb_h1", microbatches=2, zero=1)
    optimizer = torch.optim.SGD([*model.parameters(), *loss_fn.parameters()], **SGD)
    program = piper.compile(model, loss_fn, (x, y), strategy=strategy, optimizer=optimizer, progress=False)
    for target in (y, y.flip(0), torch.tensor([1, 1, 1, 1, 1, 1, 0])):
        loss = loss_fn(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        want = {name: p.grad.clone() for name, p in model.named_parameters()}
        got = program.gradients(x, target)
        assert torch.allclose(got.pop("loss_fn.log"), loss_fn.log.grad, rtol=1e-5)
        assert worst(got, want) < 1e-5
        assert program.evaluate(x, target).item() == pytest.approx(loss.item(), rel=1e-5)
    before = program.state_dict()
    # Nothing counts for one of the summands: PyTorch's loss is no number, and the step is skipped.
    nothing = torch.full((7,), 2)
    assert torch.isnan(loss_fn(model(x), nothing)) and torch.isnan(program.step(x, nothing))
    assert all(torch.equal(value, before[name]) for name, value in program.state_dict().items())
    # Class weights that are loaded count from then on.
    loss_fn.classes.weight.copy_(torch.tensor([4.0, 3.0, 2.0, 1.0]))
    program.save(tmp_path / "saved")
    program.close()
    again = piper.load(tmp_path / "saved")
    again.write_states({"loss_fn.classes.weight": loss_fn.classes.weight})
    assert again.evaluate(x, y).item() == pytest.approx(loss_fn(model(x), y).item(), rel=1e-5)
    again.close()


def test_a_weight_that_the_model_computes_can_stand_alone_only():
    torch.manual_seed(0)
    model, (x, y) = nn.Linear(6, 4), (torch.randn(6, 6), torch.randn(6, 4))
    strategy = piper.strategies.data_parallel(piper.Mesh(dp=2), microbatches=2)

    def gated(output, target):
        gate = (output.detach() > 0).float()
        return ((output - target).pow(2) * gate).sum() / gate.sum()

    program = piper.compile(model, gated, (x, y), strategy=strategy, progress=False)
    loss = gated(model(x), y)
    loss.backward()
    assert worst(program.gradients(x, y), {name: p.grad for name, p in model.named_parameters()}) < 1e-5
    program.close()
    with pytest.raises(ImporterError, match="test_losses.py.*different weights.*depends on what the model computes"):
        piper.compile(model, lambda o, t: gated(o, t) + F.mse_loss(o, t), (x, y), strategy=strategy, progress=False)
