"""Element types of PyTorch and NumPy in irscope's spelling."""

from __future__ import annotations

from collections.abc import Sequence

import torch

TORCH_DTYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f8e4m3fn": torch.float8_e4m3fn,
    "f8e4m3fnuz": torch.float8_e4m3fnuz,
    "f8e5m2": torch.float8_e5m2,
    "f8e5m2fnuz": torch.float8_e5m2fnuz,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "c64": torch.complex64,
    "c128": torch.complex128,
}
_TEXTS = {dtype: text for text, dtype in TORCH_DTYPES.items()}


def type_text(dtype: torch.dtype, sizes: Sequence[int]) -> str:
    """A tensor's type as irscope writes it."""
    return f"{_TEXTS.get(dtype, '?')}[{','.join(map(str, sizes))}]"
