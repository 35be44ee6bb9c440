"""Hand-written PyTorch Transformers at PyTorch's best setting: one projection for query, key and value,
scaled_dot_product_attention, pre-norm LayerNorm, one embedding matrix for all, fused Adam. Used by
torch_step.py and torch_lm_step.py."""
import math

import torch
from torch import nn
from torch.nn import functional as F


def split_heads(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


class Attention(nn.Module):
    """Self-attention, or cross-attention if memory is given."""

    def __init__(self, width, heads, drop, cross=False):
        super().__init__()
        self.heads, self.drop = heads, drop
        self.query = nn.Linear(width, width if cross else 3 * width)
        self.memory = nn.Linear(width, 2 * width) if cross else None
        self.out = nn.Linear(width, width)

    def forward(self, x, memory=None, mask=None, causal=False):
        if memory is None:
            query, key, value = self.query(x).chunk(3, -1)
        else:
            query, (key, value) = self.query(x), self.memory(memory).chunk(2, -1)
        y = F.scaled_dot_product_attention(
            *(split_heads(t, self.heads) for t in (query, key, value)), attn_mask=mask, is_causal=causal,
            dropout_p=self.drop if self.training else 0.0)
        return self.out(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, ff, heads, drop, cross=False, attention_drop=None, gelu=False):
        super().__init__()
        attention_drop = drop if attention_drop is None else attention_drop
        self.attention = Attention(width, heads, attention_drop)
        self.cross = Attention(width, heads, attention_drop, cross=True) if cross else None
        self.feed = nn.Sequential(nn.Linear(width, ff), nn.GELU() if gelu else nn.ReLU(), nn.Dropout(drop),
                                  nn.Linear(ff, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if cross else 2))
        self.drop = nn.Dropout(drop)

    def forward(self, x, mask=None, causal=False, memory=None, memory_mask=None):
        x = x + self.drop(self.attention(self.norms[0](x), mask=mask, causal=causal))
        if self.cross is not None:
            x = x + self.drop(self.cross(self.norms[2](x), memory, mask=memory_mask))
        return x + self.drop(self.feed(self.norms[1](x)))


def sinusoids(length, width):
    angle = torch.arange(length).unsqueeze(1) * torch.exp(torch.arange(0, width, 2)
                                                          * (-math.log(10000.0) / width))
    return torch.cat([angle.sin(), angle.cos()], 1)


class Seq2Seq(nn.Module):
    def __init__(self, words, width, ff, heads, layers, drop, pad):
        super().__init__()
        self.width, self.pad = width, pad
        self.embed = nn.Embedding(words, width, padding_idx=pad)
        nn.init.normal_(self.embed.weight, std=width**-0.5)
        self.encoder = nn.ModuleList(Layer(width, ff, heads, drop) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(width, ff, heads, drop, cross=True) for _ in range(layers))
        self.final = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.drop = nn.Dropout(drop)
        self.register_buffer("positions", sinusoids(1024, width))

    def embedded(self, ids):
        return self.drop(self.embed(ids) * self.width**0.5 + self.positions[: ids.shape[1]])

    def forward(self, source, target):
        mask = (source != self.pad)[:, None, None, :]
        memory = self.embedded(source)
        for layer in self.encoder:
            memory = layer(memory, mask=mask)
        memory = self.final[0](memory)
        x = self.embedded(target)
        for layer in self.decoder:
            x = layer(x, causal=True, memory=memory, memory_mask=mask)
        return F.linear(self.final[1](x), self.embed.weight)


class LanguageModel(nn.Module):
    def __init__(self, words, width, ff, heads, layers, drop, length):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.position = nn.Embedding(length, width)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(width, ff, heads, drop) for _ in range(layers))
        self.final = nn.LayerNorm(width)
        self.drop = nn.Dropout(drop)

    def forward(self, ids):
        x = self.drop(self.embed(ids) + self.position.weight[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x, causal=True)
        return F.linear(self.final(x), self.embed.weight)


def adam(model, lr=5e-4):
    return torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98), fused=True)
