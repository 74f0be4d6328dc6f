"""Reads TorchScript archives without torch: their code is Python syntax, evaluated abstractly.

Everything that is no tensor (numbers, lists, strings, modules) is computed; operations on tensors become nodes.
"""

from __future__ import annotations

from pathlib import Path

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.files.archive import Archive
from irscope.frontends.torchscript.model import read_model
from irscope.ir.graph import paused_gc
from irscope.ir.program import Program


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """The program in a TorchScript archive; weights stay in the file and nothing is executed."""
    with Archive(path) as archive, paused_gc():
        return read_model(archive, options, sink)
