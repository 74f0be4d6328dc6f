"""How each tensor's elements lie in its storage: as the file states it, or followed through the operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from irscope.ir.dims import Dim, SymDim, equal
from irscope.ir.graph import Node, Value
from irscope.ir.types import Layout, TensorType, Type, tensor
from irscope.ops.layouts import has_memory_format, is_viewable, row_major
from irscope.ops.spec import Family, OpSpec
from irscope.passes.inference.engine import Inferred

_POINTWISE = frozenset({Family.ELEMENTWISE, Family.COMPARISON})
_KEEP_CHANNELS_LAST = frozenset({Family.CONVOLUTION, Family.POOLING, Family.NORMALIZATION})


class Strides:
    """Types with strides. Files that state strides are believed; for others they are followed from node to node."""

    def __init__(self, types: Inferred, follow: bool) -> None:
        self._types = types
        self._follow = follow
        self._layouts: dict[Value, Layout] = {}

    def type_of(self, value: Value) -> Type:
        """The inferred type with the strides of the value."""
        type_ = self._types.type_of(value)
        if not isinstance(type_, TensorType):
            return type_
        layout = self._layout(value, type_)
        return type_ if layout is type_.layout else tensor(type_.dtype, type_.shape, type_.device, layout)

    def _layout(self, value: Value, type_: TensorType) -> Layout:
        stated = value.type
        if isinstance(stated, TensorType) and stated.layout is not None and stated.shape == type_.shape:
            return stated.layout
        return self._layouts.get(value) if self._follow else None

    def visit(self, node: Node, spec: OpSpec | None) -> None:
        """Work out the strides of a node's results."""
        if not self._follow or spec is None or not node.outputs:
            return
        operands = [self.type_of(value) for value in node.inputs if value is not None]
        tensors = [type_ for type_ in operands if isinstance(type_, TensorType)]
        if all(type_.layout is None for type_ in tensors) and node.op not in _MOVERS and node.op not in _FORMATS:
            return
        for output in node.outputs:
            result = self._types.type_of(output)
            if isinstance(result, TensorType) and result.shape is not None:
                layout = _result_layout(node, spec, tensors, result.shape)
                if layout is not None and not _is_row_major(layout, result.shape):
                    self._layouts[output] = layout


def _result_layout(node: Node, spec: OpSpec, operands: Sequence[TensorType], shape: tuple[Dim, ...]) -> Layout:
    first = operands[0] if operands else None
    if first is None or first.shape is None or first.layout == "sparse":
        return None
    mover = _MOVERS.get(node.op)
    if mover is not None:
        return mover(node, first.shape, strides_of(first), shape)
    if node.op in _FORMATS:
        return _formatted(node, first, shape)
    if spec.family in _POINTWISE or node.attrs.get("inplace") is not None or node.op in _LIKE_FIRST:
        return next((dense for one in operands if one.shape == shape and (dense := _dense_order(one)) is not None), None)
    if spec.family in _KEEP_CHANNELS_LAST and has_memory_format(first, "channels_last") is True and first.layout is not None:
        return _in_order(shape, (0, *range(2, len(shape)), 1)) if len(shape) in (4, 5) else None
    return None


def strides_of(type_: TensorType) -> tuple[Dim, ...]:
    """Strides of a tensor whose shape is known."""
    assert type_.shape is not None
    return type_.layout if isinstance(type_.layout, tuple) else row_major(type_.shape)


def _is_row_major(layout: Layout, shape: tuple[Dim, ...]) -> bool:
    dense = row_major(shape)
    return isinstance(layout, tuple) and all(size == 1 or equal(a, b) is True for a, b, size in zip(layout, dense, shape, strict=True))


def _in_order(shape: tuple[Dim, ...], order: Sequence[int]) -> tuple[Dim, ...]:
    """Strides of a dense tensor whose axes lie in that order, outermost first."""
    dense = row_major([shape[axis] for axis in order])
    strides: list[Dim] = [1] * len(shape)
    for axis, stride in zip(order, dense, strict=True):
        strides[axis] = stride
    return tuple(strides)


def _dense_order(type_: TensorType) -> Layout:
    """A tensor's strides where its elements fill a block without gaps; a result of the same shape then lies alike."""
    layout, shape = type_.layout, type_.shape
    if not isinstance(layout, tuple) or shape is None or any(isinstance(dim, SymDim) for dim in (*layout, *shape)):
        return None
    order = sorted(range(len(shape)), key=lambda axis: (-int(str(layout[axis])), axis))
    dense = _in_order(shape, order)
    return dense if all(size == 1 or a == b for a, b, size in zip(dense, layout, shape, strict=True)) else None


# -- views -------------------------------------------------------------------------------------------------------------

_Strides = tuple[Dim, ...]


def _axis(node: Node, key: str, rank: int, default: int = 0) -> int | None:
    found = node.attrs.get(key, default)
    return found % rank if isinstance(found, int) and rank else None


def _permuted(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    perm = node.attrs.get("perm")
    if perm is None:
        return tuple(reversed(strides))
    return tuple(strides[axis % len(strides)] for axis in perm if isinstance(axis, int)) if isinstance(perm, tuple) else None


def _transposed(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    a, b = _axis(node, "axis0", len(old)), _axis(node, "axis1", len(old))
    if a is None or b is None:
        return None
    swapped = list(strides)
    swapped[a], swapped[b] = swapped[b], swapped[a]
    return tuple(swapped)


def _moved(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    source, target = node.attrs.get("source"), node.attrs.get("destination")
    if not isinstance(source, tuple) or not isinstance(target, tuple):
        return None
    rank = len(old)
    placed = {int(str(place)) % rank: int(str(axis)) % rank for axis, place in zip(source, target, strict=True)}
    rest = iter(axis for axis in range(rank) if axis not in placed.values())
    return tuple(strides[placed[place] if place in placed else next(rest)] for place in range(rank))


def _expanded(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    missing = len(shape) - len(old)
    return tuple(
        0 if axis < missing or (old[axis - missing] == 1 and size != 1) else strides[axis - missing] for axis, size in enumerate(shape)
    )


def _cut(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    return strides if len(old) == len(shape) else None


def _without_axis(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    axis = _axis(node, "axis", len(old))
    return None if axis is None else (*strides[:axis], *strides[axis + 1 :])


def _reshaped(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    """Strides of a view with other sizes; a copy is row-major."""
    if any(isinstance(dim, SymDim) for dim in (*old, *strides, *shape)) or 0 in old:
        return None
    if node.source not in ("aten::view",) and is_viewable(tensor_like(old, strides), shape) is not True:
        return None
    found: list[Dim] = [1] * len(shape)
    runs = _dense_runs([int(str(size)) for size in old], [int(str(stride)) for stride in strides])
    place = len(shape) - 1
    for count, step in runs:
        while place >= 0 and (count > 1 or shape[place] == 1):
            size = int(str(shape[place]))
            if size > 1 and count % size:
                return None
            found[place] = step
            step *= size
            count //= size
            place -= 1
    return tuple(found)


def _dense_runs(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Elements and step of each run of axes that lie densely, innermost first."""
    runs: list[tuple[int, int]] = []
    end = 0
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if runs and stride == end:
            runs[-1] = (runs[-1][0] * size, runs[-1][1])
        else:
            runs.append((size, stride))
        end = stride * size
    return runs


def tensor_like(shape: _Strides, strides: _Strides) -> TensorType:
    """A type of these sizes and strides; its elements do not matter."""
    from irscope.ir.dtypes import DType

    return tensor(DType.U8, shape, "", strides)


_MOVERS: dict[str, Callable[[Node, _Strides, _Strides, _Strides], Layout]] = {
    "view.permute": _permuted,
    "view.transpose": _transposed,
    "view.movedim": _moved,
    "view.expand": _expanded,
    "view.slice": _cut,
    "view.narrow": _cut,
    "view.split": _cut,
    "view.chunk": _cut,
    "view.tensor_split": _cut,
    "view.alias": _cut,
    "nn.dropout": _cut,
    "view.select": _without_axis,
    "view.unbind": _without_axis,
    "view.reshape": _reshaped,
    "view.flatten": _reshaped,
    "view.flatten_2d": _reshaped,
    "view.unflatten": _reshaped,
    "view.squeeze": _reshaped,
    "view.unsqueeze": _reshaped,
}
_FORMATS = frozenset({"view.contiguous", "tensor.to", "tensor.copy"})
_LIKE_FIRST = frozenset({"nn.softmax", "tensor.cast"})


def _formatted(node: Node, first: TensorType, shape: tuple[Dim, ...]) -> Layout:
    wanted = node.attrs.get("memory_format", "contiguous_format" if node.op == "view.contiguous" else "preserve_format")
    if wanted in ("channels_last", "channels_last_3d"):
        return _in_order(shape, (0, *range(2, len(shape)), 1)) if len(shape) in (4, 5) else None
    if wanted == "contiguous_format":
        return None
    kept = _dense_order(first)
    return kept if kept is not None else (first.layout if node.op == "tensor.to" else None)
