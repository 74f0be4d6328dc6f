"""Scripted modules against real runs, and files that only torch itself can read."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from irscope.cli.main import main
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends import torchscript
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from irscope.frontends.torch_lowering.fake import FakeTypes
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph
from irscope.ir.program import Program
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops.registry import find_op
from irscope.passes.graph.transforms import Annotate
from irscope.passkit.manager import Manager
from tests.tools.torch_files.helpers import read, save_exported, save_scripted, save_traced, type_of
from tests.tools.torch_files.scripted import MODELS

# Scripted models written by hand: what a real run returns is what irscope says; inputs that nobody gives are guessed, and said to be.

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


def tensors(item: Any) -> Iterator[Tensor]:
    """Tensors of what a model returns, in order."""
    if isinstance(item, Tensor):
        yield item
    elif isinstance(item, list | tuple):
        for part in item:
            yield from tensors(part)
    elif isinstance(item, dict):
        yield from tensors(list(item.values()))


def given(model: torch.jit.ScriptModule, args: tuple[Any, ...]) -> tuple[dict[str, Type], dict[str, int]]:
    """Types and whole numbers as a user gives them with --input and --bind."""
    types: dict[str, Type] = {}
    numbers: dict[str, int] = {}
    for argument, value in zip(model.forward.schema.arguments[1:], args, strict=False):
        if isinstance(value, Tensor):
            types[argument.name] = type_of(value)
        elif isinstance(value, list):
            types.update({f"{argument.name}.{index}": type_of(part) for index, part in enumerate(value)})
        else:
            numbers[argument.name] = value
    return types, numbers


def sizes(program: Program) -> list[tuple[DType, tuple[int | None, ...]]]:
    """Element types and sizes of the outputs, None for sizes that depend on data."""
    found = []
    for value in program.graph.outputs:
        assert isinstance(value.type, TensorType) and value.type.shape is not None, value
        found.append((value.type.dtype, tuple(None if isinstance(size, SymDim) else size for size in value.type.shape)))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_a_real_run(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.jit.script(MODELS[name].make().eval())
    path = tmp_path / "m.pt"
    model.save(str(path))
    args = MODELS[name].inputs()
    truth = [(type_of(result).dtype, tuple(result.shape)) for result in tensors(model(*args))]
    types, numbers = given(model, args)
    sink = DiagnosticSink()
    program = load_program(path, LoadOptions(inputs=types, bind=numbers), sink)
    for _ in range(2):
        found = sizes(program)
        assert len(found) == len(truth)
        for (dtype, shape), (real_dtype, real_shape) in zip(found, truth, strict=True):
            assert dtype is real_dtype
            assert len(shape) == len(real_shape)
            assert all(size in (None, real) for size, real in zip(shape, real_shape, strict=True)), (shape, real_shape)
        assert sum(size is None for _, shape in found for size in shape) == MODELS[name].unknown
        # The analysis that passes build on says the same from the graph alone.
        Manager(program).apply(Annotate())
    assert list(sink) == []


GUESSED = {
    "picture": "f32[1,3,224,224]",
    "one size": "f32[1,3,224,224]",
    "token model": "i64[1,128]",
    "checked": "f32[1,4]",
    "encoder": "f32[1,16]",
    "recurrent": "f32[128,1,8]",
    "through an interface": "f32[1,4]",
    "by name": "f32[1,6]",
    "uses a class": "f32[1,128]",
}


@pytest.mark.parametrize("name", GUESSED)
def test_inputs_are_guessed_from_use_and_said_to_be(name: str, tmp_path: Path) -> None:
    model = torch.jit.script(MODELS[name].make().eval())
    path = tmp_path / "m.pt"
    model.save(str(path))
    sink = DiagnosticSink()
    program = torchscript.load(path, LoadOptions(), sink)
    (value,) = program.graph.inputs
    assert str(value.type) == GUESSED[name]
    (said,) = sink
    assert said.code == "IRS186"
    assert f"{value.name}={GUESSED[name]}" in said.message
    assert isinstance(value.type, TensorType) and value.type.shape is not None
    shape = [int(size) for size in value.type.shape]
    example = torch.zeros(shape, dtype=torch.int64 if value.type.dtype is DType.I64 else torch.float32)
    assert [tuple(result.shape) for result in tensors(model(example))] == [shape for _, shape in sizes(program)]


class Asserting(nn.Module):
    """Takes pictures of one height and another width."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.height, self.width = height, width
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.size(2) != self.height:
            raise ValueError("another height")
        torch._assert(x.size(3) == self.width, "another width")
        return self.conv(x)


class Shaped(nn.Module):
    """Compares a list of sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        assert x.size()[2:] == [200, 120]
        return self.conv(x)


class Flattened(nn.Module):
    """What it accepts follows from the features of its last layer."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 5)
        self.fc = nn.Linear(4 * ((size - 4) // 2) ** 2, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(torch.max_pool2d(self.conv(x), 2), 1))


class Positions(nn.Module):
    """Adds a table of positions, which has one length."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 16)
        self.positions = nn.Parameter(torch.zeros(1, length, 16))

    def forward(self, ids: Tensor) -> Tensor:
        return self.embedding(ids) + self.positions


class Bounded(nn.Module):
    """Takes sequences up to a length."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 16)

    def forward(self, ids: Tensor) -> Tensor:
        assert ids.size(1) <= 48, "too long"
        return self.embedding(ids)


class Sound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 8, 10, stride=5)

    def forward(self, wave: Tensor) -> Tensor:
        return self.conv(wave)


PLAUSIBLE = {
    "asserted": (lambda: Asserting(352, 144), "f32[1,3,352,144]", "asserts"),
    "as a list": (Shaped, "f32[1,3,200,120]", "asserts"),
    "digits": (lambda: Flattened(28), "f32[1,1,28,28]", "usual"),
    "larger digits": (lambda: Flattened(32), "f32[1,1,32,32]", "usual"),
    "one length": (lambda: Positions(77), "i64[1,77]", "usual"),
    "a longest length": (Bounded, "i64[1,48]", "asserts"),
    "sound": (Sound, "f32[1,1,16000]", "usual"),
    "volume": (lambda: nn.Sequential(nn.Conv3d(3, 8, 3)), "f32[1,3,16,112,112]", "usual"),
}


@pytest.mark.parametrize("name", PLAUSIBLE)
def test_guesses_are_sizes_that_the_code_asserts_or_usual_ones(name: str, tmp_path: Path) -> None:
    make, wanted, how = PLAUSIBLE[name]
    model = torch.jit.script(make().eval())
    model.save(str(tmp_path / "m.pt"))
    program = torchscript.load(tmp_path / "m.pt", LoadOptions(), DiagnosticSink())
    (value,), (assumed,) = program.graph.inputs, program.assumed
    assert (str(value.type), assumed.what, assumed.value, assumed.is_guess) == (wanted, value.name, wanted, True)
    assert how in assumed.why
    # The model itself accepts them.
    assert isinstance(value.type, TensorType) and value.type.shape is not None
    model(torch.zeros([int(size) for size in value.type.shape], dtype=torch.int64 if value.type.dtype is DType.I64 else torch.float32))


def test_a_given_input_is_not_guessed(tmp_path: Path) -> None:
    path = save_scripted(tmp_path / "m.pt", MODELS["picture"].make())
    sink = DiagnosticSink()
    program = torchscript.load(path, LoadOptions(inputs={"x": tensor(DType.F32, (2, 3, 64, 64))}), sink)
    assert [str(value.type) for value in program.graph.inputs] == ["f32[2,3,64,64]"]
    assert list(sink) == []
    assert program.assumed == []


def test_a_whole_number_without_a_default_is_a_symbol(tmp_path: Path) -> None:
    path = save_scripted(tmp_path / "m.pt", MODELS["gathered"].make())
    types: dict[str, Type] = {"xs.0": tensor(DType.F32, (3, 4)), "xs.1": tensor(DType.F32, (2, 4))}
    program = load_program(path, LoadOptions(inputs=types), DiagnosticSink())
    assert list(program.symbols) == ["n"]
    assert [str(value.type) for value in program.graph.outputs] == ["f32[5*n,4]"]


class TwoMethods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)

    @torch.jit.export
    def encode(self, x: Tensor) -> Tensor:
        return self.fc(x).sum()


def test_methods_are_chosen_by_name(tmp_path: Path) -> None:
    path = save_scripted(tmp_path / "m.pt", TwoMethods())
    program = torchscript.load(path, LoadOptions(method="encode"), DiagnosticSink())
    assert [str(value.type) for value in program.graph.outputs] == ["f32[]"]
    with pytest.raises(LoadError, match=r"no method decode.*forward, encode"):
        torchscript.load(path, LoadOptions(method="decode"), DiagnosticSink())


def test_overloaded_forward(tmp_path: Path) -> None:
    """A recurrent layer that is scripted alone has one method for tensors and one for packed sequences."""
    program = read("torchscript", save_scripted(tmp_path / "m.pt", nn.LSTM(4, 5)), input=tensor(DType.F32, (7, 2, 4)))
    assert [str(value.type) for value in program.graph.outputs] == ["f32[7,2,5]", "f32[1,2,5]", "f32[1,2,5]"]


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.relu(self.bn(self.conv(x))).mean((2, 3)))


PICTURE = tensor(DType.F32, (2, 3, 16, 16))


@pytest.mark.parametrize("form", ["trace", "script"])
def test_frozen_models(form: str, tmp_path: Path) -> None:
    """Freezing makes constants of weights and folds the norm; the weights still count."""
    model = Small().eval()
    made = torch.jit.script(model) if form == "script" else torch.jit.trace(model, torch.zeros(2, 3, 16, 16))
    torch.jit.freeze(made).save(str(tmp_path / "m.pt"))
    program = read("torchscript", tmp_path / "m.pt", x=PICTURE)
    assert [str(value.type) for value in program.graph.outputs] == ["f32[2,10]"]
    assert sum(_count(weight.type) for weight in program.parameters()) == 3 * 8 * 9 + 8 + 80 + 10
    assert "nn.batch_norm" not in [node.op for node in program.graph]


@pytest.mark.parametrize("form", ["trace", "script"])
def test_models_optimised_for_inference(form: str, tmp_path: Path) -> None:
    """oneDNN's operators stay foreign; what follows them has its sizes again."""
    model = Small().eval()
    made = torch.jit.script(model) if form == "script" else torch.jit.trace(model, torch.zeros(2, 3, 16, 16))
    try:
        torch.jit.optimize_for_inference(torch.jit.freeze(made)).save(str(tmp_path / "m.pt"))
    except RuntimeError as error:
        pytest.skip(f"this torch cannot: {error}")
    program = read("torchscript", tmp_path / "m.pt", x=PICTURE)
    assert [str(value.type) for value in program.graph.outputs] == ["f32[2,10]"]


def _count(type_: Type) -> int:
    assert isinstance(type_, TensorType) and isinstance(type_.numel, int)
    return type_.numel


def quantised(kind: str) -> tuple[nn.Module, Tensor]:
    """A model with packed weights, and what it is called with."""
    torch.backends.quantized.engine = "fbgemm"
    quantization = torch.ao.quantization
    if kind == "dynamic":
        layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        return quantization.quantize_dynamic(layers, {nn.Linear}, dtype=torch.qint8), torch.randn(2, 16)

    class Static(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant = quantization.QuantStub()
            self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.relu = nn.ReLU()
            self.fc = nn.Linear(8, 4)
            self.dequant = quantization.DeQuantStub()

        def forward(self, x: Tensor) -> Tensor:
            x = self.relu(self.conv(self.quant(x)))
            return self.dequant(self.fc(x.mean((2, 3))))

    model = Static().eval()
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    prepared = quantization.prepare(model)
    prepared(torch.randn(2, 3, 8, 8))
    return quantization.convert(prepared), torch.randn(2, 3, 8, 8)


@pytest.mark.parametrize("form", ["trace", "script"])
@pytest.mark.parametrize(("kind", "weights"), [("dynamic", {"i8": 16 * 32 + 32 * 4, "f32": 36}), ("static", {"i8": 216 + 32, "f32": 12})])
def test_packed_parameters(kind: str, weights: dict[str, int], form: str, tmp_path: Path) -> None:
    """Their `__setstate__` is followed as all code is: weights are counted, and quantised layers have the types they give."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("this torch has no quantised layers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, x = quantised(kind)
    path = tmp_path / "m.pt"
    if form == "trace":
        save_traced(path, model, (x,))
        program = read("torchscript", path)
    else:
        save_scripted(path, model)
        program = read("torchscript", path, **{"0": type_of(x)})
    assert [str(value.type) for value in program.graph.outputs] == ["f32[2,4]"]
    assert all(output.type.shape is not None for node in program.graph for output in node.outputs if isinstance(output.type, TensorType))
    found: dict[str, int] = {}
    for weight in program.parameters():
        assert isinstance(weight.type, TensorType)
        key = str(tensor(weight.type.dtype, ())).partition("[")[0]
        found[key] = found.get(key, 0) + _count(weight.type)
    assert found == weights
    assert all(weight.users for weight in program.parameters())


# --use-torch: types of unknown operators come from torch only when the user says so, and the answer says that they do.


class Unusual(nn.Module):
    """An operator that nobody has written a record for."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x).sum(0)


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    if find_op("aten.special_bessel_j0") is not None:
        pytest.skip("there is a record now: take another operator")
    return save_traced(tmp_path / "m.pt", Unusual(), (torch.rand(3, 4),))


def test_without_the_option_the_type_stays_unknown(traced: Path) -> None:
    program = load_program(traced, LoadOptions(), DiagnosticSink())
    assert [str(value.type) for value in program.graph.outputs] == ["?[*]"]


def test_with_the_option_torch_is_asked_and_named(traced: Path) -> None:
    sink = DiagnosticSink()
    program = load_program(traced, LoadOptions(use_torch=True), sink)
    assert [str(value.type) for value in program.graph.outputs] == ["f32[4]"]
    (said,) = [diagnostic for diagnostic in sink if diagnostic.code == "IRS173"]
    assert said.message == f"the types of aten.special_bessel_j0 come from torch {torch.__version__}, not from irscope"


def test_on_the_command_line(traced: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--passes", "shapes", "--use-torch", str(traced)]) == 0
    assert "IRS173: the types of aten.special_bessel_j0 come from torch" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("option", ["", "--use-torch"])
def test_torch_is_imported_only_with_the_option(option: str, traced: Path) -> None:
    code = "import sys; from irscope.cli.main import main; main(sys.argv[1:]); sys.exit(10 if 'torch' in sys.modules else 0)"
    arguments = ["run", "--passes", "shapes", *([option] if option else []), str(traced)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True)
    assert done.returncode == (10 if option else 0)


def test_without_torch_it_says_so(traced: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    sink = DiagnosticSink()
    program = load_program(traced, LoadOptions(use_torch=True), sink)
    assert [str(value.type) for value in program.graph.outputs] == ["?[*]"]
    assert "--use-torch was given, but torch is not installed" in [diagnostic.message for diagnostic in sink]


def test_where_the_file_has_all_types_it_says_so(tmp_path: Path) -> None:
    path = save_exported(tmp_path / "m.pt2", Unusual(), (torch.rand(3, 4),))
    sink = DiagnosticSink()
    load_program(path, LoadOptions(use_torch=True), sink)
    (said,) = sink
    assert said.code == "IRS173" and "no effect" in said.message


@pytest.mark.parametrize("name", ["from_file", "save", "no_such_operator", "len"])
def test_operators_that_do_more_than_compute_are_not_called(name: str, tmp_path: Path) -> None:
    """Names come from the file: what only TorchScript's interpreter has, or what opens files, is never called."""
    graph = Graph()
    x = graph.add_input(tensor(DType.F32, (2,)), "x")
    assert FakeTypes(DiagnosticSink()).ask("aten", name, [x, str(tmp_path / "canary")], {}) is None
    assert not (tmp_path / "canary").exists()
