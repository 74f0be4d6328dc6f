"""The prediction for a device, and what stands in its way."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from irscope.devices import DeviceProfile, Target
from irscope.diagnostics import Diagnostic
from irscope.ir.graph import Node
from irscope.passes.cuda.replay import Outcome, Script
from irscope.passes.cuda.scripts import Load
from irscope.passes.cuda.stream import Stream

if TYPE_CHECKING:
    from irscope.passes.alias import Aliases
    from irscope.passes.cuda.moments import Moments
    from irscope.passes.inference.engine import Inferred
    from irscope.passes.ranges import Lifetimes


@dataclass(frozen=True)
class Shortage:
    """A model that is too large for the device."""

    needed: int
    """Bytes that it needs, the context of CUDA included."""
    missing: int
    fitting: tuple[DeviceProfile, ...]
    """Known devices that have enough, the smallest first."""


@dataclass(frozen=True)
class Basis:
    """What the requests were found from: the program as Python runs it, which may not be quite the one in the file."""

    lifetimes: Lifetimes
    aliases: Aliases
    types: Inferred


@dataclass
class DeviceMemory:
    """What the allocator of a CUDA device counts for a model, as far as that can be known."""

    model: str
    """Who frees when."""
    target: Target
    steps: list[Node]
    reason: str = ""
    """Why there are no numbers."""
    fix: str = ""
    """What would make them known."""
    basis: Basis | None = None
    load: Load | None = None
    stream: Stream | None = None
    script: Script | None = None
    central: Outcome | None = None
    low: Outcome | None = None
    """The least that is possible, where something is not known."""
    high: Outcome | None = None
    """The most; None where nothing bounds it."""
    is_open: bool = False
    """Whether sizes depend on data, so that there is no number, only an interval."""
    unbounded: str = ""
    """Why there is no upper end."""
    shortage: Shortage | None = None
    findings: list[Diagnostic] = field(default_factory=list)

    @cached_property
    def moments(self) -> Moments | None:
        """The first forward step by step, worked out when first asked for."""
        from irscope.passes.cuda.moments import moments

        if self.stream is None or self.script is None or self.central is None:
            return None
        return moments(self.stream, self.script, self.central)
