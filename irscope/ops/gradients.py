"""Backward operators, as PyTorch's autograd calls them, and steps of optimizers over many tensors."""

from __future__ import annotations

from typing import Unpack

from irscope.ir.dims import Dim, product
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.scratch.gradients import (
    attention_gradient_rule,
    batch_norm_gradient_rule,
    conv_gradient_rule,
    embedding_gradient_rule,
    group_norm_gradient_rule,
    gru_cell_gradient_rule,
    gru_gates_rule,
    layer_norm_gradient_rule,
    lstm_cell_gradient_rule,
    lstm_gates_rule,
    many_rule,
    pool_gradient_rule,
    resize_gradient_rule,
    rms_norm_gradient_rule,
    softmax_gradient_rule,
    spatial_nll_gradient_rule,
)
from irscope.ops.spec import CostRule, Facts, Family, OpCall, OpRole, OpSpec, Temporaries, UnknownCost, numel, op, sizes
from irscope.ops.work import like, products


def _tensor_or_none(type_: Type | None) -> TensorType | None:
    return type_ if isinstance(type_, TensorType) else None


def _results(call: OpCall) -> tuple[Type, ...]:
    """The results as they were observed: which gradients are wanted is said by a mask."""
    return tuple(call.results)


def _wanted(call: OpCall, index: int) -> bool:
    """Whether a gradient is asked for."""
    return index < len(call.results) and call.results[index].shape is not None


# -- functions of single elements --------------------------------------------------------------------------------------


def _each(elementwise: int, transcendental: int = 0) -> CostRule:
    def cost(call: OpCall) -> Cost:
        count = numel(call.types[0])
        return Cost(elementwise=count * elementwise, transcendental=count * transcendental)

    return cost


def _pointwise(
    name: str, elementwise: int, transcendental: int = 0, temporaries: Temporaries | None = None, **facts: Unpack[Facts]
) -> OpSpec:
    """The gradient of a function of single elements; costs are operations an element."""
    return op(
        f"grad.{name}(Tensor dy, Tensor? x, Tensor? other) -> Tensor",
        Family.ELEMENTWISE,
        infer=like("dy"),
        cost=_each(elementwise, transcendental),
        temporaries=temporaries,
        summary=f"Gradient of {name}.",
        **facts,
    )


_POINTWISE = {
    "threshold": (1, 0),
    "gelu": (12, 2),
    "tanh": (3, 0),
    "sigmoid": (3, 0),
    "silu": (5, 1),
    "mish": (8, 3),
    "hardswish": (4, 0),
    "hardsigmoid": (2, 0),
    "hardtanh": (2, 0),
    "leaky_relu": (2, 0),
    "elu": (3, 1),
    "softplus": (4, 1),
    "logsigmoid": (5, 1),
    "logit": (4, 0),
    "dropout": (2, 0),
}


# -- losses, softmax -----------------------------------------------------------------------------------------------------


def _cost_softmax(call: OpCall) -> Cost:
    count = numel(call.types[0])
    return Cost(elementwise=count * 3, reduction=count, transcendental=count if "log" in call.spec.name else 0)


def _like_scores(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(x.dtype, x.shape, x.device)


def _loss(name: str, elementwise: int, transcendental: int = 0, temporaries: Temporaries | None = None, **facts: Unpack[Facts]) -> OpSpec:
    def cost(call: OpCall) -> Cost:
        count = numel(call.types[1])
        return Cost(elementwise=count * elementwise, transcendental=count * transcendental)

    return op(
        f"grad.{name}(Tensor dy, Tensor x, Tensor target, Tensor? weight, Tensor? total_weight) -> Tensor",
        Family.ELEMENTWISE,
        infer=_like_scores,
        cost=cost,
        temporaries=temporaries,
        summary=f"Gradient of the loss {name}.",
        **facts,
    )


# -- convolutions, pooling -----------------------------------------------------------------------------------------------


def _cost_conv(call: OpCall) -> Cost:
    """As many multiply-adds as in the forward for each of the two gradients, whatever the groups; the bias's is a sum."""
    weights = sizes(call.types[2])
    # The operand that the filter slides over has as many windows as the other has elements.
    slides = call.types[1] if call.attr("transposed") else call.types[0]
    macs = numel(slides) * product(weights[1:])
    gradients = int(_wanted(call, 0)) + int(_wanted(call, 1))
    return products(macs * gradients) + Cost(reduction=numel(call.types[0]) if _wanted(call, 2) else 0)


def _spread(call: OpCall) -> Cost:
    return Cost(elementwise=numel(call.types[0]))


# -- attention -----------------------------------------------------------------------------------------------------------


def _cost_attention(call: OpCall) -> Cost:
    """Scores are computed again; then the gradients of probabilities, values, queries and keys."""
    q, k, v = (sizes(call.types[index]) for index in (1, 2, 3))
    scores = product((*q[:-1], k[-2]))
    macs = scores * (3 * q[-1] + 2 * v[-1])
    return products(macs) + Cost(elementwise=scores * 5, transcendental=scores, reduction=scores)


# -- normalizations ------------------------------------------------------------------------------------------------------


def _cost_norm(call: OpCall) -> Cost:
    count = numel(call.types[0])
    return Cost(elementwise=count * 8, reduction=count * 4)


# -- recurrent cells, embeddings -----------------------------------------------------------------------------------------


_GRU_STEP = 13
"""Additions and products for an element of the state: 3 for each of the two gates, 4 for the candidate, 3 for the mean of both states."""


def _cost_cell(call: OpCall) -> Cost:
    gates = call.results[0] if call.results else None
    return Cost(elementwise=numel(gates) * 6, transcendental=numel(gates))


def _cost_embedding(call: OpCall) -> Cost:
    return Cost(reduction=numel(call.types[0]))


# -- many tensors at once --------------------------------------------------------------------------------------------------


def _cost_many(call: OpCall) -> Cost:
    """Operations an element of the first list."""
    lists, total = call.int_attr("lists"), _zero()
    tensors = [_tensor_or_none(type_) for type_ in call.types]
    first = tensors[: max(len(tensors) // max(lists, 1), 1)] if tensors else []
    for one in first:
        total = total + numel(one)
    function = str(call.attr("function"))
    each, hard = _WORK.get(function, (None, 0))
    if each is None:
        raise UnknownCost
    return Cost(elementwise=total * each, transcendental=total * hard)


def _zero() -> Dim:
    return 0


_WORK: dict[str, tuple[int, int]] = {
    **dict.fromkeys(
        [
            "add",
            "sub",
            "mul",
            "div",
            "neg",
            "abs",
            "maximum",
            "minimum",
            "clamp_min",
            "clamp_max",
            "sign",
            "round",
            "floor",
            "ceil",
            "trunc",
            "frac",
        ],
        (1, 0),
    ),
    **dict.fromkeys(["addcmul", "addcdiv", "lerp"], (3, 0)),
    **dict.fromkeys(
        [
            "sqrt",
            "rsqrt",
            "exp",
            "log",
            "reciprocal",
            "pow",
            "tanh",
            "sin",
            "cos",
            "erf",
            "sigmoid",
            "expm1",
            "log1p",
            "log2",
            "log10",
            "tan",
            "lgamma",
        ],
        (0, 1),
    ),
    **dict.fromkeys(["copy", "zero", "clone"], (0, 0)),
    **dict.fromkeys(["norm", "max"], (2, 0)),
    "sgd": (6, 0),
    "adagrad": (6, 1),
    "adam": (14, 1),
    "adamw": (14, 1),
}
FUNCTIONS = frozenset(_WORK)
"""What lists of tensors go through in one call."""

OPS = (
    *(_pointwise(name, *costs) for name, costs in _POINTWISE.items()),
    op(
        "grad.glu(Tensor dy, Tensor x, *, int axis=-1) -> Tensor",
        Family.ELEMENTWISE,
        infer=_like_scores,
        cost=_each(6, 1),
        summary="Gradient of glu.",
    ),
    op(
        "grad.softmax(Tensor dy, Tensor y, *, int axis=-1, dtype? dtype) -> Tensor",
        Family.SOFTMAX,
        infer=lambda call: _as_input(call),
        cost=_cost_softmax,
        temporaries=softmax_gradient_rule,
        summary="Gradient of softmax from its result.",
    ),
    op(
        "grad.log_softmax(Tensor dy, Tensor y, *, int axis=-1, dtype? dtype) -> Tensor",
        Family.SOFTMAX,
        infer=lambda call: _as_input(call),
        cost=_cost_softmax,
        temporaries=softmax_gradient_rule,
        summary="Gradient of log_softmax from its result.",
    ),
    _loss("nll", 1),
    _loss("nll_spatial", 1, temporaries=spatial_nll_gradient_rule),
    _loss("mse", 3),
    _loss("smooth_l1", 4),
    _loss("huber", 4),
    _loss("bce", 6),
    op(
        "grad.conv(Tensor dy, Tensor x, Tensor w, *, int[]? strides, int[]? pads, int[]? dilations, bool transposed=False, "
        "int[]? output_padding, int groups=1) -> (Tensor? dx, Tensor? dw, Tensor? db)",
        Family.CONTRACTION,
        infer=_results,
        cost=_cost_conv,
        temporaries=conv_gradient_rule,
        summary="Gradients of a convolution for its input, its filters and its bias.",
        roles=frozenset({OpRole.CONVOLUTION}),
    ),
    op(
        "grad.pool(Tensor dy, Tensor x, Tensor? indices) -> Tensor",
        Family.POOLING,
        infer=_like_scores,
        cost=_spread,
        temporaries=pool_gradient_rule,
        summary="Gradient of a pooling: goes to the maxima, or is spread over the windows.",
    ),
    op(
        "grad.resize(Tensor dy, *, int[]? size) -> Tensor",
        Family.POOLING,
        infer=lambda call: call.results[0],
        cost=_spread,
        temporaries=resize_gradient_rule,
        summary="Gradient of a change of an image's size.",
    ),
    op(
        "grad.place(Tensor dy) -> Tensor",
        Family.MOVE,
        infer=lambda call: call.results[0],
        cost=lambda call: Cost(),
        summary="Gradient of a slice: zeros with the slice's gradient in their middle.",
    ),
    op(
        "grad.sdpa(Tensor dy, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor y, Tensor lse, *, bool is_causal=False, "
        "float dropout_p=0.0) -> (Tensor? dq, Tensor? dk, Tensor? dv, Tensor? dmask)",
        Family.ATTENTION,
        infer=_results,
        cost=_cost_attention,
        temporaries=attention_gradient_rule,
        summary="Gradients of an attention, whose scores are computed again.",
    ),
    op(
        "grad.batch_norm(Tensor dy, Tensor x, Tensor? scale, Tensor? mean, Tensor? deviation) -> "
        "(Tensor? dx, Tensor? dscale, Tensor? dbias)",
        Family.NORMALIZATION,
        infer=_results,
        cost=_cost_norm,
        temporaries=batch_norm_gradient_rule,
        summary="Gradients of a batch normalization.",
    ),
    op(
        "grad.layer_norm(Tensor dy, Tensor x, Tensor mean, Tensor deviation, Tensor? scale, Tensor? bias, *, int axes=1) -> "
        "(Tensor? dx, Tensor? dscale, Tensor? dbias)",
        Family.NORMALIZATION,
        infer=_results,
        cost=_cost_norm,
        temporaries=layer_norm_gradient_rule,
        summary="Gradients of a layer normalization.",
    ),
    op(
        "grad.rms_norm(Tensor dy, Tensor x, Tensor deviation, Tensor? scale, *, int axes=1) -> (Tensor? dx, Tensor? dscale)",
        Family.NORMALIZATION,
        infer=_results,
        cost=_cost_norm,
        temporaries=rms_norm_gradient_rule,
        summary="Gradients of a normalization by the root of mean squares.",
    ),
    op(
        "grad.group_norm(Tensor dy, Tensor x, Tensor mean, Tensor deviation, Tensor? scale, *, int num_groups=1) -> "
        "(Tensor? dx, Tensor? dscale, Tensor? dbias)",
        Family.NORMALIZATION,
        infer=_results,
        cost=_cost_norm,
        temporaries=group_norm_gradient_rule,
        summary="Gradients of a group normalization.",
    ),
    op(
        "grad.embedding(Tensor dy, Tensor indices, *, int rows, int padding=-1, bool scaled=False) -> Tensor",
        Family.INDEXING,
        infer=lambda call: call.results[0],
        cost=_cost_embedding,
        temporaries=embedding_gradient_rule,
        summary="Gradient of an embedding: rows of the table that were looked up get the sum of what came of them.",
    ),
    op(
        "rnn.lstm_gates(Tensor input_gates, Tensor hidden_gates, Tensor c, Tensor? input_bias, Tensor? hidden_bias) -> "
        "(Tensor h, Tensor c, Tensor gates)",
        Family.RECURRENT,
        infer=_results,
        cost=lambda call: Cost(elementwise=numel(call.types[0]) * 3, transcendental=numel(call.types[0]) + numel(call.types[2])),
        temporaries=lstm_gates_rule,
        summary="What follows the matrix products in one step of an LSTM; the gates are kept for the backward.",
    ),
    op(
        "grad.lstm_cell(Tensor? dh, Tensor? dc, Tensor c, Tensor c_new, Tensor gates, *, bool has_bias=False) -> "
        "(Tensor dgates, Tensor? dc, Tensor? dbias)",
        Family.RECURRENT,
        infer=_results,
        cost=_cost_cell,
        temporaries=lstm_cell_gradient_rule,
        summary="Gradients of one step of an LSTM.",
    ),
    op(
        "rnn.gru_gates(Tensor input_gates, Tensor hidden_gates, Tensor h, Tensor? input_bias, Tensor? hidden_bias) -> "
        "(Tensor h, Tensor workspace)",
        Family.RECURRENT,
        infer=_results,
        cost=lambda call: Cost(elementwise=numel(call.types[2]) * _GRU_STEP, transcendental=numel(call.types[0])),
        temporaries=gru_gates_rule,
        summary="What follows the matrix products in one step of a GRU; the workspace is kept for the backward.",
    ),
    op(
        "grad.gru_cell(Tensor dh, Tensor workspace, *, bool has_bias=False) -> "
        "(Tensor dinput_gates, Tensor dhidden_gates, Tensor dh, Tensor? dinput_bias, Tensor? dhidden_bias)",
        Family.RECURRENT,
        infer=_results,
        cost=_cost_cell,
        temporaries=gru_cell_gradient_rule,
        summary="Gradients of one step of a GRU.",
    ),
    op(
        "train.many(Tensor[] tensors, *, str function, int lists=1) -> Tensor[]",
        Family.LEARNING,
        infer=_results,
        cost=_cost_many,
        temporaries=many_rule,
        summary="One function over lists of tensors, such as the steps of an optimizer over all parameters.",
    ),
)


def _as_input(call: OpCall) -> Type:
    """Like the result of the forward, in the type of its operand."""
    y = call.tensor("y")
    wanted = call.attr("dtype")
    return tensor(wanted if isinstance(wanted, DType) else y.dtype, y.shape, y.device)
