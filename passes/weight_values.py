"""Reads the values of all weights once; `params`, `prune-report` and `advise` share the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from irscope.ir.graph import Facet, Graph, Value
from irscope.passes.dequantized import Logical, logical_weights
from irscope.passes.storages import count_parameters
from irscope.passkit.base import Analysis, PassContext
from irscope.report.report import Report
from irscope.weights.duplicates import duplicates
from irscope.weights.result import TensorStatistics, Unread
from irscope.weights.scan import Options, scan, spectra
from irscope.weights.source import Unreadable, WeightFiles
from irscope.weights.tensors import Stored, stored_tensor

MISSING = "IRS440"
NOT_FINITE = "IRS441"

__all__ = ["MISSING", "NOT_FINITE", "Look", "WeightValues", "open_weights"]


@dataclass
class Look:
    """What the values of a model's weights say."""

    statistics: dict[Value, TensorStatistics] = field(default_factory=dict)
    """Of every weight whose values could be read; tied names share one object."""
    unread: dict[Value, str] = field(default_factory=dict)
    """Why the values of the others are not known."""
    duplicates: list[list[Value]] = field(default_factory=list)
    """Groups of weights with equal contents in different places."""
    logical: list[tuple[Logical, TensorStatistics | Unread]] = field(default_factory=list)
    """Quantized weights with statistics of the numbers that they stand for."""
    bytes_read: int = 0


@dataclass(frozen=True)
class WeightValues(Analysis[Look]):
    """Read all weights once and compute statistics of their values."""

    name: ClassVar[str] = "weight-values"
    reads: ClassVar[tuple[Facet, ...]] = (Facet.TOPOLOGY, Facet.DECLARED, Facet.ATTRS)
    of_weights: ClassVar[bool] = True

    histogram: bool = True
    near_zero: float = 1e-6
    spectral: bool = False
    iterations: int = 100
    threads: int = 0
    allow: tuple[str, ...] = ()

    def compute(self, graph: Graph, ctx: PassContext) -> Look:
        totals = count_parameters(ctx.program)
        look = Look()
        with open_weights(ctx, self.allow) as files:
            weights = [weight for weight in totals.weights if weight not in totals.tied_to]
            tensors = [_stored(weight, files) for weight in weights]
            logical = logical_weights(ctx.program, files)
            every = [*tensors, *(one.tensor for one in logical)]
            options = Options(self.histogram, self.near_zero, self.threads)
            found = scan(every, files, options, ctx.tick)
            if self.spectral:
                spectra(every, found, files, self.iterations, options, ctx.tick)
            groups = duplicates(tensors, found[: len(tensors)], files, ctx.tick)
        for weight, made in zip(weights, found, strict=False):
            if isinstance(made, Unread):
                look.unread[weight] = made.reason
            else:
                look.statistics[weight] = made
        for weight, first in totals.tied_to.items():
            if first in look.statistics:
                look.statistics[weight] = look.statistics[first]
            else:
                look.unread[weight] = look.unread[first]
        look.duplicates = [[weights[index] for index in group] for group in groups]
        look.logical = list(zip(logical, found[len(tensors) :], strict=True))
        look.bytes_read = sum(tensor.bytes for tensor in tensors if isinstance(tensor, Stored))
        _warn(look, ctx)
        return look

    def report(self, result: Look, ctx: PassContext) -> Report:
        return Report(self.name, self.text, {"read_bytes": result.bytes_read, "unread_count": len(result.unread)})


def open_weights(ctx: PassContext, allow: tuple[str, ...] = ()) -> WeightFiles:
    """The files that a program's weights lie in."""
    return WeightFiles(ctx.program.path, allow)


def _stored(weight: Value, files: WeightFiles) -> Stored | Unread:
    try:
        return stored_tensor(weight, files)
    except Unreadable as problem:
        return Unread(str(problem))


def _warn(look: Look, ctx: PassContext) -> None:
    for weight, reason in look.unread.items():
        ctx.sink.warn(MISSING, f"the values of {weight.name!r} are not known: {reason}", about=reason)
    for weight, made in look.statistics.items():
        if made.nan or made.inf:
            what = " and ".join(f"{count:,} {text}" for count, text in ((made.nan, "NaN"), (made.inf, "infinite")) if count)
            ctx.sink.warn(NOT_FINITE, f"{weight.name!r} has {what} of {made.count:,} elements", about=str(weight.name))
