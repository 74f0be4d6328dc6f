"""What torch.compile made of the program: kernels beside nodes of eager, and memory of both over one axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from irscope.errors import IrscopeError, UsageError
from irscope.immutable import immutable
from irscope.ir.program import Program
from irscope.report.cardtext import counted
from irscope.report.celltext import SIGNS
from irscope.report.report import Report
from irscope.report.table import Column, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance
from irscope.tools.compare.memory import short_line
from irscope.tui.amounts import amount
from irscope.tui.analyses import result_of
from irscope.tui.charts import Beside, Floats
from irscope.tui.memory.lives import measured
from irscope.tui.rows import RowTexts, TableColumn, TableModel
from irscope.tui.session import Session
from irscope.tui.text import Line, Span, Symbols

if TYPE_CHECKING:
    from irscope.ir.graph import Node
    from irscope.passes.lifetimes.timeline import Timeline
    from irscope.session import Model
    from irscope.tools.lowered import KernelStep, Lowered

ITEM = "torch.compile"
"""Name of its report."""


NOT_COMPILED: Final = (
    "it was not compiled: `irscope tui --compile NAME` shows what torch.compile makes of a model by name, or of ./train.py:build"
)
"""Message for keys that are about the compiler's work, where nothing was compiled."""


def is_compiled(program: Program) -> bool:
    """Return whether nodes are kernels: the program was compiled here, or read from what Inductor generated."""
    return program.format in ("compiled", "inductor")


@immutable(slots=False)
class Found:
    """The answer of the worker."""

    lowered: Lowered
    eager: Model | None


def answer_of(session: Session) -> Found:
    """Read the program as it runs eagerly, and lay it beside the kernels. For the worker's thread."""
    from irscope.tools.lowered import Lowered, eager_of

    model = session.model_for(dict(session.results.complete.env))
    if not is_compiled(model.program):
        raise UsageError("it was not compiled")
    try:
        eager = eager_of(model)
    except IrscopeError as error:
        return Found(Lowered(model, None, error.message), None)
    eager.manager.settings = model.manager.settings
    return Found(Lowered(model, eager), eager)


def shared(session: Session) -> Found:
    """Return the same, found once for all screens. For the worker's thread."""
    made_for = (session.context.device, tuple(session.results.complete.env.items()))
    known = session.keep("lowered", dict)
    if made_for not in known:
        known.clear()
        known[made_for] = answer_of(session)
    found: Found = known[made_for]
    return found


def report_of(session: Session) -> Report:
    """Return all tables of what the compiler did. For the worker's thread."""
    from irscope.devices import target_of
    from irscope.tools.simulation import compiled_tables

    found = shared(session).lowered
    told = () if found.found is None else compiled_tables(found.found, target_of(found.model.manager.settings))
    return Report("compile", notes=tuple(found.headline), tables=(*map(_fitted, told), nodes_table(found)))


def _fitted(table: Table) -> Table:
    """Return a table with what its rows are about before the number of their graph: the first column has most room."""
    first, *rest = table.columns
    return replace(table, columns=(rest[0], first, *rest[1:])) if first.heading == "graph" and rest else table


def buffers_of(session: Session) -> Table | None:
    """Return the plan of the generated code. For the worker's thread."""
    return next((table for table in report_of(session).tables if table.title.startswith("buffers of the generated code")), None)


def nodes_table(found: Lowered) -> Table:
    """Return which kernels do the work of each node of eager; kernels alone where there is no eager program."""
    if not found.eager:
        kernels = [(one.node, one.name, one.line, one.moved, one.seconds) for one in found.kernels]
        return Table.of(kernels, ["node", "kernel", "line", "moved:bytes", "least:seconds"], "kernels in order")
    rows = [
        (one.node.name, one.line, one.moved, ", ".join(found.kernels[place].name for place in found.kernels_of.get(number, ())))
        for number, one in enumerate(found.eager)
    ]
    return Table.of(rows, ["node of eager", "line", "moves:bytes", "kernels"], "nodes of eager, and the kernels that do their work")


class CompiledView:
    """All logic of the Passes screen where it shows what the compiler did."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols
        self.found: Lowered | None = None
        self.error: IrscopeError | None = None
        self.filter_text = ""
        self.kernels = TableModel((), 0, symbols, empty="reading the program as it runs eagerly")
        self.nodes = TableModel((), 0, symbols, empty="reading the program as it runs eagerly")

    def take(self, found: Found) -> None:
        """Show an answer."""
        before = self.kernels.selected
        self.found, self.error = found.lowered, None
        self.kernels, self.nodes = self._kernel_table(found.lowered), self._node_table(found.lowered)
        self.set_filter(self.filter_text)
        if before is not None:
            self.kernels.select(before)
        self.follow_kernel()

    def fail(self, error: IrscopeError) -> None:
        """Note that it could not be found out."""
        self.error = error

    @property
    def is_alone(self) -> bool:
        """Return whether there are kernels without a program as it runs eagerly."""
        return self.found is not None and not self.found.eager

    @property
    def kernel(self) -> KernelStep | None:
        """Return the selected kernel."""
        row = self.kernels.selected
        return None if self.found is None or row is None else self.found.kernels[row]

    def follow_kernel(self) -> None:
        """Put the cursor of the nodes on the first one of the selected kernel, and mark all of its nodes."""
        kernel = self.kernel
        if kernel is not None and kernel.eager:
            self.nodes.select(kernel.eager[0])
        self.nodes.version += 1

    def follow_node(self) -> bool:
        """Put the cursor of the kernels on the next one that does work of the selected node."""
        row = self.nodes.selected
        places = () if self.found is None or row is None else self.found.kernels_of.get(row, ())
        if not places:
            return False
        now = self.kernels.selected
        after = [place for place in places if now is not None and place > now and now in places]
        self.kernels.select((after or list(places))[0])
        self.nodes.version += 1
        return True

    def set_filter(self, text: str) -> str:
        """Show only kernels in whose name, operators, lines or nodes all words occur."""
        self.filter_text = text.strip()
        found = self.found
        if found is not None:
            texts = RowTexts(
                " ".join(
                    [one.name, *(f"{name} {line}" for name, line, _ in one.operators), *(found.eager[at].node.name for at in one.eager)]
                )
                for one in found.kernels
            )
            self.kernels.filter_words(self.filter_text, texts.containing)
        return ""

    def _kernel_table(self, found: Lowered) -> TableModel:
        kernels, clean = found.kernels, self.symbols.clean

        def where(row: int) -> str:
            return "" if kernels[row].graph is None else str(kernels[row].graph)

        def did(row: int) -> str:
            return clean(", ".join(dict.fromkeys(name for name, _, _ in kernels[row].operators if name != "lines")))

        columns = (
            TableColumn("#", 4, lambda row: f"{row + 1:,}", right=True),
            TableColumn("kernel", 20, lambda row: clean(kernels[row].name), lambda: [one.name for one in kernels], grows=True, role="name"),
            TableColumn(
                "moves",
                11,
                lambda row: amount(kernels[row].moved, Kind.BYTES, self.symbols),
                lambda: _numbers([one.moved for one in kernels]),
                right=True,
            ),
            TableColumn(
                "least", 10, lambda row: self._seconds(kernels[row]), lambda: _numbers([one.seconds for one in kernels]), right=True, rank=2
            ),
            TableColumn(
                "nodes",
                5,
                lambda row: f"{len(kernels[row].eager):,}" if found.eager else "",
                lambda: _numbers([len(one.eager) for one in kernels]),
                right=True,
                rank=1,
            ),
            TableColumn("graph", 5, where, right=True, rank=4),
            TableColumn("operators", 16, did, grows=True, rank=3, role="operator"),
        )
        return TableModel(columns, len(kernels), self.symbols, empty="There are no kernels.")

    def _seconds(self, one: KernelStep) -> str:
        return self.symbols.unknown if one.seconds is None else f"~{humanise(one.seconds, Kind.SECONDS)}"

    def _node_table(self, found: Lowered) -> TableModel:
        eager, clean, symbols = found.eager, self.symbols.clean, self.symbols

        def sign(row: int) -> str:
            kernel = self.kernel
            return symbols.point if kernel is not None and row in kernel.eager else ""

        def kernels(row: int) -> str:
            places = found.kernels_of.get(row, ())
            return ", ".join(f"{place + 1:,}" for place in places) if places else "not known"

        columns = (
            TableColumn("", 1, sign, role="mark"),
            TableColumn(
                "node of eager",
                14,
                lambda row: f"%{clean(eager[row].node.name)}",
                lambda: [one.node.name for one in eager],
                grows=True,
                role="name",
            ),
            TableColumn("line", 16, lambda row: clean(short_line(eager[row].line)), rank=3),
            TableColumn(
                "moves",
                11,
                lambda row: amount(eager[row].moved, Kind.BYTES, symbols),
                lambda: _numbers([one.moved for one in eager]),
                right=True,
                rank=2,
            ),
            TableColumn("in kernels", 10, kernels, grows=True, rank=1),
        )
        return TableModel(columns, len(eager), symbols, empty=clean(found.why) or "There are no nodes.")

    def head(self) -> list[Line]:
        """Before and after in a few lines."""
        if self.error is not None:
            return [(Span(self.symbols.clean(self.error.message), "error"),)]
        if self.found is None:
            return [(Span("reading the program as it runs eagerly, and laying it beside the kernels", "faint"),)]
        first, *rest = self.found.headline
        return [(Span(self.symbols.clean(first), "heading"),), *((Span(self.symbols.clean(line)),) for line in rest)]

    def detail(self) -> list[Line]:
        """Return everything about the selected kernel."""
        kernel, found, clean = self.kernel, self.found, self.symbols.clean
        if kernel is None or found is None:
            return []
        lines: list[Line] = [(Span(f"{(self.kernels.selected or 0) + 1:,}  ", "faint"), Span(clean(kernel.name), "name"))]
        what = "generated by Inductor" if kernel.is_generated else "a call of a library"
        graphs = [] if found.found is None else found.found.graphs
        of = f", graph {kernel.graph}: {graphs[kernel.graph].part}" if kernel.graph is not None else ""
        if kernel.graph is None and found.found is not None:
            what, of = "not in a graph that was compiled: it runs as in eager", ""
        lines.append((Span(f"{what}{of}"),))
        moves = amount(kernel.moved, Kind.BYTES, self.symbols)
        own = [found.eager[at] for at in kernel.eager]
        lines.append((Span(f"moves {moves}, least time {self._seconds(kernel)}"),))
        if own:
            before = [one.moved for one in own]
            total = self.symbols.unknown if None in before else amount(sum(one or 0 for one in before), Kind.BYTES, self.symbols)
            also = {place for at in kernel.eager for place in found.kernels_of[at]} - {self.kernels.selected}
            others = f"; {counted(len(also), 'other kernel')} with some of their work" if also else ""
            lines.append((Span(f"{counted(len(own), 'node')} of eager: {total} moved{others}"),))
        elif found.eager:
            lines.append((Span("which nodes of eager it is of is not known", "faint"),))
        lines += [(), (Span("operators", "heading"),)]
        lines += [
            (Span(f"  {clean(name)}", "operator"), Span(f"{f' {self.symbols.times} {count}' if count > 1 else ''}   {clean(line)}"))
            for name, line, count in kernel.operators
        ]
        lines += self._buffers(kernel)
        return lines

    def _buffers(self, kernel: KernelStep) -> Iterator[Line]:
        """Yield the buffers of a kernel, with what each replaces and what becomes of its place."""
        graphs = [] if self.found is None or self.found.found is None else self.found.found.graphs
        if kernel.graph is None or kernel.kernel is None:
            return
        made = [one for one in graphs[kernel.graph].plan if one.kernel == kernel.kernel.name]
        if made:
            yield ()
            yield (Span("buffers of kernels of this name", "heading"),)
        for one in made:
            how = f"in place of {one.instead}" if one.instead else "by the library" if one.made == "library" else "allocated"
            ends = f"its place goes to {one.heir}" if one.heir else f"freed after {one.freed}" if one.freed else "returned"
            yield (Span(f"  {one.name} ", "name"), Span(self.symbols.clean(f"{amount(one.bytes, Kind.BYTES, self.symbols)} {how}; {ends}")))

    def export(self) -> Table:
        """Return the kernels."""
        found = self.found
        eager = () if found is None else found.eager
        rows = [
            (
                one.name,
                one.graph,
                one.moved,
                one.seconds,
                ", ".join(eager[at].node.name for at in one.eager),
                ", ".join(line for _, line, _ in one.operators),
            )
            for one in (() if found is None else found.kernels)
        ]
        columns = [
            Column("kernel"),
            Column("graph", Kind.INDEX),
            Column("moves", Kind.BYTES),
            Column("least", Kind.SECONDS),
            Column("nodes"),
            Column("lines"),
        ]
        return Table.of(rows, columns=columns, title="kernels, and the nodes of eager whose work they do")


def _numbers(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if one is None else one for one in values], dtype=np.float64)


# Memory of eager and of what was compiled over the steps of the compiled program.


@immutable(slots=False)
class Side:
    """The curve of one of them over the steps of the compiled program, with its peak."""

    heights: Floats
    peak: int
    """The step of the peak."""
    at: str
    """Description of that step."""
    is_modelled: bool


class EagerBeside(Beside):
    """Bytes in use at each step of the compiled program, and at the nodes of eager whose work that is."""

    def __init__(self, eager: Side, compiled: Side, run: str, first: str) -> None:
        """`run` is which run of each is drawn, and `first` says what the first run takes where it is another one that needs more."""
        is_modelled = eager.is_modelled or compiled.is_modelled
        super().__init__(("eager", "compiled"), (eager.heights, compiled.heights), modelled=is_modelled)
        self.sides = (eager, compiled)
        self.run = run
        self.first = first

    def _text(self, side: Side) -> str:
        return self.amount(side.heights.max(initial=0), is_modelled=side.is_modelled)

    @property
    def said(self) -> str:
        """Return the difference in words."""
        eager, compiled = self.sides
        a, b = (float(side.heights.max(initial=0)) for side in self.sides)
        share = abs(b / a - 1) if a else 0.0
        more = f"{share:.1%} {'less' if b < a else 'more'} memory" if round(share, 3) else "as much memory"
        return f"compiled needs {more}: {self._text(compiled)} at the peak, eager {self._text(eager)}"

    @property
    def title(self) -> str:
        """Return which run that is."""
        return f"{self.run}; {self.first}" if self.first else self.run

    def mark_lines(self, count: int, symbols: Symbols) -> list[Line]:
        return [
            self.mark_line(side.peak, f"{name} {self._text(side)} at {symbols.clean(side.at)}", count, symbols)
            for name, side in zip(self.names, self.sides, strict=True)
        ]


def beside_eager(session: Session, question: str) -> EagerBeside:
    """Return both curves, by the same question to each program. For the worker's thread; IrscopeError where there is nothing to compare.

    In a compiled program's first run candidates of kernels are timed: unless that run is asked for, every later one is drawn.
    """
    found = shared(session)
    if found.eager is None:
        raise UsageError(found.lowered.why, hint="`irscope tui --compile NAME` reads both")
    is_open = "run=" not in question
    asked = question.removesuffix("}") + (" " if "{" in question else "{") + "run=steady}" if is_open else question
    live, other = (result_of(model.manager, asked) for model in (found.lowered.model, found.eager))
    own, eager = measured(live), measured(other)
    if own is None or eager is None:
        raise UsageError("sizes are open, or there is no allocator to count for: c binds sizes")
    heights = np.zeros(len(own.heights), dtype=np.float64)
    filled = np.zeros(len(heights), dtype=np.bool_)
    placed = _placed(found.lowered, live, other)
    np.maximum.at(heights, placed, eager.heights)
    filled[placed] = True
    # Between two nodes of eager there is what the one before left.
    heights = heights[np.maximum.accumulate(np.where(filled, np.arange(len(heights)), 0))]
    # A view may stand where the next kernel has requested its results already: the kernel is what is named.
    highest = np.flatnonzero(own.heights == own.heights.max()).tolist()
    kernels = {one.node for one in found.lowered.kernels}
    at, then = next((step for step in highest if live.steps[step] in kernels), highest[0]), int(np.argmax(eager.heights))
    first = measured(result_of(found.lowered.model.manager, question)) if is_open else None
    more = "" if first is None else humanise(int(first.heights.max(initial=0)), Kind.BYTES)
    return EagerBeside(
        Side(heights, int(placed[then]), other.steps[then].name, bool(eager.modelled)),
        Side(own.heights, at, live.steps[at].name, bool(own.modelled)),
        own.found.run,
        f"the first takes {SIGNS[Provenance.MODELLED] if first.modelled else ''}{more}"
        if first is not None and first.heights.max() > own.heights.max()
        else "",
    )


def _placed(lowered: Lowered, live: Timeline, other: Timeline) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return for each step of eager the first one of the compiled program that does its work; by shares of the program where few are
    known."""
    step: dict[Node, int] = {node: at for at, node in enumerate(live.steps)}
    number = {one.node.name: place for place, one in enumerate(lowered.eager)}
    places = np.full(len(other.steps), -1, dtype=np.int64)
    for at, node in enumerate(other.steps):
        own = [
            step[lowered.kernels[one].node]
            for one in lowered.kernels_of.get(number.get(node.name, -1), ())
            if lowered.kernels[one].node in step
        ]
        if own:
            places[at] = min(own)
    if (places >= 0).sum() * 2 < len(places):
        return np.arange(len(places), dtype=np.int64) * len(live.steps) // max(len(places), 1)
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = np.maximum(np.maximum.accumulate(places), 0)
    return found
