"""Operators that irscope does not have: what their records say is all that passes need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from irscope.ir.parser import parse_program
from irscope.ir.program import TORCHSCRIPT
from irscope.ops import layouts
from irscope.ops.cost import FREE, Cost
from irscope.ops.facts import Control, Factors, FusedAttention, OpRole
from irscope.ops.registry import default_registry
from irscope.ops.rules import free
from irscope.ops.sequence import handed_on
from irscope.ops.spec import Absent, Family, op
from irscope.passes.graph.alias import Alias
from irscope.passes.inference.shapes import Shapes
from irscope.passes.patterns.arch import Arch
from irscope.passkit.manager import Manager

TOYS = (
    op(
        "toy.swap(Tensor(a) x) -> Tensor(a)",
        Family.VIEW,
        infer=lambda call: call.tensor("x").with_shape(reversed(call.shape("x") or ())),
        cost=free,
        summary="All axes the other way round, as a view.",
        strides=layouts.permuted,
        roles=frozenset({OpRole.TRANSPOSE}),
    ),
    op(
        "toy.product(Tensor a, Tensor b) -> Tensor",
        Family.CONTRACTION,
        infer=lambda call: call.tensor("a").with_shape((*(call.shape("a") or ())[:-1], (call.shape("b") or ())[-1])),
        cost=lambda call: Cost(matmul=2),
        summary="A matrix product.",
        factors=Factors(over_first=True),
    ),
    op(
        "toy.weights(Tensor x) -> Tensor",
        Family.SOFTMAX,
        infer=lambda call: call.tensor("x"),
        cost=lambda call: FREE,
        summary="Weights of scores.",
        roles=frozenset({OpRole.SOFTMAX}),
    ),
    op(
        "toy.attend(Tensor q, Tensor k, Tensor v) -> Tensor",
        Family.ATTENTION,
        infer=lambda call: call.tensor("q"),
        cost=lambda call: Cost(matmul=2),
        summary="A whole attention.",
        attention=FusedAttention(is_causal=True),
    ),
    op(
        "toy.either(Tensor condition) -> Tensor[]",
        Family.CONTROL,
        infer=Absent.CONTROL,
        cost=Absent.CONTROL,
        summary="One of two regions.",
        control=Control.BRANCH,
    ),
    op(
        "toy.pass(Tensor(a) x) -> Tensor(a)",
        Family.SEQUENCE,
        infer=lambda call: call.types[0] or (),
        cost=free,
        summary="A list as it is.",
        items=handed_on,
    ),
)


@pytest.fixture(autouse=True)
def toys() -> Iterator[None]:
    registry = default_registry()
    registry.register(TOYS, "this test")
    yield
    for spec in TOYS:
        del registry._specs[spec.name], registry._owner[spec.name]


def manager(body: str, inputs: str = "input %x: f32[2,3,4]") -> Manager:
    return Manager(parse_program(f"irscope 1\ngraph @main {{\n  {inputs}\n{body}\n}}\n"))


def test_strides_are_followed() -> None:
    found = manager("  %a: f32[2,3,4] = nn.relu(%x)\n  %s: f32[4,3,2] = toy.swap(%a)\n  %y: f32[24] = view.flatten(%s)\n  return %y")
    found.program.traits = TORCHSCRIPT
    aliases = found.get(Alias())
    swapped, flat = (node.outputs[0] for node in list(found.program.graph)[1:])
    assert aliases.strides.type_of(swapped).layout == (1, 4, 12)
    assert aliases.storage(flat) is flat, "what lies the other way round is copied"


@pytest.mark.parametrize(
    ("body", "family"),
    [
        (
            "%s: f32[2,3,3] = toy.product(%q, %k)\n%p: f32[2,3,3] = toy.weights(%s)\n%y: f32[2,3,4] = toy.product(%p, %v)\nreturn %y",
            "decomposed attention",
        ),
        ("  %y: f32[2,3,4] = toy.attend(%q, %v, %v)\n  return %y", "causal"),
    ],
)
def test_patterns_are_found(body: str, family: str) -> None:
    found = manager(body, "input %q: f32[2,3,4]\n  input %k: f32[2,4,3]\n  input %v: f32[2,3,4]").get(Arch())
    assert family in found.verdict.traits


def test_control_flow_is_followed() -> None:
    body = """  %y: ? = toy.either(%c)
  region then {
    return %x
  }
  region else {
    return %x
  }
  return %y"""
    found = manager(body, "input %c: bool[]\n  input %x: f32[5]")
    assert found.get(Shapes()).type_of(found.program.graph.outputs[0]).shape == (5,)


def test_lists_are_handed_on() -> None:
    found = manager(
        "  %l: ? = seq.construct(%x, %x)\n  %m: ? = toy.pass(%l)\n  %n: i64[] = seq.length(%m)\n  return %n",
    )
    assert int(found.get(Shapes()).values[found.program.graph.outputs[0]]) == 2
