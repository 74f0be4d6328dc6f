"""Results as typed tables, and the formats they are written in."""

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
