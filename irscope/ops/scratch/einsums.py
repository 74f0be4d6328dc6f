"""Einstein sums: each pair of operands becomes lists of matrices, copied where no view shows them so."""

from __future__ import annotations

from dataclasses import dataclass

from irscope.ir.dims import Dim, product
from irscope.ir.types import TensorType
from irscope.ops.scratch.gemm import bmm
from irscope.ops.scratch.recorder import Scratch, is_row_major, relaid, reshape_copies, rule, same, sizes, strides, width
from irscope.ops.spec import NeedsNumbers


@dataclass(frozen=True)
class Labelled:
    """An operand whose axes carry the letters of the equation; `name` is what holds it where the sum itself made it."""

    type: TensorType
    labels: str
    name: str = ""

    def size(self, label: str) -> Dim:
        return sizes(self.type)[self.labels.index(label)]

    def arranged(self, labels: str) -> TensorType:
        """A view with its axes in that order."""
        shape, steps = sizes(self.type), strides(self.type)
        order = [self.labels.index(label) for label in labels]
        return relaid(self.type, [shape[axis] for axis in order], [steps[axis] for axis in order])


@rule
def einsum_rule(scratch: Scratch) -> None:
    call = scratch.call
    equation = str(call.attr("equation")).replace(" ", "")
    inputs, arrow, output = equation.partition("->")
    terms = inputs.split(",")
    if not arrow or "." in equation or any(len(set(term)) < len(term) for term in terms):
        raise NeedsNumbers("an einsum with an ellipsis, a repeated letter or no arrow is not modelled")
    operands = [Labelled(type_, term) for type_, term in zip(call.rest("operands"), terms, strict=True)]
    left = operands[0]
    for position, right in enumerate(operands[1:], 1):
        later = output + "".join(one.labels for one in operands[position + 1 :])
        last = position == len(operands) - 1
        left = _pair(scratch, left, right, output, later, last)
    if len(operands) == 1:
        scratch.result()


def _pair(scratch: Scratch, left: Labelled, right: Labelled, output: str, later: str, last: bool) -> Labelled:
    """The product of two operands, summed over the letters that nothing later needs."""
    known = sorted({*left.labels, *right.labels}, key=lambda label: (output.find(label) if label in output else len(output), label))
    both = [label for label in known if label in left.labels and label in right.labels]
    kept = "".join(label for label in both if label in later)
    summed = "".join(label for label in both if label not in later)
    only_left = "".join(label for label in known if label not in right.labels)
    only_right = "".join(label for label in known if label not in left.labels)
    made = "".join(label for label in known if label not in summed)
    shape = [(left if label in left.labels else right).size(label) for label in made]
    make = None if last else "product of a pair"
    if not summed:
        if make is None:
            scratch.result()
            name = ""
        else:
            name = scratch.take(make, product(shape) * width(left.type.dtype))
    else:
        first, copy_first = _as_list(scratch, left, (kept, only_left, summed), "copy of the left operand")
        second, copy_second = _as_list(scratch, right, (kept, summed, only_right), "copy of the right operand")
        name = bmm(scratch, first, second, make)
        scratch.drop(copy_second, copy_first)
    scratch.drop(left.name)
    steps = _dense_strides(shape, [made.index(label) for label in kept + only_left + only_right])
    return Labelled(relaid(left.type, shape, steps), made, name)


def _as_list(scratch: Scratch, one: Labelled, groups: tuple[str, str, str], label: str) -> tuple[TensorType, str]:
    """An operand as a list of matrices whose axes stand for groups of letters."""
    view = one.arranged("".join(groups))
    flat = [product([one.size(letter) for letter in group]) for group in groups]
    if reshape_copies(view, flat):
        return one.type.with_shape(flat), scratch.take(label, product(flat) * width(one.type.dtype))
    if is_row_major(view):
        return one.type.with_shape(flat), ""
    steps: list[Dim] = []
    place = 0
    for group in groups:
        inner = [axis for axis in range(place, place + len(group)) if not same(sizes(view)[axis], 1)]
        steps.append(strides(view)[inner[-1]] if inner else product(flat[len(steps) + 1 :]))
        place += len(group)
    return relaid(one.type, flat, steps), ""


def _dense_strides(shape: list[Dim], order: list[int]) -> list[Dim]:
    """Strides of a dense tensor whose axes lie in that order."""
    steps: list[Dim] = [1] * len(shape)
    step: Dim = 1
    for axis in reversed(order):
        steps[axis] = step
        step = step * shape[axis]
    return steps
