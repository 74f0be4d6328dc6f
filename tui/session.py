"""State shared by all screens: the model, its results, the selection, the history and the queue. Independent of Textual."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from irscope.errors import IrscopeError, UsageError
from irscope.immutable import immutable
from irscope.ir.bind import element_names, symbol_named
from irscope.ir.graph import Node
from irscope.ir.places import path_key
from irscope.session import Model
from irscope.tools.config import targeted
from irscope.tui.actions import SCREENS, ScreenRecord
from irscope.tui.amounts import Binding, Column, parse_binding, parse_sizes
from irscope.tui.analyses import Analyses, result_of
from irscope.tui.apart import of_model
from irscope.tui.browse.columns import COLUMNS, BrowseColumn, ColumnSource
from irscope.tui.browse.model import Browse
from irscope.tui.command import Source, compile_words
from irscope.tui.context import Context
from irscope.tui.memory.lives import measured
from irscope.tui.results import Failed, Finished, Folded, Results, Summed, Update
from irscope.tui.text import Line, Symbols

if TYPE_CHECKING:
    from irscope.passes.lifetimes.timeline import ShownRun as RunChoice
    from irscope.passes.memory.curve import LifetimeModel
    from irscope.tui.memory.run import RunMemory
    from irscope.tui.memory.views import Verdict

T = TypeVar("T")

# A priority queue of requests to the worker, which processes one at a time; independent of Textual.

NOW, SOON, LATER = 0, 10, 20


@immutable(slots=False)
class Request:
    """A request. `answer` runs in the worker's thread and touches no widget; `take` and `fail` run on the UI's thread."""

    key: str
    """Identifies the request: a queued one is not queued twice."""
    answer: Callable[[], Any]
    take: Callable[[Any], None]
    fail: Callable[[IrscopeError], None]
    urgency: int = SOON
    """The priority: smaller comes first; requests of one priority are processed in order."""


class Queue:
    """The queue, safe to use from any thread."""

    def __init__(self, cancelled: threading.Event) -> None:
        self._cancelled = cancelled
        self._lock = threading.Lock()
        self._waiting: dict[str, Request] = {}
        self._current: Request | None = None
        self._is_working = False
        self._is_closed = False

    def put(self, request: Request) -> bool:
        """Queue a request; True when a worker has to be started because there is none."""
        with self._lock:
            if self._is_closed or (self._current is not None and self._current.key == request.key):
                return False
            before = self._waiting.get(request.key)
            # Queued again, a request keeps its place unless its priority has risen.
            if before is None or request.urgency < before.urgency:
                self._waiting[request.key] = request
            else:
                self._waiting[request.key] = replace(request, urgency=before.urgency)
            start, self._is_working = not self._is_working, True
            return start

    def next(self) -> Request | None:
        """Return the next request for the worker; None when there is none and the worker has to end."""
        with self._lock:
            self._current = None
            if not self._is_closed:
                self._cancelled.clear()
            if self._is_closed or not self._waiting:
                self._is_working = False
                return None
            key = min(self._waiting, key=lambda one: self._waiting[one].urgency)
            self._current = self._waiting.pop(key)
            return self._current

    @property
    def is_idle(self) -> bool:
        """Return whether the queue is empty and the worker idle."""
        return self._current is None and not self._waiting

    def stop(self, key: str) -> bool:
        """Cancel a request; True if it was there."""
        with self._lock:
            if self._waiting.pop(key, None) is not None:
                return True
            if self._current is not None and self._current.key == key:
                self._cancelled.set()
                return True
            return False

    def clear(self) -> list[Request]:
        """Clear the queue, returning its requests, and cancel the current one, which then fails."""
        with self._lock:
            dropped = list(self._waiting.values())
            self._waiting.clear()
            if self._current is not None:
                self._cancelled.set()
            return dropped

    def close(self) -> None:
        """Stop for good."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
            self._cancelled.set()


# Keeps Python's garbage collector from repeated full passes over a large model, which would delay the handling of keys.

_SWITCH = 0.001
"""The interpreter's switch interval, in seconds, so that the worker yields to the UI."""
_state = {"aside": False}


@contextmanager
def quiet_collector() -> Iterator[None]:
    """While the UI runs, long-lived objects are frozen (gc.freeze), and threads switch more often."""
    before = sys.getswitchinterval()
    _state["aside"] = True
    set_aside()
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        _state["aside"] = False
        sys.setswitchinterval(before)
        gc.unfreeze()


def set_aside() -> None:
    """Freeze all present objects: a model and its results stay until another is opened."""
    if _state["aside"]:
        gc.freeze()


def free_dropped() -> None:
    """Collect garbage among objects created since the last freeze."""
    if _state["aside"]:
        gc.collect()


def look_again() -> None:
    """Collect a model that was dropped, and freeze the rest."""
    if _state["aside"]:
        gc.unfreeze()
        gc.collect()
        gc.freeze()


_MOST = 200


@immutable
class Place:
    """A row of the outline, seen on a screen."""

    screen: str
    row: int


class History:
    """Places in the order in which they were visited. Moving about changes the present place, a jump makes a new one."""

    def __init__(self, place: Place) -> None:
        self._places = [place]
        self._at = 0

    @property
    def place(self) -> Place:
        """Return where the user is."""
        return self._places[self._at]

    def move(self, place: Place) -> None:
        """Make a small move, which makes no new history entry."""
        self._places[self._at] = place

    def jump(self, place: Place) -> None:
        """Make a jump, which makes a new history entry."""
        if place != self.place:
            self._places[self._at + 1 :] = [place]
            del self._places[:-_MOST]
            self._at = len(self._places) - 1

    def back(self) -> Place | None:
        """Return the place before; None at the first."""
        return self._go(-1)

    def forward(self) -> Place | None:
        """Return the place after; None at the last."""
        return self._go(1)

    def _go(self, by: int) -> Place | None:
        if not 0 <= self._at + by < len(self._places):
            return None
        self._at += by
        return self.place


FIRST_SCREEN = "browse"
_MOST_KEPT = 20_000
"""Nodes of a model that is kept besides the one on the screen, with the sizes that were put in last."""


class Session:
    """One model being looked at."""

    def __init__(
        self,
        model: Model,
        symbols: Symbols,
        context: Context | None = None,
        step: Sequence[str] | None = None,
        runs: Sequence[RunMemory] = (),
    ) -> None:
        """Show a model, or `runs` in place of it.

        `context` is what was shown before the model was read again, `step` the options of a training step.
        """
        self.runs = runs
        self.model = targeted(model)
        self.manager = model.manager
        self.program = model.program
        self.symbols = symbols
        source = Source(
            model.program.path, model.options.inputs, model.options.bind, model.manager.settings, step, compile_words(model.options.compile)
        )
        self.browse = Browse(model.program, source, symbols)
        if context is not None:
            self.browse.context = self.browse.context.like(context)
            self.browse.results.binding = self.browse.context.binding
        self.browse.results.diagnostics.extend(model.diagnostics)
        self.browse.later = self._bind_later
        self.browse.rebound = self._rebound
        self.queue = Queue(self.manager.cancelled)
        self.history = History(Place(FIRST_SCREEN, 0))
        self.report_columns: list[BrowseColumn] = []
        """Columns of reports that were put into the tree."""
        self.column = COLUMNS[0]
        """Column that the tree shows."""
        self.progress = ""
        """The worker's progress, in a few words."""
        self.compare_with = ""
        """A file that the compare screen begins with."""
        self.start_worker: Callable[[], None] = lambda: None
        """Set by the app."""
        self.open_place: Callable[..., None] = lambda place, *, jump=False: None
        """Shows a place; `jump` makes it one that `back` leads away from. Set by the app."""
        self.reopen: Callable[[dict[str, int]], None] = lambda bind: None
        """Reads the model again with these sizes bound. Set by the app."""
        self._bound: tuple[dict[str, int], Model] | None = None
        self._models: dict[str, Any] = {}

    def __getitem__(self, screen: str) -> Any:
        """Return the view model of a screen that `keep` has stored."""
        return self._models[screen]

    def keep(self, screen: str, make: Callable[[], Any]) -> Any:
        """Return the view model of a screen, made the first time it is asked for."""
        if screen not in self._models:
            self._models[screen] = make()
        return self._models[screen]

    @property
    def screens(self) -> Sequence[ScreenRecord]:
        """Return the screens that have something to show: those that need no graph where runs are shown."""
        return [record for record in SCREENS if not self.runs or record.shows_runs]

    def header(self, width: int) -> list[Line]:
        """Return the two lines above every screen: whether it fits and what it takes, and what that is for."""
        return self.runs[0].header(width) if self.runs else self.browse.header(width)

    def ask(
        self,
        key: str,
        answer: Callable[[], Any],
        take: Callable[[Any], None],
        fail: Callable[[IrscopeError], None],
        *,
        urgency: int = SOON,
    ) -> None:
        """Run a request in the background: `answer` in the worker's thread for the device of now, then `take` or `fail` on the UI's."""
        if self.queue.put(Request(key, partial(self._answer, answer, self.context.device), take, fail, urgency)):
            self.start_worker()

    def _answer(self, answer: Callable[[], Any], device: str) -> Any:
        if self.manager.settings.device != device:
            self.manager.settings = replace(self.manager.settings, device=device, chosen="")
        return answer()

    @property
    def context(self) -> Context:
        """Sizes, device, lifetime model and run: one for all screens."""
        return self.browse.context

    def change(self, *, device: str | None = None, lifetime: LifetimeModel | None = None, run: RunChoice | None = None) -> None:
        """Ask everything anew for another device, lifetime model or run; sizes are changed by `set_sizes`."""
        before = self.context
        self.browse.context = before.with_target(device, lifetime, run)
        if self.context.target == before.target:
            return
        if self.runs:
            for one in self.runs:
                one.lay_over(self.context.device)
            self._models.pop("reports", None)
            return
        self.results.forget_memory()
        self._ask_part("liveness", urgency=NOW)
        self._rebound(self.context.binding)

    @cached_property
    def sizes(self) -> list[str]:
        """Return the names of the sizes that can be put in: symbols, what the model was opened with, and elements of small integer
        inputs."""
        return list(dict.fromkeys([*self.program.symbols, *self.model.options.bind, *element_names(self.program)]))

    def set_sizes(self, text: str) -> str:
        """Show numbers for sizes such as `batch=8`; returns what is wrong with the text, if anything is.

        Sizes that the model was opened with are put in by reading it again, and so are elements of integer inputs such as `flag=1`.
        """
        try:
            env = {symbol_named(self.program, name) or name: size for name, size in parse_sizes(text).items()}
            typed = {name: size for name, size in env.items() if name in self.program.symbols}
            bind = {name: size for name, size in env.items() if name not in typed}
            if bind == dict(self.model.options.bind):
                return self.browse.set_sizes(" ".join(f"{name}={size}" for name, size in typed.items()))
            if not set(bind) <= {*self.sizes}:
                parse_binding(text, self.program.symbols)  # raises what there is
        except UsageError as error:
            return str(error)
        self.reopen({**bind, **typed})
        return ""

    def start(self) -> None:
        """Ask for what the first screen shows."""
        if self.runs:
            return
        for part in Analyses.PARTS:
            self._ask_part(part)
        self._rebound(self.context.binding)

    def _ask_part(self, part: str, urgency: int = LATER) -> None:
        analyses = Analyses(self.manager, self.browse.outline, self.browse.matcher, self.context.liveness)
        self.ask(f"browse.{part}", getattr(analyses, part), self._take, partial(self._fail, part), urgency=urgency)

    def _take(self, update: Update | None) -> None:
        if update is not None:
            update.apply(self.browse.results)
        if isinstance(update, Folded):
            self.browse.fold(update.folds)
        if isinstance(update, Finished) and self.browse.filter_text:
            # Comparisons and `unknown` may match more now.
            self.browse.set_filter(self.browse.filter_text)

    def _bind_later(self, binding: Binding) -> None:
        browse = self.browse
        key = f"sizes.{binding.text}"
        self.ask(key, lambda: browse.results.prepared(binding), browse.show_bound, lambda error: None, urgency=NOW)

    def show_column(self, column: BrowseColumn, fail: Callable[[IrscopeError], None] = lambda error: None) -> None:
        """Show a column at the end of the tree; `fail` is told why there is none."""
        self.column = column
        source = ColumnSource(self.browse.outline, self.results, lambda: self.model_for(self.results.complete.env).manager)

        def take(made: Column | None) -> None:
            if column is self.column:
                self.results.choose(made)

        self.ask(
            f"browse.column.{column.about}.{self.results.binding.text}.{self.context.target}",
            lambda: column.make(source),
            take,
            fail,
            urgency=NOW,
        )

    def _ask_verdict(self, binding: Binding) -> None:
        """Ask for the verdict on whether it fits, as the model's card gives it for the chosen sizes, device and lifetimes."""
        context, results = self.context, self.results
        env = dict(context.completed(binding).env)
        asked = (*context.target, *env.items())
        if results.verdict_for == asked or (self.browse.node_count > _MOST_KEPT and self.program.symbols):
            return
        results.verdict_for, results.verdict = asked, None

        def answer() -> Verdict:
            from irscope.tools.card import memory_card
            from irscope.tools.config import chosen_device
            from irscope.tui.memory.views import card_verdict

            return card_verdict(memory_card(self.model_for(env), chosen_device(context.device), context.lifetime))

        def take(verdict: Verdict) -> None:
            if results.verdict_for == asked:
                results.verdict = verdict

        self.ask(f"verdict.{asked}", answer, take, lambda error: None, urgency=LATER)

    def _rebound(self, binding: Binding) -> None:
        """Find anew what formulas do not tell for sizes that were put in."""
        self._ask_verdict(binding)
        if self.column is not COLUMNS[0]:
            self.show_column(self.column)
        # An allocator needs a number for every symbol, so the model is read again.
        env, question = dict(self.context.completed(binding).env), self.context.liveness
        if not env or self.browse.node_count > _MOST_KEPT or self.results.sum_for(binding) is not None:
            return

        def answer() -> Summed:
            live = self.results.live
            return Summed(env, measured(result_of(self.model_for(env).manager, question), None if live is None else live.steps))

        self.ask(f"sum.{env}.{self.context.target}", answer, self._take, lambda error: None, urgency=LATER)

    def _fail(self, part: str, error: IrscopeError) -> None:
        self._take(Failed(part, error))

    def model_for(self, sizes: Mapping[str, int]) -> Model:
        """Return the model with sizes for its symbols, read again where they are not those it was opened with. For the worker's thread."""
        wanted = {name: size for name, size in sizes.items() if name in self.program.symbols}
        if not wanted:
            return self.model
        if self._bound is None or self._bound[0] != wanted:
            if self._bound is not None:
                self._bound = None
                look_again()
            self._bound = (wanted, self.model.rebound(wanted))
        bound = self._bound[1]
        bound.manager.settings = self.manager.settings
        bound.manager.cancelled = self.manager.cancelled
        bound.manager.instruments[:] = self.manager.instruments
        return bound

    def reads_apart(self, sizes: Mapping[str, int]) -> bool:
        """Return whether a process of its own reads the model again with these sizes: here a large one would hold up keys and fill
        memory."""
        path, is_large = self.program.path, self.browse.node_count > _MOST_KEPT
        return is_large and any(name in self.program.symbols for name in sizes) and bool(path) and Path(path).is_file()

    def apart(self, work: Callable[[Model], T], sizes: Mapping[str, int]) -> T:
        """Return the result of a function of a module for the model read again with these sizes, in a process of its own. For the worker's
        thread."""
        wanted = {name: size for name, size in sizes.items() if name in self.program.symbols}
        return of_model(work, self.model, wanted, self.manager.cancelled)

    def put_away(self) -> None:
        """After each result: a large second model is dropped instead of cached; reading it again is cheaper than keeping it."""
        if self._bound is not None and self.browse.node_count > _MOST_KEPT:
            self._bound = None
            free_dropped()

    @property
    def results(self) -> Results:
        """Return the results so far that every screen shows."""
        return self.browse.results

    @property
    def selected_node(self) -> Node | None:
        """Return the selected node; None where a module is selected or there is nothing."""
        item = None if self.browse.is_empty else self.browse.outline.items[self.browse.selected]
        return item if isinstance(item, Node) else None

    def moved(self, screen: str) -> None:
        """Note that the selection has moved by a small step."""
        self.history.move(Place(screen, self.browse.selected))

    def jump(self, screen: str, row: int) -> None:
        """Go to a row on a screen, so that `back` leads here again."""
        if not self.browse.is_empty:
            self.browse.reveal(row)
        self.history.jump(Place(screen, row))

    def find(self, text: str) -> int | None:
        """Return the row that a text names: a name, a module path or a step; exact names before parts of names."""
        return find_row(self.browse, text)


def find_row(browse: Browse, text: str) -> int | None:
    """Return the row of a node, module or step that a text names."""
    wanted = text.strip().removeprefix("%").lower()
    if not wanted:
        return None
    if wanted.isascii() and wanted.isdigit() and int(wanted) < len(browse.steps):
        return browse.steps.row(int(wanted))
    # Rows whose text holds the word come first in order after the selected one; only these are looked at more closely.
    key = path_key(wanted)
    word = key or wanted
    candidates = np.flatnonzero(browse.matcher.names.containing(word) | browse.matcher.modules.containing(word))
    at = int(np.searchsorted(candidates, browse.selected, side="right"))
    partial: int | None = None
    for row in (*candidates[at:].tolist(), *candidates[:at].tolist()):
        for name in _search_names(browse, row):
            if name == wanted or (key and path_key(name) == key):
                return int(row)
            if partial is None:
                partial = int(row)
    return partial


def _search_names(browse: Browse, row: int) -> tuple[str, ...]:
    item = browse.outline.items[row]
    if isinstance(item, Node):
        return tuple(output.name.lower() for output in item.outputs if output.name) or (item.name.lower(),)
    return (item.scope.path.lower() if item.scope is not None else item.name.lower(),)
