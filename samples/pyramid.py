"""A model whose order of operators matters: pictures through filters of several sizes, all applied before any is used."""

from __future__ import annotations

import torch
from torch import nn


class Pyramid(nn.Module):
    """Keeps the mean of each filter's answer."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.ModuleList(nn.Conv2d(3, 32, size, padding=size // 2) for size in (1, 3, 5, 7))
        self.head = nn.Linear(128, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        maps = [torch.relu(one(image)) for one in self.filters]
        means = [one.mean((2, 3)) for one in maps]
        result: torch.Tensor = self.head(torch.cat(means, 1))
        return result


if __name__ == "__main__":
    batch = torch.export.Dim("batch")
    torch.export.save(torch.export.export(Pyramid().eval(), (torch.zeros(2, 3, 224, 224),), dynamic_shapes=({0: batch},)), "pyramid.pt2")
