"""Tensors that a composite operator makes and drops inside one step: saved statistics, indices, copies that a kernel needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from irscope.ir.dims import Dim, floordiv, product
from irscope.ir.dtypes import DType
from irscope.ir.graph import Node
from irscope.ir.types import TensorType, Type
from irscope.ops.layouts import is_viewable

_INDEX_BYTES = 8
_STATISTIC_BYTES = 4

Hidden = Callable[[Node, Sequence[TensorType | None], Sequence[TensorType]], Dim]


def hidden_bytes(node: Node, operands: Sequence[Type | None], results: Sequence[Type]) -> Dim:
    """Bytes of the tensors that only exist while a node runs, as PyTorch's composite operators make them."""
    rule = _RULES.get(node.op)
    if rule is None or not node.source.startswith("aten::"):
        return 0
    tensors = [type_ if isinstance(type_, TensorType) else None for type_ in operands]
    made = [type_ for type_ in results if isinstance(type_, TensorType)]
    if not made or any(type_.shape is None for type_ in (*made, *(one for one in tensors if one is not None))):
        return 0
    return rule(node, tensors, made)


def _bytes(type_: TensorType | None) -> Dim:
    found = type_.nbytes if type_ is not None else 0
    return 0 if found is None else found


def _elements(type_: TensorType) -> Dim:
    found = type_.numel
    return 0 if found is None else found


def _max_pool(node: Node, operands: Sequence[TensorType | None], results: Sequence[TensorType]) -> Dim:
    """The positions of the maxima, where the model does not ask for them."""
    if node.source not in ("aten::max_pool2d", "aten::max_pool3d"):
        return 0
    return _elements(results[0]) * _INDEX_BYTES


def _layer_norm(node: Node, operands: Sequence[TensorType | None], results: Sequence[TensorType]) -> Dim:
    """Mean and deviation of each row."""
    if node.source != "aten::layer_norm":
        return 0
    shape = results[0].shape or ()
    axis = node.attrs.get("axis")
    count = len(axis) if isinstance(axis, tuple) else 1
    if isinstance(axis, int):
        count = -axis if axis < 0 else len(shape) - axis
    return product(shape[: len(shape) - count]) * 2 * _STATISTIC_BYTES


def _instance_norm(node: Node, operands: Sequence[TensorType | None], results: Sequence[TensorType]) -> Dim:
    """Mean and deviation of each channel of each sample, and scale and bias repeated for each sample."""
    shape = results[0].shape
    if node.source != "aten::instance_norm" or not shape or len(shape) < 2:
        return 0
    given = sum(1 for operand in operands[1:3] if operand is not None)
    return shape[0] * shape[1] * ((2 + given) * _STATISTIC_BYTES)


def _group_norm(node: Node, operands: Sequence[TensorType | None], results: Sequence[TensorType]) -> Dim:
    """Mean and deviation of each group."""
    groups = node.attrs.get("num_groups", node.attrs.get("groups"))
    shape = results[0].shape
    if node.source != "aten::group_norm" or not isinstance(groups, int) or not shape:
        return 0
    bits = results[0].dtype.bits or 32
    return shape[0] * groups * 2 * (bits // 8)


def _attention(node: Node, operands: Sequence[TensorType | None], results: Sequence[TensorType]) -> Dim:
    """A number for each row of scores."""
    shape = results[0].shape
    if node.source != "aten::scaled_dot_product_attention" or not shape or len(shape) != 4:
        return 0
    rows = product(shape[:3]) * _STATISTIC_BYTES
    mask = operands[3] if len(operands) > 3 else None
    if mask is not None and mask.dtype is DType.BOOL:
        size = (results[0].dtype.bits or 32) // 8
        return rows + _elements(mask) * size
    return rows


def _matmul(node: Node, operands: Sequence[TensorType | None], results: Sequence[TensorType]) -> Dim:
    """Operands with more than two axes are laid out as a list of matrices first."""
    total: Dim = 0
    left, right = operands[0], operands[1]
    if left is None or right is None or node.source not in ("aten::matmul", "aten::__matmul__", "aten::__rmatmul__"):
        return 0
    if len(left.shape or ()) < 3 or len(right.shape or ()) < 3:
        return 0
    batch = (results[0].shape or ())[:-2]
    for operand in (left, right):
        shape = operand.shape or ()
        wanted = (*batch, *shape[-2:])
        size = (operand.dtype.bits or 32) // 8
        if shape[:-2] != batch:
            spread = product(batch) != product(shape[:-2])
            if spread and product(shape[:-2]) != 1:
                total = total + product(wanted) * size
                continue
            if spread and len(batch) > 1:
                total = total + product(wanted) * size
                continue
        if is_viewable(operand, (product(batch), *shape[-2:])) is False:
            total = total + _bytes(operand)
    return total


def _linear(node: Node, operands: Sequence[TensorType | None], results: Sequence[TensorType]) -> Dim:
    """Rows that do not lie one after another are copied."""
    x = operands[0]
    if node.source != "aten::linear" or x is None or len(x.shape or ()) < 3:
        return 0
    shape = x.shape or ()
    rows = floordiv(_elements(x), shape[-1]) if not isinstance(shape[-1], int) or shape[-1] else 0
    return _bytes(x) if is_viewable(x, (rows, shape[-1])) is False else 0


_RULES: dict[str, Hidden] = {
    "nn.max_pool": _max_pool,
    "nn.layer_norm": _layer_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.sdpa": _attention,
    "math.matmul": _matmul,
    "nn.linear": _linear,
}
