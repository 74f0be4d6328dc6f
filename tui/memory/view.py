"""What the Memory screen shows, whatever ran: a chart over steps with a cursor, and rows of what is alive there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from irscope.report.printable import display_width
from irscope.report.table import Table
from irscope.tui.charts import Stack
from irscope.tui.memory.views import Counters, Verdict, View
from irscope.tui.rows import TableModel
from irscope.tui.text import Line, Symbols, beside, text_of

_LEAST_CHART: Final = 10
"""Rows of a chart that keeps its form: its mark, eight of bars, and the axis."""
_LEAST_HEADED: Final = 8
"""Rows of one that has a legend, even at the cost of a bar."""
TALL: Final = 16
"""Rows from which on the verdict stands in full above the chart; the header has it in a few words."""
_WIDE, _BETWEEN, _LEAST_LEGEND = 96, 4, 44
"""From so many columns on the legend and the counters stand side by side, with blanks between them, where the legend has enough room."""


class MemoryView(ABC):
    """The state of the Memory screen that does not depend on what ran."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols
        self.step = 0
        self.mark: int | None = None
        """The other end of a range of steps that is looked at."""
        self.breaks: bool | None = None
        """True where the axis begins at the constant part; None until the user has chosen: then where it is more than half."""
        self.stack: Stack | None = None
        """The chart of memory over the steps."""
        self.filter_text = ""
        self.is_told_above = False
        """True where the header has the verdict in full."""

    @property
    @abstractmethod
    def listed(self) -> TableModel:
        """Return the rows below the chart."""

    @property
    @abstractmethod
    def verdict(self) -> Verdict | None:
        """Return whether it fits, where that is known."""

    @abstractmethod
    def counters(self) -> Counters | None:
        """Return what the allocator counts, where that is known."""

    @property
    def shown(self) -> Stack | None:
        """Return the chart that is drawn, where its axis is steps."""
        return self.stack

    @property
    def followed(self) -> Stack | None:
        """Return the chart whose peaks are gone to."""
        return self.stack

    @property
    @abstractmethod
    def views(self) -> Sequence[View]:
        """Return what can be drawn."""

    @abstractmethod
    def show_view(self, view: View) -> None:
        """Draw something else."""

    @abstractmethod
    def chart_lines(self, width: int, height: int) -> list[Line]:
        """Return the chart with what stands above it, in exactly `height` lines."""

    @abstractmethod
    def chart_title(self) -> str:
        """Return what stands above the chart."""

    @abstractmethod
    def table_title(self) -> str:
        """Return what stands above the rows."""

    @abstractmethod
    def go_to(self, step: int) -> None:
        """Put the cursor on a step."""

    @abstractmethod
    def show_living(self) -> None:
        """List what is alive at the cursor, or in the range."""

    @abstractmethod
    def next_grouping(self) -> None:
        """Stack the chart by something else."""

    @abstractmethod
    def toggle_axis(self) -> str:
        """Make the axis time, or steps of equal width again; returns why that is not possible."""

    @abstractmethod
    def draw_limit(self) -> None:
        """Draw the memory of the device where the chart comes near it, and begin the axis where that is chosen."""

    @abstractmethod
    def set_filter(self, text: str) -> str:
        """Show only rows in which all words occur; a word after `!` must not."""

    @abstractmethod
    def export(self) -> Table | None:
        """Return what the rows show."""

    def selected_name(self) -> str:
        """Return the name of what is selected in the rows; empty where rows have none."""
        return ""

    @property
    def range(self) -> tuple[int, int] | None:
        """Return the first and last step of the range that is looked at."""
        return None if self.mark is None else (min(self.mark, self.step), max(self.mark, self.step))

    def go_to_peak(self) -> bool:
        """Go to the step at which most is alive."""
        stack = self.followed
        if stack is None or stack.peak is None:
            return False
        self.go_to(stack.peak)
        return True

    def go_to_hill(self, by: int) -> bool:
        """Go to the next highest place or the one before."""
        stack = self.followed
        hill = None if stack is None else stack.next_hill(self.step, by)
        if hill is not None:
            self.go_to(hill)
        return hill is not None

    def toggle_mark(self) -> None:
        """Begin a range of steps here, or forget the one there is."""
        self.mark = self.step if self.mark is None else None
        self.show_living()

    def toggle_base(self) -> None:
        """Begin the axis at what never changes, or at zero."""
        stack = self.followed
        self.breaks = stack is not None and not stack.is_broken
        self.draw_limit()

    def head(self, stack: Stack, step: int, width: int, height: int) -> list[Line]:
        """Return what stands above the bars: whether it fits, what the allocator counts, and what the step is made of.

        Bars keep their rows: where there are few, counters are one line, and the verdict is left to the header.
        """
        symbols, counters, verdict = self.symbols, self.counters(), self.verdict
        room = max(height - _LEAST_CHART, int(height >= _LEAST_HEADED))
        if room < 1:
            return []
        said = [] if verdict is None or height < TALL or self.is_told_above else verdict.lines(width, 2, symbols)
        room -= len(said)
        if counters is None:
            return [*said, *stack.legend_at(step, width, max(min(room, 3), 0), symbols)]
        if not counters.is_known or room < 2 + counters.rows:
            line = counters.lines(width, symbols) if not counters.is_known else counters.line(width, symbols)
            table = line[: max(room - 2, 0)]
            legend = stack.legend_at(step, width, max(min(room - len(table), 3), 0), symbols)
            return [*said, *(table or line[: room - len(legend)]), *legend]
        is_wide = width >= _WIDE
        # Intervals stand where there is room for them beside the legend.
        table = counters.lines(width - _LEAST_LEGEND - _BETWEEN if is_wide else width, symbols)
        left = width - max(display_width(text_of(line)) for line in table) - _BETWEEN
        if is_wide and left >= _LEAST_LEGEND:
            return [*said, *beside(stack.legend_at(step, left, len(table), symbols), table, left + _BETWEEN)]
        return [*said, *table, *stack.legend_at(step, width, max(min(room - len(table), 3), 0), symbols)]
