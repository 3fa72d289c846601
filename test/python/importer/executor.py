# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs an imported program by torch, node by node: what the importer promises, without any of the compiler."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from piper.importer.imported import Imported, InputRef, ResultRef, StateRef
from piper.importer.inputs import Batch, bind
from piper.importer.loss_weights import SHARED_WEIGHTS, SharedWeights
from torch import fx


@dataclass
class Outcome:
    loss_sum: torch.Tensor
    loss_weight: torch.Tensor
    gradients: dict[str, torch.Tensor | None]
    writes: dict[str, torch.Tensor]


def run_graph(graph: fx.Graph, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Its results, operation by operation."""
    return fx.Interpreter(torch.nn.Module(), graph=graph).run(*operands)


def run_reference(
    imported: Imported, rows: int, values: dict[str, torch.Tensor], states: dict[str, torch.Tensor] | None = None
) -> Outcome:
    """One microbatch. `values`: input name to tensor; `states`: state name to tensor, the imported values by
    default.
    """
    # Trained halves have float32 masters.
    states = states or {name: state.value.detach().to(state.dtype) for name, state in imported.states.items()}
    results: list[list[torch.Tensor]] = []
    saved: list[list[list[torch.Tensor]]] = []

    def value(ref):
        if isinstance(ref, InputRef):
            return values[ref.name]
        if isinstance(ref, StateRef):
            return states[ref.name]
        assert isinstance(ref, ResultRef) and ref.node < len(results)
        return results[ref.node][ref.result]

    for node in imported.nodes:
        function = imported.member(node, rows)
        operands = [value(ref) for ref in node.operands]
        operands += [kept for giver, number in node.takes for kept in saved[giver][number]]
        specs = function.operands + function.saved_operands
        assert [(tuple(t.shape), t.dtype) for t in operands] == [(s.shape, s.dtype) for s in specs], node.label
        with torch.no_grad():
            outputs = list(run_graph(function.graph, *(t.contiguous() for t in operands)))
        specs = function.results + function.saved_results
        assert [(tuple(t.shape), t.dtype) for t in outputs] == [(s.shape, s.dtype) for s in specs], node.label
        results.append(outputs[: len(node.results)])
        rest = iter(outputs[len(node.results) :])
        saved.append([[next(rest) for _ in range(count)] for count in node.gives])
        assert next(rest, None) is None
    gradients = {}
    for name, contributions in imported.gradients.items():
        gradients[name] = sum(value(ref) for ref in contributions) if contributions else None
    return Outcome(
        value(imported.loss_sum),
        value(imported.loss_weight),
        gradients,
        {name: value(ref) for name, ref in imported.buffer_writes.items()},
    )


def shared_weights(imported: Imported, parts, states) -> dict[str, torch.Tensor]:
    """What the host gives to every part of a batch."""
    if not imported.weights:
        return {}
    weights = SharedWeights(imported.weights, imported.loss.weights, (1, len(parts)))
    sizes = [next(v.shape[0] for name, v in part.items() if imported.inputs[name].split) for part in parts]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]

    def operand(kind, name, first, end):
        return states[name] if kind == "state" else parts[starts.index(first)][name]

    return {SHARED_WEIGHTS: weights.shared(weights.sums(sizes, operand), sum(sizes))}


def train(imported: Imported, batches, rows_of=None) -> Outcome:
    """Microbatches in order, buffers carried on: gradients of Σ sum / Σ weight."""
    states = {name: state.value.detach().to(state.dtype, copy=True) for name, state in imported.states.items()}
    inputs = {name: item for name, item in imported.inputs.items() if name != SHARED_WEIGHTS}
    bound = [bind(inputs, imported.static, Batch.of(batch)) for batch in batches]
    shared = shared_weights(imported, bound, states)
    total = None
    for values in bound:
        values = {**values, **shared}
        split = [v.shape[0] for name, v in values.items() if imported.inputs[name].split]
        outcome = run_reference(imported, split[0] if split else None, values, states)
        states.update(outcome.writes)
        if total is None:
            total = outcome
            continue
        total.loss_sum = total.loss_sum + outcome.loss_sum
        total.loss_weight = total.loss_weight + outcome.loss_weight
        total.gradients = {
            n: g if outcome.gradients[n] is None else g + outcome.gradients[n] for n, g in total.gradients.items()
        }
    total.writes = {name: states[name] for name in imported.buffer_writes}
    if imported.loss.divide:
        total.gradients = {name: None if g is None else g / total.loss_weight for name, g in total.gradients.items()}
    return total
