"""Groups of nodes that one kernel could do, by named patterns, with what that would save."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from irscope.immutable import immutable
from irscope.ir.dims import Dim, SymDim, total_of
from irscope.ir.graph import Facet, Graph, Node, Role, Value
from irscope.ops.facts import OpRole
from irscope.ops.registry import plays, roles_of, spec_of
from irscope.ops.spec import Family
from irscope.passes.cost.count import Certainty, Costs, NodeCosts
from irscope.passes.cost.tables import cell
from irscope.passes.graph.alias import Alias, Aliases
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passes.order.effects import Edge, Effects
from irscope.passes.patterns.walk import attentions, escapes, family, is_constant, is_product, is_view, producer, source, users
from irscope.passes.sizes import CONVENTION, at_least, dim_cell, scale
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Table
from irscope.report.units import Kind

_NOTES = (
    "saved: bytes that the nodes read and write one by one, less those that a single kernel would: its operands once, its result once",
    "legal: nothing outside reads, returns or overwrites what is made inside, and no effect must happen in between; "
    "groups do not overlap. Whether a backend has such a kernel is not checked",
)


@immutable
class Group:
    """One group; `hindrance` says why it must not be fused, where it must not."""

    pattern: str
    nodes: tuple[Node, ...]
    unfused: Dim | None
    """Bytes that the nodes move one by one; None where a cost is unknown."""
    fused: Dim | None
    launches: int
    """Kernels that are started fewer."""
    hindrance: str = ""

    @property
    def saved(self) -> Dim | None:
        """Bytes that are moved less; never less than nothing."""
        if self.unfused is None or self.fused is None:
            return None
        less = self.unfused - self.fused
        return less if isinstance(less, SymDim) else max(less, 0)


@immutable(slots=False)
class Fusions:
    """The answer of the pass: groups in program order, and those that were found but must not be fused."""

    groups: tuple[Group, ...]
    refused: tuple[Group, ...]


@dataclass(frozen=True)
class Fusion(Analysis[Fusions]):
    """Find groups of nodes that could be fused into one kernel, with the bytes and launches saved."""

    name: ClassVar[str] = "fusion"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    top: int = 0
    """Groups shown, most bytes first; 0 for all in program order."""

    def compute(self, graph: Graph, ctx: PassContext) -> Fusions:
        types, costs, aliases = ctx.get(Shapes), ctx.get(NodeCosts()), ctx.get(Alias())
        edges = by_node(ctx.get(Effects()).edges)
        taken: set[Node] = set()
        groups: list[Group] = []
        refused: list[Group] = []
        for pattern, nodes in Matcher(types).matches(list(ctx.each(graph, "matching", len(graph)))):
            if len(nodes) < 2 or any(node in taken for node in nodes):
                continue
            why = hindrance(nodes, aliases, edges) if is_closed(nodes) else "something outside reads what is made inside"
            group = _group(pattern, nodes, types, costs, why)
            if why:
                refused.append(group)
                continue
            taken.update(nodes)
            groups.append(group)
        for found in (groups, refused):
            found.sort(key=lambda one: one.nodes[0].order)
        return Fusions(tuple(groups), tuple(refused))

    def report(self, result: Fusions, ctx: PassContext) -> Report:
        groups, costs = result.groups, ctx.get(NodeCosts())
        # An unknown operator may belong to a group.
        complete = not costs.missing
        shown = sorted(groups, key=lambda group: -scale(0 if group.saved is None else group.saved))[: self.top] if self.top > 0 else groups
        patterns: dict[str, list[Group]] = {}
        for group in groups:
            patterns.setdefault(group.pattern, []).append(group)
        summary_rows = [
            (
                name,
                len(pattern),
                sum(len(one.nodes) for one in pattern),
                dim_cell(total_of(one.saved for one in pattern)),
                sum(one.launches for one in pattern),
            )
            for name, pattern in sorted(patterns.items())
        ]
        columns = ["pattern:text", "groups:count", "nodes:count", "saved:bytes", "launches:count"]
        tables = [Table.of(summary_rows, columns=columns, title="patterns"), _groups_table("groups", shown)]
        if result.refused:
            tables.append(_groups_table("not legal", result.refused, legal=False))
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "group_count": at_least(len(groups), complete),
                "saved_bytes": at_least(total_of(group.saved for group in groups), complete),
                "saved_launches": at_least(sum(group.launches for group in groups), complete),
                "moved_bytes": cell(costs.tally.moved, costs.tally.moved_limits),
                "not_legal": at_least(len(result.refused), complete),
            },
            units={"saved_launches": Kind.COUNT, "not_legal": Kind.COUNT},
            tables=tuple(tables),
            notes=(CONVENTION, *_NOTES),
        )


def _group(pattern: str, nodes: list[Node], types: Inferred, costs: Costs, why: str) -> Group:
    unfused: Dim | None = 0
    launches = -1
    for node in nodes:
        cost = costs.by_node.get(node)
        if cost is None or cost.read is None or cost.written is None:
            unfused = None
        elif unfused is not None:
            unfused = unfused + cost.read + cost.written
        launches += costs.certainty.get(node) is not Certainty.FREE
    inside = {value for node in nodes for value in node.outputs}
    outside = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None and value not in inside)
    results = [value for value in nodes[-1].outputs if value.users]
    fused = total_of(types.type_of(value).tensor_bytes for value in (*outside, *results))
    return Group(pattern, tuple(nodes), unfused, fused, max(launches, 0), why)


def _groups_table(title: str, groups: Iterable[Group], *, legal: bool = True) -> Table:
    columns = ["pattern:text", "module:text", "nodes:count", "first:node", "last:node", "operators:text", "moved:bytes", "saved:bytes"]
    rows = [
        (
            group.pattern,
            group.nodes[0].scope.path,
            len(group.nodes),
            group.nodes[0].name,
            group.nodes[-1].name,
            ", ".join(dict.fromkeys(node.op for node in group.nodes)),
            dim_cell(group.unfused),
            dim_cell(group.saved),
            group.launches if legal else group.hindrance,
        )
        for group in groups
    ]
    return Table.of(rows, [*columns, "launches:count" if legal else "hindrance:text"], title=title)


# Named patterns that kernels exist for, each as a function from a node where it may begin to the nodes of the group.

_FREE = (OpRole.CONVERT, OpRole.DROPOUT)
"""Roles of operators that a kernel applies on the way, at no cost."""
Match = tuple[str, list[Node]]


class Matcher:
    """Finds groups; those of the more specific patterns come first."""

    def __init__(self, types: Inferred) -> None:
        self.types = types

    def matches(self, nodes: Sequence[Node]) -> Iterator[Match]:
        """Yield every group, overlaps included."""
        for attention in attentions(nodes):
            if not attention.is_fused:
                yield "attention", filled(attention.nodes)
        finders: tuple[Callable[[Node], Match | None], ...] = (self.rope, self.norm, self.gated, self.convolution, self.product)
        for finder in finders:
            for node in nodes:
                found = finder(node)
                if found is not None:
                    yield found

    # -- patterns ------------------------------------------------------------------------------------------------

    def rope(self, node: Node) -> Match | None:
        """x * cos + rotated(x) * sin, where rotated swaps two halves and negates one."""
        if not plays(node, OpRole.CONCATENATE, OpRole.STACK):
            return None
        negated = [one for one in map(producer, node.inputs) if one is not None and plays(one, OpRole.NEGATE)]
        halves = [operand for operand in node.inputs if operand is not None]
        if len(halves) != 2 or len(negated) != 1:
            return None
        origin = source(negated[0].inputs[0])
        other = source(next((half for half in halves if producer(half) is not negated[0]), None))
        if origin is None or origin is not other:
            return None
        products = [one for one in _behind(node) if plays(one, OpRole.MULTIPLY)]
        sums = [user for product in products for user in users(product.outputs) if plays(user, OpRole.ADD)]
        if len(sums) != 1:
            return None
        partners = [one for one in map(producer, sums[0].inputs) if one is not None and plays(one, OpRole.MULTIPLY)]
        group = {node, negated[0], *products, *partners, sums[0]}
        group |= set(_views_between(node, origin)) | set(_views_between(negated[0], origin))
        group |= {view for product in products for view in _views_between(product, node.outputs[0])}
        listed = sorted(group, key=lambda member: member.order)
        return ("rope", listed) if is_closed(listed) and len(partners) == 2 else None

    def norm(self, node: Node) -> Match | None:
        """Mean or variance of x, a root, and x divided by it: a normalization in pieces."""
        if not plays(node, OpRole.MOMENT) or not node.inputs:
            return None
        for origin in self._origins(node.inputs[0]):
            first = self._first_reader(origin, node)
            group = closed(grow(first, self._normalizes, [origin])) if first is not None else []
            roles = {role for member in group for role in roles_of(member)}
            if OpRole.ROOT in roles and node in group and roles & {OpRole.MULTIPLY, OpRole.DIVIDE}:
                centred = bool(roles & {OpRole.SUBTRACT, OpRole.CENTRED_MOMENT})
                return ("layer norm" if centred else "rms norm", group)
        return None

    def gated(self, node: Node) -> Match | None:
        """activation(gate) * up, where both come from matrix products."""
        if not plays(node, OpRole.MULTIPLY) or len(node.inputs) != 2:
            return None
        for gate, up in (node.inputs, reversed(node.inputs)):
            activation = gate.node if gate is not None else None
            unit = _gated_unit(activation)
            if activation is None or not unit:
                continue
            if activation.inputs[0] is up:
                return self._gated_in_pieces(activation, node)
            before, beside = producer(activation.inputs[0]), producer(up)
            if before is not None and beside is not None and plays(before, OpRole.PROJECTION) and plays(beside, OpRole.PROJECTION):
                return unit, [activation, node]
        return None

    def _gated_in_pieces(self, activation: Node, silu: Node) -> Match | None:
        """sigmoid(gate) * gate is SiLU; times a second product it is a gate."""
        readers = users(silu.outputs)
        if _gated_unit(activation) != "glu" or len(readers) != 1 or not plays(readers[0], OpRole.MULTIPLY):
            return None
        both = [producer(operand) for operand in readers[0].inputs if operand is not silu.outputs[0]]
        before = producer(activation.inputs[0])
        if before is None or len(both) != 1 or both[0] is None or not all(plays(one, OpRole.PROJECTION) for one in (before, both[0])):
            return None
        return "swiglu", [activation, silu, readers[0]]

    def convolution(self, node: Node) -> Match | None:
        """Return a convolution with the normalization, sum and activation behind it."""
        if family(node) is not Family.CONVOLUTION:
            return None
        return self._with_epilogue(node, "conv", lambda one: self._pointwise(one, node) or _folds(one))

    def product(self, node: Node) -> Match | None:
        """Return a matrix product with a weight, and what is done to each of its results."""
        if (
            not is_product(node)
            or not plays(node, OpRole.PROJECTION)
            or not any(operand is not None and is_constant(operand) for operand in node.inputs)
        ):
            return None
        return self._with_epilogue(node, "gemm", lambda one: self._pointwise(one, node))

    # -- parts ---------------------------------------------------------------------------------------------------

    def _with_epilogue(self, node: Node, name: str, may_join: Callable[[Node], bool]) -> Match | None:
        group = closed(grow(node, may_join))
        while group and is_view(group[-1]):
            group = closed(group[:-1])
        if len(group) < 2:
            return None
        parts = [name]
        if any(_folds(member) for member in group):
            parts.append("bn")
        biased = len([one for one in group[0].inputs if one is not None]) > 2 or any(plays(one, OpRole.ADD) for one in group[1:2])
        if name == "gemm" and biased:
            parts.append("bias")
        rest = [one for one in group[1:] if not _folds(one) and not is_view(one) and not (one is group[1] and plays(one, OpRole.ADD))]
        return "-".join([*parts, "act"] if rest else parts), group

    def _pointwise(self, node: Node, start: Node) -> bool:
        """Return whether a node does something to each element on its own, and keeps the size of the results."""
        if plays(node, OpRole.GENERATED):
            return False  # what could be fused is
        if not plays(node, *_FREE, OpRole.RESHAPE) and (family(node) is not Family.ELEMENTWISE or len(node.outputs) != 1):
            return False
        return self._count(node.outputs[0]) == self._count(start.outputs[0])

    def _normalizes(self, node: Node) -> bool:
        if plays(node, OpRole.GENERATED):
            return False
        return family(node) is Family.ELEMENTWISE or plays(node, *_FREE, OpRole.MOMENT, OpRole.EXPAND, OpRole.CONVERT_LIKE)

    def _origins(self, value: Value | None) -> Iterator[Value]:
        """Yield what may be normalized, nearest first: what is averaged, and what squares, differences and conversions of it come from."""
        for _ in range(8):
            if value is None:
                return
            yield value
            node = value.node
            if node is None or not plays(node, *_FREE, OpRole.POWER, OpRole.MULTIPLY, OpRole.SUBTRACT, OpRole.ABSOLUTE):
                return
            value = node.inputs[0]

    def _first_reader(self, origin: Value, mean: Node) -> Node | None:
        """Return the first node of the normalization."""
        way = [user for user in users([origin]) if self._normalizes(user) and user.graph is mean.graph and not mean.is_before(user)]
        return min(way, key=lambda step: step.order, default=None)

    def _count(self, value: Value) -> object:
        type_ = self.types.type_of(value)
        return type_.numel


def _gated_unit(node: Node | None) -> str:
    """Return the name of the gated unit with this activation function; empty where it is none."""
    spec = spec_of(node) if node is not None else None
    return "" if spec is None else spec.gated_unit


def _folds(node: Node) -> bool:
    """Return whether a node is a normalization by given statistics, which folds into a convolution's weights."""
    return plays(node, OpRole.FOLDABLE_NORM) and not node.attrs.get("training")


def _behind(node: Node) -> list[Node]:
    """Return the nodes that read a result, past views."""
    nodes: list[Node] = []
    pending = list(node.outputs)
    while pending:
        for user in users([pending.pop()]):
            if is_view(user):
                pending.extend(user.outputs)
            else:
                nodes.append(user)
    return nodes


def _views_between(node: Node, origin: Value) -> list[Node]:
    """Views on the way from operands back to their origin; operands that come from elsewhere have none."""
    nodes: list[Node] = []
    for operand in node.inputs:
        way: list[Node] = []
        value = operand
        while value is not None and value is not origin and value.node is not None and is_view(value.node):
            way.append(value.node)
            value = value.node.inputs[0]
        if value is origin:
            nodes += way
    return nodes


# Groups of nodes that one kernel could do: grown from a node, closed so that only the last result is seen outside, and checked.

_MOST = 64
_ROUNDS = 4


def grow(start: Node, may_join: Callable[[Node], bool], roots: Iterable[Value] = ()) -> list[Node]:
    """Return the start and what follows from it alone: nodes that may join, whose operands are all in the group, roots or constants."""
    inside: dict[Node, None] = {start: None}
    known: set[Value] = {*start.outputs, *roots}
    pending = list(start.outputs) + list(roots)
    while pending and len(inside) < _MOST:
        for node in sorted(users([pending.pop(0)]), key=lambda user: user.order):
            if node in inside or node.graph is not start.graph or node.order < start.order or not may_join(node):
                continue
            if all(operand is None or operand in known or is_constant(operand) for operand in node.inputs):
                inside[node] = None
                known.update(node.outputs)
                pending.extend(node.outputs)
    return sorted(inside, key=lambda inner: inner.order)


def closed(nodes: Sequence[Node]) -> list[Node]:
    """Return the longest beginning of which only the last node's results are read outside, or returned."""
    for length in range(len(nodes), 1, -1):
        kept = nodes[:length]
        if is_closed(kept):
            return list(kept)
    return []


def filled(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes, and those beside them that only read and only feed the group: a test of its values, for example."""
    inside = dict.fromkeys(nodes)
    for _ in range(_ROUNDS):
        beside = [
            user
            for user in users(value for node in inside for value in node.outputs)
            if user not in inside
            and user.graph is nodes[0].graph
            and user.is_before(nodes[-1])
            and all(user in inside for user in users(user.outputs))
            and not any(escapes(value) for value in user.outputs)
        ]
        if not beside:
            break
        inside.update(dict.fromkeys(beside))
    return sorted(inside, key=lambda inner: inner.order)


def is_closed(nodes: Sequence[Node]) -> bool:
    """Return whether nothing outside reads what any but the last node makes."""
    inside = set(nodes)
    for node in nodes[:-1]:
        for value in node.outputs:
            if escapes(value) or any(user not in inside for user in users([value])):
                return False
    return True


def hindrance(nodes: Sequence[Node], aliases: Aliases, edges: dict[Node, list[Edge]]) -> str:
    """Return why a closed group must not become one kernel; empty where it may."""
    first, last = nodes[0], nodes[-1]
    inside = set(nodes)
    if any(node.regions or node.graph is not first.graph for node in nodes):
        return "it spans a branch or a loop"
    specs = {node: spec_of(node) for node in nodes}
    for node, spec in specs.items():
        if spec is None or spec.has_effect or (spec.random and (OpRole.DROPOUT not in spec.roles or node.attrs.get("training"))):
            return f"{node.name} has an effect or is random"
    for node in nodes:
        for edge in edges.get(node, ()):
            other = edge.after if edge.before is node else edge.before
            if other not in inside and first.is_before(other) and other.is_before(last):
                return f"{other.name} must stay between ({edge.kind})"
    made = {aliases.storage(value) for node in nodes for value in node.outputs}
    for node in nodes[:-1]:
        for value in node.outputs:
            root = aliases.storage(value)
            if root.role is not Role.TEMPORARY and root not in made and node.attrs.get("inplace") is not None:
                return f"{node.name} writes {root.name} in place"
    return ""


def by_node(edges: Iterable[Edge]) -> dict[Node, list[Edge]]:
    """Edges of the order by the nodes at both ends."""
    found: dict[Node, list[Edge]] = {}
    for edge in edges:
        found.setdefault(edge.before, []).append(edge)
        found.setdefault(edge.after, []).append(edge)
    return found
