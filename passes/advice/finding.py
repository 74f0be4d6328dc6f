"""One thing that could be better about a model, and the sources that find such things.

A source is a function that is given an `Enquiry` and yields findings. Installed packages offer theirs as entry points of the group
`irscope.advice`, each a `Source`; a script calls `add_source`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from irscope.devices import find_device, target_of
from irscope.errors import UsageError
from irscope.immutable import immutable, mutable
from irscope.ir.dims import Dim, SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Node, Value
from irscope.ops.cost import FREE, Cost
from irscope.passes.cost.bounds import UNKNOWN, Bounder, Rates
from irscope.passes.cost.count import Certainty, Entry, NodeCosts
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes
from irscope.passes.sizes import typical
from irscope.plugins import plugins

if TYPE_CHECKING:
    from irscope.devices.profile import DeviceProfile
    from irscope.passkit.base import PassContext


Sureness: TypeAlias = Literal["exact", "modelled", "bound"]
"""Basis of a saving: counted, following from a model of how the model is run, or an upper bound."""


@immutable(slots=False)
class Finding:
    """A change that could be made, its reason, its saving and how sure that is. A saving of None is not known, one of 0 is none."""

    what: str
    evidence: str
    sure: Sureness
    nodes: tuple[Node, ...] = ()
    weights: tuple[Value, ...] = ()
    memory: Dim | None = 0
    """Bytes that are held less, of weights or at the peak of memory."""
    moved: Dim | None = 0
    """Bytes that are read and written less."""
    flops: Dim | None = 0
    seconds: float | None = None
    """By how much the least time on the device falls."""
    is_lossless: bool = True
    """True where the model's results stay the same, up to rounding."""


@immutable(slots=False)
class Enquiry:
    """The input of a source: the program and other passes through `ctx`, options, and a clock."""

    ctx: PassContext
    device: str = ""
    target: float = 30.0
    threads: int = 0
    allow: tuple[str, ...] = ()
    problems: list[str] = field(default_factory=list, compare=False)
    """Where sources say what they could not look at."""

    @cached_property
    def clock(self) -> Clock:
        """Return the least time on the device, with and without a change."""
        return Clock.of(self.ctx, self.device)


@immutable(slots=False)
class Source:
    """Something that has advice to give; one that needs values of weights is only asked where these are to be read."""

    name: str
    title: str
    find: Callable[[Enquiry], Iterable[Finding]]
    needs_values: bool = False


ENTRY_POINT_GROUP = "irscope.advice"
SOURCES: dict[str, Source] = {}


def add_source(source: Source) -> None:
    """Have a source asked by every `advise` from now on."""
    other = SOURCES.get(source.name)
    if other is not None and other is not source:
        raise UsageError(f"advice {source.name!r} comes from two sources", code="IRS472", hint="give one of them another name")
    SOURCES[source.name] = source


def load_plugins() -> list[str]:
    """Add the sources of installed packages; what is wrong with those that cannot be had."""
    problems = []
    for plugin in plugins(ENTRY_POINT_GROUP):
        try:
            found = plugin.load()
        except UsageError as error:  # one broken package must not silence the others
            problems.append(str(error))
            continue
        if isinstance(found, Source):
            add_source(found)
        else:
            problems.append(f"advice {plugin.name!r} of {plugin.owner} is not a Source but {type(found).__name__}")
    return problems


# How long a run takes at least, before and after a change.


@mutable
class Clock:
    """Bounds are those of the pass `roofline`."""

    device: DeviceProfile
    at: dict[str, int]
    """Sizes that open symbols are taken to have."""
    entries: list[Entry]
    seconds: float | None
    """The least time as it is; None where a part of it is not known."""
    _ctx: PassContext

    @classmethod
    def of(cls, ctx: PassContext, device: str) -> Self:
        """Return the clock of a program on a device, by default the one of the settings."""
        profile = find_device(device) if device else target_of(ctx.settings).device
        types = [value.type for value in ctx.program.graph.inputs]
        sizes = [size for type_ in types for size in type_.shape or () if isinstance(size, SymDim)]
        symbols = {str(symbol): symbol for size in sizes for symbol in size.symbols() if not symbol.is_unknown}
        at = {name: typical(symbols[name]) for name in sorted(symbols)}
        made = cls(profile, at, ctx.get(NodeCosts()).entries, None, ctx)
        made.seconds = made.bounded(made.entries)
        return made

    def bounded(self, entries: Iterable[Entry], dtype: DType | None = None) -> float | None:
        """Return the least time of these nodes, with all floats of a type; None where a part of it is not known."""
        ctx = self._ctx
        bounder = Bounder(Rates(self.device), ctx.get(Shapes), ctx.get(Alias()), dtype, self.at)
        bounds = list(bounder.bounds(entries))
        if any(bound.binding == UNKNOWN for bound in bounds):
            return None
        return float(sum(bound.seconds(self.device.kind) for bound in bounds))

    def saved(self, changed: Mapping[Node, Cost]) -> float | None:
        """Return by how much the least time falls when nodes cost something else."""
        if self.seconds is None:
            return None
        entries = [_changed(entry, changed[entry.node]) if entry.node in changed else entry for entry in self.entries]
        then = self.bounded(entries)
        return None if then is None else max(self.seconds - then, 0.0)

    def takes(self, costs: Mapping[Node, Cost]) -> float | None:
        """Return the least time of nodes that cost this."""
        return self.bounded([Entry(node, Certainty.EXACT, cost) for node, cost in costs.items()])

    def without(self, nodes: Iterable[Node]) -> float | None:
        """Return by how much the least time falls when nodes are left out."""
        return self.saved(dict.fromkeys(nodes, FREE))


def _changed(entry: Entry, cost: Cost) -> Entry:
    certainty = Certainty.FREE if cost is FREE else entry.certainty
    return replace(entry, cost=cost, certainty=certainty, bounds=None)
