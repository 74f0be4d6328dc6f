"""The document of a comparison, its types and its JSON Schema.

`python -m irscope.tools.compare.document` prints the schema; docs/compare.schema.json is a copy.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal, TypedDict

from irscope import __version__
from irscope.amounts import ANY, read_amount
from irscope.errors import UsageError
from irscope.files import write_stream, write_text
from irscope.report.csvout import render as render_csv
from irscope.report.csvout import render_files
from irscope.report.jsonout import json_lines
from irscope.report.options import RenderOptions
from irscope.report.printable import cut_middle, printable
from irscope.report.renderers import write_folder
from irscope.report.report import Document, ModelInfo, Report
from irscope.report.schema import ModelJson, ReportJson, ToolJson, schema_of
from irscope.report.select import Selection, select
from irscope.report.table import Table
from irscope.report.text import render as render_text
from irscope.report.values import Quantity, bare

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


# ----------------------------------------------------------------------------------------------------
# The JSON document of a comparison as types, from which its published JSON Schema is generated.


class RecordingJson(TypedDict):
    """What a recording says of itself."""

    path: str
    schema: Annotated[str, "Of the recording."]
    executor: Annotated[str, "torch-cpu, torch-cuda, ort-cpu or ort-cuda."]
    model: Annotated[str, "What was recorded."]
    sha256: Annotated[str, "Of the model's file; empty where there is none."]
    device: str
    versions: dict[str, str]
    created: str
    operators: int
    complete: Annotated[bool, "False where it was cut short or the run failed."]


class CompareJson(TypedDict):
    """Two models side by side, or a model and a recording."""

    schema: Literal["irscope.compare/1"]
    kind: Annotated[str, "models, or recording."]
    tool: ToolJson
    a: ModelJson
    b: ModelJson | RecordingJson
    headline: Annotated[list[str], "The answer in a few lines, for people."]
    reports: Annotated[list[ReportJson], "One report with the numbers, tables and series."]


# ----------------------------------------------------------------------------------------------------
# The JSON Schema of a comparison.


def schema_text() -> str:
    """The schema as it is published."""
    return "".join(json_lines(schema_of(CompareJson, SCHEMA)))


if __name__ == "__main__":
    sys.stdout.write(schema_text())


# ----------------------------------------------------------------------------------------------------
# What `--fail-on` says: limits that a comparison must keep, such as peak>5% or unmatched>0.

_TERM = re.compile(r"\s*([a-z_]+)\s*>\s*([^\s,]+)\s*")
_EXAMPLE = "for example `--fail-on 'peak>5%,flops>0%'`"


@dataclass(frozen=True, slots=True)
class Measure:
    """What a threshold may be about: an amount, and what share it is of what it is compared with. None is unknown."""

    amount: float | None
    share: float | None
    text: str
    """The difference for people."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """One limit."""

    name: str
    limit: float
    relative: bool
    text: str

    def is_passed(self, measure: Measure) -> bool | None:
        """Whether a measure exceeds the limit; None where that is unknown."""
        value = measure.share if self.relative else measure.amount
        return None if value is None else value > self.limit


def parse_thresholds(texts: Sequence[str], known: Sequence[str]) -> list[Threshold]:
    """The limits that arguments name; UsageError for what makes no sense."""
    found: list[Threshold] = []
    for part in (part for text in texts for part in text.split(",") if part.strip()):
        term = _TERM.fullmatch(part)
        if term is None:
            raise UsageError(f"--fail-on {part.strip()!r} is not of the form NAME>LIMIT", code="IRS660", hint=_EXAMPLE)
        name, limit = term.groups()
        if name not in known:
            raise UsageError(f"--fail-on knows no {name!r}", code="IRS660", hint=f"there are {', '.join(known)}")
        value = read_amount(limit, ANY)
        if value is None:
            raise UsageError(f"--fail-on {part.strip()!r}: {limit!r} is no number", code="IRS660", hint=_EXAMPLE)
        found.append(Threshold(name, value, limit.endswith("%"), part.strip()))
    return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """Results of the thresholds."""

    passed: tuple[str, ...]
    """Limits that were passed, each with the number, for people."""
    unknown: tuple[str, ...]
    """Limits that cannot be checked, because a number is unknown."""


def judge(thresholds: Sequence[Threshold], measures: Mapping[str, Measure]) -> Verdict:
    """Compare measures with their limits."""
    passed: list[str] = []
    unknown: list[str] = []
    for one in thresholds:
        measure = measures[one.name]
        beyond = one.is_passed(measure)
        if beyond is None:
            unknown.append(f"{one.text}: the difference is not known")
        elif beyond:
            passed.append(f"{one.text}: {measure.text}")
    return Verdict(tuple(passed), tuple(unknown))
