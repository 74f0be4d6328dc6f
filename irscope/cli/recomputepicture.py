"""The picture of peak against recompute time: plans found, what no plan can beat, and simpler planners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from irscope.memory.checkpointing.solve import CheckpointPlans
from irscope.report.table import Column, Series
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 640, 300, 90, 30, 50
_COLOURS = ("#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_STYLE = (
    "svg{font:12px sans-serif;background:#fff}text{fill:#222}.axis{fill:none;stroke:#444}"
    ".found{fill:none;stroke:#0072b2;stroke-width:2}.bound{fill:none;stroke:#222;stroke-dasharray:4 3}"
)


def recompute_series(plans: CheckpointPlans) -> Series:
    """Extra time by peak: the quickest plan found within each peak."""
    points = plans.curve
    data: dict[str, list[object]] = {"peak": [one.cost.peak for one in points], "extra": [one.cost.seconds for one in points]}
    return Series(
        "extra time by peak",
        Column("peak", Kind.BYTES),
        (Column("extra", Kind.SECONDS, provenance=Provenance.MODELLED),),
        data,
        stacked=False,
    )


def recompute_picture(plans: CheckpointPlans, title: str) -> Iterator[str]:
    """An SVG."""
    found = [(one.cost.peak, one.cost.seconds) for one in plans.curve]
    bound = sorted((one.budget, one.bound) for one in plans.planned if one.bound is not None)
    others = {name: [(one.peak, one.seconds) for one in costs] for name, costs in sorted(plans.baselines.items())}
    right = max(peak for peak, _ in found)
    left = min(plans.floor, min(peak for peak, _ in found))
    # Simpler plans take much longer; twice what is needed leaves the curve readable.
    top = 2 * max(seconds for _, seconds in found) or 1e-6
    scale = _Scale(left, right, top)
    size = f'width="{_LEFT + _WIDTH + 20}" height="{_TOP + _HEIGHT + _BOTTOM + 20 * (len(others) // 3 + 1)}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>\n'
    yield f'<text x="{_LEFT}" y="16">{escape(title)}</text>\n'
    yield from _frame(scale)
    legend: list[tuple[str, str]] = [("#0072b2", "found"), ("#222", "no plan is quicker (dashed)")]
    for number, (name, points) in enumerate(others.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        legend.append((colour, name))
        inside = sorted({scale.at(*point) for point in points if point[0] <= right and point[1] <= top})
        yield "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in inside) + "\n"
    if len(bound) > 1:
        yield f'<path class="bound" d="{_path([scale.at(*point) for point in bound])}"/>\n'
    yield f'<path class="found" d="{_path(_steps([scale.at(*point) for point in found]))}"/>\n'
    for number, (colour, name) in enumerate(legend):
        x, y = _LEFT + 210 * (number % 3), _TOP + _HEIGHT + 42 + 18 * (number // 3)
        yield f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/><text x="{x + 15}" y="{y}">{escape(name)}</text>\n'
    yield "</svg>\n"


class _Scale:
    """From bytes and seconds to places."""

    def __init__(self, left: int, right: int, top: float) -> None:
        self.left, self.right, self.top = left, right, top

    def at(self, peak: int, seconds: float) -> tuple[float, float]:
        span = self.right - self.left or 1
        return _LEFT + _WIDTH * (peak - self.left) / span, _TOP + _HEIGHT * (1 - min(seconds / self.top, 1.0))


def _frame(scale: _Scale) -> Iterator[str]:
    bottom = _TOP + _HEIGHT
    yield f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{_LEFT + _WIDTH}"/>\n'
    for share in (0.0, 0.5, 1.0):
        shown = humanise(share * scale.top, Kind.SECONDS)
        yield f'<text x="{_LEFT - 6}" y="{bottom - _HEIGHT * share + 4:.0f}" text-anchor="end">{escape(shown)}</text>\n'
    yield f'<text x="{_LEFT}" y="{bottom + 18}">peak {escape(humanise(scale.left, Kind.BYTES))}</text>'
    yield f'<text x="{_LEFT + _WIDTH}" y="{bottom + 18}" text-anchor="end">{escape(humanise(scale.right, Kind.BYTES))}</text>\n'


def _steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A plan holds until the next one, which needs more memory."""
    drawn: list[tuple[float, float]] = []
    for at, (x, y) in enumerate(points):
        if at:
            drawn.append((x, points[at - 1][1]))
        drawn.append((x, y))
    return drawn


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
