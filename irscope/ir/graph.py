"""The dataflow graph: values, nodes in program order, regions. Every change goes through `Graph`."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from irscope.ir.payload import Payload
from irscope.ir.places import Loc, Scope, root_scope
from irscope.ir.types import Type

Attr: TypeAlias = Any
"""None, bool, int, float, complex, str, a Dim, a DType, a Type, or a (nested) tuple of these."""

NO_ATTRS: Mapping[str, Attr] = MappingProxyType({})
_ORDER_STRIDE = 16


class Role(enum.Enum):
    """What a value is to the model."""

    INPUT = "input"
    PARAMETER = "param"
    BUFFER = "buffer"
    CONSTANT = "const"
    ARGUMENT = "arg"
    """An argument of a region: a loop's state, a scan's slice."""
    TEMPORARY = "temp"
    """The result of a node."""


class Facet(enum.IntEnum):
    """The sides of a graph that change apart from one another; analyses name those they read."""

    TOPOLOGY = 0
    TYPES = 1
    """Types of node results."""
    DECLARED = 2
    """Types of what graphs declare: inputs, weights, region arguments."""
    ATTRS = 3
    NAMES = 4


class Value:
    """One input, weight, region argument or node result."""

    __slots__ = ("declared_in", "index", "name", "node", "role", "type", "users")

    def __init__(self, type_: Type, role: Role, node: Node | None, index: int, name: str | None, declared_in: Graph | None) -> None:
        self.type = type_
        self.role = role
        self.node = node
        """The producing node; None for what a graph declares."""
        self.index = index
        """Position among the producer's outputs, or the declaring graph's inputs or weights."""
        self.name = name
        self.declared_in = declared_in
        self.users: dict[Node | Graph, int] | None = None
        """Nodes that read it, and graphs that return it, with the number of times each does."""

    @property
    def graph(self) -> Graph | None:
        """The graph (or region) in which the value is defined; None once it was erased."""
        return self.declared_in if self.node is None else self.node.graph

    def __repr__(self) -> str:
        return f"<Value %{self.name if self.name is not None else '?'}: {self.type}>"


class Node:
    """One operation. Read its fields freely; change them through its `Graph`."""

    __slots__ = ("attrs", "graph", "inputs", "loc", "next", "op", "order", "outputs", "prev", "regions", "scope", "source")

    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Attr]
    regions: tuple[Graph, ...]
    scope: Scope
    loc: Loc | None
    source: str
    graph: Graph | None
    prev: Node | None
    next: Node | None
    order: int

    @property
    def name(self) -> str:
        """How people refer to the node: the name of its first named output, else its operator."""
        for output in self.outputs:
            if output.name is not None:
                return output.name
        return self.op

    def is_before(self, other: Node) -> bool:
        """Whether this node runs before `other` of the same graph."""
        return self.order < other.order

    def __repr__(self) -> str:
        return f"<Node {self.name} = {self.op}>"


class Graph:
    """Nodes in program order between inputs and outputs. Also the body of a region or function."""

    __slots__ = (
        "_last",
        "_size",
        "cached_index",
        "data",
        "first",
        "inputs",
        "name",
        "outputs",
        "owner",
        "scope",
        "trainable",
        "versions",
        "weights",
    )

    def __init__(
        self, name: str = "main", *, owner: Node | None = None, scope: Scope | None = None, versions: list[int] | None = None
    ) -> None:
        self.name = name
        self.owner = owner
        """The node whose region this is; None for a model's main graph and for functions."""
        self.scope = scope if scope is not None else root_scope()
        """Scope given to nodes that name none."""
        self.inputs: list[Value] = []
        self.weights: list[Value] = []
        """Parameters, buffers and constants, in the order in which the model declares them."""
        self.data: dict[Value, Payload] = {}
        """Where the values of weights are; a weight without an entry has values nobody knows."""
        self.trainable: dict[Value, bool] = {}
        """Whether a weight takes gradients, where the model's file says so."""
        self.outputs: tuple[Value, ...] = ()
        self.versions: list[int] = versions if versions is not None else [0] * len(Facet)
        """Counters by facet, shared by a graph and all its regions."""
        self.first: Node | None = None
        self.cached_index: tuple[int, object] | None = None
        """Columns of this graph with the version of its topology they were made for; see irscope.ir.index."""
        self._last: Node | None = None
        self._size = 0

    def __len__(self) -> int:
        """Nodes of this level, without those inside regions."""
        return self._size

    def __iter__(self) -> Iterator[Node]:
        """Nodes of this level in order; the current node may be erased while iterating."""
        node = self.first
        while node is not None:
            following = node.next
            yield node
            node = following

    def walk(self) -> Iterator[Node]:
        """Every node, entering the regions of a node right after it; the current node may be erased."""
        pending: list[Node] = []
        node = self.first
        while True:
            while node is not None:
                following = node.next
                yield node
                regions = node.regions if node.graph is not None else ()
                if regions:
                    if following is not None:
                        pending.append(following)
                    pending.extend(region.first for region in reversed(regions) if region.first is not None)
                    break
                node = following
            if not pending:
                return
            node = pending.pop()

    def graphs(self) -> Iterator[Graph]:
        """This graph and every region inside it, outer before inner."""
        yield self
        for node in self.walk():
            yield from node.regions

    @property
    def last(self) -> Node | None:
        return self._last

    def _bump(self, facet: Facet) -> None:
        self.versions[facet] += 1

    # -- declaring ---------------------------------------------------------------------------------------------

    def add_input(self, type_: Type, name: str | None = None) -> Value:
        """Declare the next input (of a region: the next argument)."""
        role = Role.INPUT if self.owner is None else Role.ARGUMENT
        value = Value(type_, role, None, len(self.inputs), name, self)
        self.inputs.append(value)
        self._bump(Facet.TOPOLOGY)
        return value

    def add_weight(self, type_: Type, name: str | None = None, role: Role = Role.PARAMETER, data: Payload | None = None) -> Value:
        """Declare a parameter, buffer or constant."""
        value = Value(type_, role, None, len(self.weights), name, self)
        self.weights.append(value)
        if data is not None:
            self.data[value] = data
        self._bump(Facet.TOPOLOGY)
        return value

    def remove_weight(self, value: Value) -> None:
        """Take back a weight that nothing reads."""
        if value.users:
            raise ValueError(f"{value!r} still has users")
        self.weights.remove(value)
        self.data.pop(value, None)
        self.trainable.pop(value, None)
        for index, weight in enumerate(self.weights):
            weight.index = index
        value.declared_in = None
        self._bump(Facet.TOPOLOGY)

    def set_outputs(self, values: Iterable[Value]) -> None:
        """Declare what the graph returns (of a region: what it yields)."""
        for value in self.outputs:
            _drop_user(value, self)
        self.outputs = tuple(values)
        for value in self.outputs:
            _add_user(value, self)
        self._bump(Facet.TOPOLOGY)

    # -- nodes -------------------------------------------------------------------------------------------------

    def append(
        self,
        op: str,
        inputs: Sequence[Value | None] = (),
        types: Sequence[Type] = (),
        attrs: Mapping[str, Attr] | None = None,
        *,
        names: Sequence[str | None] | None = None,
        scope: Scope | None = None,
        loc: Loc | None = None,
        source: str = "",
    ) -> Node:
        """Add a node at the end; it has one output per type."""
        node = self._make(op, inputs, types, attrs, names, scope, loc, source)
        last = self._last
        node.prev = last
        if last is None:
            self.first = node
            node.order = 0
        else:
            last.next = node
            node.order = last.order + _ORDER_STRIDE
        self._last = node
        self._size += 1
        self.versions[Facet.TOPOLOGY] += 1
        return node

    def insert_before(
        self,
        anchor: Node,
        op: str,
        inputs: Sequence[Value | None] = (),
        types: Sequence[Type] = (),
        attrs: Mapping[str, Attr] | None = None,
        *,
        names: Sequence[str | None] | None = None,
        scope: Scope | None = None,
        loc: Loc | None = None,
        source: str = "",
    ) -> Node:
        """Add a node right before `anchor`, a node of this graph."""
        self._check_own(anchor)
        node = self._make(op, inputs, types, attrs, names, scope, loc, source)
        self._link_before(anchor, node)
        self._size += 1
        self._bump(Facet.TOPOLOGY)
        return node

    def _make(
        self,
        op: str,
        inputs: Sequence[Value | None],
        types: Sequence[Type],
        attrs: Mapping[str, Attr] | None,
        names: Sequence[str | None] | None,
        scope: Scope | None,
        loc: Loc | None,
        source: str,
    ) -> Node:
        node = Node()
        node.op = sys.intern(op)
        node.inputs = inputs = tuple(inputs)
        node.attrs = attrs if attrs else NO_ATTRS
        node.regions = ()
        node.scope = self.scope if scope is None else scope
        node.loc = loc
        node.source = source
        node.graph = self
        node.prev = node.next = None
        if names is None:
            node.outputs = tuple([Value(type_, Role.TEMPORARY, node, i, None, None) for i, type_ in enumerate(types)])
        else:
            node.outputs = tuple([Value(type_, Role.TEMPORARY, node, i, names[i], None) for i, type_ in enumerate(types)])
        for value in inputs:
            if value is not None:
                users = value.users
                if users is None:
                    value.users = {node: 1}
                else:
                    users[node] = users.get(node, 0) + 1
        return node

    def _check_own(self, node: Node) -> None:
        if node.graph is not self:
            raise ValueError(f"{node!r} is not a node of graph {self.name}")

    def _link_before(self, anchor: Node, node: Node) -> None:
        before = anchor.prev
        node.prev, node.next, anchor.prev = before, anchor, node
        if before is None:
            self.first = node
        else:
            before.next = node
        low = before.order if before is not None else anchor.order - 2 * _ORDER_STRIDE
        node.order = (low + anchor.order) // 2
        if node.order <= low:
            self._renumber()

    def _unlink(self, node: Node) -> None:
        if node.prev is None:
            self.first = node.next
        else:
            node.prev.next = node.next
        if node.next is None:
            self._last = node.prev
        else:
            node.next.prev = node.prev
        node.prev = node.next = None

    def _renumber(self) -> None:
        for position, node in enumerate(self):
            node.order = position * _ORDER_STRIDE

    def add_region(self, node: Node, name: str) -> Graph:
        """Give `node` another region; values of the surrounding graphs may be used inside it."""
        region = Graph(name, owner=node, scope=node.scope, versions=self.versions)
        node.regions = (*node.regions, region)
        self._bump(Facet.TOPOLOGY)
        return region

    def erase(self, node: Node) -> None:
        """Remove a node whose outputs nothing reads, with its regions."""
        self._check_own(node)
        for output in node.outputs:
            if output.users:
                raise ValueError(f"{output!r} still has users")
        for region in node.regions:
            for inner in region.walk():
                _forget_inputs(inner)
            for body in (region, *(g for inner in region.walk() for g in inner.regions)):
                for value in body.outputs:
                    _drop_user(value, body)
        _forget_inputs(node)
        self._unlink(node)
        node.graph = None
        self._size -= 1
        self._bump(Facet.TOPOLOGY)

    def move_before(self, node: Node, anchor: Node) -> None:
        """Put `node` right before `anchor`; the caller answers for the order of uses."""
        self._check_own(node)
        self._check_own(anchor)
        if node is anchor:
            return
        self._unlink(node)
        self._link_before(anchor, node)
        self._bump(Facet.TOPOLOGY)

    def reorder(self, nodes: Sequence[Node]) -> None:
        """Set the order of all nodes of this level."""
        if len(nodes) != self._size or len(set(nodes)) != self._size or any(node.graph is not self for node in nodes):
            raise ValueError(f"the new order of {self.name} must hold each of its {self._size} nodes once")
        previous: Node | None = None
        for position, node in enumerate(nodes):
            node.prev, node.next, node.order = previous, None, position * _ORDER_STRIDE
            if previous is None:
                self.first = node
            else:
                previous.next = node
            previous = node
        self._last = previous
        self._bump(Facet.TOPOLOGY)

    # -- changing what nodes say -------------------------------------------------------------------------------

    def set_input(self, node: Node, index: int, value: Value | None) -> None:
        """Make `node` read `value` (None: nothing) at that position."""
        old = node.inputs[index]
        if old is value:
            return
        node.inputs = (*node.inputs[:index], value, *node.inputs[index + 1 :])
        if old is not None:
            _drop_user(old, node)
        if value is not None:
            _add_user(value, node)
        self._bump(Facet.TOPOLOGY)

    def replace_uses(self, old: Value, new: Value) -> None:
        """Make everything that reads or returns `old` read or return `new` instead."""
        if old is new or not old.users:
            return
        for user, count in old.users.items():
            if isinstance(user, Node):
                user.inputs = tuple([new if value is old else value for value in user.inputs])
            else:
                user.outputs = tuple([new if value is old else value for value in user.outputs])
            _add_user(new, user, count)
        old.users = None
        self._bump(Facet.TOPOLOGY)

    def set_op(self, node: Node, op: str) -> None:
        node.op = sys.intern(op)
        self._bump(Facet.TOPOLOGY)

    def set_type(self, value: Value, type_: Type) -> None:
        if value.type is not type_:
            value.type = type_
            self._bump(Facet.TYPES if value.node is not None else Facet.DECLARED)

    def set_attr(self, node: Node, key: str, value: Attr) -> None:
        node.attrs = {**node.attrs, key: value}
        self._bump(Facet.ATTRS)

    def remove_attr(self, node: Node, key: str) -> None:
        node.attrs = {name: value for name, value in node.attrs.items() if name != key} or NO_ATTRS
        self._bump(Facet.ATTRS)

    def set_data(self, weight: Value, data: Payload) -> None:
        self.data[weight] = data
        self._bump(Facet.ATTRS)

    def rename(self, value: Value, name: str | None) -> None:
        value.name = name
        self._bump(Facet.NAMES)


def _add_user(value: Value, user: Node | Graph, count: int = 1) -> None:
    if value.users is None:
        value.users = {}
    value.users[user] = value.users.get(user, 0) + count


def _drop_user(value: Value, user: Node | Graph) -> None:
    users = value.users
    assert users is not None, f"{value!r} has no users to drop"
    left = users[user] - 1
    if left:
        users[user] = left
    else:
        del users[user]


def _forget_inputs(node: Node) -> None:
    for value in node.inputs:
        if value is not None:
            _drop_user(value, node)
