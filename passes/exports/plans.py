"""Plans of an arena for others: MiniMalloc's table, JSON, and a map of addresses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

from irscope.ir.graph import Names
from irscope.passes.order.plan import Planned
from irscope.report.csvout import csv_lines
from irscope.report.picture import ticks
from irscope.report.plot import COLOURS
from irscope.report.printable import printable
from irscope.report.table import Table
from irscope.report.units import Kind, humanise

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 1000, 560, 90, 24, 38


def minimalloc_csv(planned: Planned) -> str:
    """Columns id, lower, upper, size, offset: what MiniMalloc and idealloc read and write. Every id is there once."""
    ids = Names()
    rows = (
        (ids.unique(one.name or "unnamed"), one.lower, one.upper, one.size, offset)
        for one, offset in zip(planned.buffers, planned.plan.offsets, strict=True)
    )
    return "".join(csv_lines(Table.of(rows, ["id", "lower", "upper", "size", "offset"])))


def plan_json(planned: Planned, alignment: int) -> str:
    """Return the plan as one document."""
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
    """Yield the lines of an SVG picture: steps from left to right, addresses from bottom to top, a rectangle a buffer; each tells its name
    when pointed at."""
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
            f'fill="{COLOURS[number % len(COLOURS)]}" stroke="#ffffff" stroke-width="0.4"><title>{escape(words)}</title></rect>\n'
        )
    yield f'<path d="M{_LEFT} {_TOP}V{_TOP + _HEIGHT}H{_LEFT + _WIDTH}" fill="none" stroke="#000000"/>\n'
    for address, words in ticks(0, arena, Kind.BYTES):
        y = _TOP + _HEIGHT * (1 - address / arena)
        yield f'<path d="M{_LEFT - 4} {y:.1f}h4" stroke="#000000"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(words)}</text>\n'
    for step, words in ticks(0, steps, Kind.INDEX):
        x, below = _LEFT + _WIDTH * step / steps, _TOP + _HEIGHT
        yield f'<path d="M{x:.1f} {below}v4" stroke="#000000"/>'
        yield f'<text x="{x:.1f}" y="{below + 16}" text-anchor="middle">{escape(words)}</text>\n'
    yield f'<text x="{_LEFT + _WIDTH / 2:.1f}" y="{_TOP + _HEIGHT + 30}" text-anchor="middle">step</text>\n'
    yield "</svg>\n"
