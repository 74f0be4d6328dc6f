"""`irscope train-plan` with a script of the user's, and with files that hold forward and backward."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from irscope.cli.main import main
from irscope.errors import ExitCode
from irscope.frontends.base import LoadOptions
from irscope.passes.training.memory import trace_in
from irscope.passkit.settings import Settings
from irscope.report.picture import Panel, Style
from irscope.report.plot import write_plot
from irscope.solvers import worktime
from irscope.tools.capture import open_training
from irscope.training import StepSetup

# `irscope train-plan` with a script of the user's.

pytest.importorskip("torch")

SCRIPT = """
import torch
from torch import nn

def build():
    net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10))
    return net, (torch.zeros(16, 32),), lambda out: out.logsumexp(1).mean(), lambda p: torch.optim.AdamW(p, fused=True)

def trained(batch=8):
    net = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(6)])
    return net, torch.zeros(batch, 512), lambda out: out.sum(), torch.optim.AdamW

def looks(batch=8):
    class Looks(nn.Linear):
        def forward(self, x):
            return super().forward(x) * (2 if x.sum() > 0 else 1)
    return Looks(16384, 8), torch.zeros(batch, 16384)

def parsed():
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=64)
    width = parser.parse_args().width
    return nn.Linear(width, width), torch.zeros(2, width)

def empty():
    return 5

def blocks(batch=8):
    net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(6)], nn.Linear(64, 10))
    return net, torch.zeros(batch, 64)

def frozen():
    return nn.Linear(4, 4).requires_grad_(False), torch.zeros(2, 4)

def vector():
    return nn.Linear(4, 4), torch.zeros(2, 4), lambda out: out.sum(1)

def apart():
    return nn.Linear(4, 4), torch.zeros(2, 4), lambda out: out.detach().sum()

class InPlace(nn.Linear):
    def forward(self, x):
        y = super().forward(x).sigmoid()
        z = y * y
        y.add_(1)
        return z

def in_place():
    return InPlace(4, 4), torch.zeros(2, 4)

class Branch(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y * 2 if y.sum() > 0 else y

def branch():
    return Branch(4, 4), torch.zeros(2, 4)

def elsewhere():
    labels = torch.zeros(2, dtype=torch.long)
    return nn.Linear(4, 4), torch.zeros(2, 4), lambda scores: nn.functional.cross_entropy(scores, labels)

def no_optimizer():
    return nn.Linear(4, 4), torch.zeros(2, 4), None, lambda parameters: 3
no_target = lambda: (nn.Linear(4, 4), torch.zeros(2, 4), nn.MSELoss())
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def test_document_and_files(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes, kept, picture = (tmp_path / name for name in ("nodes.csv", "kept.csv", "memory.svg"))
    arguments = ["train-plan", f"{script}:build", "--format", "json", "--nodes-csv", str(nodes), "--activations-csv", str(kept)]
    assert main([*arguments, "--plot", str(picture)]) == ExitCode.OK
    reports = {load["pass"]: load for load in json.loads(capsys.readouterr().out)["reports"]}
    summary = reports["training"]["summary"]
    assert summary["optimizer"] == "AdamW" and summary["step_seconds"] > 0
    assert sum(summary["device_peak"].values()) == summary["steady_step"]["allocated"] == summary["device_peak_bytes"]
    assert reports["activations"]["summary"]["activations_count"] > 0
    assert nodes.read_text("utf-8").startswith("rank,node_name,") and kept.read_text("utf-8").startswith("activation_name,")
    assert picture.read_text("utf-8").startswith("<svg xmlns=")


@pytest.mark.slow
def test_scripts_search_over_batches() -> None:
    import torch
    from torch import nn

    from irscope.tools.capture import capture_training
    from irscope.tools.train import sweep_batches

    net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(6)], nn.Linear(64, 10))
    captured: list[int] = []

    def capture(batch: int) -> Any:
        captured.append(batch)
        return capture_training(net, torch.zeros(batch, 64))

    batch_sweep = sweep_batches(capture, [8, 4], memory=48 << 20, seconds=0.3)
    (plans, peaks), summary = batch_sweep.report.tables, batch_sweep.report.summary
    assert list(batch_sweep.models) == [4, 8] and peaks.cells("batch") == [4, 8] and batch_sweep.model is batch_sweep.models[4]
    assert len(captured) == len(set(captured))
    most, recomputing = (summary[key].value for key in ("largest_batch", "largest_batch_recomputing"))  # type: ignore[attr-defined]
    assert 8 < most < recomputing and recomputing in plans.cells("batch")
    assert batch_sweep.report.headline == (f"batch {most:,} is the largest that fits 48.00 MiB, {recomputing:,} with recomputing",)


@pytest.mark.slow
def test_largest_batch_with_and_without_recomputing(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = 48 << 20
    arguments = ["train-plan", f"{script}:blocks", "--memory", str(memory), "--bind", "batch=4096", "--seconds", "0.3", "--format", "json"]
    assert main(arguments) == ExitCode.OK
    [report] = json.loads(capsys.readouterr().out)["reports"]
    found = report["summary"]
    kept = found["largest_batch"]
    assert found["largest_batch_reserved_bytes"] <= memory
    assert 0 < kept < found["largest_batch_recomputing"]
    assert found["recomputing_extra_seconds"] > 0
    # One sample more does not fit where everything is kept.
    assert main(["train-plan", f"{script}:blocks", "--batches", str(kept + 1), "--format", "json"]) == ExitCode.OK
    [report] = json.loads(capsys.readouterr().out)["reports"]
    [table] = report["tables"]
    assert table["rows"][0][[column["key"] for column in table["columns"]].index("reserved")] > memory


@pytest.mark.slow
def test_what_a_function_with_an_optimizer_fits_is_its_training(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--memory", "80MiB", "--format", "json"]
    assert main(["fit", f"{script}:trained", *asked]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "irscope.fit/1" and "AdamW" in found["of"]
    assert main(["fit", f"{script}:trained", *asked, "--inference"]) == ExitCode.OK
    forward = json.loads(capsys.readouterr().out)
    assert 0 < found["largest"] < forward["largest"] and found["does_not_fit"]["size"] == found["largest"] + 1
    # What train-plan says of the two sizes.
    sizes = f"{found['largest']},{found['largest'] + 1}"
    assert main(["train-plan", f"{script}:trained", "--batches", sizes, "--format", "json"]) == ExitCode.OK
    [report] = json.loads(capsys.readouterr().out)["reports"]
    keys = [column["key"] for column in report["tables"][0]["columns"]]
    at, seconds = keys.index("reserved"), keys.index("step_seconds")
    assert all(0 < row[seconds] < 1 for row in report["tables"][0]["rows"])
    fits, over = (row[at] for row in report["tables"][0]["rows"])
    assert fits == found["peak_bytes"] <= 80 << 20 < over == found["does_not_fit"]["peak_bytes"]
    assert main(["fit", f"{script}:blocks", *asked, "--optimizer", "adamw"]) == ExitCode.OK
    assert "AdamW" in json.loads(capsys.readouterr().out)["of"]
    assert main(["fit", f"{script}:trained", "--memory", "4MiB"]) == ExitCode.FINDINGS
    assert "does not fit" in capsys.readouterr().out
    assert main(["fit", f"{script}:trained", "--free", "batch,seq"]) == ExitCode.USAGE


def test_sizes_that_are_tried_keep_nothing_and_large_weights_have_no_values(script: Path) -> None:
    from irscope.tools.train import Captures

    def capture(batch: int) -> Any:
        return open_training(f"{script}:trained", LoadOptions(bind={"batch": batch}, use_cache=False), StepSetup(), Settings())

    live = trace_in(capture(4).program).live
    assert live is not None and all(value.is_meta for value in live.module.parameters() if value.dim() > 1)  # type: ignore[attr-defined]
    captures = Captures(capture)
    captures.needs(4)
    assert captures.memory(4).trace.live is None
    # A model that looks at a large input has its values.
    looks = open_training(f"{script}:looks", LoadOptions(use_cache=False), StepSetup(), Settings())
    assert not any(value.is_meta for value in trace_in(looks.program).live.module.parameters())  # type: ignore[union-attr]


def test_a_function_sees_no_arguments_of_irscopes_own(script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.argv", ["irscope", "fit", "--width", "8", "--memory", "2GiB"])
    assert main(["run", "--passes", "params", "--format", "json", f"{script}:parsed"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["reports"][0]["summary"]["count"] == 64 * 65


@pytest.mark.slow
def test_plan_for_the_live_module(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    import irscope

    path, picture = tmp_path / "plan.json", tmp_path / "curve.svg"
    arguments = ["train-plan", f"{script}:blocks", "--bind", "batch=4096", "--budget", "75%", "--seconds", "1", "--plan-out", str(path)]
    assert main([*arguments, "--format", "json", "--plot", str(picture), "--picture", "recompute"]) == ExitCode.OK
    reports = {load["pass"]: load["summary"] for load in json.loads(capsys.readouterr().out)["reports"]}
    plan = json.loads(path.read_text("utf-8"))
    assert reports["plan"]["budget_bytes"] == reports["checkpoint"]["budget_bytes"] == plan["step_budget_bytes"]
    assert plan["step_peak_bytes"] <= plan["step_budget_bytes"] and plan["regions"]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")

    space: dict[str, Any] = {}
    exec(SCRIPT, space)
    module, x = space["blocks"](64)
    x.normal_()
    module(x).square().mean().backward()
    wanted = [value.grad.clone() for value in module.parameters()]
    module.zero_grad()
    irscope.apply_checkpoints(module.train(), plan)
    module(x).square().mean().backward()
    assert all(torch.equal(value.grad, grad) for value, grad in zip(module.parameters(), wanted, strict=True))


def _words(path: Path) -> str:
    return " ".join(ElementTree.parse(path).getroot().itertext())


@pytest.mark.slow
def test_pictures_draw_every_series(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock that goes on by a millisecond whenever it is looked at: how far a search comes does not depend on how busy the machine is.
    monkeypatch.setattr(worktime, "time", SimpleNamespace(thread_time=count(0.0, 0.001).__next__))
    arguments = ["train-plan", f"{script}:blocks", "--bind", "batch=4096", "--passes", "training", "--seconds", "0.5"]
    wanted = {
        "memory": ("parameter", "gradient", "optimizer state", "activation", "temporary", "workspace", "peak", "backward", "MiB"),
        "categories": ("parameter", "activation", "together the peak of", "MiB"),
        "idle": ("0.0: ", "(modelled)", "byte-seconds", " us"),
        "recompute": ("plans found", "no plan is quicker", "knapsack", "minimum cuts", "everything kept:", "no plan needs less than"),
    }
    for picture, words in wanted.items():
        path = tmp_path / f"{picture}.svg"
        assert main([*arguments, "--picture", picture, "--plot", str(path)]) == ExitCode.OK
        text = _words(path)
        assert [word for word in words if word not in text] == []


@pytest.mark.slow
def test_pictures_of_several_batches_name_each(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from irscope.cli import args

    drawn: list[Panel] = []

    def watched(panels: list[Panel], path: Path, title: str) -> None:
        drawn[:] = panels
        write_plot(panels, path, title)

    monkeypatch.setattr(args, "write_plot", watched)
    arguments = ["train-plan", f"{script}:blocks", "--batches", "8,64", "--seconds", "0.3"]
    for picture in ("memory", "categories", "idle", "batch", "recompute"):
        path = tmp_path / f"{picture}.svg"
        assert main([*arguments, "--picture", picture, "--plot", str(path)]) == ExitCode.OK
        assert path.stat().st_size > 1000
        named = [*(panel.title for panel in drawn), *(curve.name for panel in drawn for curve in panel.curves)]
        if picture != "batch":
            assert all(any(name.startswith(f"batch {batch}") for name in named) for batch in (8, 64))
        else:
            assert named[1:] == ["requested", "allocated", "reserved"]
            assert {curve.style for curve in drawn[0].curves} == {Style.LINE}
            assert list(drawn[0].curves[0].xs) == [8, 64]
    assert main([*arguments, "--picture", "memory"]) == ExitCode.OK
    assert {"batch 8", "batch 64"} <= {*capsys.readouterr().out.splitlines()}
    assert main([*arguments, "--nodes-csv", str(tmp_path / "nodes.csv")]) == ExitCode.USAGE
    assert "IRS386" in capsys.readouterr().err


def test_picture_in_the_terminal(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["train-plan", f"{script}:blocks", "--bind", "batch=4096", "--passes", "training", "--seconds", "0.5"]
    assert main([*arguments, "--picture", "recompute"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert any(line.strip() == "extra" for line in lines[-10:]) and "peak" in lines[-1]
    assert main([*arguments, "--picture", "idle"]) == ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "code", "status"),
    [
        ("{}:frozen", "IRS374", ExitCode.LOAD),
        ("{}:vector", "IRS375", ExitCode.LOAD),
        ("{}:apart", "IRS376", ExitCode.LOAD),
        ("{}:in_place", "IRS377", ExitCode.LOAD),
        ("{}:branch", "IRS378", ExitCode.LOAD),
        ("{}:elsewhere", "as with labels.to(scores.device)", ExitCode.LOAD),
        ("{}:no_optimizer", "IRS373", ExitCode.USAGE),
        ("{}:no_target", "module MSELoss: the training step fails", ExitCode.LOAD),
        ("{}:blocks --budget 1KiB", "IRS390", ExitCode.USAGE),
        ("{}:blocks --budget 200%", "IRS393", ExitCode.USAGE),
        ("{}:blocks --budget much", "IRS336", ExitCode.USAGE),
        ("{}:blocks --plan-out plan.json", "IRS394", ExitCode.USAGE),
        ("{}:build --memory 1GiB", "IRS386", ExitCode.USAGE),
        ("{}:nothing", "IRS385", ExitCode.LOAD),
        ("{}:empty", "IRS385", ExitCode.LOAD),
        ("model.onnx", "IRS384", ExitCode.USAGE),
        ("model.pt2", "IRS384", ExitCode.USAGE),
        ("absent.py:build", "IRS385", ExitCode.LOAD),
    ],
)
def test_what_gives_no_step(script: Path, text: str, code: str, status: ExitCode, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train-plan", *text.format(script).split()]) == status
    said = capsys.readouterr().err
    assert code in said and len(said.strip().splitlines()) == 1
