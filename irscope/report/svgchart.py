"""Panels as SVG: inside a page, or as a file of its own. Needs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from irscope.report.celltext import signed
from irscope.report.picture import Curve, Panel, Style, panels_of, rows_of, stacked, ticks
from irscope.report.printable import cut_middle, legible
from irscope.report.table import Series
from irscope.report.values import Quantity

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#777777")
"""Okabe and Ito's, told apart by most eyes."""
_WIDTH, _HEIGHT, _TOP, _LEFT, _RIGHT = 880, 180, 22, 90, 10
_LABELS = 14
"""A line of labels or of the legend."""
_NAMES, _MOST_NAME, _BAR = 320, 50, 17
_LETTER = 6.2
"""The usual width of a letter of the font."""
STYLE = """svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
.axis, .mark, .grid, .line { fill: none; stroke: currentColor; }
.mark { stroke-dasharray: 2 3; }
.grid { stroke-opacity: .2; }
.peak { fill: currentColor; }
"""
"""What a page needs for the pictures."""
_FILE_STYLE = f"{STYLE}svg {{ color: #222; }}\nsvg .title {{ font-weight: 600; font-size: 13px; }}\n"
_PAGE_WIDTH = _LEFT + _WIDTH + _RIGHT


def chart(series: Series) -> Iterator[str]:
    """The pictures of a series for a page that has the style; nothing where no number can be drawn."""
    for panel in panels_of(series):
        drawn, height = _drawn(panel)
        label = text(f"{panel.title}: at most {signed(Quantity(panel.top, panel.y.provenance), panel.y.kind)}")
        yield f'<svg viewBox="0 0 {_PAGE_WIDTH} {height}" role="img" aria-label="{label}">\n'
        yield from drawn
        yield "</svg>\n"


def document(panels: Sequence[Panel], title: str) -> Iterator[str]:
    """A file: panels below one another."""
    parts: list[str] = []
    y = 28
    for panel in panels:
        drawn, height = _drawn(panel)
        if panel.title:
            parts.append(f'<text class="title" x="12" y="{y + 14}">{text(panel.title)}</text>\n')
            y += 20
        parts += [f'<g transform="translate(0 {y})">\n', *drawn, "</g>\n"]
        y += height + 10
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{_PAGE_WIDTH}" height="{y}" viewBox="0 0 {_PAGE_WIDTH} {y}">'
    yield f'<style>{_FILE_STYLE}</style><rect width="{_PAGE_WIDTH}" height="{y}" fill="#fff"/>\n'
    yield f'<text class="title" x="12" y="20">{text(title)}</text>\n'
    yield from parts
    yield "</svg>\n"


def _drawn(panel: Panel) -> tuple[list[str], int]:
    """The elements of a panel and the height that they take."""
    return _bars(panel) if panel.names else _Plot(panel).drawn()


class _Plot:
    """Curves over axes."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.rows = rows_of(panel.marks, panel.left, panel.right, int(_WIDTH / _LETTER))
        self.top = _TOP + _LABELS * max(self.rows, default=0)
        self.bottom = self.top + _HEIGHT

    def drawn(self) -> tuple[list[str], int]:
        panel = self.panel
        parts = [*self._grid()]
        if panel.curves[0].style in (Style.AREA, Style.BAND):
            edges = stacked(panel)
            for number, (curve, (floor, ceiling)) in enumerate(zip(panel.curves, edges, strict=True)):
                outline = [*self._places(curve, ceiling), *reversed(self._places(curve, floor))]
                parts.append(f'<path fill="{_colour(number)}" d="{_path(outline)}Z"><title>{text(curve.name)}</title></path>\n')
        else:
            for number, curve in enumerate(panel.curves):
                parts += self._line(curve, _colour(number), 1.6 * panel.thickness(number))
        parts += [f'<circle class="peak" cx="{self._x(peak.x):.1f}" cy="{self._y(peak.y):.2f}" r="2.5"/>\n' for peak in panel.peaks]
        for mark, row in zip(panel.marks, self.rows, strict=True):
            x, y = self._x(mark.x), self.top - 8 - _LABELS * row
            anchor, words = ("end", f"{mark.label} ▼") if x > _LEFT + _WIDTH / 2 else ("start", f"▼ {mark.label}")
            # The sign stands above its place, not beside it.
            at = x + 4 if anchor == "end" else x - 4
            parts.append(f'<path class="mark" d="M{x:.1f} {y + 4}V{self.bottom}"/>')
            parts.append(f'<text x="{at:.1f}" y="{y}" text-anchor="{anchor}">{text(words)}</text>\n')
        legend, height = _legend(panel, self.bottom + 34)
        return [*parts, *legend], height

    def _line(self, curve: Curve, colour: str, width: float) -> Iterator[str]:
        points = [(x, y) for x, y in zip(curve.xs, curve.ys, strict=True) if y is not None]
        if curve.style is not Style.POINTS:
            style = f"stroke:{colour};stroke-width:{width:.1f}{';stroke-dasharray:5 4' if curve.dashed else ''}"
            for run in _runs(curve):
                path = _path(self._places(run, [float(y or 0) for y in run.ys]))
                yield f'<path class="line" style="{style}" d="{path}"><title>{text(curve.name)}</title></path>\n'
        if curve.style in (Style.POINTS, Style.LINE) and not curve.dashed:
            for x, y in points:
                yield f'<circle cx="{self._x(x):.1f}" cy="{self._y(y):.2f}" r="2.5" fill="{colour}"/>'
            yield "\n"

    def _places(self, curve: Curve, heights: Sequence[float]) -> list[tuple[float, float]]:
        """The corners of a curve; one that holds goes on until the next place."""
        if curve.style in (Style.LINE, Style.BAND):
            return [(self._x(x), self._y(y)) for x, y in zip(curve.xs, heights, strict=True)]
        ends = [*curve.xs[1:], self.panel.right if curve.xs[-1] < self.panel.right else curve.xs[-1]]
        return [(self._x(x), self._y(y)) for begin, end, y in zip(curve.xs, ends, heights, strict=True) for x in (begin, end)]

    def _grid(self) -> Iterator[str]:
        panel = self.panel
        for height, label in ticks(0, panel.top, panel.y.kind):
            y = self._y(height)
            yield f'<path class="grid" d="M{_LEFT},{y:.2f}H{_LEFT + _WIDTH}"/><text x="{_LEFT - 6}" y="{y + 4:.2f}" text-anchor="end">'
            yield f"{text(label)}</text>\n"
        for place, label in ticks(panel.left, panel.right, panel.x.kind):
            x = self._x(place)
            yield f'<path class="axis" d="M{x:.1f} {self.bottom}v4"/><text x="{x:.1f}" y="{self.bottom + 16}" text-anchor="middle">'
            yield f"{text(label)}</text>\n"
        yield f'<path class="axis" d="M{_LEFT} {self.top}V{self.bottom}H{_LEFT + _WIDTH}"/>\n'
        middle = _LEFT + _WIDTH / 2
        yield f'<text x="{middle:.1f}" y="{self.bottom + 30}" text-anchor="middle">{text(panel.x.heading)}</text>\n'

    def _x(self, place: float) -> float:
        span = (self.panel.right - self.panel.left) or 1
        return _LEFT + _WIDTH * (place - self.panel.left) / span

    def _y(self, height: float) -> float:
        return self.bottom - _HEIGHT * min(height / self.panel.top, 1.0)


def _bars(panel: Panel) -> tuple[list[str], int]:
    wide = _PAGE_WIDTH - _NAMES - 100
    group = _BAR * len(panel.curves) + 5
    bottom = 6 + group * len(panel.names)
    parts: list[str] = []
    for height, label in ticks(0, panel.top, panel.y.kind):
        x = _NAMES + wide * height / panel.top
        parts.append(f'<path class="grid" d="M{x:.1f} 0V{bottom}"/><text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">')
        parts.append(f"{text(label)}</text>\n")
    for place, name in enumerate(panel.names):
        top = 6 + group * place
        words = f"<title>{text(name)}</title>{text(cut_middle(legible(name), _MOST_NAME))}"
        parts.append(f'<text x="{_NAMES - 6}" y="{top + (group - 5) / 2 + 4:.1f}" text-anchor="end">{words}</text>\n')
        for number, curve in enumerate(panel.curves):
            value, y = curve.ys[place], top + _BAR * number
            size = wide * (value or 0) / panel.top
            parts.append(f'<rect x="{_NAMES}" y="{y}" width="{size:.1f}" height="{_BAR - 3}" fill="{_colour(number)}"/>')
            parts.append(f'<text x="{_NAMES + size + 5:.1f}" y="{y + 11}">{text(curve.texts[place])}</text>\n')
    parts.append(f'<path class="axis" d="M{_NAMES} 0V{bottom}H{_NAMES + wide}"/>\n')
    legend, height = _legend(panel, bottom + 24)
    return [*parts, *legend], height


def _legend(panel: Panel, top: int) -> tuple[list[str], int]:
    """Names with their colours, in as many lines as they need, and where they end."""
    if not panel.has_legend:
        return [], top + 4
    parts: list[str] = []
    x, y = float(_LEFT), top + 10
    for number, curve in enumerate(panel.curves):
        size = 26 + len(curve.name) * _LETTER
        if x + size > _PAGE_WIDTH and x > _LEFT:
            x, y = float(_LEFT), y + _LABELS + 3
        parts.append(f'<rect x="{x:.1f}" y="{y - 9}" width="10" height="10" fill="{_colour(number)}"/>')
        parts.append(f'<text x="{x + 15:.1f}" y="{y}">{text(curve.name)}</text>\n')
        x += size
    return parts, y + 8


def _runs(curve: Curve) -> Iterator[Curve]:
    """The stretches of a curve in which its heights are known."""
    xs: list[float] = []
    ys: list[float] = []
    for x, y in zip([*curve.xs, 0], [*curve.ys, None], strict=True):
        if y is not None:
            xs.append(x)
            ys.append(y)
        elif xs:
            yield Curve(curve.name, xs, ys, curve.style, curve.dashed)
            xs, ys = [], []


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def text(raw: str) -> str:
    """Any string as content or attribute of an element."""
    return escape(legible(raw))
