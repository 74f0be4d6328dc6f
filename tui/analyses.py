"""What runs beside the UI: one analysis after another, each handing on its answer. Nothing here touches a widget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from irscope.errors import Cancelled, IrscopeError
from irscope.ir.dims import Dim
from irscope.ir.graph import Node
from irscope.ir.naming import value_names
from irscope.passkit.base import Analysis
from irscope.passkit.events import Instrument, PassEvent
from irscope.passkit.manager import Manager
from irscope.passkit.pipeline import parse_pipeline
from irscope.report.units import Kind
from irscope.tui.models.columns import ByteSizes, known, sum_up
from irscope.tui.models.filter import Matcher
from irscope.tui.models.outline import Outline
from irscope.tui.models.results import Alive, CostTable, Counted, Explained, Failed, Finished, LiveTensors, Names, Parameters, Sizes, Update

Publish: TypeAlias = Callable[[Update], None]


class Analyses:
    """The questions the browse screen asks about a program, most wanted first."""

    def __init__(self, manager: Manager, outline: Outline, matcher: Matcher) -> None:
        self.manager = manager
        self.outline = outline
        self.matcher = matcher

    def run(self, publish: Publish) -> None:
        """Answer everything; a part that fails is published as such, and the others go on."""
        parts: dict[str, Callable[[], Update | None]] = {
            "sizes": self.sizes,
            "names": self.names,
            "params": self.params,
            "flops": self.flops,
            "liveness": self.liveness,
            "shapes": self.shapes,
            "filter": self.filter,
        }
        for part, answer in parts.items():
            try:
                self.manager.check_cancelled()
                update = answer()
            except Cancelled:
                return
            except IrscopeError as error:
                update = Failed(part, error)
            except Exception as error:  # one broken part must not take the screen with it
                update = Failed(part, IrscopeError(f"{type(error).__name__}: {error}", hint="this is a bug; please report it"))
            if update is not None:
                publish(update)
        publish(Finished())

    def sizes(self) -> Update:
        return Sizes(sum_up(self.outline, Kind.BYTES, ByteSizes().of_results))

    def names(self) -> Update:
        program = self.manager.program
        return Names(value_names([program.graph, *program.functions.values()]))

    def params(self) -> Update:
        return Parameters(self.manager.run_one(self.analysis("params")).report())

    def flops(self) -> Update:
        analysis = self.analysis("flops")
        costs: CostTable = self.manager.get(analysis)
        by_node = costs.by_node

        def known_flops(node: Node) -> Dim | None:
            cost = by_node.get(node)
            return None if cost is None else known(cost.flops)

        column = sum_up(self.outline, Kind.FLOPS, known_flops, includes_regions=True)
        return Counted(costs, column, self.manager.diagnostics_of(analysis))

    def liveness(self) -> Update:
        analysis = self.analysis("liveness")
        live: LiveTensors = self.manager.get(analysis)
        return Alive(live, self.manager.diagnostics_of(analysis))

    def shapes(self) -> Update:
        analysis = self.analysis("shapes")
        return Explained(self.manager.get(analysis), self.manager.diagnostics_of(analysis))

    def filter(self) -> None:
        self.matcher.prepare()

    def analysis(self, name: str) -> Analysis[Any]:
        (found,) = parse_pipeline(name, self.manager.registry)
        assert isinstance(found, Analysis)
        return found


class ProgressTeller(Instrument):
    """Says how far a long pass is."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def progress(self, event: PassEvent | None, done: int, total: int | None, what: str) -> None:
        if done:
            self._tell(f"{what} {done / total:.0%}" if total else f"{what} {done:,}")


@contextmanager
def instruments_of(manager: Manager, *instruments: Instrument) -> Iterator[None]:
    """Only these instruments watch for a while: those of the command line write to a terminal that the UI owns now."""
    before = list(manager.instruments)
    manager.instruments[:] = instruments
    try:
        yield
    finally:
        manager.instruments[:] = before
