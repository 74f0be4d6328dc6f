"""`--plot` of commands that read models: live tensors, times by node, and what cannot be drawn."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from irscope.cli.main import main
from irscope.errors import ExitCode
from tests.cli.test_bad_input import MODEL


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.irs"
    path.write_text(MODEL, encoding="utf-8")
    return str(path)


def words(path: Path) -> str:
    return " ".join(ElementTree.parse(path).getroot().itertext())


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_run_draws_the_live_tensors(model: str, tmp_path: Path, ending: str) -> None:
    if ending != "svg":
        pytest.importorskip("matplotlib")
    path = tmp_path / f"x.{ending}"
    assert main(["run", model, "--bind", "batch=8", "--plot", str(path)]) == ExitCode.OK
    assert path.stat().st_size > 1000
    if ending == "svg":
        text = words(path)
        assert all(word in text for word in ("activations alive", "output", "activation", "temporary", "peak ", "step"))


def test_run_says_what_has_no_curve(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.svg"
    assert main(["run", model, "--passes", "shapes", "--plot", str(path)]) == ExitCode.USAGE
    assert "IRS430" in capsys.readouterr().err and not path.exists()
    assert main(["run", model, "--plot", "x.gif"]) == ExitCode.USAGE


def test_compare_draws_least_times_of_two_models(model: str, tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    assert main(["compare", model, model, "--bind", "batch=8", "--bind-b", "batch=8000000", "--plot", str(path)]) == ExitCode.OK
    text = words(path)
    assert all(word in text for word in ("least time by node, where it differs", "A (modelled)", "B (modelled)", "A, peak", "B, peak"))


def test_record_and_compare_draw_times_by_node(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    source, recording = str(tmp_path / "net.pt2"), str(tmp_path / "net.jsonl")
    torch.export.save(torch.export.export(net, (torch.zeros(8, 16),)), source)
    drawn = tmp_path / "recorded.svg"
    assert main(["record", source, "-o", recording, "--trust", "--repeats", "2", "--warmup", "1", "--plot", str(drawn)]) == ExitCode.OK
    text = words(drawn)
    assert all(word in text for word in ("0: linear", "1: relu", "2: linear", "time by operator", "(measured)", "peak "))
    drawn = tmp_path / "compared.svg"
    assert main(["compare", source, recording, "--plot", str(drawn)]) == ExitCode.OK
    text = words(drawn)
    assert all(word in text for word in ("time by node", "(measured)", "predicted, peak", "measured, peak", "2: "))
