"""Strides of every tensor: as the file states them, or propagated through the operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Node, Value
from irscope.ir.types import Layout, TensorType, Type, tensor
from irscope.ops.layouts import has_memory_format, row_major, suggests_channels_last
from irscope.ops.spec import Family, OpSpec
from irscope.passes.inference.engine import Inferred
from irscope.passes.lifetimes.orders import channels_last, in_order, is_dense, known_sizes, pointwise, strides_of

_POINTWISE = frozenset({Family.ELEMENTWISE, Family.COMPARISON})
_KEEP_CHANNELS_LAST = frozenset({Family.CONVOLUTION, Family.POOLING, Family.NORMALIZATION})


class Strides:
    """Types with strides: those that the file states, else propagated from node to node."""

    def __init__(self, types: Inferred, follow: bool) -> None:
        self._types = types
        self._follow = follow
        self._layouts: dict[Value, Layout] = {}

    def type_of(self, value: Value | None) -> Type:
        """The inferred type with the strides of the value."""
        type_ = self._types.type_of(value)
        if value is None or not isinstance(type_, TensorType):
            return type_
        layout = self._layout(value, type_)
        return type_ if layout is type_.layout else tensor(type_.dtype, type_.shape, type_.device, layout)

    def _layout(self, value: Value, type_: TensorType) -> Layout:
        stated = value.type
        if stated.layout is not None and stated.shape == type_.shape:
            return stated.layout
        return self._layouts.get(value) if self._follow else None

    def visit(self, node: Node, spec: OpSpec | None) -> None:
        """Work out the strides of a node's results."""
        if not self._follow or spec is None or not node.outputs:
            return
        operands = [None if value is None else self.type_of(value) for value in node.inputs]
        tensors = [type_ if isinstance(type_, TensorType) else None for type_ in operands]
        if all(type_ is None or type_.layout is None for type_ in tensors) and node.op not in _ALWAYS:
            return
        for index, output in enumerate(node.outputs):
            result = self._types.type_of(output)
            if isinstance(result, TensorType) and result.shape is not None:
                layout = result_layout(node, spec, tensors, result, index)
                # Strides of axes of size 1 say nothing of where elements are, but decide what format a tensor seems to have.
                if isinstance(layout, tuple) and layout != row_major(result.shape):
                    self._layouts[output] = layout


def result_layout(node: Node, spec: OpSpec, operands: Sequence[TensorType | None], result: TensorType, index: int) -> Layout:
    shape = result.shape
    assert shape is not None
    shown = [type_ for type_ in operands if type_ is not None]
    if any(type_.shape is None or type_.layout == "sparse" for type_ in shown[:1]):
        return None
    written = node.attrs.get("inplace")
    if isinstance(written, int) and not isinstance(written, bool) and index == 0:
        target = operands[written] if written < len(operands) else None
        return strides_of(target) if target is not None and target.shape == shape else None
    first = operands[0] if operands else None
    special = _SPECIAL.get(node.op)
    if special is not None:
        return special(node, shown, shape, index)
    if first is None or first.shape is None:
        return None
    mover = _MOVERS.get(node.op)
    if mover is not None:
        return mover(node, first.shape, strides_of(first), shape)
    if node.op in _FORMATS:
        return _formatted(node, first, result)
    if spec.family in _POINTWISE or node.op in _POINTWISE_TOO:
        return pointwise(shown, shape)
    if node.op in _LIKE_FIRST and (index == 0 or node.op == "tensor.sort"):
        return _dense_like(first, shape)
    if spec.family in _KEEP_CHANNELS_LAST or node.op in _CHANNELS_LAST_TOO:
        asked = shown[:2] if spec.family is Family.CONVOLUTION else shown[:1]
        wanted = len(shape) in (4, 5) and any(suggests_channels_last(type_) is True for type_ in asked)
        return channels_last(shape) if wanted and node.op not in _ROW_MAJOR else None
    return None


def _is_known_dense(shape: tuple[Dim, ...], strides: tuple[Dim, ...]) -> bool:
    """Whether all sizes are numbers and the strides are contiguous."""
    return known_sizes(shape) and known_sizes(strides) and is_dense(_ints(shape), _ints(strides))


def _dense_like(first: TensorType, shape: tuple[Dim, ...]) -> Layout:
    """Operators that make an empty tensor like their operand keep its order of axes."""
    if first.shape != shape:
        return None
    strides = strides_of(first)
    if _is_known_dense(shape, strides):
        return strides
    return pointwise([first], shape)


# -- operators of their own --------------------------------------------------------------------------------------------


def _attention(node: Node, operands: Sequence[TensorType], shape: tuple[Dim, ...], index: int) -> Layout:
    """Flash attention's result has the layout of the queries; without it the last step is a matrix product."""
    shapes = [type_.shape for type_ in operands[:3] if type_.shape is not None and len(type_.shape) == 4]
    if len(shapes) < 3 or index > 0:
        return None
    fits = all(one[-1] == shapes[0][-1] and (one[1] == shapes[0][1] or node.attrs.get("enable_gqa")) for one in shapes)
    fits = fits and all(strides_of(type_)[-1] == 1 for type_ in operands[:3])
    return _dense_like(operands[0], shape) if fits else None


def _spectrum(node: Node, operands: Sequence[TensorType], shape: tuple[Dim, ...], index: int) -> Layout:
    """Windows are transformed one after another, and shown with frequencies first."""
    rank = len(shape)
    return in_order(shape, (*range(rank - 2), rank - 1, rank - 2)) if rank >= 2 and node.source == "aten::stft" else None


def _joined(node: Node, operands: Sequence[TensorType], shape: tuple[Dim, ...], index: int) -> Layout:
    """Channels last where all parts are."""
    return channels_last(shape) if len(shape) in (4, 5) and all(suggests_channels_last(type_) is True for type_ in operands) else None


def _stacked(node: Node, operands: Sequence[TensorType], shape: tuple[Dim, ...], index: int) -> Layout:
    """Parts are concatenated along an axis that is then split."""
    axis = node.attrs.get("axis", 0)
    if not isinstance(axis, int) or len(shape) not in (5, 6) or not all(suggests_channels_last(type_) is True for type_ in operands):
        return None
    axis %= len(shape)
    if axis == len(shape) - 1:
        return None
    strides = channels_last((*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))
    return (*strides[:axis], strides[axis] * shape[axis + 1], *strides[axis:])


def _rolled(node: Node, operands: Sequence[TensorType], shape: tuple[Dim, ...], index: int) -> Layout:
    """Two parts of the operand are joined the other way round."""
    axes, shifts = node.attrs.get("axes"), node.attrs.get("shifts")
    x = operands[0]
    if not (isinstance(axes, tuple) and isinstance(shifts, tuple) and len(axes) == 1 and isinstance(axes[0], int)):
        return None
    size, shift = shape[axes[0]], shifts[0]
    if not isinstance(size, int) or not isinstance(shift, int) or not size:
        return channels_last(shape) if suggests_channels_last(x) is True else None
    start = (size - shift) % size
    axis = axes[0] % len(shape)
    parts = (tensor_like((*shape[:axis], count, *shape[axis + 1 :]), strides_of(x)) for count in (size - start, start))
    return channels_last(shape) if all(suggests_channels_last(part) is True for part in parts) else None


def _grid(node: Node, operands: Sequence[TensorType], shape: tuple[Dim, ...], index: int) -> Layout:
    """Each result repeats one operand along all other axes."""
    axis = index
    if node.attrs.get("indexing") == "xy" and index < 2:
        axis = 1 - index
    if index >= len(operands) or not operands[index].shape:
        return None
    own = strides_of(operands[index])[0]
    return tuple(own if place == axis else 0 for place in range(len(shape)))


def _as_given(node: Node, operands: Sequence[TensorType], shape: tuple[Dim, ...], index: int) -> Layout:
    strides = node.attrs.get("strides")
    return tuple(dim for dim in strides if isinstance(dim, int | SymDim)) if isinstance(strides, tuple) else None


_SPECIAL: dict[str, Callable[[Node, Sequence[TensorType], tuple[Dim, ...], int], Layout]] = {
    "nn.sdpa": _attention,
    "fft.stft": _spectrum,
    "tensor.concat": _joined,
    "tensor.stack": _stacked,
    "tensor.roll": _rolled,
    "tensor.meshgrid": _grid,
    "view.as_strided": _as_given,
}


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


def _sliced(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    axes, steps = node.attrs.get("axes"), node.attrs.get("steps")
    if len(old) != len(shape):
        return None
    found = list(strides)
    for axis, step in zip(axes, steps, strict=False) if isinstance(axes, tuple) and isinstance(steps, tuple) else ():
        if not isinstance(axis, int) or not isinstance(step, int):
            return None
        found[axis] = found[axis] * step
    return tuple(found)


def _diagonal(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    a, b = _axis(node, "axis0", len(old)), _axis(node, "axis1", len(old), 1)
    if a is None or b is None:
        return None
    return (*(stride for axis, stride in enumerate(strides) if axis not in (a, b)), strides[a] + strides[b])


def _windows(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    axis, step = _axis(node, "axis", len(old)), node.attrs.get("step", 1)
    if axis is None or not isinstance(step, int):
        return None
    return (*strides[:axis], strides[axis] * step, *strides[axis + 1 :], strides[axis])


def _parts(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    """Real and imaginary parts lie beside each other."""
    return tuple(stride * 2 for stride in strides)


def _paired(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    return (*(stride * 2 for stride in strides), 1)


def _cut(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    return strides if len(old) == len(shape) else None


def _without_axis(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    axis = _axis(node, "axis", len(old))
    return None if axis is None else (*strides[:axis], *strides[axis + 1 :])


def _reshaped(node: Node, old: _Strides, strides: _Strides, shape: _Strides) -> Layout:
    """Strides of a view with other sizes; a copy is row-major."""
    if not known_sizes(old) or not known_sizes(strides) or not known_sizes(shape) or 0 in old:
        return None
    sizes, steps, wanted = _ints(old), _ints(strides), _ints(shape)
    found = [1] * len(wanted)
    place = len(wanted) - 1
    run, covered = 1, 1
    step = steps[-1] if steps else 1
    for axis in range(len(sizes) - 1, -1, -1):
        run *= sizes[axis]
        if axis and (sizes[axis - 1] == 1 or steps[axis - 1] == run * step):
            continue
        # A contiguous group of axes ends here: new axes subdivide it, or there is no such view.
        while place >= 0 and (covered < run or wanted[place] == 1):
            found[place] = covered * step
            covered *= wanted[place]
            place -= 1
        if covered != run:
            return None
        if axis:
            step, run, covered = steps[axis - 1], 1, 1
    return tuple(found)


def _ints(dims: Sequence[Dim]) -> list[int]:
    return [int(str(dim)) for dim in dims]


def tensor_like(shape: _Strides, strides: Layout) -> TensorType:
    """A type of these sizes and strides; its elements do not matter."""
    from irscope.ir.dtypes import DType

    return tensor(DType.U8, shape, "", strides)


_MOVERS: dict[str, Callable[[Node, _Strides, _Strides, _Strides], Layout]] = {
    "view.permute": _permuted,
    "view.transpose": _transposed,
    "view.movedim": _moved,
    "view.expand": _expanded,
    "view.slice": _sliced,
    "view.diagonal": _diagonal,
    "view.unfold": _windows,
    "view.as_real": _paired,
    "math.real": _parts,
    "math.imag": _parts,
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
_POINTWISE_TOO = frozenset({"tensor.cast", "math.where", "tensor.flip"})
_LIKE_FIRST = frozenset({"tensor.sort", "tensor.full_like", "tensor.empty_like"})
_CHANNELS_LAST_TOO = frozenset({"vision.resize", "tensor.pad"})
_ROW_MAJOR = frozenset({"nn.instance_norm", "nn.layer_norm", "nn.rms_norm"})
_ALWAYS = frozenset({*_MOVERS, *_FORMATS, *_SPECIAL})


def _formatted(node: Node, first: TensorType, result: TensorType) -> Layout:
    shape = result.shape
    assert shape is not None
    wanted = node.attrs.get("memory_format", "contiguous_format" if node.op == "view.contiguous" else "preserve_format")
    if node.op == "view.contiguous" and has_memory_format(first, wanted) is True:
        return first.layout
    looks = suggests_channels_last(first)
    if wanted in ("channels_last", "channels_last_3d"):
        kept = node.op == "tensor.to" and result.dtype is first.dtype and looks is True
        return first.layout if kept else channels_last(shape) if len(shape) in (4, 5) else None
    if not isinstance(first.layout, tuple):
        return None
    if node.op == "tensor.to" and result.dtype is first.dtype and (wanted != "contiguous_format" or looks is False):
        return first.layout
    if wanted == "contiguous_format":
        return None
    has_numbers = known_sizes(shape) and known_sizes(first.layout)
    if not has_numbers or _is_known_dense(shape, first.layout):
        return first.layout
    if node.op == "tensor.copy":
        return pointwise([first], shape)
    return channels_last(shape) if looks is True else None
