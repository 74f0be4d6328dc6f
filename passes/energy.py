"""Energy and carbon of one run: intervals, each from an amount and a constant that the report names with its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from irscope.devices.energy import Constants, constants
from irscope.devices.profile import DeviceProfile, Figure
from irscope.errors import UsageError
from irscope.ir.graph import Facet, Graph
from irscope.passes.roofline import Roofline
from irscope.passes.traffic import Traffic
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity

_JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Term:
    """One part of the sum: an amount times a constant. None where there is no constant."""

    name: str
    amount: tuple[float, float]
    unit: str
    constant: Figure | None

    @property
    def joules(self) -> tuple[float, float] | None:
        if self.constant is None:
            return None
        return self.amount[0] * self.constant.lo, self.amount[1] * self.constant.hi


@dataclass(frozen=True)
class Energy(Analysis["Spent"]):
    """Bound the energy of one run from stated constants, and its carbon for a country's grid."""

    name: ClassVar[str] = "energy"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)

    device: str = ""
    """A device, "this" or a device file; default: what --device says, else h200."""
    dtype: str = ""
    """Element type that every floating-point tensor is taken to have; default: as the model has them."""
    country: str = ""
    """Whose grid the power comes from, such as DEU; default: from the cleanest to the dirtiest of the table."""
    grid: float = 0.0
    """Grams of CO2 equivalent a kWh, in place of a country's."""
    pue: float = 0.0
    """Power a data centre draws for each watt of its machines; default: 1.1 to 1.58."""
    slower: float = 3.0
    """How many times longer than its lower bound a run may take, for the upper end."""
    runs: int = 1
    """Runs of the model that are added up."""

    def compute(self, graph: Graph, ctx: PassContext) -> Spent:
        if self.runs < 1 or self.slower < 1 or self.grid < 0 or (self.pue and self.pue < 1):
            raise UsageError("runs, slower and pue are at least 1, grid is not negative", code="IRS606")
        bounds = ctx.get(Roofline(device=self.device, dtype=self.dtype))
        known, device = constants(), bounds.device
        flops: dict[str, int] = {}
        moved = 0
        for one in bounds.nodes:
            if one.flops:
                flops[one.dtype] = flops.get(one.dtype, 0) + one.flops * one.runs * self.runs
            moved += one.bytes * one.runs * self.runs
        terms = [Term(f"arithmetic {dtype}", (count, count), "FLOPs", known.flop(device, dtype)) for dtype, count in flops.items()]
        from_memory = self._compulsory(ctx, moved)
        terms.append(Term("main memory", (from_memory, moved), "bytes", known.memory.get(device.kind)))
        terms.append(Term("caches", (moved, moved), "bytes", known.cache))
        seconds = bounds.seconds * self.runs
        terms.append(Term("idle power", (seconds, seconds * self.slower), "seconds", known.idle_power(device)))
        return Spent(device, tuple(terms), seconds, self._carbon(known), len(bounds.nodes), sorted({one.node.op for one in bounds.unknown}))

    def _compulsory(self, ctx: PassContext, moved: int) -> float:
        """Bytes that must come from main memory in every run; as large a part of all bytes as in the model's own element types."""
        traffic = ctx.get(Traffic())
        least, tally = traffic.compulsory.total, traffic.costs.tally
        whole = tally.value("read") + tally.value("written")
        if not isinstance(least, int) or not isinstance(whole, int) or not whole:
            return 0.0
        return moved * min(1.0, least / whole)

    def _carbon(self, known: Constants) -> tuple[Figure, Figure]:
        """Grams a kWh, and the factor of the data centre."""
        pue = Figure(self.pue, self.pue, "given", "") if self.pue else known.pue
        if self.grid:
            return Figure(self.grid, self.grid, "given", ""), pue
        if self.country:
            found = known.grids.get(self.country.upper())
            if found is None:
                named = ", ".join(sorted(known.grids))
                raise UsageError(f"there is no grid {self.country!r}", code="IRS606", hint=f"countries: {named}; or grid=GRAMS_PER_KWH")
            return found, pue
        low, high = (choose(known.grids.items(), key=lambda item: item[1].lo) for choose in (min, max))
        return Figure(low[1].lo, high[1].hi, f"{low[0]} to {high[0]}, as no country was given: {low[1].source}", low[1].date), pue

    def report(self, result: Spent, ctx: PassContext) -> Report:
        joules = result.joules
        power = result.device.power
        grid, pue = result.carbon
        unknown = result.unknown
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "device": result.device.title,
                "run_count": self.runs,
                "joules": _interval(joules),
                "grams_of_co2": _interval(result.grams),
                "least_seconds": Quantity(result.seconds, Provenance.MODELLED),
                "joules_at_rated_power": None if power is None else Quantity(power.hi * result.seconds, Provenance.MODELLED),
            },
            units={"joules": Kind.NUMBER, "grams_of_co2": Kind.NUMBER, "joules_at_rated_power": Kind.NUMBER},
            tables=(_inputs(result.terms), _factors(grid, pue)),
            coverage=Coverage(result.nodes - len(unknown), result.nodes, tuple(unknown)),
            notes=(
                "joules = FLOPs x arithmetic + bytes x memory + seconds x idle power, each with the low and the high end of its constant",
                f"the high end lets a run take {self.slower:g} times its lower bound, and every byte come from main memory",
                "grams = joules / 3.6e6 x PUE x grid. No static tool knows energy better than within a factor of about 2: measure it",
            ),
        )


@dataclass(frozen=True)
class Spent:
    """The answer: parts of the energy, and what makes carbon of it."""

    device: DeviceProfile
    terms: tuple[Term, ...]
    seconds: float
    carbon: tuple[Figure, Figure]
    nodes: int
    unknown: list[str]

    @property
    def joules(self) -> tuple[float, float | None]:
        """The least and the most; None where a constant of the device is not known."""
        found = [term.joules for term in self.terms]
        low = sum(part[0] for part in found if part is not None)
        return low, None if None in found else sum(part[1] for part in found if part is not None)

    @property
    def grams(self) -> tuple[float, float | None]:
        """CO2 equivalent."""
        grid, pue = self.carbon
        low, high = self.joules
        most = None if high is None else high / _JOULES_PER_KWH * pue.hi * grid.hi
        return low / _JOULES_PER_KWH * pue.lo * grid.lo, most


def _inputs(terms: Sequence[Term]) -> Table:
    """Amount times constant, term by term."""
    numbers = [
        Column(key, Kind.NUMBER) for key in ("amount_low", "amount_high", "constant_low", "constant_high", "joules_low", "joules_high")
    ]
    columns = [Column("input"), *numbers[:2], Column("unit"), *numbers[2:4], Column("of"), *numbers[4:], Column("source"), Column("date")]
    rows = []
    for term in terms:
        of = "W" if term.unit == "seconds" else f"J/{term.unit[:-1]}"
        figure = term.constant
        said = ("no figure", "") if figure is None else (figure.source, figure.date)
        rows.append((term.name, *term.amount, term.unit, *_ends(figure), of, *(term.joules or (None, None)), *said))
    return Table.of(rows, columns=columns, title="inputs")


def _factors(grid: Figure, pue: Figure) -> Table:
    """What makes carbon of joules."""
    rows = [("data centre (PUE)", *_ends(pue), "", pue.source, pue.date), ("grid", *_ends(grid), "g/kWh", grid.source, grid.date)]
    return Table.of(rows, columns=["input:text", "low:number", "high:number", "unit:text", "source:text", "date:text"], title="carbon")


def _ends(figure: Figure | None) -> tuple[float | None, float | None]:
    return (None, None) if figure is None else (figure.lo, figure.hi)


def _interval(ends: tuple[float, float | None]) -> Quantity:
    """An interval never shows as one number: its text names both ends."""
    low, high = ends
    text = f"{low:.3g} to {high:.3g}" if high is not None else f"at least {low:.3g}"
    return Quantity(text, Provenance.MODELLED, lo=low, hi=high)
