"""The example in docs/reports.md runs, and what the page lists is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from irscope.report import Kind, RenderOptions, Report, renderer
from tests.unit.report import examples

PAGE = (Path(__file__).parents[3] / "docs" / "reports.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    found = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert found
    names: dict[str, object] = {}
    exec(found[1], names)
    report = names["report"]
    assert isinstance(report, Report)
    shown = "".join(renderer("text")(examples.document(report), RenderOptions()))
    assert "~8.13 MiB  cuBLAS" in shown
    assert "122.11 MFLOPs" in shown


def test_every_kind_is_listed() -> None:
    found = re.search(r"Kinds: `(.*?)`", PAGE)
    assert found
    assert found[1].split() == [kind.value for kind in Kind]
