# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reported failures of other systems (cases.py), under pp2 1F1B and pp2 x dp2, against plain PyTorch computed here.

Every test ends by showing that the value of the reported fault would not have passed.
"""

from __future__ import annotations

import copy
import functools

import cases
import piper
import pytest
import reference
import torch
from torch.nn import functional as F

PP2 = dict(pp=2)
PP2DP2 = dict(pp=2, dp=2)
MESHES = pytest.mark.parametrize("axes", [PP2, PP2DP2], ids=["pp2", "pp2dp2"])
SGD = functools.partial(torch.optim.SGD, lr=0.5)


def compiled(model, loss_fn, batch, stages, axes, microbatches, optimizer=SGD, zero=0, schedule="1f1b", **options):
    """A pipeline program of a copy of `model`, whose own parameters stay as they are."""
    model = copy.deepcopy(model)
    piper.annotate_modules(model, {"stage": stages})
    strategy = piper.strategies.pipeline(piper.Mesh(**axes), schedule=schedule, microbatches=microbatches, zero=zero)
    trainable = [p for p in model.parameters() if p.requires_grad]
    return piper.compile(model, loss_fn, batch, strategy=strategy, optimizer=optimizer(trainable), **options)


def eager(model, loss_fn, batches, weights):
    """Loss, gradients and model after plain PyTorch's weighted sum over `batches`, in order."""
    model = copy.deepcopy(model)
    total = 0.0
    for batch, weight in zip(batches, weights, strict=True):
        loss = loss_fn(model(*batch["args"], **batch.get("kwargs", {})), batch["target"]) * weight
        loss.backward()
        total += loss.item()
    return total, {n: p.grad for n, p in model.named_parameters() if p.grad is not None}, model


def batch_of(*args, target, **kwargs):
    return dict(args=args, kwargs=kwargs, target=target)


def rows_of(batch, sizes, axis_names=()):
    """The batch in parts of `sizes` rows; keyword tensors in `axis_names` have no batch dimension and stay whole."""
    out, start = [], 0
    for size in sizes:
        cut = slice(start, start + size)
        kwargs = {
            k: v if k in axis_names or not isinstance(v, torch.Tensor) else v[cut]
            for k, v in batch.get("kwargs", {}).items()
        }
        out.append(dict(args=tuple(a[cut] for a in batch["args"]), kwargs=kwargs, target=batch["target"][cut]))
        start += size
    return out


def check(program, batch, loss, gradients, wrong_gradients=None, tolerance=1e-5):
    """The program's loss and gradients are the given ones, and the faulty ones would not have passed."""
    args, kwargs = batch["args"], batch.get("kwargs", {})
    reference.assert_gradients(program.gradients(*args, target=batch["target"], **kwargs), gradients, tolerance)
    assert float(program.step(*args, target=batch["target"], **kwargs)) == pytest.approx(loss, rel=1e-5)
    if wrong_gradients is not None:
        with pytest.raises(AssertionError):
            reference.assert_gradients(wrong_gradients, gradients, tolerance)


@MESHES
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_tied_embedding(axes, zero):
    torch.manual_seed(11)
    model = cases.TiedModel()
    tokens = torch.randint(0, 13, (8, 6))

    def loss_fn(out, target):
        return F.cross_entropy(out.flatten(0, 1), target.flatten())

    batch = batch_of(tokens[:, :-1].contiguous(), target=tokens[:, 1:].contiguous())
    truth = copy.deepcopy(model)
    optimizer = torch.optim.SGD(truth.parameters(), lr=0.5)
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = loss_fn(truth(*batch["args"]), batch["target"])
        loss.backward()
        expected.append({n: p.grad.clone() for n, p in truth.named_parameters()})
        optimizer.step()
    stages = [["embed", "layers.0", "layers.1"], ["layers.2", "layers.3", "head"]]
    program = compiled(model, loss_fn, batch, stages, axes, 2, zero=zero)
    untied = copy.deepcopy(model)
    untied.head.weight = torch.nn.Parameter(model.embed.weight.detach().clone())
    _, wrong, _ = eager(untied, loss_fn, [batch], [1.0])
    wrong.pop("head.weight")
    loss, gradients, _ = eager(model, loss_fn, [batch], [1.0])
    check(program, batch, loss, gradients, wrong)
    for _ in range(2):
        program.step(*batch["args"], target=batch["target"])
    state = program.state_dict()
    assert torch.equal(state["embed.weight"], state["head.weight"])
    assert float((state["embed.weight"] - truth.embed.weight).abs().max()) <= 1e-5 * float(
        truth.embed.weight.abs().max()
    )
    program.close()


@MESHES
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_batch_norm_and_counter(axes, schedule):
    torch.manual_seed(14)
    model = cases.NormalizedModel()
    batch = batch_of(torch.randn(32, 4) * 2 + 1, target=torch.randn(32, 2))
    replicas = axes.get("dp", 1)
    parts = rows_of(batch, [32 // (4 * replicas)] * (4 * replicas))
    # Rows are coupled: the truth is plain PyTorch looped over replicas (each with its own buffers), then
    # microbatches; replica 0's buffers count.
    total, gradients, buffers = 0.0, None, None
    for r in range(replicas):
        loss, grads, after = eager(model, cases.mean_squared, parts[r * 4 : r * 4 + 4], [1 / len(parts)] * 4)
        total += loss
        gradients = grads if gradients is None else {n: gradients[n] + g for n, g in grads.items()}
        buffers = buffers or dict(after.named_buffers())
    program = compiled(
        model, cases.mean_squared, batch, [["a", "norm_a"], ["b", "norm_b", "c"]], axes, 4, schedule=schedule
    )
    start = program.state_dict()
    assert start["calls"].item() == 0, "compiling moved a buffer"
    _, wrong, _ = eager(model, cases.mean_squared, [batch], [1.0])
    check(program, batch, total, gradients, wrong)
    state = program.state_dict()
    assert state["calls"].item() == 4 and state["norm_a.num_batches_tracked"].item() == 4
    for name, value in buffers.items():
        assert torch.allclose(state[name].double(), value.double(), rtol=1e-5, atol=1e-7), name
    program.close()


@MESHES
@pytest.mark.parametrize("zero", [0, 2, 3])
def test_frozen_first_stage(axes, zero):
    torch.manual_seed(19)
    model = cases.AdapterModel()
    tokens = torch.randint(0, 9, (3, 4, 6))

    def loss_fn(out, target):
        return F.cross_entropy(out.flatten(0, 1), target.flatten())

    batches = [batch_of(t[:, :-1].contiguous(), target=t[:, 1:].contiguous()) for t in tokens]
    make = functools.partial(torch.optim.AdamW, lr=0.05, weight_decay=0.1)
    truth = copy.deepcopy(model)
    optimizer = make([p for p in truth.parameters() if p.requires_grad])
    program = compiled(
        model,
        loss_fn,
        batches[0],
        [["embed", "layers.0"], ["layers.1", "layers.2", "head"]],
        axes,
        2,
        optimizer=make,
        zero=zero,
    )
    _, gradients, _ = eager(model, loss_fn, [batches[0]], [1.0])
    reference.assert_gradients(program.gradients(*batches[0]["args"], target=batches[0]["target"]), gradients)
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_fn(truth(*batch["args"]), batch["target"])
        loss.backward()
        optimizer.step()
        assert float(program.step(*batch["args"], target=batch["target"])) == pytest.approx(loss.item(), rel=1e-5)
    state = program.state_dict()
    for name, p in truth.named_parameters():
        if p.requires_grad:
            assert torch.allclose(state[name], p, rtol=1e-4, atol=1e-5), name
        else:
            assert torch.equal(state[name], p), f"frozen {name} changed"
    program.close()


@MESHES
def test_masks_integers_and_keywords(axes):
    torch.manual_seed(20)
    model = cases.MaskedModel()
    tokens = torch.randint(0, 10, (8, 6))
    mask = torch.arange(6)[None] < torch.tensor([6, 4, 5, 3, 6, 2, 5, 4])[:, None]

    def loss_fn(out, target):
        return F.cross_entropy(out.flatten(0, 1), target.flatten())

    keywords = dict(
        temperature=1.5, mask=mask, bias=torch.randn(6, 6) * 0.3, position=torch.arange(6).expand(8, 6).contiguous()
    )
    batch = batch_of(tokens, target=tokens[:, 1:].contiguous(), **keywords)
    loss, gradients, _ = eager(model, loss_fn, [batch], [1.0])
    blind = batch_of(tokens, target=batch["target"], **{**keywords, "mask": torch.ones_like(mask)})
    _, wrong, _ = eager(model, loss_fn, [blind], [1.0])
    program = compiled(
        model, loss_fn, batch, [["embed", "layers.0", "layers.1"], ["layers.2", "layers.3", "head"]], axes, 2
    )
    check(program, batch, loss, gradients, wrong)
    program.close()


@pytest.mark.parametrize(
    "axes,zero",
    [(PP2, 0), (PP2DP2, 0), (PP2DP2, 1), (PP2DP2, 3)],
    ids=["pp2", "pp2dp2", "pp2dp2-zero1", "pp2dp2-zero3"],
)
def test_odd_batch(axes, zero):
    # 10 rows in 4 microbatches: 3, 3, 2, 2 (pytorch/pytorch#126600); mean of means is the fault.
    torch.manual_seed(25)
    model = cases.ThreeLinear()
    batch = batch_of(torch.randn(10, 4) * torch.arange(1, 11)[:, None] / 4, target=torch.randn(10, 2))
    loss, gradients, _ = eager(model, cases.mean_squared, [batch], [1.0])
    _, wrong, _ = eager(model, cases.mean_squared, rows_of(batch, [3, 3, 2, 2]), [0.25] * 4)
    program = compiled(model, cases.mean_squared, batch, [["a"], ["b", "c"]], axes, 4, zero=zero)
    check(program, batch, loss, gradients, wrong)
    program.close()


def token_loss_pair(output, target):
    valid = target != -100
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=-100, reduction="sum"), valid.sum()


def token_loss_mean(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=-100)


@MESHES
@pytest.mark.parametrize("loss_fn", [token_loss_mean, token_loss_pair], ids=["mean", "pair"])
def test_unequal_numbers_of_tokens(axes, loss_fn):
    torch.manual_seed(26)
    model = cases.TokenModel()
    tokens, target = torch.randint(0, 12, (8, 6)), torch.randint(0, 12, (8, 6))
    for row, valid in enumerate([6, 6, 2, 1, 1, 0, 4, 3]):
        target[row, valid:] = -100
    batch = batch_of(tokens, target=target)
    loss, gradients, _ = eager(model, token_loss_mean, [batch], [1.0])
    _, wrong, _ = eager(model, token_loss_mean, rows_of(batch, [2, 2, 2, 2]), [0.25] * 4)
    program = compiled(model, loss_fn, batch, [["embed", "a"], ["b"]], axes, 4)
    check(program, batch, loss, gradients, wrong)
    program.close()


def test_no_valid_token_skips_the_update():
    torch.manual_seed(27)
    model = cases.TokenModel()
    tokens, target = torch.randint(0, 12, (8, 6)), torch.full((8, 6), -100)
    program = compiled(
        model,
        token_loss_mean,
        batch_of(tokens, target=target),
        [["embed", "a"], ["b"]],
        PP2,
        4,
        optimizer=functools.partial(torch.optim.AdamW, lr=0.1),
    )
    before = program.state_dict()
    assert all(float(g.abs().max()) == 0.0 for g in program.gradients(tokens, target).values())
    program.step(tokens, target)
    assert all(torch.equal(before[n], v) for n, v in program.state_dict().items())
    program.close()


@pytest.mark.parametrize(
    "axes,zero",
    [(PP2, 0), (PP2DP2, 0), (PP2DP2, 1), (PP2DP2, 2), (PP2DP2, 3)],
    ids=["pp2", "pp2dp2", "zero1", "zero2", "zero3"],
)
def test_accumulation_over_steps(axes, zero):
    # pytorch/torchtitan#1733: the schedule scaled what had been accumulated before once more.
    torch.manual_seed(28)
    model = cases.ThreeLinear()
    batches = [batch_of(torch.randn(8, 4), target=torch.randn(8, 2)) for _ in range(3)]
    _, gradients, _ = eager(model, cases.mean_squared, batches, [1 / 3] * 3)
    program = compiled(model, cases.mean_squared, batches[0], [["a"], ["b", "c"]], axes, 4, zero=zero)
    before = program.state_dict()
    for i, batch in enumerate(batches):
        own, _, _ = eager(model, cases.mean_squared, [batch], [1.0])
        assert float(program.step(*batch["args"], target=batch["target"], update=i == 2)) == pytest.approx(
            own, rel=1e-5
        )
        if i < 2:
            assert all(torch.equal(before[n], v) for n, v in program.state_dict().items())
    after = program.state_dict()
    # Plain SGD with learning rate 0.5: the step is half the gradient.
    applied = {n: (before[n] - after[n]) / 0.5 for n in gradients}
    reference.assert_gradients(applied, gradients, tolerance=2e-5)
    rescaled = {n: g / 4 for n, g in gradients.items()}
    with pytest.raises(AssertionError):
        reference.assert_gradients(rescaled, gradients, tolerance=2e-5)
    # The next step starts from nothing.
    _, alone, _ = eager(_with_state(model, after), cases.mean_squared, [batches[0]], [1.0])
    program.step(*batches[0]["args"], target=batches[0]["target"])
    applied = {n: (after[n] - v) / 0.5 for n, v in program.state_dict().items() if n in alone}
    reference.assert_gradients(applied, alone, tolerance=2e-5)
    program.close()


def _with_state(model, state):
    model = copy.deepcopy(model)
    model.load_state_dict(state)
    return model


@MESHES
@pytest.mark.parametrize(
    "stages", [[["first"], ["second", "third"]], [["first", "second"], ["third"]]], ids=["cut1", "cut2"]
)
def test_in_place_and_views(axes, stages):
    torch.manual_seed(36)
    model = cases.InPlaceModel()
    batch = batch_of(torch.randn(8, 5, 4), target=torch.randn(8, 2))
    loss, gradients, _ = eager(model, cases.mean_squared, [batch], [1.0])
    scrambled = copy.deepcopy(model)
    scrambled.first.register_forward_hook(lambda module, args, h: h.transpose(1, 2).reshape(h.shape))
    _, wrong, _ = eager(scrambled, cases.mean_squared, [batch], [1.0])
    program = compiled(model, cases.mean_squared, batch, stages, axes, 2)
    check(program, batch, loss, gradients, wrong)
    program.close()


def test_buffers_written_in_forward():
    torch.manual_seed(37)
    model = cases.MemoryModel()
    batches = [batch_of(torch.randn(6, 4) + 0.5, target=torch.randn(6, 2)) for _ in range(3)]
    whole = batch_of(torch.cat([b["args"][0] for b in batches]), target=torch.cat([b["target"] for b in batches]))
    loss, gradients, after = eager(model, cases.mean_squared, batches, [1 / 3] * 3)
    forgetful = 0.0
    for batch in batches:
        forgetful += eager(model, cases.mean_squared, [batch], [1 / 3])[0]
    program = compiled(model, cases.mean_squared, whole, [["f"], ["g"]], PP2, 3)
    check(program, whole, loss, gradients)
    assert forgetful != pytest.approx(loss, rel=1e-5)
    state = program.state_dict()
    assert state["count"].item() == 3 and "history" not in state
    assert torch.allclose(state["average"], after.average, rtol=1e-5)
    program.close()


def test_buffers_carry_over_to_the_next_step():
    torch.manual_seed(38)
    model = cases.MemoryModel()
    batches = [batch_of(torch.randn(6, 4) + 0.5, target=torch.randn(6, 2)) for _ in range(3)]
    truth = copy.deepcopy(model)
    program = compiled(model, cases.mean_squared, batches[0], [["f"], ["g"]], PP2, 1)
    for batch in batches:
        loss = cases.mean_squared(truth(*batch["args"]), batch["target"])
        assert float(program.step(*batch["args"], target=batch["target"], update=False)) == pytest.approx(
            loss.item(), rel=1e-5
        )
    assert program.state_dict()["count"].item() == 3
    program.close()


@MESHES
def test_dictionary_output_and_two_losses(axes):
    torch.manual_seed(39)
    model = cases.DictionaryModel()
    batch = batch_of(torch.randn(12, 5), target=torch.randint(0, 3, (12,)), return_hidden=True)
    count = 2 * axes.get("dp", 1)
    loss, gradients, _ = eager(model, cases.dictionary_loss, rows_of(batch, [12 // count] * count), [1 / count] * count)
    silent = copy.deepcopy(model)

    def forgets(o, t):
        return cases.dictionary_loss({**o, "regularizer": o["regularizer"].detach() * 0}, t)

    _, wrong, _ = eager(silent, forgets, rows_of(batch, [12 // count] * count), [1 / count] * count)
    # The variance of the model's rows is that of each part's.
    with pytest.warns(piper.CoupledRowsWarning, match=r"cases.py:\d+"):
        program = compiled(model, cases.dictionary_loss, batch, [["a"], ["b", "c"]], axes, 2)
    check(program, batch, loss, gradients, wrong)
    program.close()


def test_unrecognised_loss_is_refused():
    model = cases.DictionaryModel()
    batch = batch_of(torch.randn(12, 5), target=torch.randint(0, 3, (12,)))
    with pytest.raises(piper.UsageError, match=r"test_cases.py:\d+.*loss_reduction"):
        compiled(model, lambda o, t: cases.dictionary_loss(o, t).sqrt(), batch, [["a"], ["b", "c"]], PP2, 2)


UNEVEN_STAGES = {
    2: [["enter", *(f"layers.{i}" for i in range(4))], [*(f"layers.{i}" for i in range(4, 7)), "leave"]],
    3: [["enter", "layers.0", "layers.1"], ["layers.2", "layers.3", "layers.4"], ["layers.5", "layers.6", "leave"]],
    4: [["enter", "layers.0"], ["layers.1", "layers.2"], ["layers.3", "layers.4"], ["layers.5", "layers.6", "leave"]],
}


# Fewer microbatches than stages must run (pytorch/torchtitan#775), so m goes down to 1.
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("stages,microbatches", [(2, 1), (2, 2), (2, 8), (3, 2), (4, 1), (4, 2), (4, 3), (4, 4)])
def test_uneven_layers(stages, microbatches, schedule):
    torch.manual_seed(43)
    model = cases.UnevenModel()
    batch = batch_of(torch.randn(8, 4), target=torch.randn(8, 2))
    loss, gradients, _ = eager(model, cases.mean_squared, [batch], [1.0])
    program = compiled(
        model, cases.mean_squared, batch, UNEVEN_STAGES[stages], dict(pp=stages), microbatches, schedule=schedule
    )
    check(program, batch, loss, gradients)
    program.close()
    with pytest.raises(AssertionError):
        reference.assert_gradients({n: g for n, g in gradients.items() if not n.startswith("layers.6")}, gradients)


def test_uneven_layers_replicated():
    torch.manual_seed(43)
    model = cases.UnevenModel()
    batch = batch_of(torch.randn(8, 4), target=torch.randn(8, 2))
    loss, gradients, _ = eager(model, cases.mean_squared, [batch], [1.0])
    program = compiled(model, cases.mean_squared, batch, UNEVEN_STAGES[2], PP2DP2, 2)
    check(program, batch, loss, gradients)
    program.close()


@pytest.mark.parametrize("backwards", [[0, 1], [1, 0]], ids=["in-order", "reversed"])
def test_results_belong_to_their_microbatch(backwards):
    # pytorch/pytorch#139404: the last stage ran both backwards before either gradient was sent; the latest stayed.
    torch.manual_seed(48)
    model = cases.ThreeLinear()
    x, y = torch.randn(8, 4), torch.randn(8, 2)
    loss, gradients, _ = eager(model, cases.mean_squared, [batch_of(x, target=y)], [1.0])
    annotated = copy.deepcopy(model)
    piper.annotate_modules(annotated, {"stage": [["a"], ["b", "c"]]})
    strategy = piper.Strategy(piper.Mesh(pp=2))
    strategy.split({}, dim_name="MB", num_microbatches=2)
    strategy.place({"stage": 0}, devices={"pp": 0})
    strategy.place({"stage": 1}, devices={"pp": 1})

    def action(stage, microbatch, pass_):
        return [{"stage": stage, "MB": microbatch, "PASS": pass_}]

    strategy.order([action(0, 0, "F"), action(0, 1, "F"), *(action(0, m, "B") for m in backwards)])
    strategy.order([action(1, 0, "F"), action(1, 1, "F"), *(action(1, m, "B") for m in backwards)])
    program = piper.compile(
        annotated, cases.mean_squared, (x, y), strategy=strategy, optimizer=SGD(annotated.parameters())
    )
    reference.assert_gradients(program.gradients(x, y), gradients)
    assert float(program.step(x, y)) == pytest.approx(loss, rel=1e-5)
    _, other, _ = eager(model, cases.mean_squared, [batch_of(x[:4], target=y[:4])] * 2, [0.5, 0.5])
    with pytest.raises(AssertionError):
        reference.assert_gradients(other, gradients)
    program.close()
