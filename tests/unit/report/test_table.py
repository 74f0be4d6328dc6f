"""Tables from columns and from rows."""

from __future__ import annotations

import numpy as np
import pytest

from irscope.errors import PassError
from irscope.report import Column, Kind, Mark, Series, Table


def test_of_rows() -> None:
    table = Table.of([("a", 1, 2.0), ("b", np.int64(3), None)], ["node", "channels:count", "cost:flops"], title="Narrow")
    assert [column.kind for column in table.columns] == [Kind.NODE, Kind.COUNT, Kind.FLOPS]
    assert list(table.rows()) == [("a", 1, 2.0), ("b", 3, None)]
    assert list(table.rows(1)) == [("a", 1, 2.0)]
    assert len(table) == 2


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
