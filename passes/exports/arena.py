"""A plan of an arena for others: MiniMalloc's table, JSON, and a map of addresses over time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

from irscope.ir.names import Names
from irscope.passes.plan import Planned
from irscope.report.csvout import csv_lines
from irscope.report.printable import printable
from irscope.report.table import Table
from irscope.report.units import Kind, humanise

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 1000, 560, 90, 24, 30
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#777777")
"""Okabe and Ito's, told apart by most eyes."""


def minimalloc_csv(planned: Planned) -> str:
    """Columns id, lower, upper, size, offset: what MiniMalloc and idealloc read and write. Every id is there once."""
    ids = Names()
    rows = (
        (ids.unique(one.name or "unnamed"), one.lower, one.upper, one.size, offset)
        for one, offset in zip(planned.buffers, planned.plan.offsets, strict=True)
    )
    return "".join(csv_lines(Table.of(rows, ["id", "lower", "upper", "size", "offset"])))


def plan_json(planned: Planned, alignment: int) -> str:
    """The plan as one document."""
    rows = [
        {"name": one.name, "lower": one.lower, "upper": one.upper, "size": one.size, "offset": offset}
        for one, offset in zip(planned.buffers, planned.plan.offsets, strict=True)
    ]
    document = {
        "schema": "irscope.plan/1",
        "arena_bytes": planned.arena,
        "max_live_bytes": planned.max_live,
        "alignment": alignment,
        "buffers": rows,
    }
    return json.dumps(document, indent=1) + "\n"


def address_map(planned: Planned) -> Iterator[str]:
    """An SVG picture: steps from left to right, addresses from bottom to top, a rectangle a buffer; each tells its name when pointed at."""
    steps = max((one.upper for one in planned.buffers), default=1)
    arena = max(planned.arena, 1)
    width, height = _LEFT + _WIDTH + 10, _TOP + _HEIGHT + _BOTTOM
    title = f"arena of {humanise(planned.arena, Kind.BYTES)}, at most {humanise(planned.max_live, Kind.BYTES)} alive"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">\n'
    yield f'<title>{escape(title)}</title>\n<rect width="{width}" height="{height}" fill="#ffffff"/>\n'
    yield f'<text x="{_LEFT}" y="{_TOP - 8}">{escape(title)}</text>\n'
    for number, (one, offset) in enumerate(zip(planned.buffers, planned.plan.offsets, strict=True)):
        left, right = (_LEFT + _WIDTH * step / steps for step in (one.lower, one.upper))
        top, bottom = (_TOP + _HEIGHT * (1 - place / arena) for place in (offset + one.size, offset))
        words = f"{printable(one.name)}: {humanise(one.size, Kind.BYTES)} at {offset}, steps {one.lower} to {one.upper - 1}"
        yield (
            f'<rect x="{left:.2f}" y="{top:.2f}" width="{right - left:.2f}" height="{bottom - top:.2f}" '
            f'fill="{_COLOURS[number % len(_COLOURS)]}" stroke="#ffffff" stroke-width="0.4"><title>{escape(words)}</title></rect>\n'
        )
    yield f'<path d="M{_LEFT} {_TOP}V{_TOP + _HEIGHT}H{_LEFT + _WIDTH}" fill="none" stroke="#000000"/>\n'
    for share in (0.0, 0.5, 1.0):
        words = humanise(round(planned.arena * share), Kind.BYTES)
        yield f'<text x="{_LEFT - 6}" y="{_TOP + _HEIGHT * (1 - share) + 4:.1f}" text-anchor="end">{escape(words)}</text>\n'
    for share, anchor in ((0.0, "start"), (1.0, "end")):
        step = round(steps * share)
        yield f'<text x="{_LEFT + _WIDTH * share:.1f}" y="{_TOP + _HEIGHT + 16}" text-anchor="{anchor}">step {step}</text>\n'
    yield "</svg>\n"
