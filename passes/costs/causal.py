"""Products that a causal mask makes redundant where the mask is a tensor: pairs whose key is later than the query."""

from __future__ import annotations

from collections.abc import Iterable

from irscope.ir.dims import Dim, exact_div, product
from irscope.ir.graph import Node
from irscope.ops.attention import hidden_pairs
from irscope.passes.costs.count import Costs
from irscope.passes.inference.engine import Inferred
from irscope.passes.patterns.attention import Attention, attentions


def needless(nodes: Iterable[Node], costs: Costs, types: Inferred) -> dict[Node, Dim]:
    """FLOPs of matrix products on pairs that a mask throws away, by node.

    Those that operators tell of themselves (`Cost.masked`), and those of attention whose mask is made by comparing positions or
    cutting off a triangle. Only squares are judged: with more keys than queries a mask may begin anywhere.
    """
    found = {node: cost.masked for node, cost in costs.by_node.items() if cost.masked != 0 and not node.regions}
    for attention in attentions(nodes):
        if not attention.causal:
            continue
        for node in _products(attention):
            cost = costs.by_node.get(node)
            if cost is None or cost.masked != 0 or cost.matmul == 0:
                continue
            share = _hidden(node, attention, cost.matmul, types)
            if share is not None:
                found[node] = share
    return found


def _products(attention: Attention) -> list[Node]:
    """The nodes whose work is a number of FLOPs for each pair."""
    return [node for node in attention.nodes if attention.is_fused or node.op.startswith("math.")]


def _hidden(node: Node, attention: Attention, flops: Dim, types: Inferred) -> Dim | None:
    """The part of a product's FLOPs on later keys; None where queries and keys are not known to be equally many."""
    pairs = _pairs(node, attention, types)
    if pairs is None or pairs[-1] != pairs[-2]:
        return None
    each = exact_div(flops, product(pairs) * 2)
    return None if each is None else each * product(pairs[:-2]) * hidden_pairs(pairs[-2], pairs[-1])


def _pairs(node: Node, attention: Attention, types: Inferred) -> tuple[Dim, ...] | None:
    """Sizes of the scores: whatever is in front, queries, keys."""
    if attention.is_fused:
        query, key = types.type_of(attention.query).shape, types.type_of(attention.key).shape
        if query is None or key is None or len(query) < 3 or len(key) < 3:
            return None
        return (*query[:-2], query[-2], key[-2])
    softmax = next(one for one in attention.nodes if one.op in ("nn.softmax", "nn.log_softmax"))
    return types.type_of(softmax.outputs[0]).shape
