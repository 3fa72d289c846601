# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import hashlib
import os
import subprocess
import sys
from collections import UserDict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pytest
import torch
import torch.nn.functional as F
import zoo
from executor import train
from piper.importer import ImporterError, import_model
from piper.importer.inputs import Batch, bind, describe
from torch import nn


def split_of(batch, **dims):
    return {name: described.split for name, described in describe(Batch.of(batch), dims)[0].items()}


def test_rows_are_found_by_the_target():
    batch = zoo.masked_batch()
    assert split_of(batch) == {"args.0": True, "kwargs.bias": False, "kwargs.mask": True, "target": True}
    assert describe(Batch.of(batch), None)[1] == {"kwargs.temperature": 1.5}
    assert split_of(batch, **{"kwargs.mask": None})["kwargs.mask"] is False


def test_nested_inputs_have_paths():
    @dataclass
    class Pair:
        x: torch.Tensor
        flag: bool

    batch = Batch.of(([torch.zeros(3, 2), {"a": torch.zeros(3)}], Pair(torch.zeros(1), True), torch.zeros(3)))
    inputs, static, rows = describe(batch, None)
    assert (
        list(inputs) == ["args.0.0", "args.0.1.a", "args.1.x", "target"]
        and static == {"args.1.flag": True}
        and rows == 3
    )


@pytest.mark.parametrize(
    "batch, dims, message",
    [
        (
            (torch.zeros(4, 4), torch.zeros(4, 4), torch.zeros(4)),
            {},
            'write batch_dims={"args.0": 0, "args.1": 0} if it does, batch_dims={"args.0": None, "args.1": None} if not',
        ),
        ((torch.zeros(4, 3), torch.zeros(12)), {}, 'target\'s 12.*as in batch_dims={"args.0": 0, "target": None}'),
        ((torch.zeros(4, 3), torch.zeros(4)), {"args.1": 0}, "args.1"),
        ((torch.zeros(4, 3), torch.zeros(4)), {"args.0": 1}, "expected 0 or None"),
        ((torch.zeros(4, 3), (torch.zeros(4), torch.zeros(5))), {}, 'as in batch_dims={"target.1": None}'),
        ((torch.zeros(4, 3),), {}, "expected a batch"),
        ({"inputs": 3}, {}, "'inputs'"),
    ],
)
def test_doubt_is_an_error(batch, dims, message):
    with pytest.raises(ImporterError, match=message):
        describe(Batch.of(batch), dims)


def test_calls_are_checked():
    batch = Batch.of(zoo.masked_batch())
    inputs, static, _ = describe(batch, None)
    assert set(bind(inputs, static, batch)) == {"args.0", "kwargs.bias", "kwargs.mask", "target"}
    for change, message in [
        (dict(temperature=2.0), "compiled for 1.5, got 2.0"),
        (dict(shift=False), "'kwargs.shift' was given"),
        (dict(mask=torch.ones(4, 5, dtype=torch.bool)), r"expected shape \['rows', 6\], got \[4, 5\]"),
        (dict(mask=torch.ones(4, 6)), "expected torch.bool, got torch.float32"),
        (dict(mask=torch.ones(2, 6, dtype=torch.bool)), "differ in dim 0"),
        (dict(mask=None), "expected a tensor"),
    ]:
        with pytest.raises(ImporterError, match=message):
            bind(inputs, static, Batch(batch.args, {**batch.kwargs, **change}, batch.target))


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 2)

    def forward(self, x, z=None):
        return self.a(x) + (0 if z is None else z)


X, Z, Y = torch.randn(5, 4), torch.randn(5, 2), torch.randn(5, 2)


@pytest.mark.parametrize(
    "batch, message",
    [
        (
            (X, {"z": Z}, Y),
            r"forward\(x, z=None\) failed, and args.1 is a dict: a batch is \(args..., target\) or dict",
        ),
        (((X,), {"z": Z}, Y), r"args.0 is a tuple, args.1 is a dict: a batch is \(args..., target\) or dict\(args="),
        ((X, Z, Z, Y), r"the batch does not fit forward\(x, z=None\): too many positional arguments; a batch is"),
        (dict(args=(X,), kwargs={"w": Z}, target=Y), r"does not fit forward\(x, z=None\): got an unexpected keyword"),
    ],
)
def test_batches_of_other_forms_are_explained(batch, message):
    with pytest.raises(ImporterError, match=message):
        import_model(Shifted(), zoo.squared, batch)


def test_an_error_of_the_model_stays_what_it_is():
    class Broken(Shifted):
        def forward(self, x, z=None):
            return x.no_such_thing

    with pytest.raises(AttributeError, match="no_such_thing"):
        import_model(Broken(), zoo.squared, (X, Y))


def test_dropout_is_refused_with_its_line():
    model = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5))
    with pytest.raises(ImporterError, match="native_dropout"):
        import_model(model, zoo.squared, zoo.regression((4,), (2,)))
    model[1].p = 0.0
    batch = zoo.regression((4,), (2,))
    assert train(import_model(model, zoo.squared, batch), [batch]).gradients["0.bias"] is not None


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_dropout_between_recurrent_layers_is_refused_with_its_line(make):
    class Recurrent(nn.Module):
        def __init__(self, layers):
            super().__init__()
            self.a = make(4, 2, layers, dropout=0.5, batch_first=True)

        def forward(self, x):
            return self.a(x)[0]

    batch = zoo.regression((3, 4), (3, 2))
    with pytest.raises(ImporterError, match=r"test_inputs.py:\d+, in .a. .*: random numbers .* recurrent layers to 0"):
        import_model(Recurrent(2), zoo.squared, batch)
    assert import_model(Recurrent(2).eval(), zoo.squared, batch)


def test_data_dependent_shapes_are_refused_with_their_line():
    class Picking(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 2)

        def forward(self, x):
            return self.a(x[(x > 0).all(1).nonzero()[:, 0]])

    with pytest.raises(
        ImporterError, match=r"test_inputs.py:\d+: the result of 'aten.nonzero.default' depends on data"
    ):
        import_model(Picking(), zoo.squared, zoo.regression((4,), (2,)))


def test_operations_that_look_at_their_data_are_refused_with_their_line():
    class Inverse(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 2)

        def forward(self, x):
            h = self.a(x)
            return torch.linalg.inv(h[:, :, None] * h[:, None] + 3 * torch.eye(2)).sum(1)

    with pytest.raises(
        ImporterError, match=r"test_inputs.py:\d+: 'aten._linalg_check_errors.default' looks at its data"
    ):
        import_model(Inverse(), zoo.squared, zoo.regression((4,), (2,)))


class Listed(nn.Module):
    """Holds its weight beside the module that owns it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.weights = [self.layer.weight]

    def forward(self, x):
        return self.layer(x) + F.linear(x, self.weights[0])


def test_other_references_to_parameters_are_refused():
    """They would be constants: tracing sees parameters where modules have them."""
    batch, linear = zoo.regression((4,), (2,)), nn.Linear(4, 2)
    with pytest.raises(
        ImporterError, match=r"test_inputs.py:\d+: 'layer.weight' is reached otherwise than by the attr"
    ):
        import_model(Listed(), zoo.squared, batch)
    parameters, other = list(linear.parameters()), nn.Linear(2, 2)
    with pytest.raises(ImporterError, match="'weight' is reached otherwise.*\n.*'bias' is reached otherwise"):
        import_model(linear, lambda o, t: zoo.squared(o, t) + sum(p.pow(2).sum() for p in parameters), batch)
    row = linear.weight.detach()[0]
    with pytest.raises(ImporterError, match="'weight' is reached otherwise"):
        import_model(linear, lambda o, t: zoo.squared(o * row[:2], t), batch)
    with pytest.raises(
        ImporterError, match="requires a gradient is no parameter of the model or the loss: register it"
    ):
        import_model(linear, lambda o, t: zoo.squared(other(o), t), batch)
    regularized = import_model(
        linear, lambda o, t: zoo.squared(o, t) + sum(p.pow(2).sum() for p in linear.parameters()), batch
    )
    assert set(regularized.gradients) == {"weight", "bias"}


def test_complex_numbers_are_refused_with_their_line():
    class Rotated(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 2)

        def forward(self, x):
            turn = torch.polar(torch.ones(1), torch.tensor([0.3]))
            return torch.view_as_real(torch.view_as_complex(self.a(x)) * turn)

    with pytest.raises(ImporterError, match=r"complex numbers .*test_inputs.py:\d+: 'aten.view_as_complex.default'"):
        import_model(Rotated(), zoo.squared, zoo.regression((4,), (2,)))
    model = nn.Linear(4, 2)
    model.register_buffer("turn", torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ImporterError, match="buffer 'turn' is of torch.complex64: expected real numbers"):
        import_model(model, zoo.squared, zoo.regression((4,), (2,)))


def test_models_without_values_are_refused():
    with pytest.raises(ImporterError, match="'weight' on device meta"):
        import_model(nn.Linear(4, 2, device="meta"), zoo.squared, zoo.regression((4,), (2,)))


def test_nothing_to_train_is_a_forward():
    model, batch = nn.Linear(4, 2).requires_grad_(False), zoo.regression((4,), (2,))
    imported = import_model(model, zoo.squared, batch)
    assert [node.pass_ for node in imported.nodes] == ["F"] and not imported.gradients
    assert torch.allclose(train(imported, [batch]).loss_sum / 12, zoo.squared(model(*batch["args"]), batch["target"]))


class InPlace(nn.Module):
    def __init__(self, on_parameter):
        super().__init__()
        self.a, self.on_parameter = nn.Linear(4, 2), on_parameter

    def forward(self, x):
        with torch.no_grad():
            (self.a.weight if self.on_parameter else x).clamp_(-0.5, 0.5)
        return self.a(x)


def test_changes_of_the_batch_stay_inside():
    model, batch = InPlace(False), zoo.regression((4,), (2,))
    kept = batch["args"][0].clone()
    imported = import_model(model, zoo.squared, batch)
    outcome = train(imported, [batch])
    assert torch.equal(batch["args"][0], kept) and not imported.buffer_writes
    assert torch.allclose(outcome.loss_sum / 12, zoo.squared(model.a(kept.clamp(-0.5, 0.5)), batch["target"]))


def test_parameters_are_not_written_in_forward():
    with pytest.raises(ImporterError, match="parameter 'a.weight' is written in forward"):
        import_model(InPlace(True), zoo.squared, zoo.regression((4,), (2,)))


def test_double_precision_models_have_single_precision_losses():
    model = nn.Linear(4, 2).double()
    batch = {k: v.double() if k == "target" else v for k, v in zoo.regression((4,), (2,)).items()}
    batch["args"] = (batch["args"][0].double(),)
    outcome = train(import_model(model, zoo.squared, batch), [batch])
    zoo.squared(model(*batch["args"]), batch["target"]).backward()
    assert outcome.loss_sum.dtype == outcome.loss_weight.dtype == torch.float32
    assert torch.allclose(outcome.gradients["bias"], model.bias.grad, rtol=1e-10)


def test_frozen_chunks_have_no_backward():
    model, loss_fn, batches, _ = zoo.cases()["adapted"]
    imported = import_model(model, loss_fn, batches[0])
    assert sorted(node.tags.get("_block", -1) for node in imported.nodes if node.pass_ == "B") == [-1, 1, 2]
    assert all(imported.states[name].trainable for name in imported.gradients)


def test_saved_values_exclude_what_is_at_hand():
    """A linear layer keeps nothing for its backward: its input and weight are there already."""
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 2, bias=False))
    imported = import_model(model, zoo.squared, zoo.regression((4,), (2,)))
    forward = imported.member(imported.nodes[0], 6)
    assert sum(spec.nbytes for spec in forward.saved_results) == 4 * (
        6 * 4 + 6 * 2
    )  # hidden activation, difference to the target


def test_cheap_values_are_made_again():
    """SwiGLU keeps the two projections for its backward, not the gate's activation and the product."""

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.up, self.down = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))

    model, batch = Gated(), zoo.regression((4,), (2,))
    imported = import_model(model, lambda o, t: (o.sum(), 1), batch)
    saved = imported.member(imported.nodes[0], 6).saved_results
    assert [spec.shape for spec in saved] == [(6, 8), (6, 8)]
    outcome = train(imported, [batch])
    model(*batch["args"]).sum().backward()
    assert torch.allclose(outcome.gradients["gate.weight"], model.gate.weight.grad, rtol=1e-5, atol=1e-6)


def test_rotated_queries_are_made_again():
    """Rotary positions behind a norm, which keeps its input: the backward rotates again, and copies a transposed value
    again.
    """

    class Rotated(nn.Module):
        def __init__(self):
            super().__init__()
            self.project, self.out = nn.Linear(4, 8, bias=False), nn.Linear(8, 2, bias=False)
            self.register_buffer("cos", torch.rand(3, 8))

        def forward(self, x):
            y = self.project(x)
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
            first, second = y.chunk(2, dim=-1)
            y = y * self.cos + torch.cat([-second, first], dim=-1) * (1 - self.cos)
            return self.out(y.transpose(0, 1).contiguous().transpose(0, 1) * y)

    model, batch = Rotated(), zoo.regression((3, 4), (3, 2))
    imported = import_model(model, lambda o, t: (o.square().sum(), 1), batch)
    saved = imported.member(imported.nodes[0], 6).saved_results
    assert sorted(spec.shape for spec in saved) == [(6, 3, 1), (18, 2), (18, 8)]
    outcome = train(imported, [batch])
    model(*batch["args"]).square().sum().backward()
    assert torch.allclose(outcome.gradients["project.weight"], model.project.weight.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", ["1", "77"])
def test_names_do_not_depend_on_the_hash_seed(seed):
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import torch, zoo; from piper.importer import import_model; "
        "torch.manual_seed(0);"
        "m = import_model(zoo.Masked(), zoo.token_loss, zoo.masked_batch(), rows=[4, 1]);"
        "print([(n.family, n.operands, n.results) for n in m.nodes])"
    )
    import piper

    paths = [os.path.dirname(os.path.dirname(piper.__file__)), os.path.dirname(__file__)]
    out = subprocess.run(
        [sys.executable, "-c", code, *paths],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
        timeout=120,
    ).stdout
    torch.manual_seed(0)
    imported = import_model(zoo.Masked(), zoo.token_loss, zoo.masked_batch(), rows=[4, 1])
    expected = f"{[(n.family, n.operands, n.results) for n in imported.nodes]}\n".encode()
    assert hashlib.sha256(out).digest() == hashlib.sha256(expected).digest()


class Flexible(nn.Module):
    """Takes its features in any form."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 2)

    def forward(self, features, size=None):
        features = features["x"] if isinstance(features, Mapping) else features
        return self.a(torch.as_tensor(getattr(features, "x", features)))


class Graph:
    """A batch as graph libraries have it."""

    def __init__(self, x):
        self.x = x


FEATURES, LABELS = torch.randn(6, 4), torch.randn(6, 2)


def by_name(**kwargs):
    return dict(kwargs=kwargs, target=LABELS)


@pytest.mark.parametrize(
    "batch, message",
    [
        ((FEATURES.numpy(), LABELS), "'args.0' is a numpy array and is not divided: make it a tensor"),
        ((FEATURES, LABELS.numpy()), "'target' is a numpy array and is not divided: make it a tensor"),
        ((FEATURES, [0.0] * 6), "'target' is a list of 6 numbers and is not divided: make it a tensor"),
        (
            by_name(features=FEATURES.tolist()),
            "'kwargs.features' is a list of 6 numbers and is not .*: make it a tensor",
        ),
        (by_name(features=FEATURES, size=[3] * 6), "'kwargs.size' is a list of 6 .* or a tuple if they are not those"),
        ((Graph(FEATURES), LABELS), "'args.0' is a Graph, whose tensors would stay what they are now: give them as"),
        ((FEATURES.to_sparse(), LABELS), r"'args.0' has the layout torch.sparse_coo: expected .*\(.to_dense\(\)\)"),
        ({"input_ids": FEATURES, "labels": LABELS}, r'give dict\(kwargs={.* != "labels"}, target=batch\["labels"\]\)'),
        ({"pixels": FEATURES}, r"give dict\(kwargs=dict\(batch\), target=...\)"),
        ((batch for batch in (FEATURES, LABELS)), "got generator"),
    ],
)
def test_what_is_no_tensor_is_told_at_once(batch, message):
    with pytest.raises(ImporterError, match=message):
        describe(Batch.of(batch), None)


def test_what_the_messages_ask_for_works():
    tokens = {"features": FEATURES, "labels": LABELS}
    for batch in (
        (torch.as_tensor(FEATURES.numpy()), torch.tensor(LABELS.tolist())),
        by_name(features=FEATURES, size=(3,) * 6),
        by_name(features=FEATURES, size=[3, 3]),
        by_name(features=FEATURES.to_sparse().to_dense()),
        by_name(features=UserDict(x=FEATURES)),
        by_name(features=MappingProxyType({"x": FEATURES})),
        UserDict(kwargs=UserDict(features=FEATURES), target=LABELS),
        dict(kwargs={k: v for k, v in tokens.items() if k != "labels"}, target=tokens["labels"]),
        (FEATURES.clone().requires_grad_(True), LABELS),
        (FEATURES.t().contiguous().t(), LABELS),
    ):
        torch.manual_seed(2)
        model = Flexible()
        imported = import_model(model, zoo.squared, batch)
        assert all(item.split for item in imported.inputs.values())
        outcome = train(imported, [batch])
        expected = zoo.squared(model(FEATURES), LABELS)
        torch.testing.assert_close(outcome.loss_sum / outcome.loss_weight, expected.detach())
