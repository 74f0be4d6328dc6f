"""What decides how long one kernel takes: its class, its sizes as a product, the bytes it moves, and how regularly they lie.

An operator of the graph is described from the types of its operands and results and from its family; nothing here knows a device. How
long it takes on one is worked out for all kernels of a run at once (`irscope.passes.cost.clock`).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from irscope.immutable import immutable
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.graph import Attr
from irscope.ir.types import TensorType, Type
from irscope.ops.facts import OpRole
from irscope.ops.layouts import is_dense, is_row_major, known_sizes
from irscope.ops.spec import Family, OpSpec


class KernelClass(enum.IntEnum):
    """Kernels whose times follow one rule."""

    HOST = 0
    """Nothing runs on the device: views and questions about shapes."""
    PRODUCT = 1
    """Matrix products with a common right side: linear layers."""
    BATCHED = 2
    """Many products of their own."""
    POINTWISE = 3
    """Convolutions 1 by 1."""
    CONVOLUTION = 4
    """Convolutions with larger filters over all channels."""
    STEM = 5
    """Convolutions of few input channels, such as those of an image."""
    GROUPED = 6
    DEPTHWISE = 7
    ATTENTION = 8
    """Fused attention."""
    MASKED_ATTENTION = 9
    """Fused attention with a mask of its own, for which other kernels are taken."""
    MAP = 10
    """Elementwise, all operands alike and in order."""
    MIXED = 11
    """Elementwise with operands of several element types, or broadcast ones: read one by one."""
    CAST = 12
    """Conversion of the element type."""
    STRIDED = 13
    """Copies and elementwise operators whose operands lie in another order than the result."""
    BATCH_NORM = 14
    ROW_NORM = 15
    """Layer norm and the like: statistics over the last axis."""
    GROUP_NORM = 16
    SOFTMAX = 17
    REDUCTION = 18
    POOLING = 19
    JOIN = 20
    """Concatenation, padding, rolling, splitting as a copy."""
    GATHER = 21
    """Indexing, sorting, scattering."""
    GENERATED = 22
    """Kernels that a compiler generates from elementwise operators."""
    GENERATED_REDUCTION = 23
    BATCH_STATISTICS = 24
    """Batch norm that works out its statistics, as in training."""
    CONVOLUTION_GRADIENT = 25
    """Gradients of a convolution by its input and its filter together."""
    GROUPED_GRADIENT = 26
    DEPTHWISE_GRADIENT = 27
    OTHER = 28
    DEPTHWISE_OWN = 29
    """Depthwise convolutions that PyTorch does not leave to cuDNN: its own kernel, channels first."""


_FULL_BITS: Final = 32.0
"""Row norms load four elements at once whatever their type (`vec_size` in ATen's layer_norm_kernel.cu): those of 16 bits take as long."""
_COPIED: Final = 3.0
"""Cost of a copy that permutes the order of elements, in reads of the tensor: it is read and written, at less of the bandwidth."""
MATRIX: Final = frozenset(
    {
        KernelClass.PRODUCT,
        KernelClass.BATCHED,
        KernelClass.POINTWISE,
        KernelClass.CONVOLUTION,
        KernelClass.STEM,
        KernelClass.GROUPED,
        KernelClass.CONVOLUTION_GRADIENT,
        KernelClass.GROUPED_GRADIENT,
        KernelClass.ATTENTION,
        KernelClass.MASKED_ATTENTION,
    }
)
_FUSED_AXES: Final = 4
"""PyTorch's fused kernels take operands of four axes. Others are done by two products with a softmax between them, in f32, which write
scaled queries and keys and the scores (`_scaled_dot_product_attention_math` in ATen's attention.cpp)"""
_SCORES_READ: Final = 4.25
"""By the softmax, the search for rows that are all masked (and the truth values that it makes), their replacement, and the product."""
_SCORES_WRITTEN: Final = 3.25
_WORD: Final = 8  # elements of 16 bits in the 16 bytes that kernels of the tensor cores load at once
_FEW_CHANNELS: Final = 8  # fewer input channels than one step of the tensor cores takes in 16 bits (m16n8k16 reads them by 8)


@immutable
class Kernel:
    """One kernel in numbers.

    `m`, `n`, `k`: rows, columns and depth of a product, of which there are `count`; `taps`: elements of a filter or a window; `read` and
    `written`: bytes; `bits`: of the element type that is computed in; `last`: whether channels lie innermost; `added`: bytes that a kernel
    of its own moves to add a bias.
    """

    kind: KernelClass
    m: float = 0.0
    n: float = 0.0
    k: float = 0.0
    count: float = 1.0
    taps: float = 1.0
    read: float = 0.0
    written: float = 0.0
    bits: float = 32.0
    last: bool = False
    added: float = 0.0

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k * self.count


HOST_ONLY: Final = Kernel(KernelClass.HOST)


@immutable
class Use:
    """One use of an operator, as its kernel is found from it."""

    spec: OpSpec | None
    attrs: Mapping[str, Attr]
    operands: Sequence[Type | None]
    results: Sequence[Type | None]
    is_view: bool = False
    """True where the result is an operand's own storage."""
    products: float = 0.0
    """FLOPs of products by the operator's cost rule."""
    learns: bool = False
    """True where gradients are recorded."""


def kernel_of(use: Use) -> Kernel | None:
    """Return the kernel that an operator runs; None where its class or a size is not known."""
    spec = use.spec
    if spec is None or not all(_is_known(type_) for type_ in (*use.operands, *use.results) if isinstance(type_, TensorType)):
        return None
    roles = spec.roles
    if OpRole.GENERATED in roles:
        return _generated(use)
    if use.is_view or (OpRole.DROPOUT in roles and not use.attrs.get("training")):
        return HOST_ONLY
    if spec.family is Family.QUANTIZATION and _multiplies_integers(use):
        return None
    rule = _BY_FAMILY.get(spec.family)
    if rule is None:
        return _moving(use, KernelClass.OTHER)
    return rule(use)


def _is_known(type_: TensorType) -> bool:
    return type_.shape is not None and all(isinstance(size, int) for size in type_.shape)


def _sizes(type_: Type | None) -> tuple[int, ...]:
    return tuple(size for size in type_.shape if isinstance(size, int)) if isinstance(type_, TensorType) and type_.shape else ()


def _count(type_: Type | None) -> int:
    return math.prod(_sizes(type_)) if isinstance(type_, TensorType) else 0


def _bytes(type_: Type | None) -> int:
    """Return the bytes that are really there: an axis that only repeats is read once."""
    if not isinstance(type_, TensorType) or not isinstance(type_.nbytes, int):
        return 0
    if not isinstance(type_.layout, tuple):
        return type_.nbytes
    repeated = math.prod(size for size, stride in zip(_sizes(type_), type_.layout, strict=True) if stride == 0 and size)
    return type_.nbytes // max(repeated, 1)


def _tensors(types: Iterable[Type | None]) -> list[TensorType]:
    return [type_ for type_ in types if isinstance(type_, TensorType)]


def _bits(use: Use) -> float:
    """Bits of the widest floating-point operand or result that is computed with."""
    floats = [type_.dtype.bits or 0 for type_ in _tensors((*use.operands, *use.results)) if type_.dtype.kind is DTypeKind.FLOAT]
    return float(max(floats, default=32))


def _is_integer(use: Use) -> bool:
    """Return whether a product is one of integers: libraries reach anything between a tenth of their peak and all of it."""
    return all(type_.dtype.kind is not DTypeKind.FLOAT for type_ in _tensors(use.operands[:2]))


def _multiplies_integers(use: Use) -> bool:
    """Return whether such a product has quantised operands beside their scales."""
    return use.products > 0 and any(type_.dtype.is_integer and len(_sizes(type_)) > 1 for type_ in _tensors(use.operands))


def _narrowest(use: Use) -> float:
    floats = [type_.dtype.bits or 32 for type_ in _tensors(use.operands) if type_.dtype.kind is DTypeKind.FLOAT]
    return float(min(floats, default=32))


def _moved_bytes(use: Use) -> tuple[float, float]:
    """Return bytes read and written: every operand and every result once."""
    return float(sum(map(_bytes, use.operands))), float(sum(map(_bytes, use.results)))


def _moving(use: Use, kind: KernelClass, *, taps: float = 1.0) -> Kernel:
    read, written = _moved_bytes(use)
    result = next(iter(_tensors(use.results)), None)
    return Kernel(kind, m=float(_count(result)), n=1.0, taps=taps, read=read, written=written, bits=_bits(use), last=_is_last(result))


# -- products ----------------------------------------------------------------------------------------------------------


def _contraction(use: Use) -> Kernel | None:
    assert use.spec is not None
    if OpRole.CONVOLUTION in use.spec.roles:
        return _convolution_kernel(use, use.operands[0] if use.operands else None, 2)
    result = next(iter(_tensors(use.results)), None)
    if result is None or not use.products:
        return _moving(use, KernelClass.OTHER)
    sizes, total = _sizes(result), _count(result)
    if not total:
        return HOST_ONLY
    if _is_integer(use):
        return None
    depth = use.products / (2.0 * total)
    columns = sizes[-1] if sizes else 1
    count = 1
    equation = use.attrs.get("equation")
    wide = [type_ for type_ in _tensors(use.operands) if len(_sizes(type_)) > 2]
    if isinstance(equation, str) and "->" in equation:
        count, columns = _of_equation(equation, use.operands, total)
    elif len(wide) > 1:
        count = math.prod(sizes[:-2])
    kind = KernelClass.BATCHED if count > 1 else KernelClass.PRODUCT
    read, written = _moved_bytes(use)
    added = 0.0
    first = next(iter(_tensors(use.operands)), None)
    if count == 1 and first is not None and len(_sizes(first)) > 2 and not _is_row_major(first):
        # A layer's bias is then added by a kernel of its own (`linear` in ATen's Linear.cpp), and rows at unequal distances are products of
        # their own with the same right side (`should_fold` in LinearAlgebra.cpp); with gradients they are laid out anew instead.
        added = 2.0 * _bytes(result) if len(use.operands) > 2 and isinstance(use.operands[2], TensorType) else 0.0
        is_folded = _steps_evenly(first, 1)
        if not is_folded and not use.learns:
            count = math.prod(sizes[:-2])
        if not is_folded and (use.learns or not _steps_evenly(first, 2)):
            read += _COPIED * _bytes(first)
    rows = total / (count * columns)
    return Kernel(kind, rows, float(columns), depth, float(count), 1.0, read, written, _narrowest(use), added=added)


def _of_equation(equation: str, operands: Sequence[Type | None], total: int) -> tuple[int, int]:
    """Return how many products an einsum is, and the columns of each: letters of both operands and the result count, those of the second
    operand and the result are columns."""
    inputs, _, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    sizes = {
        letter: size
        for term, operand in zip(terms, _tensors(operands), strict=False)
        for letter, size in zip(term, _sizes(operand), strict=False)
    }
    shared = set(output).intersection(*map(set, terms))
    columns = set(output) & set(terms[-1]) - shared
    count = math.prod(sizes.get(letter, 1) for letter in shared)
    return count, min(math.prod(sizes.get(letter, 1) for letter in columns), max(total // max(count, 1), 1))


def _convolution_kernel(use: Use, result: Type | None = None, filter_place: int = 1) -> Kernel | None:
    """Return the kernel of a convolution; of the gradients of one where what stands for its result is an operand."""
    is_gradient = result is not None
    result = next(iter(_tensors(use.results)), None) if result is None else result
    weight = use.operands[filter_place] if len(use.operands) > filter_place else None
    sizes, filters = _sizes(result), _sizes(weight)
    total = _count(result)
    if len(sizes) < 3 or len(filters) < 3 or not total or not use.products:
        return _moving(use, KernelClass.OTHER)
    groups = use.attrs.get("groups", 1)
    groups = groups if isinstance(groups, int) else 1
    if _is_integer(use):
        return None
    taps = math.prod(filters[2:])
    depth = use.products / (2.0 * total)
    columns, rows = sizes[1] / groups, total / sizes[1]
    read, written = _moved_bytes(use)
    given = use.operands[filter_place - 1]
    if isinstance(given, TensorType) and not _is_dense(given):
        read += _COPIED * _bytes(given)  # a part of the channels is copied out first
    bits = _narrowest(use)
    if bits == 16 and groups == 1:  # channels are padded to whole words
        read, written = read * (2.0 if filters[1] % _WORD else 1.0), written * (2.0 if sizes[1] % _WORD else 1.0)
    kind = _convolution_class(filters[1], groups, taps, is_gradient=is_gradient)
    if kind is KernelClass.DEPTHWISE and not _is_last(result) and not _is_for_cudnn(use, filters, bits):
        kind = KernelClass.DEPTHWISE_OWN
    # PyTorch adds a bias to what cuDNN made (`_convolution` in ATen's Convolution.cpp); its own kernels add theirs themselves.
    has_bias = len(use.operands) > 2 and not is_gradient and isinstance(use.operands[2], TensorType)
    added = 2.0 * _bytes(result) if has_bias and kind is not KernelClass.DEPTHWISE_OWN else 0.0
    return Kernel(kind, rows, columns, depth, float(groups), float(taps), read, written, bits, _is_last(result), added)


def _convolution_class(inputs: int, groups: int, taps: int, *, is_gradient: bool) -> KernelClass:
    """Return the class of a convolution by input channels of each group, groups and elements of the filter."""
    if groups > 1:
        if inputs == 1:
            return KernelClass.DEPTHWISE_GRADIENT if is_gradient else KernelClass.DEPTHWISE
        return KernelClass.GROUPED_GRADIENT if is_gradient else KernelClass.GROUPED
    if is_gradient:
        return KernelClass.CONVOLUTION_GRADIENT
    if inputs < _FEW_CHANNELS:
        return KernelClass.STEM
    return KernelClass.POINTWISE if taps == 1 else KernelClass.CONVOLUTION


def _is_for_cudnn(use: Use, filters: Sequence[int], bits: float) -> bool:
    """Return whether PyTorch leaves a depthwise convolution, channels first, to cuDNN: `use_cudnn_depthwise` in ATen's Convolution.cpp."""
    images, channels, *_, width = _sizes(use.operands[0])
    strides, dilations = use.attrs.get("strides"), use.attrs.get("dilations")
    is_square = len(filters) == 4 and filters[2] == filters[3] and filters[2] in (1, 3, 5)
    if bits != 16 or not is_square or channels < 32 or width < 7 or (isinstance(dilations, tuple | list) and max(dilations) > 1):
        return False
    step = strides[-1] if isinstance(strides, tuple | list) else 1
    if step == 1 or (images == 1 and filters[2] > 1):
        return True
    return step == 2 and filters[2] > 1 and (channels >= 512 or (channels >= 256 and width >= 28))


def _attention(use: Use) -> Kernel | None:
    assert use.spec is not None
    # Gradients have that of the result before query, key and value.
    place = 0 if use.spec.attention is not None else 1
    rows, others = (_sizes(use.operands[at]) if len(use.operands) > at else () for at in (place, place + 1))
    if len(rows) < 3 or len(others) < 3 or not math.prod(rows):
        return _moving(use, KernelClass.OTHER)
    read, written = _moved_bytes(use)
    masked = len(use.operands) > 3 and isinstance(use.operands[3], TensorType) and not place
    kind = KernelClass.MASKED_ATTENTION if masked else KernelClass.ATTENTION
    # Rows are queries, columns keys; the depth is that of both products together.
    depth = use.products / (2.0 * math.prod(rows[:-1]) * others[-2]) if use.products else 2.0 * rows[-1]
    bits = _bits_of(use.operands[place])
    if OpRole.LAYOUT_BY_DEVICE in use.spec.roles and len(rows) != _FUSED_AXES:
        scores = 4.0 * math.prod(rows[:-1]) * others[-2]
        operands = 4.0 * sum(map(_count, use.operands[:3]))
        scaled = 4.0 * sum(map(_count, use.operands[:2]))
        kind, bits = KernelClass.BATCHED, 32.0
        read += operands + scaled + (_SCORES_READ + masked) * scores
        written += operands + scaled + (_SCORES_WRITTEN + masked) * scores
    return Kernel(kind, float(rows[-2]), float(others[-2]), depth, float(math.prod(rows[:-2])), 1.0, read, written, bits)


def _bits_of(type_: Type | None) -> float:
    return float(type_.dtype.bits or 32) if isinstance(type_, TensorType) else 32.0


# -- what moves bytes --------------------------------------------------------------------------------------------------


def _is_last(type_: Type | None) -> bool:
    """Return whether channels, the second axis of an image, lie innermost."""
    return isinstance(type_, TensorType) and isinstance(type_.layout, tuple) and len(type_.layout) > 3 and type_.layout[1] == 1


def _is_row_major(type_: TensorType) -> bool:
    """Return whether elements lie in the order of the axes, the last one innermost and without gaps."""
    return not isinstance(type_.layout, tuple) or (known_sizes(type_.layout) and is_row_major(_sizes(type_), type_.layout))


def _steps_evenly(type_: TensorType, inner: int) -> bool:
    """Return whether all axes but so many inner ones are one, whose steps are equal."""
    sizes, layout = _sizes(type_), type_.layout
    assert isinstance(layout, tuple)
    return all(layout[axis] == layout[axis + 1] * sizes[axis + 1] for axis in range(len(sizes) - 1 - inner))


def _is_repeated(type_: TensorType) -> bool:
    """Return whether the same elements are seen several times along an axis."""
    layout = type_.layout
    return isinstance(layout, tuple) and any(step == 0 and size > 1 for size, step in zip(_sizes(type_), layout, strict=True))


def _inner(type_: TensorType) -> int:
    """Return the axis whose elements lie side by side."""
    sizes = _sizes(type_)
    last = max((axis for axis, size in enumerate(sizes) if size > 1), default=-1)
    if not isinstance(type_.layout, tuple):
        return last
    return next((axis for axis, (size, step) in enumerate(zip(sizes, type_.layout, strict=True)) if step == 1 and size > 1), -2)


def _is_dense(type_: TensorType) -> bool:
    """Return whether no element is skipped: one run of memory in some order of axes."""
    layout = type_.layout
    return not isinstance(layout, tuple) or (known_sizes(layout) and is_dense(_sizes(type_), layout))


def _order(type_: TensorType) -> tuple[int, ...]:
    """Return the axes from the outermost to the innermost, those of size 1 left out."""
    sizes = _sizes(type_)
    axes = [axis for axis, size in enumerate(sizes) if size > 1]
    if isinstance(type_.layout, tuple):
        layout = [step if isinstance(step, int) else 0 for step in type_.layout]
        axes.sort(key=lambda axis: -layout[axis])
    return tuple(axes)


def _elementwise(use: Use) -> Kernel:
    return _moving(use, _regularity(use))


def _regularity(use: Use) -> KernelClass:
    """Return how an elementwise kernel reads its operands: in order, one by one, or across the order in which they lie."""
    result = next(iter(_tensors(use.results)), None)
    if result is None:
        return KernelClass.MAP
    sizes = _sizes(result)
    large = [type_ for type_ in _tensors(use.operands) if _count(type_) > 1]
    same = [type_ for type_ in large if _sizes(type_) == sizes and not _is_repeated(type_)]
    if any(_inner(type_) != _inner(result) for type_ in same):
        return KernelClass.STRIDED
    if any(type_.dtype is not result.dtype and type_.dtype is not DType.BOOL for type_ in large) or len(same) < len(large):
        return KernelClass.MIXED
    if any(not _is_dense(type_) or _order(type_) != _order(result) for type_ in same):
        return KernelClass.MIXED
    return KernelClass.MAP


def _copy(use: Use) -> Kernel:
    """Return the kernel of a copy: a conversion, a change of order, or both."""
    operand, result = (next(iter(_tensors(types)), None) for types in (use.operands, use.results))
    if operand is None or result is None:
        return _moving(use, KernelClass.JOIN)
    if _sizes(operand) == _sizes(result):
        moved = _inner(operand) != _inner(result)
    else:  # reshaped: the result is in the order of its axes, the operand need not be
        moved = _inner(operand) != max((axis for axis, size in enumerate(_sizes(operand)) if size > 1), default=-1)
    if moved:
        return _moving(use, KernelClass.STRIDED)
    return _moving(use, KernelClass.CAST if operand.dtype is not result.dtype else KernelClass.JOIN)


def _move(use: Use) -> Kernel:
    assert use.spec is not None
    roles = use.spec.roles
    is_copy = OpRole.COPY in roles or OpRole.CONVERT in roles or OpRole.CONVERT_LIKE in roles or OpRole.LAYS_OUT in roles
    return _copy(use) if is_copy or use.spec.family is Family.VIEW else _moving(use, KernelClass.JOIN)


def _normalization(use: Use) -> Kernel:
    assert use.spec is not None
    if OpRole.FOLDABLE_NORM in use.spec.roles:
        return _moving(use, KernelClass.BATCH_NORM)
    if "momentum" in use.attrs or _normalizes_batch(use):
        return _moving(use, KernelClass.BATCH_STATISTICS)
    if "num_groups" not in use.attrs:
        made = _moving(use, KernelClass.ROW_NORM)
        wider = max(_FULL_BITS / _bits(use), 1.0)
        return _in_order(use, replace(made, read=made.read * wider, written=made.written * wider))
    return _in_order(use, _moving(use, KernelClass.GROUP_NORM))


def _in_order(use: Use, kernel: Kernel) -> Kernel:
    """Return a kernel that takes elements in the order of the axes alone, so that what lies otherwise is laid out anew.

    native_group_norm in ATen's group_norm.cpp, layer_norm_cuda in layer_norm_kernel.cu, host_softmax in SoftMax.cu.
    """
    given = use.operands[0] if use.operands else None
    is_copied = isinstance(given, TensorType) and not _is_row_major(given)
    return replace(kernel, read=kernel.read + _COPIED * _bytes(given)) if is_copied else kernel


def _normalizes_batch(use: Use) -> bool:
    """Return whether gradients are those of a batch norm: its weights go along the second of several axes, not along the last."""
    tensors = _tensors(use.operands)
    whole = max(tensors, key=_count, default=None)
    sizes = _sizes(whole)
    weights = [_sizes(type_) for type_ in tensors if 0 < len(_sizes(type_)) < len(sizes)]
    is_grouped = "num_groups" in use.attrs or "group" in use.attrs
    return len(sizes) > 3 and bool(weights) and all(one == sizes[1:2] for one in weights) and not is_grouped


def _pooling(use: Use) -> Kernel:
    window = use.attrs.get("kernel_shape")
    operand, result = (next(iter(_tensors(types)), None) for types in (use.operands, use.results))
    if isinstance(window, tuple | list):
        return _moving(use, KernelClass.POOLING, taps=float(math.prod(step for step in window if isinstance(step, int))))
    # An adaptive window that makes one element of an image is a sum over it.
    taps = _count(operand) / max(_count(result), 1)
    return _moving(use, KernelClass.REDUCTION if math.prod(_sizes(result)[2:]) == 1 else KernelClass.POOLING, taps=taps)


def _reduction(use: Use) -> Kernel:
    return _moving(use, KernelClass.REDUCTION)


def _gather(use: Use) -> Kernel:
    """Return the kernel that takes some elements by index: it reads what it writes, not all that it could have taken."""
    kernel = _moving(use, KernelClass.GATHER)
    return replace(kernel, read=min(kernel.read, 2.0 * kernel.written))


def _generated(use: Use) -> Kernel:
    attrs = use.attrs
    name = str(attrs.get("kernel", ""))
    moved = attrs.get("bytes")
    read, written = _moved_bytes(use)
    if isinstance(moved, int | float):
        read = max(float(moved) - written, 0.0)
    reduces = "_red_" in name or "_per_" in name
    result = next(iter(_tensors(use.results)), None)
    kind = KernelClass.GENERATED_REDUCTION if reduces else KernelClass.GENERATED
    return Kernel(kind, m=float(_count(result)), n=1.0, read=read, written=written, bits=_bits(use), last=_is_last(result))


def _made(use: Use) -> Kernel:
    """Return the kernel of what makes elements of nothing; none where that is on the host."""
    return HOST_ONLY if str(use.attrs.get("device", "")) == "cpu" else _moving(use, KernelClass.JOIN)


_BY_FAMILY: Final[Mapping[Family, Callable[[Use], Kernel | None]]] = {
    Family.CONTRACTION: _contraction,
    Family.CONVOLUTION: _convolution_kernel,
    Family.ATTENTION: _attention,
    Family.ELEMENTWISE: _elementwise,
    Family.COMPARISON: _elementwise,
    Family.RANDOM: _elementwise,
    Family.QUANTIZATION: _elementwise,
    Family.VIEW: _move,
    Family.MOVE: _move,
    Family.CREATION: _made,
    Family.NORMALIZATION: _normalization,
    Family.SOFTMAX: lambda use: _in_order(use, _moving(use, KernelClass.SOFTMAX)),
    Family.REDUCTION: _reduction,
    Family.POOLING: _pooling,
    Family.INDEXING: _gather,
    Family.SORTING: lambda use: _moving(use, KernelClass.GATHER),
}
