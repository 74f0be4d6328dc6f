"""Curves as a picture, by matplotlib where it is installed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from irscope.errors import UsageError
from irscope.files import staged
from irscope.report.bins import drawable
from irscope.report.celltext import SIGNS
from irscope.report.table import Series
from irscope.report.units import humanise

FORMATS = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Raise UsageError before any work where a picture could not be written in the end."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path.name!r} is no picture that can be drawn", code="IRS430", hint=f"endings: {', '.join(FORMATS)}")
    _matplotlib()


def write_plot(series: Sequence[Series], path: Path, title: str) -> None:
    """One panel for each series, its first column over x."""
    pyplot, ticker = _matplotlib()
    figure, panels = pyplot.subplots(len(series), 1, sharex=True, figsize=(7, 2.3 * len(series)), squeeze=False, layout="constrained")
    try:
        for panel, one in zip(panels[:, 0], series, strict=True):
            column = one.y[0]
            panel.plot(one.cells(one.x.key), drawable(one.cells(column.key)), marker="o", markersize=3)
            panel.set_ylabel(f"{SIGNS.get(one.provenance(column), '')}{column.heading}")
            panel.set_ylim(bottom=0)
            panel.grid(True, alpha=0.3)
            panel.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _place, kind=column.kind: humanise(float(value), kind)))
        panels[-1, 0].set_xlabel(series[-1].x.heading)
        figure.suptitle(title)
        with staged(path) as beside:
            figure.savefig(beside, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
    finally:
        pyplot.close(figure)


def _matplotlib() -> tuple[Any, Any]:
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("agg")
        return importlib.import_module("matplotlib.pyplot"), importlib.import_module("matplotlib.ticker")
    except ImportError as error:
        hint = "pip install irscope[plot] brings it; without --plot curves are drawn in the terminal"
        raise UsageError("pictures need matplotlib, which is not installed", code="IRS431", hint=hint) from error
