"""The figures that decide between two models, at the start of the document of a comparison: what each takes and costs at the same sizes.

The numbers are those of the models' cards. Then comes where they differ; how nodes were matched is last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from irscope.errors import Cancelled, IrscopeError
from irscope.immutable import immutable
from irscope.ops.facts import OpRole
from irscope.ops.registry import plays
from irscope.passes.cost.count import Certainty
from irscope.passes.memory.tapes import WARM
from irscope.report.card import UNKNOWN, Card
from irscope.report.celltext import signed
from irscope.report.figures import FIGURES
from irscope.report.printable import one_line
from irscope.report.report import Document, Report
from irscope.report.units import Kind, humanise
from irscope.report.values import Cell, Provenance, Quantity, derived
from irscope.session import Model, stated_sizes
from irscope.tools.compare import model_comparison
from irscope.tools.compare.document import Measure, change_text
from irscope.tools.compare.models import ModelComparison
from irscope.tools.compare.weights import weights_headline
from irscope.tools.config import Chosen

_DEPENDENT: Final = ("runtime", "sizes", "file")
_ROWS: Final[Mapping[str, tuple[str, Kind]]] = {
    figure.compared: (figure.key, figure.kind)
    for figure in sorted(FIGURES.values(), key=lambda figure: _DEPENDENT.index(figure.of))
    if figure.compared
}
"""Rows of the comparison by name: the field of the card, and its kind."""
_AGAIN: Final = ("parameters", "parameter_bytes", "device_peak_bytes", "device_reserved_bytes")
"""Totals of the comparison that text does not repeat: those of the first two runs at the worst stand above."""
_GROUP: Final = "decides"
"""Key of the group in JSON."""


@immutable(slots=False)
class Decision:
    """The cards of both at the same sizes."""

    a: Card
    b: Card
    chosen: Chosen
    """The device."""
    is_open: bool
    """True where sizes were open, so that totals of the comparison are formulas."""
    notes: tuple[str, ...]


def decide(compared: ModelComparison, chosen: Chosen) -> Decision:
    """Return the cards of both models at the sizes that the first one's card is for."""
    from irscope.tools.card import make_card  # not at the top: `irscope compare --help` does without all that it looks up

    first, second = compared.a.model, compared.b.model
    sizes = {size.symbol: size for size in stated_sizes(first.program, first.options.bind) if size.is_open}
    a, problem = _at_sizes(first, {name: size.size for name, size in sizes.items()})
    own_name = {name: own for own, name in compared.renamed.items()}
    others = {size.symbol: size for size in stated_sizes(second.program, second.options.bind) if size.is_open}
    wanted = {own_name.get(name, name): sizes.get(name, other).size for name, other in others.items()}
    b, refused = _at_sizes(second, wanted)
    told = {name: f"{name}={one.size} ({one.source})" for name, one in {**others, **sizes}.items()}
    notes = [f"numbers are for {', '.join(told.values())}; --bind gives other sizes"] if told else []
    notes += [f"{name} is not at these sizes: {said}" for name, said in (("A", problem), ("B", refused)) if said]
    cards = [make_card(one, chosen, brief=True) for one in (a, b)]
    for name, card in zip("AB", cards, strict=True):
        if card.failure is not None:
            notes.append(f"a pass failed for {name}: {one_line(card.failure.message)}")
    return Decision(cards[0], cards[1], chosen, bool(told), tuple(notes))


def _at_sizes(model: Model, sizes: Mapping[str, int]) -> tuple[Model, str]:
    """Return the model at these sizes; as it is, and why, where it cannot have them."""
    if not sizes:
        return model, ""
    try:
        found = model.rebound(sizes)
    except Cancelled:
        raise
    except IrscopeError as error:
        return model, error.message
    found.manager.instruments = model.manager.instruments
    return found, ""


def decisive_document(compared: ModelComparison, decision: Decision, *, everything: bool = False) -> Document:
    """Return the document of two models: what decides, where they differ, how they were matched."""
    document = model_comparison(compared, everything=everything)
    (report,) = document.reports
    compiled = compared.b.is_compiled and not compared.a.is_compiled
    rows = {**_measure_rows(decision), **(_compiled_rows(compared) if compiled else {})}
    kinds = {**{name: kind for name, (_, kind) in _ROWS.items()}, **_COMPILED}
    units = {**{name: kinds[name] for name in rows}, **{f"{name}.change": Kind.RATIO for name in rows}}
    weights = weights_headline(compared)
    if compared.has_graph:
        headline: tuple[str, ...] = (*(_compiled_verdict(rows) if compiled else ()), *_fits_text(decision), _changes(rows, _SAID), *weights)
    else:
        headline = (*weights, _changes(rows, _SAID_OF_WEIGHTS))
    shown = {name: {key: bare_cell(cell) for key, cell in cells.items()} for name, cells in rows.items()}
    first = replace(report, headline=headline, summary=shown, units=units, notes=decision.notes)
    hidden = _AGAIN if decision.is_open else (*_AGAIN, "flops", "moved_bytes")
    rest = {key: value for key, value in report.summary.items() if key not in hidden}
    last = Report(
        "compare",
        "further totals, and how nodes were matched",
        summary=rest,
        units=report.units,
        notes=report.notes,
        is_assumed=report.is_assumed,
        headline=report.headline,
    )
    sizes = {name: _sizes_text(card) for name, card in (("a", decision.a), ("b", decision.b))}
    fits = {name: card.memory.fits for name, card in (("a", decision.a), ("b", decision.b))}
    found = {"device": decision.chosen.device.name, "sizes": sizes, "fits": fits, **rows}
    whole = replace(
        report,
        headline=(*headline, *report.headline),
        summary={**report.summary, _GROUP: found},
        units={**report.units, **{f"{_GROUP}.{key}": kind for key, kind in units.items()}, f"{_GROUP}.fits": Kind.BOOL},
        notes=(*decision.notes, *report.notes),
    )
    write = document.own_json
    assert write is not None

    def compare_json(selected: Document) -> Mapping[str, object]:
        """Return one report, its tables as --sort and --filter left them."""
        return write(replace(selected, reports=(replace(whole, tables=selected.reports[0].tables),)))

    # Of two checkpoints nothing further is known: no node was matched.
    return replace(document, reports=(first, last) if compared.has_graph else (first,), own_json=compare_json)


DECISIVE_MEASURES: Final[Mapping[str, str]] = {"time": "time", "energy": "energy", "disk": "size_on_disk"}
"""Names that `--fail-on` takes besides those of the totals."""


def decisive_measures(decision: Decision) -> dict[str, Measure]:
    """Return by how much B is above A."""
    rows = _measure_rows(decision)
    found: dict[str, Measure] = {}
    for name, key in DECISIVE_MEASURES.items():
        cells = rows.get(key, {})
        a, b = (cell if isinstance(cell, Quantity) else UNKNOWN for cell in (cells.get("a"), cells.get("b")))
        share = share_of(a.value, b.value)
        if isinstance(a.value, int | float) and isinstance(b.value, int | float) and share is not None:
            said = f"A {signed(bare_cell(a), _ROWS[key][1])}, B {signed(bare_cell(b), _ROWS[key][1])}, {share:+.1%}"
            found[name] = Measure(float(b.value - a.value), share, said)
        else:
            found[name] = Measure(None, None, "")
    return found


def _measure_rows(decision: Decision) -> dict[str, dict[str, Cell]]:
    """Return both numbers, their difference and how large it is; what neither has is left out."""
    measure_rows: dict[str, dict[str, Cell]] = {}
    sides = [_numbers(card) for card in (decision.a, decision.b)]
    for name, (key, _) in _ROWS.items():
        a, b = (side[key] for side in sides)
        # Where an allocator is simulated for both, the peak is what is allocated.
        if (a.shown is None and b.shown is None) or (
            name == "peak_memory_bytes" and all(side["peak_allocated"].shown is not None for side in sides)
        ):
            continue
        measure_rows[name] = _both_and_difference(a, b)
    return measure_rows


def _both_and_difference(a: Quantity, b: Quantity) -> dict[str, Cell]:
    """Return both numbers, their difference and how large it is."""
    known = isinstance(a.value, int | float) and isinstance(b.value, int | float)
    return {"a": a, "b": b, "difference": b - a if known else None, "change": derived(share_of(a.value, b.value), a, b) if known else None}


_COMPILED: Final[Mapping[str, Kind]] = {
    "first_run_bytes": Kind.BYTES,
    "later_runs_bytes": Kind.BYTES,
    "requests_of_a_run": Kind.COUNT,
    "kernels": Kind.COUNT,
    "calls_of_libraries": Kind.COUNT,
}
"""Rows that are compared besides where one of the models is compiled: allocated bytes at the peak of a run, requests of the allocator,
operators that do something, and of these those that torch's compiler did not generate.
"""


def _compiled_rows(compared: ModelComparison) -> dict[str, dict[str, Cell]]:
    sides: list[dict[str, Quantity]] = []
    for side in (compared.a, compared.b):
        memory, nodes = side.device_memory, [node for node in side.nodes if side.costs.certainty.get(node) is not Certainty.FREE]
        found = {name: UNKNOWN for name in _COMPILED}
        if memory is not None:
            found["first_run_bytes"], found["later_runs_bytes"] = memory.counter("cold", "allocated"), memory.counter("warm", "allocated")
            tape = memory.tape
            if tape is not None and memory.central is not None:
                span = next(span for span in tape.spans if span.name == WARM)
                kept = frozenset(tape.kept if span.again else ())
                takes = tape.takes(tape.starts[span.first], tape.starts[span.end])
                found["requests_of_a_run"] = Quantity(sum(slot not in kept for slot in takes))
        found["kernels"] = Quantity(len(nodes))
        found["calls_of_libraries"] = Quantity(sum(not plays(node, OpRole.GENERATED) for node in nodes))
        sides.append(found)
    a, b = sides
    return side_by_side(a, b, [*_COMPILED])


def side_by_side(a: Mapping[str, Quantity], b: Mapping[str, Quantity], names: Sequence[str]) -> dict[str, dict[str, Cell]]:
    """Return the rows of the numbers of these names."""
    return {name: _both_and_difference(a.get(name, UNKNOWN), b.get(name, UNKNOWN)) for name in names}


def compiled_headline(compared: ModelComparison) -> list[str]:
    """Return what compiling does to memory, in a line, and what the first run takes; nothing of models of which B alone is not compiled."""
    return _compiled_verdict(_compiled_rows(compared)) if compared.b.is_compiled and not compared.a.is_compiled else []


def _compiled_verdict(rows: Mapping[str, Mapping[str, Cell]]) -> list[str]:
    """Return what compiling does to memory, in a line."""
    later, first = rows["later_runs_bytes"], rows["first_run_bytes"]
    a, b, change = later["a"], later["b"], later["change"]
    value = change.value if isinstance(change, Quantity) else change
    if not isinstance(value, int | float):
        return ["what compiling does to memory is not known"]
    more = f"{abs(value):.1%} {'less' if value < 0 else 'more'} memory" if round(abs(value), 3) else "as much memory"
    of_b, of_a = (signed(bare_cell(one), Kind.BYTES) for one in (b, a))
    said = f"compiled needs {more}: {of_b} beside {of_a} allocated at the peak of a run"
    dearer = first["b"]
    if isinstance(dearer, Quantity) and isinstance(b, Quantity) and dearer.value != b.value and isinstance(dearer.value, int):
        return [said, f"its first run takes {signed(bare_cell(dearer), Kind.BYTES)}: Inductor times candidates of its kernels there"]
    return [said]


def bare_cell(cell: Cell) -> Cell:
    """Return a number without its interval, which JSON has: two of them side by side are wider than a terminal."""
    if not isinstance(cell, Quantity) or cell.interval is None or cell.value is None:
        return cell
    sign = Provenance.MODELLED if cell.provenance is Provenance.EXACT else cell.provenance
    return replace(cell, provenance=sign, lo=None, hi=None)


_NO_CHANGE: Final = 5e-5
"""A share of a modelled time below which its tables show no change."""
_SAID: Final = {
    "memory": ("peak_allocated_bytes", "peak_memory_bytes"),
    "time": ("time",),
    "FLOPs": ("flops",),
    "parameters": ("parameters",),
}


_SAID_OF_WEIGHTS: Final = {"parameters": ("parameters",), "size on disk": ("size_on_disk",)}
"""The rows where there is no graph."""


def _changes(rows: Mapping[str, Mapping[str, Cell]], said: Mapping[str, tuple[str, ...]]) -> str:
    """Return how much more B takes, in a line."""
    parts: list[str] = []
    for word, names in said.items():
        change = next((found for name in names if name in rows and (found := rows[name]["change"]) is not None), None)
        value = change.value if isinstance(change, Quantity) else change
        if not isinstance(value, int | float):
            parts.append(f"{word} not known")
        else:
            # Sums of seconds differ in their last digits where a host is waited for.
            differs = abs(value) >= _NO_CHANGE if word == "time" else bool(value)
            parts.append(f"{word} {change_text(value)}" if differs else f"{word} the same")
    return f"B beside A: {', '.join(parts)}"


def _numbers(card: Card) -> dict[str, Quantity]:
    return {**card.quantities(), "size_on_disk": Quantity(card.identity.size_on_disk)}


def share_of(a: object, b: object) -> float | None:
    """Return by what share B is above A."""
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return None
    return b / a - 1 if a else 0.0 if not b else math.inf


def _fits_text(decision: Decision) -> list[str]:
    """Return which of them fits."""
    fits = [card.memory.fits.value for card in (decision.a, decision.b)]
    where = f"on {decision.chosen.device.title}"
    if fits == [None, None]:
        return []
    if fits == [True, True]:
        return [f"both fit {where}"]
    return ["; ".join(_fit_text(name, card) for name, card in (("A", decision.a), ("B", decision.b))) + f" {where}"]


def _fit_text(name: str, card: Card) -> str:
    memory = card.memory
    if memory.fits.value is None:
        return f"{name}: not known"
    if memory.fits.value:
        return f"{name} fits"
    missing = f": {humanise(memory.missing, Kind.BYTES)} are missing" if memory.missing is not None else ""
    return f"{name} does not fit{missing}"


def _sizes_text(card: Card) -> str:
    return ",".join(f"{size.symbol}={size.size}" for size in card.sizes)
