"""Two modules that compute the same; one of them lets go of a tensor that it does not need any more."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def image() -> tuple[Tensor, ...]:
    return (torch.randn(2, 8, 32, 32),)


class Careless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.widen = nn.Conv2d(8, 32, 1)
        self.narrow = nn.Conv2d(32, 16, 1)
        self.last = nn.Conv2d(16, 24, 1)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.widen(x)
        thin = self.narrow(wide)
        return self.last(thin)


class Careful(Careless):
    def forward(self, x: Tensor) -> Tensor:
        wide = self.widen(x)
        thin = self.narrow(wide)
        del wide
        return self.last(thin)
