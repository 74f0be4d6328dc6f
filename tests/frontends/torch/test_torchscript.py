"""TorchScript archives, traced and scripted, followed without torch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch

from irscope.errors import LoadError
from irscope.ir.dtypes import DType
from irscope.ir.program import Program
from irscope.ir.types import tensor
from tests.frontends.torch.helpers import disagreements, read, save_exported, save_scripted, save_traced, type_of
from tests.frontends.torch.models import SAMPLES, Choice

pytestmark = pytest.mark.torch


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
