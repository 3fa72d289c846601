# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small Llama-style decoder: RMSNorm, rotary embedding, grouped-query attention, SwiGLU."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 512
SEQUENCE = 64


class RMSNorm(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
        return (x.float() * scale).to(x.dtype) * self.weight


def rotary_tables(length: int, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    frequency = 10000.0 ** -(torch.arange(0, head_dim, 2).double() / head_dim)
    angle = torch.outer(torch.arange(length).double(), frequency).repeat(1, 2)
    return angle.cos().float(), angle.sin().float()


def rotate(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, kv_heads: int):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.v = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)
        self.q_norm, self.k_norm = RMSNorm(self.head_dim), RMSNorm(self.head_dim)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q = self.q_norm(self.q(x).view(batch, length, self.heads, self.head_dim)).transpose(1, 2)
        k = self.k_norm(self.k(x).view(batch, length, self.kv_heads, self.head_dim)).transpose(1, 2)
        v = self.v(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv_heads != self.heads)
        return self.o(y.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, kv_heads: int, ffn: int):
        super().__init__()
        self.attention_norm, self.ffn_norm = RMSNorm(dim), RMSNorm(dim)
        self.attention = Attention(dim, heads, kv_heads)
        self.gate, self.up = nn.Linear(dim, ffn, bias=False), nn.Linear(dim, ffn, bias=False)
        self.down = nn.Linear(ffn, dim, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        y = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class LanguageModel(nn.Module):
    def __init__(self, layers: int = 4, dim: int = 256, heads: int = 8, kv_heads: int = 4, ffn: int = 704):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = RMSNorm(dim)
        self.head = nn.Linear(dim, VOCABULARY, bias=False)
        cos, sin = rotary_tables(SEQUENCE, dim // heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def build(layers: int = 4) -> LanguageModel:
    torch.manual_seed(0)
    model = LanguageModel(layers)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    return model


def stages(model: LanguageModel, count: int) -> list[list[str]]:
    """Module names of `count` stages: layers divided evenly, embedding first, norm and head last."""
    layers = len(model.blocks)
    cuts = [layers * i // count for i in range(count + 1)]
    names = [[f"blocks.{i}" for i in range(cuts[s], cuts[s + 1])] for s in range(count)]
    names[0].insert(0, "embed")
    names[-1] += ["norm", "head"]
    return names


def loss_fn(logits, target):
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), target.reshape(-1))


def batches(count: int, rows: int, seed: int = 1) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCABULARY, (count, rows, SEQUENCE + 1), generator=generator)
    return [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in tokens]
