"""The text format: it fits, it says what it leaves out, and no string of a model can do anything to a terminal."""

from __future__ import annotations

import io
import re
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.diagnostics import Diagnostic, Severity
from irscope.report import Column, Coverage, Kind, Provenance, Quantity, RenderOptions, Report, Table, renderer
from irscope.report.printable import cut_middle, display_width, pad, printable, well_formed
from tests.unit.report import examples

# The text format: it fits, it says what it leaves out, and its signs have a legend.


def text(*reports: Report, **options: object) -> str:
    return "".join(renderer("text")(examples.document(*reports), RenderOptions(**options)))  # type: ignore[arg-type]


def test_the_whole_picture() -> None:
    assert text(examples.liveness(), charts=False) == (
        "model.onnx · onnx · 12 nodes · 1,000 parameters · 3.91 KiB · bind batch=8\n"
        "\n"
        "liveness{model=eager}\n" + "─" * 78 + "\n"
        "  model                  eager\n"
        "  activation peak bytes  11.07 MiB\n"
        "  lower bound bytes      1048576*batch bytes\n"
        "          requested  allocated  reserved\n"
        "  before   1.00 KiB   2.00 KiB  2.00 MiB\n"
        "  cold     4.00 KiB  ~8.00 KiB         ?\n"
        "  workspace bytes        ~8.13 MiB [0 B to 8.58 MiB]  (8519680*n)  cuBLAS\n"
        "  note: MiB = 2^20 bytes\n"
        "  coverage: 3 of 4 known (75.0%); unknown: aten.foo\n"
        "\n"
        "  Largest\n"
        "  node  size\n"
        "  ────  ────\n"
        "  a      1 B\n"
        "  b      2 B\n"
        "\n"
        "  (conv): warning IRS204: odd \\x1b[31m [do this] (and 2 more like it)\n"
        "\n"
        "  ~ modelled   ? unknown\n"
    )


def test_the_legend_explains_the_signs_that_occur_and_no_others() -> None:
    def legend(*cells: object) -> str:
        return text(Report("p", summary={f"n{at}": cell for at, cell in enumerate(cells)})).splitlines()[-1].strip()

    assert legend(Quantity(1, Provenance.MEASURED)) == "= measured"
    assert legend(Quantity(1, Provenance.MODELLED), Quantity(None)) == "~ modelled   ? unknown"
    assert legend(1, 2) == "n1  2"


def test_a_columns_provenance_marks_its_numbers() -> None:
    table = Table("t", (Column("n", Kind.COUNT, provenance=Provenance.MODELLED),), {"n": [1, None, Quantity(3)]})
    assert [line.strip() for line in text(Report("p", tables=(table,))).splitlines()[-5:-2]] == ["~1", "?", "3"]


def test_hidden_rows_are_counted() -> None:
    table = Table.of([(f"n{at}", at) for at in range(1234)], ["node", "n:count"], "Many")
    shown = text(Report("p", tables=(table,)))
    assert "n19" in shown
    assert "n20" not in shown
    assert "  1,214 more rows; --rows 0 shows all\n" in shown
    assert "n1233" in text(Report("p", tables=(table,)), rows=0)
    assert "  1,231 more rows; use -n" in text(Report("p", tables=(table,)), rows=3, all_rows="use -n")


def test_a_last_row_that_stands_for_others_names_what_lists_them() -> None:
    rows = [("a", 5), ("2 more", 3)]
    table = replace(Table.of(rows, ["tensor", "size:bytes"], "held", whole="size"), rest=2, rest_by="liveness{top=0}")
    assert "--passes 'liveness{top=0}' lists all" in text(Report("p", tables=(table,)))
    assert "lists all" not in text(Report("p", tables=(replace(table, rest=0),)))


def test_hidden_remarks_are_counted() -> None:
    many = tuple(Diagnostic(Severity.NOTE, "IRS204", f"remark {at}") for at in range(5))
    assert "  3 more remarks; --rows 0 shows all\n" in text(Report("p", diagnostics=many), rows=2)


def test_an_empty_table_says_so() -> None:
    assert "  Narrow: no rows\n" in text(Report("p", tables=(Table.of([], ["node"], "Narrow"),)))


def test_a_list_that_is_cut_names_what_shows_it() -> None:
    table = Table.of([["a", ", ".join(f"node{at}" for at in range(30))]], ["node", "what"], "Long")
    assert "cut: what; a wider terminal or --format csv shows them" in " ".join(text(Report("p", tables=(table,)), width=60).split())
    assert "cut: " not in text(Report("p", tables=(table,)), width=None)


def test_columns_without_room_are_named() -> None:
    keys = [f"statistic{at}" for at in range(12)]
    table = Table.of([["name", *([0.123456] * 12)]], ["node", *(f"{key}:number" for key in keys)], "Wide")
    shown = text(Report("p", tables=(table,)), width=60)
    match = re.search(r"no room for: (.*); a wider", " ".join(shown.split()))
    assert match
    hidden = match[1].split(", ")
    head = shown.split("Wide\n")[1].splitlines()[0].split()
    assert [*head[1:], *hidden] == keys
    assert "no room" not in text(Report("p", tables=(table,)))


def test_long_names_are_cut_and_numbers_are_not() -> None:
    name = "encoder." + "very." * 30 + "deep.weight"
    table = Table.of([(name, 123456789)], ["node", "n:count"], "t")
    line = text(Report("p", tables=(table,)), width=40).splitlines()[-1]
    assert display_width(line) == 40
    assert line.split() == ["encoder…very.deep.weight", "123,456,789"]


def test_a_stream_without_unicode_gets_ascii() -> None:
    table = Table.of([("日本語" * 20, 1)], ["node", "n:count"], "t")
    shown = text(examples.liveness(), Report("p", tables=(table,)), encoding="ascii", width=60)
    assert shown.isascii()
    assert "----" in shown
    assert "\\u65e5" in shown
    assert "..." in shown
    assert "v peak" in shown


def test_colour_is_never_the_only_sign() -> None:
    coloured = text(examples.liveness(), colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == text(examples.liveness())


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "colour"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm"}, True)],
)
def test_colours_of_a_terminal(environ: dict[str, str], colour: bool) -> None:
    assert RenderOptions.for_stream(Terminal(), environ=environ).colour is colour


def test_a_pipe_has_no_colours_and_a_hundred_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    options = RenderOptions.for_stream(io.StringIO(), environ={})
    assert (options.colour, options.width) == (False, 100)
    assert RenderOptions.for_stream(io.StringIO(), environ={}, colour=True).colour


def test_columns_sets_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "57")
    assert RenderOptions.for_stream(io.StringIO()).width == 57
    assert RenderOptions.for_stream(Terminal()).width == 57


def test_groups_of_one_make_become_a_small_table() -> None:
    shown = text(Report("p", summary={"by": {"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 4}}, "one": {"x": 5}}))
    assert shown.endswith("  by\n     x  y\n  a  1  2\n  b  3  4\n  one\n    x  5\n")


def test_coverage_names_a_few_and_counts_the_rest() -> None:
    unknown = tuple(f"op{at}" for at in range(11))
    assert "unknown: op0, op1, op2, op3, op4, op5, op6, op7 and 3 more (--rows 0 shows all)" in text(
        Report("p", coverage=Coverage(0, 11, unknown))
    )
    whole = text(Report("p", coverage=Coverage(0, 11, unknown)), rows=0)
    assert "op10" in whole and "more" not in whole
    assert "coverage" not in text(Report("p", coverage=Coverage(0, 0)))
    assert "(>99.9%)" in text(Report("p", coverage=Coverage(99_999, 100_000, ("a",))))


# No string of a model file can do anything to a terminal, and widths are what a terminal shows.

any_text = st.text(st.characters())


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("conv1.weight", "conv1.weight"),
        ("naïve 日本", "naïve 日本"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x7f\x00", "\\x7f\\x00"),
        ("\x9b", "\\x9b"),
        ("\u202e\u2066\u200f\u061c", "\\u202e\\u2066\\u200f\\u061c"),
        ("\udcff", "\\udcff"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_known_strings(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@given(any_text)
def test_nothing_dangerous_remains(raw: str) -> None:
    shown = printable(raw)
    assert [c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")] == []
    assert [c for c in shown if unicodedata.bidirectional(c) in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")] == []


@given(any_text, st.sampled_from(["ascii", "latin-1", "cp1252", "utf-8"]))
def test_the_result_can_be_written(raw: str, encoding: str) -> None:
    shown = printable(raw, encoding)
    assert shown.encode(encoding).decode(encoding) == shown
    assert printable(shown, encoding) == shown


@given(any_text)
def test_well_formed_changes_lone_surrogates_only(raw: str) -> None:
    fixed = well_formed(raw)
    fixed.encode("utf-8")
    if not any("\ud800" <= c <= "\udfff" for c in raw):
        assert fixed == raw


@pytest.mark.parametrize(("text", "width"), [("", 0), ("abc", 3), ("日本", 4), ("ｗ", 2), ("e\u0301", 1), ("\u20dd", 0), ("…─", 2)])
def test_width(text: str, width: int) -> None:
    assert display_width(text) == width


@given(st.text(), st.integers(1, 30), st.sampled_from(["…", "..."]))
def test_cut_is_both_ends_and_fits(raw: str, width: int, ellipsis: str) -> None:
    text = printable(raw)
    cut = cut_middle(text, width, ellipsis)
    assert display_width(cut) <= width
    if display_width(text) <= width:
        assert cut == text
    elif width > display_width(ellipsis):
        head, _, tail = cut.partition(ellipsis) if ellipsis not in text else ("", "", "")
        assert text.startswith(head)
        assert text.endswith(tail)


def test_cut_keeps_both_ends() -> None:
    assert cut_middle("encoder.layer.3.attention.q", 13) == "encode…tion.q"
    assert cut_middle("日本語日本語", 7) == "日…本語"


def test_pad() -> None:
    assert pad("日", 4) == "日  "
    assert pad("7", 3, right=True) == "  7"
