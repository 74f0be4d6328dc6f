"""Steps of optimizers, and gradients, as ONNX has them."""

from __future__ import annotations

from typing import Unpack

from irscope.ir.dims import Dim
from irscope.ir.types import Type
from irscope.ops.cost import Cost
from irscope.ops.spec import Absent, CostRule, Facts, Family, Infer, OpCall, OpSpec, RuleError, numel, op


def _infer_step(groups: int) -> Infer:
    """Behind rate and count stand weights, gradients and states, group by group; weights and states come back."""

    def infer(call: OpCall) -> list[Type]:
        tensors = call.rest("tensors")
        count, odd = divmod(len(tensors), groups)
        if odd:
            raise RuleError(f"{call.spec.name} needs {groups} tensors for each weight, not {len(tensors)} in all")
        return [*tensors[:count], *tensors[2 * count :]]

    return infer


def _step_cost(groups: int, elementwise: int, transcendental: int) -> CostRule:
    def cost(call: OpCall) -> Cost:
        tensors = call.rest("tensors")
        elements: Dim = 0
        for weights in tensors[: len(tensors) // groups]:
            elements = elements + numel(weights)
        return Cost(elementwise=elements * elementwise, transcendental=elements * transcendental)

    return cost


def _step(name: str, groups: int, elementwise: int, transcendental: int, attrs: str, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(
        f"train.{name}(Tensor rate, Tensor count, Tensor[] tensors, *, {attrs}) -> Tensor[]",
        Family.LEARNING,
        infer=_infer_step(groups),
        cost=_step_cost(groups, elementwise, transcendental),
        summary=summary,
        **facts,
    )


def _infer_gradient(call: OpCall) -> list[Type]:
    """One gradient for each of the first tensors, like it."""
    return list(call.rest("tensors")[: call.int_attr("count")])


OPS = (
    _step(
        "adagrad",
        3,
        6,
        1,
        "float decay_factor=0.0, float epsilon=1e-06, float norm_coefficient=0.0",
        "A step of Adagrad: weights, gradients, sums of squares; new weights and sums.",
    ),
    _step(
        "adam",
        4,
        10,
        1,
        "float alpha=0.9, float beta=0.999, float epsilon=1e-06, float norm_coefficient=0.0, float norm_coefficient_post=0.0",
        "A step of Adam: weights, gradients, two moments; new weights and moments.",
    ),
    _step(
        "momentum",
        3,
        6,
        0,
        "float alpha=0.9, float beta=1.0, str mode='standard', float norm_coefficient=0.0",
        "A step with momentum: weights, gradients, momenta; new weights and momenta.",
    ),
    op(
        "train.gradient(Tensor[] tensors, *, int count) -> Tensor[]",
        Family.LEARNING,
        infer=_infer_gradient,
        cost=Absent.UNKNOWN,
        summary="Gradients for the first `count` tensors of a value computed from them; the cost is unknown.",
    ),
)
