"""A report's summary as a flat list: each value with its path and its kind."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from irscope.report.units import Kind
from irscope.report.values import Cell, Provenance, Quantity, as_assumed, plain

_SUFFIXES = {"bytes": Kind.BYTES, "flops": Kind.FLOPS, "seconds": Kind.SECONDS, "ratio": Kind.RATIO, "count": Kind.COUNT}


@dataclass(frozen=True, slots=True)
class Entry:
    """One value of a summary."""

    path: tuple[str, ...]
    cell: Cell
    kind: Kind

    @property
    def key(self) -> str:
        """The path with dots, as JSON and CSV name it."""
        return ".".join(self.path)

    def assumed(self) -> Entry:
        """The entry, its number as one that depends on a guess."""
        return replace(self, cell=as_assumed(self.cell)) if self.kind.can_be_assumed else self


def entries(summary: Mapping[str, object], units: Mapping[str, Kind]) -> Iterator[Entry]:
    """Every value of a nested summary in order. A group's kind holds for all it contains."""
    stack: list[tuple[tuple[str, ...], object]] = [((key,), value) for key, value in reversed(list(summary.items()))]
    while stack:
        path, value = stack.pop()
        stated = stated_kind(path, units)
        if is_group(value, stated):
            stack.extend(((*path, str(key)), item) for key, item in reversed(list(value.items())))
            continue
        cell = plain(value)
        yield Entry(path, cell, stated or _guess(path, cell))


def unknown_summary(
    summary: Mapping[str, object], units: Mapping[str, Kind], known: Collection[str], path: tuple[str, ...] = ()
) -> dict[str, object]:
    """The summary with everything unknown but what lies under these keys."""
    found: dict[str, object] = {}
    for key, value in summary.items():
        inner = (*path, str(key))
        if ".".join(inner) in known:
            found[str(key)] = value
        elif is_group(value, stated_kind(inner, units)):
            found[str(key)] = unknown_summary(value, units, known, inner)
        else:
            found[str(key)] = Quantity(None, Provenance.UNKNOWN)
    return found


def provenance_of(cell: Cell, kind: Kind, default: Provenance = Provenance.EXACT) -> Provenance:
    """Where a cell's number comes from; a number that is missing is unknown."""
    if isinstance(cell, Quantity):
        return Provenance.UNKNOWN if cell.shown is None else cell.provenance
    if cell is None:
        return Provenance.UNKNOWN if kind.is_number else Provenance.EXACT
    return default


def is_group(value: object, stated: Kind | None) -> TypeGuard[Mapping[str, object]]:
    """Whether a mapping holds further values; one that is called a shape is a nested type, which is a value itself."""
    return isinstance(value, Mapping) and stated is not Kind.SHAPE


def stated_kind(path: tuple[str, ...], units: Mapping[str, Kind]) -> Kind | None:
    """The kind the units give this path, or the nearest group around it."""
    for length in range(len(path), 0, -1):
        kind = units.get(".".join(path[:length]))
        if kind is not None:
            return kind
    return None


def _guess(path: tuple[str, ...], cell: Cell) -> Kind:
    """The kind that a key such as `activation_peak_bytes` names, else the one its value suggests."""
    for part in reversed(path):
        kind = _SUFFIXES.get(part.rpartition("_")[2])
        if kind is not None:
            return kind
    value = cell.shown if isinstance(cell, Quantity) else cell
    if isinstance(value, bool):
        return Kind.BOOL
    if isinstance(value, int):
        return Kind.COUNT
    return Kind.NUMBER if isinstance(value, float) else Kind.TEXT
