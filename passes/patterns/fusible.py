"""Named patterns that kernels exist for, each as a function from a node where it may begin to the nodes of the group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from irscope.ir.graph import Node, Value
from irscope.ops.registry import find_op, plays, roles_of
from irscope.ops.spec import Family, OpRole
from irscope.passes.inference.engine import Inferred
from irscope.passes.patterns.attention import attentions
from irscope.passes.patterns.groups import closed, filled, grow, is_closed
from irscope.passes.patterns.walk import family, is_constant, is_product, is_view, producer, source, users

_FREE = (OpRole.CONVERT, OpRole.DROPOUT)
"""What a kernel does on the way, at no cost."""
Match = tuple[str, list[Node]]


class Matcher:
    """Finds groups; those of the more specific patterns come first."""

    def __init__(self, types: Inferred) -> None:
        self.types = types

    def matches(self, nodes: Sequence[Node]) -> Iterator[Match]:
        """Every group, overlaps included."""
        for one in attentions(nodes):
            if not one.is_fused:
                yield "attention", filled(one.nodes)
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
        sums = [one for product in products for one in users(product.outputs) if plays(one, OpRole.ADD)]
        if len(sums) != 1:
            return None
        partners = [one for one in map(producer, sums[0].inputs) if one is not None and plays(one, OpRole.MULTIPLY)]
        group = {node, negated[0], *products, *partners, sums[0]}
        group |= set(_views_between(node, origin)) | set(_views_between(negated[0], origin))
        group |= {view for product in products for view in _views_between(product, node.outputs[0])}
        listed = sorted(group, key=lambda one: one.order)
        return ("rope", listed) if is_closed(listed) and len(partners) == 2 else None

    def norm(self, node: Node) -> Match | None:
        """Mean or variance of x, a root, and x divided by it: a normalization in pieces."""
        if not plays(node, OpRole.MOMENT) or not node.inputs:
            return None
        for origin in self._origins(node.inputs[0]):
            first = self._first_reader(origin, node)
            group = closed(grow(first, self._normalizes, [origin])) if first is not None else []
            roles = {role for one in group for role in roles_of(one)}
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
        """A convolution with the normalization, sum and activation behind it."""
        if family(node) is not Family.CONVOLUTION:
            return None
        return self._with_epilogue(node, "conv", lambda one: self._pointwise(one, node) or _folds(one))

    def product(self, node: Node) -> Match | None:
        """A matrix product with a weight, and what is done to each of its results."""
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
        if any(_folds(one) for one in group):
            parts.append("bn")
        biased = len([one for one in group[0].inputs if one is not None]) > 2 or any(plays(one, OpRole.ADD) for one in group[1:2])
        if name == "gemm" and biased:
            parts.append("bias")
        rest = [one for one in group[1:] if not _folds(one) and not is_view(one) and not (one is group[1] and plays(one, OpRole.ADD))]
        return "-".join([*parts, "act"] if rest else parts), group

    def _pointwise(self, node: Node, start: Node) -> bool:
        """Whether a node does something to each element on its own, and keeps the size of the results."""
        if not plays(node, *_FREE, OpRole.RESHAPE) and (family(node) is not Family.ELEMENTWISE or len(node.outputs) != 1):
            return False
        return self._count(node.outputs[0]) == self._count(start.outputs[0])

    def _normalizes(self, node: Node) -> bool:
        return family(node) is Family.ELEMENTWISE or plays(node, *_FREE, OpRole.MOMENT, OpRole.EXPAND, OpRole.CONVERT_LIKE)

    def _origins(self, value: Value | None) -> Iterator[Value]:
        """What may be normalized, nearest first: what is averaged, and what squares, differences and conversions of it come from."""
        for _ in range(8):
            if value is None:
                return
            yield value
            node = value.node
            if node is None or not plays(node, *_FREE, OpRole.POWER, OpRole.MULTIPLY, OpRole.SUBTRACT, OpRole.ABSOLUTE):
                return
            value = node.inputs[0]

    def _first_reader(self, origin: Value, mean: Node) -> Node | None:
        """The first node of the normalization."""
        way = [one for one in users([origin]) if self._normalizes(one) and one.graph is mean.graph and not mean.is_before(one)]
        return min(way, key=lambda one: one.order, default=None)

    def _count(self, value: Value) -> object:
        type_ = self.types.type_of(value)
        return type_.numel


def _gated_unit(node: Node | None) -> str:
    """The name of the gated unit with this activation function; empty where it is none."""
    spec = find_op(node.op) if node is not None else None
    return "" if spec is None else spec.gated_unit


def _folds(node: Node) -> bool:
    """Whether a node is a normalization by given statistics, which folds into a convolution's weights."""
    return plays(node, OpRole.FOLDABLE_NORM) and not node.attrs.get("training")


def _behind(node: Node) -> list[Node]:
    """Nodes that read a result, past views."""
    found: list[Node] = []
    pending = list(node.outputs)
    while pending:
        for one in users([pending.pop()]):
            if is_view(one):
                pending.extend(one.outputs)
            else:
                found.append(one)
    return found


def _views_between(node: Node, origin: Value) -> list[Node]:
    """Views on the way from operands back to their origin; operands that come from elsewhere have none."""
    found: list[Node] = []
    for operand in node.inputs:
        way: list[Node] = []
        value = operand
        while value is not None and value is not origin and value.node is not None and is_view(value.node):
            way.append(value.node)
            value = value.node.inputs[0]
        if value is origin:
            found += way
    return found
