"""The state of the memory screen: what is alive at a step and why, under a lifetime model, on a device, for sizes of symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from irscope.errors import IrscopeError
from irscope.immutable import immutable
from irscope.ir.dims import bounds
from irscope.ir.graph import Node
from irscope.report.celltext import SIGNS
from irscope.report.report import Report
from irscope.report.table import Table
from irscope.report.units import Kind, humanise, provenance_of
from irscope.report.values import Provenance, bare
from irscope.tui.amounts import Binding, amount, numbers_of
from irscope.tui.browse.columns import rows_by_name
from irscope.tui.browse.model import Browse
from irscope.tui.browse.outline import Ints, Mask
from irscope.tui.charts import Floats, Limit, Stack
from irscope.tui.compiled import is_compiled
from irscope.tui.context import Context, Target
from irscope.tui.memory.lives import GROUPINGS, REST, By, Lives, Measured, Occupants, category_of, maker_of
from irscope.tui.memory.view import MemoryView
from irscope.tui.memory.views import TITLES, AddressMap, Counters, Drawings, SizeStack, Verdict, View, Wanted, fit_text, most_lines
from irscope.tui.memory.whatif import BeforeAfter, WhatIf, WhatIfs, tried_text
from irscope.tui.rows import ReportTable, RowTexts, TableColumn, TableModel, word_pattern
from irscope.tui.text import Line, Span, failure_lines, filled, note_lines, wrap

if TYPE_CHECKING:
    from irscope.passes.lifetimes.lives import LiveRange, Tenant
    from irscope.passes.lifetimes.timeline import Held, Timeline
    from irscope.tools.fit import Fit

_MOST_SIZES, _FARTHER = 64, 5
"""Sizes that are looked at, and quarters of the largest one of interest up to which they go."""
_MOST_REPLAYED = 2_000
"""Nodes of a model whose allocator is replayed at each of them."""
_MOST_REASONS = 2000
_STORED = {"parameters": "bytes", "buffers": "buffer_bytes", "constants": "constant_bytes"}
"""Weights of a file without a graph, by the key of their bytes in the report of parameters."""
_LEAST_CHART = 5
"""Rows of a chart below a line that says more than it: its mark, three of bars, and the axis."""
_MOST_COUNTED = 20_000
"""Nodes of a model that is read again whenever other sizes are put in, to count what its allocator does."""


@immutable
class Row:
    """A row of the table."""

    name: str
    size: int | None
    born: int
    dies: int
    kind: str
    why: Callable[[], str]
    node: Node | None
    most: int | None = None
    """The most that it may take, where its size is unknown."""

    @property
    def made_by(self) -> str:
        """Return the module that made it, else the operator."""
        return "" if self.node is None else self.node.scope.path or self.node.op

    def has(self, word: str, *, with_reason: bool) -> bool:
        """Return whether the row contains a word."""
        texts = (self.name, self.kind, self.made_by, self.why() if with_reason else "")
        return any(word_pattern(word).search(text.lower()) for text in texts)


@immutable(slots=False)
class Found:
    """The answer to one question: liveness under a model, on a device, in a run."""

    target: Target
    lives: Lives
    counters: Counters | None
    measured: Measured | None = None
    """All memory over the steps, where every size is a number."""

    @property
    def live(self) -> Timeline:
        """Return the result of the pass."""
        return self.lives.live


class Memory(MemoryView):
    """The memory of a model: all that the Memory screen shows of it."""

    def __init__(self, browse: Browse) -> None:
        super().__init__(browse.symbols)
        self.browse = browse
        self.found: Found | None = None
        self.error: IrscopeError | None = None
        self.uncounted = 0
        self.sizes: NDArray[np.float64] = np.zeros(0, dtype=np.float64)
        self._rows: Ints = np.zeros(0, dtype=np.int64)
        """The storages of the table by their number."""
        self.shown_for = Binding()
        """The sizes that are shown, those among them that nobody gave too."""
        self._held: Sequence[Held] = ()
        """Tensors that the table shows of one step, the largest first."""
        self._names: RowTexts | None = None
        self.table = self._table_of()
        self._env: dict[str, int] = {}
        self.by: By = "category"
        """Criterion that the chart is stacked by."""
        self.whatifs: WhatIfs | None = None
        """Changes that would lower the peak, once they have been asked for."""
        self._whatifs_for: tuple[object, ...] = ()
        self.lists_whatifs = False
        """True where they are listed in place of what is alive."""
        self.after: BeforeAfter | None = None
        """The curve with the change that is tried."""
        self.on_time = False
        """True where each step is as wide as its time."""
        self._times: tuple[tuple[object, ...], Floats | None, str] | None = None
        self._occupants: tuple[tuple[object, ...], Occupants] | None = None
        self._counted: tuple[tuple[object, ...], Counters | IrscopeError | None, Measured | None] | None = None
        self._fit: tuple[tuple[object, ...], Fit | IrscopeError] | None = None
        self.by_size: SizeStack | None = None
        """Peaks over sizes of the first symbol, while they are looked at in place of steps."""
        self.drawings = Drawings(self.symbols, of_training=browse.program.training is not None, is_compiled=is_compiled(browse.program))
        self.plan: ReportTable | None = None
        """The buffers of the generated code, once they have been found."""

    @property
    def context(self) -> Context:
        """Return the context that is chosen on all screens."""
        return self.browse.context

    @property
    def is_waiting(self) -> bool:
        """Return whether the shown result is not that of the chosen target."""
        return self.error is None and (self.found is None or self.found.target != self.context.target)

    def take(self, found: Found) -> None:
        """Show a result, unless something else has been chosen meanwhile."""
        if found.target != self.context.target:
            return
        first = self.found is None
        self.found, self.error = found, None
        self._names = None
        self.update()
        if first and self.stack is not None and self.stack.peak is not None and self.step == 0:
            self.go_to(self.stack.peak)
        else:
            self.go_to(self.step_of_selected or 0)

    @property
    def step_of_selected(self) -> int | None:
        """Return the step of what all screens have selected, in the order of this answer."""
        if self.found is None or self.browse.is_empty:
            return None
        steps = self.found.lives.steps
        # Several steps may stand at one row: the cursor stays at its own.
        return self.step if len(steps) and steps.row(self.step) == self.browse.selected else steps.at(self.browse.selected)

    def fail(self, error: IrscopeError) -> None:
        """Note that the computation failed."""
        self.error = error

    def update(self) -> None:
        """Work out heights for the sizes of symbols that hold now."""
        if self.found is None:
            return
        lives, binding = self.found.lives, self.browse.results.complete
        self._env = dict(binding.env)
        self.shown_for = binding
        self.sizes = lives.bound(binding)
        self.uncounted = len(lives.live.unsized) + int(np.isnan(self.sizes[: len(lives.live.ranges)]).sum())
        was_at_peak = self.stack is not None and self.step == self.stack.peak
        window = None if self.stack is None else (self.stack.start, self.stack.stop, len(self.stack))
        self.stack = self._stacked(lives, binding)
        if self.whatifs is not None and self._whatifs_for != self.counted_for:
            self.forget_whatifs()
        if self.on_time and self._times is not None and self._times[0] == self.counted_for:
            self.stack.use_time(*self._times[1:])
        self.drawings.restacked = None if self.occupants is None else self.stack
        self.draw_limit()
        if window is not None and window[2] == len(self.stack):
            self.stack.start, self.stack.stop = window[:2]
        # What an allocator adds may be highest at another step than tensors are.
        self.go_to(self.stack.peak if was_at_peak and self.stack.peak is not None else self.step)

    @property
    def counted_for(self) -> tuple[object, ...]:
        """Return the key of an allocator's counters: they need a number for every symbol."""
        return (*self.context.target, *self.browse.results.complete.env.items())

    @property
    def lacks_counters(self) -> bool:
        """Return whether the counters for the shown sizes have not been computed yet."""
        if self.browse.node_count > _MOST_COUNTED:
            return False
        return bool(self.browse.results.complete.env) and (self._counted is None or self._counted[0] != self.counted_for)

    def take_counters(self, asked: tuple[object, ...], found: Counters | IrscopeError | None, summed: Measured | None = None) -> None:
        """Take the allocator's counters for the entered sizes, or why they are unknown; and all memory over the steps."""
        self._counted = (asked, found, summed)
        if asked == self.counted_for:
            self.update()

    @property
    def verdict(self) -> Verdict | None:
        """Return the verdict on whether it fits, where that is known for the chosen settings."""
        results = self.browse.results
        return results.verdict if results.verdict_for == self.counted_for else None

    def draw_limit(self) -> None:
        """Draw the memory of the device where the chart comes near it, and begin the axis of steps where that is chosen."""
        found, drawing = self.verdict, self.drawings.drawing if self.drawings.is_step else None
        limit = None if found is None or found.room is None else Limit(float(found.room), f"capacity of {found.device}")
        for stack in (self.stack, self.by_size, None if drawing is None else drawing.stack):
            if stack is not None:
                stack.limit = limit
        for stack in (self.stack, None if drawing is None else drawing.stack):
            if stack is not None:
                stack.breaks = self.breaks

    @property
    def measured(self) -> Measured | None:
        """Return all memory over the steps for the sizes that are shown, where it is known."""
        if self.found is None:
            return None
        if not self.browse.results.complete.env:
            return self.found.measured
        return self._counted[2] if self._counted is not None and self._counted[0] == self.counted_for else None

    @property
    def size_name(self) -> str:
        """Return the size that peaks are looked at over: one that was put in, else the model's first, else one that it was opened with."""
        names = (*self.browse.results.binding.env, *self.browse.program.symbols, *self.browse.source.bind)
        return next(iter(names), "")

    @property
    def other_sizes(self) -> dict[str, int]:
        """Return the numbers for all others."""
        sizes = {**self.browse.source.bind, **self.browse.results.complete.env}
        return {name: size for name, size in sizes.items() if name != self.size_name}

    @property
    def here_size(self) -> int | None:
        """Return the value that the size has on all screens."""
        return {**self.browse.source.bind, **self.browse.results.complete.env}.get(self.size_name)

    @property
    def sizes_question(self) -> str:
        """Return the pass that tells the peak over sizes; empty for a model all of whose sizes are fixed."""
        first = self.size_name
        if not first:
            return ""
        symbol = self.browse.program.symbols.get(first)
        low, high = (1, None) if symbol is None else (max(1, symbol.lo or 1), symbol.hi)
        found, here = self.largest, self.here_size
        of_interest = [size for size in (here, None if found is None else found.largest) if size]
        most = max([low + _MOST_SIZES - 1 if found is None else low, *(size * _FARTHER // 4 for size in of_interest)])
        most = most if high is None else min(most, high)
        count = min(_MOST_SIZES, most - low + 1)
        sizes = {low + (most - low) * place // max(count - 1, 1) for place in range(count)}
        sizes |= {size for size in of_interest if low <= size <= most}
        over = ",".join(map(str, sorted(sizes))) if most - low + 1 > count else f"{low}..{most}"
        others = [f"{name}={size}" for name, size in self.other_sizes.items()]
        model = "" if self.context.lifetime == "auto" else f" model={self.context.lifetime}"
        allocator = "" if self.browse.node_count <= _MOST_REPLAYED else " allocator=false"
        return f'curve{{over="{",".join([f"{first}={over}", *others])}"{allocator}{model}}}'

    def take_sizes(self, report: Report) -> None:
        """Show peaks over sizes: what is reserved, where an allocator is replayed, else tensors alone."""
        table = report.tables[0]
        name = next(column.key for column in table.columns if column.key == self.size_name or column.key in self.browse.program.symbols)
        keys = {column.key for column in table.columns}
        resident, working = (numbers_of(table.cells(key)) for key in ("resident_bytes", "activation_peak_bytes"))
        parts = {"weights and inputs": resident, "activations": working}
        modelled: dict[str, Mask] = {}
        if keys >= {"allocated_bytes", "reserved_bytes"}:
            allocated, reserved = (numbers_of(table.cells(key)) for key in ("allocated_bytes", "reserved_bytes"))
            if (allocated > 0).all():
                parts["activations"] = np.minimum(working, np.maximum(allocated - resident, 0))
                parts["workspaces and rounding"] = np.maximum(allocated - resident - parts["activations"], 0)
                parts["reserved beyond"] = reserved - sum(parts.values())
                default = next(column for column in table.columns if column.key == "reserved_bytes").provenance
                sure = [provenance_of(cell, Kind.BYTES, default) is Provenance.EXACT for cell in table.cells("reserved_bytes")]
                modelled = {"reserved beyond": ~np.array(sure, dtype=np.bool_)}
        sizes = [int(str(bare(cell))) for cell in table.cells(name)]
        self.by_size = SizeStack(parts, self.size_name, sizes, modelled)
        self._mark_largest()
        self.draw_limit()

    def take_largest(self, asked: tuple[object, ...], found: Fit | IrscopeError) -> None:
        """Take the largest size that fits, or why there is none."""
        self._fit = (asked, found)
        self._mark_largest()

    def _mark_largest(self) -> None:
        if self.by_size is not None:
            self.by_size.largest = None if self.largest is None else self.largest.largest

    @property
    def fit_for(self) -> tuple[object, ...]:
        """Return the parameters that the largest size depends on."""
        return (*self.context.target, self.size_name, *self.other_sizes.items())

    @property
    def lacks_fit(self) -> bool:
        """Return whether the largest size has to be looked for."""
        return self._fit is None or self._fit[0] != self.fit_for

    @property
    def largest(self) -> Fit | None:
        """Return the largest size that fits, where that has been found for what is chosen."""
        found = self._fit[1] if self._fit is not None and self._fit[0] == self.fit_for else None
        return None if isinstance(found, IrscopeError) else found

    def _fit_line(self) -> Line:
        """Return the line on the largest size."""
        found = self._fit[1] if self._fit is not None and self._fit[0] == self.fit_for else None
        if found is None:
            return (Span(f"X looks for the largest {self.symbols.clean(self.size_name)} that fits", "faint"),)
        if isinstance(found, IrscopeError):
            return (Span(self.symbols.clean(found.message), "unknown"),)
        return (Span(self.symbols.clean(fit_text(found)), "good" if found.largest or found.largest is None else "error"),)

    @property
    def shows_sizes(self) -> bool:
        """Return whether the axis is sizes of a symbol in place of steps."""
        return self.drawings.view == "sizes"

    @property
    def wanted(self) -> Wanted:
        """Return the request for a drawing of addresses or orders; it needs a number for every symbol."""
        return Wanted(self.drawings.view, self.context.target, tuple(self.browse.results.complete.env.items()))

    @property
    def views(self) -> Sequence[View]:
        return self.drawings.offered(has_sizes=bool(self.sizes_question))

    def show_view(self, view: View) -> None:
        self.drawings.view = view

    @property
    def followed(self) -> Stack | None:
        return self.drawings.followed(self.stack)

    @property
    def listed(self) -> TableModel:
        if self.lists_whatifs and self.whatifs is not None:
            return self.whatifs.table
        return self.table if self.buffers is None else self.buffers.model

    @property
    def shown(self) -> Stack | None:
        if self.after is not None:
            return self.after
        if self.drawings.view == "steps":
            return self.stack
        return None if self.shows_sizes or self.drawings.drawing is None else self.drawings.drawing.stack

    @property
    def is_stale(self) -> bool:
        """Return whether other sizes have been put in since the last update."""
        return self._env != self.browse.results.complete.env

    def _stacked(self, lives: Lives, binding: Binding) -> Stack:
        """Return the chart, stacked as is chosen; by category until what that takes has been found."""
        measured, found = self.measured, self.occupants
        if found is None:
            return Stack(self._parts(lives, binding), modelled=None if measured is None else measured.modelled)
        total = self.whole
        parts = found.parts(self.by, total, int(np.nanargmax(total)) if len(total) else 0)
        modelled = {} if measured is None else {REST: np.any([*measured.modelled.values()], axis=0)} if measured.modelled else {}
        return Stack(parts, modelled=modelled)

    @property
    def occupants(self) -> Occupants | None:
        """Return all that is in use over the steps for what is chosen, where it has been found and is wanted."""
        if self.by == "category" or self._occupants is None or self._occupants[0] != self.counted_for:
            return None
        return self._occupants[1]

    @property
    def lacks_occupants(self) -> bool:
        """Return whether the occupants have to be computed."""
        return self.by != "category" and not self.is_waiting and (self._occupants is None or self._occupants[0] != self.counted_for)

    def take_occupants(self, asked: tuple[object, ...], found: Occupants) -> None:
        """Take the occupants of memory over the steps, for the settings that were asked about."""
        self._occupants = (asked, found)
        self.update()

    def list_whatifs(self, asked: Sequence[str]) -> WhatIfs | None:
        """Begin a list of what would lower the peak that is shown; None where there is no peak to lower."""
        if self.stack is None or self.stack.peak is None:
            return None
        if self.whatifs is None or self._whatifs_for != self.counted_for:
            self._whatifs_for = self.counted_for
            peak = self.stack.amount(self.whole.max(), is_modelled=self.stack.is_modelled(self.stack.peak))
            self.whatifs = WhatIfs(self.symbols, peak, asked)
        self.lists_whatifs = True
        return self.whatifs

    def try_whatif(self, one: WhatIf | None) -> None:
        """Draw the curve with a change, or without any."""
        total = None if self.stack is None else self.whole
        self.after = None if one is None or total is None or len(one.heights) != len(total) else BeforeAfter(total, one)
        if self.after is not None and self.stack is not None:
            self.after.limit = self.stack.limit
            self.go_to(self.after.peak_of(1))

    def forget_whatifs(self) -> None:
        """Other sizes or another device: what was computed is about something else."""
        self.whatifs, self.lists_whatifs, self.after = None, False, None

    @property
    def buffers(self) -> ReportTable | None:
        """Return the list of buffers with the buffers that they replace, shown in place of live tensors where eager is beside what was
        compiled."""
        return self.plan if self.drawings.view == "eager" else None

    @property
    def whole(self) -> Floats:
        """Return all that is in use at each step, whether it is drawn or not."""
        if self.found is None:
            return np.zeros(0, dtype=np.float64)
        measured, lives = self.measured, self.found.lives
        return lives.heights(self.shown_for) + lives.resident(self.shown_for) if measured is None else measured.heights

    @property
    def lacks_times(self) -> bool:
        """Return whether the axis is to be time, and the time of each step is not known yet."""
        return self.on_time and not self.is_waiting and (self._times is None or self._times[0] != self.counted_for)

    def take_times(self, asked: tuple[object, ...], seconds: Floats | None, what: str) -> None:
        """Take the time of each step, and the kind of time; None where it is not known."""
        self._times = (asked, seconds, what)
        self.update()

    def toggle_axis(self) -> str:
        self.on_time = not self.on_time
        self.update()
        return ""

    def next_grouping(self) -> None:
        """Stack by the next of category, module and tensor."""
        names = list(GROUPINGS)
        self.by = names[(names.index(self.by) + 1) % len(names)]
        self.update()

    def _parts(self, lives: Lives, binding: Binding) -> Mapping[str, NDArray[np.float64]]:
        measured = self.measured
        if measured is not None:
            return measured.parts
        count = len(lives.steps)
        parts: dict[str, NDArray[np.float64]] = {}
        for name, roles in (("weights", ("param", "buffer", "const")), ("inputs", ("input",))):
            parts[name] = np.full(count, float(lives.resident(binding, roles)))
        parts["outputs"] = lives.over_steps(self.sizes, lives.is_output)
        parts["activations"] = lives.over_steps(self.sizes, ~lives.is_output)
        parts["temporary"] = lives.inside(binding)
        return parts

    def go_to(self, step: int) -> None:
        """Put the cursor on a step; the selection of all screens follows."""
        count = len(self.stack) if self.stack is not None else 0
        if self.stack is None or not count:
            return
        self.step = min(max(step, 0), count - 1)
        self.stack.follow(self.step)
        if self.after is not None:
            self.after.follow(self.step)
        if self.found is not None:
            self.browse.selected = self.found.lives.steps.row(self.step)
        self.show_living()

    def scale_symbol(self, times: float = 1, plus: int = 0) -> str:
        """Make the first symbol larger or smaller; returns what is wrong, if anything is."""
        symbols = self.browse.program.symbols
        if not symbols:
            return "This model has no symbolic sizes."
        shown, typed = self.context.complete.env, self.context.binding.env
        name = next(iter(typed), next(iter(symbols)))
        size = symbols[name]
        env = {name: shown[name], **typed}
        least, most = max(1, size.lo or 1), size.hi
        wanted = max(least, int(env[name] * times) + plus)
        env[name] = wanted if most is None else min(wanted, most)
        return self.browse.set_sizes(" ".join(f"{one}={value}" for one, value in env.items()))

    def living(self) -> Ints:
        """Return the storages alive at the cursor, or at any step of the range, by their number, the largest first."""
        if self.found is None:
            return np.zeros(0, dtype=np.int64)
        found = self.found.lives.alive(*(self.range or (self.step,)))
        order = np.argsort(-np.nan_to_num(self.sizes[found]), kind="stable")
        return found[order]

    def held(self) -> Sequence[Held]:
        """Return all that is alive at the cursor, the largest first: it adds up to the height of the step."""
        if self.found is None or self.range is not None or not len(self.found.lives.steps):
            return ()
        source = self.measured or self.found.live.footprint
        found = () if source is None else source.living(self.step)
        return sorted(found, key=lambda one: -(self.size_of(one) or 0))

    def size_of(self, one: Held) -> int | None:
        """Return the size of something that is alive; None where it has none with the sizes that are shown."""
        if one.shown is not None and one.shown.value is None:
            return None
        size = self.shown_for.of(one.size)
        return size if isinstance(size, int) else None

    def show_living(self) -> None:
        before = self.table
        self._rows = self.living()
        self._held = self.held()
        self.table = self._table_of()
        if before.sorted_by is not None:
            self.table.sort(before.sorted_by, reverse=before.reversed)
        if self.filter_text:
            self.set_filter(self.filter_text)

    def set_filter(self, text: str) -> str:
        """Show only tensors whose row contains all words; a word after `!` must not be there."""
        self.filter_text = text.strip()
        if self.lists_whatifs and self.whatifs is not None:
            self.whatifs.set_filter(self.filter_text)
            return ""
        if self.buffers is not None:
            self.buffers.filter(self.filter_text)
            return ""
        count = self.count
        # Why each of very many is alive takes too long to say for one key.
        with_reason = count <= _MOST_REASONS
        rows = [*map(self._row, range(count))] if self.filter_text and (self.range is None or with_reason) else []

        def hits(word: str) -> Mask:
            found = np.array([one.has(word, with_reason=with_reason) for one in rows] or [False] * count, dtype=np.bool_)
            return found if self.range is None else found | self.names.containing(word)[self._rows]

        self.table.filter_words(self.filter_text, hits)
        return ""

    @property
    def names(self) -> RowTexts:
        """Return for each storage its name, its kind and who made it, to look for words in."""
        if self._names is None:
            ranges = () if self.found is None else self.found.lives.ranges
            self._names = RowTexts(" ".join((category_of(one), *self._texts_of(one))) for one in ranges)
        return self._names

    def _texts_of(self, one: LiveRange) -> Iterator[str]:
        for tensor in one.tenants or (one,):
            yield self.name_of(tensor)
            yield maker_of(tensor)

    def _rows_of(self) -> Callable[[int], Row]:
        """Return what makes the rows of the table: things alive at the cursor, for a range of steps storages. A table that is still drawn
        while the next one is made keeps its own.
        """
        held, storages, sizes, found = self._held, self._rows, self.sizes, self.found

        def alive(row: int) -> Row:
            one = held[row]
            most = None if one.shown is None or not isinstance(one.shown.hi, int) else one.shown.hi
            return Row(self._name(one), self.size_of(one), one.born, one.dies, one.category, lambda: one.why, one.node, most)

        def stored(row: int) -> Row:
            assert found is not None
            storage, size = found.lives.ranges[int(storages[row])], float(sizes[storages[row]])
            node, kind = storage.value.node, category_of(storage)
            number = None if np.isnan(size) else int(size)
            what = partial(self.what_happens, storage)
            return Row(self.name_of(storage), number, storage.born, storage.dies, kind, what, node, bounds(storage.size)[1])

        return alive if self.range is None else stored

    def _name(self, one: Held) -> str:
        if one.value is None or one.value.name is None:
            shown = one.value is not None and one.node in self.browse.outline.row_of
            return self.browse.results.names[one.value] if shown and one.value is not None else self.symbols.clean(one.name or one.category)
        return f"%{self.symbols.clean(one.value.name)}"

    def _total(self, chosen: NDArray[np.bool_] | None = None) -> int:
        """Return the bytes of what the table shows, or of a part of it."""
        if self.range is None:
            return sum(self.size_of(one) or 0 for one in self._held)
        sizes = self.sizes[self._rows] if len(self._rows) else np.zeros(0, dtype=np.float64)
        return int(np.nansum(sizes if chosen is None else sizes[chosen]))

    @property
    def count(self) -> int:
        """Rows of the table without a filter."""
        return len(self._held) if self.range is None else len(self._rows)

    def _table_of(self) -> TableModel:
        clean, found, count = self.symbols.clean, self.found, self.count
        row_of = self._row = self._rows_of()

        def size(row: int) -> str:
            one = row_of(row)
            if one.size is not None:
                return amount(one.size, Kind.BYTES, self.symbols)
            return self.symbols.unknown if one.most is None else f"{self.symbols.at_most}{amount(one.most, Kind.BYTES, self.symbols)}"

        def names() -> Sequence[str]:
            return [row_of(row).name for row in range(count)]

        def numbers(read: Callable[[Row], int | None]) -> Callable[[], NDArray[Any]]:
            return lambda: np.array([np.nan if (found := read(row_of(row))) is None else found for row in range(count)], dtype=np.float64)

        columns = (
            TableColumn("tensor", 18, lambda row: row_of(row).name, names, grows=True, role="name"),
            TableColumn("size", 12, size, numbers(lambda one: one.size), right=True),
            TableColumn("born", 7, lambda row: f"{row_of(row).born:,}", numbers(lambda one: one.born), right=True, rank=2),
            TableColumn("dies", 7, lambda row: self._dies(row_of(row)), numbers(lambda one: one.dies), right=True, rank=1),
            TableColumn("kind", 10, lambda row: row_of(row).kind, rank=4),
            TableColumn("why alive", 30, lambda row: clean(row_of(row).why()), grows=True, is_sentence=True),
            TableColumn("made by", 16, lambda row: clean(row_of(row).made_by), rank=3, role="operator"),
        )
        has_graph = self.browse.program.has_graph
        nothing = "Nothing is alive here." if has_graph else "The file has no graph, so lifetimes are unknown."
        empty = nothing if found is not None or not has_graph else "computing"
        table = TableModel(columns, count, self.symbols, empty=empty)
        table.leads = 1  # how much each holds
        return table

    def name_of(self, one: LiveRange | Tenant) -> str:
        """Return a tensor by its name; a storage by that of the first that has it."""
        value = one.value
        return f"%{self.symbols.clean(value.name)}" if value.name is not None else self.browse.results.names[value]

    def what_happens(self, one: LiveRange) -> str:
        """Return the events of a storage in the selected range of steps."""
        start, stop = self.range or (self.step, self.step)
        made, freed = one.born >= start, one.dies <= stop and not one.is_output
        what = {(True, True): "made and freed in the range", (True, False): "made in the range", (False, True): "freed in the range"}.get(
            (made, freed), "alive all the time"
        )
        tensors = sum(tensor.born <= stop and tensor.dies >= start for tensor in one.tenants)
        return what if tensors < 2 else f"{what}, a buffer of {tensors:,} tensors in turn"

    def _dies(self, one: Row) -> str:
        return "never" if self.found is not None and one.dies >= len(self.found.live.steps) else f"{one.dies:,}"

    def row_of_selected(self) -> int | None:
        """Return the row of the outline that made what is selected in the table."""
        node = None if self.table.selected is None else self._row(self.table.selected).node
        if node is None:
            return None
        found = self.browse.outline.row_of.get(node)
        # A model that was read again for other sizes has nodes of its own, under the same names.
        return rows_by_name(self.browse.outline).get(node.name) if found is None else found

    def selected_name(self) -> str:
        """Return the name of what is selected in the table."""
        return "" if self.table.selected is None else self._row(self.table.selected).name

    def export(self) -> Table:
        """Return the rows of the table for the export."""
        if self.lists_whatifs and self.whatifs is not None:
            return self.whatifs.export()
        if self.buffers is not None:
            return self.buffers.table
        rows = [
            (one.name, one.size, one.born, one.dies, one.kind, one.why(), one.made_by) for one in map(self._row, self.table.shown.tolist())
        ]
        return Table.of(rows, ["tensor:value", "size:bytes", "born:index", "dies:index", "category", "why", "made_by"], "alive")

    def counters(self) -> Counters | None:
        """Return the allocator's counters before, in the first and in the second run."""
        if self.found is None:
            return None
        if self._counted is not None and self._counted[0] == self.counted_for:
            found = self._counted[1]
            return Counters("", {}, found.message) if isinstance(found, IrscopeError) else found
        if self.browse.results.complete.env and self.browse.node_count > _MOST_COUNTED:
            return Counters("", {}, "a model as large as this is not read again for every size; y copies the command that counts")
        return self.found.counters

    def _weights_text(self) -> str:
        """Say of a file without a graph what is known of its memory."""
        report = self.browse.results.params
        sizes = {} if report is None else {word: report.summary.get(key) for word, key in _STORED.items()}
        known = {word: size for word, size in sizes.items() if isinstance(size, int) and size}
        parts = " + ".join(f"{humanise(size, Kind.BYTES)} {word}" for word, size in known.items()) if len(known) > 1 else ""
        total = (
            f": its weights take {humanise(sum(known.values()), Kind.BYTES)}{f' = {parts}' if parts else ''}; 3 lists them" if known else ""
        )
        return f"the file has no graph, so memory over a run is unknown{total}"

    def chart_lines(self, width: int, height: int) -> list[Line]:
        """Return the chart with its legend and the counters, or a word on why there is none."""
        if self.error is not None:
            return failure_lines(self.error, width, height, self.symbols)
        if self.stack is None or not len(self.stack):
            if not self.browse.program.has_graph:
                said = [] if self.verdict is None else self.verdict.lines(width, 3, self.symbols)
                return filled([*said, *wrap((Span(self._weights_text(), "faint"),), width)], height)
            text = "computing" if self.found is None else "nothing to draw: the model has no steps"
            return note_lines(text, height)
        if self.after is not None:
            said = most_lines((Span(self.symbols.clean(tried_text(self.after.one, self.verdict)), "mark"),), width, 3, self.symbols)
            head = [*said, *self.after.legend_at(self.step, width, 2, self.symbols)] if height >= _LEAST_CHART + len(said) + 1 else said
            return [*head, *self.after.lines(width, height - len(head), self.step, self.symbols, self.mark)]
        if self.shows_sizes:
            return self._size_lines(width, height)
        if self.drawings.view != "steps":
            # Plans, allocations and orders are told in the order of the program.
            order = self.browse.outline.program_order
            drawing, here = self.drawings.drawing, None if self.browse.is_empty else order.at(self.browse.selected)
            if drawing is not None and isinstance(drawing.stack, AddressMap):
                drawing.stack.chosen_name = self.selected_name().removeprefix("%")
            head = (
                self.head(drawing.stack, here, width, height) if drawing is not None and self.drawings.is_step and here is not None else []
            )
            return [*head, *self.drawings.lines(width, height - len(head), here, self.mark, has_legend=bool(head))]
        head = self.head(self.stack, self.step, width, height)
        return [*head, *self.stack.lines(width, height - len(head), self.step, self.symbols, self.mark)]

    def _size_lines(self, width: int, height: int) -> list[Line]:
        stack = self.by_size
        said = most_lines(self._fit_line(), width, 2, self.symbols)
        if stack is None:
            return filled([*said, *note_lines("computing the peak over sizes", 1)], height)
        place = stack.place_of(self.here_size)
        legend = stack.legend_at(place, width, 2, self.symbols) if place is not None else stack.wrapped_legend(width, self.symbols)
        head = [*said, *legend] if height >= _LEAST_CHART + len(said) + len(legend) else []
        return [*head, *stack.lines(width, height - len(head), place, self.symbols)]

    def chart_title(self) -> str:
        """Return the title of the chart."""
        separator = self.symbols.glyphs.separator
        measured = self.measured
        if self.after is not None:
            return f"What if: {self.symbols.clean(self.after.one.what)}{separator}esc takes it away"
        parts = [TITLES[self.drawings.view] if self.drawings.view != "steps" or measured is None else measured.title.capitalize()]
        if self.shows_sizes:
            parts += [] if self.here_size is None else [f"{self.symbols.clean(self.size_name)}={self.here_size:,} at the cursor"]
        elif self.drawings.title:
            parts += [self.drawings.title, *([] if self.by == "category" else [f"by {self.by}"])]
        elif self.stack is not None and len(self.stack):
            parts.append(f"{self.stack.text_at(self.step)} at step {self.step:,} of {len(self.stack):,}")
            parts += [] if self.by == "category" else [f"by {self.by}"]
            parts += ["over time"] if self.stack.time else []
        parts.append(f"model {self.context.lifetime if self.found is None else self._model_text()}")
        if self.uncounted:
            parts.append(f"{self.uncounted:,} tensors of unknown size not counted")
        if self.is_waiting:
            parts.append("computing")
        return separator.join(parts)

    def _model_text(self) -> str:
        assert self.found is not None
        return self.found.live.model if self.context.lifetime == "auto" else self.context.lifetime

    def table_title(self) -> str:
        """Return the title of the table."""
        if self.lists_whatifs and self.whatifs is not None:
            return self.whatifs.title()
        if self.buffers is not None:
            return f"{len(self.buffers.model):,} buffers of the generated code: what each takes the place of"
        if not self.browse.program.has_graph:
            return f"Alive: {self.symbols.unknown}, the file has no graph"
        if self.range is None or self.found is None:
            count = len(self._held)
            rows = f"{count:,} {'row' if count == 1 else 'rows'}"
            is_modelled = self.stack is not None and self.stack.is_modelled(self.step)
            total = f"{SIGNS[Provenance.MODELLED] if is_modelled else ''}{humanise(self._total(), Kind.BYTES)}"
            return f"Alive at step {self.step:,}{self._node_text()}: {total} in {rows}"
        count = len(self._rows)
        (start, stop), lives = self.range, self.found.lives
        made = self._total(lives.born[self._rows] >= start)
        freed = self._total((lives.dies[self._rows] <= stop) & ~lives.is_output[self._rows])
        most = "" if self.stack is None else f", at most {humanise(int(self.stack.total[start : stop + 1].max()), Kind.BYTES)} at once"
        amounts = f"{humanise(made, Kind.BYTES)} made, {humanise(freed, Kind.BYTES)} freed"
        return f"Steps {start:,} to {stop:,}: {count:,} tensors, {amounts}{most}"

    def _node_text(self) -> str:
        if self.found is None or not self.found.live.steps:
            return ""
        return f" {self.symbols.clean(self.found.live.steps[self.step].op)}"
