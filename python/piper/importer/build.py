# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`import_model`: from a PyTorch model, a loss and an example batch to the imported program."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .annotate import BLOCK_TAG
from .backward_code import PARAMETER_ADVICE
from .backward_mixing import backward_mixing, has_user_code
from .capture import Joint, capture, dry_run
from .errors import ImporterError
from .graphs import calls
from .half_precision import is_half, use_masters
from .imported import Family, Imported, Input, InputRef, Node, ResultRef, State, TensorSpec, Value
from .inputs import Batch, describe, explain_call
from .loss import LossForm, loss_pair
from .pieces import Program, program_of, row_dependent_constants
from .proportion import Proportion, start_from_mean
from .row_mixing import Recorder, mixing_lines
from .saved_names import saved_names
from .unify import unify
from .wrapped import plain_module

MODEL, LOSS = "model", "loss_fn"


def import_model(
    model: nn.Module,
    loss_fn: Callable,
    batch: Any,
    rows: Sequence[int] | None = None,
    *,
    training: bool = True,
    loss_reduction: str | None = None,
    batch_dims: Mapping[str, int | None] | None = None,
    divided: bool = False,
) -> Imported:
    """Captures one step of `model` under `loss_fn` and cuts it into chunks by its annotations.

    The model is traced with fake tensors: nothing of it is run or changed, nor is the global random generator.

    Args:
        model: annotated by `piper.annotate` in its forward or by `piper.annotate_modules`, or not at all (then its
            repeated blocks are the chunks).
        loss_fn: `loss_fn(output, target)`; returns (sum, weight), or a scalar tensor (see loss.py).
        batch: an example, `(args…, target)` or `dict(args=…, kwargs=…, target=…)`; only shapes and dtypes of its
            tensors count.
        rows: the numbers of rows to make functions for; those of the example by default.
        training: True: the model as it is, with backward. False: forward in eval mode.
        loss_reduction: None, or "mean_rows" or "sum" where loss_fn returns a scalar that is not recognised.
        divided: whether each backward becomes two nodes: I, which other chunks wait for, and W.
        batch_dims: input name to 0 (divided over microbatches) or None (not divided), where dim 0 does not tell.

    Raises:
        ImporterError: naming the input, operation or module at fault.
    """
    model = plain_module(model)
    example = Batch.of(batch)
    inputs, static, example_rows = describe(example, batch_dims)
    wanted_rows = tuple(dict.fromkeys(rows)) if rows else (example_rows,)
    if example_rows is None and (len(wanted_rows) > 1 or wanted_rows[0] is not None):
        raise ImporterError(
            "no tensor of the batch has rows to divide: give batch_dims, or a target whose dim 0 counts the rows"
        )
    if any(count is not None and count < 1 for count in wanted_rows):
        raise ImporterError(f"expected at least one row per microbatch, got {min(wanted_rows)}")
    _check_tensors(model)
    children = {MODEL: model, **({LOSS: loss_fn} if isinstance(loss_fn, nn.Module) else {})}
    forms: dict[int | None, LossForm] = {}
    joints: dict[int | None, Joint] = {}
    with contextlib.nullcontext() if training else _evaluating(children.values()):
        for count in wanted_rows:
            joints[count], forms[count] = _capture(
                children, loss_fn, example, inputs, count, training, loss_reduction, example_rows
            )
        if training:
            _check_other_rows(children, loss_fn, example, inputs, forms, loss_reduction, example_rows)
        mixing = ()
        if training and example_rows is not None and wanted_rows != (example_rows,):
            mixing = _mixing_lines(children, loss_fn, example, inputs, wanted_rows[0], loss_reduction, example_rows)
            if has_user_code(joints[wanted_rows[0]]):
                at = 2 * wanted_rows[0]
                other = _capture(children, loss_fn, example, inputs, at, training, loss_reduction, example_rows)[0]
                mixing = tuple(dict.fromkeys([*mixing, *backward_mixing(joints[wanted_rows[0]], other)]))
    states = _states(children)
    for joint in joints.values():
        use_masters(joint, _trained(children))
    _check_forms(forms)
    if training:
        _settle_scale(joints, forms[wanted_rows[0]], example_rows)
    changing = dict(zip(joints, row_dependent_constants(list(joints.values())), strict=False))
    programs = {
        count: program_of(joint, changing[count], _aliases(states), list(inputs), divided)
        for count, joint in joints.items()
    }
    imported = _assemble(programs, states, inputs, static, forms[wanted_rows[0]], training)
    imported.mixing = mixing
    return imported


def _call(model: nn.Module, batch: Batch):
    try:
        return model(*batch.args, **batch.kwargs)
    except (TypeError, AttributeError) as error:
        reason = explain_call(model.forward, batch, error)
        if reason is None:
            raise
        raise ImporterError(reason) from error


def _check_tensors(model: nn.Module) -> None:
    """On the meta device torch would leave the backward out without a word."""
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedTensorMixin):
            raise ImporterError(f"parameter '{name}' has no shape yet: call the model once on a batch")
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise ImporterError(
                f"parameter '{name}' has a hook on its gradient, which a compiled step does not call: remove it, and {PARAMETER_ADVICE}"
            )
        if parameter.dtype.is_complex:
            raise ImporterError(f"parameter '{name}' is of {parameter.dtype}: expected real parameters")
        if parameter.dtype == torch.float16 and parameter.requires_grad:
            raise ImporterError(
                f"parameter '{name}' is of torch.float16, whose gradients need a loss scale, which is not supported: expected "
                "torch.bfloat16 or torch.float32 (model.bfloat16() or model.float())"
            )
    for name, buffer in model.named_buffers():
        if buffer.dtype.is_complex:
            raise ImporterError(f"buffer '{name}' is of {buffer.dtype}: expected real numbers")
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.device.type != "cpu":
            raise ImporterError(f"expected the model on the CPU, got '{name}' on device {tensor.device}")


def _capture(
    children,
    loss_fn,
    example: Batch,
    inputs: Mapping[str, Input],
    rows: int | None,
    training: bool,
    reduction: str | None,
    total_rows: int | None,
):
    run, form = _step(children[MODEL], loss_fn, example, inputs, rows, reduction, total_rows)
    return capture(children, children[MODEL], run, _examples(inputs, rows), training), form[0]


def _step(model, loss_fn, example, inputs, rows, reduction, total_rows, in_loss=contextlib.nullcontext):
    """A function of the inputs' tensors that gives (sum, weight), and a list that holds the loss's form once it has run."""
    form: list[LossForm] = []

    def run(tensors):
        named = dict(zip(inputs, tensors, strict=False))
        call = example.map(lambda path, value: named.get(path, value))
        output = _call(model, call)
        with in_loss():
            total, weight, found = loss_pair(loss_fn, output, call.target, reduction, rows)
        form[:] = [found]
        if not found.divide and rows is not None:
            # Weights of all parts add up to 1: the loss is the sum itself.
            weight = weight * (rows / total_rows)
        return total.to(torch.float32), weight.to(torch.float32)

    return run, form


def _settle_scale(joints: Mapping[int | None, Joint], form: LossForm, total_rows: int | None) -> None:
    """Where code of the user does with gradients what is not in proportion to them, it has to see those of the whole batch's loss."""
    lines = {line: None for joint in joints.values() for line in Proportion(joint).lines}
    if not lines or not form.divide:
        return
    per_row = 1.0 if form.kind == "mean_rows" else form.elements_per_row
    if per_row is None and list(joints) != [total_rows]:
        raise ImporterError(
            f"{', '.join(lines)}: a hook or a backward of your own does what is not in proportion to the gradient (a clamp, say), and "
            "the weight of the loss of the whole batch, which the gradient is divided by, is known only after all its parts: return "
            "a mean over a number of elements that is known (.mean() of reduction='none', or loss_reduction='mean_rows'), or leave "
            "the batch whole"
        )
    weight = per_row * total_rows if per_row is not None else None
    for joint in joints.values():
        start_from_mean(joint, weight)


def _mixing_lines(children, loss_fn, example, inputs, rows, reduction, total_rows) -> tuple[str, ...]:
    def run(count: int, recorder: Recorder) -> None:
        step, _ = _step(children[MODEL], loss_fn, example, inputs, count, reduction, total_rows, recorder.loss)

        def recorded(tensors):
            with recorder:
                return step(tensors)

        dry_run(children, recorded, _examples(inputs, count))

    try:
        return mixing_lines(run, rows)
    except Exception:  # noqa: BLE001  (a model may refuse other numbers of rows than it is used with, in any way)
        return ()


def _examples(inputs: Mapping[str, Input], rows: int | None) -> list[torch.Tensor]:
    return [torch.empty(i.spec(rows).shape if rows is not None else i.shape, dtype=i.dtype) for i in inputs.values()]


def _check_other_rows(children, loss_fn, example, inputs, forms, reduction, total_rows) -> None:
    """Adds the form of the loss at one more number of rows, where the batch is divided into equal parts: a mean over what
    does not grow with the rows looks like any other at a single number.
    """
    (rows, form), *others = forms.items()
    if others or form.elements_per_row is None or rows == total_rows:
        return
    run, found = _step(children[MODEL], loss_fn, example, inputs, rows + 1, reduction, total_rows)
    try:
        dry_run(children, run, _examples(inputs, rows + 1))
    except Exception as error:
        raise ImporterError(
            f"the model runs with {rows} rows and not with {rows + 1}, so nothing tells whether its loss is a mean over them: return a pair "
            f"(sum, weight) from loss_fn, or declare loss_reduction='mean_rows' or 'sum' ({type(error).__name__}: {error})"
        ) from error
    forms[rows + 1] = found[0]


@contextlib.contextmanager
def _evaluating(modules) -> Iterator[None]:
    modes = {part: part.training for module in modules for part in module.modules()}
    try:
        for part in modes:
            part.training = False
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def _check_forms(forms: Mapping[int | None, LossForm]) -> None:
    distinct = set(forms.values())
    if len(distinct) > 1:
        raise ImporterError(
            "the loss is a mean over a number of elements that does not grow with the rows of the batch, so parts "
            "of a batch can't be combined:"
            " return a pair (sum, weight) from loss_fn, or declare loss_reduction='mean_rows' or 'sum'"
        )


def state_name(traced: str) -> str:
    """The user's name of a parameter or buffer of the traced step: the model's own are named as in the model."""
    return traced.removeprefix(MODEL + ".")


def _refuse_complex(families: Mapping[str, Family]) -> None:
    lines = {}
    for family in families.values():
        for function in family.members.values():
            for node in calls(function.graph):
                value = node.meta.get("val")
                if isinstance(value, torch.Tensor) and value.is_complex():
                    lines[f"{node.meta['origin'].source or 'unknown line'}: '{node.target}'"] = None
    if lines:
        raise ImporterError(
            "complex numbers in forward are not supported (write them as pairs of real ones; rotary embeddings by cos and "
            "sin): " + "; ".join(lines)
        )


def _trained(children: Mapping[str, nn.Module]) -> set[str]:
    """The names in the traced step of the parameters that are trained."""
    return {
        f"{prefix}.{name}"
        for prefix, module in children.items()
        for name, parameter in nn.Module.named_parameters(module, remove_duplicate=False)
        if parameter.requires_grad
    }


def _states(children: Mapping[str, nn.Module]) -> dict[str, State]:
    names: dict[int, list[str]] = {}
    tensors: dict[int, tuple[torch.Tensor, str]] = {}
    saved: set[int] = set()
    for prefix, module in children.items():
        found = _own_tensors(module)
        own = {str(key): tensor for key, (tensor, _, _) in found.items()}
        saved |= {int(key) for key in saved_names(module, own).values()}
        for key, (tensor, kind, its_names) in found.items():
            names.setdefault(key, []).extend(state_name(f"{prefix}.{name}") for name in its_names)
            tensors[key] = (tensor, kind)
    states = {}
    for key, (tensor, kind) in tensors.items():
        states[names[key][0]] = State(
            names[key][0],
            tuple(names[key]),
            tuple(tensor.shape),
            torch.float32 if tensor.requires_grad and is_half(tensor) else tensor.dtype,
            kind,
            tensor.requires_grad,
            kind == "parameter" or key in saved,
            tensor,
        )
    return states


def _own_tensors(module: nn.Module) -> dict[int, tuple[torch.Tensor, str, list[str]]]:
    """Parameters and buffers by id, with kind and names: those of the module's own methods first, which a wrapper may give better ones, then where they are."""
    found: dict[int, tuple[torch.Tensor, str, list[str]]] = {}
    for kind, methods in (
        ("parameter", (type(module).named_parameters, nn.Module.named_parameters)),
        ("buffer", (type(module).named_buffers, nn.Module.named_buffers)),
    ):
        for method in dict.fromkeys(methods):
            for name, tensor in method(module, remove_duplicate=False):
                names = found.setdefault(id(tensor), (tensor, kind, []))[2]
                if name not in names:
                    names.append(name)
    return found


def _aliases(states: Mapping[str, State]) -> dict[str, str]:
    """From each name in the traced step to the name of its state."""
    result = {}
    for state in states.values():
        for name in state.all_names:
            result[name] = result[f"{MODEL}.{name}"] = state.name
    return result


def _assemble(programs: Mapping[int | None, Program], states, inputs, static, form, training) -> Imported:
    reference_rows, reference = next(iter(programs.items()))

    def spec(rows: int | None, value: Value) -> TensorSpec:
        if isinstance(value, ResultRef):
            return programs[rows].pieces[value.node].function.results[value.result]
        if isinstance(value, InputRef):
            return inputs[value.name].spec(rows)
        if value.name in states:
            return states[value.name].spec
        constant = programs[rows].constants[value.name]
        return TensorSpec(tuple(constant.shape), constant.dtype)

    unify(programs, spec)
    for count, program in programs.items():
        difference = reference.difference(program)
        if difference:
            raise ImporterError(
                f"the model is not the same program for {reference_rows} and for {count} rows: {difference}; use "
                "equal microbatches"
            )
    families: dict[str, Family] = {}
    nodes = []
    for index, piece in enumerate(reference.pieces):
        members = {count: program.pieces[index].function for count, program in programs.items()}
        digest = hashlib.sha256(
            " ".join(f"{count}:{function.name}" for count, function in members.items()).encode()
        ).hexdigest()[:16]
        name = f"{piece.pass_}_{digest}" if len(members) > 1 else next(iter(members.values())).name
        tags = {tag: number for tag, number in piece.tags}
        family = families.setdefault(name, Family(name, piece.pass_, tuple(tags), members))
        family.tags = tuple(tag for tag in family.tags if tag in tags)
        label = " ".join(
            [piece.pass_, *(f"{tag}={number}" for tag, number in sorted(tags.items(), key=lambda t: t[0] == BLOCK_TAG))]
        )
        nodes.append(
            Node(
                index,
                label,
                name,
                piece.pass_,
                tags,
                reference.operands[index],
                reference.results[index],
                tuple((giver, number) for giver, number in reference.takes[index] if reference.gives[giver][number]),
                reference.gives[index],
                piece.key[0] == "G",
                piece.where(),
            )
        )
    _refuse_complex(families)
    constants = {
        name: State(name, (name,), tuple(value.shape), value.dtype, "constant", False, False, value)
        for name, value in reference.constants.items()
    }
    trainable = {
        name: reference.gradients.get(name, [])
        for name, state in states.items()
        if state.kind == "parameter" and state.trainable and training
    }
    return Imported(
        training,
        tuple(programs),
        {**states, **constants},
        dict(inputs),
        families,
        nodes,
        trainable,
        reference.writes,
        form,
        reference.loss[0],
        reference.loss[1],
        dict(static),
    )
