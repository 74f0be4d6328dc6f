"""The example of the documentation prints what is shown below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "memory-allocator.md"


def test_the_example_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    shown = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.S)
    assert shown is not None
    exec(compile(shown[1], PAGE.name, "exec"), {})
    assert capsys.readouterr().out == shown[2]
