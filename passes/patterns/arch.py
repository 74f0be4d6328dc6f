"""What kind of model this is: a family, the confidence, and the nodes that are the evidence. Names in the file are never used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from irscope.diagnostics import few
from irscope.immutable import immutable, mutable
from irscope.ir.graph import Facet, Graph, Node, Role, Value
from irscope.ops.cost import Cost
from irscope.ops.facts import OpRole
from irscope.ops.registry import control_of, plays, spec_of
from irscope.ops.spec import Family, OpSpec
from irscope.passes.cost.count import NodeCosts
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passes.patterns.walk import (
    Attention,
    Triangles,
    ancestors,
    attentions,
    back,
    chosen,
    family,
    is_constant,
    is_filter,
    is_passed,
    is_product,
    producer,
    source,
    users,
    weights_of,
)
from irscope.passes.sizes import known_share, scale
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Table
from irscope.report.values import Provenance
from irscope.weights.source import WeightFiles


@immutable(slots=False)
class Kind:
    """The answer of the pass."""

    verdict: Verdict
    features: Features
    work: Work
    nodes: int
    unknown: tuple[str, ...]


_DECISIVE = "share of matrix arithmetic that the family explains"


@dataclass(frozen=True)
class Arch(Analysis[Kind]):
    """Classify the model (attention, convolution, recurrence, mixture of experts, scan) and list the evidence."""

    name: ClassVar[str] = "arch"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    top: int = 5
    """Nodes named for each piece of evidence; 0 for all."""

    def compute(self, graph: Graph, ctx: PassContext) -> Kind:
        types = ctx.get(Shapes)
        costs = ctx.get(NodeCosts())
        nodes = [node for body in (graph, *ctx.program.functions.values()) for node in body.walk()]
        with WeightFiles(ctx.program.path) as files:
            features = features_of(nodes, graph.inputs, graph.outputs, types, Triangles(files), bool(ctx.program.uncounted))
        work = Work.of(costs.by_node, features)
        return Kind(verdict_of(features, work), features, work, costs.counted, tuple(sorted(costs.unknown)))

    def report(self, result: Kind, ctx: PassContext) -> Report:
        verdict, work = result.verdict, result.work
        rows = [(one.what, one.count, one.share, self._names(one.nodes), one.why) for one in verdict.evidence]
        low, high = ctx.get(NodeCosts()).tally.limits("matmul")
        complete = low == high
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "family": verdict.family,
                "confidence": verdict.confidence,
                "because": verdict.reason,
                "traits": ", ".join(verdict.traits),
                "convolution_ratio": known_share(work.share(result.features.convolutions), complete),
                "decisive_ratio": known_share(verdict.decisive if work.total else None, complete, Provenance.MODELLED, _DECISIVE),
            },
            tables=(Table.of(rows, columns=["evidence:text", "nodes:count", "share:ratio", "proof:text", "why:text"], title="evidence"),),
            coverage=Coverage(result.nodes - ctx.get(NodeCosts()).missing, result.nodes, result.unknown),
            notes=("share: part of the FLOPs of matrix products and convolutions",),
        )

    def _names(self, nodes: Sequence[Node]) -> str:
        return few([node.name for node in nodes], self.top or len(nodes), "arch{top=0}")


# From evidence to a family of models: rules over shares of arithmetic, never over names.

_SURE, _LIKELY = 0.75, 0.4
_MANY = 3


@dataclass(frozen=True)
class Work:
    """Arithmetic of matrix products and convolutions by node; formulas count with typical sizes."""

    by_node: Mapping[Node, int]
    total: int

    @classmethod
    def of(cls, costs: Mapping[Node, Cost], features: Features) -> Work:
        nodes = {*features.products, *features.convolutions, *features.recurrent, *features.experts}
        nodes |= {node for one in features.attention for node in one.nodes}
        by_node = {node: scale(cost.matmul) for node, cost in costs.items() if node in nodes}
        return cls(by_node, sum(by_node.values()))

    def share(self, nodes: Iterable[Node]) -> float | None:
        """Return the part that some nodes do; None where nothing is multiplied."""
        if not self.total:
            return None
        return sum(self.by_node.get(node, 0) for node in dict.fromkeys(nodes)) / self.total


@immutable(slots=False)
class Evidence:
    """One thing that was found."""

    what: str
    nodes: tuple[Node, ...]
    share: float | None = None
    why: str = ""

    @property
    def count(self) -> int:
        return len(self.nodes)


@immutable(slots=False)
class Verdict:
    """The family and how sure it is."""

    family: str
    reason: str
    decisive: float
    """Part of the arithmetic that belongs to what decided."""
    traits: tuple[str, ...]
    evidence: tuple[Evidence, ...]

    @property
    def confidence(self) -> str:
        """high, medium or low, by how much of the arithmetic belongs to what decided."""
        if self.decisive >= _SURE:
            return "high"
        return "medium" if self.decisive >= _LIKELY else "low"


def verdict_of(features: Features, work: Work) -> Verdict:
    """Return the family that explains most of the arithmetic."""
    family, reason, decisive = _family(features, work)
    if features.experts:
        family = f"mixture-of-experts {family}"
    return Verdict(family, reason, decisive, _traits(features), tuple(_evidence(features, work)))


def _family(features: Features, work: Work) -> tuple[str, str, float]:
    mixing = [node for node in features.spatial if node not in features.patches]
    # Where no kernel covers more than one place, convolutions are but another way to write matrix products.
    convolution = (work.share(features.convolutions) or 0.0) if features.spatial else 0.0
    recurrent = work.share(features.recurrent) or 0.0
    if features.attention:
        return _with_attention(features, work, convolution)
    if features.recurrent and recurrent >= _LIKELY / 2:
        return "recurrent network", f"{recurrent:.0%} of the arithmetic is in recurrent operators or loops", recurrent
    if features.scans:
        rest = 1.0 - convolution
        return "state-space model", "a state runs through h = a*h + b, and there is no attention", rest
    if convolution >= _LIKELY / 2 or len(mixing) >= _MANY:
        # Products with weights work on each place alone: only convolutions look to the side.
        return _convolutional(features, convolution, work.share([*features.convolutions, *features.products]) or 0.0)
    if features.recurrent:
        return "recurrent network", "there are recurrent operators or loops", recurrent
    if features.products:
        return (
            "multilayer perceptron",
            "matrix products with weights, and none of what other families have",
            work.share(features.products) or 0.0,
        )
    return "no network", "nothing is multiplied with weights", 0.0


def _with_attention(features: Features, work: Work, convolution: float) -> tuple[str, str, float]:
    """Return a transformer where attention and the products around it do most, a hybrid where convolutions do."""
    rest = 1.0 - convolution
    count = len(features.attention)
    many = f"{count} attention{'' if count == 1 else 's'}"
    patches = work.share(features.patches) or 0.0
    mostly = f"{convolution:.0%} of the arithmetic is convolution, beside {many}"
    if convolution - patches >= 0.5:
        return "convolutional network with attention", mostly, convolution
    if convolution - patches >= 0.15 and not features.embeddings:
        return "hybrid of convolution and attention", mostly, rest
    causal = sum(one.causal for one in features.attention)
    crossing = sum(one.crosses for one in features.attention)
    if crossing and count > crossing:
        kind = "encoder-decoder transformer" if causal or features.vocabulary is not None else "transformer with cross attention"
        why = f"{crossing} of {many} from one sequence into another, {causal} causal"
    elif features.patches and features.embeddings:
        kind, why = "vision-language transformer", f"{many}, over tiles of an image and over embedded tokens"
    elif causal and causal * 2 >= count:
        kind, why = "decoder-only transformer", f"{causal} of {many} causal"
    elif features.caches:
        kind, why = "decoder-only transformer", f"{many}, with keys that are kept from step to step"
    elif features.patches or not features.embeddings:
        kind, why = "vision transformer" if features.patches else "encoder transformer", f"{many}, none of them causal"
    else:
        kind, why = "encoder-only transformer", f"{many}, {causal} of them causal, over embedded tokens"
    return kind, why, rest + patches


def _convolutional(features: Features, convolution: float, decisive: float) -> tuple[str, str, float]:
    if features.detection:
        return "convolutional detector", "convolutions, then boxes are suppressed or pooled", decisive
    if features.depthwise and len(features.depthwise) * 2 >= len(features.spatial):
        share = f"{len(features.depthwise)} of {len(features.spatial)} convolutions that mix places take each channel for itself"
        return "depthwise-separable convolutional network", share, decisive
    if len(features.upsampling) >= 2:
        return "convolutional encoder-decoder", f"convolutions, with {len(features.upsampling)} steps that enlarge images", decisive
    return "convolutional network", f"{convolution:.0%} of the arithmetic is convolution, and nothing else mixes places", decisive


def _traits(features: Features) -> tuple[str, ...]:
    """Further properties besides the family."""
    traits = {
        "attention": bool(features.attention),
        "decomposed attention": any(not one.is_fused for one in features.attention),
        "causal": any(one.causal for one in features.attention),
        "key-value cache": bool(features.caches),
        "experts": bool(features.experts),
        "recurrent": bool(features.recurrent),
        "scan": bool(features.scans),
        "depthwise": bool(features.depthwise),
        "language model head": features.vocabulary is not None,
        "token embedding": bool(features.embeddings),
        "detection": bool(features.detection),
    }
    return tuple(name for name, present in traits.items() if present)


def _evidence(found: Features, work: Work) -> Iterable[Evidence]:
    fused = [node for one in found.attention if one.is_fused for node in one.nodes]
    decomposed = [one for one in found.attention if not one.is_fused]
    parts: list[Sequence[Node]] = [one.nodes for one in decomposed]
    causal = [one for one in found.attention if one.causal]
    cross = [one.nodes[0] for one in found.attention if one.crosses]
    listed: list[tuple[str, Sequence[Node], str]] = [
        ("attention, one operator", fused, ""),
        ("attention, product - softmax - product", [node for nodes in parts for node in nodes if plays(node, OpRole.SOFTMAX)], ""),
        ("causal attention", [one.nodes[0] for one in causal], causal[0].why_causal if causal else ""),
        ("cross attention", cross, "keys come from another state than queries"),
        ("key-value cache", found.caches, "an input is joined with new keys"),
        ("experts", found.experts, "the best scores choose which weights are used"),
        ("convolution", found.convolutions, ""),
        ("depthwise convolution", found.depthwise, "each channel for itself"),
        ("patches", found.patches, "a convolution cuts the input into tiles"),
        ("recurrence", found.recurrent, "a state is carried from step to step"),
        ("scan", found.scans, "a state runs through h = a*h + b"),
        ("token embedding", found.embeddings, "rows of a weight chosen by an input"),
        ("language model head", [found.vocabulary] if found.vocabulary is not None else [], "one result for each row of an embedding"),
        ("detection", found.detection, "boxes are suppressed or pooled"),
        ("upsampling", found.upsampling, ""),
        ("matrix products with weights", found.products, ""),
    ]
    inside = {"attention, product - softmax - product": [node for nodes in parts for node in nodes]}
    for what, nodes, why in listed:
        if nodes:
            yield Evidence(what, tuple(nodes), work.share(inside.get(what, nodes)), why)


# What a model has: attention, convolutions, recurrence, experts, scans; each with the nodes that show it.

_CACHES = (OpRole.CONCATENATE, OpRole.WRITE_PART)
_STEP = 60
"""A step of a recurrence has at most so many nodes."""
_CHAIN = 4
"""So many steps of h = a*h + b in a row are a scan that was unrolled."""


@mutable
class Features:
    """Features of the model, each kind as a list of nodes in program order."""

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
    nodes: Sequence[Node],
    inputs: Iterable[Value],
    outputs: Iterable[Value],
    types: Inferred,
    triangles: Triangles,
    has_weights_among_inputs: bool = False,
) -> Features:
    """Look at every node once, and at what leads to and from those that stand out."""
    features = Features(attention=list(attentions(nodes, triangles)))
    finder = _Finder(features, types, dict.fromkeys(inputs), has_weights_among_inputs)
    for node in chosen(nodes, _stands_out):
        finder.look(node)
    features.recurrent.extend(_repeated(features.products))
    features.scans.extend(_unrolled(nodes))
    features.caches = _caches(features.attention)
    features.vocabulary = _vocabulary(features.embeddings, outputs, types)
    return features


_STANDING_OUT = frozenset({Family.CONVOLUTION, Family.RECURRENT})
_PARTS = frozenset([
    OpRole.LOOKUP, OpRole.EXPERTS, OpRole.BEST, OpRole.STATE_SCAN, OpRole.RUNNING_SUM, OpRole.BOXES, OpRole.UPSAMPLE, OpRole.FILTERS,
    OpRole.CODED_PRODUCT,
])  # fmt: skip


def _stands_out(spec: OpSpec) -> bool:
    return spec.family in _STANDING_OUT or spec.factors is not None or spec.control is not None or not spec.roles.isdisjoint(_PARTS)


class _Finder:
    def __init__(self, features: Features, types: Inferred, inputs: dict[Value, None], has_weights_among_inputs: bool) -> None:
        self.has_weights_among_inputs = has_weights_among_inputs
        self.found = features
        self.types = types
        self.inputs = inputs

    def look(self, node: Node) -> None:
        kind, found = family(node), self.found
        if is_filter(node):
            self.convolution(node)
        elif kind is Family.RECURRENT:
            found.recurrent.append(node)
        elif weights_of(node) or (
            self.has_weights_among_inputs and is_product(node) and any(source(one) in self.inputs for one in node.inputs)
        ):
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
        spec = spec_of(node)
        at = 1 if spec is None or spec.codes is None else spec.codes.weight
        shape = self.types.type_of(node.inputs[at] if len(node.inputs) > at else None).shape
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
        is_input = self.has_weights_among_inputs and source(table) in self.inputs
        if table is None or rows is None or not (is_input or is_constant(table)):
            return
        shape = self.types.type_of(table).shape
        if shape is not None and len(shape) == 2 and any(source(value) in self.inputs for value in _reach(rows)):
            self.found.embeddings.append(node)


def _reach(value: Value) -> list[Value]:
    """Return the values that lead to one, it included."""
    return [value, *(operand for node in ancestors(value, 30) for operand in node.inputs if operand is not None)]


def _routes(topk: Node) -> bool:
    """Return whether the best of some scores choose experts: scores come from a product with a weight, and their indices steer what is
    computed."""
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
            if is_passed(node) or family(node) in (Family.COMPARISON, Family.SORTING, Family.ELEMENTWISE)
            for result in node.outputs
        ]
    return False


def _decays(cumsum: Node) -> bool:
    """Return whether a running sum becomes an exponent: the decay of a state, step by step."""
    values = list(cumsum.outputs)
    for _ in range(6):
        near = users(values)
        if any(plays(node, OpRole.EXPONENTIAL) for node in near):
            return True
        values = [value for node in near if is_passed(node) or family(node) is Family.ELEMENTWISE for value in node.outputs]
    return False


def _with_numbers(node: Node) -> bool:
    """Return whether something is compared with 0, 1, 2, ...: what one-hot is made of."""
    return any(one is not None and plays(one, OpRole.RANGE) for one in map(producer, node.inputs))


def _repeated(products: Iterable[Node]) -> list[Node]:
    """Return the products with one weight, each of which needs the one before: recurrence that was written out step by step."""
    by_weight: dict[Value, list[Node]] = {}
    for node in products:
        for operand in weights_of(node):
            root = source(operand)
            if root is not None and root.node is None and root.users:
                by_weight.setdefault(root, []).append(node)
    nodes: dict[Node, None] = {}
    for steps in by_weight.values():
        if len(steps) >= _CHAIN and all(before in _ancestors_of(after) for before, after in pairwise(steps)):
            nodes.update(dict.fromkeys(steps))
    return list(nodes)


def _ancestors_of(node: Node) -> list[Node]:
    """Return the nearest nodes that a node depends on, over all its operands."""
    return [ancestor for operand in node.inputs for ancestor in ancestors(operand, _STEP)]


_SUMS = frozenset({OpRole.ADD, OpRole.ADD_PRODUCT})


def _unrolled(nodes: Iterable[Node]) -> list[Node]:
    """Return the sums of chains h = a*h + b: each adds something to a product with the sum before, and nothing but views lies between."""
    length: dict[Node, int] = {}
    for node in chosen(nodes, lambda spec: not spec.roles.isdisjoint(_SUMS)):
        for operand in node.inputs:
            product = producer(operand)
            if product is None or not plays(product, OpRole.MULTIPLY):
                continue
            before = [producer(factor) for factor in product.inputs]
            sums = (earlier for earlier in before if earlier is not None and earlier is not node and plays(earlier, OpRole.ADD))
            longest = max((length.get(one, 0) for one in sums), default=0)
            length[node] = max(length.get(node, 0), longest + 1)
    return [node for node, steps in length.items() if steps == _CHAIN]


def _caches(found: Iterable[Attention]) -> list[Node]:
    """Joins of an input with new keys, before attention."""
    joins: dict[Node, None] = {}
    for attention in found:
        node = producer(attention.key)
        if node is None or not plays(node, *_CACHES):
            continue
        origins = [source(operand) for operand in node.inputs]
        if any(origin is not None and origin.role is Role.INPUT for origin in origins):
            joins[node] = None
    return list(joins)


def _vocabulary(embeddings: Sequence[Node], outputs: Iterable[Value], types: Inferred) -> Node | None:
    """Return the product before an output whose last size is that of an embedding's table."""
    tables = [types.type_of(node.inputs[0]).shape for node in embeddings]
    sizes = {shape[0] for shape in tables if shape is not None}
    for value in outputs:
        shape = types.type_of(value).shape
        node = producer(value)
        if shape and node is not None and is_product(node) and shape[-1] in sizes:
            return node
    return None
