"""The model of docs/memory.md: two residual blocks that tag a photo. samples/tagger.irs was exported from it."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(x + y)


class Tagger(nn.Module):
    """A photo of 224 by 224 pixels, a thousand tags."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, stride=2, padding=3)
        self.pool = nn.MaxPool2d(2)
        self.blocks = nn.Sequential(Block(64), Block(64))
        self.head = nn.Linear(64, 1000)

    def forward(self, image: Tensor) -> Tensor:
        wide = F.relu(self.stem(image))
        x = self.pool(wide)
        x = self.blocks(x)
        return self.head(x.mean((2, 3)))
