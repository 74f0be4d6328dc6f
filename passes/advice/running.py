"""Advice on how a model is run: the peak of memory, kernels, copies, redundant work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from irscope.errors import IrscopeError
from irscope.ir.dims import Dim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Node
from irscope.ir.program import Runtime
from irscope.ops.cost import FREE, Cost
from irscope.ops.registry import find_op, plays
from irscope.ops.spec import OpRole
from irscope.passes.advice.finding import Enquiry, Finding
from irscope.passes.cost.count import Costs, NodeCosts
from irscope.passes.cost.flops import needless
from irscope.passes.explain_peak import ExplainPeak
from irscope.passes.fusion import Fusion, Group
from irscope.passes.lifetimes.changes import NARROW
from irscope.passes.ranges import Ranges
from irscope.passes.shapes import Shapes
from irscope.passes.sizes import dim_cell
from irscope.report.units import Kind, humanise

_COPIES = (OpRole.LAYS_OUT, OpRole.RETURNS_OPERAND)
_CASTS = (OpRole.CONVERT, OpRole.CONVERT_LIKE)


def shown(number: Dim | float | None, kind: Kind = Kind.BYTES) -> str:
    """A number in a sentence."""
    return humanise(dim_cell(number) if not isinstance(number, float) else number, kind)


def several(count: int, one: str, many: str) -> str:
    """A number of things in a sentence."""
    return f"{count} {one if count == 1 else many}"


def total(parts: Iterable[Dim | None]) -> Dim | None:
    """A sum; None where a part is not known."""
    found: Dim = 0
    for part in parts:
        if part is None:
            return None
        found = found + part
    return found


def peak_memory(ask: Enquiry) -> Iterator[Finding]:
    """Changes of the source that lower the peak of activations, each by itself."""
    if not len(ask.ctx.program.graph):
        return
    advice = ask.ctx.get(ExplainPeak())
    for one in advice.single:
        change = one.change
        if change.kind == NARROW:
            # The weights belong to it: half_width tells both.
            continue
        times = len(change.edits) + len(change.steps)
        yield Finding(
            what=change.what,
            evidence=f"peak {shown(advice.peak)}, then {shown(one.peak)}; "
            f"it is about {several(times, 'tensor', 'tensors')}; that it can be done: {change.sure}",
            sure="modelled",
            nodes=(change.node,) if change.node is not None else (),
            memory=one.saves,
        )


def fusion(ask: Enquiry) -> Iterator[Finding]:
    """Kernels that do the work of several nodes, by pattern."""
    patterns: dict[str, list[Group]] = {}
    for group in ask.ctx.get(Fusion()).groups:
        patterns.setdefault(group.pattern, []).append(group)
    costs = ask.ctx.get(NodeCosts())
    for pattern, groups in patterns.items():
        changed: dict[Node, Cost] = {}
        for group in groups:
            changed.update(_fused(group, costs))
        nodes = tuple(node for group in groups for node in group.nodes)
        before, after = total(group.unfused for group in groups), total(group.fused for group in groups)
        yield Finding(
            what=f"fuse {pattern}, {several(len(groups), 'time', 'times')}",
            evidence=f"{len(nodes)} nodes move {shown(before)} one by one, {shown(after)} in one kernel each; "
            f"{several(sum(group.launches for group in groups), 'launch', 'launches')} fewer; whether a backend has it is not checked",
            sure="modelled",
            nodes=nodes,
            moved=total(group.saved for group in groups),
            seconds=ask.clock.saved(changed),
        )


def _fused(group: Group, costs: Costs) -> dict[Node, Cost]:
    """Everything as one node, in the place of the one with most products, and the others for nothing."""
    known = [(node, costs.by_node[node]) for node in group.nodes if node in costs.by_node]
    if len(known) < len(group.nodes) or group.fused is None:
        return {}
    whole = Cost()
    for _, cost in known:
        whole = whole + cost
    carrier = max(known, key=lambda pair: isinstance(pair[1].matmul, int) and pair[1].matmul)[0]
    arithmetic = Cost(whole.matmul, whole.elementwise, whole.transcendental, whole.reduction, 0, whole.macs, whole.masked, group.fused, 0)
    return {**dict.fromkeys(group.nodes, FREE), carrier: arithmetic}


def copies(ask: Enquiry) -> Iterator[Finding]:
    """Nodes that only bring elements into another order."""
    types = ask.ctx.get(Shapes)
    by_op: dict[str, dict[Node, Cost]] = {}
    for node in _copying(ask):
        first, made = types.type_of(node.inputs[0]), types.type_of(node.outputs[0])
        read, written = (type_.nbytes for type_ in (first, made))
        if read is not None and written is not None:
            by_op.setdefault(node.op, {})[node] = Cost(read=read, written=written)
    for op, costs in by_op.items():
        moved = total(_traffic_of(cost, 1) for cost in costs.values())
        yield Finding(
            what=f"avoid {several(len(costs), 'copy', 'copies')} by {op}",
            evidence=f"they read and write {shown(moved)} and compute nothing; if what comes before can leave the order that is wanted",
            sure="bound",
            nodes=tuple(costs),
            moved=moved,
            seconds=ask.clock.takes(costs),
        )


def _copying(ask: Enquiry) -> list[Node]:
    """Nodes that surely copy: their result has a storage of its own, whatever strides are not known."""
    graph = ask.ctx.program.graph
    if ask.ctx.program.traits.runtime is Runtime.ONNXRUNTIME:
        # ONNX Runtime has no strides: its Transpose always moves every element.
        return [node for node in graph if plays(node, OpRole.TRANSPOSE)]
    own = {one.value for one in ask.ctx.get(Ranges(undecided="share")).ranges}
    return [
        node
        for node in graph
        if plays(node, *_COPIES) and not plays(node, OpRole.DROPOUT) and node.inputs and node.outputs and node.outputs[0] in own
    ]


def casts(ask: Enquiry) -> Iterator[Finding]:
    """Conversions between element types of floats that go forth and back."""
    costs, types = ask.ctx.get(NodeCosts()), ask.ctx.get(Shapes)
    nodes: dict[Node, None] = {}
    for entry in costs.entries:
        node = entry.node
        source = node.inputs[0] if plays(node, *_CASTS) and node.inputs else None
        if source is not None and source.node is not None and plays(source.node, *_CASTS) and source.node.inputs[0] is not None:
            first, last = types.type_of(source.node.inputs[0]), types.type_of(node.outputs[0])
            if first.dtype is last.dtype and first.dtype.is_float:
                nodes.update((one, None) for one in (source.node, node) if one in costs.by_node)
    if nodes:
        runs = {entry.node: entry.runs for entry in costs.entries}
        moved = total(_traffic_of(costs.by_node[node], runs.get(node, 1)) for node in nodes)
        yield Finding(
            what=f"avoid {several(len(nodes), 'cast that goes', 'casts that go')} forth and back",
            evidence=f"they read and write {shown(moved)} and compute nothing; if nothing else needs the type in between, or its rounding",
            sure="bound",
            nodes=tuple(nodes),
            moved=moved,
            seconds=ask.clock.without(nodes),
        )


def _traffic_of(cost: Cost, runs: Dim) -> Dim | None:
    return None if cost.read is None or cost.written is None else (cost.read + cost.written) * runs


def masked_products(ask: Enquiry) -> Iterator[Finding]:
    """Products of queries with later keys, which a causal mask throws away."""
    costs = ask.ctx.get(NodeCosts())
    entries = {entry.node: entry for entry in costs.entries}
    found = {node: flops for node, flops in needless(entries, costs, ask.ctx.get(Shapes)).items() if flops != 0}
    if not found:
        return
    saved = total(flops * entries[node].runs for node, flops in found.items())
    counted = total(entries[node].cost.matmul * entries[node].runs for node in found)
    changed = {node: _without_flops(entries[node].cost, flops) for node, flops in found.items()}
    yield Finding(
        what="leave out what the causal mask throws away",
        evidence=f"of {shown(counted, Kind.FLOPS)} of products in attention {shown(saved, Kind.FLOPS)} are masked; "
        "needs a kernel that knows the mask",
        sure="bound",
        nodes=tuple(found),
        flops=saved,
        seconds=ask.clock.saved(changed),
    )


def _without_flops(cost: Cost, flops: Dim) -> Cost:
    return Cost(
        cost.matmul - flops, cost.elementwise, cost.transcendental, cost.reduction, cost.move, cost.macs, 0, cost.read, cost.written
    )


def dead_nodes(ask: Enquiry) -> Iterator[Finding]:
    """Nodes that no output depends on."""
    costs = ask.ctx.get(NodeCosts())
    dead: list[Node] = []
    gone: set[Node] = set()
    for node in reversed(list(ask.ctx.program.graph)):
        spec = find_op(node.op)
        may_go = spec is not None and not (spec.has_effect or spec.writes or node.regions or "inplace" in node.attrs)
        if may_go and all(user in gone for value in node.outputs for user in value.users or ()):
            gone.add(node)
            dead.append(node)
    entries = [entry for entry in costs.entries if entry.node in gone]
    if not entries:
        return
    flops = total(entry.cost.flops * entry.runs for entry in entries)
    yield Finding(
        what=f"remove {several(len(dead), 'node', 'nodes')} that no output depends on",
        evidence="nothing reads their results, and they have no other effect; the pass dce removes them",
        sure="exact",
        nodes=tuple(reversed(dead)),
        moved=total(_traffic_of(entry.cost, entry.runs) for entry in entries),
        flops=flops,
        seconds=ask.clock.without(dead),
    )


def half_width(ask: Enquiry) -> Iterator[Finding]:
    """Weights and activations of 32 bits as bf16."""
    weights = [weight for weight in ask.ctx.program.weights() if weight.type.dtype is DType.F32 and weight.users]
    size = total(weight.type.nbytes for weight in weights)
    if not weights or not isinstance(size, int):
        return
    activations, known = _activations_in_half(ask)
    now, then = ask.clock.seconds, ask.clock.bounded(ask.clock.entries, DType.BF16)
    seconds = None if now is None or then is None else max(now - then, 0.0)
    times = f"; least time {shown(now, Kind.SECONDS)}, then {shown(then, Kind.SECONDS)}" if seconds is not None else ""
    yield Finding(
        what="run in bf16",
        evidence=f"{several(len(weights), 'weight', 'weights')} of f32 take {shown(size)}; {known}{times}; "
        "results change, by how much is not known",
        sure="bound",
        weights=tuple(weights),
        memory=size - size // 2 + activations,
        moved=None,
        seconds=seconds,
        is_lossless=False,
    )


def _activations_in_half(ask: Enquiry) -> tuple[int, str]:
    """By how much the peak falls, and how to say it."""
    try:
        advice = ask.ctx.get(ExplainPeak())
    except IrscopeError as problem:
        return 0, f"the peak of activations is not known ({problem.message})"
    saved = sum(one.saves for one in advice.single if one.change.kind == NARROW)
    return saved, f"the peak of activations falls from {shown(advice.peak)} to {shown(advice.peak - saved)}"
