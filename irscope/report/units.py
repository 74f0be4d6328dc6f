"""Kinds of columns, and how each is written for people: `11.07 MiB`, `4.11 GFLOPs`, `[8,3,?]`."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable

from irscope.report.values import Cell, Number, Plain, Provenance, Quantity


class Kind(enum.Enum):
    """Kind of a column's cells, which decides unit, alignment and format."""

    NODE = "node"
    VALUE = "value"
    TEXT = "text"
    DTYPE = "dtype"
    SHAPE = "shape"
    FORMULA = "formula"
    BOOL = "bool"
    INDEX = "index"
    COUNT = "count"
    NUMBER = "number"
    BYTES = "bytes"
    FLOPS = "flops"
    SECONDS = "seconds"
    JOULES = "joules"
    RATIO = "ratio"
    BYTES_PER_SECOND = "bytes_per_second"
    FLOPS_PER_SECOND = "flops_per_second"

    @property
    def is_number(self) -> bool:
        """Return whether cells are numbers: shown right-aligned, None counted as unknown, a string taken for a formula."""
        return self in _NUMBERS

    @property
    def can_be_assumed(self) -> bool:
        """Return whether cells say something of the run, so that they depend on what was guessed about it; names and places do not."""
        return self is Kind.SHAPE or (self.is_number and self is not Kind.INDEX)

    @property
    def unit(self) -> str:
        """Return the unit of the raw number, empty where it has none."""
        return _UNITS.get(self, "")


_UNITS = {
    Kind.BYTES: "bytes",
    Kind.FLOPS: "FLOPs",
    Kind.SECONDS: "seconds",
    Kind.JOULES: "joules",
    Kind.BYTES_PER_SECOND: "bytes per second",
    Kind.FLOPS_PER_SECOND: "FLOPs per second",
}
_NUMBERS = frozenset({Kind.INDEX, Kind.COUNT, Kind.NUMBER, Kind.RATIO, *_UNITS})

UNKNOWN = "unknown"
_ABSURD = 10**9
"""So many of the largest unit are a slip somewhere: written short, they don't spoil the table."""


def humanise(cell: Cell, kind: Kind, unknown: str = UNKNOWN) -> str:
    """Return the cell for a reader, with its unit. What is unknown is written so, never as zero."""
    value = cell.shown if isinstance(cell, Quantity) else cell
    if value is None:
        return unknown
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number_text(value, kind)
    if isinstance(value, str):
        return f"{value} {kind.unit}" if kind.unit else value
    return type_text(value)


def bytes_text(size: float) -> str:
    """Return an amount of memory as people read it."""
    return humanise(round(size), Kind.BYTES)


def _number_text(value: Number, kind: Kind) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return _FORMATS.get(kind, _plain_number)(value)


def _plain_number(value: Number) -> str:
    return str(value)


def _scaled_text(value: Number, base: int, units: tuple[str, ...], parts: int = 1) -> str:
    """Return two decimals in the largest unit that leaves at least 1, rounded exactly however large the number is.

    `parts` is how many of the smallest unit the raw number's own unit has.
    """
    numerator, denominator = abs(value).as_integer_ratio()
    numerator *= 100 * parts
    step = 0
    hundredths = _rounded(numerator, denominator)
    while hundredths >= 100 * base and step + 1 < len(units):
        step += 1
        hundredths = _rounded(numerator, denominator * base**step)
    whole, rest = divmod(hundredths, 100)
    sign = "-" if value < 0 and hundredths else ""
    if whole >= _ABSURD:
        return f"{sign}{_scientific(whole)} {units[step]}"
    decimals = "" if step == 0 and denominator == 1 else f".{rest:02}"
    return f"{sign}{whole:,}{decimals} {units[step]}"


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def _scientific(whole: int) -> str:
    from decimal import Decimal

    return f"{Decimal(whole):.2e}"


_SCALES: dict[Kind, tuple[int, tuple[str, ...], int]] = {
    Kind.BYTES: (1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"), 1),
    Kind.FLOPS: (1000, ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs", "EFLOPs"), 1),
    Kind.SECONDS: (1000, ("ns", "us", "ms", "s"), 10**9),
    Kind.JOULES: (1000, ("nJ", "uJ", "mJ", "J", "kJ", "MJ"), 10**9),
    Kind.BYTES_PER_SECOND: (1000, ("B/s", "KB/s", "MB/s", "GB/s", "TB/s", "PB/s"), 1),
    Kind.FLOPS_PER_SECOND: (1000, ("FLOP/s", "KFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s"), 1),
}
"""Factor between units, the units from the smallest, and the number of smallest units in the raw number's own unit."""


def scale_of(value: Number, kind: Kind) -> tuple[float, str]:
    """Return the largest unit that leaves at least 1 of a number: how much one is in the raw number's own unit, and its name."""
    if kind is Kind.RATIO:
        return 0.01, "%"
    if kind not in _SCALES:
        return 1.0, ""
    base, units, parts = _SCALES[kind]
    step = 0
    while step + 1 < len(units) and abs(value) * parts >= base ** (step + 1):
        step += 1
    return base**step / parts, units[step]


def _with_unit(kind: Kind) -> Callable[[Number], str]:
    base, units, parts = _SCALES[kind]
    return lambda value: _scaled_text(value, base, units, parts)


def _seconds_text(value: Number) -> str:
    return _with_unit(Kind.SECONDS)(value) if value else "0 s"


def _count_text(value: Number) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.6g}" if abs(value) >= 1e15 else f"{value:,.2f}".removesuffix(".00")


def _general(value: Number) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _ratio(value: Number) -> str:
    """Percent; what is not quite nothing or not quite all does not read as if it were."""
    if 0 < value < 0.0005:
        return "<0.1%"
    if 0.9995 <= value < 1:
        return ">99.9%"
    numerator, denominator = abs(value).as_integer_ratio()
    whole, rest = divmod(_rounded(1000 * numerator, denominator), 10)
    return f"{'-' if value < 0 else ''}{f'{whole:,}.{rest}' if whole < _ABSURD else _scientific(whole)}%"


_FORMATS: dict[Kind, Callable[[Number], str]] = {
    Kind.COUNT: _count_text,
    Kind.NUMBER: _general,
    Kind.SECONDS: _seconds_text,
    Kind.RATIO: _ratio,
    **{kind: _with_unit(kind) for kind in _SCALES if kind is not Kind.SECONDS},
}


def type_text(value: Plain) -> str:
    """Shapes and nested types: `[8,3,?]`, `seq(f32[2,?])`."""
    if isinstance(value, dict):
        if value.keys() == {"dtype", "shape"}:
            shape = "[*]" if value["shape"] is None else type_text(value["shape"])
            return f"{type_text(value['dtype'])}{shape}"
        return ", ".join(f"{key}({type_text(item)})" for key, item in value.items())
    if isinstance(value, tuple):
        return f"[{','.join(map(type_text, value))}]"
    return "?" if value is None else str(value)


def provenance_of(cell: Cell, kind: Kind, default: Provenance = Provenance.EXACT) -> Provenance:
    """Return where a cell's number comes from; a number that is missing is unknown."""
    if isinstance(cell, Quantity):
        return Provenance.UNKNOWN if cell.shown is None else cell.provenance
    if cell is None:
        return Provenance.UNKNOWN if kind.is_number else Provenance.EXACT
    return default
