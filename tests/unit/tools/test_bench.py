"""The benchmark's bookkeeping: suites are kept one by one, the page follows from what is kept, and changes are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as bench
from benchmarks import page
from benchmarks.measurement import Measurement


def found(seconds: float, ratio: float | None = None, loop: float = 0.1) -> dict[str, Any]:
    machine = {"python": "3.11.7", "processors": 2, "system": "Linux x86_64"}
    row = Measurement("a figure", seconds, "CPU s", "a peer" if ratio else "", ratio, 2.0)
    return {"machine": machine, "loop": loop, "rows": [list(row)], "notes": ["another peer is not installed"]}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bench, "RELEASES", tmp_path)
    monkeypatch.setattr(bench, "KEPT", tmp_path / "1.2.0.json")
    return tmp_path / "1.2.0.json"


def test_a_suite_is_kept_beside_the_others(kept: Path) -> None:
    bench.save("weights", found(1.0))
    bench.save("start", found(2.0))
    bench.save("weights", found(3.0))
    suites = json.loads(kept.read_text())["suites"]
    assert list(suites) == ["start", "weights"], "in the order of the page"
    assert suites["weights"]["rows"][0][1] == 3.0 and suites["start"]["rows"][0][1] == 2.0


def test_the_page_has_every_suite_and_is_of_the_newest_version(kept: Path) -> None:
    bench.save("ir", found(1.0, ratio=3.0))
    (kept.parent / "1.10.0.json").write_text(kept.read_text().replace('"a figure"', '"a newer figure"'))
    assert page.newest(kept.parent).name == "1.10.0.json"
    text = "\n".join(page._page(json.loads(kept.read_text())))
    assert "|a figure|1 CPU s|3 of a peer|at most 2 **missed**|" in text
    assert "* another peer is not installed" in text and "0.100 CPU s" not in text, "the loop is for comparing files"
    assert text.count("Not measured yet.") == len(page.SUITES) - 1 == text.count("\n## ") - 1


def test_the_page_leaves_out_figures_without_a_goal_or_a_peer(kept: Path) -> None:
    alone, compared = Measurement("alone", 1.0, "CPU s"), Measurement("compared", 1.0, "CPU s", "a peer", 2.0)
    bench.save("ir", {**found(1.0), "rows": [list(alone), list(compared)]})
    text = "\n".join(page._page(json.loads(kept.read_text())))
    assert "|compared|1 CPU s|2 of a peer||" in text and "alone" not in text


def test_what_became_slower_is_named_by_ratio_or_by_the_loop() -> None:
    before = {"ir": found(1.0), "live": found(1.0, ratio=1.0), "start": found(1.0)}
    # The machine is half as fast: seconds that doubled say nothing, a ratio does.
    after = {"ir": found(2.0, loop=0.2), "live": found(2.0, ratio=1.5, loop=0.2), "weights": found(9.0)}
    *lines, last = bench.slower(after, before)
    assert last.startswith("1 of 2 figures") and "live: a figure" in lines[0] and "1.50 times slower" in lines[0]


def test_every_suite_has_a_heading_and_a_measure() -> None:
    for suite in page.SUITES:
        assert page.heading(suite) and "def measure(" in (Path(page.__file__).parent / f"{suite}.py").read_text()
