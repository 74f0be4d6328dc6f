"""Normalizations, and the softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from irscope.ir.dims import Dim, floordiv, product
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops import layouts
from irscope.ops.cost import Cost
from irscope.ops.elementwise import result_element
from irscope.ops.facts import OpRole
from irscope.ops.ort import in_place, packs, packs_halves, takes, takes_biased, takes_squares, takes_two
from irscope.ops.reduction import without_axes
from irscope.ops.rules import broadcast_shapes, device_of, dtype_attr, joint_sizes, like, normalizing, per_input, result_dtype, to_float
from irscope.ops.scratch.composites import group_statistics, instance_statistics, layer_statistics
from irscope.ops.scratch.folding import softmax_rule
from irscope.ops.scratch.reductions import (
    batch_norm_rule,
    batch_norm_training_rule,
    group_norm_rule,
    instance_norm_rule,
    layer_norm_rule,
    rms_norm_rule,
)
from irscope.ops.spec import SIZES, CostRule, Facts, Family, Infer, Known, OpCall, OpSpec, RuleError, numel, op, sizes
from irscope.ops.values import Array, is_symbolic, settle

# Normalizations: by batch, layer, group or instance statistics, and those fused with what stands before them.


def _affine(call: OpCall) -> int:
    return sum(call.given(name) for name in ("scale", "bias"))


def _channels(call: OpCall) -> Dim:
    """Return how many channels: from the parameters where they are given, else from the input."""
    for name in ("mean", "scale", "bias"):
        known = call.maybe(name)
        if known is not None and known.shape is not None:
            return known.shape[0]
    shape = call.shape("x")
    if shape is None:
        return call.unknown("the number of channels is not known", SIZES, 1)
    return shape[call.axis(call.int_attr("axis"), len(shape))] if len(shape) > 1 else 1


def _check_channels(call: OpCall) -> None:
    shape = call.shape("x")
    if shape is not None and len(shape) > 1:
        channels = shape[call.axis(call.int_attr("axis"), len(shape))]
        for name in ("scale", "bias", "mean", "var"):
            known = call.maybe(name)
            if known is not None and known.shape is not None and len(known.shape) == 1:
                call.same(channels, known.shape[0], f"{name} must have one element a channel")


def _statistics_like(call: OpCall) -> TensorType:
    """Return the type of a vector of statistics: like the given ones, else of single precision for half-precision inputs."""
    x, mean = call.tensor("x"), call.maybe("mean")
    dtype = mean.dtype if mean is not None else DType.F32 if x.dtype in (DType.F16, DType.BF16) else x.dtype
    length: Dim = 0 if call.attr("statistics") == "empty" else _channels(call)
    return tensor(dtype, (length,), x.device)


def _infer_batch(call: OpCall) -> tuple[Type, ...]:
    _check_channels(call)
    x, statistics = call.tensor("x"), _statistics_like(call)
    return call.fit(tensor(x.dtype, x.shape, x.device), *[statistics] * 4)


def _infer_batch_training(call: OpCall) -> tuple[Type, ...]:
    _check_channels(call)
    x, statistics = call.tensor("x"), _statistics_like(call)
    types = (tensor(x.dtype, x.shape, x.device), statistics, statistics)
    # What a library saves for its own backward pass has the size that the file says.
    return call.fit(*types, *call.results[3:])


def _cost_batch(call: OpCall) -> Cost:
    """With given statistics: one factor and one addend for each channel, applied to each element."""
    count = numel(call.types[0])
    if call.attr("training"):
        return _cost_batch_training(call)
    return Cost(elementwise=count * 2, transcendental=_channels(call))


def _cost_batch_training(call: OpCall) -> Cost:
    channels = _channels(call)
    return normalizing(numel(call.types[0]), channels, _affine(call)) + Cost(elementwise=channels * 4)


def _normalized_axes(call: OpCall, rank: int) -> int:
    """Return the first of the axes that share statistics, which all up to the last do."""
    return call.axis(call.int_attr("axis"), rank)


def _statistics(call: OpCall, x: TensorType) -> TensorType:
    """Return the type of means or deviations: normalized axes become 1, in the precision of the first stage."""
    shape: Shape = None
    if x.shape is not None:
        first = _normalized_axes(call, len(x.shape))
        shape = (*x.shape[:first], *(1,) * (len(x.shape) - first))
    return tensor(dtype_attr(call, x.dtype, "stash_dtype"), shape, x.device)


def _result_like(call: OpCall) -> TensorType:
    """Return the input's sizes in the element type of the parameters where those decide (`dtype` says otherwise)."""
    x = call.tensor("x")
    scale = call.maybe("scale")
    if scale is not None and scale.shape is not None and x.shape is not None and len(scale.shape) > len(x.shape):
        raise RuleError(f"{call.spec.name}: scale {scale} has more axes than {x}")
    return tensor(dtype_attr(call, x.dtype), x.shape, x.device)


def _infer_layer(call: OpCall) -> tuple[Type, ...]:
    statistics = _statistics(call, call.tensor("x"))
    return call.fit(_result_like(call), statistics, statistics)


def _groups(call: OpCall) -> Dim:
    shape = sizes(call.types[0])
    return product(shape[: _normalized_axes(call, len(shape))])


def _layer_cost(centred: bool, added: int = 0) -> CostRule:
    """Return the cost of normalizing each row, after `added` additions."""

    def cost(call: OpCall) -> Cost:
        count = numel(call.types[0])
        extra = sum(call.given(name) for name in ("skip", "added_bias")) if added else 0
        return normalizing(count, _groups(call), _affine(call), centred) + Cost(elementwise=count * extra)

    return cost


def _infer_group(call: OpCall) -> tuple[Type, ...]:
    x = call.tensor("x")
    shape: Shape = None
    if x.shape is not None:
        shape = (x.shape[0], call.int_attr("num_groups"))
    statistics = tensor(x.dtype, shape, x.device)
    return call.fit(_result_like(call), statistics, statistics)


def _cost_group(call: OpCall) -> Cost:
    shape = sizes(call.types[0])
    return normalizing(numel(call.types[0]), shape[0] * call.int_attr("num_groups"), _affine(call))


def _cost_instance(call: OpCall) -> Cost:
    shape = sizes(call.types[0])
    return normalizing(numel(call.types[0]), product(shape[:2]), _affine(call))


def _cost_lrn(call: OpCall) -> Cost:
    """Squares, sums over neighbouring channels, a factor and an addend, a power, a division."""
    count = numel(call.types[0])
    return Cost(elementwise=count * 4, reduction=count * call.int_attr("size"), transcendental=count)


def _cost_mean_variance(call: OpCall) -> Cost:
    shape = sizes(call.types[0])
    reduced = {call.axis(axis, len(shape)) for axis in call.attr("axes")}
    groups = product(dim for axis, dim in enumerate(shape) if axis not in reduced)
    return normalizing(numel(call.types[0]), groups, 0)


def _infer_skip(call: OpCall) -> tuple[Type, ...]:
    x, skip = call.tensor("x"), call.tensor("skip")
    shape = x.shape
    if shape is not None and skip.shape is not None:
        shape = joint_sizes(call, shape, skip.shape)
    summed = tensor(x.dtype, shape, x.device)
    statistics = tensor(DType.F32, None if shape is None else (*shape[:-1], 1), x.device)
    return call.fit(summed, statistics, statistics, summed)


def _infer_skip_group(call: OpCall) -> tuple[Type, ...]:
    x = call.tensor("x")
    same = tensor(x.dtype, x.shape, x.device)
    return call.fit(same, same)


def _cost_skip_group(call: OpCall) -> Cost:
    count = numel(call.types[0])
    rows = sizes(call.types[0])[0] * call.int_attr("num_groups")
    return normalizing(count, rows, 2) + Cost(elementwise=count * 2)


def _infer_embedding(call: OpCall) -> tuple[Type, ...]:
    ids, table = call.tensor("ids"), call.tensor("word_table")
    shape: Shape = None
    if ids.shape is not None and table.shape is not None:
        shape = (*ids.shape, table.shape[1])
    batch = ids.shape[:1] if ids.shape is not None else None
    embedded = tensor(table.dtype, shape, table.device)
    return call.fit(embedded, tensor(DType.I32, batch, ids.device), embedded)


def _cost_embedding(call: OpCall) -> Cost:
    """Return sums of two or three table rows, normalized; of the tables only the rows that are looked up are read."""
    shape = sizes(call.results[0])
    count, tokens = product(shape), product(shape[:-1])
    bits = getattr(call.results[0], "dtype", DType.UNKNOWN).bits or 0
    tables = 2 + int(call.given("segment_table"))
    found = normalizing(count, tokens, 2) + Cost(elementwise=count * (tables - 1))
    read = floordiv(count * tables * bits, 8) + tokens * 4 * (1 + int(call.given("segment_ids")))
    return Cost(found.matmul, found.elementwise, found.transcendental, found.reduction, read=read)


def _cost_weight_norm(call: OpCall) -> Cost:
    count, groups = numel(call.types[0]), numel(call.types[1])
    return Cost(elementwise=count * 2, reduction=count, transcendental=groups)


def _cost_bias_gelu(call: OpCall) -> Cost:
    count = numel(call.results[0])
    return Cost(elementwise=count * (4 if call.given("bias") else 3), transcendental=count)


def _norm(schema: str, infer: Infer, cost: CostRule, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(schema, Family.NORMALIZATION, infer=infer, cost=cost, summary=summary, **facts)


_BATCH = "float momentum=0.1, float epsilon=1e-05, int axis=1"

_NORM = (
    _norm(
        f"nn.batch_norm(Tensor x, Tensor? scale, Tensor? bias, Tensor? mean, Tensor? var, *, bool training=False, {_BATCH}, "
        "str statistics='full') -> (Tensor y, Tensor? mean_out, Tensor? var_out, Tensor? saved_mean, Tensor? saved_var)",
        _infer_batch,
        _cost_batch,
        "Normalizes each channel by given statistics, or in training by the batch's; new statistics are further results. "
        "`statistics='empty'` says that those results have no elements.",
        temporaries=batch_norm_rule,
        roles=frozenset({OpRole.FOLDABLE_NORM}),
    ),
    _norm(
        f"nn.batch_norm_training(Tensor x, Tensor? scale, Tensor? bias, Tensor(a!)? mean, Tensor(b!)? var, *, {_BATCH}) -> "
        "(Tensor y, Tensor? saved_mean, Tensor? saved_deviation, Tensor? reserve)",
        _infer_batch_training,
        _cost_batch_training,
        "Normalizes each channel by the batch's statistics and writes running statistics in place.",
        temporaries=batch_norm_training_rule,
    ),
    _norm(
        "nn.layer_norm(Tensor x, Tensor? scale, Tensor? bias, *, int axis=-1, float epsilon=1e-05, dtype? stash_dtype, dtype? dtype) -> "
        "(Tensor y, Tensor? mean, Tensor? deviation)",
        _infer_layer,
        _layer_cost(centred=True),
        "Normalizes over the axes from `axis` to the last; optional results are means and reciprocal deviations.",
        ort=packs(packs_halves(1, 2), "LayerNormalization"),
        temporaries=layer_norm_rule,
        intermediates=layer_statistics,
        strides=layouts.ROW_MAJOR,
    ),
    _norm(
        "nn.rms_norm(Tensor x, Tensor? scale, *, int axis=-1, float epsilon=1e-05, dtype? stash_dtype, dtype? dtype) -> "
        "(Tensor y, Tensor? deviation)",
        lambda call: call.fit(_result_like(call), _statistics(call, call.tensor("x"))),
        _layer_cost(centred=False),
        "Divides by the root of the mean square over the axes from `axis` to the last.",
        ort=packs(packs_halves(1), "RMSNormalization", "SimplifiedLayerNormalization"),
        temporaries=rms_norm_rule,
        strides=layouts.ROW_MAJOR,
    ),
    _norm(
        "nn.group_norm(Tensor x, Tensor? scale, Tensor? bias, *, int num_groups, float epsilon=1e-05, dtype? dtype) -> "
        "(Tensor y, Tensor? mean, Tensor? deviation)",
        _infer_group,
        _cost_group,
        "Normalizes groups of channels of each example.",
        temporaries=group_norm_rule,
        intermediates=group_statistics,
    ),
    _norm(
        "nn.instance_norm(Tensor x, Tensor? scale, Tensor? bias, *, float epsilon=1e-05) -> Tensor",
        like("x"),
        _cost_instance,
        "Normalizes each channel of each example.",
        temporaries=instance_norm_rule,
        intermediates=instance_statistics,
        strides=layouts.ROW_MAJOR,
    ),
    _norm(
        "nn.lrn(Tensor x, *, int size, float alpha=0.0001, float beta=0.75, float bias=1.0) -> Tensor",
        like("x"),
        _cost_lrn,
        "Divides by a power of the squares of neighbouring channels.",
        ort=takes(takes_squares, "LRN"),
    ),
    _norm(
        "nn.mean_variance_norm(Tensor x, *, int[] axes=[0, 2, 3]) -> Tensor",
        like("x"),
        _cost_mean_variance,
        "Subtracts the mean and divides by the deviation over some axes.",
    ),
    _norm(
        "nn.skip_layer_norm(Tensor x, Tensor skip, Tensor? scale, Tensor? bias, Tensor? added_bias, *, int axis=-1, "
        "float epsilon=1e-12) -> (Tensor y, Tensor? mean, Tensor? deviation, Tensor? sum)",
        _infer_skip,
        _layer_cost(centred=True, added=2),
        "Adds a skip connection and a bias, then layer normalization; the sum is an optional result.",
        ort=packs(packs_halves(2, 3, 4), "SkipLayerNormalization"),
    ),
    _norm(
        "nn.skip_group_norm(Tensor x, Tensor? scale, Tensor? bias, Tensor skip, Tensor? added_bias, *, int num_groups, "
        "float epsilon=1e-05, bool channels_last=False) -> (Tensor y, Tensor? sum)",
        _infer_skip_group,
        _cost_skip_group,
        "Adds a skip connection and a bias, then normalizes groups of channels; the sum is an optional result.",
    ),
    _norm(
        "nn.skip_rms_norm(Tensor x, Tensor skip, Tensor? scale, Tensor? added_bias, *, int axis=-1, float epsilon=1e-05) -> "
        "(Tensor y, Tensor? mean, Tensor? deviation, Tensor? sum)",
        _infer_skip,
        _layer_cost(centred=False, added=2),
        "Adds a skip connection and a bias, then divides by the root of the mean square; the sum is an optional result.",
        ort=packs(packs_halves(2, 3), "SkipSimplifiedLayerNormalization"),
    ),
    _norm(
        "nn.embed_layer_norm(Tensor ids, Tensor? segment_ids, Tensor word_table, Tensor position_table, Tensor? segment_table, "
        "Tensor scale, Tensor bias, Tensor? mask, Tensor? position_ids, *, float epsilon=1e-12) -> "
        "(Tensor y, Tensor? mask_index, Tensor? sum)",
        _infer_embedding,
        _cost_embedding,
        "Adds word, position and segment embeddings and normalizes them.",
        roles=frozenset({OpRole.LOOKUP}),
    ),
    _norm(
        "nn.bias_gelu(Tensor x, Tensor? bias, *, str approximate='none') -> Tensor",
        like("x"),
        _cost_bias_gelu,
        "Adds a bias and applies GELU.",
        ort=takes(takes_biased, "BiasGelu", "FastGelu"),
    ),
    _norm(
        "nn.weight_norm(Tensor v, Tensor g, *, int axis=0) -> (Tensor w, Tensor? norms)",
        lambda call: call.fit(call.tensor("v"), call.tensor("g")),
        _cost_weight_norm,
        "Weights of a given direction and length.",
    ),
)


# Softmax and its relatives, and normalisation to length one.


def _infer(call: OpCall) -> Type:
    x = call.tensor("x")
    if x.shape:
        call.axis(call.int_attr("axis"), len(x.shape))
    return tensor(dtype_attr(call, to_float(x.dtype)), x.shape, x.device)


def _exponentials(x: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """Differences from the largest element, and their exponentials."""
    shifted = x - np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    return shifted, np.exp(shifted)


def _softmax(x: Array, axes: tuple[int, ...]) -> Any:
    _, powers = _exponentials(x, axes)
    return powers / powers.sum(axis=axes, keepdims=True)


def _log_softmax(x: Array, axes: tuple[int, ...]) -> Any:
    shifted, powers = _exponentials(x, axes)
    return shifted - np.log(powers.sum(axis=axes, keepdims=True))


def _hardmax(x: Array, axes: tuple[int, ...]) -> Any:
    rows = x.reshape(*x.shape[: axes[0]], -1, *x.shape[axes[-1] + 1 :])
    first = np.expand_dims(np.argmax(rows, axis=axes[0]), axes[0])
    places = np.arange(rows.shape[axes[0]]).reshape([-1 if axis == axes[0] else 1 for axis in range(rows.ndim)])
    return (places == first).astype(x.dtype).reshape(x.shape)


def _along(function: Callable[[Array, tuple[int, ...]], Any]) -> Callable[[OpCall], Known | None]:
    def evaluate(call: OpCall) -> Known | None:
        x = call.value("x")
        if x is None or is_symbolic(x) or not x.size:
            return x
        wide = (x if x.ndim else x.reshape(1)).astype(np.float64)
        axis = call.axis(call.int_attr("axis"), wide.ndim)
        axes = tuple(range(axis, wide.ndim)) if call.attr("from_axis") else (axis,)
        with np.errstate(all="ignore"):
            return settle(np.asarray(function(wide, axes)).reshape(x.shape), result_element(call))

    return evaluate


def _soft(name: str, summary: str, function: Callable[[Array, tuple[int, ...]], Any], cost: CostRule, **facts: Unpack[Facts]) -> OpSpec:
    return op(
        f"nn.{name}(Tensor x, *, int axis=-1, bool from_axis=False, dtype? dtype) -> Tensor",
        Family.SOFTMAX,
        infer=_infer,
        cost=cost,
        evaluate=_along(function),
        summary=summary,
        **facts,
    )


_SOFTMAX_COST = per_input(elementwise=2, transcendental=1, reduction=2)


def _length(x: Array, axes: tuple[int, ...], p: int) -> Any:
    return (np.abs(x) ** p).sum(axis=axes, keepdims=True) ** (1 / p)


def _evaluate_lp(call: OpCall) -> Known | None:
    p = call.int_attr("p")

    def normalised(x: Array, axes: tuple[int, ...]) -> Any:
        length = _length(x, axes, p)
        return np.where(length == 0, 0, x / length)

    return _along(normalised)(call)


def _infer_similarity(call: OpCall) -> Type:
    x, y = call.tensor("x"), call.tensor("y")
    shape = broadcast_shapes(call, [x.shape, y.shape])
    dtype = to_float(result_dtype([x, y]))
    if shape is None:
        return tensor(dtype, None, device_of([x, y]))
    axis = call.axis(call.int_attr("axis"), len(shape))
    return tensor(dtype, without_axes(shape, (axis,), False), device_of([x, y]))


def _cost_similarity(call: OpCall) -> Cost:
    x, y = call.tensor("x"), call.tensor("y")
    shape = broadcast_shapes(call, [x.shape, y.shape])
    count = numel(x.with_shape(shape))
    results = numel(call.results[0])
    return Cost(elementwise=count * 3 + results * 2, reduction=count * 3, transcendental=results * 2)


_SOFTMAX = (
    _soft(
        "softmax",
        "Exponentials divided by their sum; `from_axis` sums over all axes from `axis` on.",
        _softmax,
        _SOFTMAX_COST,
        ort=in_place("Softmax", takes=takes_two),
        roles=frozenset({OpRole.SOFTMAX}),
        temporaries=softmax_rule,
    ),
    _soft("softmin", "Softmax of the negated elements.", lambda x, axes: _softmax(-x, axes), _SOFTMAX_COST),
    _soft(
        "log_softmax",
        "Logarithm of the softmax.",
        _log_softmax,
        _SOFTMAX_COST,
        ort=in_place("LogSoftmax", takes=takes_two),
        temporaries=softmax_rule,
    ),
    _soft(
        "hardmax",
        "One where the first largest element stands, zero elsewhere.",
        _hardmax,
        per_input(reduction=1),
        ort=takes(takes_two, "Hardmax"),
    ),
    op(
        "nn.lp_normalize(Tensor x, *, int axis=-1, int p=2, float eps=0.0) -> Tensor",
        Family.NORMALIZATION,
        infer=_infer,
        cost=per_input(elementwise=2, reduction=1),
        evaluate=_evaluate_lp,
        summary="Divides by the norm of order `p` along an axis.",
    ),
    op(
        "nn.cosine_similarity(Tensor x, Tensor y, *, int axis=1, float eps=1e-08) -> Tensor",
        Family.REDUCTION,
        infer=_infer_similarity,
        cost=_cost_similarity,
        summary="Cosine of the angle between vectors along an axis.",
    ),
)


OPS = (*_NORM, *_SOFTMAX)
