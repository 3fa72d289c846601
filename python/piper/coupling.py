# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of a batch that influence each other, which divided batches change the meaning of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .errors import CoupledRowsWarning
from .importer.imported import FORWARD, Imported
from .notices import warn_user

_aten = torch.ops.aten
#: Operations to the position of their argument `training`; None: it is always on.
_OPERATIONS = {
    _aten._native_batch_norm_legit_functional.default: 5,
    _aten._native_batch_norm_legit.default: 5,
    _aten._native_batch_norm_legit.no_stats: 3,
    _aten.native_batch_norm.default: 5,
    _aten._batch_norm_with_update_functional.default: None,
}


def warn_of_coupled_rows(model: nn.Module, imported: Imported, replicas: int, microbatches: int) -> None:
    """Warns with CoupledRowsWarning if rows meet, naming the modules or lines of code, or if each part of the batch moves a buffer on."""
    norms = {name: part for name, part in model.named_modules() if isinstance(part, _BatchNorm) and _counts_batch(part)}
    lines = _lines(imported)
    own = {f"{name}.{buffer}".lstrip(".") for name, part in norms.items() for buffer, _ in part.named_buffers()}
    written = [f"'{name}'" for name in imported.buffer_writes if name not in own]
    reasons = []
    if lines or norms:
        where = _listed([f"'{name}'" for name in norms] or lines)
        reasons.append(f"batch normalization ({where}) computes its statistics")
    meetings = [*imported.mixing]
    if not reasons:
        # What numbers show the graph often shows, too, by the same line.
        meetings += [place for place in imported.coupled if not any(line in place for line in imported.mixing)]
    if meetings:
        reasons.append(f"rows meet at {_listed(meetings)}")
    if written:
        reasons.append(f"forward writes the buffers {_listed(written)}")
    if reasons:
        warn_user(
            f"{', '.join(reasons)}: for each microbatch of each replica by itself, so that the program equals PyTorch looped over "
            f"{replicas} replicas x {microbatches} microbatches, not PyTorch on the whole batch",
            CoupledRowsWarning,
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def _counts_batch(part: _BatchNorm) -> bool:
    return part.training or part.running_mean is None


def _lines(imported: Imported) -> list[str]:
    rows = max(imported.rows, key=lambda count: count or 0)
    functions = {
        family.members[rows].name: family.members[rows]
        for family in imported.families.values()
        if family.pass_ == FORWARD
    }
    nodes = [node for function in functions.values() for node in function.graph.nodes]
    found = (node.meta["origin"].source or "unknown line" for node in nodes if _is_over_rows(node))
    return list(dict.fromkeys(found))


def _is_over_rows(node: fx.Node) -> bool:
    if node.target not in _OPERATIONS:
        return False
    training = _OPERATIONS[node.target]
    # Instance norm is batch norm of one row that has all rows' channels.
    return (training is None or bool(node.args[training])) and node.args[0].meta["val"].shape[0] > 1
