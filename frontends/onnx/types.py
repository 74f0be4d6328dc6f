"""Declared types and their sizes: numbers, names, formulas, or nothing at all."""

from __future__ import annotations

import re
from collections.abc import Callable

import onnx

from irscope.diagnostics import DiagnosticSink
from irscope.errors import UsageError
from irscope.frontends.onnx.elements import DTYPES
from irscope.frontends.onnx.failures import BAD_DIM, BAD_TENSOR, refuse, short
from irscope.ir.dims import Dim, SymDim, parse_dim, symbol, unknown
from irscope.ir.dtypes import DType
from irscope.ir.types import UNKNOWN_TYPE, Type, map_of, optional, sequence, tensor

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
        self._nameless = 0

    def of_input(self, text: str) -> Dim | None:
        """A size that users may bind: its symbols become symbols of the program."""
        if text in _NAMELESS:
            return None
        if text not in self._by_text:
            self._by_text[text] = self._read(text)
        return self._by_text[text]

    def of_result(self, text: str) -> Dim | None:
        """A size of something computed: known names are kept, others become unknown sizes."""
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
        """A size without a name: of an input it is a symbol, else an unknown; None after too many of them."""
        self._nameless += 1
        if self._nameless > _MOST_NAMELESS:
            return None
        return self._symbol(self._free(_identifier(prefix)[:100])) if prefix else unknown(f"file.{self._nameless}")

    def adopt(self, type_: Type) -> None:
        """Make the symbols of a type that a user gave symbols of the program."""
        for dim in type_.shape or ():
            if isinstance(dim, SymDim):
                for found in dim.symbols():
                    self.named.setdefault(str(found), found)

    def _known_or_unknown(self, name: str) -> Dim:
        known = self.named.get(name)
        return known if known is not None else unknown(f"file.{name.removeprefix('?')}")

    def _spelled(self, name: str) -> SymDim:
        """The symbol of a name as the file has it, which may be taken by another one's replacement."""
        if name in self.spelling:
            if name not in self._moved:
                self._moved[name] = self._free(name)
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
        name = self._free(_identifier(text)[:100])
        self.spelling[name] = text
        self._sink.note(BAD_DIM, f"the size '{short(text)}' is neither a name nor a formula; it is called {name} here", about=text)
        return self._symbol(name)

    def _free(self, name: str) -> str:
        number, made = 1, name
        while made in self.named:
            number += 1
            made = f"{name}_{number}"
        return made


def _identifier(text: str) -> str:
    """A text as an identifier: other characters become underscores."""
    made = _NO_IDENTIFIER.sub("_", text).strip("_")
    return made if made and not made[0].isdigit() else f"s_{made}".rstrip("_")


def _not_negative(dim: Dim) -> Dim | None:
    return None if isinstance(dim, int) and dim < 0 else dim


class TypeReader:
    """Turns declared types into types of the IR."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols

    def of_input(self, proto: onnx.TypeProto, name: str) -> Type:
        """The type of an input of the model; sizes without a name become symbols named after it."""

        def shape_of(dims: onnx.TensorShapeProto) -> list[Dim] | None:
            return _sizes(dims, self.symbols.of_input, lambda axis: self.symbols.nameless(f"{name}_dim{axis}"))

        return _convert(proto, shape_of, name)

    def of_result(self, proto: onnx.TypeProto, *, bindable: bool = False) -> Type:
        """The declared type of something computed; with `bindable` its named sizes become symbols of the program."""
        named = self.symbols.of_input if bindable else self.symbols.of_result

        def shape_of(dims: onnx.TensorShapeProto) -> list[Dim] | None:
            return _sizes(dims, named, lambda axis: self.symbols.nameless())

        return _convert(proto, shape_of, "")


def _sizes(dims: onnx.TensorShapeProto, named: NamedDim, nameless: Callable[[int], Dim | None]) -> list[Dim] | None:
    """The sizes of a shape; None where they cannot all be told, as if the file had none."""
    if len(dims.dim) > MOST_AXES:
        return None
    sizes: list[Dim] = []
    for axis, dim in enumerate(dims.dim):
        size = _size(dim, named)
        if size is None:
            size = nameless(axis)
        if size is None:
            return None
        sizes.append(size)
    return sizes


def _size(dim: onnx.TensorShapeProto.Dimension, named: NamedDim) -> Dim | None:
    text = dim.dim_param
    if text:
        return named(text)
    value = dim.dim_value
    if value > 0:
        return int(value)
    return 0 if value == 0 and dim.HasField("dim_value") else None


def _convert(proto: onnx.TypeProto, shape_of: Callable[[onnx.TensorShapeProto], list[Dim] | None], name: str) -> Type:
    kind = proto.WhichOneof("value")
    if kind == "tensor_type" or kind == "sparse_tensor_type":
        inner = proto.tensor_type if kind == "tensor_type" else proto.sparse_tensor_type
        shape = shape_of(inner.shape) if inner.HasField("shape") else None
        return tensor(_dtype(inner.elem_type, name), shape, layout=None if kind == "tensor_type" else "sparse")
    if kind == "sequence_type":
        return sequence(_convert(proto.sequence_type.elem_type, shape_of, name))
    if kind == "optional_type":
        return optional(_convert(proto.optional_type.elem_type, shape_of, name))
    if kind == "map_type":
        return map_of(_dtype(proto.map_type.key_type, name), _convert(proto.map_type.value_type, shape_of, name))
    return UNKNOWN_TYPE


def _dtype(number: int, name: str) -> DType:
    found = DTYPES.get(number)
    if found is not None:
        return found
    if name:
        raise refuse(BAD_TENSOR, f"element type {number} does not exist", f"input '{short(name)}'", "the model file is damaged")
    return DType.UNKNOWN
