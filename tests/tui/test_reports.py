"""Reports on the screen: any report of any pass, its tables of any length, and what its rows are about."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import IrscopeError, PassError, UsageError
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Mark, Series, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity
from irscope.tui.analyses import report_of
from irscope.tui.command import Source
from irscope.tui.passes.chooser import QUESTIONS, question_of
from irscope.tui.reports import Item, Reports
from irscope.tui.rows import ReportTable
from irscope.tui.session import find_row
from irscope.tui.text import ASCII, UNICODE, Symbols, text_of
from tests.tui.models import EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC, TWO_LAYERS, browse, model

COSTS = Table.of(
    [("conv1", 300, 2048, "big"), ("relu", None, 10, "small"), ("conv2", 1000, "4*batch", "big")],
    columns=["node", "work:flops", "size:bytes", "note:text"],
    title="costs",
)
CURVE = Series(
    "alive", Column("step", Kind.INDEX), (Column("live", Kind.BYTES),), {"step": [0, 1, 2], "live": [10, 30, 20]}, (Mark(1, "peak"),)
)
FULL = Report(
    "mine",
    options="mine{x=1}",
    summary={"total_bytes": 1024, "guess_seconds": Quantity(0.5, Provenance.MODELLED), "secret_bytes": None},
    tables=(COSTS, Table.of([], columns=["node"], title="nothing")),
    series=(CURVE,),
    coverage=Coverage(2, 3, ("acme.magic",)),
    notes=("a multiply-add is 2",),
    diagnostics=(Diagnostic(Severity.WARNING, "IRS205", "something is odd"),),
)


def reports(symbols: Symbols = UNICODE, text: str = TWO_LAYERS) -> Reports:
    return Reports(model(text).manager.registry, Source("two.irs"), symbols)


def with_report(report: Report, symbols: Symbols = UNICODE) -> Reports:
    made = reports(symbols)
    item = Item("mine", "What it does.")
    made.set_items([item])
    made.start(item)
    made.take(item, report)
    return made


def text(made: Reports, width: int = 100) -> str:
    return "\n".join(text_of(line) for line in made.lines(width))


def column(made: Reports, number: int) -> list[str]:
    rows = made.rows
    assert rows is not None
    return [rows.model.columns[number].text(int(row)) for row in rows.model.shown]


def test_all_analyses_are_listed_by_the_question_that_they_answer() -> None:
    made = reports()
    made.set_items(made.known())
    names = [item.text for item in made.items]
    assert names[0] == "liveness"
    questions = [question_of(name) for name in names]
    assert questions == sorted(questions, key=list(QUESTIONS).index)
    assert "dce" not in names
    assert all(item.about for item in made.items)


def test_before_it_has_run_a_pass_says_what_it_is_for() -> None:
    made = reports()
    assert "no pass" in text(made)
    made.set_items([Item("mine", "What it does.")])
    assert text(made) == "What it does.\n\nPress enter to run it."
    item = made.items[0]
    made.start(item)
    assert item.state == "running"
    assert "It is running." in text(made)


def test_a_report_shows_numbers_coverage_notes_and_remarks() -> None:
    shown = text(with_report(FULL))
    for part in (
        "total bytes",
        "1.00 KiB",
        "~500.00 ms",
        "secret bytes   ?",
        "~ modelled",
        "? unknown",
        "known: 2 of 3; unknown: acme.magic",
        "note: a multiply-add is 2",
        "IRS205",
        "something is odd",
    ):
        assert part in shown


def test_a_failed_pass_says_why_and_what_the_code_means() -> None:
    made = with_report(FULL)
    made.fail(made.items[0], PassError("it broke", where="here", hint="do this"))
    shown = text(made)
    for part in ("error IRS500", "it broke", "at here", "do this"):
        assert part in shown
    assert made.items[0].state == "failed"
    assert made.rows is None


def test_parts_go_round() -> None:
    made = with_report(FULL)
    titles = []
    for _ in range(4):
        titles.append(made.part_title())
        made.next_part()
    assert titles == [
        "costs · 3 rows · 1 of 3, n shows the next",
        "nothing · 0 rows · 2 of 3, n shows the next",
        "alive · 3 rows · 3 of 3, n shows the next",
        "costs · 3 rows · 1 of 3, n shows the next",
    ]
    made.next_part(-2)
    assert made.part_title().startswith("alive")


def test_a_series_is_drawn_and_its_numbers_are_a_table() -> None:
    made = with_report(FULL)
    made.next_part(2)
    shown = text(made)
    assert shown.startswith("alive\n")
    assert "▼ peak" in shown
    assert "█" in shown
    assert column(made, 1) == ["10 B", "30 B", "20 B"]
    table = made.table()
    assert table is not None
    assert table.cells("live") == [10, 30, 20]


def test_cells_have_units_and_unknown_ones_say_so() -> None:
    made = with_report(FULL)
    assert column(made, 1) == ["300 FLOPs", "?", "1.00 KFLOPs"]
    assert column(made, 2) == ["2.00 KiB", "10 B", "4*batch bytes"]


@pytest.mark.parametrize(
    ("number", "up", "down"),
    [
        (0, ["conv1", "conv2", "relu"], ["relu", "conv2", "conv1"]),
        (1, ["conv1", "conv2", "relu"], ["conv2", "conv1", "relu"]),
        (2, ["relu", "conv1", "conv2"], ["conv1", "relu", "conv2"]),
    ],
)
def test_sorting_puts_unknowns_and_formulas_last(number: int, up: list[str], down: list[str]) -> None:
    made = with_report(FULL)
    rows = made.rows
    assert rows is not None
    rows.model.sort(number)
    assert column(made, 0) == up
    rows.model.sort(number, reverse=True)
    assert column(made, 0) == down


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("conv", ["conv1", "conv2"]),
        ("CONV big", ["conv1", "conv2"]),
        ("!big", ["relu"]),
        ("conv !4*batch", ["conv1"]),
        ("zzz", []),
        ("", ["conv1", "relu", "conv2"]),
        ("!", []),
    ],
)
def test_filtering_by_words(words: str, names: list[str]) -> None:
    made = with_report(FULL)
    made.set_filter(words)
    assert column(made, 0) == names
    if words:
        assert f"{len(names)} of 3 rows" in made.part_title()


def test_rows_lead_to_nodes_by_key_or_by_name() -> None:
    shown = browse(TWO_LAYERS)
    outline = shown.outline
    nodes = list(shown.program.graph)
    find: Callable[[str], int | None] = lambda name: find_row(shown, name)  # noqa: E731
    keyed = ReportTable(Table.of([(1,), (2,)], columns=["x:count"], keys=[nodes[2], "block/fc1"]), UNICODE)
    assert keyed.place(0, find, outline.row_of.get) == outline.row_of[nodes[2]]
    assert keyed.place(1, find, outline.row_of.get) == 1
    named = ReportTable(Table.of([("active",), ("",), ("nowhere-at-all",)], columns=["node"]), UNICODE)
    assert named.place(0, find, outline.row_of.get) == outline.row_of[nodes[1]]
    assert named.place(1, find, outline.row_of.get) is None
    assert named.place(2, find, outline.row_of.get) is None
    nameless = ReportTable(Table.of([("active",)], columns=["x:text"]), UNICODE)
    assert nameless.place(0, find, outline.row_of.get) is None


def test_asking_for_a_pass_with_options_or_of_ones_own() -> None:
    made = reports()
    made.set_items(made.known())
    asked = made.ask_for("liveness{top=3}")
    assert made.item is asked
    assert made.items[0] is asked
    assert made.ask_for("liveness{top=3}") is asked
    assert made.command(Source("two.irs")) == "irscope run two.irs --passes 'liveness{top=3}'"
    own = made.ask_for("samples/custom_pass.py:NarrowConvs{below=64}")
    assert made.item is own
    assert "fewer channels" in own.about


@pytest.mark.parametrize(
    ("asked", "problem"),
    [("dce", "changes the graph"), ("flops,params", "one pass at a time"), ("flopz", "did you mean"), ("flops{", "expected")],
)
def test_what_has_no_report_is_refused_with_a_reason(asked: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        reports().ask_for(asked)


def test_asking_keeps_what_is_there() -> None:
    made = with_report(FULL)
    made.ask_for("flops")
    made.set_items(made.known())
    assert [item.text for item in made.items[:2]] == ["flops", "mine"]
    assert made.items[1].report is FULL


@pytest.mark.parametrize("source", [EMPTY, FOREIGN, HOSTILE, NESTED, SYMBOLIC], ids=["empty", "foreign", "hostile", "nested", "symbolic"])
def test_every_pass_has_a_screen_over_anything(source: str) -> None:
    opened = model(source)
    made = Reports(opened.manager.registry, Source("x"), ASCII)
    made.set_items(made.known())
    for item in made.items:
        made.start(item)
        try:
            made.take(item, report_of(opened.manager, item.text))
        except IrscopeError as error:
            made.fail(item, error)
        made.select(item)
        for _ in range(max(1, len(item.parts))):
            shown = text(made, 60)
            rows = made.rows
            if rows is not None:
                model_rows = rows.model
                shown += text_of(model_rows.heading(60))
                shown += "".join(text_of(model_rows.line(at, 60, selected=False)) for at in range(min(3, len(model_rows))))
                for number in model_rows.sortable:
                    model_rows.sort(number, reverse=True)
            assert shown.isascii()
            assert all(character.isprintable() or character == "\n" for character in shown)
            made.next_part()


def test_a_table_of_a_hundred_thousand_rows_makes_text_for_what_is_shown_only() -> None:
    count = 100_000
    table = Table("big", (Column("name"), Column("size", Kind.BYTES)), {"name": [f"n{one}" for one in range(count)], "size": range(count)})
    rows = ReportTable(table, UNICODE)
    written = 0
    write = rows._writer.write

    def counted(*given: object) -> str:
        nonlocal written
        written += 1
        return write(*given)  # type: ignore[arg-type]

    rows._writer.write = counted  # type: ignore[method-assign, assignment]
    rows.model.sort(1, reverse=True)
    lines = [text_of(rows.model.line(at, 80, selected=False)) for at in range(30)]
    assert "n99999" in lines[0]
    assert written == 60
