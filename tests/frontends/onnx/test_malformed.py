"""Damaged files: one clear line or a harmless analysis, never a crash, a hang, or memory out of proportion."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.onnx_big import write_model
from irscope.errors import LoadError
from irscope.passes.inference.shapes import Shapes
from irscope.session import open_model
from tests.conftest import FULL
from tests.frontends.onnx.build import BOOL, FLOAT, INT64, graph, ints, model, value
from tests.frontends.onnx.tamper import tampered
from tests.frontends.onnx.watch import cpu_limit, opened_files

MUTANTS = 2000 if FULL else 60
TRUNCATIONS = 50
_SECONDS = 5
_ALLOWANCE = 200 << 20
"""Bytes that reading a file may take beyond its own size."""
_PASSES = "shapes,stats,params,flops,liveness"


def outcome(path: Path, folder: Path) -> str:
    """Analyse a file as a user would; what it says when it is refused, "" when it is not."""
    with opened_files() as opened, cpu_limit(_SECONDS):
        try:
            model = open_model(path)
            model.run(_PASSES)
            said = ""
        except LoadError as error:
            said = str(error)
        else:
            # Whatever the file says, a rule of an operator that fails over it is a mistake of irscope.
            bugs = [problem for problem in model.manager.get(Shapes()).problems if problem.fault == "rule"]
            assert not bugs, bugs
    tests = os.path.realpath(folder)
    foreign = [
        name for name in opened if name != os.path.realpath(path) and not name.endswith((".py", ".pyc", ".so")) and name.startswith(tests)
    ]
    assert not foreign, foreign
    assert "\n" not in said
    assert said.isprintable()
    return said


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Valid models with most of what a file can hold."""
    folder = tmp_path_factory.mktemp("originals")
    write_model(folder / "layers.onnx", 58)
    return [(folder / "layers.onnx").read_bytes(), *(proto.SerializeToString() for proto in (_controls(), _functions(), _kinds()))]


def _controls() -> onnx.ModelProto:
    """Branches, loops and scans that see values around them."""
    then = graph([helper.make_node("Identity", ["x"], ["a"])], outputs=["a"])
    other = graph([helper.make_node("Add", ["x", "x"], ["b"])], outputs=["b"])
    step = graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Concat", ["state", "x"], ["next"], axis=0)],
        [value("i", [], INT64), value("go", [], BOOL), value("state", [None, 3])],
        ["on", "next", "next"],
    )
    nodes = [
        helper.make_node("If", ["c"], ["r"], then_branch=then, else_branch=other),
        helper.make_node("Loop", ["n", "c", "r"], ["s", "t"], body=step),
        helper.make_node("Reshape", ["s", "shape"], ["y"]),
    ]
    return model(
        nodes, [value("x", [2, 3]), value("c", [], BOOL)], ["y", "t"], [ints("shape", -1, 6), helper.make_tensor("n", INT64, [], [4])]
    )


def _functions() -> onnx.ModelProto:
    inner = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 21)]
    )
    nodes = [helper.make_node("Twice", ["a"], ["t"], domain="local"), helper.make_node("Relu", ["t"], ["b"])]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    outer = helper.make_function("local", "Outer", ["a"], ["b"], nodes, opsets)
    made = model([helper.make_node("Outer", ["x"], ["y"], domain="local")], local=1)
    made.functions.extend([inner, outer])
    return made


def _kinds() -> onnx.ModelProto:
    """Sequences, optionals, strings, sparse tensors and narrow element types."""
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["list"]),
        helper.make_node("Optional", ["list"], ["maybe"]),
        helper.make_node("OptionalGetElement", ["maybe"], ["again"]),
        helper.make_node("ConcatFromSequence", ["again"], ["joined"], axis=0),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["y"], axis=0, block_size=2),
        helper.make_node("StringConcat", ["text", "text"], ["z"]),
    ]
    weights = [
        helper.make_tensor("q", TensorProto.INT4, [4, 2], [1, 2, 3, 4, 5, 6, 7, -8]),
        helper.make_tensor("scale", FLOAT, [2, 2], [1.0, 2.0, 3.0, 4.0]),
        helper.make_tensor("text", TensorProto.STRING, [2], [b"a", b"b"]),
    ]
    made = model(nodes, [value("x", ["batch", 3])], ["joined", "y", "z"], weights)
    values, indices = helper.make_tensor("sparse", FLOAT, [2], [1.0, 2.0]), helper.make_tensor("indices", INT64, [2], [0, 5])
    made.graph.sparse_initializer.append(onnx.SparseTensorProto(values=values, indices=indices, dims=[3, 3]))
    return made


def test_the_originals_are_fine(originals: list[bytes], tmp_path: Path) -> None:
    for number, data in enumerate(originals):
        path = tmp_path / f"{number}.onnx"
        path.write_bytes(data)
        assert outcome(path, tmp_path) == ""


@pytest.mark.parametrize("number", range(4))
def test_truncated(originals: list[bytes], number: int, tmp_path: Path) -> None:
    """Cut anywhere, a file is refused or, where the rest happens to be a message, analysed."""
    data, chance = originals[number], random.Random(number)
    path = tmp_path / "cut.onnx"
    refused = 0
    for _ in range(TRUNCATIONS):
        path.write_bytes(data[: chance.randrange(len(data))])
        refused += outcome(path, tmp_path) != ""
    assert refused > TRUNCATIONS // 2


def mutants(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """Endless damaged copies: bytes changed, removed, doubled, or overwritten by others of the file."""
    while True:
        made = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 4, 16))):
            place, length = chance.randrange(len(made)), chance.choice((1, 1, 2, 8, 32))
            kind = chance.randrange(5)
            if kind == 0:
                made[place] = chance.randrange(256)
            elif kind == 1:
                made[place] ^= 1 << chance.randrange(8)
            elif kind == 2:
                del made[place : place + length]
            elif kind == 3:
                made[place:place] = made[place : place + length]
            else:
                source = chance.randrange(len(made))
                made[place : place + length] = made[source : source + length]
            made = made or bytearray(b"\0")
        yield bytes(made)


def tampered_with(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """Endless copies whose fields say something else: every message still parses, little of it still fits together."""
    proto = onnx.ModelProto.FromString(data)
    while True:
        yield tampered(proto, chance)


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize(("damage", "seed"), [(mutants, 1000), (tampered_with, 2000)])
def test_damaged(
    originals: list[bytes], damage: Callable[[bytes, random.Random], Iterator[bytes]], seed: int, number: int, tmp_path: Path
) -> None:
    """Whatever is damaged, the file is refused in one line or analysed within its limits."""
    path = tmp_path / "damaged.onnx"
    source = damage(originals[number], random.Random(seed + number))
    for index in range(MUTANTS // 4):
        data = next(source)
        path.write_bytes(data)
        if index % 8:
            outcome(path, tmp_path)
            continue
        tracemalloc.start()
        try:
            outcome(path, tmp_path)
            assert tracemalloc.get_traced_memory()[1] < len(data) + _ALLOWANCE
        finally:
            tracemalloc.stop()


def _nested(depth: int) -> onnx.ModelProto:
    inner = graph([helper.make_node("Identity", ["x"], ["z"])], outputs=["z"])
    for _ in range(depth):
        inner = (
            graph([helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)], outputs=["z"])
            if depth < 9
            else _alone(inner)
        )
    return model([helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)], [value("x"), value("c", [], BOOL)])


def _alone(inner: onnx.GraphProto) -> onnx.GraphProto:
    """One level more with a single heavy branch, so that the file does not double at each."""
    light = graph([helper.make_node("Identity", ["x"], ["z"])], outputs=["z"])
    return graph([helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=light)], outputs=["z"])


def _deep_message(depth: int) -> bytes:
    """A graph in a node in a graph..., as bytes: no parser builds such a thing on its own."""
    data = b""
    for _ in range(depth):
        for field in (6, 5, 1):
            data = bytes([field << 3 | 2]) + _varint(len(data)) + data
    return bytes([7 << 3 | 2]) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    groups = []
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])


def _with_weight(**fields: object) -> onnx.ModelProto:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[4], raw_data=bytes(16))
    for name, wanted in fields.items():
        if isinstance(wanted, list):
            tensor.ClearField(name)  # type: ignore[arg-type]  # names of fields
            getattr(tensor, name).extend(wanted)
        else:
            setattr(tensor, name, wanted)
    return model([helper.make_node("Identity", ["w"], ["y"])], [], initializers=[tensor])


def _recursive() -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    made = model([helper.make_node("F", ["x"], ["y"], domain="local")], local=1)
    made.functions.append(helper.make_function("local", "F", ["a"], ["b"], [helper.make_node("F", ["a"], ["b"], domain="local")], opsets))
    return made


def _doubling(depth: int) -> onnx.ModelProto:
    """Functions that call the one before twice: 2 to the depth nodes from a few lines."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    made = model([helper.make_node(f"F{depth}", ["x"], ["y"], domain="local")], local=1)
    for level in range(depth + 1):
        call = {"op_type": f"F{level - 1}", "domain": "local"} if level else {"op_type": "Relu"}
        nodes = [helper.make_node(inputs=["a"], outputs=["t"], **call), helper.make_node(inputs=["t"], outputs=["b"], **call)]
        made.functions.append(helper.make_function("local", f"F{level}", ["a"], ["b"], nodes, opsets))
    return made


def _bomb() -> onnx.ModelProto:
    """A constant of 2 to the 40 elements, and what is computed from it."""
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["a"]),
        helper.make_node("Expand", ["a", "more"], ["b"]),
        helper.make_node("NonZero", ["b"], ["y"]),
        helper.make_node("Range", ["zero", "end", "step"], ["z"]),
    ]
    numbers = [helper.make_tensor(name, INT64, [], [number]) for name, number in (("zero", 0), ("end", 2**62), ("step", 1))]
    return model(nodes, [], ["y", "z"], [ints("size", 1 << 20, 1 << 20), ints("more", 1 << 10, 1 << 20, 1 << 20), *numbers])


REFUSED: dict[str, onnx.ModelProto | bytes] = {
    "empty file": b"",
    "a few zeros": bytes(10),
    "text": b"this is not a model\n" * 20,
    "no graph": onnx.ModelProto(ir_version=10).SerializeToString(),
    "cycle": model([helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])], outputs=["b"]),
    "its own input": model([helper.make_node("Relu", ["y"], ["y"])]),
    "dangling input": model([helper.make_node("Relu", ["nothing"], ["y"])]),
    "dangling output": model([helper.make_node("Relu", ["x"], ["a"])]),
    "two of one name": model([helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Exp", ["x"], ["y"])]),
    "absurd sizes": _with_weight(dims=[1 << 62, 1 << 62]),
    "a negative size": _with_weight(dims=[-4]),
    "unknown element type": _with_weight(data_type=99),
    "too few bytes": _with_weight(raw_data=bytes(12)),
    "too many bytes": _with_weight(raw_data=bytes(20)),
    "recursive function": _recursive(),
    "doubling functions": _doubling(40),
    "deep message": _deep_message(2000),
}
HARMLESS: dict[str, onnx.ModelProto | bytes] = {
    "branches in branches": _nested(6),
    "a constant of 2^40 elements": _bomb(),
    "control characters": model(
        [helper.make_node("Relu", ["x\x1b[31m"], ["y\x1b]0;z\x07\u202e"])], [value("x\x1b[31m")], ["y\x1b]0;z\x07\u202e"]
    ),
    "unknown operator": model([helper.make_node("Nobody.Knows", ["x"], ["y"], domain="made up")], **{"made_up": 1}),
    "no operator name": model([helper.make_node("", ["x"], ["y"])]),
    "operator sets of the future": model([helper.make_node("Relu", ["x"], ["y"])], opset=999, ir_version=99),
    "unsorted": model([helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Exp", ["x"], ["a"])]),
    "negative input size": model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [-3, 2])]),
    "operand missing": model([helper.make_node("Add", ["x"], ["y"])]),
    "attribute of another kind": model([helper.make_node("Transpose", ["x"], ["y"], perm="10")]),
    "axis outside": model([helper.make_node("Softmax", ["x"], ["y"], axis=99)]),
}


def _written(content: onnx.ModelProto | bytes, path: Path) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return path


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    said = outcome(_written(REFUSED[name], tmp_path / "model.onnx"), tmp_path)
    assert said
    with pytest.raises(LoadError) as caught:
        open_model(tmp_path / "model.onnx")
    assert caught.value.code.startswith("IRS1")


@pytest.mark.parametrize("name", HARMLESS)
def test_analysed(name: str, tmp_path: Path) -> None:
    path = _written(HARMLESS[name], tmp_path / "model.onnx")
    tracemalloc.start()
    try:
        assert outcome(path, tmp_path) == ""
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size + _ALLOWANCE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("depth", [12, 20, 28])
def test_deep_nesting_ends_somehow(depth: int, tmp_path: Path) -> None:
    outcome(_written(_nested(depth), tmp_path / "model.onnx"), tmp_path)
