"""--use-torch: types of unknown operators come from torch only when the user says so, and the answer says that they do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch
from torch import Tensor, nn

from irscope.cli.main import main
from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.load import load_program
from irscope.frontends.torch_lowering.fake import FakeTypes
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph
from irscope.ir.types import tensor
from irscope.ops.registry import find_op
from tests.frontends.torch.helpers import save_exported, save_traced

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


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
