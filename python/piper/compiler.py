# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`piper.compile`: from a model and a strategy to a program, phase by phase."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from . import emit, optimizers, probing
from .cache import ObjectCache
from .coupling import warn_of_coupled_rows
from .description import Description, StateSpec
from .directives import Place, Replicate, Strategy
from .errors import RanksDifferError, StrategyError, UsageError
from .importer import import_model
from .importer.ambient import set_aside
from .importer.imported import Imported, State, StateRef
from .importer.inputs import Batch as ImportedBatch
from .importer.inputs import describe, forward_parameters, settled_dims
from .importer.loss import own_loss
from .importer.loss_weights import SHARED_WEIGHTS, SharedWeights
from .importer.saved_names import extra_states, saved_names
from .importer.wrapped import plain_module
from .kernels import compile_functions
from .lowered import function_texts
from .mesh import Mesh
from .optimizers import Group
from .phases import Phases
from .probing import Divided
from .program import Program
from .progress import Progress
from .rendezvous import check_world_size, on_the_way
from .revisits import explained
from .rows import part_rows
from .unused import tell_unused_parameters
from .watch import Watch


def compile(
    model: nn.Module,
    loss_fn: Callable | None = None,
    batch: Any = None,
    *,
    strategy: Strategy | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    batch_dims: Mapping[str, int | None] | None = None,
    loss_reduction: str | None = None,
    cache_dir: str | os.PathLike | None = None,
    progress: bool = True,
    check_rows: bool = True,
    sync_parameters: bool = False,
) -> Program:
    """Compiles one training step of `model` and an evaluation to a program that is ready to run.

    The program starts with the model's parameters and buffers and keeps its own from then on: neither the model nor the optimizer's moments change.

    Args:
        model: a module on the CPU, which torch.compile may have wrapped. Tag its parts with `piper.annotate` or `piper.annotate_modules` where the strategy names them.
        loss_fn: `loss_fn(output, target)`; returns a sum of means and sums over the rows, each times a number, or (sum, weight). None: the model computes its own
            loss, as Hugging Face's do: its 0-dimensional output, `.loss` or `["loss"]`.
        batch: an example of the global batch, `(args…, target)` or `dict(args=…, kwargs=…, target=…)`; only shapes and dtypes count,
            and for `check_rows` the values of a few rows. Without loss_fn the model's arguments: `dict(input_ids=…, labels=…)`, `(args…)` or
            `dict(args=…, kwargs=…)`; `labels`, or else batch_dims, tell the rows.
        strategy: directives over a mesh; none is one rank.
        optimizer: torch.optim.SGD, Adam or AdamW over the model's parameters; its options are read again at each step, so that schedulers work. Moments are the
            program's own: `program.load_optimizer_state_dict` sets them, the optimizer's load_state_dict sets options alone. None: no updates.
        batch_dims: input name to 0 (divided over microbatches and replicas) or None (not divided), where dim 0 does not tell.
        loss_reduction: "mean_rows" or "sum", where `loss_fn` returns a scalar that is not recognised.
        cache_dir: folder of compiled functions; by default $PIPER_CACHE_DIR or ~/.cache/piper.
        progress: show a progress bar where standard error is a terminal.
        check_rows: where the batch is divided, try in plain PyTorch on a few rows and a copy of the model whether loss and model divide as the graph says: a
            loss that does not is refused, and rows that meet in the model are warned of. Tens of milliseconds for a small model, at most about a second; a
            verdict is kept with the compiled functions. False: only what the graph shows.
        sync_parameters: under torchrun, begin on all ranks with rank 0's parameters and buffers; else they are to be equal on all ranks. The model stays as it is.

    Raises:
        UsageError: the strategy, the batch or the optimizer does not fit the model, or the ranks of a job are not alike; StrategyError where the compiler's passes
            find it.
        ImporterError: the model cannot be imported; names the operation and its source line.
        CompileError: a later phase refused the program; holds a piper-opt command that reproduces it.
    """
    with on_the_way(), set_aside():
        return compile_with(
            import_model,
            model,
            loss_fn,
            batch,
            strategy,
            optimizer,
            batch_dims,
            loss_reduction,
            cache_dir,
            progress,
            check_rows,
            sync_parameters,
        )


def compile_with(
    importing: Callable[..., Imported],
    model: nn.Module,
    loss_fn: Callable | None,
    batch: Any,
    strategy: Strategy | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    batch_dims: Mapping[str, int | None] | None = None,
    loss_reduction: str | None = None,
    cache_dir: str | os.PathLike | None = None,
    progress: bool = False,
    check_rows: bool = True,
    sync_parameters: bool = False,
) -> Program:
    """`compile` with `importing` as `import_model`, so that several compilations may share what they import."""
    model = plain_module(model)
    if batch is None:
        raise UsageError("expected an example of the global batch: piper.compile(model, loss_fn, batch)")
    own_loss_only = loss_fn is None
    if own_loss_only:
        loss_fn, batch = own_loss, ImportedBatch.without_target(batch)
    if isinstance(loss_fn, type) or not callable(loss_fn):
        got = f"the class {loss_fn.__name__}" if isinstance(loss_fn, type) else type(loss_fn).__name__
        raise UsageError(f"expected loss_fn to be a function or a module, got {got}")
    strategy = strategy or Strategy(Mesh(dp=1))
    # Before minutes of work, not after them.
    check_world_size(strategy.mesh.size)
    divisions = strategy.num_replicas * strategy.num_microbatches
    batch_dims = settled_dims(batch, batch_dims, divisions, loss_reduction)
    rows = rows_of(batch, batch_dims)
    if rows is None and strategy.num_microbatches > 1:
        raise UsageError(
            f"expected rows to divide over {strategy.num_microbatches} microbatches, and the target has none: say which inputs have them, as in"
            ' batch_dims={"args.0": 0}'
        )
    parts = part_rows(rows, strategy.num_replicas, strategy.num_microbatches) if rows is not None else None
    options = {"loss_reduction": loss_reduction, "batch_dims": batch_dims}
    cache = ObjectCache(cache_dir)
    with _collector_paused(), Progress(progress) as bar:
        bar.step("importing")
        training = importing(
            model, loss_fn, batch, rows=parts, training=True, divided=strategy.divides_backward, **options
        )
        tell_unused_parameters(training)
        evaluation = importing(model, loss_fn, batch, rows=parts, training=False, form=training.loss, **options)
        evaluation = emit.with_own_constants(evaluation, training, "evaluate.")
        if divisions > 1 and not training.loss.splittable:
            raise UsageError(training.loss.advice)
        if divisions > 1 and check_rows and rows is not None:
            bar.step("checking rows")
            divided = Divided(rows, strategy.num_replicas, strategy.num_microbatches)
            probing.check_rows(model, loss_fn, batch, training, divided, loss_reduction, cache, own_loss_only)
        if divisions > 1:
            warn_of_coupled_rows(model, training, strategy.num_replicas, strategy.num_microbatches)
        strategy.check(_indices(training))
        _check_sizes(training)
        groups = _groups(optimizer, training)
        functions = function_texts([training, evaluation], cache, bar)
        graphs = [emit.Graph("step", rows or 1, training), emit.Graph("evaluate", rows or 1, evaluation)]
        bar.step("scheduling and planning")
        try:
            phases = Phases(emit.module_text(graphs, functions, groups, strategy))
        except StrategyError as error:
            raise explained(error, training) from None
        kernels = compile_functions(phases.functions(), cache, bar)
    states = emit.states_of(graphs)
    symbols = emit.state_symbols(graphs, functions, groups, strategy)
    names, loss_names = _names(model, loss_fn, states)
    description = Description(
        inputs={name: item for name, item in training.inputs.items() if name != SHARED_WEIGHTS},
        static=training.static,
        rows=rows,
        divide=training.loss.divide,
        mesh=strategy.mesh,
        replicas=_replicas(strategy),
        states={name: StateSpec(state.shape, state.dtype) for name, state in states.items()},
        names=names,
        loss_names=loss_names,
        parameters=forward_parameters(model.forward),
        trainable=[name for name, contributions in training.gradients.items() if contributions],
        symbols={name: symbol for name, symbol in symbols.items() if symbol != name},
        groups=groups,
        updates=optimizer is not None,
        own_loss=own_loss_only,
        before_update=_check_step(optimizer),
        on_update=_note_step(optimizer),
        loss_weights={
            graph.name: SharedWeights(
                graph.imported.weights, graph.imported.loss.weights, (strategy.num_replicas, strategy.num_microbatches)
            )
            for graph in graphs
            if graph.imported.weights
        },
        extra=extra_states(model),
    )
    plan = phases.export({name: item.metadata["workspace_bytes"] for name, item in kernels.items()})
    watch = Watch(model, {"step": training, "evaluate": evaluation})
    program = Program(description, plan, kernels, phases.text, watch=watch)
    values = {name: state.value for name, state in states.items()}
    try:
        program.begin(values, {name: state.kind for name, state in states.items()}, sync_parameters)
    except RanksDifferError:
        program.close()
        raise
    return program


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """A trace makes hundreds of thousands of objects that live to its end: searching them for cycles, again and again, finds next to none and took 0.3 of 4 seconds."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def rows_of(batch: Any, batch_dims: Mapping[str, int | None] | None) -> int | None:
    """Rows of the global batch, or None if nothing of it is divided."""
    return describe(ImportedBatch.of(batch), batch_dims)[2]


def _check_sizes(training: Imported) -> None:
    """What trains has elements, and so has what forward reads."""
    read = {operand.name for node in training.nodes for operand in node.operands if isinstance(operand, StateRef)}
    empty = [state for state in training.states.values() if 0 in state.shape]
    for kind, advice in (("parameter", "leave them out of the model"), ("buffer", "make them in forward instead")):
        names = [s.name for s in empty if s.kind == kind and (s.trainable or s.name in read)]
        if names:
            raise UsageError(f"{kind}s without elements are not supported: {', '.join(names)}: {advice}")


def _indices(training: Imported) -> dict[str, set[int]]:
    """The indices that the model's nodes have of each tag."""
    result: dict[str, set[int]] = {}
    for node in training.nodes:
        for tag, index in node.tags.items():
            result.setdefault(tag, set()).add(index)
    return result


def _groups(optimizer: torch.optim.Optimizer | None, training: Imported) -> list[Group]:
    names = {id(state.value): state.name for state in training.states.values() if state.trainable}
    if optimizer is not None:
        return optimizers.read(optimizer, names)
    return optimizers.without_updates(list(names.values()))


def _check_step(optimizer: torch.optim.Optimizer | None) -> Callable[[], None]:
    return functools.partial(optimizers.refuse_own_step, optimizer) if optimizer is not None else lambda: None


def _note_step(optimizer: torch.optim.Optimizer | None) -> Callable[[], None]:
    def note() -> None:
        # What torch's own step does for schedulers, which warn if it never ran.
        optimizer._opt_called = True

    return note if optimizer is not None else lambda: None


def _replicas(strategy: Strategy) -> list[tuple[int, int]]:
    result = [(0, 1)] * strategy.mesh.size
    for directive in strategy.directives:
        if isinstance(directive, (Place, Replicate)):
            for position, rank in enumerate(directive.devices):
                result[rank] = (position, len(directive.devices))
    return result


def _names(model: nn.Module, loss_fn: Callable, states: Mapping[str, State]) -> tuple[dict[str, str], dict[str, str]]:
    """The state behind each name of the model's state_dict, in its order, and of a loss module's."""
    tensors = {name: state.value for name, state in states.items() if state.kind != "constant"}
    return saved_names(model, tensors), saved_names(loss_fn, tensors) if isinstance(loss_fn, nn.Module) else {}
