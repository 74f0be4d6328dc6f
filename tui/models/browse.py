"""The state of the browse screen: which row is selected, what is filtered, what has been found so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from irscope.diagnostics import Severity
from irscope.errors import UsageError
from irscope.ir.graph import Node
from irscope.ir.program import Program
from irscope.report.table import Table
from irscope.tui.models.binding import Binding, parse_binding
from irscope.tui.models.command import Source, run_command, show_command
from irscope.tui.models.detail import detail_lines, label
from irscope.tui.models.filter import Matcher, parse_filter
from irscope.tui.models.folds import Folds
from irscope.tui.models.header import header_lines
from irscope.tui.models.outline import Group, Steps, build_outline
from irscope.tui.models.results import Bound, Results
from irscope.tui.models.spans import Line, Role, Span, text_of
from irscope.tui.models.symbols import Symbols
from irscope.tui.models.table import TreeTable
from irscope.tui.models.tree import TreeModel

PASSES = "params,flops,liveness"
"""Passes behind the numbers on the screen."""
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
        self.selected = 0
        """The selected row of the outline; meaningless while the model is empty."""
        self.filter_text = ""
        self.filter_error = ""
        self.results = Results(program.symbols)
        self.wanted = self.results.binding
        """The requested binding; with very many formulas it is shown with a delay."""
        self.later: Callable[[Binding], None] | None = None
        self.summed: Callable[[Binding], None] | None = None
        """Asks for what an allocator makes of sizes that were put in."""
        """Evaluates numbers in the worker's thread; set by the session."""
        self.table = TreeTable(self.outline, self.results, self.symbols)

    # -- selection ---------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not len(self.outline)

    @property
    def step(self) -> int | None:
        """The step of the main graph that belongs to the selection."""
        return None if self.is_empty else self.steps.at(self.selected)

    @property
    def steps(self) -> Steps:
        """The steps of the chart: in program order until it is known in which order the runtime of the file runs them."""
        lives = self.results.lives
        return self.outline.program_order if lives is None else lives.steps

    def select(self, row: int) -> None:
        """Select a row that is shown."""
        self.selected = row

    def reveal(self, row: int) -> None:
        """Select a row, expanding what hides it."""
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

    def fold(self, folds: Folds) -> None:
        """Show modules that are built alike as one row each; the selection stays in sight."""
        self.tree.set_folds(folds)
        if not self.is_empty and not self.tree.is_visible(self.selected):
            self.tree.reveal(self.selected)

    # -- sizes -------------------------------------------------------------------------------------------------

    def set_sizes(self, text: str) -> str:
        """Show numbers for sizes such as `batch=8`; returns what is wrong with the text, if anything is."""
        try:
            binding = parse_binding(text, self.program.symbols)
        except UsageError as error:
            return str(error)
        self.wanted = binding
        if self.later is not None and self.results.formulas > _MOST_AT_ONCE:
            self.later(binding)
        else:
            self.show_bound(self.results.prepared(binding))
        return ""

    def show_bound(self, bound: Bound) -> None:
        """Show numbers for the requested binding; those prepared for others are dropped."""
        if bound.binding is not self.wanted:
            return
        self.results.show(bound)
        if self.summed is not None and bound.binding.env:
            self.summed(bound.binding)
        if self.filter_text:
            self.set_filter(self.filter_text)

    # -- filter ------------------------------------------------------------------------------------------------

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
        """The index of the first node that is shown; rows above it are its ancestors."""
        return int(np.argmax(self.tree.matching())) if len(self.tree) else 0

    # -- rows as text ------------------------------------------------------------------------------------------

    def row_name(self, row: int) -> str:
        """The name of a row: a module's path, the first result of a node."""
        item = self.outline.items[row]
        if isinstance(item, Group):
            return self.symbols.clean(item.scope.path if item.scope is not None else item.name)
        return label(item.outputs[0], self.results, self.symbols) if item.outputs else self.symbols.clean(item.op)

    def row_text(self, row: int) -> str:
        """What a row is, in a few words."""
        item = self.outline.items[row]
        kind = item.kind if isinstance(item, Group) else self.symbols.clean(item.op)
        return f"{kind} {self.row_name(row)}"

    def row_line(self, row: int) -> str:
        """A row with its columns, as text."""
        return text_of(self.table.line(row, _EXPORT_WIDTH, selected=False, expanded=True, alike=self.tree.alike(row))).strip()

    def export(self) -> Table:
        """The rows that are shown."""
        rows = [self._exported(row) for row in self.tree.visible.tolist()]
        columns = ["row:index", "depth:count", "kind", "name", "type:dtype", "flops:flops", "bytes:bytes"]
        return Table.of(rows, columns, "modules and nodes")

    def _exported(self, row: int) -> tuple[object, ...]:
        item = self.outline.items[row]
        kind = item.kind if isinstance(item, Group) else item.op
        type_ = "" if isinstance(item, Group) or not item.outputs else item.outputs[0].type.text
        flops = None if self.results.flops is None else self.results.flops.values[row]
        size = None if self.results.sizes is None else self.results.sizes.values[row]
        return (row, int(self.outline.depth[row]), kind, self.row_name(row), type_, flops, size)

    # -- what is shown -----------------------------------------------------------------------------------------

    def header(self, width: int, height: int) -> list[Line]:
        """The totals."""
        return header_lines(self.program, self.node_count, self.results, width, height, self.symbols)

    def detail(self) -> list[Line]:
        """Everything about the selection."""
        if self.is_empty:
            return [(Span("This model has no nodes.", "faint"),)]
        return detail_lines(self.outline, self.selected, self.results, self.symbols, self.tree.alike(self.selected))

    def tree_title(self, progress: str = "") -> str:
        """The status line above the tree: the filter, unread remarks, and what is being computed."""
        parts = ["Modules"]
        if self.filter_text:
            found = self.tree.matches or 0
            parts.append(f"filter {self.symbols.clean(self.filter_text)}: {found:,} {'node' if found == 1 else 'nodes'}")
        remarks = self.remarks
        if remarks:
            parts.append(remarks)
        if self.results.binding.env:
            parts.append(f"for {self.symbols.clean(self.results.binding.text)}")
        elif self.results.free_symbols:
            parts.append(f"c puts in sizes, such as {self.symbols.clean(self.results.free_symbols[0])}=32")
        if progress:
            parts.append(progress)
        return self.symbols.glyphs.separator.join(parts)

    @property
    def remarks(self) -> str:
        """How many errors and warnings there are."""
        found = [diagnostic.severity for diagnostic in self.results.diagnostics]
        errors, warnings = found.count(Severity.ERROR), found.count(Severity.WARNING)
        parts = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in ((errors, "error"), (warnings, "warning")) if count]
        return f"{', '.join(parts)} (w)" if parts else ""

    def timeline_title(self) -> str:
        """The line above the timeline: bytes alive at the selected step."""
        timeline, step = self.results.timeline, self.step
        title = "Live bytes"
        if timeline is not None and step is not None:
            title += f"{self.symbols.glyphs.separator}{timeline.text_at(step, self.symbols)} at step {step:,}"
        live = self.results.live
        if live is not None and live.unsized:
            title += f"{self.symbols.glyphs.separator}{len(live.unsized):,} tensors of unknown size not counted"
        if self.results.assumed:
            title += f"{self.symbols.glyphs.separator}drawn for {self.symbols.clean(self.results.assumed)}"
        return title

    def timeline_lines(self, width: int, height: int) -> list[Line]:
        """The chart, or a word on why there is none."""
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
        """Every remark about the model, worst first."""
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

    def commands(self) -> list[str]:
        """Command lines that print the screen: first the numbers, then the selected node as text."""
        source = replace(self.source, bind={**self.source.bind, **self.results.binding.env})
        commands = [run_command(source, PASSES)]
        item = None if self.is_empty else self.outline.items[self.selected]
        if isinstance(item, Node):
            commands.append(show_command(source, item))
        return [self.symbols.clean(command) for command in commands]
