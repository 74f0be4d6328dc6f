"""Energy and carbon of one run: intervals, each from an amount and a constant that the report names with its source."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import ClassVar, TypeAlias

from irscope.devices.profile import DeviceProfile, Figure, SourceJson
from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.graph import Facet, Graph
from irscope.jsoncodec import decode, loads
from irscope.ops.registry import find_op
from irscope.passes.cost.bounds import UNKNOWN, NodeBound
from irscope.passes.cost.roofline import Roofline, Traffic
from irscope.passes.sizes import at_least
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity

_JOULES_PER_KWH = 3.6e6
_CARBON = "grams = joules / 3.6e6 x PUE x grid"
_NO_CARBON = "country=DEU or grid=GRAMS_PER_KWH gives carbon: from country to country grids differ by a factor of 17"
_RATED = (
    "joules at rated power: {:g} W for the least seconds, as calculators that know only power and time say; no bound of the joules above, "
    "which may lie on either side: devices draw less than their rated power, and runs take longer than the least seconds"
)
_NO_GRID = "no country was given"


Ends: TypeAlias = "tuple[float, float | None]"
"""Lower and upper bound; None where there is no upper bound."""


@immutable
class Term:
    """One part of the sum: an amount times a constant. None where there is no constant."""

    name: str
    amount: Ends
    unit: str
    constant: Figure | None

    @property
    def joules(self) -> Ends:
        if self.constant is None:
            return 0.0, None
        low, high = self.amount
        return low * self.constant.lo, None if high is None else high * self.constant.hi


@immutable
class ClassShare:
    """Energy that the operators of one family take."""

    family: str
    nodes: int
    flops: int
    bytes: int
    joules: Ends
    unknown: int
    """Nodes of which nothing is known."""


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
    """Whose grid the power comes from, such as DEU; without it or a grid there is no carbon."""
    grid: float = 0.0
    """Grams of CO2 equivalent per kWh, instead of a country's."""
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
        # The least traffic of main memory has no node of its own: each takes its part of all bytes.
        from_memory = self._compulsory(ctx)
        # Nodes and their seconds side by side: pairs of a hundred thousand nodes would be as many objects.
        families: dict[str, tuple[list[NodeBound], list[float]]] = {}
        names: dict[str, str] = {}
        for node, took in zip(bounds.nodes, bounds.seconds_by_node, strict=True):
            op = node.node.op
            name = names.get(op)
            if name is None:
                name = names[op] = _family(op)
                families.setdefault(name, ([], []))
            nodes, seconds = families[name]
            nodes.append(node)
            seconds.append(took)

        def terms(nodes: Sequence[NodeBound], seconds: Sequence[float]) -> tuple[Term, ...]:
            return self._terms(nodes, seconds, device, known, from_memory)

        shares = [
            ClassShare(
                name,
                len(nodes),
                self.runs * sum([node.flops * node.runs for node in nodes]),
                self.runs * sum([node.bytes * node.runs for node in nodes]),
                _added(term.joules for term in terms(nodes, seconds)),
                sum([node.binding == UNKNOWN for node in nodes]),
            )
            for name, (nodes, seconds) in families.items()
        ]
        shares.sort(key=lambda share: -share.joules[0])
        unknown = tuple(sorted({one.node.op for one in bounds.unknown}))
        carbon = self._carbon(known)
        whole = terms(bounds.nodes, bounds.seconds_by_node)
        return Spent(device, whole, tuple(shares), bounds.seconds * self.runs, self.slower, carbon, len(bounds.nodes), unknown)

    def _terms(
        self, nodes: Sequence[NodeBound], times: Sequence[float], device: DeviceProfile, known: Constants, from_memory: float
    ) -> tuple[Term, ...]:
        """Return the energy of some nodes, each with its seconds. If nothing is known of one of the nodes, no amount has an upper end."""
        is_open = any([bound.binding == UNKNOWN or not bound.is_exact for bound in nodes])

        def amount(low: float, high: float) -> Ends:
            return low * self.runs, None if is_open else high * self.runs

        flops: dict[str, int] = {}
        for bound in nodes:
            if bound.flops:
                flops[bound.dtype] = flops.get(bound.dtype, 0) + bound.flops * bound.runs
        moved = sum([bound.bytes * bound.runs for bound in nodes])
        seconds = sum(times)
        return (
            *(Term(f"arithmetic {dtype}", amount(count, count), "FLOPs", known.flop(device, dtype)) for dtype, count in flops.items()),
            Term("main memory", amount(moved * from_memory, moved), "bytes", known.memory.get(device.kind)),
            Term("caches", amount(moved, moved), "bytes", known.cache),
            Term("idle power", amount(seconds, seconds * self.slower), "seconds", known.idle_power(device)),
        )

    def _compulsory(self, ctx: PassContext) -> float:
        """Return the part of all bytes that must come from main memory in every run, as large as in the model's own element types."""
        traffic = ctx.get(Traffic())
        least, whole = traffic.compulsory.total, traffic.costs.tally.moved
        if not isinstance(least, int) or not isinstance(whole, int) or not whole:
            return 0.0
        return min(1.0, least / whole)

    def _carbon(self, known: Constants) -> tuple[Figure | None, Figure]:
        """Grams per kWh (None where no country or grid was given) and the factor of the data centre."""
        pue = Figure(self.pue, self.pue, "given", "") if self.pue else known.pue
        if self.grid:
            return Figure(self.grid, self.grid, "given", ""), pue
        if not self.country:
            return None, pue
        grid = known.grids.get(self.country.upper())
        if grid is None:
            named = ", ".join(sorted(known.grids))
            raise UsageError(f"there is no grid {self.country!r}", code="IRS606", hint=f"countries: {named}; or grid=GRAMS_PER_KWH")
        return grid, pue

    def report(self, result: Spent, ctx: PassContext) -> Report:
        power, unknown = result.device.power, result.unknown
        grid, pue = result.carbon
        rated = None if power is None else at_least(power.hi * result.seconds, not unknown, Provenance.MODELLED)
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "device": result.device.title,
                "run_count": self.runs,
                "joules": _middle(result.joules),
                "watts": _middle(result.watts),
                "flops_per_joule": _middle(result.flops_per_joule),
                "grams_of_co2": Quantity(None, Provenance.UNKNOWN, note=_NO_GRID) if result.grams is None else _middle(result.grams),
                "least_seconds": at_least(result.seconds, not unknown, Provenance.MODELLED),
                "joules_at_rated_power": rated,
            },
            units=dict.fromkeys(("joules", "watts", "flops_per_joule", "grams_of_co2", "joules_at_rated_power"), Kind.NUMBER),
            tables=(_by_class(result), _terms_table(result.terms), _factors(grid, pue)),
            coverage=Coverage(result.nodes - result.missing, result.nodes, unknown),
            notes=(
                "joules = FLOPs x arithmetic + bytes x memory + seconds x idle power, each with the low and the high end of its constant",
                f"the high end lets a run take {self.slower:g} times its lower bound, and every byte come from main memory",
                "the number is the geometric mean of both ends, that of a class as far between its ends as the whole",
                *(() if power is None else (_RATED.format(power.hi),)),
                "no static tool knows energy better than within a factor of about 2: measure it",
                _NO_CARBON if grid is None else _CARBON,
            ),
        )


@immutable(slots=False)
class Spent:
    """The answer: parts of the energy, and what makes carbon of it."""

    device: DeviceProfile
    terms: tuple[Term, ...]
    shares: tuple[ClassShare, ...]
    seconds: float
    slower: float
    carbon: tuple[Figure | None, Figure]
    nodes: int
    unknown: tuple[str, ...]
    """Operators of whose nodes nothing is known."""

    @property
    def missing(self) -> int:
        """Nodes of which nothing is known."""
        return sum(share.unknown for share in self.shares)

    @property
    def joules(self) -> Ends:
        """Return the least and the most; no most where a constant of the device is not known."""
        return _added(term.joules for term in self.terms)

    @property
    def watts(self) -> Ends:
        """Mean power while it runs: a slow run spreads the energy of its work over more time. A device does not draw more than its rated
        power."""
        if not self.seconds or self.missing:
            return 0.0, None
        low = high = 0.0
        for term in self.terms:
            least, most = term.joules
            if most is None:
                return 0.0, None
            is_power = term.unit == "seconds"
            low += least / (self.seconds if is_power else self.seconds * self.slower)
            high += most / (self.seconds * self.slower if is_power else self.seconds)
        rated = self.device.power.hi if self.device.power is not None else high
        return min(low, rated), min(high, rated)

    @property
    def flops_per_joule(self) -> Ends:
        """Arithmetic for each joule, which is also FLOP/s for each watt."""
        flops = sum(share.flops for share in self.shares)
        low, high = self.joules
        return (0.0, None) if not low or high is None else (flops / high, flops / low)

    @property
    def grams(self) -> Ends | None:
        """CO2 equivalent; None where no country or grid was given."""
        grid, pue = self.carbon
        if grid is None:
            return None
        low, high = self.joules
        most = None if high is None else high / _JOULES_PER_KWH * pue.hi * grid.hi
        return low / _JOULES_PER_KWH * pue.lo * grid.lo, most


def _family(op: str) -> str:
    spec = find_op(op)
    return "unknown" if spec is None else spec.family.value


def _added(parts: Iterable[Ends]) -> Ends:
    found = list(parts)
    highs = [high for _, high in found if high is not None]
    return sum(low for low, _ in found), sum(highs) if len(highs) == len(found) else None


def _by_class(spent: Spent) -> Table:
    """Joules by what kind of work an operator does; they add up to the whole."""
    low, high = spent.joules
    # How far between the ends the number of the whole lies; parts at the same place add up to it.
    place = (math.sqrt(low * high) - low) / (high - low) if high is not None and high > low else 0.0

    def joules(class_share: ClassShare) -> Quantity:
        least, most = class_share.joules
        value = (least or None) if most is None else least + place * (most - least)
        return Quantity(value, Provenance.MODELLED, lo=least, hi=most)

    rows = [
        (
            share.family,
            share.nodes,
            at_least(share.flops, not share.unknown),
            at_least(share.bytes, not share.unknown),
            joules(share),
        )
        for share in spent.shares
    ]
    columns = [
        Column("class"),
        Column("nodes", Kind.COUNT),
        Column("flops", Kind.FLOPS),
        Column("bytes", Kind.BYTES),
        Column("joules", Kind.NUMBER, provenance=Provenance.MODELLED),
    ]
    return Table.of(rows, columns=columns, title="joules by operator class")


def _terms_table(terms: Sequence[Term]) -> Table:
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
        rows.append((term.name, *_shown_ends(term.amount), term.unit, *_ends(figure), of, *_shown_ends(term.joules), *said))
    return Table.of(rows, columns=columns, title="inputs")


def _factors(grid: Figure | None, pue: Figure) -> Table:
    """Return the factors that convert joules to carbon."""
    source = (_NO_GRID, "") if grid is None else (grid.source, grid.date)
    rows = [("data centre (PUE)", *_ends(pue), "", pue.source, pue.date), ("grid", *_ends(grid), "g/kWh", *source)]
    return Table.of(rows, columns=["input:text", "low:number", "high:number", "unit:text", "source:text", "date:text"], title="carbon")


def _ends(figure: Figure | None) -> tuple[float | None, float | None]:
    return (None, None) if figure is None else (figure.lo, figure.hi)


def _shown_ends(ends: Ends) -> tuple[float | None, float | None]:
    """Return both ends; a least of nothing says nothing where there is no most."""
    low, high = ends
    return (low if low or high is not None else None), high


def _middle(ends: Ends) -> Quantity:
    """Return a number within its interval: the geometric mean, as the ends are factors away; the lower end where there is no upper one."""
    low, high = ends
    value = (low or None) if high is None else math.sqrt(low * high)
    return Quantity(value, Provenance.MODELLED, lo=low, hi=high)


# Constants of energy and carbon, each an interval with its source.

PICO = 1e-12


@immutable(slots=False)
class Constants:
    """Constants that the energy is computed from."""

    arithmetic: Mapping[str, Figure]
    """Joules a FLOP by element type: the arithmetic alone."""
    cache: Figure
    """Joules a byte."""
    memory: Mapping[str, Figure]
    """Joules a byte of main memory by kind of device."""
    idle_share: Figure
    """Part of the rated power that an idle device draws."""
    pue: Figure
    """Power that a data centre draws for each watt of its machines."""
    grids: Mapping[str, Figure]
    """Grams of CO2 equivalent a kWh by country."""

    def idle_power(self, device: DeviceProfile) -> Figure | None:
        """Watts of an idle device: its own figure, else a share of its rated power."""
        if device.idle_power is not None:
            return device.idle_power
        if device.power is None:
            return None
        share = self.idle_share
        return Figure(device.power.lo * share.lo, device.power.hi * share.hi, share.source, share.date)

    def flop(self, device: DeviceProfile, dtype: str) -> Figure | None:
        """Joules a FLOP: from the arithmetic alone to the rated power spread over the peak rate."""
        alone = self.arithmetic.get(dtype)
        rate = device.matrix.get(dtype)
        if alone is None:
            return None
        if device.power is None or rate is None:
            return alone
        whole = device.power.hi / rate.lo
        if whole <= alone.lo:
            # The chip is newer than the constants: what it needs at full load, with everything, is all that is known.
            return Figure(whole / 10, whole, f"a tenth to all of {device.title}'s rated power at its peak rate", device.power.date)
        return Figure(alone.lo, max(whole, alone.lo), f"{alone.source}; at most {device.title}'s rated power at its peak rate", alone.date)


@immutable
class EnergyFigureJson:
    """An interval and what says so, as the file of constants has it."""

    lo: float
    hi: float
    source: tuple[str, ...]
    how: str = ""


@immutable
class EnergyJson:
    """The file of constants."""

    sources: Mapping[str, SourceJson]
    arithmetic_pj: Mapping[str, EnergyFigureJson]
    cache_pj_per_byte: EnergyFigureJson
    memory_pj_per_byte: Mapping[str, EnergyFigureJson]
    idle_share: EnergyFigureJson
    pue: EnergyFigureJson
    grams_per_kwh: Mapping[str, float]
    grams_source: tuple[str, ...]


@functools.cache
def constants() -> Constants:
    """Return the constants that come with irscope."""
    data = decode(EnergyJson, loads(files("irscope.devices").joinpath("energy.json").read_bytes()), closed=True)

    def figure(entry: EnergyFigureJson, scale: float = 1.0) -> Figure:
        named = [data.sources[key] for key in entry.source]
        text = "; ".join(source.text for source in named) + (f" ({entry.how})" if entry.how else "")
        return Figure(entry.lo * scale, entry.hi * scale, text, max(source.date for source in named))

    grid = data.sources[data.grams_source[0]]
    return Constants(
        {dtype: figure(entry, PICO) for dtype, entry in data.arithmetic_pj.items()},
        figure(data.cache_pj_per_byte, PICO),
        {kind: figure(entry, PICO) for kind, entry in data.memory_pj_per_byte.items()},
        figure(data.idle_share),
        figure(data.pue),
        {name: Figure(grams, grams, grid.text, grid.date) for name, grams in data.grams_per_kwh.items()},
    )
