"""Pictures of a training step, in a file or in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from irscope.cli.training import kept_of, memory_of, plans_of
from irscope.errors import UsageError
from irscope.memory.checkpointing.solve import CheckpointPlans
from irscope.passes.checkpoint import curve_of
from irscope.passes.training_memory import TrainingMemory
from irscope.report.celltext import signed
from irscope.report.chart import line_chart
from irscope.report.picture import Curve, Panel, Style, bars, panels_of
from irscope.report.plot import write_plot
from irscope.report.table import Column, Mark, Series
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity
from irscope.session import Model
from irscope.training.trace import CATEGORIES

PICTURES = {
    "memory": "memory over a training step",
    "categories": "memory at the peak of a training step",
    "idle": "kept activations that lie idle longest",
    "batch": "peak of a training step by batch",
    "recompute": "peak against recompute time",
}
"""What can be drawn, with the words of its title."""
_MOST_IDLE = 15
_MOST_STRETCH = 4
"""How many times as slow as the slowest plan found a simpler one is still drawn."""


def draw(picture: str, steps: Mapping[str, Model], swept: Sequence[Series], path: Path, seconds: float) -> None:
    """Draw one picture into a file whose ending says how; steps have names where they are several. A search for plans gets some seconds."""
    model = next(iter(steps.values()))
    name = model.program.path or model.program.metadata.get("class", "")
    write_plot(_panels(picture, steps, swept, seconds), path, f"{name}: {PICTURES[picture]} on {memory_of(model).target.device.title}")


def dotted(picture: str, steps: Mapping[str, Model], swept: Sequence[Series], seconds: float, encoding: str) -> Iterator[str]:
    """A picture in the terminal."""
    if picture in ("categories", "idle"):
        raise UsageError(f"the picture {picture!r} has bars and is drawn into a file", code="IRS387", hint="`--plot FILE.svg`")
    if picture == "batch":
        for series in _of_batches(swept):
            yield from _lines(series, series.y, encoding)
        return
    for label, model in steps.items():
        if label:
            yield from ("", label)
        if picture == "recompute":
            for series in curve_of(plans_of(model, seconds)):
                yield from _lines(series, series.y, encoding)
            continue
        for series in _of_memory(model):
            data: dict[str, Sequence[object]] = {series.x.key: series.cells(series.x.key), "total": series.totals(series.y)}
            total = Column("total", Kind.BYTES)
            yield from _lines(Series(series.title, series.x, (total,), data, stacked=False), [total], encoding)


def _lines(series: Series, columns: Sequence[Column], encoding: str) -> Iterator[str]:
    for column in columns:
        yield from ("", *line_chart(Series(series.title, series.x, (column,), _data(series, column), stacked=False), encoding))


def _data(series: Series, column: Column) -> dict[str, Sequence[object]]:
    return {key: series.data[key] for key in (series.x.key, column.key)}


def _of_batches(swept: Sequence[Series]) -> Sequence[Series]:
    if not swept:
        raise UsageError("the picture of batches needs --batches", code="IRS386", hint="`--batches 4,8,16,32,64`")
    return swept


def _panels(picture: str, steps: Mapping[str, Model], swept: Sequence[Series], seconds: float) -> list[Panel]:
    if picture == "batch":
        return [panel for series in _of_batches(swept) for panel in panels_of(series)]
    if picture == "categories":
        return [_categories(steps)]
    if picture == "idle":
        return [_idle(label, model) for label, model in steps.items()]
    if picture == "recompute":
        return [recompute_panel(label, plans_of(model, seconds)) for label, model in steps.items()]
    return [panel for label, model in steps.items() for panel in _timeline(label, model)]


def _of_memory(model: Model) -> Sequence[Series]:
    return model.marked(TrainingMemory().report(memory_of(model), model.manager)).series


def _timeline(label: str, model: Model) -> list[Panel]:
    return [panel for series in _of_memory(model) for panel in panels_of(series, label or series.title)]


def _categories(steps: Mapping[str, Model]) -> Panel:
    found = {label: memory_of(model).at_peak() for label, model in steps.items()}
    names = [name for name in CATEGORIES if any(sizes[name].value or sizes[name].interval for sizes in found.values())]
    peaks = [signed(sum(sizes.values(), Quantity(0)), Kind.BYTES) for sizes in found.values()]
    columns = [
        (Column(label or "bytes", Kind.BYTES, f"{label}, peak {peak}" if label else "bytes"), [sizes[name] for name in names])
        for (label, sizes), peak in zip(found.items(), peaks, strict=True)
    ]
    return bars("bytes by category" if len(found) > 1 else f"bytes by category, together the peak of {peaks[0]}", names, columns)


def _idle(label: str, model: Model) -> Panel:
    kept = sorted(kept_of(model, 55.0).kept, key=lambda one: -one.idle_seconds * one.piece.size)[:_MOST_IDLE]
    names = [f"{one.piece.name}, {humanise(one.piece.size, Kind.BYTES)}" for one in kept]
    column = Column("idle", Kind.SECONDS, provenance=Provenance.MODELLED)
    words = f"time between forward and backward use, the {len(kept)} with most byte-seconds"
    return bars(f"{label}: {words}" if label else words, names, [(column, [one.idle_seconds for one in kept])])


def recompute_panel(label: str, plans: CheckpointPlans) -> Panel:
    """Extra time by peak: the plans found, what no plan can beat, and simpler planners."""
    found = [(one.cost.peak, one.cost.seconds) for one in plans.curve]
    others = {name: sorted({(one.peak, one.seconds) for one in costs}) for name, costs in sorted(plans.baselines.items())}
    slowest = max(seconds for _, seconds in found)
    # Simpler plans take longer. The quickest of each are to be seen, unless they would leave the curve at the bottom of the picture.
    quickest = [min(seconds for _, seconds in points) for points in others.values() if points]
    top = max([2 * slowest, *(1.1 * seconds for seconds in quickest if seconds <= _MOST_STRETCH * slowest)]) or 1e-6
    kept = plans.save_all.peak
    left, right = min(plans.floor, *(peak for peak, _ in found)), max([kept, *(peak for points in others.values() for peak, _ in points)])
    bound = sorted((one.budget, one.bound) for one in plans.planned if one.bound is not None)
    curves = [_curve("plans found", found, Style.STEPS), _curve("no plan is quicker", bound, Style.LINE, dashed=True)]
    for name, points in others.items():
        inside = [point for point in points if point[1] <= top]
        beyond = len(points) - len(inside)
        curves.append(_curve(f"{name} ({beyond} slower)" if beyond else name, inside, Style.POINTS))
    ends = ((plans.floor, "no plan needs less than"), (kept, "everything kept:"))
    marks = tuple(Mark(peak, f"{words} {humanise(peak, Kind.BYTES)}") for peak, words in ends)
    x = Column("peak", Kind.BYTES, "peak of tensors")
    y = Column("extra", Kind.SECONDS, "extra time", provenance=Provenance.MODELLED)
    words = "extra time (modelled) by peak"
    return Panel(f"{label}: {words}" if label else words, x, y, tuple(curves), marks, left=left, right=right, top=top)


def _curve(name: str, points: Sequence[tuple[float, float]], style: Style, *, dashed: bool = False) -> Curve:
    return Curve(name, [x for x, _ in points], [y for _, y in points], style, dashed)
