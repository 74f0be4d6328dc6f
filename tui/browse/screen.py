"""The browse screen: modules and nodes, the details of one of them, and the live bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.timer import Timer

from irscope.errors import IrscopeError
from irscope.ir.graph import Node
from irscope.report.report import Report
from irscope.report.table import Table
from irscope.tui.actions import Action, bindings
from irscope.tui.analyses import report_of
from irscope.tui.browse.columns import BrowseColumn, column_choices
from irscope.tui.browse.detail import formulas
from irscope.tui.screen import ModelScreen
from irscope.tui.widgets.charts import TimelinePane
from irscope.tui.widgets.paint import DetailPane
from irscope.tui.widgets.table import OutlineTree, RowsPane

_SETTLED = 0.3
"""Seconds after which the selection is taken to have come to rest."""
_NAME = re.compile(r"[\w.:/-]+")
"""Names that may stand in the text of a pipeline."""


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
            "Choose what the last column shows: bytes, FLOPs, live at the peak, least time, how much is known, a column of a report.",
            footer=True,
        ),
        Action("browse", "users", ("u",), "Users", "Go to a node that reads a result of the selected one.", footer=True),
        Action("browse", "inputs", ("i",), "Inputs", "Go to a node that makes an input of the selected one."),
        Action("browse", "details", ("d",), "Details", "Hide or show the details."),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("browse", ACTIONS)

    def panes(self) -> ComposeResult:
        with Container(id="panes"):
            with RowsPane(id="modules"):
                yield OutlineTree(self.browse.table, id="tree")
                yield from self.prompts()
            yield DetailPane(id="detail")
        browse = self.browse
        yield TimelinePane(
            browse.timeline_lines, lambda: browse.results.timeline, lambda: browse.step or 0, browse.reveal_step, id="timeline"
        )

    def on_mount(self) -> None:
        self._settled: Timer | None = None
        self._looked_at = -1
        super().on_mount()

    def _ask_formula(self) -> None:
        """Ask for the formula behind the cost of a node on which the selection has come to rest."""
        node, results = self.session.selected_node, self.browse.results
        if node is None or node in results.formulas_of or results.costs is None or not _NAME.fullmatch(node.name):
            return
        manager = self.session.manager

        def take(report: Report) -> None:
            results.formulas_of[node] = formulas(report)

        def fail(error: IrscopeError) -> None:
            results.formulas_of[node] = {}

        self.session.ask(f"browse.formula.{node.name}", lambda: report_of(manager, f"flops{{explain={node.name}}}"), take, fail)

    def show(self) -> None:
        self.title_of("detail", "Details")
        tree = self.query_one(OutlineTree)
        if tree.size.height:
            self.browse.fit(tree.page)
        tree.redraw(middle=True)
        self._show_selection(same=True)

    def on_detail_pane_followed(self, message: DetailPane.Followed) -> None:
        self.open_node(message.row)

    def show_progress(self) -> None:
        self._show_titles()

    def on_rows_view_selected(self, message: OutlineTree.Selected) -> None:
        if message.row == self.browse.selected:
            self.session.moved(self.NAME)
            self._show_selection()

    def on_chart_pane_moved(self) -> None:
        self.session.moved(self.NAME)
        self.show()

    def _show_selection(self, *, same: bool = False) -> None:
        """Bring everything that depends on the selection up to date; `same` keeps the place in the details."""
        self.query_one("#detail", DetailPane).show(self.browse.detail(), top=not same)
        if self.browse.selected != self._looked_at:
            self._looked_at = self.browse.selected
            if self._settled is not None:
                self._settled.stop()
            self._settled = self.set_timer(_SETTLED, self._ask_formula)
        self.query_one(TimelinePane).redraw()
        self._show_titles()

    def _show_titles(self) -> None:
        self.title_of("modules", self.browse.tree_title(self.session.progress))
        self.title_of("timeline", self.browse.timeline_title())

    @property
    def filter_text(self) -> str:
        return self.browse.filter_text

    def set_filter(self, text: str) -> str:
        self.browse.set_filter(text)
        return self.browse.filter_error

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

    def action_peak(self) -> None:
        if self.browse.reveal_peak():
            self.session.jump(self.NAME, self.browse.selected)
            self.show()
        else:
            self.say("The peak is not known yet.")

    def action_column(self) -> None:
        def show(column: BrowseColumn) -> None:
            self.session.show_column(column, lambda error: self.say(str(error)))

        self.choose("The last column", [*column_choices(), *self.session.report_columns], lambda column: column.about, show)

    def action_users(self) -> None:
        node = self.session.selected_node
        users = [] if node is None else [user for output in node.outputs for user in output.users or () if isinstance(user, Node)]
        self._follow("Read by", users, "Nothing reads a result of this.")

    def action_inputs(self) -> None:
        node = self.session.selected_node
        makers = [] if node is None else [value.node for value in node.inputs if value is not None and value.node is not None]
        self._follow("Made by", makers, "No node makes an input of this.")

    def _follow(self, title: str, nodes: Iterable[Node], otherwise: str) -> None:
        """Go to one of these nodes: at once where there is only one."""
        row_of = self.browse.outline.row_of
        rows = [row_of[node] for node in dict.fromkeys(nodes) if node in row_of]
        if not rows:
            self.say(otherwise)
        elif len(rows) == 1:
            self.open_node(rows[0])
        else:
            self.choose(title, rows, self.browse.row_text, self.open_node)

    def action_details(self) -> None:
        detail = self.query_one("#detail", DetailPane)
        if detail.has_focus:
            self.focus_first()
        detail.display = not detail.display
