"""Modules of torch.nn that run as one operator in inference, though an exporter writes down many."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """With the batch first and an even number of heads, nn.MultiheadAttention has a fused form."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        y, _ = self.attention(y, y, y, need_weights=False)
        return x + y


class AttentionWeights(nn.Module):
    """The fused form also returns the attention weights."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, weights = self.attention(x, x, x)
        return y, weights


class OddHeads(nn.Module):
    """Three heads have no fused form."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(96, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.attention(x, x, x, need_weights=False)
        return y.relu()


class CrossAttention(nn.Module):
    """Other keys than queries have no fused form either."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        y, _ = self.attention(x, memory, memory, need_weights=False)
        return y.relu()


class Encoder(nn.Module):
    """Whole layers have a fused form."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).mean(1)


class NormFirst(nn.Module):
    """So have layers that normalize first."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(64, 4, 256, activation="gelu", batch_first=True, norm_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


FUSED: dict[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]] = {
    SelfAttention: lambda: (torch.zeros(8, 100, 64),),
    AttentionWeights: lambda: (torch.zeros(8, 100, 64),),
    OddHeads: lambda: (torch.zeros(8, 100, 96),),
    CrossAttention: lambda: (torch.zeros(8, 100, 64), torch.zeros(8, 50, 64)),
    Encoder: lambda: (torch.zeros(8, 100, 64),),
    NormFirst: lambda: (torch.zeros(8, 100, 64),),
}
