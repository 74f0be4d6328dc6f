"""Findings of all passes in one list, those that save the largest share first: how a model is run, and what it stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from irscope.errors import Cancelled, IrscopeError, UsageError
from irscope.immutable import immutable, mutable
from irscope.ir.dims import Dim, total_of
from irscope.ir.dtypes import DType
from irscope.ir.graph import Facet, Graph, Node, Role, Value
from irscope.ir.program import Runtime
from irscope.ops.cost import FREE, Cost
from irscope.ops.facts import OpRole
from irscope.ops.registry import plays, spec_of
from irscope.ops.spec import Family
from irscope.passes.advice.finding import SOURCES, Enquiry, Finding, Source, load_plugins
from irscope.passes.cost.count import Costs, NodeCosts
from irscope.passes.cost.flops import needless
from irscope.passes.inference.shapes import Shapes
from irscope.passes.lifetimes.changes import NARROW
from irscope.passes.lifetimes.traced import Ranges
from irscope.passes.memory.explain_peak import ExplainPeak
from irscope.passes.memory.liveness import Liveness
from irscope.passes.patterns.fusion import Fusion, Group
from irscope.passes.patterns.walk import chosen
from irscope.passes.sizes import CONVENTION, at_least, dim_cell, scale
from irscope.passes.weights.params import MULTIPLES, alignment_of
from irscope.passes.weights.storages import count_parameters
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance

if TYPE_CHECKING:
    from irscope.passes.weights.values import TensorError

_COPIES = (OpRole.LAYS_OUT, OpRole.RETURNS_OPERAND)
_CASTS = (OpRole.CONVERT, OpRole.CONVERT_LIKE)


def shown(number: Dim | float | None, kind: Kind = Kind.BYTES) -> str:
    """Return a number in a sentence."""
    return humanise(dim_cell(number) if not isinstance(number, float) else number, kind)


def several(count: int, one: str, many: str) -> str:
    """Return a number of things in a sentence."""
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
    """Yield the kernels that do the work of several nodes, by pattern."""
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
    """Return everything as one node, in the place of the one with most products, and the others for nothing."""
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
    """Yield the nodes that only bring elements into another order."""
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
    """Return the nodes that surely copy: their result has a storage of its own, whatever strides are not known."""
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
    """Yield the products of queries with later keys, which a causal mask throws away."""
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
    """Yield the nodes that no output depends on."""
    costs = ask.ctx.get(NodeCosts())
    dead: list[Node] = []
    gone: set[Node] = set()
    for node in reversed(list(ask.ctx.program.graph)):
        spec = spec_of(node)
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
    """Yield the weights and activations of 32 bits as bf16; of a model of integers how wide it computes is settled."""
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
    """Return by how much the peak falls, and how to say it."""
    try:
        advice = ask.ctx.get(ExplainPeak())
    except IrscopeError as problem:
        return 0, f"the peak of activations is not known ({problem.message})"
    saved = sum(advice.saves for advice in advice.single if advice.change.kind == NARROW)
    return saved, f"the peak of activations falls from {shown(advice.peak)} to {shown(advice.peak - saved)}"


# Advice on weights: what is there twice or for nothing, fewer bits, channels that do nothing, sizes that hardware does not like.


def size_of(weight: Value) -> int:
    """Return the bytes of a weight, 0 where they are not known."""
    size = weight.type.nbytes
    return size if isinstance(size, int) else 0


def _weights_counted(count: int) -> str:
    return several(count, "weight", "weights")


def _say_unread(ask: Enquiry, unread: dict[Value, str]) -> None:
    for weight, reason in unread.items():
        ask.problems.append(f"the values of {weight.name!r} are not known: {reason}")


def unused(ask: Enquiry) -> Iterator[Finding]:
    """Yield the weights that nothing reads, where there is a graph that could."""
    if not len(ask.ctx.program.graph):
        return
    totals = count_parameters(ask.ctx.program)
    shared = {*totals.tied_to, *totals.tied_to.values(), *totals.overlaps, *totals.overlaps.values()}
    weights = [weight for weight in totals.weights if not weight.users and weight not in shared and size_of(weight)]
    if weights:
        size = sum(map(size_of, weights))
        yield Finding(
            what=f"remove {_weights_counted(len(weights))} that nothing reads",
            evidence=f"{shown(size)} in storages of their own",
            sure="exact",
            weights=tuple(weights),
            memory=size,
            seconds=0.0,
        )


def duplicates(ask: Enquiry) -> Iterator[Finding]:
    """Yield the weights with the same contents in different places."""
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
    """Yield the smallest formats in which matrices keep the signal to noise that is asked for."""
    from irscope.passes.weights.values import QuantizeError  # reads values, for which few ask

    errors = ask.ctx.get(QuantizeError(target=ask.target, threads=ask.threads, allow=ask.allow))
    _say_unread(ask, errors.unread)
    formats: dict[str, list[TensorError]] = {}
    for tensor in errors.tensors:
        if tensor.smallest and tensor.bytes is not None and tensor.bytes < size_of(tensor.weight):
            formats.setdefault(tensor.smallest, []).append(tensor)
    costs = ask.ctx.get(NodeCosts())
    for key, tensors in formats.items():
        sizes = {tensor.weight: size_of(tensor.weight) - (tensor.bytes or 0) for tensor in tensors}
        worst = min(tensors, key=lambda tensor: tensor.decibels[key])
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
    """Return the nodes that multiply with weights that are smaller."""
    changed: dict[Node, Cost] = {}
    for weight, saved in sizes.items():
        for user in weight.users or ():
            cost = changed.get(user, costs.get(user)) if isinstance(user, Node) else None
            if cost is not None and isinstance(user, Node) and isinstance(cost.read, int) and cost.matmul != 0:
                changed[user] = replace(cost, read=max(cost.read - saved, 0))
    return changed


def pruning(ask: Enquiry) -> Iterator[Finding]:
    """Yield the rows and columns of zeros, and matrices that are sparse in groups of four as they are."""
    from irscope.passes.weights.prune_report import PruneReport  # reads values, for which few ask

    result = ask.ctx.get(PruneReport(threads=ask.threads, allow=ask.allow))
    _say_unread(ask, result.unread)
    left = {one.weight: size_of(one.weight) for one in result.dead}
    for one in result.dead:
        left[one.weight] = left[one.weight] * (one.slices - one.dead) // one.slices
    if left:
        yield Finding(
            what=f"remove {several(sum(one.dead for one in result.dead), 'row or column', 'rows and columns')} of zeros",
            evidence=f"in {_weights_counted(len(left))}; what makes or reads these channels has to shrink with them",
            sure="bound",
            weights=tuple(left),
            memory=sum(size_of(weight) - size for weight, size in left.items()),
            moved=None,
            flops=None,
            is_lossless=False,
        )
    ready = [thinned for thinned in result.thinned if thinned.ready == 1.0 and thinned.sparse_bytes is not None]
    saved = sum(size_of(one.weight) - (one.sparse_bytes or 0) for one in ready)
    if saved > 0:
        yield Finding(
            what=f"store {_weights_counted(len(ready))} in 2:4 form",
            evidence="at least two zeros in every group of four along the axis that is summed over",
            sure="exact",
            weights=tuple(one.weight for one in ready),
            memory=saved,
        )


def alignment(ask: Enquiry) -> Iterator[Finding]:
    """Matrices whose sizes are not multiples of what matrix units take at once."""
    least = MULTIPLES[0]
    values: list[Value] = []
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
        values.append(weight)
        rows, columns = (size for size in shape if isinstance(size, int))
        filled = -(-rows // least) * least * (-(-columns // least) * least)
        more += (filled - rows * columns) * (type_.dtype.bits or 8) // 8
    if values:
        yield Finding(
            what=f"make sizes of {_weights_counted(len(values))} multiples of {least}",
            evidence=f"filling up takes {shown(more)} more; kernels for other sizes are slower, by how much is not modelled",
            sure="exact",
            weights=tuple(values),
            memory=-more,
            moved=None,
            flops=None,
        )


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
    Source("alignment", "Sizes that are not multiples of what matrix units take at once.", alignment),
    Source("duplicates", "Weights that are there more than once.", duplicates, needs_values=True),
    Source("precision", "Fewer bits for weights at a given signal to noise.", precision, needs_values=True),
    Source("pruning", "Rows and columns of zeros, and sparse groups of four.", pruning, needs_values=True),
)


_FAILED = "IRS471"
_SAVINGS = (
    Column("rank", Kind.INDEX),
    Column("memory", Kind.BYTES, "memory"),
    Column("seconds", Kind.SECONDS, "time", provenance=Provenance.MODELLED),
    Column("flops", Kind.FLOPS, "FLOPs"),
    Column("moved", Kind.BYTES, "bytes moved"),
)
_NOTES = (
    "share: the largest of memory saved of weights and activation peak together, and time saved of the least time; without a time of "
    "FLOPs or of bytes moved",
    "time: by how much the device's lower bound falls; savings of several findings do not add up",
    "results: whether they stay the same, up to rounding",
    "sure: exact is counted, modelled depends on how the model is run, bound is an upper bound of the saving",
)


@immutable(slots=False)
class Ranked:
    """A finding with its source, and which share of the model's memory, time or work it saves."""

    source: Source
    finding: Finding
    share: float


@mutable
class AdviceList:
    """All findings, and what was not examined."""

    device: str
    at: dict[str, int]
    """Sizes that open symbols were taken to have for times, peaks and shares."""
    ranked: list[Ranked] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    not_asked: dict[str, str] = field(default_factory=dict)
    """Sources that were not asked for."""
    failed: dict[str, str] = field(default_factory=dict)
    """Sources that could not answer, or not for everything."""
    wholes: dict[str, Dim | float | None] = field(default_factory=dict)
    """Totals that shares are fractions of."""


@dataclass(frozen=True)
class Advise(Analysis[AdviceList]):
    """Rank possible improvements by the memory, time or arithmetic that each saves, with evidence and confidence.

    Values of weights are read only with `values`; `target` is the signal to noise in dB that fewer bits have to keep.
    """

    name: ClassVar[str] = "advise"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)
    known_of_weights: ClassVar[tuple[str, ...]] = (
        "findings_count",
        "weight_bytes",
        "device",
        "findings",
        "savings",
        "evidence",
        "not examined",
    )

    values: bool = False
    """Whether values of weights are read, for advice about pruning and quantization."""
    device: str = ""
    """A device for times; default: what --device says, else h200."""
    target: float = 30.0
    """Signal-to-noise ratio in dB that quantized weights must reach."""
    topics: tuple[str, ...] = ()
    """Sources of findings to use; default: all."""
    top: int = 20
    """Findings listed, 0 for all."""
    threads: int = 0
    """Threads that read weights; 0: one per core."""
    allow: tuple[str, ...] = ()
    """Further folders from which external data may be read."""

    def compute(self, graph: Graph, ctx: PassContext) -> AdviceList:
        for problem in load_plugins():
            ctx.sink.warn("IRS101", problem)
        sources = {source.name: source for source in BUILT_IN} | SOURCES
        unknown = [name for name in self.topics if name not in sources]
        if unknown:
            raise UsageError(f"there is no advice on {unknown[0]!r}", code="IRS473", hint=f"topics are {', '.join(sources)}")
        ask = Enquiry(ctx, self.device, self.target, self.threads, self.allow)
        result = AdviceList(ask.clock.device.title, ask.clock.at)
        found: list[tuple[Source, Finding]] = []
        for source in sources.values():
            if self.topics and source.name not in self.topics:
                result.not_asked[source.name] = "the option topics leaves it out"
            elif source.needs_values and not self.values:
                result.not_asked[source.name] = "values of weights are read only with advise{values}"
            else:
                found += self._asked(source, ask, result, ctx)
        result.wholes = self._wholes(ask, ctx)
        ranked = [Ranked(source, finding, _largest_share(finding, result.wholes)) for source, finding in found]
        result.ranked = sorted(ranked, key=lambda one: -one.share)
        return result

    def _asked(self, source: Source, ask: Enquiry, result: AdviceList, ctx: PassContext) -> list[tuple[Source, Finding]]:
        ask.problems.clear()
        result.asked.append(source.name)
        try:
            found = [(source, finding) for finding in source.find(ask)]
        except Cancelled:
            raise
        except IrscopeError as error:
            found = []
            ask.problems.append(str(error))
        if ask.problems:
            result.failed[source.name] = "; ".join(ask.problems)
            ctx.sink.warn(_FAILED, f"advice on {source.name} is not complete: {result.failed[source.name]}", about=source.name)
        return found

    def _wholes(self, ask: Enquiry, ctx: PassContext) -> dict[str, Dim | float | None]:
        totals, cost = count_parameters(ctx.program), ctx.get(NodeCosts()).total
        weights = totals.every_byte
        timeline = ctx.get(Liveness())
        return {
            "weights": weights,
            "activations": None if timeline.unsized else timeline.peak,
            "seconds": ask.clock.seconds,
            "flops": cost.flops,
            "moved": None if cost.read is None or cost.written is None else cost.read + cost.written,
        }

    def report(self, result: AdviceList, ctx: PassContext) -> Report:
        wholes = result.wholes
        missing = [*((name, why, "could not be answered") for name, why in result.failed.items())]
        missing += [(name, why, "not asked") for name, why in result.not_asked.items() if not self.topics]
        tables = self._tables(result) if result.ranked else []
        if missing:
            tables.append(Table.of(missing, ["topic:text", "why:text", "state:text"], "not examined"))
        notes = [CONVENTION, *_NOTES]
        if result.at:
            sizes = ", ".join(f"{name}={size}" for name, size in result.at.items())
            notes.append(f"times, peaks and shares with {sizes}; bind symbols for others")
        if not result.ranked:
            asked = [name for name in result.asked if name not in result.failed]
            notes.append(f"nothing to advise on {', '.join(asked)}")
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "findings_count": len(result.ranked),
                "device": result.device,
                "weight_bytes": at_least(wholes["weights"], count_parameters(ctx.program).is_complete()),
                "activation_peak_bytes": _advice_cell(wholes["activations"]),
                "least_seconds": at_least(wholes["seconds"], not ctx.get(NodeCosts()).missing, Provenance.MODELLED),
            },
            units={"findings_count": Kind.COUNT},
            tables=tuple(tables),
            coverage=Coverage(len(result.asked) - len(result.failed), len(result.asked) + len(result.not_asked), tuple(result.failed)),
            notes=tuple(notes),
            partial=bool(result.failed),
        )

    def _tables(self, result: AdviceList) -> list[Table]:
        listed = list(enumerate(result.ranked[: self.top or None], 1))
        what = [
            (rank, one.source.name, one.finding.what, one.share, one.finding.sure, "same" if one.finding.is_lossless else "change")
            for rank, one in listed
        ]
        found = [(rank, one.finding) for rank, one in listed]
        saved = [(rank, _advice_cell(one.memory), one.seconds, _advice_cell(one.flops), _advice_cell(one.moved)) for rank, one in found]
        evidence = [(rank, piece) for rank, one in found for piece in (*one.evidence.split("; "), *_where(one))]
        return [
            Table.of(what, ["rank:index", "topic:text", "what:text", "share:ratio", "sure:text", "results:text"], "findings"),
            Table.of(saved, _SAVINGS, "savings"),
            Table.of(evidence, ["rank:index", "evidence:text"], "evidence"),
        ]


def _advice_cell(number: Dim | float | None) -> int | float | str | None:
    return number if isinstance(number, float) else dim_cell(number)


def _where(finding: Finding) -> Iterator[str]:
    for kind, found in (("weights", finding.weights), ("nodes", finding.nodes)):
        if found:
            yield f"{kind}: {', '.join(one.name or '?' for one in found)}"


def _largest_share(finding: Finding, wholes: dict[str, Dim | float | None]) -> float:
    """Return the largest share that a finding saves of anything; sizes that are open are taken to be typical."""
    weights, activations = wholes["weights"], wholes["activations"]
    held = _for_ranking(weights) + _for_ranking(activations)
    shares = [_for_ranking(finding.memory) / held if held else 0.0]
    if finding.seconds is not None:
        whole = _for_ranking(wholes["seconds"])
        shares.append(finding.seconds / whole if whole else 0.0)
    else:
        for saved, of in ((finding.flops, wholes["flops"]), (finding.moved, wholes["moved"])):
            shares.append(_for_ranking(saved) / _for_ranking(of) if _for_ranking(of) else 0.0)
    return min(1.0, max(0.0, *shares))


def _for_ranking(value: Dim | float | None) -> float:
    if value is None:
        return 0.0
    return float(value) if isinstance(value, int | float) else float(scale(value))
