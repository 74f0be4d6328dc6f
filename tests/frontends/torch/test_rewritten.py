"""Exported programs written again after passes changed them: they load in torch and give equal results."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from irscope.api import transform
from irscope.cli.main import main
from irscope.frontends.base import LoadOptions
from irscope.ir.graph import Graph
from irscope.passkit.base import PassContext
from irscope.session import open_model
from irscope.tools.rewrite import Rewritten, rewrite

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
SAMPLE = Path(__file__).resolve().parents[3] / "samples" / "models" / "net.pt2"


def _rewrite(path: Path, passes: str, target: Path) -> Rewritten:
    return rewrite(open_model(path, LoadOptions(keep_calls=True)), passes, target)


def _saved(path: Path, module: Any, args: tuple[Any, ...], **more: Any) -> Path:
    import torch

    with torch.no_grad():
        torch.export.save(torch.export.export(module.eval(), args, **more), path)
    return path


def _difference(path: Path, target: Path, *args: Any) -> float:
    """The largest difference of any result, where both give the same number of them."""
    import torch

    with torch.no_grad():
        before, after = (torch.export.load(one).module()(*args) for one in (path, target))
    pairs = zip(before, after, strict=True) if isinstance(before, tuple | list) else [(before, after)]
    return max(float((a - b).abs().max()) for a, b in pairs)


def _blocks() -> Any:
    import torch
    from torch import nn

    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Conv2d(3, 8, 3, bias=False)
            self.norm1 = nn.BatchNorm2d(8)
            self.two = nn.Conv2d(8, 8, 1, padding=1)
            self.norm2 = nn.BatchNorm2d(8, affine=False)
            self.head = nn.Linear(8, 5)
            self.norm3 = nn.BatchNorm1d(5)
            for norm in (self.norm1, self.norm2, self.norm3):
                norm.running_mean.copy_(torch.randn(norm.num_features))
                norm.running_var.copy_(torch.rand(norm.num_features) + 0.1)

        def forward(self, x: Any) -> Any:
            y = torch.relu_(self.norm1(self.one(x)))
            y = self.norm2(self.two(y)) + 1.0
            return self.norm3(self.head(y.mean((2, 3))))

    torch.manual_seed(0)
    with torch.no_grad():
        return Blocks()


def test_the_sample_untouched_gives_the_same_bits(tmp_path: Path) -> None:
    import torch

    assert _rewrite(SAMPLE, "", tmp_path / "again.pt2").nodes == (15, 15)
    assert _difference(SAMPLE, tmp_path / "again.pt2", torch.randn(2, 3, 64, 64)) == 0
    before, after = torch.export.load(SAMPLE), torch.export.load(tmp_path / "again.pt2")
    assert str(before.graph) == str(after.graph) and before.graph_signature == after.graph_signature


def test_normalizations_fold_also_where_there_was_no_bias_and_at_the_end(tmp_path: Path) -> None:
    import torch

    path = _saved(tmp_path / "model.pt2", _blocks(), (torch.randn(2, 3, 8, 8),))
    target = tmp_path / "folded.pt2"
    before, after = _rewrite(path, "fold-batch-norm,dce", target).nodes
    assert before - after == 3
    program = torch.export.load(target)
    assert not any("batch_norm" in str(node.target) for node in program.graph.nodes)
    assert sorted(program.state_dict) == ["head.bias", "head.weight", "one.bias", "one.weight", "two.bias", "two.weight"]
    assert _difference(path, target, torch.randn(2, 3, 8, 8)) < 1e-4
    # Nothing of what was folded in is left in the archive, and weights lie where they can be mapped.
    with zipfile.ZipFile(target) as archive:
        names = [info.filename for info in archive.infolist()]
        assert len(names) == len(set(names)) and sum("/data/weights/weight_" in name for name in names) == 6
        assert archive.testzip() is None


def test_sizes_stay_open(tmp_path: Path) -> None:
    import torch

    batch = torch.export.Dim("batch", min=2, max=64)
    path = _saved(tmp_path / "model.pt2", _blocks(), (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: batch},))
    _rewrite(path, "fold-batch-norm,dce", tmp_path / "folded.pt2")
    assert _difference(path, tmp_path / "folded.pt2", torch.randn(7, 3, 8, 8)) < 1e-4


def test_what_is_computed_from_weights_becomes_a_weight(tmp_path: Path) -> None:
    import torch
    from torch import nn

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(6, 4))
            self.register_buffer("s", torch.rand(6, 1))

        def forward(self, x: Any) -> Any:
            return x @ (self.w * self.s).t()

    path = _saved(tmp_path / "model.pt2", Scaled(), (torch.randn(3, 4),))
    assert _rewrite(path, "fold{weights},dce", tmp_path / "folded.pt2").nodes == (3, 1)
    assert _difference(path, tmp_path / "folded.pt2", torch.randn(3, 4)) < 1e-6
    assert len(torch.export.load(tmp_path / "folded.pt2").state_dict) == 1


@transform("test-silu-for-relu")
def _silu(graph: Graph, ctx: PassContext) -> bool:
    """Another activation."""
    nodes = [node for node in graph if node.op == "nn.relu"]
    for node in nodes:
        graph.replace(node, "nn.leaky_relu", attrs={"alpha": 0.25})
    return bool(nodes)


def test_nodes_that_a_pass_made_are_aten_operators(tmp_path: Path) -> None:
    import torch
    from torch import nn

    class Relus(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.relu(torch.relu(x) - 1)

    path = _saved(tmp_path / "model.pt2", Relus(), (torch.randn(4),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    _rewrite(path, "test-silu-for-relu", tmp_path / "changed.pt2")
    program = torch.export.load(tmp_path / "changed.pt2")
    x = torch.tensor([-4.0, 0.0, 1.0, 9.0])
    wanted = nn.functional.leaky_relu(nn.functional.leaky_relu(x, 0.25) - 1, 0.25)
    assert torch.equal(program.module()(x), wanted)


def test_graphs_inside_nodes_stay_and_read_what_took_the_place(tmp_path: Path) -> None:
    import torch
    from torch import nn

    class Choosing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x: Any) -> Any:
            y = self.norm(self.conv(x))
            return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (y,))

    path = _saved(tmp_path / "model.pt2", Choosing(), (torch.randn(1, 3, 4, 4),))
    _rewrite(path, "fold-batch-norm,dce", tmp_path / "folded.pt2")
    for sign in (1, -1):
        assert _difference(path, tmp_path / "folded.pt2", sign * torch.rand(1, 3, 4, 4)) < 1e-5


def test_state_that_a_run_changes_is_not_folded(tmp_path: Path) -> None:
    import torch
    from torch import nn

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.ones(4))

        def forward(self, x: Any) -> Any:
            y = x * (self.count * 2)
            self.count.add_(1)
            return y

    path = _saved(tmp_path / "model.pt2", Counting(), (torch.randn(4),))
    _rewrite(path, "fold{weights},dce", tmp_path / "folded.pt2")
    x = torch.randn(4)
    first, second = torch.export.load(path).module(), torch.export.load(tmp_path / "folded.pt2").module()
    for _ in range(2):
        assert torch.equal(first(x), second(x))


def test_one_of_several_programs_changes_and_the_others_stay(tmp_path: Path) -> None:
    import torch
    from torch.export.pt2_archive._package import load_pt2, package_pt2

    x = torch.randn(2, 3, 8, 8)
    programs = {name: torch.export.export(_blocks().eval(), (x,)) for name in ("encode", "decode")}
    path, target = tmp_path / "both.pt2", tmp_path / "out.pt2"
    package_pt2(str(path), exported_programs=programs)
    rewrite(open_model(path, LoadOptions(keep_calls=True, method="decode")), "fold-batch-norm,dce", target)
    exported_programs = load_pt2(str(target)).exported_programs
    norms = {name: sum("batch_norm" in str(node.target) for node in exported_programs[name].graph.nodes) for name in exported_programs}
    assert norms == {"encode": 3, "decode": 0}
    with torch.no_grad():
        for name in exported_programs:
            torch.testing.assert_close(exported_programs[name].module()(x), programs[name].module()(x), rtol=1e-4, atol=1e-4)


@transform("test-unwritable-in-torch")
def _unwritable(graph: Graph, ctx: PassContext) -> bool:
    """A node that no ATen operator stands for."""
    node = next(node for node in graph if node.op == "nn.relu")
    graph.replace(node, "nn.thresholded_relu", attrs={"alpha": 1.0})
    return True


def test_a_node_without_an_operator_is_named_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.pt2"
    assert main(["export", str(SAMPLE), "--passes", "test-unwritable-in-torch", "-o", str(target)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "IRS368" in said and "(nn.thresholded_relu) cannot be written as an exported program" in said
    assert not target.exists()


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out.pt2").symlink_to(tmp_path / "precious")
    assert main(["export", str(SAMPLE), "--passes", "dce", "-o", str(tmp_path / "out.pt2")]) == 2
    assert (tmp_path / "precious").read_text() == "mine"


def _tensors(found: Any) -> list[Any]:
    return [tensor for part in found for tensor in _tensors(part)] if isinstance(found, tuple | list) else [found]


@pytest.mark.parametrize("name", ["cnn", "mlp", "attention", "lm", "lstm"])
@pytest.mark.parametrize("passes", ["", "fold-batch-norm,fold{weights},dce"])
def test_models_that_people_bring_compute_the_same(tmp_path: Path, name: str, passes: str) -> None:
    import torch

    from tests.tools.torch_files.helpers import save_exported
    from tests.tools.torch_files.models import SAMPLES

    sample = SAMPLES[name]
    path = save_exported(tmp_path / "model.pt2", sample.model(), sample.inputs(), sample.dynamic)
    _rewrite(path, passes, tmp_path / "again.pt2")
    inputs = sample.inputs()
    with torch.no_grad():
        before, after = (_tensors(torch.export.load(one).module()(*inputs)) for one in (path, tmp_path / "again.pt2"))
    exact = {"rtol": 0, "atol": 0} if not passes else {"rtol": 1e-4, "atol": 1e-5}
    for mine, theirs in zip(after, before, strict=True):
        torch.testing.assert_close(mine, theirs, **exact)


@pytest.mark.ort
@pytest.mark.parametrize("name", ["attention", "lm", "lstm"])
def test_their_onnx_files_compute_the_same(tmp_path: Path, name: str) -> None:
    import numpy as np
    import onnx
    import onnxruntime as ort
    import torch

    from tests.tools.torch_files.models import SAMPLES

    sample, path, target = SAMPLES[name], tmp_path / "model.onnx", tmp_path / "folded.onnx"
    inputs = sample.inputs()
    torch.onnx.export(sample.model().eval(), inputs, path, dynamo=False, opset_version=17)
    before, after = _rewrite(path, "fold{weights},cleanup", target).nodes
    assert after < before
    onnx.checker.check_model(str(target), full_check=True)
    results = []
    for one in (path, target):
        session = ort.InferenceSession(one, providers=["CPUExecutionProvider"])
        results.append(session.run(None, {info.name: value.numpy() for info, value in zip(session.get_inputs(), inputs, strict=True)}))
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
