# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Captures the joint graph of forward, loss and backward of a model. The only file that calls private parts of torch.

aot_export_joint_with_descriptors traces the eager module with fake tensors: the user's parameters, buffers, gradients
and generator stay as they are. What later files need of torch's private metadata is translated here into `Origin`s and
`Port`s.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from . import advice, attention, backward_code, embedding_bags
from .annotate import Scope, TagRecorder, module_scopes, recording
from .equivalents import instead_of
from .errors import ImporterError
from .imported import TensorSpec
from .lines import Place, is_user_file, last_user_line, last_user_place, naming, user_line, user_place
from .mean_losses import refuse_dropped_weight

_SUPPORTED = ((2, 13), (2, 14))
_version = tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", torch.__version__).groups())
if not _SUPPORTED[0] <= _version < _SUPPORTED[1]:
    raise ImportError(
        "expected torch >=2.13,<2.14 (the importer uses parts of torch that change between releases), got "
        f"{torch.__version__}"
    )

import torch.fx.traceback as fx_traceback  # noqa: E402  (the version check has to come first)
from torch._C._functorch import is_functorch_wrapped_tensor  # noqa: E402, F401
from torch._decomp import core_aten_decompositions, get_decompositions  # noqa: E402
from torch._export.utils import _compiling_state_context  # noqa: E402
from torch._functorch._aot_autograd import descriptors as aot  # noqa: E402
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors  # noqa: E402
from torch._subclasses.fake_tensor import (  # noqa: E402
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.fx._lazy_graph_module import _use_lazy_graph_module  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402, F401
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402, F401
from torch.utils.flop_counter import flop_registry  # noqa: E402

_TAG, _SOURCE, _MODULE, _CALLER = "piper_scope", "piper_source", "piper_module", "piper_caller"
#: Where Python hands over to autograd.
_ENGINE = torch.autograd.graph._engine_run_backward.__code__
_RECURRENT = {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}


@dataclass(frozen=True)
class Origin:
    """Where an operation of the joint graph came from.

    Attributes:
        scope: the annotations in force; None outside of any.
        backward: whether autograd made it.
        sequence: equal for a forward operation and the backward operations that belong to it; grows in the order of the
            forward.
        accumulates: whether it adds up gradients of one value that is used several times.
        source: "file:line" of the user's code, or what stands for it (lines.py), or "".
        replayed: whether functionalisation made it again, later than its scope says.
        by_user: whether code of the user made it while autograd ran: a hook, or the backward of a function of the user's own.
        module: the module of torch that made it for that line, or "".
    """

    scope: Scope | None
    backward: bool
    sequence: int | None
    accumulates: bool
    source: str
    replayed: bool = False
    by_user: bool = False
    module: str = ""

    @property
    def place(self) -> str:
        """Line and module, for messages; "" where neither is known."""
        return str(Place(self.source, self.module)) if self.source else ""


@dataclass(frozen=True)
class Port:
    """The meaning of a placeholder ("parameter", "buffer", "input", "tangent") or an output ("output", "gradient",
    "write") of the joint graph.

    `name` is a parameter's or buffer's name in the traced module; `index` the position of an input or output.
    """

    kind: str
    name: str = ""
    index: int = -1


@dataclass
class Joint:
    """The captured graph. Each call_function node has `meta["origin"]`, each tensor node `meta["val"]` (a fake tensor).

    `outputs` describes the graph's outputs in order; an output without meaning has None. `seed` is what the backward starts from.
    """

    module: fx.GraphModule
    placeholders: dict[fx.Node, Port]
    outputs: list[Port | None]
    seed: float = 1.0


class _Step(nn.Module):
    def __init__(self, children: dict[str, nn.Module], run: Callable):
        super().__init__()
        for name, child in children.items():
            self.add_module(name, child)
        self._run = run

    def forward(self, *tensors):
        return self._run(tensors)


class _UserCalls(TorchFunctionMode):
    """Stamps operations with the line of user code that made them, gives attention to Piper's own operation, and writes
    embedding bags as embeddings.
    """

    def __init__(self, backward: backward_code.BackwardCode, children: Mapping[str, nn.Module], training: bool):
        super().__init__()
        self._backward, self._children, self._training = backward, children, training

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if fx_traceback.get_current_meta().get("in_grad_fn", 0):
            return func(*args, **kwargs)
        refuse_dropped_weight(func)
        _refuse_dropped_dropout(func, args)
        _refuse_leaving(func)
        if backward_code.registers(func):
            return self._register(func, *args, **kwargs)
        place = user_place()
        with fx_traceback.annotate({_SOURCE: place.line, _MODULE: place.module}):
            if func is attention.SDPA:
                result = attention.replaces(args, kwargs)
                if result is not None:
                    return result
            if func is embedding_bags.BAG:
                result = embedding_bags.replaces(args, kwargs)
                if result is not None:
                    return result
            return func(*args, **kwargs)

    def _register(self, func: Callable, tensor: torch.Tensor, hook: Callable):
        if not self._training:
            return backward_code.ignored()
        if not tensor.requires_grad:
            return func(tensor, hook)
        # What stands for a parameter in the trace is not one, and no leaf.
        names = [name for name, part in _traced_parameters(self._children) if part is tensor]
        backward_code.refuse_parameter_hook(user_line(), names or ([] if tensor.grad_fn is not None else [""]))
        return self._backward.register(tensor, hook, user_line(), tensor.grad_fn._sequence_nr())


def _traced_parameters(children: Mapping[str, nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    for child in children.values():
        for prefix, part in child.named_modules():
            for name, tensor in vars(part)["_parameters"].items():
                yield f"{prefix}.{name}" if prefix else name, tensor


def _refuse_dropped_dropout(func: Callable, args: tuple) -> None:
    """Where torch 2.13 writes out recurrent layers it leaves the dropout between them out without a word."""
    if func not in _RECURRENT:
        return
    # (input, state, weights, has_biases, num_layers, dropout, train, ...); packed sequences have one more at the front.
    layers, dropout, train = args[4:7] if isinstance(args[3], bool) else args[5:8]
    if dropout and train and layers > 1:
        raise ImporterError(
            f"{user_place()}: random numbers in forward are not supported (set dropout between recurrent layers to 0)"
        )


def _refuse_leaving(func: Callable) -> None:
    """What leaves the traced step: NumPy would read values, and a backward would write gradients."""
    if func in (torch.Tensor.numpy, torch.Tensor.__array__):
        raise ImporterError(f"{user_line()}: NumPy reads values, which a compiled step can't: use torch's operations")
    if func is torch.Tensor.backward:
        raise ImporterError(
            f"{user_line()}: .backward() inside of forward or the loss is not supported: use torch.autograd.grad, or leave it to the step"
        )


def _line_in_backward() -> str | None:
    """The line of user code that autograd has called, "" where that is torch's own Python; None where autograd itself makes the operation."""
    frame, line = sys._getframe(2), ""
    while frame is not None and frame.f_code is not _ENGINE:
        # How a trace does what autograd asks of it.
        if frame.f_code.co_name == "__torch_dispatch__":
            return None
        if not line and is_user_file(frame.f_code.co_filename):
            line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return line if frame is not None else None


@contextlib.contextmanager
def _watched(backward: backward_code.BackwardCode) -> Iterator[None]:
    """Makes `backward` the mode of what autograd runs: a mode that is entered before is asked about the call of autograd, and is off inside it."""
    engine = torch.autograd._engine_run_backward

    def run(*args, **kwargs):
        with backward if backward.running else contextlib.nullcontext():
            return engine(*args, **kwargs)

    torch.autograd._engine_run_backward = run
    try:
        yield
    finally:
        torch.autograd._engine_run_backward = engine


def capture(
    children: dict[str, nn.Module], model: nn.Module, run: Callable, tensors: Sequence[torch.Tensor], training: bool
) -> Joint:
    """Traces `run(tensors)`, which calls modules of `children`, with its backward where `training`.

    Args:
        children: the modules whose parameters and buffers are inputs of the graph, by the first part of their names.
        model: the one of them whose annotations and blocks make scopes.
        run: returns a flat tuple of tensors; the backward starts from those that need a gradient.
        tensors: examples of the inputs; only their metadata is used.

    Raises:
        ImporterError: the shape of a value or the path through the code depends on data, or no gradient arises.
    """
    recorder = TagRecorder(
        lambda scope: fx_traceback.annotate({_TAG: scope}),
        lambda: fx_traceback.get_current_meta().get("in_grad_fn", 0) > 0,
    )

    backward = backward_code.BackwardCode(
        _line_in_backward, lambda caller: fx_traceback.annotate({_CALLER: (caller.line, caller.sequence)})
    )

    def traced(inputs):
        recorder.begin()
        backward.running = False
        with _UserCalls(backward, children, training):
            results = run(inputs)
        backward.running = training
        return results

    with contextlib.ExitStack() as stack:
        for context in (
            naming(children),
            torch.random.fork_rng(devices=[]),
            sdpa_kernel(SDPBackend.MATH),
            fx_traceback.preserve_node_meta(),
            # Graphs are read and cut, never called: no Python code is made of them.
            _use_lazy_graph_module(True),
            _compiling_state_context(),
            # oneDNN's recurrent layers are single operations; without them torch writes out what they do.
            _without_onednn(),
            # What the model gave to torch.compile is traced as it was written.
            torch.compiler.set_stance("force_eager"),
            torch.set_grad_enabled(training),
            _data_dependence_named(),
            _attributes_kept(children),
            recording(recorder),
            module_scopes(model, recorder),
            backward_code.checkpoints_inlined(),
            backward.watching(children),
            _watched(backward),
        ):
            stack.enter_context(context)
        # Tensors that the code closes over (class weights, say) are no inputs; they become constants.
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        exported = aot_export_joint_with_descriptors(
            stack, _Step(children, traced), tuple(fake.from_tensor(tensor) for tensor in tensors)
        )
        joint = _translate(exported.graph_module)
    # Outside, where the modules have their own parameters again.
    _refuse_other_references(joint.module, children)
    del exported
    backward.refuse_kept()
    return joint


def dry_run(children: dict[str, nn.Module], run: Callable, tensors: Sequence[torch.Tensor], grad: bool) -> None:
    """Calls `run(tensors)` with shapes alone: a small part of what `capture` does, for what does not need the graph.

    grad: whether autograd records, which tells values that have a gradient from others.
    """
    step = _Step(children, run)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    own = {**dict(step.named_parameters()), **dict(step.named_buffers())}
    with (
        naming(children),
        torch.random.fork_rng(devices=[]),
        torch.set_grad_enabled(grad),
        _data_dependence_named(),
        _attributes_kept(children),
        _fake_tensors_quiet(),
        backward_code.HooksIgnored(),
        fake,
    ):
        shapes = {name: fake.from_tensor(tensor) for name, tensor in own.items()}
        torch.func.functional_call(step, shapes, tuple(fake.from_tensor(tensor) for tensor in tensors))


def fake_call(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    within: contextlib.AbstractContextManager,
) -> None:
    """Calls the model with shapes alone, in the context `within`, for what that and hooks on the model's parts find out. Nothing of it changes."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with (
        torch.random.fork_rng(devices=[]),
        _data_dependence_named(),
        _attributes_kept({"model": model}),
        _fake_tensors_quiet(),
        fake,
    ):

        def shape(value: Any) -> Any:
            return fake.from_tensor(value) if isinstance(value, torch.Tensor) else value

        shapes = {name: shape(tensor) for name, tensor in own.items()}
        args, kwargs = tree_map(shape, tuple(args)), tree_map(shape, dict(kwargs))
        with within:
            torch.func.functional_call(model, shapes, args, kwargs)


@contextlib.contextmanager
def _fake_tensors_quiet() -> Iterator[None]:
    """An operation that fails on shapes raises; torch logs its traceback and arguments as well."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


class ProductCounter(TorchDispatchMode):
    """Tells `add` the multiplications and additions of each product of matrices and each convolution that runs within it, together with those of its
    backward: each operand's gradient is a product of equal size.
    """

    def __init__(self, add: Callable[[float], None]):
        super().__init__()
        self._add = add

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            operations = formula(*args, **(kwargs or {}), out_val=result)
            # The first argument of these is added to the product.
            first = 1 if func.overloadpacket in (torch.ops.aten.addmm, torch.ops.aten.baddbmm) else 0
            gradients = sum(operand.requires_grad for operand in args[first : first + 2])
            self._add(operations * (1 + gradients if torch.is_grad_enabled() else 1))
        return result


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor stands for one with values."""
    return isinstance(tensor, FakeTensor)


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = before


@contextlib.contextmanager
def _attributes_kept(children: dict[str, nn.Module]) -> Iterator[None]:
    """Undoes what the traced forward leaves in its modules: attributes it sets, and traced parameters of a module that
    goes by several names.
    """
    parts = list(dict.fromkeys(part for module in children.values() for part in module.modules()))
    tables = ("_parameters", "_buffers")
    attributes = [{name: value for name, value in vars(part).items() if name not in tables} for part in parts]
    contents = [{table: dict(vars(part)[table]) for table in tables} for part in parts]
    try:
        yield
    finally:
        for part, kept, tensors in zip(parts, attributes, contents, strict=False):
            own = vars(part)
            for name in [name for name in own if name not in kept and name not in tables]:
                del own[name]
            own.update(kept)
            for table in tables:
                own[table].clear()
                own[table].update(tensors[table])


@contextlib.contextmanager
def _data_dependence_named() -> Iterator[None]:
    try:
        yield
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        where = last_user_line(error.__traceback__)
        line = last_user_place(error.__traceback__).line
        instead = advice.for_data_dependence(str(error.func), *_called(error.__traceback__, line))
        raise ImporterError(
            f"{where}: the result of '{error.func}' depends on data, which a compiled step can't follow; {instead}"
        ) from error


def _called(traceback, where: str) -> tuple[str, str, list[str]]:
    """The torch function that the user's last line called, `where`, and the files of all frames."""
    function, files = "", []
    while traceback is not None:
        frame = traceback.tb_frame
        files.append(frame.f_code.co_filename)
        if is_user_file(files[-1]):
            function = ""
        elif not function and frame.f_code is _UserCalls.__torch_function__.__code__:
            function = getattr(frame.f_locals["func"], "__name__", "")
        traceback = traceback.tb_next
    return function, where, files


def _translate(module: fx.GraphModule) -> Joint:
    graph = module.graph
    _refuse_effects(graph)
    placeholders = {node: _input_port(node.meta["desc"]) for node in graph.nodes if node.op == "placeholder"}
    outputs = [None if desc is None else _output_port(desc) for desc in graph.output_node().meta["desc"]]
    for node in graph.nodes:
        origin = _origin(node)
        # "custom" is what retracing hands on (decompose).
        node.meta = {"origin": origin, "val": node.meta.get("val"), "custom": {_SOURCE: origin.place}}
    return Joint(module, placeholders, outputs)


def _origin(node: fx.Node) -> Origin:
    custom = node.meta.get("custom") or {}
    backward = node.meta.get("partitioner_tag") == "is_backward"
    by_user = backward and _CALLER in custom
    line, sequence = custom[_CALLER] if by_user else ("", None)
    # torch marks all that is made between two functions of a backward, and numbers it by what the forward made last.
    between = bool(node.meta.get("is_gradient_acc"))
    if not between and sequence is None:
        sequence = node.meta.get("seq_nr")
    return Origin(
        custom.get(_TAG),
        backward,
        sequence,
        between and not by_user and _adds(node),
        line or custom.get(_SOURCE, ""),
        bool(node.meta.get("is_functional_regenerated")),
        by_user,
        "" if line else custom.get(_MODULE, ""),
    )


def _adds(node: fx.Node) -> bool:
    """Whether it is the plain sum of two tensors of one shape and type, which may be added in any order and place."""
    if node.target is not torch.ops.aten.add.Tensor or len(node.args) != 2 or node.kwargs:
        return False
    values = [operand.meta.get("val") if isinstance(operand, fx.Node) else None for operand in node.args]
    own = node.meta.get("val")
    return all(
        isinstance(value, torch.Tensor) and value.shape == own.shape and value.dtype == own.dtype for value in values
    )


def _refuse_other_references(module: fx.GraphModule, children: Mapping[str, nn.Module]) -> None:
    """Tensors that the code closes over are constants, which parameters and buffers of the model are not, nor others that are trained."""
    owners = {
        tensor.untyped_storage().data_ptr(): name
        for child in children.values()
        for name, tensor in [*child.named_parameters(), *child.named_buffers()]
        if tensor.numel()
    }
    found = {}
    for node in module.graph.nodes:
        value = getattr(module, node.target) if node.op == "get_attr" else None
        if not isinstance(value, torch.Tensor) or not value.numel():
            continue
        lines = [user.meta["origin"].source for user in node.users]
        where = next(filter(None, lines), "unknown line")
        name = owners.get(value.untyped_storage().data_ptr())
        if name is not None:
            found[f"{where}: '{name}' is reached otherwise than by the attribute of its module: use that"] = None
        elif value.requires_grad:
            found[
                f"{where}: a tensor that requires a gradient is no parameter of the model or the loss: register it"
            ] = None
    if found:
        raise ImporterError("tensors that would stay what they are now:\n  " + "\n  ".join(found))


def _refuse_effects(graph: fx.Graph) -> None:
    """Operations with an effect beside their results: torch threads them on tokens, as with_effects(token, op, ...)."""
    found = {}
    for node in graph.nodes:
        if getattr(node.target, "__name__", "") == "with_effects":
            custom = node.meta.get("custom") or {}
            place = Place(custom.get(_SOURCE) or "unknown line", custom.get(_MODULE, ""))
            form = instead_of(str(node.args[1]))
            found[
                f"{place}: '{node.args[1]}' looks at its data or prints them, which a compiled step can't"
                + (f"; instead: {form}" if form else "")
            ] = None
    if found:
        raise ImporterError("operations that can't be imported:\n  " + "\n  ".join(found))


def _input_port(desc) -> Port:
    if isinstance(desc, aot.ParamAOTInput):
        return Port("parameter", desc.target)
    if isinstance(desc, aot.BufferAOTInput):
        return Port("buffer", desc.target)
    if isinstance(desc, aot.PlainAOTInput):
        return Port("input", index=desc.idx)
    if isinstance(desc, aot.TangentAOTInput) and isinstance(desc.output, aot.PlainAOTOutput):
        return Port("tangent", index=desc.output.idx)
    if isinstance(desc, aot.TangentAOTInput) and isinstance(desc.output, aot.InputMutationAOTOutput):
        _written_port(desc.output)
    raise ImporterError(
        f"an input of the step can't be imported: {desc.expr()} (tensor subclasses and views of one another are not "
        "supported)"
    )


def _written_port(desc) -> Port:
    of = _input_port(desc.mutated_input)
    if of.kind == "parameter":
        raise ImporterError(f"parameter '{of.name.partition('.')[2]}' is written in forward: expected a buffer")
    return of


def _output_port(desc) -> Port | None:
    if isinstance(desc, aot.PlainAOTOutput):
        return Port("output", index=desc.idx)
    if isinstance(desc, aot.GradAOTOutput):
        of = _input_port(desc.grad_of)
        return Port("gradient", of.name, of.index)
    if isinstance(desc, aot.InputMutationAOTOutput):
        of = _written_port(desc)
        # The batch is the caller's: what forward does to it in place stays inside the step.
        return Port("write", of.name) if of.kind == "buffer" else None
    raise ImporterError(f"an output of the step can't be imported: {desc.expr()}")


def decomposition_table(own: dict, extra: list, kept: Sequence[str]) -> dict:
    """PyTorch's core decompositions and those of `extra`, without operations whose names contain one of `kept`, then
    `own`.
    """
    table = {**core_aten_decompositions(), **get_decompositions(extra)}
    table = {op: rule for op, rule in table.items() if not any(part in str(op) for part in kept)}
    return {**table, **own}


def decompose(graph: fx.Graph, inputs: Sequence[TensorSpec], table: dict) -> fx.GraphModule:
    """`graph` retraced on dense tensors with the operations of `table` replaced.

    Nodes of the result have `meta["val"]` (fake tensors) and `meta["source"]`.
    """
    for node in graph.nodes:
        origin = node.meta.get("origin")
        node.meta["custom"] = {_SOURCE: origin.place if origin else node.meta.get("source", "")}
    with FakeTensorMode(), fx_traceback.preserve_node_meta(), torch.no_grad():
        examples = [torch.empty(spec.shape, dtype=spec.dtype) for spec in inputs]
        traced = make_fx(fx.Interpreter(nn.Module(), graph=graph).run, decomposition_table=table, tracing_mode="real")(
            *examples
        )
    for node in traced.graph.nodes:
        custom = node.meta.get("custom") or {}
        node.meta = {"val": node.meta.get("val"), "source": custom.get(_SOURCE, "")}
    traced.graph.eliminate_dead_code()
    return traced
