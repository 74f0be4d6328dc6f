"""Boxes within boxes as pictures: SVG, and a part of a page in which modules fold and unfold.

For a picture of a program: `Drawing(BoxTree.of(program), paint)`. `svg_file(drawing)` is a file, `graph_part(drawing, "graph")` is what a
page embeds (it needs `GRAPH_STYLE` and, once behind all of them, `graph_script()`), `html_file(drawing)` is a page that holds nothing else.
Layout is in `irscope.report.layered` and `boxes`; what colours mean is in a `Paint`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final

from irscope.immutable import immutable
from irscope.ir.graph import Value
from irscope.report.boxes import Box, BoxKind, BoxTree, Contents, Line, Measure, Placed, bytes_of, scene, within_module
from irscope.report.names import cut_name
from irscope.report.plot import svg_text
from irscope.report.printable import display_width, legible
from irscope.report.units import Kind, humanise

MOST_INTERACTIVE: Final = 25_000
"""Boxes that a page can unfold; beyond it the deepest levels stay folded, so that the file stays within some megabytes."""
_LETTER, _BOLD, _SMALL = 6.3, 7.0, 5.8
"""Usual widths of letters: of 11 points, of names, of what stands at edges."""
_LONGEST, _LONGEST_FLOW, _MOST_FACT = 30, 34, 300
_HEIGHT, _HEADING, _GAP, _ROWS, _BORDER = 38.0, 34.0, 22.0, 36.0, 14.0
_PAD, _LINE = 12, 17
PLAIN: Final = "#f3f4f6"

GRAPH_STYLE: Final = """
.irscope-graph { position: relative; }
.irscope-graph svg { background: #fff; color: #1f2937; width: 100%; max-width: none; height: auto; max-height: 200vh; }
.irscope-graph.live svg { height: 36rem; touch-action: none; cursor: grab; border: 1px solid #8886; border-radius: 4px; }
.irscope-graph text { font: 11px system-ui, sans-serif; fill: #1f2937; }
.irscope-graph .name { font-size: 12px; font-weight: 600; }
.irscope-graph .flow { font-size: 10px; fill: #4b5563; paint-order: stroke; stroke: #fff; stroke-width: 4px; }
.irscope-graph .box rect { stroke: #6b7280; stroke-width: 1; }
.irscope-graph .box rect.heading, .irscope-graph .box rect.bar { stroke: none; }
.irscope-graph .box.open > rect:first-of-type { stroke: #9ca3af; }
.irscope-graph .box:is(.module, .section, .alike):not(.open), .irscope-graph .heading { cursor: pointer; }
.irscope-graph .box:focus-visible { outline: none; }
.irscope-graph .box:focus-visible > rect:first-of-type { stroke: #0072b2; stroke-width: 2.5; }
.irscope-graph .edge { fill: none; stroke: #6b7280; stroke-width: 1.2; }
.irscope-graph .edge.back { stroke-dasharray: 4 3; }
.irscope-graph .edge:hover { stroke: #0072b2; stroke-width: 2.5; }
.irscope-graph .graph-bar { display: none; gap: .4rem; margin: .3rem 0; }
.irscope-graph.live .graph-bar { display: flex; flex-wrap: wrap; }
.irscope-graph .graph-bar button { font: inherit; padding: .1rem .6rem; }
.irscope-graph .graph-facts:empty { display: none; }
.irscope-graph .graph-facts { position: absolute; right: .6rem; top: 3rem; max-width: min(24rem, 60%); max-height: 30rem; overflow: auto;
  background: #fffffff2; color: #1f2937; border: 1px solid #8888; border-radius: 4px; padding: .3rem .8rem .6rem; font-size: 12px; }
.irscope-graph .graph-facts h3 { margin: .3rem 0; font-size: 13px; overflow-wrap: anywhere; }
.irscope-graph .graph-facts dl { display: grid; grid-template-columns: auto 1fr; gap: .1rem .7rem; margin: 0; }
.irscope-graph .graph-facts dt { color: #4b5563; }
.irscope-graph .graph-facts dd { margin: 0; overflow-wrap: anywhere; white-space: pre-wrap; }
@media print { .irscope-graph .graph-bar, .irscope-graph .graph-facts { display: none; } .irscope-graph.live svg { height: auto; } }
"""
"""Style sheet of a page with a drawing."""


def _no_bars(box: Box) -> Sequence[tuple[str, float]]:
    return ()


def _no_facts(box: Box) -> Sequence[tuple[str, str]]:
    return ()


@immutable(slots=False)
class Paint:
    """Meaning of the colours."""

    fill: Callable[[Box], str]
    legend: tuple[tuple[str, str], ...] = ()
    """Colours with what they stand for."""
    bars: Callable[[Box], Sequence[tuple[str, float]]] = _no_bars
    """Shares of a folded group by colour, drawn below its name."""
    note: str = ""


@immutable(slots=False)
class Drawing:
    """A graph to draw, with its colours and notes."""

    tree: BoxTree
    paint: Paint
    title: str = ""
    notes: tuple[str, ...] = ()
    opened: Collection[int] = field(default=())
    """The groups that are open; none: as many levels as are readable."""
    facts: Callable[[Box], Sequence[tuple[str, str]]] = _no_facts
    """Facts about a box beside its name: shown on hover and click."""

    @property
    def open_groups(self) -> Collection[int]:
        return self.opened or self.tree.readable()[0]


def box_label(box: Box) -> str:
    """Return a box's name, cut to fit."""
    return cut_name(legible(within_module(box)), _LONGEST)


def under(box: Box) -> str:
    """Return the second line of a folded box."""
    if box.is_group and box.kind is not BoxKind.NODE:
        count = f"{box.leaves:,} nodes"
        kind = "" if box.kind in (BoxKind.SECTION, BoxKind.REGION) else cut_name(legible(box.detail), _LONGEST)
        return f"{kind}, {count}" if kind else count
    if box.value is not None:
        return cut_name(legible(str(box.value.type)), _LONGEST)
    return cut_name(legible(box.detail), _LONGEST)


def flow_label(values: Sequence[Value]) -> str:
    """Return what stands at an edge: the type of its tensor, or how many there are, and bytes."""
    size = bytes_of(values)
    amount = humanise(size, Kind.BYTES) if isinstance(size, int) else ""
    kind = str(values[0].type) if len(values) == 1 else f"{len(values)} tensors"
    return "  ".join(part for part in (cut_name(legible(kind), _LONGEST_FLOW), amount) if part)


def flow_title(values: Sequence[Value]) -> str:
    """Return every tensor of an edge, for who points at it."""
    lines = []
    for value in values:
        size = value.type.tensor_bytes
        known = f", {humanise(size, Kind.BYTES) if isinstance(size, int) else f'{size} bytes'}" if size is not None else ", size unknown"
        lines.append(f"{legible(value.name or 'unnamed')}: {legible(str(value.type))}{known}")
    return "\n".join(lines)


def _all_facts(drawing: Drawing, box: Box) -> list[tuple[str, str]]:
    """Return a box's facts, the texts of a model cut to a length that a page can show."""
    return [(key, legible(text)[:_MOST_FACT]) for key, text in (("name", box.name), *drawing.facts(box))]


class _Widths:
    """Widths of boxes: of names and the lines below them, and at the edge of the values that leave them."""

    def __init__(self, tree: BoxTree) -> None:
        self._leaving: dict[int, dict[Value, None]] = {}
        for flow in tree.flows:
            self._leaving.setdefault(flow.source, {})[flow.value] = None
        self._known: dict[int, float] = {}

    def __call__(self, box: Box) -> float:
        cached = self._known.get(box.number)
        if cached is None:
            name = (display_width(box_label(box)) + 2 * box.is_group) * _BOLD
            below = display_width(under(box)) * _LETTER
            flow = max((display_width(flow_label([value])) * _SMALL for value in self._leaving.get(box.number, ())), default=0)
            heading = name + display_width(cut_name(legible(box.detail), _LONGEST)) * _BOLD if box.is_group else 0
            cached = self._known[box.number] = round(max(name, below, flow, heading, 60.0) + 16, 1)
        return cached


def _box_measure(tree: BoxTree) -> Measure:
    return Measure(_Widths(tree), _HEIGHT, _HEADING, _GAP, _ROWS, _BORDER)


_LEGEND: Final = 480
"""Points that the legend has at least, so that it is not one column above a narrow drawing."""


def svg_file(drawing: Drawing) -> Iterator[str]:
    """Yield a picture as a file: title, notes and legend above the drawing."""
    parts, width, height = _svg_scene(drawing, "graph")
    head = [drawing.title, *drawing.notes, *([drawing.paint.note] if drawing.paint.note else [])]
    width = max(width, _LEGEND if drawing.paint.legend else 0)
    legend, rows = _svg_legend(drawing.paint, width, len(head) * _LINE)
    above = len(head) * _LINE + rows * _LINE + 10
    wide = max(width, max((display_width(line) * _LETTER for line in head), default=0.0)) + 2 * _PAD
    high = height + above + 2 * _PAD
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{high:.0f}" viewBox="0 0 {wide:.0f} {high:.0f}" '
    yield f'class="irscope-graph"><title>{svg_text(drawing.title)}</title>\n<style>{_FILE_STYLE}</style>\n'
    yield f'<rect width="{wide:.0f}" height="{high:.0f}" fill="#fff"/>\n'
    for at, line in enumerate(head):
        yield f'<text class="{"name" if not at else "note"}" x="{_PAD}" y="{_PAD + 12 + at * _LINE}">{svg_text(line)}</text>\n'
    yield from legend
    yield f'<g transform="translate({_PAD} {_PAD + above})">\n'
    yield from parts
    yield "</g>\n</svg>\n"


_FILE_STYLE: Final = "\n".join(
    line.replace(".irscope-graph ", "") for line in GRAPH_STYLE.splitlines() if any(
        key in line for key in ("graph text", ".name {", ".flow {", "box rect", "box.open", ".edge {", ".edge.back", ".edge:hover")
    )
)  # fmt: skip
"""The rules for what is drawn, without those for a page around it."""


def _svg_legend(paint: Paint, width: float, top: float) -> tuple[list[str], int]:
    parts: list[str] = []
    x, row = 0.0, 0
    for colour, words in paint.legend:
        wide = 18 + display_width(words) * _LETTER + 14
        if x and x + wide > width:
            x, row = 0.0, row + 1
        y = _PAD + top + row * _LINE
        parts.append(f'<rect x="{_PAD + x:.0f}" y="{y:.0f}" width="12" height="12" fill="{colour}" stroke="#6b7280"/>')
        parts.append(f'<text x="{_PAD + x + 17:.0f}" y="{y + 10:.0f}">{svg_text(words)}</text>\n')
        x += wide
    return parts, row + 1 if paint.legend else 0


def _svg_scene(drawing: Drawing, ident: str) -> tuple[Iterator[str], float, float]:
    """Return the elements of the drawing, its width and its height."""
    found = scene(drawing.tree, drawing.open_groups, _box_measure(drawing.tree))

    def parts() -> Iterator[str]:
        yield f'<defs><marker id="{ident}-head" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        yield '<path d="M0 0.5L8 4L0 7.5z" fill="#6b7280"/></marker></defs>\n<g class="scene">\n'
        for placed in found.boxes:
            yield _svg_box(drawing, placed)
        labels: dict[str, str] = {}
        for line in found.lines:
            yield _svg_line(line, ident)
            if line.has_label:
                (x, y), *_ = line.points
                where = f'x="{_n(x)}" y="{_n(y + 15)}"'
                labels.setdefault(where, f'<text class="flow" {where} text-anchor="middle">{escape(flow_label(line.values))}</text>\n')
        yield from labels.values()
        yield "</g>\n"

    return parts(), found.width, found.height


def _n(value: float) -> str:
    """Return a coordinate with at most one decimal, rounded as JavaScript rounds."""
    tenths = math.floor(value * 10 + 0.5)
    return f"{tenths // 10}" if tenths % 10 == 0 else f"{tenths / 10:.1f}"


def _svg_box(drawing: Drawing, placed: Placed) -> str:
    box, x, y, width, height, is_open = placed
    facts = escape("\n".join(f"{key}: {text}" for key, text in _all_facts(drawing, box)))
    kind = f"box {box.kind.value}{' open' if is_open else ''}"
    radius = 14 if box.value is not None else 4
    fill = "#ffffff" if is_open else drawing.paint.fill(box)
    parts = [
        f'<g class="{kind}" data-box="{box.number}"><title>{facts}</title>',
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="{radius}" fill="{fill}"/>',
    ]
    if is_open:
        detail = cut_name(legible(box.detail), _LONGEST)
        heading = f"− {box_label(box)}{f'  {detail}' if detail else ''}"
        parts.append(f'<rect class="heading" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="20" fill="#e8ecf1"/>')
        parts.append(f'<text class="name" x="{_n(x + 8)}" y="{_n(y + 14)}">{escape(heading)}</text>')
    else:
        middle, sign = _n(x + width / 2), "+ " if box.is_group else ""
        parts.append(f'<text class="name" x="{middle}" y="{_n(y + 15)}" text-anchor="middle">{sign}{escape(box_label(box))}</text>')
        parts.append(f'<text x="{middle}" y="{_n(y + 29)}" text-anchor="middle">{escape(under(box))}</text>')
        at = x + 4
        for colour, share in drawing.paint.bars(box):
            wide = share * (width - 8)
            parts.append(f'<rect class="bar" x="{_n(at)}" y="{_n(y + height - 4)}" width="{_n(wide)}" height="3" fill="{colour}"/>')
            at += wide
    return "".join(parts) + "</g>\n"


def _svg_line(line: Line, ident: str) -> str:
    (x0, y0), (_, y1), (x2, y2), (_, y3) = line.points
    middle = (y1 + y2) / 2
    path = f"M{_n(x0)} {_n(y0)}V{_n(y1)}C{_n(x0)} {_n(middle)} {_n(x2)} {_n(middle)} {_n(x2)} {_n(y2)}V{_n(y3)}"
    head = f' marker-end="url(#{ident}-head)"' if line.has_head else ""
    kind = "edge back" if line.is_back else "edge"
    return f'<path class="{kind}" d="{path}"{head}><title>{escape(flow_title(line.values))}</title></path>\n'


@cache
def graph_script() -> str:
    """Return the script that makes all drawings of a page fold; it belongs behind them."""
    return files("irscope.report").joinpath("graphview.js").read_text(encoding="utf-8")


def script_policy() -> str:
    """Return the hash by which a content security policy allows the script and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(graph_script().encode()).digest()).decode()}'"


def graph_part(drawing: Drawing, ident: str, *, alone: bool = False) -> Iterator[str]:
    """Yield the drawing as a part of a page: a picture as it is, which folds where the page runs `graph_script()`.

    `ident` is its name among the drawings of the page, letters and digits; `alone`: the page holds nothing else, the wheel zooms.
    """
    parts, width, height = _svg_scene(drawing, ident)
    yield f'<div class="irscope-graph" id="{ident}">\n<div class="graph-bar">'
    for act, words in (("unfold", "unfold a level"), ("fold", "fold a level"), ("in", "+"), ("out", "−"), ("fit", "fit")):
        yield f'<button type="button" data-act="{act}">{words}</button>'
    yield '</div>\n<p class="quiet">'
    yield " ".join(f'<span style="background:{colour}">&emsp;</span> {svg_text(words)} ' for colour, words in drawing.paint.legend)
    is_cut = len(drawing.tree.boxes) > MOST_INTERACTIVE
    cut = "more boxes than a page takes: the deepest levels do not unfold here, --around NODE draws a part of them" if is_cut else ""
    yield "".join(f"<br>{svg_text(line)}" for line in (*drawing.notes, drawing.paint.note, cut) if line)
    yield f'</p>\n<svg viewBox="-{_PAD} -{_PAD} {width + 2 * _PAD:.0f} {height + 2 * _PAD:.0f}" style="max-width:{width + 2 * _PAD:.0f}px" '
    yield f'role="group" aria-label="{svg_text(drawing.title or "graph")}">\n'
    yield from parts
    yield '</svg>\n<div class="graph-facts" aria-live="polite"></div>\n'
    yield f'<script type="application/json">{_json_in_page(_data(drawing, alone))}</script>\n</div>\n'


def html_file(drawing: Drawing) -> Iterator[str]:
    """Yield a page with the drawing alone. It loads nothing."""
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {script_policy()}"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{svg_text(drawing.title)}</title>\n<style>\nbody {{ font: 14px/1.5 system-ui, sans-serif; margin: .8rem; }}\n"
    yield f"h1 {{ font-size: 1.1rem; margin: 0; overflow-wrap: anywhere; }}\n{GRAPH_STYLE}"
    yield ".irscope-graph.live svg { height: calc(100vh - 9rem); }\n</style>\n</head>\n<body>\n"
    yield f"<h1>{svg_text(drawing.title)}</h1>\n"
    yield from graph_part(drawing, "graph", alone=True)
    yield f"<script>{graph_script()}</script>\n</body>\n</html>\n"


def _json_in_page(document: object) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data(drawing: Drawing, alone: bool) -> dict[str, object]:
    tree, paint, widths = drawing.tree, drawing.paint, _Widths(drawing.tree)
    can_open = _can_open(tree, drawing.open_groups)
    shown = [tree.boxes[0].number, *(child for group in sorted(can_open) for child in tree.boxes[group].children)]
    number = {old: new for new, old in enumerate(sorted(shown))}
    boxes = []
    for old in sorted(shown):
        box = tree.boxes[old]
        about = {"name": legible(box.name), "label": box_label(box), "detail": cut_name(legible(box.detail), _LONGEST), "under": under(box)}
        look = {"kind": box.kind.value, "fill": paint.fill(box), "bars": list(paint.bars(box)), "width": widths(box)}
        boxes.append({**about, **look, "parent": number.get(box.parent, -1), "facts": _all_facts(drawing, box)})
    return {
        "measure": {"height": _HEIGHT, "heading": _HEADING, "gap": _GAP, "rows": _ROWS, "border": _BORDER, "bend": 2.0},
        "alone": alone,
        "boxes": boxes,
        "groups": {number[group]: _group_data(tree.contents(group), number) for group in sorted(can_open)},
        "opened": sorted(number[group] for group in drawing.open_groups if group in can_open),
    }


def _can_open(tree: BoxTree, opened: Collection[int]) -> set[int]:
    """Return the groups that a page can open: all, or those of the levels that fit, and those that are open from the start."""
    if len(tree.boxes) <= MOST_INTERACTIVE:
        return {box.number for box in tree.boxes if box.is_group}
    return tree.readable(MOST_INTERACTIVE)[0] | set(opened)


def _group_data(contents: Contents, number: dict[int, int]) -> dict[str, object]:
    values = {(lane.source, lane.trunk): lane.values for lane in contents.lanes}
    layers = contents.layers
    return {
        "children": [number[child] for child in contents.children],
        "entries": contents.entries,
        "exits": contents.exits,
        "count": layers.count,
        "rows": layers.rows,
        "layer": layers.layer,
        "segments": [(segment.upper, segment.lower, segment.trunk, int(segment.is_back)) for segment in layers.segments],
        "trunks": [(*key, flow_label(values[key]), flow_title(values[key])) for key in contents.trunks],
    }
