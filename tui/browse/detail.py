"""Everything known about one row: a node's operands, results, attributes, origin and cost, or what a module contains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from irscope.diagnostics import few
from irscope.ir.dims import Dim, SymDim
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.places import Loc
from irscope.ir.spelling import attr_text
from irscope.ir.types import Type
from irscope.ops.cost import FLOP_CLASSES, Cost
from irscope.report.celltext import SIGNS
from irscope.report.report import Report
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, bare
from irscope.tui.amounts import ByteSizes, Column, amount
from irscope.tui.browse.outline import Group, Outline, writes_in_place
from irscope.tui.results import Results
from irscope.tui.text import Line, Span, Symbols, cut_end

if TYPE_CHECKING:
    from irscope.passes.inference.engine import Reason

V = TypeVar("V")

_MOST_VALUES = 50
_MOST_TEXT = 300
_MOST_CALLERS = 10
_MOST_READERS = 6
_MOST_SHARED = 8
_ALL_SHARED = "irscope run --passes alias"
_MEASURES = frozenset({"flops", "read", "written"})
_TOP = 5


def detail_lines(outline: Outline, row: int, results: Results, symbols: Symbols, alike: Sequence[int] = ()) -> list[Line]:
    """Return the lines about a row, not yet wrapped; `alike` are the modules that it stands for, if it does for several."""
    item = outline.items[row]
    if isinstance(item, Group):
        return list(_GroupDetail(outline, row, item, results, symbols, alike).lines())
    return list(_NodeDetail(item, outline, results, symbols).lines())


def label(value: Value | None, results: Results, symbols: Symbols) -> str:
    """Return a value as people refer to it; an operand that is left out is `_`."""
    if value is None:
        return "_"
    return f"%{symbols.clean(value.name)}" if value.name is not None else results.names[value]


class _NodeDetail:
    """The card of a node."""

    def __init__(self, node: Node, outline: Outline, results: Results, symbols: Symbols) -> None:
        self.node = node
        self.row_of = outline.row_of
        self.results = results
        self.symbols = symbols
        self.sizes = ByteSizes()

    def lines(self) -> Iterator[Line]:
        node, clean = self.node, self.symbols.clean
        name = label(node.outputs[0], self.results, self.symbols) if node.outputs else ""
        inplace = [Span("  writes into an input", "mark")] if writes_in_place(node) else []
        yield (Span(clean(node.op), "operator"), Span(f"  {name}", "name"), *inplace)
        ran = self.results.step_ops.get(node)
        if ran is not None:
            yield (Span("phase  ", "faint"), Span(ran.phase))
            # What memory is for in the step: a gradient is no activation.
            for _, piece in ran.makes:
                what = piece.name if piece.name.startswith(piece.category) else f"{piece.category} {piece.name}"
                yield (Span("makes  ", "faint"), Span(clean(what), "name"), Span(f"  {humanise(piece.size, Kind.BYTES)}"))
        yield _heading("outputs")
        yield from self.values(node.outputs, self.output)
        yield _heading("inputs")
        yield from self.values(node.inputs, self.input)
        yield from self.cost()
        if node.attrs:
            yield _heading("attributes")
            for key, value in node.attrs.items():
                text = cut_end(clean(attr_text(value)), _MOST_TEXT, self.symbols)
                yield (Span(f"  {clean(key)}", "name"), Span(f" = {text}"))
        yield from self.origin()
        if node.regions:
            yield _heading("regions")
            for region in node.regions:
                yield (Span(f"  {clean(region.name)}", "name"), Span(f"  {len(region):,} nodes"))
        costs, formulas = self.results.costs, self.results.formulas_of.get(node, {})
        cost = costs.by_node.get(node) if costs is not None else None
        if cost is not None:
            yield from _formula_lines(cost, formulas, self.results, self.symbols)

    def cost(self) -> Iterator[Line]:
        costs = self.results.costs
        cost = costs.by_node.get(self.node) if costs is not None else None
        if cost is not None:
            yield _cost_line(cost, self.results, self.symbols)
        elif costs is None and not self.results.has_failed("flops"):
            yield (Span("cost  ", "faint"), Span(self.symbols.waiting, "faint"))
        else:
            yield (Span("cost  ", "faint"), Span(f"{self.symbols.unknown} irscope cannot tell what this operator costs here", "unknown"))

    def values(self, values: Sequence[V], lines_of: Callable[[V], Iterator[Line]]) -> Iterator[Line]:
        if not values:
            yield (Span("  none", "faint"),)
        for value in values[:_MOST_VALUES]:
            yield from lines_of(value)
        if len(values) > _MOST_VALUES:
            yield (Span(f"  and {len(values) - _MOST_VALUES:,} more (irscope show has all)", "faint"),)

    def input(self, value: Value | None) -> Iterator[Line]:
        if value is None:
            yield (Span("  _", "name"), Span("  left out", "faint"))
            return
        origin = f"from {self.symbols.clean(value.node.op)}" if value.node is not None else value.role.value
        yield (*self.typed(value, None if value.node is None else self.row_of.get(value.node)), Span(f"  {origin}", "faint"))

    def output(self, value: Value) -> Iterator[Line]:
        size = self.results.binding.of(self.sizes.of(value))
        yield (*self.typed(value), Span(f"  {amount(size, Kind.BYTES, self.symbols)}", "unknown" if size is None else "plain"))
        yield (Span("    "), *self.users(value))
        alive = None if self.results.lives is None else self.results.lives.of(value)
        if alive is not None:
            storage, tensor = alive
            last = "the end" if tensor.held_by == "output" else f"step {tensor.dies:,}, last needed by {self.symbols.clean(tensor.held_by)}"
            yield (Span(f"    alive from step {tensor.born:,} to {last}", "faint"),)
            if tensor.value is not storage.value:
                yield (Span("    in the buffer of ", "faint"), Span(label(storage.value, self.results, self.symbols), "name"))
        yield from self.sharing(value)
        reason = self.reason(value)
        if reason is not None:
            yield (Span(f"    unknown because {self.symbols.clean(reason.text)}", "unknown"),)
            if reason.fix:
                yield (Span(f"    to make it known, add to the command: {self.symbols.clean(reason.fix)}", "faint"),)

    def sharing(self, value: Value) -> Iterator[Line]:
        """Yield the aliases of a value: its views, and the nodes that write into its storage."""
        others = () if self.results.aliases is None else self.results.aliases.others(value)
        if not others:
            return
        first = self.results.aliases.storage(value) if self.results.aliases is not None else value
        names = [label(one, self.results, self.symbols) for one in others]
        yield (Span("    shares its storage with ", "faint"), Span(few(names, _MOST_SHARED, _ALL_SHARED), "name"))
        if first is not value:
            yield (Span("    which is that of ", "faint"), Span(label(first, self.results, self.symbols), "name"))
        writers = [label(one, self.results, self.symbols) for one in others if one.node is not None and writes_in_place(one.node)]
        if writers:
            yield (Span("    written in place as ", "faint"), Span(few(writers, _MOST_SHARED, _ALL_SHARED), "name"))

    def typed(self, value: Value, to: int | None = None) -> Line:
        return (Span("  "), Span(label(value, self.results, self.symbols), "name", to), Span(f"  {self.symbols.clean(value.type.text)}"))

    def users(self, value: Value) -> Iterator[Span]:
        """Yield the readers of a value: operators with the names of their results, which lead there."""
        users = list(islice(value.users or (), _MOST_READERS + 1))
        yield Span("read by " if users else "read by nothing", "faint")
        clean = self.symbols.clean
        for number, user in enumerate(users[:_MOST_READERS]):
            yield Span(", " if number else "", "faint")
            if isinstance(user, Graph):
                yield Span(f"the result of {clean(user.name)}", "faint")
                continue
            name = label(user.outputs[0], self.results, self.symbols) if user.outputs else ""
            yield Span(f"{clean(user.op)} ", "faint")
            yield Span(name or clean(user.name), "name", self.row_of.get(user))
        if len(users) > _MOST_READERS:
            yield Span(f" and {len(value.users or ()) - _MOST_READERS:,} more (u)", "faint")

    def reason(self, value: Value) -> Reason | None:
        """Return why the type of a value is not known."""
        explanations = self.results.explanations
        if explanations is None:
            return None
        found = explanations.rank_reasons.get(value)
        if found is None:
            for name in _unknown_sizes(value.type):
                found = found or explanations.reasons.get(name)
        return found

    def origin(self) -> Iterator[Line]:
        node, clean = self.node, self.symbols.clean
        yield _heading("origin")
        yield (Span("  scope     ", "faint"), Span(clean(node.scope.path) or "(the model itself)"), *_class(node.scope.cls, self.symbols))
        if node.source:
            yield (Span("  operator  ", "faint"), Span(clean(node.source)))
        yield from self.location(node.loc)

    def location(self, loc: Loc | None) -> Iterator[Line]:
        lead = "  at        "
        clean = self.symbols.clean
        for _ in range(_MOST_CALLERS):
            if loc is None:
                return
            function = f" in {clean(loc.function)}" if loc.function else ""
            yield (Span(lead, "faint"), Span(f"{clean(str(loc))}{function}"))
            if loc.statement:
                yield (Span(f"            {cut_end(clean(loc.statement.strip()), _MOST_TEXT, self.symbols)}", "name"),)
            lead, loc = "  called at ", loc.caller


class _GroupDetail:
    """Detail of a module, function or region."""

    def __init__(self, outline: Outline, row: int, group: Group, results: Results, symbols: Symbols, alike: Sequence[int]) -> None:
        self.outline = outline
        self.alike = alike
        self.row = row
        self.group = group
        self.results = results
        self.symbols = symbols

    def lines(self) -> Iterator[Line]:
        group, symbols = self.group, self.symbols
        scope = group.scope
        name = scope.path if scope is not None else group.name
        cls = scope.cls if scope is not None else ""
        yield (Span(f"{group.kind} ", "faint"), Span(symbols.clean(name), "module"), *_class(cls, symbols))
        if self.alike:
            last = self.outline.items[self.alike[-1]]
            text = f"the first of {len(self.alike):,} modules built alike, up to {symbols.clean(getattr(last, 'name', ''))}"
            yield (Span(text, "mark"), Span("; enter shows them all", "faint"))
            yield (Span("numbers here are those of one of them; the row has their sum", "faint"),)
        counts = self.operators()
        yield (Span("nodes        ", "faint"), Span(f"{sum(counts.values()):,}"))
        yield self.total("FLOPs        ", self.results.flops, "flops")
        yield self.total("result bytes ", self.results.sizes, "sizes")
        yield from self.dearest()
        yield _heading("operators")
        for op, count in counts.most_common():
            yield (Span(f"  {symbols.clean(op)}", "operator"), Span(f"  {count:,}"))

    def operators(self) -> Counter[str]:
        """Return the number of nodes of each operator below, in the order in which operators first occur in the model."""
        numbers, names = self.outline.operators
        inside = numbers[self.row + 1 : int(self.outline.end[self.row])]
        found = np.bincount(inside[inside >= 0], minlength=len(names)).tolist()
        return Counter({name: count for name, count in zip(names, found, strict=True) if count})

    def total(self, title: str, column: Column | None, part: str) -> Line:
        if column is None:
            text = self.symbols.unknown if self.results.has_failed(part) else self.symbols.waiting
            return (Span(title, "faint"), Span(text, "faint"))
        missing = column.missing[self.row]
        tail = f" ({missing:,} nodes unknown and not in it)" if missing and column.values[self.row] is not None else ""
        sign = self.symbols.at_least if tail else ""
        value = column.values[self.row]
        text = f"{sign}{amount(None if isinstance(value, float) else value, column.kind, self.symbols)}{tail}"
        number = self.results.complete.of(value) if isinstance(value, SymDim) else None
        if isinstance(number, int):
            # The number of the row, then what it is at other sizes.
            text = f"{SIGNS[Provenance.ASSUMED]}{amount(number, column.kind, self.symbols)} = {text}"
        return (Span(title, "faint"), Span(text, "unknown" if value is None else "plain"))

    def dearest(self) -> Iterator[Line]:
        """Yield the rows directly below that cost most, with their share."""
        column = self.results.flops
        if column is None:
            return
        children = self.outline.children(self.row)
        amounts = column.values.numbers[children]
        total = column.values[self.row]
        known = amounts > 0
        if not known.any() or not isinstance(total, int):
            return
        children, amounts = children[known], amounts[known]
        order = np.argsort(-amounts, kind="stable")[:_TOP]
        costs = [(column.values[row], row) for row in children[order].tolist()]
        yield _heading("costs most")
        for value, child in costs:
            if not isinstance(value, int):
                continue
            item = self.outline.items[child]
            name = item.name if isinstance(item, Group) else f"{item.op} {item.name}"
            yield (Span(f"  {self.symbols.clean(name)}", "name"), Span(f"  {amount(value, Kind.FLOPS, self.symbols)}, {value / total:.0%}"))


def _cost_line(cost: Cost, results: Results, symbols: Symbols) -> Line:
    """Return the cost of a node, in one line."""

    def text(value: Dim | None, kind: Kind) -> str:
        return amount(results.binding.of(value), kind, symbols)

    return (
        Span("FLOPs  ", "faint"),
        Span(text(cost.flops, Kind.FLOPS)),
        Span("  reads ", "faint"),
        Span(text(cost.read, Kind.BYTES)),
        Span("  writes ", "faint"),
        Span(text(cost.written, Kind.BYTES)),
    )


def _formula_lines(cost: Cost, formulas: Mapping[str, str], results: Results, symbols: Symbols) -> Iterator[Line]:
    """Yield the derivation of the cost: kinds of operations, and the formulas with the meaning of their symbols."""
    yield _heading("how it is counted")
    parts = [(name, getattr(cost, name)) for name in FLOP_CLASSES]
    present = [(name, part) for name, part in parts if not (isinstance(part, int) and part == 0)]
    if len(present) > 1:
        sums = ", ".join(f"{name} {amount(results.binding.of(part), Kind.FLOPS, symbols)}" for name, part in present)
        yield (Span(f"  {sums}", "faint"),)
    elif present:
        yield (Span(f"  all of it {present[0][0]}", "faint"),)
    else:
        yield (Span("  no arithmetic", "faint"),)
    for measure, title in (("flops", "FLOPs "), ("read", "reads "), ("written", "writes")):
        if formulas.get(measure):
            yield (Span(f"  {title} = {symbols.clean(formulas[measure])}", "faint"),)
    where = [f"{symbol} is {size}" for symbol, size in formulas.items() if symbol not in _MEASURES]
    if where:
        yield (Span(f"  sizes: {symbols.clean(', '.join(where))}", "faint"),)


def _heading(text: str) -> Line:
    return (Span(text, "heading"),)


def _class(cls: str, symbols: Symbols) -> Line:
    return (Span(f"  {symbols.clean(cls)}", "faint"),) if cls else ()


def _unknown_sizes(type_: Type) -> list[str]:
    if type_.shape is None:
        return []
    return [name for dim in type_.shape if isinstance(dim, SymDim) and dim.is_unknown for name in dim.symbol_names()]


# The formulas behind the cost of a node, out of what the flops pass explains about it.


def formulas(report: Report) -> Mapping[str, str]:
    """Return the formula by measure, then what its letters stand for; empty where there is none."""
    found: dict[str, str] = {}
    sizes: dict[str, str] = {}
    for table in report.tables:
        keys = [column.key for column in table.columns]
        if "formula" in keys and "number" in keys:
            for measure, formula in zip(table.cells("number"), table.cells("formula"), strict=True):
                found.setdefault(str(bare(measure)), str(bare(formula) or ""))
        elif keys[:2] == ["symbol", "stands_for"]:
            for symbol, size in zip(table.cells("symbol"), table.cells("stands_for"), strict=True):
                sizes.setdefault(str(bare(symbol)), str(bare(size)))
    kept = {measure: found[measure] for measure in ("flops", "read", "written") if found.get(measure)}
    return {**kept, **sizes} if kept else {}
