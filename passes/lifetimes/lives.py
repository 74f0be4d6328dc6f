"""Storages defined by the nodes of one graph, their uses and live ranges, and the bytes alive at each step."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate
from operator import add

from irscope.immutable import immutable, mutable
from irscope.ir.dims import Dim, SymDim, dim_max, unknown
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.program import Life, Observed, Program
from irscope.ir.types import TensorType
from irscope.ops.registry import callee_of, control_of
from irscope.passes.graph.alias import Aliases
from irscope.passes.inference.engine import Inferred
from irscope.passes.sizes import largest_size

OUTPUT = "output"
UNUSED = "nothing"


@immutable
class Tenant:
    """A tensor in a storage that several tensors may occupy in turn."""

    value: Value
    born: int
    dies: int
    """The last step of its live range."""
    held_by: str
    """The node of its last use."""


@mutable(slots=True)
class LiveRange:
    """The live range of one storage: from its definition to the last step at which it is alive."""

    value: Value
    """The value that had the storage first."""
    size: Dim
    born: int
    dies: int
    held_by: str
    """Holder that ends its live range: a use by a node, the return of a module call, a variable, or "output"."""
    last_use: int
    """The last use; the number of steps for what the model returns."""
    used_at: Sequence[int] = ()
    """Steps that read it."""
    used: Sequence[Value] = ()
    """The value that each of them reads, which may be a view; empty where all read the storage's own value, as nearly all do."""
    holds: tuple[Hold, ...] = ()
    """Other references: the longest call and the longest variable."""
    rank: int = 0
    """Among storages freed after the same step, those with lower numbers are freed first."""
    tenants: tuple[Tenant, ...] = ()
    """Tensors that occupy it in turn, in order of birth, where an allocation plan assigns it to several."""

    def at(self, step: int) -> Tenant:
        """Return the tensor that occupies the storage at a step; between two of them the earlier one."""
        place = bisect_right(self.tenants, step, key=_birth) - 1
        return self.tenants[place] if place >= 0 else Tenant(self.value, self.born, self.dies, self.held_by)

    def after(self, step: int) -> Tenant | None:
        """Return the next tensor to which the storage is assigned."""
        place = bisect_right(self.tenants, step, key=_birth)
        return self.tenants[place] if place < len(self.tenants) else None

    def read(self, use: int) -> Value:
        """Return the value that a use reads."""
        return self.used[use] if self.used else self.value

    @property
    def is_output(self) -> bool:
        """Return whether the model returns it."""
        return self.held_by == OUTPUT


def _birth(tenant: Tenant) -> int:
    return tenant.born


def label_of(value: Value) -> str:
    """Return what a value is called: by its name, else by that of the node that makes it."""
    return value.name or (value.node.name if value.node is not None else "")


def alive_bytes(ranges: Iterable[LiveRange], inside: dict[int, Dim], steps: int) -> list[Dim]:
    """Return the bytes alive at each step."""
    change: list[Dim] = [0] * (steps + 1)
    for life in ranges:
        change[life.born] = change[life.born] + life.size
        if life.dies < steps:
            change[life.dies + 1] = change[life.dies + 1] - life.size
    alive = list(accumulate(change[:steps], add))
    for step, size in inside.items():
        alive[step] = alive[step] + size
    return alive


UNLIMITED = unknown("bytes")
"""The size of a tensor of unknown rank."""


def is_unknown(size: Dim | None) -> bool:
    """Return whether no binding of symbols determines a size."""
    return size is None or (isinstance(size, SymDim) and size.is_unknown)


class Body:
    """Storages defined by the nodes of one graph, with their uses."""

    def __init__(self, steps: list[Node], aliases: Aliases, types: Inferred, unsized: list[Value]) -> None:
        self.steps = steps
        self.aliases = aliases
        self.born: dict[Value, int] = {}
        self.sizes: dict[Value, Dim] = {}
        self.unknown_sizes: dict[Value, Dim] = {}
        """Sizes that are unknown, with their bounds where there are any."""
        self.uses: dict[Value, list[tuple[int, Value]]] = {}
        self.last_read: dict[Value, int] = {}
        for step, node in enumerate(steps):
            for value in read_values(node):
                self._use(value, step)
            for output in node.outputs:
                if aliases.storage(output) is output:
                    self._make(output, step, types, unsized)

    def _make(self, value: Value, step: int, types: Inferred, unsized: list[Value]) -> None:
        type_ = types.type_of(value)
        if not isinstance(type_, TensorType):
            return
        known = type_.nbytes
        size = UNLIMITED if known is None else known
        if is_unknown(size):
            unsized.append(value)
            self.unknown_sizes[value] = size
        else:
            self.sizes[value] = size
        self.born[value] = step
        self.uses[value] = []

    def _use(self, value: Value, step: int) -> None:
        self.last_read[value] = step
        for storage in self.aliases.storages(value):
            use = self.uses.get(storage)
            if use is not None:
                use.append((step, value))

    def read(self, outputs: Iterable[Value]) -> None:
        """Results of the graph are used after its last step."""
        for value in outputs:
            self._use(value, len(self.steps))

    def reads(self) -> Iterable[tuple[int, Value]]:
        """Steps and the storages they read."""
        end = len(self.steps)
        return ((step, storage) for storage, uses in self.uses.items() for step, _ in uses if step < end)

    def facts(self) -> Facts:
        """Def-use information for the analysis of Python frames."""
        return Facts(self.steps, self.aliases, self.born, self.last_read, self.uses)

    def ranges(self, holds: list[dict[Value, Hold]]) -> list[LiveRange]:
        """Ranges in order of birth."""
        return [self._range(storage, size, holds) for storage, size in self.sizes.items()]

    def unsized_ranges(self, holds: list[dict[Value, Hold]]) -> list[LiveRange]:
        """Return the live ranges of storages of unknown size."""
        return [self._range(storage, size, holds) for storage, size in self.unknown_sizes.items()]

    def _range(self, storage: Value, size: Dim, holds: list[dict[Value, Hold]]) -> LiveRange:
        born = self.born[storage]
        uses = self.uses[storage]
        last_use = uses[-1][0] if uses else born
        dies, by = last_use, UNUSED
        if last_use == len(self.steps):
            by = OUTPUT
        elif uses:
            by = self.steps[last_use].name
        held = tuple([found[storage] for found in holds if storage in found])
        for hold in held:
            if hold.until > dies:
                dies, by = hold.until, f"the call of module {hold.by}" if hold.kind == "call" else hold.by
        steps = tuple([step for step, _ in uses])
        values = tuple([value for _, value in uses]) if any(value is not storage for _, value in uses) else ()
        return LiveRange(storage, size, born, dies, by, last_use, steps, values, held)


def read_values(node: Node) -> list[Value]:
    """Values a node needs, those captured by its regions included."""
    values = [value for value in node.inputs if value is not None]
    for region in node.regions:
        for inner in region.walk():
            values.extend(value for value in inner.inputs if value is not None)
        for body in region.graphs():
            values.extend(body.outputs)
    return values


# References that keep storages alive after their last use, and def-use information about storages.


@immutable
class Hold:
    """A reference that keeps a storage alive after its last use."""

    until: int
    """The last step at whose end it is still held."""
    kind: str
    """call or local."""
    by: str
    """The path of the module that is called, or the variable with its place, in words."""


@mutable
class Facts:
    """Def-use information about storages, before Python frames are considered."""

    steps: Sequence[Node]
    aliases: Aliases
    born: Mapping[Value, int]
    """The step that makes each storage."""
    last_read: Mapping[Value, int]
    """The last step that reads each value; the number of steps for what the model returns."""
    uses: Mapping[Value, Sequence[tuple[int, Value]]]
    """Steps that read each storage, each with the value that is read."""

    def last_use(self, storage: Value) -> int:
        """Return the last use of a storage; its definition where it has no use."""
        uses = self.uses[storage]
        return uses[-1][0] if uses else self.born[storage]


class Holds:
    """The longest-lived reference to each storage."""

    def __init__(self) -> None:
        self.found: dict[Value, Hold] = {}

    def add(self, storage: Value, until: int, kind: str, by: str) -> None:
        known = self.found.get(storage)
        if known is None or known.until < until:
            self.found[storage] = Hold(until, kind, by)


# Lifetimes as observed in a run, instead of those derived by rules.

OUTLIVES = "Python beyond the end of the run"


def as_observed(ranges: Iterable[LiveRange], watched: Observed, steps: Sequence[Node]) -> list[LiveRange]:
    """Return the same storages with observed live ranges; storages that the run did not allocate keep theirs."""
    live_ranges = []
    for live_range in ranges:
        life = watched.lives.get(live_range.value)
        if life is None:
            live_ranges.append(live_range)
        elif live_range.size != 0:
            live_ranges.append(_observed(live_range, life, steps))
    return live_ranges


def _observed(one: LiveRange, life: Life, steps: Sequence[Node]) -> LiveRange:
    last = len(steps) - 1
    size = dim_max(one.size, life.size)
    if life.died is None:
        dies, by = (len(steps), OUTPUT) if one.is_output else (last, OUTLIVES)
    else:
        dies, by = life.died, _holder(one, life.died, steps)
    holds = tuple([hold for hold in one.holds if hold.until == dies])
    return LiveRange(one.value, size, one.born, dies, by, min(one.last_use, dies), one.used_at, one.used, holds, life.rank)


def _holder(life: LiveRange, died: int, steps: Sequence[Node]) -> str:
    """Return the holder that kept a storage alive until it was freed: a use, a call or a variable that ends there, else Python for an
    unknown reason."""
    if life.last_use == died or life.is_output:
        return steps[died].name if life.used_at and not life.is_output else life.held_by
    for hold in life.holds:
        if hold.until == died:
            return f"the call of module {hold.by}" if hold.kind == "call" else hold.by
    return f"Python until {steps[died].name} had run"


# Peak bytes inside a node: of its regions, or of the function it calls.


def inner_peaks(program: Program, aliases: Aliases, types: Inferred, unsized: list[Value]) -> dict[Node, Dim]:
    """Return for each node with regions, or that calls a function, the bytes alive inside it besides its results."""
    finder = _Inside(aliases, types, unsized)
    for body in _callees_first(program):
        finder.visit(body, body is program.graph)
    return finder.extra


def _callees_first(program: Program) -> Iterator[Graph]:
    """Callees before callers, the main graph last; a recursive function comes before its own call."""
    done: set[str] = set()
    for first in program.functions:
        pending = [(first, False)]
        while pending:
            name, ready = pending.pop()
            if ready:
                yield program.functions[name]
            elif name not in done and name in program.functions:
                done.add(name)
                pending.append((name, True))
                pending.extend((callee, False) for callee in _callees(program.functions[name]))
    yield program.graph


def _callees(body: Graph) -> list[str]:
    return list(dict.fromkeys(callee for node in body.walk() if (callee := callee_of(node)) is not None))


class _Inside:
    def __init__(self, aliases: Aliases, types: Inferred, unsized: list[Value]) -> None:
        self.aliases = aliases
        self.types = types
        self.unsized = unsized
        self.extra: dict[Node, Dim] = {}
        self.called: dict[str, Dim] = {}

    def visit(self, body: Graph, is_main: bool) -> None:
        """Regions of a body from the innermost out, then the body itself where it is a function."""
        for graph in reversed(list(body.graphs())):
            for node in graph:
                callee = callee_of(node)
                if callee is not None:
                    self._add(node, self.called.get(callee, 0))
            if graph.owner is not None and self._may_run(graph, graph.owner):
                self._add(graph.owner, self._peak(graph))
        if not is_main:
            self.called[body.name] = self._peak(body)

    def _may_run(self, graph: Graph, owner: Node) -> bool:
        """Return whether a body is not one of a branch that is known not to be taken."""
        branch = self.types.branches.get(owner)
        is_taken = branch is None or branch.taken is None or owner.regions[branch.taken] is graph
        return is_taken and owner not in self.types.idle

    def _peak(self, graph: Graph) -> Dim:
        """Return the peak of the bytes that a graph's nodes allocate."""
        body = Body(list(graph), self.aliases, self.types, self.unsized)
        body.read(graph.outputs)
        inside = {step: self.extra[node] for step, node in enumerate(body.steps) if node in self.extra}
        return largest_size(alive_bytes(body.ranges([]), inside, len(body.steps)))[0]

    def _add(self, node: Node, peak: Dim) -> None:
        kind = control_of(node)
        beyond = peak if kind is not None and kind.repeats else self._beyond_results(node, peak)
        known = self.extra.get(node, 0)
        dim = dim_max(known, beyond)
        if dim != 0:
            self.extra[node] = dim

    def _beyond_results(self, node: Node, peak: Dim) -> Dim:
        """Return the peak inside less the node's results, which are counted outside; in a loop the previous iteration's state remains."""
        types = (self.types.type_of(output) for output in node.outputs if self.aliases.storage(output) is output)
        sizes = [size for type_ in types if (size := type_.nbytes) is not None]
        return dim_max(peak - reduce(add, sizes, 0), 0)
