"""The figures of the house do not grow: each stays below the ceiling that docs/architecture.md gives it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tools import house, mutations


def ceilings(root: Path) -> dict[str, int]:
    """Return the second column of figures in the table of the layout."""
    text = (root / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| [\d,]+ \| ([\d,]+) \| [\d,]* \|$", text, re.MULTILINE)
    return {name: int(most.replace(",", "")) for name, most in rows}


@pytest.mark.slow
def test_no_figure_of_the_house_is_above_its_ceiling(root: Path) -> None:
    most = ceilings(root)
    now = {name: (value, behind) for name, value, _, behind in house.figures()}
    assert most.keys() == now.keys()
    above = {name: (value, most[name], *behind) for name, (value, behind) in now.items() if value > most[name]}
    assert above == {}, "make it smaller, or raise the ceiling with a sentence that says why (docs/architecture.md, the layout in figures)"


def test_the_count_of_mutants_finds_the_tests_of_a_module() -> None:
    mutant = next(place for place in mutations._places("irscope.amounts") if place.kind == "comparison")
    assert "tests/unit/test_files.py" in mutations.concerned(mutant)
