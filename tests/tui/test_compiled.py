"""What torch.compile made of a program: Passes, Memory, Compare and Reports of one that was captured once for all of these tests."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from textual.pilot import Pilot

from irscope.frontends.base import LoadOptions
from irscope.passes.cost.count import NodeCosts
from irscope.passkit.instruments import Instrument, PassEvent
from irscope.passkit.settings import Settings
from irscope.report.units import Kind, humanise
from irscope.session import Model, open_model
from irscope.tools.lowered import Lowered, eager_of
from irscope.tui.app import IrscopeApp
from irscope.tui.compiled import NOT_COMPILED
from tests.tui.driving import HUGE, LARGE, SMALL, drive, driven, press, screen_text, selected
from tests.tui.models import TWO_LAYERS

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(64, 256), nn.LayerNorm(256), nn.Linear(256, 64)

    def forward(self, x):
        h = nn.functional.gelu(self.norm(self.up(x)))
        torch._dynamo.graph_break()
        return self.down(torch.relu(h) + 1)

def build(batch=4096):
    return Net().eval(), (torch.zeros(batch, 64),)
"""
FOLDER = Path(__file__).parents[1] / "data" / "inductor" / "mlp"
NODES = ["linear", "layer_norm", "gelu", "relu", "add", "linear.1"]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("compiled") / "net.py"
    path.write_text(NET)
    told: list[str] = []

    class Telling(Instrument):
        def progress(self, event: PassEvent | None, done: int, total: int | None, what: str) -> None:
            told.append(what)

    model = open_model(Path(f"{path}:build"), LoadOptions(compile=True), settings=Settings(device="h100"), instruments=[Telling()])
    # What takes long has a name while it is read.
    assert told[:2] == ["making the model without its weights", "compiling it with torch.compile and counting its kernels"]
    return model


@pytest.fixture(scope="module")
def lowered(compiled: Model) -> Lowered:
    return Lowered(compiled, eager_of(compiled))


@pytest.mark.slow
def test_each_kernel_has_the_nodes_of_eager_whose_work_it_does(lowered: Lowered) -> None:
    names = [one.node.name for one in lowered.eager]
    assert names == NODES
    found = [(kernel.name, [names[at] for at in kernel.eager]) for kernel in lowered.kernels]
    assert found == [
        ("addmm", ["linear"]),
        ("triton_per_fused_gelu_native_layer_norm_0", ["layer_norm", "gelu"]),
        ("triton_poi_fused_add_relu_0", ["relu", "add"]),
        ("addmm.1", ["relu", "add", "linear.1"]),
    ]
    assert [kernel.graph for kernel in lowered.kernels] == [0, 0, 1, 1]
    assert all(lowered.kernels_of[at] for at in range(len(names)))


def test_sums_before_and_after_are_those_of_the_cost_of_each_program(lowered: Lowered, compiled: Model) -> None:
    for model, steps in ((eager_of(compiled), lowered.eager), (compiled, lowered.kernels)):
        costs = model.manager.get(NodeCosts()).by_node.values()
        assert sum(one.moved or 0 for one in steps) == sum(one.read + one.written for one in costs)  # type: ignore[operator,misc]  # numbers
    first, sums, stops, why = lowered.headline
    assert first == "6 nodes of eager are 4 kernels: 2 generated, 2 calls of libraries"
    assert "42.13 MiB -> 26.13 MiB (-38.0%)" in sums
    assert stops == "1 graph break; 0 recompilations"
    assert "net.py:12: Call to `torch._dynamo.graph_break()`" in why


def test_calls_of_which_numbers_differ_are_matched_with_none(compiled: Model, lowered: Lowered) -> None:
    """A call of layer_norm more in eager: nobody can tell which one was compiled."""
    other = eager_of(compiled)
    node = next(node for node in other.graph if node.name == "layer_norm")
    lying = Lowered(compiled, other)
    lying.eager.insert(0, replace(lying.eager[1], node=node))
    assert not any(key[2].startswith("layer_norm") for key in lying._places())
    assert any(key[2].startswith("layer_norm") for key in lowered._places())


@pytest.mark.parametrize("size", [SMALL, *(pytest.param(size, marks=pytest.mark.full) for size in (LARGE, HUGE))])
def test_what_did_the_compiler_change(compiled: Model, size: tuple[int, int]) -> None:
    """Keys: 5, down, enter; and 2, E."""

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "5", "down")
        lines = screen_text(app).splitlines()
        assert "6 nodes of eager are 4 kernels: 2 generated, 2 calls of libraries" in lines[3]
        assert "42.13 MiB -> 26.13 MiB (-38.0%)" in lines[4] and "1 graph break; 0 recompilations" in lines[5]
        marked = [line for line in lines if "◉" in line]
        assert len(marked) == 2 and "%layer_norm" in marked[0] and "%gelu" in marked[1] and "net.py:11" in marked[0]
        assert selected(app).startswith("triton_per_fused_gelu_native_layer_norm_0")
        await press(app, pilot, "enter", "down", "down", "enter", "enter")
        view = app.model_screen.compiled  # type: ignore[union-attr]  # the Passes screen
        assert view.kernels.selected == 2 and view.nodes.selected == 3
        assert sum("◉" in line for line in screen_text(app).splitlines()) == 2
        await press(app, pilot, "2", "E")
        lines = screen_text(app).splitlines()
        assert any("compiled needs 6.6% less memory: 42.13 MiB at the peak, eager 45.13 MiB" in line for line in lines)
        assert any("▼" in line and "eager 45.13 MiB at add" in line for line in lines)
        assert any("▼" in line and "compiled 42.13 MiB at addmm.1" in line for line in lines)
        assert any("second forward; the first takes 91.13 MiB" in line for line in lines)
        assert any("buf4" in line and "in place of buf0" in line for line in lines)
        chart = app.session["memory"].shown
        assert len(chart) == len(app.session["memory"].stack)
        assert np.array_equal(chart.total, np.maximum(*(side.heights for side in chart.sides)))
        await press(app, pilot, "E")
        assert "only eager" not in screen_text(app)

    drive(compiled, steps, size=size)


@pytest.mark.slow
def test_reports_have_the_tables_of_the_compiler(compiled: Model) -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "7")
        assert "What did the compiler change?" in screen_text(app) and "1 graph break; 0 recompilations" in screen_text(app)
        reports = app.session["reports"]
        titles = [part.title for part in reports.item.parts]
        for begin in (
            "what was compiled",
            "kernels, those that move",
            "buffers of the generated",
            "where compilation stops",
            "nodes of eager",
        ):
            assert any(title.startswith(begin) for title in titles), begin

    drive(compiled, steps)


def test_eager_beside_compiled_on_compare_begins_with_what_compiling_does_to_memory(compiled: Model) -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "6", "E")
        text = screen_text(app)
        assert "net.py:build: eager (A) and compiled (B)" in text
        assert "compiled needs 6.6% less memory: 42.13 MiB beside 45.13 MiB allocated at the peak of a run" in text
        assert "only eager" in text and "only compiled" in text
        assert app.session["compare"].command(app.browse.source).startswith("irscope compare --device h100 --compile-b ")

    drive(compiled, steps)


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_a_program_that_was_not_compiled_says_how_to(app: IrscopeApp, pilot: Pilot[None]) -> None:
    said: list[str] = []
    app.notify = lambda text, **_: said.append(text)  # type: ignore[method-assign,assignment]
    for screen, key in (("5", "v"), ("2", "E")):
        await press(app, pilot, screen)
        app.screen.notify = app.notify  # type: ignore[method-assign]
        await press(app, pilot, key)
    assert said == [NOT_COMPILED, NOT_COMPILED]
    await press(app, pilot, "6", "E")
    assert "torch.compile is for a model by name" in screen_text(app)
    assert "torch.compile" not in [item.text for item in app.session["reports"].items] if "reports" in app.session._models else True


def test_without_the_eager_program_kernels_stand_alone_and_it_says_so(compiled: Model) -> None:
    alone = Lowered(compiled, None, "the program as it runs eagerly is not there")
    assert alone.headline[:2] == ["4 kernels: 2 generated, 2 calls of libraries; bytes moved 26.13 MiB", alone.why]
    assert all(not kernel.eager for kernel in alone.kernels)


@pytest.mark.slow
def test_a_folder_of_inductor_has_kernels_alone() -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "5", "down", "down")
        text = screen_text(app)
        costs = app.session.manager.get(NodeCosts()).by_node.values()
        moved = humanise(sum(cost.read + cost.written for cost in costs), Kind.BYTES)  # type: ignore[operator,misc,arg-type]  # numbers
        assert f"10 kernels: 5 generated, 5 calls of libraries; bytes moved {moved}" in text
        assert "the program as it runs eagerly is not there: kernels are shown alone" in text
        assert "3  triton_poi_fused_addmm_gelu_1" in text and "generated by Inductor" in text and "nodes of eager" not in text
        await press(app, pilot, "2", "E")
        assert "the program as it runs eagerly is not there" in screen_text(app) and "only eager" not in screen_text(app)

    drive(open_model(FOLDER), steps, size=LARGE)
