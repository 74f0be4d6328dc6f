"""What could be pruned: slices that are coupled, channels that do nothing, what the model costs without them, what sparse matrices keep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from irscope.immutable import immutable
from irscope.ir.dims import Dim, SymDim, int_or_zero
from irscope.ir.graph import Attr, Facet, Graph, Node, Role, Value
from irscope.ir.types import Shape, TensorType, Type
from irscope.ops.cost import Cost
from irscope.ops.facts import OpRole
from irscope.ops.registry import factors_of, find_op, plays
from irscope.ops.slices import Floats, Ids, Slices
from irscope.ops.slicing import slice_rule
from irscope.ops.spec import Known, OpCall
from irscope.passes.cost.count import Costs, Entry, NodeCosts
from irscope.passes.cost.tables import cell
from irscope.passes.graph.alias import Alias, Aliases, written_operand
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passes.sizes import CONVENTION, at_least, dim_cell, scale
from irscope.passes.weights.storages import ParameterTotals, count_parameters, is_matrix
from irscope.passes.weights.values import Look, WeightValues, open_weights, shared_look
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance
from irscope.weights.losses import METADATA_BITS, EnergyKept, Grouped, Grouping, energy_kept, grouped
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import Stored, read_all, stored_tensor

_DECLARED = (Role.PARAMETER, Role.BUFFER, Role.CONSTANT)


class Constants(Protocol):
    """Known facts about the values of weights."""

    def slices(self, weight: Value) -> tuple[Floats | None, ...]:
        """By axis the number that each slice holds everywhere, NaN where that is not one number or not known."""
        ...

    def number(self, weight: Value) -> float:
        """Return the number in a weight of one element, NaN where it is not known."""
        ...


class Flow:
    """Slices of every value of a graph."""

    def __init__(self, types: Inferred, aliases: Aliases, first_of: Mapping[Value, Value], constants: Constants) -> None:
        self.types = types
        self.channels = Channels()
        self.found: dict[Value, Slices] = {}
        self._aliases = aliases
        self._first_of = first_of
        self._constants = constants
        self._overwritten: dict[Value, str] = {}

    # -- what rules ask ----------------------------------------------------------------------------------------

    def type(self, value: Value | None) -> TensorType | None:
        """Return the type of a tensor whose number of axes is known."""
        type_ = self.types.type_of(value)
        return type_ if isinstance(type_, TensorType) and type_.shape is not None else None

    def shape(self, value: Value | None) -> Shape:
        """Sizes of a value; None where the number of axes is unknown, or there are none."""
        return self.types.type_of(value).shape

    def known(self, value: Value) -> Known | None:
        """Values of a small tensor, where they are known."""
        return self.types.values.get(value)

    def of(self, value: Value | None) -> Slices | None:
        """Slices of an operand; None where it is absent or its number of axes unknown."""
        type_ = self.type(value)
        if value is None or type_ is None or type_.shape is None:
            return None
        found = self.found.get(value)
        if found is None:
            made = self._weight(value, type_) if value.role in _DECLARED else Slices.unknown(len(type_.shape))
            found = self.found[value] = made
        return found

    def sizes(self, value: Value | None) -> tuple[object, ...]:
        """Sizes of a tensor, symbols included."""
        type_ = self.type(value)
        return () if type_ is None or type_.shape is None else type_.shape

    def together(self, ids: Sequence[Ids | None], node: Node) -> Ids | None:
        """Axes that must have one size. One that cannot shrink keeps the others from it."""
        known = [each for each in ids if each is not None]
        if not known:
            return None
        first = known[0]
        if len(known) < len(ids) or any(len(each) != len(first) for each in known):
            for each in known:
                self.channels.block(each, f"{node.name} joins it with something that cannot shrink")
            return None
        for each in known[1:]:
            self.channels.unite(first, each)
        return first

    def contract(self, one: tuple[Ids | None, Floats | None], other: tuple[Ids | None, Floats | None], node: Node, folds: bool) -> None:
        """Products over an axis of two operands are summed; `folds` says whether a constant slice adds the same to every element."""
        ids = self.together((one[0], other[0]), node)
        if ids is None:
            return
        left, right = (np.full(len(ids), math.nan) if held is None else held for _, held in (one, other))
        needed = (left != 0) & (right != 0)
        constant = np.isfinite(left) if folds else np.zeros(len(ids), np.bool_)
        self.channels.read(ids, needed, constant, f"{node.name} reads it")

    # -- the walk ----------------------------------------------------------------------------------------------

    def run(self, graph: Graph) -> None:
        """Follow slices from the weights to the outputs."""
        self._say_what_is_overwritten(graph)
        for node in graph:
            self._node(node)
        for value in graph.outputs:
            self.block(value, "the model returns it")
        for value, name in self._overwritten.items():
            self.block(value, f"{name} writes over it")

    def _node(self, node: Node) -> None:
        spec = find_op(node.op)
        rule = None if spec is None else slice_rule(spec)
        # Rules are for operands that fit the operator; where they do not, nobody knows what comes out.
        fits = all(self.type(output) is not None for output in node.outputs)
        made = rule(self, node) if rule is not None and fits and not node.regions else None
        if made is None:
            self._block_all(node)
            return
        results = [made] if isinstance(made, Slices) else list(made)
        for value, slices in zip(node.outputs, results, strict=False):
            if slices.rank == len(self.sizes(value)):
                self.found[value] = slices
                if not value.users:
                    self.block(value, "nothing reads it")
            else:
                self._block(slices, f"{node.name} has results of a kind that cannot shrink")

    def _block_all(self, node: Node) -> None:
        inside = [inner for region in node.regions for inner in region.walk()]
        for user in (node, *inside):
            for value in user.inputs:
                if value is not None:
                    self.block(value, f"{node.name} ({node.op}) needs all of it")
        for region in (*node.regions, *(body for inner in inside for body in inner.regions)):
            for value in region.outputs:
                self.block(value, f"{node.name} ({node.op}) needs all of it")

    def block(self, value: Value, why: str) -> None:
        """Note that all slices of a value must stay."""
        slices = self.of(value)
        if slices is not None:
            self._block(slices, why)

    def _block(self, slices: Slices, why: str) -> None:
        for ids in slices.ids:
            self.channels.block(ids, why)

    def _say_what_is_overwritten(self, graph: Graph) -> None:
        """Mark values that are written over while other names for them are read later: they do not hold what their own operator says."""
        writers = [(node, value) for node in graph.walk() for value in _written_operands(node)]
        if not writers:
            return
        names: dict[Value, list[Value]] = {}
        for value in (*graph.inputs, *graph.weights, *(output for node in graph for output in node.outputs)):
            names.setdefault(self._aliases.storage(value), []).append(value)
        for node, written in writers:
            own = (written, *node.outputs)
            root = self._aliases.storage(written)
            if root.role in _DECLARED:
                # It is something else in the next run.
                self._overwritten.update(dict.fromkeys(names.get(root, (root,)), node.name))
            for value in names.get(root, ()):
                late = any(not isinstance(user, Node) or user.graph is not graph or node.is_before(user) for user in value.users or ())
                if (value not in own or value is written) and late:
                    for one in (value, *own):
                        self._overwritten[one] = node.name

    def _weight(self, value: Value, type_: TensorType) -> Slices:
        shape = type_.shape or ()
        first = self._first_of.get(value, value)
        if first is not value:
            slices = self.of(first)
            if slices is not None and self.type(first) is type_:
                return slices
            self.block(first, "weights of different shapes lie in its place")
            return Slices.unknown(len(shape))
        ids = tuple(None if isinstance(size, SymDim) else self.channels.fresh(size) for size in shape)
        if value in self._overwritten:
            return Slices(ids, (None,) * len(shape))
        return Slices(ids, self._constants.slices(value), self._constants.number(value))


def _written_operands(node: Node) -> Iterator[Value]:
    """Operands that a node writes over."""
    value, spec = written_operand(node), find_op(node.op)
    if value is not None:
        yield value
    for place in spec.writes if spec is not None else ():
        written = node.inputs[place] if place < len(node.inputs) else None
        if written is not None:
            yield written


# ----------------------------------------------------------------------------------------------------
# Slices of weights and of what is computed from them: which must go together, and which can go without changing any result.

Mask: TypeAlias = npt.NDArray[np.bool_]
_FREE = -1
_MOST_SLICES = 1 << 25
"""Twice the rows and columns of a model of 100 layers with 10 matrices each, 16,384 wide: 256 MB of numbers."""


@immutable(slots=False)
class Verdict:
    """Verdict on every slice."""

    roots: Ids
    """By slice the number of the set it belongs to."""
    goes: Mask
    """By set whether it can go."""
    folds: Mask
    """By set whether it could go if the constant it always holds were added to a bias."""
    why: npt.NDArray[np.int32]
    """By set the number of the text that says why it stays."""
    texts: tuple[str, ...]

    def going(self, ids: Ids) -> Mask:
        """Return which of these slices can go."""
        return self.goes[self.roots[ids]]

    def keep_one(self, ids: Ids) -> None:
        """Of an axis of which everything could go one slice stays: nothing can have none."""
        if len(ids) and bool(self.going(ids).all()):
            self.goes[self.roots[ids[0]]] = False

    def folding(self, ids: Ids) -> Mask:
        """Return which of these slices could go if constants were folded into a bias."""
        return self.folds[self.roots[ids]]

    def reasons(self, ids: Ids) -> dict[str, int]:
        """Return why these slices stay, with the number of slices, most frequent first."""
        found, counts = np.unique(self.why[self.roots[ids]], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        return {self.texts[int(found[place])]: int(counts[place]) for place in order if int(found[place]) != _FREE}


class Channels:
    """Sets of slices, joined wherever an operator needs its operands to have equal sizes."""

    def __init__(self) -> None:
        self._parent: Ids = np.zeros(1024, np.int64)
        self._count = 0
        self._texts: dict[str, int] = {}
        self._blocked: list[tuple[Ids, int]] = []
        self._read: list[tuple[Ids, Mask, Mask, int]] = []

    def fresh(self, size: int) -> Ids | None:
        """New slices, each a set of its own; None for more than are worth telling apart."""
        if self._count + size > _MOST_SLICES:
            return None
        first, self._count = self._count, self._count + size
        if self._count > len(self._parent):
            self._parent = np.concatenate((self._parent, np.zeros(self._count + len(self._parent), np.int64)))
        made = np.arange(first, self._count)
        self._parent[first : self._count] = made
        return made

    def find(self, ids: Ids) -> Ids:
        """Return the sets that slices belong to."""
        roots = self._parent[ids]
        while True:
            above = self._parent[roots]
            if np.array_equal(above, roots):
                break
            roots = above
        self._parent[ids] = roots
        return roots

    def unite(self, one: Ids, other: Ids) -> None:
        """Slices at equal places can only go together."""
        if one is other:
            return
        while True:
            left, right = self.find(one), self.find(other)
            differ = left != right
            if not differ.any():
                return
            # Where one set is to join several, one of them is joined in each round.
            low, high = np.minimum(left, right)[differ], np.maximum(left, right)[differ]
            self._parent[high] = low

    def block(self, ids: Ids | None, why: str) -> None:
        """These slices must stay."""
        if ids is not None and len(ids):
            self._blocked.append((ids, self._text(why)))

    def read(self, ids: Ids, needed: Mask, constant: Mask, why: str) -> None:
        """Something sums over these slices; `needed` ones add something, `constant` ones among them always the same."""
        self._read.append((ids, needed, constant, self._text(why)))

    def _text(self, why: str) -> int:
        return self._texts.setdefault(why, len(self._texts))

    @cached_property
    def verdict(self) -> Verdict:
        """Return what becomes of every slice, once everything has been said."""
        roots = self.find(np.arange(self._count))
        seen, stays, varies = (np.zeros(self._count, np.bool_) for _ in range(3))
        why = np.full(self._count, _FREE, np.int32)
        # What is said last is overwritten by what weighs more: first who reads, then what cannot shrink, the first of each.
        for ids, needed, constant, text in reversed(self._read):
            at = roots[ids]
            seen[at] = True
            stays[at[needed]] = True
            varies[at[needed & ~constant]] = True
            why[at[needed]] = text
        for ids, text in reversed(self._blocked):
            at = roots[ids]
            stays[at] = varies[at] = True
            why[at] = text
        return Verdict(roots, seen & ~stays, seen & stays & ~varies, why, tuple(self._texts))


_MISSING = "IRS440"
_NOTES = (
    "a channel can go where everything that sums over it meets zeros there, in it or in the weights; activations are taken to be finite",
    "costs without these channels are recounted by the operators' rules on the smaller shapes",
    "foldable: channels that always hold one number other than zero, which a bias could take over; their saving is not counted",
    "kept_N: share of the sum of squares that is left when the N % of elements that are smallest in magnitude become zero",
    "2:4: of four neighbours along the axis that is summed over, two are zero; ready is the share of groups that are so already",
)
_AXES = ("rows", "columns")


@immutable(slots=False)
class DeadSlices:
    """Slices of zeros along one axis of a weight, with how many of them can go and what keeps the others."""

    weight: Value
    axis: str
    slices: int
    dead: int
    goes: int
    why: str


@dataclass
class Pruning:
    """The answer of the pass."""

    removable: int
    """Channels that can go: sets of slices that only go together."""
    savings: Savings
    sparsity: Sparsity
    dead: list[DeadSlices] = field(default_factory=list)
    unread: dict[Value, str] = field(default_factory=dict)
    """Weights whose values are not known, with the reason."""
    foldable: int = 0
    """Channels that only a constant keeps from going, each counted once where it is made."""


@dataclass(frozen=True)
class PruneReport(Analysis[Pruning]):
    """Report dead channels, the model's cost without them, and how much energy pruned sparse matrices keep."""

    name: ClassVar[str] = "prune-report"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)
    known_of_weights: ClassVar[tuple[str, ...]] = ("dead_count", "weight_bytes", "energy_kept", "sparsity")

    threads: int = 0
    """Threads that read weights; 0: one per core."""
    allow: tuple[str, ...] = ()
    """Further folders from which external data may be read."""
    top: int = 0
    """Rows of the table of nodes, those that save most first; 0 for all in program order."""

    def compute(self, graph: Graph, ctx: PassContext) -> Pruning:
        look = ctx.get(shared_look(self.wants(), ctx))
        totals = count_parameters(ctx.program)
        with open_weights(ctx, self.allow) as files:
            flow = _flow(graph, ctx, totals, look, files)
            sparsity = thin_out(totals.weights, look, files, self.threads, ctx)
        verdict = flow.channels.verdict
        for slices in flow.found.values():
            for ids in slices.ids:
                if ids is not None:
                    verdict.keep_one(ids)
        savings = savings_of(flow, verdict, ctx.get(NodeCosts()), totals.tied_to)
        weights = {value: slices for value, slices in flow.found.items() if value.node is None and value not in totals.tied_to}
        matrices = {value: slices for value, slices in weights.items() if slices.rank > 1}
        result = Pruning(
            int(verdict.goes.sum()),
            savings,
            sparsity,
            [
                *(found for value, slices in matrices.items() for found in _dead_slices(value, slices, verdict)),
                *(found for value in totals.weights if value not in flow.found for found in _dead_outside(value, totals, look)),
            ],
            {**look.unread, **sparsity.unread},
            sum(int(verdict.folding(slices.ids[0]).sum()) for slices in matrices.values() if slices.ids[0] is not None),
        )
        for weight, reason in sparsity.unread.items():
            if weight not in look.unread:
                ctx.sink.warn(_MISSING, f"the values of {weight.name!r} are not known: {reason}", about=reason)
        return result

    def wants(self) -> WeightValues:
        """Return what of the values it asks for."""
        return WeightValues(histogram=False, threads=self.threads, allow=self.allow)

    def report(self, result: Pruning, ctx: PassContext) -> Report:
        savings, sparsity, costs = result.savings, result.sparsity, ctx.get(NodeCosts())
        weights, tally = count_parameters(ctx.program), costs.tally
        # Values that were not read may be zeros, and channels may be removable behind an unknown operator.
        complete = not result.unread and not costs.missing
        unread = [weight.name or "?" for weight in result.unread]
        summary: dict[str, object] = {
            "dead_count": at_least(sum(one.dead for one in result.dead), not result.unread),
            "removable_count": at_least(result.removable, complete),
            "foldable_count": at_least(result.foldable, complete),
            "weight_bytes": at_least(weights.every_byte, weights.is_complete()),
            "saved_weight_bytes": at_least(savings.weight_bytes, complete),
            "flops": cell(tally.value("flops"), tally.limits("flops")),
            "saved_flops": at_least(savings.total("flops"), complete),
            "moved_bytes": cell(tally.moved, tally.moved_limits),
            "saved_moved_bytes": at_least(savings.total("read") + savings.total("written"), complete),
        }
        if savings.unknown:
            summary["not_counted_again_count"] = len(savings.unknown)
        if sparsity.total is not None and sparsity.total.kept:
            summary["energy_kept"] = dict(zip(_SHARES, sparsity.total.kept, strict=True))
        return Report(
            pass_name=self.name,
            options=self.text,
            summary=summary,
            units={"flops": Kind.FLOPS, "energy_kept": Kind.RATIO},
            tables=tuple(table for table in (_dead(result), _smaller(savings), self._nodes(savings), _sparsity(sparsity)) if len(table)),
            coverage=Coverage(len(weights.weights) - len(unread), len(weights.weights), tuple(unread)),
            notes=(CONVENTION, *_NOTES),
            partial=bool(result.unread),
        )

    def _nodes(self, savings: Savings) -> Table:
        rows = []
        for node, (before, after) in savings.entries.items():
            saved = (before.cost.flops - after.cost.flops) * before.runs
            rows.append(
                (node, before.total.flops, after.total.flops, saved, (_bytes_moved(before.cost) - _bytes_moved(after.cost)) * before.runs)
            )
        if self.top:
            rows = sorted(rows, key=lambda row: -scale(row[3]))[: self.top]
        cells = [(node.name, node.op, node.scope.path, *map(dim_cell, numbers)) for node, *numbers in rows]
        columns = ["node:node", "operator:text", "module:text", "flops:flops", "flops_then:flops", "saved_flops:flops", "saved_moved:bytes"]
        return Table.of(cells, columns, "nodes that get smaller")


_SHARES = ("kept_50", "kept_75", "kept_90")


def _flow(graph: Graph, ctx: PassContext, totals: ParameterTotals, look: Look, files: WeightFiles) -> Flow:
    """Slices of all values, followed from the weights to the outputs."""
    flow = Flow(ctx.get(Shapes), ctx.get(Alias()), totals.tied_to, WeightConstants(look, files))
    for weight in totals.overlaps:
        flow.block(weight, "it shares a part of its storage")
    flow.run(graph)
    for function in ctx.program.functions.values():
        for node in function.walk():
            for value in node.inputs:
                if value is not None and value.graph is graph:
                    flow.block(value, f"{function.name} uses it")
    return flow


def _dead_slices(weight: Value, slices: Slices, verdict: Verdict) -> Iterator[DeadSlices]:
    for axis, (ids, held) in enumerate(zip(slices.ids[:2], slices.held[:2], strict=True)):
        if ids is None or held is None or not (held == 0).any():
            continue
        mine = ids[held == 0]
        goes = verdict.going(mine)
        why = next(iter(verdict.reasons(mine[~goes])), "") if not goes.all() else ""
        yield DeadSlices(weight, _AXES[axis], len(ids), len(mine), int(goes.sum()), why)


def _dead_outside(weight: Value, totals: ParameterTotals, look: Look) -> Iterator[DeadSlices]:
    """Slices of zeros in a weight that no graph reads, as in a checkpoint."""
    made, shape = look.statistics.get(weight), weight.type.shape
    if made is None or shape is None or weight in totals.tied_to:
        return
    for axis, dead in enumerate((made.dead_rows, made.dead_columns)):
        size = shape[axis] if axis < len(shape) else None
        if dead and isinstance(size, int):
            yield DeadSlices(weight, _AXES[axis], size, dead, 0, "no graph shows what reads it")


def _bytes_moved(cost: Cost) -> Dim:
    return (0 if cost.read is None else cost.read) + (0 if cost.written is None else cost.written)


def _dead(result: Pruning) -> Table:
    rows = [(one.weight.name, one.axis, one.slices, one.dead, one.goes, one.why) for one in result.dead]
    return Table.of(rows, ["name:value", "axis:text", "slices:count", "dead:count", "removable:count", "kept_because:text"], "dead slices")


def _smaller(savings: Savings) -> Table:
    rows = []
    for one in savings.weights:
        type_ = one.weight.type
        before, after = type_.nbytes, one.type.nbytes
        saved = before - after if isinstance(before, int) and isinstance(after, int) else None
        rows.append((one.weight.name, type_.shape, one.type.shape, dim_cell(before), saved))
    return Table.of(rows, ["name:value", "shape:shape", "shape_then:shape", "bytes", "saved:bytes"], "weights that get smaller")


def _sparsity(sparsity: Sparsity) -> Table:
    columns = [
        Column("name", Kind.VALUE),
        Column("shape", Kind.SHAPE),
        *(Column(key, Kind.RATIO) for key in _SHARES),
        Column("ready_2_4", Kind.RATIO, "2:4 ready"),
        Column("kept_2_4", Kind.RATIO, "2:4 kept"),
        Column("bytes_2_4", Kind.BYTES, "2:4 bytes", provenance=Provenance.MODELLED),
        Column("why", help="why there are no groups of four"),
    ]
    return Table.of([_row(one) for one in sparsity.tensors], columns, "sparsity")


def _row(one: Thinned) -> tuple[object, ...]:
    type_ = one.weight.type
    shape = type_.shape
    kept = one.kept.kept if one.kept is not None and one.kept.kept else (None,) * len(_SHARES)
    groups = one.groups
    numbers = (None, None, None) if groups is None else (groups.ready, groups.kept, one.sparse_bytes)
    return one.weight.name, shape, *kept, *numbers, one.why_no_groups


# ----------------------------------------------------------------------------------------------------
# What a model costs without the slices that can go: every node that gets smaller is counted again by its operator's rule.


@immutable(slots=False)
class Smaller:
    """A weight of which slices can go: by axis which ones, and the type that is left."""

    weight: Value
    going: tuple[Mask | None, ...]
    type: TensorType

    def count(self, axis: int) -> int:
        """Slices along an axis that go."""
        going = self.going[axis] if axis < len(self.going) else None
        return 0 if going is None else int(np.count_nonzero(going))


@dataclass
class Savings:
    """Weights and nodes that get smaller."""

    weights: list[Smaller] = field(default_factory=list)
    entries: dict[Node, tuple[Entry, Entry]] = field(default_factory=dict)
    """Nodes that cost less, before and after."""
    unknown: list[Node] = field(default_factory=list)
    """Nodes that get smaller, but whose cost is not known exactly."""

    def total(self, measure: str) -> Dim:
        """Return what is saved of FLOPs, bytes read or bytes written."""
        saved: Dim = 0
        for before, after in self.entries.values():
            saved = saved + _amount(before, measure) - _amount(after, measure)
        return saved

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights that go."""
        return sum(int_or_zero(one.weight.type.nbytes) - int_or_zero(one.type.nbytes) for one in self.weights)


def _amount(entry: Entry, measure: str) -> Dim:
    found: Dim | None = getattr(entry.cost, measure)
    return 0 if found is None else found * entry.runs


def savings_of(flow: Flow, verdict: Verdict, costs: Costs, first_of: Mapping[Value, Value]) -> Savings:
    """Apply a verdict."""
    shrink = _Shrink(flow, verdict)
    found = Savings()
    for value in flow.found:
        type_ = shrink.type(value)
        if value.node is None and value not in first_of and type_ is not flow.types.type_of(value) and isinstance(type_, TensorType):
            slices = flow.found[value]
            found.weights.append(Smaller(value, tuple(None if ids is None else verdict.going(ids) for ids in slices.ids), type_))
    if not found.weights:
        return found
    for entry in costs.entries:
        node = entry.node
        operands = [None if value is None else shrink.type(value) for value in node.inputs]
        results = [shrink.type(value) for value in node.outputs]
        before = [*(None if value is None else flow.types.type_of(value) for value in node.inputs), *map(flow.types.type_of, node.outputs)]
        if all(one is other for one, other in zip(before, [*operands, *results], strict=True)):
            continue
        cost = None if entry.bounds is not None else _cost(flow, node, operands, results, shrink.attrs(node))
        if cost is None:
            found.unknown.append(node)
        else:
            found.entries[node] = (entry, replace(entry, cost=cost))
    return found


def _cost(flow: Flow, node: Node, operands: Sequence[Type | None], results: Sequence[Type], attrs: Mapping[str, Attr]) -> Cost | None:
    spec = find_op(node.op)
    known = [None if value is None else flow.types.values.get(value) for value in node.inputs]
    return None if spec is None else spec.cost_of(OpCall(spec, operands, attrs, known, results))


class _Shrink:
    """Types of values and attributes of nodes without the slices that go."""

    def __init__(self, flow: Flow, verdict: Verdict) -> None:
        self._flow = flow
        self._verdict = verdict
        self._types: dict[Value, Type] = {}

    def type(self, value: Value) -> Type:
        if value not in self._types:
            self._types[value] = self._made(value)
        return self._types[value]

    def _made(self, value: Value) -> Type:
        type_ = self._flow.types.type_of(value)
        slices = self._flow.found.get(value)
        if slices is None or type_.shape is None:
            return type_
        sizes = [size if ids is None else self._left(ids) for size, ids in zip(type_.shape, slices.ids, strict=True)]
        return type_ if tuple(sizes) == type_.shape else type_.with_shape(sizes)

    def _left(self, ids: Ids) -> int:
        return len(ids) - int(np.count_nonzero(self._verdict.going(ids)))

    def attrs(self, node: Node) -> Mapping[str, Attr]:
        """Return the attributes after pruning: a grouped convolution is left with fewer groups."""
        groups = node.attrs.get("groups")
        slices = self._flow.found.get(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
        if not isinstance(groups, int) or groups <= 1 or slices is None or slices.rank < 2:
            return node.attrs
        ids = slices.ids[1]
        return node.attrs if ids is None else {**node.attrs, "groups": groups * self._left(ids) // len(ids)}


# ----------------------------------------------------------------------------------------------------
# How far the matrices of a model could be thinned out: energy kept by magnitude, and readiness for 2:4 sparsity.


@immutable(slots=False)
class Thinned:
    """One matrix."""

    weight: Value
    kept: EnergyKept | None
    groups: Grouped | None
    why_no_groups: str = ""

    @property
    def sparse_bytes(self) -> int | None:
        """Bytes of the matrix with two of every four elements, and where they stand."""
        type_ = self.weight.type
        bits = type_.dtype.bits
        return None if self.groups is None or not bits else (self.groups.groups * 2 * (bits + METADATA_BITS) + 7) // 8


@dataclass
class Sparsity:
    """All matrices of floats, and what is left when they are pruned by one global threshold."""

    tensors: list[Thinned] = field(default_factory=list)
    total: EnergyKept | None = None
    unread: dict[Value, str] = field(default_factory=dict)


def thin_out(weights: Iterable[Value], look: Look, files: WeightFiles, threads: int, ctx: PassContext) -> Sparsity:
    """Look at each distinct matrix."""
    found = Sparsity()
    jobs: list[tuple[Value, Stored]] = []
    seen: set[int] = set()
    for weight in weights:
        if not is_matrix(weight, ctx.program) or id(look.statistics.get(weight, weight)) in seen:
            continue
        seen.add(id(look.statistics.get(weight, weight)))
        try:
            if weight in look.unread:
                raise Unreadable(look.unread[weight])
            jobs.append((weight, stored_tensor(weight, files)))
        except Unreadable as problem:
            found.unread[weight] = str(problem)
    kept, found.total = energy_kept([tensor for _, tensor in jobs], files, threads=threads, tick=ctx.tick)
    groups = grouped([Grouping(tensor, _sums_over_second(weight)) for weight, tensor in jobs], files, threads, ctx.tick)
    for (weight, _), one, group in zip(jobs, kept, groups, strict=True):
        if isinstance(one, str):
            found.unread[weight] = one
            continue
        is_known = isinstance(group, Grouped)
        found.tensors.append(Thinned(weight, one, group if isinstance(group, Grouped) else None, "" if is_known else str(group)))
    return found


def _sums_over_second(weight: Value) -> bool:
    """Return whether products are summed over the second axis of a weight, as in linear layers and convolutions; else over the first."""
    value, is_second = weight, True
    while True:
        user = next((one for one in value.users or () if isinstance(one, Node)), None)
        if user is None:
            return is_second
        if plays(user, OpRole.TRANSPOSE) and len(value.users or ()) == 1:
            value, is_second = user.outputs[0], not is_second
            continue
        return is_second != _sums_over_first(user, value)


def _sums_over_first(node: Node, value: Value) -> bool:
    """Return whether an operator sums over the first axis of this operand."""
    factors = factors_of(node)
    if factors is None:
        return plays(node, OpRole.OVER_FIRST)
    return factors.over_first and node.inputs.index(value) == factors.right and not node.attrs.get("trans_b")


# ----------------------------------------------------------------------------------------------------
# What slices of weights hold: zeros from the statistics, and the numbers of vectors, which are small enough to be read.

_LONGEST_VECTOR = 1 << 20


class WeightConstants:
    """Answers for the weights of one program."""

    def __init__(self, look: Look, files: WeightFiles) -> None:
        self._look = look
        self._files = files

    def slices(self, weight: Value) -> tuple[Floats | None, ...]:
        """By axis the number that each slice holds everywhere, NaN where that is not one number or not known."""
        declared = weight.type.shape or ()
        shape = [size for size in declared if isinstance(size, int)]
        if len(shape) < len(declared) or weight not in self._look.statistics:
            return (None,) * len(declared)
        held: list[Floats | None] = [None] * len(shape)
        wide = [axis for axis, size in enumerate(shape) if size != 1]
        if len(wide) <= 1:
            numbers = self._numbers(weight)
            held = [numbers if len(wide) == 0 or axis == wide[0] else None for axis in range(len(shape))]
        statistics = self._look.statistics[weight]
        for axis, dead in enumerate((statistics.dead_row_indices, statistics.dead_column_indices)):
            if axis < len(shape) and held[axis] is None and statistics.dead_rows is not None:
                held[axis] = _with_zeros(shape[axis], dead)
        return tuple(held)

    def number(self, weight: Value) -> float:
        """Return the number in a weight of one element, NaN where it is not known."""
        statistics = self._look.statistics.get(weight)
        if statistics is None or statistics.count != 1 or statistics.min is None:
            return math.nan
        return float(statistics.min)

    def _numbers(self, weight: Value) -> Floats | None:
        try:
            tensor = stored_tensor(weight, self._files)
            if tensor.count > _LONGEST_VECTOR:
                return None
            return read_all(tensor, self._files).astype(np.float64).reshape(-1)
        except Unreadable:
            return None


def _with_zeros(size: int, dead: npt.NDArray[np.int32]) -> Floats:
    made = np.full(size, math.nan)
    made[dead] = 0.0
    return made
