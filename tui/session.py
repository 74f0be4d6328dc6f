"""State shared by all screens: the model, its results, the selection, the history and the queue. Independent of Textual."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from irscope.errors import IrscopeError
from irscope.ir.graph import Node
from irscope.session import Model
from irscope.tui.analyses import Analyses, result_of
from irscope.tui.collector import free_dropped, look_again
from irscope.tui.models.binding import Binding
from irscope.tui.models.browse import Browse
from irscope.tui.models.command import Source
from irscope.tui.models.footprint import measured
from irscope.tui.models.history import Bookmarks, History, Place
from irscope.tui.models.overlay import Overlay
from irscope.tui.models.results import Failed, Finished, Folded, Results, Summed, Update
from irscope.tui.models.symbols import Symbols
from irscope.tui.queue import LATER, NOW, SOON, Queue, Request

FIRST_SCREEN = "browse"
_MOST_KEPT = 20_000
"""Nodes of a model that is kept besides the one on the screen, with the sizes that were put in last."""


class Session:
    """One model being looked at."""

    def __init__(self, model: Model, symbols: Symbols) -> None:
        self.model = model
        self.manager = model.manager
        self.program = model.program
        self.symbols = symbols
        source = Source(model.program.path, model.options.inputs, model.options.bind, model.manager.settings)
        self.browse = Browse(model.program, source, symbols)
        self.browse.results.diagnostics.extend(model.diagnostics)
        self.browse.later = self._bind_later
        self.browse.summed = self._sum_up
        self.queue = Queue(self.manager.cancelled)
        self.history = History(Place(FIRST_SCREEN, 0))
        self.bookmarks = Bookmarks()
        self.columns: dict[str, Overlay] = {}
        """Columns of reports that were put into the tree, by what they are called."""
        self.progress = ""
        """The worker's progress, in a few words."""
        self.compare_with = ""
        """A file that the compare screen begins with."""
        self.start_worker: Callable[[], None] = lambda: None
        """Set by the app."""
        self._bound: tuple[dict[str, int], Model] | None = None
        self._models: dict[str, Any] = {}

    def __getitem__(self, screen: str) -> Any:
        """The view model of a screen that `keep` has stored."""
        return self._models[screen]

    def keep(self, screen: str, make: Callable[[], Any]) -> Any:
        """The view model of a screen, made the first time it is asked for."""
        if screen not in self._models:
            self._models[screen] = make()
        return self._models[screen]

    # -- questions ---------------------------------------------------------------------------------------------

    def ask(
        self,
        key: str,
        answer: Callable[[], Any],
        take: Callable[[Any], None],
        fail: Callable[[IrscopeError], None],
        *,
        urgency: int = SOON,
    ) -> None:
        """Run a request in the background: `answer` in the worker's thread, then `take` or `fail` on the UI's."""
        if self.queue.put(Request(key, answer, take, fail, urgency)):
            self.start_worker()

    def start(self) -> None:
        """Ask for what the first screen shows."""
        analyses = Analyses(self.manager, self.browse.outline, self.browse.matcher)
        for part, answer in analyses.parts().items():
            self.ask(f"browse.{part}", answer, self._take, partial(self._fail, part), urgency=LATER)

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

    def _sum_up(self, binding: Binding) -> None:
        """All memory for sizes that were put in: an allocator needs a number for every symbol, so the model is read again."""
        if self.browse.node_count > _MOST_KEPT or self.results.sum_for(binding) is not None:
            return
        env = dict(binding.env)

        def answer() -> Summed:
            live = self.results.live
            return Summed(env, measured(result_of(self.model_for(env).manager, "liveness"), None if live is None else live.steps))

        self.ask(f"sum.{binding.text}", answer, self._take, lambda error: None, urgency=SOON)

    def _fail(self, part: str, error: IrscopeError) -> None:
        self._take(Failed(part, error))

    def model_for(self, sizes: Mapping[str, int]) -> Model:
        """The model with sizes for its symbols, read again where they are not those it was opened with. For the worker's thread."""
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

    def put_away(self) -> None:
        """After each result: a large second model is dropped instead of cached; reading it again is cheaper than keeping it."""
        if self._bound is not None and self.browse.node_count > _MOST_KEPT:
            self._bound = None
            free_dropped()

    # -- selection ---------------------------------------------------------------------------------------------

    @property
    def results(self) -> Results:
        """What is known so far of what every screen shows."""
        return self.browse.results

    @property
    def selected_node(self) -> Node | None:
        """The selected node; None where a module is selected or there is nothing."""
        item = None if self.browse.is_empty else self.browse.outline.items[self.browse.selected]
        return item if isinstance(item, Node) else None

    def moved(self, screen: str) -> None:
        """The selection has moved by a small step."""
        self.history.move(Place(screen, self.browse.selected))

    def jump(self, screen: str, row: int) -> None:
        """Go to a row on a screen, so that `back` leads here again."""
        if not self.browse.is_empty:
            self.browse.reveal(row)
        self.history.jump(Place(screen, row))

    def find(self, text: str) -> int | None:
        """The row that a text names: a name, a module path or a step; exact names before parts of names."""
        return find_row(self.browse, text)


def find_row(browse: Browse, text: str) -> int | None:
    """The row of a node, module or step that a text names."""
    wanted = text.strip().removeprefix("%").lower()
    if not wanted:
        return None
    if wanted.isascii() and wanted.isdigit() and int(wanted) < len(browse.steps):
        return browse.steps.row(int(wanted))
    # Rows whose text holds the word come first in order after the selected one; only these are looked at more closely.
    candidates = np.flatnonzero(browse.matcher.names.containing(wanted) | browse.matcher.modules.containing(wanted))
    at = int(np.searchsorted(candidates, browse.selected, side="right"))
    partial: int | None = None
    for row in (*candidates[at:].tolist(), *candidates[:at].tolist()):
        for name in _names(browse, row):
            if name == wanted:
                return int(row)
            if partial is None and wanted in name:
                partial = int(row)
    return partial


def _names(browse: Browse, row: int) -> tuple[str, ...]:
    item = browse.outline.items[row]
    if isinstance(item, Node):
        return tuple(output.name.lower() for output in item.outputs if output.name) or (item.name.lower(),)
    return (item.scope.path.lower() if item.scope is not None else item.name.lower(),)
