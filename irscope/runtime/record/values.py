"""Values of inputs that the user brings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from irscope.errors import UsageError
from irscope.ir.dtypes import DTYPES_BY_TEXT
from irscope.runtime.record.request import InputSpec


def given_values(path: str, inputs: Sequence[InputSpec]) -> Mapping[str, Any]:
    """Arrays by the names of inputs; empty without a file. Raises UsageError for a file that does not fit the model."""
    if not path:
        return {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"cannot be read as a .npz file: {error}", code="IRS478", where=path) from error
    wanted = {one.name: one for one in inputs}
    for name, array in found.items():
        if name not in wanted:
            known = ", ".join(wanted) or "none"
            raise UsageError(f"the model has no input {name!r}", code="IRS478", where=path, hint=f"inputs: {known}")
        if array.shape != wanted[name].shape:
            raise UsageError(f"--values has {array.shape} for {name}, which is {wanted[name]}", code="IRS478", where=path)
    return found


# ----------------------------------------------------------------------------------------------------
# Bytes of types as recordings write them.

_TYPE = re.compile(r"(\w+)\[([\d,]*)\]")


def type_bytes(text: str) -> int | None:
    """Bytes of a tensor of a type such as f32[1,3,8,8]; None where the text is no such type."""
    match = _TYPE.fullmatch(text)
    dtype = DTYPES_BY_TEXT.get(match[1]) if match else None
    if match is None or dtype is None or dtype.bits is None:
        return None
    count = math.prod(int(size) for size in match[2].split(",") if size)
    return (count * dtype.bits + 7) // 8
