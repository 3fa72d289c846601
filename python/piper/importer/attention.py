# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention as one operation: `piper::attention_forward` and its backward, which code generation gives to a blocked
kernel.

Semantics of torch.nn.functional.scaled_dot_product_attention without mask and dropout; query head h reads key/value
head h // (H / Hk). The CPU bodies are the plain formula, so that captured graphs run anywhere.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def _scores(q: Tensor, k: Tensor, causal: bool, scale: float) -> Tensor:
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-1, -2) * scale
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    return scores


@torch.library.custom_op("piper::attention_forward", mutates_args=())
def attention_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """q [B, H, T, D], k and v [B, Hk, S, D] → output [B, H, T, D] and log-sum-exp of the scores [B, H, T] in
    float32.
    """
    scores = _scores(q, k, causal, scale)
    lse = torch.logsumexp(scores, -1)
    return torch.exp(scores - lse[..., None]) @ v.repeat_interleave(q.shape[1] // v.shape[1], 1), lse.float()


@torch.library.custom_op("piper::attention_backward", mutates_args=())
def attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v from that of the output; formula of Dao et al., FlashAttention, appendix B.2."""
    group = q.shape[1] // k.shape[1]
    probabilities = torch.exp(_scores(q, k, causal, scale) - lse[..., None].to(q.dtype))
    dv = probabilities.transpose(-1, -2) @ grad
    dp = grad @ v.repeat_interleave(group, 1).transpose(-1, -2)
    ds = probabilities * (dp - (grad * out).sum(-1, keepdim=True)) * scale
    dk = ds.transpose(-1, -2) @ q

    def per_head(x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], k.shape[1], group, *x.shape[2:]).sum(2)

    return ds @ k.repeat_interleave(group, 1), per_head(dk), per_head(dv)


@attention_forward.register_fake
def _(q, k, v, causal, scale):
    return torch.empty(q.shape, dtype=q.dtype, device=q.device), torch.empty(
        q.shape[:-1], dtype=torch.float32, device=q.device
    )


@attention_backward.register_fake
def _(grad, q, k, v, out, lse, causal, scale):
    return tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))


def _save(ctx, inputs, output):
    q, k, v, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, *output)


def _backward(ctx, grad, _lse_grad):
    return *attention_backward(grad, *ctx.saved_tensors, ctx.causal, ctx.scale), None, None


attention_forward.register_autograd(_backward, setup_context=_save)


def replaces(args: tuple, kwargs: dict) -> Tensor | None:
    """The result of F.scaled_dot_product_attention(*args, **kwargs) by `attention_forward`, or None where that op does
    not cover the call.
    """
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    q, k, v = given["query"], given["key"], given["value"]
    if given.get("attn_mask") is not None or given.get("dropout_p") or not q.dim() == k.dim() == v.dim() == 4:
        return None
    if (
        not q.dtype == k.dtype == v.dtype
        or q.dtype not in (torch.float32, torch.bfloat16, torch.float16)
        or not q.shape[-1] == k.shape[-1] == v.shape[-1]
        or k.shape != v.shape
    ):
        return None
    heads, kv_heads = q.shape[1], k.shape[1]
    causal = bool(given.get("is_causal"))
    if (
        q.shape[0] != k.shape[0]
        or heads % kv_heads
        or (heads != kv_heads and not given.get("enable_gqa"))
        or (causal and q.shape[2] != k.shape[2])
    ):
        return None
    scale = given.get("scale")
    return attention_forward(q, k, v, causal, 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale))[0]


SDPA = F.scaled_dot_product_attention
