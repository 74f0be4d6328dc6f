"""Pictures of a training step: SVG as it is, PNG and PDF by matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from irscope.cli.recomputepicture import recompute_picture, recompute_series
from irscope.cli.training import kept_of, memory_of, plans_of
from irscope.errors import UsageError
from irscope.files import write_text
from irscope.passes.training_memory import TrainingMemory
from irscope.report.braille import line_chart
from irscope.report.celltext import signed
from irscope.report.plot import write_plot
from irscope.report.svgchart import chart
from irscope.report.table import Column, Series
from irscope.report.units import Kind
from irscope.report.values import bare
from irscope.session import Model

_STYLE = (
    "svg{font:12px sans-serif;background:#fff}.axis{fill:none;stroke:#444}.mark{stroke:#444;stroke-dasharray:2 2;fill:none}text{fill:#222}"
)
_BARS = 15
_ROW, _LEFT, _WIDE = 22, 320, 480


def draw(picture: str, model: Model, swept: Sequence[Series], path: Path, seconds: float) -> None:
    """Draw one picture into a file whose suffix says how; what needs a search for plans gets some seconds."""
    title = f"{model.program.path or model.program.metadata.get('class', '')}: {picture}"
    series = _series(picture, model, swept, seconds)
    if path.suffix.lower() != ".svg":
        write_plot(series, path, title)
        return
    if picture == "recompute":
        text = "".join(recompute_picture(plans_of(model, seconds), title))
    else:
        text = "".join(_bars(series[0]) if picture in ("categories", "idle") else _page(series))
    write_text(path, [text])


def dotted(picture: str, model: Model, swept: Sequence[Series], seconds: float, encoding: str) -> Iterator[str]:
    """A picture in the terminal."""
    if picture in ("categories", "idle"):
        raise UsageError(f"the picture {picture!r} has bars and is drawn into a file", code="IRS387", hint="`--plot FILE.svg`")
    for series in _series(picture, model, swept, seconds):
        if picture == "memory":
            data: dict[str, Sequence[object]] = {series.x.key: series.cells(series.x.key), "total": series.totals(series.y)}
            series = Series(series.title, series.x, (Column("total", Kind.BYTES),), data)
        for column in series.y:
            one = Series(series.title, series.x, (column,), series.data, stacked=False)
            yield from ("", *line_chart(one, encoding))


def _series(picture: str, model: Model, swept: Sequence[Series], seconds: float) -> list[Series]:
    if picture == "recompute":
        return [recompute_series(plans_of(model, seconds))]
    if picture == "batch":
        if not swept:
            raise UsageError("the picture of batches needs --batches", code="IRS386", hint="`--batches 4,8,16,32,64`")
        return list(swept)
    if picture == "memory":
        report = TrainingMemory().report(memory_of(model), model.manager)
        return list(report.series)
    if picture == "categories":
        found = {name: size for name, size in memory_of(model).at_peak().items() if size.value or size.interval}
        return [_named("At the peak", Column("bytes", Kind.BYTES), list(found), list(found.values()))]
    kept = sorted(kept_of(model, 55.0).kept, key=lambda one: -one.idle_seconds * one.piece.size)[:_BARS]
    return [_named("Idle activations", Column("idle", Kind.SECONDS), [one.piece.name for one in kept], [one.idle_seconds for one in kept])]


def _named(title: str, column: Column, names: list[str], values: Sequence[object]) -> Series:
    return Series(title, Column("name"), (column,), {"name": names, column.key: list(values)}, stacked=False)


def _page(series: Sequence[Series]) -> Iterator[str]:
    """Charts below one another in one picture."""
    drawn = [line for one in series for line in chart(one)]
    count = sum(line.startswith("<svg") for line in drawn)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="980" height="{count * 240 + 40}"><style>{_STYLE}</style>\n'
    number = 0
    for line in drawn:
        if line.startswith("<svg"):
            line = line.replace("<svg ", f'<svg y="{number * 240}" height="224" ', 1)
            number += 1
        if line.startswith(("<p", "<div", "<ul")) and not line.startswith("<path"):
            continue
        yield line
    names = [column.heading for one in series for column in one.y]
    yield f'<text x="90" y="{count * 240 + 20}">{escape("from bottom to top: " + ", ".join(names))}</text></svg>\n'


def _bars(series: Series) -> Iterator[str]:
    column = series.y[0]
    names, cells = series.cells("name"), series.cells(column.key)
    values = [float(str(bare(cell))) for cell in cells]
    top = max(values, default=0.0) or 1.0
    size = f'width="{_LEFT + _WIDE + 120}" height="{(len(values) + 2) * _ROW}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>\n'
    yield f'<text x="{_LEFT}" y="{_ROW - 6}">{escape(series.title)}</text>\n'
    for row, (name, cell, value) in enumerate(zip(names, cells, values, strict=True), 1):
        y, wide = row * _ROW, value / top * _WIDE
        shown = signed(cell, column.kind)
        yield f'<text x="{_LEFT - 6}" y="{y + 15}" text-anchor="end">{escape(str(name)[-46:])}</text>'
        yield f'<rect x="{_LEFT}" y="{y + 2}" width="{wide:.1f}" height="{_ROW - 5}" fill="#0072b2"/>'
        yield f'<text x="{_LEFT + wide + 5:.1f}" y="{y + 15}">{escape(shown)}</text>\n'
    yield "</svg>\n"
