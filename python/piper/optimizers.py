# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers: which update rule each parameter group of a torch optimizer has, and the numbers that each step needs.

Rules are elementwise formulas that the compiler knows by name (passes/plan/UpdateRules.cpp). What learning-rate schedulers and users change while they train is
handed over before each step; flags and betas are compiled in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import UsageError

# The way out where a step has to do what no rule does.
_STEPS_ITSELF = (
    "compile without optimizer, give each parameter its .grad out of program.gradients(), call step() of the optimizer, then"
    " program.load_state_dict(model.state_dict())"
)

Config = dict[str, "bool | float"]

#: What `optimizer_state_dict` gives, for messages.
STATE_FORM = '{"steps": {"group0": n, ...}, "state": {name: {"exp_avg": tensor, ...}}}, with the names of model.named_parameters()'


@dataclass(frozen=True)
class Rule:
    """One update rule.

    Attributes:
        config: what is compiled in, from the options of the group.
        slots: the moments that each parameter owns.
        scalars: the numbers of step t (1 at the first step) by name.
    """

    config: Callable[[Mapping[str, Any]], Config]
    slots: Callable[[Mapping[str, Any]], list[str]]
    scalars: Callable[[Mapping[str, Any], int], dict[str, float]]


def _sgd_config(options: Mapping[str, Any]) -> Config:
    return {"nesterov": bool(options["nesterov"]), "maximize": bool(options["maximize"])}


def _sgd_slots(options: Mapping[str, Any]) -> list[str]:
    return ["momentum_buffer"] if options["momentum"] != 0 else []


def _sgd_scalars(options: Mapping[str, Any], step: int) -> dict[str, float]:
    return {
        "lr": float(options["lr"]),
        "weight_decay": float(options["weight_decay"]),
        "momentum": float(options["momentum"]),
        # The first momentum is the gradient itself, whatever the dampening.
        "one_minus_dampening": 1.0 if step == 1 else 1.0 - float(options["dampening"]),
    }


def _adam_config(options: Mapping[str, Any]) -> Config:
    beta1, beta2 = options["betas"]
    return {
        "beta1": float(beta1),
        "beta2": float(beta2),
        "amsgrad": bool(options["amsgrad"]),
        "maximize": bool(options["maximize"]),
    }


def _adam_slots(options: Mapping[str, Any]) -> list[str]:
    return ["exp_avg", "exp_avg_sq"] + (["max_exp_avg_sq"] if options["amsgrad"] else [])


def _bias_corrected(options: Mapping[str, Any], step: int) -> dict[str, float]:
    beta1, beta2 = (float(beta) for beta in options["betas"])
    return {
        "step_size": float(options["lr"]) / (1.0 - beta1**step),
        "bias_correction2_sqrt": math.sqrt(1.0 - beta2**step),
        "eps": float(options["eps"]),
    }


def _adam_scalars(options: Mapping[str, Any], step: int) -> dict[str, float]:
    return {**_bias_corrected(options, step), "weight_decay": float(options["weight_decay"])}


def _adamw_scalars(options: Mapping[str, Any], step: int) -> dict[str, float]:
    decay = 1.0 - float(options["lr"]) * float(options["weight_decay"])
    return {**_bias_corrected(options, step), "decay": decay}


RULES: dict[str, Rule] = {
    "sgd": Rule(_sgd_config, _sgd_slots, _sgd_scalars),
    "adam": Rule(_adam_config, _adam_slots, _adam_scalars),
    "adamw": Rule(_adam_config, _adam_slots, _adamw_scalars),
}
_OPTIONS = {
    "sgd": {"lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"},
    "adam": {"lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay"},
}
_OPTIONS["adamw"] = _OPTIONS["adam"]
# What a scheduler leaves in a group whose momentum it changes; momentum is read at each step, betas are compiled in.
_CYCLED = "base_momentum"
_CYCLED_ADVICE = (
    "its scheduler changes betas at each step, which are compiled in: give OneCycleLR or CyclicLR cycle_momentum=False"
)


@dataclass
class Group:
    """A parameter group as it was compiled. `read` gives its options as they are now: those of the torch optimizer, or of a loaded program."""

    name: str
    rule: str
    config: Config
    slots: list[str]
    read: Callable[[], Mapping[str, Any]]
    parameters: list[str]

    @property
    def options(self) -> Mapping[str, Any]:
        """Read again at each step. Raises UsageError if the torch optimizer has other parameters than when the program was compiled."""
        return self.read()

    def scalars(self, step: int) -> dict[str, float]:
        """The numbers of step `step` (1 at the first). Raises UsageError if an option that is compiled in has changed, is missing, or is no finite number."""
        rule, options = RULES[self.rule], self.options
        try:
            return self._scalars(rule, options, step)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(f"the options of optimizer group '{self.name}' cannot be used: {error!r}") from None

    def _scalars(self, rule: Rule, options: Mapping[str, Any], step: int) -> dict[str, float]:
        _refuse_negative(self.name, options)
        for name, value in rule.config(options).items():
            if value != self.config[name]:
                if name == "beta1" and _CYCLED in options:
                    raise UsageError(f"optimizer group '{self.name}': {_CYCLED_ADVICE}")
                raise UsageError(
                    f"optimizer option '{name}' was {self.config[name]} when the program was compiled, got {value}: compile again"
                )
        if rule.slots(options) != self.slots:
            raise UsageError("momentum was zero when the program was compiled or is now: compile again")
        values = rule.scalars(options, step)
        for name, value in values.items():
            if not math.isfinite(value):
                got = ", ".join(f"{key}={options.get(key)}" for key in ("lr", "weight_decay") if key in options)
                raise UsageError(f"expected finite optimizer options, got {got}: '{name}' would be {value}")
        return values

    def to_mlir(self) -> str:
        """The `piper.optimizer` operation."""
        scalars = RULES[self.rule].scalars(self.options, 1)
        slots, names = (", ".join(f'"{name}"' for name in names) for names in (self.slots, scalars))
        config = ", ".join(f"{name} = {_attribute(value)}" for name, value in self.config.items())
        return f'piper.optimizer @{self.name} "{self.rule}" slots [{slots}] scalars [{names}] config {{{config}}}'


def _refuse_negative(name: str, options: Mapping[str, Any]) -> None:
    """Raises UsageError for what torch's optimizers refuse when they are made, and not where it is set later."""
    for key in ("lr", "weight_decay", "momentum", "eps"):
        if key in options and options[key] < 0:
            raise UsageError(f"optimizer group '{name}': expected {key} of at least 0, got {float(options[key])}")


def _attribute(value: bool | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    # Seventeen digits give the same double back.
    return f"{value:.16e} : f64"


def rule_of(optimizer: Any) -> str:
    """The rule that a torch optimizer follows. Raises UsageError for one that Piper has no rule for."""
    import torch

    known = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adamw"}
    # A subclass may override the formula.
    if type(optimizer) not in known:
        names = ", ".join(cls.__name__ for cls in known)
        message = f"expected one of torch.optim's {names} as optimizer, got {type(optimizer).__name__}"
        if isinstance(optimizer, torch.optim.Optimizer):
            message += f"; another one steps by itself: {_STEPS_ITSELF}"
        elif isinstance(optimizer, (list, tuple)):
            message += ": give one with a group for each"
        raise UsageError(message)
    refuse_own_step(optimizer)
    if optimizer.state:
        raise UsageError(
            "expected an optimizer that has taken no step yet: its moments would be lost; give a new one, and hand the moments to"
            f" program.load_optimizer_state_dict as {STATE_FORM}"
        )
    return known[type(optimizer)]


def refuse_own_step(optimizer: Any) -> None:
    """Raises UsageError where the step of a torch optimizer does more than its rule: by hooks, or as another function. What schedulers make of it counts calls."""
    from torch.optim import optimizer as of_torch

    hooks = [*optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values()]
    hooks += [*of_torch._global_optimizer_pre_hooks.values(), *of_torch._global_optimizer_post_hooks.values()]
    # Profilers of torch's count steps by hooks.
    if other := [hook for hook in hooks if not _is_torchs(hook)]:
        raise UsageError(
            f"expected an optimizer without hooks of its step{_line_of(other[0])}: a compiled step does not call them: remove them, or {_STEPS_ITSELF}"
        )
    step = optimizer.step
    while step is not None:
        step = getattr(step, "__func__", step)
        if not _is_torchs(step):
            raise UsageError(
                f"expected an optimizer with torch's own step, and it has another one{_line_of(step)}, which a compiled step does not call: "
                f"take it off (del optimizer.step), or {_STEPS_ITSELF}"
            )
        step = getattr(step, "__wrapped__", None)


def _is_torchs(function: Any) -> bool:
    return getattr(function, "__globals__", {}).get("__name__", "").partition(".")[0] == "torch"


def _line_of(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""


def read(optimizer: Any, names: Mapping[int, str]) -> list[Group]:
    """The groups of a torch optimizer that own trainable parameters.

    names: the state name of each trainable parameter of the model, by id(parameter).
    Raises UsageError for an unknown optimizer, a scheduler that changes betas, a parameter of another model, and trainable parameters in no group.
    """
    rule = rule_of(optimizer)
    groups = []
    seen: set[str] = set()
    for index, options in enumerate(optimizer.param_groups):
        # Other keys that torch.optim does not know change nothing there either.
        if rule != "sgd" and _CYCLED in options:
            raise UsageError(f"optimizer group {index}: {_CYCLED_ADVICE}")
        trainable = [parameter for parameter in options["params"] if parameter.requires_grad]
        foreign = [parameter for parameter in trainable if id(parameter) not in names]
        if foreign:
            raise UsageError(
                f"optimizer group {index}: a parameter of shape {tuple(foreign[0].shape)} does not belong to the model"
            )
        # torch lets a group's decoupled_weight_decay differ from the class.
        name = "adamw" if rule != "sgd" and options.get("decoupled_weight_decay") else "adam" if rule != "sgd" else rule
        parameters = list(dict.fromkeys(names[id(parameter)] for parameter in trainable))
        seen.update(parameters)
        if parameters:
            groups.append(make_group(f"group{index}", name, _live_options(optimizer, index), parameters))
    missing = [name for name in dict.fromkeys(names.values()) if name not in seen]
    if missing:
        raise UsageError(
            f"expected every trainable parameter in the optimizer, '{missing[0]}' is in no group: add it, or freeze it with"
            " requires_grad_(False)"
        )
    return groups


def _live_options(optimizer: Any, index: int) -> Callable[[], Mapping[str, Any]]:
    """The options of a group, whose dict may be another one at every step (optimizer.load_state_dict replaces it)."""
    count, known = len(optimizer.param_groups), list(optimizer.param_groups[index]["params"])
    trained = [parameter.requires_grad for parameter in known]

    def read() -> Mapping[str, Any]:
        groups = optimizer.param_groups
        if len(groups) != count or [id(p) for p in groups[index]["params"]] != [id(p) for p in known]:
            raise UsageError("the optimizer had other parameters when the program was compiled: compile again")
        if [parameter.requires_grad for parameter in known] != trained:
            raise UsageError(
                f"a parameter of optimizer group {index} was frozen or thawed after the program was compiled: compile again"
            )
        return groups[index]

    return read


def make_group(name: str, rule: str, read: Callable[[], Mapping[str, Any]], parameters: list[str]) -> Group:
    """A group whose config and slots are what its options say now."""
    options = read()
    _refuse_negative(name, options)
    return Group(name, rule, RULES[rule].config(options), RULES[rule].slots(options), read, parameters)


def without_updates(parameters: list[str]) -> list[Group]:
    """The group of a program that has no optimizer: its updates are compiled, and never run."""
    options = {"lr": 0.0, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False, "maximize": False}
    return [make_group("group0", "sgd", lambda: options, parameters)] if parameters else []


def restore(saved: Sequence[Mapping[str, Any]]) -> list[Group]:
    """Groups of a saved program: options are plain dicts that the user may change between steps."""
    return [
        Group(item["name"], item["rule"], item["config"], item["slots"], _kept(item["options"]), item["parameters"])
        for item in saved
    ]


def _kept(options: Mapping[str, Any]) -> Callable[[], Mapping[str, Any]]:
    own = dict(options)
    return lambda: own


def describe(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """What `restore` reads: JSON values only."""
    return [
        {
            "name": group.name,
            "rule": group.rule,
            "config": group.config,
            "slots": group.slots,
            "options": {
                key: _plain(value) for key, value in sorted(group.options.items()) if key in _OPTIONS[group.rule]
            },
            "parameters": group.parameters,
        }
        for group in groups
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (bool, int, str)) or value is None else float(value)
