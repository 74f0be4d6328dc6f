"""From evidence to a family of models: rules over shares of arithmetic, never over names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from irscope.ir.graph import Node
from irscope.ops.cost import Cost
from irscope.ops.registry import plays
from irscope.ops.spec import OpRole
from irscope.passes.patterns.features import Features
from irscope.passes.sizes import scale

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
        """The part that some nodes do; None where nothing is multiplied."""
        if not self.total:
            return None
        return sum(self.by_node.get(node, 0) for node in dict.fromkeys(nodes)) / self.total


@dataclass(frozen=True)
class Evidence:
    """One thing that was found."""

    what: str
    nodes: tuple[Node, ...]
    share: float | None = None
    why: str = ""

    @property
    def count(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True)
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


def verdict_of(found: Features, work: Work) -> Verdict:
    """The family that explains most of the arithmetic."""
    family, reason, decisive = _family(found, work)
    if found.experts:
        family = f"mixture-of-experts {family}"
    return Verdict(family, reason, decisive, _traits(found), tuple(_evidence(found, work)))


def _family(found: Features, work: Work) -> tuple[str, str, float]:
    mixing = [node for node in found.spatial if node not in found.patches]
    # Where no kernel covers more than one place, convolutions are but another way to write matrix products.
    convolution = (work.share(found.convolutions) or 0.0) if found.spatial else 0.0
    recurrent = work.share(found.recurrent) or 0.0
    if found.attention:
        return _with_attention(found, work, convolution)
    if found.recurrent and recurrent >= _LIKELY / 2:
        return "recurrent network", f"{recurrent:.0%} of the arithmetic is in recurrent operators or loops", recurrent
    if found.scans:
        rest = 1.0 - convolution
        return "state-space model", "a state runs through h = a*h + b, and there is no attention", rest
    if convolution >= _LIKELY / 2 or len(mixing) >= _MANY:
        # Products with weights work on each place alone: only convolutions look to the side.
        return _convolutional(found, convolution, work.share([*found.convolutions, *found.products]) or 0.0)
    if found.recurrent:
        return "recurrent network", "there are recurrent operators or loops", recurrent
    if found.products:
        return (
            "multilayer perceptron",
            "matrix products with weights, and none of what other families have",
            work.share(found.products) or 0.0,
        )
    return "no network", "nothing is multiplied with weights", 0.0


def _with_attention(found: Features, work: Work, convolution: float) -> tuple[str, str, float]:
    """Where attention and the products around it do most, a transformer; where convolutions do, a hybrid."""
    rest = 1.0 - convolution
    count = len(found.attention)
    many = f"{count} attention{'' if count == 1 else 's'}"
    patches = work.share(found.patches) or 0.0
    mostly = f"{convolution:.0%} of the arithmetic is convolution, beside {many}"
    if convolution - patches >= 0.5:
        return "convolutional network with attention", mostly, convolution
    if convolution - patches >= 0.15 and not found.embeddings:
        return "hybrid of convolution and attention", mostly, rest
    causal = sum(one.causal for one in found.attention)
    crossing = sum(one.crosses for one in found.attention)
    if crossing and count > crossing:
        kind = "encoder-decoder transformer" if causal or found.vocabulary is not None else "transformer with cross attention"
        why = f"{crossing} of {many} from one sequence into another, {causal} causal"
    elif found.patches and found.embeddings:
        kind, why = "vision-language transformer", f"{many}, over tiles of an image and over embedded tokens"
    elif causal and causal * 2 >= count:
        kind, why = "decoder-only transformer", f"{causal} of {many} causal"
    elif found.caches:
        kind, why = "decoder-only transformer", f"{many}, with keys that are kept from step to step"
    elif found.patches or not found.embeddings:
        kind, why = "vision transformer" if found.patches else "encoder transformer", f"{many}, none of them causal"
    else:
        kind, why = "encoder-only transformer", f"{many}, {causal} of them causal, over embedded tokens"
    return kind, why, rest + patches


def _convolutional(found: Features, convolution: float, decisive: float) -> tuple[str, str, float]:
    if found.detection:
        return "convolutional detector", "convolutions, then boxes are suppressed or pooled", decisive
    if found.depthwise and len(found.depthwise) * 2 >= len(found.spatial):
        share = f"{len(found.depthwise)} of {len(found.spatial)} convolutions that mix places take each channel for itself"
        return "depthwise-separable convolutional network", share, decisive
    if len(found.upsampling) >= 2:
        return "convolutional encoder-decoder", f"convolutions, with {len(found.upsampling)} steps that enlarge images", decisive
    return "convolutional network", f"{convolution:.0%} of the arithmetic is convolution, and nothing else mixes places", decisive


def _traits(found: Features) -> tuple[str, ...]:
    """Further properties besides the family."""
    traits = {
        "attention": bool(found.attention),
        "decomposed attention": any(not one.is_fused for one in found.attention),
        "causal": any(one.causal for one in found.attention),
        "key-value cache": bool(found.caches),
        "experts": bool(found.experts),
        "recurrent": bool(found.recurrent),
        "scan": bool(found.scans),
        "depthwise": bool(found.depthwise),
        "language model head": found.vocabulary is not None,
        "token embedding": bool(found.embeddings),
        "detection": bool(found.detection),
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
