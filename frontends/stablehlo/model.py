"""Operations of an MLIR module as they were read, from text or from bytecode; `program` makes the graph of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from typing import Final, TypeAlias

from irscope.errors import LoadError
from irscope.immutable import immutable, mutable
from irscope.ir.dims import Dim, unknown
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.types import TensorType, tensor

BAD_TEXT: Final = "IRS107"
_MOST_AXES: Final = 256
_LONGEST_QUOTED: Final = 80

ELEMENTS: Final[dict[str, DType]] = {
    "i1": DType.BOOL,
    "index": DType.I64,
    "f8E4M3FN": DType.F8E4M3FN,
    "f8E4M3FNUZ": DType.F8E4M3FNUZ,
    "f8E4M3B11FNUZ": DType.F8E4M3FNUZ,
    "f8E4M3": DType.F8E4M3FN,
    "f8E3M4": DType.F8E4M3FN,
    "f8E5M2": DType.F8E5M2,
    "f8E5M2FNUZ": DType.F8E5M2FNUZ,
    "f8E8M0FNU": DType.F8E8M0,
    "f4E2M1FN": DType.F4E2M1,
    "f6E2M3FN": DType.F6E2M3,
    "f6E3M2FN": DType.F6E3M2,
    "tf32": DType.F32,
    "complex<f32>": DType.C64,
    "complex<f64>": DType.C128,
    **{name: DType[name.upper()] for name in ("bf16", "f16", "f32", "f64")},
    **{f"{sign}{bits}": DType[f"{'U' if sign == 'ui' else 'I'}{bits}"] for bits in (2, 4, 8, 16, 32, 64) for sign in ("i", "si", "ui")},
}
"""Element types by their spelling. Those of 8 bits without a type of irscope's own stand for one of the same width."""


@immutable
class Dense:
    """Elements of a constant: all alike, listed, packed little-endian, or under a name at the end of the module."""

    type: str
    values: tuple[Number, ...] = ()
    """One for all elements, or all of them."""
    data: bytes | None = None
    """All elements, or those of one where `is_splat`."""
    resource: str = ""
    is_splat: bool = False


Number: TypeAlias = bool | int | float | complex
Attribute: TypeAlias = "Number | str | Dense | tuple[Attribute, ...] | dict[str, Attribute] | None"


@immutable
class Place:
    """Origin of an operation: what the program calls it, and file and line."""

    name: str = ""
    file: str = ""
    line: int = 0
    caller: Place | None = None


NOWHERE: Final = Place()


@mutable
class Region:
    """A region of one block: its arguments with their types and places, and its operations."""

    arguments: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)


@mutable
class Operation:
    """One operation. Values are names, types their spelling."""

    name: str
    operands: list[str]
    results: list[str]
    attributes: dict[str, Attribute]
    regions: list[Region]
    operand_types: list[str]
    result_types: list[str]
    place: Place
    callee: str = ""
    """The function that it calls, or the target of a custom call."""
    words: tuple[str, ...] = ()
    """Words of the pretty form that no attribute is named for: the direction of a comparison."""

    @property
    def short(self) -> str:
        """Return the name without its dialect."""
        return self.name.rpartition(".")[2]

    def name_callee(self) -> None:
        """Look in the attributes for the function that it calls, or the target of a custom call."""
        callee = self.attributes.get("callee", self.attributes.get("call_target_name", self.attributes.get("name")))
        self.callee = callee.removeprefix("@").strip('"') if isinstance(callee, str) else ""


@mutable
class Function:
    """A function of the module, with what is said of its arguments and results."""

    name: str
    body: Region
    argument_attributes: list[dict[str, Attribute]]
    result_types: list[str]
    result_attributes: list[dict[str, Attribute]]
    is_public: bool

    @staticmethod
    def of(made: Operation) -> Function:
        """Return the function that an operation of the generic form, or of bytecode, defines."""
        given, body = made.attributes, made.regions[0] if made.regions else Region()
        said = [value if isinstance(value := given.get(name), tuple) else () for name in ("arg_attrs", "res_attrs")]
        arguments, results = ([one if isinstance(one, dict) else {} for one in value] for value in said)
        last = body.operations[-1] if body.operations else None
        types = [] if last is None else last.operand_types or last.result_types or [""] * len(last.operands)
        name = str(given.get("sym_name", "")).removeprefix("@").strip('"')
        return Function(name, body, arguments or [{} for _ in body.arguments], types, results, given.get("sym_visibility") != "private")


@mutable
class Module:
    """Content of a file."""

    functions: dict[str, Function] = field(default_factory=dict)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    meshes: dict[str, dict[str, int]] = field(default_factory=dict)
    """Sizes of the axes of device meshes."""
    resources: dict[str, Callable[[], bytes]] = field(default_factory=dict)
    """Bytes of constants that stand at the end, read when they are asked for."""
    version: str = ""


def refuse(message: str, where: str = "") -> LoadError:
    """Return the error for a module that does not have the form it should have."""
    return LoadError(message, code=BAD_TEXT, where=where, hint="the file is damaged, or of a version of MLIR that irscope does not know")


def quoted(text: str) -> str:
    """Text of the file in a message."""
    shown = text if len(text) <= _LONGEST_QUOTED else f"{text[:_LONGEST_QUOTED]}..."
    return f"'{shown.encode('unicode_escape').decode()}'"


_SHAPED: Final = re.compile(r"(?:tensor|vector|memref)<((?:(?:\d+|\?|\*)x)*)(.*)>$", re.DOTALL)
_BOUNDS: Final = re.compile(r"bounds<([^>]*)>")
_QUANTISED: Final = re.compile(r"!quant\.uniform<([su]?i?\d+)\b")
_types: dict[str, TensorType] = {}
_MOST_TYPES: Final = 10_000


def type_of(text: str) -> TensorType | None:
    """Return the tensor type that is spelled so; None for what is no tensor: tokens, tuples. Sizes that are open are unknown ones."""
    found = _types.get(text)
    if found is None:
        found = _read_type(text)
        if found is None:
            return None
        if len(_types) >= _MOST_TYPES:
            _types.clear()
        if found.is_static:
            _types[text] = found
    return found


def _read_type(text: str) -> TensorType | None:
    match = _SHAPED.match(text)
    if match is None:
        scalar = ELEMENTS.get(text)
        return None if scalar is None else tensor(scalar, ())
    element, _, rest = match[2].partition(",")
    dtype = ELEMENTS.get(element.strip())
    if dtype is None:
        stored = _QUANTISED.match(match[2])
        dtype = ELEMENTS.get(f"i{stored[1].lstrip('sui')}", DType.UNKNOWN) if stored is not None else DType.UNKNOWN
    sizes = match[1].split("x")[:-1]
    if "*" in sizes:
        return tensor(dtype, None)
    if len(sizes) > _MOST_AXES:
        raise refuse(f"a tensor has {len(sizes)} axes")
    limits = _BOUNDS.search(rest)
    most = [part.strip() for part in limits[1].split(",")] if limits is not None else []
    shape: list[Dim] = []
    for axis, size in enumerate(sizes):
        if size == "?":
            bound = most[axis] if axis < len(most) else "?"
            shape.append(unknown(f"d{axis}", 0, int(bound) if bound.isdigit() else None))
        else:
            shape.append(int(size))
    return tensor(dtype, shape)


def bytes_per_element(dtype: DType) -> int:
    """Return the bytes of an element as MLIR packs constants: a byte where it has fewer bits than that."""
    return max(1, (dtype.bits or 8) // 8)


def is_floating(dtype: DType) -> bool:
    """Return whether texts of its elements are floats, or pairs of them."""
    return dtype.kind in (DTypeKind.FLOAT, DTypeKind.COMPLEX)


def mesh_axes(text: str) -> dict[str, int]:
    """Return the sizes of the axes in `<["data"=4, "model"=2]>`; none of them is 0."""
    return {name: int(size) for name, size in re.findall(r'"([^"]*)"\s*=\s*([1-9]\d{0,8})', text)}
