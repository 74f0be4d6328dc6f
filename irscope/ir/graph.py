"""The dataflow graph: values, nodes in program order, regions. Every change goes through `Graph`."""

from __future__ import annotations

import enum
import gc
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

from irscope.immutable import mutable
from irscope.ir.places import Loc, Payload, Scope, root_scope
from irscope.ir.types import Type

Attr: TypeAlias = Any
"""None, bool, int, float, complex, str, a Dim, a DType, a Type, or a (nested) tuple of these."""

NO_ATTRS: Mapping[str, Attr] = MappingProxyType({})
_ORDER_STRIDE = 16
T = TypeVar("T")


class Role(enum.Enum):
    """Role of a value in the model."""

    __hash__ = object.__hash__  # keys of caches hold them, and an enum's own one is written in Python

    INPUT = "input"
    PARAMETER = "param"
    BUFFER = "buffer"
    CONSTANT = "const"
    ARGUMENT = "arg"
    """An argument of a region: a loop's state, a scan's slice."""
    TEMPORARY = "temp"
    """The result of a node."""


_TEMPORARY = Role.TEMPORARY
WEIGHT_ROLES = (Role.PARAMETER, Role.BUFFER, Role.CONSTANT)


class Facet(enum.IntEnum):
    """The sides of a graph that change apart from one another; analyses name those they read."""

    TOPOLOGY = 0
    """Nodes with their operators, edges, order and places, and which values graphs declare and return."""
    TYPES = 1
    """Types of node results."""
    DECLARED = 2
    """Types and roles of what graphs declare: inputs, weights, region arguments."""
    ATTRS = 3
    """Attributes of nodes; values of weights and whether they are trained."""
    NAMES = 4


class _Declared(list["Value"]):
    """Values that a graph declares, in order; its methods add and remove."""

    __slots__ = ()

    def _refuse(self, *args: Any, **others: Any) -> NoReturn:
        raise TypeError("what a graph declares is changed by its methods: add_input, add_weight, remove_weights")

    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = remove = reverse = sort = _refuse


def _counted(change: Callable[..., Any]) -> Callable[..., Any]:
    def counting(self: _Table[Any], *args: Any, **others: Any) -> Any:
        self.versions[Facet.ATTRS] += 1
        return change(self, *args, **others)

    return counting


class _Table(dict["Value", T]):
    """Facts that a graph keeps about weights; writing to it counts as a change of the graph."""

    __slots__ = ("versions",)

    def __init__(self, versions: list[int]) -> None:
        self.versions = versions

    __setitem__ = _counted(dict.__setitem__)
    __delitem__ = _counted(dict.__delitem__)
    __ior__ = _counted(dict.__ior__)
    clear = _counted(dict.clear)
    pop = _counted(dict.pop)
    popitem = _counted(dict.popitem)
    setdefault = _counted(dict.setdefault)
    update = _counted(dict.update)


class _ValueFields:
    """A value while it is made: its fields can be written. It then becomes a `Value`, whose layout is the same."""

    __slots__ = ("_users", "declared_in", "index", "name", "node", "role", "type")

    type: Type
    role: Role
    node: Node | None
    """The producing node; None for what a graph declares."""
    index: int
    """Position among the producer's outputs, or the declaring graph's inputs or weights."""
    name: str | None
    declared_in: Graph | None
    _users: dict[Node | Graph, int] | Node | Graph | None
    """Users of the value: as `Value.users` has it, or the only one, which reads it once. Most values of a large graph have one."""

    def __init__(self, type_: Type, role: Role, node: Node | None, index: int, name: str | None, declared_in: Graph | None) -> None:
        self.type = type_
        self.role = role
        self.node = node
        self.index = index
        self.name = name
        self.declared_in = declared_in
        self._users = None
        self.__class__ = Value


class Value(_ValueFields):
    """One input, weight, region argument or node result. Setting its type, name or role counts as a change of its graph."""

    __slots__ = ()

    def __setattr__(self, field: str, to: Any) -> None:
        write = _VALUE_WRITES.get(field)
        if write is None:
            raise AttributeError(f"{field!r} of a value follows from its graph and cannot be set: change the graph by its methods")
        if self.graph is None:
            raise ValueError(f"{self!r} was erased")
        write(self.graph, self, to)

    @property
    def users(self) -> dict[Node | Graph, int] | None:
        """Nodes that read it, and graphs that return it, with the number of times each does."""
        users = self._users
        if users is None or isinstance(users, dict):
            return users
        made = {users: 1}
        _set_users(self, made)
        return made

    @property
    def graph(self) -> Graph | None:
        """The graph (or region) in which the value is defined; None once it was erased."""
        return self.declared_in if self.node is None else self.node.graph

    def __repr__(self) -> str:
        return f"<Value %{self.name if self.name is not None else '?'}: {self.type}>"


class _NodeFields:
    """A node while it is made: its fields can be written. It then becomes a `Node`, whose layout is the same.

    A class whose `__setattr__` is written in Python would make each of the twelve fields slow to fill. Reading is as fast in both.
    """

    __slots__ = ("attrs", "graph", "inputs", "loc", "next", "op", "order", "outputs", "prev", "regions", "scope", "source")

    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Attr]
    """Read-only: they are replaced as a whole, by `Graph.set_attr` and its like or by setting them."""
    regions: tuple[Graph, ...]
    scope: Scope
    loc: Loc | None
    source: str
    """The operator as the model's file names it."""
    graph: Graph | None
    prev: Node | None
    next: Node | None
    order: int


class Node(_NodeFields):
    """One operation. Setting its operator, inputs, attributes or place is a call of the method of `Graph` that does it."""

    __slots__ = ()

    def __setattr__(self, field: str, to: Any) -> None:
        write = _NODE_WRITES.get(field)
        if write is None:
            raise AttributeError(f"{field!r} of a node follows from its graph and cannot be set: change the graph by its methods")
        if self.graph is None:
            raise ValueError(f"{self!r} was erased")
        write(self.graph, self, to)

    @property
    def name(self) -> str:
        """Return how people refer to the node: the name of its first named output, else its operator."""
        for output in self.outputs:
            if output.name is not None:
                return output.name
        return self.op

    def is_before(self, other: Node) -> bool:
        """Return whether this node runs before `other` of the same graph."""
        return self.order < other.order

    def __repr__(self) -> str:
        return f"<Node {self.name} = {self.op}>"


_new_value = cast("Callable[[Type, Role, Node | None, int, str | None, Graph | None], Value]", _ValueFields)


def _setter(fields: type, name: str) -> Callable[[Any, Any], None]:
    """Return what writes a field of a value or node and counts nothing: the graph's methods do that."""
    return cast("Callable[[Any, Any], None]", vars(fields)[name].__set__)


_set_type, _set_role, _set_index, _set_name, _set_declared_in, _set_users = [
    _setter(_ValueFields, name) for name in ("type", "role", "index", "name", "declared_in", "_users")
]
_set_op, _set_inputs, _set_attrs, _set_regions, _set_graph, _set_prev, _set_next, _set_order = [
    _setter(_NodeFields, name) for name in ("op", "inputs", "attrs", "regions", "graph", "prev", "next", "order")
]


class Graph:
    """Nodes in program order between inputs and outputs. Also the body of a region or function."""

    __slots__ = (
        "_data",
        "_first",
        "_flat_at",
        "_inputs",
        "_last",
        "_name",
        "_outputs",
        "_owner",
        "_scope",
        "_size",
        "_trainable",
        "_weights",
        "versions",
    )

    def __init__(
        self, name: str = "main", *, owner: Node | None = None, scope: Scope | None = None, versions: list[int] | None = None
    ) -> None:
        self.versions: list[int] = versions if versions is not None else [0] * len(Facet)
        """Counters by facet, shared by a graph and all its regions."""
        self._name = name
        self._owner = owner
        self._scope = scope if scope is not None else root_scope()
        self._inputs = _Declared()
        self._weights = _Declared()
        self._data: _Table[Payload] = _Table(self.versions)
        self._trainable: _Table[bool] = _Table(self.versions)
        self._outputs: tuple[Value, ...] = ()
        self._first: Node | None = None
        self._last: Node | None = None
        self._size = 0
        self._flat_at = -1
        """The version at which no node was seen to have regions."""

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name
        self._bump(Facet.NAMES)

    @property
    def owner(self) -> Node | None:
        """The node whose region this is; None for a model's main graph and for functions."""
        return self._owner

    @property
    def scope(self) -> Scope:
        """Scope given to nodes that name none."""
        return self._scope

    @scope.setter
    def scope(self, scope: Scope) -> None:
        self._scope = scope
        self._bump(Facet.TOPOLOGY)

    @property
    def inputs(self) -> Sequence[Value]:
        return self._inputs

    @property
    def weights(self) -> Sequence[Value]:
        """Parameters, buffers and constants, in the order in which the model declares them."""
        return self._weights

    @property
    def data(self) -> dict[Value, Payload]:
        """Return where the values of weights are; a weight without an entry has unknown values."""
        return self._data

    @property
    def trainable(self) -> dict[Value, bool]:
        """Return whether a weight takes gradients, where the model's file says so."""
        return self._trainable

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self._outputs

    @outputs.setter
    def outputs(self, values: Iterable[Value]) -> None:
        self.set_outputs(values)

    @property
    def first(self) -> Node | None:
        return self._first

    @property
    def last(self) -> Node | None:
        return self._last

    def __len__(self) -> int:
        """Return nodes of this level, without those inside regions."""
        return self._size

    def __iter__(self) -> Iterator[Node]:
        """Yield nodes of this level in order; the current node may be erased while iterating."""
        node = self._first
        while node is not None:
            following = node.next
            yield node
            node = following

    def after(self, last: Node | None) -> Iterator[Node]:
        """Yield the nodes of this level behind one, or all of them."""
        node = self._first if last is None else last.next
        while node is not None:
            yield node
            node = node.next

    def walk(self) -> Iterator[Node]:
        """Yield every node, entering the regions of a node right after it; the current node may be erased."""
        pending: list[Node] = []
        node = self._first
        while True:
            while node is not None:
                following = node.next
                yield node
                regions = node.regions if node.graph is not None else ()
                if regions:
                    if following is not None:
                        pending.append(following)
                    pending.extend(region._first for region in reversed(regions) if region._first is not None)
                    break
                node = following
            if not pending:
                return
            node = pending.pop()

    def graphs(self) -> Iterator[Graph]:
        """Yield this graph and every region inside it, outer before inner."""
        yield self
        version = self.versions[Facet.TOPOLOGY]
        if self._flat_at == version:
            return
        is_flat = True
        for node in self.walk():
            if node.regions:
                is_flat = False
                yield from node.regions
        if is_flat:
            self._flat_at = version

    def _bump(self, facet: Facet) -> None:
        self.versions[facet] += 1

    def add_input(self, type_: Type, name: str | None = None, role: Role | None = None) -> Value:
        """Declare the next input (of a region: the next argument; a region that has no owner yet must say so)."""
        role = role or (Role.INPUT if self._owner is None else Role.ARGUMENT)
        value = _new_value(type_, role, None, len(self._inputs), name, self)
        list.append(self._inputs, value)
        self._bump(Facet.TOPOLOGY)
        return value

    def add_weight(self, type_: Type, name: str | None = None, role: Role = Role.PARAMETER, data: Payload | None = None) -> Value:
        """Declare a parameter, buffer or constant."""
        value = _new_value(type_, role, None, len(self._weights), name, self)
        list.append(self._weights, value)
        if data is not None:
            dict.__setitem__(self._data, value, data)
        self._bump(Facet.TOPOLOGY)
        return value

    def remove_weights(self, values: Iterable[Value]) -> None:
        """Take back weights that nothing reads, all at once: those that stay are numbered anew."""
        gone = set(values)
        for value in gone:
            if value.users:
                raise ValueError(f"{value!r} still has users")
            if value.declared_in is not self or value.role not in WEIGHT_ROLES:
                raise ValueError(f"{value!r} is not a weight of this graph")
        list.__setitem__(self._weights, slice(None), [weight for weight in self._weights if weight not in gone])
        for value in gone:
            dict.pop(self._data, value, None)
            dict.pop(self._trainable, value, None)
            _set_declared_in(value, None)
        for index, weight in enumerate(self._weights):
            _set_index(weight, index)
        if gone:
            self._bump(Facet.TOPOLOGY)

    def set_outputs(self, values: Iterable[Value]) -> None:
        """Declare what the graph returns (of a region: what it yields)."""
        values = tuple(values)
        for value in self._outputs:
            _drop_user(value, self)
        self._outputs = values
        for value in values:
            _add_user(value, self)
        self._bump(Facet.TOPOLOGY)

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
        last = self._last
        order = 0 if last is None else last.order + _ORDER_STRIDE
        node = self._make(op, inputs, types, attrs, names, self._scope if scope is None else scope, loc, source, last, order)
        if last is None:
            self._first = node
        else:
            _set_next(last, node)
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
        """Add a node right before `anchor`, a node of this graph, in the scope and at the location of `anchor` unless others are given."""
        self._check_own(anchor)
        scope, loc = scope or anchor.scope, loc or anchor.loc
        node = self._make(op, inputs, types, attrs, names, scope, loc, source, None, 0)
        self._link_before(anchor, node)
        self._size += 1
        self._bump(Facet.TOPOLOGY)
        return node

    def replace(
        self,
        node: Node,
        op: str,
        inputs: Sequence[Value | None] | None = None,
        types: Sequence[Type] | None = None,
        attrs: Mapping[str, Attr] | None = None,
        *,
        names: Sequence[str | None] | None = None,
        scope: Scope | None = None,
        loc: Loc | None = None,
        source: str = "",
    ) -> Node:
        """Put a new node in the place of `node`, whose results are then read from it, and erase `node`.

        What is not given stays as it was: inputs, types, names, scope and location. Attributes belong to the operator and do not.
        """
        self._check_own(node)
        made = self.insert_before(
            node,
            op,
            node.inputs if inputs is None else inputs,
            [output.type for output in node.outputs] if types is None else types,
            attrs,
            names=names,
            scope=scope,
            loc=loc,
            source=source,
        )
        lost = [output for output in node.outputs[len(made.outputs) :] if output.users]
        if lost:
            self.erase(made)
            raise ValueError(f"{lost[0]!r} still has users, and the new node has {len(made.outputs)} results")
        for old, new in zip(node.outputs, made.outputs, strict=False):
            if names is None and old.name is not None:
                _set_name(new, old.name)
                self._bump(Facet.NAMES)
            self.replace_uses(old, new)
        self.erase(node)
        return made

    def _make(
        self,
        op: str,
        inputs: Sequence[Value | None],
        types: Sequence[Type],
        attrs: Mapping[str, Attr] | None,
        names: Sequence[str | None] | None,
        scope: Scope,
        loc: Loc | None,
        source: str,
        before: Node | None,
        order: int,
    ) -> Node:
        made = _NodeFields()
        node: Node = made  # type: ignore[assignment]  # which it becomes below
        made.op = sys.intern(op)
        made.inputs = inputs = tuple(inputs)
        # A view of what is given: copying it would cost a tenth of the time it takes to build a graph.
        made.attrs = NO_ATTRS if not attrs else attrs if type(attrs) is MappingProxyType else MappingProxyType(attrs)
        made.regions = ()
        made.scope = scope
        made.loc = loc
        made.source = source
        made.graph = self
        made.prev = before
        made.next = None
        made.order = order
        if len(types) == 1:
            made.outputs = (_new_value(types[0], _TEMPORARY, node, 0, None if names is None else names[0], None),)
        elif names is None:
            made.outputs = tuple([_new_value(type_, _TEMPORARY, node, i, None, None) for i, type_ in enumerate(types)])
        else:
            made.outputs = tuple([_new_value(type_, _TEMPORARY, node, i, names[i], None) for i, type_ in enumerate(types)])
        made.__class__ = Node
        for value in inputs:
            if value is not None:
                if value._users is None:
                    _set_users(value, node)
                else:
                    _add_user(value, node)
        return node

    def _check_own(self, node: Node) -> None:
        if node.graph is not self:
            raise ValueError(f"{node!r} is not a node of graph {self.name}")

    def _link_before(self, anchor: Node, node: Node) -> None:
        before = anchor.prev
        _set_prev(node, before)
        _set_next(node, anchor)
        _set_prev(anchor, node)
        if before is None:
            self._first = node
        else:
            _set_next(before, node)
        low = before.order if before is not None else anchor.order - 2 * _ORDER_STRIDE
        _set_order(node, (low + anchor.order) // 2)
        if node.order <= low:
            self._renumber()

    def _link_last(self, node: Node) -> None:
        last = self._last
        _set_prev(node, last)
        _set_next(node, None)
        _set_order(node, 0 if last is None else last.order + _ORDER_STRIDE)
        if last is None:
            self._first = node
        else:
            _set_next(last, node)
        self._last = node

    def _unlink(self, node: Node) -> None:
        if node.prev is None:
            self._first = node.next
        else:
            _set_next(node.prev, node.next)
        if node.next is None:
            self._last = node.prev
        else:
            _set_prev(node.next, node.prev)
        _set_prev(node, None)
        _set_next(node, None)

    def _renumber(self) -> None:
        for position, node in enumerate(self):
            _set_order(node, position * _ORDER_STRIDE)

    def add_region(self, node: Node, name: str) -> Graph:
        """Give `node` another region; values of the surrounding graphs may be used inside it."""
        region = Graph(name, owner=node, scope=node.scope, versions=self.versions)
        _set_regions(node, (*node.regions, region))
        self._bump(Facet.TOPOLOGY)
        return region

    def adopt_regions(self, node: Node, regions: Iterable[Graph]) -> None:
        """Make graphs that were filled before `node` existed its regions; they count their changes together with this graph."""
        for region in regions:
            if region._owner is not None or region.versions is not self.versions:
                raise ValueError(f"graph {region._name} is not a region without an owner of {self._name}")
            region._owner = node
            _set_regions(node, (*node.regions, region))
        self._bump(Facet.TOPOLOGY)

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
        _set_graph(node, None)
        self._size -= 1
        self._bump(Facet.TOPOLOGY)

    def move_before(self, node: Node, anchor: Node) -> None:
        """Put `node` right before `anchor`, which may stand in another region of the body; the caller answers for the order of uses."""
        self._check_own(node)
        target = anchor.graph
        if target is None or target.versions is not self.versions:
            raise ValueError(f"{anchor!r} is not a node of graph {self.name}, nor of another region of its body")
        if node is anchor:
            return
        self._hand_over(node, target)
        target._link_before(anchor, node)
        self._bump(Facet.TOPOLOGY)

    def move_to_end(self, node: Node, target: Graph) -> None:
        """Put `node` at the end of another graph or region of the same body, as `move_before` does."""
        self._check_own(node)
        if target.versions is not self.versions:
            raise ValueError(f"graph {target.name} is not a region of the same body as {node!r}")
        self._hand_over(node, target)
        target._link_last(node)
        self._bump(Facet.TOPOLOGY)

    def _hand_over(self, node: Node, target: Graph) -> None:
        """Unlink a node that another graph of the body is about to link."""
        around: Graph | None = target
        while around is not None:
            if around._owner is node:
                raise ValueError(f"{node!r} cannot move into its own region {target.name}")
            around = around._owner.graph if around._owner is not None else None
        self._unlink(node)
        self._size -= 1
        target._size += 1
        _set_graph(node, target)

    def reorder(self, nodes: Sequence[Node]) -> None:
        """Set the order of all nodes of this level."""
        if len(nodes) != self._size or len(set(nodes)) != self._size or any(node.graph is not self for node in nodes):
            raise ValueError(f"the new order of {self.name} must hold each of its {self._size} nodes once")
        previous: Node | None = None
        for position, node in enumerate(nodes):
            _set_prev(node, previous)
            _set_next(node, None)
            _set_order(node, position * _ORDER_STRIDE)
            if previous is None:
                self._first = node
            else:
                _set_next(previous, node)
            previous = node
        self._last = previous
        self._bump(Facet.TOPOLOGY)

    def set_input(self, node: Node, index: int, value: Value | None) -> None:
        """Make `node` read `value` (None: nothing) at that position."""
        if node.inputs[index] is not value:
            inputs = list(node.inputs)
            inputs[index] = value
            self.set_inputs(node, inputs)

    def set_inputs(self, node: Node, values: Iterable[Value | None]) -> None:
        """Make `node` read these values, in this order."""
        values = tuple(values)
        _forget_inputs(node)
        _set_inputs(node, values)
        for value in values:
            if value is not None:
                _add_user(value, node)
        _note_change(node.graph or self, Facet.TOPOLOGY)

    def replace_uses(self, old: Value, new: Value) -> None:
        """Make everything that reads or returns `old` read or return `new` instead."""
        if old is new or not old.users:
            return
        for user, count in old.users.items():
            if isinstance(user, Node):
                _set_inputs(user, tuple([new if value is old else value for value in user.inputs]))
            else:
                user._outputs = tuple([new if value is old else value for value in user._outputs])
            _add_user(new, user, count)
        _set_users(old, None)
        _note_change(old.graph or self, Facet.TOPOLOGY)

    def set_op(self, node: Node, op: str) -> None:
        _set_op(node, sys.intern(op))
        _note_change(node.graph or self, Facet.TOPOLOGY)

    def set_attr(self, node: Node, key: str, value: Attr) -> None:
        self.set_attrs(node, {**node.attrs, key: value})

    def remove_attr(self, node: Node, key: str) -> None:
        self.set_attrs(node, {name: value for name, value in node.attrs.items() if name != key})

    def set_attrs(self, node: Node, attrs: Mapping[str, Attr]) -> None:
        """Give `node` these attributes and no others."""
        _set_attrs(node, MappingProxyType({**attrs}) if attrs else NO_ATTRS)
        _note_change(node.graph or self, Facet.ATTRS)

    def set_type(self, value: Value, type_: Type) -> None:
        if value.type is not type_:
            _set_type(value, type_)
            node = value.node
            if node is not None:
                (node.graph or self).versions[Facet.TYPES] += 1
            else:
                (value.declared_in or self).versions[Facet.DECLARED] += 1

    def set_role(self, value: Value, role: Role) -> None:
        if value.role is not role:
            _set_role(value, role)
            _note_change(value.graph or self, Facet.DECLARED)

    def set_data(self, weight: Value, data: Payload) -> None:
        self._data[weight] = data

    def rename(self, value: Value, name: str | None) -> None:
        _set_name(value, name)
        _note_change(value.graph or self, Facet.NAMES)


def _note_change(graph: Graph, facet: Facet) -> None:
    """Note a change, where the value or node stands: a method may have been called on another body of the program."""
    graph.versions[facet] += 1


def _place_write(field: str) -> Callable[[Graph, Node, Any], None]:
    """Return what writes a field that says where a node comes from. Lifetimes and kernels follow from it, so it counts as topology."""
    write = _setter(_NodeFields, field)

    def writing(graph: Graph, node: Node, to: Any) -> None:
        write(node, to)
        _note_change(graph, Facet.TOPOLOGY)

    return writing


_VALUE_WRITES: dict[str, Callable[[Graph, Value, Any], None]] = {"type": Graph.set_type, "name": Graph.rename, "role": Graph.set_role}
_NODE_WRITES: dict[str, Callable[[Graph, Node, Any], None]] = {
    "op": Graph.set_op,
    "inputs": Graph.set_inputs,
    "attrs": Graph.set_attrs,
    **{field: _place_write(field) for field in ("scope", "loc", "source")},
}


def _add_user(value: Value, user: Node | Graph, count: int = 1) -> None:
    users = value.users
    if users is None:
        _set_users(value, {user: count})
    else:
        users[user] = users.get(user, 0) + count


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


# Walking a graph with its regions without recursion, in runs of nodes that follow one another on one level.


@mutable(slots=True)
class Run:
    """Consecutive nodes of one level. Only the last node may have regions; their runs come next."""

    graph: Graph
    nodes: list[Node]
    depth: int
    """Number of regions that are open around these nodes."""
    opens: bool
    """True for the first run of its graph."""
    closes: bool
    """True for the last run of its graph."""


def runs(graph: Graph) -> Iterator[Run]:
    """Yield all nodes of a graph in pre-order, cut where a region begins or ends. The graph must not change meanwhile."""
    # What is still to be walked: a graph, its depth, its next node, and whether its first run was given.
    todo: list[tuple[Graph, int, Node | None, bool]] = [(graph, 0, graph.first, False)]
    while todo:
        level, depth, node, started = todo.pop()
        nodes: list[Node] = []
        regions: tuple[Graph, ...] = ()
        while node is not None and not regions:
            nodes.append(node)
            regions = node.regions
            node = node.next
        closes = node is None and not regions
        yield Run(level, nodes, depth, not started, closes)
        if not closes:
            todo.append((level, depth, node, True))
            todo.extend([(region, depth + 1, region.first, False) for region in reversed(regions)])


class _Promoted:
    """Objects that were kept from the collector since all were looked at last."""

    young = 0
    old = 0
    """Those among which it was, or more: some may be gone."""
    are_callers = False
    """True where the caller freezes objects itself."""

    @classmethod
    def promote(cls) -> None:
        """Take all objects for long-lived. The collector would look at each new one once now, to find next to none to free."""
        # What the caller froze is to stay so. To count frozen objects takes milliseconds where there are many: once is enough.
        cls.are_callers = cls.are_callers or gc.get_freeze_count() > 0
        if not cls.are_callers:
            cls.young += gc.get_count()[0]
            gc.freeze()
            gc.unfreeze()

    @classmethod
    def collect(cls) -> None:
        """Free what only cycles hold, where much was promoted: graphs that are no longer used."""
        if cls.young > max(_MOST_PROMOTED, cls.old // 4):  # a quarter, as the collector itself does it
            cls.old += cls.young - gc.collect()
            cls.young = 0


_MOST_PROMOTED = 100_000


@contextmanager
def paused_gc() -> Iterator[None]:
    """Pause garbage collection: building many small objects that all stay makes the collector scan for nothing.

    What is built counts as long-lived afterwards. Garbage is looked for before the next time, when most of it may be garbage.
    """
    was_enabled = gc.isenabled()
    if was_enabled:
        _Promoted.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            _Promoted.promote()
            gc.enable()


class Names:
    """Hands out names, with a number behind those that are taken."""

    def __init__(self, joint: str = ".", first: int = 1) -> None:
        self._joint, self._first = joint, first
        self._next: dict[str, int] = {}

    def unique(self, name: str, taken: Container[str] = ()) -> str:
        """Return the name itself where it is free, else with a number; `taken` are names that were not handed out here."""
        if name not in self._next:
            self._next[name] = self._first
            if name not in taken:
                return name
        while True:
            number = self._next[name]
            self._next[name] = number + 1
            candidate = f"{name}{self._joint}{number}"
            if candidate not in self._next and candidate not in taken:
                self._next[candidate] = self._first
                return candidate
