"""The answer of a pass, and the document that holds the answers of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from irscope._version import __version__
from irscope.diagnostics import Diagnostic
from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.program import Assumed
from irscope.report.card import Card
from irscope.report.celltext import CellWriter
from irscope.report.jsonout import (
    built,
    formulas_json,
    intervals_json,
    provenance_json,
    remarks_json,
    series_fields,
    summary_json,
    table_fields,
    units_json,
)
from irscope.report.options import RenderOptions, shown_alone
from irscope.report.printable import well_formed
from irscope.report.table import Entry, Series, Table, entries, unknown_summary
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance

if TYPE_CHECKING:
    from irscope.report.drawing import Drawing
    from irscope.report.picture import Panel
    from irscope.report.schema import AssumedJson, CoverageJson, DiagnosticJson, ModelJson, ReportJson

_IN_REPR = 6
"""Numbers of the summary that stand in a report's repr."""
SCHEMA_NAME: Final = "irscope.report/1"
NO_GRAPH: Final = "the file holds weights but no graph: what runs, its cost and its memory are unknown"


_TITLES: Mapping[str, str] = MappingProxyType(
    {
        "modules": "Modules",
        "liveness": "Memory over the run",
        "explain-peak": "What would lower the peak",
        "flops": "Arithmetic",
        "bytes": "Bytes moved",
        "roofline": "Least time",
        "time": "Predicted time",
        "energy": "Energy",
        "advise": "Advice",
        "params": "Parameters",
        "shapes": "Shapes",
        "arch": "Kind of model",
        "training": "A training step",
        "activations": "Saved for the backward",
        "checkpoint": "What to recompute",
        "simulate": "The simulated program",
    }
)


@immutable
class Coverage:
    """Known share of the model in a pass; `unknown` names the rest, each name once."""

    known: int
    total: int
    unknown: tuple[str, ...] = ()

    def to_json(self) -> CoverageJson:
        return {"known": int(self.known), "total": int(self.total), "unknown": [well_formed(name) for name in self.unknown]}


@dataclass(frozen=True, repr=False)
class Report:
    """Result of a pass: a few numbers, tables, series, and remarks."""

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
    """True where a requested part is missing; the command line then ends with exit code 5."""

    inferred: str = ""
    """An inference from text that its numbers rest on, and how to do without: with --strict an error, as a guess is."""
    is_assumed: bool = False
    """True where something about the run was guessed, so that the summary's numbers are assumed; tables say it themselves."""
    headline: tuple[str, ...] = ()
    """The answer in a line or a few, for people."""
    pictures: Callable[[], Sequence[Series | Panel]] | None = field(default=None, compare=False)
    """Pictures beyond its series, for pages and `--plot`; computed when they are shown."""

    @cached_property
    def drawn(self) -> tuple[Series | Panel, ...]:
        """Its series, and its further pictures."""
        return (*self.series, *(self.pictures() if self.pictures is not None else ()))

    def table(self, title: str = "") -> Table:
        """Return a table by its title; the first without one. UsageError (IRS451) where there is none of that title."""
        wanted = title.casefold()
        table = next((table for table in self.tables if not title or table.title.casefold() == wanted), None)
        if table is None:
            known = ", ".join(repr(table.title) for table in self.tables)
            raise UsageError(
                f"the report of {self.pass_name} has no table {title!r}" if title else f"the report of {self.pass_name} has no tables",
                code="IRS451",
                hint=f"tables: {known}" if known else "its summary has what it found",
            )
        return table

    def to_pandas(self, title: str = "") -> Any:
        """Return a table, as `table` finds it, as a pandas DataFrame."""
        return self.table(title).to_pandas()

    def __str__(self) -> str:
        """Return the report as `irscope run` prints it."""
        return shown_alone(self, "text")

    def __repr__(self) -> str:
        """Return a line a person can use: the first numbers of the summary, and which tables there are."""
        writer = CellWriter(RenderOptions())
        found = self.entries()
        shown = [f"{entry.key} {writer.write(entry.cell, entry.kind, Provenance.EXACT)}" for entry in found[:_IN_REPR]]
        shown += ["..."] * (len(found) > _IN_REPR)
        tables = [f"tables {', '.join(repr(table.title) for table in self.tables)}"] * bool(self.tables)
        return f"<Report {self.options or self.pass_name}: {'; '.join((', '.join(shown), *tables))}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return shown_alone(self, "html")

    def entries(self) -> list[Entry]:
        """Return the summary as a flat list."""
        found = entries(self.summary, self.units)
        return [entry.assumed() for entry in found] if self.is_assumed else list(found)

    def assumed(self) -> Report:
        """Return the report with numbers that depend on a guess."""
        return replace(
            self,
            is_assumed=True,
            tables=tuple(table.assumed() for table in self.tables),
            series=tuple(series.assumed() for series in self.series),
        )

    def without_graph(self, known: Collection[str]) -> Report:
        """Return only these parts of the summary and tables, for files without a graph."""
        found = self.entries()
        return replace(
            self,
            summary=unknown_summary(self.summary, self.units, known),
            units={**self.units, **{entry.key: entry.kind for entry in found}},
            tables=tuple(table for table in self.tables if table.title in known),
            series=(),
            coverage=Coverage(0, 1, ("the graph",)),
            notes=(NO_GRAPH,),
            partial=True,
        )

    def to_json(self) -> ReportJson:
        """Return the report's part of the JSON document."""
        made: ReportJson = built(self._json_parts())
        return made

    def _json_parts(self) -> dict[str, object]:
        """Return the same, rows of tables and numbers of curves made while they are written."""
        found = self.entries()
        made: dict[str, object] = {
            "pass": self.pass_name,
            "options": self.options or self.pass_name,
            "summary": summary_json(self.summary, self.units),
            "units": units_json(found),
            "provenance": provenance_json(found),
            "formulas": formulas_json(found),
            "intervals": intervals_json(found),
            "remarks": remarks_json(found),
            "notes": [well_formed(note) for note in self.notes],
            "tables": [table_fields(table) for table in self.tables],
            "series": [series_fields(series) for series in self.series],
            "coverage": (self.coverage or Coverage(0, 0)).to_json(),
            "diagnostics": [diagnostic_json(diagnostic) for diagnostic in self.diagnostics],
        }
        if self.headline:
            made["headline"] = [well_formed(line) for line in self.headline]
        return made


def title_of(report: Report) -> str:
    """Return what a report is called for people who do not know passes."""
    return _TITLES.get(report.pass_name) or report.options or report.pass_name


def diagnostic_json(diagnostic: Diagnostic) -> DiagnosticJson:
    """Return a diagnostic as it stands in the JSON document."""
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


def assumed_json(assumed: Iterable[Assumed]) -> list[AssumedJson]:
    """Return what was assumed, as it stands in JSON documents."""
    return [
        {"what": well_formed(assumed.what), "value": well_formed(assumed.value), "why": well_formed(assumed.why), "guess": assumed.is_guess}
        for assumed in assumed
    ]


def assumed_lines(assumed: Sequence[Assumed]) -> list[str]:
    """Return what was assumed, as people read it: a line for each guess, one for everything else."""
    usual = [assumed.text for assumed in assumed if not assumed.is_guess]
    return [*(f"assumed: {assumed.text}" for assumed in assumed if assumed.is_guess), *([f"settings: {', '.join(usual)}"] if usual else [])]


@immutable
class ModelInfo:
    """Facts of a document about the model itself; None where a number is unknown."""

    path: str
    format: str
    digest: Callable[[], str] = field(default=str, compare=False)
    """Computes `sha256`, which takes as long as reading the file: only what prints it asks."""
    nodes: int | None = 0
    """None for a file of weights without a graph."""
    parameters: int | None = None
    parameter_bytes: int | None = None
    bind: Mapping[str, int] = field(default_factory=dict)
    short_names: Mapping[str, str] = field(default_factory=dict)
    """Short names of open symbols with unwieldy ones, which `--bind` takes too."""
    assumed: tuple[Assumed, ...] = ()
    """Assumptions about the run: what was not specified, and the value that was assumed."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """Diagnostics of reading the model."""
    unsized: int = 0
    """Parameters of unknown size, which the numbers leave out: these are lower bounds then."""
    changed: str = ""
    """Effect of the transforms, such as "17 after the transforms": the numbers are those of the file."""
    are_inputs: bool = False
    """True where parameters are among the inputs, and nobody says which."""

    @property
    def sha256(self) -> str:
        """Return the digest of the file's content; empty where there is no file."""
        return self.digest()

    @property
    def is_guessed(self) -> bool:
        return any(assumption.is_guess for assumption in self.assumed)

    @property
    def assumed_lines(self) -> list[str]:
        """Return each guess as a sentence, the defaults together."""
        return assumed_lines(self.assumed)

    def facts(self) -> list[str]:
        """Return what a line about the model says behind its path."""
        sign = "at least " if self.unsized else ""
        count = None if self.unsized and not self.parameters else self.parameters
        size = None if self.unsized and not self.parameters else self.parameter_bytes
        facts = [
            self.format,
            "no graph" if self.nodes is None else f"{self.nodes:,} nodes{f', {self.changed}' if self.changed else ''}",
            "parameters among the inputs"
            if self.are_inputs
            else f"{sign if count is not None else ''}{humanise(count, Kind.COUNT)} parameters",
        ]
        if size is not None or self.unsized or count is not None:
            facts.append(f"{sign if size is not None else ''}{humanise(size, Kind.BYTES)}")
        if self.bind:
            facts.append(f"bind {','.join(f'{symbol}={value}' for symbol, value in self.bind.items())}")
        facts.extend(f"{short} = {symbol}" for short, symbol in self.short_names.items())
        return facts

    def to_json(self) -> ModelJson:
        return {
            "path": well_formed(self.path),
            "format": self.format,
            "sha256": self.sha256,
            "nodes": int(self.nodes or 0),
            "has_graph": self.nodes is not None,
            "parameters": None if self.parameters is None or self.unsized else int(self.parameters),
            "parameter_bytes": None if self.parameter_bytes is None or self.unsized else int(self.parameter_bytes),
            "bind": {well_formed(symbol): int(size) for symbol, size in self.bind.items()},
            "short_names": {short: well_formed(symbol) for short, symbol in self.short_names.items()},
            "assumed": assumed_json(self.assumed),
            "diagnostics": [diagnostic_json(diagnostic) for diagnostic in self.diagnostics],
        }


@immutable
class Subject:
    """One of several things that a document is about, such as a side of a comparison."""

    name: str
    parts: tuple[str, ...]
    """Parts of a line about it: its path, then facts."""
    remarks: tuple[str, ...] = ()
    """Such as what was assumed about it."""


@immutable(slots=False)
class Document:
    """Everything one run found out about a model: what every renderer takes."""

    version: str = __version__
    """Of irscope."""
    model: ModelInfo = field(default_factory=lambda: ModelInfo("", ""))
    reports: tuple[Report, ...] = ()
    subjects: tuple[Subject, ...] = ()
    """Subjects, where text and HTML name more than the model alone."""
    card: Card | None = None
    """The model on one screen, where nobody asked for certain passes."""
    drawing: Drawing | None = None
    """The model's graph, which pages draw."""
    own_json: Callable[[Document], Mapping[str, object]] | None = None
    """Writes the JSON of a document that has a schema of its own."""

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return shown_alone(self, "html")

    @property
    def about(self) -> str:
        """Return what it is about, in one line; empty where nothing says so."""
        program = next((str(report.summary["program"]) for report in self.reports if "program" in report.summary), "")
        return self.model.path or ", ".join(f"{subject.name}: {subject.parts[0]}" for subject in self.subjects) or program

    @property
    def writer(self) -> str:
        """Return who wrote it, for people."""
        return f"irscope {self.version or __version__}"

    def to_json(self) -> Mapping[str, object]:
        """Return the whole JSON document."""
        made: Mapping[str, object] = built(self._json_parts())
        return made

    def _json_parts(self) -> Mapping[str, object]:
        """Return the same, rows of tables and numbers of curves made while they are written."""
        if self.own_json is not None:
            return self.own_json(self)
        made: dict[str, object] = {
            "schema": SCHEMA_NAME,
            "tool": {"name": "irscope", "version": self.version},
            "model": self.model.to_json(),
            "reports": [report._json_parts() for report in self.reports],
        }
        if self.card is not None:
            made["card"] = self.card.to_json()
        return made


class Reported:
    """Findings of a command besides those of passes on a model: a report with a document of its own."""

    def report(self) -> Report:
        """Return it for people."""
        raise NotImplementedError

    def document(self) -> Document:
        """Return the report alone: it is about no model file."""
        return Document("", ModelInfo("", ""), (self.report(),))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return self.report()._repr_html_()
