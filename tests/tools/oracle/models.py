"""Small models, each with one way of keeping tensors alive. Activations are made much larger than parameters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 8


class Residual(nn.Module):
    """The input of a call lives until the call returns, here much longer than its last reader inside the first layers."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(_Block() for _ in range(3)))
        self.head = nn.Conv2d(WIDTH, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x))


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.norm = nn.BatchNorm2d(WIDTH)
        self.second = nn.Conv2d(WIDTH, 2 * WIDTH, 1)
        self.third = nn.Conv2d(2 * WIDTH, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm(self.first(x)))
        return self.third(self.second(y)) + x


class InPlace(nn.Module):
    """Writes in place take no storage: through a view, by an operator's name, and by augmented assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(WIDTH, WIDTH, 1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        y[:, :4].mul_(2)
        y = self.relu(y)
        z = self.layer(y)
        z += y
        return z.clamp_(max=3).mean((2, 3))


class Views(nn.Module):
    """Views of views and parts of a split keep the whole alive."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 6 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.layer(x).view(x.shape[0], -1, 6, WIDTH).transpose(1, 2).split(2, dim=1)
        first, second = k.unbind(1)
        small = (first * second).sum(-1)
        del first, second
        return q.exp().sum(-1) + v.select(1, 0).mean(-1, keepdim=True).expand(-1, x.shape[1], -1).transpose(1, 2) + small[:, None]


class Lists(nn.Module):
    """A list keeps every tensor that was put in, whatever becomes of the variable."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(WIDTH * (i + 1), WIDTH, 3, padding=1) for i in range(4))
        self.last = nn.Conv2d(WIDTH * 5, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for layer in self.layers:
            new = layer(torch.cat(found, 1))
            found.append(new)
        return self.last(torch.cat(found, 1)).relu().amax((2, 3))


class Locals(nn.Module):
    """Variables keep their tensor until they are bound again, long after it was read for the last time."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, 16 * WIDTH)
        self.narrow = nn.Linear(16 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.wide(x)
        gate = wide.sigmoid()
        mixed = wide * gate
        small = self.narrow(mixed)
        wide = small.exp()
        again = torch.cat((wide, small, wide, small, wide, small, wide, small), -1)
        total = again * 2
        return total.sum(-1)


class Reused(nn.Module):
    """One module that is called several times in one statement's loop and again outside it."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = _Block()

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.shared(x)
        return self.shared(x) - x


class DropoutEval(nn.Module):
    """Dropout that does nothing is its input, and so is a conversion to the type a tensor has."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.layer = nn.Linear(WIDTH, 4 * WIDTH)
        self.norm = nn.LayerNorm(4 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.drop(self.layer(x))
        y = self.drop(self.norm(y)).to(torch.float32)
        return functional.gelu(y).contiguous().sum(1)


class Reshapes(nn.Module):
    """A reshape of a permuted tensor copies, that of a dense one does not; maxima leave positions behind for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(WIDTH, 2 * WIDTH, 3, padding=1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.pool(self.layer(x))
        flat = y.flatten(2)
        rows = flat.permute(0, 2, 1).reshape(-1, 2 * WIDTH)
        return rows.softmax(-1).reshape(x.shape[0], -1)


class ChannelsLast(nn.Module):
    """Layers keep a tensor's memory format, so that asking for it again makes no copy and flattening does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(WIDTH, 2 * WIDTH, 3, padding=1).to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x.contiguous(memory_format=torch.channels_last)).relu()
        return y.contiguous(memory_format=torch.channels_last).flatten(1).sum(1)


class Attention(nn.Module):
    """Scores by hand, whose operands must first be laid out one matrix after another."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.layer(x).chunk(3, -1))
        weights = torch.softmax(q @ k.transpose(-1, -2), -1)
        mixed = (weights @ v).transpose(1, 2).flatten(2)
        return self.out(mixed)


class Mutated(nn.Module):
    """An input that the model writes is resident and no activation."""

    def forward(self, x: Tensor, cache: Tensor) -> Tensor:
        cache[:, 1:3] = x[:, 1:3].exp()
        return (cache * x).sum(1)


def image() -> tuple[Tensor, ...]:
    return (torch.randn(2, WIDTH, 24, 24),)


def sequence() -> tuple[Tensor, ...]:
    return (torch.randn(2, 40, WIDTH),)


def pair() -> tuple[Tensor, ...]:
    return torch.randn(2, 16, 32), torch.zeros(2, 16, 32)


MODELS: dict[type[nn.Module], Callable[[], tuple[Tensor, ...]]] = {
    Residual: image, InPlace: image, Views: sequence, Lists: image, Locals: sequence, Reused: image, DropoutEval: sequence,
    Reshapes: image, ChannelsLast: image, Attention: sequence, Mutated: pair,
}  # fmt: skip
