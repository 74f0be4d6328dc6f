"""`--plot` on every command whose answer has a curve, and the same curves on its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from irscope.cli.main import main
from tests.forked import irscope

SAMPLES = Path(__file__).parents[2] / "samples"
MLP = str(SAMPLES / "mlp.irs")


def drawn(tmp_path: Path, *arguments: str) -> tuple[str, str]:
    """The picture that a command draws, and its page."""
    picture, page = tmp_path / "picture.svg", tmp_path / "page.html"
    assert main([*arguments, "--plot", str(picture), "--format", "html", "-o", str(page)]) == 0
    return picture.read_text(encoding="utf-8"), page.read_text(encoding="utf-8")


def titles(svg: str) -> list[str]:
    return re.findall(r'<text class="title"[^>]*>([^<]*)</text>', svg)


def test_fit_draws_the_peak_by_size_and_the_memory_that_there_is(tmp_path: Path) -> None:
    svg, page = drawn(tmp_path, "fit", "--memory", "64MiB", MLP)
    assert titles(svg)[0].endswith("mlp.irs")
    for picture in (svg, page):
        assert 'class="limit"' in picture and "memory: 64.00 MiB" in picture and "the largest that fits:" in picture


def test_fit_of_two_sizes_draws_one_by_the_other(tmp_path: Path) -> None:
    model = tmp_path / "two.irs"
    model.write_text("irscope 1\nsymbol batch [1,*]\nsymbol seq [1,8]\ngraph @main {\n  input %x: f32[batch,seq,64]\n"
                     "  %y: ?[*] = nn.relu(%x) {inplace=0}\n  return %y\n}\n")  # fmt: skip
    svg, page = drawn(tmp_path, "fit", "--memory", "1MiB", "--free", "batch,seq", str(model))
    assert "largest batch by seq" in svg and "largest batch that fits" in page


def test_a_run_draws_memory_over_its_steps(tmp_path: Path) -> None:
    svg, page = drawn(tmp_path, "run", "--passes", "liveness", "--bind", "batch=8", MLP)
    assert any("memory" in title for title in titles(svg))
    assert ('class="parts"' in page and "step 1, hidden" in page) or "step 0, hidden" in page


def test_a_sweep_draws_each_quantity(tmp_path: Path) -> None:
    svg, _ = drawn(tmp_path, "sweep", "--over", "batch=1,2,4,8", MLP)
    assert titles(svg)[1:] == ["tensor peak", "FLOPs", "bytes moved", "time (modelled)", "throughput (modelled)"]


def test_a_comparison_draws_both_and_where_times_differ(tmp_path: Path) -> None:
    svg, page = drawn(tmp_path, "compare", "--bind", "batch=8", MLP, MLP)
    assert "bytes alive over the nodes of both, in order" in titles(svg)
    assert "least time by node, the same in both" in svg and "least time by node, the same in both" in page


@pytest.mark.torch
def test_counters_are_bars_beside_each_other(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    svg, page = drawn(tmp_path, "compare-flops", "--against", "torch", str(SAMPLES / "models" / "net.pt2"))
    assert "FLOPs by counter" in titles(svg) and 'class="bars"' in page


@pytest.mark.torch
def test_a_simulated_program_draws_its_memory(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nmodel = torch.nn.Linear(512, 512).cuda()\nopt = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(2):\n    model(torch.randn(64, 512, device='cuda')).sum().backward()\n    opt.step()\n    opt.zero_grad()\n"
    )
    picture, page = tmp_path / "picture.svg", tmp_path / "page.html"
    line = ["simulate", "--device", "l4", "--format", "html", "-o", str(page), "--plot", str(picture), str(script)]
    assert irscope(*line, folder=tmp_path).returncode == 0
    assert "memory requested, by category" in picture.read_text(encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert f"<h1>{script} on NVIDIA L4" in text
    assert "train.py:5" in text and "memory of NVIDIA L4" in text and "▼ step 1" in text


def test_what_has_no_curve_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--passes", "params", "--plot", str(tmp_path / "x.svg"), MLP]) == 2
    assert "no report has a curve to draw" in capsys.readouterr().err
    assert main(["fit", "--plot", str(tmp_path / "x.gif"), "no-such-file"]) == 2
    assert "cannot be drawn as a picture" in capsys.readouterr().err
