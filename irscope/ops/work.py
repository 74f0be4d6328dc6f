"""What the rules of arithmetic-heavy families share: results like an operand, checks of sizes, costs of products."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.ir.dims import Dim
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor
from irscope.ops.cost import Cost
from irscope.ops.rules import broadcast_dim
from irscope.ops.spec import Infer, OpCall, RuleError


def like(name: str, dtype: DType | None = None) -> Infer:
    """A rule: the result has the sizes of an operand, and its element type unless another is given."""

    def infer(call: OpCall) -> TensorType:
        source = call.tensor(name)
        return tensor(dtype or source.dtype, source.shape, source.device)

    return infer


def sized(call: OpCall, name: str, rank: int) -> tuple[Dim, ...] | None:
    """Sizes of an operand that must have this many axes; None where its rank is unknown or it is absent."""
    found = call.maybe(name)
    if found is None or found.shape is None:
        return None
    if len(found.shape) != rank:
        raise RuleError(f"{call.spec.name}: {name} has {len(found.shape)} axes, not {rank}")
    return found.shape


def joint_sizes(call: OpCall, *shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Sizes that all of these broadcast to."""
    rank = max(map(len, shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            result[axis] = broadcast_dim(call, result[axis], dim)
    return tuple(result)


def products(macs: Dim, elementwise: Dim = 0) -> Cost:
    """The cost of multiply-adds in a matrix product or convolution, and of what follows on its elements."""
    return Cost(matmul=macs * 2, macs=macs, elementwise=elementwise)


def softmax_work(count: Dim) -> Cost:
    """Softmax over `count` elements: subtract the maximum, exp, sum, divide."""
    return Cost(elementwise=count * 2, transcendental=count, reduction=count * 2)
