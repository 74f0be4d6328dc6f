"""Lowering of operations without regions of their own, by one rule or one line of a table each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from irscope.frontends.stablehlo.model import Attribute, Dense, type_of
from irscope.frontends.stablehlo.program import RULES, Rule, Use, integers
from irscope.ir.dtypes import DType
from irscope.ir.graph import Attr, Value
from irscope.ir.types import TensorType, tensor

# Operations that have the operands of irscope's, and no attributes.

_SAME: Final[dict[str, str]] = {
    "abs": "math.abs", "acos": "math.acos", "acosh": "math.acosh", "add": "math.add", "asin": "math.asin", "asinh": "math.asinh",
    "atan": "math.atan", "atan2": "math.atan2", "atanh": "math.atanh", "cbrt": "math.cbrt", "ceil": "math.ceil", "complex": "math.complex",
    "conj": "math.conj", "cosh": "math.cosh", "cosine": "math.cos", "count_leading_zeros": "math.count_leading_zeros",
    "digamma": "math.digamma", "erf": "math.erf", "erf_inv": "math.erfinv", "erfc": "math.erfc", "exponential": "math.exp",
    "exponential_minus_one": "math.expm1", "floor": "math.floor", "imag": "math.imag", "is_finite": "math.isfinite",
    "is_inf": "math.isinf", "is_neg_inf": "math.isinf", "is_pos_inf": "math.isinf", "lgamma": "math.lgamma", "log": "math.log",
    "log_plus_one": "math.log1p", "logistic": "nn.sigmoid", "maximum": "math.maximum", "minimum": "math.minimum", "multiply": "math.mul",
    "negate": "math.neg", "next_after": "math.nextafter", "polygamma": "math.polygamma", "popcnt": "math.popcount", "power": "math.pow",
    "real": "math.real", "round_nearest_afz": "math.round", "round_nearest_even": "math.round", "rsqrt": "math.rsqrt",
    "shift_left": "math.shift_left", "shift_right_arithmetic": "math.shift_right", "shift_right_logical": "math.shift_right_logical",
    "sign": "math.sign", "sine": "math.sin", "sinh": "math.sinh", "sqrt": "math.sqrt", "square": "math.square", "subtract": "math.sub",
    "tan": "math.tan", "tanh": "math.tanh", "zeta": "math.zeta", "bessel_i1e": "math.bessel_i1e",
    "reduce_precision": "math.reduce_precision", "dynamic_update_slice": "tensor.dynamic_update_slice",
    "partition_id": "collective.partition", "replica_id": "collective.replica",
}  # fmt: skip
_COMPARISONS: Final = {"EQ": "equal", "NE": "not_equal", "LT": "less", "LE": "less_equal", "GT": "greater", "GE": "greater_equal"}
_WITHOUT_EFFECT: Final = frozenset(
    {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint", "annotate_device_placement"}
)
"""Custom calls that hand on their operand."""
_CUSTOM: Final[dict[str, str]] = {
    "mhlo.erf": "erf", "mhlo.tan": "tan", "mhlo.sinh": "sinh", "mhlo.cosh": "cosh", "mhlo.asin": "asin", "mhlo.acos": "acos",
    "mhlo.atanh": "atanh", "mhlo.asinh": "asinh", "mhlo.acosh": "acosh", "mhlo.erf_inv": "erf_inv", "mhlo.topk": "top_k", "TopK": "top_k",
    "ApproxTopK": "top_k",
}  # fmt: skip
"""Custom calls that are operations of CHLO."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of these operations."""

    def register(made: Rule) -> Rule:
        for name in names:
            RULES[name] = made
        return made

    return register


def _same(op: str) -> Rule:
    return lambda use: use.one(op, use.operands)


RULES.update({name: _same(op) for name, op in _SAME.items()})
RULES.update({f"broadcast_{name}": _same(op) for name, op in _SAME.items()})


@rule("and", "or", "xor", "not", "broadcast_and", "broadcast_or", "broadcast_xor")
def _logic(use: Use) -> Value:
    name = use.operation.short.removeprefix("broadcast_")
    return use.one(f"math.{name}" if use.type().dtype is DType.BOOL else f"math.bitwise_{name}", use.operands)


@rule("divide", "broadcast_divide")
def _divide(use: Use) -> Value:
    return use.one("math.div", use.operands, {"rounding_mode": "trunc"} if use.type().dtype.is_integer else {})


@rule("remainder", "broadcast_remainder")
def _lower_remainder(use: Use) -> Value:
    return use.one("math.mod", use.operands, {"fmod": True})


@rule("compare", "broadcast_compare")
def _compare(use: Use) -> Value:
    words = (*use.operation.words, str(use.attributes.get("comparison_direction", use.attributes.get("#", ""))))
    op = next((f"compare.{_COMPARISONS[word]}" for word in words if word in _COMPARISONS), None)
    if op is None:
        raise use.wrong("does not say how it compares")
    return use.one(op, use.operands)


@rule("select", "broadcast_select")
def _select(use: Use) -> Value:
    condition, x, y = use.operands
    return use.one("math.where", [condition, x, y], type_=x.type)


@rule("clamp")
def _clamp(use: Use) -> Value:
    low, x, high = use.operands
    return use.one("math.clamp", [x, low, high])


@rule("convert", "uniform_quantize", "uniform_dequantize", "bitcast_convert")
def _convert(use: Use) -> Value | None:
    to = use.type().dtype
    if to is DType.UNKNOWN:
        return None
    if use.operation.short == "bitcast_convert":
        return _bitcast(use, to)
    return use.one("tensor.to", use.operands[:1], {"dtype": to})


def _bitcast(use: Use, to: DType) -> Value | None:
    """Return the bits as elements of another width: narrower ones get an axis of their own, wider ones take the last axis in."""
    x, shape = use.operand(0).type, use.shape()
    if not isinstance(x, TensorType) or x.shape is None or not x.dtype.bits or not to.bits:
        return None
    if x.dtype.bits == to.bits:
        return use.one("view.view_dtype", use.operands, {"to": to})
    if shape is None or not x.is_static:
        return None
    value = use.operand(0)
    if not x.shape:
        value = use.one("view.reshape", [value], {"shape": (1,)}, tensor(x.dtype, (1,)))
    made = use.one("view.view_dtype", [value], {"to": to}, tensor(to, None))
    return use.one("view.reshape", [made], {"shape": shape})


@rule("real_dynamic_slice")
def _open_slice(use: Use) -> Value:
    x, starts, ends, steps = use.operands
    return use.one("view.slice", [x, starts, ends, None, steps])


@rule("dynamic_slice")
def _dynamic_slice(use: Use) -> Value | None:
    shape = use.shape()
    return None if shape is None else use.one("tensor.dynamic_slice", use.operands, {"sizes": shape})


@rule("optimization_barrier")
def _barrier(use: Use) -> list[Value]:
    return [use.one("view.alias", [value], type_=value.type) for value in use.operands]


@rule("sharding_constraint", "reshard")
def _constrain(use: Use) -> Value:
    return use.shared(use.operand(0), None, use.attributes.get("sharding", use.attributes.get("<>", "")))


@rule("unrealized_conversion_cast", "get_tuple_element", "tuple", "set_dimension_size", "data_flow_edge")
def _hand_on(use: Use) -> Sequence[Value] | None:
    short = use.operation.short
    if short == "get_tuple_element":
        index = use.number("index", "[]")
        return use.operands[index : index + 1]
    return use.operands[:1] if short != "tuple" else use.operands


@rule("constant")
def _constant(use: Use) -> Value | None:
    dense = use.attributes.get("value")
    if isinstance(dense, bool | int | float):
        dense = Dense(f"tensor<{use.operation.result_types[0]}>" if use.operation.result_types else "", (dense,))
    if not isinstance(dense, Dense):
        return None
    text = dense.type or (use.operation.result_types or [""])[0]
    dense = Dense(text, dense.values, dense.data, dense.resource, dense.is_splat)
    type_ = type_of(text)
    if len(dense.values) == 1 and type_ is not None and type_.is_static and isinstance(type_.numel, int) and type_.numel > 1:
        one = use.builder.constant(Dense(f"tensor<{text.rpartition('x')[2]}", dense.values))
        return use.one("tensor.broadcast", [one], {"shape": type_.shape or (), "axes": ()}, type_)
    return use.builder.constant(dense)


@rule("iota", "dynamic_iota")
def _iota(use: Use) -> Value:
    attrs: dict[str, Attr] = {"axis": use.number("iota_dimension", "dim"), "dtype": use.type().dtype}
    return use.sizes_or("tensor.iota", [], attrs, use.operand(0) if use.operation.operands else None)


@rule("broadcast_in_dim", "dynamic_broadcast_in_dim")
def _broadcast(use: Use) -> Value:
    axes = use.numbers("broadcast_dimensions", "dims")
    return use.sizes_or("tensor.broadcast", use.operands[:1], {"axes": axes}, use.operand(1) if len(use.operation.operands) > 1 else None)


@rule("broadcast")
def _broadcast_leading(use: Use) -> Value:
    added = len(use.numbers("broadcast_sizes", "sizes"))
    x = use.operand(0).type
    rank = len(x.shape or ()) if isinstance(x, TensorType) else 0
    return use.sizes_or("tensor.broadcast", use.operands, {"axes": tuple(range(added, added + rank))})


@rule("reshape", "dynamic_reshape")
def _lower_reshape(use: Use) -> Value:
    return use.sizes_or("view.reshape", use.operands[:1], {}, use.operand(1) if len(use.operation.operands) > 1 else None)


@rule("transpose")
def _transpose(use: Use) -> Value:
    return use.one("view.permute", use.operands, {"perm": use.numbers("permutation", "dims")})


@rule("reverse")
def _reverse(use: Use) -> Value:
    return use.one("tensor.flip", use.operands, {"axes": use.numbers("dimensions", "dims")})


@rule("concatenate")
def _concatenate(use: Use) -> Value:
    return use.one("tensor.concat", use.operands, {"axis": use.number("dimension", "dim")})


@rule("slice")
def _slice(use: Use) -> Value:
    ranges = use.attributes.get("[]")
    if isinstance(ranges, str):
        parts = [[int(number) for number in part.split(":")] for part in re.findall(r"-?\d+(?::-?\d+)+", ranges)]
        starts, ends = (tuple(part[side] for part in parts) for side in (0, 1))
        steps = tuple(part[2] if len(part) > 2 else 1 for part in parts)
    else:
        starts, ends, steps = (use.numbers(name) for name in ("start_indices", "limit_indices", "strides"))
    x = use.operand(0)
    if isinstance(x.type, TensorType) and x.type.shape == ends and not any(starts) and set(steps) <= {1}:
        return x  # all of it
    attrs: dict[str, Attr] = {"starts": starts, "ends": ends, "axes": tuple(range(len(starts)))}
    if steps and set(steps) != {1}:
        attrs["steps"] = steps
    return use.one("view.slice", use.operands, attrs)


@rule("pad", "dynamic_pad")
def _pad(use: Use) -> Value:
    if use.operation.short == "dynamic_pad":
        return use.one("tensor.pad_general", use.operands)
    low, high, between = (
        use.numbers(*names) for names in (("edge_padding_low", "low"), ("edge_padding_high", "high"), ("interior_padding", "interior"))
    )
    return use.one("tensor.pad_general", use.operands, {"low": low, "high": high, "between": between or (0,) * len(low)})


@rule("get_dimension_size")
def _dimension(use: Use) -> Value:
    made = use.one("tensor.dim", use.operands, {"axis": use.number("dimension", "dim")}, tensor(DType.I64, ()))
    return use.one("tensor.from_scalar", [made], {"dtype": use.type().dtype})


@rule("dot_general")
def _dot_general(use: Use) -> Value:
    entries = use.entries("dot_dimension_numbers")
    if "contracting_dims" not in use.attributes:
        names = ("lhs_batching_dimensions", "rhs_batching_dimensions", "lhs_contracting_dimensions", "rhs_contracting_dimensions")
        batch_a, batch_b, over_a, over_b = (integers(entries.get(name)) for name in names)
    else:
        batch_a, batch_b = _two(use, "batching_dims")
        over_a, over_b = _two(use, "contracting_dims")
    return _product(use, batch_a, batch_b, over_a, over_b)


@rule("dot")
def _dot(use: Use) -> Value:
    a = use.operand(0).type
    rank = len(a.shape or ()) if isinstance(a, TensorType) else 1
    return _product(use, (), (), (rank - 1,), (0,))


def _two(use: Use, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`[0, 1] x [0, 1]`"""
    left, _, right = str(use.attributes.get(name, "")).partition("x")
    return integers(left), integers(right)


def _product(use: Use, batch_a: tuple[int, ...], batch_b: tuple[int, ...], over_a: tuple[int, ...], over_b: tuple[int, ...]) -> Value:
    a, b = use.operands[:2]
    dtype = use.type().dtype
    attrs: dict[str, Attr] = {} if isinstance(a.type, TensorType) and a.type.dtype is dtype else {"dtype": dtype}
    if isinstance(a.type, TensorType) and isinstance(b.type, TensorType) and a.type.shape is not None and b.type.shape is not None:
        rank, count = len(a.type.shape), len(batch_a)
        leading = tuple(range(count))
        is_last = over_a == (rank - 1,) and batch_a == batch_b == leading and len(b.type.shape) == count + 2 and rank >= count + 1
        if is_last and over_b == (count,) and (count == 0 or rank == count + 2):
            return use.one("math.matmul", [a, b], attrs)
        if is_last and count == 0 and over_b == (1,):
            return use.one("nn.linear", [a, b], attrs)
    named = {"batch_a": batch_a, "batch_b": batch_b, "over_a": over_a, "over_b": over_b}
    return use.one("math.dot_general", [a, b], {**{name: axes for name, axes in named.items() if axes}, **attrs})


@rule("einsum", "unary_einsum")
def _einsum(use: Use) -> Value:
    return use.one("math.einsum", use.operands, {"equation": str(use.attributes.get("einsum_config", ""))})


@rule("convolution", "dynamic_conv")
def _convolution(use: Use) -> Value | None:
    text = use.attributes.get("dim_numbers", use.attributes.get("dimension_numbers"))
    if isinstance(text, dict) or text is None:
        axes = _axes_of_entries(use.attributes if text is None else text)
    else:
        letters = re.findall(r"\[([^\]]*)\]", str(text))
        if len(letters) != 3:
            return None
        axes = [_axes_of_letters(group, pair) for group, pair in zip(letters, ("bf", "oi", "bf"), strict=True)]
    window = use.entries("window")
    pairs = (("strides", "window_strides", "stride"), ("dilations", "rhs_dilation", "rhs_dilate"), ("spread", "lhs_dilation", "lhs_dilate"))
    attrs: dict[str, Attr] = {**dict(zip(("axes_x", "axes_w", "axes_y"), axes, strict=True)), **spans(use, pairs, window)}
    for ours, attribute in (("groups", "feature_group_count"), ("batch_groups", "batch_group_count")):
        if use.number(attribute, default=1) != 1:
            attrs[ours] = use.number(attribute, default=1)
    x = use.operand(0).type
    if isinstance(x, TensorType) and x.dtype is not use.type().dtype:
        attrs["dtype"] = use.type().dtype
    return use.one("nn.conv_general", use.operands[:2], attrs)


def spans(use: Use, names: Sequence[tuple[str, str, str]], entries: Mapping[str, Attribute]) -> dict[str, Attr]:
    """Return strides, dilations and pads that are not the usual ones: by our name, that of the attribute, and that of an entry."""
    found = {ours: use.numbers(attribute) or integers(entries.get(word)) for ours, attribute, word in names}
    pads = use.numbers("padding") or integers(entries.get("pad"))
    attrs: dict[str, Attr] = {ours: numbers for ours, numbers in found.items() if numbers and set(numbers) != {1}}
    return attrs | ({"pads": (*pads[::2], *pads[1::2])} if any(pads) else {})


def _axes_of_letters(text: str, first: str) -> tuple[int, ...]:
    """Return the axes in the order batch, channels, space (of a kernel: output, input, space) of `b, 0, 1, f`."""
    letters = [part.strip() for part in text.split(",")]
    space = sorted((letter for letter in letters if letter.isdigit()), key=int)
    return tuple(letters.index(letter) for letter in (*first, *space) if letter in letters)


def _axes_of_entries(entries: Mapping[str, Attribute]) -> list[tuple[int, ...]]:
    """Return the same of the entries that bytecode has."""
    names = (
        ("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"),
        ("kernel_output_feature_dimension", "kernel_input_feature_dimension", "kernel_spatial_dimensions"),
        ("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions"),
    )
    return [tuple(number for name in group for number in integers(entries.get(name))) for group in names]


@rule("gather", "dynamic_gather")
def _gather(use: Use) -> Value | None:
    numbers = use.entries("dimension_numbers")
    sizes = use.numbers("slice_sizes")
    if not sizes and use.operation.short == "dynamic_gather":
        return None
    attrs: dict[str, Attr] = {
        "sizes": sizes,
        "offsets": integers(numbers.get("offset_dims")),
        "collapsed": integers(numbers.get("collapsed_slice_dims")),
        "batch": integers(numbers.get("operand_batching_dims")),
        "batch_indices": integers(numbers.get("start_indices_batching_dims")),
        "mapped": integers(numbers.get("start_index_map")),
        "vector_axis": next(iter(integers(numbers.get("index_vector_dim"))), 0),
    }
    return use.one(
        "tensor.gather_general",
        use.operands[:2],
        {name: value for name, value in attrs.items() if value != ()} | {"offsets": attrs["offsets"]},
    )


@rule("torch_index_select")
def _index_select(use: Use) -> Value | None:
    shape = use.shape()
    return None if shape is None else use.one("tensor.gather", use.operands, {"axis": use.number("dim")})


@rule("top_k")
def _top_k(use: Use) -> Sequence[Value]:
    types = use.types()
    first = types[0]
    k = use.number("k")
    if not k and isinstance(first, TensorType) and first.shape and isinstance(first.shape[-1], int):
        k = first.shape[-1]
    made = use.add("tensor.topk", use.operands[:1], {"k": k}).outputs
    wanted = types[1].dtype if len(types) > 1 and isinstance(types[1], TensorType) else DType.I32
    return made[0], use.one("tensor.to", [made[1]], {"dtype": wanted}, types[1] if len(types) > 1 else None)


# Normalisations, linear algebra, signals, random numbers.


@rule("batch_norm_inference", "batch_norm_training")
def _batch_norm(use: Use) -> Sequence[Value]:
    attrs: dict[str, Attr] = {"axis": use.number("feature_index")}
    if use.operation.short == "batch_norm_inference":
        return [use.one("nn.batch_norm", use.operands, attrs)]
    return use.add("nn.batch_norm", use.operands, {**attrs, "training": True}).outputs


@rule("cholesky")
def _cholesky(use: Use) -> Value:
    return use.one("linalg.cholesky", use.operands, {"upper": not use.attributes.get("lower", True)})


@rule("triangular_solve")
def _triangular(use: Use) -> Value:
    return use.one("linalg.solve", use.operands, {"left": bool(use.attributes.get("left_side", True)), "triangular": True})


_KINDS: Final = {"FFT": "c2c", "IFFT": "c2c", "RFFT": "r2c", "IRFFT": "c2r"}


@rule("fft")
def _fft(use: Use) -> Value | None:
    kind = str(use.attributes.get("fft_type", use.attributes.get("type", "FFT")))
    lengths, x = use.numbers("fft_length", "length"), use.operand(0).type
    if kind not in _KINDS or not isinstance(x, TensorType) or x.shape is None:
        return None
    axes = tuple(range(len(x.shape) - len(lengths), len(x.shape)))
    return use.one("fft.transform", use.operands, {"sizes": lengths, "axes": axes, "kind": _KINDS[kind], "inverse": kind.startswith("I")})


@rule("rng_bit_generator")
def _bits(use: Use) -> Sequence[Value] | None:
    types = use.types()
    made = types[-1]
    if len(types) != 2 or not isinstance(made, TensorType) or not made.is_static:
        return None
    return use.add("random.bits", use.operands, {"shape": made.shape or (), "dtype": made.dtype}).outputs


@rule("rng")
def _rng(use: Use) -> Value:
    words = (*use.operation.words, str(use.attributes.get("rng_distribution", use.attributes.get("distribution", ""))))
    distribution = "NORMAL" if "NORMAL" in words else "UNIFORM"
    return use.sizes_or("random.between", use.operands[:2], {"distribution": distribution})


def _group_of(use: Use) -> int:
    """Devices of a group: the length of the lists in `replica_groups`, else all."""
    groups = use.attributes.get("replica_groups")
    type_ = type_of(groups.type) if isinstance(groups, Dense) else None
    if type_ is not None and type_.shape and len(type_.shape) == 2 and isinstance(type_.shape[1], int):
        return max(1, type_.shape[1])
    attributes = use.builder.module.attributes
    found = [attributes.get(f"mhlo.num_{what}", 1) for what in ("partitions", "replicas")]
    return max([number for number in found if isinstance(number, int)], default=1)


@rule("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute", "collective_broadcast")
def _collective(use: Use) -> Sequence[Value]:
    short = use.operation.short
    attrs: dict[str, Attr] = {"devices": _group_of(use)}
    if short == "all_gather":
        attrs["axis"] = use.number("all_gather_dim")
    elif short == "reduce_scatter":
        attrs["axis"] = use.number("scatter_dimension")
    elif short == "all_to_all":
        attrs["split_axis"], attrs["axis"] = use.number("split_dimension"), use.number("concat_dimension")
        attrs["devices"] = use.number("split_count", default=_group_of(use))
    name = short.removeprefix("collective_")
    return use.add(f"collective.{name}", use.operands, attrs).outputs


@rule("custom_call")
def _custom(use: Use) -> Sequence[Value] | Value | None:
    target = use.operation.callee
    if target == "shape_assertion":  # of sizes that are symbols: where it does not hold, the program does not run
        return ()
    if target in _WITHOUT_EFFECT:
        return use.operands[: len(use.operation.results)]
    known = _CUSTOM.get(target)
    found = RULES.get(known) if known is not None else None
    return None if found is None else found(use)
