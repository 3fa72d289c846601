# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether a tensor was written since: cheap enough for every step."""

from __future__ import annotations

import torch

_SAMPLES = 4


class TensorMark:
    """A tensor as it is now. Sees all that counts versions, and with `sampled` of what does not (`tensor.data.fill_`) what changes one of a few elements."""

    def __init__(self, tensor: torch.Tensor, sampled: bool = True):
        self.tensor = tensor
        self._sampled = sampled
        # Tensors of inference mode count no versions.
        self._counts = not tensor.is_inference()
        self.set()

    def set(self) -> None:
        """Takes the tensor as it is now."""
        self._version = self.tensor._version if self._counts else 0
        self._pointer = self.tensor.data_ptr()
        self._view = _samples(self.tensor) if self._sampled else None
        self._content = self._view.tobytes() if self._view is not None else b""

    def moved(self) -> bool:
        """Whether it was written, though maybe with equal values."""
        tensor = self.tensor
        if self._counts and tensor._version != self._version or tensor.data_ptr() != self._pointer:
            return True
        return self._view is not None and self._view.tobytes() != self._content


def _samples(tensor: torch.Tensor):
    """A view of a few elements, from the first to the last, or None where there is none."""
    if (
        tensor.layout != torch.strided
        or tensor.device.type != "cpu"
        or not tensor.is_contiguous()
        or not tensor.numel()
    ):
        return None
    flat = tensor.detach().view(-1)
    flat = flat[:: max(1, (flat.numel() - 1) // _SAMPLES)]
    if flat.dtype == torch.bfloat16:
        flat = flat.view(torch.int16)
    try:
        return flat.numpy()
    except (TypeError, RuntimeError):
        return None
