"""What rules of several families share: results, element types, sizes and costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from irscope.ir.dims import Dim, SymDim, bounds, broadcast, dim_max, equal, total_of
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.graph import Attr
from irscope.ir.program import Relation
from irscope.ir.types import ScalarType, SequenceType, Shape, TensorType, Type, scalar, tensor
from irscope.ops.cost import FREE, Cost
from irscope.ops.spec import CostRule, Infer, Lists, OpCall, RuleError, UnknownCost, numel

# Pieces that the rules of many families share: operands, broadcasting, plain results, costs per element.


def operands(call: OpCall) -> list[Type]:
    """Return types of the operands that are there."""
    return [type_ for type_ in call.types if type_ is not None]


def dtype_attr(call: OpCall, default: DType, name: str = "dtype") -> DType:
    """Return the element type that an attribute names, or the default where it is not set."""
    found = call.attr(name)
    return found if isinstance(found, DType) else default


def device_of(types: Sequence[Type | None]) -> str:
    """Return where a result of these operands is: tensors without axes count only where there is no other."""
    tensors = [type_ for type_ in types if isinstance(type_, TensorType)]
    chosen = next((type_ for type_ in tensors if type_.shape != ()), tensors[0] if tensors else None)
    return chosen.device if chosen is not None else ""


def broadcast_dim(call: OpCall, left: Dim, right: Dim) -> Dim:
    """Return the common size of two axes of which one may be stretched."""
    if left == right or right == 1:
        return left
    if left == 1:
        return right
    fixed_sides = [dim for dim in (left, right) if not _may_be_one(dim)]
    if len(fixed_sides) == 2:
        if not isinstance(left, SymDim) and not isinstance(right, SymDim):
            raise RuleError(f"{call.spec.name}: sizes {left} and {right} do not broadcast")
        return call.same(left, right, "sizes that broadcast")
    if equal(left, right) is True:
        return left
    call.context.assume(left, right, f"{call.spec.name}: sizes that broadcast", Relation.BROADCAST)
    # A side that cannot be 1 stays, whatever the other one stretches from.
    return fixed_sides[0] if fixed_sides else broadcast(left, right)


def _may_be_one(dim: Dim) -> bool:
    low, high = bounds(dim)
    return (low is None or low <= 1) and (high is None or high >= 1)


def broadcast_shapes(call: OpCall, shapes: Sequence[Shape]) -> Shape:
    """Return the common shape of operands that broadcast; None where the rank of one is unknown."""
    result: tuple[Dim, ...] = ()
    for shape in shapes:
        if shape is None:
            return None
        rank = max(len(result), len(shape))
        left, right = (1,) * (rank - len(result)) + result, (1,) * (rank - len(shape)) + shape
        result = tuple(broadcast_dim(call, a, b) for a, b in zip(left, right, strict=True))
    return result


def shape_of(type_: Type) -> Shape:
    """Shape of an operand that may be a plain number."""
    if isinstance(type_, TensorType):
        return type_.shape
    if isinstance(type_, ScalarType):
        return ()
    raise RuleError(f"{type_} is neither a tensor nor a number")


def broadcast_type(call: OpCall, types: Sequence[Type], dtype: DType) -> Type:
    """Return the type of a result whose operands broadcast: a plain number where all operands are."""
    if types and all(isinstance(type_, ScalarType) for type_ in types):
        return scalar(dtype)
    return tensor(dtype, broadcast_shapes(call, [shape_of(type_) for type_ in types]), device_of(types))


def with_dtype(type_: Type, dtype: DType) -> Type:
    """Return the same tensor or number with another element type; strides are not promised."""
    if isinstance(type_, ScalarType):
        return scalar(dtype)
    return tensor(dtype, shape_of(type_), device_of([type_]))


def like_first(call: OpCall) -> Type:
    """Infer rule: the result has the first operand's shape and element type."""
    first = call.types[0]
    if not isinstance(first, TensorType | ScalarType):
        raise RuleError(f"the first operand of {call.spec.name} is {'absent' if first is None else first}, not a tensor")
    return with_dtype(first, first.dtype)


def fixed(dtype: DType, shape: Shape = ()) -> Infer:
    """Return an infer rule whose result depends on no operand."""
    return lambda call: tensor(dtype, shape, device_of(call.types))


def per_element(elementwise: int = 1, transcendental: int = 0) -> CostRule:
    """Return the cost rule of so many operations for each element of the first result."""

    def cost(call: OpCall) -> Cost:
        count = elements(call.results[0])
        return Cost(elementwise=count * elementwise, transcendental=count * transcendental)

    return cost


def per_input(*, elementwise: int = 0, transcendental: int = 0, reduction: int = 0) -> CostRule:
    """Return the cost rule of so many operations for each element of the first operand."""

    def cost(call: OpCall) -> Cost:
        count = elements(call.types[0])
        return Cost(elementwise=count * elementwise, transcendental=count * transcendental, reduction=count * reduction)

    return cost


def elements(type_: Type | None) -> Dim:
    """Return elements of a tensor, one of a plain number; raises UnknownCost where the rank is unknown."""
    return 1 if isinstance(type_, ScalarType) else numel(type_)


def moved(call: OpCall) -> Cost:
    """Return the cost rule of what only moves data: every operand read, every result written."""
    return Cost()


def written_only(call: OpCall) -> Cost:
    """Return the cost rule of what only writes its results."""
    return Cost(read=0)


def free(call: OpCall) -> Cost:
    """Return the cost rule of what neither computes nor moves anything."""
    return FREE


def picked(call: OpCall) -> Cost:
    """Return the cost rule of what reads of its first operand only what the result holds, and the other operands whole."""
    return Cost(read=total_bytes([call.results[0], *call.types[1:]]))


def total_bytes(types: Sequence[Type | None]) -> Dim:
    """Return bytes of all tensors among these types; raises UnknownCost where a size is unknown."""
    dim = total_of(0 if type_ is None else type_.tensor_bytes for type_ in types)
    if dim is None:
        raise UnknownCost
    return dim


# Which element type arithmetic on several operands gives: PyTorch's rules, which for equal types are everyone's.

DEFAULT_FLOAT = DType.F32

_RANK = {DTypeKind.BOOL: 0, DTypeKind.UINT: 1, DTypeKind.INT: 1, DTypeKind.FLOAT: 2, DTypeKind.COMPLEX: 3}
_SIGNED = {8: DType.I8, 16: DType.I16, 32: DType.I32, 64: DType.I64}


def promote_types(left: DType, right: DType) -> DType:
    """Return the smallest type that both fit in; UNKNOWN where frameworks disagree or refuse."""
    if left is right:
        return left
    if left.kind not in _RANK or right.kind not in _RANK:
        return DType.UNKNOWN
    low, high = sorted((left, right), key=lambda dtype: _RANK[dtype.kind])
    if _RANK[low.kind] < _RANK[high.kind]:
        return DType.C128 if low is DType.F64 and high is DType.C64 else high
    return _widest(low, high)


def _widest(left: DType, right: DType) -> DType:
    small, large = sorted((left, right), key=lambda dtype: dtype.bits or 0)
    small_bits, large_bits = small.bits or 0, large.bits or 0
    if small.is_float:
        if small_bits < 16:
            return DType.UNKNOWN
        return large if small_bits < large_bits else DType.F32
    if small.kind is large.kind or (large.kind is DTypeKind.INT and small_bits < large_bits):
        return large
    unsigned = small_bits if small.kind is DTypeKind.UINT else large_bits
    return _SIGNED.get(unsigned * 2, DType.UNKNOWN)


def scalar_dtype(value: Attr) -> DType:
    """Return the element type of a Python number."""
    if isinstance(value, bool):
        return DType.BOOL
    if isinstance(value, int | SymDim):
        return DType.I64
    if isinstance(value, complex):
        return DType.C64
    return DType.STR if isinstance(value, str) else DEFAULT_FLOAT


def result_dtype(operands: Iterable[Type], scalars: Sequence[Attr] = ()) -> DType:
    """Return the type of arithmetic on tensors and Python numbers.

    Tensors with axes come before tensors without, those before plain numbers: the later groups only matter where their
    kind (truth value, integer, float, complex) is higher.
    """
    types = list(operands)
    tensors = [type_ for type_ in types if isinstance(type_, TensorType)]
    if not tensors:
        return (
            _promote_all([*(type_.dtype for type_ in types if isinstance(type_, ScalarType)), *map(scalar_dtype, scalars)]) or DType.UNKNOWN
        )
    numbers = [_number_dtype(type_.dtype) for type_ in types if isinstance(type_, ScalarType)] + [scalar_dtype(value) for value in scalars]
    with_axes = [tensor.dtype for tensor in tensors if tensor.shape]
    without_axes = [tensor.dtype for tensor in tensors if tensor.shape == ()]
    either = [tensor.dtype for tensor in tensors if tensor.shape is None]
    answers = {
        _over(_promote_all([*with_axes, *first]), _over(_promote_all([*without_axes, *second]), _promote_all(numbers)))
        for first, second in ((either, []), ([], either))
    }
    answer = answers.pop()
    return answer if answer is not None and not answers else DType.UNKNOWN


def _number_dtype(dtype: DType) -> DType:
    return DEFAULT_FLOAT if dtype is DType.F64 else dtype


def _promote_all(dtypes: Sequence[DType]) -> DType | None:
    found: DType | None = None
    for dtype in dtypes:
        found = dtype if found is None else promote_types(found, dtype)
    return found


def _over(higher: DType | None, lower: DType | None) -> DType | None:
    """Return the type of a group of operands over that of a group that only counts by its kind."""
    if higher is None or lower is None:
        return higher if lower is None else lower
    if higher.kind not in _RANK or lower.kind not in _RANK:
        return higher if higher is lower else DType.UNKNOWN
    if _RANK[lower.kind] <= _RANK[higher.kind] and higher is not DType.BOOL:
        return higher
    if lower.kind is DTypeKind.COMPLEX and higher.is_float:
        return DType.C128 if higher is DType.F64 else DType.C64
    return promote_types(higher, lower)


def to_float(dtype: DType) -> DType:
    """Return the type of a function with fractional results: integers and truth values become the default float."""
    return DEFAULT_FLOAT if dtype.is_integer or dtype is DType.BOOL else dtype


# Sizes that come as values of operands: what they say, and what is left where they are unknown.

MOST_AXES = 64
MOST_COMBINED = 8
"""Tensors of up to so many axes are looked at with every choice of axes, where the choice is not known."""


def length_of(call: OpCall, name: str) -> int | None:
    """Return how many numbers a list holds, even where their values are unknown."""
    known = call.dims(name)
    if known is not None:
        return len(known)
    operand = call.maybe(name) if name in call.spec.operand_index else None
    if operand is None or operand.shape is None or len(operand.shape) > 1:
        return None
    count = operand.shape[0] if operand.shape else 1
    return None if isinstance(count, SymDim) else count


def check_rank(call: OpCall, count: int) -> None:
    """Refuse a number of axes that no tensor has: a list of sizes that is as long is damaged."""
    if count > MOST_AXES:
        raise RuleError(f"{call.spec.name}: a tensor cannot have {count} axes")


def unknown_sizes(call: OpCall, name: str, count: int | None) -> Shape:
    """Return sizes that depend on the values of an operand; None where even their number is unknown."""
    if count is None:
        call.context.explain(f"the number of axes depends on operand {name!r}", name)
        return None
    check_rank(call, count)
    return tuple(call.unknown(f"it depends on the values of operand {name!r}", name) for _ in range(count))


def as_size(call: OpCall, dim: Dim, name: str, *, special: bool = False) -> Dim:
    """Return a given number as a size; `special` says that a negative one has a meaning of its own, so that a symbol says little."""
    if isinstance(dim, float):
        if dim != int(dim):
            raise RuleError(f"{name!r} of {call.spec.name} holds {dim}, not a whole number")
        dim = int(dim)
    low = bounds(dim)[0]
    if low is not None and low >= 0:
        return dim
    if isinstance(dim, SymDim):
        if special and dim not in call.context.sizes:
            return call.unknown(f"it depends on the values of operand {name!r}", name)
        return at_least(call, 0, dim)
    raise RuleError(f"{name!r} of {call.spec.name} holds the negative size {dim}")


def at_least(call: OpCall, low: Dim, dim: Dim) -> Dim:
    """Return the larger of two numbers; a size of an axis is never below 0."""
    return dim if not isinstance(low, SymDim) and low <= 0 and dim in call.context.sizes else dim_max(low, dim)


def given_shape(call: OpCall, name: str = "shape") -> Shape:
    """Return a result's shape that is given as a list of sizes."""
    known = call.dims(name)
    if known is None:
        return unknown_sizes(call, name, length_of(call, name))
    check_rank(call, len(known))
    return tuple(as_size(call, dim, name) for dim in known)


def given_axes(call: OpCall, name: str, rank: int) -> tuple[int, ...] | None:
    """Return axes counted from the front; None where they are not given or not known."""
    known = call.ints(name)
    if known is None:
        return None
    axes = tuple(call.axis(axis, rank) for axis in known)
    if len(set(axes)) < len(axes):
        raise RuleError(f"{call.spec.name}: axes {list(known)} name one axis twice")
    return axes


def any_of(call: OpCall, name: str, shapes: Sequence[Sequence[Dim]]) -> Shape:
    """Return a shape that is one of several of one rank, by the values of an operand: what they agree on is known."""
    if not shapes:
        raise RuleError(f"{call.spec.name}: no values of {name!r} fit the operand's shape")
    return tuple(_any_size(call, name, sizes) for sizes in zip(*shapes, strict=True))


def _any_size(call: OpCall, name: str, sizes: Sequence[Dim]) -> Dim:
    chosen = sorted(set(sizes), key=str)
    if len(chosen) == 1:
        return chosen[0]
    lows = [bounds(size)[0] for size in chosen]
    least = min(low for low in lows if low is not None) if None not in lows else 0
    among = " or ".join(str(size) for size in chosen[:4])
    return call.unknown(f"it is {among}, by the values of operand {name!r}", name, least, dim_max(*chosen))


def axis_attr(call: OpCall, rank: int, name: str = "axis") -> int:
    """Return a single axis counted from the front; tensors without axes pass as if they had one."""
    return call.axis(call.int_attr(name), max(rank, 1))


def replaced(shape: Sequence[Dim], axis: int, *sizes: Dim) -> tuple[Dim, ...]:
    """Return the shape with one axis replaced by any number of sizes."""
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


# What the rules of arithmetic-heavy families share: results like an operand, checks of sizes, costs of products.


def like(name: str, dtype: DType | None = None) -> Infer:
    """Return a rule: the result has the sizes of an operand, and its element type unless another is given."""

    def infer(call: OpCall) -> TensorType:
        source = call.tensor(name)
        return tensor(dtype or source.dtype, source.shape, source.device)

    return infer


def sized(call: OpCall, name: str, rank: int) -> tuple[Dim, ...] | None:
    """Return sizes of an operand that must have this many axes; None where its rank is unknown or it is absent."""
    found = call.maybe(name)
    if found is None or found.shape is None:
        return None
    if len(found.shape) != rank:
        raise RuleError(f"{call.spec.name}: {name} has {len(found.shape)} axes, not {rank}")
    return found.shape


def joint_sizes(call: OpCall, *shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return sizes that all of these broadcast to."""
    rank = max(map(len, shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            result[axis] = broadcast_dim(call, result[axis], dim)
    return tuple(result)


def products(macs: Dim, elementwise: Dim = 0) -> Cost:
    """Return the cost of multiply-adds in a matrix product or convolution, and of what follows on its elements."""
    return Cost(matmul=macs * 2, macs=macs, elementwise=elementwise)


def softmax_work(count: Dim) -> Cost:
    """Softmax over `count` elements: subtract the maximum, exp, sum, divide."""
    return Cost(elementwise=count * 2, transcendental=count, reduction=count * 2)


def handed_on(lists: Lists) -> None:
    """Rule for lists: the result is the operand."""
    if isinstance(lists.call.results[0], SequenceType):
        lists.is_operand()


def normalizing(count: Dim, groups: Dim, affine: int, centred: bool = True) -> Cost:
    """Cost of normalizing `count` elements in groups: sums, squares, one root a group, scale, and `affine` operations an element."""
    return Cost(reduction=count * (2 if centred else 1), elementwise=count * ((3 if centred else 2) + affine), transcendental=groups)


def slice_axes(call: OpCall, rank: int) -> tuple[int, ...] | None:
    """Return the axes that a slice cuts; None where they are not known."""
    if call.given("axes"):
        return given_axes(call, "axes", rank)
    count = length_of(call, "starts")
    return None if count is None else tuple(range(count))


def python_slices(call: OpCall, shape: Sequence[int]) -> tuple[slice, ...] | None:
    """Return the slice as Python takes it, None where a limit is not a plain number."""
    axes = slice_axes(call, len(shape))
    starts, ends = call.ints("starts"), call.ints("ends")
    steps = call.ints("steps") if call.given("steps") else (1,) * len(axes or ())
    if axes is None or starts is None or ends is None or steps is None:
        return None
    parts = [slice(None)] * len(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        # Python starts before the first position where ONNX starts at it.
        parts[axis] = slice(0 if step < 0 and start < -shape[axis] else start, end, step)
    return tuple(parts)
