"""The two kinds of pass. Both are frozen dataclasses whose fields are their options.

@dataclass(frozen=True)
class Widest(Analysis[int]):
    \"\"\"Most results any node has.\"\"\"

    name: ClassVar[str] = "widest"

    def compute(self, graph, ctx):
        return max((len(node.outputs) for node in graph.walk()), default=0)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, overload

from irscope.diagnostics import DiagnosticSink
from irscope.ir.graph import Facet, Graph
from irscope.ir.program import Program
from irscope.report.report import Report

if TYPE_CHECKING:
    from irscope.passkit.settings import Settings

R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True)
class Pass:
    """Something that runs over a program under a name."""

    name: ClassVar[str]
    origin: ClassVar[str] = ""
    """Name of the pass in a pipeline when it is no registered one: "./file.py:Name"."""

    @property
    def text(self) -> str:
        """Return the element of a pipeline that makes this pass again, options that differ from their defaults included."""
        from irscope.passkit.options import options_text

        return f"{self.origin or self.name}{options_text(self)}"

    @classmethod
    def summary(cls) -> str:
        """First sentence of the docstring, for listings."""
        return (cls.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ").strip()


@dataclass(frozen=True)
class Analysis(Pass, ABC, Generic[R]):
    """Computes something and changes nothing. Equal instances share one cached result."""

    reads: ClassVar[tuple[Facet, ...]] = tuple(Facet)
    """Sides of the graph the result depends on; it is computed again when one of them has changed."""
    of_weights: ClassVar[bool] = False
    """True where the result is about weights alone: then no guess about inputs or the run makes it less sure."""
    known_of_weights: ClassVar[tuple[str, ...]] = ()
    """Of a result that is about more: keys of its summary and titles of its tables that hold for a file of weights without a graph."""

    @abstractmethod
    def compute(self, graph: Graph, ctx: PassContext) -> R:
        """Return the result; it must depend on nothing but the program, the options and what `ctx` gives."""

    def report(self, result: R, ctx: PassContext) -> Report:
        """Return the result for people and scripts."""
        return Report(pass_name=self.name, options=self.text, summary={"result": str(result)})


@dataclass(frozen=True)
class Transform(Pass, ABC):
    """Changes the graph and says whether it did."""

    writes: ClassVar[tuple[Facet, ...]] = tuple(Facet)
    """Sides of the graph that it may change. Of one that writes nothing but types of results the graph need not be kept for a crash
    reproducer: they are inferred anew."""

    @abstractmethod
    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        """Change the graph through its methods; True when something changed."""

    def report(self, changed: bool, ctx: PassContext) -> Report:
        """Return what the transform did: its statistics."""
        return Report(pass_name=self.name, options=self.text, summary={"changed": changed, **ctx.stats(self)})


class PassContext(Protocol):
    """Everything that a pass is given besides the graph."""

    program: Program
    settings: Settings

    @property
    def sink(self) -> DiagnosticSink:
        """Return where diagnostics of the pass that runs go."""
        ...

    @overload
    def get(self, wanted: Analysis[T]) -> T: ...
    @overload
    def get(self, wanted: type[Analysis[T]]) -> T: ...
    @overload
    def get(self, wanted: str) -> Any: ...
    def get(self, wanted: Analysis[Any] | type[Analysis[Any]] | str) -> Any:
        """Return the result of another analysis, computed when it is not at hand."""
        ...

    @property
    def planned(self) -> tuple[Pass, ...]:
        """Return all passes of the run, those that are done included: what several of them need can be made for all at once."""
        ...

    def each(self, items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
        """Return the items, with progress shown and cancellation checked on the way. Use it around long loops."""
        ...

    def tick(self, done: int, total: int | None, what: str) -> None:
        """Say how far long work has come that is no loop over items; raises Cancelled when the run was cancelled."""
        ...

    def at(self, sizes: Mapping[str, int]) -> PassContext | None:
        """Return the same model read again with numbers for symbols, where formulas do not hold; None where it cannot be."""
        ...

    def apply(self, transform: Transform) -> bool:
        """Run another transform; True when it changed the graph."""
        ...

    def stat(self, key: str, amount: int = 1) -> None:
        """Count something for the statistics of the pass that runs."""
        ...

    def stats(self, owner: Pass) -> dict[str, int]:
        """Return what `owner` counted in its last run."""
        ...
