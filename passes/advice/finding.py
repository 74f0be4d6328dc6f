"""One thing that could be better about a model, and the sources that find such things.

A source is a function that is given an `Enquiry` and yields findings. Installed packages offer theirs as entry points of the group
`irscope.advice`, each a `Source`; a script calls `add_source`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from irscope.errors import UsageError
from irscope.ir.dims import Dim
from irscope.ir.graph import Node, Value
from irscope.plugins import plugins

if TYPE_CHECKING:
    from irscope.passes.advice.clock import Clock
    from irscope.passkit.base import PassContext

Sureness: TypeAlias = Literal["exact", "modelled", "bound"]
"""Whether a saving is counted, follows from a model of how the model is run, or is the most that can be had."""


@dataclass(frozen=True)
class Finding:
    """What could be done, why, what it saves, and how sure that is. A saving of None is not known, one of 0 is none."""

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
    """Whether the model's results stay the same, up to rounding."""


@dataclass(frozen=True)
class Enquiry:
    """What a source is given: the program and other passes through `ctx`, options, and a clock."""

    ctx: PassContext
    device: str = ""
    target: float = 30.0
    threads: int = 0
    allow: tuple[str, ...] = ()
    problems: list[str] = field(default_factory=list, compare=False)
    """Where sources say what they could not look at."""

    @cached_property
    def clock(self) -> Clock:
        """The least time on the device, with and without a change."""
        from irscope.passes.advice.clock import Clock

        return Clock.of(self.ctx, self.device)


@dataclass(frozen=True)
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
            problems.append(f"advice {plugin.name!r} of {plugin.owner} is no Source but {type(found).__name__}")
    return problems
