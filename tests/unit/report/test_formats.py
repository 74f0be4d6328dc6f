"""What is particular to CSV, HTML and JSON, and how a format is found by name."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser

import pytest

from irscope.errors import UsageError
from irscope.report import FOLDER_RENDERERS, RENDERERS, Provenance, Quantity, RenderOptions, Report, Table, renderer
from irscope.report.csvout import csv_lines, render_files
from irscope.report.renderers import folder_renderer
from tests.unit.report import examples


def rendered(name: str, *reports: Report, **options: object) -> str:
    return "".join(renderer(name)(examples.document(*reports), RenderOptions(**options)))  # type: ignore[arg-type]


def table(title: str = "t") -> Table:
    return Table.of([("a", 1)], ["node", "n:count"], title)


@pytest.mark.parametrize("name", [name for name in RENDERERS if name != "layers-json"])  # that one shows a single pass
def test_every_format_renders_everything_and_nothing(name: str) -> None:
    assert rendered(name, examples.liveness(), Report("all", tables=(examples.everything(),)))
    rendered(name)
    rendered(name, Report("empty", tables=(Table("", (), {}),)))


@pytest.mark.parametrize("find", [renderer, folder_renderer])
def test_an_unknown_format_is_answered_with_those_there_are(find: object) -> None:
    with pytest.raises(UsageError, match=r"yaml.*csv"):
        find("yaml")  # type: ignore[operator]


def test_formats_can_be_added() -> None:
    added = {**RENDERERS, "lines": "irscope.report.renderers:render_json"}
    assert callable(renderer("lines", added))
    assert set(FOLDER_RENDERERS) <= set(RENDERERS)


def test_one_table_is_plain_csv() -> None:
    assert rendered("csv", Report("p", summary={"n": 1}, tables=(table(),))) == "node,n\na,1\n"


def test_several_tables_have_a_comment_line_each() -> None:
    found = rendered("csv", Report("p", tables=(table("one"), table("two\nlines"))), Report("q", tables=(table("three"),)))
    assert found == "# p: one\nnode,n\na,1\n\n# p: two\\nlines\nnode,n\na,1\n\n# q: three\nnode,n\na,1\n"


def test_a_summary_alone_is_a_table() -> None:
    summary = {"bytes": Quantity(5, Provenance.MODELLED, "5*b", "fitted", 4, 6), "by_class": {"move": 0}, "torch": None}
    rows = list(csv.DictReader(io.StringIO(rendered("csv", Report("p", summary=summary)))))
    assert [row["key"] for row in rows] == ["bytes", "by_class.move", "torch"]
    assert rows[0] == {
        "key": "bytes",
        "value": "5",
        "kind": "bytes",
        "value.provenance": "modelled",
        "value.formula": "5*b",
        "value.low": "4",
        "value.high": "6",
        "value.note": "fitted",
    }


def test_unknown_and_empty_differ() -> None:
    found = Table.of([("", None), (None, 0)], ["text", "n:count"])
    assert rendered("csv", Report("p", tables=(found,))) == 'text,n\n"",\n,0\n'


def test_a_folder_gets_a_file_for_each_table() -> None:
    report = Report(
        "./my pass.py:Mine", summary={"n": 1}, tables=(table("Largest"), table("largest"), table("../../etc/passwd"), table(""))
    )
    files = {name: "".join(chunks) for name, chunks in render_files(examples.document(report, examples.liveness()), RenderOptions())}
    assert list(files) == [
        "my-pass.py-mine-summary.csv",
        "my-pass.py-mine-largest.csv",
        "my-pass.py-mine-largest-2.csv",
        "my-pass.py-mine-..-..-etc-passwd.csv",
        "my-pass.py-mine-table.csv",
        "liveness-summary.csv",
        "liveness-largest.csv",
        "liveness-timeline.csv",
    ]
    assert files["liveness-timeline.csv"] == "step,live\n0,5\n1,9\n2,2\n"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        names = [name for name, _ in attrs]
        assert not [name for name in names if name.startswith("on") or name in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing() -> None:
    page = rendered("html", examples.liveness(), Report("all", tables=(examples.everything(),)))
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert "script" not in tags.seen
    assert {"h1", "h2", "h3", "table", "svg"} <= tags.seen
    assert "default-src 'none'" in page


def test_the_page_says_how_many_rows_it_hides() -> None:
    many = Table.of([(at,) for at in range(50)], ["n:count"])
    assert "40 more rows; --rows 0 shows all" in rendered("html", Report("p", tables=(many,)), rows=10)
    assert rendered("html", Report("p", tables=(many,))).count("<tr>") == 51


def test_json_has_one_row_a_line() -> None:
    lines = rendered("json", Report("p", tables=(table(), examples.everything()))).splitlines()
    assert '            ["a", 1]' in lines
    assert len([line for line in lines if line.startswith("            [")]) == 1 + len(examples.everything())


def test_json_is_json_whatever_the_nesting() -> None:
    odd = {"": {"": [[], {}, [[1]], {"a": [{}]}]}, "\udcff": [{"x": None}, 1, []]}
    text = rendered("json", Report("p", summary={"a": odd}))
    assert json.loads(text)["reports"][0]["summary"]["a"][""] == {"": [[], {}, [[1]], {"a": [{}]}]}


@pytest.mark.parametrize(
    "name",
    ["=1+1", "+1+1", "-1+1", "-WEBSERVICE(A1)", "-2+3+cmd|' /C calc'!A0", "@SUM(1)", " =1+1", "\t=1", "\r=1", "\uff1d1+1", "-A1", "-batch"],
)
def test_a_spreadsheet_computes_no_text(name: str) -> None:
    _, line = csv_lines(Table.of([(name,)], columns=["name:text"]))
    (cell,) = next(csv.reader([line]))
    assert cell.lstrip()[0] == "\\", cell


@pytest.mark.parametrize("text", ["-5", "+3.5e-2", "-0.25", "7", "1e9"])
def test_numbers_in_texts_stay_numbers(text: str) -> None:
    _, line = csv_lines(Table.of([(text,)], columns=["name:text"]))
    assert line == f"{text}\n"


def test_negative_numbers_stay_numbers() -> None:
    _, line = csv_lines(Table.of([(-5, -2.5)], columns=["a:count", "b:number"]))
    assert line == "-5,-2.5\n"


@pytest.mark.parametrize(
    ("formula", "kept"), [("-2*batch + 3", True), ("-max(a, b)*(c + 1)", True), ("-WEBSERVICE(a)", False), ("=a", False), ("-cmd|x", False)]
)
def test_formulas_of_sizes_stay_formulas(formula: str, kept: bool) -> None:
    _, line = csv_lines(Table.of([(formula,)], columns=["difference:bytes"]))
    assert (next(csv.reader([line])) == [formula]) is kept
