"""What a model has: attention, convolutions, recurrence, experts, scans; each with the nodes that show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from irscope.ir.graph import Node, Role, Value
from irscope.ops.spec import Family
from irscope.passes.inference.engine import Inferred
from irscope.passes.patterns.attention import Attention, attentions
from irscope.passes.patterns.triangles import Triangles
from irscope.passes.patterns.walk import CONTRACTIONS, ancestors, back, family, is_constant, is_view, producer, source, users

_EXPERTS = frozenset({"math.grouped_matmul", "nn.moe", "nn.moe_quantized"})
_DETECTION = frozenset({"vision.nms", "vision.non_max_suppression", "vision.roi_align", "vision.roi_pool", "vision.ps_roi_align"})
_ROUTES = frozenset(
    {"tensor.one_hot", "math.grouped_matmul", "nn.moe", "nn.moe_quantized", "tensor.bincount", "tensor.histc", "tensor.nonzero"}
)
_JOINS = frozenset({"tensor.concat", "tensor.index_put", "tensor.slice_scatter", "tensor.index_copy"})
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
        elif node.op in CONTRACTIONS and any(operand is not None and is_constant(operand) for operand in node.inputs):
            found.products.append(node)
        elif node.op in ("cf.loop", "cf.scan", "cf.map"):
            self.loop(node)
        elif node.op in ("nn.embedding", "nn.embedding_bag", "tensor.gather", "tensor.index", "nn.embed_layer_norm"):
            self.embedding(node)
        elif node.op in _EXPERTS or (node.op == "tensor.topk" and _routes(node)):
            found.experts.append(node)
        elif node.op in ("nn.linear_attention", "tensor.logcumsumexp") or (node.op == "tensor.cumsum" and _decays(node)):
            found.scans.append(node)
        elif node.op in _DETECTION:
            found.detection.append(node)
        elif node.op in ("vision.resize", "tensor.depth_to_space"):
            found.upsampling.append(node)

    def convolution(self, node: Node) -> None:
        found = self.found
        found.convolutions.append(node)
        if node.op == "nn.conv_transpose":
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
        if any(inner.op in CONTRACTIONS for inner in inside):
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
    product, _ = back(
        topk.inputs[0], lambda node: node.op in CONTRACTIONS, lambda node: family(node) in (Family.SOFTMAX, Family.ELEMENTWISE)
    )
    if product is None or len(topk.outputs) < 2:
        return False
    near: list[Node] = []
    values = [topk.outputs[1]]
    for _ in range(6):
        step = [node for node in users(values) if node not in near]
        near += step
        if any(node.op in _ROUTES or (node.op == "compare.equal" and _with_numbers(node)) for node in step):
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
        if any(node.op == "math.exp" for node in near):
            return True
        values = [value for node in near if is_view(node) or family(node) is Family.ELEMENTWISE for value in node.outputs]
    return False


def _with_numbers(node: Node) -> bool:
    """Whether something is compared with 0, 1, 2, ...: what one-hot is made of."""
    return any(one is not None and one.op == "tensor.arange" for one in map(producer, node.inputs))


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
        if node.op not in ("math.add", "math.addcmul"):
            continue
        for operand in node.inputs:
            product = producer(operand)
            if product is None or product.op != "math.mul":
                continue
            before = [producer(factor) for factor in product.inputs]
            longest = max((length.get(one, 0) for one in before if one is not None and one.op == "math.add" and one is not node), default=0)
            length[node] = max(length.get(node, 0), longest + 1)
    return [node for node, steps in length.items() if steps == _CHAIN]


def _caches(found: Iterable[Attention]) -> list[Node]:
    """Joins of an input with new keys, before attention."""
    joins: dict[Node, None] = {}
    for one in found:
        node = producer(one.key)
        if node is None or node.op not in _JOINS:
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
        if shape and node is not None and node.op in CONTRACTIONS and shape[-1] in sizes:
            return node
    return None
