"""Addresses and orders on the memory screen: what is drawn is what the plan, the allocator and the schedule say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from textual.pilot import Pilot

from irscope.tui.analyses import report_of, result_of
from irscope.tui.app import IrscopeApp
from irscope.tui.memory.views import AddressMap, Buffers, allocated, order_text, orders, planned
from irscope.tui.text import ASCII, UNICODE, Symbols, text_of
from tests.tui.driving import driven, press, screen_text
from tests.tui.models import EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC, TWO_LAYERS, model

STEPS = 4


def clashes(one: Buffers) -> list[tuple[str, str]]:
    """Buffers that live at one time and share a byte."""
    found = []
    for first in range(len(one.names)):
        for second in range(first):
            together = one.first[first] <= one.last[second] and one.first[second] <= one.last[first]
            apart = one.offset[first] >= one.offset[second] + one.size[second] or one.offset[second] >= one.offset[first] + one.size[first]
            if together and not apart and one.size[first] and one.size[second]:
                found.append((one.names[first], one.names[second]))
    return found


def plan_of(text: str) -> AddressMap:
    opened = model(text)
    return planned(report_of(opened.manager, "plan"), len(list(opened.program.graph)))


def test_a_plan_is_drawn_where_it_says() -> None:
    made = plan_of(TWO_LAYERS)
    assert clashes(made.buffers) == []
    owners = made.owners(np.arange(STEPS), 8)
    for number, name in enumerate(made.buffers.names):
        assert (owners == number).any(), name
    assert "planned arena" in text_of(made.legend(UNICODE))


def test_the_allocator_gives_no_byte_twice() -> None:
    made = allocated(result_of(model(TWO_LAYERS).manager, "cuda-memory{model=eager}"))
    # A buffer that is given back at a step may go to another one within it.
    in_forward = replace(made.buffers, last=made.buffers.last - 1)
    assert clashes(in_forward) == []
    assert made.end % (2 << 20) == 0
    assert (made.buffers.offset + made.buffers.size).max() <= made.end


def test_orders_stand_over_one_axis() -> None:
    report = report_of(model(TWO_LAYERS).manager, "schedule{seconds=1}")
    stack = orders(report)
    assert stack is not None
    assert len(stack) == STEPS
    assert "as written" in order_text(report)


@pytest.mark.parametrize("symbols", [UNICODE, ASCII])
@pytest.mark.parametrize("size", [(40, 3), (80, 12), (160, 30)])
def test_lines_have_the_size_asked_for(size: tuple[int, int], symbols: Symbols) -> None:
    lines = plan_of(TWO_LAYERS).lines(*size, 1, symbols)
    assert len(lines) == size[1]
    assert all(len(text_of(line)) <= size[0] for line in lines)


def test_the_selected_tensor_is_marked() -> None:
    made = plan_of(TWO_LAYERS)
    made.chosen_name = made.buffers.names[0]
    assert any(span.role == "mark" for line in made.lines(80, 12, None, UNICODE)[1:-2] for span in line)


@pytest.mark.slow
@pytest.mark.parametrize("text", [TWO_LAYERS, SYMBOLIC, FOREIGN, NESTED, HOSTILE, EMPTY])
@driven()
async def test_every_view_opens_over_anything(app: IrscopeApp, pilot: Pilot[None], text: str) -> None:
    await press(app, pilot, "2")
    memory = app.session["memory"]
    count = len(memory.drawings.offered(has_sizes=bool(memory.sizes_question)))
    for number in range(count):
        await press(app, pilot, "v", str(number + 1), "plus", "minus", "0", "tab", "down")
        shown = screen_text(app)
        assert "Traceback" not in shown
        assert "this is a bug" not in shown
        assert "computing addresses" not in shown


@pytest.mark.slow
@driven(TWO_LAYERS)
async def test_views_are_named_in_the_title(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "2", "v", "3")
    assert "Addresses, planned arena" in screen_text(app)
    await press(app, pilot, "v", "4")
    assert "only in the order found" in screen_text(app)
    await press(app, pilot, "v", "2")
    assert "segments" in screen_text(app)
    await press(app, pilot, "v", "1")
    assert "activations" in screen_text(app)


def test_what_is_reserved_around_a_modelled_workspace_has_the_sign() -> None:
    conv = """irscope 1
        format "pt2"
        graph @main {
        input %x: f32[1,64,32,32]
        param %c.weight: f32[64,64,3,3]
        %y: f32[1,64,32,32] = nn.conv(%x, %c.weight, _) {groups=1, pads=[1, 1, 1, 1]} !"aten::conv2d"
        return %y
        }
        """
    titles = [allocated(result_of(model(text).manager, "cuda-memory{model=jit}")).title for text in (TWO_LAYERS, conv)]
    assert ["~" in title for title in titles] == [False, True]
