"""Amounts of memory as people write them: 24GiB, 80GB, 512MiB."""

from __future__ import annotations

import re
from fractions import Fraction

from irscope.errors import UsageError

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power for power, letter in enumerate("kmgtp", start=1) for suffix, base in (("ib", 1024), ("b", 1000))
}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_LONGEST = 40


def parse_memory(text: str) -> int:
    """Bytes. KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB powers of 1000; a number alone is bytes."""
    found = _AMOUNT.fullmatch(text[:_LONGEST]) if len(text) <= _LONGEST else None
    unit = _UNITS.get(found[2].lower()) if found is not None else None
    if found is None or unit is None:
        raise UsageError(
            f"{text[:_LONGEST]!r} is no amount of memory", code="IRS336", hint="for example 24GiB, 80GB, 512MiB or a number of bytes"
        )
    return int(Fraction(found[1]) * unit)
