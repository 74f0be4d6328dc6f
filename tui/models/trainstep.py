"""Bytes by category over a step of training, with its phases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from irscope.report.celltext import signed
from irscope.report.units import Kind
from irscope.tui.models.memoryviews import Drawing
from irscope.tui.models.spans import Line, Span, cut_end, cut_line, text_of
from irscope.tui.models.stack import Floats, Stack
from irscope.tui.models.symbols import Symbols

if TYPE_CHECKING:
    from irscope.passes.cuda.result import Counter
    from irscope.passes.training.replayed import StepMemory

_PARTS: Mapping[str, tuple[str, ...]] = {
    "parameters": ("parameter",),
    "buffers, inputs": ("buffer", "input"),
    "gradients": ("gradient",),
    "optimizer": ("optimizer state",),
    "kept for backward": ("activation",),
    "temporary": ("temporary",),
    "workspace": ("workspace", "rounding"),
}
"""What is drawn as one, the lowest first, by the categories of a step."""


_LEAST_TEXT = 6
"""Columns that a phase must take for its name to stand there."""


class StepStack(Stack):
    """The chart of a step: below its axis stand the phases, and a line goes up where one begins."""

    def __init__(self, parts: Mapping[str, Floats], phases: Sequence[str]) -> None:
        super().__init__(parts)
        self.phases = phases

    def runs(self) -> Iterator[tuple[int, int, str]]:
        """Stretches of steps that belong to one phase: the first step, the one behind the last, and the phase."""
        start = 0
        for step in range(1, len(self.phases) + 1):
            if step == len(self.phases) or self.phases[step] != self.phases[start]:
                yield start, step, self.phases[start]
                start = step

    def _begins(self, count: int) -> set[int]:
        """The columns in which a phase begins, the first one left out."""
        return {self.column_of(first, count) for first, _, _ in self.runs() if first > self.start}

    def _bar_lines(self, margin: int, count: int, rows: int, symbols: Symbols) -> list[Line]:
        begins = self._begins(count)
        return [_ruled(line, margin, begins, symbols) for line in super()._bar_lines(margin, count, rows, symbols)]

    def _text_line(self, margin: int, count: int, symbols: Symbols) -> Line:
        spans = [Span(" " * margin)]
        for first, end, phase in self.runs():
            width = min(self.column_of(end, count), count) - max(self.column_of(first, count), 0)
            text = f"{symbols.glyphs.axis} {phase}" if width >= _LEAST_TEXT else symbols.glyphs.axis
            if width > 0:
                spans.append(Span(cut_end(text, max(width - 1, 1), symbols).ljust(width), "faint"))
        return tuple(spans)

    def legend_rows(self, width: int, symbols: Symbols) -> list[Line]:
        """What each fill stands for, without what there is none of, in as many rows as that takes."""
        spans = self.legend(symbols)
        rows: list[Line] = [()]
        for number, part in enumerate(self.parts.values()):
            entry = spans[2 * number : 2 * number + 2]
            if part.any():
                fits = len(text_of((*rows[-1], *entry)).rstrip()) <= width
                rows[-1:] = [(*rows[-1], *entry)] if fits or not rows[-1] else [rows[-1], entry]
        return [cut_line(row, width, symbols) for row in rows]


def _ruled(line: Line, margin: int, begins: set[int], symbols: Symbols) -> Line:
    """The line with a rule in those of its empty cells in which a phase begins."""
    spans: list[Span] = []
    at = -margin
    for number, span in enumerate(line):
        start, at = at, at + len(span.text)
        inside = [column - start for column in sorted(begins) if start <= column < at] if number and not span.text.strip() else []
        done = 0
        for column in inside:
            spans += [Span(" " * (column - done)), Span(symbols.glyphs.axis, "faint")]
            done = column + 1
        spans.append(span if not done else Span(" " * (len(span.text) - done)))
    return tuple(spans)


def step_drawing(found: StepMemory) -> Drawing:
    """The chart of the step that stands for all later ones."""
    ops = found.trace.in_step(found.trace.steady)
    alive = {str(category): bytes_.astype(np.float64) for category, bytes_ in found.alive.items()}
    parts = {name: np.sum([alive[category] for category in categories], axis=0) for name, categories in _PARTS.items()}
    stack = StepStack(parts, [op.phase for op in ops])
    counters: tuple[Counter, ...] = ("requested", "allocated", "reserved")
    counted = ", ".join(f"{signed(found.counter(counter), Kind.BYTES)} {counter}" for counter in counters)
    text = f"{found.target.device.name}: {counted} at most{'' if found.fits else '; it does not fit'}"
    if stack.peak is None:
        return Drawing(stack, text)
    op = ops[stack.peak]
    peak = signed(found.counter("allocated"), Kind.BYTES)
    title = f"device peak {peak} in the {op.phase}, at step {stack.peak:,} of {len(stack):,}, {op.name}"
    return Drawing(stack, text, title)
