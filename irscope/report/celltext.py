"""A cell as text, with the sign of where its number comes from."""

from __future__ import annotations

from irscope.report.options import RenderOptions
from irscope.report.printable import legible
from irscope.report.units import Kind, humanise, provenance_of
from irscope.report.values import Cell, Provenance, Quantity, raw_text

UNKNOWN = "?"
SIGNS = {Provenance.MODELLED: "~", Provenance.ASSUMED: "*", Provenance.MEASURED: "="}
LEGEND = {
    Provenance.MODELLED: "~ modelled",
    Provenance.ASSUMED: "* assumed: it depends on a guess",
    Provenance.MEASURED: "= measured",
    Provenance.UNKNOWN: "? unknown",
}


def signed(cell: Cell, kind: Kind) -> str:
    """Return the cell for a sentence: its unit, and the sign of where it comes from."""
    return f"{SIGNS.get(provenance_of(cell, kind), '')}{humanise(cell, kind)}"


class CellWriter:
    """Writes cells and remembers which signs it used, for the legend."""

    def __init__(self, options: RenderOptions) -> None:
        self._options = options
        self._used: set[Provenance] = set()

    def write(self, cell: Cell, kind: Kind, default: Provenance = Provenance.EXACT) -> str:
        """Return the cell, its sign before it and its interval behind it."""
        text = self.number(cell, kind)
        if text == UNKNOWN or (kind is Kind.SHAPE and UNKNOWN in text):
            self._used.add(Provenance.UNKNOWN)
        where = provenance_of(cell, kind, default)
        sign = SIGNS.get(where, "")
        if sign:
            self._used.add(where)
        return f"{sign}{text}{self._interval(cell, kind)}"

    def number(self, cell: Cell, kind: Kind) -> str:
        """Return the cell alone."""
        text = humanise(cell, kind, UNKNOWN) if self._options.humanise else raw_text(cell, UNKNOWN)
        return legible(text, self._options.encoding)

    def _interval(self, cell: Cell, kind: Kind) -> str:
        if not isinstance(cell, Quantity) or cell.interval is None:
            return ""
        low, high = (self.number(bound, kind) for bound in cell.interval)
        return f" [{low} to {high}]"

    def legend(self) -> str:
        """Return what the signs used so far mean; empty where there were none."""
        return "   ".join(text for where, text in LEGEND.items() if where in self._used)
