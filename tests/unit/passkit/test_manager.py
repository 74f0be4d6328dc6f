"""Results are cached, and computed again exactly when something they read has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from irscope.errors import Cancelled, PassError
from irscope.ir.dims import symbol
from irscope.ir.graph import Facet, Graph
from irscope.passkit.base import Analysis, PassContext, Transform
from irscope.passkit.instruments import DumpOnChange, Instrument, PassEvent, SkipPasses, Timing
from irscope.passkit.manager import Manager, read_reproducer
from irscope.passkit.settings import Settings
from tests.unit.passkit.helpers import MATRIX, Count, DropLast, Rename, Twice, chain


@pytest.fixture
def manager() -> Manager:
    Count.runs.clear()
    Twice.runs.clear()
    return Manager(chain())


def test_a_result_is_computed_once(manager: Manager) -> None:
    assert [manager.get(Count()), manager.get(Count), manager.get(Count())] == [3, 3, 3]
    assert Count.runs == ["count"]


def test_a_result_is_forgotten_alone_or_with_what_it_was_computed_from(manager: Manager) -> None:
    manager.get(Twice())
    manager.forget(Twice())
    assert manager.peek(Twice()) is None and manager.peek(Count()) == 3
    manager.get(Twice())
    manager.forget(Twice(), but=[Count()])
    assert manager.peek(Twice()) is None and manager.peek(Count()) == 3
    manager.get(Twice())
    manager.forget(Twice(), but=[])
    assert manager.peek(Twice()) is None and manager.peek(Count()) is None


def test_other_options_are_another_result(manager: Manager) -> None:
    assert manager.get(Count(op="nn.conv")) == 0
    assert manager.get(Count()) == 3


def test_a_facet_that_is_not_read_does_not_invalidate(manager: Manager) -> None:
    manager.get(Count())
    assert manager.apply(Rename())
    manager.get(Count())
    assert Count.runs == ["count"]


def test_a_facet_that_is_read_invalidates_also_what_depends_on_it(manager: Manager) -> None:
    assert manager.get(Twice()) == 6
    manager.apply(DropLast())
    # Twice itself reads no facet: only its need of Count makes it stale.
    assert manager.get(Twice()) == 4
    assert Twice.runs == ["twice", "twice"]


def test_settings_are_part_of_what_a_result_depends_on(manager: Manager) -> None:
    manager.get(Count())
    manager.settings = Settings(device="h200")
    manager.get(Count())
    assert len(Count.runs) == 2


def test_peek_computes_nothing(manager: Manager) -> None:
    assert manager.peek(Count()) is None
    manager.get(Count())
    assert manager.peek(Count()) == 3
    manager.apply(DropLast())
    assert manager.peek(Count()) is None


def test_a_transform_that_denies_its_change_is_caught(manager: Manager) -> None:
    @dataclass(frozen=True)
    class Liar(Transform):
        name: ClassVar[str] = "liar"

        def apply(self, graph: Graph, ctx: PassContext) -> bool:
            graph.rename(graph.outputs[0], "new")
            return False

    with pytest.raises(PassError, match="says that it did not"):
        manager.apply(Liar())


def test_a_transform_that_pretends_to_change_is_caught(manager: Manager) -> None:
    @dataclass(frozen=True)
    class Idle(Transform):
        name: ClassVar[str] = "idle"

        def apply(self, graph: Graph, ctx: PassContext) -> bool:
            return True

    with pytest.raises(PassError, match="'idle' says that it changed the graph but did not") as caught:
        manager.apply(Idle())
    assert caught.value.code == "IRS502"


def test_an_analysis_that_changes_the_graph_is_caught(manager: Manager) -> None:
    @dataclass(frozen=True)
    class Careless(Analysis[int]):
        name: ClassVar[str] = "careless"

        def compute(self, graph: Graph, ctx: PassContext) -> int:
            graph.rename(graph.outputs[0], "mine")
            return 1

    with pytest.raises(PassError, match="only a transform may do") as caught:
        manager.get(Careless())
    assert caught.value.code == "IRS502"


def write_op(graph: Graph) -> None:
    object.__setattr__(graph.last, "op", "nn.gelu")


def write_attrs(graph: Graph) -> None:
    object.__setattr__(graph.last, "attrs", {"k": 1})


def write_type(graph: Graph) -> None:
    object.__setattr__(graph.outputs[0], "type", MATRIX.with_shape(None))


def write_input_type(graph: Graph) -> None:
    object.__setattr__(graph.inputs[0], "type", MATRIX.with_shape(None))


def write_name(graph: Graph) -> None:
    object.__setattr__(graph.outputs[0], "name", "mine")


@pytest.mark.parametrize("says", [False, True])
@pytest.mark.parametrize(
    ("write", "facet"),
    [(write_op, "topology"), (write_attrs, "attrs"), (write_type, "types"), (write_input_type, "declared"), (write_name, "names")],
)
def test_what_is_written_past_the_graph_is_found_when_every_step_is_checked(write: Callable[[Graph], None], facet: str, says: bool) -> None:
    @dataclass(frozen=True)
    class Sly(Transform):
        name: ClassVar[str] = "sly"

        def apply(self, graph: Graph, ctx: PassContext) -> bool:
            write(graph)
            if says:
                # Another facet counts a change, so that the answer is true.
                graph.set_attr(graph.first, "a", 1) if facet != "attrs" else graph.rename(graph.inputs[0], "new")
            return says

    with pytest.raises(PassError, match=f"'sly' changed the graph's {facet} past") as caught:
        Manager(chain(), verify_each=True).apply(Sly())
    assert caught.value.code == "IRS502"


def test_what_the_program_says_beside_its_graph_is_part_of_what_a_result_depends_on(manager: Manager) -> None:
    manager.get(Count())
    program = manager.program
    program.symbols["batch"] = symbol("batch")
    manager.get(Count())
    program.given["k"] = 3
    manager.get(Count())
    program.metadata["opset"] = "17"
    manager.get(Count())
    # Another graph whose counters happen to stand where those of the first did.
    program.graph = chain().graph
    manager.get(Count())
    assert len(Count.runs) == 5


def test_a_new_node_renews_also_what_reads_only_types() -> None:
    @dataclass(frozen=True)
    class Results(Analysis[int]):
        name: ClassVar[str] = "results"
        reads: ClassVar[tuple[Facet, ...]] = (Facet.TYPES,)

        def compute(self, graph: Graph, ctx: PassContext) -> int:
            return sum(output.type is MATRIX for node in graph for output in node.outputs)

    manager = Manager(chain())
    assert manager.get(Results()) == 3
    manager.apply(DropLast())
    assert manager.get(Results()) == 2


def test_types_are_written_anew_after_every_transform_that_changed_something() -> None:
    @dataclass(frozen=True)
    class Types(Transform):
        name: ClassVar[str] = "types"
        runs: ClassVar[list[int]] = []

        def apply(self, graph: Graph, ctx: PassContext) -> bool:
            self.runs.append(len(graph))
            return False

    manager = Manager(chain(), annotate=Types())
    manager.run([DropLast(), Count(), DropLast()])
    assert Types.runs == [2, 1]


def test_a_circle_of_analyses_is_an_error_that_shows_the_way(manager: Manager) -> None:
    @dataclass(frozen=True)
    class Snake(Analysis[int]):
        name: ClassVar[str] = "snake"

        def compute(self, graph: Graph, ctx: PassContext) -> int:
            return int(ctx.get(Snake()))

    with pytest.raises(PassError, match="snake -> snake") as caught:
        manager.get(Snake())
    assert caught.value.code == "IRS501"


@dataclass(frozen=True)
class Broken(Transform):
    """Changes the graph, then fails."""

    name: ClassVar[str] = "broken"

    def apply(self, graph: Graph, ctx: PassContext) -> bool:
        graph.rename(graph.outputs[0], "half_done")
        raise ZeroDivisionError("by design")


def test_a_crash_becomes_one_clear_error_with_a_reproducer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRSCOPE_CRASH_DIR", str(tmp_path))
    with pytest.raises(PassError, match="'broken' failed: ZeroDivisionError: by design") as caught:
        Manager(chain(), reproducers=True).apply(Broken())
    (written,) = tmp_path.glob("irscope-crash-*.irs")
    assert str(written) in caught.value.hint
    reproducer = read_reproducer(written)
    assert reproducer.pipeline == "broken"
    # The graph is the one from before the pass touched it.
    assert "half_done" not in reproducer.text.split("\ngraph", 1)[1]


def test_verify_each_names_the_transform_that_broke_the_graph() -> None:
    @dataclass(frozen=True)
    class Swap(Transform):
        name: ClassVar[str] = "swap"

        def apply(self, graph: Graph, ctx: PassContext) -> bool:
            first, second, *_ = graph
            graph.move_before(second, first)
            return True

    with pytest.raises(PassError, match="'swap' left a broken graph") as caught:
        Manager(chain(), verify_each=True).apply(Swap())
    assert caught.value.code == "IRS503"


def test_work_stops_when_cancelled(manager: Manager) -> None:
    manager.cancelled.set()
    with pytest.raises(Cancelled):
        manager.get(Count())


def test_instruments_nest_and_leave_in_reverse_order() -> None:
    log: list[str] = []

    class Log(Instrument):
        def __init__(self, label: str) -> None:
            self.label = label

        def before(self, event: PassEvent) -> None:
            log.append(f"+{self.label}{event.subject.name}")

        def after(self, event: PassEvent, changed: bool) -> None:
            log.append(f"-{self.label}{event.subject.name}")

    Manager(chain(), instruments=[Log("a:"), Log("b:")]).get(Twice())
    assert log == ["+a:twice", "+b:twice", "+a:count", "+b:count", "-b:count", "-a:count", "-b:twice", "-a:twice"]


def test_timing_shows_what_was_computed_again() -> None:
    timing = Timing()
    manager = Manager(chain(), instruments=[timing])
    manager.get(Twice())
    manager.apply(DropLast())
    manager.get(Twice())
    rows = [(row[0], row[3]) for row in timing.table().rows()]
    assert rows == [("twice (A)", 1), ("  count (A)", 1), ("drop-last", 1), ("twice (A)", 2), ("  count (A)", 2)]


def test_dumps_are_written_only_when_the_graph_changed(tmp_path: Path) -> None:
    manager = Manager(chain(1), instruments=[DumpOnChange(tmp_path)])
    manager.apply(DropLast())
    manager.apply(DropLast())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000_start.irs", "001_drop-last.irs"]


def test_a_transform_can_be_skipped_by_name() -> None:
    manager = Manager(chain(), instruments=[SkipPasses(frozenset({"drop-last"}))])
    assert not manager.apply(DropLast())
    assert len(manager.program.graph) == 3


def test_statistics_belong_to_the_last_run() -> None:
    manager = Manager(chain())
    manager.apply(Rename())
    manager.apply(Rename())
    assert manager.stats(Rename()) == {"renamed": 1}
