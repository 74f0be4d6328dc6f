"""The two lines above every screen: whether it fits and what it takes, and what that is for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from irscope.ir.dims import Dim
from irscope.ir.graph import Role
from irscope.ir.program import Program
from irscope.report.celltext import SIGNS
from irscope.report.printable import cut_middle, display_width
from irscope.report.report import Report
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity, plain
from irscope.training import Trace
from irscope.tui.amounts import amount
from irscope.tui.memory.lives import peak_text
from irscope.tui.results import Results
from irscope.tui.text import Line, Span, Symbols, cut_line

_SHORTEST_NAME, _LONGEST_NAME = 12, 40
_LONGEST_FORMULA = 36
_WIDE = 100
"""From so many columns on the verdict has its number in the header."""


def header_lines(program: Program, nodes: int, results: Results, width: int, symbols: Symbols) -> list[Line]:
    """Return the header: the model and the context of the numbers; below, the verdict, the peak and the other totals. A part without room
    is left out whole."""
    step = [Span(symbols.clean(text), "name") for text in _about_step(program, results)]
    room = width - _SHORTEST_NAME - sum(display_width(one.text) + display_width(symbols.glyphs.separator) for one in step)
    context = [*step, *(Span(symbols.clean(text), "name") for text in results.context.words(room))]
    taken = display_width(symbols.glyphs.separator.join(["", *(one.text for one in context)]))
    name = program.path.replace("\\", "/").rpartition("/")[2] or program.graph.name
    room = min(max(width - taken, _SHORTEST_NAME), _LONGEST_NAME)
    heading = Span(cut_middle(symbols.clean(name), room, symbols.glyphs.ellipsis), "heading")
    totals = list(_totals(program, results, width, symbols))
    facts = [*_about_model(program, nodes, symbols)]
    return [line_of(line, width, symbols) for line in ([heading, *context, *facts], totals)]


def line_of(spans: Sequence[Span], width: int, symbols: Symbols) -> Line:
    """Return the first, and what of the others has room for all of it."""
    line: list[Span] = []
    taken = 0
    apart = Span(symbols.glyphs.separator, "faint")
    for span in spans:
        added = [apart, span] if line else [span]
        room = sum(display_width(one.text) for one in added)
        if not line or taken + room <= width:
            line += added
            taken += room
    return cut_line(line, width, symbols)


def _about_step(program: Program, results: Results) -> Iterator[str]:
    """Return what a training step is of: its optimizer, and the first input where no size was stated."""
    trace = program.training
    if not isinstance(trace, Trace):
        return
    yield f"training step{f', {trace.optimizer}' if trace.optimizer not in ('', 'none') else ''}"
    given = [value for value in program.graph.inputs if value.role is Role.INPUT]
    if given and not results.context.sizes:
        more = f" +{len(given) - 1}" if len(given) > 1 else ""
        yield f"{given[0].name} {given[0].type.text.partition('@')[0]}{more}"


def _about_model(program: Program, nodes: int, symbols: Symbols) -> Iterator[Span]:
    size = f"{nodes:,} {'node' if nodes == 1 else 'nodes'}" if program.has_graph else "no graph"
    yield Span(f"{symbols.clean(program.format)}, {size}")
    for one in program.guesses:
        yield Span(f"assumed {symbols.clean(f'{one.what}={one.value}')}", "unknown")


def _totals(program: Program, results: Results, width: int, symbols: Symbols) -> Iterator[Span]:
    if results.verdict is not None:
        yield results.verdict.short(symbols, is_brief=width < _WIDE)
    if not program.has_graph:
        size, room = None if results.params is None else results.params.summary.get("bytes"), results.verdict and results.verdict.room
        if isinstance(size, int) and room:
            yield Span(f"weights {humanise(size, Kind.BYTES)} of {humanise(room, Kind.BYTES)}")
        yield _parameters_span(results, width, symbols)
        yield from (Span(f"{what} {symbols.unknown}", "unknown") for what in ("FLOPs", "peak"))
        return
    sign = SIGNS[Provenance.ASSUMED] if program.guesses else ""
    yield _peak_span(results, sign, symbols)
    yield _flops_span(results, sign, symbols)
    yield _parameters_span(results, width, symbols)
    yield _known_span(results, symbols)


def _parameters_span(results: Results, width: int, symbols: Symbols) -> Span:
    report = results.params
    if report is None:
        return _waiting("parameters", results.has_failed("params"), symbols)
    total = report.summary.get("bytes")
    if isinstance(total, Quantity) and total.shown is None:
        return Span("parameters among the inputs")
    count, size = _summary_cell(report, "count", Kind.COUNT, symbols), _summary_cell(report, "bytes", Kind.BYTES, symbols)
    coverage = report.coverage
    partial = coverage is not None and coverage.known < coverage.total
    sign = symbols.at_least if partial else ""
    return Span(f"{sign}{count} parameters{f' ({sign}{size})' if width >= _WIDE else ''}")


def _flops_span(results: Results, sign: str, symbols: Symbols) -> Span:
    costs = results.costs
    if costs is None:
        return _waiting("FLOPs", results.has_failed("flops"), symbols)
    missing = sum(len(nodes) for nodes in costs.unknown.values())
    if missing and missing >= costs.counted:
        return Span(f"{symbols.unknown} FLOPs", "unknown")
    total = costs.total.flops
    text = _short_amount(results.binding.of(total), Kind.FLOPS, symbols) or _short_amount(results.complete.of(total), Kind.FLOPS, symbols)
    if text is None:
        return Span(f"FLOPs depend on {_symbol_names(results, symbols)}")
    return Span(f"{symbols.at_least if missing else ''}{sign}{text}")


def _peak_span(results: Results, assumed: str, symbols: Symbols) -> Span:
    live, timeline = results.live, results.timeline
    if live is None or timeline is None:
        return _waiting("peak", results.has_failed("liveness"), symbols)
    if live.unsized and not live.ranges:
        return Span(f"peak {symbols.unknown}", "unknown")
    found = results.sum_for(results.binding)
    if found is not None and timeline.peak is not None:
        sign = assumed or SIGNS.get(found.found.peak.provenance, "")
        return Span(f"{found.found.of} peak {peak_text(found.found, sign, symbols.at_least)} at step {timeline.peak:,}")
    sign = f"{symbols.at_least if live.unsized else ''}{assumed}"
    if timeline.peak is not None and not timeline.has_unknown:
        return Span(f"tensor peak {sign}{timeline.text_at(timeline.peak)} at step {timeline.peak:,}")
    text = _short_amount(_bound_peak(results), Kind.BYTES, symbols)
    return Span(f"tensor peak {sign}{text}" if text is not None else f"tensor peak depends on {_symbol_names(results, symbols)}")


def _bound_peak(results: Results) -> Dim | None:
    """Weights, inputs and activations at their most, as a formula."""
    assert results.live is not None
    total: Dim = results.live.peak
    for size in results.live.resident.values():
        total = total + (0 if size is None else size)
    return results.binding.of(total)


def _short_amount(value: Dim | None, kind: Kind, symbols: Symbols) -> str | None:
    """Return a number, or a formula short enough to be read; None for a longer one."""
    text = amount(value, kind, symbols)
    return text if len(text) <= _LONGEST_FORMULA else None


def _symbol_names(results: Results, symbols: Symbols) -> str:
    names = symbols.clean(", ".join(results.free_symbols)) or "the data"
    return cut_middle(names, _LONGEST_FORMULA, symbols.glyphs.ellipsis)


def _known_span(results: Results, symbols: Symbols) -> Span:
    parts: list[str] = []
    if results.costs is not None:
        missing = sum(len(nodes) for nodes in results.costs.unknown.values())
        parts.append(f"costs {results.costs.counted - missing:,}/{results.costs.counted:,}")
    if results.live is not None:
        sized = len(results.live.ranges)
        parts.append(f"sizes {sized:,}/{sized + len(results.live.unsized):,}")
    return Span(f"known: {', '.join(parts)}") if parts else _waiting("known", results.has_failed("flops", "liveness"), symbols)


def _waiting(what: str, failed: bool, symbols: Symbols) -> Span:
    return Span(f"{what} {symbols.unknown if failed else symbols.waiting}", "unknown" if failed else "faint")


def _summary_cell(report: Report, key: str, kind: Kind, symbols: Symbols) -> str:
    return symbols.clean(humanise(plain(report.summary.get(key)), kind, symbols.unknown))
