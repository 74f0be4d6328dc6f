"""Columns in a given width: numbers stay whole, names give way, and what found no room is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from irscope.report.options import ASCII, UNICODE
from irscope.report.printable import display_width
from irscope.report.text import Grid, GridColumn, fit

LEAST = 10

columns = st.integers(0, 4).flatmap(
    lambda height: st.lists(
        st.builds(
            GridColumn,
            st.text("abc日", min_size=1, max_size=20),
            st.lists(st.text("abc日", max_size=40), min_size=height, max_size=height),
            st.booleans(),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)


def all_lines(grid: Grid) -> list[str]:
    return [grid.head(UNICODE), grid.rule(UNICODE), *grid.lines(UNICODE)]


def natural(column: GridColumn) -> int:
    return max(map(display_width, (column.heading, *column.cells)))


@given(columns, st.integers(1, 150))
def test_fit(found: list[GridColumn], width: int) -> None:
    grid = fit(found, width)
    assert [*grid.columns, *grid.hidden] == found
    assert grid.columns
    if len(grid.columns) > 1:
        assert all(display_width(line) <= width for line in all_lines(grid))
    for column, size in zip(grid.columns, grid.widths, strict=True):
        if column.cuttable:
            assert min(LEAST, natural(column)) <= size <= natural(column)
        else:
            assert size == natural(column)
    if grid.hidden:
        least = [min(LEAST, natural(c)) if c.cuttable else natural(c) for c in found[: len(grid.columns) + 1]]
        assert sum(least) + 2 * len(grid.columns) > width


@given(columns)
def test_without_a_width_nothing_is_cut(found: list[GridColumn]) -> None:
    grid = fit(found, None)
    assert grid.hidden == ()
    assert grid.widths == tuple(map(natural, found))
    for at, line in enumerate(grid.lines(UNICODE)):
        assert "".join(line.split()) == "".join(column.cells[at] for column in found)


def test_long_names_share_the_room() -> None:
    grid = fit([GridColumn("a", ["x" * 50]), GridColumn("b", ["y" * 30]), GridColumn("n", ["123"], True, False)], 60)
    assert grid.widths == (26, 26, 3)
    assert [display_width(line) for line in grid.lines(ASCII)] == [59]
