"""Workspaces of matrix products, and what Einstein sums copy before them."""

from __future__ import annotations

from irscope.immutable import immutable
from irscope.ir.dims import Dim, product
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType
from irscope.ops.scratch.recorder import (
    Scratch,
    count,
    expanded,
    is_contiguous,
    is_dense,
    is_row_major,
    nbytes,
    numbers,
    relaid,
    reshape_copies,
    rule,
    same,
    sizes,
    strides,
    transposed,
    width,
)
from irscope.ops.spec import NeedsNumbers

# Matrix products: copies of operands that do not lie as the library wants, and which library runs.

_LT_TYPES = frozenset({DType.F64, DType.F32, DType.F16, DType.BF16})


def mm(scratch: Scratch, a: TensorType, b: TensorType, *, fused_bias: bool = False, make: str | None = None) -> str:
    """Return a product of two matrices. `make` names the product where it is not the call's result."""
    name = _product_result(scratch, make, product((sizes(a)[0], sizes(b)[1])) * width(a.dtype))
    # The library sees row-major matrices as transposed ones, so that the right one comes first.
    copies = [_matrix_copy(scratch, b, "copy of the right matrix"), _matrix_copy(scratch, a, "copy of the left matrix")]
    scratch.gemm("lt" if fused_bias else "cublas")
    scratch.drop(*reversed(copies))
    return name


def bmm(scratch: Scratch, a: TensorType, b: TensorType, make: str | None = None) -> str:
    """Return a product of two lists of matrices."""
    name = _product_result(scratch, make, product((*sizes(a)[:2], sizes(b)[2])) * width(a.dtype))
    copies = [_batch_copy(scratch, b, "copy of the right matrices"), _batch_copy(scratch, a, "copy of the left matrices")]
    scratch.gemm()
    scratch.drop(*reversed(copies))
    return name


def _product_result(scratch: Scratch, make: str | None, size: Dim) -> str:
    if make is None:
        scratch.result()
        return ""
    return scratch.take(make, size)


def _matrix_copy(scratch: Scratch, type_: TensorType, label: str) -> str:
    if is_row_major(type_) or is_dense(type_):
        return ""
    shape, steps = numbers(sizes(type_)), numbers(strides(type_))
    if (steps[0] == 1 and steps[1] >= max(1, shape[0])) or (steps[1] == 1 and steps[0] >= max(1, shape[1])):
        return ""
    return scratch.take(label, nbytes(type_))


def _batch_copy(scratch: Scratch, type_: TensorType, label: str) -> str:
    if type_.layout is None:
        return ""
    shape, steps = numbers(sizes(type_)), numbers(strides(type_))
    if (steps[1] == 1 and steps[2] >= max(1, shape[1])) or (steps[2] == 1 and steps[1] >= max(1, shape[2])):
        return ""
    # The library wants steps that are not zero, also along an axis of one.
    if is_row_major(type_) and steps[1] and steps[2]:
        return ""
    return scratch.take(label, nbytes(type_))


def takes_lt(c: TensorType | None, a: TensorType, b: TensorType, beta: object = 1.0) -> bool:
    """Return whether cuBLASLt adds the bias in the product's own kernel."""
    if c is None or len(sizes(c)) != 1 or beta != 1 or a.dtype not in _LT_TYPES or c.dtype is not a.dtype or not is_contiguous(c):
        return False
    inner, outer = sizes(b)
    return same(sizes(c)[0], outer) and not same(inner, 1) and not same(outer, 1)


def matmul(
    scratch: Scratch, a: TensorType, b: TensorType, a_learned: bool = False, b_learned: bool = False, make: str | None = None
) -> str:
    """`torch.matmul`: vectors, matrices, a list of matrices folded into one, or a list of products."""
    rank_a, rank_b = len(sizes(a)), len(sizes(b))
    if rank_a <= 2 and rank_b <= 2:
        if rank_b == 1:
            name = _product_result(scratch, make, (1 if rank_a == 1 else sizes(a)[0]) * width(a.dtype))
            scratch.gemm()
            return name
        return mm(scratch, a if rank_a == 2 else relaid(a, (1, *sizes(a)), (count(a), *strides(a))), b, make=make)
    if _folds(a, b, a_learned, b_learned):
        return _folded(scratch, a, b, make)
    return _batched(scratch, a, b, make)


def _folds(a: TensorType, b: TensorType, a_learned: bool, b_learned: bool) -> bool:
    """Return whether the larger operand is laid out as one matrix."""
    a_larger = len(sizes(a)) >= len(sizes(b))
    large, small = (a, b) if a_larger else (transposed(b), a)
    if len(sizes(large)) < 3 or len(sizes(small)) > 2:
        return False
    if b_learned if a_larger else a_learned:
        return True
    if len(sizes(a)) == 2:
        return False
    if is_row_major(large):
        return True
    shape, steps = sizes(large), strides(large)
    return all(same(steps[axis], steps[axis + 1] * shape[axis + 1]) for axis in range(len(shape) - 2))


def _folded(scratch: Scratch, a: TensorType, b: TensorType, make: str | None) -> str:
    swapped = len(sizes(b)) > len(sizes(a))
    large = transposed(b) if swapped else a
    small = (transposed(a) if len(sizes(a)) == 2 else a) if swapped else b
    shape = sizes(large)
    flat = (product(shape[:-1]), shape[-1])
    copy = scratch.take("contiguous rows", nbytes(large)) if reshape_copies(large, flat) else ""
    flattened = relaid(large, flat, (shape[-1], 1)) if copy or is_row_major(large) else _flat_view(large, flat)
    if len(sizes(small)) == 1:
        name = _product_result(scratch, make, flat[0] * width(a.dtype))
        scratch.gemm()
    elif not swapped:
        name = mm(scratch, flattened, small, make=make)
    else:
        before = mm(scratch, flattened, small, make="product before it is transposed")
        name = _product_result(scratch, make, flat[0] * sizes(small)[1] * width(a.dtype))
        scratch.drop(before)
    scratch.drop(copy)
    return name


def _flat_view(type_: TensorType, flat: tuple[Dim, Dim]) -> TensorType:
    """Return rows of a tensor that needs no copy: their step is that of the last of the leading axes."""
    shape, steps = sizes(type_), strides(type_)
    leading = [step for step, size in zip(steps[:-1], shape[:-1], strict=True) if size != 1]
    return relaid(type_, flat, (leading[-1] if leading else shape[-1], steps[-1]))


def _batched(scratch: Scratch, a: TensorType, b: TensorType, make: str | None) -> str:
    shape_a, shape_b = sizes(a), sizes(b)
    matrix_a = shape_a[-2:] if len(shape_a) > 1 else (1, shape_a[-1])
    if len(shape_a) == 1:
        a = relaid(a, matrix_a, (shape_a[-1], strides(a)[-1]))
    if len(shape_b) == 1:
        b = relaid(b, (shape_b[0], 1), (strides(b)[0], 1))
    batch = joint_batch(sizes(a)[:-2], sizes(b)[:-2])
    left, copy_a = _as_list(scratch, a, batch, "copy of the left operand")
    right, copy_b = _as_list(scratch, b, batch, "copy of the right operand")
    name = bmm(scratch, left, right, make)
    scratch.drop(copy_b, copy_a)
    return name


def joint_batch(left: tuple[Dim, ...], right: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return sizes that two lists of leading axes broadcast to."""
    rank = max(len(left), len(right))
    left, right = (1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right
    return tuple(b if same(a, 1) else a for a, b in zip(left, right, strict=True))


def _as_list(scratch: Scratch, type_: TensorType, batch: tuple[Dim, ...], label: str) -> tuple[TensorType, str]:
    """Return an operand as a list of matrices, copied where no view shows it so."""
    matrix = sizes(type_)[-2:]
    if all(same(a, b) for a, b in zip(sizes(type_)[:-2], batch, strict=False)) and len(sizes(type_)) == len(batch) + 2:
        spread = type_
    else:
        spread = expanded(type_, (*batch, *matrix))
    flat = (product(batch), *matrix)
    if reshape_copies(spread, flat):
        return relaid(type_, flat, (product(matrix), matrix[1], 1)), scratch.take(label, product(flat) * width(type_.dtype))
    outer: Dim = product(matrix)
    if not is_row_major(spread):
        steps = [step for step, size in zip(strides(spread)[:-2], batch, strict=True) if size != 1]
        outer = steps[-1] if steps else outer
    return relaid(type_, flat, (outer, *strides(spread)[-2:])), ""


def addmm(scratch: Scratch, c: TensorType | None, a: TensorType, b: TensorType, beta: object = 1.0) -> None:
    """A product of matrices to which a bias is added."""
    mm(scratch, a, b, fused_bias=takes_lt(c, a, b, beta))


def linear(scratch: Scratch, x: TensorType, w: TensorType, bias: TensorType | None, learned: bool, make: str | None = None) -> str:
    """`torch.nn.functional.linear`: rows that lie one after another go with the bias into one product, others without it."""
    turned = transposed(w)
    if len(sizes(w)) != 2:
        return matmul(scratch, x, turned, make=make)
    rank = len(sizes(x))
    if bias is not None and (rank == 2 or is_contiguous(x)):
        rows = product(sizes(x)[:-1])
        flat = x if rank == 2 else relaid(x, (rows, sizes(x)[-1]), (sizes(x)[-1], 1))
        return mm(scratch, flat, turned, fused_bias=takes_lt(bias, flat, turned), make=make)
    return matmul(scratch, x, turned, b_learned=learned, make=make)


def _learned(scratch: Scratch, index: int) -> bool:
    return index in scratch.call.parameters


@rule
def linear_rule(scratch: Scratch) -> None:
    call = scratch.call
    linear(scratch, call.tensor("x"), call.tensor("w"), call.maybe("b"), _learned(scratch, 1))


@rule
def matmul_rule(scratch: Scratch) -> None:
    a, b = scratch.call.tensor("a"), scratch.call.tensor("b")
    name = scratch.source
    if name in ("mm", "mv", "dot", "vdot", "inner", "_int_mm"):
        matmul(scratch, a, b)
    elif name == "bmm":
        bmm(scratch, a, b)
    else:
        matmul(scratch, a, b, _learned(scratch, 0), _learned(scratch, 1))


@rule
def addmm_rule(scratch: Scratch) -> None:
    call = scratch.call
    addmm(scratch, call.tensor("c"), call.tensor("a"), call.tensor("b"), call.attr("beta"))


@rule
def addmv_rule(scratch: Scratch) -> None:
    scratch.result()
    scratch.gemm()


@rule
def baddbmm_rule(scratch: Scratch) -> None:
    bmm(scratch, scratch.call.tensor("a"), scratch.call.tensor("b"))


# Einstein sums: each pair of operands becomes lists of matrices, copied where no view shows them so.


@immutable(slots=False)
class Labelled:
    """An operand whose axes carry the letters of the equation; `name` is what holds it where the sum itself made it."""

    type: TensorType
    labels: str
    name: str = ""

    def size(self, label: str) -> Dim:
        return sizes(self.type)[self.labels.index(label)]

    def arranged(self, labels: str) -> TensorType:
        """Return a view with its axes in that order."""
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
        later = output + "".join(operand.labels for operand in operands[position + 1 :])
        last = position == len(operands) - 1
        left = _pair(scratch, left, right, output, later, last)
    if len(operands) == 1:
        scratch.result()


def _pair(scratch: Scratch, left: Labelled, right: Labelled, output: str, later: str, last: bool) -> Labelled:
    """Return the product of two operands, summed over the letters that nothing later needs."""
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
        first, copy_first = _as_matrices(scratch, left, (kept, only_left, summed), "copy of the left operand")
        second, copy_second = _as_matrices(scratch, right, (kept, summed, only_right), "copy of the right operand")
        name = bmm(scratch, first, second, make)
        scratch.drop(copy_second, copy_first)
    scratch.drop(left.name)
    steps = _dense_strides(shape, [made.index(label) for label in kept + only_left + only_right])
    return Labelled(relaid(left.type, shape, steps), made, name)


def _as_matrices(scratch: Scratch, labelled: Labelled, groups: tuple[str, str, str], label: str) -> tuple[TensorType, str]:
    """Return an operand as a list of matrices whose axes stand for groups of letters."""
    view = labelled.arranged("".join(groups))
    flat = [product([labelled.size(letter) for letter in group]) for group in groups]
    if reshape_copies(view, flat):
        return labelled.type.with_shape(flat), scratch.take(label, product(flat) * width(labelled.type.dtype))
    if is_row_major(view):
        return labelled.type.with_shape(flat), ""
    steps: list[Dim] = []
    place = 0
    for group in groups:
        inner = [axis for axis in range(place, place + len(group)) if not same(sizes(view)[axis], 1)]
        steps.append(strides(view)[inner[-1]] if inner else product(flat[len(steps) + 1 :]))
        place += len(group)
    return relaid(labelled.type, flat, steps), ""


def _dense_strides(shape: list[Dim], order: list[int]) -> list[Dim]:
    """Return strides of a dense tensor whose axes lie in that order."""
    steps: list[Dim] = [1] * len(shape)
    step: Dim = 1
    for axis in reversed(order):
        steps[axis] = step
        step = step * shape[axis]
    return steps
