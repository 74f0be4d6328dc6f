"""Reductions, running ones and losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import combinations
from typing import Any, Literal, Unpack

import numpy as np

from irscope.ir.dims import Dim, dim_max, dim_min
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops import reals
from irscope.ops.cost import Cost
from irscope.ops.facts import OpRole
from irscope.ops.reals import PRECISION, Real, real_of
from irscope.ops.rules import MOST_COMBINED, any_of, broadcast_shapes, dtype_attr, length_of, softmax_work, to_float, unknown_sizes
from irscope.ops.scratch.folding import (
    bce_rule,
    composed_loss_rule,
    count_nonzero_rule,
    cross_entropy_rule,
    element_loss_rule,
    extreme_rule,
    extremes_rule,
    log_sum_exp_rule,
    nll_rule,
    norm_rule,
    pair_rule,
    sum_rule,
    truth_rule,
)
from irscope.ops.spec import Absent, CostRule, Facts, Family, Infer, Known, OpCall, OpSpec, RuleError, numel, op
from irscope.ops.values import Array, as_objects, has_reals, is_symbolic, objects, settle

Kind = Literal["same", "sum", "float", "bool", "count"]
Reducer = Callable[[OpCall, Array, "tuple[int, ...]"], Any]

_SCHEMA = "(Tensor x, Dims? axes, *, bool keepdims=False, bool noop_with_empty_axes=False, bool promote=False, {extra}dtype? dtype)"


def reduced_axes(call: OpCall, rank: int) -> tuple[int, ...] | None:
    """Return axes that go, counted from the front; None where they are not known."""
    axes = call.ints("axes")
    if axes is None and call.given("axes") and length_of(call, "axes") != 0:
        return None
    if not axes:
        return () if call.attr("noop_with_empty_axes") else tuple(range(rank))
    chosen = [call.axis(axis, max(rank, 1)) for axis in axes]
    if len(set(chosen)) < len(chosen):
        raise RuleError(f"{call.spec.name}: axes {list(axes)} name one axis twice")
    return tuple(sorted(chosen)) if rank else ()


def reduced_shape(call: OpCall, shape: Shape) -> Shape:
    """Return sizes after the reduction."""
    keep = bool(call.attr("keepdims"))
    if shape is None:
        is_full = not call.given("axes") and not keep and not call.attr("noop_with_empty_axes")
        return () if is_full else None
    axes = reduced_axes(call, len(shape))
    if axes is not None:
        return without_axes(shape, axes, keep)
    count = length_of(call, "axes")
    if keep:
        return tuple(_kept_or_one(call, size, count == len(shape)) for size in shape)
    if count is None or not 0 <= count <= len(shape) <= MOST_COMBINED:
        return unknown_sizes(call, "axes", None if count is None else max(len(shape) - count, 0))
    return any_of(call, "axes", [without_axes(shape, axes, keep) for axes in combinations(range(len(shape)), count)])


def without_axes(shape: Sequence[Dim], axes: Sequence[int], keep: bool) -> tuple[Dim, ...]:
    """Return sizes without some axes, or with 1 in their place."""
    if keep:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _kept_or_one(call: OpCall, size: Dim, is_reduced: bool) -> Dim:
    if is_reduced or size == 1:
        return 1
    return call.unknown(f"it is 1 or {size}, by the values of operand 'axes'", "axes", 0, dim_max(size, 1))


def _dtype(call: OpCall, dtype: DType, kind: Kind) -> DType:
    if kind == "bool":
        return DType.BOOL
    if kind == "count":
        return DType.I64
    if kind == "sum" and call.attr("promote") and (dtype.is_integer or dtype is DType.BOOL):
        dtype = DType.I64
    elif kind == "float" and call.attr("promote"):
        dtype = to_float(dtype)
    return dtype_attr(call, dtype)


def _infer(kind: Kind) -> Infer:
    def infer(call: OpCall) -> TensorType:
        x = call.tensor("x")
        return tensor(_dtype(call, x.dtype, kind), reduced_shape(call, x.shape), x.device)

    return infer


def _evaluate(
    function: Reducer, on_dims: Callable[..., Dim] | None, on_reals: Callable[[Real, Real, int], Real] | None = None
) -> Callable[[OpCall], Known | None]:
    def evaluate(call: OpCall) -> Known | None:
        x, result = call.value("x"), call.results[0]
        axes = None if x is None else reduced_axes(call, x.ndim)
        if x is None or axes is None or not isinstance(result, TensorType):
            return None
        if has_reals(x):
            bits = PRECISION.get(result.dtype)
            if bits is None or on_reals is None:
                return None
            numbers = objects([real_of(item, bits) for item in x.flat], x.shape)
            return settle(reduce_dims(numbers, axes, lambda a, b: on_reals(a, b, bits), bool(call.attr("keepdims"))), result.dtype)
        if is_symbolic(x):
            return None if on_dims is None else settle(reduce_dims(x, axes, on_dims, bool(call.attr("keepdims"))), result.dtype)
        with np.errstate(all="ignore"):
            return settle(np.asarray(function(call, x, axes)), result.dtype)

    return evaluate


def reduce_dims(x: Array, axes: tuple[int, ...], on_dims: Callable[..., Dim | Real], keep: bool) -> Array:
    """Return a reduction of elements that may be symbolic."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    rows = as_objects(x).transpose(*kept, *axes).reshape(int(np.prod([x.shape[axis] for axis in kept], dtype=np.int64)), -1)
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)] if keep else [x.shape[axis] for axis in kept]
    return objects([reduce(on_dims, row.tolist()) for row in rows], shape)


def _costs(elementwise: int, reductions: int, out: tuple[int, int] = (0, 0), transcendental: int = 0) -> CostRule:
    """Operations by element of the input, and elementwise and transcendental ones by element of the result."""

    def cost(call: OpCall) -> Cost:
        count, results = numel(call.types[0]), numel(call.results[0])
        return Cost(
            elementwise=count * elementwise + results * out[0],
            reduction=count * reductions,
            transcendental=count * transcendental + results * out[1],
        )

    return cost


def _limit(x: Array, is_max: bool) -> Any:
    """Return what the extreme of nothing is."""
    if x.dtype.kind == "f":
        return -np.inf if is_max else np.inf
    if x.dtype.kind == "b":
        return not is_max
    info = np.iinfo(x.dtype)
    return info.min if is_max else info.max


def _keep(call: OpCall) -> bool:
    return bool(call.attr("keepdims"))


def _wide(x: Array) -> Array:
    """Short types are summed in a longer one."""
    return x.astype({"f": np.float64, "i": np.int64, "b": np.int64, "u": np.uint64, "c": np.complex128}[x.dtype.kind])


def _sum(call: OpCall, x: Array, axes: tuple[int, ...]) -> Any:
    return _wide(x).sum(axis=axes, keepdims=_keep(call))


def _reduced_count(x: Array, axes: tuple[int, ...]) -> int:
    return int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))


def _mean(call: OpCall, x: Array, axes: tuple[int, ...]) -> Any:
    total, count = _sum(call, x, axes), _reduced_count(x, axes)
    return total // max(count, 1) if x.dtype.kind in "iu" else total / np.float64(count)


def _log_sum_exp(call: OpCall, x: Array, axes: tuple[int, ...]) -> Any:
    wide = x.astype(np.float64)
    top = np.max(wide, axis=axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.exp(wide - top).sum(axis=axes, keepdims=True)) + top
    return total if _keep(call) else total.squeeze(axes)


def _variance(call: OpCall, x: Array, axes: tuple[int, ...]) -> Any:
    wide, count = _wide(x), _reduced_count(x, axes)
    middle = wide.sum(axis=axes, keepdims=True) / np.float64(count)
    return (np.abs(wide - middle) ** 2).sum(axis=axes, keepdims=_keep(call)) / np.float64(max(count - float(call.attr("correction")), 0))


def _norm(call: OpCall, x: Array, axes: tuple[int, ...]) -> Any:
    p, size = float(call.attr("p")), np.abs(_wide(x))
    if p == np.inf:
        return np.max(size, axis=axes, keepdims=_keep(call), initial=0)
    if p == -np.inf:
        return np.min(size, axis=axes, keepdims=_keep(call), initial=np.inf)
    if p == 0:
        return (size != 0).sum(axis=axes, keepdims=_keep(call))
    return (size**p).sum(axis=axes, keepdims=_keep(call)) ** (1 / p)


def _reduce(
    name: str,
    kind: Kind,
    costs: CostRule,
    function: Reducer | None,
    summary: str,
    on_dims: Callable[..., Dim] | None = None,
    on_reals: Callable[[Real, Real, int], Real] | None = None,
    extra: str = "",
    **facts: Unpack[Facts],
) -> OpSpec:
    return op(
        f"reduce.{name}{_SCHEMA.format(extra=extra)} -> Tensor",
        Family.REDUCTION,
        infer=_infer(kind),
        cost=costs,
        evaluate=None if function is None else _evaluate(function, on_dims, on_reals),
        summary=summary,
        **facts,
    )


_PLAIN = (
    _reduce("sum", "sum", _costs(0, 1), _sum, "Sum.", lambda a, b: a + b, reals.add, temporaries=sum_rule),
    _reduce(
        "prod",
        "sum",
        _costs(0, 1),
        lambda call, x, axes: _wide(x).prod(axis=axes, keepdims=_keep(call)),
        "Product.",
        lambda a, b: a * b,
        reals.multiply,
        temporaries=sum_rule,
    ),
    _reduce(
        "mean",
        "float",
        _costs(0, 1, (1, 0)),
        _mean,
        "Mean.",
        roles=frozenset({OpRole.MOMENT}),
        temporaries=sum_rule,
    ),
    _reduce(
        "max",
        "same",
        _costs(0, 1),
        lambda call, x, axes: np.max(x, axis=axes, keepdims=_keep(call), initial=_limit(x, True)),
        "Largest element.",
        dim_max,
        reals.largest,
        temporaries=extreme_rule,
    ),
    _reduce(
        "min",
        "same",
        _costs(0, 1),
        lambda call, x, axes: np.min(x, axis=axes, keepdims=_keep(call), initial=_limit(x, False)),
        "Smallest element.",
        dim_min,
        reals.smallest,
        temporaries=extreme_rule,
    ),
    _reduce(
        "any",
        "bool",
        _costs(0, 1),
        lambda call, x, axes: np.any(x, axis=axes, keepdims=_keep(call)),
        "Whether some element holds.",
        temporaries=truth_rule,
    ),
    _reduce(
        "all",
        "bool",
        _costs(0, 1),
        lambda call, x, axes: np.all(x, axis=axes, keepdims=_keep(call)),
        "Whether every element holds.",
        temporaries=truth_rule,
    ),
    _reduce(
        "l1",
        "same",
        _costs(1, 1),
        lambda call, x, axes: _sum(call, np.abs(x), axes),
        "Sum of absolute values.",
    ),
    _reduce(
        "l2",
        "same",
        _costs(1, 1, (0, 1)),
        lambda call, x, axes: np.sqrt(_sum(call, _wide(x) ** 2, axes)),
        "Square root of the sum of squares.",
    ),
    _reduce(
        "sum_square",
        "same",
        _costs(1, 1),
        lambda call, x, axes: _sum(call, _wide(x) ** 2, axes),
        "Sum of squares.",
    ),
    _reduce("log_sum", "float", _costs(0, 1, (0, 1)), lambda call, x, axes: np.log(_sum(call, x, axes)), "Logarithm of the sum."),
    _reduce(
        "log_sum_exp", "float", _costs(1, 2, (1, 1), 1), _log_sum_exp, "Logarithm of the sum of exponentials.", temporaries=log_sum_exp_rule
    ),
    _reduce(
        "var",
        "float",
        _costs(2, 2, (1, 0)),
        _variance,
        "Variance.",
        extra="any correction=1, ",
        roles=frozenset({OpRole.MOMENT}),
        temporaries=pair_rule,
    ),
    _reduce(
        "std",
        "float",
        _costs(2, 2, (1, 1)),
        lambda call, x, axes: np.sqrt(_variance(call, x, axes)),
        "Standard deviation.",
        extra="any correction=1, ",
        temporaries=pair_rule,
    ),
    _reduce("norm", "float", _costs(1, 1, (0, 1)), _norm, "Vector norm of order `p`.", extra="any p=2, ", temporaries=norm_rule),
    _reduce(
        "count_nonzero",
        "count",
        _costs(1, 1),
        lambda call, x, axes: np.count_nonzero(x, axis=axes, keepdims=_keep(call)),
        "How many elements are not zero.",
        temporaries=count_nonzero_rule,
    ),
)


def _infer_two(call: OpCall) -> Sequence[TensorType]:
    x = call.tensor("x")
    one = tensor(_dtype(call, x.dtype, "float"), reduced_shape(call, x.shape), x.device)
    return one, one


def _infer_extremes(call: OpCall) -> Sequence[TensorType]:
    x = call.tensor("x")
    tensor_type = x.with_shape(reduced_shape(call, x.shape))
    return tensor_type, tensor_type


def axis_result(call: OpCall, x: TensorType) -> Shape:
    """Sizes after one axis is reduced."""
    if x.shape is None:
        return None
    axis = call.axis(call.int_attr("axis"), max(len(x.shape), 1))
    return without_axes(x.shape, (axis,), _keep(call)) if x.shape else ()


def with_index(call: OpCall) -> Sequence[TensorType]:
    """Infer rule: one element of an axis each, and where it stood."""
    x = call.tensor("x")
    shape = axis_result(call, x)
    return x.with_shape(shape), tensor(DType.I64, shape, x.device)


def _evaluate_with_index(function: Callable[..., Any]) -> Callable[[OpCall], list[Known] | None]:
    def evaluate(call: OpCall) -> list[Known] | None:
        x = call.value("x")
        if x is None or is_symbolic(x) or not x.size:
            return None
        axis = call.axis(call.int_attr("axis"), max(x.ndim, 1))
        if not x.ndim:
            return [x, np.zeros((), dtype=np.int64)]
        places = np.expand_dims(function(x, axis=axis), axis)
        found = np.take_along_axis(x, places, axis)
        return [found, places] if _keep(call) else [found.squeeze(axis), places.squeeze(axis)]

    return evaluate


_DOUBLE = (
    op(
        f"reduce.var_mean{_SCHEMA.format(extra='any correction=1, ')} -> (Tensor, Tensor)",
        Family.REDUCTION,
        infer=_infer_two,
        cost=_costs(2, 2, (2, 0)),
        temporaries=pair_rule,
        summary="Variance and mean.",
        roles=frozenset({OpRole.MOMENT, OpRole.CENTRED_MOMENT}),
    ),
    op(
        f"reduce.std_mean{_SCHEMA.format(extra='any correction=1, ')} -> (Tensor, Tensor)",
        Family.REDUCTION,
        infer=_infer_two,
        cost=_costs(2, 2, (2, 1)),
        temporaries=pair_rule,
        summary="Standard deviation and mean.",
        roles=frozenset({OpRole.MOMENT, OpRole.CENTRED_MOMENT}),
    ),
    op(
        f"reduce.min_max{_SCHEMA.format(extra='')} -> (Tensor, Tensor)",
        Family.REDUCTION,
        infer=_infer_extremes,
        cost=_costs(0, 2),
        temporaries=extremes_rule,
        summary="Smallest and largest element.",
    ),
    op(
        "reduce.max_with_index(Tensor x, *, int axis, bool keepdims=False) -> (Tensor, Tensor)",
        Family.REDUCTION,
        infer=with_index,
        cost=_costs(0, 1),
        evaluate=_evaluate_with_index(np.argmax),
        temporaries=pair_rule,
        summary="Largest element of an axis and its position.",
    ),
    op(
        "reduce.min_with_index(Tensor x, *, int axis, bool keepdims=False) -> (Tensor, Tensor)",
        Family.REDUCTION,
        infer=with_index,
        cost=_costs(0, 1),
        evaluate=_evaluate_with_index(np.argmin),
        temporaries=pair_rule,
        summary="Smallest element of an axis and its position.",
    ),
)

_REDUCTION = (*_PLAIN, *_DOUBLE)


# Losses, with the reduction they end in.


def _reduced(call: OpCall, shape: Shape) -> Shape:
    return shape if call.attr("reduction") == "none" else ()


def _of_examples(call: OpCall) -> Shape:
    """Return sizes of one loss an example: the scores' without their classes, which stand second or alone."""
    scores, labels = call.shape("x"), call.shape("target")
    if scores is None:
        return labels
    if not scores:
        raise RuleError(f"{call.spec.name} needs scores with an axis of classes")
    shape = (*scores[:1], *scores[2:]) if len(scores) > 1 else ()
    if labels is not None and len(labels) == len(shape):
        return tuple(call.same(left, right, "there must be one label an example") for left, right in zip(shape, labels, strict=True))
    return shape


def _infer_labelled(call: OpCall) -> tuple[Type, ...]:
    x = call.tensor("x")
    shape = _reduced(call, _of_examples(call))
    second = x.shape if "log_prob" in call.spec.schema.text else ()
    return call.fit(tensor(x.dtype, shape, x.device), tensor(x.dtype, second, x.device))


def _cost_nll(call: OpCall) -> Cost:
    count = numel(call.types[1])
    return Cost(elementwise=count * (1 + int(call.given("weight"))), reduction=_terms(call, count))


def _cost_cross_entropy(call: OpCall) -> Cost:
    scores = numel(call.types[0])
    return softmax_work(scores) + Cost(transcendental=scores) + _cost_nll(call)


def _terms(call: OpCall, count: Dim) -> Dim:
    return 0 if call.attr("reduction") == "none" else count


def _infer_elementwise(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(x.dtype, _reduced(call, broadcast_shapes(call, [x.shape, call.shape("target")])), x.device)


def _elementwise(name: str, elementwise: int, transcendental: int, summary: str, attrs: str = "", **facts: Unpack[Facts]) -> OpSpec:
    def cost(call: OpCall) -> Cost:
        count = numel(call.types[0])
        more = int(call.given("weight"))
        return Cost(elementwise=count * (elementwise + more), transcendental=count * transcendental, reduction=_terms(call, count))

    return op(
        f"loss.{name}(Tensor x, Tensor target, Tensor? weight, *, {attrs}str reduction='mean') -> Tensor",
        Family.REDUCTION,
        infer=_infer_elementwise,
        cost=cost,
        summary=summary,
        **facts,
    )


def _infer_ctc(call: OpCall) -> tuple[Type, ...]:
    """Log-probabilities are (time, batch, classes), or (time, classes) without a batch."""
    x = call.tensor("x")
    shape = None if x.shape is None else _reduced(call, x.shape[1:2] if len(x.shape) == 3 else ())
    return (tensor(x.dtype, shape, x.device), *call.results[1:])


_LOSS = (
    op(
        "loss.nll(Tensor x, Tensor target, Tensor? weight, *, str reduction='mean', int? ignore_index) -> "
        "(Tensor loss, Tensor? total_weight)",
        Family.REDUCTION,
        infer=_infer_labelled,
        cost=_cost_nll,
        temporaries=nll_rule,
        summary="Negative log-likelihood of labels under given log-probabilities.",
    ),
    op(
        "loss.cross_entropy(Tensor x, Tensor target, Tensor? weight, *, str reduction='mean', int? ignore_index, "
        "float label_smoothing=0.0) -> (Tensor loss, Tensor? log_prob)",
        Family.REDUCTION,
        infer=_infer_labelled,
        cost=_cost_cross_entropy,
        temporaries=cross_entropy_rule,
        summary="Cross entropy of labels under softmax of scores; the log-probabilities are an optional result.",
    ),
    _elementwise("mse", 2, 0, "Squared differences.", temporaries=element_loss_rule),
    _elementwise("l1", 2, 0, "Absolute differences.", temporaries=composed_loss_rule(2)),
    _elementwise(
        "smooth_l1",
        4,
        0,
        "Squared differences where they are small, absolute ones elsewhere.",
        "float beta=1.0, ",
        temporaries=element_loss_rule,
    ),
    _elementwise(
        "huber",
        4,
        0,
        "Squared differences where they are small, absolute ones elsewhere.",
        "float delta=1.0, ",
        temporaries=composed_loss_rule(1),
    ),
    _elementwise("bce", 4, 2, "Binary cross entropy of probabilities.", temporaries=bce_rule),
    _elementwise("bce_with_logits", 4, 2, "Binary cross entropy of scores.", temporaries=composed_loss_rule(2)),
    _elementwise(
        "kl_div", 2, 1, "Divergence of one distribution from another.", "bool log_target=False, ", temporaries=composed_loss_rule(3)
    ),
    _elementwise("soft_margin", 2, 2, "Logistic loss of two classes."),
    _elementwise("poisson_nll", 2, 1, "Negative log-likelihood of counts.", "bool log_input=True, "),
    op(
        "loss.ctc(Tensor x, Tensor target, Tensor input_lengths, Tensor target_lengths, *, str reduction='mean', int blank=0) -> "
        "(Tensor loss, Tensor[] saved)",
        Family.REDUCTION,
        infer=_infer_ctc,
        cost=Absent.UNKNOWN,
        summary="Likelihood of a label sequence over all alignments; the cost depends on the lengths' values.",
    ),
)


OPS = (*_REDUCTION, *_LOSS)
