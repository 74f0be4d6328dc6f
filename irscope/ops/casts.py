"""Changing the element type, the device, or the meaning of the bits."""

from __future__ import annotations

import numpy as np

from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops import layouts
from irscope.ops.cost import Cost
from irscope.ops.elementwise import float_truth, is_not_equal
from irscope.ops.facts import OpRole
from irscope.ops.layouts import suggests_channels_last
from irscope.ops.ort import in_place
from irscope.ops.reals import PRECISION, Real, converted, is_equal, real_of
from irscope.ops.rules import dtype_attr, moved, total_bytes, with_dtype
from irscope.ops.spec import Family, Known, OpCall, RuleError, op
from irscope.ops.values import NEVER_NAN, is_symbolic, numpy_dtype, objects, round_to, settle


def _infer_cast(call: OpCall) -> Type:
    first = call.types[0]
    if first is None:
        raise RuleError(f"{call.spec.name} has no operand")
    return with_dtype(first, dtype_attr(call, DType.UNKNOWN, "to"))


def _evaluate_cast(call: OpCall) -> Known | None:
    x = call.value("x")
    return None if x is None else convert(call, x, call.attr("to"), saturate=bool(call.attr("saturate")))


def convert(call: OpCall, x: Known, dtype: DType, saturate: bool = False) -> Known | None:
    """Return values in another element type."""
    if is_symbolic(x):
        source = call.types[0].dtype if call.types and call.types[0] is not None else DType.UNKNOWN
        if dtype.is_float or source.is_float:
            return _convert_reals(call, x, source, dtype)
        if dtype.is_integer and (dtype.bits or 0) >= 32:
            return x
        truths = [is_not_equal(call, item, 0) if isinstance(item, SymDim) else item for item in x.flat]
        return settle(objects(truths, x.shape), dtype) if dtype is DType.BOOL else None
    if dtype in (DType.UNKNOWN, DType.F8E8M0) or (dtype is DType.STR and x.dtype != object):
        return None
    if x.dtype == object and dtype is not DType.STR:
        parsed = _parse(x, dtype)
        return None if parsed is None else settle(parsed, dtype)
    if dtype in NEVER_NAN and np.isnan(x).any():
        return None
    if saturate and dtype.is_float and (dtype.bits or 0) <= 8:
        return round_to(x.astype(np.float64), dtype, saturate=True)
    return settle(x, dtype)


def _convert_reals(call: OpCall, x: Known, source: DType, dtype: DType) -> Known | None:
    """Return numbers of which some are made of sizes, from floats, to floats or both."""
    if dtype.is_float:
        bits = PRECISION.get(dtype)
        if bits is None:
            return None
        return settle(objects([converted(item, PRECISION.get(source, bits), bits) for item in x.flat], x.shape), dtype)
    bits = PRECISION.get(source)
    if bits is None or (dtype is not DType.BOOL and (not dtype.is_integer or (dtype.bits or 0) < 32)):
        return None
    numbers = [real_of(item, bits) for item in x.flat]
    if dtype is DType.BOOL:
        return settle(objects([1 - float_truth(call, is_equal, number, Real(0)) for number in numbers], x.shape), dtype)
    return settle(objects([call.truncated(number) for number in numbers], x.shape), dtype)


def _parse(texts: Known, dtype: DType) -> Known | None:
    try:
        numbers = [float(text) if dtype.is_float else int(text) for text in texts.flat]
    except (TypeError, ValueError):
        return None
    return objects(numbers, texts.shape) if dtype.is_integer else np.array(numbers).reshape(texts.shape)


def _infer_to(call: OpCall) -> TensorType:
    x = call.tensor("x")
    device = call.attr("device")
    return tensor(dtype_attr(call, x.dtype), x.shape, device if isinstance(device, str) else x.device)


def _shares_to(call: OpCall) -> bool | None:
    x = call.tensor("x")
    if call.attr("copy") or dtype_attr(call, x.dtype) is not x.dtype or call.attr("device") not in (None, x.device):
        return False
    wanted = call.attr("memory_format")
    if wanted in (None, "", "preserve_format"):
        return True
    # What is asked is not whether the strides are those of the format, but which format they look like.
    looks = suggests_channels_last(x)
    return looks if looks is None or wanted in ("channels_last", "channels_last_3d") else not looks


def _evaluate_to(call: OpCall) -> Known | None:
    x = call.value("x")
    return None if x is None else convert(call, x, dtype_attr(call, call.dtype("x")))


def _evaluate_bitcast(call: OpCall) -> Known | None:
    x = call.value("x")
    to = call.attr("to")
    whole = {8, 16, 32, 64, 128}
    if x is None or is_symbolic(x) or x.dtype == object or call.dtype("x").bits not in whole or to.bits != call.dtype("x").bits:
        return None
    if x.dtype.itemsize * 8 != to.bits or numpy_dtype(to).itemsize * 8 != to.bits:
        return None
    return np.ascontiguousarray(x).reshape(x.shape).view(numpy_dtype(to))


def _evaluate_cast_like(call: OpCall) -> Known | None:
    x = call.values[0]
    return None if x is None else convert(call, x, call.dtype("target"), saturate=bool(call.attr("saturate")))


OPS = (
    op(
        "tensor.cast(Tensor x, *, dtype to, bool saturate=True, str? round_mode) -> Tensor",
        Family.MOVE,
        infer=_infer_cast,
        cost=moved,
        evaluate=_evaluate_cast,
        summary="Converts every element to another type, always into new storage.",
        ort=in_place("Cast"),
        strides=layouts.POINTWISE,
        roles=frozenset({OpRole.COPY, OpRole.CONVERT}),
    ),
    op(
        "tensor.cast_like(Tensor x, Tensor target, *, bool saturate=True, str? round_mode) -> Tensor",
        Family.MOVE,
        infer=lambda call: call.tensor("x").with_shape(call.shape("x")).with_dtype(call.dtype("target")),
        cost=lambda call: Cost(read=total_bytes(call.types[:1])),
        evaluate=_evaluate_cast_like,
        needs_values=False,
        summary="Converts every element to another tensor's type.",
        roles=frozenset({OpRole.COPY, OpRole.CONVERT_LIKE}),
    ),
    op(
        "tensor.to(Tensor(a?) x, *, dtype? dtype, str? device, str? memory_format, bool copy=False, bool non_blocking=False) -> Tensor(a?)",
        Family.MOVE,
        infer=_infer_to,
        cost=moved,
        evaluate=_evaluate_to,
        shares=_shares_to,
        summary="Converts to a type, device or memory format; the tensor itself where nothing changes.",
        strides=layouts.converted,
        roles=frozenset({OpRole.COPY, OpRole.CONVERT, OpRole.RETURNS_OPERAND, OpRole.HANDS_ON_MASK}),
    ),
    op(
        "tensor.bitcast(Tensor x, *, dtype to) -> Tensor",
        Family.MOVE,
        infer=_infer_cast,
        cost=moved,
        evaluate=_evaluate_bitcast,
        summary="Reads the same bits as another element type of the same size.",
        ort=in_place("BitCast"),
        roles=frozenset({OpRole.COPY}),
    ),
)
