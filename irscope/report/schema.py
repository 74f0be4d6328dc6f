"""The JSON document as types, of which docs/report.schema.json is generated.

`to_json` is checked against the types. The text beside a field, in `Annotated`, becomes its description in the schema; an enum there closes
the set of its strings.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, NotRequired, TypeAlias, TypedDict

from irscope.diagnostics import Severity
from irscope.report.units import Kind
from irscope.report.values import Json, Provenance

CELL: Final = object()
"""Marks what may stand in a cell, which the schema describes once."""

CellJson: TypeAlias = Annotated[Json, CELL]
KindName: TypeAlias = Annotated[str, Kind]
ProvenanceName: TypeAlias = Annotated[str, Provenance]
SeverityName: TypeAlias = Annotated[str, Severity]


class ColumnJson(TypedDict):
    """What the cells at one position of every row are."""

    key: str
    kind: KindName
    title: NotRequired[str]
    help: NotRequired[str]
    provenance: NotRequired[Annotated[ProvenanceName, "Where the numbers of this column come from; exact where it is missing."]]


class AnnotationJson(TypedDict):
    """What is to be said about one cell beyond its value."""

    row: Annotated[int, "Counted from 0."]
    column: str
    provenance: ProvenanceName
    formula: NotRequired[str]
    interval: NotRequired[Annotated[list[CellJson], "Lower and upper bound, null where there is none."]]
    note: NotRequired[str]


class TableJson(TypedDict):
    """Rows of cells in the order of the columns."""

    title: str
    columns: list[ColumnJson]
    rows: list[list[CellJson]]
    keys: NotRequired[Annotated[list[CellJson], "The node or value each row is about."]]
    annotations: NotRequired[list[AnnotationJson]]


class MarkJson(TypedDict):
    """A labelled place on the x axis."""

    x: float
    label: str


class SeriesJson(TypedDict):
    """Columns of equal length over an x axis."""

    title: str
    x: ColumnJson
    y: list[ColumnJson]
    stacked: Annotated[bool, "Whether the y columns are parts of a whole."]
    data: dict[str, list[CellJson]]
    marks: list[MarkJson]


class CoverageJson(TypedDict):
    """How much of the model the pass knows; 0 of 0 where there is nothing to know."""

    known: int
    total: int
    unknown: Annotated[list[str], "What it does not know, each once."]


class DiagnosticJson(TypedDict):
    """One remark about the model."""

    severity: SeverityName
    code: Annotated[str, "`irscope explain CODE` says more."]
    message: str
    node: Annotated[str, "Empty where the remark is not about one node."]
    location: NotRequired[str]
    hint: NotRequired[str]
    count: NotRequired[Annotated[int, "How many such remarks this one stands for; 1 where it is missing."]]


ReportJson = TypedDict(
    "ReportJson",
    {
        "pass": str,
        "options": Annotated[str, "The pipeline element that makes this report again."],
        "headline": NotRequired[Annotated[list[str], "The answer in a few lines, for people."]],
        "summary": Annotated[dict[str, CellJson], "Raw values; a symbolic number is its formula."],
        "units": Annotated[dict[str, KindName], "The kind of each summary value, by its path with dots."],
        "provenance": Annotated[dict[str, ProvenanceName], "Summary values that are not exact, by path."],
        "formulas": Annotated[dict[str, str], "The symbolic form of summary values that are bound, by path."],
        "intervals": Annotated[dict[str, list[CellJson]], "Lower and upper bound of summary values, null where there is none, by path."],
        "remarks": Annotated[dict[str, str], "How summary values came about, by path."],
        "notes": Annotated[list[str], "The conventions the numbers follow."],
        "tables": list[TableJson],
        "series": list[SeriesJson],
        "coverage": CoverageJson,
        "diagnostics": list[DiagnosticJson],
    },
)
ReportJson.__doc__ = "What one pass found."


class ToolJson(TypedDict):
    """The program that wrote the document."""

    name: str
    version: str


class AssumedJson(TypedDict):
    """Something that a prediction depends on and that was not specified."""

    what: str
    value: Annotated[str, "What it was taken to be."]
    why: Annotated[str, "Where the value comes from; may be empty."]
    guess: Annotated[
        bool, "Whether nothing vouches for it; numbers that depend on it have the provenance `assumed`. Else a documented default."
    ]


class ModelJson(TypedDict):
    """The model the document is about."""

    path: str
    format: Annotated[str, "onnx, pt2, torchscript, irs, checkpoint, module, or what a plugin calls its own."]
    sha256: Annotated[str, "Of the file's content; empty where the model is not a file."]
    nodes: int
    has_graph: Annotated[bool, "false for a file of weights: it has no nodes, and nothing that depends on them is known."]
    parameters: Annotated[int | None, "null where it is unknown."]
    parameter_bytes: Annotated[int | None, "null where it is unknown."]
    bind: Annotated[dict[str, int], "The symbols that were given a value."]
    assumed: Annotated[list[AssumedJson], "What was not specified about the run, and the value that was assumed."]
    diagnostics: Annotated[list[DiagnosticJson], "What was to be said when the model was read."]


class DocumentJson(TypedDict):
    """Everything one run of irscope found out about a model."""

    schema: Literal["irscope.report/1"]
    tool: ToolJson
    model: ModelJson
    reports: list[ReportJson]
