"""Element types with their exact size in bits."""

from __future__ import annotations

import enum


class DTypeKind(enum.Enum):
    """What arithmetic an element type belongs to."""

    BOOL = "bool"
    UINT = "uint"
    INT = "int"
    FLOAT = "float"
    COMPLEX = "complex"
    STRING = "string"
    UNKNOWN = "unknown"


class DType(enum.Enum):
    """An element type; `text` is its name everywhere (files, reports, command line)."""

    BOOL = ("bool", 8, DTypeKind.BOOL)
    U2 = ("u2", 2, DTypeKind.UINT)
    U4 = ("u4", 4, DTypeKind.UINT)
    U8 = ("u8", 8, DTypeKind.UINT)
    U16 = ("u16", 16, DTypeKind.UINT)
    U32 = ("u32", 32, DTypeKind.UINT)
    U64 = ("u64", 64, DTypeKind.UINT)
    I2 = ("i2", 2, DTypeKind.INT)
    I4 = ("i4", 4, DTypeKind.INT)
    I8 = ("i8", 8, DTypeKind.INT)
    I16 = ("i16", 16, DTypeKind.INT)
    I32 = ("i32", 32, DTypeKind.INT)
    I64 = ("i64", 64, DTypeKind.INT)
    F4E2M1 = ("f4e2m1", 4, DTypeKind.FLOAT)
    F6E2M3 = ("f6e2m3", 6, DTypeKind.FLOAT)
    F6E3M2 = ("f6e3m2", 6, DTypeKind.FLOAT)
    F8E4M3FN = ("f8e4m3fn", 8, DTypeKind.FLOAT)
    F8E4M3FNUZ = ("f8e4m3fnuz", 8, DTypeKind.FLOAT)
    F8E5M2 = ("f8e5m2", 8, DTypeKind.FLOAT)
    F8E5M2FNUZ = ("f8e5m2fnuz", 8, DTypeKind.FLOAT)
    F8E8M0 = ("f8e8m0", 8, DTypeKind.FLOAT)
    F16 = ("f16", 16, DTypeKind.FLOAT)
    BF16 = ("bf16", 16, DTypeKind.FLOAT)
    F32 = ("f32", 32, DTypeKind.FLOAT)
    F64 = ("f64", 64, DTypeKind.FLOAT)
    C64 = ("c64", 64, DTypeKind.COMPLEX)
    C128 = ("c128", 128, DTypeKind.COMPLEX)
    STR = ("str", None, DTypeKind.STRING)
    UNKNOWN = ("?", None, DTypeKind.UNKNOWN)

    def __init__(self, text: str, bits: int | None, kind: DTypeKind) -> None:
        self.text = text
        self.bits = bits
        """Size of one element; None where elements have no fixed size."""
        self.kind = kind

    # Members are singletons; Enum's own hash goes through the name and is five times slower.
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.text

    @property
    def is_integer(self) -> bool:
        return self.kind is DTypeKind.INT or self.kind is DTypeKind.UINT

    @property
    def is_float(self) -> bool:
        return self.kind is DTypeKind.FLOAT


DTYPES_BY_TEXT: dict[str, DType] = {dtype.text: dtype for dtype in DType}
