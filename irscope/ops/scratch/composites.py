"""Scratch of layers that several kernels make: saved statistics, indices and copies of composite forms, gates of recurrent cells."""

from __future__ import annotations

from irscope.ir.dims import Dim, floordiv, product
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType
from irscope.ops.layouts import is_viewable
from irscope.ops.scratch.gemm import linear, matmul
from irscope.ops.scratch.recorder import Scratch, count, rule, sizes, transposed, width
from irscope.ops.spec import OpCall, Temporaries, results_only

_INDEX = 8
_STATISTIC = 4


def max_pool_indices(call: OpCall) -> Dim:
    """Return the positions of the maxima, where the model does not ask for them."""
    if call.source not in ("aten::max_pool2d", "aten::max_pool3d"):
        return 0
    return _elements(call.made()) * _INDEX


def layer_statistics(call: OpCall) -> Dim:
    """Mean and deviation of each row."""
    if call.source != "aten::layer_norm":
        return 0
    shape = call.made().shape or ()
    axis = call.attrs.get("axis")
    count = len(axis) if isinstance(axis, tuple) else 1
    if isinstance(axis, int):
        count = -axis if axis < 0 else len(shape) - axis
    return product(shape[: len(shape) - count]) * 2 * _STATISTIC


def instance_statistics(call: OpCall) -> Dim:
    """Mean and deviation of each channel of each sample, and scale and bias repeated for each sample."""
    shape = call.made().shape
    if call.source != "aten::instance_norm" or not shape or len(shape) < 2:
        return 0
    given = sum(1 for operand in call.types[1:3] if operand is not None)
    return shape[0] * shape[1] * ((2 + given) * _STATISTIC)


def group_statistics(call: OpCall) -> Dim:
    """Mean and deviation of each group."""
    groups, result = call.attrs.get("num_groups"), call.made()
    if call.source != "aten::group_norm" or not isinstance(groups, int) or not result.shape:
        return 0
    return result.shape[0] * groups * 2 * ((result.dtype.bits or 32) // 8)


def attention_rows(call: OpCall) -> Dim:
    """Return a number for each row of scores, and a mask of truth values as numbers."""
    result = call.made()
    shape = result.shape
    if call.source != "aten::scaled_dot_product_attention" or not shape or len(shape) != 4:
        return 0
    rows = product(shape[:3]) * _STATISTIC
    mask = call.maybe("mask")
    if mask is not None and mask.dtype is DType.BOOL:
        return rows + _elements(mask) * ((result.dtype.bits or 32) // 8)
    return rows


def matmul_copies(call: OpCall) -> Dim:
    """Return operands with more than two axes are laid out as a list of matrices first."""
    left, right = call.maybe("a"), call.maybe("b")
    if left is None or right is None or call.source not in ("aten::matmul", "aten::__matmul__", "aten::__rmatmul__"):
        return 0
    if len(left.shape or ()) < 3 or len(right.shape or ()) < 3:
        return 0
    batch = (call.made().shape or ())[:-2]
    total: Dim = 0
    for operand in (left, right):
        total = total + _list_copy(operand, batch)
    return total


def _list_copy(operand: TensorType, batch: tuple[Dim, ...]) -> Dim:
    shape = operand.shape or ()
    if shape[:-2] != batch and product(batch) != product(shape[:-2]) and (product(shape[:-2]) != 1 or len(batch) > 1):
        return product((*batch, *shape[-2:])) * ((operand.dtype.bits or 32) // 8)
    return _type_bytes(operand) if is_viewable(operand, (product(batch), *shape[-2:])) is False else 0


def linear_copy(call: OpCall) -> Dim:
    """Return rows that do not lie one after another are copied."""
    x = call.maybe("x")
    if call.source != "aten::linear" or x is None or len(x.shape or ()) < 3:
        return 0
    shape = x.shape or ()
    rows = floordiv(_elements(x), shape[-1]) if not isinstance(shape[-1], int) or shape[-1] else 0
    return _type_bytes(x) if is_viewable(x, (rows, shape[-1])) is False else 0


def _type_bytes(type_: TensorType) -> Dim:
    nbytes = type_.nbytes
    return 0 if nbytes is None else nbytes


def _elements(type_: TensorType) -> Dim:
    numel = type_.numel
    return 0 if numel is None else numel


@rule
def lstm_cell_rule(scratch: Scratch) -> None:
    """Gates of input and state, and a copy of all gates that only a backward pass reads."""
    gates = _gates(scratch, with_bias=False)
    call = scratch.call
    workspace = scratch.take("gates kept for a backward pass", _batch(scratch) * (4 * width(call.tensor("x").dtype)))
    scratch.result()
    scratch.result(1)
    scratch.drop(workspace, *reversed(gates))


@rule
def gru_cell_rule(scratch: Scratch) -> None:
    gates = _gates(scratch, with_bias=False)
    workspace = scratch.take("gates kept for a backward pass", _batch(scratch) * (5 * width(scratch.call.tensor("x").dtype)))
    scratch.result()
    scratch.drop(workspace, *reversed(gates))


@rule
def rnn_cell_rule(scratch: Scratch) -> None:
    gates = _gates(scratch, with_bias=True)
    scratch.result()
    scratch.drop(*reversed(gates))


def _batch(scratch: Scratch) -> Dim:
    return count(scratch.call.tensor("h"))


def _gates(scratch: Scratch, with_bias: bool) -> list[str]:
    call = scratch.call
    names: list[str] = []
    for operand, weight, bias, label in (("x", "w_x", "b_x", "gates of the input"), ("h", "w_h", "b_h", "gates of the state")):
        if with_bias:
            names.append(linear(scratch, call.tensor(operand), call.tensor(weight), call.maybe(bias), False, label))
        else:
            names.append(matmul(scratch, call.tensor(operand), transposed(call.tensor(weight)), make=label))
    return names


@rule
def cdist_rule(scratch: Scratch) -> None:
    """Euclidean distances of many points: norms beside the points, then one product of matrices."""
    call = scratch.call
    a, b = call.tensor("a"), call.tensor("b")
    rows, others = sizes(a)[-2], sizes(b)[-2]
    many = any(not isinstance(size, int) or size > 25 for size in (rows, others))
    if call.attr("p") != 2 or not (many or call.attr("compute_mode") == "use_mm_for_euclid_dist"):
        scratch.result()
        return
    _euclidean(scratch)


def _euclidean(scratch: Scratch) -> None:
    call = scratch.call
    sides = (("left", call.tensor("a")), ("right", call.tensor("b")))
    size = width(call.tensor("a").dtype)
    columns: dict[str, list[str]] = {}
    for name, one in sides:
        squares = scratch.take(f"squares of the {name}", count(one) * size)
        norms = scratch.take(f"norms of the {name}", product(sizes(one)[:-1]) * size)
        scratch.drop(squares)
        columns[name] = [norms, scratch.take(f"ones for the {name}", product(sizes(one)[:-1]) * size)]
    scaled = scratch.take("scaled left", count(call.tensor("a")) * size)
    wide = [one.with_shape((*sizes(one)[:-1], sizes(one)[-1] + 2)) for _, one in sides]
    first = scratch.take("left with norms", count(wide[0]) * size)
    scratch.drop(*reversed(columns["left"]), scaled)
    second = scratch.take("right with norms", count(wide[1]) * size)
    scratch.drop(*columns["right"])
    matmul(scratch, wide[0], transposed(wide[1]))
    scratch.drop(second, first)


def library_rule(reason: str) -> Temporaries:
    """Return a rule of an operator whose library tells the size of its workspace only on the device."""

    @rule
    def write(scratch: Scratch) -> None:
        scratch.events.extend(results_only(scratch.call))
        scratch.unknown("library workspace", reason)

    return write


recurrent_rule = library_rule("cuDNN tells the size of a recurrent network's workspace and packed weights only on the device")
fft_rule = library_rule("cuFFT tells the size of its workspace only on the device")
solver_rule = library_rule("cuSOLVER tells the size of its workspace only on the device")
