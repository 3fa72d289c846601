# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which tensors of a run depend on the batch, parameters or buffers, and what is done to those."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .capture import is_fake, tree_leaves, tree_map


class Dependence(TorchDispatchMode):
    """Notes the operations on tensors that depend on what a run is given: `calls`, equal for equal programs.

    Tensors that a run makes of numbers alone are constants, whatever is done to them. `earlier`: a run before this one, of which `carried` has the storages
    that this one reads.
    """

    def __init__(self, earlier: Dependence | None = None):
        super().__init__()
        self.calls: list[str] = []
        self.carried: set[int] = set()
        self._earlier = earlier
        # Storages by address, with whether they depend; held, so that no other gets the address.
        self._made: dict[int, tuple[torch.UntypedStorage, bool]] = {}

    def depends(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor that is seen in or after the run depends on what the run was given."""
        key = storage_key(tensor)
        if key in self._made:
            return self._made[key][1]
        if self._earlier is not None and key in self._earlier._made:
            depends = self._earlier._made[key][1]
            if depends:
                self.carried.add(key)
            return depends
        return is_fake(tensor)

    def has_made(self, tensor: torch.Tensor) -> bool:
        """Whether it is a result of this run that depends on what the run was given."""
        return self._made.get(storage_key(tensor), (None, False))[1]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        operands = [leaf for leaf in tree_leaves([args, kwargs or {}]) if isinstance(leaf, torch.Tensor)]
        flags = [self.depends(tensor) for tensor in operands]
        result = func(*args, **(kwargs or {}))
        # Queries, which caches leave out, compute nothing.
        if any(flags) and func.namespace != "prim":
            shown = tree_map(_shown, [args, kwargs or {}])
            self.calls.append(f"{func} {flags} {shown}")
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                key = storage_key(tensor)
                depends = any(flags) or self._made.get(key, (None, False))[1]
                if any(flags) or key not in self._made:
                    self._made[key] = (tensor.untyped_storage(), depends)
        return result


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for tensors that share memory."""
    return tensor.untyped_storage()._cdata


def _shown(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
