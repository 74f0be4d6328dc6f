"""The JSON document of a comparison as types, from which its published JSON Schema is generated."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from irscope.report.jsontypes import ModelJson, ReportJson, ToolJson


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
