"""Small models of the kinds that people bring, made on the spot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """A residual block whose activation works in place and is called twice."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        return self.relu(y)


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.layers = nn.Sequential(Block(8), Block(8))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(x), 2)
        x = self.layers(x)
        return self.fc(torch.flatten(self.pool(x), 1))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 32)
        self.b = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.b(F.gelu(self.a(x))), dim=-1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = 4
        self.qkv = nn.Linear(32, 96)
        self.out = nn.Linear(32, 32)
        self.norm1 = nn.LayerNorm(32)
        self.norm2 = nn.LayerNorm(32)
        self.up = nn.Linear(32, 128)
        self.down = nn.Linear(128, 32)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.drop(self.out(a))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class LanguageModel(nn.Module):
    """Tied embeddings, a parameter of the model itself, a buffer nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(100, 32)
        self.pos = nn.Parameter(torch.zeros(1, 64, 32))
        self.register_buffer("mask", torch.ones(64, 64).tril())
        self.blocks = nn.ModuleList([Attention(), Attention()])
        self.head = nn.Linear(32, 100, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.emb(ids) + self.pos[:, : ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, (h, _) = self.rnn(x)
        return self.fc(y[:, -1]), h


class Choice(nn.Module):
    """An if and a loop that depend on data."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            y = self.fc(x).relu()
        else:
            y = -x
        i = 0
        while bool(y.sum() > 1) and i < 5:
            y = y * 0.5
            i += 1
        return y


class Cond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.fc(x).relu(), lambda x: -x, (x,))


@dataclass(frozen=True)
class Sample:
    """A model, what it is called with, and which axes may vary."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    dynamic: dict[str, Any] | None = None

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.make().eval()


_BATCH = torch.export.Dim("batch", min=2, max=64)
_LENGTH = torch.export.Dim("length", min=2, max=60)
SAMPLES: dict[str, Sample] = {
    "cnn": Sample(Cnn, lambda: (torch.randn(2, 3, 32, 32),), {"x": {0: _BATCH}}),
    "mlp": Sample(Mlp, lambda: (torch.randn(2, 16),), {"x": {0: _BATCH}}),
    "attention": Sample(Attention, lambda: (torch.randn(2, 7, 32),), {"x": {0: _BATCH, 1: _LENGTH}}),
    "lm": Sample(LanguageModel, lambda: (torch.randint(0, 100, (2, 9)),), {"ids": {0: _BATCH, 1: _LENGTH}}),
    "lstm": Sample(Lstm, lambda: (torch.randn(2, 5, 8),)),
}
