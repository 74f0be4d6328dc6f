"""What `--fail-on` says: limits that a comparison must keep, such as peak>5% or unmatched>0."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from irscope.amounts import ANY, read_amount
from irscope.errors import UsageError

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
