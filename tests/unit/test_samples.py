"""The samples of the documentation are what they say they are."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from irscope.frontends.base import LoadOptions
from irscope.passes.liveness import Liveness
from irscope.session import open_model

SAMPLES = Path(__file__).parents[2] / "samples"
TAGGER = SAMPLES / "tagger.irs"


def run(script: str, *arguments: str) -> int:
    """Run a sample as a program; its exit code."""
    before = sys.argv
    sys.argv = [script, *arguments]
    try:
        with pytest.raises(SystemExit) as stopped:
            runpy.run_path(str(SAMPLES / script), run_name="__main__")
    finally:
        sys.argv = before
    code = stopped.value.code
    return code if isinstance(code, int) else 1


def test_which_batch_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("which_batch_fits.py", str(TAGGER), "rtx-3060", "h200") == 0
    small, large = capsys.readouterr().out.splitlines()
    assert small.startswith("rtx-3060") and large.startswith("h200")
    assert 0 < int(small.split()[2]) < int(large.split()[2]) == 4096


def test_which_batch_fits_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("which_batch_fits.py", str(TAGGER), "no-such-device") == 2
    assert "IRS420" in capsys.readouterr().err
    assert run("which_batch_fits.py") == 1


@pytest.mark.torch
def test_the_text_of_the_tagger_is_what_its_source_exports(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from tests.frontends.torch.helpers import save_exported

    made = runpy.run_path(str(SAMPLES / "tagger.py"))["Tagger"]().eval()
    dynamic = ({0: torch.export.Dim("batch", max=4096)},)
    path = save_exported(tmp_path / "tagger.pt2", made, (torch.randn(2, 3, 224, 224),), dynamic=dynamic)
    for batch in (1, 5):
        exported, sample = (open_model(file, LoadOptions(bind={"batch": batch})).run([Liveness()])["liveness"] for file in (path, TAGGER))
        assert exported.value.peak == sample.value.peak and exported.value.alive == sample.value.alive
        for moment in ("before", "cold", "warm"):
            assert exported.report().summary[moment] == sample.report().summary[moment]
