"""Passes and operators of installed packages: found by entry point, named when two claim one name, skipped when broken."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint

import pytest

from irscope.errors import UsageError
from irscope.ops.registry import OpRegistry
from irscope.ops.spec import Absent, Family, op
from irscope.passkit.pipeline import parse_pipeline
from irscope.passkit.registry import PassEntry, PassRegistry
from tests.unit.passkit.helpers import Count

HERE = "tests.unit.passkit"
PLUGIN_OPS = (op("vendor.magic(Tensor x) -> Tensor", Family.ELEMENTWISE, infer=Absent.UNKNOWN, cost=Absent.UNKNOWN, summary="Magic."),)


def installed(monkeypatch: pytest.MonkeyPatch, group: str, **targets: str) -> None:
    """Pretend that packages offer these entry points."""
    points = [EntryPoint(name.replace("_", "-"), target, group) for name, target in targets.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: [p for p in points if p.group == group])


def test_a_pass_of_a_plugin_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "irscope.passes", my_count=f"{HERE}.helpers:Count")
    registry = PassRegistry({}, {})
    assert registry.names() == ["my-count"]
    assert parse_pipeline("my-count{limit=3}", registry) == (Count(limit=3),)


def test_a_name_claimed_twice_is_an_error_that_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "irscope.passes", count=f"{HERE}.helpers:Count")
    registry = PassRegistry({"count": PassEntry(f"{HERE}.helpers:Count", "")}, {})
    with pytest.raises(UsageError, match="both irscope and") as caught:
        registry.names()
    assert caught.value.code == "IRS602"


def test_a_plugin_that_cannot_import_fails_only_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "irscope.passes", broken="no_such_module:Pass", fine=f"{HERE}.helpers:Count")
    registry = PassRegistry({}, {})
    assert registry.names() == ["broken", "fine"]
    assert registry.find("fine") is Count
    with pytest.raises(UsageError, match="cannot be imported: ModuleNotFoundError") as caught:
        registry.find("broken")
    assert caught.value.code == "IRS101"


def test_what_is_no_pass_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "irscope.passes", odd=f"{HERE}.helpers:chain")
    with pytest.raises(UsageError, match="is not a pass"):
        PassRegistry({}, {}).find("odd")


def test_operators_of_plugins_are_found_and_broken_ones_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "irscope.ops", good=f"{HERE}.test_plugins:PLUGIN_OPS", broken="no_such_module:OPS")
    registry = OpRegistry()
    found = registry.get("vendor.magic")
    assert found is not None and found.summary == "Magic."
    assert [problem.code for problem in registry.problems] == ["IRS101"]


def test_an_operator_claimed_twice_is_an_error() -> None:
    registry = OpRegistry()
    registry.register(PLUGIN_OPS, "first")
    with pytest.raises(UsageError, match="both first and second"):
        registry.register(PLUGIN_OPS, "second")


def test_a_plugin_may_replace_a_rule() -> None:
    registry = OpRegistry()
    registry.register(PLUGIN_OPS, "first")
    registry.extend("vendor.magic", summary="Better magic.")
    found = registry.get("vendor.magic")
    assert found is not None and found.summary == "Better magic."
    with pytest.raises(UsageError, match=r"no operator .vendor\.other."):
        registry.extend("vendor.other", summary="")
