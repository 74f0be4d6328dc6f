"""Named patterns that kernels exist for, each as a function from a node where it may begin to the nodes of the group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from irscope.ir.graph import Node, Value
from irscope.ops.spec import Family
from irscope.passes.inference.engine import Inferred
from irscope.passes.patterns.attention import attentions
from irscope.passes.patterns.groups import closed, filled, grow, is_closed
from irscope.passes.patterns.walk import CONTRACTIONS, family, is_constant, is_view, producer, source, users

_PRODUCTS = CONTRACTIONS - {"math.einsum", "math.matmul_integer"}
_GATED = _PRODUCTS | {"math.grouped_matmul"}
_GATES = {"nn.silu": "swiglu", "nn.swish": "swiglu", "nn.gelu": "geglu", "nn.quick_gelu": "geglu", "nn.relu": "reglu", "nn.sigmoid": "glu"}
_MEANS = frozenset({"reduce.mean", "reduce.var", "reduce.var_mean", "reduce.std_mean"})
_ROOTS = frozenset({"math.rsqrt", "math.sqrt"})
_RESHAPES = frozenset({"view.reshape", "view.unsqueeze", "view.squeeze", "view.flatten", "view.unflatten", "view.flatten_2d"})
_FREE = frozenset({"tensor.to", "tensor.cast", "nn.dropout"})
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
        if node.op not in ("tensor.concat", "tensor.stack"):
            return None
        negated = [one for one in map(producer, node.inputs) if one is not None and one.op == "math.neg"]
        halves = [operand for operand in node.inputs if operand is not None]
        if len(halves) != 2 or len(negated) != 1:
            return None
        origin = source(negated[0].inputs[0])
        other = source(next((half for half in halves if producer(half) is not negated[0]), None))
        if origin is None or origin is not other:
            return None
        products = [one for one in _behind(node) if one.op == "math.mul"]
        sums = [one for product in products for one in users(product.outputs) if one.op == "math.add"]
        if len(sums) != 1:
            return None
        partners = [one for one in map(producer, sums[0].inputs) if one is not None and one.op == "math.mul"]
        group = {node, negated[0], *products, *partners, sums[0]}
        group |= set(_views_between(node, origin)) | set(_views_between(negated[0], origin))
        group |= {view for product in products for view in _views_between(product, node.outputs[0])}
        listed = sorted(group, key=lambda one: one.order)
        return ("rope", listed) if is_closed(listed) and len(partners) == 2 else None

    def norm(self, node: Node) -> Match | None:
        """Mean or variance of x, a root, and x divided by it: a normalization in pieces."""
        if node.op not in _MEANS or not node.inputs:
            return None
        for origin in self._origins(node.inputs[0]):
            first = self._first_reader(origin, node)
            group = closed(grow(first, self._normalizes, [origin])) if first is not None else []
            names = {one.op for one in group}
            if names & _ROOTS and node in group and names & {"math.mul", "math.div"}:
                centred = "math.sub" in names or bool(names & {"reduce.var_mean", "reduce.std_mean"})
                return ("layer norm" if centred else "rms norm", group)
        return None

    def gated(self, node: Node) -> Match | None:
        """activation(gate) * up, where both come from matrix products."""
        if node.op != "math.mul" or len(node.inputs) != 2:
            return None
        for gate, up in (node.inputs, reversed(node.inputs)):
            activation = gate.node if gate is not None else None
            if activation is None or activation.op not in _GATES:
                continue
            if activation.inputs[0] is up:
                return self._gated_in_pieces(activation, node)
            before, beside = producer(activation.inputs[0]), producer(up)
            if before is not None and beside is not None and before.op in _GATED and beside.op in _GATED:
                return _GATES[activation.op], [activation, node]
        return None

    def _gated_in_pieces(self, activation: Node, silu: Node) -> Match | None:
        """sigmoid(gate) * gate is SiLU; times a second product it is a gate."""
        readers = users(silu.outputs)
        if activation.op != "nn.sigmoid" or len(readers) != 1 or readers[0].op != "math.mul":
            return None
        both = [producer(operand) for operand in readers[0].inputs if operand is not silu.outputs[0]]
        before = producer(activation.inputs[0])
        if before is None or before.op not in _GATED or len(both) != 1 or both[0] is None or both[0].op not in _GATED:
            return None
        return "swiglu", [activation, silu, readers[0]]

    def convolution(self, node: Node) -> Match | None:
        """A convolution with the normalization, sum and activation behind it."""
        if family(node) is not Family.CONVOLUTION:
            return None
        return self._with_epilogue(node, "conv", lambda one: self._pointwise(one, node) or _folds(one))

    def product(self, node: Node) -> Match | None:
        """A matrix product with a weight, and what is done to each of its results."""
        if node.op not in _PRODUCTS or not any(operand is not None and is_constant(operand) for operand in node.inputs):
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
        biased = len([one for one in group[0].inputs if one is not None]) > 2 or any(one.op == "math.add" for one in group[1:2])
        if name == "gemm" and biased:
            parts.append("bias")
        rest = [one for one in group[1:] if not _folds(one) and not is_view(one) and not (one is group[1] and one.op == "math.add")]
        return "-".join([*parts, "act"] if rest else parts), group

    def _pointwise(self, node: Node, start: Node) -> bool:
        """Whether a node does something to each element on its own, and keeps the size of the results."""
        if node.op not in _FREE and node.op not in _RESHAPES and (family(node) is not Family.ELEMENTWISE or len(node.outputs) != 1):
            return False
        return self._count(node.outputs[0]) == self._count(start.outputs[0])

    def _normalizes(self, node: Node) -> bool:
        return family(node) is Family.ELEMENTWISE or node.op in _MEANS or node.op in _FREE or node.op in ("view.expand", "tensor.cast_like")

    def _origins(self, value: Value | None) -> Iterator[Value]:
        """What may be normalized, nearest first: what is averaged, and what squares, differences and conversions of it come from."""
        for _ in range(8):
            if value is None:
                return
            yield value
            node = value.node
            if node is None or not (node.op in ("math.pow", "math.mul", "math.square", "math.sub", "math.abs") or node.op in _FREE):
                return
            value = node.inputs[0]

    def _first_reader(self, origin: Value, mean: Node) -> Node | None:
        """The first node of the normalization."""
        way = [one for one in users([origin]) if self._normalizes(one) and one.graph is mean.graph and not mean.is_before(one)]
        return min(way, key=lambda one: one.order, default=None)

    def _count(self, value: Value) -> object:
        type_ = self.types.type_of(value)
        return type_.numel


def _folds(node: Node) -> bool:
    """Whether a node is a normalization by given statistics, which folds into a convolution's weights."""
    return node.op == "nn.batch_norm" and not node.attrs.get("training")


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
