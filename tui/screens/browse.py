"""The browse screen: modules and nodes, the details of one of them, and the live bytes."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Footer, Input
from textual.worker import get_current_worker

from irscope.passkit.manager import Manager
from irscope.tui.actions import bindings
from irscope.tui.analyses import Analyses, ProgressTeller, instruments_of
from irscope.tui.models.browse import Browse
from irscope.tui.models.results import Finished, Update
from irscope.tui.models.spans import Line, Span
from irscope.tui.screens.dialog import TextDialog
from irscope.tui.widgets.header import TotalsHeader
from irscope.tui.widgets.lines import DetailPane
from irscope.tui.widgets.prompt import Prompt
from irscope.tui.widgets.timeline import TimelinePane
from irscope.tui.widgets.tree import OutlineTree


class _Modules(Vertical):
    """The tree with the lines to type into below it."""

    ALLOW_MAXIMIZE = True


class BrowseScreen(Screen[None]):
    """One model with its numbers."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("browse")

    class Answered(Message):
        """A worker has found something."""

        def __init__(self, generation: int, update: Update) -> None:
            super().__init__()
            self.generation = generation
            self.update = update

    class Progressed(Message):
        """A worker says how far it is."""

        def __init__(self, generation: int, text: str) -> None:
            super().__init__()
            self.generation = generation
            self.text = text

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, BrowseScreen.Progressed)

    def __init__(self, browse: Browse, manager: Manager) -> None:
        super().__init__()
        self.browse = browse
        self.manager = manager
        self._progress = ""

    def compose(self) -> ComposeResult:
        yield TotalsHeader(self.browse, id="totals")
        with Container(id="panes"):
            with _Modules(id="modules"):
                yield OutlineTree(self.browse, id="tree")
                yield Prompt("words, op:conv scope:layer3 type:f16 flops>1G mem>1MiB unknown !not", id="filter")
                yield Prompt(f"sizes, such as {' '.join(f'{name}=8' for name in list(self.browse.program.symbols)[:3])}", id="sizes")
            yield DetailPane(id="detail")
        yield TimelinePane(self.browse, id="timeline")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one("#detail", DetailPane).border_title = Content("Details")
        self.query_one(OutlineTree).focus()
        self._show_selection()
        # The screen is painted before the first analysis competes for the processor.
        self.call_after_refresh(self.analyse)

    def on_unmount(self) -> None:
        self.manager.cancelled.set()

    # -- analyses ----------------------------------------------------------------------------------------------

    @work(thread=True, exclusive=True, group="analyses", exit_on_error=False)
    def analyse(self) -> None:
        """Ask for everything the screen shows; runs in a thread and only posts messages."""
        worker, generation = get_current_worker(), self.browse.generation
        analyses = Analyses(self.manager, self.browse.outline, self.browse.matcher)

        def publish(update: Update) -> None:
            if not worker.is_cancelled:
                self.post_message(self.Answered(generation, update))

        def tell(text: str) -> None:
            if not worker.is_cancelled:
                self.post_message(self.Progressed(generation, text))

        with instruments_of(self.manager, ProgressTeller(tell)):
            analyses.run(publish)

    def on_browse_screen_answered(self, message: Answered) -> None:
        if not self.browse.take(message.generation, message.update):
            return
        if isinstance(message.update, Finished):
            self._progress = ""
            if self.browse.filter_text:
                # Comparisons and `unknown` may match more now.
                self.browse.set_filter(self.browse.filter_text)
        with self.app.batch_update():
            self.query_one(TotalsHeader).refresh()
            self.query_one(OutlineTree).redraw()
            self._show_selection(same=True)

    def on_browse_screen_progressed(self, message: Progressed) -> None:
        if message.generation == self.browse.generation:
            self._progress = message.text
            self._show_titles()

    # -- selection ---------------------------------------------------------------------------------------------

    def on_outline_tree_selected(self, message: OutlineTree.Selected) -> None:
        if message.row == self.browse.selected:
            self._show_selection()

    def on_timeline_pane_step_chosen(self, message: TimelinePane.StepChosen) -> None:
        self.browse.reveal_step(message.step)
        self._revealed()

    def _revealed(self) -> None:
        tree = self.query_one(OutlineTree)
        tree.redraw()
        tree.show_selection(middle=True)
        self._show_selection()

    def _show_selection(self, *, same: bool = False) -> None:
        """Bring everything that depends on the selection up to date; `same` keeps the place in the details."""
        self.query_one("#detail", DetailPane).show(self.browse.detail(), top=not same)
        self.query_one(TimelinePane).redraw()
        self._show_titles()

    def _show_titles(self) -> None:
        # As content, not as text: text would be read as markup, and names of a model may hold brackets.
        self.query_one("#modules").border_title = Content(self.browse.tree_title(self._progress))
        self.query_one(TimelinePane).border_title = Content(self.browse.timeline_title())

    # -- typing ------------------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        self.query_one("#filter", Prompt).open(self.browse.filter_text)

    def action_sizes(self) -> None:
        if self.browse.program.symbols:
            self.query_one("#sizes", Prompt).open(self.browse.results.binding.text)
        else:
            self.notify("This model has no symbolic sizes.")

    def on_input_changed(self, message: Input.Changed) -> None:
        if message.input.id == "filter":
            self._filter(message.value)

    def on_prompt_closed(self, message: Prompt.Closed) -> None:
        prompt = message.prompt
        if prompt.id == "sizes" and message.keep:
            problem = self.browse.set_sizes(prompt.value)
            if problem:
                prompt.mark(wrong=True)
                self._show_problem(problem)
                return
            self.query_one(TotalsHeader).refresh()
        elif prompt.id == "filter" and (not message.keep or self.browse.filter_error):
            self._filter("")
        prompt.mark(wrong=False)
        prompt.display = False
        self.query_one(OutlineTree).focus()
        self._revealed()

    def _filter(self, text: str) -> None:
        self.browse.set_filter(text)
        self.query_one("#filter", Prompt).mark(wrong=bool(self.browse.filter_error))
        self._revealed()
        if self.browse.filter_error:
            self._show_problem(self.browse.filter_error)

    def _show_problem(self, problem: str) -> None:
        self.query_one("#modules").border_title = Content(self.browse.symbols.clean(problem))

    # -- what keys ask for -------------------------------------------------------------------------------------

    def action_back(self) -> None:
        if self.maximized is not None:
            self.minimize()
        elif self.browse.filter_text:
            self._filter("")

    def action_peak(self) -> None:
        if self.browse.reveal_peak():
            self._revealed()
        else:
            self.notify("The peak is not known yet.")

    def action_zoom(self) -> None:
        if self.maximized is not None:
            self.minimize()
            return
        pane: Widget | None = self.focused
        if pane is not None:
            self.maximize(self.query_one("#modules") if pane.id in ("tree", "filter", "sizes") else pane, container=False)

    def action_details(self) -> None:
        detail = self.query_one("#detail", DetailPane)
        if detail.has_focus:
            self.query_one(OutlineTree).focus()
        detail.display = not detail.display

    def action_command(self) -> None:
        commands = self.browse.commands()
        self.app.copy_to_clipboard(commands[0])
        lines: list[Line] = [
            (Span("The numbers on the screen:", "heading"),),
            (Span(commands[0]),),
            (Span("Copied to the clipboard, if this terminal lets programs do that.", "faint"),),
        ]
        for command in commands[1:]:
            lines += [(), (Span("Nodes like the selected one, as text:", "heading"),), (Span(command),)]
        self.app.push_screen(TextDialog("On the command line", lines))

    def action_warnings(self) -> None:
        self.app.push_screen(TextDialog("Remarks", self.browse.remark_lines()))

    def action_next_pane(self) -> None:
        self.focus_next()

    def action_previous_pane(self) -> None:
        self.focus_previous()
