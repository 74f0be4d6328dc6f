"""Ifs and loops whose conditions depend on data: regions of `cf.if` and `cf.loop`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from irscope.errors import LoadError
from irscope.frontends.torchscript.calls import to_sequence
from irscope.frontends.torchscript.emit import Emitter
from irscope.frontends.torchscript.values import (
    Frame,
    Item,
    KnownTensor,
    Returned,
    ScriptObject,
    ScriptRaise,
    TensorList,
    Uninitialized,
    is_integer,
    is_number,
)
from irscope.ir.dims import Dim, SymDim, bounds, equal
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Node, Role, Value
from irscope.ir.types import UNKNOWN_TYPE, SequenceType, TensorType, Type, scalar, sequence, tensor

_SCALARS: dict[type, DType] = {bool: DType.BOOL, int: DType.I64, float: DType.F64}


class Follower(Protocol):
    """Interface of the interpreter that branches and loops need."""

    emitter: Emitter
    frame: Frame | None

    @property
    def env(self) -> dict[str, Item]: ...

    def block(self, statements: Sequence[ast.stmt]) -> Returned | None: ...

    def condition(self, item: Item) -> bool | Value: ...

    def error(self, what: str, code: str = ..., hint: str = ...) -> LoadError: ...

    def eval(self, node: ast.expr) -> Item: ...

    def raised(self, message: Item) -> ScriptRaise: ...

    def replace(self, item: Item, by: Item) -> bool: ...

    def step(self) -> None: ...


def assigned_names(statements: Sequence[ast.stmt]) -> list[str]:
    """Variables that statements set, in order."""
    found = [
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    return list(dict.fromkeys(found))


class _Branch:
    """One branch of an if, evaluated into a graph of its own."""

    def __init__(self, interpreter: Follower, statements: Sequence[ast.stmt], name: str) -> None:
        emitter = interpreter.emitter
        frame = interpreter.frame
        assert frame is not None
        outer_graph, outer_env = emitter.graph, frame.env
        self.graph = Graph(name, scope=emitter.scope, versions=outer_graph.versions)
        self.copies = Copies(outer_env)
        self.env = self.copies.env
        self.returned: Returned | None = None
        self.raises = False
        emitter.graph, frame.env = self.graph, self.env
        try:
            self.returned = interpreter.block(statements)
        except ScriptRaise:
            self.raises = True
        finally:
            emitter.graph, frame.env = outer_graph, outer_env

    def discard(self) -> None:
        """Take back what the branch made."""
        discard(self.graph)


def discard(graph: Graph) -> None:
    """Erase every node of a graph that was never attached."""
    for node in reversed(list(graph)):
        graph.erase(node)


def run_unknown_if(interpreter: Follower, node: ast.If, condition: Value) -> Returned | None:
    """Evaluate both branches; a branch that raises is an assertion, so the other one is taken."""
    emitter = interpreter.emitter
    then = _Branch(interpreter, node.body, "then")
    other = _Branch(interpreter, node.orelse, "else")
    if then.raises or other.raises:
        then.discard()
        other.discard()
        if then.raises and other.raises:
            raise interpreter.raised("both ways of an if raise")
        return interpreter.block(node.orelse if then.raises else node.body)
    if (then.returned is None) != (other.returned is None):
        raise interpreter.error("one way of an if that depends on data returns, the other goes on")
    merge = _Merge(interpreter, condition, then, other)
    returned: Item = None
    if then.returned is not None and other.returned is not None:
        returned = merge.pair(then.returned.item, other.returned.item)
    else:
        for name in dict.fromkeys([*assigned_names(node.body), *assigned_names(node.orelse)]):
            if name in then.env and name in other.env:
                interpreter.env[name] = merge.pair(then.env[name], other.env[name])
    merge.containers()
    made = emitter.node("cf.if", (condition,), merge.types, "prim::If")
    then.graph.set_outputs(merge.left)
    other.graph.set_outputs(merge.right)
    emitter.graph.adopt_regions(made, (then.graph, other.graph))
    if then.returned is not None:
        return Returned(merge.resolve(returned, made))
    merge.finish(made)
    for name, item in list(interpreter.env.items()):
        interpreter.env[name] = merge.resolve(item, made)
    return None


class _Slot:
    """Placeholder for a result of an if whose node is not built yet."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.is_list = False


class _Merge:
    """Merges the values of two branches; those that differ become results of the if (phi nodes)."""

    def __init__(self, interpreter: Follower, condition: Value, then: _Branch, other: _Branch) -> None:
        self._interpreter = interpreter
        self._condition = condition
        self._graphs = (then.graph, other.graph)
        self._copies = (then.copies, other.copies)
        self.left: list[Value] = []
        self.right: list[Value] = []
        self.types: list[Type] = []
        self._slots: dict[tuple[Value, Value], _Slot] = {}
        self._resolved: dict[int, tuple[Item, Item]] = {}
        self._lists: list[tuple[Item, _Slot]] = []

    def pair(self, a: Item, b: Item) -> Item:
        """Return the value after the if, which is `a` in one branch and `b` in the other."""
        if a is b:
            return a
        self._interpreter.step()
        original = self._copies[0].original(a)
        if original is not None and original is self._copies[1].original(b):
            return original
        if isinstance(a, TensorList) or isinstance(b, TensorList):
            return self._sequences(a, b)
        if isinstance(a, Value | KnownTensor) or isinstance(b, Value | KnownTensor):
            return self._tensors(a, b)
        if is_number(a) and is_number(b):
            return self._numbers(a, b)
        if isinstance(a, Uninitialized) or isinstance(b, Uninitialized):  # what one branch alone makes, with the tensors in it
            made = b if isinstance(a, Uninitialized) else a
            parts = list(made.values() if isinstance(made, dict) else made) if isinstance(made, dict | list | tuple) else []
            merged = [self.pair(a, part) if made is b else self.pair(part, b) for part in parts]
            if isinstance(made, dict):
                return dict(zip(made, merged, strict=True))
            return merged if isinstance(made, list) else tuple(merged) if isinstance(made, tuple) else made
        if isinstance(a, tuple | list) and type(a) is type(b):
            if len(a) != len(b):
                return self._sequences(a, b)
            merged = [self.pair(x, y) for x, y in zip(a, b, strict=True)]
            return merged if isinstance(a, list) else tuple(merged)
        if isinstance(a, str) and a == b:
            return a
        return self._differ()

    def _differ(self) -> Item:
        return Uninitialized()

    def containers(self) -> None:
        """Merge the changes that both branches made to containers from outside."""
        other = {id(item): copy for item, copy in self._copies[1].pairs()}
        touched = {id(item) for copies in self._copies for item, _ in copies.changed()}
        for item, left in self._copies[0].pairs():
            if id(item) not in touched:
                continue
            right = other[id(item)]
            if isinstance(item, list) and isinstance(left, list) and isinstance(right, list):
                if len(left) == len(right):
                    item[:] = [self.pair(a, b) for a, b in zip(left, right, strict=True)]
                else:
                    self._lists.append((item, self._sequences(left, right)))
            elif isinstance(item, TensorList):
                self._lists.append((item, self._sequences(left, right)))
            elif isinstance(item, dict) and isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
                merged = {key: self.pair(left[key], right[key]) for key in left}
                item.clear()
                item.update(merged)
            elif isinstance(item, ScriptObject) and isinstance(left, ScriptObject) and isinstance(right, ScriptObject):
                item.attrs.update({key: self.pair(part, right.attrs.get(key)) for key, part in left.attrs.items()})
            else:
                raise self._interpreter.error("the ways of an if that depends on data change a dictionary in different ways")

    def _sequences(self, a: Item, b: Item) -> _Slot:
        """Lists of different lengths: a sequence of unknown length."""
        emitter = self._interpreter.emitter
        values: list[Value | None] = []
        for item, graph in zip((a, b), self._graphs, strict=True):
            outer, emitter.graph = emitter.graph, graph
            try:
                values.append(to_sequence(emitter, item) if isinstance(item, list | TensorList) else None)
            finally:
                emitter.graph = outer
        if values[0] is None or values[1] is None:
            raise self._interpreter.error("the ways of an if that depends on data make lists of different lengths")
        slot = self._slot(values[0], values[1])
        slot.is_list = True
        return slot

    def _numbers(self, a: Item, b: Item) -> Item:
        if a is True and b is False:
            return self._condition
        if isinstance(a, bool) and isinstance(b, bool):
            return a if a == b else self._tensors(a, b)
        if is_integer(a) and is_integer(b):
            return self._integers(a, b)
        return a if isinstance(a, float) and a == b else self._differ()

    def _integers(self, a: Item, b: Item) -> Item:
        if equal(a, b) is True:  # type: ignore[arg-type]  # both are whole numbers
            return a
        (low, high), (other_low, other_high) = bounds(a), bounds(b)  # type: ignore[arg-type]  # both are whole numbers
        return self._interpreter.emitter.fresh(
            None if low is None or other_low is None else min(low, other_low),
            None if high is None or other_high is None else max(high, other_high),
        )

    def _value(self, item: Item, graph: Graph) -> Value | None:
        emitter = self._interpreter.emitter
        if isinstance(item, KnownTensor):
            outer = emitter.graph
            emitter.graph = graph
            try:
                item = emitter.value_of(item)
            finally:
                emitter.graph = outer
        if isinstance(item, bool | float):
            item = emitter.constant(scalar(_SCALARS[type(item)]), item)
        return item if isinstance(item, Value) else None

    def _tensors(self, a: Item, b: Item) -> Item:
        left, right = self._value(a, self._graphs[0]), self._value(b, self._graphs[1])
        if left is None or right is None:
            if not isinstance(a, Uninitialized) and not isinstance(b, Uninitialized):
                return Uninitialized()
            return self._only_there(left or right)
        return self._slot(left, right)

    def _only_there(self, value: Value | None) -> Item:
        """Return a value that the other branch leaves open: one that this branch makes becomes a result of the if."""
        side = next((side for side, graph in enumerate(self._graphs) if value and value.node and value.node.graph is graph), None)
        if side is None or value is None:
            return value
        emitter = self._interpreter.emitter
        outer, emitter.graph = emitter.graph, self._graphs[1 - side]
        try:
            open_one = emitter.node("prim.Uninitialized", (), [value.type], "prim::Uninitialized").outputs[0]
        finally:
            emitter.graph = outer
        return self._slot(value, open_one) if side == 0 else self._slot(open_one, value)

    def _slot(self, left: Value, right: Value) -> _Slot:
        slot = self._slots.get((left, right))
        if slot is None:
            slot = self._slots[left, right] = _Slot(len(self.types))
            self.left.append(left)
            self.right.append(right)
            self.types.append(common_type(self._interpreter, left.type, right.type))
        return slot

    def finish(self, node: Node) -> None:
        """Replace lists by the sequences that they became."""
        for item, slot in self._lists:
            if not self._interpreter.replace(item, self.resolve(slot, node)):
                raise self._interpreter.error("a way of an if that depends on data changes a list that is held by something else")

    def resolve(self, item: Item, node: Node) -> Item:
        """Replace placeholders by the results of the if."""
        if isinstance(item, _Slot):
            return TensorList(node.outputs[item.index]) if item.is_list else node.outputs[item.index]
        if isinstance(item, list) and any(isinstance(part, _Slot | tuple | list) for part in item):
            if id(item) in self._resolved:
                return item
            self._resolved[id(item)] = (item, item)
            item[:] = [self.resolve(part, node) for part in item]
        elif isinstance(item, dict) and any(isinstance(part, _Slot | tuple | list) for part in item.values()):
            item.update({key: self.resolve(part, node) for key, part in item.items()})
        elif isinstance(item, ScriptObject) and not item.cls.is_module:
            item.attrs.update({key: self.resolve(part, node) for key, part in item.attrs.items() if isinstance(part, _Slot | tuple | list)})
        elif isinstance(item, tuple) and any(isinstance(part, _Slot | tuple | list) for part in item):
            if id(item) not in self._resolved:
                self._resolved[id(item)] = (item, tuple(self.resolve(part, node) for part in item))
            return self._resolved[id(item)][1]
        return item


def common_type(interpreter: Follower, a: Type, b: Type, any_size: set[Dim] | None = None) -> Type:
    """Return the narrowest type that covers both: sizes that differ become unknown, and those in `any_size` cover every other."""
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return b if a.element is UNKNOWN_TYPE else sequence(common_type(interpreter, a.element, b.element, any_size))
    if a is b or not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return a
    dtype = a.dtype if a.dtype is b.dtype else DType.UNKNOWN
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return tensor(dtype, None, a.device)
    sizes: list[Dim] = []
    for x, y in zip(a.shape, b.shape, strict=True):
        if equal(x, y) is True or (any_size is not None and x in any_size):
            sizes.append(x)
            continue
        sizes.append(interpreter.emitter.fresh(0))
        if any_size is not None:
            any_size.add(sizes[-1])
    return tensor(dtype, sizes, a.device)


def run_unknown_loop(interpreter: Follower, node: ast.While | ast.For, until: Value | SymDim) -> Returned | None:
    """Run a loop whose end depends on data: its body becomes a region, run once for any iteration."""
    any_size: set[Dim] = set()
    for _ in range(6):
        loop = _Loop(interpreter, node, until, any_size)
        if loop.run():
            loop.finish()
            return None
        discard(loop.body)
    raise interpreter.error("the types of a loop's variables do not settle")


class _Loop:
    def __init__(self, interpreter: Follower, node: ast.While | ast.For, until: Value | SymDim, any_size: set[Dim]) -> None:
        self._interpreter = interpreter
        self._node = node
        self._until = until
        self._any_size = any_size
        """Sizes of the loop's variables that may differ from one iteration to the next."""
        emitter = interpreter.emitter
        env = interpreter.env
        names = [name for name in assigned_names(node.body) if name in env]
        self._tensors = [name for name in names if isinstance(env[name], Value | KnownTensor)]
        self._numbers = [name for name in names if name not in self._tensors and isinstance(env[name], int | float | SymDim)]
        others = [name for name in names if name not in self._tensors and name not in self._numbers]
        self._others = {name: env[name] for name in others}
        self._lists = list({id(item): item for item in env.values() if isinstance(item, TensorList)}.values())
        for name in self._tensors:
            env[name] = emitter.value_of(env[name])
        self.body = Graph("body", scope=emitter.scope, versions=emitter.graph.versions)
        self._carried: list[Value] = []

    def run(self) -> bool:
        """Run the body once into its graph; False where a variable's type had to be widened first."""
        interpreter, emitter = self._interpreter, self._interpreter.emitter
        frame = interpreter.frame
        assert frame is not None
        outer_graph, outer_env = emitter.graph, frame.env
        copies = Copies(outer_env)
        inner = copies.env
        lists = [copy for item, copy in copies.pairs() if isinstance(copy, TensorList) and item in self._lists]
        # The owner comes once the types have settled.
        self._argument(scalar(DType.I64))
        self._argument(scalar(DType.BOOL))
        for name in self._tensors:
            inner[name] = self._argument(_graph_value(outer_env[name]).type)
        for item in lists:
            item.value = self._argument(item.value.type)
        for name in self._numbers:
            inner[name] = emitter.fresh()
        emitter.graph, frame.env = self.body, inner
        try:
            if isinstance(self._node, ast.For) and isinstance(self._node.target, ast.Name):
                inner[self._node.target.id] = emitter.fresh(0)
            if interpreter.block(self._node.body) is not None:
                raise interpreter.error("a loop whose end depends on data returns from inside")
            again = interpreter.condition(interpreter.eval(self._node.test)) if isinstance(self._node, ast.While) else True
            if not isinstance(again, Value):
                again = emitter.constant(scalar(DType.BOOL), again)
            after = [_graph_value(emitter.value_of(inner[name])) for name in self._tensors]
        finally:
            emitter.graph, frame.env = outer_graph, outer_env
        if self._widened(outer_env, after) or self._changed(outer_env, copies, lists):
            return False
        for name, other in self._others.items():
            if inner[name] is not other and copies.original(inner[name]) is not other:
                raise interpreter.error(f"{name!r} changes in a loop whose end depends on data, and it is neither tensor nor number")
        self.body.set_outputs([again, *after, *(item.value for item in lists)])
        return True

    def _argument(self, type_: Type) -> Value:
        return self.body.add_input(type_, role=Role.ARGUMENT)

    def _changed(self, env: dict[str, Item], copies: Copies, lists: Sequence[TensorList]) -> bool:
        """Return whether a list has to become a sequence of the graph, or one of another type, because an iteration changes it."""
        interpreter, emitter = self._interpreter, self._interpreter.emitter
        again = False
        for before, after in zip(self._lists, lists, strict=True):
            common = common_type(interpreter, before.value.type, after.value.type, self._any_size)
            if common is not before.value.type:
                emitter.graph.set_type(before.value, common)
                maker = before.value.node
                if maker is not None and maker.op == "seq.empty" and isinstance(common, SequenceType):
                    emitter.graph.set_attr(maker, "element", common.element)
                again = True
        for item, _ in copies.changed():
            if isinstance(item, TensorList):
                continue
            value = to_sequence(emitter, item) if isinstance(item, list) else None
            if value is None or not interpreter.replace(item, TensorList(value)):
                raise interpreter.error("a loop whose end depends on data changes a container other than a list of tensors")
            again = True
        return again

    def _widened(self, env: dict[str, Item], after: Sequence[Value]) -> bool:
        """Return whether a variable had to be given a wider type before the loop."""
        widened = False
        for name, value in zip(self._tensors, after, strict=True):
            before = _graph_value(env[name])
            common = common_type(self._interpreter, before.type, value.type, self._any_size)
            if common is not before.type:
                env[name] = self._interpreter.emitter.node("view.alias", (before,), (common,), "prim::Loop").outputs[0]
                widened = True
        return widened

    def finish(self) -> None:
        """Make the loop's node and set the variables after it."""
        emitter, env = self._interpreter.emitter, self._interpreter.env
        state = [*(_graph_value(env[name]) for name in self._tensors), *(item.value for item in self._lists)]
        condition = self._until if isinstance(self._until, Value) else None
        trip = emitter.value_of(KnownTensor(self._until, DType.I64)) if isinstance(self._until, SymDim) else None
        made = emitter.node(
            "cf.loop", (trip if isinstance(trip, Value) else None, condition, *state), [value.type for value in state], "prim::Loop"
        )
        emitter.graph.adopt_regions(made, (self.body,))
        for name, value in zip(self._tensors, made.outputs, strict=False):
            env[name] = value
        for item, value in zip(self._lists, made.outputs[len(self._tensors) :], strict=True):
            item.value = value
        for name in self._numbers:
            env[name] = emitter.fresh()


def _graph_value(item: Item) -> Value:
    assert isinstance(item, Value)
    return item


# -- lists and dictionaries in branches: each works on copies, whose changes are merged afterwards --------------------


class Copies:
    """Variables whose containers are copies of the ones outside."""

    def __init__(self, env: Mapping[str, Item]) -> None:
        self._made: dict[int, tuple[Item, Item]] = {}
        self._originals: dict[int, Item] = {}
        self.env = {name: self._copy(item) for name, item in env.items()}

    def _copy(self, item: Item) -> Item:
        found = self._made.get(id(item))
        if found is not None:
            return found[1]
        made: Item
        if isinstance(item, list):
            copy: list[Item] = []
            made = self._remember(item, copy)
            copy.extend(self._copy(part) for part in item)
        elif isinstance(item, dict):
            table: dict[Item, Item] = {}
            made = self._remember(item, table)
            table.update((key, self._copy(part)) for key, part in item.items())
        elif isinstance(item, TensorList):
            made = self._remember(item, TensorList(item.value))
        elif isinstance(item, ScriptObject) and not item.cls.is_module:
            made = self._remember(item, thing := ScriptObject(item.cls, {}, item.path))
            thing.attrs.update((key, self._copy(part)) for key, part in item.attrs.items())
        elif isinstance(item, tuple):
            parts = tuple(self._copy(part) for part in item)
            made = item if all(a is b for a, b in zip(parts, item, strict=True)) else parts
            self._made[id(item)] = (item, made)
        else:
            made = item
        return made

    def _remember(self, item: Item, copy: Item) -> Item:
        self._made[id(item)] = (item, copy)
        self._originals[id(copy)] = item
        return copy

    def original(self, item: Item) -> Item:
        """Return what a copy was made from; None for what is no copy."""
        return self._originals.get(id(item))

    def pairs(self) -> Iterator[tuple[Item, Item]]:
        """Yield every container that can change, with its copy."""
        yield from [(item, copy) for item, copy in self._made.values() if not isinstance(item, tuple)]

    def changed(self) -> Iterator[tuple[Item, Item]]:
        """Containers whose copies were changed."""
        for item, copy in self.pairs():
            if not self._same(item, copy):
                yield item, copy

    def _same(self, item: Item, copy: Item) -> bool:
        if isinstance(item, list) and isinstance(copy, list):
            return len(item) == len(copy) and all(self._is(a, b) for a, b in zip(item, copy, strict=True))
        if isinstance(item, dict) and isinstance(copy, dict):
            return list(item) == list(copy) and all(self._is(item[key], copy[key]) for key in item)
        if isinstance(item, ScriptObject) and isinstance(copy, ScriptObject):
            return list(item.attrs) == list(copy.attrs) and all(self._is(item.attrs[key], copy.attrs[key]) for key in item.attrs)
        return isinstance(item, TensorList) and isinstance(copy, TensorList) and item.value is copy.value

    def _is(self, item: Item, copy: Item) -> bool:
        """Return whether an element is the one that was there, or the copy of it."""
        if item is copy or self._originals.get(id(copy)) is item:
            return True
        if isinstance(item, tuple):
            return id(item) in self._made and self._made[id(item)][1] is copy
        return isinstance(item, bool | int | float | str) and type(item) is type(copy) and item == copy
