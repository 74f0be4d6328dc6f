"""Bytes alive at each step: storages, their peak, and why each is alive there."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial, reduce
from itertools import accumulate
from operator import add
from typing import Literal, TypeAlias

from irscope.devices import DeviceProfile
from irscope.diagnostics import few
from irscope.immutable import immutable, mutable
from irscope.ir.dims import Dim, bounds, dim_max
from irscope.ir.graph import Graph, Node, Value
from irscope.ir.places import Scope
from irscope.passes.graph.alias import Aliases
from irscope.passes.lifetimes.lives import UNUSED, LiveRange, Tenant, label_of
from irscope.passes.lifetimes.traced import MODELLED_LIVES, Lifetimes
from irscope.passes.sizes import at_least, dim_cell, largest_size, scale, size_cell
from irscope.report.table import Column, Limit, Mark, Series, Table, total
from irscope.report.units import Kind
from irscope.report.values import Provenance, Quantity, derived, least_sure, plain


@mutable
class ModuleShare:
    """Bytes that one module call has allocated."""

    scope: Scope
    own: Dim = 0
    """Allocated by the call itself."""
    total: Dim = 0
    """Allocated by it or by calls inside it."""
    storages: int = 0
    """Storages in the total."""


@mutable
class Timeline:
    """Storages, and bytes alive at each step of the main graph."""

    model: str
    """Lifetime model."""
    steps: list[Node]
    ranges: list[LiveRange]
    alive: list[Dim]
    inside: dict[int, Dim]
    """Bytes that only exist within a step; `alive` counts them."""
    peak: Dim
    """Formulas where sizes are symbolic; a maximum of several where none is the largest for every binding."""
    peak_step: int
    find_lower_bound: Callable[[], Dim] = field(repr=False)
    resident: dict[str, Dim | None]
    """Resident bytes: parameter, buffer, constant, input."""
    unsized: list[Value]
    undecided: int = 0
    """Results that are views or copies depending on unknown strides; they are counted as copies."""
    peak_if_shared: Dim | None = None
    """The peak where all of these share."""
    peak_by_lives: tuple[Dim, Dim] | None = None
    """The peak of the shortest and of the longest live ranges there may be, where they are modelled."""
    unsized_ranges: list[LiveRange] = field(default_factory=list)
    """Live ranges of storages of unknown size, which no sum counts."""
    declared: dict[str, list[str]] = field(default_factory=dict)
    """Names of what `resident` counts, by role."""
    find_footprint: Callable[[Timeline], Footprint] | None = field(default=None, repr=False)
    """Given the timeline, so that it holds none: a cycle would keep all of it until the collector runs."""

    @cached_property
    def footprint(self) -> Footprint | None:
        """Return all memory over the steps, a device's where an allocator is simulated; computed on first use."""
        return None if self.find_footprint is None else self.find_footprint(self)

    @property
    def device_peak_bytes(self) -> Quantity:
        """Return the peak that reports show first, of all memory of the device; unknown where nothing counts it."""
        return Quantity(None, Provenance.UNKNOWN) if self.footprint is None else self.footprint.peak

    @property
    def activation_peak_bytes(self) -> Dim:
        """Return the peak of tensors beyond weights and inputs, under the name that reports give it."""
        return self.peak

    @cached_property
    def lower_bound(self) -> Dim:
        """Return the least that any order needs at its peak; computed on first use."""
        return self.find_lower_bound()

    @cached_property
    def windows(self) -> Windows:
        """Return the index of what is alive at each step; built on first use."""
        return windows(self.ranges, len(self.steps))

    def living(self, step: int) -> list[LiveRange]:
        """Return the storages alive at a step, in order of birth, in time logarithmic in the steps and linear in the answer."""
        return self.windows.living(step)

    def unsized_at(self, step: int) -> list[LiveRange]:
        """Return the storages of unknown size alive at a step."""
        return [life for life in self.unsized_ranges if life.born <= step <= life.dies]

    def peak_limits(self) -> tuple[Dim, Dim | None]:
        """Lower and upper bound of the peak where sizes are unknown; None where there is no upper bound. What is alive beside the
        peak does not raise it."""
        lows, highs = self.unsized_limits
        if highs is not None and all(isinstance(size, int) for size in self.alive):
            alive = [scale(size) for size in self.alive]
            low = max(map(add, alive, lows), default=0)
            return low, max(low, *map(add, alive, highs)) if alive else low
        return self.peak, None if highs is None else dim_max(self.peak, self.peak + max(highs, default=0))

    @cached_property
    def unsized_limits(self) -> tuple[list[int], list[int] | None]:
        """At each step the least and the most bytes of storages of unknown size; None where there is no most."""
        count = len(self.steps)
        lows, highs = [0] * (count + 1), [0] * (count + 1)
        # Views and tensors that take over a buffer lie within it; those of unknown size inside of nodes have no limits here.
        within = {
            value for one in (*self.ranges, *self.unsized_ranges) for value in (one.value, *one.used, *(at.value for at in one.tenants))
        }
        is_open = not within.issuperset(self.unsized)
        for life in self.unsized_ranges:
            low, high = bounds(life.size)
            is_open = is_open or high is None
            # Changes at the steps at which it begins and ends; their running sums are what is alive.
            for changes, size in ((lows, max(low or 0, 0)), (highs, high or 0)):
                changes[min(life.born, count)] += size
                changes[min(life.dies, count - 1) + 1] -= size
        sums = [[*accumulate(changes)][:count] for changes in (lows, highs)]
        return sums[0], None if is_open else sums[1]

    def open_note(self) -> str:
        """Return what the limits of a peak rest on."""
        names = [label_of(life.value) for life in self.unsized_ranges]
        first = few(names, 2, "--passes shapes --rows 0")
        return f"{len(self.unsized)} tensors have no known size: between the least and the most that {first} can be"

    def why(self, life: LiveRange, step: int) -> str:
        """Return why the tensor in a storage is alive at a step."""
        return why_alive(self.steps, life, step)


def why_alive(steps: Sequence[Node], life: LiveRange, step: int) -> str:
    """Return why the tensor in a storage is alive at a step: its next use, the reference that keeps it after the last use, or that it is
    returned. Where another tensor had the storage first, in whose buffer it is."""
    tenant = life.at(step)
    where = "" if tenant.value is life.value else f", in the buffer of {label_of(life.value)}"
    return f"{_why(steps, life, tenant, step)}{where}"


def _why(steps: Sequence[Node], life: LiveRange, tenant: Tenant, step: int) -> str:
    if tenant.born == step:
        return "made here"
    following = life.after(step) if tenant.dies < step else None
    if following is not None:
        return f"dead, its buffer is kept for {label_of(following.value)}"
    at = bisect_left(life.used_at, step)
    if at < len(life.used_at):
        return _use_text(steps, tenant.value, life.used_at[at], life.read(at), step)
    return f"held by {life.held_by}" if life.held_by != UNUSED else "nothing reads it"


def shares(parts: Iterable[tuple[Scope, Dim]]) -> list[ModuleShare]:
    """Return the bytes by the module call that allocated them, outer calls before inner, each with the calls inside it."""
    found: dict[Scope, ModuleShare] = {}
    for made_in, size in parts:
        for scope in (*_outside(made_in), made_in):
            share = found.setdefault(scope, ModuleShare(scope))
            share.total = share.total + size
            share.storages += 1
        found[made_in].own = found[made_in].own + size
    return list(found.values())


def _outside(scope: Scope) -> list[Scope]:
    """Return the calls around a call, outermost first."""
    above: list[Scope] = []
    parent = scope.parent
    while parent is not None:
        above.append(parent)
        parent = parent.parent
    return above[::-1]


def measure(graph: Graph, lifetimes: Lifetimes, aliases: Aliases) -> Timeline:
    """Return the timeline of given live ranges."""
    alive = lifetimes.alive()
    peak, at = largest_size(alive)
    return Timeline(
        lifetimes.model,
        lifetimes.steps,
        lifetimes.ranges,
        alive,
        lifetimes.inside,
        peak,
        at,
        partial(lower_bound, lifetimes, aliases),
        _resident(graph),
        lifetimes.unsized,
        declared=_declared(graph),
        unsized_ranges=lifetimes.unsized_ranges,
    )


def lower_bound(lifetimes: Lifetimes, aliases: Aliases) -> Dim:
    """Return a lower bound for every order: the node with the largest sum of results, operands and bytes inside it."""
    ranges = {one.value: one for one in lifetimes.ranges}
    needs: list[Dim] = []
    storage, inside = aliases.storage, lifetimes.inside
    for step, node in enumerate(lifetimes.steps):
        need = inside.get(step, 0)
        for touched in dict.fromkeys([storage(value) for value in (*node.outputs, *node.inputs) if value is not None]):
            one = ranges.get(touched)
            # A kernel of ONNX Runtime's that runs on the host reads a copy of what was on the GPU, where it may be gone.
            if one is not None and one.born <= step <= one.dies:
                need = need + one.size
        needs.append(need)
    return largest_size([*needs, *_returned(lifetimes)])[0]


def _returned(lifetimes: Lifetimes) -> list[Dim]:
    """Return the sizes of all that the model returns, which is alive at its end."""
    return [reduce(add, (one.size for one in lifetimes.ranges if one.is_output), 0)]


def _use_text(steps: Sequence[Node], tenant: Value, used: int, value: Value, step: int) -> str:
    through = "" if value is tenant or not value.name else f" through {value.name}, a view of it"
    if used == len(steps):
        return f"output{through}"
    node = steps[used].name
    return f"read here{through}" if used == step else f"used later by {node}{through}"


def _declared(graph: Graph) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for value in (*graph.weights, *graph.inputs):
        names.setdefault(value.role.value, []).append(value.name or "")
    return names


def _resident(graph: Graph) -> dict[str, Dim | None]:
    """Return the bytes by role of what the graph declares, None where one of them has no known size."""
    totals: dict[str, Dim | None] = {}
    for value in (*graph.weights, *graph.inputs):
        role = value.role.value
        size = value.type.tensor_bytes
        before = totals.get(role, 0)
        totals[role] = None if size is None or before is None else before + size
    return totals


# Which storages are alive at a step, found in logarithmic time plus the size of the answer.


@immutable(slots=False)
class Windows:
    """Intervals of steps, each with all storages that are alive anywhere in it, in order of birth.

    An interval ends before it holds more than twice as many storages as its emptiest step has alive (at least one). So a step's own
    interval holds little besides what is alive there, and all intervals together hold at most four entries for each storage.
    """

    starts: list[int]
    """The first step of each interval."""
    members: list[list[LiveRange]]

    def living(self, step: int) -> list[LiveRange]:
        """Return the storages alive at a step, in order of birth."""
        at = bisect_right(self.starts, step) - 1
        if at < 0:
            return []
        return [member for member in self.members[at] if member.born <= step <= member.dies]


def windows(ranges: Sequence[LiveRange], steps: int) -> Windows:
    """Return the intervals of a timeline."""
    births: list[list[LiveRange]] = [[] for _ in range(steps)]
    deaths = [0] * (steps + 1)
    for life in ranges:
        births[life.born].append(life)
        deaths[min(life.dies + 1, steps)] += 1
    found = Windows([], [])
    inside: list[LiveRange] = []
    alive = emptiest = 0
    for step in range(steps):
        alive += len(births[step]) - deaths[step]
        emptiest = max(1, min(emptiest, alive))
        if not found.starts or len(inside) + len(births[step]) > 2 * emptiest:
            inside = [life for life in inside if life.dies >= step]
            found.starts.append(step)
            found.members.append(inside)
            emptiest = max(1, alive)
        inside.extend(births[step])
    return found


# The peak of a model's memory as a sum that adds up, the same over the steps of a run, and what is alive at each of them.

Of: TypeAlias = Literal["device", "tensor"]
ShownRun: TypeAlias = Literal["worst", "first", "steady"]
"""Which of the runs that differ: the one that needs more memory, the first, or every one after it."""
"""Which peak it is: a device allocator's, or that of tensors alone where no allocator's is known."""
INSIDE = "only exists while the node runs"
_MOST_POINTS = 10_000
_RUNNERS_UP = 5
_MADE = ("output", "activation", "temporary")
"""Categories of memory allocated during a run."""
_WHY_RESIDENT = {"input": "given by the caller", "constant": "stored in the model"}
ROLES = {"param": "parameter", "const": "constant"}
"""Categories of what a graph declares, where they are called otherwise than its role."""


@immutable
class Held:
    """Memory that is in use at a step: a tensor, a kernel's temporary memory, or weights and inputs."""

    name: str
    category: str
    size: Dim
    """Contribution to the total of the step."""
    born: int
    dies: int
    """The last step of its live range; the number of steps for what outlives the run."""
    reason: str | Callable[[], str]
    """Why it is alive; worked out when asked for where there may be very many."""
    held_by: str = ""
    node: Node | None = None
    """The node that allocates it."""
    value: Value | None = None
    shown: Quantity | None = None
    """The size where it is not exact."""

    @property
    def why(self) -> str:
        """Return why it is alive."""
        return self.reason if isinstance(self.reason, str) else self.reason()

    @property
    def cell(self) -> object:
        """Return the size as a report holds it."""
        return dim_cell(self.size) if self.shown is None else self.shown


@mutable
class HeldOver:
    """All that is in use at some step, as columns: at each step sizes add up to its total, but for what blocks are rounded by."""

    names: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    """The last step at which it counts."""
    modules: list[str] = field(default_factory=list)
    """The module call that allocates each; empty for none."""

    def add(self, one: Held, first: int, last: int) -> None:
        """Add one more, where it has a size."""
        if one.size and first <= last:
            self.add_slot(one.name or f"{one.category} of {one.held_by}", one.category, scale(one.size), (first, last), one.node)

    def add_slot(self, name: str, category: str, size: int, steps: tuple[int, int], node: Node | None) -> None:
        """Add one more, of which the parts are known."""
        self.names.append(name)
        self.categories.append(category)
        self.sizes.append(size)
        self.first.append(steps[0])
        self.last.append(steps[1])
        self.modules.append("" if node is None else node.scope.path)

    def add_ranges(self, ranges: Iterable[LiveRange], count: int) -> None:
        """Storages, each of whose tenants counts for its own time."""
        for life in ranges:
            category, size = "output" if life.is_output else "activation", scale(life.size)
            tenants = life.tenants or (Tenant(life.value, life.born, life.dies, life.held_by),)
            ends = [*(tenant.born - 1 for tenant in tenants[1:]), min(life.dies, count - 1)]
            begins = [life.born, *(tenant.born for tenant in tenants[1:])]
            for tenant, first, last in zip(tenants, begins, ends, strict=True):
                if size and first <= last:
                    self.add_slot(label_of(tenant.value), category, size, (first, last), tenant.value.node)


@immutable(slots=False)
class Footprint:
    """Memory over the steps of one run: at each step parts that add up to the total, and the largest total is the peak."""

    of: Of
    what: str
    """The quantity in words: whose counter, in which run."""
    run: str
    """Such as "second forward"; empty where there is but one."""
    steps: Sequence[Node]
    parts: Mapping[str, Sequence[object]]
    """Cells by category, one for each step."""
    heights: Sequence[Dim]
    peak: Quantity
    """The largest total over all steps of all runs."""
    peak_step: int
    living: Callable[[int], list[Held]]
    """Function that returns what is in use at a step: sizes add up to its total."""
    is_sure: bool = True
    """True where the peak is at this step whatever those sizes are that are not exact."""
    lacking: Container[int] = ()
    """Steps at which something of unknown size is alive, so that their total is a lower bound."""
    limits: tuple[Limit, ...] = ()
    """Limits that the total must not exceed: the memory of the device."""
    over: Callable[[], HeldOver] | None = None
    """The same for all steps at once; None where it would have to be put together from each."""

    @property
    def peak_node(self) -> Node | None:
        """Return the node that runs at the peak."""
        return self.steps[self.peak_step] if self.steps else None

    @property
    def note(self) -> str:
        """Return the quantity whose peak it is."""
        return f"{self.of} peak: {self.what}"

    @cached_property
    def at_peak(self) -> list[Held]:
        """Return what is alive at the peak, the largest first."""
        return sorted(self.living(self.peak_step), key=lambda one: -scale(one.size))

    def summary(self) -> dict[str, object]:
        """Return the peak, its parts and where it is, under names that say whose it is."""
        node = self.peak_node
        parts = {category: self._part(column) for category, column in self.parts.items()}
        is_unknown = self.peak.shown is None and self.peak.interval is not None
        if is_unknown:
            # The highest of the known steps need not be the peak: only what is there all the time is known of that.
            parts.update((category, Quantity(None, Provenance.UNKNOWN)) for category in _MADE if category in parts)
        found: dict[str, object] = {f"{self.of}_peak_bytes": self.peak, f"{self.of}_peak": parts}
        where = self.peak.provenance if self.peak.provenance is not Provenance.UNKNOWN else Provenance.EXACT
        for key, text in (("node", "" if node is None else node.name), ("run", self.run)):
            if text:
                exact = as_far_as_known(text) if is_unknown else text
                found[f"{self.of}_peak_{key}"] = exact if where is Provenance.EXACT else Quantity(text, where)
        return found

    def _part(self, column: Sequence[object]) -> object:
        """Return a part at the peak: where the peak's step is modelled, parts that differ between the possible steps are modelled too."""
        cell = column[self.peak_step] if len(column) else 0
        if self.is_sure or isinstance(cell, Quantity) or all(one == cell for one in column):
            return cell
        return derived(cell, self.peak)

    def alive(self, top: int, rest_by: str = "") -> Table:
        """Return everything that adds up to the peak; the last row sums up what has no row of its own, which the pass `rest_by` lists."""
        return replace(_held_table(self.at_peak, "alive at the peak", top), rest_by=rest_by)

    def alive_at(self, step: int, top: int) -> Table:
        """Return everything that adds up to the total of a step, the largest first."""
        return _held_table(sorted(self.living(step), key=lambda one: -scale(one.size)), f"alive at step {step}", top)

    def by_module(self, top: int) -> Table:
        """Return bytes alive at the peak by the module call that allocated them; calls that allocate nothing themselves are left out."""
        made = shares((one.node.scope, one.size) for one in self.at_peak if one.node is not None)
        found = [share for share in made if share.own != 0]
        found.sort(key=lambda share: -scale(share.total))
        complete = self.peak_step not in self.lacking
        rows = [
            (share.scope.path or "(model)", share.scope.cls, at_least(share.own, complete), at_least(share.total, complete), share.storages)
            for share in found[: top or None]
        ]
        where = Provenance.EXACT if self.is_sure else self.peak.provenance
        kinds = (("own", Kind.BYTES), ("with_inner", Kind.BYTES), ("storages", Kind.COUNT))
        columns = [Column("module"), Column("class"), *(Column(key, kind, provenance=where) for key, kind in kinds)]
        return Table.of(rows, columns=columns, title="at the peak by module")

    def runners_up(self) -> Table:
        """Return the highest local maxima over the steps."""
        heights = [scale(size) for size in self.heights]
        hills = [
            step
            for step, height in enumerate(heights)
            if (step == 0 or heights[step - 1] < height) and (step + 1 == len(heights) or _falls_after(heights, step))
        ]
        hills.sort(key=lambda step: (-heights[step], step))
        rows = [(self.steps[step].name, step, self.height(step)) for step in hills[:_RUNNERS_UP]]
        return Table.of(rows, columns=["node", "step:index", "bytes"], title="highest steps")

    def height(self, step: int) -> object:
        """Return the total of a step, with the least certain provenance of its parts."""
        cells = (column[step] for column in self.parts.values())
        where = least_sure(cell.provenance for cell in cells if isinstance(cell, Quantity))
        return at_least(self.heights[step], step not in self.lacking, where)

    def series(self) -> tuple[Series, ...]:
        """Return the parts over the steps, stacked; nothing where sizes are symbolic."""
        numbers = [size for size in self.heights if isinstance(size, int)]
        if not numbers or len(numbers) < len(self.heights):
            return ()
        steps = shown_steps(numbers)
        data: dict[str, Sequence[object]] = {"step": steps}
        data.update({category: [column[step] for step in steps] for category, column in self.parts.items()})
        columns = tuple(Column(category, Kind.BYTES) for category in self.parts)
        title = f"{self.of} memory by category{f', {self.run}' if self.run else ''}"
        return (
            Series(
                title,
                Column("step", Kind.COUNT),
                columns,
                data,
                marks=(Mark(self.peak_step, "peak"),),
                limits=self.limits,
                names=[self.steps[step].name for step in steps] if self.steps else (),
                parts=lambda place, top: self.alive_at(steps[place], top),
            ),
        )


def _held_table(held: Sequence[Held], title: str, top: int) -> Table:
    """Return the first rows; the last one sums up what has none of its own. A chart asks for hundreds of these, of hundreds of tensors."""
    listed = held if not top or len(held) <= top else held[: top - 1]
    rest = held[len(listed) :]
    rows: list[tuple[object, ...]] = [(one.name, one.cell, one.category, one.born, one.dies, one.why, one.held_by) for one in listed]
    if rest:
        others: tuple[Callable[[Held], object], ...] = (
            lambda one: one.category,
            lambda one: one.born,
            lambda one: one.dies,
            lambda one: one.why,
            lambda one: one.held_by,
        )
        size = total([plain(one.cell) for one in rest])
        rows.append((f"{len(rest):,} more", size, *(_common(map(other, rest)) for other in others)))
    columns = ["tensor:value", "size:bytes", "category", "born:index", "dies:index", "why:text", "held_by:text"]
    return replace(Table.of(rows, columns=columns, title=title, whole="size"), rest=len(rest))


def _common(cells: Iterable[object]) -> object:
    """Return what all cells are; nothing where two differ."""
    found = iter(cells)
    first = next(found)
    return first if all(cell == first for cell in found) else ""


def limits_of(device: DeviceProfile) -> tuple[Limit, ...]:
    """Return the height that memory on a device is not to pass."""
    room = device.room_bytes
    return (Limit(room, f"memory of {device.title}"),) if room else ()


def as_far_as_known(step: str) -> Quantity:
    """Return the name of the highest step where others have parts of unknown size."""
    return Quantity(step, Provenance.UNKNOWN, note="the highest step as far as sizes are known")


def shown_steps(heights: Sequence[int]) -> list[int]:
    """Return all steps, or of many the highest in each interval."""
    count = len(heights)
    if count <= _MOST_POINTS:
        return list(range(count))
    width = -(-count // _MOST_POINTS)
    return [max(range(first, min(first + width, count)), key=heights.__getitem__) for first in range(0, count, width)]


def _falls_after(heights: list[int], step: int) -> bool:
    # By index: a slice would copy the rest of the timeline for every rise.
    for later in range(step + 1, len(heights)):
        if heights[later] != heights[step]:
            return heights[later] < heights[step]
    return True


def tensor_row(steps: Sequence[Node], life: LiveRange, step: int, size: Dim, shown: Quantity | None = None) -> Held:
    """Return a tensor that is alive at a step."""
    tenant = life.at(step)
    held_by = tenant.held_by.removeprefix("the ").replace("call of module ", "call of ").removeprefix("local variable ")
    category = "output" if life.is_output else "activation"
    why = partial(why_alive, steps, life, step)
    return Held(label_of(tenant.value), category, size, tenant.born, tenant.dies, why, held_by, tenant.value.node, tenant.value, shown)


def resident_row(category: str, names: Sequence[str], size: Dim | None, steps: int) -> Held:
    """Return what is resident during the whole run, of one category."""
    name = names[0] if len(names) == 1 else f"{len(names):,} {category}s"
    shown = Quantity(None, Provenance.UNKNOWN) if size is None else None
    return Held(name, category, 0 if size is None else size, 0, steps, _WHY_RESIDENT.get(category, "loaded with the model"), shown=shown)


def unsized_tables(timeline: Timeline, top: int) -> Iterator[Table]:
    """Yield the tensors of unknown size, where there are any: their live ranges, and bounds of their sizes."""
    if not timeline.unsized_ranges:
        return
    found = [unsized_row(timeline.steps, life, life.born) for life in timeline.unsized_ranges]
    rows = [(one.name, one.cell, one.category, one.born, one.dies, one.held_by) for one in found[: top or None]]
    columns = ["tensor:value", "size:bytes", "category", "born:index", "dies:index", "held_by:text"]
    yield Table.of(rows, columns=columns, title="of unknown size")


def unsized_row(steps: Sequence[Node], life: LiveRange, step: int) -> Held:
    """Return a tensor of unknown size that is alive at a step: no sum counts it."""
    return tensor_row(steps, life, step, 0, size_cell(life.size))


def of_tensors(timeline: Timeline, why: str) -> Footprint:
    """Weights, inputs and activations as they are requested, where no allocator's peak is known."""
    steps, count = timeline.steps, len(timeline.steps)
    resident = {ROLES.get(role, role): size for role, size in timeline.resident.items()}
    names = {ROLES.get(role, role): given for role, given in timeline.declared.items()}
    there: Dim = reduce(add, (size for size in resident.values() if size is not None), 0)
    outputs = _outputs(timeline)
    inside = [timeline.inside.get(step, 0) for step in range(count)]
    activations = [alive - out - within for alive, out, within in zip(timeline.alive, outputs, inside, strict=True)]
    # A model without steps has its weights all the same.
    parts: dict[str, Sequence[object]] = {role: [dim_cell(size)] * max(count, 1) for role, size in resident.items()}
    parts["output"] = _lower_bound_cells(timeline, outputs, outputs=True)
    parts["activation"] = _lower_bound_cells(timeline, activations, outputs=False)
    parts["temporary"] = [dim_cell(size) for size in inside]
    heights = [there + alive for alive in timeline.alive]

    def living(step: int) -> list[Held]:
        rows = [resident_row(category, names.get(category, ()), size, count) for category, size in resident.items() if size != 0]
        rows += [tensor_row(steps, one, step, one.size) for one in timeline.living(step)] if count else []
        rows += [unsized_row(steps, life, step) for life in timeline.unsized_at(step)]
        if timeline.inside.get(step, 0) != 0:
            node = steps[step]
            rows.append(Held("", "temporary", timeline.inside[step], step, step, INSIDE, node.name, node))
        return rows

    total, at = largest_size(heights) if heights else (there, 0)
    lacking: Container[int] = range(count) if None in resident.values() else _unsized_steps(timeline)
    peak = Quantity(dim_cell(total))
    if timeline.unsized or None in resident.values():
        low, most = timeline.peak_limits()
        low, most = there + low, None if most is None or None in resident.values() else there + most
        # What is unknown but never alive where most is alive does not matter.
        if low != most or low != total:
            note = timeline.open_note() if most is not None else ""
            peak = Quantity(None, Provenance.UNKNOWN, note=note, lo=dim_cell(low), hi=dim_cell(most))
    what = f"weights, inputs and activations as requested, without an allocator: {why}" if why else "tensors as requested"
    ends = timeline.peak_by_lives
    if ends is not None:
        for category in ("output", "activation"):
            parts[category] = [_modelled(cell) for cell in parts[category]]
        if peak.value is not None:
            lo, hi = (dim_cell(there + end) for end in ends)
            peak = Quantity(peak.value, Provenance.MODELLED, note=MODELLED_LIVES, lo=lo, hi=hi)
    return Footprint("tensor", what, "", steps, parts, heights, peak, at, living, ends is None, lacking=lacking)


def _modelled(cell: object) -> object:
    if isinstance(cell, Quantity):
        return cell if cell.value is None else replace(cell, provenance=Provenance.MODELLED)
    return Quantity(cell, Provenance.MODELLED) if isinstance(cell, int | str) else cell


def _unsized_steps(timeline: Timeline, outputs: bool | None = None) -> set[int]:
    """Return the steps at which something of unknown size is alive, of the model's results or of others where that is asked."""
    last = len(timeline.steps) - 1
    chosen = (life for life in timeline.unsized_ranges if outputs is None or life.is_output is outputs)
    return {step for choice in chosen for step in range(choice.born, min(choice.dies, last) + 1)}


def _lower_bound_cells(timeline: Timeline, amounts: Sequence[Dim], *, outputs: bool) -> list[object]:
    """Return the bytes at each step as a report holds them: a lower bound where something of unknown size belongs to them."""
    lacking = _unsized_steps(timeline, outputs)
    return [at_least(amount, step not in lacking) for step, amount in enumerate(amounts)]


def _outputs(timeline: Timeline) -> list[Dim]:
    """Return the bytes of results of the model at each step."""
    count = len(timeline.steps)
    change: list[Dim] = [0] * (count + 1)
    for one in timeline.ranges:
        if one.is_output:
            change[one.born] = change[one.born] + one.size
    dims: list[Dim] = []
    alive: Dim = 0
    for step in range(count):
        alive = alive + change[step]
        dims.append(alive)
    return dims
