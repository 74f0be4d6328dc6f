"""Element types with their exact size in bits."""

from __future__ import annotations

import enum


class DTypeKind(enum.Enum):
    """Kind of arithmetic that an element type belongs to."""

    BOOL = "bool"
    UINT = "uint"
    INT = "int"
    FLOAT = "float"
    COMPLEX = "complex"
    STRING = "string"
    BLOCKS = "blocks"
    """Numbers that are stored by blocks with scales of their own."""
    UNKNOWN = "unknown"

    __hash__ = object.__hash__  # as below


class DType(enum.Enum):
    """An element type; `text` is its name everywhere (files, reports, command line)."""

    __hash__ = object.__hash__  # keys of caches hold them, and an enum's own one is written in Python

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
    # Block types of ggml: elements and bytes of a block, as in GGML_QUANT_SIZES of the package gguf 0.19 (gguf/constants.py).
    Q4_0 = ("q4_0", None, DTypeKind.BLOCKS, (32, 18))
    Q4_1 = ("q4_1", None, DTypeKind.BLOCKS, (32, 20))
    Q5_0 = ("q5_0", None, DTypeKind.BLOCKS, (32, 22))
    Q5_1 = ("q5_1", None, DTypeKind.BLOCKS, (32, 24))
    Q8_0 = ("q8_0", None, DTypeKind.BLOCKS, (32, 34))
    Q8_1 = ("q8_1", None, DTypeKind.BLOCKS, (32, 40))
    Q2_K = ("q2_k", None, DTypeKind.BLOCKS, (256, 84))
    Q3_K = ("q3_k", None, DTypeKind.BLOCKS, (256, 110))
    Q4_K = ("q4_k", None, DTypeKind.BLOCKS, (256, 144))
    Q5_K = ("q5_k", None, DTypeKind.BLOCKS, (256, 176))
    Q6_K = ("q6_k", None, DTypeKind.BLOCKS, (256, 210))
    Q8_K = ("q8_k", None, DTypeKind.BLOCKS, (256, 292))
    IQ2_XXS = ("iq2_xxs", None, DTypeKind.BLOCKS, (256, 66))
    IQ2_XS = ("iq2_xs", None, DTypeKind.BLOCKS, (256, 74))
    IQ3_XXS = ("iq3_xxs", None, DTypeKind.BLOCKS, (256, 98))
    IQ1_S = ("iq1_s", None, DTypeKind.BLOCKS, (256, 50))
    IQ4_NL = ("iq4_nl", None, DTypeKind.BLOCKS, (32, 18))
    IQ3_S = ("iq3_s", None, DTypeKind.BLOCKS, (256, 110))
    IQ2_S = ("iq2_s", None, DTypeKind.BLOCKS, (256, 82))
    IQ4_XS = ("iq4_xs", None, DTypeKind.BLOCKS, (256, 136))
    IQ1_M = ("iq1_m", None, DTypeKind.BLOCKS, (256, 56))
    TQ1_0 = ("tq1_0", None, DTypeKind.BLOCKS, (256, 54))
    TQ2_0 = ("tq2_0", None, DTypeKind.BLOCKS, (256, 66))
    MXFP4 = ("mxfp4", None, DTypeKind.BLOCKS, (32, 17))
    NVFP4 = ("nvfp4", None, DTypeKind.BLOCKS, (64, 36))
    Q1_0 = ("q1_0", None, DTypeKind.BLOCKS, (128, 18))

    def __init__(self, text: str, bits: int | None, kind: DTypeKind, block: tuple[int, int] | None = None) -> None:
        self.text = text
        self.bits = bits
        """Size of one element; None where elements have no fixed size."""
        self.kind = kind
        self.block = block
        """Elements and bytes of a block, where elements are only stored by blocks."""

    # Members are singletons; Enum's own hash goes through the name and is five times slower.
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.text

    def bytes_of(self, count: int) -> int | None:
        """Return bytes of so many packed elements; None where that is not known. A block that is begun counts whole."""
        if self.block is not None:
            return -(-count // self.block[0]) * self.block[1]
        return None if self.bits is None else (count * self.bits + 7) // 8

    @property
    def is_integer(self) -> bool:
        return self.kind is DTypeKind.INT or self.kind is DTypeKind.UINT

    @property
    def is_float(self) -> bool:
        return self.kind is DTypeKind.FLOAT


DTYPES_BY_TEXT: dict[str, DType] = {dtype.text: dtype for dtype in DType}

LONG_NAMES: dict[str, DType] = {
    "bool": DType.BOOL,
    **{f"float{bits}": DType[f"F{bits}"] for bits in (16, 32, 64)},
    "bfloat16": DType.BF16,
    **{f"{word}{bits}": DType[f"{word[0].upper()}{bits}"] for word in ("int", "uint") for bits in (8, 16, 32, 64)},
    "complex64": DType.C64,
    "complex128": DType.C128,
    "float8_e4m3fn": DType.F8E4M3FN,
    "float8_e5m2": DType.F8E5M2,
    "float8_e4m3fnuz": DType.F8E4M3FNUZ,
    "float8_e5m2fnuz": DType.F8E5M2FNUZ,
    "float8_e8m0fnu": DType.F8E8M0,
}
"""Names that NumPy, PyTorch and JAX share."""

STRUCT_CODES: dict[DType, str] = {
    DType.BOOL: "?",
    **{DType[f"{sign}{8 << at}"]: code for sign, codes in (("I", "bhiq"), ("U", "BHIQ")) for at, code in enumerate(codes)},
    **{DType[f"F{16 << at}"]: code for at, code in enumerate("efd")},
}
"""Letters of the module struct, for the element types that it has."""
