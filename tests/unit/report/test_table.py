"""Tables from columns and from rows."""

from __future__ import annotations

import numpy as np
import pytest

from irscope.errors import PassError
from irscope.report import Column, Document, Kind, Mark, ModelInfo, Provenance, Quantity, Report, Series, Table
from irscope.report.select import Selection, select


def test_of_rows() -> None:
    table = Table.of([("a", 1, 2.0), ("b", np.int64(3), None)], ["node", "channels:count", "cost:flops"], title="Narrow")
    assert [column.kind for column in table.columns] == [Kind.NODE, Kind.COUNT, Kind.FLOPS]
    assert list(table.rows()) == [("a", 1, 2.0), ("b", 3, None)]
    assert list(table.first(1).rows()) == [("a", 1, 2.0)]
    assert table.first(0) is table.first(2) is table.first(None) is table
    assert len(table) == 2


def test_rows_of_a_whole_are_counted_where_they_are_left_out() -> None:
    rows = [("a", 8, "x", 1), ("b", Quantity(4, Provenance.MODELLED), "x", 1), ("c", 2, "x", 1), ("d", 1, "y", 1)]
    table = Table.of(rows, ["name", "size:bytes", "kind", "step:index"], whole="size")
    shown = table.first(3)
    assert list(shown.rows())[:2] == list(table.rows())[:2]
    assert list(shown.rows())[2:] == [("2 more", 3, "", 1)]
    assert list(shown.first(2).rows())[1:] == [("3 more", Quantity(7, Provenance.MODELLED), "", 1)]
    assert list(table.first(1).rows()) == [("4 more", Quantity(15, Provenance.MODELLED), "", 1)]
    formulas = Table.of([("a", "8*n"), ("b", 0), ("c", "n"), ("d", 3)], ["name", "size:bytes"], whole="size")
    assert list(formulas.first(2).rows()) == [("a", "8*n"), ("3 more", "n + 3")]


def test_selected_rows_of_a_whole_are_counted_too() -> None:
    table = Table.of([("a", 1), ("b", 4), ("c", 2)], ["name", "size:bytes"], title="t", whole="size")
    document = Document("1", ModelInfo("m", "irs"), (Report("p", tables=(table.first(2),)),))
    cells = [list(select(document, Selection(sort="size", top=top)).reports[0].tables[0].rows()) for top in (2, 1, 0)]
    assert cells == [[("a", 1), ("2 more", 6)], [("3 more", 7)], []]
    filtered = select(document, Selection(filter="size < 3")).reports[0].tables[0]
    assert list(filtered.rows()) == [("a", 1)]


def test_kind_defaults_to_the_key_or_text() -> None:
    assert Column.parse("shape").kind is Kind.SHAPE
    assert Column.parse("remark").kind is Kind.TEXT
    assert Column.parse("peak:bytes") == Column("peak", Kind.BYTES)
    assert Column("peak_bytes", Kind.BYTES).heading == "peak bytes"
    assert Column("peak_bytes", Kind.BYTES, "Peak").heading == "Peak"


def test_columns_may_be_arrays_and_are_not_copied() -> None:
    column = np.arange(3, dtype=np.int64)
    table = Table("t", (Column("n", Kind.COUNT),), {"n": column})
    assert table.data["n"] is column
    cells = table.cells("n")
    assert cells == [0, 1, 2]
    assert {type(cell) for cell in cells} == {int}


def test_of_no_rows() -> None:
    table = Table.of([], ["node", "size:bytes"])
    assert len(table) == 0
    assert list(table.rows()) == []


@pytest.mark.parametrize(
    "build",
    [
        lambda: Table.of([(1,)], ["a:nonsense"]),
        lambda: Table.of([(1, 2)], ["a"]),
        lambda: Table("t", (Column("a"), Column("b")), {"a": [1], "b": [1, 2]}),
        lambda: Table("t", (Column("a"),), {"b": [1]}),
        lambda: Table("t", (Column("a"), Column("a")), {"a": [1]}),
        lambda: Table("t", (Column("a"),), {"a": [1, 2]}, keys=["n1"]),
        lambda: Series("s", Column("x"), (Column("y"),), {"x": [1], "y": []}),
        lambda: Series("s", Column("x"), (), {"x": [1]}, (Mark(float("nan"), "nowhere"),)),
    ],
)
def test_what_does_not_hold_together_is_refused(build: object) -> None:
    with pytest.raises(PassError) as error:
        build()  # type: ignore[operator]
    assert error.value.code == "IRS510"


def test_an_unknown_kind_is_answered_with_those_there_are() -> None:
    with pytest.raises(PassError, match=r"nonsense.*kinds are node, value"):
        Column.parse("a:nonsense")


def test_a_series_is_a_table_too() -> None:
    series = Series("s", Column("x", Kind.INDEX), (Column("y", Kind.BYTES),), {"x": [0, 1], "y": [5, 6]})
    assert list(series.table().rows()) == [(0, 5), (1, 6)]
