"""A comparison as text, JSON and CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from irscope import __version__
from irscope.comparing.jsontypes import CompareJson, RecordingJson
from irscope.files import write_stream, write_text
from irscope.report.csvout import render as render_csv
from irscope.report.csvout import render_files
from irscope.report.jsonout import json_lines
from irscope.report.options import RenderOptions
from irscope.report.printable import cut_middle, printable
from irscope.report.report import Document, ModelInfo, Report
from irscope.report.select import Selection, select
from irscope.report.table import Table
from irscope.report.text import render as render_text
from irscope.report.values import Quantity, bare
from irscope.report.write import write_folder

SCHEMA: Final = "irscope.compare/1"
FORMATS: Final = ("text", "json", "csv")
_WIDE: Final = frozenset(
    {
        *("node_a", "node_b", "matched_by", "weights_a", "weights_b", "name_b", "role"),
        *("recorded", "predicted_made", "measured_made", "workspace", "efficiency", "flops"),
    }
)
"""Columns that text leaves out."""
_SAID: Final = frozenset({"matched", "rows"})
"""Parts of the summary that the headline has already."""
_LONGEST = 24
"""Characters of a formula in text."""
_NOTHING = ModelInfo("", "")


@dataclass(frozen=True)
class Comparison:
    """What was compared, and the report about it."""

    kind: str
    """models, or recording."""
    a: ModelInfo
    b: ModelInfo | RecordingJson
    """The other model, or what a recording says of itself."""
    report: Report
    headline: tuple[str, ...] = ()
    """The headline."""
    subject: str = ""
    """The second line of a text: what B is."""

    def selected(self, wanted: Selection) -> Comparison:
        """With its tables sorted, filtered and cut."""
        return replace(self, report=select(self._document, wanted).reports[0])

    @property
    def _document(self) -> Document:
        return Document(__version__, _NOTHING, (self.report,))

    def to_json(self) -> CompareJson:
        """The JSON document."""
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "tool": {"name": "irscope", "version": __version__},
            "a": self.a.to_json(),
            "b": self.b.to_json() if isinstance(self.b, ModelInfo) else self.b,
            "headline": list(self.headline),
            "reports": [self.report.to_json()],
        }

    def text(self, options: RenderOptions) -> Iterator[str]:
        """Lines for a reader."""
        separator = options.glyphs.separator
        subject = self.subject or (model_line(self.b, separator) if isinstance(self.b, ModelInfo) else "")
        lines = [f"A  {model_line(self.a, separator)}", *(f"   {line}" for line in self.a.assumed_lines), f"B  {subject}"]
        lines += [f"   {line}" for line in self.b.assumed_lines] if isinstance(self.b, ModelInfo) else []
        for line in (*lines, "", *self.headline, ""):
            yield f"{printable(line, options.encoding).rstrip()}\n"
        shown = tuple(narrowed(table) for table in self.report.tables if len(table))
        summary = {key: _shortened(value) for key, value in self.report.summary.items() if key not in _SAID}
        yield from render_text(Document(__version__, _NOTHING, (replace(self.report, tables=shown, summary=summary),)), options)


def _shortened(value: object) -> object:
    """A part of a summary with its formulas cut so that numbers stay side by side."""
    if isinstance(value, Mapping):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, Quantity) and isinstance(value.shown, str):
        return replace(value, value=cut_middle(value.shown, _LONGEST, "..."), formula=None)
    return value


def narrowed(table: Table) -> Table:
    """A table without the columns that only other formats have room for, and without columns of unknown cells."""
    kept = tuple(
        column
        for column in table.columns
        if column.key not in _WIDE and any(bare(cell) is not None and bare(cell) != "" for cell in table.cells(column.key))
    )
    return replace(table, columns=kept, data={column.key: table.data[column.key] for column in kept})


def model_line(model: ModelInfo, separator: str) -> str:
    """A model in a line."""
    return separator.join(part for part in (model.path or "(no file)", *model.facts()) if part)


def write(compared: Comparison, format_name: str, output: str | None, options: RenderOptions) -> None:
    """Write a comparison to standard output, a file, or with CSV a folder with one file a table."""
    document = Document(__version__, _NOTHING, (compared.report,))
    if output is None or output == "-":
        write_stream(sys.stdout, _chunks(compared, format_name, document, options))
    elif output.endswith("/") and format_name == "csv":
        write_folder(Path(output), render_files(document, options))
    else:
        write_text(Path(output), _chunks(compared, format_name, document, options))


def _chunks(compared: Comparison, format_name: str, document: Document, options: RenderOptions) -> Iterator[str]:
    if format_name == "json":
        return json_lines(compared.to_json())
    if format_name == "csv":
        return render_csv(document, options)
    return compared.text(options)
