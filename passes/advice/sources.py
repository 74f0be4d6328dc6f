"""Where advice comes from: how a model is run (the peak of memory, kernels, copies, redundant work), and what it stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from irscope.errors import IrscopeError
from irscope.ir.dims import Dim, total_of
from irscope.ir.dtypes import DType
from irscope.ir.graph import Node, Role, Value
from irscope.ir.program import Runtime
from irscope.ops.cost import FREE, Cost
from irscope.ops.facts import OpRole
from irscope.ops.registry import find_op, plays
from irscope.ops.spec import Family
from irscope.passes.advice.finding import Enquiry, Finding, Source
from irscope.passes.cost.count import Costs, NodeCosts
from irscope.passes.cost.flops import needless
from irscope.passes.inference.shapes import Shapes
from irscope.passes.lifetimes.changes import NARROW
from irscope.passes.lifetimes.ranges import Ranges
from irscope.passes.memory.explain_peak import ExplainPeak
from irscope.passes.patterns.fusion import Fusion, Group
from irscope.passes.patterns.walk import chosen
from irscope.passes.sizes import dim_cell
from irscope.passes.weights.params import MULTIPLES, alignment_of
from irscope.passes.weights.storages import count_parameters
from irscope.report.units import Kind, humanise

if TYPE_CHECKING:
    from irscope.passes.pruning.prune_report import Pruning
    from irscope.passes.weights.quantize_error import TensorError

_COPIES = (OpRole.LAYS_OUT, OpRole.RETURNS_OPERAND)
_CASTS = (OpRole.CONVERT, OpRole.CONVERT_LIKE)


def shown(number: Dim | float | None, kind: Kind = Kind.BYTES) -> str:
    """A number in a sentence."""
    return humanise(dim_cell(number) if not isinstance(number, float) else number, kind)


def several(count: int, one: str, many: str) -> str:
    """A number of things in a sentence."""
    return f"{count} {one if count == 1 else many}"


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
            changed.update(_costs_when_fused(group, costs))
        nodes = tuple(node for group in groups for node in group.nodes)
        before, after = total_of(group.unfused for group in groups), total_of(group.fused for group in groups)
        yield Finding(
            what=f"fuse {pattern}, {several(len(groups), 'time', 'times')}",
            evidence=f"{len(nodes)} nodes move {shown(before)} one by one, {shown(after)} in one kernel each; "
            f"{several(sum(group.launches for group in groups), 'launch', 'launches')} fewer; whether a backend has it is not checked",
            sure="modelled",
            nodes=nodes,
            moved=total_of(group.saved for group in groups),
            seconds=ask.clock.saved(changed),
        )


def _costs_when_fused(group: Group, costs: Costs) -> dict[Node, Cost]:
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
        moved = total_of(_traffic_of(cost, 1) for cost in costs.values())
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
        moved = total_of(_traffic_of(costs.by_node[node], runs.get(node, 1)) for node in nodes)
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
    saved = total_of(flops * entries[node].runs for node, flops in found.items())
    counted = total_of(entries[node].cost.matmul * entries[node].runs for node in found)
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
    flops = total_of(entry.cost.flops * entry.runs for entry in entries)
    yield Finding(
        what=f"remove {several(len(dead), 'node', 'nodes')} that no output depends on",
        evidence="nothing reads their results, and they have no other effect; the pass dce removes them",
        sure="exact",
        nodes=tuple(reversed(dead)),
        moved=total_of(_traffic_of(entry.cost, entry.runs) for entry in entries),
        flops=flops,
        seconds=ask.clock.without(dead),
    )


def half_width(ask: Enquiry) -> Iterator[Finding]:
    """Weights and activations of 32 bits as bf16; of a model of integers how wide it computes is settled."""
    nodes = (node for body in ask.ctx.program.bodies() for node in body.walk())
    if next(chosen(nodes, lambda spec: spec.family is Family.QUANTIZATION), None) is not None:
        return
    weights = [weight for weight in ask.ctx.program.weights() if weight.type.dtype is DType.F32 and weight.users]
    size = total_of(weight.type.nbytes for weight in weights)
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


# ----------------------------------------------------------------------------------------------------
# Advice on weights: what is there twice or for nothing, fewer bits, channels that do nothing, sizes that hardware does not like.


def size_of(weight: Value) -> int:
    """Bytes of a weight, 0 where they are not known."""
    size = weight.type.nbytes
    return size if isinstance(size, int) else 0


def _weights_counted(count: int) -> str:
    return several(count, "weight", "weights")


def _say_unread(ask: Enquiry, unread: dict[Value, str]) -> None:
    for weight, reason in unread.items():
        ask.problems.append(f"the values of {weight.name!r} are not known: {reason}")


def unused(ask: Enquiry) -> Iterator[Finding]:
    """Weights that nothing reads, where there is a graph that could."""
    if not len(ask.ctx.program.graph):
        return
    totals = count_parameters(ask.ctx.program)
    shared = {*totals.tied_to, *totals.tied_to.values(), *totals.overlaps, *totals.overlaps.values()}
    found = [weight for weight in totals.weights if not weight.users and weight not in shared and size_of(weight)]
    if found:
        size = sum(map(size_of, found))
        yield Finding(
            what=f"remove {_weights_counted(len(found))} that nothing reads",
            evidence=f"{shown(size)} in storages of their own",
            sure="exact",
            weights=tuple(found),
            memory=size,
            seconds=0.0,
        )


def duplicates(ask: Enquiry) -> Iterator[Finding]:
    """Weights with the same contents in different places."""
    from irscope.passes.weights.values import WeightValues, shared_look

    look = ask.ctx.get(shared_look(WeightValues(histogram=False, threads=ask.threads, allow=ask.allow), ask.ctx))
    _say_unread(ask, look.unread)
    flat: list[list[Value]] = []
    for group in look.duplicates:
        if look.statistics[group[0]].is_constant:
            flat.append(group)
            continue
        size = size_of(group[0])
        yield Finding(
            what=f"keep {group[0].name} once instead of {len(group)} times",
            evidence=f"{shown(size)} each, equal byte by byte",
            sure="exact",
            weights=tuple(group),
            memory=size * (len(group) - 1),
            seconds=0.0,
        )
    if flat:
        weights = tuple(weight for group in flat for weight in group)
        saved = sum(size_of(group[0]) * (len(group) - 1) for group in flat)
        yield Finding(
            what=f"keep {several(len(flat), 'constant', 'constants')} once instead of {_weights_counted(len(weights))}",
            evidence=f"each holds one number everywhere; together {shown(saved + sum(size_of(group[0]) for group in flat))}",
            sure="exact",
            weights=weights,
            memory=saved,
            seconds=0.0,
        )


def precision(ask: Enquiry) -> Iterator[Finding]:
    """The smallest formats in which matrices keep the signal to noise that is asked for."""
    from irscope.passes.weights.quantize_error import QuantizeError  # reads values, for which few ask

    errors = ask.ctx.get(QuantizeError(target=ask.target, threads=ask.threads, allow=ask.allow))
    _say_unread(ask, errors.unread)
    formats: dict[str, list[TensorError]] = {}
    for one in errors.tensors:
        if one.smallest and one.bytes is not None and one.bytes < size_of(one.weight):
            formats.setdefault(one.smallest, []).append(one)
    costs = ask.ctx.get(NodeCosts())
    for key, tensors in formats.items():
        sizes = {one.weight: size_of(one.weight) - (one.bytes or 0) for one in tensors}
        worst = min(tensors, key=lambda one: one.decibels[key])
        saved = sum(sizes.values())
        yield Finding(
            what=f"store {_weights_counted(len(tensors))} as {key}",
            evidence=f"{shown(sum(map(size_of, sizes)))} become {shown(sum(map(size_of, sizes)) - saved)} with scales; "
            f"weight error at least {worst.decibels[key]:.1f} dB ({worst.weight.name}), target {ask.target:g} dB; no activations were seen",
            sure="exact",
            weights=tuple(sizes),
            memory=saved,
            moved=sum(sizes.values()) if any(weight.users for weight in sizes) else 0,
            seconds=ask.clock.saved(_reading_less(sizes, costs.by_node)),
            is_lossless=False,
        )


def _reading_less(sizes: dict[Value, int], costs: dict[Node, Cost]) -> dict[Node, Cost]:
    """Nodes that multiply with weights that are smaller."""
    changed: dict[Node, Cost] = {}
    for weight, saved in sizes.items():
        for user in weight.users or ():
            cost = changed.get(user, costs.get(user)) if isinstance(user, Node) else None
            if cost is not None and isinstance(user, Node) and isinstance(cost.read, int) and cost.matmul != 0:
                changed[user] = replace(cost, read=max(cost.read - saved, 0))
    return changed


def pruning(ask: Enquiry) -> Iterator[Finding]:
    """Channels that do nothing, and matrices that are sparse in groups of four as they are."""
    from irscope.passes.pruning.prune_report import PruneReport  # reads values, for which few ask

    result = ask.ctx.get(PruneReport(threads=ask.threads, allow=ask.allow))
    _say_unread(ask, result.unread)
    savings = result.savings
    if savings.weights:
        flops, moved = savings.total("flops"), savings.total("read") + savings.total("written")
        costs = {node: after.cost for node, (_, after) in savings.entries.items()}
        yield Finding(
            what=f"remove {several(result.removable, 'channel that does', 'channels that do')} nothing",
            evidence=f"{_weights_counted(len(savings.weights))} get smaller by {shown(savings.weight_bytes)}, "
            f"{len(savings.entries)} nodes compute {shown(flops, Kind.FLOPS)} less",
            sure="exact",
            nodes=tuple(savings.entries),
            weights=tuple(one.weight for one in savings.weights),
            memory=savings.weight_bytes,
            moved=moved,
            flops=flops,
            seconds=ask.clock.saved(costs) if costs else None,
        )
    yield from _constant(result)
    ready = [one for one in result.sparsity.tensors if one.groups is not None and one.groups.ready == 1.0 and one.sparse_bytes is not None]
    saved = sum(size_of(one.weight) - (one.sparse_bytes or 0) for one in ready)
    if saved > 0:
        yield Finding(
            what=f"store {_weights_counted(len(ready))} in 2:4 form",
            evidence="at least two zeros in every group of four along the axis that is summed over",
            sure="exact",
            weights=tuple(one.weight for one in ready),
            memory=saved,
        )


def _constant(result: Pruning) -> Iterator[Finding]:
    if result.foldable:
        yield Finding(
            what=f"fold {several(result.foldable, 'channel that never changes', 'channels that never change')} into a bias",
            evidence="each holds one number whatever the input is; what that saves is not computed",
            sure="exact",
            memory=None,
            moved=None,
            flops=None,
        )


def alignment(ask: Enquiry) -> Iterator[Finding]:
    """Matrices whose sizes are no multiples of what matrix units take at once."""
    least = MULTIPLES[0]
    found: list[Value] = []
    more = 0
    for weight in ask.ctx.program.weights():
        type_ = weight.type
        if weight.role is not Role.PARAMETER or not weight.users or type_.rank != 2:
            continue
        multiple, shape = alignment_of(type_), type_.shape or ()
        if (
            multiple is None
            or multiple >= least
            or not type_.dtype.is_float
            or min(size for size in shape if isinstance(size, int)) < least
        ):
            continue
        found.append(weight)
        rows, columns = (size for size in shape if isinstance(size, int))
        filled = -(-rows // least) * least * (-(-columns // least) * least)
        more += (filled - rows * columns) * (type_.dtype.bits or 8) // 8
    if found:
        yield Finding(
            what=f"make sizes of {_weights_counted(len(found))} multiples of {least}",
            evidence=f"filling up takes {shown(more)} more; kernels for other sizes are slower, by how much is not modelled",
            sure="exact",
            weights=tuple(found),
            memory=-more,
            moved=None,
            flops=None,
        )


# ----------------------------------------------------------------------------------------------------
# The sources that come with irscope, in the order in which they are asked.

BUILT_IN = (
    Source("memory", "Changes of the source that lower the peak.", peak_memory),
    Source("fusion", "Groups of nodes that one kernel could do.", fusion),
    Source("layout", "Nodes that only bring elements into another order.", copies),
    Source("casts", "Conversions of element types that go forth and back.", casts),
    Source("causal", "Products that a causal mask throws away.", masked_products),
    Source("dead-code", "Nodes that no output depends on.", dead_nodes),
    Source("half-width", "Floats of 32 bits as bf16.", half_width),
    Source("unused", "Weights that nothing reads.", unused),
    Source("alignment", "Sizes that are no multiples of what matrix units take at once.", alignment),
    Source("duplicates", "Weights that are there more than once.", duplicates, needs_values=True),
    Source("precision", "Fewer bits for weights at a given signal to noise.", precision, needs_values=True),
    Source("pruning", "Channels that do nothing, and sparse groups of four.", pruning, needs_values=True),
)
