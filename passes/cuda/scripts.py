"""Streams with numeric sizes: the prediction, and lower and upper bounds where something is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from irscope.ir.dims import Dim, SymDim
from irscope.passes.cuda.replay import Script
from irscope.passes.cuda.stream import Stream
from irscope.passes.cuda.tape import End, number


@dataclass(frozen=True)
class Load:
    """Resident memory: sizes with their category, in the order of allocation."""

    sizes: Sequence[Dim]
    kinds: Sequence[str]
    names: Sequence[str]


def open_symbols(load: Load, stream: Stream) -> list[SymDim]:
    """Named symbols that some size depends on: with a number for each, the stream has numbers only."""
    found: dict[SymDim, None] = {}
    for size in _symbolic(load, stream):
        found.update(dict.fromkeys(symbol for symbol in size.symbols() if not symbol.is_unknown))
    return list(found)


def has_unknown(load: Load, stream: Stream) -> bool:
    """Whether some size depends on data."""
    return any(True for _ in _symbolic(load, stream))


def _symbolic(load: Load, stream: Stream) -> Iterable[SymDim]:
    return (size for size in (*load.sizes, *stream.sizes) if isinstance(size, SymDim))


def script_of(load: Load, stream: Stream, end: End) -> Script:
    """The script of one bound; raises Unbounded where there is no upper bound."""
    return Script(
        resident=[number(size, end) for size in load.sizes],
        events=stream.events,
        sizes=stream.numbers(end),
        kept=frozenset(stream.kept),
        outputs=stream.outputs,
    )
