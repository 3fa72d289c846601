# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Faults planted into a compiled program, each a program that runs and is wrong: in its plan, its code, the numbers of its optimizer, or its state.

The plan is changed as text and exported anew; what the proofs of the compiler would find is not asked.
"""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from piper._mlir import ir
from piper._mlir._mlir_libs import _piper, _piperCodegen
from piper.cache import CompiledObject
from piper.phases import _standalone
from piper.program import Program
from piper.report import Report
from verify_models import Case, again, verified


@dataclass
class Fault:
    """A fault, and the program that has it."""

    name: str
    case: Case
    program: Callable[[], Program]
    seed: int

    def verify(self) -> Report:
        """What `piper.verify` says of it."""
        self.case.redraw(self.seed)
        return verified(self.case, self.program(), self.case.truths(self.seed))


def planted(case: Case, program: Program, seed: int) -> Iterator[Fault]:
    """Every kind of fault that the program can have, at a place drawn by chance."""
    draw = random.Random(seed)
    kinds = [
        *_plans(case, program, draw),
        *_kernels(case, program, draw),
        *_numbers(case, program),
        *_states(case, program),
    ]
    for index, (name, make) in enumerate(kinds):
        yield Fault(name, case, make, 100 * seed + index)


# In the plan.


def _plans(case: Case, program: Program, draw: random.Random) -> Iterator[tuple[str, Callable[[], Program]]]:
    text = program.ir("planned")
    for name, change in PLAN_CHANGES.items():
        changed = _in_step(text, lambda lines, change=change: change(lines, draw))
        if changed != text:
            yield name, lambda changed=changed: again(program, case.model, plan=_export(changed, program._kernels))


def _export(text: str, kernels: Mapping[str, CompiledObject]) -> bytes:
    text = text.replace('piper.flags = ["fresh", ', 'piper.flags = ["never", "fresh", ')
    workspaces = {name: item.metadata["workspace_bytes"] for name, item in kernels.items()}
    with ir.Context():
        return _piper.export_plan(ir.Module.parse(text), workspaces)


def _in_step(text: str, change: Callable[[list[str]], list[str]]) -> str:
    """The text with the entries "step" of all ranks changed."""
    out, step = [], []
    inside = False
    for line in text.split("\n"):
        if inside and line.strip() == "}":
            out += change(step)
            inside, step = False, []
        (step if inside else out).append(line)
        inside = inside or 'piper.plan.entry "step"' in line
    return "\n".join(out)


def _without(pattern: str, one: bool = False) -> Callable[[list[str], random.Random], list[str]]:
    """The lines that match, or one of them, never run."""

    def change(lines, draw):
        found = [index for index, line in enumerate(lines) if re.search(pattern, line)]
        gone = {draw.choice(found)} if one and found else set(found)
        return [_never(line) if index in gone else line for index, line in enumerate(lines)]

    return change


def _never(line: str) -> str:
    return re.sub(r'( when "!?[a-z]+")? label ', ' when "never" label ', line)


def _replaced(pattern: str, text: str) -> Callable[[list[str], random.Random], list[str]]:
    return lambda lines, _: [re.sub(pattern, text, line) for line in lines]


_ADDED = r'accumulate "add" (?!scalar)(?!.*"!fresh").*label "accumulate [^"]'
PLAN_CHANGES = {
    "a microbatch dropped for one parameter": _without(_ADDED, one=True),
    "a microbatch dropped": _without(_ADDED),
    "a replica's rows twice": _replaced(r"(input \d+\[\d+ \+ @group\.0 \* )\d+", r"\g<1>0"),
    "a microbatch's rows twice": _replaced(r"input (\d+)\[[1-9]\d*", r"input \1[0"),
    "gradients of replicas not added": _without(r'(all_reduce|reduce_scatter) sum .*when "reduce"'),
    "a stale gather": _without(r"piper\.plan\.all_gather ", one=True),
    "an update missed": _without(r'piper\.plan\.launch "update_', one=True),
    "the weight of one microbatch only": _without(r'accumulate "add" scalar\[68\]'),
    "the weight of one replica only": _without(r"all_reduce sum scalar"),
}


# In its code.


def _kernels(case: Case, program: Program, draw: random.Random) -> Iterator[tuple[str, Callable[[], Program]]]:
    functions = _functions(program)
    half = any(parameter.dtype == torch.bfloat16 for parameter in case.model.parameters())
    # Of one element is what a softmax does not see: its gradient is rounding alone, of either sign.
    trained = [p for p in case.model.parameters() if p.requires_grad and p.numel() > 1]
    shapes = {"x".join(map(str, p.shape)) + "xf32" for p in trained}
    factor = 1.5 if half else 1.001
    for name, factors in (
        (f"a gradient times {factor}", lambda count: [factor] * count),
        ("a gradient that is left out", lambda count: [0.0] * count),
    ):
        found = _scaled(functions, shapes, factors, draw)
        if found:
            yield name, lambda found=found: _with_code(case, program, *found)
    if not half:
        found = _scaled(functions, shapes, lambda count: [-1.0] * count, draw)
        if found:
            yield "a gradient of the other sign", lambda found=found: _with_code(case, program, *found)
    updates = [name for name in functions if name.startswith("update_adam")]
    for old, new in (("9.990000e-01", "9.900000e-01"), ("1.000000e-01", "1.010000e-01")):
        if updates and f"{old} : f32" in functions[updates[0]]:
            text = functions[updates[0]].replace(f"{old} : f32", f"{new} : f32")
            yield f"{old} instead of {new} in the update", lambda text=text: _with_code(case, program, updates[0], text)


def _functions(program: Program) -> dict[str, str]:
    with ir.Context():
        module = ir.Module.parse(program.ir("planned"))
        found = [op for op in module.body.operations if op.operation.name == "func.func"]
        named = {ir.StringAttr(op.attributes["sym_name"]).value: _standalone(op) for op in found}
    return {name: text for name, text in named.items() if name in program._kernels}


def _scaled(functions, shapes, factors, draw) -> tuple[str, str] | None:
    """One function of the backward, one result of which, of a parameter's shape, is multiplied by numbers; None where there is none."""
    places = []
    for name, text in sorted(functions.items()):
        returned = re.search(r"^ *return (.*) : (.*)$", text, re.M)
        if name.startswith(("B_", "W_")) and returned:
            types = [kind[len("tensor<") : -1] for kind in returned.group(2).split(", ")]
            places += [(name, index, kind) for index, kind in enumerate(types) if kind in shapes]
    if not places:
        return None
    name, index, kind = draw.choice(places)
    returned = re.search(r"^ *return (.*) : (.*)$", functions[name], re.M)
    values = returned.group(1).split(", ")
    sizes = [int(size) for size in kind.split("x")[:-1]]
    dims = ", ".join(f"d{axis}" for axis in range(len(sizes)))
    count = 1
    for size in sizes:
        count *= size
    same, loops = f"affine_map<({dims}) -> ({dims})>", ", ".join(['"parallel"'] * len(sizes))
    added = f"""    %fault = arith.constant dense<{json.dumps(_nested(factors(count), sizes))}> : tensor<{kind}>
    %room = tensor.empty() : tensor<{kind}>
    %scaled = linalg.generic {{indexing_maps = [{same}, {same}, {same}], iterator_types = [{loops}]}} ins({values[index]}, %fault : tensor<{kind}>, tensor<{kind}>) outs(%room : tensor<{kind}>) {{
    ^bb0(%own: f32, %by: f32, %out: f32):
      %product = arith.mulf %own, %by : f32
      linalg.yield %product : f32
    }} -> tensor<{kind}>
"""
    values[index] = "%scaled"
    line = f"    return {', '.join(values)} : {returned.group(2)}"
    return name, functions[name].replace(returned.group(0), added + line)


def _nested(values: list[float], sizes: list[int]):
    return torch.tensor(values, dtype=torch.float64).reshape(sizes).tolist()


def _with_code(case: Case, program: Program, name: str, text: str) -> Program:
    code, metadata = _piperCodegen.compile_object(text, *_piperCodegen.host_cpu())
    kernels = {**program._kernels, name: CompiledObject(bytes(code), json.loads(metadata))}
    # It may need more room.
    return again(program, case.model, plan=_export(program.ir("planned"), kernels), kernels=kernels)


# In the numbers that each step hands over.


def _numbers(case: Case, program: Program) -> Iterator[tuple[str, Callable[[], Program]]]:
    def with_scalars(change, only=None):
        groups = [
            _Changed(group, change) if only in (None, index) else group
            for index, group in enumerate(program._description.groups)
        ]
        made = again(program, case.model)
        made._description = dataclasses.replace(made._description, groups=groups)
        return made

    groups = program._description.groups
    last = len(groups) - 1
    rate = "lr" if groups[0].rule == "sgd" else "step_size"
    yield "a learning rate 1.01 times as large in one group", lambda: with_scalars(_times(rate, 1.01), only=last)
    if groups[0].rule != "sgd":
        yield "bias correction of the next step", lambda: with_scalars(lambda group, step: group.scalars(step + 1))
    decay = "decay" if groups[0].rule == "adamw" else "weight_decay"
    if any(group.options["weight_decay"] for group in groups):
        yield "weight decay applied twice", lambda: with_scalars(lambda group, step: _twice(group.scalars(step), decay))
        if last:
            other = groups[0].scalars(1)[decay]
            yield (
                "weight decay of another group",
                lambda: with_scalars(lambda group, step: {**group.scalars(step), decay: other}, only=last),
            )
    if groups[0].slots == ["momentum_buffer"]:
        yield "momentum of 0.89", lambda: with_scalars(_times("momentum", 0.89 / 0.9))


def _times(name, factor):
    return lambda group, step: {
        key: value * (factor if key == name else 1) for key, value in group.scalars(step).items()
    }


def _twice(scalars, decay):
    return {**scalars, decay: scalars[decay] ** 2 if decay == "decay" else 2 * scalars[decay]}


class _Changed:
    """A group whose numbers are others."""

    def __init__(self, group, change):
        self._group, self._change = group, change

    def __getattr__(self, name):
        return getattr(self._group, name)

    def scalars(self, step):
        return self._change(self._group, step)


# In its state.


def _states(case: Case, program: Program) -> Iterator[tuple[str, Callable[[], Program]]]:
    trained = [name for name, p in case.model.named_parameters() if p.requires_grad and p.dim() > 1]
    name = trained[-1]

    def stepping(after=None, flags=None):
        made = again(program, case.model)
        step, run, taken = made.step, made._run, [0]

        def changed(batch):
            before = {**made._read_all()}
            loss = step(batch)
            taken[0] += 1
            return after(made, before, loss, taken[0]) if after else loss

        def running(entry, given, *rest):
            return run(entry, flags(given, taken[0]) if flags and entry == "step" else given, *rest)

        made.step, made._run = changed, running
        return made

    def write(made, values, loss):
        for key, value in values.items():
            made._write(key, value)
        return loss

    def half_old(made, before, loss, _):
        value, rows = made._read(name), len(before[name]) // 2
        return write(made, {name: torch.cat([before[name][:rows], value[rows:]])}, loss)

    yield (
        "an update missed for one parameter",
        lambda: stepping(lambda made, before, loss, _: write(made, {name: before[name]}, loss)),
    )
    yield "half of a parameter that stays old", lambda: stepping(half_old)
    half = any(parameter.dtype == torch.bfloat16 for parameter in case.model.parameters())
    factor = 1.05 if half else 1.0001
    yield f"a loss {factor} times as large", lambda: stepping(lambda made, before, loss, _: loss * factor)
    if not half:
        yield (
            "gradients of the step before not forgotten",
            lambda: stepping(flags=lambda given, taken: given - {"fresh"} if taken and "update" in given else given),
        )
    slots = program._description.groups[0].slots
    own = next((n for n in program._description.groups[0].parameters if n in program._description.trainable), None)
    if slots and own:
        yield (
            "a moment forgotten",
            lambda: stepping(
                lambda made, before, loss, taken: write(
                    made, {f"{own}:{slots[0]}": torch.zeros_like(before[own])} if taken == 1 else {}, loss
                )
            ),
        )
        yield "a moment that is not reset", lambda: _with_moments(again(program, case.model), own, slots[0])
    if any("average" in buffer for buffer, _ in case.model.named_buffers()):
        yield "a buffer not written", lambda: stepping(flags=lambda given, _: given - {"buffers"})
    frozen = [n for n, p in case.model.named_parameters() if not p.requires_grad]
    if frozen:
        yield (
            "a frozen parameter that moves",
            lambda: stepping(lambda made, before, loss, _: write(made, {frozen[0]: before[frozen[0]] * 1.001}, loss)),
        )
    yield "a start elsewhere", lambda: _moved(again(program, case.model), name)


def _with_moments(made: Program, name: str, slot: str) -> Program:
    made._write(f"{name}:{slot}", torch.full_like(made._read(f"{name}:{slot}"), 1e-3))
    return made


def _moved(made: Program, name: str) -> Program:
    made._write(name, made._read(name) * 1.001)
    return made
