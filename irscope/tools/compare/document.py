"""The document of a comparison, its types, of which docs/compare.schema.json is generated, and limits of `--fail-on`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final, Literal, TypedDict

from irscope._version import __version__
from irscope.amounts import ANY, read_amount
from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.report.report import Document, ModelInfo, Report, Subject
from irscope.report.schema import ModelJson, ReportJson, ToolJson
from irscope.report.table import Table
from irscope.report.values import bare

SCHEMA: Final = "irscope.compare/1"


def comparison_document(kind: str, a: ModelInfo, b: ModelInfo | RecordingJson, report: Report, subject: Sequence[str] = ()) -> Document:
    """Return what was compared, `kind` being models or recording, with the report about it; `subject` is what a line says of B."""

    def compare_json(document: Document) -> CompareJson:
        (shown,) = document.reports
        return {
            "schema": SCHEMA,
            "kind": kind,
            "tool": {"name": "irscope", "version": __version__},
            "a": a.to_json(),
            "b": b.to_json() if isinstance(b, ModelInfo) else b,
            "headline": list(shown.headline),
            "reports": [replace(shown, headline=()).to_json()],
        }

    second = _of_model("B", b) if isinstance(b, ModelInfo) else Subject("B", tuple(subject))
    tables = tuple(_unknown_as_details(table) for table in report.tables)
    return Document(reports=(replace(report, tables=tables),), subjects=(_of_model("A", a), second), own_json=compare_json)


_SMALL = 0.0005


def change_text(share: float) -> str:
    """Return a change as a share, with its sign; a small one is no "-0.0%"."""
    return f"{share:+.1%}" if abs(share) >= _SMALL else f"{100 * share:+.1g}%"


def _of_model(name: str, model: ModelInfo) -> Subject:
    return Subject(name, (model.path or "(no file)", *model.facts()), tuple(model.assumed_lines))


def _unknown_as_details(table: Table) -> Table:
    """Return a table whose columns are details where nothing in them is known: most of what can be compared is the same, or on no side."""
    known = {column.key for column in table.columns if any(bare(cell) not in (None, "") for cell in table.cells(column.key))}
    return replace(table, columns=tuple(column if column.key in known else replace(column, detail=True) for column in table.columns))


# The JSON document of a comparison as types, from which its published JSON Schema is generated.


class RecordingJson(TypedDict):
    """A recording's own facts."""

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


# What `--fail-on` says: limits that a comparison must keep, such as peak>5% or unmatched>0.

_TERM = re.compile(r"\s*([a-z_]+)\s*>\s*([^\s,]+)\s*")
_EXAMPLE = "for example `--fail-on 'peak>5%,flops>0%'`"


@immutable
class Measure:
    """An amount that a threshold may be about, and its share of what it is compared with. None is unknown."""

    amount: float | None
    share: float | None
    text: str
    """The difference for people."""


@immutable
class Threshold:
    """One limit."""

    name: str
    limit: float
    relative: bool
    text: str

    def is_passed(self, measure: Measure) -> bool | None:
        """Return whether a measure exceeds the limit; None where that is unknown."""
        value = measure.share if self.relative else measure.amount
        return None if value is None else value > self.limit


def parse_thresholds(texts: Sequence[str], known: Sequence[str]) -> list[Threshold]:
    """Return the limits that arguments name; UsageError for what makes no sense."""
    thresholds: list[Threshold] = []
    for part in (part for text in texts for part in text.split(",") if part.strip()):
        term = _TERM.fullmatch(part)
        if term is None:
            raise UsageError(f"--fail-on {part.strip()!r} is not of the form NAME>LIMIT", code="IRS660", hint=_EXAMPLE)
        name, limit = term.groups()
        if name not in known:
            raise UsageError(f"{name!r} is not a limit of --fail-on", code="IRS660", hint=f"limits: {', '.join(known)}")
        value = read_amount(limit, ANY)
        if value is None:
            raise UsageError(f"--fail-on {part.strip()!r}: {limit!r} is not a number", code="IRS660", hint=_EXAMPLE)
        thresholds.append(Threshold(name, value, limit.endswith("%"), part.strip()))
    return thresholds


@immutable
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
    for threshold in thresholds:
        measure = measures[threshold.name]
        beyond = threshold.is_passed(measure)
        if beyond is None:
            unknown.append(f"{threshold.text}: the difference is not known")
        elif beyond:
            passed.append(f"{threshold.text}: {measure.text}")
    return Verdict(tuple(passed), tuple(unknown))
