# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What was found right once need not be tried again: verdicts in the cache of compiled functions, by code and shapes."""

from __future__ import annotations

import functools
import hashlib
from importlib.metadata import version
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from ..cache import CompiledObject, ObjectCache, content_key
from ..importer.imported import Imported, State

#: Bytes of a buffer whose numbers are part of the key; larger ones are tables or masks, by whose shapes the program is known.
_SMALL = 1 << 20


def key_of(imported: Imported, loss_fn: Any, *others: Any) -> str:
    """Everything that the imported step is made of, the loss's own code, and what else the trial depends on."""
    nodes = [(node.family, node.operands, node.results) for node in imported.nodes]
    inputs = [(i.name, i.shape, str(i.dtype), i.split) for i in imported.inputs.values()]
    static = [(name, repr(value)) for name, value in imported.static.items()]
    families = sorted(
        (family.name, sorted((str(rows), function.name) for rows, function in family.members.items()))
        for family in imported.families.values()
    )
    code = _code(getattr(loss_fn, "__code__", None) or getattr(type(loss_fn).__dict__.get("forward"), "__code__", None))
    return content_key(
        "rows", repr((nodes, families, inputs, static, imported.loss, code, others)), _numbers(imported), _versions()
    )


def is_known(cache: ObjectCache, key: str) -> bool:
    return cache.read(key) is not None


def keep(cache: ObjectCache, key: str) -> None:
    """Loss and model were found to divide."""
    cache.write(key, CompiledObject(b"", {}))


def _numbers(imported: Imported) -> str:
    """Constants and small buffers: a weight for each row, say, of which the graph shows the shape alone."""
    digest = hashlib.sha256()
    for state in imported.states.values():
        if state.kind == "constant" or (state.kind == "buffer" and state.spec.nbytes <= _SMALL):
            digest.update(_bytes(state))
    return digest.hexdigest()


def _bytes(state: State) -> bytes:
    value = state.value.detach().cpu().contiguous().flatten()
    return state.name.encode() + (value.view(torch.uint8).numpy().tobytes() if value.numel() else b"")


def _code(code: CodeType | None) -> Any:
    if code is None:
        return None
    constants = [_code(const) if isinstance(const, CodeType) else repr(const) for const in code.co_consts]
    return code.co_code, constants, code.co_names


@functools.cache
def _versions() -> str:
    """Changes with torch and with how rows are tried and losses combined."""
    digest = hashlib.sha256()
    here = Path(__file__)
    for path in [*sorted(here.parent.glob("*.py")), here.parents[1] / "importer" / "loss.py"]:
        digest.update(path.read_bytes())
    return f"torch {version('torch')} {digest.hexdigest()}"
