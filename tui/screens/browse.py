"""The browse screen: modules and nodes, the details of one of them, and the live bytes."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical

from irscope.report.table import Table
from irscope.tui.actions import Action, bindings
from irscope.tui.analyses import result_of
from irscope.tui.models.overlay import Overlay, least_times, live_at_peak, unknown_nodes
from irscope.tui.queue import NOW
from irscope.tui.screens.base import ModelScreen
from irscope.tui.screens.dialog import ChoiceDialog
from irscope.tui.widgets.lines import DetailPane
from irscope.tui.widgets.timeline import TimelinePane
from irscope.tui.widgets.tree import OutlineTree


class _Modules(Vertical):
    """The tree with the lines to type into below it."""

    ALLOW_MAXIMIZE = True


class BrowseScreen(ModelScreen):
    """One model with its numbers."""

    NAME = "browse"
    FIRST = "#tree"
    FILTER_HINT = "words, op:conv scope:layer3 type:f16 flops>1G mem>1MiB unknown !not"
    PANES: ClassVar[dict[str, str]] = {"browse": "On this screen", "tree": "Modules", "timeline": "Live bytes"}
    ACTIONS: ClassVar[tuple[Action, ...]] = (
        *OutlineTree.ACTIONS,
        *TimelinePane.ACTIONS,
        Action("browse", "peak", ("p",), "Peak", "Go to the node at which most bytes are alive.", footer=True),
        Action(
            "browse",
            "column",
            ("o",),
            "Column",
            "Choose what the last column shows: bytes, live at the peak, least time, unknown.",
            footer=True,
        ),
        Action("browse", "details", ("d",), "Details", "Hide or show the details."),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("browse", ACTIONS)

    def panes(self) -> ComposeResult:
        with Container(id="panes"):
            with _Modules(id="modules"):
                yield OutlineTree(self.browse, id="tree")
                yield from self.prompts()
            yield DetailPane(id="detail")
        yield TimelinePane(self.browse, id="timeline")

    # -- what is shown -----------------------------------------------------------------------------------------

    def show(self) -> None:
        self.title_of("detail", "Details")
        tree = self.query_one(OutlineTree)
        tree.redraw()
        tree.show_selection(middle=True)
        self._show_selection(same=True)

    def show_progress(self) -> None:
        self._show_titles()

    def on_outline_tree_selected(self, message: OutlineTree.Selected) -> None:
        if message.row == self.browse.selected:
            self.session.moved(self.NAME)
            self._show_selection()

    def on_timeline_pane_step_chosen(self, message: TimelinePane.StepChosen) -> None:
        self.browse.reveal_step(message.step)
        self.session.moved(self.NAME)
        self.show()

    def _show_selection(self, *, same: bool = False) -> None:
        """Bring everything that depends on the selection up to date; `same` keeps the place in the details."""
        self.query_one("#detail", DetailPane).show(self.browse.detail(), top=not same)
        self.query_one(TimelinePane).redraw()
        self._show_titles()

    def _show_titles(self) -> None:
        self.title_of("modules", self.browse.tree_title(self.session.progress))
        self.title_of("timeline", self.browse.timeline_title())

    # -- what the base asks for --------------------------------------------------------------------------------

    @property
    def filter_text(self) -> str:
        return self.browse.filter_text

    def set_filter(self, text: str) -> str:
        self.browse.set_filter(text)
        return self.browse.filter_error

    def show_problem(self, problem: str) -> None:
        self.title_of("modules", self.symbols.clean(problem))

    def commands(self) -> list[tuple[str, str]]:
        titles = ("The numbers on the screen:", "Nodes like the selected one, as text:")
        return list(zip(titles, self.browse.commands(), strict=False))

    def selected_text(self) -> list[tuple[str, str]]:
        if self.browse.is_empty:
            return []
        row = self.browse.selected
        return [("The row:", self.browse.row_line(row)), ("Its name:", self.browse.row_name(row))]

    def table(self) -> Table | None:
        return self.browse.export()

    # -- what keys ask for -------------------------------------------------------------------------------------

    def action_peak(self) -> None:
        if self.browse.reveal_peak():
            self.session.jump(self.NAME, self.browse.selected)
            self.show()
        else:
            self.say("The peak is not known yet.")

    def action_column(self) -> None:
        titles = ["bytes of the results", "live at the peak", "least time on the device", "unknown nodes"]
        self.app.push_screen(ChoiceDialog("The last column", titles), self._column_chosen)

    def _column_chosen(self, index: int | None) -> None:
        results, outline = self.browse.results, self.browse.outline
        if index == 2:
            self.session.ask("browse.times", self._times, self._show_column, lambda error: self.say(str(error)), urgency=NOW)
        elif index == 1 and (results.live is None or results.timeline is None or results.timeline.peak is None):
            self.say("The peak is not known yet.")
        elif index == 1 and results.live is not None and results.timeline is not None:
            self._show_column(live_at_peak(outline, results.live.ranges, results.timeline.peak or 0))
        elif index == 3:
            self._show_column(unknown_nodes(outline, [one for one in (results.flops, results.sizes) if one is not None]))
        elif index == 0:
            self._show_column(None)

    def _times(self) -> Overlay:
        """The least time of each node, in the worker's thread."""
        times = result_of(self.session.model_for(self.browse.results.binding.env).manager, "roofline{top=0}")
        seconds = {one.node.name: one.seconds(times.device.kind) for one in times.nodes}
        return least_times(self.browse.outline, seconds)

    def _show_column(self, overlay: Overlay | None) -> None:
        self.browse.results.set_overlay(overlay)
        self.show()

    def action_details(self) -> None:
        detail = self.query_one("#detail", DetailPane)
        if detail.has_focus:
            self.focus_first()
        detail.display = not detail.display
