"""Orders against all orders, exact search and minimum cuts, schedules and plans of any model, recomputation."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.ordergraphs import layered
from irscope.errors import UsageError
from irscope.ir.bind import bind_program
from irscope.ir.program import EXPORTED, TORCHSCRIPT, Program, Traits
from irscope.ir.verify import verify
from irscope.passes.lifetimes.lives import read_values
from irscope.passes.memory.liveness import Liveness
from irscope.passes.order.effects import Effects
from irscope.passes.order.plan import Plan
from irscope.passes.order.schedule import Schedule, Scheduled, ScheduleModel
from irscope.passkit.manager import Manager
from irscope.solvers.graphs import INFINITE, FlowNetwork
from irscope.solvers.order import bounds as exact
from irscope.solvers.order import solve
from irscope.solvers.order.bounds import Attempt, ExactSearch, Necessary, least_while_running
from irscope.solvers.order.problem import OrderProblem, Storage, order_problem
from irscope.solvers.order.recompute import Recipe, Repeated, lower, start
from irscope.solvers.order.solve import LatencyLimit, Layout, best_order, by_need, simple_orders, waists
from tests.property.strategies import tensor_programs
from tests.property.symbolic_models import symbolic_models

# Orders against all orders: on small problems every one can be tried.


@st.composite
def problems(draw: st.DrawFn, most: int = 6) -> OrderProblem:
    """Operators with storages that several of them touch, some there from the start, some kept to the end."""
    count = draw(st.integers(1, most))
    before = [draw(st.sets(st.integers(0, op - 1), max_size=2)) if op else set() for op in range(count)]
    touches = st.sets(st.integers(0, count - 1), min_size=1, max_size=4)
    storages = draw(st.lists(st.builds(_storage, st.integers(0, 20), touches, st.booleans(), st.booleans()), max_size=8))
    return order_problem(before, storages, [draw(st.integers(0, 5)) for _ in range(count)])


def _storage(size: int, touches: set[int], is_input: bool, is_output: bool) -> Storage:
    return Storage(size, tuple(touches), is_input, is_output)


def all_orders(problem: OrderProblem) -> Iterator[list[int]]:
    """Every valid order."""

    def longer(order: list[int]) -> Iterator[list[int]]:
        if len(order) == len(problem):
            yield list(order)
        for op in range(len(problem)):
            if op not in order and all(earlier in order for earlier in problem.before[op]):
                yield from longer([*order, op])

    return longer([])


@given(problems())
def test_a_cut_is_the_least_of_all_orders(problem: OrderProblem) -> None:
    least: dict[int, int] = {}
    for order in all_orders(problem):
        for op, needed in zip(order, problem.needs(order), strict=True):
            least[op] = min(needed, least.get(op, needed))
    for op, expected in least.items():
        cut = least_while_running(problem, op)
        assert cut.bytes == expected
        first = [*(index for index in range(len(problem)) if index in cut.done), op]
        rest = [index for index in range(len(problem)) if index not in first]
        assert problem.is_valid([*first, *rest])
        assert problem.needs([*first, *rest])[len(cut.done)] == expected


@given(problems())
def test_exact_search_finds_the_best_of_all_orders(problem: OrderProblem) -> None:
    expected = min(map(problem.peak, all_orders(problem)))
    search = ExactSearch(problem, range(len(problem)))
    search.run(lambda: False)
    assert problem.is_valid(search.order)
    assert problem.peak(search.order) == search.bound == search.peak == expected


@given(problems(), st.integers(0, 60))
def test_an_attempt_knows_whether_there_is_an_order_within_a_limit(problem: OrderProblem, limit: int) -> None:
    peaks = [max(problem.needs(order)) for order in all_orders(problem)]
    for backwards in (False, True):
        attempt = Attempt(problem.reverse if backwards else problem, limit)
        attempt.run(1_000_000)
        assert attempt.is_over and (attempt.order is not None) == (min(peaks) <= limit)
        if attempt.order is None:
            assert limit < attempt.least_beyond <= min(peaks)
        else:
            order = problem.reversed_order(attempt.order) if backwards else attempt.order
            assert problem.is_valid(order) and max(problem.needs(order)) <= limit


@given(problems(), st.integers(0, 60))
def test_what_is_necessary_holds_in_every_order_within_the_limit(problem: OrderProblem, limit: int) -> None:
    orders = list(all_orders(problem))
    necessary = Necessary(problem, limit)
    necessary.run(lambda: False)
    within = [order for order in orders if max(problem.needs(order)) <= limit]
    for order in within:
        assert not necessary.impossible and necessary.strengthened().is_valid(order)
    if necessary.impossible:
        assert limit < necessary.least_beyond <= min(max(problem.needs(order)) for order in orders)
    else:
        lower = Necessary(problem, limit - 1, necessary)
        lower.run(lambda: False)
        for order in orders:
            assert max(problem.needs(order)) > limit - 1 or (not lower.impossible and lower.strengthened().is_valid(order))


@given(problems(), st.integers(0, 60), st.integers(0, 6))
def test_a_part_of_what_is_necessary_holds_as_well(problem: OrderProblem, limit: int, looks: int) -> None:
    necessary = Necessary(problem, limit)
    necessary.run(lambda: False, looks)
    for order in all_orders(problem):
        assert max(problem.needs(order)) > limit or (not necessary.impossible and necessary.strengthened().is_valid(order))


@given(st.integers(0, 10_000))
def test_what_flows_is_what_the_least_cut_lets_through(seed: int) -> None:
    chance = random.Random(seed)
    network, count = FlowNetwork(), chance.randint(2, 8)
    nodes = [network.node() for _ in range(count)]
    edges = [(*chance.sample(nodes, 2), chance.choice((0, 1, 2, 7, INFINITE))) for _ in range(chance.randint(0, 20))]
    for edge in edges:
        network.edge(*edge)
    sides = [side for side in range(1 << count) if side & 1 and not side >> (count - 1) & 1]
    through = [sum(room for start, end, room in edges if side >> start & 1 and not side >> end & 1) for side in sides]
    flow = network.push(nodes[0], nodes[-1])
    assert flow == min(through)
    reached = network.source_side(nodes[0])
    side = sum(1 << node for node in nodes if reached[node])
    # Of the least cuts the one with the fewest nodes before it.
    assert flow >= INFINITE or all(side & other == side for other, room in zip(sides, through, strict=True) if room == flow)


def test_no_beam_is_needed_where_a_short_exact_search_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(problem: OrderProblem, width: int) -> list[int]:
        raise AssertionError("a beam search of a stretch that is easy")

    monkeypatch.setattr(solve, "beam", refuse)
    problem = layered(400, 12, 1)
    ordering = best_order(problem)
    assert ordering.method == "exact search" and ordering.proven and problem.peak(ordering.order) == ordering.peak


@given(problems())
def test_time_runs_backwards_as_well(problem: OrderProblem) -> None:
    order = list(range(len(problem)))
    assert problem.reverse.needs(problem.reversed_order(order)) == problem.needs(order)[::-1]


@given(problems(most=25))
@settings(max_examples=40)
def test_bound_peak_and_order_as_written_stand_in_this_order(problem: OrderProblem) -> None:
    ordering = best_order(problem, seconds=1)
    assert problem.is_valid(ordering.order)
    assert ordering.bound <= ordering.peak == problem.peak(ordering.order) <= ordering.as_written


@given(problems(most=20))
def test_simple_orders_are_valid(problem: OrderProblem) -> None:
    for name, order in simple_orders(problem):
        assert problem.is_valid(order), name


@given(problems(most=20), st.data())
def test_a_stretch_needs_what_it_needs_in_the_whole(problem: OrderProblem, data: st.DataObject) -> None:
    layout = Layout(problem, range(len(problem)))
    for _ in range(3):
        begin = data.draw(st.integers(0, len(problem)))
        end = data.draw(st.integers(begin, len(problem)))
        part = layout.window(begin, end)
        assert part.needs(range(len(part))) == layout.needs[begin:end]
        layout.put(begin, part, by_need(part))
        assert problem.is_valid(layout.order)
        assert (layout.needs, layout.standing) == problem.levels(layout.order)
        assert layout.peak == problem.peak(layout.order)


@given(problems(most=20))
def test_waists_cut_an_order_into_all_its_operators(problem: OrderProblem) -> None:
    stretches = waists(problem, list(range(len(problem))))
    assert [op for begin, end in stretches for op in range(begin, end)] == list(range(len(problem)))


def test_a_chain_with_a_branch_that_can_wait() -> None:
    """Two branches from one source: the one that shrinks its input goes first."""
    storages = [Storage(10, (0, 1, 3)), Storage(100, (1, 2)), Storage(1, (2, 5)), Storage(100, (3, 4)), Storage(1, (4, 5))]
    problem = order_problem([(), (0,), (1,), (0,), (3,), (2, 4)], storages)
    ordering = best_order(problem)
    assert ordering.proven and ordering.peak == problem.peak(ordering.order) == 111


@pytest.mark.parametrize("seconds", [0.0])
def test_no_time_gives_a_valid_order(seconds: float) -> None:
    problem = order_problem([(), (0,), (0,), (1, 2)], [Storage(5, (0, 1, 2)), Storage(7, (1, 3)), Storage(9, (2, 3))])
    assert problem.is_valid(best_order(problem, seconds=seconds).order)


@pytest.mark.parametrize(
    ("before", "words"),
    [([(), (2,), (1,), (2,)], "operators 1, 2 form a cycle"), ([(0,)], "operators 0 form a cycle"), ([(1,), ()], "numbered")],
)
def test_what_has_no_order_is_refused(before: list[tuple[int, ...]], words: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        order_problem(before, [])
    assert refused.value.code == "IRS366"


# Exact search and minimum cuts against every order there is, on random graphs whose operators share storages.

_GRAPHS = 500


def aliased(seed: int) -> OrderProblem:
    """Up to 9 operators; views and writes in place make several of them touch one storage."""
    chance = random.Random(seed)
    count = chance.randint(2, 9)
    before = [{index for index in range(op) if chance.random() < 0.25} for op in range(count)]
    storages = []
    for _ in range(chance.randint(1, count + 3)):
        touches = chance.sample(range(count), chance.randint(1, min(4, count)))
        size = chance.choice((0, 1, 3, 8, chance.randint(1, 100)))
        storages.append(Storage(size, tuple(touches), chance.random() < 0.15, chance.random() < 0.2))
    return order_problem(before, storages, [chance.choice((0, 0, 7)) for _ in range(count)])


def by_trying_all(problem: OrderProblem) -> tuple[int, dict[int, int]]:
    """The least peak, and the least need of each operator, over all orders: sets of operators that have run, one larger than the last."""
    count = len(problem)
    peaks = {0: problem.at_start}
    least: dict[int, int] = {}
    for _ in range(count):
        longer: dict[int, int] = {}
        for done, peak in peaks.items():
            for op in range(count):
                if done >> op & 1 or any(not done >> earlier & 1 for earlier in problem.before[op]):
                    continue
                need = needs(problem, done, op)
                least[op] = min(need, least.get(op, need))
                reached = done | 1 << op
                longer[reached] = min(longer.get(reached, 1 << 60), max(peak, need))
        peaks = longer
    return max(problem.at_end, *peaks.values()), least


def needs(problem: OrderProblem, done: int, op: int) -> int:
    """Bytes alive while an operator runs after exactly these: told from the definition of a storage's life."""
    total = problem.base + problem.workspace[op]
    for storage in problem.storages:
        begun = storage.is_input or any(one == op or done >> one & 1 for one in storage.touches)
        over = not storage.is_output and all(done >> one & 1 for one in storage.touches)
        total += storage.size if begun and not over else 0
    return total


@pytest.fixture(scope="module")
def answers() -> list[tuple[OrderProblem, int, dict[int, int]]]:
    """Random graphs, with what trying all orders says of them."""
    problems = [aliased(seed) for seed in range(_GRAPHS)]
    return [(problem, *by_trying_all(problem)) for problem in problems]


def test_a_cut_is_the_least_of_all_orders_of_shared_storages(answers: list[tuple[OrderProblem, int, dict[int, int]]]) -> None:
    for problem, _, least in answers:
        assert {op: least_while_running(problem, op).bytes for op in least} == least


@pytest.mark.parametrize("patience", [1, 4_000])
def test_exact_search_finds_the_best_of_all_orders_of_shared_storages(
    patience: int, answers: list[tuple[OrderProblem, int, dict[int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With little patience the search has to find out what is necessary."""
    monkeypatch.setattr(exact, "_FIRST_PATIENCE", patience)
    monkeypatch.setattr(exact, "_STATES_A_TURN", patience)
    for problem, peak, _ in answers:
        for one in (problem, problem.reverse):
            search = exact.ExactSearch(one, range(len(one)))
            search.run(lambda: False)
            assert one.is_valid(search.order) and one.peak(search.order) == search.bound == peak


def test_the_whole_search_proves_the_best_of_all_orders(answers: list[tuple[OrderProblem, int, dict[int, int]]]) -> None:
    for problem, peak, _ in answers:
        ordering = best_order(problem)
        assert problem.is_valid(ordering.order) and ordering.proven and ordering.peak == problem.peak(ordering.order) == peak
        necessary = Necessary(problem, peak)
        necessary.run(lambda: False)
        assert not necessary.impossible and necessary.strengthened().is_valid(ordering.order)


# Schedules and plans of any model: the order is valid, the peak is the one that liveness finds afterwards, no two buffers share a byte.

models = st.sampled_from(["ssa", "jit", "eager"])


@st.composite
def numeric_programs(draw: st.DrawFn) -> Program:
    """Models whose sizes are all numbers."""
    program = draw(tensor_programs(max_nodes=25) | symbolic_models())
    bind_program(program, {str(symbol): size for symbol, size in zip(program.symbols, (3, 5, 2, 1), strict=False)})
    program.traits = draw(st.sampled_from([EXPORTED, TORCHSCRIPT, Traits()]))
    return program


def scheduled(program: Program, model: ScheduleModel = "ssa") -> Scheduled:
    return Manager(program).get(Schedule(model=model, seconds=1))


@given(numeric_programs(), models)
def test_the_peak_as_written_is_that_of_liveness(program: Program, model: ScheduleModel) -> None:
    found = scheduled(program, model)
    assert found.ordering.as_written == Manager(program).get(Liveness(model=model)).peak
    assert found.ordering.bound <= found.ordering.peak <= found.ordering.as_written


@pytest.mark.slow
@given(numeric_programs())
def test_every_edge_of_values_and_effects_is_kept(program: Program) -> None:
    found = scheduled(program)
    place = {node: at for at, node in enumerate(found.nodes)}
    assert set(place) == set(program.graph)
    for node in program.graph:
        for value in read_values(node):
            maker = value.node
            assert maker not in place or maker is node or place[maker] < place[node]
    for edge in Manager(program).get(Effects()).edges:
        assert place[edge.before] < place[edge.after]


@given(numeric_programs())
def test_after_reordering_liveness_finds_the_peak_that_was_predicted(program: Program) -> None:
    manager = Manager(program)
    expected = manager.get(Schedule(seconds=1)).ordering
    (changed,) = manager.run("reorder{seconds=1}")
    assert changed.value == (expected.peak < expected.as_written)
    verify(program)
    assert Manager(program).get(Liveness(model="ssa")).peak == expected.peak


@pytest.mark.slow
@given(numeric_programs(), st.sampled_from([1, 64, 256]), st.sampled_from(["written", "scheduled"]))
def test_no_two_buffers_alive_at_once_share_a_byte(program: Program, alignment: int, order: str) -> None:
    planned = Manager(program).get(Plan(alignment=alignment, seconds=0.2, order=order))  # type: ignore[arg-type]
    assert planned.max_live <= planned.arena
    placed = list(zip(planned.buffers, planned.plan.offsets, strict=True))
    alive: dict[int, int] = {}
    for at, (one, offset) in enumerate(placed):
        assert offset % alignment == 0 and offset + one.size <= planned.arena
        for step in range(one.lower, one.upper):
            alive[step] = alive.get(step, 0) + one.size
        for other, below in placed[:at]:
            if one.lower < other.upper and other.lower < one.upper:
                assert offset + one.size <= below or below + other.size <= offset
    assert max(alive.values(), default=0) == planned.max_live


@given(problems(most=20), st.data())
@settings(max_examples=40)
def test_an_order_within_a_limit_of_latency_takes_no_longer(problem: OrderProblem, data: st.DataObject) -> None:
    seconds = [data.draw(st.integers(0, 4)) for _ in range(len(problem))]
    limit = LatencyLimit(problem, seconds, data.draw(st.sampled_from([0.0, 0.05, 0.5])))
    ordering = best_order(problem, seconds=0.5, limit=limit)
    assert problem.is_valid(ordering.order) and ordering.bound <= ordering.peak <= ordering.as_written
    assert limit.length(ordering.order) <= limit.as_written * (1 + limit.share) + 1e-6
    earliest = limit.earliest()
    assert problem.is_valid(earliest)
    assert limit.length(earliest) <= limit.length(ordering.order) + 1e-6
    assert abs(limit.critical_path - longest_path(problem, seconds)) < 1e-6


def longest_path(problem: OrderProblem, seconds: list[int]) -> float:
    """The critical path, worked out node by node."""
    ends: list[float] = []
    for op, before in enumerate(problem.before):
        ends.append(seconds[op] + max((ends[earlier] for earlier in before), default=0.0))
    return max(ends, default=0.0)


# Recomputing: every reader still finds what it reads, alive from its maker on, and the peak is that of the order that is shown.


def network(seed: int, count: int) -> tuple[OrderProblem, Recipe]:
    """Operators that each make a result or look at another one's; some must not run twice."""
    chance = random.Random(seed)
    reads: list[tuple[int, ...]] = []
    makes: list[int] = []
    touches: list[list[int]] = []
    for op in range(count):
        reads.append(tuple(sorted(chance.sample(range(op), min(op, chance.randint(0, 2))))))
        is_view = bool(reads[op]) and chance.random() < 0.2
        if is_view:
            makes.append(makes[reads[op][0]])
        else:
            makes.append(len(touches))
            touches.append([])
        for one in {makes[one] for one in reads[op]} | {makes[op]}:
            touches[one].append(op)
    read = {predecessor for earlier in reads for predecessor in earlier}
    kept = {makes[op] for op in range(count) if op not in read}
    storages = [Storage(chance.randint(1, 50), tuple(users), is_output=number in kept) for number, users in enumerate(touches)]
    cost = [None if chance.random() < 0.1 else chance.randint(0, 9) for _ in range(count)]
    return order_problem(reads, storages, [chance.choice((0, 5)) for _ in range(count)]), Recipe(reads, makes, cost)


def check(first: Repeated, repeated: Repeated, most: int) -> None:
    """Everything that has to hold of an order with repetitions."""
    problem, recipe = repeated.problem, repeated.recipe
    assert problem.is_valid(range(len(problem))) and repeated.peak <= first.peak
    assert repeated.spent == sum(recipe.cost[op] or 0 for op, again in enumerate(repeated.again) if again) <= most
    assert sorted(op for op, again in zip(repeated.source, repeated.again, strict=True) if not again) == list(range(len(first.problem)))
    original = {source: op for op, source in enumerate(first.source)}
    for op, earlier in enumerate(recipe.reads):
        assert not (repeated.again[op] and recipe.cost[op] is None)
        # The same operands, made by whichever run of their makers.
        same = [repeated.source[predecessor] for predecessor in earlier]
        assert same == [first.source[read] for read in first.recipe.reads[original[repeated.source[op]]]]
        for before in earlier:
            assert before < op
            assert before in problem.storages[recipe.makes[before]].touches and op in problem.storages[recipe.makes[before]].touches
        assert op in problem.storages[recipe.makes[op]].touches


@given(st.integers(0, 10_000), st.integers(2, 25), st.sampled_from([0, 5, 1_000]))
def test_every_reader_finds_its_operands(seed: int, count: int, most: int) -> None:
    problem, recipe = network(seed, count)
    first = start(problem, recipe, list(range(count)))
    found = lower(first, most, lambda: False)
    check(first, found, most)
    again = lower(found.reordered(list(range(len(found.problem)))), most, lambda: False)
    check(first, again, most)


def test_a_broadcast_is_made_again_rather_than_kept() -> None:
    """A large result of next to nothing is read at once and at the end; in between something large passes by."""
    reads = [(), (0,), (1,), (2,), (3,), (0, 4)]
    sizes = [100, 1, 100, 100, 1, 1]
    touches: list[list[int]] = [[op] for op in range(6)]
    for op, earlier in enumerate(reads):
        for predecessor in earlier:
            touches[predecessor].append(op)
    storages = [Storage(size, tuple(users), is_output=op == 5) for op, (size, users) in enumerate(zip(sizes, touches, strict=True))]
    problem = order_problem(reads, storages)
    assert problem.peak(range(6)) == 300
    recipe = Recipe(reads, list(range(6)), [7] * 6)
    assert lower(start(problem, recipe, range(6)), 6, lambda: False).peak == 300
    found = lower(start(problem, recipe, range(6)), 7, lambda: False)
    assert (found.peak, found.spent) == (200, 7)
    assert [op for op, again in zip(found.source, found.again, strict=True) if again] == [0]
