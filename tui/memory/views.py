"""What the Memory screen draws in place of live bytes by step: addresses, orders, a step of training; and an allocator's counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.errors import IrscopeError
from irscope.immutable import immutable
from irscope.memory.caching import BOUNDLESS, Segment
from irscope.memory.tape import LOADING, REPORTED, decoded
from irscope.report.cardtext import CardWriter
from irscope.report.celltext import SIGNS, CellWriter, signed
from irscope.report.options import RenderOptions
from irscope.report.printable import display_width, pad
from irscope.report.report import Report
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity, as_assumed, bare, plain
from irscope.tui.amounts import numbers_of
from irscope.tui.browse.outline import Ints
from irscope.tui.charts import Beside, Floats, Mask, Stack, fill_of, runs
from irscope.tui.context import Target
from irscope.tui.text import Line, Role, Span, Symbols, cut_end, cut_line, failure_lines, filled, note_lines, text_of, wrap

if TYPE_CHECKING:
    from irscope.passes.memory.cuda import DeviceMemory
    from irscope.passes.training.memory import StepMemory
    from irscope.report.card import Card
    from irscope.tools.fit import Fit


# What the chart of the memory screen can show in place of live bytes by step, and what has been found for it.

View: TypeAlias = Literal["steps", "sizes", "allocator", "plan", "orders", "training", "eager"]
VIEWS: Mapping[View, str] = {
    "steps": "live bytes by step",
    "sizes": "the peak over sizes of the first symbol",
    "allocator": "addresses by step, as PyTorch's allocator gives them on a GPU",
    "plan": "addresses by step, planned for one arena",
    "orders": "live bytes as written and in the order that needs least memory",
    "training": "the step of training by category, with its phases",
    "eager": "eager beside what torch.compile made of it, over one axis",
}
TITLES: Mapping[View, str] = {
    "steps": "Memory",
    "sizes": "Peak by size",
    "allocator": "Addresses, PyTorch's allocator",
    "plan": "Addresses, planned arena",
    "orders": "Orders",
    "training": "Step of training",
    "eager": "Eager beside compiled",
}


@immutable(slots=False)
class Drawing:
    """A chart with a line that says what it means."""

    stack: Stack
    text: str = ""
    title: str = ""
    """Title above it in place of what is alive at the cursor."""


@immutable(slots=False)
class Wanted:
    """Request that a drawing depends on."""

    view: View
    target: Target
    env: tuple[tuple[str, int], ...]

    @property
    def key(self) -> str:
        """Return a name for the question."""
        return f"memory.{self.view}.{self.target}.{self.env}"


class Drawings:
    """The drawing that is shown, or why there is none."""

    def __init__(self, symbols: Symbols, *, of_training: bool = False, is_compiled: bool = False) -> None:
        self.symbols = symbols
        self.is_compiled = is_compiled
        self.of_training = of_training
        self.view: View = "training" if of_training else "steps"
        self.restacked: Stack | None = None
        """The step of training otherwise than by category, where that is wanted."""
        self._own: StepStack | None = None
        self._asked: Wanted | None = None
        self._found: tuple[Wanted, Drawing | IrscopeError] | None = None

    def ask(self, wanted: Wanted) -> bool:
        """Return whether this has to be asked for, and note it as asked."""
        if self._asked == wanted:
            return False
        self._asked = wanted
        return True

    def take(self, wanted: Wanted, found: Drawing | IrscopeError) -> None:
        """Keep an answer, unless something else is wanted by now."""
        if wanted == self._asked:
            self._found = (wanted, found)

    @property
    def drawing(self) -> Drawing | None:
        """Return the drawing to show."""
        found = None if self._found is None or self._found[0] != self._asked else self._found[1]
        if not isinstance(found, Drawing) or not self.is_step or self.restacked is None or not isinstance(found.stack, StepStack):
            return found if isinstance(found, Drawing) else None
        if self._own is None or self._own.parts is not self.restacked.parts:
            self._own = StepStack(self.restacked.parts, found.stack.phases)
            self._own.start, self._own.stop = found.stack.start, found.stack.stop
        return replace(found, stack=self._own)

    def offered(self, *, has_sizes: bool) -> list[View]:
        """Return the views there are to choose from: sizes for a model that has symbols, a step for one of training, eager for one that was
        compiled."""
        absent = {"sizes": not has_sizes, "training": not self.of_training, "eager": not self.is_compiled}
        return [view for view in VIEWS if not absent.get(view)]

    def followed(self, steps: Stack | None) -> Stack | None:
        """Return the chart whose peaks are gone to: that of a step of training where it is shown, else that of live bytes by step."""
        drawing = self.drawing if self.view == "training" else None
        return steps if drawing is None or steps is None or len(drawing.stack) != len(steps) else drawing.stack

    @property
    def title(self) -> str:
        """Return the title in place of what is alive at the cursor, where the drawing has it."""
        return "" if self.drawing is None or self.view == "steps" else self.symbols.clean(self.drawing.title)

    @property
    def is_step(self) -> bool:
        """Return whether the step of training is shown, which has the same counters and the same verdict as live bytes by step."""
        return self.view == "training"

    def lines(self, width: int, height: int, here: int | None, mark: int | None, *, has_legend: bool = False) -> list[Line]:
        """Return the chart, or a word on why there is none; without its legend where that stands above."""
        symbols = self.symbols
        found = None if self._found is None or self._found[0] != self._asked else self._found[1]
        if isinstance(found, IrscopeError):
            return failure_lines(found, width, height, symbols)
        found = self.drawing
        if found is None:
            return note_lines(f"computing {VIEWS[self.view]}", height)
        stack = found.stack
        head = stack.legend_rows(width, symbols)[: 2 if height >= 10 else 1] if height >= 5 and not has_legend else []
        if self.view == "eager" and height >= 5:
            # The answer comes first, then what the step is made of.
            head = [cut_line((Span(symbols.clean(found.text), "heading"),), width, symbols), *stack.legend_at(here or 0, width, 1, symbols)]
        elif found.text and height >= 8 and not has_legend:
            head.append(cut_line((Span(symbols.clean(found.text)),), width, symbols))
        if not len(stack):
            return filled([*head, (Span("nothing to draw: the model has no steps", "faint"),)], height)
        if here is not None:
            stack.follow(here)
        return [*head, *stack.lines(width, height - len(head), here, symbols, mark)]


# Addresses over program order: the address range of each tensor at each step, from a plan or from PyTorch's allocator.

_LOOKS = 3
"""Neighbours differ in one of so many fills."""


@immutable(slots=False)
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
        self.end = top
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

    def top_text(self) -> str:
        return humanise(self.end, self.kind)

    def legend(self, symbols: Symbols) -> Line:
        spans = [Span(self.title)]
        if len(self.buffers.resident):
            spans += [Span("   "), fill_of(0, symbols), Span(" weights and inputs")]
        if self.chosen_name:
            spans += [Span("   "), Span(symbols.fills[0], "mark"), Span(f" {symbols.clean(self.chosen_name)}")]
        return tuple(spans)

    def owners(self, steps: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
        """Return for each row, the lowest address first, and each step the buffer that has the middle of the row's addresses; -1 for
        none."""
        owners = np.full((rows, len(steps)), -1, dtype=np.int64)
        if not self.end or not rows:
            return owners
        middles = (np.arange(rows) + 0.5) * self.end / rows
        buffers = self.buffers
        for column, step in enumerate(steps.tolist()):
            if column and steps[column - 1] == step:
                owners[:, column] = owners[:, column - 1]
                continue
            alive = np.flatnonzero((buffers.first <= step) & (buffers.last >= step) & (buffers.size > 0))
            alive = alive[np.argsort(buffers.offset[alive], kind="stable")]
            if not len(alive):
                continue
            places = np.searchsorted(buffers.offset[alive], middles, side="right") - 1
            held = alive[np.maximum(places, 0)]
            inside = (places >= 0) & (middles < buffers.offset[held] + buffers.size[held])
            owners[:, column] = np.where(inside, held, -1)
        return owners

    def marked(self, bars: list[Line], count: int, symbols: Symbols) -> list[Line]:
        # What is above one another here are addresses.
        return bars

    def bars(self, count: int, rows: int, symbols: Symbols) -> list[Line]:
        marked = np.array([name == self.chosen_name for name in self.buffers.names], dtype=np.bool_)

        def look(owner: int) -> Span:
            return Span(symbols.fills[0], "mark") if marked[owner] else fill_of(int(self._look[owner]), symbols)

        return [runs(cells, look) for cells in self.owners(self.chosen(count), rows)[::-1]]


def planned(report: Report, steps: int) -> AddressMap:
    """Return the map of a plan of one arena."""
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


def allocated(memory: DeviceMemory) -> AddressMap:
    """Return the addresses that PyTorch's allocator assigns in the first forward."""
    assert memory.tape is not None
    replayed = memory.replay(BOUNDLESS, (LOADING, "cold"), addresses=True)
    loaded, forward = replayed.stretches
    end = len(memory.steps)
    weights = [(address, size) for address, size in zip(loaded.addresses, loaded.blocks, strict=True) if size]
    rows: list[tuple[str, int, int, int, int]] = [("weights and inputs", 0, end, address, size) for address, size in weights]
    step_of = (np.searchsorted(np.array(forward.starts), np.arange(len(forward.events)), side="right") - 1).tolist()
    gone = {slot: step for (slot, is_taken), step in zip(decoded(forward.events), step_of, strict=True) if not is_taken}
    for (slot, is_taken), step, address, size in zip(decoded(forward.events), step_of, forward.addresses, forward.blocks, strict=True):
        if is_taken and size:
            rows.append((memory.tape.labels[slot], step, gone.get(slot, end), address, size))
    segments = replayed["cold"].segments
    top = sum(segment.size for segment in segments)
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    births, deaths, addresses, sizes = (np.array(column, dtype=np.int64) for column in columns[1:])
    buffers = Buffers([str(name) for name in columns[0]], births, deaths, _packed(addresses, segments), sizes, np.arange(len(weights)))
    reserved = signed(memory.counter("cold", "reserved"), Kind.BYTES)
    title = f"{memory.target.device.name}: {len(segments):,} segments, {reserved} reserved, first run"
    return AddressMap(buffers, end, top, title)


def _packed(address: Ints, segments: Sequence[Segment]) -> Ints:
    """Return the addresses without the gaps between segments."""
    if not len(address):
        return address
    starts = np.array([segment.address for segment in segments], dtype=np.int64)
    offsets = np.concatenate(([0], np.cumsum([segment.size for segment in segments])))[:-1]
    at = np.searchsorted(starts, address, side="right") - 1
    packed: Ints = (offsets[at] + address - starts[at]).astype(np.int64)
    return packed


def orders(report: Report) -> Stack | None:
    """Return the bytes alive in the order as written and in the best one found, over one axis; None where there is no timeline."""
    series = next((series for series in report.series if any(column.key == "as_written" for column in series.columns)), None)
    if series is None:
        return None
    written = numbers_of(series.data["as_written"])
    numbers = numbers_of(series.data["scheduled"]) if "scheduled" in series.data else written
    parts = ("both orders", "only as written", "only in the order found")
    return Beside(("as written", "order found"), (written, numbers), parts=parts)


def order_text(report: Report) -> str:
    """Return the result of the search for a better order."""
    before, after = (bare(report.summary.get(key)) for key in ("peak_before_bytes", "peak_after_bytes"))  # type: ignore[arg-type]  # numbers
    says = str(bare(report.summary.get("says")) or "")  # type: ignore[arg-type]  # a text
    if not isinstance(before, int) or not isinstance(after, int):
        return says
    return f"peak {humanise(before, Kind.BYTES)} as written, {humanise(after, Kind.BYTES)} in the best order found: {says}"


# Bytes by category over a step of training, with its phases.

_PARTS: Mapping[str, tuple[str, ...]] = {
    "parameters": ("parameter",),
    "buffers, inputs": ("buffer", "input"),
    "gradients": ("gradient",),
    "optimizer state": ("optimizer state",),
    "activations": ("activation",),
    "temporary": ("temporary",),
    "workspace": ("workspace", "rounding"),
}
"""Categories of a step that are drawn as one part, the lowest first."""


_LEAST_TEXT = 6
"""Columns that a phase must take for its name to stand there."""


class StepStack(Stack):
    """The chart of a step: below its axis stand the phases, and a line goes up where one begins."""

    def __init__(self, parts: Mapping[str, Floats], phases: Sequence[str], *, places: Sequence[str] | None = None) -> None:
        super().__init__(parts, places=places)
        self.phases = phases

    def stretches(self) -> Iterator[tuple[int, int, str]]:
        """Stretches of steps that belong to one phase: the first step, the one behind the last, and the phase."""
        start = 0
        for step in range(1, len(self.phases) + 1):
            if step == len(self.phases) or self.phases[step] != self.phases[start]:
                yield start, step, self.phases[start]
                start = step

    def _begins(self, count: int) -> set[int]:
        """Return the columns in which a phase begins, the first one left out."""
        return {self.column_of(first, count) for first, _, _ in self.stretches() if first > self.start}

    def bars(self, count: int, rows: int, symbols: Symbols) -> list[Line]:
        begins = self._begins(count)
        return [_ruled(line, begins, symbols) for line in super().bars(count, rows, symbols)]

    def window_line(self, count: int, symbols: Symbols) -> Line:
        spans: list[Span] = []
        for first, end, phase in self.stretches():
            width = min(self.column_of(end, count), count) - max(self.column_of(first, count), 0)
            text = f"{symbols.glyphs.axis} {phase}" if width >= _LEAST_TEXT else symbols.glyphs.axis
            if width > 0:
                spans.append(Span(cut_end(text, max(width - 1, 1), symbols).ljust(width), "faint"))
        return tuple(spans)

    def legend_rows(self, width: int, symbols: Symbols) -> list[Line]:
        return self.wrapped_legend(width, symbols)


def _ruled(line: Line, begins: set[int], symbols: Symbols) -> Line:
    """Return the line with a rule in those of its empty cells in which a phase begins."""
    spans: list[Span] = []
    at = 0
    for span in line:
        start, at = at, at + len(span.text)
        inside = [column - start for column in sorted(begins) if start <= column < at] if not span.text.strip() else []
        done = 0
        for column in inside:
            spans += [Span(" " * (column - done)), Span(symbols.glyphs.axis, "faint")]
            done = column + 1
        spans.append(span if not done else Span(" " * (len(span.text) - done)))
    return tuple(spans)


def step_drawing(memory: StepMemory) -> Drawing:
    """Return the chart of the step that needs most."""
    ops = memory.ops
    alive = {str(category): bytes_.astype(np.float64) for category, bytes_ in memory.alive.items()}
    parts = {name: np.sum([alive[category] for category in categories], axis=0) for name, categories in _PARTS.items()}
    stack = StepStack(parts, [op.phase for op in ops])
    counted = ", ".join(f"{signed(memory.worst(counter), Kind.BYTES)} {counter}" for counter in REPORTED)
    text = f"{memory.target.device.name}: {counted} at most{'' if memory.fits else '; it does not fit'}"
    if stack.peak is None:
        return Drawing(stack, text)
    op = ops[stack.peak]
    peak = signed(memory.peak, Kind.BYTES)
    title = f"{'tensor' if memory.reason else 'device'} peak {peak} in the {op.phase}, at step {stack.peak:,} of {len(stack):,}, {op.name}"
    return Drawing(stack, text, title)


# Peaks over sizes of a symbol, and the largest that fits.


class SizeStack(Stack):
    """Peaks over sizes: the chart marks the largest size that fits."""

    def __init__(self, parts: Mapping[str, Floats], name: str, sizes: Sequence[int], modelled: Mapping[str, Mask] | None = None) -> None:
        super().__init__(parts, places=[f"{name}={size:,}" for size in sizes], modelled=modelled)
        self.sizes = sizes
        self.largest: int | None = None
        # Sizes are not equally far apart: each is as wide as it is to the next.
        self.use_time(np.diff(np.array([*sizes, 2 * sizes[-1] - sizes[-2] if len(sizes) > 1 else sizes[-1] + 1], dtype=np.float64)))

    def place_of(self, size: int | None) -> int | None:
        """Return where a size is."""
        return self.sizes.index(size) if size in self.sizes else None

    @property
    def marked_place(self) -> int | None:
        place = self.place_of(self.largest)
        return self.peak if place is None else place

    def mark_lines(self, count: int, symbols: Symbols) -> list[Line]:
        place = self.place_of(self.largest)
        if place is None:
            return super().mark_lines(count, symbols)
        return [self.mark_line(place, f"the largest that fits: {self.place(place)}, {self.text_at(place)}", count, symbols)]


def fit_text(fit: Fit) -> str:
    """Return the largest size that fits, what it leaves, and what stops a larger one, in a sentence."""
    sign = SIGNS[Provenance.MODELLED] if fit.is_modelled else ""

    def text(size: int) -> str:
        return f"{sign}{humanise(size, Kind.BYTES)}"

    room = humanise(fit.memory, Kind.BYTES)
    if not fit.fits:
        return f"no {fit.free} fits: {fit.free}={fit.smallest} takes {text(fit.peak.bytes)} {fit.counter} of {room}"
    if fit.largest is None:
        return f"any {fit.free} fits: memory does not depend on it"
    takes = f"{text(fit.peak.bytes)} {fit.counter} of {room}, {text(fit.headroom)} left"
    said = f"the largest {fit.free} that fits: {fit.largest:,}, {takes}"
    if fit.surely is not None and fit.surely != fit.largest:
        said += f"; surely {fit.surely:,}"
    if fit.limit == "range":
        return f"{said}; the model allows no larger one"
    if fit.following is not None:
        over = fit.following.bytes - fit.memory
        said += f"; one more lacks {text(over)} at {fit.following.node}" if over > 0 else ""
    return said


# Whether the model fits, in the words of its card.


@immutable(slots=False)
class Verdict:
    """Verdict on whether it fits, by how much, and on what."""

    text: str
    fits: bool | None
    """None where that is not known."""
    device: str
    room: int | None
    """Memory that a model can have there."""
    needed: int | None = None
    """Bytes that the verdict compares with it."""
    amount: str = ""
    """Amount that is left, or missing."""

    @property
    def role(self) -> Role:
        """Return its colour."""
        return "good" if self.fits else "unknown" if self.fits is None else "error"

    def short(self, symbols: Symbols, *, is_brief: bool = False) -> Span:
        """Return the verdict in a few words, in hardly any where the room is short."""
        words = {True: "fits", False: "does NOT fit", None: f"fits {symbols.unknown}"}[self.fits]
        return Span(f"{words}{f', {symbols.clean(self.amount)}' if self.amount and not is_brief else ''}", self.role)

    def lines(self, width: int, most: int, symbols: Symbols) -> list[Line]:
        """Return the verdict in at most so many lines."""
        return most_lines((Span(symbols.clean(self.text), self.role),), width, most, symbols)


def card_verdict(card: Card) -> Verdict:
    """Return the verdict of a card, with what is left of the device's memory."""
    memory, device = card.memory, card.device
    text, _ = CardWriter(card).verdict()
    fits, needed, said = memory.fits.value, memory.needed[0], ""
    if fits is True and device.room_bytes is not None:
        most = needed.ends[1] if needed.value is None else None
        said = (
            f"{signed(device.room_bytes - needed, Kind.BYTES)} left"
            if most is None
            else f"at least {signed(device.room_bytes - most, Kind.BYTES)} left"
        )
        text = f"{text}, {said}"
    elif fits is False and memory.missing is not None:
        said = f"{signed(memory.missing, Kind.BYTES)} too much"
    number = needed.value if isinstance(needed.value, int) else None
    return Verdict(text, fits if isinstance(fits, bool) else None, device.name, device.room_bytes, number, said)


def most_lines(line: Line, width: int, most: int, symbols: Symbols) -> list[Line]:
    """Return a line in at most so many rows, the last of them cut."""
    rows = list(wrap(line, width))
    if len(rows) <= most:
        return rows
    return [*rows[: most - 1], cut_line((*rows[most - 1], Span(" "), *(span for row in rows[most:] for span in row)), width, symbols)]


# What an allocator counts before a run, in the first run and in the second: the counters of the summary of liveness.

_MOMENTS = {"before": "before", "cold": "first", "warm": "steady"}
_COLUMN = 2
"""Blanks between two columns."""


@immutable(slots=False)
class Counters:
    """Numbers by moment and counter; None where they are unknown, with the reason."""

    device: str
    numbers: Mapping[tuple[str, str], object]
    reason: str = ""
    moments: Mapping[str, str] = field(default_factory=lambda: _MOMENTS)
    """Their keys, and the word for each."""

    @property
    def rows(self) -> int:
        """Return how many lines the table takes."""
        return 1 + len(self.moments)

    @property
    def is_known(self) -> bool:
        """Return whether any number is known."""
        return any(_is_known(number) for number in self.numbers.values())

    def text(self, moment: str, counter: str, symbols: Symbols, *, is_whole: bool = True) -> str:
        """Return one number with its unit; with its interval where the whole is wanted."""
        found = plain(self.numbers.get((moment, counter)))
        if not is_whole and isinstance(found, Quantity) and found.value is not None:
            found = replace(found, lo=None, hi=None)
        writer = CellWriter(RenderOptions(encoding=symbols.encoding))
        return symbols.clean(writer.write(found, Kind.BYTES))

    def line(self, width: int, symbols: Symbols) -> list[Line]:
        """Return what decides whether it fits as one line; nothing where that has no room."""
        counter = next(one for one in reversed(REPORTED) if any(_is_known(self.numbers.get((moment, one))) for moment in self.moments))
        spans = [Span(f"{counter} ", "faint")]
        for moment, name in self.moments.items():
            spans += [Span(f"{name} ", "faint"), Span(f"{self.text(moment, counter, symbols, is_whole=False)}  ")]
        return [tuple(spans)] if display_width(text_of(spans).rstrip()) <= width else []

    def lines(self, width: int, symbols: Symbols) -> list[Line]:
        """Return a table that is never cut, with intervals where there is room for them; or the reason why there is none."""
        if not self.is_known:
            text = f"allocator {symbols.unknown} {symbols.clean(self.reason)}" if self.reason else f"allocator {symbols.unknown}"
            return most_lines((Span(text, "unknown"),), width, 2, symbols)
        for is_whole in (True, False):
            title = symbols.clean(self.device)
            rows: list[tuple[str, ...]] = [(title, *REPORTED)]
            rows += [
                (name, *(self.text(moment, counter, symbols, is_whole=is_whole) for counter in REPORTED))
                for moment, name in self.moments.items()
            ]
            widths = [max(display_width(row[place]) for row in rows) for place in range(len(rows[0]))]
            if sum(widths) + _COLUMN * (len(widths) - 1) <= width:
                break
        lines: list[Line] = []
        for place, (name, *cells) in enumerate(rows):
            spans = [Span(pad(name, widths[0]), "heading" if not place else "faint")]
            spans += [
                Span(f"{' ' * _COLUMN}{pad(cell, size, right=True)}", "faint" if not place else "plain")
                for cell, size in zip(cells, widths[1:], strict=True)
            ]
            lines.append(cut_line(spans, width, symbols))
        return lines


def counters_of(report: Report) -> Counters | None:
    """Return the counters of a report of liveness; None where it has none."""
    summary = report.summary
    numbers: dict[tuple[str, str], object] = {}
    for moment in _MOMENTS:
        found = summary.get(moment)
        if isinstance(found, Mapping):
            cells = ((counter, plain(found[counter])) for counter in REPORTED if counter in found)
            numbers.update({(moment, counter): as_assumed(cell) if report.is_assumed else cell for counter, cell in cells})
    if not numbers:
        return None
    device = plain(summary.get("device"))
    return Counters(device if isinstance(device, str) else "", numbers, _reason(report, numbers))


def _reason(report: Report, numbers: Mapping[tuple[str, str], object]) -> str:
    for number in numbers.values():
        if isinstance(number, Quantity) and number.note:
            return number.note
    marker = "no counters of "
    return next((note.partition(": ")[2] for note in report.notes if note.startswith(marker)), "")


def _is_known(number: object) -> bool:
    return number.shown is not None or number.interval is not None if isinstance(number, Quantity) else number is not None
