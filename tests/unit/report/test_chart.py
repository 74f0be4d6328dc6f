"""Charts: what is highest shows, whatever the width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.report import Column, Kind, Mark, Quantity, Series
from irscope.report.chart import chart_lines, highest
from irscope.report.options import ASCII, UNICODE
from irscope.report.plot import svg_chart

heights = st.lists(st.integers(0, 10**12) | st.none(), min_size=1, max_size=300)


def series(ys: list[object], xs: list[object] | None = None, marks: tuple[Mark, ...] = (), **columns: list[object]) -> Series:
    data = {"step": list(range(len(ys))) if xs is None else xs, "live": ys, **columns}
    y = tuple(Column(key, Kind.BYTES) for key in data if key != "step")
    return Series("Timeline", Column("step", Kind.INDEX), y, data, marks)


def lines(timeline: Series, width: int = 60) -> list[str]:
    return list(chart_lines(timeline, width, UNICODE, "utf-8"))


def bars(shown: list[str]) -> list[str]:
    """The columns of the drawing, each from bottom to top."""
    rows = [line.partition("│")[2] for line in shown if "│" in line]
    wide = max(map(len, rows))
    return ["".join(row.ljust(wide)[at] for row in reversed(rows)).rstrip() for at in range(wide)]


@given(heights, st.integers(1, 120))
def test_the_highest_point_of_every_part_is_chosen(ys: list[int | None], count: int) -> None:
    chosen = highest(range(len(ys)), ys, count)
    known = [y for y in ys if y is not None]
    assert len(chosen) == count
    best = [ys[at] for at in chosen if at is not None]
    assert None not in best
    assert max(best, default=None) == max(known, default=None)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=40), st.integers(40, 120))
def test_a_value_holds_until_the_next_one(ys: list[int], count: int) -> None:
    """With fewer points than columns every point is drawn, in order, as wide as the others within one column."""
    chosen = highest(range(len(ys)), ys, count)
    assert None not in chosen
    assert chosen == sorted(chosen, key=lambda at: at or 0)
    widths = [chosen.count(at) for at in range(len(ys))]
    assert max(widths) - min(widths) <= 1


def test_what_holds_is_the_last_value_not_the_highest() -> None:
    assert highest([0, 0, 0, 9], [5, 7, 1, 2], 6) == [1, 2, 2, 2, 3, 3]


@pytest.mark.parametrize("at", [0, 1, 4999, 9999])
def test_a_single_peak_never_vanishes(at: int) -> None:
    ys: list[object] = [1] * 10_000
    ys[at] = 1000
    drawn = bars(lines(series(ys)))
    assert [bar for bar in drawn if bar == "█" * 8] == ["█" * 8]
    assert {bar for bar in drawn if bar != "█" * 8} == {"▁"}


def test_anything_above_nothing_shows_and_nothing_does_not() -> None:
    drawn = bars(lines(series([0, 1, 10**9, 0])))
    assert set(drawn[:10]) == {""}
    assert "▁" in drawn


def test_parts_of_a_whole_are_added() -> None:
    stacked = lines(series([1, 2], weights=[9, 8]))
    assert stacked[0].split()[:2] == ["10", "B"]
    apart = Series(
        "s", Column("step"), (Column("a", Kind.BYTES), Column("b", Kind.BYTES)), {"step": [0, 1], "a": [1, 2], "b": [9, 8]}, (), False
    )
    shown = lines(apart)
    assert [line for line in shown if line in ("a", "b")] == ["a", "b"]


def test_unknown_points_are_not_zero() -> None:
    shown = lines(series([4, None, Quantity(4), "2*b", 4]))
    assert "?" in shown[7]
    assert {bar for bar in bars(shown)} == {"█" * 8, "?"}


def test_nothing_to_draw_draws_nothing() -> None:
    for ys in ([], [None, None], [0, 0], ["b", float("nan")]):
        assert lines(series(list(ys))) == []
        assert list(svg_chart(series(list(ys)))) == []


def test_marks_stand_above_their_place() -> None:
    shown = lines(series([1] * 100, marks=(Mark(0, "start"), Mark(50, "peak"), Mark(52, "next"), Mark(99, "the end\x1b"))))
    axis = next(line.index("│") for line in shown if "│" in line)
    places = sorted(line.index(sign) - axis - 1 for line in shown[:3] for sign in "▼" if sign in line)
    assert "▼ start" in shown[0]
    assert places[0] == 0
    assert any("the end\\x1b ▼" in line for line in shown)
    assert all(len(line) <= 60 for line in shown)


def test_the_axis_is_named_and_ends_are_given() -> None:
    shown = lines(series([1, 2, 3], xs=[10, 20, 30]))
    assert shown[-1].split() == ["step", "10", "…", "30"]


def test_an_x_that_is_not_numbers_counts_points() -> None:
    shown = lines(series([1, 2], xs=["small", "large"], marks=(Mark(7, "lost"),)))
    assert shown[-1].split() == ["step", "small", "…", "large"]
    assert not any("lost" in line for line in shown)


def test_ascii() -> None:
    assert "".join(chart_lines(series([1, 5, 3], marks=(Mark(1, "peak"),)), 50, ASCII, "ascii")).isascii()


@given(st.lists(st.integers() | st.floats() | st.none() | st.text(max_size=3), max_size=30), st.integers(1, 130))
def test_any_series_can_be_drawn(ys: list[object], width: int) -> None:
    shown = list(chart_lines(series(ys), width, UNICODE, "utf-8"))
    assert all(len(line) <= max(width, 120) for line in shown)
    "".join(svg_chart(series(ys)))


def test_the_picture_reaches_the_top_at_the_peak_only() -> None:
    ys: list[object] = [1] * 1000
    ys[500] = 10
    picture = "".join(svg_chart(series(ys, marks=(Mark(500, "peak <b>"),))))
    assert picture.count(" 22.0") == 2
    assert "▼ peak &lt;b&gt;" in picture
    assert "at most 10 B" in picture
