"""Numbers by row: sums, unknowns, formulas, and sizes put in for symbols."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from irscope.errors import UsageError
from irscope.ir.dims import symbol
from irscope.report.card import ASSUMED_SIZE, StatedSize
from irscope.report.units import Kind
from irscope.tui.amounts import Binding, Column, parse_binding
from irscope.tui.app import IrscopeApp
from irscope.tui.context import Context
from irscope.tui.text import ASCII, UNICODE
from tests.tui.driving import driven, screen_text
from tests.tui.models import FOREIGN, NESTED, SYMBOLIC, TWO_LAYERS, browse


def test_modules_sum_their_nodes() -> None:
    results = browse(TWO_LAYERS).results
    assert results.sizes is not None
    assert results.sizes.values == [9216, 4096, 4096, 4096, 1024, 1024, 1024]
    assert results.flops is not None
    first, second = 4 * 256 * 64 * 2 + 4 * 256, 4 * 64 * 256 * 2
    assert results.flops.values == [first + 1024 + second, first, first, 1024, second, second, 256]
    assert not any(results.flops.missing)


def test_unknown_is_never_a_zero() -> None:
    results = browse(FOREIGN).results
    assert results.sizes is not None
    assert [results.sizes.text(row, UNICODE) for row in range(5)] == ["24 B", "24 B", "?", "?", "?"]
    assert results.flops is not None
    assert results.flops.values[3] is None


def test_a_sum_that_leaves_something_out_says_so() -> None:
    column = Column.of("x", Kind.BYTES, [2048, None], [1, 1])
    assert column.text(0, UNICODE) == "≥2.00 KiB"
    assert column.text(0, ASCII) == ">2.00 KiB"
    assert column.text(1, UNICODE) == "?"


def test_what_is_inside_a_region_counts_for_its_node_only() -> None:
    model = browse(NESTED)
    assert model.results.sizes is not None
    values = model.results.sizes.values
    assert values[0] == 24 + 24  # before and the if; not the nodes inside it
    assert values[3] == 48  # the region sums its own
    assert values[10] == 16


def test_a_node_with_unknown_work_inside_is_a_lower_bound() -> None:
    model = browse(NESTED.replace("%b: f32[2,3] = nn.relu(%x)", "%b: f32[2,3] = acme.magic(%x)"))
    assert model.results.flops is not None
    assert model.results.sizes is not None
    assert model.results.flops.text(2, UNICODE).startswith("≥")
    assert model.results.flops.text(0, UNICODE).startswith("≥")
    assert not model.results.sizes.text(2, UNICODE).startswith("≥")


def test_huge_numbers_stay_exact() -> None:
    column = Column.of("FLOPs", Kind.FLOPS, [10**30, 4_110_000_000], [0, 0])
    assert column.values[0] == 10**30
    assert column.text(1, UNICODE) == "4.11 G"


def test_formulas_become_numbers_with_sizes() -> None:
    model = browse(SYMBOLIC)
    assert model.results.sizes is not None
    assert model.results.sizes.is_symbolic
    assert model.results.sizes.text(2, UNICODE) == "1.00 KiB x batch"
    assert model.set_sizes("batch=4") == ""
    assert model.results.sizes.values == browse(TWO_LAYERS).results.sizes.values  # type: ignore[union-attr]
    assert model.results.flops.values == browse(TWO_LAYERS).results.flops.values  # type: ignore[union-attr]
    assert model.results.timeline.values == browse(TWO_LAYERS).results.timeline.values  # type: ignore[union-attr]
    assert model.set_sizes("") == ""
    assert model.results.sizes.text(2, UNICODE) == "1.00 KiB x batch"


@pytest.mark.parametrize("text", ["batch", "batch=", "batch=x", "batch=-1", "other=3", "batch=0", "batch=129", "=3", "batch=²"])
def test_sizes_that_make_no_sense_are_refused_and_change_nothing(text: str) -> None:
    model = browse(SYMBOLIC)
    before = model.results.sizes
    assert model.set_sizes(text) != ""
    assert model.results.sizes is before


def test_parse_binding_takes_commas_and_blanks() -> None:
    symbols = {"a": symbol("a"), "b": symbol("b")}
    assert parse_binding(" a=1, b=2 ", symbols).env == {"a": 1, "b": 2}
    with pytest.raises(UsageError, match="no symbol 'c'"):
        parse_binding("c=1", symbols)


def test_a_drawing_assumes_small_sizes_and_says_which() -> None:
    stated = tuple(StatedSize(name, 1, ASSUMED_SIZE) for name in ("a", "b"))
    context = Context(stated, Binding({"a": 7}))
    assert context.complete.env == {"a": 7, "b": 1}
    assert context.assumed == "b=1"
    assert context.words(80)[0] == "a=7; b=1 (assumed)"


def test_a_column_without_room_for_a_formula_is_at_the_stated_sizes() -> None:
    sizes = browse(SYMBOLIC).results.sizes
    assert sizes is not None
    row = next(row for row, value in enumerate(sizes.values) if sizes.is_symbolic and "x" in sizes.text(row, UNICODE))
    whole = sizes.text(row, UNICODE)
    stated = Binding(dict.fromkeys(browse(SYMBOLIC).results.symbols, 1))
    longest = max(len(sizes.text(row, UNICODE)) for row in range(len(sizes.values)))
    assert sizes.has_room(longest, UNICODE)
    assert not sizes.has_room(longest - 1, UNICODE)
    assert sizes.text(row, UNICODE, stated=stated) == "*" + whole.partition(" x ")[0]


WIDE_ROWS = """irscope 1
symbol quite_a_long_name [1,128]
graph @main {
  input %x: f32[quite_a_long_name,64]
  param %w: f32[256,64]
  %a: ?[*] = nn.linear(%x, %w) @block/fc1
  %b: ?[*] = nn.relu(%a) @block
  %y: ?[*] = math.add(%b, %b)
  return %y
}
"""
"""FLOPs of a row: 2 x 64 x 256, 256 and 256 for each of the batch, and a name too long for any column."""


@driven(WIDE_ROWS)
async def test_numbers_below_one_another_are_of_one_unit(app: IrscopeApp, pilot: Pilot[None]) -> None:
    text = screen_text(app)
    assert "* at quite_a_long_name=1" in text
    tree = app.browse.table
    cells = [[column.text(row) for column in tree.columns[2:]] for row in tree.shown.tolist()]
    assert {cell[:1] for row in cells for cell in row} == {"*"}
    assert "*1.00 KiB" in text


@driven(SYMBOLIC)
async def test_a_column_with_room_has_formulas_alone(app: IrscopeApp, pilot: Pilot[None]) -> None:
    tree = app.browse.table
    assert all(column.text(row).endswith(" x batch") for row in tree.shown.tolist() for column in tree.columns[2:])
    assert "* at" not in screen_text(app)
