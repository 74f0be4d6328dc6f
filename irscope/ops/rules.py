"""Pieces that the rules of many families share: operands, broadcasting, plain results, costs per element."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.ir.dims import Dim, SymDim, bounds, broadcast, equal, total_of
from irscope.ir.dtypes import DType
from irscope.ir.types import ScalarType, Shape, TensorType, Type, scalar, tensor
from irscope.ops.cost import FREE, Cost
from irscope.ops.spec import CostRule, Infer, OpCall, RuleError, UnknownCost, numel


def operands(call: OpCall) -> list[Type]:
    """Types of the operands that are there."""
    return [type_ for type_ in call.types if type_ is not None]


def dtype_attr(call: OpCall, default: DType, name: str = "dtype") -> DType:
    """The element type that an attribute names, or the default where it is not set."""
    found = call.attr(name)
    return found if isinstance(found, DType) else default


def device_of(types: Sequence[Type | None]) -> str:
    """Where a result of these operands is: tensors without axes count only where there is no other."""
    tensors = [type_ for type_ in types if isinstance(type_, TensorType)]
    chosen = next((type_ for type_ in tensors if type_.shape != ()), tensors[0] if tensors else None)
    return chosen.device if chosen is not None else ""


def broadcast_dim(call: OpCall, left: Dim, right: Dim) -> Dim:
    """The common size of two axes of which one may be stretched."""
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
    # A side that cannot be 1 stays, whatever the other one stretches from.
    return fixed_sides[0] if fixed_sides else broadcast(left, right)


def _may_be_one(dim: Dim) -> bool:
    low, high = bounds(dim)
    return (low is None or low <= 1) and (high is None or high >= 1)


def broadcast_shapes(call: OpCall, shapes: Sequence[Shape]) -> Shape:
    """The common shape of operands that broadcast; None where the rank of one is unknown."""
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
    """The type of a result whose operands broadcast: a plain number where all operands are."""
    if types and all(isinstance(type_, ScalarType) for type_ in types):
        return scalar(dtype)
    return tensor(dtype, broadcast_shapes(call, [shape_of(type_) for type_ in types]), device_of(types))


def with_dtype(type_: Type, dtype: DType) -> Type:
    """The same tensor or number with another element type; strides are not promised."""
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
    """An infer rule whose result depends on no operand."""
    return lambda call: tensor(dtype, shape, device_of(call.types))


def per_element(elementwise: int = 1, transcendental: int = 0) -> CostRule:
    """Cost rule of so many operations for each element of the first result."""

    def cost(call: OpCall) -> Cost:
        count = elements(call.results[0])
        return Cost(elementwise=count * elementwise, transcendental=count * transcendental)

    return cost


def per_input(*, elementwise: int = 0, transcendental: int = 0, reduction: int = 0) -> CostRule:
    """Cost rule of so many operations for each element of the first operand."""

    def cost(call: OpCall) -> Cost:
        count = elements(call.types[0])
        return Cost(elementwise=count * elementwise, transcendental=count * transcendental, reduction=count * reduction)

    return cost


def elements(type_: Type | None) -> Dim:
    """Elements of a tensor, one of a plain number; raises UnknownCost where the rank is unknown."""
    return 1 if isinstance(type_, ScalarType) else numel(type_)


def moved(call: OpCall) -> Cost:
    """Cost rule of what only moves data: every operand read, every result written."""
    return Cost()


def written_only(call: OpCall) -> Cost:
    """Cost rule of what only writes its results."""
    return Cost(read=0)


def free(call: OpCall) -> Cost:
    """Cost rule of what neither computes nor moves anything."""
    return FREE


def picked(call: OpCall) -> Cost:
    """Cost rule of what reads of its first operand only what the result holds, and the other operands whole."""
    return Cost(read=total_bytes([call.results[0], *call.types[1:]]))


def total_bytes(types: Sequence[Type | None]) -> Dim:
    """Bytes of all tensors among these types; raises UnknownCost where a size is unknown."""
    found = total_of(0 if type_ is None else type_.tensor_bytes for type_ in types)
    if found is None:
        raise UnknownCost
    return found
