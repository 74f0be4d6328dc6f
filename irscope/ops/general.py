"""Operators in the general forms of tensor compilers (StableHLO): products over any axes, windows with any dilation, reductions by any
function, slices at computed places, collectives. What is no more general than an operator of another family is lowered to that one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Unpack

import numpy as np

from irscope.ir.dims import Dim, SymDim, dim_max, floordiv, product
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops import layouts
from irscope.ops.cost import FREE, Cost
from irscope.ops.facts import Factors, OpRole
from irscope.ops.rules import dtype_attr, fixed, like_first, per_element
from irscope.ops.spec import CostRule, Facts, Family, Infer, Known, OpCall, OpSpec, RuleError, numel, op, sizes


def _axes(call: OpCall, name: str) -> tuple[int, ...]:
    """Return an attribute that is a list of axes."""
    found = call.attr(name)
    if not isinstance(found, tuple) or not all(isinstance(axis, int) for axis in found):
        raise RuleError(f"{name} of {call.spec.name} is not a list of numbers")
    return tuple(int(axis) for axis in found if isinstance(axis, int))


def _picked(call: OpCall, shape: Sequence[Dim], axes: Sequence[int]) -> list[Dim]:
    if any(not 0 <= axis < len(shape) for axis in axes):
        raise RuleError(f"{call.spec.name} names an axis that a tensor of {len(shape)} axes does not have")
    return [shape[axis] for axis in axes]


def _others(shape: Sequence[Dim], *axes: Sequence[int]) -> list[Dim]:
    gone = {axis for group in axes for axis in group}
    return [size for axis, size in enumerate(shape) if axis not in gone]


def _whole(call: OpCall, name: str) -> tuple[Dim, ...]:
    found = call.dims(name)
    if found is None:
        raise RuleError(f"{name} of {call.spec.name} is not known")
    return found


def _infer_dot(call: OpCall) -> Type:
    a, b = call.tensor("a"), call.tensor("b")
    dtype = dtype_attr(call, a.dtype)
    if a.shape is None or b.shape is None:
        return tensor(dtype, None)
    batch_a, batch_b, over_a, over_b = (_axes(call, name) for name in ("batch_a", "batch_b", "over_a", "over_b"))
    batch = [
        call.same(left, right, "batch sizes must agree")
        for left, right in zip(_picked(call, a.shape, batch_a), _picked(call, b.shape, batch_b), strict=True)
    ]
    for left, right in zip(_picked(call, a.shape, over_a), _picked(call, b.shape, over_b), strict=True):
        call.same(left, right, "sizes that are summed over must agree")
    return tensor(dtype, [*batch, *_others(a.shape, batch_a, over_a), *_others(b.shape, batch_b, over_b)])


def _cost_dot(call: OpCall) -> Cost:
    macs = numel(call.results[0]) * product(_picked(call, sizes(call.tensor("a")), _axes(call, "over_a")))
    return Cost(matmul=2 * macs, macs=macs)


def _windows(call: OpCall, shape: Sequence[Dim], kernel: Sequence[Dim]) -> list[Dim]:
    """Return how many windows there are along each axis; padding may be negative."""
    count = len(kernel)
    strides, dilations, spread = (_filled(call, name, count) for name in ("strides", "dilations", "spread"))
    pads = _filled(call, "pads", 2 * count, 0)
    found: list[Dim] = []
    for axis in range(count):
        size, step = shape[axis], strides[axis]
        if step < 1 or dilations[axis] < 1 or spread[axis] < 1:
            raise RuleError(f"strides and dilations of {call.spec.name} must be at least 1")
        wide = (size - 1) * spread[axis] + 1 if spread[axis] > 1 else size
        room = wide + pads[axis] + pads[count + axis] - ((kernel[axis] - 1) * dilations[axis] + 1)
        made = floordiv(room, step) + 1
        found.append(call.context.note_size(made) if isinstance(made, SymDim) else max(0, made))
    return found


def _filled(call: OpCall, name: str, count: int, default: int = 1) -> tuple[int, ...]:
    found = _axes(call, name)
    if found and len(found) != count:
        raise RuleError(f"{name} of {call.spec.name} has {len(found)} entries, not {count}")
    return found or (default,) * count


def _infer_conv(call: OpCall) -> Type:
    x, w = call.tensor("x"), call.tensor("w")
    dtype = dtype_attr(call, x.dtype)
    if x.shape is None or w.shape is None:
        return tensor(dtype, None)
    of_x, of_w, of_y = _axes(call, "axes_x"), _axes(call, "axes_w"), _axes(call, "axes_y")
    batch, _, *space = _picked(call, x.shape, of_x)
    features, _, *kernel = _picked(call, w.shape, of_w)
    made = [floordiv(batch, call.int_attr("batch_groups")), features, *_windows(call, space, kernel)]
    shape: list[Dim] = [0] * len(of_y)
    for axis, size in zip(of_y, made, strict=True):
        shape[axis] = size
    return tensor(dtype, shape)


def _cost_conv(call: OpCall) -> Cost:
    """Return the products of elements that are there: none with padding, or with what lies between elements that are spread."""
    of_x, of_w, of_y = (_axes(call, name) for name in ("axes_x", "axes_w", "axes_y"))
    _, _, *space = _picked(call, sizes(call.tensor("x")), of_x)
    _, channels, *kernel = _picked(call, sizes(call.tensor("w")), of_w)
    made, _, *windows = _picked(call, sizes(call.results[0]), of_y)
    features = _picked(call, sizes(call.results[0]), of_y)[1]
    count = len(kernel)
    strides, dilations, spread = (_filled(call, name, count) for name in ("strides", "dilations", "spread"))
    pads = _filled(call, "pads", 2 * count, 0)
    macs = made * features * channels
    for axis, (size, reach, slid) in enumerate(zip(space, kernel, windows, strict=True)):
        macs = macs * _products(size, reach, slid, strides[axis], dilations[axis], spread[axis], pads[axis])
    return Cost(matmul=2 * macs, macs=macs)


def _products(size: Dim, kernel: Dim, windows: Dim, stride: int, dilation: int, spread: int, before: int) -> Dim:
    """Return the pairs of a window and a place in the kernel that fall on an element, along one axis."""
    if not (isinstance(size, int) and isinstance(kernel, int) and isinstance(windows, int)) or kernel * windows > _MOST_PAIRS:
        return windows * kernel
    places = np.arange(windows)[:, None] * stride + np.arange(kernel) * dilation - before
    return int(((places >= 0) & (places <= (size - 1) * spread) & (places % spread == 0)).sum())


_MOST_PAIRS: Final = 1 << 22
_WINDOW: Final = "int[] strides=[], int[] dilations=[], int[] spread=[], int[] pads=[]"

_PRODUCTS = (
    op(
        "math.dot_general(Tensor a, Tensor b, *, int[] batch_a=[], int[] batch_b=[], int[] over_a=[], int[] over_b=[], dtype? dtype) "
        "-> Tensor",
        Family.CONTRACTION,
        infer=_infer_dot,
        cost=_cost_dot,
        summary="Sum of products over any axes; results have the batch axes, then what is left of the first operand, then of the second.",
        roles=frozenset({OpRole.MATRIX_PRODUCT}),
        factors=Factors(),
    ),
    op(
        f"nn.conv_general(Tensor x, Tensor w, *, int[] axes_x, int[] axes_w, int[] axes_y, {_WINDOW}, int groups=1, int batch_groups=1, "
        "dtype? dtype) -> Tensor",
        Family.CONVOLUTION,
        infer=_infer_conv,
        cost=_cost_conv,
        summary="Convolution, axes in any order: `axes_x`, `axes_y` are batch, channels, space; `axes_w` output and input channels, space.",
    ),
)


# Reductions and windows by any function, whose operations for each element are counted.


def _reduced_operands(call: OpCall) -> list[TensorType]:
    """Return the operands that are reduced; as many starting values stand behind them."""
    xs = call.rest("xs")
    return xs[: len(xs) // 2]


def _infer_reduce(call: OpCall) -> list[Type]:
    axes = _axes(call, "axes")
    return [tensor(x.dtype, None if x.shape is None else _others(x.shape, axes)) for x in _reduced_operands(call)]


def _cost_reduce(call: OpCall) -> Cost:
    left_out = numel(_reduced_operands(call)[0]) - numel(call.results[0])
    return _combined(left_out, call)


def _combined(count: Dim, call: OpCall) -> Cost:
    """Return the cost of so many combinations of two elements."""
    functions = call.int_attr("functions")
    return Cost(reduction=count * (call.int_attr("work") - functions), transcendental=count * functions)


def _infer_windows(call: OpCall) -> list[Type]:
    kernel = _axes(call, "kernel")
    return [tensor(x.dtype, None if x.shape is None else _windows(call, x.shape, kernel)) for x in _reduced_operands(call)]


def _cost_windows(call: OpCall) -> Cost:
    count, kernel, pads = numel(call.results[0]), _axes(call, "kernel"), _axes(call, "pads")
    inside = math.prod(kernel)
    if isinstance(count, int) and sum(pads) == max(pads, default=0) == max(kernel) - 1 == inside - 1 > 0:
        return _combined(_scanned(count, inside), call)
    return _combined(count * (inside - 1), call)


def _scanned(count: int, length: int) -> int:
    """Combinations of a window that begins or ends at the border: XLA makes it a scan in blocks (ReduceWindowRewriter), whose last
    elements are scanned alike and then added."""
    if length <= _SCAN_BLOCK:
        return count * (length - 1)
    blocks = -(-length // _SCAN_BLOCK)
    padded = count // length * blocks * _SCAN_BLOCK
    return padded * _SCAN_BLOCK + _scanned(count // length * blocks, blocks)


_SCAN_BLOCK: Final = 16


def _cost_spread(call: OpCall) -> Cost:
    """For each window a search for the element, then one combination."""
    windows, inside = numel(call.tensor("source")), product(_axes(call, "kernel"))
    return Cost(reduction=windows * (inside - 1) + windows * call.int_attr("work"))


_REDUCTIONS = (
    op(
        "reduce.general(Tensor[] xs, *, int[] axes, int work=1, int functions=0) -> Tensor[]",
        Family.REDUCTION,
        infer=_infer_reduce,
        cost=_cost_reduce,
        summary="Combines elements along axes by a function of `work` operations, `functions` of them transcendental; the second half of "
        "the operands are starting values.",
    ),
    op(
        f"reduce.windows(Tensor[] xs, *, int[] kernel, {_WINDOW}, int work=1, int functions=0) -> Tensor[]",
        Family.POOLING,
        infer=_infer_windows,
        cost=_cost_windows,
        summary="Combines the elements of each window by a function; the second half of the operands are starting values.",
    ),
    op(
        f"reduce.scatter_windows(Tensor x, Tensor source, Tensor value, *, int[] kernel, {_WINDOW}, int work=1) -> Tensor",
        Family.POOLING,
        infer=like_first,
        cost=_cost_spread,
        summary="Adds each element of `source` where a comparison finds the element of its window.",
    ),
)


# Moving: broadcasts, padding between elements, slices at computed places, gathers and scatters over any axes, sorting.


def _evaluate_broadcast(call: OpCall) -> Known | None:
    x, shape = call.value("x"), call.ints("shape")
    if x is None or shape is None:
        return None
    kept = [1] * len(shape)
    for axis, size in zip(_axes(call, "axes"), x.shape, strict=True):
        kept[axis] = size
    return np.broadcast_to(x.reshape(kept), shape)


def _evaluate_iota(call: OpCall) -> Known | None:
    shape, axis = call.ints("shape"), call.int_attr("axis")
    if shape is None or not 0 <= axis < len(shape):
        return None
    along = [1] * len(shape)
    along[axis] = shape[axis]
    return np.broadcast_to(np.arange(shape[axis]).reshape(along), shape)


def _infer_pad(call: OpCall) -> Type:
    x = call.tensor("x")
    if x.shape is None:
        return x
    low, high, between = (_whole(call, name) for name in ("low", "high", "between"))
    made: list[Dim] = []
    for size, before, after, inside in zip(x.shape, low, high, between, strict=True):
        gaps: Dim = 0 if inside == 0 else dim_max(size - 1, 0) * inside
        made.append(call.context.note_size(size + before + after + gaps))
    return tensor(x.dtype, made)


def _infer_gather(call: OpCall) -> Type:
    x, indices = call.tensor("x"), call.tensor("indices")
    if x.shape is None or indices.shape is None:
        return tensor(x.dtype, None)
    slices, offsets = _whole(call, "sizes"), _axes(call, "offsets")
    gone = (*_axes(call, "collapsed"), *_axes(call, "batch"))
    inside = iter(_others(slices, gone))
    batch = iter(_others(indices.shape, (call.int_attr("vector_axis"),)))
    rank = len(offsets) + len(indices.shape) - (call.int_attr("vector_axis") < len(indices.shape))
    return tensor(x.dtype, [next(inside) if axis in offsets else next(batch) for axis in range(rank)])


def _cost_scatter(call: OpCall) -> Cost:
    xs = call.rest("xs")
    count = len(xs) // 2
    work = sum((numel(one) for one in xs[count + 1 :]), start=0) * call.int_attr("work")
    touched = sum((2 * (one.tensor_bytes or 0) for one in xs[count + 1 :]), start=0)
    whole = sum((one.tensor_bytes or 0 for one in xs[:count]), start=0)
    return Cost(reduction=work, read=(xs[count].tensor_bytes or 0) + touched + whole, written=whole)


def _infer_scatter(call: OpCall) -> list[Type]:
    xs = call.rest("xs")
    return list(xs[: len(xs) // 2])


def _infer_all(call: OpCall) -> list[Type]:
    return list(call.rest("xs"))


def _cost_sort(call: OpCall) -> Cost:
    """Comparisons: of n elements n times the logarithm of n, as XLA counts them over all axes."""
    count = numel(call.rest("xs")[0])
    return Cost(elementwise=count * ((count - 1).bit_length() if isinstance(count, int) else 1))


_WHOLE_UPDATE: Final = frozenset({OpRole.WRITE_PART})

_MOVES = (
    op(
        "tensor.broadcast(Tensor x, Dims shape, *, int[] axes) -> Tensor",
        Family.MOVE,
        infer=lambda call: tensor(call.dtype("x"), call.dims("shape")),
        cost=lambda call: Cost(),
        evaluate=_evaluate_broadcast,
        summary="Repeats elements: axis i of the operand is axis `axes[i]` of the result.",
        roles=frozenset({OpRole.SPREAD}),
    ),
    op(
        "tensor.iota(Dims shape, *, int axis=0, dtype? dtype) -> Tensor",
        Family.CREATION,
        infer=lambda call: tensor(dtype_attr(call, DType.I32), call.dims("shape")),
        cost=lambda call: Cost(),
        evaluate=_evaluate_iota,
        summary="Numbers from zero on along one axis.",
        roles=frozenset({OpRole.RANGE}),
    ),
    op(
        "tensor.pad_general(Tensor x, Tensor value, Dims low, Dims high, Dims between) -> Tensor",
        Family.MOVE,
        infer=_infer_pad,
        cost=lambda call: Cost(),
        summary="Puts a value before, after and between elements; negative numbers take elements away.",
    ),
    op(
        "tensor.dynamic_slice(Tensor x, Tensor[] starts, *, int[] sizes) -> Tensor",
        Family.MOVE,
        infer=lambda call: tensor(call.dtype("x"), call.dims("sizes")),
        cost=lambda call: Cost(read=call.results[0].tensor_bytes),
        summary="A copy of a part that begins where operands say.",
    ),
    op(
        "tensor.dynamic_update_slice(Tensor x, Tensor update, Tensor[] starts) -> Tensor",
        Family.MOVE,
        infer=like_first,
        cost=lambda call: Cost(),
        summary="The first operand with another one written into a part that begins where operands say.",
        roles=_WHOLE_UPDATE,
    ),
    op(
        "tensor.gather_general(Tensor x, Tensor indices, *, int[] sizes, int[] offsets, int[] collapsed=[], int[] batch=[], "
        "int[] batch_indices=[], int[] mapped=[], int vector_axis=0) -> Tensor",
        Family.INDEXING,
        infer=_infer_gather,
        cost=lambda call: Cost(read=_read_by_gather(call)),
        summary="Slices of the first operand from places that the second one says.",
        roles=frozenset({OpRole.LOOKUP}),
    ),
    op(
        "tensor.scatter_general(Tensor[] xs, *, int[] window=[], int[] inserted=[], int[] mapped=[], int vector_axis=0, int work=0, "
        "bool adds=False) -> Tensor[]",
        Family.INDEXING,
        infer=_infer_scatter,
        cost=_cost_scatter,
        summary="Operands with updates combined into places that indices say: operands, indices, then updates.",
        roles=_WHOLE_UPDATE,
    ),
    op(
        "tensor.sort_general(Tensor[] xs, *, int axis=-1, bool stable=False) -> Tensor[]",
        Family.SORTING,
        infer=_infer_all,
        cost=_cost_sort,
        summary="Sorts tensors together along an axis, by any comparison.",
    ),
)


def _read_by_gather(call: OpCall) -> Dim | None:
    made, indices = call.results[0].tensor_bytes, call.tensor("indices").tensor_bytes
    return None if made is None or indices is None else made + indices


# Element by element, where no other family has the function.


def _each(name: str, operands: str, cost: CostRule, summary: str, infer: Infer = like_first, **facts: Unpack[Facts]) -> OpSpec:
    return op(f"math.{name}({operands}) -> Tensor", Family.ELEMENTWISE, infer=infer, cost=cost, summary=summary, **facts)


_FUNCTIONS = (
    _each("cbrt", "Tensor x", per_element(0, 1), "Cubic root."),
    _each("popcount", "Tensor x", per_element(), "Number of bits that are set."),
    _each("count_leading_zeros", "Tensor x", per_element(), "Number of zeros in front of the first bit that is set."),
    _each("shift_right_logical", "Tensor x, Tensor y", per_element(), "Shifts bits to the right, zeros in front."),
    _each("nextafter", "Tensor x, Tensor y", per_element(), "The next float towards another one."),
    _each("polygamma", "Tensor n, Tensor x", per_element(0, 1), "Derivative of the digamma function."),
    _each("zeta", "Tensor x, Tensor q", per_element(0, 1), "Hurwitz zeta function."),
    _each("bessel_i1e", "Tensor x", per_element(0, 1), "Modified Bessel function, scaled."),
    _each("reduce_precision", "Tensor x, *, int exponent_bits=8, int mantissa_bits=23", per_element(), "Rounds to a format of fewer bits."),
)


def _gathered(factor: int) -> Infer:
    """Return sizes along an axis times, or over, the number of devices of a group."""

    def infer(call: OpCall) -> list[Type]:
        axis, devices = call.int_attr("axis"), call.int_attr("devices")
        made: list[Type] = []
        for x in call.rest("xs"):
            shape: Shape = x.shape
            if shape is not None:
                axis = call.axis(axis, len(shape))
                size = shape[axis] * devices if factor > 0 else floordiv(shape[axis], devices)
                shape = (*shape[:axis], size, *shape[axis + 1 :])
            made.append(tensor(x.dtype, shape))
        return made

    return infer


def _infer_exchange(call: OpCall) -> list[Type]:
    split, join, devices = call.int_attr("split_axis"), call.int_attr("axis"), call.int_attr("devices")
    made: list[Type] = []
    for x in call.rest("xs"):
        shape = None if x.shape is None else list(x.shape)
        if shape is not None:
            shape[call.axis(split, len(shape))] = floordiv(shape[call.axis(split, len(shape))], devices)
            shape[call.axis(join, len(shape))] = shape[call.axis(join, len(shape))] * devices
        made.append(tensor(x.dtype, shape))
    return made


def _reduced(call: OpCall) -> Cost:
    """Each element is combined once with those of every other device."""
    return Cost(reduction=sum((numel(x) for x in call.rest("xs")), start=0))


def _collective(name: str, attrs: str, infer: Infer, cost: CostRule, summary: str) -> OpSpec:
    return op(f"collective.{name}(Tensor[] xs, *, int devices=1{attrs}) -> Tensor[]", Family.MOVE, infer=infer, cost=cost, summary=summary)


def _rank(name: str, summary: str) -> OpSpec:
    return op(f"collective.{name}() -> Tensor", Family.CREATION, infer=fixed(DType.U32), cost=lambda call: FREE, summary=summary)


_OTHERS = (
    op(
        "random.bits(Tensor state, Dims shape, *, dtype? dtype) -> (Tensor, Tensor)",
        Family.RANDOM,
        infer=lambda call: [call.tensor("state"), tensor(dtype_attr(call, DType.U32), call.dims("shape"))],
        cost=per_element(),
        random=True,
        summary="Random bits, and the generator's next state in front of them.",
    ),
    op(
        "random.between(Tensor a, Tensor b, Dims shape, *, str distribution='UNIFORM') -> Tensor",
        Family.RANDOM,
        infer=lambda call: tensor(call.dtype("a"), call.dims("shape")),
        cost=per_element(),
        random=True,
        summary="Random numbers between two limits, or of a mean and a deviation.",
    ),
    _collective("all_reduce", "", _infer_all, _reduced, "Combines tensors of all devices of a group; each gets the result."),
    _collective("all_gather", ", int axis=0", _gathered(1), lambda call: Cost(), "Joins tensors of all devices of a group along an axis."),
    _collective(
        "reduce_scatter", ", int axis=0", _gathered(-1), _reduced, "Combines tensors of all devices; each gets a slice of the result."
    ),
    _collective(
        "all_to_all", ", int split_axis=0, int axis=0", _infer_exchange, lambda call: Cost(), "Each device sends a slice to each other."
    ),
    _collective("permute", "", _infer_all, lambda call: Cost(), "Each device sends its tensor to another one."),
    _collective("broadcast", "", _infer_all, lambda call: Cost(), "One device sends its tensor to the others."),
    op(
        "collective.part(Tensor(a) x, Dims shape) -> Tensor(a)",
        Family.VIEW,
        infer=lambda call: tensor(call.dtype("x"), call.dims("shape")),
        cost=lambda call: FREE,
        strides=layouts.ROW_MAJOR,  # as every array of XLA before its layouts
        roles=frozenset({OpRole.RESHAPE}),
        summary="What one device has of a tensor, or the whole of which each device has such a part.",
    ),
    _rank("partition", "The number of this device among the partitions."),
    _rank("replica", "The number of this device among the replicas."),
)

OPS = (*_PRODUCTS, *_REDUCTIONS, *_MOVES, *_FUNCTIONS, *_OTHERS)

LIBRARY_OPERATORS: Final = frozenset(
    f"math.{name}"
    for name in (
        *("abs", "ceil", "cos", "erf", "exp", "expm1", "floor", "log", "log1p", "neg", "round", "rsqrt", "sign", "sin", "sqrt", "square"),
        *("tan", "tanh", "add", "div", "maximum", "minimum", "mul", "pow", "sub"),
    )
)
"""Elementwise operators of the library of XLA's CPU compiler, as GetYnnUnaryOpMap and GetYnnBinaryOpMap of XLA have them."""
LIBRARY_REDUCTIONS: Final = frozenset({"reduce.sum", "reduce.max", "reduce.min"})
LIBRARY_WINDOWS: Final = "reduce.windows"
SQUARE: Final = "math.square"
BARRIER: Final = "view.alias"
SUMS: Final = "reduce.sum"
BITS_AS: Final = "view.view_dtype"
COUNTS: Final = "tensor.iota"
PADDED: Final = "tensor.pad_general"
LARGEST: Final = "tensor.topk"
EXPANDED_WORK: Final = {"math.lgamma": (52, 4), "math.digamma": (73, 3), "math.erfinv": (37, 2), "math.erfc": (60, 1)}
"""FLOPs and transcendental functions of an element of what JAX expands, as `cost_analysis()` of jax 0.10.2 says of each alone in f32."""
