"""Weights by storage: tied names, slices of one storage, and totals that count no byte twice."""

from __future__ import annotations

import pytest

from irscope.ir.graph import Graph, Role
from irscope.ir.places import Blob, FileRegion
from irscope.ir.program import Program
from irscope.ir.spelling import parse_type
from irscope.passes.weights.params import Params
from irscope.passes.weights.storages import ParameterTotals, count_parameters
from irscope.passkit.manager import Manager


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
