# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small language model of the Llama family over bytes: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Queries and keys are normalized (Henry et al. 2020, arXiv:2010.04245), with which so small a model learns much faster.

Plain PyTorch: nothing in it knows of Piper.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes. The defaults give 6.0 million parameters."""

    vocab: int = 256
    dim: int = 256
    layers: int = 8
    heads: int = 8
    kv_heads: int = 4
    hidden: int = 704
    context: int = 256
    rope_base: float = 10000.0
    norm_eps: float = 1e-6

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.dim // self.heads


class RMSNorm(nn.Module):
    """Scales each vector to unit root mean square, then by learned gains (Zhang and Sennrich 2019, arXiv:1910.07467)."""

    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding (Su et al. 2021, arXiv:2104.09864): pairs (i, i + half) turn by an angle that grows with position."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Attention(nn.Module):
    """Causal self-attention in which groups of query heads share a key and value head (Ainslie et al. 2023, arXiv:2305.13245)."""

    def __init__(self, config: Config):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.query = nn.Linear(config.dim, config.heads * config.head_dim, bias=False)
        self.key = nn.Linear(config.dim, config.kv_heads * config.head_dim, bias=False)
        self.value = nn.Linear(config.dim, config.kv_heads * config.head_dim, bias=False)
        self.out = nn.Linear(config.heads * config.head_dim, config.dim, bias=False)
        self.query_norm = RMSNorm(config.head_dim, config.norm_eps)
        self.key_norm = RMSNorm(config.head_dim, config.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, time, _ = x.shape
        query = self.query_norm(self.query(x).view(batch, time, self.heads, self.head_dim)).transpose(1, 2)
        key = self.key_norm(self.key(x).view(batch, time, self.kv_heads, self.head_dim)).transpose(1, 2)
        value = self.value(x).view(batch, time, self.kv_heads, self.head_dim).transpose(1, 2)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, -1))


class SwiGLU(nn.Module):
    """Gated feed-forward layer (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """One layer: attention and feed-forward, each behind a norm and around a residual."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention_norm = RMSNorm(config.dim, config.norm_eps)
        self.attention = Attention(config)
        self.feed_forward_norm = RMSNorm(config.dim, config.norm_eps)
        self.feed_forward = SwiGLU(config.dim, config.hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Llama(nn.Module):
    """Token ids [batch, time] in, logits [batch, time, vocab] out."""

    def __init__(self, config: Config | None = None):
        super().__init__()
        self.config = config = config or Config()
        self.embed = nn.Embedding(config.vocab, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.dim, config.norm_eps)
        self.head = nn.Linear(config.dim, config.vocab, bias=False)
        frequency = config.rope_base ** (-torch.arange(0, config.head_dim, 2) / config.head_dim)
        angle = torch.outer(torch.arange(config.context), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def create(config: Config | None = None, seed: int = 0) -> Llama:
    """A new model with PyTorch's own initial values, the same for the same seed; the global generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Llama(config)


def loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy in nats per byte."""
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def stages(config: Config, count: int) -> list[list[str]]:
    """Module names by pipeline stage: layers evenly, the embedding with the first stage, norm and head with the last."""
    result = []
    for stage in range(count):
        first, last = (config.layers * (stage + i) // count for i in range(2))
        result.append([f"blocks.{index}" for index in range(first, last)])
    result[0].insert(0, "embed")
    result[-1] += ["norm", "head"]
    return result
