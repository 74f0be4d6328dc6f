"""The example in docs/reports.md runs, and what the page lists is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from irscope.report import Kind, RenderOptions, Report, Table, renderer
from tests.unit.report import examples

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")


def names_of(example: str) -> dict[str, object]:
    """What the example that contains this text defines."""
    names: dict[str, object] = {}
    exec(next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if example in block), names)
    return names


def test_the_lines_for_scripts_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    table = names_of("irscope.load")["table"]
    assert isinstance(table, Table) and table.to_dicts()
    assert "activation peak bytes" in capsys.readouterr().out


def test_the_example_runs() -> None:
    report = names_of("Largest")["report"]
    assert isinstance(report, Report)
    shown = "".join(renderer("text")(examples.document(report), RenderOptions()))
    assert "~8.13 MiB  cuBLAS" in shown
    assert "122.11 MFLOPs" in shown


def test_every_kind_is_listed() -> None:
    found = re.search(r"Kinds: `(.*?)`", PAGE)
    assert found
    assert found[1].split() == [kind.value for kind in Kind]
