"""Losses, with the reduction they end in."""

from __future__ import annotations

from typing import Unpack

from irscope.ir.dims import Dim
from irscope.ir.types import Shape, Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.rules import broadcast_shapes
from irscope.ops.scratch.folding import LOSSES, cross_entropy_rule, nll_rule
from irscope.ops.spec import Absent, Facts, Family, OpCall, OpSpec, RuleError, numel, op
from irscope.ops.work import softmax_work


def _reduced(call: OpCall, shape: Shape) -> Shape:
    return shape if call.attr("reduction") == "none" else ()


def _of_examples(call: OpCall) -> Shape:
    """Sizes of one loss an example: the scores' without their classes, which stand second or alone."""
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
    return Cost(elementwise=count * (1 + int(call.given("weight"))), reduction=_summed(call, count))


def _cost_cross_entropy(call: OpCall) -> Cost:
    scores = numel(call.types[0])
    return softmax_work(scores) + Cost(transcendental=scores) + _cost_nll(call)


def _summed(call: OpCall, count: Dim) -> Dim:
    return 0 if call.attr("reduction") == "none" else count


def _infer_elementwise(call: OpCall) -> Type:
    x = call.tensor("x")
    return tensor(x.dtype, _reduced(call, broadcast_shapes(call, [x.shape, call.shape("target")])), x.device)


def _elementwise(name: str, elementwise: int, transcendental: int, summary: str, attrs: str = "", **facts: Unpack[Facts]) -> OpSpec:
    def cost(call: OpCall) -> Cost:
        count = numel(call.types[0])
        more = int(call.given("weight"))
        return Cost(elementwise=count * (elementwise + more), transcendental=count * transcendental, reduction=_summed(call, count))

    return op(
        f"loss.{name}(Tensor x, Tensor target, Tensor? weight, *, {attrs}str reduction='mean') -> Tensor",
        Family.REDUCTION,
        infer=_infer_elementwise,
        cost=cost,
        temporaries=LOSSES.get(name),
        summary=summary,
        **facts,
    )


def _infer_ctc(call: OpCall) -> tuple[Type, ...]:
    """Log-probabilities are (time, batch, classes), or (time, classes) without a batch."""
    x = call.tensor("x")
    shape = None if x.shape is None else _reduced(call, x.shape[1:2] if len(x.shape) == 3 else ())
    return (tensor(x.dtype, shape, x.device), *call.results[1:])


OPS = (
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
    _elementwise("mse", 2, 0, "Squared differences."),
    _elementwise("l1", 2, 0, "Absolute differences."),
    _elementwise("smooth_l1", 4, 0, "Squared differences where they are small, absolute ones elsewhere.", "float beta=1.0, "),
    _elementwise("huber", 4, 0, "Squared differences where they are small, absolute ones elsewhere.", "float delta=1.0, "),
    _elementwise("bce", 4, 2, "Binary cross entropy of probabilities."),
    _elementwise("bce_with_logits", 4, 2, "Binary cross entropy of scores."),
    _elementwise("kl_div", 2, 1, "Divergence of one distribution from another.", "bool log_target=False, "),
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
