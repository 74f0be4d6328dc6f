"""Values of a report's cells, and the provenance of their numbers."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from irscope.errors import PassError
from irscope.immutable import immutable
from irscope.report.printable import well_formed

Number: TypeAlias = int | float
Scalar: TypeAlias = int | float | str | bool | None
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Plain: TypeAlias = "Scalar | tuple[Plain, ...] | dict[str, Plain]"
Cell: TypeAlias = "Plain | Quantity"
"""None means unknown, a string where a number is expected is its formula. For "none" in a text column use an empty string."""


_PLAIN = frozenset({int, float, str, bool, type(None)})


class Provenance(enum.Enum):
    """Provenance of a number. A number computed from several is as sure as the least sure of them."""

    EXACT = "exact"
    MODELLED = "modelled"
    ASSUMED = "assumed"
    """It would be exact or modelled, had not something that it depends on been guessed."""
    MEASURED = "measured"
    UNKNOWN = "unknown"


_SUREST_FIRST = (Provenance.EXACT, Provenance.MEASURED, Provenance.MODELLED, Provenance.ASSUMED, Provenance.UNKNOWN)
_DOUBT = {provenance: place for place, provenance in enumerate(_SUREST_FIRST)}


@immutable
class Quantity:
    """A number that says where it comes from, the formula it was computed by, and the interval it lies in.

    numpy numbers become plain ones, symbolic sizes their formula. Sums, differences, `largest` and `derived` pass on where their
    operands come from, and the interval: a number that contains a modelled one is modelled wherever it goes.
    """

    value: Scalar
    provenance: Provenance = Provenance.EXACT
    formula: str | None = None
    """The symbolic form; with `value=None` the number itself is symbolic."""
    note: str = ""
    """Origin of the number, in a few words."""
    lo: Number | str | None = None
    hi: Number | str | None = None

    def __post_init__(self) -> None:
        for name in ("value", "lo", "hi", "formula"):
            given = getattr(self, name)
            if type(given) not in _PLAIN:
                object.__setattr__(self, name, str(given) if name == "formula" else bare(plain(given)))

    @property
    def shown(self) -> Scalar:
        """Return what stands in the cell: the value, else the formula, else None."""
        return self.formula if self.value is None else self.value

    @property
    def interval(self) -> tuple[Number | str | None, Number | str | None] | None:
        """Lower and upper bound, None where the number has neither."""
        return None if self.lo is None and self.hi is None else (self.lo, self.hi)

    @property
    def ends(self) -> tuple[Number | None, Number | None]:
        """Return the lower and the upper bound of the number: None where nothing bounds it.

        A modelled number without an interval may be anything.
        """
        is_sure = self.provenance in (Provenance.EXACT, Provenance.MEASURED)
        low, high = self.interval or ((self.value, self.value) if is_sure else (None, None))
        return _numeric(low), _numeric(high)

    def __add__(self, other: Quantity | Number) -> Quantity:
        other = quantity(other)
        (low, high), (least, most) = self.ends, other.ends
        return _combined(
            (self, other), _sum_if_known(_numeric(self.value), _numeric(other.value)), _sum_if_known(low, least), _sum_if_known(high, most)
        )

    __radd__ = __add__

    def __neg__(self) -> Quantity:
        low, high = self.ends
        return _combined((self,), _negative(_numeric(self.value)), _negative(high), _negative(low))

    def __sub__(self, other: Quantity | Number) -> Quantity:
        return self + -quantity(other)

    def __rsub__(self, other: Number) -> Quantity:
        return quantity(other) + -self


def quantity(value: Quantity | Scalar) -> Quantity:
    """Return a plain number as one that is exact."""
    return value if isinstance(value, Quantity) else Quantity(value)


def largest(numbers: Iterable[Quantity | Number]) -> Quantity:
    """Return the largest of some numbers; those that are surely below another have no part in where it comes from."""
    found = [quantity(number) for number in numbers]
    if not found:
        return Quantity(0)
    values = [_numeric(one.value) for one in found]
    value = None if None in values else max(value for value in values if value is not None)
    floors, tops = zip(*(one.ends for one in found), strict=True)
    low = max((floor for floor in floors if floor is not None), default=None)
    high = None if None in tops else max(top for top in tops if top is not None)
    sure = [one for one, floor in zip(found, floors, strict=True) if floor is not None and floor == low]
    sure.sort(key=lambda one: _DOUBT[one.provenance])
    open_ = [one for one, top in zip(found, tops, strict=True) if top is None or low is None or top > low]
    return _combined((*sure[:1], *open_), value, low, high)


def derived(value: object, *sources: Quantity | Scalar) -> Quantity:
    """Return what follows from some numbers in another way than by adding or comparing: a ratio, a verdict, a name."""
    return Quantity(bare(plain(value)), _least_sure(quantity(source) for source in sources))  # type: ignore[arg-type]  # checked there


def _combined(parts: Sequence[Quantity], value: Number | None, low: Number | None, high: Number | None) -> Quantity:
    note = next((part.note for part in parts if part.note), "")
    where = _least_sure(parts)
    if low == high == value or not any(part.interval for part in parts):
        return Quantity(value, where if value is not None else Provenance.UNKNOWN, note=note)
    # A number that may be another one is not exact, whatever its parts say of themselves.
    where = least_sure((where, Provenance.MODELLED)) if value is not None else Provenance.UNKNOWN
    return Quantity(value, where, note=note, lo=low, hi=high)


def least_sure(provenances: Iterable[Provenance]) -> Provenance:
    """Return where something comes from that is made of several things; exact where there are none."""
    return max(provenances, key=_DOUBT.__getitem__, default=Provenance.EXACT)


def _least_sure(parts: Iterable[Quantity]) -> Provenance:
    return least_sure(Provenance.UNKNOWN if part.shown is None else part.provenance for part in parts)


def _numeric(value: Scalar) -> Number | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _sum_if_known(number: Number | None, other: Number | None) -> Number | None:
    return None if number is None or other is None else number + other


def _negative(number: Number | None) -> Number | None:
    return None if number is None else -number


def as_assumed(cell: Cell) -> Cell:
    """Return a number as one that depends on a guess; what was measured and what is unknown stay that."""
    if isinstance(cell, Quantity):
        return replace(cell, provenance=assumed_from(cell.provenance))
    return cell if cell is None or isinstance(cell, tuple | dict) else Quantity(cell, Provenance.ASSUMED)


def assumed_from(provenance: Provenance) -> Provenance:
    """Return what a provenance becomes where something was guessed."""
    return Provenance.ASSUMED if provenance in (Provenance.EXACT, Provenance.MODELLED) else provenance


def plain(value: object) -> Cell:
    """Return a cell from whatever a pass put there: numpy scalars and arrays, dtypes, symbolic sizes and graph objects become plain
    values.
    """
    if type(value) in _PLAIN:
        return value  # type: ignore[return-value]  # exactly one of these types
    if isinstance(value, Quantity):
        return value
    if isinstance(value, enum.Enum) and not isinstance(value, int | float | str):
        return _enum_value(value)
    to_list = getattr(value, "tolist", None)
    if to_list is not None:
        return plain(to_list())
    return _from_subclass(value)


def _enum_value(member: enum.Enum) -> Cell:
    if type(member).__str__ is not enum.Enum.__str__:
        return str(member)
    return member.value if isinstance(member.value, str) else member.name.lower()


def _from_subclass(value: object) -> Cell:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {str(key): bare(plain(item)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple([bare(plain(item)) for item in value])
    return _label(value)


def _label(value: object) -> str | None:
    """Return how a graph's objects are called: by their text if they have one, else by name."""
    if type(value).__str__ is not object.__str__ and not isinstance(value, bytes | set | frozenset):
        return str(value)
    name = getattr(value, "name", 0)
    if name is None or isinstance(name, str):
        return name
    raise PassError(
        f"a report cannot show a {type(value).__name__}",
        code="IRS510",
        hint="give numbers, strings, booleans, None, or lists and dictionaries of them",
    )


def bare(cell: Cell) -> Plain:
    """Return the cell without what a Quantity says about it."""
    return cell.shown if isinstance(cell, Quantity) else cell


def json_value(cell: Cell) -> Json:
    """Return the raw value as JSON has it: NaN and infinities as strings, integers exact whatever their size."""
    if isinstance(cell, Quantity):
        cell = cell.shown
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else str(cell)
    if isinstance(cell, str):
        return well_formed(cell)
    if isinstance(cell, dict):
        return {well_formed(key): json_value(item) for key, item in cell.items()}
    if isinstance(cell, tuple):
        return [json_value(item) for item in cell]
    return cell


def compact_json(value: object) -> str:
    """Return one line of JSON in ASCII, without any control character."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


def raw_text(cell: Cell, unknown: str = "") -> str:
    """Return the raw value as text: full precision, no units; lists and dictionaries as JSON."""
    value = bare(cell)
    if value is None:
        return unknown
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, tuple | dict):
        return compact_json(json_value(value))
    return str(value)
