"""Every difference between a counter and irscope, operator by operator, until nothing is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from irscope.ir.graph import Node
from irscope.ops.cost import Cost
from irscope.passes.costs.count import Costs
from irscope.peers.base import Counted

_OTHER_FLOPS = "no matrix product: irscope counts it, {peer} does not"
_MISSED = "{peer} does not count these matrix products or convolutions"
_BESIDE = "what comes with the product (bias, softmax, scale) is not counted by {peer}"
_OTHER_RULE = "{peer} counts this operator by another rule"
_OTHER_PRODUCT = "{peer} counts this product by another rule"
_FREE = "{peer} counts what irscope takes for moving data"
_FAILED = "{peer} fails on these calls, or they are not made"
_OUTSIDE = "{peer} counts it where irscope has no node"


@dataclass
class Row:
    """One reason with one operator: irscope's FLOPs, the counter's, in one convention."""

    reason: str
    operator: str
    nodes: int = 0
    ours: int = 0
    theirs: float = 0

    @property
    def difference(self) -> float:
        return self.ours - self.theirs


@dataclass(frozen=True)
class Reconciled:
    """The comparison with one counter."""

    total: int
    """irscope's FLOPs, all classes."""
    theirs: float
    """The counter's total as FLOPs with a multiply-add as 2."""
    rows: tuple[Row, ...]

    @property
    def agreed(self) -> int:
        """FLOPs on which both agree."""
        return sum(row.ours for row in self.rows if row.difference == 0)

    @property
    def rest(self) -> float:
        """What no row explains; it is 0."""
        return self.total - self.theirs - sum(row.difference for row in self.rows)


def reconcile(costs: Costs, counted: Counted, peer: str, labels: Mapping[Node, str] | None = None) -> Reconciled:
    """Explain a counter's total; `labels` are names of nodes besides those of their results.

    Costs must be integers: bind the symbols first.
    """
    factor = 2 if counted.unit == "multiply-adds" else 1
    left = dict(counted.by_node)
    rows: dict[tuple[str, str], Row] = {}
    theirs_total = 0.0

    def add(reason: str, operator: str, ours: int, theirs: float) -> None:
        row = rows.setdefault((reason, operator), Row(reason.format(peer=peer), operator))
        row.nodes += 1
        row.ours += ours
        row.theirs += theirs

    total = 0
    for node, cost in _leaves(costs):
        names = dict.fromkeys(((labels or {}).get(node), *(output.name for output in node.outputs)))
        numbers = [left.pop(name) for name in names if name is not None and name in left]
        product, whole = cost.matmul, cost.flops
        assert isinstance(product, int)
        assert isinstance(whole, int)
        # A counter of multiply-adds counts other operators one by one, so only products are doubled.
        theirs = sum(numbers) * (factor if product else 1)
        total += whole
        theirs_total += theirs
        if whole and any(name in counted.failed for name in names):
            add(_FAILED, node.op, whole, theirs)
            continue
        for reason, ours, part in _split(product, whole - product, theirs):
            add(reason, node.op, ours, part)
    for name, number in (*left.items(), *counted.outside.items()):
        theirs_total += number
        add(_OUTSIDE, name, 0, number)
    ordered = sorted(rows.values(), key=lambda row: (row.difference != 0, -abs(row.difference), -row.ours, row.operator))
    return Reconciled(total, theirs_total, tuple(ordered))


def _split(product: int, other: int, theirs: float) -> Iterator[tuple[str, int, float]]:
    """A node's FLOPs in products and besides, against the counter's: parts that agree, and parts with the reason they do not."""
    if theirs == 0:
        if product:
            yield _MISSED, product, 0
        if other:
            yield (_BESIDE if product else _OTHER_FLOPS), other, 0
    elif product:
        if theirs == product + other:
            yield "both agree", product + other, theirs
            return
        yield ("both agree", product, theirs) if theirs == product else (_OTHER_PRODUCT, product, theirs)
        if other:
            yield _BESIDE, other, 0
    elif theirs == other:
        yield "both agree", other, theirs
    else:
        yield (_OTHER_RULE if other else _FREE), other, theirs


def _leaves(costs: Costs) -> Iterator[tuple[Node, Cost]]:
    for entry in costs.entries:
        yield entry.node, entry.total
