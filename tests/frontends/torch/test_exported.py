"""torch.export's archives: the whole graph, recorded types, names, scopes, locations."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch

from irscope.ir.graph import Role
from irscope.ir.places import FileRegion
from irscope.ir.types import TensorType
from tests.frontends.torch.helpers import disagreements, read, same_type, save_exported, type_of
from tests.frontends.torch.models import SAMPLES, Cond

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
    assert (node.loc.file, node.loc.function, node.loc.statement) == (str(Path(__file__).parent / "models.py"), "forward", "y += x")
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
