"""Rules for what ONNX Runtime's CPU kernels do with memory. Everything here was observed in the profile of onnxruntime 1.31."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from irscope.ir.dims import round_up
from irscope.ir.dtypes import DType
from irscope.ops.spec import OpCall, OrtKernel, Packs, Takes

_SUM: Final = 3
"""Position of the tensor that a fused convolution adds."""
_PATCHES: Final = 65536
"""Bytes of patches for each thread."""
_WORK_OF_THREAD: Final = 65536
"""Multiplications for which another thread is worth it."""
_GRAIN: Final = 256
_COLUMNS: Final = 16
"""Matrices are packed in panels of so many columns."""


def alias(*names: str) -> tuple[OrtKernel, ...]:
    """Kernels whose result has the buffer of their first operand."""
    return (OrtKernel(names, alias=True),)


def in_place(*names: str, takes: Takes | None = None) -> tuple[OrtKernel, ...]:
    """Kernels that write over their first operand where they may."""
    return (OrtKernel(names, in_place=(0,), takes=takes),)


def packs(rule: Packs, *names: str) -> tuple[OrtKernel, ...]:
    """Kernels for which a session packs weights anew."""
    return (OrtKernel(names, packs=rule),)


def takes(rule: Takes, *names: str) -> tuple[OrtKernel, ...]:
    """Kernels that take memory while they run."""
    return (OrtKernel(names, takes=rule),)


def halves(*names: str) -> tuple[OrtKernel, ...]:
    """Operators that ONNX Runtime replaces by their function."""
    return (OrtKernel(names, halves=True),)


def _shape(call: OpCall, operand: int, *dtypes: DType) -> tuple[int, ...] | None:
    """Sizes of an operand, where it is a tensor of one of these element types and they are numbers."""
    type_ = call.types[operand] if operand < len(call.types) else None
    if type_ is None or type_.dtype not in dtypes or type_.shape is None:
        return None
    shape = tuple(dim for dim in type_.shape if isinstance(dim, int))
    return shape if len(shape) == len(type_.shape) else None


def _panels(rows: int, columns: int) -> int:
    """Bytes of a float matrix in panels."""
    return 4 * rows * round_up(columns, _COLUMNS)


def _float_matrix(call: OpCall, weights: Sequence[bool], transposed: bool) -> int:
    shape = _shape(call, 1, DType.F32)
    if not weights[1] or shape is None or len(shape) != 2:
        return 0
    rows, columns = reversed(shape) if transposed else shape
    return _panels(rows, columns)


def packs_matmul(call: OpCall, weights: Sequence[bool]) -> int:
    return _float_matrix(call, weights, transposed=False)


def packs_gemm(call: OpCall, weights: Sequence[bool]) -> int:
    return _float_matrix(call, weights, transposed=bool(call.attr("trans_b")))


def packs_integers(operand: int) -> Packs:
    """Panels of bytes, each column with its sum."""

    def rule(call: OpCall, weights: Sequence[bool]) -> int:
        shape = _shape(call, operand, DType.I8, DType.U8)
        if shape is None or len(shape) != 2 or not weights[operand]:
            return 0
        return round_up(shape[1], _COLUMNS) * (round_up(shape[0], 4) + 4)

    return rule


def packs_lstm(call: OpCall, weights: Sequence[bool]) -> int:
    return sum(_each_direction(call, weights, operand, lambda rows, inner: _panels(inner, rows)) for operand in (1, 2))


def packs_gru(call: OpCall, weights: Sequence[bool]) -> int:
    """The recurrent weights of the hidden gate stand apart from those of the two others."""
    return _each_direction(call, weights, 1, lambda rows, inner: _panels(inner, rows)) + _each_direction(
        call, weights, 2, lambda rows, inner: _panels(inner, 2 * rows // 3) + _panels(inner, rows // 3)
    )


def _each_direction(call: OpCall, weights: Sequence[bool], operand: int, packed: Callable[[int, int], int]) -> int:
    shape = _shape(call, operand, DType.F32)
    if shape is None or len(shape) != 3 or not weights[operand]:
        return 0
    return shape[0] * packed(shape[1], shape[2])


def packs_attention(call: OpCall, weights: Sequence[bool]) -> int:
    """Each head's part of the projections."""
    shape, heads = _shape(call, 1, DType.F32), call.attr("num_heads")
    if shape is None or len(shape) != 2 or not weights[1] or not isinstance(heads, int) or call.attr("qkv_hidden_sizes"):
        return 0
    return 3 * heads * _panels(shape[0], shape[1] // 3 // heads)


def copies_weight(call: OpCall, weights: Sequence[bool]) -> int:
    """The filter in another order."""
    shape = _shape(call, 1, DType.F32)
    return 4 * prod(shape) if shape is not None and weights[1] else 0


def packs_quantized_filter(call: OpCall, weights: Sequence[bool]) -> int:
    shape = _shape(call, 3, DType.I8)
    if shape is None or len(shape) < 3 or not weights[3] or call.attr("groups") != 1:
        return 0
    return round_up(shape[0], _COLUMNS) * prod(shape[1:])


def takes_convolution(call: OpCall, threads: int) -> int:
    """Patches of the image: all of them where there are more filters than places, else some for each thread."""
    image, filters = _shape(call, 0, DType.F32), _shape(call, 1, DType.F32)
    shape = call.results[0].shape if call.results else None
    if image is None or filters is None or shape is None:
        return 0
    places = prod(dim for dim in shape[2:] if isinstance(dim, int))
    if prod(filters[2:]) == 1 and shape[2:] == image[2:] and all(stride == 1 for stride in call.attr("strides") or ()):
        return 0
    inner = prod(filters[1:])
    count = filters[0] // (call.int_attr("groups") or 1)
    if count > places:
        return 4 * places * inner
    return _PATCHES * min(threads, count * places * inner // _WORK_OF_THREAD + 1)


def takes_two(call: OpCall, threads: int) -> int:
    """Transposed copies of operand and result, where the axis is not the last one."""
    shape, axis = _shape(call, 0, DType.F32, DType.F64), call.attr("axis")
    if shape is None or not shape or not isinstance(axis, int) or call.attrs.get("from_axis") or axis % len(shape) == len(shape) - 1:
        return 0
    return 2 * round_up(4 * prod(shape), _GRAIN)


def takes_result(call: OpCall, threads: int) -> int:
    shape = _shape(call, 0, DType.F32)
    return 4 * prod(shape) if shape is not None else 0


FUSED_CONVOLUTION: Final = (OrtKernel(("Conv",), in_place=(_SUM,)), OrtKernel(("FusedConv",), in_place=(_SUM,), takes=takes_convolution))
