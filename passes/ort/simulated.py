"""What two runs of a session of ONNX Runtime take from the arena, also of graphs inside If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import field

from irscope.immutable import immutable, mutable
from irscope.memory.arena import BfcArena, Chunk, likeness_of
from irscope.memory.caching.device import OutOfMemory
from irscope.ops.spec import KernelPacking
from irscope.passes.ort.plan import Buffers, pattern_bytes

_CONDITION = 1
"""Bytes of the condition that a Loop starts with."""
_COUNTER = 8
"""Bytes of the number of its step."""


@immutable
class OrtUsage:
    """Bytes as ONNX Runtime's profile counts them."""

    requested: int
    """In use, as asked for: mem_bytes_requested_in_use. As a peak, the most after any kernel."""
    allocated: int
    """In use, as chunks of the arena: mem_bytes_in_use. As a peak, mem_in_use_peak, which includes temporary memory of kernels."""
    reserved: int
    """Held by the arena: mem_arena_held."""


@immutable
class OrtRun:
    """One run."""

    peak: OrtUsage
    requested: list[int] = field(repr=False)
    """mem_bytes_requested_in_use after each kernel."""
    allocated: list[int] = field(repr=False)
    """mem_bytes_in_use after each kernel."""
    peak_step: int
    """The step after which most bytes are in use, as asked for."""
    highest: list[int] = field(repr=False)
    """Peak bytes in use while each kernel runs, as chunks of the arena, its temporary memory included."""
    block: int = 0
    """Bytes of the block that holds what is not returned; 0 where there is none, or no room for it."""


@immutable
class OrtFigures:
    """Memory of a session before it runs, and in its first and second run."""

    before: OrtUsage
    cold: OrtRun
    warm: OrtRun
    pattern: int
    """Bytes of the memory-pattern block of the second run, for all values but the outputs; 0 without a pattern."""
    takes: Sequence[int] = field(default=(), repr=False)
    """Temporary memory of each kernel, in bytes."""


@mutable(slots=True)
class Inner:
    """A graph inside a node. Its results are those of the node, and have their memory before it runs where the session knows their
    shapes (IfImpl::AllocateOutputTensors in core/providers/cpu/controlflow/if.cc), else when their kernels run."""

    buffers: Buffers
    sizes: Sequence[int]
    traced: Sequence[bool]
    takes: Sequence[int]
    early: Container[int]
    inner: Mapping[int, Inner]
    late: Mapping[int, int] = field(default_factory=dict)
    """Results that get their memory when their kernels run: each with the number that it has around the node."""
    has_pattern: bool = True
    """True where its runs take one block for all that they do not return, from the second on."""
    has_run: bool = False
    """True where its pattern is known, so that it takes one block."""
    block: int | None = None
    """Bytes of that block, once they were counted."""
    pieces: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Temporary memory of kernels that ask for it in several pieces, one after another."""
    steps: LoopSteps | ScanSteps | None = None
    """How often a Loop or a Scan runs it; None for what runs once, as the branch of an If."""


@immutable
class LoopSteps:
    """The steps of a Loop's body, whose results are the condition, states and slices."""

    trips: int
    results: Sequence[int]
    """Results of the node, by their numbers around it."""
    slices: frozenset[int]
    """Results of the body that are kept to the end of the last step, by number."""
    shared: frozenset[int]
    """Results of the body that have the memory of what it is given."""
    keeps_condition: bool
    """True where each step hands on the condition that it is given."""
    skipped: Sequence[int] = ()
    """Bytes of slices of steps that are left out of the simulation."""


@immutable
class ScanSteps:
    """The steps of a Scan's body, which writes slices into the results of the node."""

    trips: int
    states: Sequence[int]
    """Bytes of states between steps: two of each, that steps write in turn, the last one into the result."""


@immutable
class Session:
    """Memory of a session besides its buffers."""

    copied: Sequence[int]
    """Bytes of weights that are copied into the arena before the first run, and stay."""
    packed: Sequence[tuple[Hashable, KernelPacking]]
    """Weights that kernels pack then, in the order of the file, with a key: of equal ones only the first is kept."""
    takes: Sequence[int]
    """Temporary memory of each kernel, in bytes."""
    early: Container[int]
    """Kernels that take it before their results."""
    inner: Mapping[int, Inner]
    """Graphs that kernels run, by step."""
    arena: BfcArena
    """A fresh one."""
    pattern: bool
    dropped: Sequence[int] = ()
    """Bytes of weights that are copied likewise, and go when all their readers have packed them."""
    loaded: Sequence[int] = ()
    """Bytes of weights that lie in the arena, in the order in which they are loaded."""
    brought: Sequence[int] = ()
    """Bytes of inputs that each run copies into it, for as long as it takes."""
    carried: Sequence[int] = ()
    """Bytes of results that each run copies into it at its end."""
    block: int | None = None
    """Bytes of the block of the second run, where they are known already."""
    shrinks: bool = False
    """True where each run gives back what is free in the end: memory.enable_memory_arena_shrinkage."""
    pieces: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Temporary memory of kernels that ask for it in several pieces."""


def simulate(
    buffers: Buffers,
    sizes: Sequence[int],
    traced: Sequence[bool],
    session: Session,
    peaks: dict[tuple[object, ...], OrtFigures] | None = None,
) -> OrtFigures:
    """Pack weights, then run twice; the peaks of the first run are also those of packing. `sizes` are bytes of values; those that `traced`
    marks have an offset in the second run's block. With `peaks` nothing but the peaks is found, once for arenas that are alike after
    loading: those that were found before are there."""
    arena = session.arena
    arena.load(session.loaded)
    for size in session.copied:
        arena.reserve(size)
    dropped = [arena.reserve(size) for size in session.dropped]
    kept: set[Hashable] = set()
    for key, packed in session.packed:
        chunk = arena.reserve(packed.nbytes) if packed.reserved else arena.malloc(packed.nbytes)
        arena.free(arena.malloc(packed.meanwhile))
        if key in kept and packed.shared:
            # A kernel packs before the session can find that it has the same already.
            arena.free(chunk)
        kept.add(key)
    _give_back(arena, dropped)
    before = _usage(arena)
    likeness = () if peaks is None else likeness_of(arena)
    if peaks is not None and likeness in peaks:
        return peaks[likeness]
    run = _simulated_run if peaks is None else _simulated_peaks
    all_alone = [True] * len(sizes)
    cold = run(session, buffers, sizes, all_alone, 0)
    arena.reset_peaks()
    block = (pattern_bytes(buffers, sizes, traced) if session.block is None else session.block) if session.pattern else 0
    alone = all_alone
    if block:
        alone = [is_output or not in_block for is_output, in_block in zip(buffers.is_output, traced, strict=True)]
    warm = run(session, buffers, sizes, alone, block)
    figures = OrtFigures(before, cold, warm, warm.block, session.takes)
    if peaks is not None:
        peaks[likeness] = figures
    return figures


def _simulated_peaks(session: Session, buffers: Buffers, sizes: Sequence[int], alone: Sequence[bool], block: int) -> OrtRun:
    """Return the peaks of one run without graphs inside kernels, as `_simulated_run` finds them."""
    arena, takes = session.arena, session.takes
    malloc, free = arena.malloc, arena.free
    around = [malloc(size) for size in session.brought]
    try:
        around.append(malloc(block))
    except OutOfMemory:
        alone, block = [True] * len(sizes), 0
    chunks: dict[int, Chunk] = {}
    most = arena.requested
    for step, (taken, dropped, own) in enumerate(zip(buffers.taken, buffers.dropped, takes, strict=True)):
        for value in taken:
            if sizes[value] and alone[value] and (chunk := malloc(sizes[value])) is not None:
                chunks[value] = chunk
        if own:
            _give_back(arena, _working(arena, session, step))
        if taken and arena.requested > most:
            most = arena.requested
        for value in dropped:
            if value in chunks:
                free(chunks.pop(value))
    around += [malloc(size) for size in session.carried]
    counters = arena.counters()
    for left in (*chunks.values(), *around):
        free(left)
    if session.shrinks:
        arena.shrink()
    return OrtRun(OrtUsage(most, counters.in_use_peak, counters.held_peak), [], [], 0, [], block)


def _simulated_run(session: Session, buffers: Buffers, sizes: Sequence[int], alone: Sequence[bool], block: int) -> OrtRun:
    """Return one run; only values that `alone` marks take memory from the arena, the others have theirs in the block."""
    arena = session.arena
    around = [arena.malloc(size) for size in session.brought]
    try:
        around.append(arena.malloc(block))
    except OutOfMemory:
        # The session then gives every tensor a chunk of its own, as in its first run.
        alone, block = [True] * len(sizes), 0
    chunks: dict[int, Chunk | None] = {}
    requested: list[int] = []
    allocated: list[int] = []
    highest: list[int] = []
    inside: dict[int, int] = {}
    malloc, free = arena.malloc, arena.free

    def give(value: int) -> None:
        if alone[value]:
            chunks[value] = malloc(sizes[value])

    for step, taken in enumerate(buffers.taken):
        own = _working(arena, session, step) if step in session.early else []
        body = session.inner.get(step)
        for value in _early(taken, body):
            give(value)
        own = own or _working(arena, session, step)
        most = arena.in_use
        if body is not None:
            inside[step], most = _run_inner(arena, body, session.pattern, give)
        highest.append(most)
        _give_back(arena, own)
        requested.append(arena.requested)
        allocated.append(arena.in_use)
        for value in buffers.dropped[step]:
            free(chunks.pop(value, None))
    around += [arena.malloc(size) for size in session.carried]
    counters = arena.counters()
    for left in (*chunks.values(), *around):
        free(left)
    if session.shrinks:
        arena.shrink()
    heights = [max(after, inside.get(step, 0)) for step, after in enumerate(requested)] if inside else requested
    most = max(heights, default=arena.requested)
    peak = OrtUsage(most, counters.in_use_peak, counters.held_peak)
    return OrtRun(peak, requested, allocated, heights.index(most) if heights else 0, highest, block)


def _working(arena: BfcArena, frame: Session | Inner, step: int) -> list[Chunk | None]:
    """Take the temporary memory of a kernel, piece by piece."""
    pieces = frame.pieces.get(step)
    if pieces is None:
        pieces = (frame.takes[step],) if frame.takes[step] else ()
    return [arena.malloc(size) for size in pieces]


def _give_back(arena: BfcArena, chunks: Sequence[Chunk | None]) -> None:
    for chunk in chunks:
        arena.free(chunk)


def _early(taken: Sequence[int], body: Inner | None) -> Sequence[int]:
    """Return the buffers of a node that are there before a graph inside it runs."""
    late = () if body is None else set(body.steps.results if isinstance(body.steps, LoopSteps) else body.late.values())
    return [value for value in taken if value not in late] if late else taken


def _run_inner(arena: BfcArena, graph: Inner, pattern: bool, give: Callable[[int], None]) -> tuple[int, int]:
    """Run a graph inside a node: the most bytes requested after any of its kernels, and the most in use. `give` takes the memory of a
    result of the node, by its number around it."""
    if isinstance(graph.steps, LoopSteps):
        return _repeat_body(arena, graph, graph.steps, pattern, give)
    steps = graph.steps or ScanSteps(1, ())
    states = [arena.malloc(size) for size in steps.states]
    requested, highest = arena.requested, arena.in_use
    for _ in range(steps.trips):
        within, most, _ = _run_body(arena, graph, pattern, give)
        # The first step has given results their memory whose shapes the session does not know.
        give = _no_more
        requested, highest = max(requested, within), max(highest, most)
    _give_back(arena, states)
    return requested, highest


def _no_more(_value: int) -> None:
    """Give a result of a node no memory: it has it."""


def _repeat_body(arena: BfcArena, graph: Inner, steps: LoopSteps, pattern: bool, give: Callable[[int], None]) -> tuple[int, int]:
    """Run the body of a Loop step by step (LoopImpl::Execute in core/providers/cpu/controlflow/loop.cc). A step begins when the results
    of the last but one are gone; after the last one everything is copied into the results of the node."""
    states: list[Chunk | None] = [arena.malloc(_CONDITION)]
    kept: list[Chunk | None] = [arena.malloc(_COUNTER)]
    if steps.keeps_condition:
        kept, states = kept + states, []
    before: list[Chunk | None] = []
    requested, highest = arena.requested, arena.in_use
    for trip in range(steps.trips):
        if trip == steps.trips - 1:
            kept += map(arena.malloc, steps.skipped)
        _give_back(arena, before)
        within, most, made = _run_body(arena, graph, pattern, give)
        requested, highest = max(requested, within), max(highest, most)
        before, states = states, [chunk for number, chunk in made.items() if number not in steps.slices]
        kept += [chunk for number, chunk in made.items() if number in steps.slices]
    for around in steps.results:
        give(around)
    highest = max(highest, arena.in_use)
    _give_back(arena, (*before, *states, *kept))
    return requested, highest


def _run_body(arena: BfcArena, graph: Inner, pattern: bool, give: Callable[[int], None]) -> tuple[int, int, dict[int, Chunk | None]]:
    """Run a graph inside a node once, as `_run_inner`, and return also what a step of a Loop hands on."""
    buffers, sizes = graph.buffers, graph.sizes
    block = _inner_block(graph) if pattern and graph.has_pattern and graph.has_run else 0
    graph.has_run = True
    around = arena.malloc(block)
    chunks: dict[int, Chunk | None] = {}
    handed_on: dict[int, Chunk | None] = {}
    requested, highest = arena.requested, arena.in_use

    def take(value: int) -> None:
        if buffers.is_output[value] and isinstance(graph.steps, LoopSteps):
            if value not in graph.steps.shared:
                handed_on[value] = arena.malloc(sizes[value])
        elif value in graph.late:
            give(graph.late[value])
        elif not buffers.is_output[value] and not (block and graph.traced[value]):
            chunks[value] = arena.malloc(sizes[value])

    for step, taken in enumerate(buffers.taken):
        own = _working(arena, graph, step) if step in graph.early else []
        body = graph.inner.get(step)
        for value in _early(taken, body):
            take(value)
        own = own or _working(arena, graph, step)
        most = arena.in_use
        if body is not None:
            within, most = _run_inner(arena, body, pattern, take)
            requested = max(requested, within)
        highest = max(highest, most)
        _give_back(arena, own)
        requested = max(requested, arena.requested)
        for value in buffers.dropped[step]:
            arena.free(chunks.pop(value, None))
    for chunk in (around, *chunks.values()):
        arena.free(chunk)
    return requested, highest, handed_on


def _inner_block(graph: Inner) -> int:
    """Return the bytes of the block that a further run of a graph inside a node takes, counted once."""
    if graph.block is None:
        graph.block = pattern_bytes(graph.buffers, graph.sizes, graph.traced)
    return graph.block


def _usage(arena: BfcArena) -> OrtUsage:
    return OrtUsage(arena.requested, arena.in_use, arena.held)
