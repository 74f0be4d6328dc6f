"""The output formats by name, and writing a document to a file, a folder or a stream. A renderer is imported when it is used.

Installed packages add formats as entry points of the group `irscope.renderers`, each a function `(document, options)` that yields text.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, cast

from irscope.errors import UsageError
from irscope.files import make_folder, write_stream, write_text
from irscope.plugins import Plugin, plugins_by_name
from irscope.report.jsonout import json_lines
from irscope.report.options import RenderOptions
from irscope.report.picture import Panel, panels_of
from irscope.report.report import Document, Report
from irscope.report.values import Cell, Quantity

RENDERERS: Mapping[str, str] = MappingProxyType(
    {
        "text": "irscope.report.text:render",
        "json": "irscope.report.renderers:render_json",
        "csv": "irscope.report.csvout:render",
        "html": "irscope.report.htmlpage:render",
        "md": "irscope.report.mdout:render",
        "md-issue": "irscope.report.mdout:render_issue",
        "layers-json": "irscope.report.renderers:render_layers",
    }
)
FOLDER_RENDERERS: Mapping[str, str] = MappingProxyType({"csv": "irscope.report.csvout:render_files"})
"""Formats that can also fill a folder, one file for each table."""
ENTRY_POINT_GROUP = "irscope.renderers"


class Renderer(Protocol):
    """Writes a document as chunks of text."""

    def __call__(self, document: Document, options: RenderOptions) -> Iterator[str]: ...


class FolderRenderer(Protocol):
    """Writes a document as named files."""

    def __call__(self, document: Document, options: RenderOptions) -> Iterator[tuple[str, Iterator[str]]]: ...


def renderer(name: str, renderers: Mapping[str, str] = RENDERERS) -> Renderer:
    """Return the renderer of a format; UsageError names those there are."""
    return cast(Renderer, _load_renderer(name, renderers))


def folder_renderer(name: str, renderers: Mapping[str, str] = FOLDER_RENDERERS) -> FolderRenderer:
    """Return the renderer that fills a folder; UsageError where the format is one single file."""
    return cast(FolderRenderer, _load_renderer(name, renderers))


def offered_formats() -> dict[str, Plugin]:
    """Formats that installed packages add, by name."""
    return plugins_by_name(ENTRY_POINT_GROUP, frozenset(RENDERERS))


def _load_renderer(name: str, renderers: Mapping[str, str]) -> object:
    if name in renderers:
        module, _, attribute = renderers[name].partition(":")
        found: object = getattr(importlib.import_module(module), attribute)
        return found
    offered = offered_formats() if renderers is RENDERERS else {}
    if name not in offered:
        raise UsageError(f"no such output format: {name}", hint=f"formats are {', '.join((*renderers, *offered))}")
    found = offered[name].load()
    if not callable(found):
        raise UsageError(f"format {name!r} of {offered[name].owner} is not a function but {type(found).__name__}", code="IRS101")
    return found


# Writing an answer where the user wants it: to a file, a folder or a stream.


def write_document(document: Document, format_name: str, output: str | None, options: RenderOptions | None = None) -> bool:
    """Render a document to a file, to a folder (a path that is one, or ends with a slash), or with None or "-" to standard output.

    False if the reader of standard output went away before the end.
    """
    if output is None or output == "-":
        options = options or RenderOptions.for_stream(sys.stdout)
        return write_stream(sys.stdout, renderer(format_name)(document, options))
    options = options or RenderOptions()
    if output.endswith(("/", os.sep)) or os.path.isdir(output):
        write_folder(Path(output), folder_renderer(format_name)(document, options))
    else:
        write_text(Path(output), renderer(format_name)(document, options))
    return True


def write_folder(folder: Path, files: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Write named files into a folder, which is made if it is not there. Other files in it are left alone."""
    make_folder(folder)
    for name, chunks in files:
        write_text(folder / name, chunks)


def render_json(document: Document, options: RenderOptions) -> Iterator[str]:
    """Yield the document as the published schema describes it; the options change nothing."""
    yield from json_lines(document._json_parts())


def render_layers(document: Document, options: RenderOptions) -> Iterator[str]:
    """Yield the report of the layers pass; the options change nothing. What is unknown is null, an open size a formula."""
    report = next((report for report in document.reports if report.pass_name == "layers"), None)
    if report is None:
        raise UsageError("this format shows the report of the layers pass, which did not run", hint="`--passes layers`")
    table = report.tables[0]
    keys = [column.key for column in table.columns]
    yield from json_lines(
        {
            "model": document.model.path,
            "total_flops": _shown_cell(report.summary["total_flops"]),
            "total_memory": _shown_cell(report.summary["total_memory_bytes"]),
            "layers": [dict(zip(keys, map(_shown_cell, row), strict=True)) for row in table.rows()],
        }
    )


def _shown_cell(cell: Cell | object) -> object:
    return cell.shown if isinstance(cell, Quantity) else cell


def report_panels(reports: Sequence[Report]) -> list[Panel]:
    """Return all that some reports draw; where several reports do, each says whose it is."""
    drawn = [(f"{report.options or report.pass_name}: ", report.drawn) for report in reports]
    drawn = [(whose, parts) for whose, parts in drawn if parts]
    whose_is_said = len(drawn) > 1
    return [
        replace(panel, title=f"{whose}{panel.title}") if whose_is_said else panel
        for whose, parts in drawn
        for part in parts
        for panel in ([part] if isinstance(part, Panel) else panels_of(part))
    ]
