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
    """Name and kind of the cells at one position of every row."""

    key: str
    kind: KindName
    title: NotRequired[str]
    help: NotRequired[str]
    provenance: NotRequired[Annotated[ProvenanceName, "Where the numbers of this column come from; exact where it is missing."]]


class AnnotationJson(TypedDict):
    """Facts about a cell beyond its value."""

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
    """Known share of the model in a pass; 0 of 0 where there is nothing to know."""

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
ReportJson.__doc__ = "Result of a pass."


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
    format: Annotated[str, "onnx, pt2, torchscript, irs, checkpoint, module, compiled, or what a plugin calls its own."]
    sha256: Annotated[str, "Of the file's content; empty where the model is not a file."]
    nodes: int
    has_graph: Annotated[bool, "false for a file of weights: it has no nodes, and nothing that depends on them is known."]
    parameters: Annotated[int | None, "null where it is unknown."]
    parameter_bytes: Annotated[int | None, "null where it is unknown."]
    bind: Annotated[dict[str, int], "The symbols that were given a value."]
    short_names: Annotated[dict[str, str], "Short names that --bind takes, with the open symbols that they stand for."]
    assumed: Annotated[list[AssumedJson], "What was not specified about the run, and the value that was assumed."]
    diagnostics: Annotated[list[DiagnosticJson], "What was to be said when the model was read."]


class CardWeightsJson(TypedDict):
    """Weights of one element type."""

    dtype: str
    count: int
    bytes: int


class CardInputJson(TypedDict):
    """One input."""

    name: str
    dtype: str | None
    shape: Annotated[list[CellJson] | None, "Sizes, formulas, and null for what is not known; null where not even the rank is."]


class CardSizeJson(TypedDict):
    """A size that is not in the file, and who stated it."""

    symbol: str
    size: int
    source: Annotated[str, '"assumed" if it was not stated.']


class CardMemoryJson(TypedDict):
    """Meaning of the parts of the peak, and the basis of the verdict."""

    counted: Annotated[str, "What the parts add up to."]
    runtime: str
    is_optimised: Annotated[bool, "false where it is for the graph as the file has it, which a default session would optimise first."]
    why: Annotated[str, "What the verdict rests on, or why there is none."]
    parts: Annotated[list[dict[str, CellJson]], "category, bytes; they add up to the field `peak`."]
    branches: Annotated[
        list[dict[str, CellJson]],
        "Where inputs decide which branches run: chosen, bytes of each choice; the numbers are those of the largest.",
    ]
    largest: Annotated[list[dict[str, CellJson]], "The largest tensors at the peak: name, category, bytes, module, location, why."]
    node: str
    module: str
    location: str
    devices: Annotated[list[str], "Where the model does not fit: devices with enough memory, the smallest first."]


class CardUnknownJson(TypedDict):
    """Parts of the model that no number counts."""

    operators: list[str]
    operator_nodes: int
    tensors: int
    weights: int
    diagnostics: Annotated[dict[str, int], "How many remarks there are by severity."]


class CardRemarkJson(TypedDict):
    """Something that would save memory, time or work."""

    text: str
    saves: str
    share: float
    source: str


class CardCommandJson(TypedDict):
    """A command to type next."""

    line: str
    answers: str


class CardDescribedJson(TypedDict):
    """Contents of a file of weights about the model that they belong to."""

    architecture: str
    figures: Annotated[dict[str, str], "By the file's own keys."]
    law: Annotated[str, "The arithmetic behind the cache of keys and values, or why that is not known."]


class DescribedJson(TypedDict):
    """The part of a card that only some files of weights have."""

    described: NotRequired[
        Annotated[
            CardDescribedJson, "Of a file of weights whose metadata says something of its model, and of a language model that generates."
        ]
    ]


class CardJson(DescribedJson):
    """One screen about the model: what it is, whether it fits, what it costs, what is not known, what to do next."""

    fields: Annotated[dict[str, CellJson], "Flat raw numbers under keys that stay; null for what is not known."]
    provenance: Annotated[dict[str, ProvenanceName], "Fields that are not exact."]
    intervals: Annotated[dict[str, list[CellJson]], "Lower and upper bound of fields, null where there is none."]
    weights: list[CardWeightsJson]
    inputs: list[CardInputJson]
    sizes: list[CardSizeJson]
    device: dict[str, CellJson]
    memory: CardMemoryJson
    largest: dict[str, CellJson]
    unknown: CardUnknownJson
    remarks: list[CardRemarkJson]
    next: list[CardCommandJson]


class DocumentJson(TypedDict):
    """Everything one run of irscope found out about a model."""

    schema: Literal["irscope.report/1"]
    tool: ToolJson
    model: ModelJson
    reports: list[ReportJson]
    card: NotRequired[Annotated[CardJson, "If no passes were requested."]]


class ErrorJson(TypedDict):
    """Reason why a model could not be analysed."""

    code: str
    message: str
    where: str
    hint: str


class TableRowJson(TypedDict):
    """One model at one size."""

    model: Annotated[str, "As it was named."]
    sizes: Annotated[dict[str, int], "Those of --sweep."]
    fields: Annotated[dict[str, CellJson] | None, "The flat fields of the card; null with --passes, and where there is none."]
    provenance: Annotated[dict[str, ProvenanceName], "Fields that are not exact."]
    intervals: Annotated[dict[str, list[CellJson]], "Lower and upper bound of fields, null where there is none."]
    summaries: NotRequired[Annotated[dict[str, dict[str, CellJson]], "With --passes: the summary of each."]]
    error: ErrorJson | None


class ManyJson(TypedDict):
    """Several models, one row each, in the order of the table."""

    schema: Literal["irscope.table/1"]
    tool: ToolJson
    device: Annotated[str | None, "Its name; null with --passes."]
    complete: Annotated[bool, "False where a model could not be analysed."]
    rows: list[TableRowJson]
