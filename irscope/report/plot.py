"""Pictures in files: SVG as it is, PNG and PDF by matplotlib where it is installed."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from irscope.errors import UsageError
from irscope.files import staged, write_text
from irscope.report.picture import Curve, Panel, Style, rows_of, stacked, ticks
from irscope.report.printable import cut_middle, printable
from irscope.report.svgchart import COLOURS, document

FORMATS = (".png", ".svg", ".pdf")
_WITHOUT = ".svg"
"""What needs nothing."""
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
        raise UsageError(f"{path.name!r} is no picture that can be drawn", code="IRS430", hint=f"endings: {', '.join(FORMATS)}")
    if suffix != _WITHOUT:
        _pyplot()


def write_plot(panels: Sequence[Panel], path: Path, title: str) -> None:
    """The panels below one another, in the format that the file's ending says."""
    if not panels:
        raise UsageError("there is nothing to draw", code="IRS430", where=path.name, hint="no number over steps or sizes is known")
    suffix = path.suffix.lower()
    if suffix == _WITHOUT:
        write_text(path, document(panels, title))
        return
    figure = figure_of(panels, title)
    try:
        with staged(path) as beside:
            figure.savefig(beside, dpi=120, metadata=_DATES.get(suffix))
    finally:
        _pyplot().close(figure)


def figure_of(panels: Sequence[Panel], title: str) -> Any:
    """A figure of matplotlib."""
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
    figure.suptitle(_plain(title))
    return figure


def _draw_curves(on: Any, panel: Panel) -> None:
    if panel.curves[0].style in (Style.AREA, Style.BAND):
        step = "post" if panel.curves[0].style is Style.AREA else None
        for number, (curve, (floor, ceiling)) in enumerate(zip(panel.curves, stacked(panel), strict=True)):
            xs = [*curve.xs, panel.right] if step else curve.xs
            lower, upper = ([*edge, edge[-1]] if step else edge for edge in (floor, ceiling))
            on.fill_between(xs, lower, upper, step=step, color=_colour(number), linewidth=0, label=_plain(curve.name))
    else:
        for number, curve in enumerate(panel.curves):
            _draw_line(on, panel, curve, _colour(number), 1.4 * panel.thickness(number))
    for peak in panel.peaks:
        on.plot([peak.x], [peak.y], marker="o", markersize=4, linestyle="none", color="#222222")
    rows = rows_of(panel.marks, panel.left, panel.right, _LETTERS)
    for mark, row in zip(panel.marks, rows, strict=True):
        on.axvline(mark.x, color="#444444", linestyle=":", linewidth=0.9)
        is_right = mark.x > (panel.left + panel.right) / 2
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "xytext": (4 if is_right else -4, 3 + 11 * row)}
        words = f"{_plain(mark.label)} ▼" if is_right else f"▼ {_plain(mark.label)}"
        on.annotate(words, (mark.x, 1.0), fontsize=8, ha="right" if is_right else "left", **place)
    on.set_title(_plain(panel.title), fontsize=10, loc="left", pad=6 + 11 * (max(rows, default=-1) + 1))
    on.set_xlabel(_plain(panel.x.heading), fontsize=9)
    on.set_xlim(panel.left, panel.right if panel.right > panel.left else panel.left + 1)
    on.set_ylim(0, panel.top * 1.05)
    _set_ticks(on.set_xticks, ticks(panel.left, panel.right, panel.x.kind))
    _set_ticks(on.set_yticks, ticks(0, panel.top * 1.05, panel.y.kind))
    on.grid(True, alpha=0.3)


def _draw_line(on: Any, panel: Panel, curve: Curve, colour: str, width: float) -> None:
    xs = list(curve.xs)
    ys = [math.nan if height is None else height for height in curve.ys]
    style: dict[str, Any] = {"color": colour, "label": _plain(curve.name), "linewidth": width, "clip_on": curve.style is Style.STEPS}
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
        drawn = on.barh(places, [height or 0 for height in curve.ys], thick * 0.9, color=_colour(number), label=_plain(curve.name))
        on.bar_label(drawn, curve.texts, padding=3, fontsize=8)
    on.set_title(_plain(panel.title), fontsize=10, loc="left")
    on.set_yticks(range(len(panel.names)), [_plain(cut_middle(printable(name), _MOST_NAME)) for name in panel.names], fontsize=8)
    on.set_ylim(len(panel.names) - 0.4, -0.6)
    on.set_xlim(0, panel.top * 1.12)
    _set_ticks(on.set_xticks, ticks(0, panel.top, panel.y.kind))
    on.grid(True, axis="x", alpha=0.3)


def _set_ticks(setter: Any, found: Sequence[tuple[float, str]]) -> None:
    setter([place for place, _ in found], [label for _, label in found], fontsize=8)


def _plain(text: str) -> str:
    """Text as it is: matplotlib takes what stands between two dollars for a formula."""
    return printable(text).replace("$", r"\$")


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _pyplot() -> Any:
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("agg")
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        hint = "pip install irscope[plot] brings it; .svg needs nothing"
        raise UsageError("pictures as .png and .pdf need matplotlib, which is not installed", code="IRS431", hint=hint) from error
