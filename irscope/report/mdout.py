"""The document in GitHub's Markdown, for an issue, a comment or a model card: the card as a table, then a section for each report.

A model card begins with the metadata that hubs read (https://huggingface.co/docs/hub/model-cards): only what is known of the model
stands there, and no emissions, which are those of its training. Names out of a model are code, which nothing turns into a link, a
mention or markup; other texts are escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import PurePath

from irscope.report.card import Card
from irscope.report.cardtext import TENSOR_HEADS, card_view
from irscope.report.celltext import CellWriter
from irscope.report.htmlout import details
from irscope.report.options import RenderOptions
from irscope.report.printable import legible
from irscope.report.report import Document, Report, title_of
from irscope.report.table import Column, Entry, Table, grouped
from irscope.report.units import Kind
from irscope.report.values import Cell

ROWS = 20
"""Default number of rows shown of a table."""
_OPEN_ROWS = 10
"""A table with more rows is folded."""
_NAMES = frozenset({Kind.NODE, Kind.VALUE, Kind.DTYPE, Kind.SHAPE, Kind.FORMULA})
_LINKED = re.compile(r"[@#]|://|www\.|\b[0-9a-f]{7,40}\b|:\w+:", re.I)
"""Texts that hubs turn into mentions, links to issues and commits, addresses and pictures: harmless only as code."""
_MARKUP = re.compile(r"[\\`*\[\]~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_LINE_START = re.compile(r"^(\s*\d*)([-+=.)])")
"""Line starts that would begin a list, a heading or a rule."""
_TAGS = {
    "onnx": "onnx",
    "pt2": "pytorch",
    "torchscript": "pytorch",
    "module": "pytorch",
    "compiled": "pytorch",
    "checkpoint": "pytorch",
    "stablehlo": "jax",
}
_LIBRARIES = frozenset({"timm", "transformers"})
"""Packages of models by name that hubs know as libraries."""


def render(document: Document, options: RenderOptions) -> Iterator[str]:
    """Yield the text in pieces, a model card where it is about one model as a whole."""
    if document.card is not None:
        yield from _metadata(document.card)
    yield from render_issue(document, options)


def render_issue(document: Document, options: RenderOptions) -> Iterator[str]:
    """Yield the same without the metadata, which an issue or a comment would show as text."""
    if document.card is not None:
        yield from _card(document.card)
    elif document.subjects:
        for subject in document.subjects:
            path, *facts = subject.parts
            yield f"# {md_text(subject.name)}: {md_code(path)}\n\n{md_text(', '.join(filter(None, facts)))}\n\n"
            yield from (f"{md_line(remark)}\n\n" for remark in subject.remarks)
    elif document.model.path:
        yield f"# {md_code(document.model.path)}\n\n{md_line(', '.join(document.model.facts()))}\n\n"
    elif document.about:
        yield f"# {md_text(document.about)}\n\n"
    for line in document.model.assumed_lines:
        yield f"{md_line(line)}\n\n"
    for report in document.reports:
        yield from _section(report, options)
    yield f"<sub>Written by {md_text(document.writer)}.</sub>\n"


def md_text(raw: str) -> str:
    """Return any text within a line: it shows as it is, whatever it holds."""
    text = legible(raw)
    if _LINKED.search(text):
        return md_code(raw)
    return escape(_MARKUP.sub(r"\\\g<0>", text), quote=False).replace("|", "&#124;")


def md_line(raw: str) -> str:
    """Return any text that a line begins with."""
    return _LINE_START.sub(r"\1\\\2", md_text(raw))


def md_code(raw: str) -> str:
    """Return any text as code: between backticks, or where it has some itself, or what divides columns, as an element."""
    text = legible(raw)
    if text.strip() == text and text and not re.search(r"[`|]|\\$", text):
        return f"`{text}`"
    return f"<code>{''.join(char if char.isalnum() or char == ' ' else f'&#{ord(char)};' for char in text)}</code>"


def _bold(raw: str) -> str:
    """Return a paragraph; of nothing, nothing: four stars are a rule."""
    return f"**{md_text(raw.strip())}**\n\n" if raw.strip() else ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _card(card: Card) -> Iterator[str]:
    view = card_view(card)
    yield f"# {md_code(PurePath(card.identity.path).name or 'model')}\n\n**{md_text(view.verdict)}**\n\n"
    yield _row([md_text(tile.name) for tile in view.tiles])
    yield _row(["---"] * len(view.tiles))
    yield _row([f"**{md_text(tile.number)}**" for tile in view.tiles])
    yield _row([md_text(tile.note) for tile in view.tiles]) + "\n"
    yield _row(["", ""]) + _row(["---", "---"])
    yield from (_row([md_text(label), md_text(text)]) for label, text in view.facts)
    yield "\n"
    if view.tensors:
        yield "**Largest tensors at the peak**\n\n" + _row(TENSOR_HEADS)
        yield _row(["---:", "---", "---", "---", "---"])
        for size, name, category, place, why in view.tensors:
            yield _row([md_text(size), md_code(name), md_text(category), md_code(place) if place else "", md_text(why)])
        yield "\n"
    if card.remarks:
        yield "**What would help**\n\n"
        yield from (f"- {md_line(remark.text)}: saves **{md_text(remark.saves)}**\n" for remark in card.remarks)
        yield "\n"
    if card.next:
        yield "**To go on**\n\n"
        yield from (f"- {md_code(hint.line)} {md_text(hint.answers)}\n" for hint in card.next)
        yield "\n"
    if view.legend:
        yield f"{md_line(view.legend)}\n\n"


def _metadata(card: Card) -> Iterator[str]:
    """Yield what is known of the model, as hubs read it: YAML, of which JSON's texts are a part."""
    package = card.identity.path.partition(":")[0]
    library = package if package in _LIBRARIES else "onnx" if card.identity.format == "onnx" else ""
    tags = dict.fromkeys(
        filter(None, (_TAGS.get(card.identity.format, ""), package if package == "torchvision" else "", card.identity.family))
    )
    yield "---\n"
    if library:
        yield f"library_name: {json.dumps(library)}\n"
    yield "tags:\n" + "".join(f"- {json.dumps(legible(tag).replace(' ', '-'))}\n" for tag in [*tags, "irscope"])
    yield "---\n\n"


def _section(report: Report, options: RenderOptions) -> Iterator[str]:
    writer = CellWriter(RenderOptions(humanise=options.humanise))
    title = title_of(report)
    own = f" {md_code(report.options)}" if report.options and report.options != title else ""
    yield f"## {md_text(title)}{own}\n\n"
    yield from (_bold(line) for line in report.headline)
    yield from _summary(report.entries(), writer)
    for table in report.tables:
        yield from _table(table.without_details(), writer, options)
    for note in report.notes:
        yield f"- {md_line(note)}\n"
    yield "\n" if report.notes else ""
    if report.coverage is not None and report.coverage.known < report.coverage.total:
        unknown = f": {', '.join(map(md_code, report.coverage.unknown))}" if report.coverage.unknown else ""
        yield f"{report.coverage.known:,} of {report.coverage.total:,} are known; unknown{unknown}\n\n"
    for diagnostic in report.diagnostics:
        yield f"- {md_line(str(diagnostic))}\n"
    yield "\n" if report.diagnostics else ""
    if writer.legend():
        yield f"{md_line(writer.legend())}\n\n"


def _summary(entries: Sequence[Entry], writer: CellWriter) -> Iterator[str]:
    runs = grouped(entries)
    rows = []
    for entry in (entry for run in runs if len(run) == 1 for entry in run[0].entries):
        name = ": ".join(part.replace("_", " ") for part in entry.path)
        rows.append([md_text(name), md_text(writer.write(entry.cell, entry.kind)), md_text(details(entry.cell))])
    # A column in which nothing stands would only be wide.
    wide = 3 if any(row[2] for row in rows) else 2
    folded = len(rows) > _OPEN_ROWS
    if rows:
        yield "<details><summary>in numbers</summary>\n\n" if folded else ""
        yield _row([""] * wide) + _row(["---", "---:", "---"][:wide])
        yield from (_row(row[:wide]) for row in rows)
        yield "\n</details>\n\n" if folded else "\n"
    for run in runs:
        if len(run) > 1:
            above = ": ".join(part.replace("_", " ") for part in run[0].parent[:-1])
            yield _row([md_text(above), *(md_text(leaf.replace("_", " ")) for leaf in run[0].leaves)])
            yield _row(["---", *["---:"] * len(run[0].leaves)])
            for group in run:
                cells = (md_text(writer.write(entry.cell, entry.kind)) for entry in group.entries)
                yield _row([md_text(group.parent[-1].replace("_", " ")), *cells])
            yield "\n"


def _table(table: Table, writer: CellWriter, options: RenderOptions) -> Iterator[str]:
    if not table.columns or not len(table):
        return
    shown = table.first(ROWS if options.rows is None else options.rows)
    folded = len(shown) > _OPEN_ROWS
    yield f"<details><summary>{escape(legible(table.title))}</summary>\n\n" if folded else _bold(table.title)
    yield _row([md_text(column.heading) for column in table.columns])
    yield _row(["---:" if column.kind.is_number else "---" for column in table.columns])
    for row in shown.rows():
        cells = [_cell(cell, column, writer) for cell, column in zip(row, table.columns, strict=True)]
        yield _row([_branch(str(row[0])), *cells[1:]] if table.depth else cells)
    yield "\n"
    if left := table.left_out(shown, options.all_rows):
        yield f"{md_line(left)}\n\n"
    yield "</details>\n\n" if folded else ""


def _cell(cell: Cell, column: Column, writer: CellWriter) -> str:
    text = writer.write(cell, column.kind, column.provenance)
    return md_code(text) if text and column.kind in _NAMES else md_text(text)


def _branch(text: str) -> str:
    """Return a name of a tree, as far in as it is deep."""
    name = text.lstrip(" ")
    return "&nbsp;" * (2 * min(len(text) - len(name), 40)) + md_code(name)
