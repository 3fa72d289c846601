# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the ranks of a job compare: the program when they meet, its state when it begins, and what each call is given."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from . import _runtime, optimizers
from .agreement import OTHER_VALUES, Fact
from .description import Description
from .errors import short

#: Of a tensor of a batch so many bytes are looked at, spread over all of it: a shuffle or another shard shows, one changed row may not.
SAMPLE_BYTES = 1 << 16
# Longer lines say little.
_SHOWN = 250
_EVERYTHING = (1 << 64) - 1

_SAME_PROGRAM = "every rank compiles the same model, loss, shapes, strategy and optimizer"
_SAME_OPTIONS = "set the same options on all ranks"
_SAME_FLAGS = "all ranks give the same arguments"
_WHOLE_BATCH = "every rank gives the whole batch, in the same order; where each has its own rows, give local=True"
_SAME_ROWS = "these ranks have the same rows of the batch: give them the same, whatever a sampler says by rank"


def fingerprint(tensors: Iterable[torch.Tensor], limit: int = _EVERYTHING) -> int:
    """A hash of dense CPU tensors' bytes, of a sample of those that have more than `limit`."""
    places = [(tensor.data_ptr(), tensor.numel() * tensor.element_size()) for tensor in tensors]
    return _runtime.fingerprint(places, limit)


def program_facts(description: Description, kernels: Iterable[str], imported: str) -> list[Fact]:
    """A compiled program, in such an order that the first thing that differs says most. imported: its text at the end of that phase."""
    inputs = {
        item.name: f"{_type(item)}{'' if item.split else ', not divided'}" for item in description.inputs.values()
    }
    code = hashlib.sha256("\n".join(sorted(kernels)).encode()).hexdigest()
    facts = [
        *(("the mesh", str(description.mesh)),),
        *((f"input '{name}'", text) for name, text in inputs.items()),
        *((f"value '{name}' of the batch", short(value)) for name, value in description.static.items()),
        ("the number of rows of a batch", str(description.rows)),
        *((f"'{name}'", _type(spec)) for name, spec in description.states.items()),
        *((f"whether '{name}' is trained", str(name in description.trainable)) for name in description.states),
        ("whether there is an optimizer", str(description.updates)),
        *((f"the rule of optimizer group '{group.name}'", _rule(group)) for group in description.groups),
        *(
            (f"the parameters of optimizer group '{group.name}'", short(group.parameters))
            for group in description.groups
        ),
        ("whether the loss is divided by a weight", str(description.divide)),
        ("which rank has which part of the batch", str([tuple(part) for part in description.replicas])),
    ]
    return [
        *(Fact(what, value, advice=_SAME_PROGRAM) for what, value in facts),
        *_strategy_facts(imported),
        Fact("the code of the model or its loss", code, "is another", _SAME_PROGRAM),
    ]


def _strategy_facts(imported: str) -> list[Fact]:
    """The directives, without the lines of the user's script that gave them."""
    _, _, rest = imported.partition("piper.strategy @")
    lines = [re.sub(r" loc\(.*\)$", "", line.strip()) for line in rest.partition("\n  }")[0].splitlines()[1:]]
    return [
        Fact(f"directive {number} of the strategy", line, "" if len(line) < _SHOWN else "is another", _SAME_PROGRAM)
        for number, line in enumerate(lines)
    ]


def value_facts(values: Mapping[str, torch.Tensor], kinds: Mapping[str, str], advice: str) -> list[Fact]:
    """Named tensors of which every rank has its own; kinds: what a message calls each."""
    return [
        Fact(f"{kinds[name]} '{name}'", f"{fingerprint([value]):x}", OTHER_VALUES, advice)
        for name, value in values.items()
    ]


def call_facts(
    description: Description,
    arguments: Mapping[str, Any],
    steps: Mapping[str, int],
    tensors: Mapping[str, torch.Tensor],
    span: Sequence[int] | None,
) -> list[Fact]:
    """A call that runs. span: the rows that this rank gives, None for the whole batch."""
    facts = [Fact(name, str(value), advice=_SAME_FLAGS) for name, value in arguments.items()]
    groups = optimizers.describe(description.groups)
    for group in groups:
        where = f" of optimizer group '{group['name']}'" if len(groups) > 1 else ""
        facts += [
            Fact(f"optimizer option '{key}'{where}", short(value), advice=_SAME_OPTIONS)
            for key, value in group["options"].items()
        ]
    facts += [
        Fact(f"the number of steps of '{name}'", str(count), advice=_SAME_OPTIONS) for name, count in steps.items()
    ]
    for name, tensor in tensors.items():
        is_local = span is not None and description.inputs[name].split
        among, advice = (f"rows {span[0]} to {span[1] - 1}", _SAME_ROWS) if is_local else ("", _WHOLE_BATCH)
        value = f"{fingerprint([tensor], SAMPLE_BYTES):x}"
        facts.append(Fact(f"input '{name}'", value, OTHER_VALUES, advice, among))
    return facts


def _type(spec: Any) -> str:
    return f"{str(spec.dtype).removeprefix('torch.')} of shape {tuple(spec.shape)}"


def _rule(group: optimizers.Group) -> str:
    options = ", ".join(f"{name}={value}" for name, value in group.config.items())
    return f"{group.rule}({options}) with {', '.join(group.slots) or 'no moments'}"
