# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User code that autograd runs gives PyTorch's gradients, wherever it stands and whatever it does, or is refused by its line."""

import re
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from executor import train
from piper.importer import ImporterError, annotate_modules, import_model
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

COLUMNS = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.5])
X, Y = torch.randn(8, 6, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 4


def tokens_mean(scores, target):
    return F.cross_entropy(scores, target)


def squares_mean(scores, target):
    """A mean over a number of elements that is known beforehand."""
    return F.mse_loss(scores, F.one_hot(target, 4).float())


class Net(nn.Module):
    """`change(hidden)` stands between the stages; `inner` between the others."""

    def __init__(self, change=lambda hidden: hidden, inner=None):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 4)
        self.change, self.inner = change, inner or (lambda net, hidden: torch.tanh(net.b(hidden)))

    def forward(self, x):
        hidden = self.change(torch.tanh(self.a(x)))
        return self.c(hidden + self.inner(self, hidden))


def hooked(*hooks):
    """Puts hooks, made of a gate that depends on the value, on a value used in two stages."""

    def change(hidden):
        gate = (hidden.detach().abs() > 0.3).float()
        for hook in hooks:
            if hidden.requires_grad:
                hidden.register_hook(hook(gate))
        return hidden

    return change


def in_function(hook):
    """The same as the backward of a function."""

    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, hidden, gate):
            ctx.save_for_backward(gate)
            return hidden.clone()

        @staticmethod
        def backward(ctx, gradient):
            result = hook(ctx.saved_tensors[0])(gradient)
            return (gradient if result is None else result), None

    return lambda hidden: Same.apply(hidden, (hidden.detach().abs() > 0.3).float())


def gradients_of(model, loss_fn):
    model.zero_grad()
    loss_fn(model(X), Y).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.requires_grad}


def check(model, loss_fn=tokens_mean, rows=(8,), staged=True):
    """Compares with PyTorch on the whole batch; returns the lines that are said to mix rows."""
    if staged:
        annotate_modules(model, {"stage": [["a"], ["b"], ["c"]]})
    imported = import_model(model, loss_fn, (X, Y), rows=sorted(set(rows)))
    got = train(imported, list(zip(X.split(list(rows)), Y.split(list(rows)), strict=True))).gradients
    for name, wanted in gradients_of(model, loss_fn).items():
        assert (got[name] is None) == (wanted is None), name
        if wanted is not None:
            torch.testing.assert_close(got[name], wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()) + 1e-9)
    return imported.mixing


IN_PROPORTION = {
    "product": lambda gate: lambda g: g * gate,
    "number": lambda gate: lambda g: g * 0.1,
    "quotient": lambda gate: lambda g: g / (1 + gate),
    "centre": lambda gate: lambda g: g - g.mean(dim=-1, keepdim=True),
    "twice itself": lambda gate: lambda g: g + g,
    "one sided": lambda gate: lambda g: g.clamp(min=0),
    "chosen": lambda gate: lambda g: torch.where(g > 0, g, torch.zeros_like(g)),
    "without nan": lambda gate: torch.nan_to_num,
    "no Python frame": lambda gate: partial(torch.mul, gate),
    "in place": lambda gate: lambda g: (g.mul_(2), None)[1],
    "nothing": lambda gate: lambda g: None,
}
OUT_OF_PROPORTION = {
    "clamp": lambda gate: lambda g: g.clamp(-0.005, 0.005),
    "a sum that is no accumulation": lambda gate: lambda g: g + gate,
    "the same without a Python frame": lambda gate: partial(torch.add, gate),
    "table": lambda gate: lambda g: g + COLUMNS,
    "maximum": lambda gate: lambda g: torch.maximum(g, gate * -0.01),
    "length of a row": lambda gate: lambda g: g / (g.norm(dim=-1, keepdim=True) + 1e-6),
    "sign": lambda gate: lambda g: g.sign(),
    "another value": lambda gate: lambda g: gate,
}
OVER_ROWS = {
    "norm": lambda gate: lambda g: g / (g.norm() + 1e-6),
    "mean": lambda gate: lambda g: g - g.mean(dim=0, keepdim=True),
    "mean of the forward": lambda gate: lambda g: g * gate.mean(),
}
HOOKS = IN_PROPORTION | OUT_OF_PROPORTION | OVER_ROWS


class Branches(nn.Module):
    """One branch for each hook, which stands between two stages: many forms in one trace. Gradients of other branches show nothing of a hook."""

    def __init__(self, hooks, wrap):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.ModuleDict({name: nn.Linear(6, 5) for name in hooks})
        self.b = nn.ModuleDict({name: nn.Linear(5, 4) for name in hooks})
        self.c = nn.Identity()
        self.changes = {name: wrap(hook) for name, hook in hooks.items()}

    def forward(self, x):
        hidden = {name: change(torch.tanh(self.a[name](x))) for name, change in self.changes.items()}
        return self.c(sum(self.b[name](value) for name, value in hidden.items()))


@pytest.mark.parametrize("wrap", [hooked, in_function])
def test_forms_of_hooks_and_functions(wrap):
    check(Branches(HOOKS, wrap), tokens_mean)
    # In proportion: no weight has to be known beforehand.
    assert check(Branches(IN_PROPORTION, wrap), tokens_mean, (5, 3)) == ()
    assert check(Branches(OUT_OF_PROPORTION, wrap), squares_mean, (5, 3)) == ()


def test_several_hooks_on_one_value():
    check(Net(hooked(HOOKS["clamp"], HOOKS["number"], HOOKS["product"])))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_hook_inside_a_checkpoint(reentrant):
    def inner(net, hidden):
        def run(value):
            value = torch.tanh(value)
            if value.requires_grad:
                value.register_hook(lambda g: g.clamp(-0.005, 0.005))
            return net.b(value)

        return checkpoint(run, hidden, use_reentrant=reentrant)

    check(Net(inner=inner))


def test_hooks_on_modules():
    for register, hook in (
        ("register_full_backward_hook", lambda module, of_inputs, _: (of_inputs[0].clamp(-0.001, 0.001),)),
        ("register_full_backward_pre_hook", lambda module, of_outputs: (of_outputs[0] + 0.01,)),
        ("register_full_backward_hook", lambda module, of_inputs, _: None),
    ):
        model = Net()
        getattr(model.b, register)(hook)
        before = dict(model.b._backward_hooks)
        check(model, squares_mean, (4, 4))
        assert dict(model.b._backward_hooks) == before


@pytest.mark.parametrize("wrap", [hooked, in_function])
def test_what_mixes_rows_is_named_where_batches_are_divided(wrap):
    lines = import_model(Branches(OVER_ROWS | IN_PROPORTION, wrap), squares_mean, (X, Y), rows=[4]).mixing
    wanted = {hook(None).__code__.co_firstlineno for hook in OVER_ROWS.values()}
    assert {int(re.fullmatch(r".*test_hooks\.py:(\d+)", line).group(1)) for line in lines} == wanted


def test_a_hook_on_a_weight():
    """The advice for hooks on parameters: on parts of a batch it is right where it is linear, and named where it is not."""

    def with_hooks(*hooks):
        def inner(net, hidden):
            weights = [net.b.weight.clone() for _ in hooks]
            for weight, hook in zip(weights, hooks, strict=True):
                if weight.requires_grad:
                    weight.register_hook(hook)
            return sum(F.linear(hidden, weight, net.b.bias) for weight in weights)

        return Net(inner=inner)

    rows = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0])[:, None]
    linear = with_hooks(lambda g: g * rows, lambda g: torch.cat([torch.zeros_like(g[:2]), g[2:]]))
    assert check(linear, squares_mean, (5, 3), staged=False) == ()
    others = with_hooks(
        lambda g: g.clamp(-0.001, 0.001),
        lambda g: g / g.norm(),
        lambda g: g + 0.01,
    )
    check(others, staged=False)
    assert len(import_model(others, squares_mean, (X, Y), rows=[4]).mixing) == 3


def test_the_weight_must_be_known_beforehand():
    with pytest.raises(
        ImporterError, match=r"test_hooks.py:\d+: a hook or a backward of your own .* return a mean over"
    ):
        import_model(Net(hooked(HOOKS["clamp"])), tokens_mean, (X, Y), rows=[4])
    # What the message advises:
    check(Net(hooked(HOOKS["clamp"])), lambda z, y: F.cross_entropy(z, y, reduction="none").mean(), (4, 4))
    model = Net(hooked(HOOKS["clamp"]))
    imported = import_model(model, tokens_mean, (X, Y), rows=[4], loss_reduction="mean_rows")
    got = train(imported, list(zip(X.split(4), Y.split(4), strict=True))).gradients
    for name, wanted in gradients_of(model, tokens_mean).items():
        torch.testing.assert_close(got[name], wanted)


def hook_on_parameter(hidden):
    MODEL[0].b.weight.register_hook(lambda g: g * 2)
    return hidden


KEPT, MODEL = [], []


@pytest.mark.parametrize(
    "change, message",
    [
        (hooked(lambda gate: lambda g: KEPT.append(g)), "a hook keeps a gradient"),
        (hooked(lambda gate: lambda g: KEPT.append(g.norm())), "a hook keeps a gradient"),
        (hooked(lambda gate: lambda g: print(g)), "a hook prints a gradient"),
        (hooked(lambda gate: lambda g: g / 2 if g.norm() > 1 else g), "depends on data"),
        (hook_on_parameter, "parameter 'b.weight' gets a hook on its gradient"),
    ],
)
def test_refused_by_line(change, message):
    model = Net(change)
    MODEL[:] = [model]
    with pytest.raises(ImporterError, match=rf"test_hooks\.py:\d+: .*{message}"):
        import_model(model, tokens_mean, (X, Y))
    KEPT.clear()


def test_a_module_hook_that_keeps_gradients_is_refused():
    model = Net()
    model.b.register_full_backward_hook(lambda module, of_inputs, _: KEPT.append(of_inputs))
    with pytest.raises(ImporterError, match=r"test_hooks\.py:\d+: a hook keeps a gradient"):
        import_model(model, tokens_mean, (X, Y))
    KEPT.clear()


def test_hooks_have_nothing_to_do_in_evaluation():
    def change(hidden):
        hidden.register_hook(lambda g: g * 2)
        return hidden

    assert not import_model(Net(change), tokens_mean, (X, Y), training=False).training
    check(Net(change), squares_mean, (4, 4))


def reentrant(frozen, argument=lambda value: value, **options):
    def inner(net, hidden):
        net.a.requires_grad_(not frozen)
        return checkpoint(lambda value: torch.tanh(net.b(value)), argument(hidden), **options)

    return Net(inner=inner)


@pytest.mark.filterwarnings("ignore:torch.utils.checkpoint", "ignore:None of the inputs have requires_grad")
def test_reentrant_checkpoints():
    check(reentrant(False, use_reentrant=True))
    check(reentrant(False))
    # The recipe of adapters behind a frozen part; and without it, where torch gives what is inside no gradient.
    for argument, trains in ((lambda value: value.detach().requires_grad_(True), True), (lambda value: value, False)):
        model = reentrant(True, argument, use_reentrant=True)
        model.a.requires_grad_(False)
        imported = import_model(model, tokens_mean, (X, Y))
        assert bool(imported.gradients["b.weight"]) is trains
        check(model)
    apply = torch.utils.checkpoint.CheckpointFunction.apply
    check(
        Net(inner=lambda net, hidden: checkpoint_sequential([net.b, nn.Tanh()], 2, hidden, use_reentrant=True)),
        staged=False,
    )
    assert torch.utils.checkpoint.CheckpointFunction.apply == apply


def test_checkpoints_that_a_library_switches_on():
    """As transformers' gradient_checkpointing_enable() does it: a partial on each layer, whose call goes through it."""

    class Layer(nn.Module):
        checkpointing = None

        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(5, 5)

        def __call__(self, *args):
            run = super().__call__
            return self.checkpointing(partial(run), *args) if self.checkpointing and self.training else run(*args)

        def forward(self, value):
            return torch.tanh(self.inner(value))

    model = Net()
    model.b = Layer()
    model.b.checkpointing = partial(checkpoint, use_reentrant=True)
    check(model)
