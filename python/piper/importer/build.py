# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`import_model`: from a PyTorch model, a loss and an example batch to the imported program."""

from __future__ import annotations

import contextlib
import hashlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .ambient import autocast_here, set_aside, with_autocast
from .annotate import BLOCK_TAG
from .backward_code import PARAMETER_ADVICE
from .backward_mixing import backward_mixing, has_user_code
from .capture import Joint
from .carried import Observer
from .dtypes import SUPPORTED, refuse_unsupported
from .equivalents import instead_of
from .errors import ImporterError
from .graphs import calls
from .half_precision import is_half, use_masters
from .imported import Family, Imported, InputRef, Node, ResultRef, State, TensorSpec, Value
from .inputs import Batch, describe
from .loss_form import LossForm
from .pieces import Program, program_of, row_dependent_constants
from .proportion import Proportion, start_from_mean
from .python_state import PythonState
from .saved_names import saved_names
from .step import LOSS, MODEL, Step, Survey
from .unify import unify
from .wrapped import plain_module

_REAL_FORM = "write them as pairs of real ones, rotary embeddings by cos and sin"


@set_aside()
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
    form: LossForm | None = None,
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
        form: how the loss of the same model combines in training, which saves finding it out again.

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
    children = _children(model, loss_fn)
    observer = Observer(model, loss_fn)
    step = Step(children, loss_fn, example, inputs, loss_reduction, example_rows, observer)
    is_divided = example_rows is not None and wanted_rows != (example_rows,)
    with contextlib.nullcontext() if training else _evaluating(children.values()):
        states = _states(children)
        aliases = _aliases(children, states)
        if is_divided and form is not None and form.traits is not None and not training:
            known = Survey(form)
            joints, weights = step.capture_alike(wanted_rows, form, aliases)
        else:
            known = step.survey(wanted_rows[0]) if is_divided else Survey()
            joints, weights = step.capture(wanted_rows, known.form, training, aliases)
        if training and not is_divided and step.form.kind == "pair" and example_rows is not None:
            _refuse_means(step, example_rows)
        mixing = [*known.mixing, *step.form.scalars]
        if training and is_divided and has_user_code(joints[wanted_rows[0]]):
            others, _ = step.capture([2 * wanted_rows[0]], step.form, training, aliases)
            mixing += backward_mixing(joints[wanted_rows[0]], others[2 * wanted_rows[0]])
    for joint in joints.values():
        use_masters(joint, _trained(children))
    if training:
        _settle_scale(joints, step.form, example_rows)
    changing = dict(zip(joints, row_dependent_constants(list(joints.values())), strict=False))
    programs = {
        count: program_of(joint, changing[count], aliases, list(step.inputs), divided)
        for count, joint in joints.items()
    }
    imported = _assemble(programs, states, step.inputs, static, step.form, training)
    imported.mixing = tuple(dict.fromkeys(mixing)) if training else ()
    imported.weights = weights
    shapes = example.map(lambda path, value: None if path in inputs else value)
    imported.python = observer.state(_Retrace(model, loss_fn, step.options(shapes), wanted_rows[0], training), training)
    return imported


def _refuse_means(step: Step, rows: int) -> None:
    """A loss and a metric look like a sum and its weight, also where nothing is divided."""
    form = step.survey(rows).form
    if form is not None and not form.splittable:
        raise ImporterError(form.advice)


class _Retrace:
    """Captures a step once more, as it was captured at first, without keeping its model alive."""

    def __init__(self, model: nn.Module, loss_fn: Callable, options: tuple, rows: int | None, training: bool):
        self._model, self._loss_fn = weakref.ref(model), loss_fn
        self._options, self._rows, self._training = options, rows, training
        self._modes = {name: part.training for name, part in model.named_modules()}
        self._autocast = autocast_here()

    def __call__(self, expected: str) -> PythonState | None:
        """What the step takes from Python now; None if it is not the step of that fingerprint. Raises whatever a capture raises."""
        model = self._model()
        if model is None:
            return None
        children = _children(model, self._loss_fn)
        observer = Observer(model, self._loss_fn, quiet=True)
        # Between steps models are in eval mode, and back in training mode; what was in eval mode at first and is in training mode now is meant to train.
        modes = {part: self._modes.get(name, False) or part.training for name, part in model.named_modules()}
        in_mode = _in_modes(modes) if self._training else _evaluating(children.values())
        with with_autocast(self._autocast), set_aside(), in_mode:
            Step.again(children, self._loss_fn, self._options, observer).capture_part(self._rows, self._training)
        return observer.state(self, self._training) if observer.fingerprint == expected else None


def _children(model: nn.Module, loss_fn: Callable) -> dict[str, nn.Module]:
    return {MODEL: model, **({LOSS: loss_fn} if isinstance(loss_fn, nn.Module) else {})}


def _check_tensors(model: nn.Module) -> None:
    """On the meta device torch would leave the backward out without a word."""
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedTensorMixin):
            raise ImporterError(f"parameter '{name}' has no shape yet: call the model once on a batch")
        if parameter.is_inference():
            raise ImporterError(f"parameter '{name}' was made under torch.inference_mode: make the model outside of it")
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
            raise ImporterError(
                f"buffer '{name}' is of {buffer.dtype}: expected real numbers, as torch.view_as_real gives them; {_REAL_FORM}"
            )
        refuse_unsupported(f"buffer '{name}'", buffer.dtype)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.device.type != "cpu":
            advice = (
                "which holds no values: make it with torch.set_default_device('cpu'), outside of torch.device('meta')"
                if tensor.is_meta
                else "model.to('cpu')"
            )
            raise ImporterError(f"expected the model on the CPU, got '{name}' on device {tensor.device}: {advice}")


def _settle_scale(joints: Mapping[int | None, Joint], form: LossForm, total_rows: int | None) -> None:
    """Where code of the user does with gradients what is not in proportion to them, it has to see those of the whole batch's loss."""
    lines = {line: None for joint in joints.values() for line in Proportion(joint).lines}
    if not lines or not form.divide:
        return
    per_row = form.weight_per_row
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


def _evaluating(modules) -> contextlib.AbstractContextManager:
    return _in_modes({part: False for module in modules for part in module.modules()})


@contextlib.contextmanager
def _in_modes(modes: Mapping[nn.Module, bool]) -> Iterator[None]:
    before = {part: part.training for part in modes}
    try:
        for part, mode in modes.items():
            part.training = mode
        yield
    finally:
        for part, mode in before.items():
            part.training = mode


def state_name(traced: str) -> str:
    """The user's name of a parameter or buffer of the traced step: the model's own are named as in the model."""
    return traced.removeprefix(MODEL + ".")


def _refuse_types(families: Mapping[str, Family]) -> None:
    """Refuses complex numbers, and element types that a program can't have, by the lines that make them."""
    complex_lines, others, forms = {}, {}, {_REAL_FORM: None}
    for family in families.values():
        for function in family.members.values():
            for node in calls(function.graph):
                value = node.meta.get("val")
                if isinstance(value, torch.Tensor) and value.dtype not in SUPPORTED:
                    line = f"{node.meta['origin'].place or 'unknown line'}: '{node.target}'"
                    form = instead_of(str(node.target)) if value.is_complex() else ""
                    forms |= {form: None} if form else {}
                    (complex_lines if value.is_complex() else others)[line] = value.dtype
    if complex_lines:
        raise ImporterError(
            f"complex numbers in forward are not supported ({'; '.join(forms)}): {'; '.join(complex_lines)}"
        )
    for line, dtype in others.items():
        refuse_unsupported(f"{line}: its result", dtype)


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
    _refuse_ambiguous(names.values())
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


def _aliases(children: Mapping[str, nn.Module], states: Mapping[str, State]) -> dict[str, str]:
    """From each name in the traced step to the name of its state."""
    traced = {
        name
        for prefix, module in children.items()
        for method in (nn.Module.named_parameters, nn.Module.named_buffers)
        for name in (f"{prefix}.{own}" for own, _ in method(module, remove_duplicate=False))
    }
    owners = {name: state.name for state in states.values() for name in state.all_names}
    return {name: owners[state_name(name)] for name in traced}


def _refuse_ambiguous(names: Iterable[Sequence[str]]) -> None:
    """Names that stand for two tensors: the loss's own are those below "loss_fn", and those of gradients and moments have a colon."""
    owners: dict[str, int] = {}
    for number, own in enumerate(names):
        for name in own:
            if owners.setdefault(name, number) != number:
                raise ImporterError(
                    f"'{name}' is a name of the model and of the loss, whose names begin with '{LOSS}.': rename the model's '{LOSS}'"
                )
    for name in owners:
        if name.rpartition(":")[0] in owners:
            raise ImporterError(f"'{name}' could be something of '{name.rpartition(':')[0]}': rename it")


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
    _refuse_types(families)
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
