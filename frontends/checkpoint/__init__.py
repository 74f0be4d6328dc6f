"""Reads files that hold weights without a graph: state dicts, checkpoints, safetensors, sharded checkpoints."""

from __future__ import annotations

from pathlib import Path

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.checkpoint.pickles import read_legacy, read_zip
from irscope.frontends.checkpoint.safetensors import read_safetensors, read_sharded
from irscope.frontends.checkpoint.weights import WeightTable
from irscope.ir.graph import paused_gc
from irscope.ir.program import Program


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """The weights of a file, as a program whose graph has no nodes."""
    table = WeightTable(path, sink)
    with path.open("rb") as file:
        head = file.read(16)
    with paused_gc():
        # The length that starts a safetensors file may look like the first byte of a pickle; its brace cannot be missed.
        if head.startswith(b"PK\x03\x04"):
            read_zip(path, table)
        elif head[8:9] == b"{" and not head[4:8].strip(b"\0"):
            read_safetensors(path, table)
        elif head.startswith(b"\x80"):
            read_legacy(path, table)
        elif head.lstrip().startswith(b"{"):
            read_sharded(path, table)
        else:
            read_safetensors(path, table)
    return table.program()
