"""`irscope doctor` tries what the installed torch lets irscope do."""

from __future__ import annotations

import pytest

from irscope.cli import abilities
from irscope.cli.abilities import Ability, tried
from irscope.cli.doctor import lacking


@pytest.mark.torch
def test_every_ability_works_with_the_torch_of_the_tests() -> None:
    pytest.importorskip("torch")
    assert [(one.name, one.problem) for one in tried()] == [(name, "") for name in abilities._TRIALS]


def test_an_ability_that_is_lacking_is_a_finding_with_its_reason() -> None:
    found = lacking([Ability("simulate", "programs", ""), Ability("compile", "compiled programs", "AttributeError: gone")], "2.99")
    assert [one.problem for one in found] == ["with torch 2.99 compile does not work (compiled programs): AttributeError: gone"]


def test_a_process_that_dies_leaves_every_ability_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "python", lambda arguments: abilities_python(["-c", "import os; os.abort()"]))
    assert all("not known" in one.problem for one in tried())


abilities_python = abilities.python
