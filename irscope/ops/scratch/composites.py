"""Tensors that the composite form of an operator makes and drops on any device: saved statistics, indices, copies that a kernel needs."""

from __future__ import annotations

from irscope.ir.dims import Dim, floordiv, product
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType
from irscope.ops.layouts import is_viewable
from irscope.ops.spec import OpCall

_INDEX = 8
_STATISTIC = 4


def max_pool_indices(call: OpCall) -> Dim:
    """The positions of the maxima, where the model does not ask for them."""
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
    """A number for each row of scores, and a mask of truth values as numbers."""
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
    """Operands with more than two axes are laid out as a list of matrices first."""
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
    """Rows that do not lie one after another are copied."""
    x = call.maybe("x")
    if call.source != "aten::linear" or x is None or len(x.shape or ()) < 3:
        return 0
    shape = x.shape or ()
    rows = floordiv(_elements(x), shape[-1]) if not isinstance(shape[-1], int) or shape[-1] else 0
    return _type_bytes(x) if is_viewable(x, (rows, shape[-1])) is False else 0


def _type_bytes(type_: TensorType) -> Dim:
    found = type_.nbytes
    return 0 if found is None else found


def _elements(type_: TensorType) -> Dim:
    found = type_.numel
    return 0 if found is None else found
