# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Embedding bags of equal sizes as an embedding and a reduction. Bags of sizes that are data stay as they are, and are
refused."""

from __future__ import annotations

import torch
import torch.nn.functional as F

BAG = F.embedding_bag


def replaces(args, kwargs) -> torch.Tensor | None:
    """The result of a call of `BAG` on [bags, entries], or None where it is another one."""
    index, weight, *rest = args
    options = dict(zip(("offsets", "max_norm", "norm_type", "scale_grad_by_freq", "mode"), rest, strict=False)) | kwargs
    if index.dim() != 2 or options.get("max_norm") is not None or options.get("sparse"):
        return None
    padding, mode = options.get("padding_idx"), options.get("mode", "mean")
    each = options.get("per_sample_weights")
    found = F.embedding(index, weight, padding, scale_grad_by_freq=options.get("scale_grad_by_freq", False))
    if each is not None:
        found = found * each.unsqueeze(-1)
    kept = torch.ones_like(index, dtype=torch.bool) if padding is None else index != padding % weight.shape[0]
    kept = kept.unsqueeze(-1)
    if mode == "max":
        largest = found.masked_fill(~kept, float("-inf")).max(1)[0]
        return torch.where(kept.any(1), largest, 0.0)
    total = torch.where(kept, found, 0.0).sum(1)
    return total / kept.sum(1).clamp(min=1) if mode == "mean" else total
