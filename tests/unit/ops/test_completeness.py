"""Every operator's record says everything, and every family is listed."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import textwrap
from pathlib import Path

import pytest

from irscope.ops.facts import Control, OpRole
from irscope.ops.registry import FAMILY_MODULES, default_registry
from irscope.ops.schema import AliasMark, parse_schema
from irscope.ops.spec import Absent, Facts, Family, OpSpec
from tests.tables import every

OPS_FOLDER = Path(__file__).parents[3] / "irscope" / "ops"
SPECS = list(default_registry())


def _modules_with_records() -> set[str]:
    return {path.stem for path in OPS_FOLDER.glob("*.py") if "\nOPS" in path.read_text(encoding="utf-8")}


def test_every_module_with_records_is_listed() -> None:
    assert set(FAMILY_MODULES) == _modules_with_records()
    assert len(FAMILY_MODULES) == len(set(FAMILY_MODULES))


def test_no_record_is_lost_or_doubled() -> None:
    names = [spec.name for module in FAMILY_MODULES for spec in importlib.import_module(f"irscope.ops.{module}").OPS]
    assert sorted(names) == [spec.name for spec in SPECS]
    assert len(names) == len(set(names))


@every("spec", SPECS, ids=lambda spec: spec.name)
def test_record_is_complete(spec: OpSpec) -> None:
    assert callable(spec.infer) or isinstance(spec.infer, Absent)
    assert callable(spec.cost) or isinstance(spec.cost, Absent)
    assert isinstance(spec.family, Family)
    assert spec.summary.endswith(".")
    assert "\n" not in spec.summary
    assert parse_schema(spec.declared) == spec.schema and spec.name == spec.schema.name


@every("spec", SPECS, ids=lambda spec: spec.name)
def test_alias_marks_are_paired(spec: OpSpec) -> None:
    written = {param.alias for param in spec.schema.operands if param.mark is AliasMark.WRITES}
    given = {param.alias for param in spec.schema.operands if param.alias}
    shared = {param.alias for param in spec.schema.results if param.alias}
    assert shared <= given
    assert given - written <= shared
    may_share = any(rule.may for rule in spec.aliases)
    assert may_share == (spec.shares is not None), "a (a?) mark needs a rule that decides it"


def test_every_fact_of_a_record_is_stated_or_has_a_documented_default() -> None:
    """A record states a fact by keyword; one that says nothing gets the default that the field's docstring explains."""
    fields = {field.name: field for field in dataclasses.fields(OpSpec) if field.init}
    required = {name for name, field in fields.items() if field.default is dataclasses.MISSING}
    assert required == {"declared", "family", "infer", "cost"}
    assert set(Facts.__annotations__) < set(fields)
    docs = _docstrings_of_fields(OpSpec)
    undocumented = {name for name in fields if name not in docs}
    assert not undocumented


def _docstrings_of_fields(cls: type) -> set[str]:
    """Fields that a text stands behind."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id
        for field, text in itertools.pairwise(tree.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr)
    }


@every("spec", [spec for spec in SPECS if spec.family is Family.VIEW], ids=lambda spec: spec.name)
def test_a_view_says_which_strides_it_makes(spec: OpSpec) -> None:
    assert spec.strides is not None


def test_what_runs_bodies_says_how() -> None:
    """An operator whose types the passes carry through regions says which kind of control flow it is, and only such a one."""
    assert {spec.name for spec in SPECS if spec.infer is Absent.CONTROL} == {spec.name for spec in SPECS if spec.control is not None}
    assert {spec.control for spec in SPECS} == {None, *Control}


def test_what_makes_or_reads_lists_says_what_becomes_of_the_elements() -> None:
    lists = {spec.name for spec in SPECS if spec.name.startswith("seq.")}
    assert lists == {spec.name for spec in SPECS if spec.items is not None and spec.name.startswith("seq.")}


def test_every_role_is_played() -> None:
    assert {role for spec in SPECS for role in spec.roles} == set(OpRole)


@every("spec", [spec for spec in SPECS if spec.factors or spec.attention], ids=lambda spec: spec.name)
def test_operands_of_patterns_exist(spec: OpSpec) -> None:
    places = [spec.factors.left, spec.factors.right] if spec.factors else []
    if spec.attention:
        places += [spec.attention.query, spec.attention.key, spec.attention.mask or 0]
    assert max(places) < len(spec.schema.operands) or spec.schema.operands[-1].variadic


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.codes], ids=lambda spec: spec.name)
def test_operands_of_quantized_weights_exist(spec: OpSpec) -> None:
    assert spec.codes is not None
    names = [spec.schema.operands[place].name for place in (spec.codes.weight, spec.codes.scale, spec.codes.zero)]
    assert "scale" in names[1] and "zero" in names[2], names


@every("spec", SPECS, ids=lambda spec: spec.name)
def test_what_takes_values_without_operands_says_so(spec: OpSpec) -> None:
    if spec.evaluate is not None and not spec.schema.operands:
        assert not spec.needs_values
