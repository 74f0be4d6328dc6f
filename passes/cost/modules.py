"""What each module has and costs, in one tree: what other passes find by node, added up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import ClassVar

from irscope.ir.dims import Dim
from irscope.ir.graph import Facet, Graph, Node, Role, Value
from irscope.ir.places import Scope
from irscope.passes.cost.count import NodeCosts, Tally
from irscope.passes.cost.roofline import Roofline
from irscope.passes.cost.tables import cell, in_order, scope_label, tally_tree
from irscope.passes.lifetimes.timeline import Footprint
from irscope.passes.memory.liveness import Liveness
from irscope.passes.sizes import CONVENTION, at_least, dim_cell
from irscope.passes.weights.storages import ParameterTotals, count_parameters
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance

_WEIGHTS = "parameters of a module: those that its nodes read, or that several modules inside it share; tied ones count once"
_AT_PEAK = "at the peak: results that are alive at the peak of memory, by the module that made them; weights and inputs are not among them"


@dataclass
class ModuleCost:
    """One module call with everything inside it."""

    parameters: Dim = 0
    parameter_bytes: Dim = 0
    seconds: float = 0.0
    at_peak: Dim = 0
    untimed: int = 0
    """Nodes whose time is unknown."""

    def add(self, other: ModuleCost) -> None:
        """Count what is inside."""
        self.parameters = self.parameters + other.parameters
        self.parameter_bytes = self.parameter_bytes + other.parameter_bytes
        self.seconds += other.seconds
        self.at_peak = self.at_peak + other.at_peak
        self.untimed += other.untimed


@dataclass
class ModuleCosts:
    """The tree of module calls."""

    tallies: dict[Scope, Tally]
    costs: dict[Scope, ModuleCost] = field(default_factory=dict)
    device: str = ""
    peak_is_sure: Provenance = Provenance.EXACT
    """Where the step of the peak comes from."""
    complete: bool = True
    """True where every parameter has a known size."""


@dataclass(frozen=True)
class Modules(Analysis[ModuleCosts]):
    """List what each module has and costs: parameters, FLOPs, bytes, least time, and its part of the memory peak."""

    name: ClassVar[str] = "modules"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)

    depth: int = 0
    """Levels of modules below the model that are listed; 0 for all."""

    def compute(self, graph: Graph, ctx: PassContext) -> ModuleCosts:
        module_costs = ModuleCosts(tally_tree(ctx.get(NodeCosts())))
        costs: dict[Scope, ModuleCost] = defaultdict(ModuleCost)
        totals = count_parameters(ctx.program)
        module_costs.complete = totals.is_complete(Role.PARAMETER)
        for scope, elements, size in _parameters(totals, graph.scope):
            costs[scope].add(ModuleCost(elements, size))
        bounds = ctx.get(Roofline())
        unknown = {one.node for one in bounds.unknown}
        for one in bounds.nodes:
            costs[one.node.scope].add(ModuleCost(seconds=bounds.seconds_of(one), untimed=one.node in unknown))
        footprint = ctx.get(Liveness()).footprint
        for node, size in _made_at_peak(footprint):
            costs[node.scope].add(ModuleCost(at_peak=size))
        module_costs.device = bounds.device.title
        if footprint is not None and not footprint.is_sure:
            module_costs.peak_is_sure = footprint.peak.provenance
        module_costs.costs = _with_inner(costs, module_costs.tallies)
        return module_costs

    def report(self, result: ModuleCosts, ctx: PassContext) -> Report:
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={"modules": len(result.tallies), "device": result.device},
            units={"modules": Kind.COUNT},
            tables=(self._tree(result),),
            notes=(CONVENTION, _WEIGHTS, _AT_PEAK),
        )

    def _tree(self, result: ModuleCosts) -> Table:
        rows = []
        for scope in in_order(result.tallies):
            if self.depth and scope.depth > self.depth:
                continue
            tally, cost = result.tallies[scope], result.costs.get(scope, ModuleCost())
            moved = cell(tally.moved, tally.moved_limits)
            rows.append(
                (
                    scope_label(scope),
                    scope.cls,
                    tally.count,
                    at_least(cost.parameters, result.complete),
                    at_least(cost.parameter_bytes, result.complete),
                    cell(tally.value("flops"), tally.limits("flops")),
                    moved,
                    at_least(cost.seconds if cost.seconds or not cost.untimed else None, not cost.untimed, Provenance.MODELLED),
                    dim_cell(cost.at_peak),
                    scope.path,
                    scope.depth,
                )
            )
        columns = [
            Column("tree"),
            Column("class"),
            Column("nodes", Kind.COUNT),
            Column("parameters", Kind.COUNT),
            Column("weights", Kind.BYTES, help="bytes of its parameters"),
            Column("flops", Kind.FLOPS),
            Column("moved", Kind.BYTES, help="bytes that its nodes read and write"),
            Column("least", Kind.SECONDS, help=f"least time on {result.device}", provenance=Provenance.MODELLED),
            Column("at_peak", Kind.BYTES, help="bytes that it made and that are alive at the peak", provenance=result.peak_is_sure),
            Column("module", detail=True),
            Column("depth", Kind.INDEX, detail=True),
        ]
        return replace(Table.of(rows, columns=columns, title="modules"), depth="depth")


def _made_at_peak(footprint: Footprint | None) -> Iterator[tuple[Node, Dim]]:
    for one in footprint.at_peak if footprint is not None else ():
        if one.node is not None:
            yield one.node, one.size


def _parameters(totals: ParameterTotals, root: Scope) -> Iterator[tuple[Scope, Dim, Dim]]:
    """Yield the parameters with the innermost module that all nodes that read them, under whatever name, are inside of."""
    readers: dict[Value, list[Scope]] = defaultdict(list)
    for weight in totals.weights:
        readers[totals.tied_to.get(weight, weight)] += [user.scope for user in weight.users or () if isinstance(user, Node)]
    for weight, (elements, size) in totals.own.items():
        if weight.role is Role.PARAMETER:
            yield reduce(_around, readers[weight]) if readers[weight] else root, elements, size


def _around(scope: Scope, other: Scope) -> Scope:
    """Return the innermost scope that two scopes are inside of."""
    while scope is not other:
        deeper = scope if scope.depth >= other.depth else other
        if deeper.parent is None:
            return deeper
        scope, other = (other if deeper is scope else scope), deeper.parent
    return scope


def _with_inner(own: Mapping[Scope, ModuleCost], tree: Iterable[Scope]) -> dict[Scope, ModuleCost]:
    """Return the sums over everything inside; what belongs to scopes that no node is in counts for those around them."""
    found = {scope: ModuleCost() for scope in tree}
    for scope, cost in own.items():
        outer: Scope | None = scope
        while outer is not None:
            if outer in found:
                found[outer].add(cost)
            outer = outer.parent
    return found
