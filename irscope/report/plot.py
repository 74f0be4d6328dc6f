"""Panels as pictures: as SVG, inside a page or as a file, which needs nothing; as .png and .pdf by matplotlib."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from irscope.errors import UsageError
from irscope.files import staged, write_text
from irscope.report.celltext import signed
from irscope.report.names import cut_name, cut_names
from irscope.report.picture import Curve, Panel, Style, panels_of, rows_of, stacked, ticks
from irscope.report.printable import legible, printable
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


# ----------------------------------------------------------------------------------------------------
# Pictures in files: SVG as it is, PNG and PDF by matplotlib where it is installed.

FORMATS = (".png", ".svg", ".pdf")
_WITHOUT = ".svg"
"""The format that needs no package."""
_WIDTH, _HEIGHT, _BAR = 10.0, 2.9, 0.24
"""Inches: a picture, a panel, and a bar."""
_LETTERS = 115
"""Letters of a label that fit into the width of a panel."""
_MOST_NAME = 50
_DATES = {".pdf": {"CreationDate": None}}
"""The same picture is the same file."""


def check_plot(path: Path) -> None:
    """Raise UsageError before any work where a picture could not be written in the end."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise UsageError(f"{path.name!r} cannot be drawn as a picture", code="IRS430", hint=f"endings: {', '.join(FORMATS)}")
    if suffix != _WITHOUT:
        _pyplot()


def write_plot(panels: Sequence[Panel], path: Path, title: str) -> None:
    """Write the panels below one another, in the format that the file's ending says."""
    if not panels:
        hint = "`--passes liveness` draws memory, once every size is a number: `--bind batch=8`; a sweep one symbol of several sizes"
        raise UsageError("no report has a curve to draw", code="IRS430", where=path.name, hint=hint)
    suffix = path.suffix.lower()
    if suffix == _WITHOUT:
        write_text(path, svg_document(panels, title))
        return
    figure = figure_of(panels, title)
    try:
        with staged(path) as beside:
            figure.savefig(beside, dpi=120, metadata=_DATES.get(suffix))
    finally:
        _pyplot().close(figure)


def figure_of(panels: Sequence[Panel], title: str) -> Any:
    """Return a figure of matplotlib."""
    heights = [_BAR * len(one.names) * len(one.curves) + 0.8 if one.names else _HEIGHT for one in panels]
    figure, axes = _pyplot().subplots(
        len(panels), 1, figsize=(_WIDTH, sum(heights) + 0.5), squeeze=False, layout="constrained", height_ratios=heights
    )
    for on, panel in zip(axes[:, 0], panels, strict=True):
        if panel.names:
            _draw_bars(on, panel)
        else:
            _draw_curves(on, panel)
        if panel.has_legend:
            on.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.005, 1), borderaxespad=0, frameon=False)
    figure.suptitle(_without_formulas(title))
    return figure


def _draw_curves(on: Any, panel: Panel) -> None:
    if panel.curves[0].style in (Style.AREA, Style.BAND):
        step = "post" if panel.curves[0].style is Style.AREA else None
        for number, (curve, (floor, ceiling)) in enumerate(zip(panel.curves, stacked(panel), strict=True)):
            xs = [*curve.xs, panel.right] if step else curve.xs
            lower, upper = ([*edge, edge[-1]] if step else edge for edge in (floor, ceiling))
            on.fill_between(
                xs, lower, upper, step=step, color=_colour(panel.colours[number]), linewidth=0, label=_without_formulas(curve.name)
            )
    else:
        for number, curve in enumerate(panel.curves):
            _draw_line(on, panel, curve, _colour(panel.colours[number]), 1.4 * panel.thickness(number))
    for limit in panel.limits:
        on.axhline(limit.y, color="#222222", linestyle="--", linewidth=1.0)
        below: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "xytext": (-4, -10)}
        on.annotate(_without_formulas(limit.text), (1.0, limit.y), fontsize=8, ha="right", **below)
    for peak in panel.peaks:
        on.plot([peak.x], [peak.y], marker="o", markersize=4, linestyle="none", color="#222222")
    rows = rows_of(panel.marks, panel.left, panel.right, _LETTERS)
    for mark, row in zip(panel.marks, rows, strict=True):
        on.axvline(mark.x, color="#444444", linestyle=":", linewidth=0.9)
        is_right = mark.x > (panel.left + panel.right) / 2
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "xytext": (4 if is_right else -4, 3 + 11 * row)}
        words = f"{_without_formulas(mark.label)} ▼" if is_right else f"▼ {_without_formulas(mark.label)}"
        on.annotate(words, (mark.x, 1.0), fontsize=8, ha="right" if is_right else "left", **place)
    on.set_title(_without_formulas(panel.title), fontsize=10, loc="left", pad=6 + 11 * (max(rows, default=-1) + 1))
    on.set_xlabel(_without_formulas(panel.x.heading), fontsize=9)
    on.set_xlim(panel.left, panel.right if panel.right > panel.left else panel.left + 1)
    on.set_ylim(0, panel.top * 1.05)
    _set_ticks(on.set_xticks, ticks(panel.left, panel.right, panel.x.kind))
    _set_ticks(on.set_yticks, ticks(0, panel.top * 1.05, panel.y.kind))
    on.grid(True, alpha=0.3)


def _draw_line(on: Any, panel: Panel, curve: Curve, colour: str, width: float) -> None:
    xs = list(curve.xs)
    ys = [math.nan if height is None else height for height in curve.ys]
    style: dict[str, Any] = {
        "color": colour,
        "label": _without_formulas(curve.name),
        "linewidth": width,
        "clip_on": curve.style is Style.STEPS,
    }
    if curve.dashed:
        style["linestyle"] = "--"
    if curve.style is Style.STEPS:
        style["drawstyle"] = "steps-post"
        if panel.right > xs[-1]:
            xs, ys = [*xs, panel.right], [*ys, ys[-1]]
    elif curve.style is Style.POINTS:
        style |= {"linestyle": "none", "marker": "o", "markersize": 4}
    elif not curve.dashed:
        style |= {"marker": "o", "markersize": 4}
    on.plot(xs, ys, **style)


def _draw_bars(on: Any, panel: Panel) -> None:
    count = len(panel.curves)
    thick = 0.8 / count
    for number, curve in enumerate(panel.curves):
        places = [place + (number - (count - 1) / 2) * thick for place in range(len(panel.names))]
        drawn = on.barh(
            places,
            [height or 0 for height in curve.ys],
            thick * 0.9,
            color=_colour(panel.colours[number]),
            label=_without_formulas(curve.name),
        )
        on.bar_label(drawn, curve.texts, padding=3, fontsize=8)
    on.set_title(_without_formulas(panel.title), fontsize=10, loc="left")
    names = cut_names([printable(name) for name in panel.names], _MOST_NAME)
    on.set_yticks(range(len(panel.names)), list(map(_without_formulas, names)), fontsize=8)
    on.set_ylim(len(panel.names) - 0.4, -0.6)
    on.set_xlim(0, panel.top * 1.12)
    _set_ticks(on.set_xticks, ticks(0, panel.top, panel.y.kind))
    on.grid(True, axis="x", alpha=0.3)


def _set_ticks(setter: Any, found: Sequence[tuple[float, str]]) -> None:
    setter([place for place, _ in found], [label for _, label in found], fontsize=8)


def _without_formulas(text: str) -> str:
    """Text as it is: matplotlib takes what stands between two dollars for a formula."""
    return printable(text).replace("$", r"\$")


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _fill_style(number: int, names: str = "") -> str:
    """Return the attributes of what is filled with the colour of a curve."""
    return f'class="{names}c{number % len(COLOURS)}" fill="{_colour(number)}"'


def _pyplot() -> Any:
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("agg")
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        hint = "pip install matplotlib; .svg needs nothing"
        raise UsageError("pictures as .png and .pdf need matplotlib, which is not installed", code="IRS431", hint=hint) from error
