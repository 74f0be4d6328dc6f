"""Sorting, filtering and cutting tables."""

from __future__ import annotations

import pytest

from irscope.errors import UsageError
from irscope.report.report import Document, ModelInfo, Report
from irscope.report.select import Selection, parse_filter, select
from irscope.report.table import Table
from irscope.report.values import Provenance, Quantity

ROWS = [
    ("layer1.conv", 4096, (64, 3), 0.25, True),
    ("layer1.bias", None, (64,), 0.5, False),
    ("head", Quantity(100, Provenance.MODELLED), (10,), float("nan"), None),
    ("Layer2 (x)", "4*batch", (7,), -1.0, True),
]


def document() -> Document:
    table = Table.of(ROWS, ["name:text", "bytes", "shape", "share:ratio", "live:bool"], "weights", keys=[row[0] for row in ROWS])
    other = Table.of([("x", 1)], ["what:text", "number:count"], "other")
    return Document("0", ModelInfo("m", "irs"), (Report("p", tables=(table, other)),))


def names(**wanted: object) -> list[str]:
    table = select(document(), Selection(**wanted)).reports[0].tables[0]  # type: ignore[arg-type]  # whatever a test gives
    assert list(table.keys or ()) == table.cells("name")
    return [str(name) for name in table.cells("name")]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("bytes > 1KiB", [0]),
        ("bytes <= 0.1K", [2]),
        ("bytes = 4096", [0]),
        ("bytes = none", [1]),
        ("bytes != none", [0, 2, 3]),
        ("bytes ~ batch", [3]),
        ("share >= 25% and not live = no", [0]),
        ("share < 0 or live = false", [1, 3]),
        ("not (share < 0 or live = false)", [0, 2]),
        ("name ~ layer", [0, 1, 3]),
        ('name ~ "layer*"', [0, 1, 3]),
        ('name = "layer2 (x)"', [3]),
        ("shape ~ 64", [0, 1]),
        ('name ~ "a" and name ~ "e" and bytes != 4096', [1, 2, 3]),
    ],
)
def test_filters(text: str, wanted: list[int]) -> None:
    assert names(filter=text) == [ROWS[place][0] for place in wanted]


@pytest.mark.parametrize(
    ("sort", "wanted"),
    [("bytes", [0, 2, 3, 1]), ("bytes:up", [2, 0, 3, 1]), ("name", [2, 1, 0, 3]), ("name:down", [3, 0, 1, 2]), ("share", [1, 0, 3, 2])],
)
def test_numbers_come_largest_first_and_what_is_unknown_last(sort: str, wanted: list[int]) -> None:
    assert names(sort=sort) == [ROWS[place][0] for place in wanted]


def test_top_cuts_the_tables_that_are_concerned() -> None:
    found = select(document(), Selection(sort="share", top=2)).reports[0].tables
    assert [len(table) for table in found] == [2, 1]
    assert [len(table) for table in select(document(), Selection(top=0)).reports[0].tables] == [0, 0]


def test_nothing_asked_for_changes_nothing() -> None:
    given = document()
    assert select(given, Selection()) is given


@pytest.mark.parametrize(
    "text",
    [
        "bytes",
        "bytes >",
        "> 3",
        "bytes > 3 share < 2",
        "(bytes > 3",
        "bytes > 3)",
        "and",
        "bytes = (",
        '"',
        "not",
        "(" * 60 + "a=1" + ")" * 60,
    ],
)
def test_a_filter_that_does_not_parse_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filter(text)
    assert caught.value.code == "IRS450"


@pytest.mark.parametrize(
    "wanted", [{"sort": "nonsense"}, {"filter": "nonsense = 1"}, {"filter": "bytes = 1 and what = x"}, {"sort": "bytes:left"}]
)
def test_columns_that_do_not_exist(wanted: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        select(document(), Selection(**wanted))
