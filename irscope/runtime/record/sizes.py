"""Bytes of types as recordings write them."""

from __future__ import annotations

import math
import re

from irscope.ir.dtypes import DTYPES_BY_TEXT

_TYPE = re.compile(r"(\w+)\[([\d,]*)\]")


def type_bytes(text: str) -> int | None:
    """Bytes of a tensor of a type such as f32[1,3,8,8]; None where the text is no such type."""
    match = _TYPE.fullmatch(text)
    dtype = DTYPES_BY_TEXT.get(match[1]) if match else None
    if match is None or dtype is None or dtype.bits is None:
        return None
    count = math.prod(int(size) for size in match[2].split(",") if size)
    return (count * dtype.bits + 7) // 8
