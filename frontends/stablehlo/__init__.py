"""Reads StableHLO, what JAX and others compile through XLA: as MLIR text or as portable bytecode, with neither installed."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

from irscope.budget import admit, claim
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.stablehlo import control, operators  # noqa: F401  # they fill the table of rules
from irscope.frontends.stablehlo.bytecode import MAGIC, read_bytecode
from irscope.frontends.stablehlo.model import Module, refuse
from irscope.frontends.stablehlo.program import Builder
from irscope.frontends.stablehlo.text import parse
from irscope.ir.graph import paused_gc
from irscope.ir.program import Program

_GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 1 << 20
_HEAD: Final = 64
"""Both bytecode and a flatbuffer around it have a zero within their first bytes; text has none."""


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """The program in a file of StableHLO; constants of any size stay as they are."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LoadError(f"cannot read the file: {error.strerror}", code="IRS100", where=str(path)) from None
    with paused_gc():
        return build(read_module(data, str(path)), options.method, sink, str(path))


def build(module: Module, name: str, sink: DiagnosticSink, where: str) -> Program:
    """Return the program of a module's function."""
    try:
        return Builder(module, sink, where).program(name)
    except RecursionError:
        raise refuse("regions or calls are nested too deeply", where) from None


def read_module(data: bytes, where: str) -> Module:
    """Return the module that bytes hold, whatever the form."""
    if data.startswith(_GZIP):
        data = _decompressed(data, where)
    admit(len(data))
    start = data.find(MAGIC) if b"\0" in data[:_HEAD] else -1
    return parse(data.decode("utf-8", "replace")) if start < 0 else read_bytecode(data[start:])


def _decompressed(data: bytes, where: str) -> bytes:
    made, parts, size = zlib.decompressobj(zlib.MAX_WBITS | 16), [], 0
    try:
        while data:
            part = made.decompress(data, _CHUNK)
            data, size = made.unconsumed_tail, size + len(part)
            claim(size, "compressed text")
            parts.append(part)
    except zlib.error as error:
        raise refuse(f"it cannot be decompressed ({error})", where) from None
    return b"".join(parts)
