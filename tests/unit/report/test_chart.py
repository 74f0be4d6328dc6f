"""Charts and pictures: what is highest shows, whatever the width; every series is drawn, over axes with round labels."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.errors import UsageError
from irscope.report import Column, Kind, Mark, Provenance, Quantity, Report, Series
from irscope.report.chart import chart_lines, highest
from irscope.report.options import ASCII, UNICODE
from irscope.report.picture import MOST_POINTS, Curve, Panel, Style, bars, largest_bars, panels_of, rows_of, ticks
from irscope.report.plot import check_plot, svg_chart, svg_document, write_plot
from irscope.report.renderers import report_panels

# Charts: what is highest shows, whatever the width.

heights = st.lists(st.integers(0, 10**12) | st.none(), min_size=1, max_size=300)


def series(ys: list[object], xs: list[object] | None = None, marks: tuple[Mark, ...] = (), **columns: list[object]) -> Series:
    data = {"step": list(range(len(ys))) if xs is None else xs, "live": ys, **columns}
    y = tuple(Column(key, Kind.BYTES) for key in data if key != "step")
    return Series("Timeline", Column("step", Kind.INDEX), y, data, marks)


def lines(timeline: Series, width: int = 60) -> list[str]:
    return list(chart_lines(timeline, width, UNICODE, "utf-8"))


def drawn_bars(shown: list[str]) -> list[str]:
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
    drawn = drawn_bars(lines(series(ys)))
    assert [bar for bar in drawn if bar == "█" * 8] == ["█" * 8]
    assert {bar for bar in drawn if bar != "█" * 8} == {"▁"}


def test_anything_above_nothing_shows_and_nothing_does_not() -> None:
    drawn = drawn_bars(lines(series([0, 1, 10**9, 0])))
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
    assert {bar for bar in drawn_bars(shown)} == {"█" * 8, "?"}


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


# Pictures: every series is drawn, in each format, over axes with round labels, with a legend, a title and the peak.

MIB = 1 << 20
PARTS = {"weights": [40 * MIB] * 4, "activation": [0, 30 * MIB, 230 * MIB, 10 * MIB], "temporary": [0, 0, 5 * MIB, 0]}


def series_of_picture(data: dict[str, list[object]], **options: object) -> Series:
    count = len(next(iter(data.values())))
    columns = tuple(Column(key, Kind.BYTES) for key in data)
    return Series("bytes alive", Column("step", Kind.INDEX), columns, {"step": list(range(count)), **data}, **options)  # type: ignore[arg-type]


def timeline(**options: object) -> Series:
    return series_of_picture({key: list(cells) for key, cells in PARTS.items()}, marks=(Mark(2, "peak"), Mark(1, "backward")), **options)


def texts(svg: str) -> list[str]:
    """Words that stand in a picture."""
    root = ElementTree.fromstring(svg)
    shown = [element for element in root.iter() if element.tag.endswith("}text")]
    return ["".join([element.text or "", *(child.tail or "" for child in element)]) for element in shown]


@given(st.sampled_from([*Kind]), st.floats(1e-8, 1e15), st.floats(0, 0.9))
def test_labels_are_round(kind: Kind, high: float, share: float) -> None:
    """Every label is 1, 2 or 5 times a power of ten of one unit, apart by the same step, and says exactly where it stands."""
    whole = kind in (Kind.INDEX, Kind.COUNT)
    high = math.ceil(high) if whole else high
    found = ticks(high * share, high, kind)
    assert len(found) <= 7
    if not whole and high > 2:
        assert len(found) >= 2
    numbers = [float(label.split()[0].rstrip("%").replace(",", "")) for _, label in found if label != "0" and "e" not in label]
    units = {label.split()[1] for _, label in found if " " in label}
    assert len(units) <= 1
    steps = {float(f"{after - before:.6g}") for before, after in pairwise(numbers)}
    assert len(steps) <= 1
    for step in steps:
        assert float(f"{step / 10 ** math.floor(math.log10(step) + 1e-9):.6g}") in (1, 2, 5)
    if kind is Kind.BYTES:
        assert units <= {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}


def test_labels_of_bytes_are_binary() -> None:
    assert ticks(0, 276.79 * MIB, Kind.BYTES) == [(0, "0"), *((count * MIB, f"{count} MiB") for count in (50, 100, 150, 200, 250))]
    assert [label for _, label in ticks(0, 2.6 * (1 << 30), Kind.BYTES)] == ["0", "0.5 GiB", "1.0 GiB", "1.5 GiB", "2.0 GiB", "2.5 GiB"]
    assert [label for _, label in ticks(0, 0.9, Kind.RATIO)] == ["0", "20%", "40%", "60%", "80%"]
    assert [label for _, label in ticks(0, 2, Kind.COUNT)] == ["0", "1", "2"]


def test_parts_of_a_whole_are_one_panel_with_its_peak() -> None:
    [panel] = panels_of(timeline())
    assert [(curve.name, curve.style, list(curve.ys)) for curve in panel.curves] == [
        (name, Style.AREA, cells) for name, cells in PARTS.items()
    ]
    assert [(peak.x, peak.y) for peak in panel.peaks] == [(2, 275 * MIB)]
    assert {mark.label for mark in panel.marks} == {"peak 275.00 MiB", "backward"}


def test_lines_share_a_panel_and_a_legend_that_tells_their_peaks() -> None:
    [panel] = panels_of(timeline(stacked=False))
    assert [curve.name for curve in panel.curves] == ["weights, peak 40.00 MiB", "activation, peak 230.00 MiB", "temporary, peak 5.00 MiB"]
    assert {curve.style for curve in panel.curves} == {Style.STEPS}
    assert [mark.label for mark in panel.marks] == ["backward"]


def test_columns_of_different_kinds_have_panels_of_their_own() -> None:
    columns = (Column("memory", Kind.BYTES), Column("time", Kind.SECONDS, provenance=Provenance.MODELLED))
    both = Series(
        "by batch", Column("batch", Kind.COUNT), columns, {"batch": [1, 2], "memory": [1, 2], "time": [0.5, 0.75]}, (), False, True
    )
    assert [panel.title for panel in panels_of(both)] == ["by batch: memory", "by batch: time (modelled)"]
    assert {curve.style for panel in panels_of(both) for curve in panel.curves} == {Style.LINE}


def test_names_on_the_axis_make_bars() -> None:
    named = Series("times", Column("name"), (Column("time", Kind.SECONDS),), {"name": ["a", "b"], "time": [0.1, 0.2]})
    [panel] = panels_of(named)
    assert panel.names == ("a", "b") and panel.curves[0].style is Style.BARS


def test_no_peak_is_lost_where_there_are_many_steps() -> None:
    ys: list[object] = [1] * 100_000
    ys[77_777] = 9
    for stacked in (True, False):
        [panel] = panels_of(series_of_picture({"alive": ys}, stacked=stacked))
        assert len(panel.curves[0].xs) <= MOST_POINTS + 1
        assert max(height or 0 for height in panel.curves[0].ys) == 9
        assert panel.peaks[0].x == 77_777


def test_unknown_heights_are_gaps() -> None:
    [panel] = panels_of(series_of_picture({"alive": [5, None, 4]}, stacked=False))
    assert list(panel.curves[0].ys) == [5, None, 4]
    assert "".join(svg_document([panel], "t")).count('class="line ') == 2


def test_labels_do_not_run_over_one_another() -> None:
    marks = [Mark(10, "peak 276.79 MiB"), Mark(11, "backward"), Mark(90, "optimizer"), Mark(12, "x")]
    rows = rows_of(marks, 0, 100, 100)
    assert rows[2] == 0 and len({rows[0], rows[1], rows[3]}) == 3


def test_several_reports_are_told_apart() -> None:
    one, other = (Report(name, options=name, series=(timeline(),)) for name in ("liveness", "training"))
    assert [panel.title for panel in report_panels([one, Report("params"), other])] == ["liveness: bytes alive", "training: bytes alive"]
    assert [panel.title for panel in report_panels([one])] == ["bytes alive"]


def test_the_largest_bars_come_first_and_the_rest_is_counted() -> None:
    seconds = [number / 1000 for number in range(60)]
    panel = largest_bars("time", [f"n{number}" for number in range(60)], [(Column("time", Kind.SECONDS), seconds)])
    assert panel is not None and panel.names[:2] == ("n59", "n58") and panel.title == "time, the 25 largest of 59"
    assert largest_bars("time", ["a"], [(Column("time", Kind.SECONDS), [None])]) is None


def recompute() -> Panel:
    curves = (
        Curve("plans found", [10 * MIB, 20 * MIB], [0.5, 0.0], Style.STEPS),
        Curve("no plan is quicker", [10 * MIB, 20 * MIB], [0.4, 0.0], Style.LINE, dashed=True),
        Curve("knapsack", [15 * MIB], [0.6], Style.POINTS),
    )
    return Panel("extra time", Column("peak", Kind.BYTES), Column("time", Kind.SECONDS), curves, left=10 * MIB, right=20 * MIB, top=1.0)


def all_panels() -> list[Panel]:
    time = Column("time", Kind.SECONDS, provenance=Provenance.MEASURED)
    rows = bars("time by node", ["conv $1$", "<relu>"], [(time, [0.25, None]), (Column("least", Kind.SECONDS), [0.1, 0.05])])
    sizes = Series(
        "peak", Column("batch", Kind.COUNT), (Column("requested", Kind.BYTES),), {"batch": [1, 8], "requested": [5, 9]}, (), False, True
    )
    return [*panels_of(timeline()), *panels_of(timeline(stacked=False)), *panels_of(sizes), recompute(), rows]


def test_an_svg_has_every_series_titles_labels_and_a_legend() -> None:
    drawn = "".join(svg_document(all_panels(), "model <a> & $x$"))
    words = texts(drawn)
    assert "model <a> & $x$" in words
    for panel in all_panels():
        assert panel.title in words
        for curve in panel.curves:
            assert not panel.has_legend or curve.name in words
    assert {"50 MiB", "250 MiB", "▼ peak 275.00 MiB", "batch", "conv $1$", "<relu>", "250.00 ms", "unknown", "0.4 s"} <= {*words}
    root = ElementTree.fromstring(drawn)
    shapes = [element for element in root.iter() if element.tag.split("}")[1] in ("path", "circle", "rect")]
    places = [float(number) for element in shapes for number in re.findall(r"-?\d+\.\d", element.get("d") or "")]
    assert min(places) >= 0 and max(places) <= float(root.get("height") or 0) + float(root.get("width") or 0)
    named = [element for element in root.iter() if element.tag.endswith("}title")]
    assert {"weights", "activation", "temporary", "plans found", "no plan is quicker"} <= {element.text for element in named}


def test_files_are_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_plot(all_panels(), tmp_path / f"{name}.svg", "model")
    content = (tmp_path / "one.svg").read_bytes()
    assert content.startswith(b"<svg xmlns=") and content == (tmp_path / "two.svg").read_bytes()


def test_what_cannot_be_drawn_is_said_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be drawn as a picture"):
        check_plot(tmp_path / "x.png")
    check_plot(tmp_path / "x.SVG")
    with pytest.raises(UsageError, match="no report has a curve"):
        write_plot([], tmp_path / "x.svg", "model")
