"""Models written for torch.jit.script: loops, ifs, lists, dictionaries, early returns, classes, interfaces.

No `from __future__ import annotations` here: TorchScript reads the annotations of some of these as they are.
"""

# ruff: noqa: UP006, UP035, UP045
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ReturnsEarly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            return self.fc(x)
        y = x * 2
        if bool(y.mean() > 1):
            return y.relu()
        return y - 1


class ReturnsFromLoop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(10):
            x = x * 2
            if bool(x.sum() > 100):
                return x
        return x + 1


class CollectsUntil(nn.Module):
    """A list that grows as long as the data says."""

    def forward(self, x: Tensor) -> Tensor:
        rows: List[Tensor] = []
        count = 0
        while bool(x.sum() < 100) and count < 5:
            rows.append(x)
            x = x + 1
            count += 1
        return torch.stack(rows) if len(rows) > 0 else x.unsqueeze(0)


class ChangesContainers(nn.Module):
    """A list and a dictionary that only one of two ways changes."""

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        rows: List[Tensor] = [x]
        pair: List[Tensor] = [x, x]
        named: Dict[str, Tensor] = {"a": x}
        if bool(x.sum() > 0):
            rows.append(x + 1)
            named["a"] = x * 2
            pair[0] = x - 1
        else:
            named["a"] = x * 3
        rows.append(x)
        return torch.cat(rows), named["a"] + pair[0]


def collect(rows: List[Tensor], x: Tensor) -> Tensor:
    while bool(x.sum() < 100):
        rows.append(x)
        x = x + 1
    if bool(x.mean() > 3):
        rows.append(x)
    return x


class CollectsElsewhere(nn.Module):
    """A list that another function makes grow."""

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        rows = [x]
        y = collect(rows, x)
        return torch.stack(rows), y


class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"a": nn.Linear(6, 3), "b": nn.Linear(6, 5)})

    def forward(self, x: Tensor) -> Dict[str, Tensor]:
        found: Dict[str, Tensor] = {}
        for name, layer in self.layers.items():
            found[name] = layer(x)
        found["sum"] = found["a"].sum(1)
        if "c" in found:
            found.pop("c")
        return found


class MayMask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tuple[Tensor, Optional[Tensor]]:
        y = self.fc(x)
        if mask is not None:
            y = y * mask
        return y, mask


class Constants(nn.Module):
    """Tensors that the code makes of numbers."""

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        mean = torch.tensor([0.1, 0.2, 0.3])
        order = torch.tensor([[0, 1], [2, 0]])
        y = x - mean[None, :, None, None]
        return y[:, order].flatten(2), torch.as_tensor(3) + torch.tensor(1.5)


class Steps(nn.Module):
    """A cell called in a loop over time."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 7)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        h = torch.zeros(x.size(0), 7)
        out: List[Tensor] = []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            out.append(h)
        return torch.stack(out, 1), h


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class Named(nn.Module):
    def forward(self, x: Tensor) -> Pair:
        pair = Pair(x * 2, x.sum(0))
        return Pair(pair.second, pair.first)


class Checked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            raise ValueError("two axes are wanted")
        assert x.size(1) == 4, "four features are wanted"
        return F.softmax(self.layers(x), dim=1)


@torch.jit.script
class Stack:
    def __init__(self) -> None:
        self.items: List[Tensor] = []

    def push(self, x: Tensor) -> None:
        self.items.append(x)

    def top(self) -> Tensor:
        return self.items[-1]


class UsesClass(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        stack = Stack()
        for i in range(3):
            stack.push(x * i)
        return stack.top() + len(stack.items)


@torch.jit.interface
class Activation(nn.Module):
    def forward(self, input: Tensor) -> Tensor:
        pass


class ThroughInterface(nn.Module):
    act: Activation

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.act.forward(x)


class Jumps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for i in range(10):
            if i == 2:
                continue
            if i == 5:
                break
            x = torch.cat([x, x[:1]])
        return x


class UntilLarge(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        while True:
            x = x * 1.5
            if bool(x.abs().max() > 10):
                break
        return x.sum(1)


class Selected(nn.Module):
    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        places = torch.nonzero(x > 2).squeeze(1)
        return x[places], x[x > 1]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 9, 2, bidirectional=True)
        self.gru = nn.GRU(18, 3)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        y, (h, _) = self.lstm(x)
        z, _ = self.gru(y)
        return z, h


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32), 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Resized(nn.Module):
    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        double = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
        return double, F.interpolate(x, size=[5, 6]), F.pad(x, [1, 1, 2, 2])


class Gathered(nn.Module):
    """A list of tensors as input, and a whole number that has no default."""

    def forward(self, xs: List[Tensor], n: int) -> Tensor:
        return torch.cat(xs, 0).repeat(n, 1)


class TokenModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 12)
        self.head = nn.Linear(12, 50)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embedding(ids).mean(1))


class Picture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.Sequential(nn.Conv2d(3, 8, 7, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, groups=2))
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.convs(x).mean((2, 3)))


class OneSize(nn.Module):
    """A model for pictures of one size, which is not a power of two."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 32, stride=32)

    def forward(self, x: Tensor) -> Tensor:
        assert x.size(2) == 224 and x.size(3) == 224, "224 by 224 are wanted"
        if x.size(2) != 224:
            raise ValueError("224 by 224 are wanted")
        return self.patches(x).flatten(2)


@dataclass(frozen=True)
class Scripted:
    """A model with what it is called with."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], Tuple[Any, ...]]
    unknown: int = 0
    """Sizes of the outputs that depend on data."""


MODELS: Dict[str, Scripted] = {
    "returns early": Scripted(ReturnsEarly, lambda: (torch.randn(3, 4),)),
    "returns from a loop": Scripted(ReturnsFromLoop, lambda: (torch.randn(3, 4),)),
    "collects until": Scripted(CollectsUntil, lambda: (torch.zeros(5, 4),), 1),
    "changes containers": Scripted(ChangesContainers, lambda: (torch.ones(5, 4),), 1),
    "collects elsewhere": Scripted(CollectsElsewhere, lambda: (torch.zeros(5, 4),), 1),
    "by name": Scripted(ByName, lambda: (torch.randn(4, 6),)),
    "may mask": Scripted(MayMask, lambda: (torch.randn(4, 6), torch.ones(6))),
    "constants": Scripted(Constants, lambda: (torch.randn(2, 3, 4, 4),)),
    "steps": Scripted(Steps, lambda: (torch.randn(2, 10, 4),)),
    "named": Scripted(Named, lambda: (torch.randn(3, 4),)),
    "checked": Scripted(Checked, lambda: (torch.randn(3, 4),)),
    "uses a class": Scripted(UsesClass, lambda: (torch.randn(3, 4),)),
    "through an interface": Scripted(ThroughInterface, lambda: (torch.randn(3, 4),)),
    "jumps": Scripted(Jumps, lambda: (torch.randn(3, 4),)),
    "until large": Scripted(UntilLarge, lambda: (torch.randn(3, 4),)),
    "selected": Scripted(Selected, lambda: (torch.arange(7),), 2),
    "recurrent": Scripted(Recurrent, lambda: (torch.randn(2, 5, 8),)),
    "encoder": Scripted(Encoder, lambda: (torch.randn(6, 2, 16),)),
    "resized": Scripted(Resized, lambda: (torch.randn(2, 3, 8, 8),)),
    "gathered": Scripted(Gathered, lambda: ([torch.randn(3, 4), torch.randn(2, 4)], 3)),
    "token model": Scripted(TokenModel, lambda: (torch.randint(0, 50, (2, 5)),)),
    "one size": Scripted(OneSize, lambda: (torch.randn(1, 3, 224, 224),)),
    "picture": Scripted(Picture, lambda: (torch.randn(1, 3, 32, 32),)),
}
