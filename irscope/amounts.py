"""Amounts as people write them: 24GiB, 2.5G, 10ms, 60%, 1_000. Every option, filter and prompt reads them here.

amount = number [unit]      number = 12 | 1_000 | 2.5 | 1.5e-3
K, M, G, T, P, E are powers of 1000, whatever is counted: 1M, 1MB and 1MFLOPs are 1,000,000.
Ki, Mi, Gi, Ti, Pi, Ei are powers of 1024: 1Mi and 1MiB are 1,048,576. Upper and lower case mean the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from fractions import Fraction
from typing import Annotated, Final, TypeAlias

from irscope.errors import UsageError
from irscope.immutable import immutable

RULE: Final = "K, M, G, T are powers of 1000; Ki, Mi, Gi, Ti powers of 1024"
"""What messages about amounts with such units say."""

_AMOUNT = re.compile(r"\s*([-+]?(?:\d[\d_]*\.?\d*|\.\d+|inf)(?:e[-+]?\d{1,3})?)\s*([a-z%/]*)\s*", re.IGNORECASE | re.ASCII)
_LONGEST = 40
_POWERS: Mapping[str, int] = {"": 1} | {
    f"{letter}{binary}": base**power for power, letter in enumerate("KMGTPE", start=1) for binary, base in (("", 1000), ("i", 1024))
}


def _scaled(*names: str) -> dict[str, Fraction]:
    """Every prefix before every one of the names."""
    return {f"{prefix}{name}": Fraction(factor) for name in names for prefix, factor in _POWERS.items()}


@immutable(slots=False)
class Measure:
    """The units that may follow the number of an amount."""

    what: str
    """As messages say it: "an amount of memory"."""
    units: Mapping[str, Fraction]
    """How much each unit is, as it is usually spelled."""
    example: str
    signed: bool = False
    whole: bool = False
    """Whether only whole amounts make sense."""
    _folded: dict[str, Fraction] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_folded", {unit.lower(): factor for unit, factor in self.units.items()})

    def factor(self, unit: str) -> Fraction | None:
        """Return how much one of the unit is; None for what is not a unit of this measure."""
        return self._folded.get(unit.lower())

    @property
    def hint(self) -> str:
        """Return what messages suggest."""
        return f"for example {self.example}" + (f"; {RULE}" if "M" in self.units else "")


_COUNTS = _scaled("")
_BYTES = _scaled("", "B", "byte", "bytes")
_RATES = {f"{unit}/s": factor for unit, factor in _scaled("B", "byte").items()} | {
    f"{unit}/s": factor / 8 for unit, factor in _scaled("bit").items()
}
_FLOPS = _scaled("", "FLOP", "FLOPs")
_SECONDS = {
    "": Fraction(1),
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
    "min": Fraction(60),
    "h": Fraction(3600),
}
_JOULES = {
    "": Fraction(1),
    "J": Fraction(1),
    "mJ": Fraction(1, 10**3),
    "uJ": Fraction(1, 10**6),
    "kJ": Fraction(10**3),
    "Wh": Fraction(3600),
    "kWh": Fraction(3_600_000),
}
_SHARES = {"": Fraction(1), "%": Fraction(1, 100)}

BYTES: Final = Measure("an amount of memory", _BYTES, "24GiB, 80GB, 512MiB or a number of bytes")
FLOPS: Final = Measure("a number of FLOPs", _FLOPS, "2.5G, 100MFLOPs or 1e9")
COUNT: Final = Measure("a whole number", _COUNTS, "8 or 64k", signed=True, whole=True)
SIZE: Final = Measure("a size", _COUNTS, "8 or 2Ki", whole=True)
RATE: Final = Measure("a bandwidth", _RATES, "450GB/s or 400Gbit/s")
SECONDS: Final = Measure("a time", _SECONDS, "10, 500ms or 2min")
JOULES: Final = Measure("an energy", _JOULES, "2.5, 300mJ or 1Wh")
NUMBER: Final = Measure("a number", _COUNTS, "2.5 or 64k")
SHARE: Final = Measure("a share", _SHARES, "5% or 0.05")
ANY: Final = Measure("a number", {**_COUNTS, **_BYTES, **_FLOPS, **_SECONDS, **_SHARES}, "12, 2.5G, 10MiB, 1ms or 30%", signed=True)

Bytes: TypeAlias = Annotated[int, BYTES]
"""Type of a pass's option that is an amount of memory."""
Seconds: TypeAlias = Annotated[float, SECONDS]
"""Type of a pass's option that is a time."""


def read_amount(text: str, measure: Measure) -> int | float | None:
    """Return the number that a text names, exact where it is whole; None for a text that names none of this measure."""
    match = _AMOUNT.fullmatch(text) if len(text) <= _LONGEST else None
    factor = measure.factor(match[2]) if match is not None else None
    if measure is RATE and text.rstrip().endswith("b/s"):
        return None  # Gb/s are bits to whoever sells networks, and eight times as much to everybody else
    if match is None or factor is None:
        return None
    number = match[1].replace("_", "")
    if "inf" in number.lower():
        return float(number) if measure is ANY else None
    exact = Fraction(number) * factor
    if (exact < 0 and not measure.signed) or (measure.whole and exact.denominator != 1):
        return None
    return exact.numerator if exact.denominator == 1 else float(exact)


def parse_amount(text: str, measure: Measure) -> int | float:
    """Return the number that a text names. Raises UsageError, which says how amounts are written, for a text that names none."""
    amount = read_amount(text, measure)
    if amount is None:
        raise UsageError(f"{text[:_LONGEST]!r} is not {measure.what}", code="IRS336", hint=measure.hint)
    return amount


def parse_bytes(text: str) -> int:
    """Bytes; a part of one is left out."""
    amount = parse_amount(text, BYTES)
    if 0 < amount < 1:
        raise UsageError(f"{text!r} is less than a byte", code="IRS336", hint=BYTES.hint)
    return int(amount)


def parse_memory(text: str) -> int:
    """Return the bytes of a device's memory; a bare number that no device could mean is refused."""
    size = parse_bytes(text)
    if size < 10_000 and text.strip().isdecimal():  # ten terabytes, if it were GiB
        raise UsageError(f"{text.strip()!r} has no unit, so that it is bytes", code="IRS336", hint=f"did you mean {text.strip()}GiB?")
    return size


def read_size(text: str) -> int | None:
    """Return a size of an axis or a number of things, from 0 on; None for a text that is none."""
    amount = read_amount(text, SIZE)
    return None if amount is None else int(amount)
