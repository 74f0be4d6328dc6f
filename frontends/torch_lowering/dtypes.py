"""PyTorch's numbers and names for element types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from irscope.ir.dtypes import LONG_NAMES, DType

if TYPE_CHECKING:
    import torch

C10_DTYPES: dict[int, DType] = {
    0: DType.U8, 1: DType.I8, 2: DType.I16, 3: DType.I32, 4: DType.I64, 5: DType.F16, 6: DType.F32, 7: DType.F64, 9: DType.C64,
    10: DType.C128, 11: DType.BOOL, 12: DType.I8, 13: DType.U8, 14: DType.I32, 15: DType.BF16, 23: DType.F8E5M2, 24: DType.F8E4M3FN,
    25: DType.F8E5M2FNUZ, 26: DType.F8E4M3FNUZ, 27: DType.U16, 28: DType.U32, 29: DType.U64, 44: DType.F8E8M0,
}  # fmt: skip
"""Codes of the C++ enumeration, which TorchScript code uses; quantised types count as the integers they hold."""

SERIALIZED_DTYPES: dict[int, DType] = {
    1: DType.U8, 2: DType.I8, 3: DType.I16, 4: DType.I32, 5: DType.I64, 6: DType.F16, 7: DType.F32, 8: DType.F64, 10: DType.C64,
    11: DType.C128, 12: DType.BOOL, 13: DType.BF16, 28: DType.U16, 29: DType.F8E4M3FN, 30: DType.F8E5M2, 31: DType.F8E4M3FNUZ,
    32: DType.F8E5M2FNUZ, 33: DType.F8E8M0, 34: DType.U32, 35: DType.U64,
}  # fmt: skip
"""Codes of torch.export's JSON."""

STORAGE_DTYPES: dict[str, DType] = {
    "FloatStorage": DType.F32, "DoubleStorage": DType.F64, "HalfStorage": DType.F16, "BFloat16Storage": DType.BF16,
    "LongStorage": DType.I64, "IntStorage": DType.I32, "ShortStorage": DType.I16, "CharStorage": DType.I8, "ByteStorage": DType.U8,
    "BoolStorage": DType.BOOL, "ComplexFloatStorage": DType.C64, "ComplexDoubleStorage": DType.C128, "QInt8Storage": DType.I8,
    "QUInt8Storage": DType.U8, "QInt32Storage": DType.I32, "UntypedStorage": DType.U8,
}  # fmt: skip
"""Classes of typed storages in pickles."""

NAMED_DTYPES: dict[str, DType] = {**LONG_NAMES, "quint8": DType.U8, "qint8": DType.I8, "qint32": DType.I32}
"""Attributes of the torch module, as pickles name them."""


def torch_dtype(dtype: DType) -> torch.dtype | None:
    """Return the element type of torch's that an element type is, None where torch has none."""
    import torch

    name = next((name for name, known in NAMED_DTYPES.items() if known is dtype), "")
    return getattr(torch, name, None) if name else None


SAFETENSORS_DTYPES: dict[str, DType] = {
    "F64": DType.F64, "F32": DType.F32, "F16": DType.F16, "BF16": DType.BF16, "I64": DType.I64, "I32": DType.I32, "I16": DType.I16,
    "I8": DType.I8, "U64": DType.U64, "U32": DType.U32, "U16": DType.U16, "U8": DType.U8, "BOOL": DType.BOOL, "C64": DType.C64,
    "F8_E4M3": DType.F8E4M3FN, "F8_E5M2": DType.F8E5M2, "F8_E8M0": DType.F8E8M0, "F4": DType.F4E2M1, "F6_E2M3": DType.F6E2M3,
    "F6_E3M2": DType.F6E3M2,
}  # fmt: skip
