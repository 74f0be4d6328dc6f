"""Bytes that every node moves, and the least time that a device needs: arithmetic at its peak, bytes at its bandwidth, starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from irscope.devices import find_device, target_of
from irscope.devices.profile import DeviceProfile
from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.dims import Dim, int_or_zero, total_of
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.graph import Facet, Graph, Names, Node, Value
from irscope.ir.places import Scope
from irscope.ir.program import Program, Runtime
from irscope.passes.cost.bounds import BALANCE, BINDINGS, FREE, UNKNOWN, Bounder, Bounds, NodeBound, Rates, Tf32
from irscope.passes.cost.count import Costs, Entry, NodeCosts
from irscope.passes.cost.tables import cell, entries_table
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes
from irscope.passes.sizes import CONVENTION, at_least, dim_cell, known_share, scale
from irscope.passes.weights.params import count_parameters
from irscope.passkit.base import Analysis, PassContext
from irscope.report.picture import Panel, largest_bars
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity

_NOTES = (
    "read and written: every operand and result of every node once, views not at all; caches and fusion would make it less",
    "compulsory: inputs and weights that are used once each, and the outputs; no way to run the model moves less",
)


@immutable(slots=False)
class Compulsory:
    """Compulsory traffic: bytes that must be moved however the model is run. A part is None where a size is unknown."""

    inputs: Dim | None
    weights: Dim | None
    outputs: Dim | None

    @property
    def total(self) -> Dim | None:
        if self.inputs is None or self.weights is None or self.outputs is None:
            return None
        return self.inputs + self.weights + self.outputs


@immutable(slots=False)
class Moved:
    """The answer of the pass."""

    costs: Costs
    compulsory: Compulsory


@dataclass(frozen=True)
class Traffic(Analysis[Moved]):
    """Count the bytes that every node reads and writes, and a lower bound of the whole model's traffic."""

    name: ClassVar[str] = "bytes"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    top: int = 0
    """Rows of the table of nodes, most bytes first; 0 for all in program order."""

    def compute(self, graph: Graph, ctx: PassContext) -> Moved:
        types = ctx.get(Shapes)
        totals = count_parameters(ctx.program)
        weights = [weight for weight in totals.weights if weight.users and weight not in totals.tied_to]
        tied = [owner for weight, owner in totals.tied_to.items() if weight.users and not owner.users]

        def size(values: list[Value]) -> Dim | None:
            return total_of(types.type_of(value).tensor_bytes for value in dict.fromkeys(values))

        compulsory = Compulsory(size([value for value in graph.inputs if value.users]), size([*weights, *tied]), size(list(graph.outputs)))
        return Moved(ctx.get(NodeCosts()), compulsory)

    def report(self, result: Moved, ctx: PassContext) -> Report:
        costs, least = result.costs, result.compulsory
        tally = costs.tally
        moved = tally.moved
        flops = tally.value("flops")
        unknown = [entry.node.op for entry in costs.entries if _has_no_limit(entry)]
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "read_bytes": cell(tally.value("read"), tally.limits("read")),
                "written_bytes": cell(tally.value("written"), tally.limits("written")),
                "moved_bytes": cell(moved, tally.moved_limits),
                "compulsory_bytes": dim_cell(least.total),
                "compulsory": {"inputs": dim_cell(least.inputs), "weights": dim_cell(least.weights), "outputs": dim_cell(least.outputs)},
                # Whether an unknown operator computes or only moves data is unknown.
                "intensity": {
                    "as_counted": intensity(flops, moved) if tally.is_exact else None,
                    "at_most": intensity(flops, least.total) if tally.is_exact else None,
                },
            },
            units={"compulsory": Kind.BYTES, "intensity": Kind.NUMBER},
            tables=(self._nodes(costs), _by_intensity(costs)),
            coverage=Coverage(len(costs.entries) - len(unknown), len(costs.entries), tuple(sorted(set(unknown)))),
            notes=(CONVENTION, *_NOTES),
        )

    def _nodes(self, costs: Costs) -> Table:
        entries = costs.entries
        if self.top:
            entries = sorted(entries, key=lambda entry: -scale(_known_traffic(entry)))[: self.top]
        return entries_table("nodes", entries, ("read", "written", "flops"), _INTENSITY)


def _known_traffic(entry: Entry) -> Dim:
    read, written = entry.cost.read, entry.cost.written
    return ((0 if read is None else read) + (0 if written is None else written)) * entry.runs


def _has_no_limit(entry: Entry) -> bool:
    return entry.limits("read")[1] is None or entry.limits("written")[1] is None


def intensity(flops: Dim, moved: Dim | None) -> float | None:
    """Return the FLOPs for each byte; None where that depends on sizes, and where nothing moves."""
    if not isinstance(flops, int) or not isinstance(moved, int):
        return None
    if not moved:
        return None
    return flops / moved


_INTENSITY = (
    Column("intensity", Kind.NUMBER, help="FLOPs for each byte read or written"),
    lambda entry: intensity(entry.cost.flops * entry.runs, _known_traffic(entry)) if entry.bounds is None else None,
)

_BUSY, _IDLE = 50, 10
"""FLOPs a byte above which arithmetic, and below which memory decides: usual limits of profilers, on any device."""
_INTENSITY_COLUMNS = (
    "flops_per_byte:text", "nodes:count", "of_nodes:ratio", "flops:flops", "of_flops:ratio", "memory:bytes", "of_memory:ratio",
)  # fmt: skip


def _by_intensity(costs: Costs) -> Table:
    """Shares by FLOPs a byte, which need no device: bottlenecks depend on one, and small nodes only wait to be launched there."""
    names = (f"> {_BUSY}", f"{_IDLE} to {_BUSY}", f"< {_IDLE}", "moves nothing", "unknown")
    sums = {name: [0, 0, 0] for name in names}  # nodes, FLOPs, bytes
    for entry in costs.entries:
        cost = entry.total
        moved = None if cost.read is None or cost.written is None else cost.read + cost.written
        is_known = entry.bounds is None and isinstance(cost.flops, int) and isinstance(moved, int) and entry.node.op not in costs.unknown
        ratio = intensity(cost.flops, moved) if is_known else None
        place = 4 if not is_known else 3 if ratio is None else 0 if ratio > _BUSY else 1 if ratio >= _IDLE else 2
        found = sums[names[place]]
        found[0] += 1
        if is_known:
            found[1] += int_or_zero(cost.flops)
            found[2] += int_or_zero(moved)
    nodes, *wholes = (sum(column) for column in zip(*sums.values(), strict=True))
    complete = not sums["unknown"][0]
    rows: list[tuple[object, ...]] = []
    for name, (count, *parts) in sums.items():
        if not count:
            continue
        cells: list[object] = [None] * 4
        if name != "unknown":
            shares = (known_share(part / whole if whole else 0.0, complete) for part, whole in zip(parts, wholes, strict=True))
            cells = [cell for pair in zip(parts, shares, strict=True) for cell in pair]
        rows.append((name, count, count / nodes, *cells))
    return Table.of(rows, _INTENSITY_COLUMNS, "by arithmetic intensity")


_BOUND = "surely: the highest clock, what fits in the last cache read and written for nothing, convolutions by their fewest products"
_ROOFLINE = "by the data sheet, at its clock and from main memory: each node at the dense peak, one after the other"
_FUSED = "the runtime may make one kernel of several nodes: the least time counts products, and weights once"
_NO_BOOST = "the device's highest clock is not known: the least time is at the clock of its data sheet"
_NO_CACHE = "the size of the device's last cache is not known: the least time counts what moves for weights of products alone"
_MEMORY = {
    True: "operands come from the smallest cache that can still hold them, at the rates measured on this machine",
    False: "operands come from main memory: what stays in a cache between two nodes, or is fused, can be faster",
}


@dataclass(frozen=True)
class Roofline(Analysis[Bounds]):
    """Compute a roofline lower bound for the time of each node on a device, and the resource that limits it."""

    name: ClassVar[str] = "roofline"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    device: str = ""
    """A device, "this" for this machine once it is calibrated, or a device file; default: what --device says, else h200."""
    dtype: str = ""
    """Element type that every floating-point tensor is taken to have, such as bf16; default: as the model has them."""
    tf32: Tf32 = "default"
    """Where products of f32 run as TF32 on GPUs that have it: default is as PyTorch does it, in convolutions."""
    top: int = 20
    """Rows of the table of nodes, slowest first; 0 for all in program order."""

    def compute(self, graph: Graph, ctx: PassContext) -> Bounds:
        found = self.at(ctx)
        unknown = found.unknown
        if unknown:
            message = f"the time of {unknown[0].node.op} is unknown and counts as nothing: {unknown[0].reason}"
            ctx.sink.add(Diagnostic(Severity.WARNING, "IRS424", message, unknown[0].node.name, count=len(unknown)), about="time")
        return found

    def at(self, ctx: PassContext, sizes: Mapping[str, int] | None = None) -> Bounds:
        """Return the bounds with symbols at these sizes."""
        device = find_device(self.device) if self.device else target_of(ctx.settings).device
        fused = is_fused(ctx.program)
        rates = Rates(device, self.tf32, in_session=ctx.program.traits.runtime is Runtime.ONNXRUNTIME)
        bounder = Bounder(rates, ctx.get(Shapes), ctx.get(Alias()), element_type(self.dtype), sizes, is_fused=fused)
        entries = ctx.get(NodeCosts()).entries
        nodes = list(bounder.bounds(ctx.each(entries, "bounding", len(entries))))
        return Bounds(device, self.dtype, nodes, fused, bounder.weights_of(entries))

    def report(self, result: Bounds, ctx: PassContext) -> Report:
        device = result.device
        unknown = result.unknown
        counts = {binding: sum(one.binding == binding for one in result.nodes) for binding in BINDINGS}
        total = result.seconds
        # Where nothing but views is known, a time of zero would say something.
        is_known = any(one.binding not in (FREE, UNKNOWN) for one in result.nodes) or not unknown
        least, roofline = (result.least, total) if is_known else (None, None)

        def summed(seconds: Iterable[float]) -> object:
            return at_least(sum(seconds), not unknown, Provenance.MODELLED)

        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "device": device.title,
                "least_seconds": Quantity(least, Provenance.MODELLED, note=_BOUND, lo=result.least if unknown else None),
                "roofline_seconds": Quantity(roofline, Provenance.MODELLED, note=_ROOFLINE, lo=total if unknown else None),
                "if_only": {
                    "arithmetic": summed(one.compute * one.runs for one in result.nodes),
                    "memory": summed(one.memory * one.runs for one in result.nodes),
                    "launches": summed(one.launch * one.runs for one in result.nodes),
                },
                "share_of_time": {
                    binding: known_share(seconds / total if total else None, not unknown, Provenance.MODELLED)
                    for binding, seconds in result.by_binding().items()
                },
                "nodes": counts,
                "ridge": {name: ridge for name in _used_types(result, device) if (ridge := device.ridge(name)) is not None},
                "bandwidth": device.bandwidth.hi if device.bandwidth is not None else None,
            },
            units={
                "if_only": Kind.SECONDS,
                "share_of_time": Kind.RATIO,
                "nodes": Kind.COUNT,
                "ridge": Kind.NUMBER,
                "bandwidth": Kind.BYTES_PER_SECOND,
            },
            tables=(self._nodes(result, total),),
            coverage=Coverage(len(result.nodes) - len(unknown), len(result.nodes), tuple(sorted({one.node.op for one in unknown}))),
            notes=(
                CONVENTION,
                _MEMORY[bool(device.levels)],
                f"ridge: FLOPs a byte at which arithmetic and memory take as long; within a factor of {BALANCE:g} a node is balanced",
                *_assumed(result),
                _figures_of(device),
            ),
            pictures=lambda: _bars(result),
        )

    def _nodes(self, result: Bounds, total: float) -> Table:
        nodes = sorted(result.nodes, key=lambda one: -result.seconds_of(one))[: self.top] if self.top else result.nodes
        columns = [
            Column("node", Kind.NODE),
            Column("operator"),
            Column("module"),
            Column("element"),
            Column("flops", Kind.FLOPS),
            Column("bytes", Kind.BYTES),
            Column("intensity", Kind.NUMBER, help="FLOPs for each byte"),
            Column("bound", help="what takes the time"),
            Column("least", Kind.SECONDS, provenance=Provenance.MODELLED),
            Column("share", Kind.RATIO, provenance=Provenance.MODELLED),
        ]
        return Table.of([_row(one, result, total) for one in nodes], columns=columns, title="slowest nodes" if self.top else "nodes")


def _bars(result: Bounds) -> list[Panel]:
    """Return the least time by operator, and by the modules that the model consists of."""
    by_operator: dict[str, float] = {}
    by_module: dict[str, float] = {}
    paths = [one.node.scope.path.split("/") for one in result.nodes]
    # What holds all others, level by level, is not part of the picture.
    level = next((depth for depth in range(1, max(map(len, paths), default=1)) if len({"/".join(path[:depth]) for path in paths}) > 1), 1)
    for one, path in zip(result.nodes, paths, strict=True):
        seconds, module = result.seconds_of(one), "/".join(path[:level]) or "(model)"
        by_operator[one.node.op] = by_operator.get(one.node.op, 0.0) + seconds
        by_module[module] = by_module.get(module, 0.0) + seconds
    column = Column("least", Kind.SECONDS, provenance=Provenance.MODELLED)
    found = [
        largest_bars(f"least time by {what}", list(parts), [(column, list(parts.values()))])
        for what, parts in (("operator", by_operator), ("module", by_module))
    ]
    return [panel for panel in found if panel is not None and len(panel.names) > 1]


def is_fused(program: Program) -> bool:
    """Return whether what runs a program makes kernels of several nodes."""
    return program.traits.runtime in (Runtime.ONNXRUNTIME, Runtime.XLA)


def _assumed(result: Bounds) -> list[str]:
    """Return what the least time does without, for want of a figure or because the runtime need not do it."""
    device = result.device
    notes = {_FUSED: result.is_fused, _NO_BOOST: device.kind == "gpu" and device.max_clock is None, _NO_CACHE: not device.cache_bytes}
    return [note for note, holds in notes.items() if holds]


def element_type(text: str) -> DType | None:
    """Return the element type that an option names; None for an empty text."""
    if not text:
        return None
    for dtype in DType:
        if dtype.text == text and dtype.kind is DTypeKind.FLOAT:
            return dtype
    known = ", ".join(dtype.text for dtype in DType if dtype.kind is DTypeKind.FLOAT)
    raise UsageError(f"{text!r} is not a floating-point element type", code="IRS606", hint=f"those are {known}")


def _row(one: NodeBound, result: Bounds, total: float) -> tuple[object, ...]:
    is_known = one.binding != UNKNOWN
    seconds = result.seconds_of(one)
    intensity = None if one.intensity is None else float(f"{one.intensity:.4g}")
    amounts = [at_least(amount * one.runs, one.is_exact) for amount in (one.flops, one.bytes)]
    numbers = (*amounts, intensity if one.is_exact else None) if is_known else (None, None, None)
    times = (seconds, seconds / total if total else None) if is_known else (None, None)
    return (one.node.name, one.node.op, one.node.scope.path, one.dtype, *numbers, one.binding, *times)


def _used_types(result: Bounds, device: DeviceProfile) -> list[str]:
    """Element types whose rates were used."""
    used = {one.dtype for one in result.nodes if one.flops}
    return [name for name in device.matrix if name in used]


def _figures_of(device: DeviceProfile) -> str:
    if device.calibrated:
        return f"measured on this machine by irscope calibrate, {device.bandwidth.date if device.bandwidth is not None else ''}"
    return f"published figures; `irscope devices {device.name}` shows their sources"


# One short table of what every operator computes, moves and waits for, in the columns that other profilers' JSON has.

_TRAFFIC_NOTE = "memory: bytes read and written by an operator, weights included, views not counted"
_BOTTLENECK = "bottleneck: what takes the time on {device}: compute, memory, balanced (within a factor of 2), launch, free or unknown"


@immutable(slots=False)
class Layering:
    """The two results that the table joins."""

    costs: Costs
    bounds: Bounds


@dataclass(frozen=True)
class Layers(Analysis[Layering]):
    """List FLOPs, memory traffic, arithmetic intensity and bottleneck of every operator: --format layers-json writes them."""

    name: ClassVar[str] = "layers"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    device: str = ""
    """As in roofline."""
    dtype: str = ""
    """As in roofline."""

    def compute(self, graph: Graph, ctx: PassContext) -> Layering:
        return Layering(ctx.get(NodeCosts()), ctx.get(Roofline(device=self.device, dtype=self.dtype)))

    def report(self, result: Layering, ctx: PassContext) -> Report:
        costs, tally = result.costs, result.costs.tally
        rows: list[tuple[object, ...]] = []
        nodes = [entry.node for entry in costs.entries]
        for name, entry, bound in zip(layer_names(nodes), costs.entries, result.bounds.nodes, strict=True):
            cost, is_exact = entry.total, entry.bounds is None
            moved = None if cost.read is None or cost.written is None else cost.read + cost.written
            flops = dim_cell(cost.flops) if is_exact else cell(cost.flops, entry.limits("flops"))
            ratio = intensity(cost.flops, moved) if is_exact else None
            rows.append((name, entry.node.op, flops, dim_cell(moved) if is_exact else None, ratio, bound.binding))
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "model": ctx.program.path,
                "total_flops": cell(tally.value("flops"), tally.limits("flops")),
                "total_memory_bytes": cell(tally.moved, tally.moved_limits),
            },
            tables=(Table.of(rows, columns=_LAYER_COLUMNS, title="layers", keys=nodes),),
            coverage=Coverage(costs.counted - costs.missing, costs.counted, tuple(sorted(costs.unknown))),
            notes=(CONVENTION, _TRAFFIC_NOTE, _BOTTLENECK.format(device=result.bounds.device.title)),
        )


def layer_names(nodes: Sequence[Node]) -> list[str]:
    """Unique names: the module where a node is all that a call of it does, else module and operator; the node's own outside of modules.

    Later calls of a module carry "#1", "#2", as in paths of scopes; other names that are taken get ".1", ".2".
    """
    inside: Counter[Scope] = Counter(around for node in nodes for around in node.scope.chain)
    names = Names()
    return [names.unique(_layer_name(node, alone=inside[node.scope] == 1)) for node in nodes]


def _layer_name(node: Node, *, alone: bool) -> str:
    scope = node.scope
    if not scope.module:
        return node.name
    module = f"{scope.module}#{scope.call}" if scope.call else scope.module
    return module if alone else f"{module}: {node.op.rpartition('.')[2]}"


_LAYER_COLUMNS = ("name:text", "type:text", "flops:flops", "memory:bytes", "arithmetic_intensity:number", "bottleneck:text")
