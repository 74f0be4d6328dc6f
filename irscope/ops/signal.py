"""Fourier transforms of signals."""

from __future__ import annotations

import math

from irscope.ir.dims import Dim, SymDim, floordiv, product
from irscope.ir.dtypes import DType
from irscope.ir.types import Type, tensor
from irscope.ops import layouts
from irscope.ops.cost import Cost
from irscope.ops.scratch.composites import fft_rule
from irscope.ops.spec import Family, OpCall, RuleError, UnknownCost, numel, op, sizes

_COMPLEX = {DType.F16: DType.UNKNOWN, DType.BOOL: DType.C64, DType.F32: DType.C64, DType.F64: DType.C128}
_REAL = {DType.C64: DType.F32, DType.C128: DType.F64}


def fft_work(points: Dim, lines: list[Dim], real: bool) -> Cost:
    """Fast Fourier transforms of `points` elements along axes of these lengths: 5 n log2 n operations, half for real signals.

    Counted with the matrix products, which they stand for.
    """
    length = product(lines)
    if isinstance(points, SymDim) or isinstance(length, SymDim):
        raise UnknownCost
    work = points * math.log2(length) * (2.5 if real else 5) if length > 1 else 0
    return Cost(matmul=round(work), macs=round(work) // 2)


def _missing(call: OpCall, what: str) -> Dim:
    return call.unknown(f"{what} is computed by the model", what)


def _infer_dft(call: OpCall) -> Type:
    x = call.tensor("x")
    if x.shape is None:
        return x
    rank = len(x.shape)
    where = call.dim("axis") if call.given("axis") else -2
    inverse, onesided = bool(call.attr("inverse")), bool(call.attr("onesided"))
    last = 1 if inverse and onesided else 2
    if where is None or isinstance(where, SymDim):
        return tensor(x.dtype, (*(_missing(call, "axis") for _ in range(rank - 1)), last), x.device)
    axis = call.axis(where, rank)
    if axis == rank - 1:
        raise RuleError("signal.dft: the last axis holds real and imaginary parts")
    length = _length(call, x.shape[axis], inverse and onesided)
    bins = floordiv(length, 2) + 1 if onesided and not inverse else length
    return tensor(x.dtype, (*x.shape[:axis], bins, *x.shape[axis + 1 : -1], last), x.device)


def _length(call: OpCall, size: Dim, from_half: bool) -> Dim:
    if call.given("length"):
        dim = call.dim("length")
        return dim if dim is not None else _missing(call, "length")
    return (size - 1) * 2 if from_half else size


def _cost_dft(call: OpCall) -> Cost:
    source, result = sizes(call.types[0]), sizes(call.results[0])
    where = call.dim("axis") if call.given("axis") else -2
    if where is None:
        raise UnknownCost
    axis = call.axis(where, len(source))
    length = _length(call, source[axis], bool(call.attr("inverse") and call.attr("onesided")))
    lines = product(dim for index, dim in enumerate(result[:-1]) if index != axis)
    return fft_work(lines * length, [length], source[-1] == 1 or result[-1] == 1)


def _frame_length(call: OpCall, signal: Dim) -> Dim:
    if call.given("frame_length"):
        dim = call.dim("frame_length")
        if dim is not None:
            return dim
    window = call.maybe("window")
    if window is not None:
        return window.shape[0] if window.shape is not None else _missing(call, "frame_length")
    return _missing(call, "frame_length") if call.given("frame_length") else signal


def _infer_stft(call: OpCall) -> Type:
    x = call.tensor("x")
    if x.shape is None:
        return x
    if len(x.shape) not in (2, 3):
        raise RuleError(f"signal.stft needs signals with 3 axes, not {x}")
    length, step = _frame_length(call, x.shape[1]), call.dim("frame_step")
    bins = floordiv(length, 2) + 1 if call.attr("onesided") else length
    frames = floordiv(x.shape[1] - length, step) + 1 if step is not None else _missing(call, "frame_step")
    return tensor(x.dtype, (x.shape[0], frames, bins, 2), x.device)


def _cost_stft(call: OpCall) -> Cost:
    """Return a window over each frame, then its transform."""
    source, result = sizes(call.types[0]), sizes(call.results[0])
    length = _frame_length(call, source[1])
    points = result[0] * result[1] * length
    real = len(source) == 2 or source[2] == 1
    windowed = Cost(elementwise=points) if call.given("window") else Cost()
    return fft_work(points, [length], real) + windowed


def _axes(call: OpCall, rank: int) -> list[int]:
    return [call.axis(axis, rank) for axis in call.attr("axes")]


def _infer_transform(call: OpCall) -> Type:
    x, kind = call.tensor("x"), call.attr("kind")
    dtype = _REAL.get(x.dtype, x.dtype) if kind == "c2r" else _COMPLEX.get(x.dtype, DType.C64 if x.dtype.is_integer else x.dtype)
    if x.shape is None:
        return tensor(dtype, None, x.device)
    axes = _axes(call, len(x.shape))
    result = list(x.shape)
    given = call.dims("sizes") or ()
    for axis, size in zip(axes, given, strict=bool(given)):
        result[axis] = size
    if axes and kind == "c2r" and not given:
        result[axes[-1]] = (x.shape[axes[-1]] - 1) * 2
    if axes and kind == "r2c" and call.attr("onesided"):
        result[axes[-1]] = floordiv(result[axes[-1]], 2) + 1
    return tensor(dtype, result, x.device)


def _cost_transform(call: OpCall) -> Cost:
    kind = call.attr("kind")
    source, result = sizes(call.types[0]), sizes(call.results[0])
    axes = _axes(call, len(source))
    full = list(result if kind == "c2r" else source)
    given = call.dims("sizes") or ()
    for axis, size in zip(axes, given, strict=bool(given)):
        full[axis] = size
    return fft_work(product(full), [full[axis] for axis in axes], kind != "c2c")


def _infer_short(call: OpCall) -> Type:
    """(batch, signal) to (batch, bins, frames), as PyTorch has it."""
    x, length = call.tensor("x"), call.int_attr("n_fft")
    dtype = _COMPLEX.get(x.dtype, x.dtype)
    if x.shape is None:
        return tensor(dtype, None, x.device)
    size = x.shape[-1] + (length // 2 * 2 if call.attr("center") else 0)
    frames = floordiv(size - length, call.int_attr("hop_length")) + 1
    bins = length // 2 + 1 if call.attr("onesided") else length
    if call.attr("return_complex"):
        return tensor(dtype, (*x.shape[:-1], bins, frames), x.device)
    return tensor(_REAL.get(dtype, dtype), (*x.shape[:-1], bins, frames, 2), x.device)


def _cost_short(call: OpCall) -> Cost:
    result = sizes(call.results[0])
    source = sizes(call.types[0])
    length = call.int_attr("n_fft")
    points = product(source[:-1]) * result[len(source)] * length
    return fft_work(points, [length], True) + Cost(elementwise=points if call.given("window") else 0)


def _infer_inverse_short(call: OpCall) -> Type:
    x, length = call.tensor("x"), call.int_attr("n_fft")
    dtype = x.dtype if call.attr("return_complex") else _REAL.get(x.dtype, x.dtype)
    if x.shape is None:
        return tensor(dtype, None, x.device)
    wanted = call.attr("length")
    frames = x.shape[-1]
    size: Dim = wanted if wanted is not None else (frames - 1) * call.int_attr("hop_length") + length
    if wanted is None and call.attr("center"):
        size = size - length // 2 * 2
    return tensor(dtype, (*x.shape[:-2], size), x.device)


def _cost_inverse_short(call: OpCall) -> Cost:
    """Return the transform of each frame, its window, the sum of overlapping frames and the division by the windows' sum."""
    shape = sizes(call.types[0])
    length = call.int_attr("n_fft")
    points = product((*shape[:-2], shape[-1])) * length
    return fft_work(points, [length], True) + Cost(elementwise=points * 2 + numel(call.results[0]))


OPS = (
    op(
        "signal.dft(Tensor x, Dim? length, Dim? axis, *, bool inverse=False, bool onesided=False) -> Tensor",
        Family.SIGNAL,
        infer=_infer_dft,
        cost=_cost_dft,
        summary="Discrete Fourier transform along one axis; the last axis holds real and imaginary parts.",
    ),
    op(
        "signal.stft(Tensor x, Dim frame_step, Tensor? window, Dim? frame_length, *, bool onesided=True) -> Tensor",
        Family.SIGNAL,
        infer=_infer_stft,
        cost=_cost_stft,
        summary="Fourier transforms of frames of a signal: (batch, frames, bins, 2).",
    ),
    op(
        "fft.transform(Tensor x, Dims? sizes, *, int[] axes, str kind='c2c', bool onesided=True, bool inverse=False, "
        "str norm='') -> Tensor",
        Family.SIGNAL,
        infer=_infer_transform,
        cost=_cost_transform,
        temporaries=fft_rule,
        summary="Fourier transform over some axes: complex (c2c), from real (r2c) or to real (c2r); `sizes` are those of the signal.",
    ),
    op(
        "fft.stft(Tensor x, Tensor? window, *, int n_fft, int hop_length, bool center=False, bool onesided=True, bool normalized=False, "
        "bool return_complex=True) -> Tensor",
        Family.SIGNAL,
        infer=_infer_short,
        cost=_cost_short,
        temporaries=fft_rule,
        summary="Fourier transforms of frames of a signal: (batch, bins, frames) of complex numbers.",
        strides=layouts.frequencies_first,
    ),
    op(
        "fft.istft(Tensor x, Tensor? window, *, int n_fft, int hop_length, bool center=True, int? length, bool onesided=True, "
        "bool normalized=False, bool return_complex=False) -> Tensor",
        Family.SIGNAL,
        infer=_infer_inverse_short,
        cost=_cost_inverse_short,
        temporaries=fft_rule,
        summary="The signal whose frames have these Fourier transforms.",
    ),
)
