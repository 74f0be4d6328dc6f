"""Storages, order, lifetimes and peaks of small graphs, worked out by hand; weights by storage; what a change is said to save."""

from __future__ import annotations

import pytest

from irscope.ir.graph import Graph, Role
from irscope.ir.parser import parse_program
from irscope.ir.places import Blob, FileRegion
from irscope.ir.program import Program
from irscope.ir.spelling import parse_type
from irscope.passes.graph.alias import Alias, Aliases
from irscope.passes.lifetimes.frames import targets_of
from irscope.passes.lifetimes.timeline import Timeline
from irscope.passes.lifetimes.traced import Ranges
from irscope.passes.memory.liveness import Liveness
from irscope.passes.order.effects import EFFECT, READ_AFTER_WRITE, WRITE_AFTER_READ, WRITE_AFTER_WRITE, Effects
from irscope.passes.weights.params import Params
from irscope.passes.weights.storages import ParameterTotals, count_parameters
from irscope.passkit.manager import Manager

# Storages, order, lifetimes and peaks of small graphs, worked out by hand.


def program(body: str, format_: str = "pt2", inputs: str = "input %x: f32[4,8]") -> Program:
    """A program whose main graph has these lines."""
    return parse_program(f'irscope 1\nformat "{format_}"\ngraph @main {{\n{inputs}\n{body}\n}}\n')


def storages(made: Program) -> dict[str, str]:
    """The name of the value that had each value's storage first."""
    aliases = Manager(made).get(Alias())
    return {value.name: aliases.storage(value).name or "" for node in made.graph.walk() for value in node.outputs if value.name is not None}


def timeline(made: Program, model: str = "auto") -> Timeline:
    return Manager(made).get(Liveness(model=model))  # type: ignore[arg-type]  # checked by the pass


def lives(made: Program, model: str) -> dict[str, tuple[int, int, str]]:
    """Birth, death and what holds it, by the name of the storage."""
    found = Manager(made).get(Ranges(model=model))  # type: ignore[arg-type]  # checked by the pass
    return {one.value.name or "": (one.born, one.dies, one.held_by) for one in found.ranges}


def test_views_of_views_and_writes_in_place_are_one_storage() -> None:
    made = program(
        """%a: f32[4,8] = math.exp(%x)
        %b: f32[8,4]<1,8> = view.transpose(%a) {axis0=0, axis1=1}
        %c: f32[4,4]<1,8>, %d: f32[4,4]<1,8> = view.split(%b) {axis=0, size=4}
        %e: f32[4,4]<1,8> = nn.relu(%d) {inplace=0}
        %f: f32[4,4] = math.neg(%e)
        return %f"""
    )
    assert storages(made) == {"a": "a", "b": "a", "c": "a", "d": "a", "e": "a", "f": "f"}


@pytest.mark.parametrize(
    ("node", "shares"),
    [
        ("%b: f32[32] = view.reshape(%a) {shape=[32]}", True),
        ("%b: f32[32] = view.reshape(%t) {shape=[32]}", False),
        ("%b: f32[8,2,2]<1,16,8> = view.reshape(%t) {shape=[8, 2, 2]}", True),
        ("%b: f32[8,4] = view.contiguous(%t)", False),
        ("%b: f32[4,8] = view.contiguous(%a)", True),
        ("%b: f32[4,8] = tensor.to(%a) {dtype=<f32>}", True),
        ("%b: f16[4,8] = tensor.to(%a) {dtype=<f16>}", False),
        ("%b: f32[4,8] = nn.dropout(%a) {training=false}", True),
        ("%b: f32[4,8] = nn.dropout(%a) {training=true}", False),
        ("%b: f32[4,8] = tensor.copy(%a)", False),
    ],
)
def test_strides_decide_whether_a_result_shares(node: str, shares: bool) -> None:
    made = program(
        f"""%a: f32[4,8] = math.exp(%x)
        %t: f32[8,4]<1,8> = view.transpose(%a) {{axis0=0, axis1=1}}
        {node}
        return %b"""
    )
    assert storages(made)["b"] == ("a" if shares else "b")
    assert not Manager(made).get(Alias()).undecided


def test_channels_last_is_a_format_that_tensors_keep() -> None:
    lines = """%a: f32[2,3,4,4]<48,1,12,3> = math.exp(%x)
        %b: f32[2,3,4,4]<48,1,12,3> = view.contiguous(%a) {memory_format="channels_last"}
        %c: f32[2,3,4,4] = view.contiguous(%b) {memory_format="contiguous_format"}
        return %c"""
    assert storages(program(lines, inputs="input %x: f32[2,3,4,4]")) == {"a": "a", "b": "a", "c": "c"}


def test_strides_are_followed_where_the_file_states_none() -> None:
    made = program(
        """%a: f32[4,8] = math.exp(%x)
        %b: f32[8,4] = view.transpose(%a) {axis0=0, axis1=1}
        %c: f32[8,4] = nn.relu(%b)
        %d: f32[32] = view.reshape(%c) {shape=[32]}
        %e: f32[4,8] = view.transpose(%c) {axis0=0, axis1=1}
        %f: f32[32] = view.reshape(%e) {shape=[32]}
        return %d, %f""",
        "torchscript",
    )
    found = storages(made)
    assert (found["d"], found["e"], found["f"]) == ("d", "c", "c")


def test_what_symbols_leave_open_is_an_interval() -> None:
    made = program(
        """%a: f32[n,8] = math.exp(%x)
        %t: f32[8,n]<1,8> = view.transpose(%a) {axis0=0, axis1=1}
        %b: f32[8*n] = view.reshape(%t) {shape=[-1]}
        return %b""",
        inputs="input %x: f32[n,8]",
    )
    (open_,) = Manager(made).get(Alias()).undecided
    assert open_.result.name == "b"
    found = timeline(made, "ssa")
    assert (str(found.peak), str(found.peak_if_shared)) == ("64*n", "32*n")


def test_lists_hold_what_was_put_in() -> None:
    made = program(
        """%a: f32[4,8] = math.exp(%x)
        %b: f32[4,8] = math.neg(%x)
        %l: seq(f32[4,8]) = seq.construct(%a, %b)
        %c: f32[4,8] = math.neg(%x)
        %d: f32[4,8] = seq.at(%l) {position=0}
        %e: f32[4,8] = math.add(%d, %c)
        return %e""",
        "irs",
    )
    aliases: Aliases = Manager(made).get(Alias())
    held = {value.name for node in made.graph for output in node.outputs if output.name == "d" for value in aliases.storages(output)}
    assert {"a", "b"} <= held
    assert timeline(made).alive[3] == 3 * 128


def test_reads_and_writes_of_a_storage_keep_their_order() -> None:
    made = program(
        """%a: f32[4,8] = math.exp(%x)
        %v: f32[4,4]<8,1> = view.narrow(%a) {axis=1, start=0, length=4}
        %r1: f32[4,8] = math.neg(%a)
        %w1: f32[4,4]<8,1> = nn.relu(%v) {inplace=0}
        %r2: f32[4,8] = math.exp(%a)
        %w2: f32[4,8] = math.neg(%a) {inplace=0}
        return %r1, %r2, %w2"""
    )
    edges = {(edge.before.name, edge.after.name, edge.kind) for edge in Manager(made).get(Effects()).edges}
    assert {
        ("a", "w1", WRITE_AFTER_WRITE),
        ("r1", "w1", WRITE_AFTER_READ),
        ("w1", "r2", READ_AFTER_WRITE),
        ("r2", "w2", WRITE_AFTER_READ),
        ("w1", "w2", WRITE_AFTER_WRITE),
    } <= edges
    assert not any(after == "r1" and before != "a" for before, after, _ in edges)
    assert not any(before == "r1" and after == "r2" for before, after, _ in edges)


def test_inputs_that_are_written_are_named_and_are_no_activation() -> None:
    made = program("%a: f32[4,8] = nn.relu(%x) {inplace=0}\n%b: f32[4,8] = math.neg(%a)\nreturn %b")
    assert [value.name for value in Manager(made).get(Effects()).mutated] == ["x"]
    assert timeline(made).peak == 128


def test_effects_on_the_world_stay_in_order() -> None:
    made = program(
        """%c: bool[] = reduce.any(%k)
        cf.assert(%c)
        %a: f32[4,8] = math.exp(%x)
        cf.assert(%c)
        return %a""",
        inputs="input %x: f32[4,8]\ninput %k: bool[4]",
    )
    (edge,) = Manager(made).get(Effects()).edges
    assert (edge.kind, edge.before.op, edge.after.op) == (EFFECT, "cf.assert", "cf.assert")


MODULES = """%a: f32[4,8] = math.exp(%x)
    %b: f32[4,8] = math.neg(%a) @m/first
    %c: f32[4,8] = math.exp(%b) @m/second
    %d: f32[4,8] = math.neg(%c) @m
    %e: f32[4,8] = math.exp(%d)
    return %e"""


def test_module_calls_hold_their_inputs() -> None:
    made = program(MODULES)
    assert lives(made, "ssa")["a"] == (0, 1, "b")
    assert lives(made, "eager")["a"] == (0, 3, "the call of module m")
    assert lives(made, "eager")["b"] == (1, 2, "c")
    assert [timeline(made, model).peak for model in ("ssa", "jit", "eager")] == [256, 256, 384]


def test_the_model_follows_the_format() -> None:
    models = {format_: timeline(program(MODULES, format_)).model for format_ in ("pt2", "torchscript", "onnx", "irs")}
    assert models == {"pt2": "eager", "torchscript": "eager", "onnx": "ort", "irs": "ssa"}
    report = Manager(program(MODULES)).run("liveness")[0].report().to_json()
    assert report["summary"]["model"] == "eager"


def test_variables_hold_until_they_are_bound_again() -> None:
    made = program(
        """%a: f32[4,8] = math.exp(%x) ("net.py":1 forward "y = torch.exp(x)")
        %b: f32[4,8] = math.neg(%a) ("net.py":2 forward "z = -y")
        %c: f32[4,8] = math.exp(%b) ("net.py":3 forward "w = z.exp()")
        %d: f32[4,8] = math.neg(%c) ("net.py":4 forward "y = -w")
        %e: f32[4,8] = math.exp(%d) ("net.py":5 forward "return y.exp()")
        return %e"""
    )
    found = lives(made, "eager")
    assert found["a"] == (0, 3, "local variable `y` at net.py:1")
    assert found["b"] == (1, 4, "local variable `z` at net.py:2")
    result = timeline(made)
    (first, *_) = [one for one in result.ranges if one.value.name == "a"]
    assert [result.why(first, step) for step in range(4)] == [
        "made here",
        "read here",
        "held by local variable `y` at net.py:1",
        "held by local variable `y` at net.py:1",
    ]


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("x = self.f(x)", ("x",)),
        ("a, (b) = f(x)", ()),
        ("(a, b) = h(", ("a", "b")),
        ("a, *rest = f(x)", ("a", "rest")),
        ("x: Tensor = f(", ("x",)),
        ("x += y", ("x",)),
        ("found['a'] = f(x)", ("found['a']",)),
        ("if x == y:", ()),
        ("return self.f(a=1)", ()),
        ("mask=self.f(x),", ()),
        ('"full": make(x),', ('"full"',)),
        ("self.f(x, a = 1)", ()),
    ],
)
def test_targets_of_statements(statement: str, names: tuple[str, ...]) -> None:
    assert targets_of(statement) == names


def test_a_region_counts_with_its_peak_inside_its_step() -> None:
    made = program(
        """%before: f32[4,8] = math.exp(%x)
        %y: f32[4,8] = cf.if(%c)
        region then {
          %a: f32[4,8] = math.exp(%before)
          %b: f32[4,8] = math.neg(%a)
          %d: f32[4,8] = math.exp(%b)
          return %d
        }
        region else {
          %e: f32[4,8] = math.exp(%before)
          return %e
        }
        %after: f32[4,8] = math.neg(%y)
        return %after""",
        "irs",
        "input %x: f32[4,8]\ninput %c: bool[]",
    )
    # Two of the three tensors of the longer branch at a time, one of which is the result in the end.
    assert timeline(made).alive == [128, 3 * 128, 2 * 128]


def test_a_function_counts_where_it_is_called() -> None:
    made = parse_program(
        """irscope 1
        graph @main {
          input %x: f32[4,8]
          %y: f32[4,8] = cf.call(%x) {callee="outer"}
          return %y
        }
        func @outer {
          input %q: f32[4,8]
          %r: f32[4,8] = math.exp(%q)
          %s: f32[4,8] = cf.call(%r) {callee="inner"}
          return %s
        }
        func @inner {
          input %q: f32[4,8]
          %a: f32[4,8] = math.exp(%q)
          %b: f32[4,8] = math.exp(%a)
          %c: f32[4,8] = math.add(%a, %b)
          return %c
        }
        """
    )
    # At the end of `inner` three tensors, beside the one that `outer` gave it.
    assert timeline(made).peak == 4 * 128


def test_tensors_that_only_exist_within_a_step_have_their_own_category() -> None:
    made = program(
        """%a: f32[2,3,2,2] = nn.max_pool(%x) {kernel_shape=[2, 2], strides=[2, 2]} !"aten::max_pool2d"
        return %a""",
        inputs="input %x: f32[2,3,4,4]",
    )
    result = timeline(made)
    assert (result.peak, result.inside) == (96 + 192, {0: 192})
    report = Manager(made).run("liveness")[0].report().to_json()
    (living, *_) = report["tables"]
    # Each is in a block of 512 bytes.
    assert {row[2]: row[1] for row in living["rows"]} == {"input": 384, "output": 96, "temporary": 192, "rounding": 3 * 512 - 672}
    series = next(one for one in report["series"] if one["title"] == "activations alive")
    assert series["data"] == {"step": [0], "output": [96], "activation": [0], "temporary": [192]}


def test_the_lower_bound_holds_for_every_model() -> None:
    made = program(MODULES)
    for model in ("ssa", "eager"):
        result = timeline(made, model)
        assert isinstance(result.lower_bound, int) and isinstance(result.peak, int)
        assert 256 == result.lower_bound <= result.peak


# Weights by storage: tied names, slices of one storage, and totals that count no byte twice.


def totals(*weights: tuple[str, str, object, Role]) -> ParameterTotals:
    graph = Graph()
    for name, text, data, role in weights:
        graph.add_weight(parse_type(text), name, role, data)  # type: ignore[arg-type]  # a payload or None
    return count_parameters(Program(graph))


def at(offset: int, length: int, storage: str = "s") -> FileRegion:
    return FileRegion("w.bin", offset, length, storage)


P = Role.PARAMETER


def test_the_same_bytes_count_once() -> None:
    made = totals(("a", "f32[4,2]", at(0, 32), P), ("b", "f32[2,4]", at(0, 32), P), ("c", "f32[8]", at(32, 32), P))
    assert (made.count, made.bytes, made.tied_bytes_saved) == (16, 64, 32)
    assert {str(one.name): str(other.name) for one, other in made.tied_to.items()} == {"b": "a"}
    assert not made.overlaps


def test_slices_of_one_storage_are_not_tied() -> None:
    made = totals(("q", "f32[4]", at(0, 16), P), ("k", "f32[4]", at(16, 16), P), ("qkv", "f32[12]", at(0, 48), P))
    assert (made.count, made.bytes, made.tied_bytes_saved) == (12, 48, 32)
    assert {str(one.name): str(other.name) for one, other in made.overlaps.items()} == {"qkv": "q"} and not made.tied_to


def test_overlaps_in_any_order_count_their_union() -> None:
    places = [(40, 20), (0, 12), (8, 40), (100, 4), (50, 60), (0, 120)]
    covered: set[int] = set()
    weights = []
    for number, (offset, length) in enumerate(places):
        weights.append((f"w{number}", f"u8[{length}]", at(offset, length), P))
        covered |= set(range(offset, offset + length))
        assert totals(*weights).bytes == len(covered)


def test_roles_are_apart_and_unknown_sizes_are_named() -> None:
    made = totals(
        ("a", "f32[2]", None, P), ("b", "f32[3]", None, Role.BUFFER), ("c", "i4[3]", None, Role.CONSTANT), ("d", "f32[*]", None, P)
    )
    assert (made.bytes, made.buffer_bytes, made.constant_bytes) == (8, 12, 2)
    assert [weight.name for weight in made.unsized] == ["d"]


def test_blobs_are_tied_by_their_storage() -> None:
    made = totals(("a", "u8[3]", Blob(b"abc", "k"), P), ("b", "u8[3]", Blob(b"abc", "k"), P), ("c", "u8[3]", Blob(b"abc"), P))
    assert made.bytes == 6 and len(made.tied_to) == 1


@pytest.mark.parametrize(
    ("shape", "multiple"),
    [("[256,128]", 128), ("[64,192,3,3]", 64), ("[48,16]", 16), ("[8,24]", 8), ("[7,128]", 1), ("[128]", 128), ("[]", 1)],
)
def test_alignment(shape: str, multiple: int | None) -> None:
    graph = Graph()
    graph.add_weight(parse_type(f"f16{shape}"), "w")
    report = Manager(Program(graph)).run("params")[0].report()
    assert report.tables[0].cells("multiple_of") == [multiple]


def test_padding_is_what_filling_up_takes() -> None:
    graph = Graph()
    graph.add_weight(parse_type("f16[50,100]"), "w")
    graph.add_weight(parse_type("i4[9,7]"), "q")
    (table,) = (table for table in Manager(Program(graph)).run([Params()])[0].report().tables if table.title == "alignment")
    assert table.cells("multiple_of") == [8, 16, 64, 128]
    assert table.cells("padding_bytes") == [
        56 * 104 * 2 - 10_000 + 64 - 32,
        64 * 112 * 2 - 10_000 + 128 - 32,
        64 * 128 * 2 - 10_000 + 2048 - 32,
        128 * 128 * 2 - 10_000 + 8192 - 32,
    ]


def test_shares_of_modules() -> None:
    graph = Graph()
    for name, text in (("a.b.w", "f32[3]"), ("a.b.v", "f32[1]"), ("a.c", "f32[2]"), ("d", "f32[2]")):
        graph.add_weight(parse_type(text), name)
    (table,) = (table for table in Manager(Program(graph)).run("params")[0].report().tables if table.title == "modules")
    assert list(zip(table.cells("module"), table.cells("bytes"), strict=True)) == [("(model)", 32), ("a", 24), ("a.b", 16)]
    assert table.cells("share") == [1.0, 0.75, 0.5]
