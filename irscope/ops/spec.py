"""The record of one operator: everything irscope knows about it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from irscope.ir.dims import Dim
from irscope.ir.graph import Attr
from irscope.ir.types import TensorType, Type
from irscope.ops.call import Evaluate, Infer, OpCall
from irscope.ops.cost import Cost
from irscope.ops.ort import KERNELS, OrtKernel
from irscope.ops.schema import AliasMark, Schema, parse_schema
from irscope.ops.temporaries import Temporaries


class Family(enum.Enum):
    """What kind of work an operator does."""

    ELEMENTWISE = "elementwise"
    COMPARISON = "comparison"
    CONTRACTION = "contraction"
    CONVOLUTION = "convolution"
    POOLING = "pooling"
    NORMALIZATION = "normalization"
    REDUCTION = "reduction"
    SOFTMAX = "softmax"
    VIEW = "view"
    MOVE = "move"
    INDEXING = "indexing"
    CREATION = "creation"
    RANDOM = "random"
    ATTENTION = "attention"
    RECURRENT = "recurrent"
    QUANTIZATION = "quantization"
    SORTING = "sorting"
    CONTROL = "control"
    SEQUENCE = "sequence"
    SIGNAL = "signal"
    TEXT = "text"
    LEARNING = "learning"


class Absent(enum.Enum):
    """A rule that an operator knowingly does not have."""

    UNKNOWN = "unknown"
    """There is no rule: results count as unknown, never as zero."""
    CONTROL = "control"
    """The pass that walks the graph handles the operator's regions itself."""


CostRule: TypeAlias = Callable[[OpCall], Cost]
Lookup: TypeAlias = Callable[[OpCall], "bool | None"]


@dataclass(frozen=True, slots=True)
class AliasRule:
    """Result and operand that share storage: always, or (`may`) depending on the call."""

    result: int
    operand: int
    may: bool = False


@dataclass(frozen=True)
class OpSpec:
    """One operator. Build it with `op()` in a family's module."""

    schema: Schema
    family: Family
    infer: Infer | Absent
    """Types of the results from those of the operands."""
    cost: CostRule | Absent
    evaluate: Evaluate | None = None
    """Values of the results where those of the operands are known; only small tensors come here."""
    needs_values: bool = True
    """False where `evaluate` wants no more than the operands' types (shape queries, fills)."""
    shares: Lookup | None = None
    """Decides a `(a?)` mark for one call: True shares, False copies, None cannot be known."""
    has_effect: bool = False
    """The node matters even when nothing reads its results (asserts, prints, writes)."""
    random: bool = False
    """Two calls with equal operands may differ, so it is never folded."""
    summary: str = ""
    temporaries: Temporaries | None = None
    """What PyTorch's CUDA kernels take besides the results, in order; None: nothing."""
    ort: tuple[OrtKernel, ...] = ()
    """Kernels of ONNX Runtime that do something special with memory; for irscope's own operators those of irscope.ops.ort."""
    intermediates: Callable[[OpCall], Dim] | None = None
    """Bytes of the tensors that PyTorch's composite form of the operator makes and drops on any device; None: nothing."""
    operand_index: dict[str, int] = field(init=False)
    defaults: dict[str, Attr] = field(init=False)
    aliases: tuple[AliasRule, ...] = field(init=False)
    writes: tuple[int, ...] = field(init=False)
    """Operands that the operator writes whatever its in-place mark says (running statistics)."""

    def __post_init__(self) -> None:
        schema = self.schema
        set_ = object.__setattr__
        set_(self, "operand_index", {param.name: index for index, param in enumerate(schema.operands)})
        set_(self, "defaults", {param.name: param.default for param in schema.attrs if param.default is not None})
        set_(self, "ort", self.ort or KERNELS.get(schema.name, ()))
        set_(self, "writes", tuple(i for i, param in enumerate(schema.operands) if param.mark is AliasMark.WRITES))
        set_(
            self,
            "aliases",
            tuple(
                AliasRule(r, o, AliasMark.MAY in (result.mark, operand.mark))
                for r, result in enumerate(schema.results)
                for o, operand in enumerate(schema.operands)
                if result.alias and result.alias == operand.alias
            ),
        )

    def intermediate_bytes(self, call: OpCall) -> Dim:
        """Bytes of what the operator's composite form makes and drops inside one call, as PyTorch runs it on any device."""
        if self.intermediates is None or not call.source.startswith("aten::"):
            return 0
        tensors = [type_ for type_ in (*call.types, *call.results) if isinstance(type_, TensorType)]
        if not call.results or any(type_.shape is None for type_ in tensors) or not isinstance(call.results[0], TensorType):
            return 0
        return self.intermediates(call)

    @property
    def name(self) -> str:
        return self.schema.name

    def infer_types(self, call: OpCall) -> tuple[Type, ...]:
        """Types of the results by the operator's rule, always as a tuple."""
        if isinstance(self.infer, Absent):
            return tuple(call.results)
        found = self.infer(call)
        return (found,) if isinstance(found, Type) else tuple(found)

    def cost_of(self, call: OpCall) -> Cost | None:
        """The cost of one call, or None where something it depends on is unknown or the call contradicts itself."""
        if isinstance(self.cost, Absent):
            return None
        try:
            cost = self.cost(call)
        except Exception:  # operands of a model that contradicts itself have sizes that no rule expects
            return None
        read = cost.read if cost.read is not None else _traffic(call.types)
        written = cost.written if cost.written is not None else _traffic(call.results)
        return Cost(cost.matmul, cost.elementwise, cost.transcendental, cost.reduction, cost.move, cost.macs, cost.masked, read, written)


class UnknownCost(Exception):
    """Raised by a cost rule that lacks a size: the cost is unknown, not zero."""


def numel(type_: Type | None) -> Dim:
    """Elements of a tensor for a cost rule; raises UnknownCost where the rank is unknown."""
    count = None if type_ is None else type_.numel
    if count is None:
        raise UnknownCost
    return count


def sizes(type_: Type | None) -> tuple[Dim, ...]:
    """Shape of a tensor for a cost rule; raises UnknownCost where the rank is unknown."""
    shape = None if type_ is None else type_.shape
    if shape is None:
        raise UnknownCost
    return shape


def _traffic(types: Sequence[Type | None]) -> Dim | None:
    total: Dim = 0
    for type_ in types:
        size = 0 if type_ is None else type_.tensor_bytes
        if size is None:
            return None
        total = total + size
    return total


def op(
    schema: str,
    family: Family,
    *,
    infer: Infer | Absent,
    cost: CostRule | Absent,
    evaluate: Evaluate | None = None,
    needs_values: bool = True,
    shares: Lookup | None = None,
    has_effect: bool = False,
    random: bool = False,
    temporaries: Temporaries | None = None,
    intermediates: Callable[[OpCall], Dim] | None = None,
    ort: tuple[OrtKernel, ...] = (),
    summary: str,
) -> OpSpec:
    """Make an operator's record from its schema text and rules."""
    return OpSpec(
        parse_schema(schema),
        family,
        infer,
        cost,
        evaluate,
        needs_values,
        shares,
        has_effect,
        random,
        summary,
        temporaries,
        ort,
        intermediates,
    )
