"""The stacked chart of the memory screen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.report.picture import colours_of
from irscope.report.printable import display_width
from irscope.report.units import Kind, humanise
from irscope.tui.charts import Beside, Limit, Stack
from irscope.tui.text import ASCII, PARTS, UNICODE, Line, Span, Symbols, text_of


def stack(*parts: list[int]) -> Stack:
    return Stack({f"part {number}": np.array(part, dtype=np.float64) for number, part in enumerate(parts)})


numbers = st.lists(st.integers(0, 2**40), min_size=1, max_size=300)


@given(numbers, st.integers(8, 120))
def test_each_column_shows_its_largest_step(values: list[int], width: int) -> None:
    made = stack(values)
    chosen = made.chosen(width).tolist()
    assert len(chosen) == width
    columns: dict[int, list[int]] = {}
    for step in range(len(values)):
        columns.setdefault(made.column_of(step, width), []).append(step)
    for column, steps in columns.items():
        if len(values) >= width:
            assert values[chosen[column]] == max(values[step] for step in steps)
            assert chosen[column] in steps
        else:
            assert chosen[column] == steps[0]


@given(numbers, st.integers(8, 100), st.integers(0, 20), st.integers(0, 400), st.sampled_from([UNICODE, ASCII]))
def test_lines_fit_whatever_is_drawn(values: list[int], width: int, height: int, here: int, symbols: Symbols) -> None:
    made = stack(values, values[::-1])
    made.zoom(here % len(values), 0.5)
    lines = made.lines(width, height, here % len(values), symbols, mark=0)
    assert len(lines) == height
    assert all(display_width(text_of(line)) <= width for line in lines)
    if symbols is ASCII:
        assert all(text_of(line).isascii() for line in lines)


@given(numbers)
def test_hills_are_higher_than_what_is_beside_them(values: list[int]) -> None:
    hills = stack(values).hills().tolist()
    runs = [value for number, value in enumerate(values) if not number or value != values[number - 1]]
    expected = [
        value
        for number, value in enumerate(runs)
        if (number == 0 or runs[number - 1] < value) and (number + 1 == len(runs) or runs[number + 1] < value)
    ]
    assert [values[hill] for hill in hills] == expected


def test_going_from_hill_to_hill() -> None:
    made = stack([1, 5, 5, 2, 9, 1, 3])
    assert made.hills().tolist() == [1, 4, 6]
    assert made.next_hill(0, 1) == 1
    assert made.next_hill(1, 1) == 4
    assert made.next_hill(4, -1) == 1
    assert made.next_hill(6, 1) is None
    assert made.next_hill(1, -1) is None


@given(st.integers(1, 500), st.integers(0, 499), st.lists(st.sampled_from([0.5, 2.0]), max_size=12))
def test_a_window_stays_inside_and_keeps_the_cursor(count: int, here: int, factors: list[float]) -> None:
    made = stack([1] * count)
    here %= count
    for factor in factors:
        made.zoom(here, factor)
        assert 0 <= made.start < made.stop <= count
        assert made.start <= here < made.stop
    made.fit()
    assert (made.start, made.stop) == (0, count)


def test_the_window_follows_the_cursor() -> None:
    made = stack([1] * 100)
    made.zoom(50, 0.25)
    made.follow(0)
    assert made.start == 0
    made.follow(99)
    assert made.stop == 100


def test_categories_have_fills_and_looks_of_their_own() -> None:
    made = stack([4, 4], [4, 4], [0, 8])
    lines = made.lines(40, 10, 0, UNICODE)
    roles = {span.role for line in lines for span in line if span.role in PARTS}
    assert len(roles) == 3
    for symbols in (UNICODE, ASCII):
        legend = [span for span in made.legend(symbols) if span.role in PARTS]
        assert {span.role for span in legend} == roles
        assert len({span.text for span in legend}) == (1 if symbols.has_colours else 3)


def test_a_category_has_the_colour_of_pages_and_plots() -> None:
    made = Stack({name: np.ones(4) for name in ("weights", "activations", "workspace", "optimizer")})
    looks = [span.role for span in made.legend(UNICODE) if span.role in PARTS]
    assert looks == [PARTS[number] for number in colours_of(["parameter", "activation", "workspace", "optimizer state"])]
    # The same however many categories stand beside it.
    assert [span.role for span in Stack({"activations": np.ones(4)}).legend(UNICODE) if span.role in PARTS] == ["part1"]


def cells(lines: list[Line]) -> list[list[Span]]:
    """Return the cells of each line."""
    return [[span._replace(text=character) for span in line for character in span.text] for line in lines]


@given(st.lists(st.lists(st.integers(0, 1000), min_size=12, max_size=12), min_size=1, max_size=2), st.integers(1, 12))
def test_borders_of_bands_are_drawn_to_an_eighth_of_a_cell(values: list[list[int]], rows: int) -> None:
    made = stack(*values)
    if made.top == 0:
        return
    blocks = UNICODE.glyphs.blocks
    drawn = cells(made.bars(12, rows, UNICODE))
    looks = [span.role for span in made.legend(UNICODE) if span.role in PARTS]
    for column in range(12):
        heights = dict.fromkeys(looks, 0)
        for line in drawn:
            cell = line[column]
            part = blocks.index(cell.text)
            if cell.role in heights:
                heights[cell.role] += part
            if cell.behind is not None:
                heights[cell.behind] += len(blocks) - 1 - part
        borders = np.cumsum([value[column] for value in values]) * rows * 8 / made.top
        if len({int(border // 8) for border in borders if border % 8}) < sum(border % 8 > 0 for border in borders):
            continue  # of three parts in a cell the two largest are drawn
        # Rounding, and what would not be seen at all, are an eighth at the most.
        assert abs(sum(heights.values()) - borders[-1]) <= 1
        assert abs(heights[looks[0]] - borders[0]) <= 1


@pytest.mark.parametrize("symbols", [UNICODE, ASCII])
def test_five_percent_between_two_runs_is_seen_in_rows_of_its_own(symbols: Symbols) -> None:
    """At one step of a thousand, where the chart shows a higher one in the same column."""
    first = np.full(1000, 100.0)
    first[::2] = 120
    second = first.copy()
    second[501] -= 5
    lines = [text_of(line) for line in Beside(("A", "B"), (first, second)).bars(60, 12, symbols)]
    assert len(lines) == 12
    at = next(number for number, line in enumerate(lines) if "difference, at most 5 B" in line)
    assert "(5.3%)" in lines[at] and len(lines) - at - 1 == 3
    below = lines[at + 1 :]
    assert all(len(line.split()) == 1 and line.index(line.split()[0]) == 30 for line in below)
    same = Beside(("A", "B"), (first, first)).bars(60, 12, symbols)
    assert not any("difference" in text_of(line) for line in same)


def test_the_peak_and_the_cursor_are_marked() -> None:
    lines = [text_of(line) for line in stack([1, 2, 8, 1]).lines(50, 12, 2, UNICODE)]
    assert lines[0].index("▼") == lines[-2].index("▲")
    assert "peak 8 B at step 2" in lines[0]
    assert "steps 0 to 3" in lines[-1]
    assert " steps 0 to 3 in program order " in text_of(stack([1, 2, 8, 1]).lines(70, 10, 2, UNICODE)[-1]), "the axis says it"


def test_a_peak_outside_of_the_window_is_said() -> None:
    made = stack([*([1] * 100), 9])
    made.zoom(0, 0.1)
    assert "outside of what is shown" in text_of(made.lines(60, 9, 0, UNICODE)[0])


def test_places_have_their_own_names() -> None:
    made = Stack({"all": np.array([1.0, 2.0])}, places=["batch=1", "batch=2"])
    text = "\n".join(text_of(line) for line in made.lines(50, 9, 0, UNICODE))
    assert "peak 2 B at batch=2" in text
    assert "batch=1 to batch=2" in text


def test_nothing_to_draw() -> None:
    made = Stack({})
    assert made.peak is None
    assert made.hills().tolist() == []
    assert made.lines(40, 5, None, UNICODE) == [()] * 5


@pytest.mark.parametrize("value", [0, 1])
def test_what_is_there_shows_and_zero_does_not(value: int) -> None:
    lines = stack([value, 2**30]).lines(40, 8, None, UNICODE)
    assert (text_of(lines[-2])[12] == " ") == (value == 0)


@given(st.lists(st.lists(st.integers(0, 2**48), min_size=4, max_size=4), min_size=1, max_size=15), st.integers(20, 150), st.integers(1, 4))
def test_the_legend_adds_up_to_the_total_however_little_room_there_is(values: list[list[int]], width: int, most: int) -> None:
    made = stack(*values)
    for step in range(4):
        found = made.values_at(step)
        assert sum(found.values()) == made.total[step] == sum(part[step] for part in values)
        lines = made.legend_at(step, width, most, UNICODE)
        assert len(lines) <= most
        assert all(display_width(text_of(line)) <= width for line in lines)
        # What is left out is one entry, so that the amounts that are said are all that there is.
        said = [span.text.strip() for line in lines for span in line if span.role == "name"]
        named = [name for name, value in found.items() if any(f" {name} " == span.text for line in lines for span in line)]
        rest = sum(value for name, value in found.items() if name not in named)
        if width >= 40 and said:
            wanted = [humanise(found[name], Kind.BYTES) for name in named] + ([humanise(rest, Kind.BYTES)] if rest else [])
            assert said == wanted or any("…" in text_of(line) for line in lines)


def test_a_limit_is_drawn_where_totals_come_near_it() -> None:
    made = stack([10, 40, 60])
    made.limit = Limit(200, "capacity")
    assert made.shown_limit is None and not any("capacity" in text_of(line) for line in made.lines(60, 12, 0, UNICODE))
    made.limit = Limit(100, "capacity")
    lines = [text_of(line) for line in made.lines(60, 12, 0, UNICODE)]
    assert "capacity 100 B" in lines[1] and lines[1].startswith("100 B")
    made.limit = Limit(30, "capacity")
    lines = [text_of(line) for line in made.lines(60, 12, 0, UNICODE)]
    assert lines[1].startswith("60 B") and "capacity" not in lines[1]
    assert sum("capacity 30 B" in line for line in lines) == 1


def test_what_is_modelled_says_so() -> None:
    parts = {"exact": np.array([1.0, 1.0]), "rest": np.array([2.0, 2.0])}
    made = Stack(parts, modelled={"rest": np.array([False, True])})
    assert made.text_at(0) == "3 B" and made.text_at(1) == "~3 B"
    assert "rest ~2 B" in text_of(made.legend_at(1, 80, 1, UNICODE)[0])
    assert "~" not in text_of(made.legend_at(0, 80, 1, UNICODE)[0])


@given(
    st.lists(st.tuples(st.integers(0, 2**40), st.sampled_from([0.0, 0.0, 0.25, 1.0, 1.0, 40.0])), min_size=1, max_size=200),
    st.integers(8, 120),
)
def test_on_an_axis_of_time_no_peak_vanishes(rows: list[tuple[int, float]], width: int) -> None:
    made = stack([value for value, _ in rows])
    made.use_time(np.array([seconds for _, seconds in rows]), "least time")
    chosen = made.chosen(width).tolist()
    assert len(chosen) == width
    assert made.peak is not None
    assert max(rows[step][0] for step in chosen) == made.total.max()
    assert chosen == sorted(chosen) or not made.time
    for step in range(len(rows)):
        column = made.column_of(step, width)
        assert 0 <= column < width
        # What a column shows is at least as high as every step that begins in it.
        if made.time:
            assert rows[chosen[column]][0] >= rows[step][0]
    made.zoom(len(rows) // 2, 0.5)
    assert made.start <= len(rows) // 2 < made.stop
    assert len(made.lines(width + 20, 8, 0, UNICODE)) == 8


def test_a_long_step_is_wide() -> None:
    made = stack([1, 2, 3])
    made.use_time(np.array([1.0, 8.0, 1.0]), "least time on h200")
    assert made.chosen(20).tolist() == [0] * 2 + [1] * 16 + [2] * 2
    assert "over 10.00 s, least time on h200" in text_of(made.lines(80, 12, 0, UNICODE)[-1])
    made.use_time(None)
    assert made.chosen(21).tolist() == [0] * 7 + [1] * 7 + [2] * 7


def test_the_column_of_the_peak_is_marked_through_all_bands() -> None:
    low, high = np.full(24, 4.0), np.arange(24) % 7 / 1.0
    high[9] = 12.0
    made = Stack({"weights": low, "activations": high})
    for symbols in (UNICODE, ASCII):
        lines = made.lines(24 + made.margin(), 8, None, symbols)
        bars = [line for line in cells(lines) if len(line) > made.margin() and line[made.margin() - 1].text == symbols.glyphs.axis]
        assert len(bars) >= 5
        column = made.margin() + made.column_of(9, 24)
        assert [line[column].text for line in bars] == [symbols.glyphs.axis] * len(bars)
        others = [line[place].text for line in bars for place in range(made.margin(), len(line)) if place != column]
        assert symbols.glyphs.axis not in others
    # On the colour of each band: weights below, activations above.
    column = made.column_of(9, 24)
    marked = cells(made.marked(made.bars(24, 8, UNICODE), 24, UNICODE))
    assert [line[column].behind for line in marked] == ["part1"] * 6 + ["part0"] * 2
    assert {line[column].role for line in marked} == {"through"}
    # Only the text of one column changes.
    plain = cells(made.bars(24, 8, UNICODE))
    assert all(one[:column] + one[column + 1 :] == other[:column] + other[column + 1 :] for one, other in zip(plain, marked, strict=True))
