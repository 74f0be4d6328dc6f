"""What a model costs without the slices that can go: every node that gets smaller is counted again by its operator's rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from irscope.ir.dims import Dim, int_or_zero
from irscope.ir.graph import Attr, Node, Value
from irscope.ir.types import TensorType, Type
from irscope.ops.cost import Cost
from irscope.ops.registry import find_op
from irscope.ops.slices import Ids
from irscope.ops.spec import OpCall
from irscope.passes.cost.count import Costs
from irscope.passes.cost.entries import Entry
from irscope.passes.pruning.channels import Mask, Verdict
from irscope.passes.pruning.flow import Flow


@dataclass(frozen=True)
class Smaller:
    """A weight of which slices can go: by axis which ones, and the type that is left."""

    weight: Value
    going: tuple[Mask | None, ...]
    type: TensorType

    def count(self, axis: int) -> int:
        """Slices along an axis that go."""
        going = self.going[axis] if axis < len(self.going) else None
        return 0 if going is None else int(np.count_nonzero(going))


@dataclass
class Savings:
    """Weights and nodes that get smaller."""

    weights: list[Smaller] = field(default_factory=list)
    entries: dict[Node, tuple[Entry, Entry]] = field(default_factory=dict)
    """Nodes that cost less, before and after."""
    unknown: list[Node] = field(default_factory=list)
    """Nodes that get smaller, but whose cost is not known exactly."""

    def total(self, measure: str) -> Dim:
        """What is saved of FLOPs, bytes read or bytes written."""
        saved: Dim = 0
        for before, after in self.entries.values():
            saved = saved + _amount(before, measure) - _amount(after, measure)
        return saved

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that go."""
        return sum(int_or_zero(one.weight.type.nbytes) - int_or_zero(one.type.nbytes) for one in self.weights)


def _amount(entry: Entry, measure: str) -> Dim:
    found: Dim | None = getattr(entry.cost, measure)
    return 0 if found is None else found * entry.runs


def savings_of(flow: Flow, verdict: Verdict, costs: Costs, first_of: Mapping[Value, Value]) -> Savings:
    """Apply a verdict."""
    shrink = _Shrink(flow, verdict)
    found = Savings()
    for value in flow.found:
        type_ = shrink.type(value)
        if value.node is None and value not in first_of and type_ is not flow.types.type_of(value) and isinstance(type_, TensorType):
            slices = flow.found[value]
            found.weights.append(Smaller(value, tuple(None if ids is None else verdict.going(ids) for ids in slices.ids), type_))
    if not found.weights:
        return found
    for entry in costs.entries:
        node = entry.node
        operands = [None if value is None else shrink.type(value) for value in node.inputs]
        results = [shrink.type(value) for value in node.outputs]
        before = [*(None if value is None else flow.types.type_of(value) for value in node.inputs), *map(flow.types.type_of, node.outputs)]
        if all(one is other for one, other in zip(before, [*operands, *results], strict=True)):
            continue
        cost = None if entry.bounds is not None else _cost(flow, node, operands, results, shrink.attrs(node))
        if cost is None:
            found.unknown.append(node)
        else:
            found.entries[node] = (entry, replace(entry, cost=cost))
    return found


def _cost(flow: Flow, node: Node, operands: Sequence[Type | None], results: Sequence[Type], attrs: Mapping[str, Attr]) -> Cost | None:
    spec = find_op(node.op)
    known = [None if value is None else flow.types.values.get(value) for value in node.inputs]
    return None if spec is None else spec.cost_of(OpCall(spec, operands, attrs, known, results))


class _Shrink:
    """Types of values and attributes of nodes without the slices that go."""

    def __init__(self, flow: Flow, verdict: Verdict) -> None:
        self._flow = flow
        self._verdict = verdict
        self._types: dict[Value, Type] = {}

    def type(self, value: Value) -> Type:
        if value not in self._types:
            self._types[value] = self._made(value)
        return self._types[value]

    def _made(self, value: Value) -> Type:
        type_ = self._flow.types.type_of(value)
        slices = self._flow.found.get(value)
        if slices is None or type_.shape is None:
            return type_
        sizes = [size if ids is None else self._left(ids) for size, ids in zip(type_.shape, slices.ids, strict=True)]
        return type_ if tuple(sizes) == type_.shape else type_.with_shape(sizes)

    def _left(self, ids: Ids) -> int:
        return len(ids) - int(np.count_nonzero(self._verdict.going(ids)))

    def attrs(self, node: Node) -> Mapping[str, Attr]:
        """A grouped convolution is left with fewer groups."""
        groups = node.attrs.get("groups")
        slices = self._flow.found.get(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
        if not isinstance(groups, int) or groups <= 1 or slices is None or slices.rank < 2:
            return node.attrs
        ids = slices.ids[1]
        return node.attrs if ids is None else {**node.attrs, "groups": groups * self._left(ids) // len(ids)}
