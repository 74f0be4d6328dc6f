"""Opens an .onnx file and parses it, or refuses it in one line; large weights stay in the file, external ones are not even looked for.

A protobuf message is a list of fields, each a tag and a value. Large tensor data are found in the bytes of a model without parsing
them: only messages that can hold tensors are entered, and only where they are large. What is left after taking out the data is small,
whatever the model weighs.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import TypeAlias

from google.protobuf.message import DecodeError

from irscope.budget import admit
from irscope.errors import LoadError
from irscope.files import open_regular
from irscope.frontends.onnx.protos import ModelProto
from irscope.immutable import mutable

UNREADABLE = "IRS140"
NOT_ONNX = "IRS141"
BAD_GRAPH = "IRS142"
CYCLE = "IRS143"
BAD_TENSOR = "IRS144"
BAD_LOCATION = "IRS145"
BAD_FUNCTION = "IRS146"
TOO_LARGE = "IRS147"
BAD_INPUT_OPTION = "IRS148"

UNSORTED = "IRS150"
VERSION = "IRS151"
FOREIGN = "IRS152"
MISUSED = "IRS153"
BAD_DIM = "IRS154"
INPUT_WITH_VALUE = "IRS155"
MISSING_DATA = "IRS156"
TRAINING_INFO = "IRS157"

_LONGEST_NAME = 80


def short(name: str) -> str:
    """Return a name from the file as one printable word of bounded length, for messages."""
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}..."
    return name if name.isprintable() else name.encode("unicode_escape", "backslashreplace").decode("ascii")


def refuse(code: str, message: str, where: str = "", hint: str = "") -> LoadError:
    """Return the error to raise for a model that cannot be analysed."""
    return LoadError(message, code=code, where=where, hint=hint)


_MAPPED_FROM = 64 * 1024 * 1024
_LARGEST_MESSAGE = 2**31 - 1


@mutable
class ModelFile:
    """A parsed model with what is needed to find the data of its tensors."""

    proto: ModelProto
    path: Path | None = None
    """The file, absolute but with its links unresolved; None for a model that was given as a message."""
    stored: StoredData | None = None
    derived: frozenset[str] = frozenset()
    """Weights that optimisations made and whose values are not in the message."""

    @property
    def where(self) -> str:
        return str(self.path) if self.path is not None else "model"


def read_file(path: Path) -> ModelFile:
    """Open and parse a file; nothing besides it is touched."""
    where = str(path)
    absolute = Path(os.path.abspath(path))
    try:
        stream = open_regular(absolute)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise refuse(UNREADABLE, f"cannot open the file: {reason}", where) from None
    with stream:
        size = os.fstat(stream.fileno()).st_size
        if size == 0:
            raise refuse(UNREADABLE, "the file is empty", where, "download or export the model again")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return parse(mapped if size >= _MAPPED_FROM else mapped.read(), where, absolute)


def parse(buffer: Buffer, where: str = "model", path: Path | None = None) -> ModelFile:
    """Return a model from its bytes; data of large tensors is left where it is if the bytes are those of a file."""
    stored: StoredData | None = None
    if path is not None and len(buffer) > LARGE_DATA:
        found = _without_data(buffer)
        if isinstance(found, str):
            raise _not_onnx(where, f"the file is damaged or cut short ({found})")
        data, stored = found
    else:
        data = bytes(buffer)
    if len(data) > _LARGEST_MESSAGE:
        raise refuse(TOO_LARGE, "the graph alone has more than 2 GiB", where, "such a message cannot have been written by protobuf")
    admit(len(data))
    try:
        proto = ModelProto.FromString(data)
    except (DecodeError, RuntimeError, ValueError):
        hint = "export or download it again; messages nested more than 100 deep are refused too"
        raise _not_onnx(where, "the file is damaged, cut short, or no ONNX model", hint) from None
    if not proto.HasField("graph"):
        raise _not_onnx(where, "the file holds no ONNX graph", "give the path of an .onnx model")
    return ModelFile(proto, path, stored)


def _without_data(buffer: Buffer) -> tuple[bytes, StoredData] | str:
    """Return the model without its data, or what is wrong with it: an exception would keep the mapped file in use."""
    try:
        return take_out_data(buffer)
    except (WireError, IndexError) as error:
        return str(error)


def _not_onnx(where: str, message: str, hint: str = "export or download it again") -> LoadError:
    return refuse(NOT_ONNX, message, where, hint)


LARGE_DATA = 32 * 1024
"""Tensor data of more bytes than this stays in the file."""
_MARK_BYTES = 16
_MAX_DEPTH = 100
_FIXED = {1: 8, 5: 4}
"""Bytes of values by wire type."""

Buffer: TypeAlias = "bytes | mmap.mmap"
_Parts: TypeAlias = "list[bytes | memoryview]"

# Message -> {field number: message of that field}; raw data is the field "raw" of a tensor.
_MODEL = {7: "graph", 25: "function"}
_ENTER: dict[str, dict[int, str]] = {
    "model": _MODEL,
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {9: "raw"},
}


@mutable
class StoredData:
    """Places in the file of the data that were taken out of a model."""

    mark: bytes = field(default_factory=lambda: secrets.token_bytes(_MARK_BYTES - 8))
    """Stands in front of each stand-in; random, so that no file can forge one."""
    places: list[tuple[int, int]] = field(default_factory=list)

    def put(self, offset: int, length: int) -> bytes:
        """Note a piece of the file; returns the bytes that stand in for it."""
        self.places.append((offset, length))
        return self.mark + (len(self.places) - 1).to_bytes(8, "little")

    def find(self, raw: bytes) -> tuple[int, int] | None:
        """Offset and length of the data that `raw` stands in for; None where it is the data itself."""
        if len(raw) != _MARK_BYTES or not raw.startswith(self.mark):
            return None
        return self.places[int.from_bytes(raw[len(self.mark) :], "little")]


class WireError(ValueError):
    """Bytes that are no protobuf message."""


def take_out_data(buffer: Buffer) -> tuple[bytes, StoredData]:
    """Return the model without its large tensor data, and where those are."""
    stored = StoredData()
    with memoryview(buffer) as view:
        parts: _Parts = []
        _copy(view, 0, len(view), "model", stored, parts, 0)
        if not stored.places and isinstance(buffer, bytes):
            return buffer, stored
        return b"".join(parts), stored


def _copy(view: memoryview, start: int, end: int, kind: str, stored: StoredData, parts: _Parts, depth: int) -> int:
    """Append the message to `parts` with large data replaced; returns its new length."""
    if depth > _MAX_DEPTH:
        raise WireError("messages are nested too deeply")
    enter = _ENTER[kind]
    copied = start
    length = 0
    for field_start, tag, content, stop in _large_fields(view, start, end):
        inner = enter.get(tag >> 3)
        if inner is None:
            continue
        parts.append(view[copied:field_start])
        length += field_start - copied
        copied = stop
        body: _Parts = []
        if inner == "raw":
            body.append(stored.put(content, stop - content))
            new_size = _MARK_BYTES
        else:
            new_size = _copy(view, content, stop, inner, stored, body, depth + 1)
        head = encode(tag) + encode(new_size)
        parts.append(head)
        parts.extend(body)
        length += len(head) + new_size
    parts.append(view[copied:end])
    return length + end - copied


def message_fields(buffer: Buffer, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield all fields of a message: where each starts, its number, where its content is, and where it ends."""
    position = start
    while position < end:
        field_start = position
        tag, position = _varint(buffer, position, end)
        wire = tag & 7
        content = position
        if wire == 2:
            size, content = _varint(buffer, position, end)
            position = content + size
        elif wire == 0:
            _, position = _varint(buffer, position, end)
        elif wire in _FIXED:
            position += _FIXED[wire]
        else:
            raise WireError(f"wire type {wire} does not exist")
        if position > end:
            raise WireError("a field reaches beyond the end")
        yield field_start, tag >> 3, content, position


def _large_fields(view: memoryview, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Fields of a message with more than LARGE_DATA bytes: where they start, their tag, and where their content is."""
    position = start
    while position < end:
        field_start = position
        tag = view[position]
        position += 1
        if tag & 0x87 == 2 and position < end:
            # Most fields of a large graph: a short tag, and content whose size takes a byte or two, so it is not large.
            size = view[position]
            if size < 0x80:
                position += 1 + size
                continue
            more = view[position + 1] if position + 1 < end else 0x80
            if more < 0x80:
                position += 2 + (size & 0x7F | more << 7)
                continue
        if tag >= 0x80:
            tag, position = _varint(view, field_start, end)
        wire = tag & 7
        if wire == 2:
            size = view[position] if position < end else 0
            position += 1
            if size >= 0x80:
                size, position = _varint(view, position - 1, end)
            content = position
            position += size
            if size > LARGE_DATA and position <= end:
                yield field_start, tag, content, position
        elif wire == 0:
            _, position = _varint(view, position, end)
        elif wire in _FIXED:
            position += _FIXED[wire]
        else:
            raise WireError(f"wire type {wire} does not exist")
    if position != end:
        raise WireError("a field reaches beyond the end")


def _varint(view: Buffer | memoryview, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            break
    raise WireError("a number does not end")


def encode(value: int) -> bytes:
    """Return a number as protobuf writes it."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
