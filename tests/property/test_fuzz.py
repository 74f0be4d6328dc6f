"""The fuzzer in short: every case that it ever found, and a few fresh mutants of each format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import FULL
from tests.tools.fuzz.check import examine
from tests.tools.fuzz.mutants import Seeds
from tests.tools.fuzz.seeds import FORMATS, ROOT, quick_seeds, seeds_of
from tests.tools.fuzz.shrink import Case, unpacked
from tests.tools.fuzz.worker import one

CORPUS = ROOT / "tests" / "data" / "fuzz" / "corpus.jsonl"
FRESH = 3000 if FULL else 25
pytestmark = pytest.mark.filterwarnings("ignore")


def cases() -> list[Case]:
    """Every case of the corpus."""
    return [Case(**json.loads(line)) for line in CORPUS.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(autouse=True)
def _out_of_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRSCOPE_CRASH_DIR", str(tmp_path))
    monkeypatch.setenv("IRSCOPE_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.format}: {case.why[:60]}")
def test_what_was_found_stays_mended(case: Case, tmp_path: Path) -> None:
    companion = str(ROOT / case.companion) if case.companion else ""
    if companion and not Path(companion).exists():
        pytest.skip("the sample needs torch")
    command = [word if not word.startswith("samples/") else str(ROOT / word) for word in case.command]
    outcome = examine(case.format, unpacked(case.files), command, companion, tmp_path, deep=case.deep)
    assert outcome.findings == []


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_fresh_mutants(format: str, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = seeds_of(format, tmp_path / "seeds") if FULL else quick_seeds(format)
    if not found:
        pytest.skip("the sample needs torch")
    seeds = Seeds(found)
    outcomes = [one(seeds, format, number, "kept back ", scratch)[-1] for number in range(FRESH)]
    assert [finding for outcome in outcomes for finding in outcome.findings] == []
    assert sum(outcome.loaded for outcome in outcomes) >= 0.6 * len(outcomes)
