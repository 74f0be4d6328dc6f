"""Any column of numbers by node, on the rows of the tree."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from irscope.errors import UsageError
from irscope.report.table import Table
from irscope.report.units import Kind
from irscope.session import open_model
from irscope.tui.amounts import Binding, Column, sum_up
from irscope.tui.app import IrscopeApp
from irscope.tui.browse.columns import COLUMNS, BrowseColumn, ColumnSource, column_choices, column_of_table, node_rows
from irscope.tui.browse.model import Browse
from irscope.tui.browse.screen import BrowseScreen
from irscope.tui.text import ASCII, UNICODE
from tests.tui.driving import drive, driven, press, screen_text, settle
from tests.tui.models import EMPTY, FOREIGN, NESTED, SYMBOLIC, TWO_LAYERS, browse, model


def made(shown: Browse, about: str) -> Column:
    """A column that can be chosen."""
    record = next(one for one in COLUMNS if one.about == about)
    column = record.make(replace(ColumnSource.of(model(TWO_LAYERS)), outline=shown.outline, results=shown.results))
    assert column is not None
    return column


def test_modules_have_the_sum_of_their_nodes() -> None:
    outline = browse(TWO_LAYERS).outline
    column = sum_up(outline, "x", Kind.COUNT, lambda node: len(node.op))
    assert column.values[0] == sum(len(node.op) for node in list(browse(TWO_LAYERS).program.graph)[:3])


def test_what_is_unknown_is_left_out_of_a_sum_and_said_so() -> None:
    outline = browse(TWO_LAYERS).outline
    column = sum_up(outline, "x", Kind.BYTES, lambda node: None if node.op == "nn.relu" else 1024)
    assert column.text(0, UNICODE) == "≥2.00 KiB"
    assert column.text(3, UNICODE) == "?"
    assert column.text(2, UNICODE) == "1.00 KiB"
    assert column.text(0, ASCII).isascii()


def test_what_is_inside_a_region_is_added_to_no_node() -> None:
    shown = browse(NESTED)
    column = sum_up(shown.outline, "x", Kind.COUNT, lambda node: 1)
    assert column.values[0] == 2
    assert column.values[3] == 2


def test_formulas_get_numbers_with_the_sizes() -> None:
    shown = browse(SYMBOLIC)
    assert shown.results.sizes is not None
    sizes = shown.results.sizes
    column = sum_up(shown.outline, "x", Kind.BYTES, lambda node: sizes.values[shown.outline.row_of[node]])
    assert "batch" in column.text(0, UNICODE)
    bound = column.bound(Binding({"batch": 4}))
    assert bound.text(2, UNICODE) == "4.00 KiB"
    shown.results.choose(column)
    shown.set_sizes("batch=4")
    assert shown.results.chosen is not None
    assert shown.results.chosen.text(2, UNICODE) == "4.00 KiB"
    shown.set_sizes("batch=8")
    assert shown.results.chosen.text(2, UNICODE) == "8.00 KiB"


def test_live_at_the_peak_adds_up_to_the_peak() -> None:
    shown = browse(TWO_LAYERS)
    lives, timeline = shown.results.lives, shown.results.timeline
    assert lives is not None
    assert timeline is not None
    assert timeline.peak is not None
    found = made(shown, "live at the peak")
    tops = [row for row, above in enumerate(shown.outline.parent) if above < 0]
    assert sum(found.values[row] for row in tops) == lives.live.peak  # type: ignore[misc]


def test_unknown_nodes_are_counted() -> None:
    shown = browse(FOREIGN)
    found = made(shown, "unknown nodes")
    rows = {getattr(item, "name", ""): found.values[row] for row, item in enumerate(shown.outline.items)}
    assert (rows["known"], rows["strange"], rows["b"], rows["a"]) == (0, 2, 1, 0)


def test_a_table_of_a_report_by_node_or_by_name() -> None:
    shown = browse(TWO_LAYERS)
    nodes = list(shown.program.graph)
    by_node = Table.of([(5,), (7,), (9,)], columns=["size:bytes"], keys=[nodes[0], nodes[1], nodes[1]])
    assert node_rows(shown.outline, by_node) == {0: 2, 1: 3}
    column = column_of_table(shown.outline, by_node, "size")
    assert column is not None
    assert [column.text(row, UNICODE) for row in range(7)] == ["12 B", "5 B", "5 B", "7 B", "", "", ""]
    by_name = Table.of([("hidden", 0.5), ("%back", None), ("nobody", 1.0)], columns=["node", "share:ratio"])
    column = column_of_table(shown.outline, by_name, "share")
    assert column is not None
    assert [column.text(row, UNICODE) for row in range(7)] == ["", "", "50.0%", "", "", "?", ""]


def test_what_is_about_no_nodes_makes_no_column() -> None:
    outline = browse(TWO_LAYERS).outline
    assert column_of_table(outline, Table.of([("a", 1)], columns=["x:text", "y:count"]), "y") is None
    assert column_of_table(outline, Table.of([("hidden", "b")], columns=["node", "y:text"]), "y") is None
    assert column_of_table(outline, Table.of([("hidden", 1)], columns=["node", "y:count"]), "zzz") is None
    assert len(sum_up(browse(EMPTY).outline, "x", Kind.COUNT, lambda node: 1).values) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("key", "title"), [("2", "live at peak"), ("3", "least time"), ("4", "unknown nodes")])
@driven(TWO_LAYERS, size=(120, 40))
async def test_the_last_column_is_chosen(app: IrscopeApp, pilot: Pilot[None], key: str, title: str) -> None:
    await press(app, pilot, "o", key)
    assert title in screen_text(app)
    await press(app, pilot, "o", "1")
    assert "result bytes" in screen_text(app)
    await pilot.press("o", "escape")


def test_a_column_is_one_record() -> None:
    mine = BrowseColumn("mine: made up", lambda source: sum_up(source.outline, "made up", Kind.COUNT, lambda node: len(node.inputs)))

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        app.session.report_columns.append(mine)
        await press(app, pilot, "o", "7")
        assert "made up" in screen_text(app)
        assert app.browse.export().cells("made_up")[0] == 3 + 1 + 2

    drive(model(TWO_LAYERS), steps, size=(120, 40))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return source.sum_up('operands', Kind.COUNT, lambda node: len(node.inputs))", ""),
        ("return 3", "column 'operands' of acme-columns is not a Column"),
        ("raise SystemExit('never')", "columns 'operands' of acme-columns cannot be imported: SystemExit"),
    ],
)
def test_a_column_of_a_package(body: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "acme_columns-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-columns\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[irscope.columns]\noperands = acme_columns:operands\n")
    function = "" if "raise" in body else "def operands(source):\n    "
    (tmp_path / "acme_columns.py").write_text(f"from irscope.report import Kind\n{function}{body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "acme_columns", raising=False)
    column = column_choices()[-1]
    assert column.about == "operands, of acme-columns"
    source = ColumnSource.of(model(TWO_LAYERS))
    if problem:
        with pytest.raises(UsageError, match=problem):
            column.make(source)
    else:
        found = column.make(source)
        assert found is not None
        assert found.values[0] == 3 + 1 + 2


@pytest.mark.slow
def test_a_column_is_made_anew_for_other_sizes(tmp_path: Path) -> None:
    path = tmp_path / "two.irs"
    path.write_text(SYMBOLIC.replace("[1,128]", "[1,10000000]"))

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        def first() -> object:
            assert app.browse.results.chosen is not None
            return app.browse.results.chosen.values[0]

        await press(app, pilot, "o", "3")
        assert first() is not None, "open sizes are stated: the model opens at batch=1"
        app.browse.set_sizes("batch=2")
        await settle(app, pilot)
        few = first()
        app.browse.set_sizes("batch=10000000")
        await settle(app, pilot)
        assert first() > few  # type: ignore[operator]

    drive(open_model(path), steps, size=(120, 40))


def test_a_column_that_cannot_be_made_says_why() -> None:
    shown = browse(TWO_LAYERS, analysed=False)
    with pytest.raises(UsageError, match="peak is not known yet"):
        made(shown, "live at the peak")
    with pytest.raises(UsageError, match="FLOPs are not known yet"):
        made(shown, "share of all FLOPs")


@pytest.mark.slow
@driven(TWO_LAYERS, size=(120, 40))
async def test_a_table_of_a_report_becomes_the_last_column(app: IrscopeApp, pilot: Pilot[None]) -> None:
    await press(app, pilot, "7")
    screen = app.screen
    await press(app, pilot, "down", "down", "enter")
    made = getattr(screen, "reports")  # noqa: B009
    while made.rows is None or "node" not in [column.key for column in made.rows.table.columns]:
        await pilot.press("n")
    await press(app, pilot, "o", "1")
    assert isinstance(app.screen, BrowseScreen)
    assert app.browse.results.chosen is not None
    assert app.browse.results.chosen.title in screen_text(app)
