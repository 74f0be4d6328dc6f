"""Quantization, and products of quantized tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import numpy as np

from irscope.ir.dims import Dim, product
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.types import Shape, Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.facts import CodedOperand, Factors, OpRole, Packing
from irscope.ops.matmul import as_result, inner_size, matmul_shape, plain_arrays, swapped
from irscope.ops.ort import packs, packs_few_bits, packs_integers, takes_few_bits, takes_gemm_sums, takes_operand, takes_sums
from irscope.ops.rules import broadcast_shapes, dtype_attr, like, moved, products, softmax_work, total_bytes
from irscope.ops.spec import Absent, CostRule, Facts, Family, Infer, Known, OpCall, OpSpec, RuleError, UnknownCost, numel, op, sizes
from irscope.ops.values import Array, numpy_dtype, round_to

# Quantizing, dequantizing, and elementwise work on quantized tensors.

_PARAMETERS = "int axis=1, int block_size=0, float? scale_value, int? zero_point_value"


def _infer_quantize(call: OpCall) -> Type:
    x, zero = call.tensor("x"), call.maybe("zero_point")
    return tensor(dtype_attr(call, zero.dtype if zero is not None else DType.U8), x.shape, x.device)


def _infer_dequantize(call: OpCall) -> Type:
    x, scale = call.tensor("x"), call.maybe("scale")
    return tensor(dtype_attr(call, scale.dtype if scale is not None else DType.F32), x.shape, x.device)


def stretched(array: Array, shape: tuple[int, ...], axis: int, block_size: int) -> Array | None:
    """Return a scale or zero point for every element: one for all, one a slice along an axis, or one a block of it."""
    if array.size == 1:
        return array.reshape(())
    rank = len(shape)
    if not -rank <= axis < rank:
        return None
    axis %= rank
    if array.ndim == 1 and not block_size:
        return array.reshape([-1 if other == axis else 1 for other in range(rank)]) if len(array) == shape[axis] else None
    if array.ndim != rank or block_size < 0 or not array.shape[axis]:
        return None
    blocks = np.arange(shape[axis]) // (block_size or -(-shape[axis] // array.shape[axis]))
    fits = not shape[axis] or blocks[-1] < array.shape[axis]
    fits = fits and all(a in (1, b) for other, (a, b) in enumerate(zip(array.shape, shape, strict=True)) if other != axis)
    return np.take(array, blocks, axis=axis) if fits else None


def limits(dtype: DType) -> tuple[int, int] | None:
    """Return the smallest and largest integer of a type; None for other types."""
    if not dtype.is_integer or dtype.bits is None:
        return None
    return (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.kind is DTypeKind.INT else (0, (1 << dtype.bits) - 1)


def _parameter(call: OpCall, name: str, shape: tuple[int, ...]) -> Array | None:
    """Return values of `scale` or `zero_point`, from the operand or the attribute; None where they are not known."""
    number = call.attr(f"{name}_value")
    if number is not None:
        return np.asarray(number)
    if not call.given(name):
        return np.asarray(0) if name == "zero_point" else None
    known = plain_arrays(call, name)
    return None if known is None else stretched(known[0], shape, call.int_attr("axis"), call.int_attr("block_size"))


def _evaluate_quantize(call: OpCall) -> Known | None:
    known, result = plain_arrays(call, "x"), call.made()
    if known is None:
        return None
    x = known[0]
    scale, zero = _parameter(call, "scale", x.shape), _parameter(call, "zero_point", x.shape)
    if scale is None or zero is None:
        return None
    with np.errstate(all="ignore"):
        scaled = x.astype(np.result_type(x, scale)) / scale
    found = limits(result.dtype)
    if found is None:
        return round_to((scaled + zero).astype(np.float64), result.dtype, bool(call.attr("saturate"))) if result.dtype.is_float else None
    return np.asarray(np.clip(np.rint(scaled) + zero.astype(np.float64), *found).astype(numpy_dtype(result.dtype)))


def _evaluate_dequantize(call: OpCall) -> Known | None:
    known, result = plain_arrays(call, "x"), call.made()
    if known is None:
        return None
    x = known[0]
    scale, zero = _parameter(call, "scale", x.shape), _parameter(call, "zero_point", x.shape)
    if scale is None or zero is None:
        return None
    held = numpy_dtype(result.dtype)
    return as_result(call, (x.astype(np.float64) - zero.astype(np.float64)).astype(held) * scale.astype(held))


def _cost_dequantize(call: OpCall) -> Cost:
    return Cost(elementwise=numel(call.results[0]) * (2 if call.given("zero_point") or call.attr("zero_point_value") else 1))


def _infer_dynamic(call: OpCall) -> tuple[Type, ...]:
    x = call.tensor("x")
    dtype = dtype_attr(call, DType.U8)
    return tensor(dtype, x.shape, x.device), tensor(DType.F32, (), x.device), tensor(dtype, (), x.device)


def _evaluate_dynamic(call: OpCall) -> tuple[Known | None, ...] | None:
    known = plain_arrays(call, "x")
    if known is None or dtype_attr(call, DType.U8) is not DType.U8 or not known[0].size:
        return None
    x = known[0].astype(np.float32)
    low, high = np.float32(min(0, x.min())), np.float32(max(0, x.max()))
    scale = (high - low) / np.float32(255)
    if not scale:
        return None
    zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
    return np.asarray(np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8)), np.asarray(scale), np.asarray(zero)


def _infer_fake(call: OpCall) -> tuple[Type, ...]:
    x = call.tensor("x")
    return call.fit(tensor(x.dtype, x.shape, x.device), tensor(DType.BOOL, x.shape, x.device))


def _infer_binary(call: OpCall) -> Type:
    a = call.tensor("a")
    return tensor(a.dtype, broadcast_shapes(call, [a.shape, call.shape("b")]), a.device)


def _infer_where(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(x.dtype, broadcast_shapes(call, [call.shape("condition"), x.shape, call.shape("y")]), x.device)


def _infer_concat(call: OpCall) -> Type:
    """Behind scale and zero point of the result stand a tensor, a scale and a zero point for each part."""
    parts = call.rest("parts")[::3]
    if not parts:
        raise RuleError("quant.qlinear_concat has nothing to join")
    first = parts[0]
    shapes = [part.shape for part in parts if part.shape is not None]
    dtype = call.dtype("y_zero_point")
    if len(shapes) < len(parts):
        return tensor(dtype, None, first.device)
    axis = call.axis(call.int_attr("axis"), len(shapes[0]))
    result = list(shapes[0])
    for shape in shapes[1:]:
        if len(shape) != len(result):
            raise RuleError("quant.qlinear_concat joins tensors of different ranks")
        for other, (old, new) in enumerate(zip(result, shape, strict=True)):
            result[other] = old + new if other == axis else call.same(old, new, "other sizes must agree")
    return tensor(dtype, result, first.device)


def _cost_unary(call: OpCall) -> Cost:
    count = numel(call.results[0])
    if call.attr("op") == "softmax":
        return softmax_work(count) + Cost(elementwise=count * 4)
    return Cost(elementwise=count * 4, transcendental=count if call.attr("op") == "sigmoid" else 0)


def _infer_gather(call: OpCall) -> Type:
    data, indices, scales = call.tensor("data"), call.tensor("indices"), call.tensor("scales")
    shape: Shape = None
    if data.shape is not None and indices.shape is not None:
        axis = call.axis(call.int_attr("gather_axis"), len(data.shape))
        packed = 8 // call.int_attr("bits") if data.dtype is DType.U8 else 1
        unpacked = (*data.shape[:-1], data.shape[-1] * packed)
        shape = (*unpacked[:axis], *indices.shape, *unpacked[axis + 1 :])
    return tensor(scales.dtype, shape, data.device)


def _cost_gather(call: OpCall) -> Cost:
    """Each element is unpacked, shifted and scaled; of the table only what is looked up is read."""
    count = numel(call.results[0])
    read = count * call.int_attr("bits") // 8 + total_bytes([call.types[1]])
    if call.int_attr("block_size"):
        bits = call.dtype("scales").bits or 0
        read = read + count * bits // (8 * call.int_attr("block_size"))
    return Cost(elementwise=count * 2, read=read)


def _infer_parameters(call: OpCall) -> tuple[Type, ...]:
    device = call.tensor("x").device
    shape: Shape = ()
    if call.attr("axis") is not None:
        known = call.shape("x")
        shape = None if known is None else (known[call.axis(call.int_attr("axis"), len(known))],)
    elif call.attr("as_vector"):
        shape = (1,)
    return tensor(dtype_attr(call, DType.F64, "scale_dtype"), shape, device), tensor(DType.I64, shape, device)


def _cost_dynamic(call: OpCall) -> Cost:
    count = product(sizes(call.types[0]))
    return Cost(reduction=count * 2, elementwise=count * 3)


_QUANTIZATION = (
    op(
        f"quant.quantize(Tensor x, Tensor? scale, Tensor? zero_point, *, {_PARAMETERS}, bool saturate=True, dtype? dtype) -> Tensor",
        Family.QUANTIZATION,
        infer=_infer_quantize,
        cost=lambda call: Cost(elementwise=numel(call.results[0]) * 3),
        evaluate=_evaluate_quantize,
        summary="Divides by a scale, rounds, shifts by a zero point; for all elements, along an axis, or by blocks of it.",
        roles=frozenset({OpRole.RECODES}),
    ),
    op(
        f"quant.dequantize(Tensor x, Tensor? scale, Tensor? zero_point, *, {_PARAMETERS}, dtype? dtype) -> Tensor",
        Family.QUANTIZATION,
        infer=_infer_dequantize,
        cost=_cost_dequantize,
        evaluate=_evaluate_dequantize,
        summary="Shifts by a zero point and multiplies by a scale; for all elements, along an axis, or by blocks of it.",
        roles=frozenset({OpRole.RECODES}),
        codes=CodedOperand(0, 1, 2),
    ),
    op(
        "quant.dynamic_quantize(Tensor x, *, dtype? dtype) -> (Tensor y, Tensor scale, Tensor zero_point)",
        Family.QUANTIZATION,
        infer=_infer_dynamic,
        cost=_cost_dynamic,
        evaluate=_evaluate_dynamic,
        summary="Quantizes with scale and zero point from the smallest and largest element.",
        roles=frozenset({OpRole.RECODES}),
    ),
    op(
        "quant.parameters(Tensor x, *, int? axis, bool as_vector=False, dtype? scale_dtype) -> (Tensor scale, Tensor zero_point)",
        Family.QUANTIZATION,
        infer=_infer_parameters,
        cost=lambda call: Cost(reduction=numel(call.types[0]) * 2),
        summary="Scale and zero point from the smallest and largest element, for all or along an axis.",
    ),
    op(
        f"quant.fake_quantize(Tensor x, Tensor? scale, Tensor? zero_point, *, {_PARAMETERS}, int quant_min=0, int quant_max=255) -> "
        "(Tensor y, Tensor? mask)",
        Family.QUANTIZATION,
        infer=_infer_fake,
        cost=lambda call: Cost(elementwise=numel(call.results[0]) * 5),
        summary="Quantizes and dequantizes at once, which training uses to feel the rounding.",
    ),
    op(
        "quant.qlinear_binary(Tensor a, Tensor a_scale, Tensor? a_zero_point, Tensor b, Tensor b_scale, Tensor? b_zero_point, "
        "Tensor y_scale, Tensor? y_zero_point, *, str op) -> Tensor",
        Family.QUANTIZATION,
        infer=_infer_binary,
        cost=lambda call: Cost(elementwise=numel(call.results[0]) * 8),
        summary="A function of two quantized tensors (`op`: add, mul, ...) with a quantized result.",
    ),
    op(
        "quant.qlinear_unary(Tensor x, Tensor x_scale, Tensor? x_zero_point, Tensor y_scale, Tensor? y_zero_point, *, "
        "str op, int axis=-1) -> Tensor",
        Family.QUANTIZATION,
        infer=like("x"),
        cost=_cost_unary,
        summary="A function of a quantized tensor (`op`: sigmoid, leaky_relu, softmax, ...) with a quantized result.",
        roles=frozenset({OpRole.NAMED_OPERATION}),
    ),
    op(
        "quant.qlinear_where(Tensor condition, Tensor x, Tensor x_scale, Tensor? x_zero_point, Tensor y, Tensor y_scale, "
        "Tensor? y_zero_point, Tensor z_scale, Tensor? z_zero_point) -> Tensor",
        Family.QUANTIZATION,
        infer=_infer_where,
        cost=lambda call: Cost(elementwise=numel(call.results[0]) * 5),
        summary="Takes one of two quantized tensors where a condition holds, the other elsewhere.",
    ),
    op(
        "quant.qlinear_concat(Tensor y_scale, Tensor y_zero_point, Tensor[] parts, *, int axis) -> Tensor",
        Family.QUANTIZATION,
        infer=_infer_concat,
        cost=moved,
        summary="Joins quantized tensors; after the result's scale and zero point stand tensor, scale and zero point of each part.",
    ),
    op(
        "quant.gather_block_quantized(Tensor data, Tensor indices, Tensor scales, Tensor? zero_points, *, int gather_axis=0, "
        "int quantize_axis=1, int block_size=128, int bits=4) -> Tensor",
        Family.QUANTIZATION,
        infer=_infer_gather,
        cost=_cost_gather,
        summary="Looks up slices of a table quantized by blocks, and dequantizes them.",
        codes=CodedOperand(0, 2, 3, packing=Packing.BLOCKS),
    ),
)


# Matrix products of integers and of weights that are stored with few bits.


def _product_as(dtype: DType | None, like: str = "") -> Infer:
    """Infer rule of a * b in an element type, or in that of another operand."""

    def infer(call: OpCall) -> Type:
        a, b = call.tensor("a"), call.tensor("b")
        chosen = dtype if dtype is not None else call.dtype(like)
        return tensor(dtype_attr(call, chosen), matmul_shape(call, a.shape, b.shape), a.device)

    return infer


def _cost_of(elementwise: int) -> CostRule:
    """Return the cost of a product whose elements are then scaled and shifted."""

    def cost(call: OpCall) -> Cost:
        count = numel(call.results[0])
        macs = count * inner_size(call.types[call.spec.operand_index["a"]])
        return products(macs, count * (elementwise + int(call.given("bias"))))

    return cost


def _cost_dynamic_product(call: OpCall) -> Cost:
    """The left side is quantized on the way: its range, then three operations an element."""
    count = numel(call.types[0])
    return _cost_of(1)(call) + Cost(reduction=count * 2, elementwise=count * 3)


def _centred(call: OpCall, name: str, by_row: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None:
    """Return an operand without its zero point, which may differ by row (of the left side) or column (of the right side)."""
    known = plain_arrays(call, name)
    if known is None:
        return None
    values = known[0].astype(np.int64)
    if not call.given(f"{name}_zero_point"):
        return values
    zero = plain_arrays(call, f"{name}_zero_point")
    if zero is None:
        return None
    shift = zero[0].astype(np.int64)
    return values - (shift.reshape(-1, 1) if by_row and shift.ndim == 1 and shift.size > 1 else shift)


def _evaluate_integer(call: OpCall) -> Known | None:
    a, b = _centred(call, "a", by_row=True), _centred(call, "b", by_row=False)
    return None if a is None or b is None else as_result(call, np.matmul(a, b))


def _infer_gemm(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    left, right = swapped(a.shape, call.attr("trans_a")), swapped(b.shape, call.attr("trans_b"))
    dtype = call.dtype("y_zero_point") if call.given("y_zero_point") else DType.F32
    return tensor(dtype, matmul_shape(call, left, right), a.device)


def _cost_gemm(call: OpCall) -> Cost:
    count = numel(call.results[0])
    inner = sizes(call.types[0])[0 if call.attr("trans_a") else -1]
    return products(count * inner, count * (1 + int(call.given("c")) + 2 * int(call.given("y_scale"))))


def _infer_few_bits(call: OpCall) -> Type:
    a = call.tensor("a")
    if a.shape is None:
        return a
    if not a.shape:
        raise RuleError(f"{call.spec.name} needs at least one axis")
    call.same(a.shape[-1], call.int_attr("k"), "the input size must be that of the weights")
    return tensor(dtype_attr(call, a.dtype), (*a.shape[:-1], call.int_attr("n")), a.device)


def _infer_packed(call: OpCall) -> Type:
    x = call.tensor("x")
    if x.shape is None:
        return x
    call.same(x.shape[-1], call.int_attr("k"), "the input size must be that of the weights")
    return tensor(dtype_attr(call, x.dtype), (*x.shape[:-1], call.int_attr("n")), x.device)


def _infer_unpacked(call: OpCall) -> Type:
    parts = call.rest("parts")
    if not parts:
        raise RuleError("quant.unpack_linear has nothing to unpack")
    return tensor(dtype_attr(call, parts[0].dtype), (call.int_attr("n"), call.int_attr("k")), parts[0].device)


def _cost_few_bits(call: OpCall) -> Cost:
    count = numel(call.results[0])
    return products(count * call.int_attr("k"), count if call.given("bias") else 0)


def _record(schema: str, infer: Infer, cost: CostRule, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(schema, Family.QUANTIZATION, infer=infer, cost=cost, summary=summary, **facts)


_PRODUCT, _FILTERS = frozenset({OpRole.CODED_PRODUCT}), frozenset({OpRole.FILTERS})
_QUANTIZED_MATMUL = (
    op(
        "math.matmul_integer(Tensor a, Tensor b, Tensor? a_zero_point, Tensor? b_zero_point, *, dtype? dtype) -> Tensor",
        Family.QUANTIZATION,
        infer=_product_as(DType.I32),
        cost=_cost_of(0),
        evaluate=_evaluate_integer,
        summary="Matrix product of 8-bit integers with 32-bit sums.",
        ort=packs(packs_integers(1), "MatMulInteger"),
        factors=Factors(over_first=True),
    ),
    _record(
        "quant.matmul_integer_to_float(Tensor a, Tensor b, Tensor a_scale, Tensor b_scale, Tensor? a_zero_point, Tensor? b_zero_point, "
        "Tensor? bias) -> Tensor",
        _product_as(None, like="a_scale"),
        _cost_of(1),
        "Matrix product of 8-bit integers, scaled to floats.",
        ort=packs(packs_integers(1), "MatMulIntegerToFloat"),
        codes=CodedOperand(1, 3, 5, axis=-1),
        roles=_PRODUCT,
        factors=Factors(over_first=True),
    ),
    _record(
        "quant.dynamic_quantize_matmul(Tensor a, Tensor b, Tensor b_scale, Tensor? b_zero_point, Tensor? bias) -> Tensor",
        _product_as(None, like="a"),
        _cost_dynamic_product,
        "Quantizes the left side, multiplies with quantized weights and scales to floats.",
        ort=packs(packs_integers(1), "DynamicQuantizeMatMul", takes=takes_operand(1, DType.F32)),
        codes=CodedOperand(1, 2, 3, axis=-1),
        roles=_PRODUCT,
        factors=Factors(over_first=True),
    ),
    _record(
        "quant.qlinear_matmul(Tensor a, Tensor a_scale, Tensor a_zero_point, Tensor b, Tensor b_scale, Tensor b_zero_point, "
        "Tensor y_scale, Tensor y_zero_point) -> Tensor",
        _product_as(None, like="y_zero_point"),
        _cost_of(2),
        "Matrix product of quantized tensors with a quantized result.",
        ort=packs(packs_integers(3), "QLinearMatMul", takes=takes_sums),
        codes=CodedOperand(3, 4, 5, axis=-1),
        roles=_PRODUCT,
        factors=Factors(right=3, over_first=True),
    ),
    _record(
        "quant.qgemm(Tensor a, Tensor a_scale, Tensor a_zero_point, Tensor b, Tensor b_scale, Tensor b_zero_point, Tensor? c, "
        "Tensor? y_scale, Tensor? y_zero_point, *, float alpha=1.0, bool trans_a=False, bool trans_b=False) -> Tensor",
        _infer_gemm,
        _cost_gemm,
        "alpha * A * B + C for quantized matrices; floats where no scale of the result is given.",
        ort=packs(packs_integers(3), "QGemm", takes=takes_gemm_sums),
        codes=CodedOperand(3, 4, 5, axis=-1),
        roles=_PRODUCT,
    ),
    _record(
        "quant.matmul_nbits(Tensor a, Tensor b, Tensor? scales, Tensor? zero_points, Tensor? group_index, Tensor? bias, *, int k, int n, "
        "int bits=4, int block_size=32, int accuracy_level=0, dtype? dtype) -> Tensor",
        _infer_few_bits,
        _cost_few_bits,
        "Matrix product with (n, k) weights packed in blocks of few bits each.",
        ort=packs(packs_few_bits, "MatMulNBits", takes=takes_few_bits),
        codes=CodedOperand(1, 2, 3, packing=Packing.ROWS),
        roles=_PRODUCT,
    ),
    _record(
        "quant.packed_linear(Tensor x, Tensor? bias, Tensor[] parts, *, int k, int n, dtype? dtype) -> Tensor",
        _infer_packed,
        _cost_few_bits,
        "Fully connected layer whose weight is several tensors: codes of few bits, scales and what lies beside them.",
        roles=_PRODUCT,
    ),
    _record(
        "quant.unpack_linear(Tensor[] parts, *, int k, int n, dtype dtype) -> Tensor",
        _infer_unpacked,
        lambda call: Cost(elementwise=2 * numel(call.results[0])),
        "The plain weight (n, k) of a fully connected layer that several tensors hold.",
    ),
    _record(
        "math.scaled_matmul(Tensor a, Tensor b, Tensor? a_scale, Tensor? b_scale, Tensor? bias, *, dtype? dtype) -> Tensor",
        _product_as(None, like="a"),
        _cost_of(1),
        "Matrix product of 8-bit floats, scaled.",
        roles=frozenset({OpRole.PROJECTION}),
        factors=Factors(over_first=True),
    ),
)


# Layers that PyTorch's TorchScript files hold with packed 8-bit weights: their results' types come from the reader of the file.

_REQUANTIZING = 2
"""Operations an element on the way to 8 bits or back: a factor and a rounding or shift."""


def _filters(call: OpCall) -> tuple[Dim, ...]:
    """Return sizes of the packed weights: of the operands behind the first, those with most axes."""
    shapes = [type_.shape for type_ in call.types[1:] if type_ is not None and type_.shape]
    if not shapes:
        raise UnknownCost
    return max(shapes, key=len)


def _linear(call: OpCall) -> Dim:
    rows = product(sizes(call.types[0])[:-1])
    return rows * product(_filters(call))


def _conv(call: OpCall) -> Dim:
    return numel(call.results[0]) * product(_filters(call)[1:])


def _conv_transposed(call: OpCall) -> Dim:
    """Every element of the operand goes through the filters of its channel."""
    return numel(call.types[0]) * product(_filters(call)[1:])


def _layer(macs: Callable[[OpCall], Dim], name: str) -> CostRule:
    """Return the products of 8-bit numbers; dynamic layers quantize what they are given, fused ones have an activation."""
    activated = "relu" in name or "tanh" in name
    dynamic = "dynamic" in name

    def cost(call: OpCall) -> Cost:
        work = macs(call)
        quantizing = numel(call.types[0]) * _REQUANTIZING if dynamic else 0
        return products(work, numel(call.results[0]) * (_REQUANTIZING + int(activated)) + quantizing)

    return cost


def _pointwise(call: OpCall) -> Cost:
    """Return both sides scaled to real numbers, the operation, and the way back."""
    return Cost(elementwise=numel(call.results[0]) * (_REQUANTIZING * 2 + 1))


def _requantizing(call: OpCall) -> Cost:
    return Cost(elementwise=numel(call.results[0]) * _REQUANTIZING)


_LINEAR = ("linear", "linear_relu", "linear_tanh", "linear_leaky_relu", "linear_dynamic", "linear_relu_dynamic")
_LINEAR_HALF = ("linear_dynamic_fp16", "linear_relu_dynamic_fp16")
_CONV = tuple(f"conv{axes}{end}" for axes in ("1d", "2d", "3d") for end in ("", "_relu", "_dynamic", "_relu_dynamic"))
_TRANSPOSED = tuple(f"conv_transpose{axes}{end}" for axes in ("1d", "2d", "3d") for end in ("", "_dynamic"))
_POINTWISE = ("add", "add_relu", "mul", "mul_relu", "add_scalar", "mul_scalar", "hardswish", "leaky_relu", "sigmoid")


def _packed(name: str, cost: CostRule, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(
        f"quantized.{name}(Tensor x, Tensor[] rest) -> Tensor",
        Family.QUANTIZATION,
        infer=Absent.UNKNOWN,
        cost=cost,
        summary=summary,
        **facts,
    )


_QUANTIZED_TORCH = (
    *(
        _packed(name, _layer(_linear, name), "Fully connected layer with packed weights.", roles=_PRODUCT)
        for name in (*_LINEAR, *_LINEAR_HALF)
    ),
    *(_packed(name, _layer(_conv, name), "Convolution with packed weights.", roles=_FILTERS) for name in _CONV),
    *(_packed(name, _layer(_conv_transposed, name), "Transposed convolution with packed weights.", roles=_FILTERS) for name in _TRANSPOSED),
    *(_packed(name, _pointwise, "Arithmetic on 8-bit numbers, element by element.") for name in _POINTWISE),
    _packed("cat", _requantizing, "Tensors of 8-bit numbers one after another, brought to one scale."),
)


OPS = (*_QUANTIZATION, *_QUANTIZED_MATMUL, *_QUANTIZED_TORCH)
