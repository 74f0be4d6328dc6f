"""Runs the steps of a pipeline over a copy of a program, and says what each of them changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal, TypeAlias

from irscope.immutable import immutable
from irscope.ir.graph import Graph, Node, Run, Value, runs
from irscope.ir.parser import parse_program
from irscope.ir.places import Payload
from irscope.ir.printer import ValueNames, print_node, print_program, value_names
from irscope.ir.program import Program
from irscope.ir.spelling import payload_text
from irscope.passkit.base import Pass, Transform
from irscope.passkit.instruments import Instrument, PassEvent
from irscope.passkit.manager import Manager
from irscope.report.table import Entry as Fact
from irscope.tui.session import look_again
from irscope.tui.text import Line, Role, Span, Symbols

# The diff of a program before and after a transform, by identity of nodes instead of text.

Sign: TypeAlias = Literal[" ", "-", "+"]
_LARGE = 20_000
"""Nodes of a program whose copy, with what passes keep of it, is made again rather than kept once all steps have run."""
_CONTEXT = 2
_MOST_LINES = 4000
_MOST_INDENT = 20
_ROLES: Mapping[Sign, Role] = {" ": "faint", "-": "error", "+": "name"}


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One line of a program, and the node, weight or input that it stands for."""

    key: Node | Value | Graph
    text: str


@immutable(slots=False)
class Snapshot:
    """The lines of a program at one moment."""

    entries: Sequence[Entry]
    names: ValueNames
    operators: Counter[str]


@immutable
class DiffLine:
    """A line that went (-), came (+) or stands near one; `skipped` counts the unchanged lines left out before it."""

    sign: Sign
    text: str
    skipped: int = 0


@immutable(slots=False)
class Diff:
    """Difference between two successive snapshots."""

    lines: Sequence[DiffLine]
    removed: int
    added: int
    changed: int
    operators: Sequence[tuple[str, int, int]]
    """Kinds of operators with how many there were and are, where these differ."""
    hidden: int = 0
    """Further lines that are not kept."""

    @property
    def summary(self) -> str:
        """Return the counts in a few characters."""
        return f"-{self.removed:,} +{self.added:,} ~{self.changed:,}"

    def rows(self, symbols: Symbols) -> list[Line]:
        """Return the lines for a reader. Each begins with its sign, so that it needs no colour."""
        clean = symbols.clean
        found: list[Line] = []
        for line in self.lines:
            if line.skipped:
                found.append((Span(f"    {line.skipped:,} unchanged {'line' if line.skipped == 1 else 'lines'}", "faint"),))
            found.append((Span(f"{line.sign} {clean(line.text)}", _ROLES[line.sign]),))
        if self.hidden:
            found.append((Span(f"    and {self.hidden:,} more lines (irscope opt --print-after-all)", "faint"),))
        return found

    def operator_rows(self, symbols: Symbols) -> list[Line]:
        """Kinds of operators that became more or fewer."""
        return [
            (Span(f"  {symbols.clean(op)}", "operator"), Span(f"  {before:,} -> {after:,} ({after - before:+,})"))
            for op, before, after in self.operators
        ]


def take_snapshot(program: Program, names: ValueNames | None = None) -> Snapshot:
    """Return the lines of a program as they are now. With the names of an earlier snapshot, values keep theirs; new ones are told apart."""
    mains = [program.graph, *program.functions.values()]
    spelled = value_names(mains) if names is None else _kept_names(mains, names)
    entries: list[Entry] = []
    operators: Counter[str] = Counter()
    for graph in mains:
        for run in runs(graph):
            indent = "  " * min(run.depth, _MOST_INDENT)
            entries.extend(_run_entries(run, spelled, indent))
            operators.update(node.op for node in run.nodes)
    return Snapshot(entries, spelled, operators)


def _kept_names(mains: Sequence[Graph], names: ValueNames) -> ValueNames:
    fresh = value_names(mains)
    kept = ValueNames()
    taken = set(names.values())
    number = 0
    for value, name in fresh.items():
        if value in names:
            kept[value] = names[value]
        elif value is not None and value.name is not None and name not in taken:
            kept[value] = name
        else:
            kept[value] = f"%new{number}"
            number += 1
    return kept


def _run_entries(run: Run, names: ValueNames, indent: str) -> Iterator[Entry]:
    graph = run.graph
    if run.opens:
        for value in graph.inputs:
            yield Entry(value, f"{indent}{value.role.value} {names[value]}: {value.type.text}")
        for value in graph.weights:
            yield Entry(value, f"{indent}{value.role.value} {names[value]}: {value.type.text}{_data_text(graph.data.get(value))}")
    for node in run.nodes:
        yield Entry(node, f"{indent}{print_node(node, names, locations=False)}")
    if run.closes:
        yield Entry(graph, f"{indent}return {', '.join(names[value] for value in graph.outputs)}".rstrip())


def _data_text(data: Payload | None) -> str:
    return "" if data is None else payload_text(data)


def compare(before: Snapshot, after: Snapshot, context: int = _CONTEXT, most: int = _MOST_LINES) -> Diff:
    """Return the difference, in time linear in the lines."""
    texts = {entry.key: entry.text for entry in before.entries}
    staying = {entry.key for entry in after.entries}
    lines = list(_marked(before, after, texts, staying))
    changed = sum(entry.key in texts and texts[entry.key] != entry.text for entry in after.entries)
    kept, hidden = _hunks(lines, context, most)
    return Diff(
        kept,
        removed=sum(entry.key not in staying for entry in before.entries),
        added=sum(entry.key not in texts for entry in after.entries),
        changed=changed,
        operators=[
            (op, before.operators[op], after.operators[op])
            for op in sorted({*before.operators, *after.operators})
            if before.operators[op] != after.operators[op]
        ],
        hidden=hidden,
    )


def _marked(
    before: Snapshot, after: Snapshot, texts: Mapping[Node | Value | Graph, str], staying: set[Node | Value | Graph]
) -> Iterator[tuple[Sign, str]]:
    """Yield all lines with their signs, in the order of the program after the change."""
    moved: set[object] = set()
    at = 0
    old = before.entries
    for entry in after.entries:
        while at < len(old) and (old[at].key not in staying or old[at].key in moved):
            yield "-", old[at].text
            at += 1
        if entry.key not in texts:
            yield "+", entry.text
        elif at == len(old) or old[at].key is not entry.key:
            # Something that was further down has moved up: it goes there and comes here.
            moved.add(entry.key)
            yield "+", entry.text
        else:
            if old[at].text == entry.text:
                yield " ", entry.text
            else:
                yield "-", old[at].text
                yield "+", entry.text
            at += 1
    for entry in old[at:]:
        yield "-", entry.text


def _hunks(lines: Sequence[tuple[Sign, str]], context: int, most: int) -> tuple[list[DiffLine], int]:
    """Return the lines that changed with a few around them, and how many of them found no room."""
    near = [False] * len(lines)
    for at, (sign, _) in enumerate(lines):
        if sign != " ":
            for place in range(max(0, at - context), min(len(lines), at + context + 1)):
                near[place] = True
    kept: list[DiffLine] = []
    skipped = hidden = 0
    for (sign, text), is_near in zip(lines, near, strict=True):
        if not is_near:
            skipped += 1
        elif len(kept) < most:
            kept.append(DiffLine(sign, text, skipped))
            skipped = 0
        else:
            hidden += 1
    return kept, hidden


# Runs the steps of a pipeline over a copy of a program, in the worker's thread: the program on the screen stays as it is.


@immutable
class Computed:
    """One pass that a step made run, itself included."""

    text: str
    depth: int
    own: float
    total: float
    again: bool
    """True where an earlier step had computed it already."""


@immutable(slots=False)
class Outcome:
    """Result of one step."""

    seconds: float
    computed: Sequence[Computed]
    facts: Sequence[Fact]
    """The summary of its report, whose tables hold nodes of the copy."""
    headline: Sequence[str]
    changed: bool | None = None
    """True where the graph was changed; None for an analysis."""
    diff: Diff | None = None


@dataclass
class _Open:
    """A pass that is running."""

    event: PassEvent
    started: float
    inner: float = 0.0


@dataclass
class Recorder(Instrument):
    """Notes every pass that runs, with its times and whether it had run before."""

    seen: set[str] = field(default_factory=set)
    finished: list[tuple[int, Computed]] = field(default_factory=list)
    _open: list[_Open] = field(default_factory=list)

    def before(self, event: PassEvent) -> None:
        self._open.append(_Open(event, perf_counter()))

    def after(self, event: PassEvent, changed: bool) -> None:
        one = self._open.pop()
        total = perf_counter() - one.started
        if self._open:
            self._open[-1].inner += total
        text = event.subject.text
        again = event.kind == "analysis" and text in self.seen
        self.seen.add(text)
        self.finished.append((event.number, Computed(text, event.depth, max(0.0, total - one.inner), total, again)))

    def failed(self, event: PassEvent, error: BaseException) -> None:
        self._open.pop()

    def taken(self) -> list[Computed]:
        """Return the passes that have run since the last call, in the order in which they started."""
        found = [one for _, one in sorted(self.finished, key=lambda pair: pair[0])]
        self.finished.clear()
        return found


@immutable(slots=False)
class _State:
    """A program as text, and which passes had run before it came about."""

    text: str
    seen: frozenset[str]


class Runner:
    """Holds the copy with the state it has before the next step, and texts to go back to earlier states."""

    def __init__(self, manager: Manager) -> None:
        self._original = manager
        self._states: dict[tuple[Pass, ...], _State] = {}
        """State of the program after each sequence of steps."""
        self._recorder = Recorder()
        self._copy: Manager | None = None
        self._done: tuple[Pass, ...] = ()
        """The steps that the copy has behind it."""

    def run(self, done: tuple[Pass, ...], subject: Pass) -> Outcome:
        """Run a step after others. These must have run before, one after another; they are not run again."""
        if self._copy is None or self._done != done:
            self._go_to(done)
        copy = self._copy
        assert copy is not None
        # Should the step fail half-way, the copy is worth nothing.
        self._copy = None
        before = take_snapshot(copy.program) if isinstance(subject, Transform) else None
        started = perf_counter()
        result = copy.run_one(subject)
        spent = perf_counter() - started
        computed = self._recorder.taken()
        diff = None
        text = self._states[done].text
        if before is not None and result.value:
            diff = compare(before, take_snapshot(copy.program, before.names))
            text = print_program(copy.program)
        self._copy, self._done = copy, (*done, subject)
        self._states[self._done] = _State(text, frozenset(self._recorder.seen))
        report = result.report()
        return Outcome(spent, computed, report.entries(), report.headline, bool(result.value) if before is not None else None, diff)

    @property
    def is_large(self) -> bool:
        """Return whether there is a copy that takes much memory."""
        return self._copy is not None and len(self._copy.program.graph) > _LARGE

    def put_away(self) -> None:
        """Drop the copy once all steps have run: it is read again from its text where a step is run again."""
        self._copy = None
        look_again()

    def _go_to(self, done: tuple[Pass, ...]) -> None:
        """Bring back the state after these steps; only what lies on the way to it is kept."""
        if not self._states:
            self._states[()] = _State(print_program(self._original.program), frozenset())
        self._states = {steps: state for steps, state in self._states.items() if steps == done[: len(steps)]}
        state = self._states[done]
        original = self._original
        program = parse_program(state.text, path=original.program.path or "<model>")
        program.path = original.program.path
        self._recorder = Recorder(set(state.seen))
        self._copy = Manager(
            program,
            settings=original.settings,
            instruments=[*original.instruments, self._recorder],
            registry=original.registry,
            annotate=original.annotate,
        )
        self._copy.cancelled = original.cancelled
