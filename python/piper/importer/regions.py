# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assigns every operation of a joint graph to a chunk.

Forward: the trace is a sequence of runs, each under one annotation scope, and each run is a chunk; chunks are numbered
in the order of the trace, so an operand's chunk is never later than its user's. Backward: an operation goes to the
chunk of the forward operation it belongs to, then to an earlier chunk where an operand lies in one, which keeps the
chunk graph acyclic.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Callable
from dataclasses import dataclass

from torch import fx

from .annotate import BLOCK_TAG, PIPELINE_TAGS, Scope
from .graphs import calls

Tags = tuple[tuple[str, int], ...]

_OUTSIDE = Scope(0, (), False)


@dataclass
class _Run:
    serial: int
    tags: Tags
    nodes: list[fx.Node]
    in_block: bool
    reads_parameter: bool
    continues: bool


def forward_chunks(
    graph: fx.Graph, skip: Callable[[fx.Node], bool], is_parameter: Callable[[fx.Node], bool]
) -> tuple[dict[fx.Node, int], list[Tags]]:
    """Chunk number of each forward operation for which `skip` is false, and the tags of each chunk."""
    runs: list[_Run] = []
    for node in calls(graph):
        origin = node.meta["origin"]
        if origin.backward or skip(node):
            continue
        scope = origin.scope
        serial = scope.serial if scope else 0
        # What functionalisation replays carries the scope of long ago: it belongs to the code that needs it now.
        if not runs or (serial != runs[-1].serial and not origin.replayed and node.target is not operator.getitem):
            scope = scope or _OUTSIDE
            runs.append(_Run(serial, scope.tags, [], scope.in_block, False, scope.continues))
        runs[-1].nodes.append(node)
        runs[-1].reads_parameter |= any(map(is_parameter, node.all_input_nodes))
    _inherit_pipeline_tags(runs)
    runs = _merge(runs)
    return {node: number for number, run in enumerate(runs) for node in run.nodes}, [run.tags for run in runs]


def _inherit_pipeline_tags(runs: list[_Run]) -> None:
    """Code outside a pipeline's parts belongs to the part before it, code before the first part to the first."""
    for name in PIPELINE_TAGS:
        indices = [dict(run.tags).get(name) for run in runs]
        current = next((index for index in indices if index is not None), None)
        if current is None:
            continue
        for run, index in zip(runs, indices, strict=False):
            current = current if index is None else index
            run.tags = tuple(sorted({**dict(run.tags), name: current}.items()))


def _merge(runs: list[_Run]) -> list[_Run]:
    """Joins operations between blocks that read no parameter to the block before them, so that a residual or a reshape
    is no chunk of its own, and what continues a block to it.
    """
    merged: list[_Run] = []
    for position, run in enumerate(runs):
        last = position == len(runs) - 1
        glue = not run.in_block and not run.reads_parameter and not last
        if merged and glue and _without_block(merged[-1].tags) == run.tags:
            merged[-1].nodes += run.nodes
        elif merged and merged[-1].tags == run.tags and (run.continues or not (merged[-1].in_block or run.in_block)):
            merged[-1].nodes += run.nodes
            merged[-1].reads_parameter |= run.reads_parameter
        else:
            merged.append(run)
    return merged


def _without_block(tags: Tags) -> Tags:
    return tuple(tag for tag in tags if tag[0] != BLOCK_TAG)


def backward_chunks(
    graph: fx.Graph, forward: dict[fx.Node, int], skip: Callable[[fx.Node], bool], last: int
) -> dict[fx.Node, int]:
    """Chunk number of each backward operation for which `skip` is false."""
    by_sequence: dict[int, int] = {}
    for node, chunk in forward.items():
        if node.meta["origin"].sequence is not None:
            by_sequence.setdefault(node.meta["origin"].sequence, chunk)
    sequences = sorted(by_sequence)
    chunks: dict[fx.Node, int] = {}
    for node in calls(graph):
        origin = node.meta["origin"]
        if not origin.backward or skip(node):
            continue
        operands = [chunks[operand] for operand in node.all_input_nodes if operand in chunks]
        if node.target is operator.getitem and node.args[0] in chunks:
            chunks[node] = chunks[node.args[0]]
            continue
        if not origin.accumulates and origin.sequence is not None and sequences:
            at = max(bisect.bisect_right(sequences, origin.sequence) - 1, 0)
            operands.append(by_sequence[sequences[at]])
        chunks[node] = min(operands, default=last)
    return chunks
