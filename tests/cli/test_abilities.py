"""`irscope doctor` tries what the installed torch lets irscope do."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from irscope.cli import doctor
from irscope.cli.doctor import Ability, Entry, lacking, tried


def internals() -> Any:
    return importlib.import_module("irscope.frontends.eager.internals")


@pytest.mark.slow
@pytest.mark.torch
def test_every_ability_works_with_the_torch_of_the_tests() -> None:
    pytest.importorskip("torch")
    found, entries = tried()
    assert [(one.name, one.problem) for one in found] == [(name, "") for name in doctor._TRIALS]
    assert [entry.name for entry in entries if entry.here and not entry.problem] == list(internals().ENTRIES)


def test_an_ability_that_is_lacking_is_a_finding_with_its_reason() -> None:
    findings = lacking([Ability("simulate", "programs", ""), Ability("compile", "compiled programs", "AttributeError: gone")], [], "2.99")
    assert [finding.problem for finding in findings] == ["with torch 2.99 compile does not work (compiled programs): AttributeError: gone"]


def test_a_part_of_torch_that_is_missing_is_a_finding_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    module = internals()
    monkeypatch.setattr(module, "_DENSE", ("is_gone", "is_gone_too"))
    rows = [Entry(*row) for row in doctor._entries()]
    (found,) = lacking([], rows, "2.99")
    assert found.problem.startswith("torch 2.99 differs inside from those that are known (dense tensors): ")
    assert found.problem.endswith("torch._prims_common has no is_gone or is_gone_too")


def test_a_process_that_dies_leaves_every_ability_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "python", lambda arguments: abilities_python(["-c", "import os; os.abort()"]))
    found = tried()[0]
    assert all("not known" in one.problem and one.works == "?" for one in found)
    (finding,) = lacking(found, [], "2.99")  # once, and not as what does not work
    assert finding.problem.startswith("what works with torch 2.99 is not known: its process was ended by SIGABRT")


abilities_python = doctor.python
