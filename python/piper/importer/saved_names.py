# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The names under which a module saves its tensors, which wrappers and state-dict hooks make differ from those of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


def saved_names(module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """For each entry of the module's state_dict, in its order, the name of the one of `tensors` that it holds. Entries that hold none of them are left out."""
    by_id = {id(tensor): name for name, tensor in tensors.items()}
    by_place = {_place(tensor): name for name, tensor in tensors.items() if tensor.numel()}
    result = {}
    for key, value in _state_dict(module).items():
        if isinstance(key, str) and isinstance(value, torch.Tensor):
            name = by_id.get(id(value)) or (by_place.get(_place(value)) if value.numel() else None)
            if name is not None:
                result[key] = name
    return result


def is_extra(name: object) -> bool:
    """Whether an entry of a state_dict is what a module's get_extra_state gives: no parameter and no buffer."""
    return isinstance(name, str) and name.rpartition(".")[2] == "_extra_state"


def extra_states(module: nn.Module) -> dict[str, Any]:
    """What the parts of the module save beside their tensors."""
    return {name: value for name, value in _state_dict(module).items() if is_extra(name)}


def _state_dict(module: nn.Module) -> Mapping:
    """What the module saves, flat; with the module's own tensors where its state_dict has that option."""
    try:
        found = module.state_dict(keep_vars=True)
    except TypeError:
        found = module.state_dict()
    if not isinstance(found, Mapping) or any(isinstance(value, Mapping) for value in found.values()):
        return nn.Module.state_dict(module, keep_vars=True)
    return found


def _place(tensor: torch.Tensor) -> tuple:
    """Where a tensor's elements lie: equal for a tensor and what .detach() or .data gives of it."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


#: What wrappers put into names.
_INFIXES = ("_orig_mod.", "_checkpoint_wrapped_module.", "module.")


def renaming_advice(given: Mapping, names: Mapping[str, str]) -> str | None:
    """How to make the names of a given state dict those that are expected, where one prefix or wrapper is all that differs."""
    nested = [key for key, value in given.items() if isinstance(value, Mapping) and not is_extra(key)]
    if nested:
        return f"{nested[0]!r} is a mapping itself: give the one that holds the names of tensors"
    given = {key: value for key, value in given.items() if not is_extra(key)}
    unknown = [key for key in given if key not in names]
    if not unknown or not all(isinstance(key, str) for key in given):
        return None
    first = unknown[0]
    prefixes = [first[: -len(name)] for name in names if first != name and first.endswith(name)]
    for prefix in prefixes:
        if {key.removeprefix(prefix) for key in given} == set(names):
            return f"its names begin with {prefix!r}: give {{name.removeprefix({prefix!r}): value for name, value in state_dict.items()}}"
    for infix in _INFIXES:
        if {key.replace(infix, "") for key in given} == set(names):
            return f"its names hold {infix!r}: give {{name.replace({infix!r}, ''): value for name, value in state_dict.items()}}"
        if {name.replace(infix, "") for name in names} == set(given):
            return f"its names lack {infix!r}: give {{name: state_dict[name.replace({infix!r}, '')] for name in program.state_dict()}}"
    prefixes = [name[: -len(first)] for name in names if name != first and name.endswith(first)]
    for prefix in prefixes:
        if {prefix + key for key in given} == set(names):
            return f"its names lack {prefix!r} in front: give {{{prefix!r} + name: value for name, value in state_dict.items()}}"
    return None
