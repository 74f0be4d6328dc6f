"""Orders and plans of small models, worked out by hand; orders that keep some operators together; plans for viewers."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.errors import IrscopeError, PassError, UsageError
from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.passes.graph.alias import Alias
from irscope.passes.lifetimes.traced import Ranges
from irscope.passes.order.effects import Edge, Order
from irscope.passes.order.plan import Plan, address_map, minimalloc_csv
from irscope.passes.order.schedule import Schedule, draft
from irscope.passkit.manager import Manager
from irscope.solvers.graphs import sorted_by
from irscope.solvers.order.problem import OrderProblem, Storage, order_problem
from irscope.tools.rewrite import Groups, contracted, group_order
from tests.tables import every

# Orders and plans of small models, worked out by hand.

TWO_BRANCHES = """%a: f32[256] = math.exp(%x)
%b: f32[256] = math.neg(%x)
%c: f32[1] = reduce.sum(%a) {axes=[0], keepdim=true}
%d: f32[1] = reduce.sum(%b) {axes=[0], keepdim=true}
%e: f32[1] = math.add(%c, %d)
return %e"""
"""Both large tensors at once as written; one after the other is enough."""


def program(body: str, inputs: str = "input %x: f32[256]") -> Program:
    return parse_program(f'irscope 1\nformat "irs"\ngraph @main {{\n{inputs}\n{body}\n}}\n')


def report(made: Program, passes: str) -> dict[str, object]:
    """The summary of the last pass."""
    return dict(Manager(made).run(passes)[-1].report().summary)


def order(made: Program, **options: object) -> list[str]:
    return [node.name for node in Manager(made).get(Schedule(**options)).nodes]  # type: ignore[arg-type]


def test_one_branch_after_the_other() -> None:
    summary = report(program(TWO_BRANCHES), "schedule")
    assert summary["peak_before_bytes"] == 2 * 1024 + 4
    assert summary["peak_after_bytes"] == summary["lower_bound_bytes"] == 1024 + 4 + 4
    assert summary["proven_optimal"] is True and summary["says"] == "no order needs less: proven"


def test_reordering_cannot_help_a_chain_and_what_could_is_told() -> None:
    made = program("%a: f32[256] = math.exp(%x)\n%b: f32[256] = math.neg(%a)\nreturn %b")
    found = Manager(made).run("schedule")[-1].report()
    assert found.summary["says"] == "reordering cannot help here: the order as written is proven best"
    levers = next(table for table in found.tables if table.title == "possible changes and their peaks")
    # Either %b over %a, or %b where %x was, which is gone by then.
    assert [row[1:] for row in levers.rows()] == [(1, 1024, 1024), (1, 1024, 1024)]

    held = next(table for table in found.tables if table.title.startswith("alive in every order at"))
    assert [row[:2] for row in held.rows()] == [("a", 1024), ("b", 1024)]


BROADCAST = """%a: f32[64,256] = math.add(%x, %y)
%k: f32[64,1] = reduce.sum(%a) {axes=[1], keepdims=true}
%b: f32[64,256] = math.mul(%k, %y)
%c: f32[64,256] = math.sin(%b)
%s: f32[64,1] = reduce.sum(%c) {axes=[1], keepdims=true}
%d: f32[64,256] = math.add(%a, %s)
return %d"""
"""The first result is read at once and at the end, and is cheap to make again."""


def test_what_is_cheap_is_made_again_instead_of_being_kept() -> None:
    made = program(BROADCAST, "input %x: f32[64,1]\ninput %y: f32[1,256]")
    large = 64 * 256 * 4
    kept = report(made, "recompute{flops=0%}")
    assert (kept["recomputed_nodes"], kept["peak_after_bytes"]) == (0, 3 * large)
    found = Manager(made).run("recompute{flops=100%}")[-1].report()
    assert (found.summary["recomputed_nodes"], found.summary["extra_flops"]) == (1, 64 * 256)
    assert found.summary["peak_after_bytes"] == 2 * large + 64 * 4
    assert [row[0] for row in found.tables[0].rows()] == ["a"]
    levers = next(table for table in Manager(made).run("schedule")[-1].report().tables if table.title == "possible changes and their peaks")
    (recomputed,) = (row for row in levers.rows() if row[0].startswith("recompute"))
    assert recomputed[2] is None and recomputed[3] == 2 * large + 64 * 4


def test_recomputing_needs_sizes_and_a_share() -> None:
    with pytest.raises(UsageError, match="the arithmetic may grow"):
        Manager(program(TWO_BRANCHES)).run("recompute{flops=much}")
    with pytest.raises(PassError, match="no known size") as refused:
        Manager(program("%i: i64[1,?n] = tensor.nonzero(%x)\nreturn %i")).run("recompute")
    assert refused.value.code == "IRS364"


def test_a_write_in_place_waits_for_readers_and_is_no_storage_of_its_own() -> None:
    made = program(
        """%a: f32[256] = math.exp(%x)
        %big: f32[1024] = tensor.concat(%a, %a, %a, %a) {axis=0}
        %r: f32[256] = nn.relu(%a) {inplace=0}
        %s: f32[1] = reduce.sum(%big) {axes=[0], keepdim=true}
        %t: f32[256] = math.add(%r, %s)
        return %t"""
    )
    names = order(made)
    assert names.index("big") < names.index("r")
    assert report(made, "schedule")["peak_before_bytes"] == 5 * 1024 + 4


def test_random_numbers_and_unknown_operators_keep_their_order() -> None:
    body = """%a: f32[1024] = random.normal() {shape=[1024]}
    %s: f32[1] = reduce.sum(%a) {axes=[0], keepdim=true}
    %b: f32[4] = random.normal() {shape=[4]}
    %c: f32[4] = my.operator(%b)
    %d: f32[4] = my.other(%x)
    %t: f32[4] = math.add(%c, %d)
    %u: f32[4] = math.add(%t, %s)
    return %u"""
    names = order(program(body))
    assert [name for name in names if name in "abcd"] == ["a", "b", "c", "d"]


def test_inputs_that_are_given_away_count_and_go_after_their_last_use() -> None:
    made = program("%a: f32[256] = math.exp(%x)\n%b: f32[256] = math.neg(%a)\n%c: f32[256] = math.neg(%b)\nreturn %c")
    assert report(made, "schedule{inputs=freed}")["peak_before_bytes"] == 2048
    made.graph.set_outputs([*made.graph.outputs, made.graph.inputs[0]])
    assert report(made, "schedule{inputs=freed}")["peak_before_bytes"] == 3 * 1024


def test_symbols_have_to_be_bound() -> None:
    made = program("%a: f32[batch] = math.exp(%x)\nreturn %a", "input %x: f32[batch]")
    for name in ("schedule", "plan", "reorder"):
        with pytest.raises(IrscopeError, match="depend on batch") as refused:
            Manager(made).run(name)
        assert refused.value.code == "IRS352" and "--bind batch=8" in refused.value.hint


def test_sizes_that_depend_on_data_are_said_and_nothing_is_proven() -> None:
    made = program("%i: i64[1,?n] = tensor.nonzero(%x)\n%a: f32[256] = math.exp(%x)\nreturn %a, %i")
    found = Manager(made).run("schedule")[-1].report()
    assert found.partial and found.summary["proven_optimal"] is False
    (said,) = [diagnostic for diagnostic in found.diagnostics if diagnostic.code == "IRS353"]
    assert "1 tensors" in said.message
    with pytest.raises(PassError, match="no known size") as refused:
        Manager(made).get(Plan())
    assert refused.value.code == "IRS355"


@pytest.mark.parametrize(
    "passes", ["schedule{seconds=-1}", "schedule{latency=much}", "schedule{latency=-5%}", "plan{seconds=-1}", "plan{alignment=0}"]
)
def test_impossible_options_are_refused(passes: str) -> None:
    with pytest.raises(UsageError):
        Manager(program(TWO_BRANCHES)).run(passes)


def test_no_time_keeps_the_order_as_written() -> None:
    made = program(TWO_BRANCHES)
    assert order(made, seconds=0.0) == [node.name for node in made.graph]


def test_latency_may_forbid_what_would_save_memory() -> None:
    made = program(TWO_BRANCHES)
    free, limited = report(made, "schedule{latency=100%}"), report(made, "schedule{latency=0%}")
    peak = limited["peak_after_bytes"]
    assert isinstance(peak, int) and free["peak_after_bytes"] == 1032 < peak <= 2052
    latency = limited["latency"]
    assert isinstance(latency, dict) and latency["after"].value <= latency["before"].value


def test_effects_in_a_circle_have_no_order() -> None:
    made = program(TWO_BRANCHES)
    manager = Manager(made)
    a, _, c, *_ = made.graph
    around = Order([Edge(c, a, "write", None)])
    with pytest.raises(PassError, match="2 nodes form a cycle of dependences, so that there is no topological order: a, c") as refused:
        draft(made.graph, manager.get(Ranges(model="ssa")), manager.get(Alias()), around, free_inputs=False)
    assert refused.value.code == "IRS366"


def test_tensors_without_elements_have_a_place() -> None:
    body = "%a: f32[0] = math.exp(%x)\n%b: f32[0] = math.neg(%a)\nreturn %b"
    made = program(body, "input %x: f32[0]")
    assert report(made, "schedule")["proven_optimal"] is True and report(made, "plan")["arena_bytes"] == 0


def test_an_empty_model_has_nothing_to_order() -> None:
    made = program("return %x")
    summary = report(made, "schedule")
    assert summary["peak_before_bytes"] == summary["lower_bound_bytes"] == 0 and summary["proven_optimal"] is True
    assert report(made, "plan")["arena_bytes"] == 0


def test_a_plan_is_as_high_as_what_is_alive() -> None:
    summary = report(program(TWO_BRANCHES), "plan{alignment=4 order=scheduled}")
    assert summary["arena_bytes"] == summary["max_live_bytes"] == 1032
    assert report(program(TWO_BRANCHES), "plan{alignment=4}")["max_live_bytes"] == 2052


def test_a_plan_is_written_for_others() -> None:
    planned = Manager(program(TWO_BRANCHES)).get(Plan())
    lines = minimalloc_csv(planned).splitlines()
    assert lines[0] == "id,lower,upper,size,offset" and len(lines) == 6
    assert "".join(address_map(planned)).count("<rect") == 6


def test_the_map_of_addresses_has_round_labels() -> None:
    drawn = "".join(address_map(Manager(program(TWO_BRANCHES)).get(Plan())))
    labels = re.findall(r">([^<>]+)</text>", drawn)
    assert "step" in labels and {"0", "0.5 KiB", "1.0 KiB", "1.5 KiB", "2.0 KiB"} <= {*labels}


def test_ids_in_the_table_of_a_plan_are_unique() -> None:
    """Values that the file gives no names go by their operators, of which there are several."""
    made = program(TWO_BRANCHES)
    for node in made.graph:
        for value in node.outputs:
            value.name = None
    ids = [line.split(",")[0] for line in minimalloc_csv(Manager(made).get(Plan())).splitlines()[1:]]
    assert len(set(ids)) == len(ids) == 5


def test_the_plan_of_a_file_is_exported(tmp_path: Path) -> None:
    path = tmp_path / "m.irs"
    path.write_text(f'irscope 1\nformat "irs"\ngraph @main {{\ninput %x: f32[256]\n{TWO_BRANCHES}\n}}\n', encoding="utf-8")
    assert main(["export", "--plan", "scheduled", "-o", str(tmp_path / "p.json"), str(path)]) == 0
    assert json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))["arena_bytes"] >= 1032
    assert main(["export", "--plan", "-o", str(tmp_path / "p.pickle"), str(path)]) == 2


# Orders that keep some operators together.


def random_problem(chance: random.Random, count: int) -> OrderProblem:
    before = [chance.sample(range(op), min(op, chance.randrange(3))) for op in range(count)]
    storages = []
    for op in range(count):
        readers = [other for other in range(op + 1, count) if op in before[other]]
        storages.append(Storage(chance.randrange(1, 50), (op, *readers), is_output=not readers and chance.random() < 0.5))
    return order_problem(before, storages, [chance.choice((0, 0, 7)) for _ in range(count)])


def random_groups(chance: random.Random, count: int) -> Groups:
    """Neighbours, as a file's nodes become several operators."""
    members: list[list[int]] = []
    for op in range(count):
        if members and chance.random() < 0.4:
            members[-1].append(op)
        else:
            members.append([op])
    return Groups(members)


@every("seed", range(40))
def test_orders_of_groups_are_valid_and_never_worse(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randrange(3, 14)
    problem, groups = random_problem(chance, count), random_groups(chance, count)
    wanted = sorted(range(count), key=lambda _: chance.random())
    order = group_order(problem, groups, wanted, seconds=0.2, seed=0)
    operators = groups.expanded(order)
    assert problem.is_valid(operators)
    whole = contracted(problem, groups)
    assert whole.is_valid(order)
    # What a group needs by itself is never less than what its operators need one after the other.
    assert whole.peak(order) >= problem.peak(operators)
    as_written = list(range(len(groups.members)))
    if not groups.are_single and whole.peak(as_written) == problem.peak(range(count)):
        assert problem.peak(operators) <= problem.peak(range(count))


def test_groups_of_one_change_nothing() -> None:
    chance = random.Random(1)
    problem = random_problem(chance, 9)
    groups = Groups([[op] for op in range(9)])
    assert groups.are_single
    assert contracted(problem, groups) == problem


def test_the_least_key_comes_first_where_it_may() -> None:
    assert sorted_by([3, 2, 1], [(), (), ()]) == [2, 1, 0]
    assert sorted_by([3, 2, 1], [(), (), (0,)]) == [1, 0, 2]
