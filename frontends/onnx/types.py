"""ONNX messages as Python values: element types and their packed bytes, attributes, declared types and their sizes."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from irscope.diagnostics import DiagnosticSink
from irscope.errors import UsageError
from irscope.frontends.onnx.protos import AttributeProto, GraphProto, SparseTensorProto, TensorProto, TensorShapeProto, TypeProto
from irscope.frontends.onnx.reader import BAD_DIM, BAD_TENSOR, refuse, short
from irscope.ir.dims import Dim, SymDim, parse_dim, symbol, unknown
from irscope.ir.dtypes import STRUCT_CODES, DType, DTypeKind
from irscope.ir.graph import Names
from irscope.ir.places import Scalar
from irscope.ir.types import UNKNOWN_TYPE, Type, map_of, optional, sequence, tensor
from irscope.weights.tensors import pattern_values

DTYPES: dict[int, DType] = {
    0: DType.UNKNOWN, 1: DType.F32, 2: DType.U8, 3: DType.I8, 4: DType.U16, 5: DType.I16, 6: DType.I32, 7: DType.I64, 8: DType.STR,
    9: DType.BOOL, 10: DType.F16, 11: DType.F64, 12: DType.U32, 13: DType.U64, 14: DType.C64, 15: DType.C128, 16: DType.BF16,
    17: DType.F8E4M3FN, 18: DType.F8E4M3FNUZ, 19: DType.F8E5M2, 20: DType.F8E5M2FNUZ, 21: DType.U4, 22: DType.I4, 23: DType.F4E2M1,
    24: DType.F8E8M0, 25: DType.U2, 26: DType.I2, 27: DType.F6E2M3, 28: DType.F6E3M2,
}  # fmt: skip
"""TensorProto.DataType to element type; written as numbers because older onnx packages lack the newer names."""

NUMBERS: dict[DType, int] = {dtype: number for number, dtype in DTYPES.items()}
DTYPES_BY_NAME: dict[str, DType] = {
    "FLOAT": DType.F32, "UINT8": DType.U8, "INT8": DType.I8, "UINT16": DType.U16, "INT16": DType.I16, "INT32": DType.I32,
    "INT64": DType.I64, "STRING": DType.STR, "BOOL": DType.BOOL, "FLOAT16": DType.F16, "DOUBLE": DType.F64, "UINT32": DType.U32,
    "UINT64": DType.U64, "COMPLEX64": DType.C64, "COMPLEX128": DType.C128,
}  # fmt: skip
"""Names that the string form of Cast's `to` uses (opset 1 to 5)."""

NUMPY: dict[DType, np.dtype[np.generic]] = {
    DType.BOOL: np.dtype("?"),
    **{DType[f"{kind.upper()}{bits}"]: np.dtype(f"<{kind}{bits // 8}") for kind in "iu" for bits in (8, 16, 32, 64)},
    **{DType[f"F{bits}"]: np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    **{DType[f"C{bits}"]: np.dtype(f"<c{bits // 8}") for bits in (64, 128)},
}


_MOST_UNPACKED = 64
"""Up to so many elements numpy is the slower way."""


def packed_size(count: int, dtype: DType) -> int | None:
    """Return the bytes of so many packed elements, None for strings."""
    return None if dtype.bits is None else (count * dtype.bits + 7) // 8


def unpack(data: bytes, dtype: DType, count: int) -> tuple[Scalar, ...]:
    """Return the values of packed little-endian elements."""
    letter = STRUCT_CODES.get(dtype)
    if letter is not None and count <= _MOST_UNPACKED:
        return struct.unpack_from(f"<{count}{letter}", data)
    plain = NUMPY.get(dtype)
    if plain is not None:
        values: list[Scalar] = np.frombuffer(data, plain, count).tolist()
        return tuple(values)
    if dtype is DType.BF16:
        halves = np.frombuffer(data, "<u2", count).astype(np.uint32) << 16
        return tuple(halves.view(np.float32).tolist())
    codes = _codes(data, dtype.bits or 8, count)
    if dtype.kind is DTypeKind.FLOAT:
        table = pattern_values(dtype).tolist()
        return tuple([table[code] for code in codes])
    if dtype in (DType.I4, DType.I2):
        half = 1 << ((dtype.bits or 8) - 1)
        return tuple([code - 2 * half if code >= half else code for code in codes])
    return tuple(codes)


def _codes(data: bytes, bits: int, count: int) -> Sequence[int]:
    if bits == 8:
        return data[:count]
    whole = int.from_bytes(data, "little")
    mask = (1 << bits) - 1
    return [(whole >> (index * bits)) & mask for index in range(count)]


def pack_field(values: Iterable[int | float], dtype: DType) -> bytes:
    """Packed bytes from one of the typed fields of a TensorProto, where narrow types stand as their bit patterns."""
    if dtype in (DType.C64, DType.C128):
        return np.asarray(values, NUMPY[DType.F32 if dtype is DType.C64 else DType.F64]).tobytes()
    if dtype in (DType.F32, DType.F64, DType.I64, DType.U64, DType.U32, DType.I32):
        return np.asarray(values, NUMPY[dtype]).tobytes()
    bits = dtype.bits or 8
    codes: npt.NDArray[np.int64] = np.asarray(values, np.int64)
    if dtype is DType.BOOL:
        return np.asarray(codes != 0, np.bool_).tobytes()
    if bits == 16:
        return (codes & 0xFFFF).astype("<u2").tobytes()
    if bits == 6:
        whole = 0
        for index, code in enumerate(codes.tolist()):
            whole |= (code & 0x3F) << (6 * index)
        return whole.to_bytes((len(codes) * 6 + 7) // 8, "little")
    return (codes & 0xFF).astype("<u1").tobytes()


AttrValue: TypeAlias = (
    "int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | TensorProto | GraphProto"
    " | SparseTensorProto | TypeProto | tuple[TensorProto, ...] | tuple[GraphProto, ...] | None"
)

_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _STRINGS, _TENSORS, _GRAPHS, _SPARSE = range(1, 12)
_FIELDS_BY_GUESS = ("ints", "floats", "strings", "t", "g", "s", "f")
_TYPES_BY_FIELD = {"ints": _INTS, "floats": _FLOATS, "strings": _STRINGS, "t": _TENSOR, "g": _GRAPH, "s": _STRING, "f": _FLOAT}
_MOST_ROUNDED = 64


def decode(attribute: AttributeProto) -> AttrValue:
    """Return the value of an attribute; None for kinds that no operator here uses."""
    kind = attribute.type or _guess(attribute)
    if kind == _INT:
        return int(attribute.i)
    if kind == _INTS:
        return tuple(attribute.ints)
    reader = _READERS.get(kind)
    return reader(attribute) if reader is not None else None


def floats(values: Iterable[float]) -> tuple[float, ...]:
    """Single-precision numbers, with few digits where there are few of them."""
    found = tuple(values)
    return tuple([short_float(value) for value in found]) if len(found) <= _MOST_ROUNDED else found


@lru_cache(maxsize=4096)
def short_float(value: float) -> float:
    """Return the number with the fewest digits that is this one in single precision: 0.1 rather than 0.10000000149011612."""
    if value.is_integer():
        return value
    for digits in range(6, 9):
        try:
            shorter = float(f"{value:.{digits}g}")
            if struct.unpack("f", struct.pack("f", shorter))[0] == value:
                return shorter
        except OverflowError:
            return value
    return value


_READERS: dict[int, Callable[[AttributeProto], AttrValue]] = {
    _FLOAT: lambda attribute: short_float(attribute.f),
    _STRING: lambda attribute: attribute.s.decode("utf-8", "replace"),
    _TENSOR: lambda attribute: attribute.t,
    _GRAPH: lambda attribute: attribute.g,
    _FLOATS: lambda attribute: floats(attribute.floats),
    _STRINGS: lambda attribute: tuple([text.decode("utf-8", "replace") for text in attribute.strings]),
    _TENSORS: lambda attribute: tuple(attribute.tensors),
    _GRAPHS: lambda attribute: tuple(attribute.graphs),
    _SPARSE: lambda attribute: attribute.sparse_tensor,
    13: lambda attribute: attribute.tp,
}


def _guess(attribute: AttributeProto) -> int:
    """Return the kind of an attribute of a model older than IR version 2, which does not say it."""
    for field in _FIELDS_BY_GUESS:
        value = getattr(attribute, field)
        if field in ("t", "g", "s", "f"):
            if attribute.HasField(field):
                return _TYPES_BY_FIELD[field]
        elif len(value):
            return _TYPES_BY_FIELD[field]
    return _INT


_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_NO_IDENTIFIER = re.compile(r"\W+", re.ASCII)
_NAMELESS = frozenset({"", "?", "None", "none", "unk", "-1"})

MOST_AXES = 256
"""No library computes with tensors of more axes."""
_MOST_NAMELESS = 20_000
"""Sizes without a name of which each is made a symbol of its own."""

NamedDim = Callable[[str], "Dim | None"]
"""The size that a text stands for, None where it says nothing."""


class Symbols:
    """Named sizes of one model. Names that are no identifiers get one, and keep their spelling in the metadata."""

    def __init__(self, sink: DiagnosticSink) -> None:
        self.named: dict[str, SymDim] = {}
        self.spelling: dict[str, str] = {}
        """Identifiers that stand for names which the file spells otherwise."""
        self._by_text: dict[str, Dim | None] = {}
        self._moved: dict[str, str] = {}
        self._sink = sink
        self._names = Names("_", 2)
        self._nameless = 0

    def of_input(self, text: str) -> Dim | None:
        """Return a size that users may bind: its symbols become symbols of the program."""
        if text in _NAMELESS:
            return None
        if text not in self._by_text:
            self._by_text[text] = self._read(text)
        return self._by_text[text]

    def of_result(self, text: str) -> Dim | None:
        """Return a size of something computed: known names are kept, others become unknown sizes."""
        if text in _NAMELESS:
            return None
        if text in self._by_text:
            return self._by_text[text]
        if _PLAIN_NAME.fullmatch(text):
            return unknown(f"file.{text}")
        try:
            return _not_negative(parse_dim(text, self._known_or_unknown))
        except UsageError:
            return unknown(f"file.{_identifier(text)[:100]}")

    def nameless(self, prefix: str = "") -> SymDim | None:
        """Return a size without a name: of an input it is a symbol, else an unknown; None after too many of them."""
        self._nameless += 1
        if self._nameless > _MOST_NAMELESS:
            return None
        return self._symbol(self._names.unique(_identifier(prefix)[:100], self.named)) if prefix else unknown(f"file.{self._nameless}")

    def adopt(self, type_: Type, declared: TypeProto, bound: Collection[str]) -> None:
        """Make the symbols of a type that a user gave symbols of the program; names that the file declares for them mean these sizes."""
        for dim in type_.shape or ():
            if isinstance(dim, SymDim):
                for found in dim.symbols():
                    self.named.setdefault(str(found), found)
        for proto, dim in zip(declared.tensor_type.shape.dim, type_.shape or (), strict=False):
            if proto.dim_param and proto.dim_param not in bound and not (isinstance(dim, SymDim) and dim.is_unknown):
                self._by_text.setdefault(proto.dim_param, dim)

    def _known_or_unknown(self, name: str) -> Dim:
        known = self.named.get(name)
        return known if known is not None else unknown(f"file.{name.removeprefix('?')}")

    def _spelled(self, name: str) -> SymDim:
        """Return the symbol of a name as the file has it, which may be taken by another one's replacement."""
        if name in self.spelling:
            if name not in self._moved:
                self._moved[name] = self._names.unique(name, self.named)
                self.spelling[self._moved[name]] = name
            name = self._moved[name]
        return self._symbol(name)

    def _symbol(self, name: str) -> SymDim:
        found = self.named.get(name)
        if found is None:
            found = self.named[name] = symbol(name)
        return found

    def _read(self, text: str) -> Dim | None:
        if _PLAIN_NAME.fullmatch(text):
            return self._spelled(text)
        if "?" not in text and not text[0].isspace():
            before = set(self.named)
            try:
                return _not_negative(parse_dim(text, self._spelled))
            except UsageError:
                for name in [name for name in self.named if name not in before]:
                    del self.named[name]
        name = self._names.unique(_identifier(text)[:100], self.named)
        self.spelling[name] = text
        self._sink.note(BAD_DIM, f"the size '{short(text)}' is neither a name nor a formula; it is called {name} here", about=text)
        return self._symbol(name)


def _identifier(text: str) -> str:
    """Return a text as an identifier: other characters become underscores."""
    made = _NO_IDENTIFIER.sub("_", text).strip("_")
    return made if made and not made[0].isdigit() else f"s_{made}".rstrip("_")


def _not_negative(dim: Dim) -> Dim | None:
    return None if isinstance(dim, int) and dim < 0 else dim


class TypeReader:
    """Turns declared types into types of the IR."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols

    def of_input(self, proto: TypeProto, name: str) -> Type:
        """Return the type of an input of the model; sizes without a name become symbols named after it."""

        def shape_of(dims: TensorShapeProto) -> list[Dim] | None:
            return _declared_sizes(dims, self.symbols.of_input, lambda axis: self.symbols.nameless(f"{name}_dim{axis}"))

        return _convert(proto, shape_of, name)

    def of_result(self, proto: TypeProto, *, bindable: bool = False) -> Type:
        """Return the declared type of something computed; with `bindable` its named sizes become symbols of the program."""
        named = self.symbols.of_input if bindable else self.symbols.of_result

        def shape_of(dims: TensorShapeProto) -> list[Dim] | None:
            return _declared_sizes(dims, named, lambda axis: self.symbols.nameless())

        return _convert(proto, shape_of, "")


def _declared_sizes(dims: TensorShapeProto, named: NamedDim, nameless: Callable[[int], Dim | None]) -> list[Dim] | None:
    """Return the sizes of a shape; None where they cannot all be told, as if the file had none."""
    if len(dims.dim) > MOST_AXES:
        return None
    sizes: list[Dim] = []
    for axis, dim in enumerate(dims.dim):
        size = _declared_size(dim, named)
        if size is None:
            size = nameless(axis)
        if size is None:
            return None
        sizes.append(size)
    return sizes


def _declared_size(dim: TensorShapeProto.Dimension, named: NamedDim) -> Dim | None:
    text = dim.dim_param
    if text:
        return named(text)
    value = dim.dim_value
    if value > 0:
        return int(value)
    return 0 if value == 0 and dim.HasField("dim_value") else None


def _convert(proto: TypeProto, shape_of: Callable[[TensorShapeProto], list[Dim] | None], name: str) -> Type:
    kind = proto.WhichOneof("value")
    if kind == "tensor_type" or kind == "sparse_tensor_type":
        inner = proto.tensor_type if kind == "tensor_type" else proto.sparse_tensor_type
        shape = shape_of(inner.shape) if inner.HasField("shape") else None
        return tensor(_declared_dtype(inner.elem_type, name), shape, layout=None if kind == "tensor_type" else "sparse")
    if kind == "sequence_type":
        return sequence(_convert(proto.sequence_type.elem_type, shape_of, name))
    if kind == "optional_type":
        return optional(_convert(proto.optional_type.elem_type, shape_of, name))
    if kind == "map_type":
        return map_of(_declared_dtype(proto.map_type.key_type, name), _convert(proto.map_type.value_type, shape_of, name))
    return UNKNOWN_TYPE


def _declared_dtype(number: int, name: str) -> DType:
    dtype = DTYPES.get(number)
    if dtype is not None:
        return dtype
    if name:
        raise refuse(BAD_TENSOR, f"element type {number} does not exist", f"input '{short(name)}'", "the model file is damaged")
    return DType.UNKNOWN
