"""Types of values. Every type is interned: equal types are one object, so `is` compares them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Literal, NoReturn, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from irscope.ir.dims import Dim, SymDim, bounds, product
from irscope.ir.dtypes import DType

Shape: TypeAlias = tuple[Dim, ...] | None
"""Sizes of each axis, or None where even the number of axes is unknown."""

Layout: TypeAlias = tuple[Dim, ...] | Literal["sparse"] | None
"""Strides in elements where they are known, "sparse", or None: not stated (row-major)."""

MOST_BYTES = (1 << 62) - 1
"""Half of what PyTorch and ONNX Runtime can count in the signed 64 bits of their sizes, so that a sum of two can be counted too."""

_is_plain_device = re.compile(r"[A-Za-z0-9_.:/-]+").fullmatch


class Type:
    """Type of a value; `str()` gives the spelling of the text form.

    Every type answers what is asked about tensors, so that most readers need not tell tensors from the others: what has no elements
    of its own (a list, a number in Python) answers as a tensor of which nothing is known.
    """

    __slots__ = ("__weakref__", "text")

    text: str
    dtype: DType = DType.UNKNOWN
    shape: Shape = None
    layout: Layout = None
    device: str = ""

    @property
    def rank(self) -> int | None:
        """Number of axes, None where it is unknown."""
        return None

    @property
    def numel(self) -> Dim | None:
        """Number of elements, None where the rank is unknown."""
        return None

    @property
    def nbytes(self) -> Dim | None:
        """Bytes of the packed elements, None where shape or element size is unknown."""
        return None

    @property
    def tensor_bytes(self) -> Dim | None:
        """Return what a value takes as a tensor: its bytes, and nothing where it is none."""
        return 0

    @property
    def is_static(self) -> bool:
        """Return whether every size is a plain integer."""
        return False

    @property
    def is_possible(self) -> bool:
        """Return whether there can be such a tensor: no size is negative, and it has surely no more than `MOST_BYTES`."""
        return True

    def with_shape(self, shape: Iterable[Dim] | None) -> TensorType:
        """Return the same element type and device with other sizes; strides no longer hold and are dropped."""
        return tensor(self.dtype, shape, self.device)

    def __setattr__(self, field: str, to: object) -> NoReturn:
        raise AttributeError("a type is shared by all values that have it: give the value another one, such as type.with_shape(...)")

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.text}>"


class TensorType(Type):
    """An array of one element type; build it with `tensor()`."""

    __slots__ = ("_nbytes", "device", "dtype", "layout", "shape")

    dtype: DType
    shape: Shape
    device: str
    layout: Layout
    _nbytes: Dim | None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def numel(self) -> Dim | None:
        return None if self.shape is None else product(self.shape)

    @property
    def nbytes(self) -> Dim | None:
        try:
            dim: Dim | None = self._nbytes
        except AttributeError:  # it is worked out once, when it is first asked for
            dim = self._counted_bytes()
            _filled(self, _nbytes=dim)
        return dim

    def _counted_bytes(self) -> Dim | None:
        bits = self.dtype.bits
        if self.shape is None or (bits is None and self.dtype.block is None):
            return None
        count = product(self.shape)
        if bits is None:
            elements, size = self.dtype.block or (1, 0)
            return (count + elements - 1) // elements * size
        return count * (bits // 8) if bits % 8 == 0 else (count * bits + 7) // 8

    @property
    def tensor_bytes(self) -> Dim | None:
        return self.nbytes

    @property
    def is_possible(self) -> bool:
        if self.shape is None:
            return True
        bits = self.dtype.bits or 8
        for dim in self.shape:
            low = bounds(dim)[0] or 0
            if low > MOST_BYTES or (low < 0 and not isinstance(dim, SymDim)):
                return False
            bits *= low
        return bits <= 8 * MOST_BYTES

    @property
    def is_static(self) -> bool:
        return self.shape is not None and not any(isinstance(dim, SymDim) for dim in self.shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return tensor(dtype, self.shape, self.device, self.layout)


class ScalarType(Type):
    """A single number, truth value or string that is not a tensor (a TorchScript int, a symbolic size)."""

    __slots__ = ("dtype",)

    dtype: DType


class SequenceType(Type):
    """A list whose elements all have one type."""

    __slots__ = ("element",)

    element: Type


class OptionalType(Type):
    """A value that may be absent."""

    __slots__ = ("element",)

    element: Type


class TupleType(Type):
    """A fixed number of values, each of its own type."""

    __slots__ = ("elements",)

    elements: tuple[Type, ...]


class MapType(Type):
    """A dictionary."""

    __slots__ = ("key", "value")

    key: DType
    value: Type


class UnknownType(Type):
    """Nothing is known: not even whether the value is a tensor."""

    __slots__ = ()


T = TypeVar("T", bound=Type)
_interned: WeakValueDictionary[object, Type] = WeakValueDictionary()


def tensor(dtype: DType, shape: Iterable[Dim] | None, device: str = "", layout: Layout = None) -> TensorType:
    """Return the tensor type with these fields; `shape=None` means that the rank is unknown."""
    sizes = None if shape is None else tuple(shape)
    key = (dtype, sizes, device, layout)
    tensor_type = _interned.get(key)
    if tensor_type is not None:
        return tensor_type  # type: ignore[return-value]  # keys of this form only ever hold tensor types
    made = _filled(TensorType(), dtype=dtype, shape=sizes, device=device, layout=layout)
    _interned[key] = _filled(made, text=_tensor_text(made))
    return made


def _tensor_text(type_: TensorType) -> str:
    sizes = "*" if type_.shape is None else ",".join(map(str, type_.shape))
    text = f"{type_.dtype.text}[{sizes}]"
    if type_.layout == "sparse":
        text += "<sparse>"
    elif type_.layout is not None:
        strides = ",".join(map(str, type_.layout))
        # A symbol may have any name, also this one.
        text += "<(sparse)>" if strides == "sparse" else f"<{strides}>"
    if not type_.device:
        return text
    return f"{text}@{type_.device if _is_plain_device(type_.device) else json.dumps(type_.device)}"


def scalar(dtype: DType) -> ScalarType:
    """Return the type of one Python-like number of this element type."""
    return _intern(ScalarType, f"scalar({dtype.text})", dtype=dtype)


def sequence(element: Type) -> SequenceType:
    """Return the type of a list of `element`."""
    return _intern(SequenceType, f"seq({element.text})", element=element)


def optional(element: Type) -> OptionalType:
    """Return the type of an `element` that may be absent."""
    return _intern(OptionalType, f"optional({element.text})", element=element)


def tuple_of(elements: Iterable[Type]) -> TupleType:
    """Return the type of a tuple of these elements."""
    members = tuple(elements)
    return _intern(TupleType, f"tuple({', '.join([member.text for member in members])})", elements=members)


def map_of(key: DType, value: Type) -> MapType:
    """Return the type of a dictionary from `key` to `value`."""
    return _intern(MapType, f"map({key.text}, {value.text})", key=key, value=value)


def _intern(cls: type[T], text: str, **fields: object) -> T:
    """Return the one object of a class with these fields."""
    key = (cls, *fields.values())
    found = _interned.get(key)
    if isinstance(found, cls):
        return found
    made = _interned[key] = _filled(cls(), text=text, **fields)
    return made


def _filled(made: T, **fields: object) -> T:
    """Return a new type with its fields set, past what keeps others from setting them."""
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


UNKNOWN_TYPE = _filled(UnknownType(), text="?")
UNKNOWN_TENSOR = tensor(DType.UNKNOWN, None)
