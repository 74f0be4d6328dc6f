"""What an allocator counts before a run, in the first run and in the second: the counters of the summary of liveness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from irscope.report.celltext import CellWriter
from irscope.report.options import RenderOptions
from irscope.report.printable import display_width
from irscope.report.report import Report
from irscope.report.units import Kind
from irscope.report.values import Quantity, as_assumed, plain
from irscope.tui.models.spans import Line, Span
from irscope.tui.models.symbols import Symbols

_MOMENTS = (("before", "before"), ("cold", "first run"), ("warm", "second run"))
_WIDE = 150
_COUNTERS = ("requested", "allocated", "reserved")


@dataclass(frozen=True)
class Counters:
    """Numbers by moment and counter; None where they are unknown, with the reason."""

    device: str
    numbers: Mapping[tuple[str, str], object]
    reason: str = ""

    @property
    def is_known(self) -> bool:
        """Whether any number is known."""
        return any(_known(number) for number in self.numbers.values())

    def text(self, moment: str, counter: str, symbols: Symbols) -> str:
        """One number with its unit."""
        writer = CellWriter(RenderOptions(encoding=symbols.encoding))
        return symbols.clean(writer.write(plain(self.numbers.get((moment, counter))), Kind.BYTES))

    def lines(self, width: int, symbols: Symbols) -> list[Line]:
        """The counters in one line, or the reason why there are none."""
        if not self.is_known:
            text = f"allocator {symbols.unknown} {symbols.clean(self.reason)}" if self.reason else f"allocator {symbols.unknown}"
            return [(Span(text, "unknown"),)]
        shown = [counter for counter in _COUNTERS if any(_known(self.numbers.get((moment, counter))) for moment, _ in _MOMENTS)]
        if width < _WIDE and len(shown) > 1:
            shown = [counter for counter in shown if counter != "requested"]
        spans: list[Span] = [Span(f"{symbols.clean(self.device)} allocator", "heading"), Span(f" {' / '.join(shown)}:  ", "faint")]
        for moment, title in _MOMENTS:
            spans.append(Span(f"{title} ", "faint"))
            spans.append(Span(f"{' / '.join(self.text(moment, counter, symbols) for counter in shown)}  "))
        if sum(display_width(span.text) for span in spans) > width:
            return [tuple(spans[:2]), (Span("  "), *spans[2:])]
        return [tuple(spans)]


def counters_of(report: Report) -> Counters | None:
    """The counters of a report of liveness; None where it has none."""
    summary = report.summary
    numbers: dict[tuple[str, str], object] = {}
    for moment, _ in _MOMENTS:
        found = summary.get(moment)
        if isinstance(found, Mapping):
            cells = ((counter, plain(found[counter])) for counter in _COUNTERS if counter in found)
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


def _known(number: object) -> bool:
    return number.shown is not None or number.interval is not None if isinstance(number, Quantity) else number is not None
