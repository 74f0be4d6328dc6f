"""What a pass answers with, and the document that holds the answers of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from irscope.diagnostics import Diagnostic
from irscope.report.printable import well_formed
from irscope.report.summary import Entry, entries
from irscope.report.table import Series, Table
from irscope.report.tojson import (
    formulas_json,
    intervals_json,
    provenance_json,
    remarks_json,
    series_json,
    summary_json,
    table_json,
    units_json,
)
from irscope.report.units import Kind

if TYPE_CHECKING:
    from irscope.report.jsontypes import CoverageJson, DiagnosticJson, DocumentJson, ModelJson, ReportJson

SCHEMA_NAME: Final = "irscope.report/1"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the model a pass knows; `unknown` names what it does not, each once."""

    known: int
    total: int
    unknown: tuple[str, ...] = ()

    def to_json(self) -> CoverageJson:
        return {"known": int(self.known), "total": int(self.total), "unknown": [well_formed(name) for name in self.unknown]}


@dataclass(frozen=True)
class Report:
    """What one pass found: a few numbers, tables, series, and what is to be said about them."""

    pass_name: str
    options: str = ""
    """The pipeline element that makes this report again."""
    summary: Mapping[str, object] = field(default_factory=dict)
    """Scalars, Quantities, and nested mappings of them."""
    units: Mapping[str, Kind] = field(default_factory=dict)
    """The kind of a summary value by its path with dots; a group's kind holds for all it contains.
    Keys that end in _bytes, _flops, _seconds, _ratio or _count need none."""
    tables: tuple[Table, ...] = ()
    series: tuple[Series, ...] = ()
    coverage: Coverage | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    notes: tuple[str, ...] = ()
    """The conventions the numbers follow, such as "a multiply-add is 2 FLOPs"."""
    partial: bool = False
    """Whether something that was asked for is missing; the command line then ends with exit code 5."""

    def entries(self) -> list[Entry]:
        """The summary as a flat list."""
        return list(entries(self.summary, self.units))

    def to_json(self) -> ReportJson:
        """The report as it stands in the JSON document."""
        found = self.entries()
        return {
            "pass": self.pass_name,
            "options": self.options or self.pass_name,
            "summary": summary_json(self.summary, self.units),
            "units": units_json(found),
            "provenance": provenance_json(found),
            "formulas": formulas_json(found),
            "intervals": intervals_json(found),
            "remarks": remarks_json(found),
            "notes": [well_formed(note) for note in self.notes],
            "tables": [table_json(table) for table in self.tables],
            "series": [series_json(series) for series in self.series],
            "coverage": (self.coverage or Coverage(0, 0)).to_json(),
            "diagnostics": [diagnostic_json(diagnostic) for diagnostic in self.diagnostics],
        }


def diagnostic_json(diagnostic: Diagnostic) -> DiagnosticJson:
    """A diagnostic as it stands in the JSON document."""
    result: DiagnosticJson = {
        "severity": diagnostic.severity.text,
        "code": diagnostic.code,
        "message": well_formed(diagnostic.message),
        "node": well_formed(diagnostic.node),
    }
    if diagnostic.location:
        result["location"] = well_formed(diagnostic.location)
    if diagnostic.hint:
        result["hint"] = well_formed(diagnostic.hint)
    if diagnostic.count != 1:
        result["count"] = diagnostic.count
    return result


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a document says about the model itself; None where a number is unknown."""

    path: str
    format: str
    sha256: str = ""
    nodes: int = 0
    parameters: int | None = None
    parameter_bytes: int | None = None
    bind: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> ModelJson:
        return {
            "path": well_formed(self.path),
            "format": self.format,
            "sha256": self.sha256,
            "nodes": int(self.nodes),
            "parameters": None if self.parameters is None else int(self.parameters),
            "parameter_bytes": None if self.parameter_bytes is None else int(self.parameter_bytes),
            "bind": {well_formed(symbol): int(size) for symbol, size in self.bind.items()},
        }


@dataclass(frozen=True)
class Document:
    """Everything one run found out about a model: what every renderer takes."""

    version: str
    """Of irscope."""
    model: ModelInfo
    reports: tuple[Report, ...] = ()

    def to_json(self) -> DocumentJson:
        """The whole JSON document."""
        return {
            "schema": SCHEMA_NAME,
            "tool": {"name": "irscope", "version": self.version},
            "model": self.model.to_json(),
            "reports": [report.to_json() for report in self.reports],
        }
