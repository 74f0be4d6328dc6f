"""The cost screen's state: times by module, kind and node, and the scatter under the roof."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.errors import Cancelled, IrscopeError, PassError
from irscope.passkit.settings import Settings
from irscope.report.printable import display_width
from irscope.session import open_model
from irscope.tui.analyses import result_of
from irscope.tui.apart import of_model
from irscope.tui.browse.model import Browse
from irscope.tui.charts import Roof, Scatter
from irscope.tui.command import Source
from irscope.tui.cost import GROUPINGS, Cost, NodeTimes, Timed, timed_alone, timings_of, views_of
from irscope.tui.text import ASCII, UNICODE, Symbols, text_of
from tests.tables import every
from tests.tui.models import EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC, TWO_LAYERS, browse, model


def cost(text: str, symbols: Symbols = UNICODE, device: str = "") -> Cost:
    opened = model(text)
    made = Cost(Browse(opened.program, Source("m", settings=Settings(device=device)), symbols))
    made.ask()
    opened.manager.settings = Settings(device=device)
    found = result_of(opened.manager, "roofline{top=0}")
    times = NodeTimes(timings_of(found), made.browse.outline)
    made.take(Timed(*made.wanted, times, views_of(times, symbols)))
    return made


@pytest.mark.parametrize("by", ["layer", "kind", "node"])
@pytest.mark.parametrize("text", [TWO_LAYERS, NESTED, FOREIGN, SYMBOLIC])
def test_groups_add_up_to_the_whole(text: str, by: str) -> None:
    made = cost(text)
    made.group_by(by)  # type: ignore[arg-type]
    assert made.found is not None
    times, groups = made.found.times, list(made.groups or ())
    assert sum(group.count for group in groups) == len(times)
    assert math.isclose(sum(group.seconds for group in groups), times.total)
    assert sum(group.flops for group in groups) == int(times.flops.sum())
    assert made.groups is not None
    assert sorted(place for number in range(len(groups)) for place in made.groups.nodes(number).tolist()) == list(range(len(times)))


def test_a_module_holds_what_is_inside_it() -> None:
    made = cost(TWO_LAYERS)
    made.group_by("module")
    by_name = {group.name: group for group in made.groups or ()}
    assert by_name["(model)"].count == 4
    assert by_name["block"].count == 3
    assert by_name["block"].flops == sum(by_name[name].flops for name in ("block/fc1", "block/fc2")) + 4 * 256


def test_the_dearest_comes_first_and_leads_to_its_node() -> None:
    made = cost(TWO_LAYERS)
    made.group_by("module")
    assert made.group is not None
    assert made.group.name == "(model)"
    assert made.node_row() in (2, 3, 5, 6)


def test_large_modules_are_shown_as_their_layers_slowest_first_and_add_up() -> None:
    made = cost(TWO_LAYERS)
    groups = [made.groups[int(row)] for row in made.table.shown] if made.groups is not None else []
    assert {group.name for group in groups} == {"block/fc1", "block/fc2", "block, nodes of its own", "(model), nodes of its own"}
    assert [group.seconds for group in groups] == sorted((group.seconds for group in groups), reverse=True)
    assert made.found is not None and math.isclose(sum(group.seconds for group in groups), made.found.times.total)
    assert "the sum of 4 rows" in made.title()


def test_all_numbers_of_open_sizes_are_at_those_of_the_title() -> None:
    made = Cost(browse(SYMBOLIC))
    made.ask()
    bound = model(TWO_LAYERS.replace("f32[4,64]", "f32[1,64]"))
    times = NodeTimes(timings_of(result_of(bound.manager, "roofline{top=0}")), made.browse.outline)
    made.take(Timed(*made.wanted, times, views_of(times, UNICODE, "module")))
    made.group_by("module")
    texts = {made.table.columns[0].text(row): made.table.columns[2].text(row) for row in range(made.table.count)}
    # 2 x 64 x 256 and the bias of 256.
    assert texts["block/fc1"] == "33.02 KFLOPs"
    assert not any("batch" in text for text in texts.values())
    assert "at batch=1" in made.title()


def test_groupings_take_turns() -> None:
    made = cost(TWO_LAYERS)
    seen = [made.by]
    for _ in GROUPINGS:
        made.next_grouping()
        seen.append(made.by)
    assert seen == [*GROUPINGS, GROUPINGS[0]]


def test_unknown_nodes_are_said_and_sums_are_at_least() -> None:
    made = cost(FOREIGN)
    made.group_by("module")
    by_name = {group.name: row for row, group in enumerate(made.groups or ())}
    assert "≥" in made.table.text(by_name["(model)"])
    made.group_by("kind")
    by_name = {group.name: row for row, group in enumerate(made.groups or ())}
    assert "?" in made.table.text(by_name["acme.magic"])
    assert "1 nodes unknown" in made.title() or "nodes unknown" in made.title()


def test_filtering() -> None:
    made = cost(TWO_LAYERS)
    made.group_by("kind")
    made.set_filter("linear")
    assert len(made.table) == 1
    made.set_filter("!linear")
    assert len(made.table) == 2
    made.set_filter("")
    assert len(made.table) == 3


def test_another_device_is_another_question() -> None:
    made = cost(TWO_LAYERS)
    assert not made.is_waiting
    made.browse.context = made.browse.context.with_target("rtx3090")
    assert made.is_waiting
    assert "computing" in made.title()
    slow, fast = cost(TWO_LAYERS, device="rtx3090"), cost(TWO_LAYERS)
    assert slow.found is not None
    assert fast.found is not None
    assert slow.found.times.device.title != fast.found.times.device.title


def test_an_answer_to_another_question_is_dropped() -> None:
    made = cost(TWO_LAYERS)
    before = made.found
    assert before is not None
    made.browse.context = made.browse.context.with_target("rtx3090")
    made.ask()
    made.take(before)
    assert made.found is before
    made.fail(PassError("no such device", hint="use another"))
    assert "no such device" in text_of(made.chart_lines(60, 8)[0])


@every("symbols", [UNICODE, ASCII])
@every("size", [(1, 1), (20, 5), (60, 9), (120, 30)])
@every("text", [TWO_LAYERS, SYMBOLIC, EMPTY, HOSTILE, FOREIGN, NESTED])
def test_lines_fit_over_anything(text: str, size: tuple[int, int], symbols: Symbols) -> None:
    made = cost(text, symbols)
    for by in GROUPINGS:
        made.group_by(by)
        lines = made.chart_lines(*size)
        assert len(lines) == size[1]
        shown = [text_of(line) for line in lines]
        assert all(display_width(line) <= size[0] for line in shown)
        if symbols is ASCII:
            assert all(line.isascii() for line in shown)
        assert len(made.export()) == len(made.table)


def test_the_selected_group_has_its_own_sign() -> None:
    made = cost(TWO_LAYERS)
    text = "\n".join(text_of(line) for line in made.chart_lines(80, 16))
    assert text.count("◉") == 2
    assert "at most" in text


points = st.lists(st.tuples(st.floats(1e-3, 1e6), st.floats(1e3, 1e16)), max_size=50)


@given(points, st.integers(30, 120), st.integers(6, 40), st.sampled_from([UNICODE, ASCII]))
def test_scatters_fit_and_show_every_point(found: list[tuple[float, float]], width: int, height: int, symbols: Symbols) -> None:
    made = Scatter([x for x, _ in found], [y for _, y in found], Roof(1e12, (1e13, 1e14), "a roof"))
    lines = made.lines(width, height, 0 if found else None, symbols)
    assert len(lines) == height
    assert all(display_width(text_of(line)) <= width for line in lines)
    text = "".join(text_of(line) for line in lines)
    if found:
        assert symbols.point in text


def test_the_roof_bends_at_the_ridge() -> None:
    roof = Roof(1e12, (1e13, 1e14), "a roof")
    assert roof.at(1) == 1e12
    assert roof.at(100) == 1e14
    assert roof.at(1000) == 1e14


def test_without_a_roof_there_are_still_points() -> None:
    assert any("⠁" <= character <= "⣿" for line in Scatter([1.0], [1e9], None).lines(60, 10, None, UNICODE) for character in text_of(line))
    assert len(Scatter([], [], None).lines(60, 10, None, UNICODE)) == 10


@pytest.mark.slow
def test_a_process_of_its_own_gives_the_same_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large model with open sizes is read again beside the UI, not in it."""
    path = tmp_path / "m.irs"
    path.write_text(SYMBOLIC, encoding="utf-8")
    for name in ("irscope", "numpy", "pickle"):  # of what lies beside the model the process imports nothing
        (tmp_path / f"{name}.py").write_text("raise SystemExit(99)\n")
    monkeypatch.chdir(tmp_path)
    opened = open_model(path, settings=Settings(device="l4"))
    outline = Browse(opened.program, Source("m"), UNICODE).outline
    here = timings_of(result_of(opened.rebound({"batch": 8}).manager, "roofline{top=0}"))
    apart = of_model(timed_alone, opened, {"batch": 8}, threading.Event())
    assert apart.names == here.names and apart.nodes == () and apart.total == here.total and apart.device == here.device
    assert apart.seconds.tolist() == here.seconds.tolist()
    assert NodeTimes(apart, outline).rows.tolist() == NodeTimes(here, outline).rows.tolist()
    with pytest.raises(IrscopeError, match="batch"):
        of_model(timed_alone, opened, {"batch": 1000}, threading.Event())
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(Cancelled):
        of_model(timed_alone, opened, {"batch": 8}, stopped)
