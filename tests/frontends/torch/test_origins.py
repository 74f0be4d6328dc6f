"""Traced models keep the Python places that their operators come from; damage to them costs the places and nothing else."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from irscope.ir.graph import Node  # noqa: E402
from tests.frontends.torch.helpers import read, save_scripted, save_traced  # noqa: E402

pytestmark = pytest.mark.torch


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
    found: list[str] = []
    loc = node.loc
    while loc is not None:
        assert Path(loc.file).name == Path(__file__).name
        found.append(loc.function)
        loc = loc.caller
    return found


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
