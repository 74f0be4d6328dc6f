"""What thresholds may be about, for two models and for a model with a recording."""

from __future__ import annotations

from irscope.comparing.expected import COLD, WARM
from irscope.comparing.models import CHANGED, SAME, ModelComparison
from irscope.comparing.runs import RunComparison
from irscope.comparing.thresholds import Measure
from irscope.comparing.totals import Total, totals
from irscope.report.units import Kind, humanise

_TOTALS = {
    "peak": "peak_bytes",
    "flops": "flops",
    "moved": "moved_bytes",
    "parameters": "parameters",
    "bytes": "parameter_bytes",
    "nodes": "nodes",
    "device_peak": "device_peak_bytes",
    "reserved": "device_reserved_bytes",
}
MODEL_MEASURES = (*_TOTALS, "changed", "unmatched")
"""Names that `--fail-on` takes for two models."""


def model_measures(compared: ModelComparison) -> dict[str, Measure]:
    """By how much B is above A, how many rows differ, and how many nodes have no counterpart."""
    known = {total.key: total for total in totals(compared)}
    found = {name: _measure(known.get(key)) for name, key in _TOTALS.items()}
    rows = len(compared.rows)
    changed = rows - compared.counts.get(SAME, 0)
    counted = len(compared.a.nodes) + len(compared.b.nodes)
    lonely = counted - sum(compared.matched)
    found[CHANGED] = Measure(changed, changed / rows if rows else 0.0, f"{changed:,} of {rows:,} differ")
    found["unmatched"] = Measure(lonely, lonely / counted if counted else 0.0, f"{lonely:,} of {counted:,} nodes have no counterpart")
    return found


def _measure(total: Total | None) -> Measure:
    if total is None or total.difference is None:
        return Measure(None, None, "")
    difference = total.difference
    amount = float(difference) if isinstance(difference, int) else None
    share = total.change
    if share is None and amount is not None:
        share = float("inf") if amount > 0 else 0.0
    a, b = total.said
    text = f"A {a}, B {b}"
    if share is not None and total.kind is not Kind.TEXT:
        text += f", {'+' if share > 0 else ''}{share:.1%}"
    return Measure(amount, share, text)


RUN_MEASURES = ("peak", "reserved", "baseline", "unmatched")
"""Names that `--fail-on` takes for a model and a recording."""


def run_measures(compared: RunComparison) -> dict[str, Measure]:
    """How far figures of the last run are off, as a share of the measured delta, and how many nodes nothing carries out."""
    run = WARM if compared.recording.counter(WARM) is not None or compared.recording.run(WARM) else COLD
    found: dict[str, Measure] = {}
    for figure in compared.figures(run):
        if figure.name in RUN_MEASURES:
            text = f"predicted {humanise(figure.predicted, Kind.BYTES)}, measured {humanise(figure.measured, Kind.BYTES)}"
            amount = None if figure.difference is None else float(abs(figure.difference))
            share = None if figure.error is None else abs(figure.error)
            found[figure.name] = Measure(amount, share, text if share is None else f"{text}, off by {share:.2%} of the delta")
    total = compared.ran
    lonely = total - compared.matched[0]
    found["unmatched"] = Measure(lonely, lonely / total if total else 0.0, f"{lonely:,} of {total:,} nodes are not matched")
    return found
