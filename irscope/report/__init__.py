"""Results as typed tables, and the formats they are written in.

A `Report` has a summary, `Table`s of `Column`s and `Series`. A number that is not exact is a `Quantity` with a `Provenance`. A `Document`
holds the reports of a run; `renderer("json")` writes it.
"""

from __future__ import annotations

from irscope.report.options import RenderOptions
from irscope.report.renderers import FOLDER_RENDERERS, RENDERERS, renderer
from irscope.report.report import Coverage, Document, ModelInfo, Report
from irscope.report.table import Column, Mark, Series, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity

__all__ = [
    "FOLDER_RENDERERS",
    "RENDERERS",
    "Column",
    "Coverage",
    "Document",
    "Kind",
    "Mark",
    "ModelInfo",
    "Provenance",
    "Quantity",
    "RenderOptions",
    "Report",
    "Series",
    "Table",
    "humanise",
    "renderer",
]
