"""What ONNX Runtime's CPU kernels do with memory, where it is not the usual: a new buffer for each result and nothing else.

The table is joined into the operators' records. Everything in it was observed in the profile of onnxruntime 1.31.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

from irscope.ir.dtypes import DType

if TYPE_CHECKING:
    from irscope.ops.call import OpCall

Packs: TypeAlias = "Callable[[OpCall, Sequence[bool]], int]"
"""Bytes of weights that a session packs anew for the kernel, given which operands are weights."""
Takes: TypeAlias = "Callable[[OpCall, int], int]"
"""Bytes that the kernel takes while it runs besides its results, given the number of threads."""

_SUM: Final = 3
"""Position of the tensor that a fused convolution adds."""
_PATCHES: Final = 65536
"""Bytes of patches for each thread."""
_WORK_OF_THREAD: Final = 65536
"""Multiplications for which another thread is worth it."""
_GRAIN: Final = 256
_COLUMNS: Final = 16
"""Matrices are packed in panels of so many columns."""


@dataclass(frozen=True, slots=True)
class OrtKernel:
    """Kernels of ONNX Runtime, by the operator's name in the file, that an operator of irscope stands for."""

    names: tuple[str, ...]
    alias: bool = False
    """Result 0 always has the buffer of operand 0."""
    in_place: tuple[int, ...] = ()
    """Result 0 takes the buffer of the first of these operands that is read for the last time and has its shape and element size."""
    halves: bool = False
    """There is no kernel: ONNX Runtime puts the operator's function in its place, which makes a tensor like the result from
    operand 0, and the result from the two."""
    packs: Packs | None = None
    takes: Takes | None = None


PLAIN: Final = OrtKernel(())
"""A kernel with nothing special."""


def _alias(*names: str) -> tuple[OrtKernel, ...]:
    return (OrtKernel(names, alias=True),)


def _in_place(*names: str) -> tuple[OrtKernel, ...]:
    return (OrtKernel(names, in_place=(0,)),)


def _halves(*names: str) -> tuple[OrtKernel, ...]:
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
    return 4 * rows * _round_up(columns, _COLUMNS)


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _float_matrix(call: OpCall, weights: Sequence[bool], transposed: bool) -> int:
    shape = _shape(call, 1, DType.F32)
    if not weights[1] or shape is None or len(shape) != 2:
        return 0
    rows, columns = reversed(shape) if transposed else shape
    return _panels(rows, columns)


def _packs_matmul(call: OpCall, weights: Sequence[bool]) -> int:
    return _float_matrix(call, weights, transposed=False)


def _packs_gemm(call: OpCall, weights: Sequence[bool]) -> int:
    return _float_matrix(call, weights, transposed=bool(call.attr("trans_b")))


def _packs_integers(operand: int) -> Packs:
    """Panels of bytes, each column with its sum."""

    def packs(call: OpCall, weights: Sequence[bool]) -> int:
        shape = _shape(call, operand, DType.I8, DType.U8)
        if shape is None or len(shape) != 2 or not weights[operand]:
            return 0
        return _round_up(shape[1], _COLUMNS) * (_round_up(shape[0], 4) + 4)

    return packs


def _packs_lstm(call: OpCall, weights: Sequence[bool]) -> int:
    return sum(_each_direction(call, weights, operand, lambda rows, inner: _panels(inner, rows)) for operand in (1, 2))


def _packs_gru(call: OpCall, weights: Sequence[bool]) -> int:
    """The recurrent weights of the hidden gate stand apart from those of the two others."""
    return _each_direction(call, weights, 1, lambda rows, inner: _panels(inner, rows)) + _each_direction(
        call, weights, 2, lambda rows, inner: _panels(inner, 2 * rows // 3) + _panels(inner, rows // 3)
    )


def _each_direction(call: OpCall, weights: Sequence[bool], operand: int, packed: Callable[[int, int], int]) -> int:
    shape = _shape(call, operand, DType.F32)
    if shape is None or len(shape) != 3 or not weights[operand]:
        return 0
    return shape[0] * packed(shape[1], shape[2])


def _packs_attention(call: OpCall, weights: Sequence[bool]) -> int:
    """Each head's part of the projections."""
    shape, heads = _shape(call, 1, DType.F32), call.attr("num_heads")
    if shape is None or len(shape) != 2 or not weights[1] or not isinstance(heads, int) or call.attr("qkv_hidden_sizes"):
        return 0
    return 3 * heads * _panels(shape[0], shape[1] // 3 // heads)


def _copies_weight(call: OpCall, weights: Sequence[bool]) -> int:
    """The filter in another order."""
    shape = _shape(call, 1, DType.F32)
    return 4 * prod(shape) if shape is not None and weights[1] else 0


def _packs_quantized_filter(call: OpCall, weights: Sequence[bool]) -> int:
    shape = _shape(call, 3, DType.I8)
    if shape is None or len(shape) < 3 or not weights[3] or call.attr("groups") != 1:
        return 0
    return _round_up(shape[0], _COLUMNS) * prod(shape[1:])


def _takes_convolution(call: OpCall, threads: int) -> int:
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


def _takes_two(call: OpCall, threads: int) -> int:
    """Transposed copies of operand and result, where the axis is not the last one."""
    shape, axis = _shape(call, 0, DType.F32, DType.F64), call.attr("axis")
    if shape is None or not shape or not isinstance(axis, int) or call.attrs.get("from_axis") or axis % len(shape) == len(shape) - 1:
        return 0
    return 2 * _round_up(4 * prod(shape), _GRAIN)


def _takes_result(call: OpCall, threads: int) -> int:
    shape = _shape(call, 0, DType.F32)
    return 4 * prod(shape) if shape is not None else 0


KERNELS: Final[Mapping[str, tuple[OrtKernel, ...]]] = {
    "view.alias": _alias("Identity"),
    "view.reshape": _alias("Reshape"),
    "view.flatten_2d": _alias("Flatten"),
    "view.squeeze": _alias("Squeeze"),
    "view.unsqueeze": _alias("Unsqueeze"),
    "nn.relu": _in_place("Relu"),
    "nn.leaky_relu": _in_place("LeakyRelu"),
    "nn.thresholded_relu": _in_place("ThresholdedRelu"),
    "nn.elu": _in_place("Elu"),
    "nn.celu": _in_place("Celu"),
    "nn.selu": _in_place("Selu"),
    "nn.shrink": _in_place("Shrink"),
    "nn.sigmoid": _in_place("Sigmoid"),
    "nn.hardsigmoid": _in_place("HardSigmoid"),
    "nn.softplus": _in_place("Softplus"),
    "nn.softsign": _in_place("Softsign"),
    "nn.softmax": (OrtKernel(("Softmax",), in_place=(0,), takes=_takes_two),),
    "nn.log_softmax": (OrtKernel(("LogSoftmax",), in_place=(0,), takes=_takes_two),),
    "nn.bias_gelu": (OrtKernel(("BiasGelu",), takes=_takes_result),),
    "nn.conv": (OrtKernel(("Conv",), takes=_takes_convolution),),
    "math.tanh": _in_place("Tanh"),
    "math.clamp": _in_place("Clip"),
    "tensor.cast": _in_place("Cast"),
    "tensor.bitcast": _in_place("BitCast"),
    "tensor.trilu": _in_place("Trilu"),
    "tensor.scatter_elements": _in_place("ScatterElements", "Scatter"),
    "tensor.tensor_scatter": _in_place("TensorScatter"),
    "nn.hardswish": _halves("HardSwish"),
    "nn.mish": _halves("Mish"),
    "nn.swish": _halves("Swish"),
    "nn.fused_conv": (OrtKernel(("Conv",), in_place=(_SUM,)), OrtKernel(("FusedConv",), in_place=(_SUM,), takes=_takes_convolution)),
    "math.matmul": (OrtKernel(("MatMul",), packs=_packs_matmul),),
    "math.gemm": (OrtKernel(("Gemm", "FusedGemm"), packs=_packs_gemm),),
    "math.fused_matmul": (OrtKernel(("FusedMatMul",), packs=_packs_gemm),),
    "math.matmul_integer": (OrtKernel(("MatMulInteger",), packs=_packs_integers(1)),),
    "quant.matmul_integer_to_float": (OrtKernel(("MatMulIntegerToFloat",), packs=_packs_integers(1)),),
    "quant.dynamic_quantize_matmul": (OrtKernel(("DynamicQuantizeMatMul",), packs=_packs_integers(1)),),
    "quant.qlinear_matmul": (OrtKernel(("QLinearMatMul",), packs=_packs_integers(3)),),
    "nn.qlinear_conv": (OrtKernel(("QLinearConv",), packs=_packs_quantized_filter),),
    "nn.conv_transpose": (OrtKernel(("ConvTranspose",), packs=_copies_weight),),
    "nn.ort_attention": (OrtKernel(("Attention",), packs=_packs_attention),),
    "rnn.lstm": (OrtKernel(("LSTM",), packs=_packs_lstm),),
    "rnn.gru": (OrtKernel(("GRU",), packs=_packs_gru),),
}
"""Kernels by operator of irscope."""
