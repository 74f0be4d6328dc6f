"""The state of the Browse screen: which row is selected, what is filtered, the lines of the tree and of the header."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from irscope.diagnostics import Severity
from irscope.errors import UsageError
from irscope.ir.graph import Node
from irscope.ir.program import Program
from irscope.report.boxes import name_within
from irscope.report.celltext import SIGNS
from irscope.report.names import span_name
from irscope.report.printable import cut_middle, display_width
from irscope.report.table import Table
from irscope.report.values import Provenance
from irscope.session import stated_sizes
from irscope.tui.amounts import Binding, Column, parse_binding
from irscope.tui.browse.detail import detail_lines, label
from irscope.tui.browse.filter import Matcher, parse_filter
from irscope.tui.browse.outline import Folds, Group, Ints, Steps, TreeModel, build_outline
from irscope.tui.command import Source, run_command, show_command
from irscope.tui.context import Context
from irscope.tui.header import header_lines
from irscope.tui.results import Bound, Results, step_ops
from irscope.tui.rows import Rows, TableColumn
from irscope.tui.text import Line, Role, Span, Symbols, fit, text_of

# The state of the browse screen: which row is selected, what is filtered, what has been found so far.

_EXPORT_WIDTH = 160
_MOST_AT_ONCE = 2000
"""Limit of formulas that are evaluated on the UI's thread; more are left to the worker."""
_ROLES: dict[Severity, Role] = {Severity.ERROR: "error", Severity.WARNING: "unknown", Severity.NOTE: "faint"}


class Browse:
    """All logic of the browse screen. Widgets read it and call its methods; it does not depend on them."""

    def __init__(self, program: Program, source: Source, symbols: Symbols) -> None:
        self.program = program
        self.source = source
        self.symbols = symbols
        self.node_count = program.node_count
        self.outline = build_outline(program)
        self.tree = TreeModel(self.outline)
        self.matcher = Matcher(self.outline)
        self.selected = self.tree.row_for(0) if len(self.outline) else 0
        """The selected row of the outline; meaningless while the model is empty."""
        self.filter_text = ""
        self.filter_error = ""
        self.results = Results(
            program.symbols,
            Context(tuple(stated_sizes(program, source.bind)), device=source.settings.device, chosen=source.settings.chosen),
        )
        self.results.step_ops = step_ops(program)
        self.later: Callable[[Binding], None] | None = None
        """Evaluates numbers in the worker's thread; set by the session."""
        self.rebound: Callable[[Binding], None] = lambda binding: None
        """Asks for what has to be found anew for other sizes; set by the session."""
        self.table = TreeTable(self)

    @property
    def is_empty(self) -> bool:
        return not len(self.outline)

    @property
    def step(self) -> int | None:
        """Return the step of the main graph that belongs to the selection."""
        return None if self.is_empty else self.steps.at(self.selected)

    @property
    def steps(self) -> Steps:
        """Return the steps of the chart: in program order until it is known in which order the runtime of the file runs them."""
        lives = self.results.lives
        return self.outline.program_order if lives is None else lives.steps

    def select(self, row: int) -> None:
        """Select a row that is shown."""
        self.selected = row

    def reveal(self, row: int) -> None:
        """Select a row, expanding what hides it."""
        row = self.tree.row_for(row)
        self.tree.reveal(row)
        if self.tree.matches is None:
            self.filter_text = self.filter_error = ""
        self.selected = row

    def reveal_step(self, step: int) -> None:
        """Select the node of a step; steps before the first or after the last are taken for those."""
        if len(self.steps):
            self.reveal(self.steps.row(step))

    def reveal_peak(self) -> bool:
        """Select the node at the memory peak; False where it is unknown."""
        timeline = self.results.timeline
        if timeline is None or timeline.peak is None:
            return False
        self.reveal_step(timeline.peak)
        return True

    def fit(self, rows: int) -> None:
        """Open modules as far as so many rows have room for them."""
        self.tree.fit(rows)
        if not self.is_empty and self.tree.matches is None and not self.tree.is_visible(self.selected):
            self.tree.reveal(self.selected)

    def fold(self, folds: Folds) -> None:
        """Show modules that are built alike as one row each; the selection stays in sight."""
        self.tree.set_folds(folds)
        self.selected = self.tree.row_for(self.selected) if not self.is_empty else 0
        if not self.is_empty and not self.tree.is_visible(self.selected):
            self.tree.reveal(self.selected)

    def set_sizes(self, text: str) -> str:
        """Show numbers for sizes such as `batch=8`; returns what is wrong with the text, if anything is."""
        try:
            binding = parse_binding(text, self.program.symbols)
        except UsageError as error:
            return str(error)
        self.show_sizes(binding)
        return ""

    def show_sizes(self, binding: Binding) -> None:
        """Show numbers for these sizes: at once, or where there are very many formulas once the worker has them."""
        self.context = replace(self.context, binding=binding)
        if self.later is not None and self.results.formulas > _MOST_AT_ONCE:
            self.later(binding)
        else:
            self.show_bound(self.results.prepared(binding))

    @property
    def context(self) -> Context:
        """Return the context that the numbers of all screens are for."""
        return self.results.context

    @context.setter
    def context(self, context: Context) -> None:
        self.results.context = context

    def show_bound(self, bound: Bound) -> None:
        """Show numbers for the requested binding; those prepared for others are dropped."""
        if bound.binding is not self.context.binding:
            return
        self.results.show(bound)
        self.rebound(bound.binding)
        if self.filter_text:
            self.set_filter(self.filter_text)

    def set_filter(self, text: str) -> None:
        """Filter by the text; one that makes no sense leaves the rows as they are and sets the error."""
        self.filter_error = ""
        try:
            terms = parse_filter(text)
        except UsageError as error:
            self.filter_error = str(error)
            return
        self.filter_text = text.strip()
        self.tree.set_filter(self.matcher.matches(terms, self.results.flops, self.results.sizes) if terms else None)
        if len(self.tree):
            self._keep_selection_visible()

    def _keep_selection_visible(self) -> None:
        if self.tree.matches is None:
            if not self.tree.is_visible(self.selected):
                self.tree.reveal(self.selected)
        elif not self.tree.is_match(self.selected):
            self.selected = self.tree.row(self._first_match())

    def _first_match(self) -> int:
        """Return the index of the first node that is shown; rows above it are its ancestors."""
        return int(np.argmax(self.tree.matching())) if len(self.tree) else 0

    def row_name(self, row: int) -> str:
        """Return the name of a row: a module's path, the first result of a node."""
        item = self.outline.items[row]
        if isinstance(item, Group):
            return self.symbols.clean(item.scope.path if item.scope is not None else item.name)
        return label(item.outputs[0], self.results, self.symbols) if item.outputs else self.symbols.clean(item.op)

    def row_text(self, row: int) -> str:
        """Return a short description of a row."""
        item = self.outline.items[row]
        kind = item.kind if isinstance(item, Group) else self.symbols.clean(item.op)
        return f"{kind} {self.row_name(row)}"

    def row_line(self, row: int) -> str:
        """Return a row with its columns, as text."""
        return text_of(self.table.row_line(row, _EXPORT_WIDTH)).strip()

    def export(self) -> Table:
        """Return the rows that are shown."""
        rows = [self._exported(row) for row in self.tree.visible.tolist()]
        columns = ["row:index", "depth:count", "kind", "name", "type:dtype", "flops:flops", "bytes:bytes"]
        chosen = self.results.chosen
        if chosen is not None:
            columns.append(f"{'_'.join(chosen.title.split())}:{chosen.kind.value}")
        return Table.of(rows, columns, "modules and nodes")

    def _exported(self, row: int) -> tuple[object, ...]:
        item = self.outline.items[row]
        kind = item.kind if isinstance(item, Group) else item.op
        type_ = "" if isinstance(item, Group) or not item.outputs else item.outputs[0].type.text
        flops = None if self.results.flops is None else self.results.flops.values[row]
        size = None if self.results.sizes is None else self.results.sizes.values[row]
        chosen = () if self.results.chosen is None else (self.results.chosen.values[row],)
        return (row, int(self.outline.depth[row]), kind, self.row_name(row), type_, flops, size, *chosen)

    def header(self, width: int) -> list[Line]:
        """Return the verdict and the totals, and what they are for."""
        return header_lines(self.program, self.node_count, self.results, width, self.symbols)

    def detail(self) -> list[Line]:
        """Return everything about the selection."""
        if self.is_empty:
            return [(Span("This model has no nodes.", "faint"),)]
        return detail_lines(self.outline, self.selected, self.results, self.symbols, self.tree.alike(self.selected))

    def tree_title(self, progress: str = "") -> str:
        """Return the status line above the tree: what its numbers are at, the filter, unread remarks, and what is being computed."""
        parts = ["Modules"]
        if self.table.columns and self.table.is_at_sizes:
            parts.append(f"{SIGNS[Provenance.ASSUMED]} at {self.symbols.clean(self.context.assumed)}")
        if self.filter_text:
            found = self.tree.matches or 0
            parts.append(f"filter {self.symbols.clean(self.filter_text)}: {found:,} {'node' if found == 1 else 'nodes'}")
        remarks = self.remarks
        if remarks:
            parts.append(remarks)
        if progress:
            parts.append(progress)
        return self.symbols.glyphs.separator.join(parts)

    @property
    def remarks(self) -> str:
        """Return the numbers of errors and warnings."""
        found = [diagnostic.severity for diagnostic in self.results.diagnostics]
        errors, warnings = found.count(Severity.ERROR), found.count(Severity.WARNING)
        parts = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in ((errors, "error"), (warnings, "warning")) if count]
        return f"{', '.join(parts)} (w)" if parts else ""

    def timeline_title(self) -> str:
        """Return the line above the timeline: bytes alive at the selected step."""
        timeline, step = self.results.timeline, self.step
        title = "Live bytes"
        if timeline is not None and step is not None:
            title += f"{self.symbols.glyphs.separator}{timeline.text_at(step)} at step {step:,}"
        live = self.results.live
        if live is not None and live.unsized:
            title += f"{self.symbols.glyphs.separator}{len(live.unsized):,} tensors of unknown size not counted"
        if self.results.assumed:
            title += f"{self.symbols.glyphs.separator}drawn for {self.symbols.clean(self.results.assumed)}"
        return title

    def timeline_lines(self, width: int, height: int) -> list[Line]:
        """Return the chart, or a word on why there is none."""
        timeline = self.results.timeline
        if timeline is not None and len(timeline):
            return timeline.lines(width, height, self.step, self.symbols)
        nothing = "nothing to draw: the model has no steps" if self.program.has_graph else "nothing to draw: the file has no graph"
        text = "computing" if self.results.live is None else nothing
        if self.results.has_failed("liveness"):
            text = f"{self.symbols.unknown} liveness failed: press w to see why"
        lines: list[Line] = [(Span(text, "faint"),)]
        return (lines + [()] * height)[:height]

    def remark_lines(self) -> list[Line]:
        """Return every remark about the model, worst first."""
        clean = self.symbols.clean
        lines: list[Line] = []
        for diagnostic in sorted(self.results.diagnostics, key=lambda one: -one.severity):
            role = _ROLES[diagnostic.severity]
            count = f" ({diagnostic.count:,} times)" if diagnostic.count > 1 else ""
            lines.append((Span(f"{diagnostic.severity.text} {diagnostic.code}", role), Span(f" {clean(diagnostic.message)}{count}")))
            place = " ".join(part for part in (diagnostic.node and f"node {diagnostic.node}", diagnostic.location) if part)
            if place:
                lines.append((Span(f"    at {clean(place)}", "faint"),))
            if diagnostic.hint:
                lines.append((Span(f"    {clean(diagnostic.hint)}", "faint"),))
        return lines or [(Span("There are no remarks.", "faint"),)]

    @property
    def bound_source(self) -> Source:
        """Return how the command line would open the model as it is shown now, with the sizes that were stated."""
        settings = replace(self.source.settings, device=self.context.device, chosen=self.context.chosen)
        return replace(self.source, bind={**self.source.bind, **self.results.binding.env}, settings=settings)

    @property
    def complete_source(self) -> Source:
        """Return the same with a number for every symbol, for what needs one."""
        return replace(self.bound_source, bind={**self.source.bind, **self.results.complete.env})

    def commands(self) -> list[str]:
        """Command lines that print the screen: first the numbers, then the selected node as text."""
        source = self.bound_source
        commands = [run_command(source, f"params,flops,{self.context.liveness}")]
        item = None if self.is_empty else self.outline.items[self.selected]
        if isinstance(item, Node):
            commands.append(show_command(source, item))
        return [self.symbols.clean(command) for command in commands]


# The tree with its columns: operator, type of the result, FLOPs, and bytes of the results or what was chosen in their place.

_FLOPS, _FORMULA, _LAST, _LONGEST_LAST = 10, 16, 13, 24
_NARROWEST_TREE, _NARROWEST_TYPE, _WIDEST_TYPE, _TYPE_SHARE = 22, 12, 40, 0.3
_TYPE = 1
"""The number of the column of types."""
_MOST_MEASURED = 2_000
"""Rows of a model whose column of types is as wide as the longest; it takes some milliseconds to look at them."""
_LEAST_NAME = 3
_MOST_INDENT = 0.5
"""Deeply nested rows leave at least this share of the tree's width to their text."""


class TreeTable(Rows):
    """The rows of the tree that are shown, with their columns; the cursor is what all screens have selected."""

    gaps_lead = True

    def __init__(self, browse: Browse) -> None:
        self.browse = browse
        self.outline = browse.outline
        self.tree = browse.tree
        self.results = browse.results
        self.symbols = browse.symbols
        self._made: tuple[object, int, Folds, Sequence[TableColumn]] | None = None
        self.is_at_sizes = False
        """True where a column has numbers at sizes that nobody stated, because a formula in it has no room."""

    @property
    def shown(self) -> Ints:  # type: ignore[override]  # read-only: the tree decides
        return self.tree.visible

    @property
    def index(self) -> int:  # type: ignore[override]
        return self.tree.index(self.browse.selected)

    @property
    def empty(self) -> str:  # type: ignore[override]
        return "This model has no nodes." if self.browse.is_empty else "Nothing matches the filter."

    def move_to(self, index: int) -> None:
        if len(self.tree):
            self.browse.select(self.tree.row(min(max(index, 0), len(self.tree) - 1)))

    @property
    def columns(self) -> Sequence[TableColumn]:  # type: ignore[override]
        results = self.results
        made = self._made
        if made is not None and made[0] is results.columns and made[1] == len(results.failed) and made[2] is self.tree.folds:
            return made[3]
        self.is_at_sizes = False
        last = results.chosen
        is_symbolic = any(column is not None and column.is_symbolic for column in (results.flops, last or results.sizes))
        flops = _FORMULA if is_symbolic else _FLOPS
        title = "result bytes" if last is None else self.symbols.clean(last.title)
        width = max(_FORMULA + 1 if is_symbolic else _LAST, min(display_width(title), _LONGEST_LAST))
        columns = (
            TableColumn("module / operator", _NARROWEST_TREE, self.browse.row_text, grows=True, cell=self.tree_cell),
            TableColumn("result type", _WIDEST_TYPE, str, least=_NARROWEST_TYPE, share=_TYPE_SHARE, rank=3, cell=self.type_cell),
            self._number("FLOPs", results.flops, "flops", flops, least=flops, rank=1),
            self._number(title, last or results.sizes, "sizes", width, least=width, rank=2),
        )
        self._made = (results.columns, len(results.failed), self.tree.folds, columns)
        return columns

    def _number(self, title: str, column: Column | None, part: str, width: int, *, rank: int, least: int = 0) -> TableColumn:
        """Return a column of numbers, `?` where they are unknown, and a sign of waiting while they are being computed.

        Either all formulas of a column can be read, or all of it is at the stated sizes: numbers below one another are of one unit.
        """
        failed = self.results.has_failed(part)
        is_at_sizes = column is not None and column.is_symbolic and not self._has_room(column, width)
        self.is_at_sizes |= is_at_sizes

        def text(row: int) -> str:
            if column is None:
                return self.symbols.unknown if failed else self.symbols.waiting
            stated = self.results.context.complete if is_at_sizes else None
            return column.text(row, self.symbols, self.tree.alike(row), stated=stated)

        def role(row: int) -> Role:
            value = 0 if column is None else column.values[row]
            return "unknown" if value is None else "faint" if value == 0 else "plain"

        return TableColumn(title, width, text, right=True, role=role, rank=rank, least=least)

    def _has_room(self, column: Column, width: int) -> bool:
        folds = self.tree.folds
        runs = (folds.members(run, self.outline) for run in range(len(folds)))
        return column.values.formulas <= _MOST_AT_ONCE and column.has_room(width, self.symbols, runs)

    def heading(self, width: int) -> Line:
        return (Span(text_of(super().heading(width)).removesuffix(" "), "heading"),)

    def tree_cell(self, row: int, width: int) -> Line:
        """Indentation, sign, and the module's name, or operator and name of a node."""
        symbols, item = self.symbols, self.outline.items[row]
        expanded = self.tree.is_expanded(row)
        sign = (symbols.expanded if expanded else symbols.collapsed) if self.outline.is_branch(row) else " "
        top = self.tree.top_of(row)
        depth = int(self.outline.depth[top])
        lead = f"{' ' * min(2 * depth, int(width * _MOST_INDENT))}{sign} "
        room = width - display_width(lead)
        if room < 1:
            return (Span(fit(lead, width, symbols)),)
        if isinstance(item, Node):
            return (Span(lead), *(self.node_text(item, room) if top == row else self.single_text(top, row, room)))
        alike = self.tree.alike(row)
        if not alike:
            text = self.group_text(item)
            # A name tells rows apart, a class does not.
            text = text if display_width(text) <= room or item.kind != "module" else symbols.clean(item.name)
            return (Span(lead), Span(fit(text, room, symbols), "module"))
        times = f" {symbols.times} {len(alike):,}"
        left = max(room - display_width(times), 0)
        text = cut_middle(self.run_text(item, alike, left), left, symbols.glyphs.ellipsis)
        return (Span(lead), Span(text, "module"), Span(fit(times, room - display_width(text), symbols), "mark"))

    def group_text(self, group: Group) -> str:
        name = self.symbols.clean(group.name)
        if group.scope is not None and group.scope.cls:
            return f"{name} ({self.symbols.clean(group.scope.cls)})"
        return name if group.kind == "module" else f"{group.kind} {name}"

    def run_text(self, first: Group, alike: Sequence[int], room: int) -> str:
        """Return what stands for several modules alike: the first and the last of them, and their class where there is room."""
        names = self.symbols.clean(span_name(first.name, getattr(self.outline.items[alike[-1]], "name", "")))
        cls = f" ({self.symbols.clean(first.scope.cls)})" if first.scope is not None and first.scope.cls else ""
        return f"{names}{cls}" if display_width(f"{names}{cls}") <= room else names

    def single_text(self, top: int, row: int, room: int) -> Line:
        """Return a module with its one node: the name of the module, the operator, and the class or the name of the result where there is
        room."""
        items, clean = self.outline.items, self.symbols.clean
        node = items[row]
        assert isinstance(node, Node)
        names = clean("/".join(item.name for item in items[top:row] if isinstance(item, Group)))
        op = clean(node.op)
        left = room - display_width(op) - 1
        if left < _LEAST_NAME:
            return (Span(fit(names, room, self.symbols), "module"),)
        wide = display_width(names)
        if wide >= left:
            return (Span(fit(names, left, self.symbols), "module"), Span(f" {op}", "operator"))
        cls = node.scope.cls
        more = f" ({clean(cls)})" if cls else ""
        more = more if wide + display_width(more) <= left else ""
        rest = room - wide - display_width(more) - display_width(op) - 1
        name = fit(self.short_label(node), rest - 1, self.symbols) if rest > _LEAST_NAME else ""
        return (Span(names, "module"), Span(more, "faint"), Span(f" {op}", "operator"), Span(f" {name}" if name else " " * rest, "faint"))

    def node_text(self, node: Node, room: int) -> Line:
        op = self.symbols.clean(node.op)
        name = self.short_label(node)
        left = room - display_width(op) - 1
        if not name or left < 4:
            return (Span(fit(op, room, self.symbols), "operator"),)
        return (Span(op, "operator"), Span(f" {fit(name, left, self.symbols)}", "faint"))

    def short_label(self, node: Node) -> str:
        """Return the name of a node's first result, without the path of the module that it stands in."""
        if not node.outputs:
            return ""
        name = node.outputs[0].name
        if name is None:
            return label(node.outputs[0], self.results, self.symbols)
        short = name_within(name, node.scope)
        return self.symbols.clean(short if short != name else f"%{name}")

    def is_blank(self, number: int) -> bool:
        # A tree that shows modules alone has no types.
        return number == _TYPE and len(self.tree) > 0 and not bool((self.outline.operators[0][self.tree.visible] >= 0).any())

    def needs(self, number: int) -> int:
        # Of all rows, so that columns stay where they are while modules open.
        if number != _TYPE or len(self.outline) > _MOST_MEASURED:
            return 0
        longest = max((display_width("".join(self._type_of(row))) for row in range(len(self.outline))), default=0)
        return min(max(longest, _NARROWEST_TYPE), _WIDEST_TYPE)

    def _type_of(self, row: int) -> tuple[str, str]:
        """Return the type of the first result, and how many results there are besides."""
        item = self.outline.items[row]
        if isinstance(item, Group) or not item.outputs:
            return "", ""
        return self.symbols.clean(item.outputs[0].type.text), f" +{len(item.outputs) - 1}" if len(item.outputs) > 1 else ""

    def type_cell(self, row: int, width: int) -> Line:
        text, more = self._type_of(row)
        role: Role = "unknown" if text.startswith(self.symbols.unknown) or text.endswith("[*]") else "plain"
        text = cut_middle(text, width - len(more), self.symbols.glyphs.ellipsis)
        return (Span(fit(text + more, width, self.symbols), role),)
