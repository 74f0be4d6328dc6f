"""What a model has: attention, convolutions, recurrence, experts, scans; each with the nodes that show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from irscope.ir.graph import Node, Role, Value
from irscope.ops.registry import control_of, plays
from irscope.ops.spec import Family, OpRole
from irscope.passes.inference.engine import Inferred
from irscope.passes.patterns.attention import Attention, attentions
from irscope.passes.patterns.triangles import Triangles
from irscope.passes.patterns.walk import ancestors, back, family, is_constant, is_product, is_view, producer, source, users

_CACHES = (OpRole.CONCATENATE, OpRole.WRITE_PART)
_STEP = 60
"""A step of a recurrence has at most so many nodes."""
_CHAIN = 4
"""So many steps of h = a*h + b in a row are a scan that was unrolled."""


@dataclass
class Features:
    """What was found, each kind as a list of nodes in program order."""

    attention: list[Attention] = field(default_factory=list)
    convolutions: list[Node] = field(default_factory=list)
    spatial: list[Node] = field(default_factory=list)
    """Convolutions whose kernel covers more than one place: they mix what is side by side."""
    depthwise: list[Node] = field(default_factory=list)
    patches: list[Node] = field(default_factory=list)
    """Convolutions whose steps are as long as their kernel, straight from an input: how images become tokens."""
    recurrent: list[Node] = field(default_factory=list)
    scans: list[Node] = field(default_factory=list)
    experts: list[Node] = field(default_factory=list)
    embeddings: list[Node] = field(default_factory=list)
    detection: list[Node] = field(default_factory=list)
    upsampling: list[Node] = field(default_factory=list)
    caches: list[Node] = field(default_factory=list)
    products: list[Node] = field(default_factory=list)
    """Matrix products with weights."""
    vocabulary: Node | None = None
    """The product that makes one result for each entry of a vocabulary."""


def features_of(
    nodes: Sequence[Node], inputs: Iterable[Value], outputs: Iterable[Value], types: Inferred, triangles: Triangles
) -> Features:
    """Look at every node once, and at what leads to and from those that stand out."""
    found = Features(attention=list(attentions(nodes, triangles)))
    finder = _Finder(found, types, dict.fromkeys(inputs))
    for node in nodes:
        finder.look(node)
    found.recurrent.extend(_repeated(found.products))
    found.scans.extend(_unrolled(nodes))
    found.caches = _caches(found.attention)
    found.vocabulary = _vocabulary(found.embeddings, outputs, types)
    return found


class _Finder:
    def __init__(self, found: Features, types: Inferred, inputs: dict[Value, None]) -> None:
        self.found = found
        self.types = types
        self.inputs = inputs

    def look(self, node: Node) -> None:
        kind, found = family(node), self.found
        if kind is Family.CONVOLUTION:
            self.convolution(node)
        elif kind is Family.RECURRENT:
            found.recurrent.append(node)
        elif is_product(node) and any(operand is not None and is_constant(operand) for operand in node.inputs):
            found.products.append(node)
        elif (control := control_of(node)) is not None and control.repeats:
            self.loop(node)
        elif plays(node, OpRole.LOOKUP):
            self.embedding(node)
        elif plays(node, OpRole.EXPERTS) or (plays(node, OpRole.BEST) and _routes(node)):
            found.experts.append(node)
        elif plays(node, OpRole.STATE_SCAN) or (plays(node, OpRole.RUNNING_SUM) and _decays(node)):
            found.scans.append(node)
        elif plays(node, OpRole.BOXES):
            found.detection.append(node)
        elif plays(node, OpRole.UPSAMPLE):
            found.upsampling.append(node)

    def convolution(self, node: Node) -> None:
        found = self.found
        found.convolutions.append(node)
        if plays(node, OpRole.UPSAMPLE):
            found.upsampling.append(node)
        shape = self.types.type_of(node.inputs[1] if len(node.inputs) > 1 else None).shape
        if shape is None or len(shape) < 3:
            return
        if any(size != 1 for size in shape[2:]):
            found.spatial.append(node)
        if node.attrs.get("groups", 1) != 1 and shape[1] == 1:
            found.depthwise.append(node)
        kernel, steps = tuple(shape[2:]), tuple(node.attrs.get("strides") or ())
        if kernel == steps and all(isinstance(size, int) and size >= 4 for size in kernel) and source(node.inputs[0]) in self.inputs:
            found.patches.append(node)

    def loop(self, node: Node) -> None:
        """A loop with products inside carries a state through them: recurrence; without any it is a scan."""
        inside = [inner for region in node.regions for inner in region.walk()]
        if any(is_product(inner) for inner in inside):
            self.found.recurrent.append(node)
        elif any(family(inner) is Family.ELEMENTWISE for inner in inside):
            self.found.scans.append(node)

    def embedding(self, node: Node) -> None:
        """Rows of a weight, chosen by an input."""
        table, rows = (node.inputs[0], node.inputs[1]) if len(node.inputs) > 1 else (None, None)
        if table is None or rows is None or not is_constant(table):
            return
        shape = self.types.type_of(table).shape
        if shape is not None and len(shape) == 2 and any(source(value) in self.inputs for value in _reach(rows)):
            self.found.embeddings.append(node)


def _reach(value: Value) -> list[Value]:
    """Values that lead to one, it included."""
    return [value, *(operand for node in ancestors(value, 30) for operand in node.inputs if operand is not None)]


def _routes(topk: Node) -> bool:
    """Whether the best of some scores choose experts: scores come from a product with a weight, and places steer what is computed."""
    product, _ = back(topk.inputs[0], is_product, lambda node: family(node) in (Family.SOFTMAX, Family.ELEMENTWISE))
    if product is None or len(topk.outputs) < 2:
        return False
    near: list[Node] = []
    values = [topk.outputs[1]]
    for _ in range(6):
        step = [node for node in users(values) if node not in near]
        near += step
        if any(plays(node, OpRole.ROUTE, OpRole.EXPERTS) or (plays(node, OpRole.EQUAL) and _with_numbers(node)) for node in step):
            return True
        values = [
            result
            for node in step
            if is_view(node) or family(node) in (Family.COMPARISON, Family.SORTING, Family.ELEMENTWISE)
            for result in node.outputs
        ]
    return False


def _decays(cumsum: Node) -> bool:
    """Whether a running sum becomes an exponent: the decay of a state, step by step."""
    values = list(cumsum.outputs)
    for _ in range(6):
        near = users(values)
        if any(plays(node, OpRole.EXPONENTIAL) for node in near):
            return True
        values = [value for node in near if is_view(node) or family(node) is Family.ELEMENTWISE for value in node.outputs]
    return False


def _with_numbers(node: Node) -> bool:
    """Whether something is compared with 0, 1, 2, ...: what one-hot is made of."""
    return any(one is not None and plays(one, OpRole.RANGE) for one in map(producer, node.inputs))


def _repeated(products: Iterable[Node]) -> list[Node]:
    """Products with one weight, each of which needs the one before: recurrence that was written out step by step."""
    by_weight: dict[Value, list[Node]] = {}
    for node in products:
        for operand in node.inputs:
            root = source(operand)
            if root is not None and root.node is None and is_constant(root) and root.users:
                by_weight.setdefault(root, []).append(node)
    found: dict[Node, None] = {}
    for steps in by_weight.values():
        if len(steps) >= _CHAIN and all(before in _ancestors_of(after) for before, after in pairwise(steps)):
            found.update(dict.fromkeys(steps))
    return list(found)


def _ancestors_of(node: Node) -> list[Node]:
    """The nearest nodes that a node depends on, over all its operands."""
    return [one for operand in node.inputs for one in ancestors(operand, _STEP)]


def _unrolled(nodes: Iterable[Node]) -> list[Node]:
    """Sums of chains h = a*h + b: each adds something to a product with the sum before, and nothing but views lies between."""
    length: dict[Node, int] = {}
    for node in nodes:
        if not plays(node, OpRole.ADD, OpRole.ADD_PRODUCT):
            continue
        for operand in node.inputs:
            product = producer(operand)
            if product is None or not plays(product, OpRole.MULTIPLY):
                continue
            before = [producer(factor) for factor in product.inputs]
            sums = (one for one in before if one is not None and one is not node and plays(one, OpRole.ADD))
            longest = max((length.get(one, 0) for one in sums), default=0)
            length[node] = max(length.get(node, 0), longest + 1)
    return [node for node, steps in length.items() if steps == _CHAIN]


def _caches(found: Iterable[Attention]) -> list[Node]:
    """Joins of an input with new keys, before attention."""
    joins: dict[Node, None] = {}
    for one in found:
        node = producer(one.key)
        if node is None or not plays(node, *_CACHES):
            continue
        origins = [source(operand) for operand in node.inputs]
        if any(origin is not None and origin.role is Role.INPUT for origin in origins):
            joins[node] = None
    return list(joins)


def _vocabulary(embeddings: Sequence[Node], outputs: Iterable[Value], types: Inferred) -> Node | None:
    """The product before an output whose last size is that of an embedding's table."""
    tables = [types.type_of(node.inputs[0]).shape for node in embeddings]
    sizes = {shape[0] for shape in tables if shape is not None}
    for value in outputs:
        shape = types.type_of(value).shape
        node = producer(value)
        if shape and node is not None and is_product(node) and shape[-1] in sizes:
            return node
    return None
