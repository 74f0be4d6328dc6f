"""Analyses that run in the worker thread, one after another, each posting its result. Nothing here touches a widget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from irscope.diagnostics import Diagnostic
from irscope.errors import IrscopeError
from irscope.ir.dims import Dim
from irscope.ir.graph import Node
from irscope.ir.printer import unusual_names, value_names
from irscope.passkit.base import Analysis
from irscope.passkit.instruments import Instrument, PassEvent
from irscope.passkit.manager import Manager
from irscope.passkit.pipeline import parse_pipeline
from irscope.report.report import Report
from irscope.report.units import Kind
from irscope.tui.amounts import ByteSizes, known, sum_up
from irscope.tui.browse.filter import Matcher
from irscope.tui.browse.outline import AliasSets, Outline, find_folds
from irscope.tui.memory.lives import Lives, measured
from irscope.tui.results import Alive, Counted, Explained, Finished, Folded, Names, Parameters, Shared, Sizes, Update

T = TypeVar("T")


class Analyses:
    """The analyses that the browse screen needs, by priority. Passes are imported when they run: the first paint does not wait for them."""

    PARTS = ("sizes", "names", "params", "flops", "liveness", "shapes", "alias", "folds", "filter", "finished")
    """The parts of the screen, in the order in which they are asked for."""

    def __init__(self, manager: Manager, outline: Outline, matcher: Matcher, liveness: str = "liveness") -> None:
        self.manager = manager
        self.question = liveness
        self.outline = outline
        self.matcher = matcher

    def parts(self) -> dict[str, Callable[[], Update | None]]:
        """Return the analyses by the name of the part of the screen that shows them."""
        return {part: getattr(self, part) for part in self.PARTS}

    def finished(self) -> Update:
        return Finished()

    def sizes(self) -> Update:
        return Sizes(sum_up(self.outline, "result bytes", Kind.BYTES, ByteSizes().of_results))

    def names(self) -> Update:
        program = self.manager.program
        return Names(unusual_names(value_names([program.graph, *program.functions.values()])))

    def params(self) -> Update:
        return Parameters(report_of(self.manager, "params"))

    def found(self, subject: Analysis[T]) -> tuple[T, Sequence[Diagnostic]]:
        """Return the result and diagnostics of a pass, without the tables of its report, which take longer than the pass itself."""
        return self.manager.get(subject), self.manager.diagnostics_of(subject)

    def flops(self) -> Update:
        from irscope.passes.cost.flops import Flops

        costs, diagnostics = self.found(Flops())
        by_node = costs.by_node

        def known_flops(node: Node) -> Dim | None:
            cost = by_node.get(node)
            return None if cost is None else known(cost.flops)

        column = sum_up(self.outline, "FLOPs", Kind.FLOPS, known_flops, includes_regions=True)
        return Counted(costs, column, diagnostics)

    def liveness(self) -> Update:
        live, diagnostics = self.found(analysis_of(self.manager, self.question))
        return Alive(Lives(live, self.outline), diagnostics, measured(live))

    def shapes(self) -> Update:
        from irscope.passes.inference.shapes import Shapes

        return Explained(*self.found(Shapes()))

    def alias(self) -> Update:
        from irscope.passes.graph.alias import Alias

        self.matcher.aliases = AliasSets(self.outline, self.manager.get(Alias()))
        return Shared(self.matcher.aliases)

    def folds(self) -> Update:
        return Folded(find_folds(self.outline))

    def filter(self) -> None:
        self.matcher.prepare()


def analysis_of(manager: Manager, text: str) -> Analysis[Any]:
    """Return the analysis that an element of a pipeline names, such as `liveness{model=ssa}`."""
    (analysis,) = parse_pipeline(text, manager.registry)
    assert isinstance(analysis, Analysis)
    return analysis


def result_of(manager: Manager, text: str) -> Any:
    """Return the result of an analysis; computed in the calling thread, which has to be the worker's."""
    return manager.get(analysis_of(manager, text))


def report_of(manager: Manager, text: str) -> Report:
    """Return the report of a pass; computed in the calling thread, which has to be the worker's."""
    (found,) = parse_pipeline(text, manager.registry)
    return manager.run_one(found).report()


def answered(answer: Callable[[], Any]) -> Any:
    """Return the result, or its error: a failing analysis must not affect the rest of the screen."""
    try:
        return answer()
    except IrscopeError as error:
        return error
    except Exception as error:
        return IrscopeError(f"{type(error).__name__}: {error}", hint="this is a bug; please report it")


class ProgressTeller(Instrument):
    """Reports the progress of a long pass."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def progress(self, event: PassEvent | None, done: int, total: int | None, what: str) -> None:
        if done:
            self._tell(f"{what} {done / total:.0%}" if total else f"{what} {done:,}")


@contextmanager
def instruments_of(manager: Manager, *instruments: Instrument) -> Iterator[None]:
    """Replace the instruments temporarily: those of the command line write to the terminal, which the UI owns."""
    before = list(manager.instruments)
    manager.instruments[:] = instruments
    try:
        yield
    finally:
        manager.instruments[:] = before
