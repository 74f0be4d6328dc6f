"""What thresholds may be about, for two models and for a model with a recording."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from irscope.amounts import ANY, read_amount
from irscope.comparing.expected import COLD, WARM
from irscope.comparing.models import CHANGED, SAME, ModelComparison
from irscope.comparing.runs import RunComparison
from irscope.comparing.totals import Total, totals
from irscope.errors import UsageError
from irscope.report.units import Kind, humanise

# ----------------------------------------------------------------------------------------------------
# What `--fail-on` says: limits that a comparison must keep, such as peak>5% or unmatched>0.

_TERM = re.compile(r"\s*([a-z_]+)\s*>\s*([^\s,]+)\s*")
_EXAMPLE = "for example `--fail-on 'peak>5%,flops>0%'`"


@dataclass(frozen=True, slots=True)
class Measure:
    """What a threshold may be about: an amount, and what share it is of what it is compared with. None is unknown."""

    amount: float | None
    share: float | None
    text: str
    """The difference for people."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """One limit."""

    name: str
    limit: float
    relative: bool
    text: str

    def is_passed(self, measure: Measure) -> bool | None:
        """Whether a measure exceeds the limit; None where that is unknown."""
        value = measure.share if self.relative else measure.amount
        return None if value is None else value > self.limit


def parse_thresholds(texts: Sequence[str], known: Sequence[str]) -> list[Threshold]:
    """The limits that arguments name; UsageError for what makes no sense."""
    found: list[Threshold] = []
    for part in (part for text in texts for part in text.split(",") if part.strip()):
        term = _TERM.fullmatch(part)
        if term is None:
            raise UsageError(f"--fail-on {part.strip()!r} is not of the form NAME>LIMIT", code="IRS660", hint=_EXAMPLE)
        name, limit = term.groups()
        if name not in known:
            raise UsageError(f"--fail-on knows no {name!r}", code="IRS660", hint=f"there are {', '.join(known)}")
        value = read_amount(limit, ANY)
        if value is None:
            raise UsageError(f"--fail-on {part.strip()!r}: {limit!r} is no number", code="IRS660", hint=_EXAMPLE)
        found.append(Threshold(name, value, limit.endswith("%"), part.strip()))
    return found


@dataclass(frozen=True, slots=True)
class Verdict:
    """Results of the thresholds."""

    passed: tuple[str, ...]
    """Limits that were passed, each with the number, for people."""
    unknown: tuple[str, ...]
    """Limits that cannot be checked, because a number is unknown."""


def judge(thresholds: Sequence[Threshold], measures: Mapping[str, Measure]) -> Verdict:
    """Compare measures with their limits."""
    passed: list[str] = []
    unknown: list[str] = []
    for one in thresholds:
        measure = measures[one.name]
        beyond = one.is_passed(measure)
        if beyond is None:
            unknown.append(f"{one.text}: the difference is not known")
        elif beyond:
            passed.append(f"{one.text}: {measure.text}")
    return Verdict(tuple(passed), tuple(unknown))


# ----------------------------------------------------------------------------------------------------
# What thresholds may be about, for two models and for a model with a recording.

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
