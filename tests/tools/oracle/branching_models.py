"""Small torch models that do more in one order than in another, each in its own way."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 16


class Branches(nn.Module):
    """Every branch is made before any is used."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3, WIDTH, 3, padding=1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        maps = [torch.relu(layer(x)) for layer in self.layers]
        return torch.stack([one.mean((2, 3)) for one in maps])


class InPlaceBranches(Branches):
    """Writes in place, which must come after other readers of what they write over."""

    def forward(self, x: Tensor) -> Tensor:
        maps = [layer(x) for layer in self.layers]
        tops = [one.amax((2, 3)) for one in maps]
        return torch.stack([one.relu_().mean((2, 3)) + top for one, top in zip(maps, tops, strict=True)])


class Parts(nn.Module):
    """Parts of one result: they share its storage, and an exported graph takes them apart with nodes of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 4 * WIDTH, 1)
        self.other = nn.Conv2d(3, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        first, second, *_ = self.wide(x).split(WIDTH, 1)
        other = self.other(x)
        values, places = other.flatten(2).topk(3)
        return first.mean((2, 3)) + second.amax((2, 3)) + values.sum(-1) + places.sum(-1)


class Counters(nn.Module):
    """A buffer that the forward pass writes to between two reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(WIDTH))
        self.left = nn.Conv2d(3, WIDTH, 1)
        self.right = nn.Conv2d(3, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.left(x), self.right(x)
        before = self.seen * 2
        self.seen.add_(left.mean((0, 2, 3)))
        return before + self.seen + right.amax((0, 2, 3))


class Waves(nn.Module):
    """One-dimensional convolutions of several widths, normalised, and a sum over time."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(WIDTH, 2 * WIDTH, size, padding=size // 2) for size in (1, 3, 5))
        self.norm = nn.LayerNorm(2 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        found = [layer(x.transpose(1, 2)).transpose(1, 2) for layer in self.layers]
        return torch.cat([self.norm(one).cumsum(1)[:, -1] for one in found], 1)


class Attention(nn.Module):
    """Queries, keys and values of two heads that are made long before they are needed."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        a, b, c, d, e, f = (part(x).unflatten(-1, (2, -1)).transpose(1, 2) for part in self.parts)
        one = functional.scaled_dot_product_attention(a, b, c)
        two = functional.scaled_dot_product_attention(d, e, f)
        return one.mean(1) + two.mean(1)


class Skips(nn.Module):
    """Pictures at several sizes, as a pyramid has them."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(3 if not level else WIDTH, WIDTH, 3, stride=2, padding=1) for level in range(3))
        self.side = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        levels: list[Tensor] = []
        for layer in self.down:
            x = layer(x).relu()
            levels.append(x)
        sides = [functional.interpolate(side(level), size=(32, 32)) for side, level in zip(self.side, levels, strict=True)]
        return torch.cat([side.mean((2, 3)) for side in sides], 1)


class Choices(nn.Module):
    """A choice with graphs of its own, sizes that are computed from others, a buffer that changes, and parts of a result."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, 64), nn.Linear(WIDTH, 64)
        self.register_buffer("runs", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        left, right = self.left(x), self.right(x)
        chosen, extra = torch.cond(x.sum() > 0, lambda one: (one * 2, one.sum()), lambda one: (one - 1, one.mean()), (left,))
        batch, length, _ = right.shape
        heads = right.view(batch * length, 2, 32).transpose(1, 2).reshape(batch, length * 64)
        self.runs.add_(1)
        most, _ = right.max(-1)
        return chosen.mean((1, 2)) + extra + heads.mean(1) + most.mean(1) + self.runs


def picture() -> tuple[Tensor, ...]:
    """An image."""
    return (torch.rand(2, 3, 32, 32),)


def sequence() -> tuple[Tensor, ...]:
    """A sequence of vectors."""
    return (torch.rand(2, 24, WIDTH),)


BRANCHING: dict[type[nn.Module], Callable[[], tuple[Tensor, ...]]] = {
    Branches: picture,
    InPlaceBranches: picture,
    Parts: picture,
    Counters: picture,
    Waves: sequence,
    Attention: sequence,
    Skips: picture,
}
