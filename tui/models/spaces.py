"""Addresses over program order: the address range of each tensor at each step, from a plan or from PyTorch's allocator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from irscope.memory.caching import Block, CachingAllocator, Segment
from irscope.report.celltext import signed
from irscope.report.report import Report
from irscope.report.units import Kind, humanise
from irscope.report.values import bare
from irscope.tui.models.outline import Ints
from irscope.tui.models.spans import PARTS, Line, Role, Span, cut_line
from irscope.tui.models.stack import Stack, fill_of
from irscope.tui.models.symbols import Symbols

if TYPE_CHECKING:
    from irscope.passes.cuda.result import DeviceMemory

_LOOKS = 3
"""Neighbours differ in one of so many fills."""


@dataclass(frozen=True)
class Buffers:
    """Stretches of addresses, each for some steps; `last` is the last step that it lives in."""

    names: Sequence[str]
    first: Ints
    last: Ints
    offset: Ints
    size: Ints
    resident: Ints
    """Which of them are there all the time, such as weights: by number."""


class AddressMap(Stack):
    """Columns are steps as in the chart of live bytes, rows are addresses from the lowest up."""

    def __init__(self, buffers: Buffers, steps: int, top: int, title: str) -> None:
        self.buffers = buffers
        self.top = top
        self.title = title
        change = np.zeros(steps + 1, dtype=np.float64)
        np.add.at(change, np.clip(buffers.first, 0, steps), buffers.size.astype(np.float64))
        np.subtract.at(change, np.clip(buffers.last + 1, 0, steps), buffers.size.astype(np.float64))
        super().__init__({"in use": np.cumsum(change[:steps])})
        self.chosen_name = ""
        """The tensor that is marked."""
        # Buffers by address get the fills in turn, so that those next to one another differ.
        order = np.lexsort((buffers.first, buffers.offset))
        self._look: Ints = np.zeros(len(order), dtype=np.int64)
        self._look[order] = 1 + np.arange(len(order)) % _LOOKS
        self._look[buffers.resident] = 0

    def _top_text(self) -> str:
        return humanise(self.top, self.kind)

    def legend(self, symbols: Symbols) -> Line:
        spans = [Span(self.title)]
        if len(self.buffers.resident):
            spans += [Span("   "), Span(fill_of(0, symbols), PARTS[0]), Span(" weights and inputs")]
        if self.chosen_name:
            spans += [Span("   "), Span(symbols.fills[0], "mark"), Span(f" {symbols.clean(self.chosen_name)}")]
        return tuple(spans)

    def owners(self, steps: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
        """For each row, the lowest address first, and each step the buffer that has the middle of the row's addresses; -1 for none."""
        found = np.full((rows, len(steps)), -1, dtype=np.int64)
        if not self.top or not rows:
            return found
        middles = (np.arange(rows) + 0.5) * self.top / rows
        one = self.buffers
        for column, step in enumerate(steps.tolist()):
            if column and steps[column - 1] == step:
                found[:, column] = found[:, column - 1]
                continue
            alive = np.flatnonzero((one.first <= step) & (one.last >= step) & (one.size > 0))
            alive = alive[np.argsort(one.offset[alive], kind="stable")]
            if not len(alive):
                continue
            places = np.searchsorted(one.offset[alive], middles, side="right") - 1
            held = alive[np.maximum(places, 0)]
            inside = (places >= 0) & (middles < one.offset[held] + one.size[held])
            found[:, column] = np.where(inside, held, -1)
        return found

    def _bar_lines(self, margin: int, count: int, rows: int, symbols: Symbols) -> list[Line]:
        owners = self.owners(self.chosen(count), rows)
        marked = np.array([name == self.chosen_name for name in self.buffers.names], dtype=np.bool_)
        lines: list[Line] = []
        for row in range(rows):
            cells = owners[rows - 1 - row]
            label = self._top_text() if row == 0 else ""
            spans = [Span(f"{label.rjust(margin - 2)} {symbols.glyphs.axis}", "faint")]
            edges = np.concatenate(([0], np.flatnonzero(np.diff(cells)) + 1, [len(cells)]))
            for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                owner = int(cells[start])
                look = int(self._look[owner]) if owner >= 0 else 0
                role: Role = "mark" if owner >= 0 and marked[owner] else PARTS[look]
                fill = " " if owner < 0 else symbols.fills[0] if role == "mark" else fill_of(look, symbols)
                spans.append(Span(fill * (stop - start), role))
            lines.append(cut_line(spans, margin + count, symbols))
        return lines


def planned(report: Report, steps: int) -> AddressMap:
    """The map of a plan of one arena."""
    table = next(table for table in report.tables if any(column.key == "offset" for column in table.columns))
    cells = {column.key: [bare(cell) for cell in table.cells(column.key)] for column in table.columns}

    def numbers(key: str) -> Ints:
        return np.array([value if isinstance(value, int) else 0 for value in cells[key]], dtype=np.int64)

    nothing = np.zeros(0, dtype=np.int64)
    buffers = Buffers(
        [str(name) for name in cells["name"]], numbers("lower"), numbers("upper") - 1, numbers("offset"), numbers("size"), nothing
    )
    arena, live = (bare(report.summary.get(key)) for key in ("arena_bytes", "max_live_bytes"))  # type: ignore[arg-type]  # plain numbers
    top = arena if isinstance(arena, int) else 0
    most = humanise(live, Kind.BYTES) if isinstance(live, int) else "?"
    says = str(bare(report.summary.get("says")) or "")  # type: ignore[arg-type]  # a text
    return AddressMap(buffers, steps, top, f"one planned arena of {humanise(top, Kind.BYTES)} for at most {most} alive: {says}")


def allocated(found: DeviceMemory) -> AddressMap:
    """Addresses that PyTorch's allocator assigns in the first forward."""
    script, stream = found.script, found.stream
    assert script is not None and stream is not None
    gpu = CachingAllocator("{}.{}".format(*found.target.torch), found.target.alloc_conf, None)
    weights = [gpu.malloc(size) for size in script.resident if size]
    end = len(found.steps)
    starts = np.array(stream.starts, dtype=np.int64)
    taken: dict[int, tuple[Block, int]] = {}
    rows: list[tuple[str, int, int, int, int]] = [("weights and inputs", 0, end, one.address, one.size) for one in weights]
    step_of = (np.searchsorted(starts, np.arange(len(script.events)), side="right") - 1).tolist()
    for number, event in enumerate(script.events):
        if event >= 0 and script.sizes[event]:
            block = gpu.malloc(script.sizes[event])
            taken[event] = (block, len(rows))
            rows.append((stream.labels[event], step_of[number], end, block.address, block.size))
        elif event < 0 and ~event in taken:
            block, row = taken.pop(~event)
            name, first, _, address, size = rows[row]
            rows[row] = (name, first, step_of[number], address, size)
            gpu.free(block)
    segments = gpu.segments()
    top = sum(segment.size for segment in segments)
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    births, deaths, addresses, sizes = (np.array(column, dtype=np.int64) for column in columns[1:])
    buffers = Buffers([str(name) for name in columns[0]], births, deaths, _packed(addresses, segments), sizes, np.arange(len(weights)))
    reserved = signed(found.counter("cold", "reserved"), Kind.BYTES)
    title = f"{found.target.device.name}: {len(segments):,} segments, {reserved} reserved, first run"
    return AddressMap(buffers, end, top, title)


def _packed(address: Ints, segments: Sequence[Segment]) -> Ints:
    """Addresses without the gaps between segments."""
    if not len(address):
        return address
    starts = np.array([segment.address for segment in segments], dtype=np.int64)
    offsets = np.concatenate(([0], np.cumsum([segment.size for segment in segments])))[:-1]
    at = np.searchsorted(starts, address, side="right") - 1
    packed: Ints = (offsets[at] + address - starts[at]).astype(np.int64)
    return packed


def orders(report: Report) -> Stack | None:
    """Bytes alive in the order as written and in the best one found, over one axis; None where there is no timeline."""
    series = next((one for one in report.series if any(column.key == "as_written" for column in one.columns)), None)
    if series is None:
        return None
    written = _heights(series.data["as_written"])
    found = _heights(series.data["scheduled"]) if "scheduled" in series.data else written
    parts = {
        "both orders": np.minimum(written, found),
        "only as written": np.maximum(written - found, 0),
        "only in the order found": np.maximum(found - written, 0),
    }
    return Stack(parts)


def _heights(cells: Sequence[Any]) -> NDArray[np.float64]:
    values = (bare(cell) for cell in cells)
    return np.array([float(value) if isinstance(value, int | float) else 0.0 for value in values], dtype=np.float64)


def order_text(report: Report) -> str:
    """What the search for a better order found."""
    before, after = (bare(report.summary.get(key)) for key in ("peak_before_bytes", "peak_after_bytes"))  # type: ignore[arg-type]  # numbers
    says = str(bare(report.summary.get("says")) or "")  # type: ignore[arg-type]  # a text
    if not isinstance(before, int) or not isinstance(after, int):
        return says
    return f"peak {humanise(before, Kind.BYTES)} as written, {humanise(after, Kind.BYTES)} in the best order found: {says}"
