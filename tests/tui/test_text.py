"""Details, header, table lines, remarks and commands as text."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.errors import PassError
from irscope.report.card import ASSUMED_SIZE, StatedSize
from irscope.report.printable import display_width
from irscope.tui.browse.model import Browse
from irscope.tui.results import Failed
from irscope.tui.text import ASCII, UNICODE, Line, Span, Symbols, cut_end, symbols_for, text_of, wrap
from tests.tables import every
from tests.tui.models import EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC, TWO_LAYERS, browse

ALL = [EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC, TWO_LAYERS]


def text(lines: list[Line]) -> str:
    return "\n".join(text_of(line) for line in lines)


def everything(model: Browse, width: int = 80) -> list[Line]:
    """Every line the screen could show of a model."""
    lines = [*model.header(width), *model.timeline_lines(width, 8), *model.remark_lines(), *model.detail()]
    for row in range(len(model.outline)):
        model.select(row)
        lines += model.detail()
        lines.append(model.table.row_line(row, width, selected=False))
    titles = (model.tree_title(), model.timeline_title(), *model.commands())
    return lines + [(Span(title),) for title in titles]


def test_details_of_a_node() -> None:
    model = browse(TWO_LAYERS)
    model.select(2)
    shown = text(model.detail())
    for part in (
        "nn.linear",
        "FLOPs  132.10 KFLOPs",
        "%hidden  f32[4,256]  4.00 KiB",
        "read by nn.relu %active",
        "%x  f32[4,64]  input",
        "%w1  f32[256,64]  param",
        "scope     block/fc1",
        "operator  aten::linear",
        "model.py:45 in forward",
        "h = self.fc1(x)",
        "alive from step 0 to step 1, last needed by active",
    ):
        assert part in shown


def test_a_card_begins_with_neighbours_that_lead_there_and_ends_with_formulas() -> None:
    model = browse(TWO_LAYERS)
    model.select(3)
    lines = model.detail()
    shown = text(lines)
    order = [shown.index(part) for part in ("outputs", "read by", "inputs", "FLOPs  ", "origin", "how it is counted")]
    assert order == sorted(order)
    assert {span.text: span.to for line in lines for span in line if span.to is not None} == {"%hidden": 2, "%back": 5}
    wrapped = [span for line in lines for row in wrap(line, 12) for span in row if span.to is not None]
    assert {span.to for span in wrapped} == {2, 5}


def test_details_of_a_module_name_what_costs_most() -> None:
    model = browse(TWO_LAYERS)
    model.select(0)
    shown = text(model.detail())
    assert "module block" in shown
    assert "nodes        3" in shown
    assert "fc1  132.10 KFLOPs, 50%" in shown
    assert "nn.linear  2" in shown


def test_details_say_why_something_is_unknown_and_what_to_do() -> None:
    model = browse(FOREIGN)
    model.select(3)
    shown = text(model.detail())
    assert "cost  ?" in shown
    assert "unknown because irscope does not know the operator acme.magic" in shown
    assert "docs/add-an-operator.md" in shown


def test_long_lists_say_what_is_hidden() -> None:
    inputs = ", ".join(["%x"] * 60)
    model = browse(f"irscope 1\ngraph @main {{\n  input %x: f32[2]\n  %y: ?[*] = tensor.concat({inputs}) {{axis=0}}\n  return %y\n}}\n")
    shown = text(model.detail())
    assert "and 10 more" in shown
    assert "axis = 0" in shown


def test_operands_that_are_left_out_are_shown_as_such() -> None:
    model = browse("irscope 1\ngraph @main {\n  input %x: f32[2]\n  %y: ?[*] = acme.op(%x, _)\n  return %y\n}\n")
    assert "_  left out" in text(model.detail())


def test_header_of_a_known_model() -> None:
    shown = text(browse(TWO_LAYERS).header(200))
    assert shown.startswith("two.irs · h200 139.80 GiB (default) · irs, 4 nodes\ntensor peak ")
    assert shown.endswith("264.45 KFLOPs · 33,024 parameters (129.00 KiB) · known: costs 4/4, sizes 4/4")


@pytest.mark.parametrize("width", [60, 70, 80, 100, 120])
def test_nothing_in_a_header_is_cut_within_a_word(width: int) -> None:
    """What has no room goes whole: who chose the device, then sizes from the last, of which it says how many."""
    shown = browse(SYMBOLIC)
    sizes = tuple(StatedSize(name, 8, ASSUMED_SIZE, role) for name, role in (("batch", "batch"), ("length", "seq"), ("channels", "")))
    shown.context = replace(shown.context, of_model=sizes)
    first, second = (text_of(line) for line in shown.header(width))
    assert len(first) <= width and len(second) <= width and "…" not in first + second
    assert "batch=8" in first and "(assumed)" in first and "h200 139.80 GiB" in first
    assert ("length=8" in first and "channels=8" in first) or "more" in first
    assert "peak" in second


def test_header_of_a_model_about_which_something_was_guessed() -> None:
    told = TWO_LAYERS.replace("irscope 1\n", 'irscope 1\nguess "x" "f32[4,64]" "from its use"\n', 1)
    exact, shown = text(browse(TWO_LAYERS).header(200)), text(browse(told).header(200))
    assert "assumed x=f32[4,64]" in shown and "assumed" not in exact
    assert "*264.45 KFLOPs" in shown and "tensor peak *" in shown
    assert "*" not in exact


def test_header_before_any_answer_waits_and_shows_no_zero() -> None:
    shown = text(browse(TWO_LAYERS, analysed=False).header(200))
    assert "peak … · FLOPs … · parameters …" in shown
    assert " 0 " not in shown


def test_header_of_a_partly_unknown_model() -> None:
    shown = text(browse(FOREIGN).header(200))
    assert "≥6 FLOPs" in shown
    assert "tensor peak ≥48 B" in shown
    assert "known: costs 1/3, sizes 1/3" in shown


def test_header_where_nothing_is_known() -> None:
    shown = text(browse("irscope 1\ngraph @main {\n  input %x: f32[2]\n  %y: ?[*] = acme.op(%x)\n  return %y\n}\n").header(200))
    assert "? FLOPs" in shown
    assert "peak ?" in shown


def test_header_of_formulas() -> None:
    model = browse(SYMBOLIC)
    assert "66.11 KFLOPs x batch" in text(model.header(200))
    model.set_sizes("batch=4")
    assert "264.45 KFLOPs" in text(model.header(200))


@pytest.mark.parametrize("width", [80, 20, 5, 0])
def test_the_header_stays_inside_its_lines(width: int) -> None:
    lines = browse(TWO_LAYERS).header(width)
    assert len(lines) == 2
    assert all(display_width(text_of(line)) <= width for line in lines)


def test_table_lines_at_80_columns() -> None:
    model = browse(TWO_LAYERS)
    assert [text_of(model.table.row_line(row, 80, selected=row == 2)).rstrip() for row in range(3)] == [
        " ▾ block                                                  264.19 K      9.00 KiB",
        "   ▾ fc1                                                  132.10 K      4.00 KiB",
        "▌    fc1 nn.linear %hidden                 f32[4,256]     132.10 K      4.00 KiB",
    ]


def test_the_heading_stands_above_its_columns() -> None:
    model = browse(TWO_LAYERS)
    heading = text_of(model.table.heading(80))
    line = text_of(model.table.row_line(2, 80, selected=False))
    assert heading.index("result type") == line.index("f32[")
    assert heading.rstrip().endswith("result bytes")
    assert len(heading) == len(line) == 80


@every("source", ALL)
@every("symbols", [UNICODE, ASCII])
@every("width", [120, 80, 40, 20, 3, 1])
def test_table_lines_have_exactly_their_width(source: str, symbols: Symbols, width: int) -> None:
    model = browse(source, symbols=symbols)
    for row in range(len(model.outline)):
        assert display_width(text_of(model.table.row_line(row, width, selected=True))) == width


browse_once = cache(browse)


@given(st.integers(0, 300), st.booleans())
def test_columns_never_overflow(width: int, symbolic: bool) -> None:
    widths = browse_once(SYMBOLIC if symbolic else TWO_LAYERS).table.widths(width)
    assert sum(widths) + len([width for width in widths if width]) == max(width, 1) or widths == [0, 0, 0, 0]
    if width >= 80:
        assert min(widths) > 0
        assert widths[0] >= 22


@pytest.mark.parametrize("source", ALL)
def test_nothing_from_a_model_reaches_the_terminal_raw(source: str) -> None:
    for line in everything(browse(source)):
        assert text_of(line).isprintable(), line


@pytest.mark.parametrize("source", ALL)
def test_plain_terminals_get_plain_ascii(source: str) -> None:
    for line in everything(browse(source, symbols=ASCII)):
        assert text_of(line).isascii(), line


def test_hostile_names_are_escaped_not_dropped() -> None:
    shown = text(everything(browse(HOSTILE)))
    assert "\\x1b" in shown
    assert "\\u202e" in shown
    assert "[/bold]" in shown
    assert "名" in shown


def test_an_empty_model_says_so() -> None:
    model = browse(EMPTY)
    assert text(model.detail()) == "This model has no nodes."
    assert "nothing to draw" in text(model.timeline_lines(80, 4))
    assert model.step is None
    assert not model.reveal_peak()
    model.reveal_step(3)
    model.set_filter("x")
    assert len(model.commands()) == 1


def test_a_failed_part_is_unknown_and_explained() -> None:
    model = browse(TWO_LAYERS, analysed=False)
    error = PassError("it broke", code="IRS500", where="flops.py:3", hint="try again")
    for part in ("flops", "liveness", "params", "sizes"):
        Failed(part, error).apply(model.results)
    assert "FLOPs ?" in text(model.header(200))
    assert "press w" in text(model.timeline_lines(80, 4))
    assert text_of(model.table.row_line(2, 80, selected=False)).count("?") == 2
    assert "4 errors (w)" in model.tree_title()
    remarks = text(model.remark_lines())
    assert "error IRS500 flops: it broke" in remarks
    assert "try again" in remarks


def test_commands_can_be_pasted_into_a_shell() -> None:
    model = browse(SYMBOLIC)
    model.set_sizes("batch=4")
    model.select(2)
    run, show = model.commands()
    assert shlex.split(run) == ["irscope", "run", "some folder/two.irs", "--bind", "batch=4", "--passes", "params,flops,liveness"]
    assert shlex.split(show)[-5:] == ["--scope", "block/fc1", "--op", "nn.linear", "--locations"]


@given(st.lists(st.text(alphabet="ab 名\u0301", max_size=30), max_size=4), st.integers(1, 30))
def test_wrapping_keeps_the_text_and_the_width(parts: list[str], width: int) -> None:
    line = tuple(Span(part) for part in parts)
    rows = list(wrap(line, width, "  "))
    assert all(display_width(text_of(row)) <= max(width, 4) for row in rows)
    assert "".join(text_of(row) for row in rows).replace(" ", "") == "".join(parts).replace(" ", "")


@given(st.text(alphabet="ab名前", max_size=30), st.integers(-2, 30))
def test_cutting_at_the_end(word: str, width: int) -> None:
    cut = cut_end(word, width, UNICODE)
    assert display_width(cut) <= max(width, 0)
    assert cut == word or display_width(word) > width


@pytest.mark.parametrize(
    ("encoding", "environ", "expected"),
    [
        ("utf-8", {"TERM": "xterm-256color"}, UNICODE),
        ("ascii", {"TERM": "xterm"}, ASCII),
        ("latin-1", {}, ASCII),
        ("utf-8", {"TERM": "linux"}, ASCII),
        ("utf-8", {"IRSCOPE_ASCII": "1"}, ASCII),
    ],
)
def test_symbols_suit_the_terminal(encoding: str, environ: dict[str, str], expected: object) -> None:
    assert symbols_for(encoding, environ) is expected
