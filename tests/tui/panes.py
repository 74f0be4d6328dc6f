"""Which widget owns a pane, for the contract tests of the action table."""

from __future__ import annotations

from irscope.tui.compare import BothPane
from irscope.tui.graph.screen import GraphPane
from irscope.tui.passes.screen import FormDialog, PickDialog
from irscope.tui.widgets.charts import StackPane, TimelinePane
from irscope.tui.widgets.table import OutlineTree, VirtualTable

PANE_OWNERS: dict[str, type] = {
    "form": FormDialog,
    "pick": PickDialog,
    "stack": StackPane,
    "both": BothPane,
    "table": VirtualTable,
    "tree": OutlineTree,
    "timeline": TimelinePane,
    "graph-pane": GraphPane,
}
