"""Which widget owns a pane, for the contract tests of the action table."""

from __future__ import annotations

from irscope.tui.screens.compare import BothPane
from irscope.tui.screens.picking import FormDialog, PickDialog
from irscope.tui.widgets.stack import StackPane
from irscope.tui.widgets.table import VirtualTable
from irscope.tui.widgets.timeline import TimelinePane
from irscope.tui.widgets.tree import OutlineTree

PANE_OWNERS: dict[str, type] = {
    "form": FormDialog,
    "pick": PickDialog,
    "stack": StackPane,
    "both": BothPane,
    "table": VirtualTable,
    "tree": OutlineTree,
    "timeline": TimelinePane,
}
