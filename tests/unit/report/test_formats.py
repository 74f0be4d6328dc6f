"""The JSON document is what the published contract and its schema say; what is particular to CSV, HTML and JSON."""

from __future__ import annotations

import base64
import copy
import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given

from irscope.errors import UsageError
from irscope.report import (
    FOLDER_RENDERERS,
    RENDERERS,
    Column,
    Coverage,
    Document,
    Kind,
    Mark,
    ModelInfo,
    Provenance,
    Quantity,
    RenderOptions,
    Report,
    Series,
    Table,
    renderer,
)
from irscope.report.csvout import csv_lines, render_files
from irscope.report.renderers import folder_renderer
from irscope.report.report import Subject
from irscope.report.table import Limit
from tests.tools.pages import report_schema
from tests.unit.report import examples

# The JSON document is what the published contract says.


def test_the_documents_shape() -> None:
    document = examples.document(examples.liveness()).to_json()
    assert document["schema"] == "irscope.report/1"
    assert document["tool"] == {"name": "irscope", "version": "1.2.3"}
    assert document["model"] == {
        "path": "model.onnx",
        "format": "onnx",
        "sha256": "ab" * 32,
        "nodes": 12,
        "has_graph": True,
        "parameters": 1000,
        "parameter_bytes": 4000,
        "bind": {"batch": 8},
        "short_names": {},
        "assumed": [],
        "diagnostics": [],
    }
    (report,) = document["reports"]
    assert report["pass"] == "liveness"
    assert report["options"] == "liveness{model=eager}"
    assert report["tables"] == [
        {"title": "Largest", "columns": [{"key": "node", "kind": "node"}, {"key": "size", "kind": "bytes"}], "rows": [["a", 1], ["b", 2]]}
    ]
    assert report["coverage"] == {"known": 3, "total": 4, "unknown": ["aten.foo"]}
    assert report["diagnostics"] == [
        {"severity": "warning", "code": "IRS204", "message": "odd \x1b[31m", "node": "conv", "hint": "do this", "count": 3}
    ]


def test_the_summary_is_raw_and_what_is_said_about_it_stands_beside() -> None:
    report = examples.liveness().to_json()
    assert report["summary"] == {
        "model": "eager",
        "activation_peak_bytes": 11607654,
        "lower_bound_bytes": "1048576*batch",
        "before": {"requested": 1024, "allocated": 2048, "reserved": 2097152},
        "cold": {"requested": 4096, "allocated": 8192, "reserved": None},
        "workspace_bytes": 8519680,
    }
    assert report["provenance"] == {"cold.allocated": "modelled", "cold.reserved": "unknown", "workspace_bytes": "modelled"}
    assert report["formulas"] == {"workspace_bytes": "8519680*n"}
    assert report["intervals"] == {"workspace_bytes": [0, 9000000]}
    assert report["remarks"] == {"workspace_bytes": "cuBLAS"}
    assert report["units"]["cold.reserved"] == "bytes"
    assert report["units"]["model"] == "text"


def test_a_report_without_anything_still_has_every_key() -> None:
    report = Report("empty").to_json()
    assert report["options"] == "empty"
    assert report["coverage"] == {"known": 0, "total": 0, "unknown": []}
    assert (report["summary"], report["tables"], report["diagnostics"]) == ({}, [], [])


def test_kinds_are_guessed_from_keys_and_values() -> None:
    summary = {
        "total_flops": 1,
        "bytes": 2,
        "time_seconds": 0.1,
        "hit_ratio": 0.5,
        "n": 3,
        "mean": 0.1,
        "on": True,
        "node": "x",
        "by_bytes": {"a": 1},
        "shape": {"dtype": "f32", "shape": [1]},
    }
    kinds = {entry.key: entry.kind for entry in Report("p", summary=summary, units={"shape": Kind.SHAPE}).entries()}
    assert kinds == {
        "total_flops": Kind.FLOPS,
        "bytes": Kind.BYTES,
        "time_seconds": Kind.SECONDS,
        "hit_ratio": Kind.RATIO,
        "n": Kind.COUNT,
        "mean": Kind.NUMBER,
        "on": Kind.BOOL,
        "node": Kind.TEXT,
        "by_bytes.a": Kind.BYTES,
        "shape": Kind.SHAPE,
    }


def test_a_stated_kind_wins_over_a_groups() -> None:
    report = Report("p", summary={"g": {"a": 1, "b": 2}}, units={"g": Kind.BYTES, "g.b": Kind.FLOPS})
    assert [entry.kind for entry in report.entries()] == [Kind.BYTES, Kind.FLOPS]


def test_empty_groups_stay() -> None:
    assert Report("p", summary={"by_class": {}, "deep": {"er": {}}}).to_json()["summary"] == {"by_class": {}, "deep": {"er": {}}}


def test_cells_are_annotated_only_where_there_is_something_to_say() -> None:
    report = examples.with_table(examples.everything()).to_json()["reports"][0]
    notes = [note for note in report["tables"][0]["annotations"] if note["column"] == "bytes"]
    first = len(examples.NUMBERS)
    assert notes == [
        {"row": first, "column": "bytes", "provenance": "modelled", "note": "fitted"},
        {"row": first + 1, "column": "bytes", "provenance": "measured", "interval": [4, 6.5]},
        {"row": first + 2, "column": "bytes", "provenance": "exact", "formula": "4*batch"},
        {"row": first + 3, "column": "bytes", "provenance": "exact", "formula": "4*batch"},
        {"row": first + 4, "column": "bytes", "provenance": "unknown"},
    ]


def test_the_rendered_text_is_the_document() -> None:
    document = Document("1", ModelInfo("caf\udce9.onnx", "onnx"), (examples.liveness(), Report("x", coverage=Coverage(1, 1))))
    text = "".join(renderer("json")(document, RenderOptions()))
    assert json.loads(text) == document.to_json()
    assert json.loads(text)["model"]["path"] == "caf\\udce9.onnx"


def test_big_integers_stay_exact() -> None:
    total = 2 * 10**18 * 1000 + 1
    text = "".join(
        renderer("json")(examples.document(Report("p", summary={"flops": Quantity(total, Provenance.MODELLED)})), RenderOptions())
    )
    assert json.loads(text)["reports"][0]["summary"]["flops"] == total


# The published JSON Schema is fresh, and documents keep to it.


def closed(schema: Any) -> Any:
    """The schema, but refusing properties that it does not name: what irscope itself writes must all be described."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(item) for key, item in schema.items()}
    return {**result, "additionalProperties": False} if "properties" in schema and schema.get("type") == "object" else result


STRICT = jsonschema.Draft202012Validator(closed(json.loads(report_schema())))


def written(*reports: Report) -> Any:
    return json.loads("".join(renderer("json")(examples.document(*reports), RenderOptions())))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(report_schema()))


def test_documents_validate() -> None:
    STRICT.validate(written())
    STRICT.validate(written(Report("empty"), examples.liveness(), Report("all", tables=(examples.everything(),))))


@given(examples.tables())
def test_random_documents_validate(table: Table) -> None:
    STRICT.validate(written(Report("random", tables=(table,))))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["schema"], "irscope.report/2"),
        (["tool", "version"], 1),
        (["model", "nodes"], "many"),
        (["reports", 0, "coverage"], None),
        (["reports", 0, "provenance"], {"a": "guessed"}),
        (["reports", 0, "tables", 0, "columns", 0, "kind"], "octets"),
        (["reports", 0, "diagnostics", 0, "severity"], "fatal"),
        (["reports", 0, "new"], 1),
    ],
)
def test_a_broken_document_does_not(path: list[str | int], value: object) -> None:
    document = copy.deepcopy(written(examples.liveness()))
    STRICT.validate(document)
    inside = document
    for part in path[:-1]:
        inside = inside[part]
    inside[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        STRICT.validate(document)


@pytest.mark.parametrize("key", ["pass", "options", "summary", "tables", "coverage", "diagnostics"])
def test_the_contracts_keys_are_required(key: str) -> None:
    document = written(examples.liveness())
    del document["reports"][0][key]
    with pytest.raises(jsonschema.ValidationError):
        STRICT.validate(document)


# What is particular to CSV, HTML and JSON, and how a format is found by name.


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
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "srcset", "action")]
        # Links lead to places of the page itself.
        assert not [value for name, value in attrs if name == "href" and not (value or "").startswith("#")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing() -> None:
    page = rendered("html", examples.liveness(), Report("all", tables=(examples.everything(),)))
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert {"h1", "h2", "h3", "table", "svg"} <= tags.seen


def test_a_page_runs_its_own_script_and_no_other() -> None:
    page = rendered("html", examples.liveness(), Report("all", tables=(examples.everything(),)))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'; base-uri 'none'; form-action 'none'")
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|fetch|import|https?:", script)
    assert "url(" not in page and "@import" not in page


def test_what_a_page_has_as_data_ends_no_element_and_shows_no_control_characters() -> None:
    evil = [*examples.EVIL, "</script><script>alert(1)</script>", "<!--", "]]>"]
    table = Table.of([(evil[at % len(evil)], at) for at in range(300)], ["node", "size:bytes"], "t")
    series = Series(
        "s", Column("step"), (Column("x", Kind.BYTES),), {"step": [0, 1], "x": [1, 2]}, names=evil[-3:-1], parts=lambda place, top: table
    )
    page = rendered("html", Report("p", tables=(table,), series=(series,)))
    blocks = re.findall(r'<script type="application/json">(.*?)</script>', page, re.S)
    assert page.count("<script") == 1 + len(blocks) == 3
    texts = list(texts_of([json.loads(block) for block in blocks]))
    assert "</script><script>alert(1)</script>" in texts
    assert [text for text in texts if not text.isprintable()] == []


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    else:
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from texts_of(item)


PAGE_TAGS = {
    *("html", "head", "meta", "title", "style", "script", "body", "a", "nav", "details", "summary", "ol", "ul", "li", "main", "header"),
    *("section", "h1", "h2", "h3", "p", "span", "br", "div", "dl", "dt", "dd", "small", "code", "strong", "table", "thead", "tbody", "tr"),
    *("th", "td", "figure", "figcaption", "svg", "path", "g", "i", "output", "footer"),
}


@given(examples.text)
def test_no_text_of_a_model_is_markup(text: str) -> None:
    """In whatever part of a document it stands."""
    hostile = f"{text}</script><img src=x onerror=alert(1)>\u202e"
    table = Table.of([(hostile, 1)] * 101, ["node", Column("size", Kind.BYTES, hostile, hostile)], hostile)
    data = {"step": [0, 1], "x": [1, 2]}
    series = Series(
        hostile,
        Column("step", title=hostile),
        (Column("x", Kind.BYTES, hostile),),
        data,
        (Mark(1, hostile),),
        limits=(Limit(2, hostile), Limit(10**9, hostile)),
        names=[hostile] * 2,
        parts=lambda place, top: table.first(top),
    )
    report = Report(hostile, hostile, {hostile: hostile}, tables=(table,), series=(series,), notes=(hostile,), headline=(hostile,))
    subjects = (Subject(hostile, (hostile, hostile), (hostile,)),)
    page = "".join(renderer("html")(Document(hostile, ModelInfo(hostile, hostile), (report,), subjects), RenderOptions()))
    tags = Tags()
    tags.feed(page)
    assert tags.open == [] and tags.seen <= PAGE_TAGS
    assert "\u202e" not in page and "<img" not in page


def test_a_tree_is_marked_as_one_and_its_amounts_have_bars() -> None:
    rows = [("(model)", 0, 100), ("a", 1, 75), ("b", 2, 25), ("c", 1, None)]
    tree = replace(Table.of(rows, ["module:text", "depth:index", "size:bytes"], "modules"), depth="depth")
    page = rendered("html", Report("p", tables=(tree,)))
    assert re.findall(r'<tr data-depth="(\d)">', page) == ["0", "1", "2", "1"]
    assert re.findall(r"--w:([\d.]+)%", page) == ["100.0", "75.0", "25.0"]
    assert "<th" in page and ">depth<" not in page


def test_a_page_of_a_large_model_is_bounded_and_says_what_it_leaves_out() -> None:
    nodes = 20_000
    table = Table.of([(f"layer.{at}.block", at, at) for at in range(nodes)], ["node", "size:bytes", "n:count"], "nodes")
    modules = Table.of(
        [(str(at), 0 if not at else 1 + at % 2, at) for at in range(nodes)], ["module:text", "depth:index", "n:count"], "modules"
    )
    tree = replace(modules, depth="depth")
    page = rendered("html", Report("p", tables=(table,) * 8 + (tree,)))
    assert len(page) < 4_000_000
    assert page.count("19,000 more rows; --rows 0 shows all") == 8
    assert "more rows" in page.rpartition("<h3")[2]


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


# The example in docs/reports.md runs, and what the page lists is what there is.

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")


def names_of(example: str) -> dict[str, object]:
    """What the example that contains this text defines."""
    names: dict[str, object] = {}
    exec(next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if example in block), names)
    return names


def test_the_lines_for_scripts_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    table = names_of("irscope.load")["table"]
    assert isinstance(table, Table) and table.to_dicts()
    assert "activation peak bytes" in capsys.readouterr().out


def test_the_example_runs() -> None:
    report = names_of("Largest")["report"]
    assert isinstance(report, Report)
    shown = "".join(renderer("text")(examples.document(report), RenderOptions()))
    assert "~8.13 MiB  cuBLAS" in shown
    assert "122.11 MFLOPs" in shown


def test_every_kind_is_listed() -> None:
    match = re.search(r"Kinds: `(.*?)`", PAGE)
    assert match
    assert match[1].split() == [kind.value for kind in Kind]


# What every command's answer may have besides tables: a headline, several subjects, columns of details, a JSON schema of its own.


def answered(**fields: Any) -> Document:
    table = Table.of([("a", 1, 2)], ["name", "size:bytes", Column("made", Kind.BYTES, detail=True)], "rows")
    return Document(reports=(Report("compare", headline=("B needs <1 %> more",), summary={"nodes": 3}, tables=(table,)),), **fields)


def test_the_headline_comes_first_in_every_format() -> None:
    document = answered()
    text = "".join(renderer("text")(document, RenderOptions())).splitlines()
    assert text[0] == "compare" and text[2:5] == ["  B needs <1 %> more", "", "  nodes  3"]
    assert '<p class="headline">B needs &lt;1 %&gt; more</p>' in "".join(renderer("html")(document, RenderOptions()))
    (report,) = json.loads("".join(renderer("json")(document, RenderOptions())))["reports"]
    assert report["headline"] == ["B needs <1 %> more"]
    assert "headline" not in examples.document(examples.liveness()).to_json()["reports"][0]  # type: ignore[index]  # a mapping of reports
    jsonschema.Draft202012Validator(json.loads(report_schema())).validate(document.to_json())


def test_details_are_left_out_of_text_alone() -> None:
    document = answered()
    text = "".join(renderer("text")(document, RenderOptions()))
    assert "name  size" in text and "made" not in text
    assert "made" in "".join(renderer("html")(document, RenderOptions()))
    assert "".join(renderer("csv")(document, RenderOptions())) == "name,size,made\na,1,2\n"
    assert [column["key"] for column in document.to_json()["reports"][0]["tables"][0]["columns"]] == ["name", "size", "made"]  # type: ignore[index]


def test_a_table_of_nothing_but_details_is_not_in_text() -> None:
    table = Table.of([], [Column("made", Kind.BYTES, detail=True)], "rows")
    assert "rows" not in "".join(renderer("text")(Document(reports=(Report("p", tables=(table,)),)), RenderOptions()))


def test_a_document_may_be_about_several_things() -> None:
    subjects = (Subject("A", ("a.onnx", "3 nodes"), ("assumed: batch=1",)), Subject("B", ("b<1>.onnx", "")))
    document = answered(subjects=subjects)
    text = "".join(renderer("text")(document, RenderOptions())).splitlines()
    assert text[:5] == ["A  a.onnx · 3 nodes", "   assumed: batch=1", "B  b<1>.onnx", "", "compare"]
    page = "".join(renderer("html")(document, RenderOptions()))
    assert (
        "<title>a.onnx, b&lt;1&gt;.onnx - irscope</title>" in page and "<h1>B: b&lt;1&gt;.onnx</h1>" in page and "assumed: batch=1" in page
    )


def test_a_document_may_have_a_schema_of_its_own() -> None:
    document = answered(own_json=lambda made: {"schema": "mine/1", "passes": [report.pass_name for report in made.reports]})
    assert json.loads("".join(renderer("json")(document, RenderOptions()))) == {"schema": "mine/1", "passes": ["compare"]}
