"""Plans of an arena for others: MiniMalloc's table, JSON, a map of addresses, and viewers of traces and of models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from html import escape
from types import MappingProxyType
from typing import Any

from irscope.ir.graph import Names, Node
from irscope.passes.lifetimes.lives import label_of
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


# ----------------------------------------------------------------------------------------------------
# A plan of an arena for viewers of traces and of models: Perfetto, speedscope, Netron and Model Explorer.

_STEP = 1_000
"""Microseconds that stand for one step: a plan knows no time."""
_NODES = 1
_COLOURS = ({"stop": 0.0, "bgColor": "#ffffff"}, {"stop": 1.0, "bgColor": "#d55e00"})


def perfetto(planned: Planned) -> dict[str, Any]:
    """Return a Chrome trace: nodes in their order, the life of each buffer with its address, and bytes alive; one step is a millisecond."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "planned arena"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": _NODES, "args": {"name": "nodes"}},
    ]
    draft = planned.draft
    needs = draft.problem.needs(planned.order)
    for step, op in enumerate(planned.order):
        node = draft.nodes[op]
        place = {"op": node.op, "module": node.scope.path, "where": str(node.loc) if node.loc is not None else "", "as_written": op}
        slice_ = {"ph": "X", "name": node.name, "cat": "node", "pid": 0, "tid": _NODES, "ts": step * _STEP, "dur": _STEP, "args": place}
        events += [slice_, {"ph": "C", "name": "alive", "pid": 0, "ts": step * _STEP, "args": {"bytes": needs[step]}}]
    end = len(planned.order) * _STEP
    events.append({"ph": "C", "name": "alive", "pid": 0, "ts": end, "args": {"bytes": draft.problem.at_end}})
    for number, (one, offset) in enumerate(zip(planned.buffers, planned.plan.offsets, strict=True)):
        # Lives overlap without nesting, so they are pairs with a number of their own.
        same = {"name": printable(one.name) or "unnamed", "cat": "buffer", "id": number, "pid": 0}
        events.append({"ph": "b", **same, "ts": one.lower * _STEP, "args": {"size": one.size, "offset": offset}})
        events.append({"ph": "e", **same, "ts": one.upper * _STEP})
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"time": "one node of the model is one millisecond"}}


def speedscope(planned: Planned) -> dict[str, Any]:
    """Return what lies in the arena at the peak, as a flame graph of bytes: module calls, node, buffer."""
    needs = planned.draft.problem.needs(planned.order)
    step = max(range(len(needs)), key=needs.__getitem__, default=0)
    frames: list[dict[str, Any]] = []
    known: dict[str, int] = {}

    def frame(name: str, file: str = "", line: int = 0) -> int:
        if name not in known:
            known[name] = len(frames)
            frames.append({"name": name, **({"file": file, "line": line} if file else {})})
        return known[name]

    samples: list[list[int]] = []
    weights: list[int] = []
    makers = {one.name: one for one in planned.draft.nodes}
    for one in planned.buffers:
        if not one.lower <= step < one.upper:
            continue
        stack: list[int] = []
        node = planned.draft.nodes[planned.order[one.lower]] if one.lower < len(planned.order) else makers.get(one.name)
        if node is not None:
            path = node.scope.path
            parts = path.split(".") if path else []
            stack = [frame(".".join(parts[: depth + 1])) for depth in range(len(parts))]
            loc = node.loc
            stack.append(frame(f"{node.op} {node.name}", loc.file if loc is not None else "", loc.line if loc is not None else 0))
        stack.append(frame(f"buffer {printable(one.name)}"))
        samples.append(stack)
        weights.append(one.size)
    where = planned.draft.nodes[planned.order[step]].name if planned.order else "nothing"
    profile = {
        "type": "sampled",
        "name": f"alive at the peak, {where}",
        "unit": "bytes",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
    return {"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": {"frames": frames}, "profiles": [profile]}


def netron(planned: Planned, names: Mapping[Node, str] = MappingProxyType({})) -> dict[str, Any]:
    """Return what Netron 9.3 opens on top of a model: the step of each node, bytes alive while it runs, and where each tensor lies.

    `names` are those of nodes in the file, where they are others than here.
    """
    draft = planned.draft
    needs = draft.problem.needs(planned.order)
    metrics: list[dict[str, Any]] = []

    def tell(kind: str, target: str, name: str, value: int) -> None:
        metrics.append({"kind": kind, "target": target, "name": name, "value": value, "type": "int64"})

    # Netron leaves out rows for the model without a target, and knows names up to the end of their first line.
    for name, value in (("arena bytes", planned.arena), ("max live bytes", planned.max_live)):
        tell("model", "", name, value)
    for step, op in enumerate(planned.order):
        target = names.get(draft.nodes[op], draft.nodes[op].name)
        tell("node", target, "step", step)
        tell("node", target, "alive bytes", needs[step])
    values = {label_of(value) for value in draft.values}
    for one, offset in zip(planned.buffers, planned.plan.offsets, strict=True):
        if one.name not in values:
            continue
        values.discard(one.name)
        for name, value in (("arena offset", offset), ("arena bytes", one.size), ("first step", one.lower), ("last step", one.upper - 1)):
            tell("value", printable(one.name), name, value)
    return {"signature": "netron:attachment", "metadata": [], "metrics": metrics}


def model_explorer(planned: Planned) -> dict[str, Any]:
    """Node data of Model Explorer: bytes alive while each node runs, from white to orange."""
    draft = planned.draft
    needs = draft.problem.needs(planned.order)
    results = {draft.nodes[op].name: {"value": needs[step]} for step, op in enumerate(planned.order)}
    return {"main": {"results": results, "gradient": [*_COLOURS]}}


VIEWERS: dict[str, Callable[[Planned], dict[str, Any]]] = {
    "perfetto": perfetto,
    "speedscope": speedscope,
    "netron": netron,
    "explorer": model_explorer,
}
"""By what stands before .json in the name of a file."""


def viewer_json(planned: Planned, viewer: str, names: Mapping[Node, str]) -> Iterator[str]:
    """Yield the file for one of the viewers; `names` are those of nodes in the model's file."""
    made = netron(planned, names) if viewer == "netron" else VIEWERS[viewer](planned)
    yield json.dumps(made, separators=(",", ":"))
    yield "\n"
