"""What Python's variables held, told from a trace that has the lines and not the statements: each rule against a real run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from irscope.passes.graph.alias import Alias  # noqa: E402
from irscope.passes.lifetimes.timeline import measure  # noqa: E402
from irscope.passes.lifetimes.traced import Ranges  # noqa: E402
from irscope.passkit.manager import Manager  # noqa: E402
from tests.tools.oracle.storages import record_module  # noqa: E402
from tests.tools.torch_files.helpers import read, save_traced  # noqa: E402

pytestmark = pytest.mark.torch

WIDTH = 24


class LoopVariable(nn.Module):
    """The variable of a loop is made before it, read twice, and bound again in it by a statement that does not read it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.sides = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.last = nn.Linear(WIDTH, 8 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(x)
        kept = inner.mean(-1)
        for side in self.sides:
            lateral = side(x)
            down = inner.roll(1, 0)
            inner = lateral + down
        return self.last(inner).sum(-1) + kept


class SecondName(nn.Module):
    """What the loop starts with has another name, which holds it to the end."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, WIDTH)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(3))

    def forward(self, ids: Tensor) -> Tensor:
        embedded = self.embed(ids)
        if embedded.dim() != 3:
            raise ValueError("a batch of rows is asked for")

        hidden = embedded
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


class NothingToDo(nn.Module):
    """Dropout in eval returns what it is given: as a statement of its own it binds the same name again."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.drop = nn.Dropout(0.1)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        hidden = x * self.scale
        hidden = self.drop(hidden)
        if hidden.dim() != 3:
            raise ValueError("a batch of rows is asked for")

        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


class Scores(nn.Module):
    """Scores and probabilities are two variables."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = torch.matmul(x, x.transpose(-1, -2))
        scores = scores / 4
        scores = scores + mask
        probabilities = nn.functional.softmax(scores, dim=-1)
        probabilities = self.drop(probabilities)
        return torch.matmul(probabilities, x)


class Attended(nn.Module):
    """A module's result is added to what the function was given, which takes the new name; the other stays."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.Linear(WIDTH, WIDTH)
            self.wide = nn.Linear(WIDTH, 4 * WIDTH)
            self.back = nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, hidden: Tensor) -> Tensor:
            attended = self.attention(hidden)
            hidden = attended + hidden
            return hidden + self.back(self.wide(hidden).relu())

    def __init__(self) -> None:
        super().__init__()
        self.block = Attended.Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x * 2)


def weigh(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    weights = torch.matmul(query, key.transpose(-1, -2))
    weights = nn.functional.softmax(weights, dim=-1)
    result = torch.matmul(weights, value)
    return result, weights


class Returned(nn.Module):
    """A function of its own returns the weights of attention, and nothing reads them."""

    class Attention(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            result, weights = weigh(x, x, x)
            return result, weights

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = Returned.Attention()
            self.wide = nn.Linear(WIDTH, 8 * WIDTH)
            self.back = nn.Linear(8 * WIDTH, WIDTH)

        def forward(self, x: Tensor) -> Tensor:
            x, _ = self.attention(x)
            x = self.wide(x)
            x = self.back(x)
            return x

    def __init__(self) -> None:
        super().__init__()
        self.block = Returned.Block()

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x * 2)


class Store:
    """Keeps what it is given, after what it has."""

    def __init__(self) -> None:
        self.kept = torch.tensor([])

    def update(self, part: Tensor) -> Tensor:
        self.kept = torch.cat([self.kept, part], dim=-2)
        return self.kept


class Gathered(nn.Module):
    """A cache that begins empty keeps its first part over the call that filled it."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(WIDTH, 2 * WIDTH)
        self.wide = nn.Linear(2 * WIDTH, 8 * WIDTH)

    def use(self, x: Tensor, store: Store) -> Tensor:
        keys = store.update(self.key(x))
        return keys.mean(-2, keepdim=True)

    def forward(self, x: Tensor) -> Tensor:
        store = Store()
        mean = self.use(x, store)
        return self.wide(mean.repeat(1, 30, 1)).sum()


def _rows(*shape: int) -> Tensor:
    return torch.rand(*shape)


MODELS: dict[type[Any], tuple[Tensor, ...]] = {
    LoopVariable: (_rows(3, 10, WIDTH),),
    SecondName: (torch.zeros(3, 10, dtype=torch.int64),),
    NothingToDo: (_rows(3, 10, WIDTH),),
    Scores: (_rows(3, 40, WIDTH), _rows(3, 40, 40)),
    Attended: (_rows(3, 10, WIDTH),),
    Returned: (_rows(3, 40, WIDTH),),
    Gathered: (_rows(3, 10, WIDTH),),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("made", list(MODELS), ids=lambda made: made.__name__)
def test_peak_equals_a_real_run(made: type[Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, args = made().eval(), MODELS[made]
    program = read("torchscript", save_traced(tmp_path / "model.pt", model, args))
    manager = Manager(program)
    said = measure(program.graph, manager.get(Ranges(model="eager")), manager.get(Alias())).peak
    assert said == record_module(model, args).peak
