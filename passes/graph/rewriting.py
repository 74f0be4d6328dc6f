"""Rewrite patterns with a driver that applies them to a fixed point, and the transforms that rewrite what irscope knows itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from irscope.immutable import immutable
from irscope.ir.graph import Attr, Graph, Names, Node, Value
from irscope.ir.places import Literal
from irscope.ir.splicing import body_names, copy_before
from irscope.ops.registry import callee_of, spec_of
from irscope.passes.graph.alias import Alias, written_operand
from irscope.passes.graph.transforms import DeadCode, Fold, has_effect
from irscope.passkit.base import PassContext, Transform
from irscope.passkit.registry import register

ROUNDS: Final = 10
"""Most rounds over a graph, as MLIR's greedy driver has them."""


@immutable(slots=False)
class Pattern:
    """A rewrite of nodes of one operator: where it may be, what has to hold there, and what takes the node's place."""

    root: str
    """The operator of the nodes that are looked at; empty for all."""
    match: Callable[[Node], Any]
    """Function that returns something true, such as the matched nodes, where the pattern applies."""
    rewrite: Callable[[Graph, Node, Any], Value | Sequence[Value] | None]
    """Given the graph, the node and what `match` returned: what takes the place of the node's results; None where it changed the graph
    itself, by methods of the graph."""
    benefit: int = 1
    """Of several patterns that match a node the one of the highest benefit is applied."""


def rewriting(name: str, patterns: Sequence[Pattern], summary: str = "") -> type[Transform]:
    """Make a transform that applies patterns to a fixed point, and let pipelines of this process name it."""

    def apply(self: Transform, graph: Graph, ctx: PassContext) -> bool:
        return rewrite_greedily(patterns, ctx)

    doc = summary or f"Apply the rewrite patterns of {name} until none matches."
    made: type[Transform] = dataclass(frozen=True)(
        type(_class_name(name), (Transform,), {"apply": apply, "name": name, "__doc__": doc, "__module__": patterns[0].rewrite.__module__})
    )
    return register(made)


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.replace("_", "-").split("-"))


def rewrite_greedily(patterns: Sequence[Pattern], ctx: PassContext) -> bool:
    """Apply patterns to all bodies of a program until none changes it, at most ROUNDS times; say whether one did.

    What a rewrite leaves without readers is erased. Types of new nodes are inferred when the transform has ended.
    """
    ranked = sorted(patterns, key=lambda pattern: -pattern.benefit)
    changed = False
    for _ in range(ROUNDS):
        if not any([_rewritten(node, ranked, ctx) for body in list(ctx.program.changeable()) for node in list(body)]):
            return changed
        changed = True
    ctx.sink.warn("IRS505", f"patterns still change the graph after {ROUNDS} rounds", hint="one may undo what another does")
    return changed


def _rewritten(node: Node, ranked: Sequence[Pattern], ctx: PassContext) -> bool:
    """Apply the first pattern that matches a node and changes something; False where none does, or where the node is gone."""
    for pattern in ranked:
        graph = node.graph
        if graph is None or pattern.root not in ("", node.op):
            continue
        matched = pattern.match(node)
        if matched is None or matched is False:
            continue
        before, operands = list(graph.versions), node.inputs
        made = pattern.rewrite(graph, node, matched)
        if made is not None and node.graph is not None:
            for output, value in zip(node.outputs, [made] if isinstance(made, Value) else made, strict=False):
                graph.replace_uses(output, value)
        if graph.versions != before:
            _erase_unread([node, *(value.node for value in operands if value is not None and value.node is not None)])
            ctx.stat("rewrites")
            return True
    return False


def _erase_unread(nodes: Sequence[Node]) -> None:
    """Erase nodes that nothing reads and that have no effect, and what only they read."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node.graph is not None and not any(output.users for output in node.outputs) and not has_effect(node, {}):
            todo.extend([value.node for value in node.inputs if value is not None and value.node is not None])
            node.graph.erase(node)


# The patterns of canonicalize: each keeps every bit of the results.


def _made_by(value: Value | None, op: str) -> Node | None:
    """Return the node that makes a value, where it is of that operator and not in place."""
    node = None if value is None else value.node
    return node if node is not None and node.op == op and "inplace" not in node.attrs else None


def _is_plain(node: Node) -> bool:
    return "inplace" not in node.attrs and len(node.outputs) == 1 and spec_of(node) is not None


def _same_twice(node: Node) -> Node | None:
    """Return the node of the same operator that makes the operand, where all three types are one."""
    inner = _made_by(node.inputs[0], node.op) if _is_plain(node) and len(node.inputs) == 1 else None
    operand = inner.inputs[0] if inner is not None and inner.inputs else None
    return inner if operand is not None and operand.type is node.outputs[0].type else None


def _same_operand(node: Node) -> Value | None:
    """Return the operand whose type the result has: a cast to its own type, a reshape or an expansion to its own shape."""
    operand = node.inputs[0] if _is_plain(node) and node.inputs else None
    return operand if operand is not None and operand.type is node.outputs[0].type and operand.type.rank is not None else None


def _unmoved(node: Node) -> Value | None:
    """Return the operand of a permutation that moves no axis."""
    axes = node.attrs.get("perm")
    return node.inputs[0] if isinstance(axes, tuple) and axes == tuple(range(len(axes))) and _is_plain(node) else None


def _neutral(number: float, *places: int) -> Callable[[Node], Value | None]:
    """Return what finds the operand beside a constant that changes nothing; it has the result's type."""

    def match(node: Node) -> Value | None:
        if not _is_plain(node) or node.attrs.keys() - {"value"}:
            return None
        operands = [*node.inputs, None][:2]
        if operands[1] is None:
            is_neutral = 1 in places and _is_number(node.attrs.get("value"), number)
            return operands[0] if is_neutral and operands[0] is not None and operands[0].type is node.outputs[0].type else None
        for place in places:
            constant, other = operands[place], operands[1 - place]
            if other is not None and other.type is node.outputs[0].type and _is_filled(constant, number):
                return other
        return None

    return match


def _is_filled(value: Value | None, number: float) -> bool:
    """Return whether all elements of a constant are one number."""
    data = value.graph.data.get(value) if value is not None and value.graph is not None else None
    return isinstance(data, Literal) and bool(data.values) and all(_is_number(item, number) for item in data.values)


def _is_number(item: object, number: float) -> bool:
    """Return whether something is this number, with this sign: 0.0 - (-0.0) is another zero."""
    return isinstance(item, int | float) and not isinstance(item, bool) and item == number and not np.signbit(item)


def _operand(graph: Graph, node: Node, matched: Value) -> Value:
    return matched


def _undone(graph: Graph, node: Node, inner: Node) -> Value | None:
    return inner.inputs[0]


def _result(graph: Graph, node: Node, inner: Node) -> Value:
    return inner.outputs[0]


PATTERNS: Final = (
    *(Pattern(op, _same_twice, _undone) for op in ("math.neg", "math.not", "math.bitwise_not")),
    *(
        Pattern(op, _same_twice, _result)
        for op in ("nn.relu", "math.abs", "math.floor", "math.ceil", "math.round", "math.trunc", "math.sign")
    ),
    *(Pattern(op, _same_operand, _operand) for op in ("tensor.cast", "view.reshape", "view.expand")),
    Pattern("view.permute", _unmoved, _operand),
    Pattern("math.mul", _neutral(1.0, 0, 1), _operand),
    Pattern("math.div", _neutral(1.0, 1), _operand),
    Pattern("math.sub", _neutral(0.0, 1), _operand),
)


class _Writes:
    """Values that are written in place: values that share their storage must not be exchanged for each other."""

    def __init__(self, ctx: PassContext) -> None:
        self._aliases = aliases = ctx.get(Alias)
        nodes = (node for body in ctx.program.bodies() for node in body)
        self._written = {aliases.storage(value) for node in nodes if (value := written_operand(node)) is not None}

    def touch(self, node: Node) -> bool:
        """Return whether an operand or a result of a node shares a storage that is written in place."""
        values = (value for value in (*node.inputs, *node.outputs) if value is not None)
        return bool(self._written) and any(not self._written.isdisjoint(self._aliases.storages(value)) for value in values)


@dataclass(frozen=True)
class Canonicalize(Transform):
    """Bring the graph into a plain form: fold constants, drop what changes nothing (x * 1, a cast to the own type) and dead nodes."""

    name: ClassVar[str] = "canonicalize"

    max: int = 10
    """Maximum number of rounds."""

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        changed = False
        for _ in range(self.max):
            if not any([ctx.apply(_Simplify()), ctx.apply(Fold()), ctx.apply(DeadCode())]):
                break
            ctx.stat("rounds")
            changed = True
        return changed


@dataclass(frozen=True)
class _Simplify(Transform):
    """Apply the patterns of canonicalize."""

    name: ClassVar[str] = "simplify"

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        writes = _Writes(ctx)
        return rewrite_greedily([replace(pattern, match=partial(_match_unless, writes, pattern)) for pattern in PATTERNS], ctx)


def _match_unless(writes: _Writes, pattern: Pattern, node: Node) -> object:
    return None if writes.touch(node) else pattern.match(node)


@dataclass(frozen=True)
class CommonSubexpressions(Transform):
    """Common subexpression elimination: compute once what nodes of equal operators, attributes and operands compute."""

    name: ClassVar[str] = "cse"

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        writes = _Writes(ctx)
        kept = set(graph.outputs) if ctx.program.file_nodes is not None or ctx.program.calls else set()
        seen: dict[Graph, dict[Hashable, Node]] = {}
        removed = 0
        # Outer bodies come first, but a node inside may only take results of nodes before its owner: `_known` compares places.
        for body in list(ctx.program.changeable()):
            own = seen.setdefault(body, {})
            for node in body:
                key = _key_of(node)
                if key is None or not kept.isdisjoint(node.outputs) or writes.touch(node):
                    continue
                first = own.get(key) or _known(key, node, seen)
                if first is None:
                    own[key] = node
                    continue
                for output, value in zip(node.outputs, first.outputs, strict=True):
                    body.replace_uses(output, value)
                body.erase(node)
                removed += 1
        ctx.stat("nodes", removed)
        return removed > 0


def _key_of(node: Node) -> Hashable | None:
    """Return what tells a node from those that compute something else; None for one that may not be left out."""
    spec = spec_of(node)
    if spec is None or spec.random or node.regions or spec.control is not None or not node.outputs or has_effect(node, {}):
        return None
    return node.op, tuple(sorted((key, _typed(value)) for key, value in node.attrs.items())), node.inputs, len(node.outputs)


def _typed(value: Attr) -> str:
    return f"{type(value).__name__} {value!r}"  # 1 and 1.0 and True are equal, and are not the same attribute


def _known(key: Hashable, node: Node, seen: dict[Graph, dict[Hashable, Node]]) -> Node | None:
    """Return a node of a graph around that computes the same before the region runs."""
    for owner in _owners(node):
        assert owner.graph is not None, "a node with regions stands in a graph"
        first = seen.get(owner.graph, {}).get(key)
        if first is not None and first.is_before(owner):
            return first
    return None


def _owners(node: Node) -> Iterator[Node]:
    graph = node.graph
    while graph is not None and graph.owner is not None:
        yield graph.owner
        graph = graph.owner.graph


@dataclass(frozen=True)
class Inline(Transform):
    """Function inlining: put the bodies of functions in the place of their calls, and take out functions that nothing calls."""

    name: ClassVar[str] = "inline"

    limit: int = 1_000_000
    """Most nodes of the main graph; calls stay where more would come."""

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        functions = ctx.program.functions
        weights: dict[Value, Value | None] = {}
        taken, names = body_names(graph), Names()
        size = sum(1 for _ in graph.walk())
        inlined = 0
        while calls := [node for node in graph.walk() if callee_of(node) in functions]:
            for node in calls:
                body = functions[str(callee_of(node))]
                size += sum(1 for _ in body.walk())
                if size > self.limit:
                    ctx.sink.warn("IRS506", f"calls stay: inlined the graph has more than {self.limit:,} nodes", hint="inline{limit=...}")
                    ctx.stat("calls", inlined)
                    return inlined > 0
                for weight in body.weights:
                    if weight not in weights:
                        name = None if weight.name is None else names.unique(weight.name, taken)
                        weights[weight] = graph.add_weight(weight.type, name, weight.role, body.data.get(weight))
                        taken.update(() if name is None else (name,))
                where = node.graph
                assert where is not None, "calls are not erased but here"
                values = copy_before(node, body, {**weights, **dict(zip(body.inputs, node.inputs, strict=False))}, taken)
                for output, value in zip(node.outputs, values, strict=False):
                    if value is not None:
                        where.replace_uses(output, value)
                where.erase(node)
                inlined += 1
        unread = [name for name in functions if not any(callee_of(node) == name for node in graph.walk())]
        for name in unread:
            del functions[name]
        ctx.stat("calls", inlined)
        ctx.stat("functions", len(unread))
        return bool(inlined or unread)
