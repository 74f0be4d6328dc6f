"""Tables from columns and from rows, their values, units and provenance, sorting and filtering, and columns in a given width."""

from __future__ import annotations

import enum
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.errors import PassError, UsageError
from irscope.ir.dtypes import DType
from irscope.report import Column, Document, Kind, Mark, ModelInfo, Provenance, Quantity, Report, Series, Table, humanise
from irscope.report.celltext import signed
from irscope.report.options import ASCII, UNICODE
from irscope.report.printable import display_width
from irscope.report.select import Comparison, Selection, parse_comparison, parse_filter, select
from irscope.report.text import Grid, GridColumn, fit_columns
from irscope.report.values import compact_json, derived, json_value, largest, plain, quantity, raw_text
from tests.tables import every

# Tables from columns and from rows.


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


# Whatever a pass puts into a cell becomes a plain value, or is refused by name.


class Colour(enum.Enum):
    DARK_RED = 1


class Size(enum.IntEnum):
    BIG = 7


class Letter(str, enum.Enum):  # noqa: UP042
    A = "a"


class Named:
    def __init__(self, name: str | None) -> None:
        self.name = name


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.array([1, 2]), (1, 2)),
        (np.array(4), 4),
        (DType.F32, "f32"),
        (Colour.DARK_RED, "dark_red"),
        (Size.BIG, 7),
        (Letter.A, "a"),
        ([1, [None, "b"]], (1, (None, "b"))),
        ({"seq": {"shape": [1, DType.I8]}}, {"seq": {"shape": (1, "i8")}}),
        (Named("conv1"), "conv1"),
        (Named(None), None),
        ([Quantity(3, note="bound")], (3,)),
    ],
)
def test_plain(value: object, cell: object) -> None:
    result = plain(value)
    assert result == cell
    assert type(result) is type(cell)


@pytest.mark.parametrize("value", [object(), b"bytes", {1, 2}, print, Named])
def test_what_cannot_be_shown_is_refused(value: object) -> None:
    with pytest.raises(PassError, match="cannot show") as error:
        plain(value)
    assert error.value.code == "IRS510"


class Formula:
    def __str__(self) -> str:
        return "2*batch"


def test_a_quantity_holds_plain_values() -> None:
    quantity = Quantity(np.int64(3), formula=Formula(), lo=np.float32(0.5), hi=Formula())  # type: ignore[arg-type]
    assert quantity == Quantity(3, formula="2*batch", lo=0.5, hi="2*batch")
    assert type(quantity.value) is int
    assert Quantity(Formula()).shown == "2*batch"  # type: ignore[arg-type]


def test_json_value() -> None:
    assert json_value(math.nan) == "nan"
    assert json_value((10**40, -math.inf, None)) == [10**40, "-inf", None]
    assert json_value(Quantity(None, formula="2*b")) == "2*b"
    assert json.loads(compact_json({"a\x7f": [10**40, "\u202e"]})) == {"a\x7f": [10**40, "\u202e"]}


def test_raw_text() -> None:
    assert raw_text(None) == ""
    assert raw_text(False) == "false"
    assert raw_text(1e22) == "1e+22"
    assert raw_text((1, None, "b")) == '[1, null, "b"]'


# Numbers for people.

MIB = 2**20


EXAMPLES: dict[Kind, list[tuple[object, str]]] = {
    Kind.BYTES: [
        *[(0, "0 B"), (1023, "1,023 B"), (1024, "1.00 KiB"), (MIB - 1, "1.00 MiB"), (int(11.07 * MIB), "11.07 MiB"), (1.5, "1.50 B")],
        *[(-3 * 2**30 // 2, "-1.50 GiB"), (2**80, "1,048,576.00 EiB"), (-(10**400), "-8.67e+381 EiB"), (math.nan, "nan")],
        *[("2*batch", "2*batch bytes"), (Quantity(2048), "2.00 KiB"), (Quantity(None, formula="b"), "b bytes")],
    ],
    Kind.FLOPS: [(999, "999 FLOPs"), (4_110_000_000, "4.11 GFLOPs"), (2 * 10**18, "2.00 EFLOPs"), (-math.inf, "-inf")],
    Kind.COUNT: [(25_557_032, "25,557,032"), (2.5, "2.50"), ("2*batch", "2*batch")],
    Kind.INDEX: [(12, "12"), (12345, "12345")],
    Kind.RATIO: [
        *[(0.5, "50.0%"), (1, "100.0%"), (0, "0.0%"), (0.00001, "<0.1%"), (0.99999, ">99.9%"), (-0.25, "-25.0%"), (10**20, "1.00e+22%")]
    ],
    Kind.SECONDS: [
        *[(0, "0 s"), (12e-9, "12.00 ns"), (0.0000345, "34.50 us"), (0.00123, "1.23 ms"), (1234, "1,234.00 s"), (1e300, "1.00e+300 s")]
    ],
    Kind.BYTES_PER_SECOND: [(4.8e12, "4.80 TB/s")],
    Kind.FLOPS_PER_SECOND: [(989e12, "989.00 TFLOP/s")],
    Kind.NUMBER: [(0.123456789, "0.123457")],
    Kind.BOOL: [(True, "yes")],
    Kind.DTYPE: [("f32", "f32")],
    Kind.SHAPE: [
        *[((8, 3, None), "[8,3,?]"), ((), "[]"), (("batch", 3), "[batch,3]")],
        ({"seq": {"dtype": "f32", "shape": (2, None)}}, "seq(f32[2,?])"),
        ({"optional": {"dtype": "i64", "shape": None}}, "optional(i64[*])"),
    ],
}


@every(("kind", "value", "text"), [(kind, *example) for kind, examples in EXAMPLES.items() for example in examples])
def test_examples(kind: Kind, value: object, text: str) -> None:
    assert humanise(value, kind) == text  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", Kind)
def test_unknown_is_never_zero(kind: Kind) -> None:
    assert humanise(None, kind) == "unknown"
    assert humanise(Quantity(None), kind, "?") == "?"


@given(st.integers(-(10**26), 10**26) | st.floats(-1e20, 1e20))
def test_bytes_are_within_half_of_the_last_digit(value: float) -> None:
    number, unit = humanise(value, Kind.BYTES).split()
    scale = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(unit)
    shown = Fraction(number.replace(",", "")) * scale
    assert abs(shown - Fraction(value)) <= Fraction(scale, 200)
    assert abs(Fraction(number.replace(",", ""))) < 1024 or unit == "EiB"


@given(st.integers(0, 10**8) | st.floats(0, 1e8))
def test_seconds_are_within_half_of_the_last_digit(value: float) -> None:
    number, unit = humanise(value, Kind.SECONDS).split()
    scale = {"ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "ms": Fraction(1, 1000), "s": Fraction(1)}[unit]
    assert abs(Fraction(number.replace(",", "")) * scale - Fraction(value)) <= scale / 200


@given(st.integers() | st.floats(), st.sampled_from(Kind))
def test_every_number_has_a_text(value: float, kind: Kind) -> None:
    text = humanise(value, kind)
    assert text.isprintable()
    assert len(text) < 30 or kind in (Kind.COUNT, Kind.NUMBER) or not kind.is_number or kind is Kind.INDEX


# What is computed from a number comes from where that number comes from.

EXACT, MEASURED, MODELLED, UNKNOWN = Provenance.EXACT, Provenance.MEASURED, Provenance.MODELLED, Provenance.UNKNOWN
GUESS = Quantity(50, MODELLED, note="a model", lo=20, hi=80)
VAGUE = Quantity(50, MODELLED)
OPEN = Quantity(50, MODELLED, lo=50)

sizes = st.integers(0, 1000)


@st.composite
def quantities(draw: st.DrawFn) -> Quantity:
    """Exact numbers, and modelled ones with an interval that may be open above."""
    low, value, high = sorted(draw(st.lists(sizes, min_size=3, max_size=3)))
    if draw(st.booleans()):
        return Quantity(value)
    return Quantity(value, MODELLED, lo=low, hi=draw(st.sampled_from([high, None])))


def inside(one: Quantity, draw: st.DataObject) -> int:
    """Some number that the quantity may turn out to be."""
    low, high = one.ends
    assert isinstance(low, int)
    found: int = draw.draw(st.integers(low, high if isinstance(high, int) else low + 2000))
    return found


def may_be(one: Quantity, number: int) -> bool:
    low, high = one.ends
    return (low is None or low <= number) and (high is None or number <= high)


@given(st.lists(quantities(), min_size=1, max_size=4), st.data())
def test_sums_and_maxima_contain_what_is_possible(parts: list[Quantity], data: st.DataObject) -> None:
    really = [inside(part, data) for part in parts]
    assert may_be(sum(parts, Quantity(0)), sum(really))
    assert may_be(largest(parts), max(really))
    assert may_be(parts[0] - parts[-1], really[0] - really[-1]) or len(parts) == 1
    assert sum(parts, Quantity(0)).value == sum(int(str(part.value)) for part in parts)
    assert largest(parts).value == max(int(str(part.value)) for part in parts)


@given(st.lists(quantities(), min_size=1, max_size=4), st.data())
def test_what_is_called_exact_cannot_be_another_number(parts: list[Quantity], data: st.DataObject) -> None:
    really = [inside(part, data) for part in parts]
    if largest(parts).provenance is EXACT:
        assert largest(parts).value == max(really)
    if sum(parts, Quantity(0)).provenance is EXACT:
        assert sum(parts, Quantity(0)).value == sum(really)


def test_a_sum_is_as_sure_as_its_least_sure_part() -> None:
    assert Quantity(150, MODELLED, note="a model", lo=120, hi=180) == 100 + GUESS
    assert Quantity(50, MODELLED, note="a model", lo=20, hi=80) == 100 - GUESS
    assert Quantity(150, MODELLED) == 100 + VAGUE
    assert (GUESS + OPEN).interval == (70, None)
    assert (Quantity(1, MEASURED) + Quantity(2)).provenance is MEASURED
    assert (Quantity(1, MEASURED) + VAGUE).provenance is MODELLED
    assert (GUESS + Quantity(None, UNKNOWN, note="why")).provenance is UNKNOWN


def test_what_is_surely_lower_has_no_part_in_a_peak() -> None:
    assert largest([100, GUESS]) == Quantity(100)
    assert largest([60, GUESS]) == Quantity(60, MODELLED, note="a model", lo=60, hi=80)
    assert largest([80, GUESS]) == Quantity(80)
    # Without an interval it may be anything, and so may the peak.
    assert largest([100, VAGUE]).provenance is MODELLED
    assert largest([100, OPEN]).interval == (100, None)
    assert largest([100, Quantity(None)]).value is None
    assert largest([]) == Quantity(0)


def test_what_follows_in_another_way_is_as_sure_as_its_sources() -> None:
    assert derived(0.5, GUESS, 100) == Quantity(0.5, MODELLED)
    assert derived(True, 1, 2) == Quantity(True)
    assert derived("conv1", quantity(5), Quantity(1, MEASURED)).provenance is MEASURED


def test_sentences_carry_the_sign() -> None:
    assert signed(Quantity(2048, MODELLED), Kind.BYTES) == "~2.00 KiB"
    assert signed(2048, Kind.BYTES) == "2.00 KiB"


# Sorting, filtering and cutting tables.

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
    tables = select(document(), Selection(sort="share", top=2)).reports[0].tables
    assert [len(table) for table in tables] == [2, 1]
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


# Columns in a given width: numbers stay whole, names give way, and what found no room is known.

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


def least(column: GridColumn) -> int:
    """A word of up to 12 characters, such as a state, is not cut."""
    return natural(column) if natural(column) <= 12 else LEAST


@given(columns, st.integers(1, 150))
def test_fit(found: list[GridColumn], width: int) -> None:
    grid = fit_columns(found, width)
    if sum(map(natural, found)) + 2 * (len(found) - 1) > width:
        # Blank columns give their room.
        found = [column for column in found if any(map(str.strip, column.cells)) or not column.cells] or found
    assert [*grid.columns, *grid.hidden] == found
    assert grid.columns
    if len(grid.columns) > 1:
        assert all(display_width(line) <= width for line in all_lines(grid))
    for column, size in zip(grid.columns, grid.widths, strict=True):
        if column.cuttable:
            assert least(column) <= size <= natural(column)
        else:
            assert size == natural(column)
    if grid.hidden:
        needed = [least(c) if c.cuttable else natural(c) for c in found[: len(grid.columns) + 1]]
        assert sum(needed) + 2 * len(grid.columns) > width


@given(columns)
def test_without_a_width_nothing_is_cut(found: list[GridColumn]) -> None:
    grid = fit_columns(found, None)
    assert grid.hidden == ()
    assert grid.widths == tuple(map(natural, found))
    for at, line in enumerate(grid.lines(UNICODE)):
        assert "".join(line.split()) == "".join(column.cells[at] for column in found)


def test_a_short_word_stays_whole_while_a_longer_column_gives_room() -> None:
    grid = fit_columns([GridColumn("a", ["x" * 50]), GridColumn("outcome", ["interrupted"]), GridColumn("n", ["123"], True, False)], 28)
    assert grid.widths == (10, 11, 3)


def test_long_names_share_the_room() -> None:
    grid = fit_columns([GridColumn("a", ["x" * 50]), GridColumn("b", ["y" * 30]), GridColumn("n", ["123"], True, False)], 60)
    assert grid.widths == (26, 26, 3)
    assert [display_width(line) for line in grid.lines(ASCII)] == [59]


def test_a_filter_reads_columns_of_one_row_by_any_name() -> None:
    """Names with a device, as in the columns of a table for several: the test holds for any row that has them."""
    condition = parse_filter("peak@l4 > 24GiB and not fits = yes")
    assert condition.columns == {"peak@l4", "fits"}
    assert condition.test({"peak@l4": 25 << 30, "fits": False})
    assert not condition.test({"peak@l4": 23 << 30, "fits": False}) and not condition.test({"peak@l4": None, "fits": False})


def test_a_comparison_alone_has_a_name_of_several_words() -> None:
    comparison = parse_comparison("size on disk < 100MB", "budget", "for example a < 1", "IRS681")
    assert comparison == Comparison("size on disk", "<", "100MB", False)
    with pytest.raises(UsageError, match=r"^budget: expected one comparison alone, found at 'and b > 2'"):
        parse_comparison("a < 1 and b > 2", "budget", "for example a < 1", "IRS681")
