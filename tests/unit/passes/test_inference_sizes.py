"""What the sizes of one tensor say about numbers elsewhere: a size of an axis is never negative."""

from __future__ import annotations

import pytest
from onnx import parser

from irscope.frontends.onnx import load_model
from irscope.passes.shapes import Shapes
from irscope.passkit.manager import Manager

_COUNT = """
    size = Shape <start = 2, end = 3> (x)
    five = Constant <value_ints = [5]> ()
    one = Constant <value_ints = [1]> ()
    fifth = Div (size, five)
    count = Sub (fifth, one)
"""
_CONV = "windows = Conv <kernel_shape = [10], strides = [5]> (x, w)"


def shape_of(result: str, body: str) -> str:
    """The type that is inferred for a value, with symbols for the sizes of the inputs."""
    inputs = "float[batch, 1, n] x, float[4, 1, 10] w, bool taken, float[m] z"
    program = load_model(
        parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({result}) {{ {body} }}').SerializeToString()
    )
    return str(Manager(program).get(Shapes()).type_of(program.graph.outputs[0]))


def test_a_number_that_is_a_size_elsewhere_is_no_placeholder() -> None:
    reshape = "batch = Shape <start = 0, end = 1> (x) four = Constant <value_ints = [4]> () s = Concat <axis = 0> (batch, four, count)"
    assert shape_of("y", f"{_COUNT} {_CONV} {reshape} y = Reshape (windows, s)") == "f32[batch,4,n//5 - 1]"


def test_a_cut_to_the_size_keeps_it() -> None:
    cut = "zero = Constant <value_ints = [0]> () axis = Constant <value_ints = [2]> () y = Slice (windows, zero, count, axis)"
    assert shape_of("y", f"{_COUNT} {_CONV} {cut}") == "f32[batch,4,n//5 - 1]"


@pytest.mark.parametrize("branch", ["then_branch", "else_branch"])
def test_sizes_in_a_branch_say_nothing_outside(branch: str) -> None:
    """The branch may not be taken, and then nothing keeps the number from being -1."""
    other = "else_branch" if branch == "then_branch" else "then_branch"
    inside = (
        f"{branch} = a () => (float[p, q, r] windows) {{ {_CONV} }}, {other} = b () => (float[p2, q2, r2] same) {{ same = Identity (x) }}"
    )
    body = f"{_COUNT} chosen = If (taken) <{inside}> s = Concat <axis = 0> (count, one) y = Reshape (z, s)"
    found = shape_of("y", body)
    assert "n//5" not in found
    assert "?" in found


def test_sizes_before_a_branch_hold_inside() -> None:
    branches = ("then_branch = a () => (float[p, q] kept)", "else_branch = b () => (float[p2, q2] kept)")
    inside = ", ".join(f"{branch} {{ kept = Reshape (z, s) }}" for branch in branches)
    body = f"{_COUNT} {_CONV} s = Concat <axis = 0> (count, one) y = If (taken) <{inside}>"
    assert shape_of("y", body) == "f32[n//5 - 1,1]"
