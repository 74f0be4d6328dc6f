"""Whether a small constant is a causal mask: everything above its diagonal says one thing, nothing else says it."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from irscope.ir.graph import Role, Value
from irscope.ir.places import Literal, Payload
from irscope.ir.types import TensorType
from irscope.ops.values import from_bytes, numpy_dtype, static_shape
from irscope.weights.source import Unreadable, WeightFiles

Array: TypeAlias = "np.ndarray[Any, Any]"
MAX_BYTES = 1 << 20
"""Larger constants are not read; a mask for 1,024 places has so many bytes."""


class Triangles:
    """Tells which constants are triangles, each once; files are those that weights may be read from."""

    def __init__(self, files: WeightFiles | None = None) -> None:
        self._files = files
        self._known: dict[Value, bool] = {}

    def __call__(self, value: Value) -> bool:
        """Whether the value is a square constant that separates later from earlier positions. Parameters are never read."""
        if value.role not in (Role.BUFFER, Role.CONSTANT):
            return False
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self._is_triangle(value)
        return found

    def _is_triangle(self, value: Value) -> bool:
        type_, owner = value.type, value.graph
        if not isinstance(type_, TensorType) or owner is None or self._files is None:
            return False
        shape = static_shape(type_)
        if shape is None or len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
            return False
        array = self._array(owner.data.get(value), type_, shape)
        if array is None or not array.size:
            return False
        square = array.reshape(-1, shape[-1], shape[-1])[0]
        return bool(np.array_equal(square == square[0, -1], np.triu(np.ones(square.shape, bool), 1)))

    def _array(self, data: Payload | None, type_: TensorType, shape: tuple[int, ...]) -> Array | None:
        if isinstance(data, Literal):
            return np.array(data.values, numpy_dtype(type_.dtype)).reshape(shape)
        if self._files is None:
            return None
        try:
            place = self._files.find(data)
            if place.length > MAX_BYTES:
                return None
            content = bytearray(place.length)
            self._files.read_into(place, 0, memoryview(content))
        except Unreadable:
            return None
        return from_bytes(bytes(content), type_)
