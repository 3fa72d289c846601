# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules that stand for others: compiled, scripted, or distributed already."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .errors import ImporterError

_REPLICATED = {"DistributedDataParallel", "DataParallel"}
_SHARDED = {"FullyShardedDataParallel", "FSDPModule"}


def plain_module(model: Any) -> nn.Module:
    """The module to import for `model`: what torch.compile was given, or `model` itself.

    Raises:
        ImporterError: `model` is no module, or a part of it can't be traced, or is distributed by torch; says what to
            pass instead.
    """
    # The classes are known by name: their homes are private parts of torch, or take long to import.
    while type(model).__name__ == "OptimizedModule":
        model = model._orig_mod
    if not isinstance(model, nn.Module):
        raise ImporterError(f"expected an nn.Module as model, got {type(model).__name__}")
    for name, part in model.named_modules():
        where = f"module '{name}'" if name else "the model"
        kinds = {kind.__name__ for kind in type(part).__mro__}
        if isinstance(part, torch.jit.ScriptModule):
            raise ImporterError(f"{where} is a torch.jit.ScriptModule, which can't be traced: pass the module it is of")
        if "quantized" in type(part).__module__.split(".") and type(part).__module__.startswith("torch."):
            raise ImporterError(f"{where} is quantized, which is not trained: pass the module before that")
        if kinds & _REPLICATED:
            raise ImporterError(
                f"{where} is wrapped in {', '.join(kinds & _REPLICATED)}: pass the module inside (.module); the "
                "strategy makes the replicas"
            )
        if kinds & _SHARDED:
            raise ImporterError(
                f"{where} is sharded by torch's FSDP: pass the module before that; the strategy shards "
                "(replicate(..., shard_params=True))"
            )
    return model
