"""GGUF, the files of llama.cpp: metadata, a table of tensors with quantised types, and their bytes, in one file or split over several.

The form is that of versions 2 and 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Only the header is read, piece by piece:
what it says of lengths and counts is held against what is left of the file before anything is read or kept.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from irscope.budget import admit, spend
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.files.checkpoint import WeightTable
from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.ir.graph import paused_gc
from irscope.ir.places import FileRegion
from irscope.ir.program import Program
from irscope.ir.types import MOST_BYTES, tensor
from irscope.weights.source import Forbidden, ModelFolder

Scalar: TypeAlias = "int | float | bool | str"

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_ALIGNMENT: Final = 32
_MOST_AXES: Final = 4
"""GGML_MAX_DIMS."""
_MOST_KEYS: Final = 100_000
_MOST_TENSORS: Final = 1_000_000
_LONGEST_NAME: Final = (1 << 16) - 1
_LONGEST_TEXT: Final = 1024
"""Bytes; of longer texts, such as chat templates, the rest is passed over."""
_LONGEST_KEPT: Final = 200
_MOST_ITEMS: Final = 4096
"""Longer lists, such as vocabularies, are counted and passed over; lists that say something of each layer are shorter."""
_MOST_TEXTS: Final = 64
"""The same of lists of texts, of which a vocabulary may be a short one."""
_DEEPEST: Final = 4

# Types of tensors by their number (`enum ggml_type`, ggml.h; GGMLQuantizationType of the package gguf 0.19).
TYPES: Final[Mapping[int, DType]] = {
    0: DType.F32, 1: DType.F16, 2: DType.Q4_0, 3: DType.Q4_1, 6: DType.Q5_0, 7: DType.Q5_1, 8: DType.Q8_0, 9: DType.Q8_1,
    10: DType.Q2_K, 11: DType.Q3_K, 12: DType.Q4_K, 13: DType.Q5_K, 14: DType.Q6_K, 15: DType.Q8_K, 16: DType.IQ2_XXS,
    17: DType.IQ2_XS, 18: DType.IQ3_XXS, 19: DType.IQ1_S, 20: DType.IQ4_NL, 21: DType.IQ3_S, 22: DType.IQ2_S, 23: DType.IQ4_XS,
    24: DType.I8, 25: DType.I16, 26: DType.I32, 27: DType.I64, 28: DType.F64, 29: DType.IQ1_M, 30: DType.BF16, 34: DType.TQ1_0,
    35: DType.TQ2_0, 39: DType.MXFP4, 40: DType.NVFP4, 41: DType.Q1_0,
}  # fmt: skip
_FORMS: Final[Mapping[int, str]] = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Numbers in metadata by their type (`enum gguf_type`); 8 is a text, 9 a list."""
_TEXT: Final = 8
_LIST: Final = 9
_PART: Final = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
"""Names that llama.cpp gives the parts of a split file (`llama_split_path`)."""


@immutable(slots=False)
class Listed:
    """A list in metadata: how long it is, and its items where they are few."""

    count: int
    items: tuple[Scalar, ...] = ()


@dataclass(frozen=True)
class Tensor:
    """An entry of the table of tensors."""

    name: str
    dtype: DType
    code: int
    """The number of its type."""
    shape: tuple[int, ...]
    """Row-major, as PyTorch has it: the file lists the fastest axis first."""
    offset: int
    """From where tensors begin."""


@dataclass
class Header:
    """Header of a file: everything before the data of its tensors."""

    version: int
    metadata: dict[str, Scalar | Listed] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    data_start: int = 0
    """Where the bytes of tensors begin."""

    @cached_property
    def split(self) -> tuple[int, int]:
        """Return which part it is, from 0, and of how many."""
        number, count = self.metadata.get("split.no", 0), self.metadata.get("split.count", 0)
        return (number, count) if isinstance(number, int) and isinstance(count, int) else (0, 0)


class _Reader:
    """Reads a header from front to back and never past the end of the file."""

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self._file = file
        self._path = path
        self.left = size

    def error(self, what: str, hint: str = "the file is damaged or cut off; copy it again") -> LoadError:
        return LoadError(what, code="IRS160", where=str(self._path), hint=hint)

    def need(self, count: int, what: str) -> None:
        """Raise LoadError where so many bytes are not left."""
        if count > self.left:
            raise self.error(f"{what} declares {count:,} bytes, {self.left:,} are left")

    def take(self, count: int, what: str) -> bytes:
        self.need(count, what)
        data = self._file.read(count)
        if len(data) != count:
            raise self.error(f"{what} ends before its end")
        self.left -= count
        return data

    def skip(self, count: int, what: str) -> None:
        self.need(count, what)
        self._file.seek(count, 1)
        self.left -= count

    def number(self, form: str, what: str) -> int | float | bool:
        found: int | float | bool = struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}"), what))[0]
        return found

    def count(self, form: str, what: str) -> int:
        return int(self.number(form, what))

    def name(self, what: str) -> str:
        length = self.count("Q", what)
        if length > _LONGEST_NAME:
            raise self.error(f"{what} declares {length:,} bytes")
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError:
            raise self.error(f"{what} is not UTF-8") from None

    def text(self, what: str) -> str:
        """Return a text, as much of it as is kept."""
        length = self.count("Q", what)
        self.need(length, what)
        kept = self.take(min(length, _LONGEST_TEXT), what)
        self.skip(length - len(kept), what)
        return kept.decode(errors="replace")

    def value(self, kind: int, what: str, depth: int = 0) -> Scalar | Listed:
        if kind in _FORMS:
            return self.number(_FORMS[kind], what)
        if kind == _TEXT:
            return self.text(what)
        if kind != _LIST:
            raise self.error(f"{what} is of type {kind}, which GGUF does not have")
        return self._list(what, depth)

    def _list(self, what: str, depth: int) -> Listed:
        if depth == _DEEPEST:
            raise self.error(f"{what} holds lists that are nested more than {_DEEPEST} deep")
        kind, count = self.count("I", what), self.count("Q", what)
        if kind in _FORMS:
            size = struct.calcsize(f"<{_FORMS[kind]}")
            self.need(count * size, what)
            if count > _MOST_ITEMS:
                self.skip(count * size, what)
                return Listed(count)
            return Listed(count, struct.unpack(f"<{count}{_FORMS[kind]}", self.take(count * size, what)))
        # An item has at least its length.
        self.need(count * (8 if kind == _TEXT else 12), what)
        items: list[Scalar] = []
        for _ in range(count):
            spend(2, "a list in the metadata of a GGUF file")
            if kind == _TEXT and count > _MOST_TEXTS:
                self.skip(self.count("Q", what), what)
                continue
            item = self.value(kind, what, depth + 1)
            if not isinstance(item, Listed) and count <= _MOST_ITEMS:
                items.append(item)
        return Listed(count, tuple(items))


def read_header(path: Path) -> Header:
    """Return the header of one file; LoadError where it is damaged, cut off or lies about itself."""
    size = path.stat().st_size
    with path.open("rb") as file:
        reader = _Reader(file, path, size)
        if reader.take(4, "the magic number") != _MAGIC:
            raise reader.error("it does not begin with GGUF")
        version = reader.count("I", "the version")
        if version & 0xFFFF == 0 and version >> 24 in _VERSIONS:
            raise reader.error("it is big-endian", "gguf-convert-endian of the package gguf turns it round")
        if version not in _VERSIONS:
            raise reader.error(f"its version is {version:,}; versions 2 and 3 are read", "convert the model again with today's llama.cpp")
        header = Header(version)
        tensors, entries = reader.count("Q", "the number of tensors"), reader.count("Q", "the number of entries")
        # A name's length, a type and a value of one byte; a name's length, the number of axes, a type and an offset.
        for count, most, least, what in ((entries, _MOST_KEYS, 13, "entries of metadata"), (tensors, _MOST_TENSORS, 24, "tensors")):
            if count > most or count * least > reader.left:
                raise reader.error(f"it declares {count:,} {what}; {reader.left:,} bytes are left")
        for _ in range(entries):
            _read_entry(reader, header)
        seen: set[str] = set()
        for _ in range(tensors):
            one = _read_tensor(reader)
            if one.name in seen:
                raise reader.error(f"it has two tensors {one.name[:80]!r}")
            seen.add(one.name)
            header.tensors.append(one)
        structure = size - reader.left
        admit(structure)
        alignment = header.metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or isinstance(alignment, bool) or alignment < 1 or alignment & (alignment - 1):
            raise reader.error(f"its alignment is {str(alignment)[:40]}, no power of two")
        header.data_start = -(-structure // alignment) * alignment
        _check_places(header, alignment, size - header.data_start, reader)
    return header


def _read_entry(reader: _Reader, into: Header) -> None:
    spend(5, "metadata of a GGUF file")
    key = reader.name("a key of the metadata")
    if key in into.metadata:
        raise reader.error(f"its metadata has {key[:80]!r} twice")
    what = f"the metadata {key[:80]!r}"
    into.metadata[key] = reader.value(reader.count("I", what), what)


def _read_tensor(reader: _Reader) -> Tensor:
    spend(5, "tensors of a GGUF file")
    name = reader.name("the name of a tensor")
    what = f"the tensor {name[:80]!r}"
    axes = reader.count("I", what)
    if axes > _MOST_AXES:
        raise reader.error(f"{what} declares {axes:,} axes; ggml has {_MOST_AXES}")
    sizes = struct.unpack(f"<{axes}Q", reader.take(8 * axes, what))
    code, offset = reader.count("I", what), reader.count("Q", what)
    return Tensor(name, TYPES.get(code, DType.UNKNOWN), code, sizes[::-1], offset)


def _check_places(header: Header, alignment: int, room: int, reader: _Reader) -> None:
    """Check that tensors lie in the file, at multiples of the alignment, and do not overlap."""
    end, before = 0, ""
    for one in sorted(header.tensors, key=lambda one: one.offset):
        what = f"the tensor {one.name[:80]!r}"
        if one.dtype.block is not None and one.shape and one.shape[-1] % one.dtype.block[0]:
            raise reader.error(f"{what} has rows of {one.shape[-1]:,}, which are not blocks of {one.dtype.block[0]} in {one.dtype.text}")
        if math.prod(one.shape) > MOST_BYTES:
            raise reader.error(f"{what} declares {math.prod(one.shape):,} elements")
        size = one.dtype.bytes_of(math.prod(one.shape)) or 0
        if one.offset % alignment:
            raise reader.error(f"{what} begins at {one.offset:,}, which is not a multiple of {alignment}")
        if one.offset + size > room:
            raise reader.error(
                f"{what} ends {one.offset + size - room:,} bytes beyond the end of the file", "the file is cut off; copy it again"
            )
        if one.offset < end and size:
            raise reader.error(f"{what} lies over {before[:80]!r}")
        end, before = max(end, one.offset + size), one.name


# -- files as programs ---------------------------------------------------------------------------------------------------


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Return the weights of a file, and of the other parts where it is split, as a program whose graph has no nodes."""
    table = WeightTable(path, sink)
    with paused_gc():
        header = read_header(path)
        parts = _parts(path, header)
        for part, of_part in parts:
            _fill_table(part, of_part, table)
            for key, value in of_part.metadata.items():
                if key != "split.no":
                    table.metadata.setdefault(key, _text(value))
    wanted = header.metadata.get("split.tensors.count")
    if len(parts) > 1 and isinstance(wanted, int) and wanted != table.count:
        message = f"its parts hold {table.count:,} tensors, split.tensors.count is {wanted:,}"
        sink.warn("IRS167", message, hint="the parts may be of different models", about="split")
    program = table.program("the model that it was converted from has one: its folder, or transformers:NAME")
    program.format = "gguf"
    return program


def _parts(path: Path, header: Header) -> list[tuple[Path, Header]]:
    """Return all parts of a split file, which lie beside one another; a file that is whole alone."""
    _, count = header.split
    if count <= 1:
        return [(path, header)]
    named = _PART.fullmatch(path.name)
    if named is None or int(named["count"]) != count:
        message = f"it is a part of {count:,}, and not called as parts are"
        raise LoadError(message, code="IRS164", where=str(path), hint=f"the names of parts end in -00001-of-{count:05}.gguf")
    folder = ModelFolder(path)
    parts: list[tuple[Path, Header]] = []
    for number in range(count):
        part = path.with_name(f"{named['stem']}-{number + 1:05}-of-{count:05}.gguf")
        try:
            there = folder.find(part.name)
        except Forbidden as error:
            raise LoadError(f"the part {part.name!r} {error}", code="IRS164", where=str(path), hint=error.hint) from None
        if there is None:
            raise LoadError(f"the part {part.name!r} is missing", code="IRS164", where=str(path), hint="put all parts beside one another")
        of_part = header if part == path else read_header(part)
        if of_part.split != (number, count):
            said = f"says that it is part {of_part.split[0] + 1:,} of {of_part.split[1]:,}"
            raise LoadError(
                f"{part.name!r} {said}", code="IRS164", where=str(path), hint="the parts are of different models; copy them again"
            )
        parts.append((part, of_part))
    return parts


def _fill_table(path: Path, header: Header, table: WeightTable) -> None:
    for one in header.tensors:
        size = one.dtype.bytes_of(math.prod(one.shape))
        start = header.data_start + one.offset
        data = None if size is None else FileRegion(str(path), start, size, f"{path.name}:{start}")
        if size is None:
            message = f"{one.name[:80]!r} is of type {one.code}, which irscope does not know: its bytes are not counted"
            table.sink.warn("IRS174", message, about=f"type {one.code}")
        table.add(one.name, tensor(one.dtype, one.shape), data)


def _text(value: Scalar | Listed) -> str:
    """Return a value of the metadata as it is kept: a long list as its length."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_KEPT else f"{value[:_LONGEST_KEPT]}..."
    if not isinstance(value, Listed):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if len(value.items) < value.count:
        return f"{value.count:,} items"
    return f"[{', '.join(_text(item) for item in value.items)}]"
