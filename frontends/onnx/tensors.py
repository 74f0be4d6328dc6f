"""Tensors that stand in a model: their type, and where their values are.

Locations of external data are relative paths, to files that `ModelFolder` lets a model read.
"""

from __future__ import annotations

import math
import os
from pathlib import Path, PureWindowsPath
from typing import NamedTuple

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.detect import lfs_pointer
from irscope.frontends.onnx.protos import SparseTensorProto, TensorProto
from irscope.frontends.onnx.reader import BAD_LOCATION, BAD_TENSOR, MISSING_DATA, ModelFile, refuse, short
from irscope.frontends.onnx.types import DTYPES, MOST_AXES, pack_field, packed_size, unpack
from irscope.immutable import immutable
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.graph import Role
from irscope.ir.places import Blob, FileRegion, Literal, Payload, Scalar
from irscope.ir.types import TensorType, Type, tensor
from irscope.weights.source import DataFile, Forbidden, ModelFolder

MOST_LITERAL = 1024
"""Integers, truth values and strings of up to so many elements stand in the graph."""
MOST_LITERAL_FLOATS = 16
"""The same for floats, which are rarely read."""
_SMALL_EXTERNAL = 1024
"""External data of up to so many bytes are read, because shapes may depend on them."""
_MOST_ELEMENTS = 2**62

_EXTERNAL = 1
_TYPED_FIELDS: dict[DType, str] = {
    DType.F32: "float_data", DType.C64: "float_data", DType.F64: "double_data", DType.C128: "double_data", DType.I64: "int64_data",
    DType.U32: "uint64_data", DType.U64: "uint64_data", DType.STR: "string_data",
}  # fmt: skip

_RARELY_LEARNED = frozenset({DType.I64, DType.I32, DType.U64, DType.U32, DType.BOOL, DType.STR})


@immutable
class Constant:
    """The type of a tensor and where its values are, None where they are unknown."""

    type: TensorType
    data: Payload | None


class _Kind(NamedTuple):
    """Common facts of tensors of one element type and shape."""

    type: TensorType
    dtype: DType
    elements: int
    size: int | None
    """Bytes of the packed elements, None for strings."""
    is_literal: bool
    """True where the values are few enough to stand in the graph."""


_MOST_KINDS = 10_000


class TensorReader:
    """Reads the tensors of one model."""

    def __init__(self, file: ModelFile, sink: DiagnosticSink) -> None:
        self._path = str(file.path.resolve()) if file.path is not None else ""
        self._stored = file.stored
        self._derived = file.derived
        self._external = ExternalFiles(file.path)
        self._sink = sink
        self._kinds: dict[tuple[int, tuple[int, ...]], _Kind] = {}

    def read(self, proto: TensorProto, name: str) -> Constant:
        """Check a tensor and find its values."""
        kind = self._kind(proto, name)
        if name in self._derived:
            return Constant(kind.type, None)
        if proto.data_location == _EXTERNAL:
            return Constant(kind.type, self._read_external(proto, name, kind))
        if proto.HasField("segment"):
            raise _bad(name, "tensors in segments are not supported", "export the model again with a current exporter")
        if proto.HasField("raw_data"):
            return Constant(kind.type, self._read_raw(proto.raw_data, name, kind))
        return Constant(kind.type, _read_typed(proto, name, kind))

    def _kind(self, proto: TensorProto, name: str) -> _Kind:
        """Return what tensors of an element type and shape have in common."""
        dims = tuple(proto.dims[:])
        kind = self._kinds.get((proto.data_type, dims))
        if kind is not None:
            return kind
        dtype = DTYPES.get(proto.data_type)
        if dtype is None or dtype is DType.UNKNOWN:
            raise _bad(name, f"element type {proto.data_type} does not exist")
        count = _element_count(dims, name)
        made = _Kind(tensor(dtype, dims), dtype, count, packed_size(count, dtype), is_literal(dtype, count))
        if len(self._kinds) < _MOST_KINDS:
            self._kinds[proto.data_type, dims] = made
        return made

    def read_sparse(self, proto: SparseTensorProto, name: str) -> Constant:
        """A sparse tensor: dense values where it is small, else only its type."""
        values = self.read(proto.values, name)
        indices = self.read(proto.indices, f"{name} indices")
        dims = tuple(proto.dims)
        count = _element_count(dims, name)
        stored = values.type.shape or ()
        positions = indices.type.shape or ()
        if len(stored) != 1 or indices.type.dtype is not DType.I64 or positions not in (stored, (*stored, len(dims))):
            raise _bad(name, "the indices do not fit the values of the sparse tensor")
        dense = _densify(values, indices, dims, count)
        if dense is None:
            return Constant(tensor(values.type.dtype, dims, layout="sparse"), None)
        if isinstance(dense, str):
            raise _bad(name, dense)
        return Constant(tensor(values.type.dtype, dims), dense)

    def _read_raw(self, raw: bytes, name: str, kind: _Kind) -> Payload:
        place = self._stored.find(raw) if self._stored is not None else None
        length = place[1] if place is not None else len(raw)
        expected = kind.size
        if expected is None:
            raise _bad(name, "strings cannot stand as raw data")
        if length != expected:
            raise _bad(name, f"it has {length} bytes of data, its type needs {expected}")
        if place is not None:
            return FileRegion(self._path, place[0], length)
        if kind.is_literal:
            return Literal(unpack(raw, kind.dtype, kind.elements))
        return Blob(raw)

    def _read_external(self, proto: TensorProto, name: str, kind: _Kind) -> Payload | None:
        expected = kind.size
        entries = {entry.key: entry.value for entry in reversed(proto.external_data)}
        location, offset, length = region(entries, expected, name)
        file = self._external.find(location, name)
        if file is None:
            self._sink.warn(
                MISSING_DATA,
                f"the external data file '{short(location)}' is not there: values of its tensors are unknown",
                hint="put it beside the model if a pass needs values",
                about=location,
            )
            return None
        check_within(file, offset, length, name)
        if length is None:
            return None
        if kind.is_literal and length <= _SMALL_EXTERNAL:
            data = self._external.read(file, offset, length)
            return None if data is None else Literal(unpack(data, kind.dtype, kind.elements))
        return FileRegion(file.path, offset, length, storage=f"{location}@{offset}")


def is_literal(dtype: DType, count: int) -> bool:
    """Return whether so many values are few enough to stand in the graph."""
    return count <= (MOST_LITERAL_FLOATS if dtype.kind in (DTypeKind.FLOAT, DTypeKind.COMPLEX) else MOST_LITERAL)


def role_of(type_: Type) -> Role:
    """Sizes, indices, masks and single numbers are constants, everything else is a parameter.

    Lowering corrects this where an operator says more: running statistics and scales are buffers, integer biases parameters.
    """
    return Role.CONSTANT if not type_.shape or type_.dtype in _RARELY_LEARNED else Role.PARAMETER


def _read_typed(proto: TensorProto, name: str, kind: _Kind) -> Payload:
    dtype, count = kind.dtype, kind.elements
    field = _TYPED_FIELDS.get(dtype, "int32_data")
    values = getattr(proto, field)
    bits = dtype.bits
    per_element = 2 if dtype.kind is DTypeKind.COMPLEX else 1
    expected = (count * bits + 7) // 8 if bits in (2, 4) else count * per_element
    if len(values) != expected:
        raise _bad(name, f"it has {len(values)} values in {field}, its type needs {expected}")
    if dtype is DType.STR:
        return Literal(tuple([text.decode("utf-8", "replace") for text in values]))
    if kind.is_literal and dtype in (DType.I64, DType.I32, DType.U64, DType.F32, DType.F64):
        return Literal(tuple(values))
    packed = pack_field(values, dtype)
    return Literal(unpack(packed, dtype, count)) if kind.is_literal else Blob(packed)


def _element_count(dims: tuple[int, ...], name: str) -> int:
    if len(dims) > MOST_AXES:
        raise _bad(name, f"it has {len(dims)} axes")
    negative = next((dim for dim in dims if dim < 0), None)
    if negative is not None:
        raise _bad(name, f"the size {negative} is negative")
    count = math.prod(dims)
    if count > _MOST_ELEMENTS:
        raise _bad(name, "its sizes multiply to more elements than any file can hold")
    return count


def _densify(values: Constant, indices: Constant, dims: tuple[int, ...], count: int) -> Literal | str | None:
    """Return all elements of a small sparse tensor; None where it is large, a text where its indices are wrong."""
    if not is_literal(values.type.dtype, count) or not isinstance(values.data, Literal) or not isinstance(indices.data, Literal):
        return None
    positions = [int(position.real) for position in indices.data.values if not isinstance(position, str)]
    if len(indices.type.shape or ()) == 2:
        rank = len(dims)
        rows = [positions[start : start + rank] for start in range(0, len(positions), rank)] if rank else []
        if any(not 0 <= index < size for row in rows for index, size in zip(row, dims, strict=True)):
            return "an index of the sparse tensor is outside its sizes"
        positions = []
        for row in rows:
            flat = 0
            for index, size in zip(row, dims, strict=True):
                flat = flat * size + index
            positions.append(flat)
    if any(not 0 <= position < count for position in positions):
        return "an index of the sparse tensor is outside its sizes"
    kind = values.type.dtype.kind
    zero: Scalar = "" if kind is DTypeKind.STRING else False if kind is DTypeKind.BOOL else 0.0 if kind is DTypeKind.FLOAT else 0
    dense = [zero] * count
    for position, value in zip(positions, values.data.values, strict=False):
        dense[position] = value
    return Literal(tuple(dense))


def _bad(name: str, message: str, hint: str = "the model file is damaged") -> Exception:
    return refuse(BAD_TENSOR, message, f"tensor '{short(name)}'", hint)


_KNOWN_KEYS = ("location", "offset", "length")


class ExternalFiles:
    """Checks locations of external data, each file once."""

    def __init__(self, model: Path | None) -> None:
        self._folder = None if model is None else ModelFolder(model)
        self._seen: dict[str, DataFile | None] = {}

    def find(self, location: str, tensor: str) -> DataFile | None:
        """Return the file at a location that a model names; None where there is none, LoadError where it must not be used."""
        if location not in self._seen:
            try:
                self._seen[location] = self._check(location)
            except LoadError as error:
                error.where = f"tensor '{short(tensor)}'"
                raise
        return self._seen[location]

    def _check(self, location: str) -> DataFile | None:
        shown = f"'{short(location)}'"
        if not location or "\0" in location:
            raise _bad_location(f"the location {shown} of its external data is not a file name")
        windows = PureWindowsPath(location)
        if os.path.isabs(location) or windows.drive or windows.root:
            raise _bad_location(f"its external data is at an absolute path, {shown}", "locations must be relative to the model's folder")
        parts = windows.parts
        if not parts or ".." in parts or location.rstrip("/\\").endswith("."):
            raise _bad_location(f"the location {shown} of its external data leaves the model's folder")
        if self._folder is None:
            return None
        try:
            return self._folder.find(location)
        except Forbidden as error:
            raise _bad_location(f"its external data {shown} {error}", *([error.hint] if error.hint else [])) from None

    def read(self, file: DataFile, offset: int, length: int) -> bytes | None:
        """Return a few bytes of a checked file; None where it changed since it was checked."""
        assert self._folder is not None, "find() gave the file"
        try:
            descriptor = self._folder.open(file)
        except (OSError, Forbidden):
            return None
        try:
            os.lseek(descriptor, offset, os.SEEK_SET)
            data = os.read(descriptor, length)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return data if len(data) == length else None


def region(entries: dict[str, str], expected: int | None, tensor: str) -> tuple[str, int, int | None]:
    """Location, offset and length from the entries of a tensor; the length must be what its type needs."""
    where = f"tensor '{short(tensor)}'"
    numbers: dict[str, int] = {}
    for key in _KNOWN_KEYS[1:]:
        text = entries.get(key, "")
        if text:
            if not (text.isascii() and text.isdigit() and len(text) < 20):
                raise refuse(BAD_LOCATION, f"the {key} of its external data, '{short(text)}', is not a size", where)
            numbers[key] = int(text)
    length = numbers.get("length", expected)
    if expected is not None and length != expected:
        raise refuse(BAD_LOCATION, f"its external data has {length} bytes, its type needs {expected}", where, "the model file is damaged")
    return entries.get("location", ""), numbers.get("offset", 0), length


def check_within(file: DataFile, offset: int, length: int | None, tensor: str) -> None:
    """Refuse data that would lie beyond the end of their file."""
    if offset + (length or 0) > file.size:
        if (pointer := lfs_pointer(Path(file.path))) is not None:
            raise pointer
        raise refuse(
            BAD_LOCATION,
            f"its external data ends at byte {offset + (length or 0)}, but '{short(os.path.basename(file.path))}' has only {file.size}",
            f"tensor '{short(tensor)}'",
            "the data file is incomplete or belongs to another model",
        )


def _bad_location(message: str, hint: str = "external data must lie in the folder of the model") -> LoadError:
    return refuse(BAD_LOCATION, message, hint=hint)
