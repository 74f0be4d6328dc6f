"""The least time of a model on a device, as it is and with some nodes changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from irscope.devices import find_device, target_of
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Node
from irscope.ops.cost import FREE, Cost
from irscope.passes.alias import Alias
from irscope.passes.costs.count import NodeCosts
from irscope.passes.costs.entries import Certainty, Entry
from irscope.passes.rooflines.bounds import UNKNOWN, Bounder
from irscope.passes.rooflines.rates import Rates
from irscope.passes.shapes import Shapes
from irscope.passes.sizes import typical

if TYPE_CHECKING:
    from irscope.devices.profile import DeviceProfile
    from irscope.passkit.base import PassContext


@dataclass
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
        """The clock of a program on a device, by default the one of the settings."""
        profile = find_device(device) if device else target_of(ctx.settings).device
        types = [value.type for value in ctx.program.graph.inputs]
        sizes = [size for type_ in types for size in type_.shape or () if isinstance(size, SymDim)]
        symbols = {str(symbol): symbol for size in sizes for symbol in size.symbols() if not symbol.is_unknown}
        at = {name: typical(symbols[name]) for name in sorted(symbols)}
        made = cls(profile, at, ctx.get(NodeCosts()).entries, None, ctx)
        made.seconds = made.bounded(made.entries)
        return made

    def bounded(self, entries: Iterable[Entry], dtype: DType | None = None) -> float | None:
        """The least time of these nodes, with all floats of a type; None where a part of it is not known."""
        ctx = self._ctx
        bounder = Bounder(Rates(self.device), ctx.get(Shapes), ctx.get(Alias()), dtype, self.at)
        bounds = list(bounder.bounds(entries))
        if any(one.binding == UNKNOWN for one in bounds):
            return None
        return float(sum(one.seconds(self.device.kind) for one in bounds))

    def saved(self, changed: Mapping[Node, Cost]) -> float | None:
        """By how much the least time falls when nodes cost something else."""
        if self.seconds is None:
            return None
        entries = [_changed(entry, changed[entry.node]) if entry.node in changed else entry for entry in self.entries]
        then = self.bounded(entries)
        return None if then is None else max(self.seconds - then, 0.0)

    def takes(self, costs: Mapping[Node, Cost]) -> float | None:
        """The least time of nodes that cost this."""
        return self.bounded([Entry(node, Certainty.EXACT, cost) for node, cost in costs.items()])

    def without(self, nodes: Iterable[Node]) -> float | None:
        """By how much the least time falls when nodes are left out."""
        return self.saved(dict.fromkeys(nodes, FREE))


def _changed(entry: Entry, cost: Cost) -> Entry:
    certainty = Certainty.FREE if cost is FREE else entry.certainty
    return replace(entry, cost=cost, certainty=certainty, bounds=None)
