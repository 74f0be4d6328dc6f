"""What instruments are told about a run, and the hooks they may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from irscope.ir.program import Program
from irscope.passkit.base import Pass

Kind = Literal["analysis", "transform"]


@dataclass(frozen=True, slots=True)
class PassEvent:
    """One pass that starts, ends or fails. `depth` is how many passes wait for it."""

    subject: Pass
    kind: Kind
    program: Program
    depth: int
    number: int
    """Position among everything that was run, from 0."""


class Instrument:
    """Watches a run. Override what you need; on the way out instruments are told in reverse order."""

    def before(self, event: PassEvent) -> None:
        """The pass is about to run."""

    def after(self, event: PassEvent, changed: bool) -> None:
        """The pass has run; `changed` says whether a transform changed the graph."""

    def failed(self, event: PassEvent, error: BaseException) -> None:
        """The pass raised."""

    def progress(self, event: PassEvent | None, done: int, total: int | None, what: str) -> None:
        """Long work has come this far; raise Cancelled to stop it."""

    def ended(self) -> None:
        """Long work that is no pass is over."""

    def should_run(self, subject: Pass) -> bool:
        """False skips a transform of the pipeline, which is how one bisects."""
        return True
