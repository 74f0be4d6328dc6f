"""How the values of a sharded program are cut, and what devices have to exchange for it: from the arguments on, through every operator.

An axis is cut by axes of a mesh of devices. Operators that keep an axis keep its cut; a product that sums over a cut axis leaves partial
sums, which are added over the devices; what an operator mixes otherwise is whole on each device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from irscope.immutable import immutable
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.types import TensorType
from irscope.ops.facts import Control, OpRole
from irscope.ops.registry import control_of, find_op
from irscope.ops.spec import Family
from irscope.passes.inference.engine import Inferred

Cut: TypeAlias = tuple[tuple[str, ...], ...]
"""For each axis of a value the axes of the mesh that cut it."""


@immutable
class Exchange:
    """An exchange between devices at a node."""

    node: Node
    kind: str
    nbytes: int
    """Bytes of the value on one device."""
    devices: int
    """Devices of a group."""


class Sharding:
    """Cuts of all values of a graph."""

    def __init__(self, graph: Graph, types: Inferred, mesh: Mapping[str, int], given: Mapping[Value, Cut]) -> None:
        self._types, self._mesh = types, mesh
        self.cuts: dict[Value, Cut] = dict(given)
        self.exchanges: list[Exchange] = []
        self._run(graph)
        self.cuts.update({value: cut for value, cut in given.items() if value in graph.outputs})

    def parts(self, value: Value) -> int:
        """Into how many parts a value is cut."""
        count = 1
        for axes in self.cuts.get(value, ()):
            for axis in axes:
                count *= self._mesh.get(axis, 1)
        return count

    def _run(self, graph: Graph) -> None:
        for node in graph:
            if node.regions:
                self._inside(node)
            elif node.outputs and (found := self._cut_of(node)):
                for output in node.outputs:
                    self.cuts.setdefault(output, self._fitted(output, found))

    def _inside(self, node: Node) -> None:
        """Cut a loop's state as it was at first."""
        for region in node.regions:
            if control_of(node) is Control.LOOP:
                for argument, state in zip(region.inputs[2:], node.inputs[2:], strict=False):
                    if state is not None and state in self.cuts:
                        self.cuts[argument] = self.cuts[state]
            self._run(region)
        results = node.regions[0].outputs[1:] if control_of(node) is Control.LOOP else node.regions[0].outputs
        for output, result in zip(node.outputs, results, strict=False):
            if result in self.cuts:
                self.cuts[output] = self.cuts[result]

    def _shape(self, value: Value | None) -> tuple[object, ...]:
        type_ = self._types.type_of(value)
        return (type_.shape or ()) if isinstance(type_, TensorType) else ()

    def _fitted(self, value: Value, cut: Cut) -> Cut:
        """Return a cut of which every axis of the mesh is used once, and only for axes that there are."""
        seen: set[str] = set()
        made: list[tuple[str, ...]] = []
        for axes in cut[: len(self._shape(value))]:
            made.append(tuple(axis for axis in axes if axis not in seen))
            seen.update(axes)
        return tuple(made)

    def _of(self, value: Value | None) -> Cut:
        whole = ((),) * len(self._shape(value))
        cut = () if value is None else self.cuts.get(value, ())
        return (*cut, *whole[len(cut) :])[: len(whole)]

    def _cut_of(self, node: Node) -> Cut | None:
        spec = find_op(node.op)
        if spec is None or not node.inputs or not any(value in self.cuts for value in node.inputs if value is not None):
            return None
        first, rank = self._of(node.inputs[0]), len(self._shape(node.outputs[0]))
        axes = node.attrs.get("axes")
        if spec.family is Family.CONTRACTION:
            return self._product(node)
        if OpRole.TRANSPOSE in spec.roles:
            perm = node.attrs.get("perm")
            return tuple(first[axis] for axis in perm) if isinstance(perm, tuple) and len(perm) == len(first) else None
        if OpRole.SPREAD in spec.roles and isinstance(axes, tuple):
            into = {axis: place for place, axis in enumerate(axes)}
            return tuple(first[into[axis]] if axis in into and into[axis] < len(first) else () for axis in range(rank))
        if OpRole.RESHAPE in spec.roles:
            return self._reshaped(node, first)
        if spec.family is Family.REDUCTION and isinstance(axes, tuple):
            self._add(node, [axis for place in axes if place < len(first) for axis in first[place]])
            return tuple(axis for place, axis in enumerate(first) if place not in axes)
        if spec.family in (Family.ELEMENTWISE, Family.COMPARISON) or OpRole.CONVERT in spec.roles:
            cuts = [self._of(value) for value in node.inputs if len(self._shape(value)) == rank]
            return tuple(next((cut[axis] for cut in cuts if cut[axis]), ()) for axis in range(rank)) if cuts else None
        return None

    def _product(self, node: Node) -> Cut | None:
        a, b = (self._of(value) for value in node.inputs[:2])
        batch_a, batch_b, over_a, over_b = _product_axes(node, len(a), len(b))
        fits = {*over_a, *batch_a} <= set(range(len(a))) and {*over_b, *batch_b} <= set(range(len(b)))
        if not fits or len(over_a) != len(over_b) or len(batch_a) != len(batch_b):
            return None
        summed = [axis for left, right in zip(over_a, over_b, strict=True) for axis in (a[left] or b[right])]
        self._add(node, summed)
        batch = [a[left] or b[right] for left, right in zip(batch_a, batch_b, strict=True)]
        left = [axes for place, axes in enumerate(a) if place not in batch_a and place not in over_a]
        right = [axes for place, axes in enumerate(b) if place not in batch_b and place not in over_b]
        return tuple(tuple(axis for axis in axes if axis not in summed) for axes in (*batch, *left, *right))

    def _add(self, node: Node, axes: Sequence[str]) -> None:
        """Partial results are added over the devices along axes of the mesh."""
        devices = 1
        for axis in dict.fromkeys(axes):
            devices *= self._mesh.get(axis, 1)
        type_ = self._types.type_of(node.outputs[0])
        if devices > 1 and isinstance(type_, TensorType) and isinstance(type_.nbytes, int):
            self.exchanges.append(Exchange(node, "all-reduce", type_.nbytes, devices))

    def _reshaped(self, node: Node, first: Cut) -> Cut:
        """Axes that stay keep their cut; where several become one, or one several, the outermost has it."""
        old, new = self._shape(node.inputs[0]), self._shape(node.outputs[0])
        made: list[tuple[str, ...]] = [()] * len(new)
        at = to = 0
        while at < len(old) and to < len(new):
            made[to] = first[at] if at < len(first) else ()
            left, right = old[at], new[to]
            at, to = at + 1, to + 1
            while left != right and isinstance(left, int) and isinstance(right, int):
                if left < right and at < len(old) and isinstance(size := old[at], int):
                    left, at = left * size, at + 1
                elif right < left and to < len(new) and isinstance(size := new[to], int):
                    right, to = right * size, to + 1
                else:
                    return tuple(made)
        return tuple(made)


def _product_axes(node: Node, rank_a: int, rank_b: int) -> list[tuple[int, ...]]:
    """Batch axes and axes that are summed over, of both operands."""
    given = [node.attrs.get(name) for name in ("batch_a", "batch_b", "over_a", "over_b")]
    if any(given):
        return [tuple(axis for axis in one if isinstance(axis, int)) if isinstance(one, tuple) else () for one in given]
    batch = tuple(range(rank_b - 2)) if rank_a == rank_b else ()
    spec = find_op(node.op)
    is_linear = spec is not None and OpRole.LINEAR_LAYER in spec.roles
    return [batch, batch, (rank_a - 1,), (1 if is_linear else rank_b - 2,)]
