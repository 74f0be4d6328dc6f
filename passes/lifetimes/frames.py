"""What Python's frames hold on to: a module call its inputs, a function its local variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from irscope.ir.graph import Node, Value
from irscope.ir.places import Loc, Scope
from irscope.passes.alias import Aliases, written_operand
from irscope.passes.lifetimes.statements import targets_of

_JOINS = frozenset({"tensor.concat", "tensor.stack"})


@dataclass(frozen=True, slots=True)
class Hold:
    """Something that keeps a storage after its last use."""

    until: int
    """The last step at whose end it is still held."""
    kind: str
    """call or local."""
    by: str


@dataclass
class Facts:
    """What is known of the storages before frames are looked at."""

    steps: Sequence[Node]
    aliases: Aliases
    born: Mapping[Value, int]
    """The step that makes each storage."""
    last_read: Mapping[Value, int]
    """The last step that reads each value; the number of steps for what the model returns."""
    uses: Mapping[Value, Sequence[tuple[int, Value]]]
    """Steps that read each storage, each with the value that is read."""

    def last_use(self, storage: Value) -> int:
        """The last step that reads a storage; the step that makes it where none does."""
        uses = self.uses[storage]
        return uses[-1][0] if uses else self.born[storage]


@dataclass(slots=True)
class _Frame:
    """One open call of a module's forward function."""

    scope: Scope
    loc: Loc | None = None
    """The statement that runs."""
    since: int = 0
    """The first step of that statement."""
    child: Scope | None = None
    """The call that the statement made last."""
    called: list[str] = field(default_factory=list)
    """Modules that the statement has called."""
    lead: int = 0
    """Steps of the statement before it called the first."""
    names: dict[str, list[Value]] = field(default_factory=dict)
    """Storages by the variable that holds them."""
    places: dict[str, str] = field(default_factory=dict)
    """Where each variable was bound."""
    spare: list[Value] = field(default_factory=list)
    """What the running statement may have got as further results of a call, which nothing reads."""
    returned: list[Value] = field(default_factory=list)
    """What the function may return in this way itself."""
    kept: list[Value] = field(default_factory=list)
    """Storages that a list holds, whatever becomes of the variable they were in."""


class _Holds:
    """The longest hold of each storage."""

    def __init__(self) -> None:
        self.found: dict[Value, Hold] = {}

    def add(self, storage: Value, until: int, kind: str, by: str) -> None:
        known = self.found.get(storage)
        if known is None or known.until < until:
            self.found[storage] = Hold(until, kind, by)


def call_spans(steps: Sequence[Node]) -> dict[Scope, tuple[int, int]]:
    """First and last step of each module call."""
    spans: dict[Scope, tuple[int, int]] = {}
    start = 0
    for step, node in enumerate(steps):
        if step + 1 < len(steps) and steps[step + 1].scope is node.scope:
            continue
        scope: Scope | None = node.scope
        while scope is not None:
            first, _ = spans.get(scope, (start, step))
            spans[scope] = (first, step)
            scope = scope.parent
        start = step + 1
    return spans


def held_by_calls(facts: Facts, reads: Iterable[tuple[int, Value]]) -> dict[Value, Hold]:
    """Tensors that enter a module call from outside live until it returns."""
    spans = call_spans(facts.steps)
    holds = _Holds()
    for step, storage in reads:
        born = facts.born.get(storage)
        if born is None:
            continue
        outermost: Scope | None = None
        scope: Scope | None = facts.steps[step].scope
        # A call that began before the tensor was made has it as no input, and so have the calls around it.
        while scope is not None and scope.parent is not None and spans[scope][0] > born:
            outermost = scope
            scope = scope.parent
        if outermost is not None:
            holds.add(storage, spans[outermost][1], "call", outermost.path)
    return holds.found


class Locals:
    """Follows the statements of the functions that run, and what their variables are bound to."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._open: list[_Frame] = []
        self._holds = _Holds()
        self._chains: dict[tuple[Scope, Loc], tuple[tuple[Scope, Loc], ...]] = {}

    def holds(self) -> dict[Value, Hold]:
        """How long variables keep each storage."""
        steps = self._facts.steps
        for step, node in enumerate(steps):
            if node.loc is not None:
                self._step(step, self._chain(node.scope, node.loc))
        last = len(steps) - 1
        while self._open:
            self._close(last)
        return self._holds.found

    def _chain(self, scope: Scope, loc: Loc) -> tuple[tuple[Scope, Loc], ...]:
        """Calls that are open at a node, outermost first, each with its statement."""
        found = self._chains.get((scope, loc))
        if found is None:
            frames: list[Loc] = []
            at: Loc | None = loc
            while at is not None:
                frames.append(at)
                at = at.caller
            scopes: list[Scope] = []
            inner: Scope | None = scope
            while inner is not None:
                scopes.append(inner)
                inner = inner.parent
            found = tuple(zip(reversed(scopes), reversed(frames), strict=False))
            self._chains[scope, loc] = found
        return found

    def _step(self, step: int, chain: tuple[tuple[Scope, Loc], ...]) -> None:
        kept = 0
        for frame, (scope, _) in zip(self._open, chain, strict=False):
            if frame.scope is not scope:
                break
            kept += 1
        while len(self._open) > kept:
            self._close(step - 1)
        for depth, (frame, (_, loc)) in enumerate(zip(self._open, chain, strict=False)):
            child = chain[depth + 1][0] if depth + 1 < len(chain) else None
            if frame.loc is None or (frame.loc.line, frame.loc.file) != (loc.line, loc.file):
                self._begin(frame, loc, step)
            elif _runs_again(frame, child):
                # A round of a loop begins with as many operators before the call as the first round did.
                self._begin(frame, loc, max(step - frame.lead, frame.since + 1))
            _enter(frame, child, step)
        for depth in range(kept, len(chain)):
            scope, loc = chain[depth]
            made = _Frame(scope, loc, step)
            self._open.append(made)
            _enter(made, chain[depth + 1][0] if depth + 1 < len(chain) else None, step)

    def _begin(self, frame: _Frame, loc: Loc, step: int) -> None:
        """A statement ends before this step, and one begins."""
        self._bind(frame, step - 1)
        frame.loc, frame.since, frame.called = loc, step, []

    def _close(self, step: int) -> None:
        frame = self._open.pop()
        self._hold_hidden(frame, step)
        if frame.spare and frame.loc is not None and frame.loc.statement.startswith("return "):
            frame.returned = frame.spare
        if self._open and frame.returned:
            self._open[-1].spare = frame.returned
        for name, storages in frame.names.items():
            self._release(frame, name, storages, step)
        for storage in frame.kept:
            self._holds.add(storage, step, "local", f"list in {_path(frame)}")

    def _release(self, frame: _Frame, name: str, storages: list[Value], step: int) -> None:
        for storage in storages:
            self._holds.add(storage, step, "local", f"{name} at {frame.places[name]}")

    def _is_collected(self, storage: Value, end: int) -> bool:
        """Whether tensors that a variable no longer holds are joined later: then a list keeps them."""
        last = self._facts.last_use(storage)
        return end < last < len(self._facts.steps) and self._facts.steps[last].op in _JOINS

    def _hold_hidden(self, frame: _Frame, end: int) -> None:
        """A statement that calls a function of its own, whose lines the file does not show: operators' results are variables there."""
        if frame.loc is None or any(_is_named(name, frame.loc) for name in frame.called):
            return
        steps = self._facts.steps
        direct = [step for step in range(frame.since, end + 1) if steps[step].scope is frame.scope]
        if any(_function_name(steps[step]) in frame.loc.statement for step in direct):
            return
        for step in direct:
            for output in steps[step].outputs:
                for used, _ in self._facts.uses.get(output, ()):
                    if step < used <= end and (steps[used].scope is not frame.scope or steps[used].op == "math.matmul"):
                        self._holds.add(output, end, "local", f"of a function called at {_place(frame)}")
                        if self._facts.last_use(output) <= end:
                            frame.spare = [output]

    def _bind(self, frame: _Frame, end: int) -> None:
        """A statement has ended: its variables let go of what they had and take its results."""
        self._hold_hidden(frame, end)
        names = targets_of(frame.loc.statement) if frame.loc is not None else ()
        if not names:
            frame.spare = []
            return
        results = self._results(frame.since, end)
        if frame.spare and len(names) > len(results):
            results.append(frame.spare)
            frame.returned = frame.spare
        frame.spare = []
        for name, storages in _shared_out(names, results):
            container, bracket, _ = name.partition("[")
            if not bracket:
                old = frame.names.get(name, [])
                self._release(frame, name, old, end)
                frame.kept.extend(storage for storage in old if storage not in storages and self._is_collected(storage, end))
                frame.names[name], frame.places[name] = storages, _place(frame)
            elif written_operand(self._facts.steps[end]) is None:
                frame.names[container] = [*self._kept_items(frame, container, end), *storages]
                frame.places.setdefault(container, _place(frame))

    def _kept_items(self, frame: _Frame, container: str, end: int) -> list[Value]:
        """Items of a list that are not replaced: which one is cannot be seen, so those that were just read for the last time."""
        items = frame.names.get(container, [])
        replaced = [item for item in items if frame.since <= self._facts.last_use(item) <= end]
        if replaced:
            self._release(frame, container, replaced, end)
        return [item for item in items if item not in replaced]

    def _results(self, start: int, end: int) -> list[list[Value]]:
        """Storages of a statement's results: what is read after it, and what it made last."""
        facts = self._facts
        found: dict[Value, None] = {}
        for step in range(start, end + 1):
            outputs = facts.steps[step].outputs
            read_later = [output for output in outputs if facts.last_read.get(output, -1) > end]
            found.update(dict.fromkeys(read_later if read_later or step < end else outputs))
        groups: dict[tuple[Value, ...], None] = {}
        for value in found:
            storages = tuple(storage for storage in facts.aliases.storages(value) if storage in facts.born)
            groups[storages] = None
        return [list(group) for group in groups if group]


def _runs_again(frame: _Frame, child: Scope | None) -> bool:
    """Whether a call begins another round of a loop: its module is none that the statement names, or was called by it before."""
    if child is None or child is frame.child or not frame.called:
        return False
    if child.name in frame.called:
        return True
    stem = _stem(child.name)
    in_row = not stem.strip(".") or any(_stem(name) == stem for name in frame.called)
    return in_row and frame.loc is not None and not _is_named(child.name, frame.loc)


def _function_name(node: Node) -> str:
    """How a statement spells a call of the operator."""
    return f"{node.source.rpartition('::')[2].partition('.')[0]}("


def _stem(name: str) -> str:
    """A module's name without its number."""
    return name.rpartition(".")[2].rstrip("0123456789")


def _is_named(name: str, loc: Loc) -> bool:
    """Whether a statement calls a module by its own name; items of containers have none."""
    attribute = name.rstrip("0123456789").rstrip(".").rpartition(".")[2]
    last = name.rpartition(".")[2]
    return f".{last}" in loc.statement or (attribute != "" and f".{attribute}" in loc.statement)


def _place(frame: _Frame) -> str:
    """File and line of the statement that runs; the folder says little."""
    loc = frame.loc
    return "" if loc is None else f"{loc.file.replace(chr(92), '/').rpartition('/')[2]}:{loc.line}"


def _path(frame: _Frame) -> str:
    return frame.scope.path or "forward"


def _enter(frame: _Frame, child: Scope | None, step: int) -> None:
    if child is not None and child is not frame.child:
        if not frame.called:
            frame.lead = step - frame.since
        frame.called.append(child.name)
    frame.child = child


def _shared_out(names: tuple[str, ...], results: list[list[Value]]) -> list[tuple[str, list[Value]]]:
    """Which variable gets which results: in order, and what is left over goes to the last."""
    if len(names) == 1:
        return [(names[0], [storage for group in results for storage in group])]
    shared = [(name, results[index] if index < len(results) else []) for index, name in enumerate(names)]
    if len(results) > len(names):
        name, first = shared[-1]
        shared[-1] = (name, [*first, *(storage for group in results[len(names) :] for storage in group)])
    return shared
