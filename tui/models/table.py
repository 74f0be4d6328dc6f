"""The lines of the tree with its columns: operator, type of the result, FLOPs and bytes of the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from irscope.ir.graph import Node
from irscope.report.printable import cut_middle, display_width
from irscope.tui.models.columns import Column
from irscope.tui.models.detail import label
from irscope.tui.models.outline import Group, Outline
from irscope.tui.models.overlay import Overlay
from irscope.tui.models.results import Results
from irscope.tui.models.spans import Line, Role, Span, fit
from irscope.tui.models.symbols import Symbols

_FLOPS = 10
_FORMULA = 16
_BYTES = 13
_TYPE_SHARE = 0.3
_NARROWEST_TREE = 22
_NARROWEST_TYPE = 12
_WIDEST_TYPE = 40
_MOST_INDENT = 0.5
"""Deeply nested rows leave at least this share of the tree's width to their text."""


@dataclass(frozen=True, slots=True)
class Widths:
    """Columns of the screen that each column of the tree takes; 0 leaves one out."""

    tree: int
    type: int
    flops: int
    bytes: int


def widths_for(width: int, symbolic: bool = False) -> Widths:
    """What fits: as the room gets less first the types go, then the bytes, then the FLOPs. Formulas get more room than numbers."""
    room = width - 1
    size = _BYTES if room >= _NARROWEST_TREE + _FLOPS + _BYTES + 2 else 0
    flops = _FLOPS if room >= _NARROWEST_TREE + _FLOPS + 1 else 0
    if symbolic and room >= _NARROWEST_TREE + _FORMULA + _BYTES + 2:
        flops = _FORMULA
    left = room - sum(column + 1 for column in (flops, size) if column)
    wanted = min(_WIDEST_TYPE, int(width * _TYPE_SHARE), left - _NARROWEST_TREE - 1)
    type_ = wanted if wanted >= _NARROWEST_TYPE else 0
    return Widths(left - (type_ + 1 if type_ else 0), type_, flops, size)


def heading_line(width: int, results: Results, symbols: Symbols) -> Line:
    """The headings above the tree."""
    widths = widths_for(width, is_symbolic(results))
    parts = [f" {fit('module / operator', widths.tree, symbols)}"]
    if widths.type:
        parts.append(fit("result type", widths.type, symbols))
    if widths.flops:
        parts.append(fit("FLOPs", widths.flops, symbols, right=True))
    if widths.bytes:
        title = "result bytes" if results.overlay is None else symbols.clean(results.overlay.title)
        parts.append(fit(title, widths.bytes, symbols, right=True))
    return (Span(" ".join(parts), "heading"),)


def is_symbolic(results: Results) -> bool:
    """Whether the columns hold formulas."""
    return any(column is not None and column.is_symbolic for column in (results.flops, results.sizes))


class TreeTable:
    """Makes the line of a row."""

    def __init__(self, outline: Outline, results: Results, symbols: Symbols) -> None:
        self.outline = outline
        self.results = results
        self.symbols = symbols

    def line(self, row: int, width: int, *, selected: bool, expanded: bool, alike: Sequence[int] = ()) -> Line:
        """One row in exactly `width` columns. The selected one has a sign, so that it shows without colour.

        `alike` are the modules that the row stands for, if it does for several: its numbers are their sums.
        """
        widths = widths_for(width, is_symbolic(self.results))
        spans = [Span(self.symbols.cursor if selected else " ", "mark"), *self.tree_cell(row, widths.tree, expanded, alike)]
        if widths.type:
            spans.append(self.type_cell(row, widths.type))
        if widths.flops:
            spans.append(self.number_cell(self.results.flops, "flops", row, widths.flops, alike))
        if widths.bytes:
            spans.append(self.number_cell(self.results.overlay or self.results.sizes, "sizes", row, widths.bytes, alike))
        return tuple(spans)

    def tree_cell(self, row: int, width: int, expanded: bool, alike: Sequence[int] = ()) -> Line:
        """Indentation, sign, and the module's name, or operator and name of a node."""
        symbols, item = self.symbols, self.outline.items[row]
        sign = (symbols.expanded if expanded else symbols.collapsed) if self.outline.is_branch(row) else " "
        depth = int(self.outline.depth[row])
        lead = f"{' ' * min(2 * depth, int(width * _MOST_INDENT))}{sign} "
        room = width - display_width(lead)
        if room < 1:
            return (Span(fit(lead, width, symbols)),)
        if isinstance(item, Group):
            if alike:
                times = f" {symbols.times} {len(alike):,}"
                left = max(room - display_width(times), 0)
                text = cut_middle(self.run_text(item, alike), left, symbols.glyphs.ellipsis)
                return (Span(lead), Span(text, "module"), Span(fit(times, room - display_width(text), symbols), "mark"))
            return (Span(lead), Span(fit(self.group_text(item), room, symbols), "module"))
        return (Span(lead), *self.node_text(item, room))

    def group_text(self, group: Group) -> str:
        name = self.symbols.clean(group.name)
        if group.scope is not None and group.scope.cls:
            return f"{name} ({self.symbols.clean(group.scope.cls)})"
        return name if group.kind == "module" else f"{group.kind} {name}"

    def run_text(self, first: Group, alike: Sequence[int]) -> str:
        """Several modules alike: the first and the last of them, and their class."""
        last = self.outline.items[alike[-1]]
        names = f"{self.symbols.clean(first.name)}{self.symbols.glyphs.ellipsis}{self.symbols.clean(getattr(last, 'name', ''))}"
        cls = first.scope.cls if first.scope is not None else ""
        return f"{names} ({self.symbols.clean(cls)})" if cls else names

    def node_text(self, node: Node, room: int) -> Line:
        op = self.symbols.clean(node.op)
        name = label(node.outputs[0], self.results, self.symbols) if node.outputs else ""
        left = room - display_width(op) - 1
        if not name or left < 4:
            return (Span(fit(op, room, self.symbols), "operator"),)
        return (Span(op, "operator"), Span(f" {fit(name, left, self.symbols)}", "faint"))

    def type_cell(self, row: int, width: int) -> Span:
        """The type of the first result, and how many results there are besides."""
        item = self.outline.items[row]
        if isinstance(item, Group) or not item.outputs:
            return Span(f" {' ' * width}")
        text = self.symbols.clean(item.outputs[0].type.text)
        more = f" +{len(item.outputs) - 1}" if len(item.outputs) > 1 else ""
        role: Role = "unknown" if text.startswith(self.symbols.unknown) or text.endswith("[*]") else "plain"
        return Span(f" {fit(fit(text, min(display_width(text), width - len(more)), self.symbols) + more, width, self.symbols)}", role)

    def number_cell(self, column: Column | Overlay | None, part: str, row: int, width: int, alike: Sequence[int] = ()) -> Span:
        """A number, `?` where it is unknown, and a sign of waiting while it is being computed."""
        symbols = self.symbols
        if column is None:
            if self.results.has_failed(part):
                return Span(f" {fit(symbols.unknown, width, symbols, right=True)}", "unknown")
            return Span(f" {fit(symbols.waiting, width, symbols, right=True)}", "faint")
        text = fit(column.text(row, symbols, alike), width, symbols, right=True)
        role: Role = "plain"
        if column.values[row] is None:
            role = "unknown"
        elif column.values[row] == 0:
            role = "faint"
        return Span(f" {text}", role)
