# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numbers of the update rules: with them, the formulas give what torch.optim gives."""

import types

import piper
import pytest
import torch
from piper import optimizers
from torch.optim.optimizer import register_optimizer_step_post_hook


def sgd(p, g, slots, s, config):
    g = (-g if config["maximize"] else g) + s["weight_decay"] * p
    if slots:
        buffer = slots["momentum_buffer"]
        buffer.copy_(s["momentum"] * buffer + s["one_minus_dampening"] * g)
        g = g + s["momentum"] * buffer if config["nesterov"] else buffer.clone()
    return p - s["lr"] * g


def adam(p, g, slots, s, config):
    g = -g if config["maximize"] else g
    if "decay" in s:
        p = p * s["decay"]
    else:
        g = g + s["weight_decay"] * p
    m, v = slots["exp_avg"], slots["exp_avg_sq"]
    m.copy_(m + (1 - config["beta1"]) * (g - m))
    v.copy_(v * config["beta2"] + (1 - config["beta2"]) * g * g)
    if config["amsgrad"]:
        v = slots["max_exp_avg_sq"].copy_(torch.maximum(slots["max_exp_avg_sq"], v))
    return p - s["step_size"] * (m / (v.sqrt() / s["bias_correction2_sqrt"] + s["eps"]))


FORMULAS = {"sgd": sgd, "adam": adam, "adamw": adam}


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.3),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, maximize=True),
        lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6),
        lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.3, amsgrad=True),
        lambda p: torch.optim.AdamW(p, lr=0.01, maximize=True),
        lambda p: torch.optim.Adam(p, lr=0.01, decoupled_weight_decay=True, weight_decay=0.2, amsgrad=True),
    ],
)
def test_scalars_give_torchs_updates(make):
    generator = torch.Generator().manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(64, generator=generator, dtype=torch.float64))
    optimizer = make([parameter])
    (group,) = optimizers.read(optimizer, {id(parameter): "w"})
    ours = parameter.detach().clone()
    slots = {slot: torch.zeros_like(ours) for slot in group.slots}
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + step))
    for step in range(1, 6):
        gradient = torch.randn(64, generator=generator, dtype=torch.float64)
        ours = FORMULAS[group.rule](ours, gradient, slots, group.scalars(step), group.config)
        parameter.grad = gradient
        optimizer.step()
        scheduler.step()
        torch.testing.assert_close(ours, parameter.detach(), rtol=1e-12, atol=1e-12)


def test_text_form():
    parameter = torch.nn.Parameter(torch.zeros(2))
    (group,) = optimizers.read(torch.optim.AdamW([parameter], amsgrad=True), {id(parameter): "w"})
    assert group.to_mlir() == (
        'piper.optimizer @group0 "adamw" slots ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]'
        ' scalars ["step_size", "bias_correction2_sqrt", "eps", "decay"] config {beta1 = 9.0000000000000002e-01 : f64,'
        " beta2 = 9.9900000000000000e-01 : f64, amsgrad = true, maximize = false}"
    )


def test_groups_keep_their_own_options_and_names():
    a, b, frozen = (torch.nn.Parameter(torch.zeros(2)) for _ in range(3))
    frozen.requires_grad_(False)
    optimizer = torch.optim.SGD([{"params": [frozen]}, {"params": [b], "lr": 0.5}, {"params": [a]}], lr=0.1)
    groups = optimizers.read(optimizer, {id(a): "a", id(b): "b"})
    assert [(g.name, g.parameters, g.scalars(1)["lr"]) for g in groups] == [
        ("group1", ["b"], 0.5),
        ("group2", ["a"], 0.1),
    ]
    optimizer.param_groups[1]["lr"] = 0.25
    assert groups[0].scalars(1)["lr"] == 0.25
    optimizer.param_groups[1]["nesterov"] = True
    with pytest.raises(piper.UsageError, match="option 'nesterov' was False when the program was compiled, got True"):
        groups[0].scalars(1)
    optimizer.param_groups[2]["momentum"] = 0.9
    with pytest.raises(piper.UsageError, match="momentum was zero when the program was compiled or is now"):
        groups[1].scalars(1)


def test_options_are_those_of_the_optimizer_now():
    """optimizer.load_state_dict puts other dicts in the place of its groups'."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    (group,) = optimizers.read(optimizer, {id(parameter): "w"})
    optimizer.load_state_dict(torch.optim.SGD([parameter], lr=0.7).state_dict())
    assert group.scalars(1)["lr"] == 0.7
    optimizer.param_groups[0]["lr"] = 0.3
    assert group.scalars(1)["lr"] == 0.3 and group.options is optimizer.param_groups[0]


def _freeze(optimizer):
    optimizer.param_groups[0]["params"][0].requires_grad_(False)


def _shrink(optimizer):
    optimizer.param_groups[0]["params"] = optimizer.param_groups[0]["params"][:1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_freeze, "a parameter of optimizer group 0 was frozen or thawed after the program was compiled"),
        (_shrink, "the optimizer had other parameters when the program was compiled"),
        (lambda o: o.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]}), "had other parameters"),
    ],
)
def test_other_parameters_need_another_program(change, message):
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    (group,) = optimizers.read(optimizer, {id(p): f"w{n}" for n, p in enumerate(parameters)})
    change(optimizer)
    with pytest.raises(piper.UsageError, match=message + ".*: compile again"):
        group.scalars(1)


def test_hooks_that_nobody_would_call_are_refused():
    def hook(*_):
        pass

    parameter = torch.nn.Parameter(torch.zeros(3))
    for register in ("register_step_pre_hook", "register_step_post_hook"):
        optimizer = torch.optim.SGD([parameter], lr=1)
        handle = getattr(optimizer, register)(hook)
        with pytest.raises(piper.UsageError, match="without hooks of its step"):
            optimizers.read(optimizer, {id(parameter): "w"})
        handle.remove()
        assert optimizers.read(optimizer, {id(parameter): "w"})


def test_a_step_of_its_own_is_refused_and_that_of_schedulers_is_not():
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([parameter], lr=1)

    def clips(self, closure=None):
        torch.nn.utils.clip_grad_norm_(parameter, 1.0)
        return type(self).step(self, closure)

    def refused():
        with pytest.raises(piper.UsageError) as error:
            optimizers.refuse_own_step(optimizer)
        assert f"it has another one ({__file__}:{clips.__code__.co_firstlineno})" in str(error.value)
        assert "del optimizer.step" in str(error.value) and "program.gradients()" in str(error.value)

    optimizers.refuse_own_step(optimizer)
    bound = optimizer.step
    optimizer.step = types.MethodType(clips, optimizer)
    refused()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    refused()
    del optimizer.step, scheduler
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 1), torch.optim.lr_scheduler.ConstantLR(optimizer)]
    torch.optim.lr_scheduler.SequentialLR(optimizer, schedulers, [2])
    optimizers.refuse_own_step(optimizer)
    optimizer.step = bound
    optimizers.refuse_own_step(optimizer)
    handle = register_optimizer_step_post_hook(clips)
    with pytest.raises(piper.UsageError, match=r"without hooks of its step \(.*: remove them, or compile without"):
        optimizers.refuse_own_step(optimizer)
    handle.remove()
    optimizers.refuse_own_step(optimizer)


@pytest.mark.parametrize("option", ["lr", "weight_decay", "momentum", "eps"])
def test_negative_options_are_refused_as_torch_refuses_them(option):
    parameter = torch.nn.Parameter(torch.zeros(3))
    kind = torch.optim.SGD if option == "momentum" else torch.optim.AdamW
    with pytest.raises(ValueError):
        kind([parameter], **{option: -0.5})
    optimizer = kind([parameter])
    (group,) = optimizers.read(optimizer, {id(parameter): "w"})
    optimizer.param_groups[0][option] = -0.5
    with pytest.raises(piper.UsageError, match=f"group 'group0': expected {option} of at least 0, got -0.5"):
        group.scalars(1)
    with pytest.raises(piper.UsageError, match=f"expected {option} of at least 0"):
        optimizers.read(optimizer, {id(parameter): "w"})


def test_saved_groups_come_back():
    parameter = torch.nn.Parameter(torch.zeros(2))
    groups = optimizers.read(torch.optim.AdamW([parameter], lr=3e-4), {id(parameter): "w"})
    again = optimizers.restore(optimizers.describe(groups))
    assert again[0].scalars(7) == groups[0].scalars(7)
    assert again[0].to_mlir() == groups[0].to_mlir()


def test_what_cannot_be_followed_is_refused():
    inside, outside = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(5))
    with pytest.raises(piper.UsageError, match="SGD, Adam, AdamW as optimizer, got RMSprop"):
        optimizers.read(torch.optim.RMSprop([inside]), {id(inside): "w"})
    with pytest.raises(piper.UsageError, match=r"a parameter of shape \(5,\) does not belong to the model"):
        optimizers.read(torch.optim.SGD([inside, outside], lr=1), {id(inside): "w"})
    with pytest.raises(piper.UsageError, match="'b' is in no group"):
        optimizers.read(torch.optim.SGD([inside], lr=1), {id(inside): "w", id(outside): "b"})
    used = torch.optim.SGD([inside], lr=1, momentum=0.9)
    inside.grad = torch.ones(3)
    used.step()
    with pytest.raises(
        piper.UsageError, match=r"taken no step yet.*load_optimizer_state_dict as .*model.named_parameters"
    ):
        optimizers.read(used, {id(inside): "w"})
    with pytest.raises(piper.UsageError, match="got list: give one with a group for each"):
        optimizers.read([torch.optim.SGD([inside], lr=1)], {id(inside): "w"})


def test_keys_that_torch_does_not_know_change_nothing():
    """timm's layer decay keeps a number of its own in each group."""
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.AdamW([{"params": [parameter], "lr_scale": 0.5}], lr=0.1)
    (group,) = optimizers.read(optimizer, {id(parameter): "w"})
    (plain,) = optimizers.read(torch.optim.AdamW([parameter], lr=0.1), {id(parameter): "w"})
    assert group.scalars(3) == plain.scalars(3) and "lr_scale" not in optimizers.describe([group])[0]["options"]


def one_cycle(optimizer, **options):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10, **options)


@pytest.mark.parametrize("early", [True, False])
def test_a_scheduler_that_changes_betas_is_told_how_to_leave_them(early):
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.AdamW([parameter])
    with pytest.raises(piper.UsageError, match="OneCycleLR or CyclicLR cycle_momentum=False"):
        if early:
            one_cycle(optimizer)
        (group,) = optimizers.read(optimizer, {id(parameter): "w"})
        one_cycle(optimizer)
        group.scalars(1)


@pytest.mark.parametrize(
    "make, options",
    [
        (lambda p: torch.optim.AdamW(p, lr=0.01), {"cycle_momentum": False}),
        (lambda p: torch.optim.Adam(p, lr=0.01), {"cycle_momentum": False}),
        (lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), {}),
    ],
)
def test_one_cycle_gives_torchs_updates(make, options):
    generator = torch.Generator().manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(16, generator=generator, dtype=torch.float64))
    optimizer = make([parameter])
    scheduler = one_cycle(optimizer, **options)
    (group,) = optimizers.read(optimizer, {id(parameter): "w"})
    ours, slots = parameter.detach().clone(), {slot: torch.zeros(16, dtype=torch.float64) for slot in group.slots}
    for step in range(1, 9):
        gradient = torch.randn(16, generator=generator, dtype=torch.float64)
        ours = FORMULAS[group.rule](ours, gradient, slots, group.scalars(step), group.config)
        parameter.grad = gradient
        optimizer.step()
        scheduler.step()
        torch.testing.assert_close(ours, parameter.detach(), rtol=1e-12, atol=1e-12)
