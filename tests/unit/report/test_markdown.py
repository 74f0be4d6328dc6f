"""Markdown shows every text as it is, whatever a model holds, and a model card begins with metadata that hubs can read.

What the text becomes is asked of markdown-it, which reads GitHub's dialect as hubs do.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import irscope
from irscope.cli.main import main
from irscope.report import Document, ModelInfo, RenderOptions, Report, Table, renderer
from irscope.report.mdout import md_code, md_line, md_text
from irscope.report.printable import legible
from tests.unit.report import examples

SAMPLES = Path(__file__).parents[3] / "samples"
READER = MarkdownIt("gfm-like", {"html": True})
HOSTILE = (
    *examples.EVIL,
    "a|b",
    "a\\",
    "a\\|b",
    "`code`",
    "``",
    "`|`\\",
    "**bold** _it_ ~~gone~~ ~x~",
    "[link](http://a.b) ![x](y)",
    "<b>bold</b> <!-- c -->",
    "@somebody #12 org/repo#3",
    "www.example.com https://example.com",
    "user@example.com",
    "deadbeef1 0123456789abcdef",
    ":tada:",
    "# head",
    "- item",
    "1. one",
    "2) two",
    "> quote",
    "===",
    "---",
    "+ plus",
    "&amp; &#124; &nbsp;",
    "$x$ $$y$$",
    "| --- |",
    "</td></table><script>alert(1)</script>",
    "\u202eevil\u2066",
    "x\r\n\r\n# y",
    "    indented",
    "\\`x\\`",
)
texts = st.text(max_size=20) | st.sampled_from(HOSTILE) | st.text("`|\\*_<>&[]()#@-+.:~! 1ab", max_size=12)


class Shown(HTMLParser):
    """The text that a reader sees, and the tags that it is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.is_in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert tag == "td" or not attrs or [name for name, _ in attrs] == ["style"], (tag, attrs)
        if tag in ("td", "th"):
            self.cells.append("")
            self.is_in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self.is_in_cell = self.is_in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.is_in_cell:
            self.cells[-1] += data


def shown(markdown: str) -> Shown:
    found = Shown()
    found.feed(READER.render(markdown))
    return found


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("\xa0", " ")).strip()


@given(texts)
def test_a_text_is_what_a_reader_sees(text: str) -> None:
    wanted = squeezed(legible(text))
    for made, allowed in ((md_text(text), {"p", "code"}), (md_code(text), {"p", "code"})):
        found = shown(f"x {made} y")
        assert squeezed(found.text) == squeezed(f"x {legible(text)} y"), made
        assert set(found.tags) <= allowed
    found = shown(f"{md_line(text)} y")
    assert squeezed(found.text) == squeezed(f"{wanted} y")
    assert set(found.tags) <= {"p", "code"}


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=3))
def test_a_table_has_the_cells_that_were_written(rows: list[tuple[str, str]]) -> None:
    report = Report("p", tables=(Table.of(rows, ["node", "why:text"], "t"),))
    found = shown("".join(renderer("md")(examples.document(report), RenderOptions())))
    assert list(map(squeezed, found.cells)) == ["node", "why", *(squeezed(legible(cell)) for row in rows for cell in row)]


@given(texts)
def test_every_part_of_a_document_may_be_hostile(text: str) -> None:
    table = Table.of([(text, 1)], ["node", "size:bytes"], text)
    report = Report(text, text, {text or "x": text}, tables=(table,), notes=(text,), headline=(text,))
    markdown = "".join(renderer("md")(Document("1", ModelInfo(text, "onnx"), (report,)), RenderOptions()))
    assert set(shown(markdown).tags) <= {
        *("h1", "h2", "p", "strong", "code", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "details", "summary", "sub")
    }


@pytest.mark.parametrize("length", [10_000_000])
def test_a_name_of_ten_megabytes_is_cut(length: int) -> None:
    name = "<|`" * (length // 3)
    report = Report("p", summary={"x": name}, tables=(Table.of([(name,)], ["node"], name),))
    for form in ("md", "html"):
        assert len("".join(renderer(form)(Document("1", ModelInfo(name, "onnx"), (report,)), RenderOptions()))) < 300_000


def test_a_model_card_begins_with_what_hubs_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["run", "--bind", "batch=8", "--device", "l4", str(SAMPLES / "mlp.irs")]
    assert main([*given, "--format", "md", "--grid", "FRA"]) == 0
    text = capsys.readouterr().out
    _, metadata, body = re.split(r"^---$\n?", text, maxsplit=2, flags=re.M)
    assert re.findall(r"^(\w+):", metadata, re.M) == ["tags"]
    found = shown(body)
    assert {"h1", "table"} <= set(found.tags) and "NVIDIA L4" in found.text and body.startswith("\n# `mlp.irs`")
    assert len(text.splitlines()) < 120, "two pages"
    assert main([*given, "--format", "md-issue"]) == 0
    assert capsys.readouterr().out.startswith("# `")


def test_other_grids_are_a_number_of_grams(capsys: pytest.CaptureFixture[str]) -> None:
    grams = []
    for grid in ("100", "200"):
        assert main(["run", "--bind", "batch=8", "--passes", f"energy{{grid={grid}}}", "--format", "json", str(SAMPLES / "mlp.irs")]) == 0
        [report] = json.loads(capsys.readouterr().out)["reports"]
        grams.append(float(report["summary"]["grams_of_co2"]))
    assert grams[1] == pytest.approx(2 * grams[0], rel=1e-4)
    assert main(["run", "--format", "md-issue", "--grid", "ATLANTIS", str(SAMPLES / "mlp.irs")]) == 2
    assert "ATLANTIS" in capsys.readouterr().err


def test_what_is_folded_and_left_out_says_so() -> None:
    many = Table.of([(str(at), at) for at in range(50)], ["node", "n:count"], "many")
    few = replace(many.first(3), title="few")
    markdown = "".join(renderer("md")(examples.document(Report("p", tables=(many, few))), RenderOptions()))
    assert "<details><summary>many</summary>" in markdown and "30 more rows" in markdown and "**few**" in markdown
    assert len(shown(markdown).cells) == 2 + 2 * 20 + 2 + 2 * 3


def test_a_tree_keeps_its_levels() -> None:
    tree = replace(Table.of([("(model)", 0), ("  a", 1)], ["tree:text", "depth:index"], "t"), depth="depth")
    markdown = "".join(renderer("md")(examples.document(Report("p", tables=(tree,))), RenderOptions()))
    assert "| &nbsp;&nbsp;&nbsp;&nbsp;`a` |" in markdown


def test_a_report_of_python_is_a_part_of_a_page() -> None:
    model = irscope.load(SAMPLES / "mlp.irs", bind={"batch": 8})
    document = replace(model.document(irscope.run(model, "params")), card=irscope.card(model))
    markdown = "".join(renderer("md-issue")(document, RenderOptions()))
    assert "| **33,088** |" in markdown
