"""No module grows past the size at which it should have become two."""

from __future__ import annotations

from pathlib import Path

import pytest

LIMIT = 1000


@pytest.mark.parametrize("folder", ["irscope", "frontends", "passes", "tui", "samples"])
def test_no_module_is_longer_than_the_limit(root: Path, folder: str) -> None:
    lengths = {str(file.relative_to(root)): len(file.read_text(encoding="utf-8").splitlines()) for file in (root / folder).rglob("*.py")}
    assert {name: length for name, length in lengths.items() if length > LIMIT} == {}
