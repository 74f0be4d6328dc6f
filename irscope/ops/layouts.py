"""Strides: what a tensor's mean, which a result has as PyTorch lays it out, and whether one already has the layout that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeGuard

from irscope.ir.dims import Dim, SymDim, equal
from irscope.ir.dtypes import DType
from irscope.ir.types import Layout, Shape, TensorType, tensor
from irscope.ops.spec import Family, OpCall, OpSpec, StridesRule

Strides: TypeAlias = tuple[Dim, ...]


def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return strides in elements of a tensor whose last axis is dense."""
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def has_memory_format(type_: TensorType, wanted: object) -> bool | None:
    """Return whether the elements already lie as a memory format wants; None where that is not known."""
    if wanted in (None, "", "preserve_format"):
        return True
    shape = type_.shape
    if shape is None or type_.layout == "sparse":
        return None
    if wanted == "contiguous_format":
        return type_.layout is None or _same_strides(type_.layout, row_major(shape), shape)
    if len(shape) not in (4, 5):
        return None
    return _same_strides(row_major(shape) if type_.layout is None else type_.layout, channels_last(shape), shape)


def suggests_channels_last(type_: TensorType) -> bool | None:
    """Return whether PyTorch takes a tensor's strides for channels last, so that layers answer in it; gaps do not matter."""
    shape, layout = type_.shape, type_.layout
    if shape is None or layout == "sparse":
        return None
    if len(shape) not in (4, 5):
        return False
    strides = row_major(shape) if layout is None else layout
    if not all(isinstance(dim, int) for dim in (*shape, *strides)):
        return None if layout is None else _same_strides(layout, channels_last(shape), shape)
    sizes, steps = [int(str(dim)) for dim in shape], [int(str(dim)) for dim in strides]
    if steps[1] == 0:
        return False
    least = 0
    for axis in (1, *range(len(sizes) - 1, 1, -1), 0):
        if sizes[axis] == 0 or steps[axis] < least or (axis == 0 and least == steps[1]):
            return False
        least = steps[axis] * max(sizes[axis], 1)
    return True


def _same_strides(left: Layout, right: Sequence[Dim], shape: Sequence[Dim]) -> bool | None:
    if left is None or isinstance(left, str):
        return None
    answer: bool | None = True
    for a, b, size in zip(left, right, shape, strict=True):
        if size == 1:
            continue
        verdict = equal(a, b)
        if verdict is False:
            return False
        if verdict is None:
            answer = None
    return answer


def is_viewable(type_: TensorType, shape: Shape) -> bool | None:
    """Return whether a reshape needs no copy: each run of old axes that new axes cut up must lie densely."""
    if type_.layout is None:
        return True
    if type_.layout == "sparse" or shape is None or type_.shape is None:
        return None
    strides = [stride for stride in type_.layout if isinstance(stride, int)]
    old = [size for size in type_.shape if isinstance(size, int)]
    new = [size for size in shape if isinstance(size, int)]
    if len(strides) < len(type_.layout) or len(old) < len(type_.shape) or len(new) < len(shape):
        return None
    return _cuts_dense_runs(old, strides, new)


def _cuts_dense_runs(old: list[int], strides: list[int], new: list[int]) -> bool:
    if 0 in old:
        return True
    runs: list[int] = []
    inner_size, inner_stride = 1, 0
    for size, stride in zip(reversed(old), reversed(strides), strict=True):
        if size == 1:
            continue
        if runs and stride == inner_stride * inner_size:
            runs[-1] *= size
        else:
            runs.append(size)
        inner_size, inner_stride = size, stride
    remaining = [size for size in reversed(new) if size != 1]
    position = 0
    for run in runs:
        covered = 1
        while covered < run and position < len(remaining):
            covered *= remaining[position]
            position += 1
        if covered != run:
            return False
    return True


# -- dense layouts, and that of a result that visits its operands element by element ------------------------------


def strides_of(type_: TensorType) -> Strides:
    """Return strides of a tensor whose shape is known."""
    assert type_.shape is not None
    return type_.layout if isinstance(type_.layout, tuple) else row_major(type_.shape)


def in_order(shape: Sequence[Dim], order: Sequence[int]) -> Strides:
    """Return strides of a dense tensor whose axes lie in that order, outermost first."""
    dense = row_major([shape[axis] for axis in order])
    strides: list[Dim] = [1] * len(shape)
    for axis, stride in zip(order, dense, strict=True):
        strides[axis] = stride
    return tuple(strides)


def channels_last(shape: Sequence[Dim]) -> Strides:
    """Return strides of the channels-last layout: the second axis innermost."""
    return in_order(shape, (0, *range(2, len(shape)), 1))


def known_sizes(dims: Sequence[Dim]) -> TypeGuard[Sequence[int]]:
    """Return whether all are numbers."""
    return not any(isinstance(dim, SymDim) for dim in dims)


def is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether strides are contiguous (row-major)."""
    return all(size == 1 or a == b for a, b, size in zip(strides, row_major(shape), shape, strict=True))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether strides are dense and without overlap, in any order of axes."""
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1):
        if stride != step:
            return False
        step *= size
    return True


def pointwise(operands: Sequence[TensorType], shape: Strides) -> Layout:
    """Return strides of an operator's result that visits its operands element by element; None for the order of the axes."""
    shown = [type_ for type_ in operands if type_.shape is not None and type_.layout != "sparse"]
    if len(shown) < len(operands) or not shown:
        return None
    if not known_sizes(shape) or not all(known_sizes(type_.shape or ()) and known_sizes(strides_of(type_)) for type_ in shown):
        return _order_of_all(shown, shape)
    pairs = [(list(map(int, map(str, type_.shape or ()))), list(map(int, map(str, strides_of(type_))))) for type_ in shown]
    sizes = [int(str(dim)) for dim in shape]
    if all(own == sizes for own, _ in pairs):
        if all(is_row_major(own, strides) for own, strides in pairs):
            return None
        if len(sizes) in (4, 5) and all(_is_channels_last(own, strides) for own, strides in pairs):
            return channels_last(shape)
        if all(is_dense(own, strides) for own, strides in pairs) and all(strides == pairs[0][1] for _, strides in pairs):
            return tuple(pairs[0][1])
    order = _sorted_axes([_spread(own, strides, sizes) for own, strides in pairs], sizes)
    return None if order == list(range(len(sizes))) else in_order(shape, order)


def _order_of_all(operands: Sequence[TensorType], shape: Strides) -> Layout:
    """Return where sizes are open: the order that all operands of the result's shape have."""
    whole = [type_ for type_ in operands if type_.shape == shape]
    layouts = {type_.layout for type_ in whole}
    return next(iter(layouts)) if len(layouts) == 1 else None


def _is_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    return all(size == 1 or a == b for a, b, size in zip(strides, channels_last(shape), shape, strict=True))


def _spread(own: Sequence[int], strides: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Return strides of an operand over the axes of the result; 0 where it is broadcast."""
    missing = len(shape) - len(own)
    found = [0] * missing
    for axis, (size, stride) in enumerate(zip(own, strides, strict=True)):
        found.append(0 if size == 1 and shape[missing + axis] != 1 else stride)
    return found


def _sorted_axes(strides: Sequence[Sequence[int]], shape: Sequence[int]) -> list[int]:
    """Return axes from the outermost in: by decreasing strides, earlier operands first; broadcast axes do not count."""
    perm = list(range(len(shape) - 1, -1, -1))

    def compare(a: int, b: int) -> int:
        for stride in strides:
            if stride[a] == 0 or stride[b] == 0:
                continue
            if stride[a] != stride[b]:
                return -1 if stride[a] < stride[b] else 1
            if shape[a] > shape[b]:
                return 1
        return 0

    for start in range(1, len(perm)):
        place = start
        for before in range(start - 1, -1, -1):
            verdict = compare(perm[before], perm[place])
            if verdict > 0:
                perm[before], perm[place] = perm[place], perm[before]
                place = before
            elif verdict < 0:
                break
    return perm[::-1]


# -- rules of operators: the strides of a result from those of the operands ---------------------------------------------


def result_strides(call: OpCall, index: int = 0) -> Layout:
    """Strides that PyTorch gives a result, from the strides of the operands; None for the order of the axes, or where nobody knows."""
    shape = call.results[index].shape
    shown = _tensor_operands(call)
    if shape is None or any(type_.shape is None or type_.layout == "sparse" for type_ in shown[:1]):
        return None
    written = call.attrs.get("inplace")
    if isinstance(written, int) and not isinstance(written, bool) and index == 0:
        target = call.types[written] if written < len(call.types) else None
        return strides_of(target) if isinstance(target, TensorType) and target.shape == shape else None
    rule = strides_rule(call.spec)
    return None if rule is None else rule.of(call, index)


def strides_rule(spec: OpSpec) -> StridesRule | None:
    """Return the operator's rule, or that of its family."""
    return spec.strides or _OF_FAMILY.get(spec.family)


def _tensor_operands(call: OpCall) -> list[TensorType]:
    return [type_ for type_ in call.types if isinstance(type_, TensorType)]


def _first(call: OpCall) -> TensorType | None:
    """Return the first operand, where its shape is known."""
    first = call.types[0] if call.types else None
    return first if isinstance(first, TensorType) and first.shape is not None else None


def _pointwise_rule(call: OpCall, index: int) -> Layout:
    shape = call.results[index].shape
    return None if shape is None or _first(call) is None else pointwise(_tensor_operands(call), shape)


def _channels_last_where(operands: int) -> StridesRule:
    """The result is channels last where one of the first operands seems to be; row-major else."""

    def of(call: OpCall, index: int) -> Layout:
        shape = call.results[index].shape
        if shape is None or _first(call) is None or len(shape) not in (4, 5):
            return None
        return channels_last(shape) if any(suggests_channels_last(type_) is True for type_ in _tensor_operands(call)[:operands]) else None

    return StridesRule(of, from_plain=False)


POINTWISE = StridesRule(_pointwise_rule, from_plain=False)
"""As TensorIterator lays out a result: in the order of axes that the operands have."""
KEEPS_CHANNELS_LAST = _channels_last_where(1)
ROW_MAJOR = StridesRule(lambda call, index: None, from_plain=False)
"""Rows one after another, whatever the operands' strides are."""
UNSTATED = StridesRule(lambda call, index: None, from_plain=False)
"""Nobody has written down what the strides are; they are taken as those of the order of the axes."""
_OF_FAMILY = {
    Family.ELEMENTWISE: POINTWISE,
    Family.COMPARISON: POINTWISE,
    Family.CONVOLUTION: _channels_last_where(2),
    Family.POOLING: KEEPS_CHANNELS_LAST,
    Family.NORMALIZATION: KEEPS_CHANNELS_LAST,
}


def _dense_like(first: TensorType, shape: Strides) -> Layout:
    """Return operators that make an empty tensor like their operand keep its order of axes."""
    if first.shape != shape:
        return None
    strides = strides_of(first)
    if _is_known_dense(shape, strides):
        return strides
    return pointwise([first], shape)


def _is_known_dense(shape: Strides, strides: Strides) -> bool:
    """Return whether all sizes are numbers and the strides are contiguous."""
    return known_sizes(shape) and known_sizes(strides) and is_dense(_ints(shape), _ints(strides))


def _like_first_rule(call: OpCall, index: int) -> Layout:
    first, shape = _first(call), call.results[index].shape
    return None if first is None or shape is None else _dense_like(first, shape)


LIKE_FIRST = StridesRule(_like_first_rule, from_plain=False)


# -- operators of their own ---------------------------------------------------------------------------------------------


def _of_operands(rule: Callable[[OpCall, Sequence[TensorType], Strides, int], Layout]) -> StridesRule:
    """Return a rule that looks at all operands."""

    def of(call: OpCall, index: int) -> Layout:
        shape = call.results[index].shape
        return None if shape is None else rule(call, _tensor_operands(call), shape, index)

    return StridesRule(of)


def _of_view(rule: Callable[[OpCall, Strides, Strides, Strides], Layout]) -> StridesRule:
    """Return a rule that is given sizes and strides of the first operand, and sizes of the result."""

    def of(call: OpCall, index: int) -> Layout:
        first, shape = _first(call), call.results[index].shape
        return None if first is None or first.shape is None or shape is None else rule(call, first.shape, strides_of(first), shape)

    return StridesRule(of)


def _of_format(rule: Callable[[OpCall, TensorType, TensorType], Layout]) -> StridesRule:
    """Return a rule for what may bring its operand into a memory format."""

    def of(call: OpCall, index: int) -> Layout:
        first, result = _first(call), call.results[index]
        return rule(call, first, result) if first is not None and isinstance(result, TensorType) and result.shape is not None else None

    return StridesRule(of)


@_of_operands
def like_queries(call: OpCall, operands: Sequence[TensorType], shape: Strides, index: int) -> Layout:
    """Flash attention's result has the layout of the queries; without it the last step is a matrix product."""
    shapes = [type_.shape for type_ in operands[:3] if type_.shape is not None and len(type_.shape) == 4]
    if len(shapes) < 3 or index > 0:
        return None
    fits = all(shape[-1] == shapes[0][-1] and (shape[1] == shapes[0][1] or call.attrs.get("enable_gqa")) for shape in shapes)
    fits = fits and all(strides_of(type_)[-1] == 1 for type_ in operands[:3])
    return _dense_like(operands[0], shape) if fits else None


@_of_operands
def frequencies_first(call: OpCall, operands: Sequence[TensorType], shape: Strides, index: int) -> Layout:
    """Windows are transformed one after another, and shown with frequencies first."""
    rank = len(shape)
    return in_order(shape, (*range(rank - 2), rank - 1, rank - 2)) if rank >= 2 and call.source == "aten::stft" else None


@_of_operands
def joined(call: OpCall, operands: Sequence[TensorType], shape: Strides, index: int) -> Layout:
    """Channels last where all parts are."""
    return channels_last(shape) if len(shape) in (4, 5) and all(suggests_channels_last(type_) is True for type_ in operands) else None


@_of_operands
def stacked(call: OpCall, operands: Sequence[TensorType], shape: Strides, index: int) -> Layout:
    """Parts are concatenated along an axis that is then split."""
    axis = call.attrs.get("axis", 0)
    if not isinstance(axis, int) or len(shape) not in (5, 6) or not all(suggests_channels_last(type_) is True for type_ in operands):
        return None
    axis %= len(shape)
    if axis == len(shape) - 1:
        return None
    strides = channels_last((*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))
    return (*strides[:axis], strides[axis] * shape[axis + 1], *strides[axis:])


@_of_operands
def rolled(call: OpCall, operands: Sequence[TensorType], shape: Strides, index: int) -> Layout:
    """Two parts of the operand are joined the other way round."""
    axes, shifts = call.attrs.get("axes"), call.attrs.get("shifts")
    x = operands[0]
    if not (isinstance(axes, tuple) and isinstance(shifts, tuple) and len(axes) == 1 and isinstance(axes[0], int)):
        return None
    size, shift = shape[axes[0]], shifts[0]
    if not isinstance(size, int) or not isinstance(shift, int) or not size:
        return channels_last(shape) if suggests_channels_last(x) is True else None
    start = (size - shift) % size
    axis = axes[0] % len(shape)
    parts = (_tensor_like((*shape[:axis], count, *shape[axis + 1 :]), strides_of(x)) for count in (size - start, start))
    return channels_last(shape) if all(suggests_channels_last(part) is True for part in parts) else None


@_of_operands
def grid(call: OpCall, operands: Sequence[TensorType], shape: Strides, index: int) -> Layout:
    """Return each result repeats one operand along all other axes."""
    axis = index
    if call.attrs.get("indexing") == "xy" and index < 2:
        axis = 1 - index
    if index >= len(operands) or not operands[index].shape:
        return None
    own = strides_of(operands[index])[0]
    return tuple(own if place == axis else 0 for place in range(len(shape)))


@_of_operands
def as_given(call: OpCall, operands: Sequence[TensorType], shape: Strides, index: int) -> Layout:
    strides = call.attrs.get("strides")
    return tuple(dim for dim in strides if isinstance(dim, int | SymDim)) if isinstance(strides, tuple) else None


# -- views --------------------------------------------------------------------------------------------------------------


def _axis(call: OpCall, key: str, rank: int, default: int = 0) -> int | None:
    found = call.attrs.get(key, default)
    return found % rank if isinstance(found, int) and rank else None


@_of_view
def permuted(call: OpCall, old: Strides, strides: Strides, shape: Strides) -> Layout:
    perm = call.attrs.get("perm")
    if perm is None:
        return tuple(reversed(strides))
    return tuple(strides[axis % len(strides)] for axis in perm if isinstance(axis, int)) if isinstance(perm, tuple) else None


@_of_view
def transposed(call: OpCall, old: Strides, strides: Strides, shape: Strides) -> Layout:
    a, b = _axis(call, "axis0", len(old)), _axis(call, "axis1", len(old))
    if a is None or b is None:
        return None
    swapped = list(strides)
    swapped[a], swapped[b] = swapped[b], swapped[a]
    return tuple(swapped)


@_of_view
def axes_moved(call: OpCall, old: Strides, strides: Strides, shape: Strides) -> Layout:
    source, target = call.attrs.get("source"), call.attrs.get("destination")
    if not isinstance(source, tuple) or not isinstance(target, tuple):
        return None
    rank = len(old)
    placed = {int(str(place)) % rank: int(str(axis)) % rank for axis, place in zip(source, target, strict=True)}
    rest = iter(axis for axis in range(rank) if axis not in placed.values())
    return tuple(strides[placed[place] if place in placed else next(rest)] for place in range(rank))


@_of_view
def expanded(call: OpCall, old: Strides, strides: Strides, shape: Strides) -> Layout:
    missing = len(shape) - len(old)
    return tuple(
        0 if axis < missing or (old[axis - missing] == 1 and size != 1) else strides[axis - missing] for axis, size in enumerate(shape)
    )


@_of_view
def sliced(call: OpCall, old: Strides, strides: Strides, shape: Strides) -> Layout:
    axes, steps = call.attrs.get("axes"), call.attrs.get("steps")
    if len(old) != len(shape):
        return None
    layout = list(strides)
    for axis, step in zip(axes, steps, strict=False) if isinstance(axes, tuple) and isinstance(steps, tuple) else ():
        if not isinstance(axis, int) or not isinstance(step, int):
            return None
        layout[axis] = layout[axis] * step
    return tuple(layout)


@_of_view
def diagonal(call: OpCall, old: Strides, strides: Strides, shape: Strides) -> Layout:
    a, b = _axis(call, "axis0", len(old)), _axis(call, "axis1", len(old), 1)
    if a is None or b is None:
        return None
    return (*(stride for axis, stride in enumerate(strides) if axis not in (a, b)), strides[a] + strides[b])


@_of_view
def unfolded(call: OpCall, old: Strides, strides: Strides, shape: Strides) -> Layout:
    axis, step = _axis(call, "axis", len(old)), call.attrs.get("step", 1)
    if axis is None or not isinstance(step, int):
        return None
    return (*strides[:axis], strides[axis] * step, *strides[axis + 1 :], strides[axis])


@_of_view
def halves_of_complex(call: OpCall, old: Strides, strides: Strides, shape: Strides) -> Layout:
    """Real and imaginary parts lie beside each other."""
    return tuple(stride * 2 for stride in strides)


@_of_view
def pairs_as_complex(call: OpCall, old: Strides, strides: Strides, shape: Strides) -> Layout:
    return tuple(stride // 2 for stride in strides[:-1]) if known_sizes(strides) else None


@_of_view
def complex_as_pairs(call: OpCall, old: Strides, strides: Strides, shape: Strides) -> Layout:
    return (*(stride * 2 for stride in strides), 1)


@_of_view
def as_operand(call: OpCall, old: Strides, strides: Strides, shape: Strides) -> Layout:
    """Return the parts of the operand, or all of it."""
    return strides if len(old) == len(shape) else None


@_of_view
def without_axis(call: OpCall, old: Strides, strides: Strides, shape: Strides) -> Layout:
    axis = _axis(call, "axis", len(old))
    return None if axis is None else (*strides[:axis], *strides[axis + 1 :])


@_of_view
def reshaped(call: OpCall, old: Strides, strides: Strides, shape: Strides) -> Layout:
    """Return strides of a view with other sizes; a copy is row-major."""
    if not known_sizes(old) or not known_sizes(strides) or not known_sizes(shape) or 0 in old:
        return None
    sizes, steps, wanted = _ints(old), _ints(strides), _ints(shape)
    layout = [1] * len(wanted)
    place = len(wanted) - 1
    run, covered = 1, 1
    step = steps[-1] if steps else 1
    for axis in range(len(sizes) - 1, -1, -1):
        run *= sizes[axis]
        if axis and (sizes[axis - 1] == 1 or steps[axis - 1] == run * step):
            continue
        # A contiguous group of axes ends here: new axes subdivide it, or there is no such view.
        while place >= 0 and (covered < run or wanted[place] == 1):
            layout[place] = covered * step
            covered *= wanted[place]
            place -= 1
        if covered != run:
            return None
        if axis:
            step, run, covered = steps[axis - 1], 1, 1
    return tuple(layout)


def _ints(dims: Sequence[Dim]) -> list[int]:
    return [int(str(dim)) for dim in dims]


def _tensor_like(shape: Strides, strides: Layout) -> TensorType:
    """Return a type of these sizes and strides; its elements do not matter."""
    return tensor(DType.U8, shape, "", strides)


# -- memory formats ----------------------------------------------------------------------------------------------------


@_of_format
def contiguous(call: OpCall, first: TensorType, result: TensorType) -> Layout:
    wanted = call.attrs.get("memory_format", "contiguous_format")
    return first.layout if has_memory_format(first, wanted) is True else _laid_out(first, result.shape or (), wanted)


@_of_format
def converted(call: OpCall, first: TensorType, result: TensorType) -> Layout:
    """Return a conversion that changes nothing returns its operand."""
    wanted, looks = call.attrs.get("memory_format", "preserve_format"), suggests_channels_last(first)
    if result.dtype is first.dtype:
        if wanted in _CHANNELS_LAST:
            if looks is True:
                return first.layout
        elif isinstance(first.layout, tuple) and (wanted != "contiguous_format" or looks is False):
            return first.layout
    return _laid_out(first, result.shape or (), wanted)


@_of_format
def copied(call: OpCall, first: TensorType, result: TensorType) -> Layout:
    """Gaps are not copied."""
    shape, wanted = result.shape or (), call.attrs.get("memory_format", "preserve_format")
    has_gaps = isinstance(first.layout, tuple) and _has_gaps(shape, first.layout)
    if has_gaps and wanted not in (*_CHANNELS_LAST, "contiguous_format"):
        return pointwise([first], shape)
    return _laid_out(first, shape, wanted)


_CHANNELS_LAST = ("channels_last", "channels_last_3d")


def _has_gaps(shape: Strides, strides: Strides) -> bool:
    return known_sizes(shape) and known_sizes(strides) and not is_dense(_ints(shape), _ints(strides))


def _laid_out(first: TensorType, shape: Strides, wanted: object) -> Layout:
    """Return a copy of the operand under a memory format."""
    if wanted in _CHANNELS_LAST:
        return channels_last(shape) if len(shape) in (4, 5) else None
    if not isinstance(first.layout, tuple) or wanted == "contiguous_format":
        return None
    if not _has_gaps(shape, first.layout):
        return first.layout
    return channels_last(shape) if suggests_channels_last(first) is True else None
