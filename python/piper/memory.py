# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors as the runtime reads them: bytes behind a pointer."""

from __future__ import annotations

import torch


def plain(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The values of a dense tensor on the CPU, one after the other; a view that negates or conjugates as it is read is made what it reads."""
    return tensor.detach().to("cpu", dtype or tensor.dtype).resolve_conj().resolve_neg().contiguous()
