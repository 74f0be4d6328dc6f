"""Exported programs, traces and scripts: what becomes of them, and where each operator says it comes from."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import zipfile
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn

from irscope.errors import LoadError
from irscope.ir.dtypes import DType
from irscope.ir.graph import Node, Role
from irscope.ir.places import FileRegion
from irscope.ir.program import Program
from irscope.ir.types import TensorType, tensor
from tests.tools.torch_files import models
from tests.tools.torch_files.helpers import disagreements, read, same_type, save_exported, save_scripted, save_traced, type_of
from tests.tools.torch_files.models import SAMPLES, Choice, Cond

# torch.export's archives: the whole graph, recorded types, names, scopes, locations.

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("form", ["concrete", "dynamic", "decomposed"])
def test_recorded_types_are_what_the_rules_say(name: str, form: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    dynamic = sample.dynamic if form == "dynamic" else None
    path = save_exported(tmp_path / "m.pt2", sample.model(), sample.inputs(), dynamic, form == "decomposed")
    program = read("exported", path)
    assert disagreements(program) == []
    assert bool(program.symbols) == (dynamic is not None)


@pytest.mark.parametrize("name", SAMPLES)
def test_interface(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    model, args = sample.model(), sample.inputs()
    program = read("exported", save_exported(tmp_path / "m.pt2", model, args))
    graph = program.graph
    wanted = {key: type_of(value.detach()) for key, value in model.state_dict().items()}
    assert {weight.name: weight.type for weight in graph.weights} == wanted
    names = {key for key, _ in model.named_parameters(remove_duplicate=False)}
    assert {weight.name for weight in program.parameters()} == names
    assert [value.type for value in graph.inputs] == [type_of(arg) for arg in args]
    results = model(*args)
    results = results if isinstance(results, tuple) else (results,)
    assert all(same_type(value.type, type_of(result)) for value, result in zip(graph.outputs, results, strict=True))


def test_weights_are_where_the_file_says(tmp_path: Path) -> None:
    model = SAMPLES["lm"].model()
    path = save_exported(tmp_path / "m.pt2", model, SAMPLES["lm"].inputs())
    graph = read("exported", path).graph
    content = path.read_bytes()
    state = model.state_dict()
    places = {}
    for weight in graph.weights:
        place = graph.data[weight]
        assert isinstance(place, FileRegion)
        places[weight.name] = place
        assert content[place.offset : place.offset + place.length] == state[str(weight.name)].numpy().tobytes()
    assert places["emb.weight"].storage == places["head.weight"].storage
    assert places["emb.weight"].storage != places["pos"].storage


def test_scopes_follow_calls(tmp_path: Path) -> None:
    graph = read("exported", save_exported(tmp_path / "m.pt2", SAMPLES["cnn"].model(), SAMPLES["cnn"].inputs())).graph
    by_scope = [(node.scope.path, node.op) for node in graph if node.op == "nn.relu"]
    assert by_scope == [
        ("layers/0/relu", "nn.relu"),
        ("layers/0/relu#1", "nn.relu"),
        ("layers/1/relu", "nn.relu"),
        ("layers/1/relu#1", "nn.relu"),
    ]
    conv = next(node for node in graph if node.scope.path == "layers/0/conv1")
    assert (conv.scope.module, conv.scope.cls, conv.op, conv.source) == ("layers.0.conv1", "Conv2d", "nn.conv", "aten::conv2d")


def test_in_place_marks(tmp_path: Path) -> None:
    graph = read("exported", save_exported(tmp_path / "m.pt2", SAMPLES["cnn"].model(), SAMPLES["cnn"].inputs())).graph
    assert [node.source for node in graph if "inplace" in node.attrs] == ["aten::relu_", "aten::add_.Tensor", "aten::relu_"] * 2
    assert {node.attrs["inplace"] for node in graph if "inplace" in node.attrs} == {0}


def test_locations_keep_statement_and_callers(tmp_path: Path) -> None:
    graph = read("exported", save_exported(tmp_path / "m.pt2", SAMPLES["cnn"].model(), SAMPLES["cnn"].inputs())).graph
    node = next(node for node in graph if node.source == "aten::add_.Tensor")
    assert node.loc is not None
    assert (node.loc.file, node.loc.function, node.loc.statement) == (models.__file__, "forward", "y += x")
    outermost = node.loc
    while outermost.caller is not None:
        outermost = outermost.caller
    assert outermost.statement == "x = self.layers(x)"


def test_symbols_have_the_ranges_of_the_file(tmp_path: Path) -> None:
    sample = SAMPLES["attention"]
    program = read("exported", save_exported(tmp_path / "m.pt2", sample.model(), sample.inputs(), sample.dynamic))
    (x,) = program.graph.inputs
    assert isinstance(x.type, TensorType)
    assert [str(dim) for dim in x.type.shape or ()] == [*program.symbols, "32"]
    from irscope.ir.dims import bounds

    assert [bounds(dim) for dim in program.symbols.values()] == [(2, 64), (2, 60)]


def test_cond_has_two_regions(tmp_path: Path) -> None:
    program = read("exported", save_exported(tmp_path / "m.pt2", Cond().eval(), (torch.randn(2, 4),)))
    (node,) = [node for node in program.graph if node.op == "cf.if"]
    assert [[inner.op for inner in region] for region in node.regions] == [["nn.linear", "nn.relu"], ["math.neg"]]
    assert program.graph.outputs == node.outputs


def test_a_mutated_buffer_is_written_back(tmp_path: Path) -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x + self.count

    program = read("exported", save_exported(tmp_path / "m.pt2", Counter(), (torch.randn(3),), decompose=True))
    last = program.graph.last
    assert last is not None
    assert (last.op, last.attrs["inplace"]) == ("tensor.copy_into", 0)
    assert last.inputs[0] is not None
    assert (last.inputs[0].name, last.inputs[0].role) == ("count", Role.BUFFER)
    assert len(program.graph.outputs) == 1


# Traced models keep the Python places that their operators come from; damage to them costs the places and nothing else.


def _doubled(value: Tensor) -> Tensor:
    return value * 2


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return _doubled(x).exp()


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        found = self.inner(x)
        found = found + 1
        return found.sqrt()


def _functions(node: Node) -> list[str]:
    functions: list[str] = []
    loc = node.loc
    while loc is not None:
        assert Path(loc.file).name == Path(__file__).name
        functions.append(loc.function)
        loc = loc.caller
    return functions


def test_places_of_a_trace(tmp_path: Path) -> None:
    program = read("torchscript", save_traced(tmp_path / "model.pt", Outer().eval(), (torch.rand(3),)))
    nodes = {node.op: node for node in program.graph}
    assert _functions(nodes["math.mul"]) == ["_doubled", "Module.forward", "Module.forward"]
    assert _functions(nodes["math.exp"]) == ["Module.forward", "Module.forward"]
    assert _functions(nodes["math.add"]) == ["Module.forward"]
    line = Outer.forward.__code__.co_firstlineno
    assert nodes["math.add"].loc is not None
    assert nodes["math.add"].loc.line == line + 2
    assert nodes["math.sqrt"].loc is not None
    assert nodes["math.sqrt"].loc.line == line + 3


def test_names_are_those_of_python(tmp_path: Path) -> None:
    program = read("torchscript", save_traced(tmp_path / "model.pt", Outer().eval(), (torch.rand(3),)))
    names = [output.name for node in program.graph for output in node.outputs]
    assert "found" in names
    assert "found0" not in names


def test_scripted_code_keeps_the_place_in_the_archive(tmp_path: Path) -> None:
    program = read("torchscript", save_scripted(tmp_path / "model.pt", Outer().eval()))
    assert all(node.loc is None or node.loc.file.startswith("code/") for node in program.graph)


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x02.", b"\x80\x02K\x01.", b"\x80\x02](K\x01\x85e.", b"\x80\x02(K\x00)tt.", b"cos\nsystem\n(S'true'\ntR."]
)
def test_damaged_places(content: bytes, tmp_path: Path) -> None:
    path = save_traced(tmp_path / "model.pt", Outer().eval(), (torch.rand(3),))
    damaged = tmp_path / "damaged.pt"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(damaged, "w") as new:
        for item in old.infolist():
            new.writestr(item.filename, content if item.filename.endswith(".debug_pkl") else old.read(item.filename))
    program = read("torchscript", damaged)
    whole = read("torchscript", path)
    assert [node.op for node in program.graph] == [node.op for node in whole.graph]
    assert all(node.loc is not None and node.loc.file.startswith("code/") for node in program.graph)


# TorchScript archives, traced and scripted, followed without torch.


def operators(program: Program) -> Counter[str]:
    """Operators that do work; sizes and views are written differently by each exporter."""
    return Counter(node.op for node in program.graph.walk() if not node.op.startswith(("view.", "tensor.", "math.and")))


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("form", ["trace", "script"])
def test_same_model_as_exported(name: str, form: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    model, args = sample.model(), sample.inputs()
    exported = read("exported", save_exported(tmp_path / "m.pt2", model, args))
    if form == "trace":
        program = read("torchscript", save_traced(tmp_path / "m.pt", model, args))
    else:
        program = read("torchscript", save_scripted(tmp_path / "m.pt", model), **{"0": type_of(args[0])})
    assert operators(program) == operators(exported)
    assert disagreements(program) == []
    results = model(*args)
    assert [value.type for value in program.graph.outputs] == [type_of(r) for r in (results if isinstance(results, tuple) else (results,))]
    kept = {weight.name: weight.type for weight in program.parameters()}
    assert kept == {name: type_of(value.detach()) for name, value in model.named_parameters(remove_duplicate=False)}


@pytest.mark.parametrize("form", ["trace", "script"])
def test_scopes_equal_those_of_export(form: str, tmp_path: Path) -> None:
    sample = SAMPLES["cnn"]
    model, args = sample.model(), sample.inputs()
    exported = read("exported", save_exported(tmp_path / "m.pt2", model, args))
    if form == "trace":
        program = read("torchscript", save_traced(tmp_path / "m.pt", model, args))
    else:
        program = read("torchscript", save_scripted(tmp_path / "m.pt", model), x=type_of(args[0]))
    ours = [(node.op, node.scope.path, node.attrs.get("inplace")) for node in program.graph]
    assert ours == [(node.op, node.scope.path, node.attrs.get("inplace")) for node in exported.graph]


def test_symbolic_inputs(tmp_path: Path) -> None:
    from irscope.ir.dims import symbol

    batch, length = symbol("batch"), symbol("length")
    path = save_scripted(tmp_path / "m.pt", SAMPLES["attention"].model())
    program = read("torchscript", path, x=tensor(DType.F32, (batch, length, 32)))
    assert [str(value.type) for value in program.graph.outputs] == ["f32[batch,length,32]"]
    assert list(program.symbols) == ["batch", "length"]


def test_a_scripted_model_asks_for_inputs_that_cannot_be_guessed(tmp_path: Path) -> None:
    class Joins(torch.nn.Module):
        def forward(self, xs: list[torch.Tensor]) -> torch.Tensor:
            return torch.cat(xs)

    path = save_scripted(tmp_path / "m.pt", Joins())
    with pytest.raises(LoadError, match=r"the types of xs are needed.*--input xs=") as caught:
        read("torchscript", path)
    assert caught.value.code == "IRS185"


def test_branches_and_loops_on_data_become_regions(tmp_path: Path) -> None:
    program = read("torchscript", save_scripted(tmp_path / "m.pt", Choice().eval()), x=tensor(DType.F32, (2, 4)))
    first, *_ = [node for node in program.graph if node.op == "cf.if"]
    assert [[node.op for node in region] for region in first.regions] == [["nn.linear", "nn.relu"], ["math.neg"]]
    (loop,) = [node for node in program.graph if node.op == "cf.loop"]
    assert "math.mul" in [node.op for node in loop.regions[0]]
    (result,) = program.graph.outputs
    assert result in loop.outputs
    assert str(result.type) == "f32[2,4]"


def test_known_loops_and_containers_are_unrolled(tmp_path: Path) -> None:
    class Steps(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])

        def forward(self, x: torch.Tensor, extra: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
            rows: list[torch.Tensor] = []
            for i in range(x.size(0)):
                row = x[i]
                for layer in self.layers:
                    row = layer(row)
                rows.append(row)
            if extra is not None:
                rows.append(extra)
            sizes = {"rows": len(rows)}
            assert sizes["rows"] == 2, "two rows"
            return {"all": torch.stack(rows), "sum": torch.stack(rows).sum()}

    program = read("torchscript", save_scripted(tmp_path / "m.pt", Steps().eval()), x=tensor(DType.F32, (2, 4)))
    assert operators(program)["nn.linear"] == 6
    assert [str(value.type) for value in program.graph.outputs] == ["f32[2,4]", "f32[]"]
