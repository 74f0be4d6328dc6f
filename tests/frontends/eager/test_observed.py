"""Lifetimes as they were seen: against real runs, in reports, and where they no longer hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import irscope  # noqa: E402
from irscope.ir.types import TensorType  # noqa: E402
from irscope.passes.inference.shapes import Shapes  # noqa: E402
from irscope.passes.lifetimes.ranges import Ranges  # noqa: E402
from irscope.passkit.manager import Manager  # noqa: E402
from tests.tools.oracle.held_models import HELD  # noqa: E402
from tests.tools.oracle.models import MODELS, image, sequence  # noqa: E402
from tests.tools.oracle.storages import record_module  # noqa: E402

pytestmark = pytest.mark.torch
ALL: dict[type[nn.Module], Callable[[], tuple[Any, ...]]] = {**MODELS, **HELD}


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_as_much_is_alive_as_in_a_real_run(make: type[nn.Module]) -> None:
    module, args = make().eval(), MODELS[make]()
    real = record_module(module, args)
    model = irscope.capture(module, *args, device="cpu")
    assert max(model.manager.get(Ranges()).alive()) == real.peak


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_rules_find_the_types_that_ran(make: type[nn.Module]) -> None:
    program = irscope.capture(make().eval(), *ALL[make]()).program
    stated = {output: output.type for node in program.graph for output in node.outputs}
    program.observed = None
    found = Manager(program).get(Shapes)
    for value, type_ in stated.items():
        inferred = found.type_of(value)
        assert isinstance(inferred, TensorType) == isinstance(type_, TensorType)
        if isinstance(inferred, TensorType) and isinstance(type_, TensorType):
            assert (inferred.dtype, inferred.shape) == (type_.dtype, type_.shape), value


class Held(nn.Module):
    """Keeps what nothing reads: in a variable, in a list of the module's, in a cell that a function closes over."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(8, 8, 1)
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        wide = self.layer(x)
        self.kept.append(wide.exp())
        closed = wide.tanh()

        def later() -> Tensor:
            return closed

        y = wide.mean((2, 3)).sigmoid()
        y = y.relu()
        assert later() is not None
        return y


def test_why_says_who_held_a_tensor() -> None:
    model = irscope.capture(Held(), *image())
    table = irscope.run(model, "liveness{top=0}")["liveness"].report().tables[0]
    names = [column.key for column in table.columns]
    why = {row[names.index("tensor")]: row[names.index("why")] for row in table.rows()}
    step = max(row[names.index("born")] for row in table.rows())
    assert why["exp"] == "held by Python beyond the end of the run", (why, step)
    ranges = {one.value.name: one for one in model.manager.get(Ranges()).ranges}
    assert ranges["tanh"].held_by.startswith(("local variable `closed`", "Python until"))
    assert ranges["tanh"].dies == len(model.graph) - 1
    assert "`wide`" in ranges["conv2d"].held_by


def test_a_changed_graph_is_analysed_by_rules() -> None:
    model = irscope.capture(Held(), *image())
    assert model.program.watched is not None
    irscope.run(model, "dce")
    dead = [node for node in model.graph if node.op in ("math.exp", "math.tanh")]
    assert not dead
    assert model.program.watched is None
    results = irscope.run(model, "liveness,cuda-memory,explain-peak")
    assert results["liveness"].report().summary["activation_peak_bytes"] > 0


def test_views_share_what_they_shared_in_the_run() -> None:
    class Folds(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            kept = x.exp()
            a, b = torch.meshgrid(kept[0, 0, :3], kept[0, 1, :3], indexing="ij")
            return (a + b).reshape(-1)

    (x,) = sequence()
    model = irscope.capture(Folds(), x)
    assert [one.value.name for one in model.manager.get(Ranges()).ranges] == ["exp", "add"]
