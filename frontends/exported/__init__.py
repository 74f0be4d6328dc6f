"""Reads what torch.export saves (`.pt2`) without torch: a zip archive with the graph as JSON and raw weights."""

from __future__ import annotations

from pathlib import Path

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.exported.model import read_model
from irscope.frontends.files.archive import Archive
from irscope.ir.graph import paused_gc
from irscope.ir.program import Program


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Return the program in a `.pt2` archive; weights stay in the file."""
    with Archive(path) as archive, paused_gc():
        return read_model(archive, options, sink)
