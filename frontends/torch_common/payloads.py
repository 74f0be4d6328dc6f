"""Values of small constants, and where the large ones are."""

from __future__ import annotations

import struct

from irscope.frontends.torch_common.archive import Archive
from irscope.frontends.torch_common.pickled import PickledTensor
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.places import Literal, Payload
from irscope.ir.types import TensorType, tensor

MOST_LITERAL_ELEMENTS = 1024

_FORMATS: dict[DType, str] = {
    DType.BOOL: "?",
    DType.U8: "B",
    DType.I8: "b",
    DType.U16: "H",
    DType.I16: "h",
    DType.U32: "I",
    DType.I32: "i",
    DType.U64: "Q",
    DType.I64: "q",
    DType.F16: "e",
    DType.F32: "f",
    DType.F64: "d",
}


def literal_of(data: bytes, type_: TensorType) -> Literal | None:
    """The values of a small row-major tensor, None where it is large or of an element type that Python lacks."""
    count = type_.numel
    code = _FORMATS.get(type_.dtype)
    if count is None or isinstance(count, SymDim) or count > MOST_LITERAL_ELEMENTS or code is None:
        return None
    layout = struct.Struct(f"<{count}{code}")
    if len(data) < layout.size:
        return None
    return Literal(layout.unpack_from(data))


def pickled_type(found: PickledTensor, device: str = "") -> TensorType:
    """The type of a tensor that a pickle describes; strides are kept only where they are not row-major."""
    expected = 1
    row_major = len(found.strides) == len(found.shape)
    for size, stride in zip(reversed(found.shape), reversed(found.strides), strict=False):
        if size == 0:
            row_major = True
            break
        if size != 1 and stride != expected:
            row_major = False
            break
        expected *= size
    return tensor(found.dtype, found.shape, device, None if row_major else found.strides)


def span_bytes(type_: TensorType) -> int | None:
    """Bytes from the first to the last element of a tensor with strides; None where these are not plain numbers."""
    strides = type_.layout if isinstance(type_.layout, tuple) else ()
    reach = 1
    for size, stride in zip(type_.shape or (), strides, strict=False):
        if isinstance(size, SymDim) or isinstance(stride, SymDim):
            return None
        reach += max(size - 1, 0) * max(stride, 0)
    return reach * (type_.dtype.bits or 8) // 8


def pickled_payload(archive: Archive, folder: str, found: PickledTensor, small: bool) -> Payload | None:
    """Where a pickled tensor's bytes are; the values themselves where the tensor is a small constant and wanted."""
    type_ = pickled_type(found)
    name = f"{folder}{found.storage.key}"
    entry = archive.entries.get(name)
    bits = found.dtype.bits
    if entry is None or bits is None:
        return None
    offset = found.offset * bits // 8
    if type_.layout is not None:
        return archive.region(name, offset, span_bytes(type_), name)
    length = type_.nbytes
    if length is None or isinstance(length, SymDim):
        return None
    if small and entry.size <= 64 * 1024:
        literal = literal_of(archive.read(name)[offset:], type_)
        if literal is not None:
            return literal
    return archive.region(name, offset, length, name)
