"""Einstein sums: sizes from the equation, costs of contracting the operands from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from irscope.ir.dims import Dim, product
from irscope.ir.types import Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.matmul import as_result, working
from irscope.ops.rules import broadcast_dim
from irscope.ops.scratch.einsums import einsum_rule
from irscope.ops.spec import Factors, Family, Known, OpCall, RuleError, op, sizes
from irscope.ops.values import is_symbolic
from irscope.ops.work import products


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation applied to operands: labels of each axis, and the size of each label."""

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    size: dict[str, Dim]


def read_equation(call: OpCall, shapes: Sequence[Sequence[Dim]]) -> Equation:
    """The equation of a call, with an ellipsis spelled out as labels counted from the right."""
    text = str(call.attr("equation")).replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise RuleError(f"the equation {text!r} has {len(terms)} operands, the operator {len(shapes)}")
    inputs = tuple(_labels(term, len(shape), text) for term, shape in zip(terms, shapes, strict=True))
    every = [label for term in inputs for label in term]
    hidden = sorted({label for label in every if len(label) > 1}, key=lambda label: -int(label[1:]))
    if arrow:
        head, dots, tail = right.partition("...")
        output = (*head, *(hidden if dots else ()), *tail)
    else:
        output = (*hidden, *sorted(label for label in set(every) if len(label) == 1 and every.count(label) == 1))
    size: dict[str, Dim] = {}
    for term, shape in zip(inputs, shapes, strict=True):
        for label, dim in zip(term, shape, strict=True):
            size[label] = broadcast_dim(call, size.get(label, 1), dim)
    if not set(output) <= size.keys():
        raise RuleError(f"the equation {text!r} asks for axes that no operand has")
    return Equation(inputs, output, size)


def _labels(term: str, rank: int, text: str) -> tuple[str, ...]:
    head, dots, tail = term.partition("...")
    hidden = rank - len(head) - len(tail)
    if hidden < 0 or (hidden and not dots):
        raise RuleError(f"the term {term!r} of {text!r} does not fit a tensor of {rank} axes")
    return (*head, *(f".{count}" for count in range(hidden, 0, -1)), *tail)


def _infer(call: OpCall) -> Type:
    operands = call.rest("operands")
    first = operands[0]
    shapes = [operand.shape for operand in operands if operand.shape is not None]
    if len(shapes) < len(operands):
        return tensor(first.dtype, None, first.device)
    equation = read_equation(call, shapes)
    return tensor(first.dtype, [equation.size[label] for label in equation.output], first.device)


def _cost(call: OpCall) -> Cost:
    equation = read_equation(call, [sizes(type_) for type_ in call.types])
    total = Cost()
    current, *rest = (tuple(dict.fromkeys(term)) for term in equation.inputs)
    for index, term in enumerate(rest):
        needed = {*equation.output, *(label for later in rest[index + 1 :] for label in later)}
        total += _sum_away(equation, current, {*needed, *term}) + _sum_away(equation, term, {*needed, *current})
        joined = [label for label in dict.fromkeys((*current, *term)) if label in needed or (label in current and label in term)]
        total += products(product([equation.size[label] for label in joined]))
        current = tuple(label for label in joined if label in needed)
    return total + _sum_away(equation, current, set(equation.output))


def _sum_away(equation: Equation, term: Sequence[str], needed: set[str]) -> Cost:
    """Adding up axes that nothing else uses."""
    if needed.issuperset(term):
        return Cost()
    return Cost(reduction=product([equation.size[label] for label in term]))


def _evaluate(call: OpCall) -> Known | None:
    arrays = [array for array in call.values if array is not None and not is_symbolic(array)]
    if len(arrays) < len(call.types):
        return None
    equation = str(call.attr("equation")).replace(" ", "")
    return as_result(call, np.einsum(equation, *map(working, arrays)))


OPS = (
    op(
        "math.einsum(Tensor[] operands, *, str equation) -> Tensor",
        Family.CONTRACTION,
        infer=_infer,
        cost=_cost,
        evaluate=_evaluate,
        temporaries=einsum_rule,
        summary="Sums of products by an equation such as 'bhqd,bhkd->bhqk'; costs are those of contracting from left to right.",
        factors=Factors(),
    ),
)
