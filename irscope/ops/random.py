"""Random numbers, and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np

from irscope.ir.dims import Dim
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops import layouts, slicing
from irscope.ops.cost import FREE, Cost
from irscope.ops.creation import device_attr
from irscope.ops.promotion import DEFAULT_FLOAT
from irscope.ops.rules import dtype_attr, like_first, moved, written_only
from irscope.ops.scratch.ordering import dropout_rule, multinomial_rule, randperm_rule
from irscope.ops.sizes import as_size, given_shape
from irscope.ops.spec import Facts, Family, Known, OpCall, OpRole, OpSpec, numel, op
from irscope.ops.values import is_symbolic


def _infer_shaped(call: OpCall) -> Type:
    return tensor(dtype_attr(call, DEFAULT_FLOAT), given_shape(call), device_attr(call))


def _infer_like(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(dtype_attr(call, x.dtype), x.shape, device_attr(call, x.device))


def _shaped(name: str, attrs: str, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    schema = f"random.{name}(Dims shape, *, {attrs}, dtype? dtype, str? device) -> Tensor"
    return op(schema, Family.RANDOM, infer=_infer_shaped, cost=written_only, random=True, summary=summary, **facts)


def _like(name: str, attrs: str, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    schema = f"random.{name}_like(Tensor x, *, {attrs}, dtype? dtype, str? device) -> Tensor"
    return op(schema, Family.RANDOM, infer=_infer_like, cost=written_only, random=True, summary=summary, **facts)


def _infer_randint(call: OpCall) -> Type:
    return tensor(dtype_attr(call, DType.I64), given_shape(call), device_attr(call))


def _infer_randperm(call: OpCall) -> Type:
    count = call.dim("count")
    size: Dim = call.unknown("the number of elements is not known", "count") if count is None else as_size(call, count, "count")
    return tensor(dtype_attr(call, DType.I64), (size,), device_attr(call))


def _infer_multinomial(call: OpCall) -> Type:
    x = call.tensor("x")
    shape = None if x.shape is None else (*x.shape[:-1], call.attr("samples"))
    return tensor(dtype_attr(call, DType.I64), shape, x.device)


def _is_training(call: OpCall) -> bool | None:
    """Whether elements are dropped; None where that depends on a value that is not known."""
    if call.given("training_mode"):
        mode = call.value("training_mode")
        if mode is None or is_symbolic(mode):
            return None
        training = bool(mode.reshape(-1)[0])
    else:
        training = bool(call.attr("training"))
    if not training:
        return False
    if not call.given("ratio"):
        return bool(call.attr("p") != 0)
    ratio = call.value("ratio")
    return None if ratio is None or is_symbolic(ratio) else float(ratio.reshape(-1)[0]) != 0


def _infer_dropout(call: OpCall) -> Sequence[TensorType]:
    x = call.tensor("x")
    mask = x.with_shape(x.shape).with_dtype(dtype_attr(call, DType.BOOL, "mask_dtype"))
    same = x if _is_training(call) is False else x.with_shape(x.shape)
    return (same, mask)[: len(call.results) or 2]


def _shares_dropout(call: OpCall) -> bool | None:
    training = _is_training(call)
    return None if training is None else not training


def _evaluate_dropout(call: OpCall) -> list[Known | None] | None:
    x = call.value("x")
    if x is None or _is_training(call) is not False:
        return None
    values: list[Known | None] = [x, np.ones(x.shape, dtype=np.bool_)]
    return values[: len(call.results)]


def _cost_dropout(call: OpCall) -> Cost:
    if _is_training(call) is False and len(call.results) < 2:
        return FREE
    return Cost(elementwise=numel(call.results[0]) * 2)


OPS = (
    _shaped("uniform", "float low=0.0, float high=1.0, float? seed", "Numbers spread evenly between two limits."),
    _shaped("normal", "float mean=0.0, float scale=1.0, float? seed", "Numbers of a normal distribution."),
    _like("uniform", "float low=0.0, float high=1.0, float? seed", "Evenly spread numbers in a tensor of another one's shape."),
    _like("normal", "float mean=0.0, float scale=1.0, float? seed", "Normally distributed numbers in a tensor of another one's shape."),
    _like("exponential", "float rate=1.0", "Exponentially distributed numbers in a tensor of another one's shape."),
    _like("randint", "int low=0, int high=2", "Whole numbers in a tensor of another one's shape."),
    op(
        "random.bernoulli(Tensor x, *, float? p, float? seed, dtype? dtype) -> Tensor",
        Family.RANDOM,
        infer=_infer_like,
        cost=moved,
        random=True,
        summary="One with the probability that each element, or `p`, says, else zero.",
    ),
    op(
        "random.poisson(Tensor x) -> Tensor",
        Family.RANDOM,
        infer=like_first,
        cost=moved,
        random=True,
        summary="Numbers of Poisson distributions with the given rates.",
    ),
    op(
        "random.multinomial(Tensor x, *, Dim samples=1, bool replacement=False, float? seed, dtype? dtype) -> Tensor",
        Family.RANDOM,
        infer=_infer_multinomial,
        cost=moved,
        random=True,
        temporaries=multinomial_rule,
        summary="Positions drawn with the probabilities of each row.",
    ),
    op(
        "random.randint(Dims shape, *, int low=0, int high=2, dtype? dtype, str? device) -> Tensor",
        Family.RANDOM,
        infer=_infer_randint,
        cost=written_only,
        random=True,
        summary="Whole numbers spread evenly.",
    ),
    op(
        "random.randperm(Dim count, *, dtype? dtype, str? device) -> Tensor",
        Family.RANDOM,
        infer=_infer_randperm,
        cost=written_only,
        random=True,
        temporaries=randperm_rule,
        summary="The numbers from zero on in random order.",
    ),
    op(
        "nn.dropout(Tensor(a?) x, Tensor? ratio, Tensor? training_mode, *, float p=0.5, bool training=False, dtype? mask_dtype)"
        " -> (Tensor(a?), Tensor?)",
        Family.RANDOM,
        infer=_infer_dropout,
        cost=_cost_dropout,
        evaluate=_evaluate_dropout,
        shares=_shares_dropout,
        random=True,
        temporaries=dropout_rule,
        summary="Zeroes random elements in training and scales the others; else the tensor itself.",
        strides=layouts.as_operand,
        roles=frozenset({OpRole.COPY, OpRole.RETURNS_OPERAND, OpRole.DROPOUT}),
        slices=slicing.without_dropout,
    ),
)
