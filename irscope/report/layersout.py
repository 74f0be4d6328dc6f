"""JSON with the keys that model profilers share: model, total_flops, total_memory and a list of layers."""

from __future__ import annotations

from collections.abc import Iterator

from irscope.errors import UsageError
from irscope.report.jsonout import json_lines
from irscope.report.options import RenderOptions
from irscope.report.report import Document
from irscope.report.values import Cell, Quantity


def render(document: Document, options: RenderOptions) -> Iterator[str]:
    """The report of the layers pass; the options change nothing. What is unknown is null, an open size a formula."""
    found = next((report for report in document.reports if report.pass_name == "layers"), None)
    if found is None:
        raise UsageError("this format shows the report of the layers pass, which did not run", hint="`--passes layers`")
    (table,) = found.tables
    keys = [column.key for column in table.columns]
    yield from json_lines(
        {
            "model": document.model.path,
            "total_flops": _plain(found.summary["total_flops"]),
            "total_memory": _plain(found.summary["total_memory_bytes"]),
            "layers": [dict(zip(keys, map(_plain, row), strict=True)) for row in table.rows()],
        }
    )


def _plain(cell: Cell | object) -> object:
    return cell.shown if isinstance(cell, Quantity) else cell
