"""Small models whose variables the file does not name, or whose lines it does not show."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 64


class Chain(nn.Module):
    """A variable that is bound over several lines: the file keeps the lines that run something, and none of them has its name."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        # fmt: off
        query = (
            self.query(x)
            .relu()
        )
        key = (
            self.key(x)
            .relu()
        )
        # fmt: on
        scores = query @ key.transpose(-2, -1)
        wide = torch.cat((scores, scores), -1)
        return self.out(wide.softmax(-1)[..., :WIDTH])


class Renamed(nn.Module):
    """A second name, bound without an operator, keeps what the first one lets go."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        shifted = y
        windows = shifted.relu()
        y = self.second(windows)
        y = torch.cat((y, y, y), -1)
        return y.sigmoid().sum(-1)


class Rounded(nn.Module):
    """A softmax in single precision, rounded in the same statement of a function of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query, key = self.query(x), self.key(x)
        return _attend(query, key, x)


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    weights = torch.matmul(query, key.transpose(-2, -1)) * 0.125
    weights = functional.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(weights, value)


class RoundedHalf(Rounded):
    """The same in bfloat16, of which softmax makes a copy."""

    def __init__(self) -> None:
        super().__init__()
        self.to(torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        x = x.bfloat16()
        query, key = self.query(x), self.key(x)
        return _attend(query, key, x)


class Waiting(nn.Module):
    """A function of its own makes something before its reader needs it, and keeps it in a variable."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.scores(x)
        return _masked(scores, x)


def _masked(scores: Tensor, x: Tensor) -> Tensor:
    mask = x[0].sign()
    scores = scores.exp()
    scores = scores + mask.unsqueeze(0)
    scores = torch.cat((scores, scores), -1)
    return scores.softmax(-1)


class Cached(nn.Module):
    """Keys of every layer stay in a cache, which is dropped when the last layer has run."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        past = _Cache()
        for layer in self.layers:
            x = layer(x, past)
        return x


class _Cache:
    def __init__(self) -> None:
        self.kept: list[Tensor] = []

    def update(self, key: Tensor) -> Tensor:
        self.kept.append(key * 2)
        return self.kept[-1]


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.key, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, past: _Cache) -> Tensor:
        key = self.key(x)
        key = past.update(key)
        return self.out(key)


class Clamped(nn.Module):
    """Magnitudes that are compared with infinity, and a number to the power of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.scale(x)
        limit = torch.where(torch.isinf(y).any(), 10.0, 20.0)
        bounded = torch.clamp(y, max=limit) * torch.isfinite(y)
        return torch.pow(2.0, bounded)


def _rows() -> tuple[Tensor, ...]:
    return (torch.zeros(2, 512, WIDTH),)


HELD: dict[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]] = {
    Chain: lambda: (torch.zeros(4, WIDTH, WIDTH),),
    Renamed: _rows,
    Rounded: _rows,
    RoundedHalf: _rows,
    Waiting: _rows,
    Cached: _rows,
    Clamped: _rows,
}
