"""What could be better about a model: findings of all passes in one list, those that save the largest share first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from irscope.errors import Cancelled, IrscopeError, UsageError
from irscope.immutable import immutable, mutable
from irscope.ir.dims import Dim
from irscope.ir.graph import Facet, Graph
from irscope.passes.advice.finding import SOURCES, Enquiry, Finding, Source, load_plugins
from irscope.passes.advice.sources import BUILT_IN
from irscope.passes.cost.count import NodeCosts
from irscope.passes.memory.liveness import Liveness
from irscope.passes.sizes import CONVENTION, at_least, dim_cell, scale
from irscope.passes.weights.storages import count_parameters
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Coverage, Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind
from irscope.report.values import Provenance

_FAILED = "IRS471"
_NAMED = 4
_SAVINGS = (
    Column("rank", Kind.INDEX),
    Column("memory", Kind.BYTES, "memory"),
    Column("seconds", Kind.SECONDS, "time", provenance=Provenance.MODELLED),
    Column("flops", Kind.FLOPS, "FLOPs"),
    Column("moved", Kind.BYTES, "bytes moved"),
)
_NOTES = (
    "share: the largest of memory saved of weights and activation peak together, and time saved of the least time; without a time of "
    "FLOPs or of bytes moved",
    "time: by how much the device's lower bound falls; savings of several findings do not add up",
    "results: whether they stay the same, up to rounding",
    "sure: exact is counted, modelled depends on how the model is run, bound is an upper bound of the saving",
)


@immutable(slots=False)
class Ranked:
    """A finding with its source, and which share of the model's memory, time or work it saves."""

    source: Source
    finding: Finding
    share: float


@mutable
class AdviceList:
    """All findings, and what was not examined."""

    device: str
    at: dict[str, int]
    """Sizes that open symbols were taken to have for times, peaks and shares."""
    ranked: list[Ranked] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    not_asked: dict[str, str] = field(default_factory=dict)
    """Sources that were not asked for."""
    failed: dict[str, str] = field(default_factory=dict)
    """Sources that could not answer, or not for everything."""
    wholes: dict[str, Dim | float | None] = field(default_factory=dict)
    """What shares are shares of."""


@dataclass(frozen=True)
class Advise(Analysis[AdviceList]):
    """Rank possible improvements by the memory, time or arithmetic that each saves, with evidence and confidence.

    Values of weights are read only with `values`; `target` is the signal to noise in dB that fewer bits have to keep.
    """

    name: ClassVar[str] = "advise"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS, Facet.TYPES)
    known_of_weights: ClassVar[tuple[str, ...]] = (
        "findings_count",
        "weight_bytes",
        "device",
        "findings",
        "savings",
        "evidence",
        "not examined",
    )

    values: bool = False
    """Whether values of weights are read, for advice about pruning and quantization."""
    device: str = ""
    """A device for times; default: what --device says, else h200."""
    target: float = 30.0
    """Signal-to-noise ratio in dB that quantized weights must reach."""
    topics: tuple[str, ...] = ()
    """Sources of findings to use; default: all."""
    top: int = 20
    """Findings listed, 0 for all."""
    threads: int = 0
    """Threads that read weights; 0: one per core."""
    allow: tuple[str, ...] = ()
    """Further folders from which external data may be read."""

    def compute(self, graph: Graph, ctx: PassContext) -> AdviceList:
        for problem in load_plugins():
            ctx.sink.warn("IRS101", problem)
        sources = {source.name: source for source in BUILT_IN} | SOURCES
        unknown = [name for name in self.topics if name not in sources]
        if unknown:
            raise UsageError(f"there is no advice on {unknown[0]!r}", code="IRS473", hint=f"topics are {', '.join(sources)}")
        ask = Enquiry(ctx, self.device, self.target, self.threads, self.allow)
        result = AdviceList(ask.clock.device.title, ask.clock.at)
        found: list[tuple[Source, Finding]] = []
        for source in sources.values():
            if self.topics and source.name not in self.topics:
                result.not_asked[source.name] = "the option topics leaves it out"
            elif source.needs_values and not self.values:
                result.not_asked[source.name] = "values of weights are read only with advise{values}"
            else:
                found += self._asked(source, ask, result, ctx)
        result.wholes = self._wholes(ask, ctx)
        ranked = [Ranked(source, finding, _largest_share(finding, result.wholes)) for source, finding in found]
        result.ranked = sorted(ranked, key=lambda one: -one.share)
        return result

    def _asked(self, source: Source, ask: Enquiry, result: AdviceList, ctx: PassContext) -> list[tuple[Source, Finding]]:
        ask.problems.clear()
        result.asked.append(source.name)
        try:
            found = [(source, finding) for finding in source.find(ask)]
        except Cancelled:
            raise
        except IrscopeError as error:
            found = []
            ask.problems.append(str(error))
        if ask.problems:
            more = f", and {len(ask.problems) - 1} more" if len(ask.problems) > 1 else ""
            result.failed[source.name] = ask.problems[0] + more
            ctx.sink.warn(_FAILED, f"advice on {source.name} is not complete: {result.failed[source.name]}", about=source.name)
        return found

    def _wholes(self, ask: Enquiry, ctx: PassContext) -> dict[str, Dim | float | None]:
        totals, cost = count_parameters(ctx.program), ctx.get(NodeCosts()).total
        weights = totals.every_byte
        timeline = ctx.get(Liveness())
        return {
            "weights": weights,
            "activations": None if timeline.unsized else timeline.peak,
            "seconds": ask.clock.seconds,
            "flops": cost.flops,
            "moved": None if cost.read is None or cost.written is None else cost.read + cost.written,
        }

    def report(self, result: AdviceList, ctx: PassContext) -> Report:
        wholes = result.wholes
        missing = [*((name, why, "could not be answered") for name, why in result.failed.items())]
        missing += [(name, why, "not asked") for name, why in result.not_asked.items() if not self.topics]
        tables = self._tables(result) if result.ranked else []
        if missing:
            tables.append(Table.of(missing, ["topic:text", "why:text", "state:text"], "not examined"))
        notes = [CONVENTION, *_NOTES]
        if result.at:
            sizes = ", ".join(f"{name}={size}" for name, size in result.at.items())
            notes.append(f"times, peaks and shares with {sizes}; bind symbols for others")
        if not result.ranked:
            asked = [name for name in result.asked if name not in result.failed]
            notes.append(f"nothing to advise on {', '.join(asked)}")
        return Report(
            pass_name=self.name,
            options=self.text,
            summary={
                "findings_count": len(result.ranked),
                "device": result.device,
                "weight_bytes": at_least(wholes["weights"], count_parameters(ctx.program).is_complete()),
                "activation_peak_bytes": _advice_cell(wholes["activations"]),
                "least_seconds": at_least(wholes["seconds"], not ctx.get(NodeCosts()).missing, Provenance.MODELLED),
            },
            units={"findings_count": Kind.COUNT},
            tables=tuple(tables),
            coverage=Coverage(len(result.asked) - len(result.failed), len(result.asked) + len(result.not_asked), tuple(result.failed)),
            notes=tuple(notes),
            partial=bool(result.failed),
        )

    def _tables(self, result: AdviceList) -> list[Table]:
        listed = list(enumerate(result.ranked[: self.top or None], 1))
        what = [
            (rank, one.source.name, one.finding.what, one.share, one.finding.sure, "same" if one.finding.is_lossless else "change")
            for rank, one in listed
        ]
        found = [(rank, one.finding) for rank, one in listed]
        saved = [(rank, _advice_cell(one.memory), one.seconds, _advice_cell(one.flops), _advice_cell(one.moved)) for rank, one in found]
        evidence = [(rank, piece) for rank, one in found for piece in (*one.evidence.split("; "), *_where(one))]
        return [
            Table.of(what, ["rank:index", "topic:text", "what:text", "share:ratio", "sure:text", "results:text"], "findings"),
            Table.of(saved, _SAVINGS, "savings"),
            Table.of(evidence, ["rank:index", "evidence:text"], "evidence"),
        ]


def _advice_cell(number: Dim | float | None) -> int | float | str | None:
    return number if isinstance(number, float) else dim_cell(number)


def _where(finding: Finding) -> Iterator[str]:
    for kind, found in (("weights", finding.weights), ("nodes", finding.nodes)):
        if found:
            more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            yield f"{kind}: {', '.join(one.name or '?' for one in found[:_NAMED])}{more}"


def _largest_share(finding: Finding, wholes: dict[str, Dim | float | None]) -> float:
    """The largest share that a finding saves of anything; sizes that are open are taken to be typical."""
    weights, activations = wholes["weights"], wholes["activations"]
    held = _for_ranking(weights) + _for_ranking(activations)
    shares = [_for_ranking(finding.memory) / held if held else 0.0]
    if finding.seconds is not None:
        whole = _for_ranking(wholes["seconds"])
        shares.append(finding.seconds / whole if whole else 0.0)
    else:
        for saved, of in ((finding.flops, wholes["flops"]), (finding.moved, wholes["moved"])):
            shares.append(_for_ranking(saved) / _for_ranking(of) if _for_ranking(of) else 0.0)
    return min(1.0, max(0.0, *shares))


def _for_ranking(value: Dim | float | None) -> float:
    if value is None:
        return 0.0
    return float(value) if isinstance(value, int | float) else float(scale(value))
