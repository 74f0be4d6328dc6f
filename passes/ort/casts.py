"""Consecutive casts, which ONNX Runtime merges in every graph, also with graph optimisations off."""

from __future__ import annotations

from typing import Final

from irscope.ir.dtypes import DType
from irscope.passes.inference.engine import Inferred
from irscope.passes.ort.kernels import Launch, Launches

_CAST: Final = "Cast"
_INTEGERS: Final = frozenset({DType.I8, DType.I16, DType.I32, DType.I64, DType.U8, DType.U16, DType.U32, DType.U64})
_FLOATS: Final = frozenset({DType.BF16, DType.F16, DType.F32, DType.F64})


def without_double_casts(found: Launches, types: Inferred) -> Launches:
    """The kernels without casts whose only uses are other casts, where the first does not lose more precision than the second."""
    if sum(launch.name == _CAST for launch in found.launches) > 1:
        _Casts(found, types).take_out()
    return found


def _width(dtype: DType) -> int:
    """How much a type can hold, coarsely; -1 for those that stay as they are."""
    return 0 if dtype is DType.BOOL else 1 if dtype in _INTEGERS else 2 if dtype in _FLOATS else -1


class _Casts:
    def __init__(self, found: Launches, types: Inferred) -> None:
        self.found = found
        self.types = types
        self.returned = set(found.returned)
        self.readers: dict[int, list[Launch]] = {}
        for launch in found.launches:
            for value in (*launch.inputs, *launch.captured):
                self.readers.setdefault(value, []).append(launch)
        self.gone: set[int] = set()

    def take_out(self) -> None:
        """Go through the casts in the order of the file."""
        for launch in self.found.launches:
            if launch.name == _CAST and id(launch) not in self.gone and launch.outputs and launch.inputs and launch.inputs[0] >= 0:
                self._look_at(launch)
        self.found.launches = [launch for launch in self.found.launches if id(launch) not in self.gone]

    def _look_at(self, cast: Launch) -> None:
        source, result = cast.inputs[0], cast.outputs[0]
        before, after = self._dtype(source), self._dtype(result)
        if min(_width(before), _width(after)) < 0:
            return
        loses = _width(before) > _width(after)
        readers = self.readers.get(result, [])
        again = [reader for reader in readers if reader.name == _CAST and reader.outputs]
        then = [self._dtype(reader.outputs[0]) for reader in again]
        if any(_width(one) < 0 or (loses and _width(one) > _width(after)) for one in then):
            return
        back = [reader for reader, one in zip(again, then, strict=True) if one is before and reader.outputs[0] not in self.returned]
        for reader in back:
            self._replace(reader.outputs[0], source)
            self._remove(reader)
        if readers and len(again) == len(readers) and result not in self.returned:
            self._replace(result, source)
            self._remove(cast)

    def _replace(self, old: int, new: int) -> None:
        """Replace all uses of one value by another."""
        readers = self.readers.pop(old, [])
        for reader in readers:
            reader.inputs = [new if value == old else value for value in reader.inputs]
            reader.captured = [new if value == old else value for value in reader.captured]
        self.readers.setdefault(new, []).extend(reader for reader in readers if id(reader) not in self.gone)

    def _remove(self, launch: Launch) -> None:
        self.gone.add(id(launch))
        for value in launch.inputs:
            self.readers[value] = [reader for reader in self.readers.get(value, []) if reader is not launch]

    def _dtype(self, number: int) -> DType:
        return self.types.type_of(self.found.values[number]).dtype
