"""Panels as pictures: as SVG, inside a page or as a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from irscope.errors import UsageError
from irscope.files import write_text
from irscope.report.celltext import signed
from irscope.report.names import cut_name
from irscope.report.picture import Curve, Panel, Style, panels_of, rows_of, stacked, ticks
from irscope.report.printable import legible
from irscope.report.table import Series
from irscope.report.values import Quantity

COLOURS = ("#8a96a3", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#0072b2", "#332288", "#882255")
"""A quiet grey, Okabe and Ito's hues, told apart by most eyes, and two of Tol's; as in assets/page.css and the UI's style sheet."""
_SVG_WIDTH, _SVG_HEIGHT, _TOP, _LEFT, _RIGHT = 880, 180, 22, 90, 10
_LABELS = 14
"""A line of labels or of the legend."""
_NAMES, _SVG_MOST_NAME, _SVG_BAR = 320, 50, 17
_LETTER = 6.2
"""The usual width of a letter of the font."""
_STRETCHED = 1000
"""The width of a picture that a page stretches."""
SVG_STYLE = """svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
.axis, .mark, .grid, .line, .limit { fill: none; }
.axis, .mark, .grid, .limit { stroke: currentColor; }
.mark { stroke-dasharray: 2 3; }
.limit { stroke-dasharray: 6 3; }
.grid { stroke-opacity: .2; }
.peak { fill: currentColor; }
"""
"""Style sheet of a page with the pictures. Colours of curves are attributes, over which a page's own rules for their classes take
precedence.
"""
_FILE_STYLE = f"{SVG_STYLE}svg {{ color: #222; }}\nsvg .title {{ font-weight: 600; font-size: 13px; }}\n"
_PAGE_WIDTH = _LEFT + _SVG_WIDTH + _RIGHT


def svg_chart(series: Series) -> Iterator[str]:
    """Yield the pictures of a series for a page that has the style; nothing where no number can be drawn."""
    for panel in panels_of(series):
        drawn, height = _drawn(panel)
        label = svg_text(f"{panel.title}: at most {signed(Quantity(panel.top, panel.y.provenance), panel.y.kind)}")
        yield f'<svg viewBox="0 0 {_PAGE_WIDTH} {height}" role="img" aria-label="{label}">\n'
        yield from drawn
        yield "</svg>\n"


def svg_document(panels: Sequence[Panel], title: str) -> Iterator[str]:
    """Yield a file: panels below one another."""
    parts: list[str] = []
    y = 28
    for panel in panels:
        drawn, height = _drawn(panel)
        if panel.title:
            parts.append(f'<text class="title" x="12" y="{y + 14}">{svg_text(panel.title)}</text>\n')
            y += 20
        parts += [f'<g transform="translate(0 {y})">\n', *drawn, "</g>\n"]
        y += height + 10
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{_PAGE_WIDTH}" height="{y}" viewBox="0 0 {_PAGE_WIDTH} {y}">'
    yield f'<style>{_FILE_STYLE}</style><rect width="{_PAGE_WIDTH}" height="{y}" fill="#fff"/>\n'
    yield f'<text class="title" x="12" y="20">{svg_text(title)}</text>\n'
    yield from parts
    yield "</svg>\n"


def _drawn(panel: Panel) -> tuple[list[str], int]:
    """Return the elements of a panel and the height that they take."""
    return _bars(panel) if panel.names else _framed(panel)


class Plot:
    """Curves within a rectangle, which stands beside its axes or alone, stretched by whatever page it is on."""

    def __init__(self, panel: Panel, left: float = 0, top: float = 0, width: float = _STRETCHED, height: float = _SVG_HEIGHT) -> None:
        self.panel = panel
        self.left, self.top, self.width, self.bottom = left, top, width, top + height
        self._is_stretched = width == _STRETCHED

    def shapes(self) -> Iterator[str]:
        """Areas or lines; of each the name is its title."""
        panel = self.panel
        if panel.curves[0].style in (Style.AREA, Style.BAND):
            edges = stacked(panel)
            for number, (curve, (floor, ceiling)) in enumerate(zip(panel.curves, edges, strict=True)):
                outline = [*self._places(curve, ceiling), *reversed(self._places(curve, floor))]
                filled = _fill_style(panel.colours[number], "area ")
                yield f'<path {filled} d="{_path(outline)}Z"><title>{svg_text(curve.name)}</title></path>\n'
        else:
            for number, curve in enumerate(panel.curves):
                yield from self._line(curve, panel.colours[number], 1.6 * panel.thickness(number))
        for limit in panel.limits:
            drawn = f"M{self.left:g} {self.y(limit.y):.2f}h{self.width:g}"
            yield f'<path class="limit" d="{drawn}"><title>{svg_text(limit.text)}</title></path>\n'
        for peak in panel.peaks:
            yield self._dot('class="peak"', self.x(peak.x), self.y(peak.y))

    def _dot(self, looks: str, x: float, y: float) -> str:
        """Return a dot. A circle would be an ellipse where the picture is stretched: there it is the round end of a line."""
        if self._is_stretched:
            return f'<g class="dot"><path {looks} d="M{x:.1f} {y:.2f}h.01"/></g>\n'
        return f'<circle {looks} cx="{x:.1f}" cy="{y:.2f}" r="2.5"/>\n'

    def _line(self, curve: Curve, colour: int, width: float) -> Iterator[str]:
        points = [(x, y) for x, y in zip(curve.xs, curve.ys, strict=True) if y is not None]
        if curve.style is not Style.POINTS:
            style = f"stroke-width:{width:.1f}{';stroke-dasharray:5 4' if curve.dashed else ''}"
            for run in _known_stretches(curve):
                path = _path(self._places(run, [float(y or 0) for y in run.ys]))
                looks = f'class="line c{colour % len(COLOURS)}" stroke="{_colour(colour)}" style="{style}"'
                yield f'<path {looks} d="{path}"><title>{svg_text(curve.name)}</title></path>\n'
        if curve.style in (Style.POINTS, Style.LINE) and not curve.dashed:
            for x, y in points:
                yield self._dot(_fill_style(colour), self.x(x), self.y(y))

    def _places(self, curve: Curve, heights: Sequence[float]) -> list[tuple[float, float]]:
        """Return the corners of a curve; one that holds goes on until the next place."""
        if curve.style in (Style.LINE, Style.BAND):
            return [(self.x(x), self.y(y)) for x, y in zip(curve.xs, heights, strict=True)]
        ends = [*curve.xs[1:], self.panel.right if curve.xs[-1] < self.panel.right else curve.xs[-1]]
        return [(self.x(x), self.y(y)) for begin, end, y in zip(curve.xs, ends, heights, strict=True) for x in (begin, end)]

    def x(self, place: float) -> float:
        """Return where a place is."""
        span = (self.panel.right - self.panel.left) or 1
        return self.left + self.width * (place - self.panel.left) / span

    def y(self, height: float) -> float:
        """Return where a height is."""
        return self.bottom - (self.bottom - self.top) * min(height / self.panel.top, 1.0)


def _framed(panel: Panel) -> tuple[list[str], int]:
    """Curves with their axes, marks and legend."""
    rows = rows_of(panel.marks, panel.left, panel.right, int(_SVG_WIDTH / _LETTER))
    plot = Plot(panel, _LEFT, _TOP + _LABELS * max(rows, default=0), _SVG_WIDTH)
    parts = [*_grid(panel, plot), *plot.shapes()]
    for limit in panel.limits:
        right, below = _LEFT + _SVG_WIDTH - 4, plot.y(limit.y) + 12
        parts.append(f'<text x="{right}" y="{below:.1f}" text-anchor="end">{svg_text(limit.text)}</text>\n')
    for mark, row in zip(panel.marks, rows, strict=True):
        x, y = plot.x(mark.x), plot.top - 8 - _LABELS * row
        anchor, words = ("end", f"{mark.label} ▼") if x > _LEFT + _SVG_WIDTH / 2 else ("start", f"▼ {mark.label}")
        # The sign stands above its place, not beside it.
        at = x + 4 if anchor == "end" else x - 4
        parts.append(f'<path class="mark" d="M{x:.1f} {y + 4}V{plot.bottom}"/>')
        parts.append(f'<text x="{at:.1f}" y="{y}" text-anchor="{anchor}">{svg_text(words)}</text>\n')
    legend, height = _legend(panel, int(plot.bottom) + 34)
    return [*parts, *legend], height


def _grid(panel: Panel, plot: Plot) -> Iterator[str]:
    for height, label in ticks(0, panel.top, panel.y.kind):
        y = plot.y(height)
        yield f'<path class="grid" d="M{_LEFT},{y:.2f}H{_LEFT + _SVG_WIDTH}"/><text x="{_LEFT - 6}" y="{y + 4:.2f}" text-anchor="end">'
        yield f"{svg_text(label)}</text>\n"
    for place, label in ticks(panel.left, panel.right, panel.x.kind):
        x = plot.x(place)
        yield f'<path class="axis" d="M{x:.1f} {plot.bottom}v4"/><text x="{x:.1f}" y="{plot.bottom + 16}" text-anchor="middle">'
        yield f"{svg_text(label)}</text>\n"
    yield f'<path class="axis" d="M{_LEFT} {plot.top}V{plot.bottom}H{_LEFT + _SVG_WIDTH}"/>\n'
    middle = _LEFT + _SVG_WIDTH / 2
    yield f'<text x="{middle:.1f}" y="{plot.bottom + 30}" text-anchor="middle">{svg_text(panel.x.heading)}</text>\n'


def _bars(panel: Panel) -> tuple[list[str], int]:
    wide = _PAGE_WIDTH - _NAMES - 100
    group = _SVG_BAR * len(panel.curves) + 5
    bottom = 6 + group * len(panel.names)
    parts: list[str] = []
    for height, label in ticks(0, panel.top, panel.y.kind):
        x = _NAMES + wide * height / panel.top
        parts.append(f'<path class="grid" d="M{x:.1f} 0V{bottom}"/><text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">')
        parts.append(f"{svg_text(label)}</text>\n")
    for place, name in enumerate(panel.names):
        top = 6 + group * place
        words = f"<title>{svg_text(name)}</title>{svg_text(cut_name(legible(name), _SVG_MOST_NAME))}"
        parts.append(f'<text x="{_NAMES - 6}" y="{top + (group - 5) / 2 + 4:.1f}" text-anchor="end">{words}</text>\n')
        for number, curve in enumerate(panel.curves):
            value, y = curve.ys[place], top + _SVG_BAR * number
            size = wide * (value or 0) / panel.top
            parts.append(f'<rect x="{_NAMES}" y="{y}" width="{size:.1f}" height="{_SVG_BAR - 3}" {_fill_style(panel.colours[number])}/>')
            parts.append(f'<text x="{_NAMES + size + 5:.1f}" y="{y + 11}">{svg_text(curve.texts[place])}</text>\n')
    parts.append(f'<path class="axis" d="M{_NAMES} 0V{bottom}H{_NAMES + wide}"/>\n')
    legend, height = _legend(panel, bottom + 24)
    return [*parts, *legend], height


def _legend(panel: Panel, top: int) -> tuple[list[str], int]:
    """Return the names with their colours, in as many lines as they need, and where they end."""
    if not panel.has_legend:
        return [], top + 4
    parts: list[str] = []
    x, y = float(_LEFT), top + 10
    for number, curve in enumerate(panel.curves):
        size = 26 + len(curve.name) * _LETTER
        if x + size > _PAGE_WIDTH and x > _LEFT:
            x, y = float(_LEFT), y + _LABELS + 3
        parts.append(f'<rect x="{x:.1f}" y="{y - 9}" width="10" height="10" {_fill_style(panel.colours[number])}/>')
        parts.append(f'<text x="{x + 15:.1f}" y="{y}">{svg_text(curve.name)}</text>\n')
        x += size
    return parts, y + 8


def _known_stretches(curve: Curve) -> Iterator[Curve]:
    """Yield the stretches of a curve in which its heights are known."""
    xs: list[float] = []
    ys: list[float] = []
    for x, y in zip([*curve.xs, 0], [*curve.ys, None], strict=True):
        if y is not None:
            xs.append(x)
            ys.append(y)
        elif xs:
            yield Curve(curve.name, xs, ys, curve.style, curve.dashed)
            xs, ys = [], []


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def svg_text(raw: str) -> str:
    """Return any string as content or attribute of an element."""
    return escape(legible(raw))


def check_plot(path: Path) -> None:
    """Raise UsageError before any work where a picture could not be written in the end."""
    if path.suffix.lower() != ".svg":
        raise UsageError(f"{path.name!r} cannot be drawn as a picture", code="IRS430", hint="the file ends in .svg")


def write_plot(panels: Sequence[Panel], path: Path, title: str) -> None:
    """Write the panels below one another."""
    if not panels:
        hint = "`--passes liveness` draws memory, once every size is a number: `--bind batch=8`; a sweep one symbol of several sizes"
        raise UsageError("no report has a curve to draw", code="IRS430", where=path.name, hint=hint)
    write_text(path, svg_document(panels, title))


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _fill_style(number: int, names: str = "") -> str:
    """Return the attributes of what is filled with the colour of a curve."""
    return f'class="{names}c{number % len(COLOURS)}" fill="{_colour(number)}"'
