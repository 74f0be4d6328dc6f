"""Tables: order, filter, cursor and columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.report.printable import display_width
from irscope.tui.rows import RowTexts, TableColumn, TableModel, ranks_of
from irscope.tui.text import ASCII, UNICODE, Symbols, text_of


def table(values: list[int | None]) -> TableModel:
    columns = (
        TableColumn("name", 8, lambda row: f"row {row}", lambda: [f"row {row}" for row in range(len(values))], grows=True),
        TableColumn("size", 8, lambda row: "?" if values[row] is None else str(values[row]), lambda: values, right=True, rank=1),
        TableColumn("note", 6, lambda row: "note", rank=2),
    )
    return TableModel(columns, len(values), UNICODE)


values = st.lists(st.none() | st.integers(-(2**40), 2**40), max_size=60)


@given(values, st.booleans())
def test_sorting_is_stable_and_unknown_comes_last(found: list[int | None], reverse: bool) -> None:
    made = table(found)
    made.sort(1, reverse=reverse)
    rows = made.shown.tolist()
    known = [row for row in range(len(found)) if found[row] is not None]
    expected = sorted(known, key=lambda row: -(found[row] or 0) if reverse else (found[row] or 0))
    assert rows == [*expected, *(row for row in range(len(found)) if found[row] is None)]


@given(values, st.integers(0, 100))
def test_the_cursor_stays_on_its_row(found: list[int | None], at: int) -> None:
    made = table(found)
    made.move_to(at)
    row = made.selected
    made.sort(1)
    assert made.selected == row
    made.turn()
    assert made.selected == row
    made.sort(None)
    assert made.selected == row


@given(values, st.data())
def test_filtering_keeps_the_order(found: list[int | None], data: st.DataObject) -> None:
    made = table(found)
    made.sort(1)
    before = made.shown.tolist()
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(found), max_size=len(found))), dtype=np.bool_)
    made.filter(kept)
    assert made.shown.tolist() == [row for row in before if kept[row]]
    made.filter(None)
    assert made.shown.tolist() == before


def test_sorting_goes_through_the_columns_that_have_an_order() -> None:
    made = table([1, 2])
    seen = []
    for _ in range(4):
        made.sort_next()
        seen.append((made.sorted_by, made.reversed))
    assert seen == [(0, False), (1, True), (None, False), (0, False)]
    made.sort_next(-1)
    assert made.sorted_by is None


def test_a_filter_that_hides_the_cursor_moves_it_to_the_first_row() -> None:
    made = table([1, 2, 3])
    made.move_to(2)
    made.filter(np.array([True, True, False]))
    assert made.selected == 0
    made.filter(np.zeros(3, dtype=np.bool_))
    assert made.selected is None
    assert not made.select(1)


@pytest.mark.parametrize("width", [5, 10, 20, 26, 40, 120])
def test_columns_leave_by_rank_where_the_room_is_short(width: int) -> None:
    made = table([1])
    rooms = made.widths(width)
    assert rooms[0]
    assert sum(rooms) + sum(1 for room in rooms if room) <= max(width, 12)
    assert not (rooms[2] and not rooms[1])


@pytest.mark.parametrize("width", [20, 40, 120])
def test_lines_fit(width: int) -> None:
    made = table([1, None])
    for selected in (False, True):
        assert display_width(text_of(made.line(1, width, selected=selected))) <= width + 1
    assert text_of(made.line(0, width, selected=True)).startswith("▌")


def test_the_sorted_column_has_a_sign() -> None:
    made = table([1, 2])
    made.sort(1, reverse=True)
    assert "▾size" in text_of(made.heading(60))
    made.turn()
    assert "▴size" in text_of(made.heading(60))


def test_unknown_cells_look_unknown() -> None:
    made = table([None])
    assert any(span.role == "unknown" for span in made.line(0, 60, selected=False))


def test_ranks_of_texts_and_numbers() -> None:
    assert ranks_of(["b", None, "a"]).tolist()[::2] == [1.0, 0.0]
    assert np.isnan(ranks_of(["b", None, "a"])[1])
    assert ranks_of([3, 1.5]).tolist() == [3.0, 1.5]
    assert ranks_of(np.array([1, 2])).tolist() == [1.0, 2.0]
    # Numbers in names count, however long they are.
    assert ranks_of(["h.10", "h.2", "h.1", "h"]).tolist() == [3.0, 2.0, 1.0, 0.0]
    assert ranks_of(["9" * 5000, "1" + "0" * 5000, "007", "8"]).tolist() == [2.0, 3.0, 0.0, 1.0]


def test_a_million_rows_cost_nothing_until_they_are_shown() -> None:
    asked: list[int] = []

    def text(row: int) -> str:
        asked.append(row)
        return str(row)

    made = TableModel((TableColumn("n", 8, text, lambda: np.arange(10**6), right=True),), 10**6, ASCII)
    made.sort(0, reverse=True)
    made.move_to(10**6)
    assert made.selected == 0
    made.line(0, 20, selected=False)
    assert asked == [999_999]


WEIGHTS = [f"model.layers.{layer}.{part}.weight" for layer in range(40) for part in ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj")]


@pytest.mark.parametrize("symbols", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_names_on_a_screen_stay_different_and_keep_the_number_of_their_layer(symbols: Symbols) -> None:
    made = TableModel((TableColumn("name", 12, WEIGHTS.__getitem__, grows=True),), len(WEIGHTS), symbols)
    lines = [text_of(made.line(index, 28, selected=False)) for index in range(len(WEIGHTS))]
    assert len(set(lines)) == len(WEIGHTS)
    assert all(name.split(".")[2] in line for name, line in zip(WEIGHTS, lines, strict=True))
    assert max(map(display_width, lines)) <= 29


def test_a_blank_column_gives_its_room() -> None:
    notes = ["", "", ""]
    columns = (TableColumn("name", 8, lambda row: "name", grows=True), TableColumn("note", 10, notes.__getitem__, rank=1))
    made = TableModel(columns, 3, UNICODE)
    assert made.widths(40) == [5, 0]
    notes[1] = "here"
    made.refit()
    assert made.widths(40) == [5, 5]  # their titles with the sign of the order
    # A column that grows has no more than it needs where another one needs it, and what is read first leads where there is little room.
    texts = (["a", "b", "c"], ["a longer reason than there is room for"] * 3)
    made = TableModel([TableColumn(str(at), 8, text.__getitem__, grows=True) for at, text in enumerate(texts)], 3, UNICODE)
    made.leads = 1
    assert made.widths(40) == [2, 36] and made.order(40) == [1, 0] and [*made.order(120)] == [0, 1]


@pytest.mark.parametrize("word", ["layer3.1", "layer3/1"])
def test_paths_are_found_with_dots_and_with_slashes(word: str) -> None:
    texts = RowTexts(["conv layer3/1/act", "layer3.1.weight", "layer3x1", "layer3/2"])
    assert texts.containing(word).tolist() == [True, True, False, False]
