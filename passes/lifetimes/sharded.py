"""How the values of a sharded program are cut, and what devices have to exchange for it: from the arguments on, through every operator.

An axis is cut by axes of a mesh of devices. Operators that keep an axis keep its cut; a product that sums over a cut axis leaves partial
sums, which are added over the devices; an operand whose cut the result cannot have is gathered before; what an operator mixes otherwise
is whole on each device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from irscope.immutable import immutable
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.types import TensorType
from irscope.ops.facts import Control, OpRole
from irscope.ops.registry import control_of, spec_of
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
    """Bytes that one device has of it afterwards."""
    devices: int
    """Devices of a group."""


class Sharding:
    """Cuts of all values of a graph."""

    def __init__(self, graph: Graph, types: Inferred, mesh: Mapping[str, int], given: Mapping[Value, Cut]) -> None:
        self._types, self._mesh = types, mesh
        self.cuts: dict[Value, Cut] = {value: cut for value, cut in given.items() if value not in graph.outputs or value.node is None}
        self.exchanges: list[Exchange] = []
        self.partial: dict[Node, frozenset[str]] = {}
        """Nodes that leave partial sums, which are added along these axes of the mesh into another buffer."""
        self.gathered: dict[Node, dict[int, int]] = {}
        """Bytes of operands of products that are gathered from all devices before, by their places."""
        self._whole: set[tuple[Value, frozenset[str]]] = set()
        self.shared: dict[Value, int] = {}
        """Bytes that a device has of results of which it made more: sums over the devices that cut them."""
        self._run(graph)
        for value, cut in ((value, given[value]) for value in graph.outputs if value in given):
            made, self.cuts[value] = self.cuts.get(value, ()), cut
            if value.node in self.partial and not self.partial[value.node].isdisjoint(axis for axes in cut for axis in axes):
                self.shared[value], self.cuts[value] = self._bytes(value), made

    def parts(self, value: Value) -> int:
        """Into how many parts a value is cut."""
        return self._devices(axis for axes in self.cuts.get(value, ()) for axis in axes)

    def _devices(self, axes: Iterable[str]) -> int:
        return math.prod(self._mesh.get(axis, 1) for axis in axes)

    def _run(self, graph: Graph) -> None:
        for node in graph:
            devices = node.attrs.get("devices")
            if isinstance(devices, int) and devices > 1:
                self._exchange(node, node.op.rpartition(".")[2].replace("_", "-"), node.outputs, devices)
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
        spec = spec_of(node)
        if spec is None or not node.inputs or not any(value in self.cuts for value in node.inputs if value is not None):
            return None
        first, rank = self._of(node.inputs[0]), len(self._shape(node.outputs[0]))
        axes = node.attrs.get("axes")
        if spec.family is Family.CONTRACTION:
            return self._product(node)
        if spec.family is Family.CONVOLUTION:
            return self._convolved(node)
        if OpRole.LOOKUP in spec.roles:
            return self._looked_up(node, first)
        if OpRole.TRANSPOSE in spec.roles:
            perm = node.attrs.get("perm")
            return tuple(first[axis] for axis in perm) if isinstance(perm, tuple) and len(perm) == len(first) else None
        if OpRole.SPREAD in spec.roles and isinstance(axes, tuple):
            into = {axis: place for place, axis in enumerate(axes)}
            return tuple(first[into[axis]] if axis in into and into[axis] < len(first) else () for axis in range(rank))
        if OpRole.RESHAPE in spec.roles:
            return self._reshaped(node, first)
        if spec.family is Family.REDUCTION and isinstance(axes, tuple):
            kept = tuple(axis for place, axis in enumerate(first) if place not in axes)
            self._add(node, [axis for place in axes if place < len(first) for axis in first[place]], kept)
            return kept
        if spec.family in (Family.ELEMENTWISE, Family.COMPARISON) or OpRole.CONVERT in spec.roles:
            cuts = [self._of(value) for value in node.inputs if len(self._shape(value)) == rank]
            return tuple(next((cut[axis] for cut in cuts if cut[axis]), ()) for axis in range(rank)) if cuts else None
        if spec.family in (Family.MOVE, Family.VIEW) and rank == len(first):
            sizes = zip(first, self._shape(node.inputs[0]), self._shape(node.outputs[0]), strict=True)
            return tuple(cut if before == after else () for cut, before, after in sizes)
        return None

    def _product(self, node: Node) -> Cut | None:
        a, b = (self._of(value) for value in node.inputs[:2])
        batch_a, batch_b, over_a, over_b = _product_axes(node, len(a), len(b))
        fits = {*over_a, *batch_a} <= set(range(len(a))) and {*over_b, *batch_b} <= set(range(len(b)))
        if not fits or len(over_a) != len(over_b) or len(batch_a) != len(batch_b):
            return None
        batch = [a[left] or b[right] for left, right in zip(batch_a, batch_b, strict=True)]
        left = [*batch, *(axes for place, axes in enumerate(a) if place not in batch_a and place not in over_a)]
        right = [axes for place, axes in enumerate(b) if place not in batch_b and place not in over_b]
        return self._contracted(node, left, right, [(a[left], b[right]) for left, right in zip(over_a, over_b, strict=True)])

    def _convolved(self, node: Node) -> Cut | None:
        """Return the cut of batch and channels; a cut of space is left out."""
        axes = [node.attrs.get(name) for name in ("axes_x", "axes_w", "axes_y")]
        of = [self._of(value) for value in node.inputs[:2]]
        ranks = (*map(len, of), len(self._shape(node.outputs[0])))
        at = [one[:2] for one, rank in zip(axes, ranks, strict=True) if isinstance(one, tuple) and {*one} == {*range(rank)}]
        if len(at) < 3 or ranks[2] < 2:
            return None
        (x, channels), (made, read) = ([cut[place] for place in pair] for cut, pair in zip(of, at[:2], strict=True))
        cut = self._contracted(node, [x], [made], [(channels, read)])
        return tuple(cut[at[2].index(place)] if place in at[2] else () for place in range(ranks[2]))

    def _looked_up(self, node: Node, table: Cut) -> Cut | None:
        """Return the cut of what is looked up: rows of a table whose rows devices share are added, as one device alone has each."""
        offsets, collapsed, vector = (node.attrs.get(name) for name in ("offsets", "collapsed", "vector_axis"))
        if not isinstance(offsets, tuple) or not isinstance(collapsed, tuple) or len(node.inputs) < 2:
            return None
        shape, sizes, outer = self._shape(node.inputs[0]), node.attrs.get("sizes"), self._of(node.inputs[1])
        sizes = sizes if isinstance(sizes, tuple) and len(sizes) == len(table) else shape
        inner = iter([axes if sizes[place] == shape[place] else () for place, axes in enumerate(table) if place not in collapsed])
        places = iter([axes for place, axes in enumerate(outer) if place != vector])
        cut = tuple(next(inner if place in offsets else places, ()) for place in range(len(self._shape(node.outputs[0]))))
        self._add(node, [axis for place in collapsed if isinstance(place, int) for axes in table[place : place + 1] for axis in axes], cut)
        return cut

    def _contracted(
        self, node: Node, left: Sequence[tuple[str, ...]], right: Sequence[tuple[str, ...]], over: Iterable[tuple[tuple[str, ...], ...]]
    ) -> Cut:
        """Return the cut of what is added up over cut axes of two operands, and note what is gathered before and added after."""
        taken, others = ({axis for axes in cut for axis in axes} for cut in (left, right))
        summed: list[str] = []
        for pair in over:
            for operand, axes in enumerate(pair):
                if axes and not (taken | others).isdisjoint(axes):  # they cut the result already
                    self._gather(node, operand, axes)
                else:
                    summed.extend(axes)
        if taken & others:
            self._gather(node, 1, tuple(taken & others))
        cut = (*left, *right)
        self._add(node, summed, cut)
        return cut

    def _add(self, node: Node, axes: Sequence[str], cut: Cut) -> None:
        """Partial results are added over the devices along axes of the mesh."""
        devices = self._devices(dict.fromkeys(axes))
        if devices > 1:
            self.partial[node] = frozenset(axes)
            self.cuts.setdefault(node.outputs[0], self._fitted(node.outputs[0], cut))
            self._exchange(node, "all-reduce", node.outputs[:1], devices)

    def _gather(self, node: Node, place: int, axes: tuple[str, ...]) -> None:
        """Bring the parts of an operand along axes of the mesh together, once for all that read it so."""
        value, devices = node.inputs[place], self._devices(axes)
        if value is None or devices == 1:
            return
        self.gathered.setdefault(node, {})[place] = self._bytes(value) * devices
        if (value, frozenset(axes)) not in self._whole:
            self._whole.add((value, frozenset(axes)))
            self.exchanges.append(Exchange(node, "all-gather", self._bytes(value) * devices, devices))

    def _exchange(self, node: Node, kind: str, values: Iterable[Value], devices: int) -> None:
        self.exchanges.append(Exchange(node, kind, sum(map(self._bytes, values)), devices))

    def _bytes(self, value: Value) -> int:
        """Return the bytes of a value on one device; 0 where they are not known."""
        type_ = self._types.type_of(value)
        known = type_.nbytes if isinstance(type_, TensorType) else 0
        return -(-known // self.parts(value)) if isinstance(known, int) else 0

    def _reshaped(self, node: Node, first: Cut) -> Cut:
        """Axes that stay keep their cut; where several become one, or one several, the outermost has it."""
        old, new = self._shape(node.inputs[0]), self._shape(node.outputs[0])
        made: list[tuple[str, ...]] = [()] * len(new)
        at = to = 0
        while at < len(old) and to < len(new):
            if old[at] != new[to] and 1 in (old[at], new[to]):
                at, to = at + (old[at] == 1), to + (new[to] == 1)
                continue
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
    spec = spec_of(node)
    is_linear = spec is not None and OpRole.LINEAR_LAYER in spec.roles
    return [batch, batch, (rank_a - 1,), (1 if is_linear else rank_b - 2,)]
