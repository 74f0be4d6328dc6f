"""The window of `e`: writes what a screen shows into a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from irscope.errors import UsageError
from irscope.report.table import Table
from irscope.tui.models.exported import table_text, write_new
from irscope.tui.models.spans import Line, Span
from irscope.tui.screens.dialog import TextDialog

if TYPE_CHECKING:
    from irscope.tui.screens.base import ModelScreen

_FORMS = (
    ("t", "txt", "text: the screen as it stands"),
    ("s", "svg", "SVG: a picture of the screen"),
    ("c", "csv", "CSV: all rows, not only those on the screen"),
    ("j", "json", "JSON: all rows with their types"),
)


class ExportDialog(TextDialog):
    """Asks for a form and writes a new file into the current folder."""

    def __init__(self, source: ModelScreen, table: Table | None) -> None:
        self.source = source
        self.held = table
        self.forms = [form for form in _FORMS if table is not None or form[1] in ("txt", "svg")]
        lines: list[Line] = [(Span(f"  {key}  ", "mark"), Span(text)) for key, _, text in self.forms]
        lines += [(), (Span("A new file is written into the folder in which irscope was started.", "faint"),)]
        super().__init__("Export", lines, "".join(key for key, _, _ in self.forms))

    def chosen(self, index: int) -> None:
        suffix = self.forms[index][1]
        self.dismiss(None)
        self.source.call_after_refresh(self._write, suffix)

    def _write(self, suffix: str) -> None:
        source = self.source
        name = source.session.program.path.replace("\\", "/").rpartition("/")[2] or "model"
        try:
            path = write_new(f"{name}-{source.NAME}", suffix, self._text(suffix))
        except UsageError as error:
            source.say(str(error))
        else:
            source.say(f"Written to {path}")

    def _text(self, suffix: str) -> str:
        if suffix == "svg":
            return self.source.app.export_screenshot(title="irscope")
        if suffix == "txt" or self.held is None:
            return self.source.screen_text()
        return table_text(self.held, suffix)
