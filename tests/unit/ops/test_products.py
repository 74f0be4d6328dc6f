"""Costs and shapes of less common products, against multiply-adds by hand."""

from __future__ import annotations

import itertools

import pytest

from irscope.ir.parser import parse_program
from irscope.passes.cost.flops import Flops
from irscope.passes.shapes import Shapes
from irscope.passkit.manager import Manager


def macs_and_shape(body: str, *inputs: str) -> tuple[object, str]:
    declared = "\n".join(f"  input %{name}: f32[{shape}]" for name, shape in zip("abcd", inputs, strict=False))
    program = parse_program(f"irscope 1\ngraph @main {{\n{declared}\n  %y: f32[*] = {body}\n  return %y\n}}\n")
    manager = Manager(program)
    return manager.get(Flops()).total.macs, str(manager.get(Shapes()).type_of(program.graph.outputs[0]))


@pytest.mark.parametrize(
    ("body", "inputs", "macs", "shape"),
    [
        ("math.inner(%a, %b)", ("3,5", "4,2,5"), 3 * 4 * 2 * 5, "f32[3,4,2]"),
        ("math.inner(%a, %b)", ("", "4"), 0, "f32[4]"),
        ("math.vecdot(%a, %b)", ("3,5", "2,1,5"), 2 * 3 * 5, "f32[2,3]"),
        ("math.vecdot(%a, %b) {axis=0}", ("3,5", "3,5"), 15, "f32[5]"),
        ("math.addr(%a, %b, %c)", ("3,4", "3", "4"), 12, "f32[3,4]"),
        ("linalg.matrix_power(%a) {exponent=5}", ("2,6,6",), 2 * 3 * 216, "f32[2,6,6]"),
        ("linalg.matrix_power(%a) {exponent=1}", ("6,6",), 0, "f32[6,6]"),
        ("linalg.pdist(%a)", ("6,5",), 0, "f32[15]"),
        ("math.chain_matmul(%a, %b)", ("5", "5,7"), 35, "f32[7]"),
        ("math.chain_matmul(%a, %b)", ("n,5", "5,7"), "35*n", "f32[n,7]"),
    ],
)
def test_products(body: str, inputs: tuple[str, ...], macs: object, shape: str) -> None:
    found, type_ = macs_and_shape(body, *inputs)
    assert (found if isinstance(found, int) else str(found), type_) == (macs, shape)


def cheapest(ends: tuple[int, ...]) -> int:
    """Every order tried."""
    if len(ends) <= 2:
        return 0
    return min(cheapest(ends[: cut + 1]) + cheapest(ends[cut:]) + ends[0] * ends[cut] * ends[-1] for cut in range(1, len(ends) - 1))


@pytest.mark.parametrize("ends", list(itertools.permutations((2, 3, 10, 50, 7)))[::7])
def test_a_chain_takes_the_cheapest_order(ends: tuple[int, ...]) -> None:
    found, _ = macs_and_shape("math.chain_matmul(%a, %b, %c, %d)", *(f"{left},{right}" for left, right in itertools.pairwise(ends)))
    assert found == cheapest(ends)
