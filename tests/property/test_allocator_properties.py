"""Allocators under any sequence of calls, PyTorch's and ONNX Runtime's; plans of arenas and of checkpointing."""

from __future__ import annotations

import itertools
import random
from itertools import pairwise, permutations
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from irscope.memory import BfcArena
from irscope.memory.arena import Chunk
from irscope.memory.caching import Block, CachingAllocator, MemPool, OutOfMemory
from irscope.memory.caching.blocks import SHIFT, FreeList
from irscope.solvers.checkpoint.problem import Bounds
from irscope.solvers.checkpoint.simulate import Simulator
from irscope.solvers.checkpoint.solve import CheckpointPlanner, best_of_all
from irscope.solvers.place import make_plan
from tests.unit.memory.replay import play, step
from tests.unit.memory.stepgraphs import STATES, random_step, slow_cost

# The allocator under any sequence of calls: blocks never overlap, counters add up, and everything can be given back.

MIB = 1 << 20

CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    {"torch": "2.11"},
    {"torch": "2.12"},
    {"torch": "2.15", "alloc_conf": "expandable_segments:True", "total_memory": 300 * MIB},
    {"torch": "2.12", "alloc_conf": "expandable_segments:True,roundup_power2_divisions:4"},
    {"alloc_conf": "max_split_size_mb:33", "total_memory": 300 * MIB},
    {"alloc_conf": "garbage_collection_threshold:0.3,per_process_memory_fraction:0.9", "total_memory": 300 * MIB},
    {"alloc_conf": "large_segment_size_mb:44", "total_memory": 299 * MIB, "pending_frees": "synchronize"},
]

sizes = st.one_of(st.integers(0, 5000), st.integers(0, 3 * MIB), st.integers(0, 90 * MIB), st.sampled_from([512, MIB, 10 * MIB, 33 * MIB]))
streams = st.integers(0, 2)
names = st.integers(0, 30)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("a"), names, sizes, streams),
        st.tuples(st.just("f"), names),
        st.tuples(st.just("r"), names, streams),
        st.tuples(st.sampled_from("esp")),
        st.tuples(st.just("w"), streams),
        st.tuples(st.sampled_from("pbnx"), st.integers(0, 1)),
    ).map(list),
    max_size=120,
)
configurations = st.sampled_from(CONFIGURATIONS)


def runnable(plan: list[list[Any]]) -> list[list[Any]]:
    """The plan without mallocs under a name that is in use, and without what a private pool cannot do now."""
    used: set[int] = set()
    pools: dict[int, bool] = {}
    kept = []
    for operation in plan:
        if operation[0] in "pbnx" and len(operation) == 2:
            if pools.get(operation[1]) != {"p": None, "b": False, "n": True, "x": False}[operation[0]]:
                continue
            pools[operation[1]] = operation[0] == "b"
            if operation[0] == "x":
                del pools[operation[1]]
        if operation[0] == "a":
            if operation[1] in used:
                continue
            used.add(operation[1])
        elif operation[0] == "f":
            used.discard(operation[1])
        kept.append(operation)
    return kept


def check(allocator: CachingAllocator, live: dict[int, Block], total: int | None) -> None:
    """Segments do not overlap, blocks tile them, and their sums are the counters."""
    counters = allocator.counters()
    end = 0
    found: dict[str, int] = {"active_allocated": 0, "active_pending_free": 0, "inactive": 0}
    requested = split = 0
    for segment in allocator.segments():
        assert segment.address >= end
        end = segment.address
        for block in segment.blocks:
            assert block.address == end
            assert block.size > 0 and block.size % 512 == 0
            assert block.requested <= block.size
            end += block.size
            found[block.state] += block.size
            requested += block.requested
            if block.state == "inactive" and len(segment.blocks) > 1 and not segment.expandable:
                split += block.size
        assert end == segment.address + segment.size
        neighbours = zip(segment.blocks, segment.blocks[1:], strict=False)
        assert all(left.state != "inactive" or right.state != "inactive" for left, right in neighbours)
    assert found["active_allocated"] == counters.allocated == sum(block.size for block in live.values())
    assert found["active_allocated"] + found["active_pending_free"] == counters.active
    assert sum(found.values()) == counters.reserved
    assert (requested, split) == (counters.requested, counters.inactive_split)
    assert counters.requested <= counters.active <= counters.reserved <= (total or counters.reserved)
    for name in ("allocated", "reserved", "active", "requested"):
        assert counters[name] <= counters[f"{name}_peak"]


@given(configurations, operations)
def test_blocks_never_overlap_and_counters_add_up(configuration: dict[str, Any], plan: list[list[Any]]) -> None:
    allocator = CachingAllocator(**configuration)
    live: dict[int, Block] = {}
    pools: dict[int, MemPool] = {}
    for operation in runnable(plan):
        step(allocator, live, operation, pools)
        check(allocator, live, configuration.get("total_memory"))


@given(configurations, operations)
def test_everything_can_be_given_back(configuration: dict[str, Any], plan: list[list[Any]]) -> None:
    allocator = CachingAllocator(**configuration)
    live: dict[int, Block] = {}
    pools: dict[int, MemPool] = {}
    for operation in runnable(plan):
        step(allocator, live, operation, pools)
    for pool in pools.values():
        if pool.users > 1:
            pool.end()
        pool.release()
    for block in live.values():
        allocator.free(block)
    allocator.empty_cache()
    counters = allocator.counters()
    assert (
        counters.allocated
        == counters.active
        == counters.requested
        == counters.reserved
        == counters.inactive_split
        == counters.segments
        == 0
    )
    assert allocator.segments() == []


@given(configurations, operations)
def test_the_same_calls_give_the_same_counters(configuration: dict[str, Any], plan: list[list[Any]]) -> None:
    first, second = (play(CachingAllocator(**configuration), runnable(plan)) for _ in range(2))
    assert first == second


class Piece(NamedTuple):
    """A block of the plain allocator below."""

    start: int
    size: int
    segment: int
    free: bool


class Plain:
    """The rules without options, written to be read: one list of pieces, looked through from the beginning each time."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.end = 0

    def malloc(self, size: int) -> int:
        size = -(-size // 512) * 512
        small = size <= MIB
        fits = [piece for piece in self.pieces if piece.free and piece.size >= size and (self.length(piece.segment) == 2 * MIB) == small]
        if not fits:
            length = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            fits = [Piece(self.end, length, self.end, True)]
            self.pieces += fits
            self.end += length
        best = min(fits, key=lambda piece: (piece.size, piece.start))
        rest = best.size - size
        at = self.pieces.index(best)
        if rest >= 512 if small else rest > MIB:
            taken = best._replace(size=size, free=False)
            self.pieces[at : at + 1] = [taken, Piece(best.start + size, rest, best.segment, True)]
        else:
            self.pieces[at] = best._replace(free=False)
        return best.start

    def length(self, segment: int) -> int:
        return sum(piece.size for piece in self.pieces if piece.segment == segment)

    def free(self, start: int) -> None:
        pieces: list[Piece] = []
        for piece in self.pieces:
            if piece.start == start:
                piece = piece._replace(free=True)
            last = pieces[-1] if pieces else None
            if last is not None and last.free and piece.free and last.segment == piece.segment:
                pieces[-1] = last._replace(size=last.size + piece.size)
            else:
                pieces.append(piece)
        self.pieces = pieces


@given(st.lists(st.tuples(sizes.filter(bool), st.integers(0, 60)), max_size=60))
def test_the_plain_rules_lead_to_the_same_addresses(plan: list[tuple[int, int]]) -> None:
    allocator, plain = CachingAllocator(total_memory=1 << 50), Plain()
    live: list[tuple[Block, int]] = []
    offset: int | None = None
    for size, victim in plan:
        block, start = allocator.malloc(size), plain.malloc(size)
        offset = block.address - start if offset is None else offset
        assert block.address - start == offset
        live.append((block, start))
        if victim < len(live):
            block, start = live.pop(victim)
            allocator.free(block)
            plain.free(start)


class Item:
    """What a free list holds."""

    def __init__(self, size: int, address: int) -> None:
        self.size, self.address, self.order, self.key = size, address, 0, 0


@given(st.lists(st.tuples(st.sampled_from("+++-?"), st.integers(1, 40)), max_size=60), st.integers(1, 40))
def test_the_free_list_is_a_sorted_list(plan: list[tuple[str, int]], copies: int) -> None:
    held: list[Item] = []
    free: FreeList[Item] = FreeList()
    address = 0
    for action, size in plan:
        if action == "+":
            for _ in range(copies):  # enough of them to divide the list into chunks
                address += 1
                held.append(Item(size, address))
                free.add(held[-1])
        elif action == "-" and held:
            assert free.remove(held[size % len(held)].key) is held.pop(size % len(held))
        else:
            best = min((item for item in held if item.size >= size), key=lambda item: item.key, default=None)
            assert free.first(size << SHIFT) == (best.key if best else 0)
            assert free.take(size) is best
            if best:
                held.remove(best)
        assert len(free) == len(held)
    held.sort(key=lambda item: item.key)
    assert list(free.ascending()) == held
    assert list(free.descending()) == held[::-1]


@given(st.integers(64, 512), st.lists(st.integers(1, 200 * MIB), max_size=40))
def test_memory_runs_out_exactly_where_the_device_ends(mebibytes: int, wanted: list[int]) -> None:
    allocator = CachingAllocator(total_memory=mebibytes * MIB)
    for size in wanted:
        before = allocator.counters()
        try:
            allocator.malloc(size)
        except OutOfMemory:
            segment = 2 * MIB if size <= MIB else 20 * MIB if -(-size // 512) * 512 < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            assert before.reserved + segment > mebibytes * MIB
            assert allocator.counters().ooms == before.ooms + 1


# ONNX Runtime's arena under any sequence of calls: chunks tile their regions, counters add up, and nothing is lost.

KIB = 1 << 10
SCALED: dict[str, Any] = {"first_region": KIB, "after_shrinking": 2 * KIB, "most_doubled": 1 << 20, "most_dead": 128 * KIB}
ARENAS: list[dict[str, Any]] = [
    {},
    SCALED,
    {"strategy": "same_as_requested"},
    {**SCALED, "limit": 3 << 20},
    {**SCALED, "device_memory": 2 << 20},
    {"strategy": "same_as_requested", "limit": 1 << 20},
]
arena_sizes = st.one_of(st.integers(0, 3000), st.integers(0, 100_000), st.integers(0, 900_000))
arena_operations = st.lists(
    st.one_of(
        st.tuples(st.just("malloc"), arena_sizes),
        st.tuples(st.just("reserve"), arena_sizes),
        st.tuples(st.sampled_from(["free", "shrink"]), st.integers(0, 50)),
    ),
    max_size=120,
)


def check_arena(arena: BfcArena, live: list[Chunk]) -> None:
    held = in_use = 0
    for region in arena.regions():
        chunks = region.chunks()
        at = chunks[0].address
        for before, after in pairwise(chunks):
            assert before.key == 0 or after.key == 0, "free neighbours are joined"
        for chunk in chunks:
            assert chunk.address == at
            assert chunk.size > 0 and chunk.size % 256 == 0
            at += chunk.size
            in_use += 0 if chunk.key else chunk.size
        assert at - chunks[0].address == region.size
        held += region.size
    reserved = sum(chunk.size for chunk in live if chunk.key < 0)
    assert arena.held == held + reserved
    assert arena.in_use == in_use + reserved == sum(chunk.size for chunk in live)
    assert arena.requested == sum(chunk.requested for chunk in live)
    counters = arena.counters()
    assert counters.in_use_peak >= arena.in_use
    assert counters.held_peak >= arena.held
    assert counters.requested <= counters.in_use <= counters.held


@given(st.sampled_from(ARENAS), arena_operations)
def test_any_sequence(configuration: dict[str, Any], plan: list[tuple[str, int]]) -> None:
    arena = BfcArena(**configuration)
    live: list[Chunk] = []
    for name, number in plan:
        if name == "free":
            if live:
                arena.free(live.pop(number % len(live)))
        elif name == "shrink":
            arena.shrink()
        else:
            before = arena.counters()
            try:
                made = arena.malloc(number) if name == "malloc" else arena.reserve(number)
            except OutOfMemory:
                assert (arena.requested, arena.in_use, arena.held) == (before.requested, before.in_use, before.held)
            else:
                if made is not None:
                    assert made.requested == number <= made.size
                    assert made.size < 2 * number + 512 or made.size - number < 128 << 20
                    live.append(made)
        check_arena(arena, live)
    for chunk in live:
        arena.free(chunk)
    check_arena(arena, [])
    arena.shrink()
    assert all(region.number == 0 for region in arena.regions())


@given(st.lists(arena_sizes, max_size=60))
def test_what_is_freed_is_used_again(wanted: list[int]) -> None:
    """The same requests a second time need no more from the device."""
    arena = BfcArena()
    chunks = [arena.malloc(size) for size in wanted]
    held = arena.held
    for chunk in chunks:
        arena.free(chunk)
    for size in sorted(wanted, reverse=True):
        arena.malloc(size)
    if len(arena.regions()) == 1:
        assert arena.held == held


# What holds for every plan: nobody shares a byte, offsets are aligned, and small ones are as low as can be.

lives = st.tuples(st.integers(0, 12), st.integers(0, 8), st.integers(0, 40))
Buffers = list[tuple[int, int, int]]


def split(drawn: Buffers) -> tuple[list[int], list[int], list[int]]:
    """Starts, ends and sizes of drawn starts, durations and sizes."""
    return [start for start, _, _ in drawn], [start + long for start, long, _ in drawn], [size for _, _, size in drawn]


@given(st.lists(lives, max_size=40), st.sampled_from([1, 4, 16]), st.sampled_from([0.0, 0.05]))
def test_buffers_alive_together_share_no_byte(drawn: Buffers, alignment: int, seconds: float) -> None:
    lower, upper, size = split(drawn)
    plan = make_plan(lower, upper, size, alignment, seconds)
    assert plan.max_live <= plan.height
    assert all(offset % alignment == 0 and offset >= 0 for offset in plan.offsets)
    for index in range(len(drawn)):
        assert lower[index] == upper[index] or plan.offsets[index] + size[index] <= plan.height
        for other in range(index):
            if max(lower[index], lower[other]) < min(upper[index], upper[other]) and size[index] and size[other]:
                assert plan.offsets[index] + size[index] <= plan.offsets[other] or plan.offsets[other] + size[other] <= plan.offsets[index]


@given(st.lists(lives, max_size=5))
def test_small_plans_are_as_low_as_any(drawn: Buffers) -> None:
    lower, upper, size = split(drawn)
    assert make_plan(lower, upper, size, seconds=5).height == lowest_by_trying_all(lower, upper, size)


def lowest_by_trying_all(lower: list[int], upper: list[int], size: list[int]) -> int:
    """The least height over all orders of putting each buffer as low as it goes: one of them is best."""
    count = len(size)
    best = sum(size)
    for order in permutations(range(count)):
        offsets: dict[int, int] = {}
        for buffer in order:
            others = [other for other in offsets if max(lower[buffer], lower[other]) < min(upper[buffer], upper[other])]
            spots = [0, *(offsets[other] + size[other] for other in others)]
            offsets[buffer] = min(
                spot
                for spot in spots
                if all(spot + size[buffer] <= offsets[other] or offsets[other] + size[other] <= spot for other in others)
            )
        best = min(best, max((offsets[buffer] + size[buffer] for buffer in offsets if upper[buffer] > lower[buffer]), default=0))
    return best


# Plans of checkpointing against a slow simulator and against trying every plan.

SEEDS = st.integers(0, 10**9)


@given(SEEDS, st.integers(1, 9))
@settings(max_examples=300, deadline=None)
def test_costs_are_those_of_the_slow_simulator(seed: int, count: int) -> None:
    problem = random_step(seed, count)
    simulator = Simulator(problem)
    plan = simulator.save_all()
    draw = random.Random(seed)
    for number in problem.choices:
        plan[number] = draw.choice(STATES)
    cost = simulator.cost(plan)
    assert (cost.peak, round(cost.seconds, 6)) == slow_cost(problem, plan)


@given(SEEDS, st.integers(2, 6))
@settings(max_examples=60, deadline=None)
def test_no_plan_is_better_than_the_bounds(seed: int, count: int) -> None:
    problem = random_step(seed, count)
    choices = problem.choices[:6]
    simulator, bounds = Simulator(problem), Bounds(problem)
    plan = simulator.save_all()
    costs = []
    for states in itertools.product(STATES, repeat=len(choices)):
        for number, state in zip(choices, states, strict=True):
            plan[number] = state
        costs.append(simulator.cost(plan))
    assert min(cost.peak for cost in costs) >= bounds.floor.bytes
    for budget in sorted({cost.peak for cost in costs}):
        least = bounds.seconds(budget)
        assert least is not None
        assert least <= min(cost.seconds for cost in costs if cost.peak <= budget) + 1e-6


@given(SEEDS, st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_local_search_finds_what_trying_every_plan_finds(seed: int, count: int) -> None:
    problem = random_step(seed, count)
    simulator = Simulator(problem)
    if not 0 < len(problem.choices) <= 5:
        return
    full = simulator.cost(simulator.save_all()).peak
    budget = max(Bounds(problem).floor.bytes, full * 8 // 10)
    best = best_of_all(simulator, budget)
    planner = CheckpointPlanner(problem)
    planner.tries_all = False
    found = planner.plan(budget, steps=2500)
    if best is None:
        assert not found.met
    else:
        assert found.met
        assert abs(found.seconds - best[0].seconds) < 1e-9
