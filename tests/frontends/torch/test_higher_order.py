"""Higher-order operators of torch.export in every form, and damaged copies of every kind of file: one clear line, no hang."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import json
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends import exported
from irscope.frontends.base import LoadOptions
from irscope.ir.graph import Role
from irscope.ir.places import FileRegion, Literal
from tests.tools.torch_files.helpers import read, recomputed, save_exported, save_scripted, save_traced, type_of
from tests.tools.torch_files.models import SAMPLES, Choice

# Higher-order operators of torch.export, and the forms that its archives may have.

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)


class Scan(Layer):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        from torch._higher_order_ops.scan import scan

        def step(state: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            after = torch.tanh(self.fc(state) + row)
            return after, after * 2

        found: tuple[Tensor, Tensor] = scan(step, torch.zeros(2, 4), x, dim=0)
        return found


class ScanOfTwo(nn.Module):
    """Backwards along the second axis, two sequences, two results."""

    def forward(self, x: Tensor, start: Tensor) -> Any:
        from torch._higher_order_ops.scan import scan

        def step(state: Tensor, rows: tuple[Tensor, Tensor]) -> Any:
            after = state + rows[0]
            return after, (after.clone(), rows[1] * 2)

        return scan(step, start, (x, x + 1), dim=1, reverse=True)


class Map(Layer):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        from torch._higher_order_ops.map import map

        tensor: Tensor = map(lambda row, other: self.fc(row).relu() + other.sum(), x, y)
        return tensor


class While(nn.Module):
    def forward(self, x: Tensor) -> Any:
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))


class Nested(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        def inner(x: Tensor) -> Tensor:
            return torch.cond(x.mean() > 1, lambda x: x.sin(), lambda x: x.cos(), (x,))

        return torch.cond(x.sum() > 0, inner, lambda x: -x, (x,))


class Modes(Layer):
    """Autocast, whose casts PyTorch does not record, and a part without gradients."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.fc(x)
        with torch.no_grad():
            z = y.float() * 2
        return z + x


@torch.compiler.nested_compile_region
def repeated(x: Tensor) -> Tensor:
    """A region that is compiled once and used twice."""
    return (x * 2).relu()


class Regions(Layer):
    def forward(self, x: Tensor) -> Tensor:
        return repeated(repeated(self.fc(x)))


class Floats(nn.Module):
    """Numbers computed from sizes."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * (x.shape[0] / 2), torch.full((2,), x.shape[0] / 3)


class Items(nn.Module):
    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        size = n.item()
        torch._check(size >= 1)
        torch._check(size < 10)
        return x.new_zeros(size, 3)


N = torch.export.Dim("n", min=2, max=30)
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]], Any, list[str]]] = {
    "scan": (Scan, lambda: (torch.randn(5, 2, 4),), {"x": {0: N}}, ["cf.scan"]),
    "scan of two": (ScanOfTwo, lambda: (torch.randn(2, 5, 4), torch.randn(2, 4)), None, ["cf.scan"]),
    "map": (Map, lambda: (torch.randn(5, 4), torch.randn(5, 7)), {"x": {0: N}, "y": {0: N}}, ["cf.scan"]),
    "while": (While, lambda: (torch.randn(3),), None, ["cf.loop"]),
    "nested": (Nested, lambda: (torch.randn(3),), None, ["cf.if", "cf.if"]),
    "modes": (Modes, lambda: (torch.randn(2, 4),), None, []),
    "regions": (Regions, lambda: (torch.randn(4, 4),), None, []),
    "floats": (Floats, lambda: (torch.randn(4, 3),), {"x": {0: N}}, []),
    "items": (Items, lambda: (torch.randn(4, 3), torch.tensor(3)), None, []),
}


@pytest.mark.parametrize("decompose", [False, True], ids=["training", "decomposed"])
@pytest.mark.parametrize("name", CASES)
def test_every_type_inside_and_outside_of_regions(name: str, decompose: bool, tmp_path: Path) -> None:
    make, inputs, dynamic, control = CASES[name]
    strict = name == "regions"
    ep = torch.export.export(make().eval(), inputs(), dynamic_shapes=dynamic, strict=strict)
    path = tmp_path / "m.pt2"
    torch.export.save(ep.run_decompositions() if decompose else ep, path)
    sink = DiagnosticSink()
    program = exported.load(path, LoadOptions(), sink)
    assert [node.op for node in program.graph.walk() if node.op.startswith("cf.")] == control
    assert not [node.op for node in program.graph.walk() if node.op.startswith("higher_order")]
    assert recomputed(program) == []
    assert len(sink) == 0


def test_autocast_casts_what_the_operator_reads(tmp_path: Path) -> None:
    graph = read("exported", save_exported(tmp_path / "m.pt2", Modes().eval(), (torch.randn(2, 4),))).graph
    assert [node.op for node in graph] == ["tensor.cast"] * 3 + ["nn.linear", "tensor.to", "math.mul", "math.add"]
    assert str(next(node for node in graph if node.op == "nn.linear").outputs[0].type) == "bf16[2,4]"


class Mixed(Layer):
    """A parameter, a buffer and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.ones(4))
        self.table = torch.arange(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) + self.shift + self.table


def older(path: Path, ep: Any) -> Path:
    """The layout of torch before 2.8, written by torch's own serialiser."""
    from torch._export.serde.serialize import serialize

    parts = serialize(ep)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("version", "8.20")
        file.writestr("serialized_exported_program.json", parts.exported_program)
        file.writestr("serialized_state_dict.pt", parts.state_dict)
        file.writestr("serialized_constants.pt", parts.constants)
        file.writestr("serialized_example_inputs.pt", parts.example_inputs)
    return path


def test_the_older_layout(tmp_path: Path) -> None:
    model = Mixed().eval()
    ep = torch.export.export(model, (torch.randn(2, 4),))
    path = older(tmp_path / "old.pt2", ep)
    assert torch.export.load(path).module()(torch.zeros(2, 4)).shape == (2, 4), "torch itself reads it"
    program = read("exported", path)
    torch.export.save(ep, tmp_path / "new.pt2")
    new = read("exported", tmp_path / "new.pt2")
    assert [(node.op, str(node.outputs[0].type)) for node in program.graph] == [(n.op, str(n.outputs[0].type)) for n in new.graph]
    content = path.read_bytes()
    by_name = {str(weight.name): weight for weight in program.graph.weights}
    assert {name: weight.role for name, weight in by_name.items()} == {
        "fc.weight": Role.PARAMETER,
        "fc.bias": Role.PARAMETER,
        "shift": Role.BUFFER,
        "table": Role.CONSTANT,
    }
    place = program.graph.data[by_name["fc.weight"]]
    assert isinstance(place, FileRegion)
    assert content[place.offset : place.offset + place.length] == model.fc.weight.detach().numpy().tobytes()
    assert program.graph.data[by_name["table"]] == Literal((0, 1, 2, 3))


def test_archives_with_several_programs(tmp_path: Path) -> None:
    from torch.export.pt2_archive._package import package_pt2

    path = tmp_path / "m.pt2"
    first = torch.export.export(Mixed().eval(), (torch.randn(2, 4),))
    second = torch.export.export(While(), (torch.randn(3),))
    package_pt2(str(path), exported_programs={"encode": first, "decode": second})
    sink = DiagnosticSink()
    assert len(exported.load(path, LoadOptions(), sink).graph.weights) == 4
    (said,) = sink
    assert (said.code, said.hint) == ("IRS137", "`--method decode` reads another")
    program = exported.load(path, LoadOptions(method="decode"), DiagnosticSink())
    assert "cf.loop" in [node.op for node in program.graph]
    with pytest.raises(LoadError, match=r"no program 'generate'.*encode, decode"):
        exported.load(path, LoadOptions(method="generate"), DiagnosticSink())


def with_version(path: Path, major: int, minor: int) -> Path:
    """The same archive with another schema version, and with a field that nobody knows yet."""
    target = path.with_name("other.pt2")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename.endswith("models/model.json"):
                document = json.loads(data)
                document["schema_version"] = {"major": major, "minor": minor}
                document["something_new"] = {"x": 1}
                for node in document["graph_module"]["graph"]["nodes"]:
                    node["metadata"]["something_new"] = "x"
                data = json.dumps(document).encode()
            new.writestr(info.filename, data)
    return target


@pytest.mark.parametrize(("minor", "codes"), [(0, []), (20, []), (99, ["IRS138"])])
def test_minor_schema_versions(minor: int, codes: list[str], tmp_path: Path) -> None:
    path = with_version(save_exported(tmp_path / "m.pt2", Mixed().eval(), (torch.randn(2, 4),)), 8, minor)
    sink = DiagnosticSink()
    program = exported.load(path, LoadOptions(), sink)
    assert [diagnostic.code for diagnostic in sink] == codes
    assert [value.type for value in program.graph.outputs] == [type_of(torch.zeros(2, 4))]


@pytest.mark.parametrize("major", [7, 9])
def test_other_major_schema_versions_are_refused(major: int, tmp_path: Path) -> None:
    path = with_version(save_exported(tmp_path / "m.pt2", Mixed().eval(), (torch.randn(2, 4),)), major, 0)
    with pytest.raises(LoadError, match=rf"schema version {major}\.0") as caught:
        read("exported", path)
    assert caught.value.code == "IRS136"


def test_functions_that_are_no_operators_stay_foreign(tmp_path: Path) -> None:
    """Decompositions that were not run leave Python functions in the graph."""
    from torch._higher_order_ops.associative_scan import associative_scan

    class Cumulative(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = save_exported(tmp_path / "m.pt2", Cumulative(), (torch.randn(5, 3),))
    program = read("exported", path)
    assert [str(value.type) for value in program.graph.outputs] == ["f32[5,3]"]


# Damaged copies of every kind of PyTorch file, through the command line: one clear line each, little memory, no hang.

FORMS = ("pt2", "older pt2", "decomposed pt2", "traced", "scripted", "state dict", "legacy", "module", "safetensors", "index")
MOST_MB = 200
ROOT = Path(__file__).parents[3]


def write(form: str, folder: Path) -> Path:
    """A file of the form."""
    path = folder / "model"
    sample = SAMPLES["mlp"]
    model, args = sample.model(), sample.inputs()
    if form == "older pt2":
        return older(path, torch.export.export(model, args))
    if form.endswith("pt2"):
        return save_exported(folder / "model.pt2", model, args, sample.dynamic, form == "decomposed pt2")
    if form == "traced":
        return save_traced(path, SAMPLES["cnn"].model(), SAMPLES["cnn"].inputs())
    if form == "scripted":
        return save_scripted(path, Choice().eval())
    if form in ("safetensors", "index"):
        shard = folder / "m-1.safetensors"
        text = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"format": "pt"}}).encode()
        shard.write_bytes(struct.pack("<Q", len(text)) + text + bytes(24))
        if form == "safetensors":
            return shard
        path.write_text(json.dumps({"metadata": {"total_size": 24}, "weight_map": {"a": "m-1.safetensors"}}))
        return path
    torch.save(model if form == "module" else {"model": model.state_dict()}, path, _use_new_zipfile_serialization=form != "legacy")
    return path


def check(form: str, cases: int, folder: Path) -> None:
    command = [sys.executable, "-m", "tests.tools.torch_files.mutate", str(write(form, folder)), str(cases), "7"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=3000)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["refused"] > cases / 4
    assert found["mb"] < MOST_MB


@pytest.mark.parametrize("form", FORMS)
def test_damaged_files_get_one_line(form: str, tmp_path: Path) -> None:
    check(form, 60, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
def test_damaged_files_get_one_line_many_times(form: str, tmp_path: Path) -> None:
    check(form, 2000, tmp_path)


@pytest.mark.parametrize("form", FORMS)
def test_cut_off_at_fifty_places(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the end is missing of, the file is refused; only padding at the end may go."""
    import random

    from irscope.cli.main import main

    whole = write(form, tmp_path).read_bytes()
    source = random.Random(11)
    path = tmp_path / "cut"
    for _ in range(50):
        length = source.randrange(len(whole) - 1)
        path.write_bytes(whole[:length])
        code = main(["run", "--passes", "params", str(path)])
        err = capsys.readouterr().err
        assert code == 3, (length, len(whole), err)
        assert err.startswith("irscope: error IRS1") and err.count("\n") == 1, err
