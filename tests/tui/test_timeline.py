"""The chart of live bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.report.printable import display_width
from irscope.report.units import Kind
from irscope.tui.charts import Timeline
from irscope.tui.text import ASCII, UNICODE, Symbols, text_of
from tests.tui.models import FOREIGN, SYMBOLIC, TWO_LAYERS, browse


def chart(values: list[int | None], width: int, height: int, here: int | None = None) -> list[str]:
    """The drawn lines as text."""
    return [text_of(line) for line in Timeline(values, Kind.BYTES).lines(width, height, here, UNICODE)]


def test_peak_bars_and_cursor_stand_in_the_same_columns() -> None:
    lines = chart([0, 1024, 2048, 1024], 90, 4, here=2)
    mark, top, below, axis = lines
    at = mark.index("▼")
    assert axis.index("▲") == at == top.index("█")
    assert top.rstrip().endswith("█" * 20)
    assert below.count("█") == 60
    assert "peak 2.00 KiB at step 2" in mark


@given(st.lists(st.none() | st.integers(0, 2**50), min_size=1, max_size=400), st.integers(8, 120))
def test_every_column_shows_its_largest_step(values: list[int | None], count: int) -> None:
    timeline = Timeline(values, Kind.BYTES)
    heights = timeline.heights(count).tolist()
    assert len(heights) == count
    columns: list[list[int]] = [[] for _ in range(count)]
    for step, value in enumerate(values):
        column = timeline.column_of(step, count)
        if value is not None:
            columns[column].append(value)
        if len(values) >= count:
            assert timeline.column_of(timeline.step_of(column, count), count) == column
    if len(values) >= count:
        assert [height if height == height else None for height in heights] == [max(column) if column else None for column in columns]
    known = [value for value in values if value is not None]
    if known:
        assert timeline.peak == values.index(max(known))
        assert max(height for height in heights if height == height) == max(known)
    else:
        assert timeline.peak is None


@given(
    st.lists(st.none() | st.integers(0, 2**60), max_size=60),
    st.integers(0, 90),
    st.integers(0, 14),
    st.none() | st.integers(0, 70),
    st.sampled_from([UNICODE, ASCII]),
)
def test_a_chart_always_has_the_size_it_was_given(
    values: list[int | None], width: int, height: int, here: int | None, symbols: Symbols
) -> None:
    lines = Timeline(values, Kind.BYTES).lines(width, height, here, symbols)
    assert len(lines) == height
    assert all(display_width(text_of(line)) <= width for line in lines)


def test_what_is_there_shows_however_small() -> None:
    lines = chart([1, 2**40], 40, 4)
    assert "▁" in lines[-2]


def test_unknown_steps_are_question_marks() -> None:
    lines = chart([1024, None], 30, 4)
    assert lines[-2].endswith("?" * 9)
    assert "?" not in lines[1]


def test_ascii_needs_no_other_characters() -> None:
    lines = Timeline([1, 5, 3], Kind.BYTES).lines(60, 8, 1, ASCII)
    assert "".join(text_of(line) for line in lines).isascii()


def test_the_model_s_timeline() -> None:
    model = browse(TWO_LAYERS)
    timeline = model.results.timeline
    assert timeline is not None
    assert len(timeline) == 4
    assert timeline.peak is not None
    assert model.reveal_peak()
    assert model.step == timeline.peak
    assert f"step {timeline.peak}" in model.timeline_title()


def test_with_symbols_the_drawing_says_what_it_assumes() -> None:
    model = browse(SYMBOLIC)
    assert "drawn for batch=1" in model.timeline_title()
    model.set_sizes("batch=4")
    assert "drawn for" not in model.timeline_title()


def test_tensors_that_are_not_counted_are_mentioned() -> None:
    assert "2 tensors of unknown size not counted" in browse(FOREIGN).timeline_title()


@pytest.mark.parametrize("step", [-5, 0, 3, 99])
def test_steps_outside_are_taken_for_the_nearest(step: int) -> None:
    model = browse(TWO_LAYERS)
    model.reveal_step(step)
    assert model.step == min(max(step, 0), 3)


@given(st.integers(1, 60), st.integers(8, 200))
def test_a_column_belongs_to_the_step_whose_bar_it_is(steps: int, count: int) -> None:
    timeline = Timeline([number + 1 for number in range(steps)], Kind.BYTES)
    if steps > count:
        return
    # The heights are all different, so that each tells its step.
    for column, height in enumerate(timeline.heights(count).tolist()):
        assert timeline.step_of(column, count) == int(height) - 1
