"""Shape arithmetic in floats: what stays a formula is what the floats really are, and nothing else stays one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto, helper

from irscope.frontends.onnx import load_model
from irscope.ir.dims import SymDim, bind, symbol
from irscope.ops import reals
from irscope.ops.reals import Real
from irscope.passes.inference.engine import Inferred
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.manager import Manager
from tests.frontends.onnx.build import FLOAT, INT64, model, value
from tests.tables import every

SINGLE = 24
SIZES = (1, 2, 3, 7, 48, 49, 640, 1000, 65_537, 9_999_991, 2**24 - 1, 2**24)
H = symbol("h")


def at(real: Real, size: int) -> float:
    """The number for one size, as the nearest 32-bit float."""
    over, under = bind(real.over, {"h": size}), bind(real.under, {"h": size})
    assert isinstance(over, int) and isinstance(under, int)
    return float(np.float32(over) / np.float32(under))


@every("number", [2, 3, 7, 10, 32, 0.5, 0.25, 1.5, 2.5, 48])
@every("rounding", [reals.floor, reals.ceil, reals.trunc])
def test_quotients_round_as_floats_do(number: float, rounding: Callable[[Real, int], Real]) -> None:
    on_arrays = {reals.floor: np.floor, reals.ceil: np.ceil, reals.trunc: np.trunc}[rounding]
    made = rounding(reals.divide(reals.real_of(H, SINGLE), reals.real_of(number, SINGLE), SINGLE), SINGLE)
    assert made.is_known and made.is_whole
    for size in SIZES:
        if all(bind(dim, {"h": size}) <= limit for dim, limit in made.limits):  # type: ignore[operator]  # numbers after binding
            assert at(made, size) == on_arrays(np.float32(size) / np.float32(number)), size


@pytest.mark.parametrize("number", [0.3, 0.1, 1 / 3, 0.7])
def test_products_with_rounded_numbers_are_not_formulas(number: float) -> None:
    made = reals.multiply(reals.real_of(H, SINGLE), reals.real_of(float(np.float32(number)), SINGLE), SINGLE)
    assert not made.is_known
    assert made.sizes == (H,)


def test_what_a_short_float_cannot_hold_is_not_a_formula() -> None:
    assert not reals.real_of(H, 11).is_known
    assert reals.real_of(symbol("few", 1, 2048), 11).is_known
    assert not reals.real_of(symbol("many", 2**24 + 1), SINGLE).is_known


def test_no_product_of_many_sizes_is_taken_to_be_small() -> None:
    assert reals.real_of(H * symbol("w"), SINGLE).is_known
    assert not reals.real_of(H * symbol("w") * symbol("c"), SINGLE).is_known


def test_a_number_without_a_limit_says_up_to_where_it_holds() -> None:
    doubled = reals.multiply(reals.real_of(H, SINGLE), Real(2), SINGLE)
    assert doubled.limits == {(2 * H, 2**24)}
    assert reals.real_of(symbol("few", 1, 2048), SINGLE).limits == frozenset()
    assert reals.real_of(H, 53).limits == frozenset()


def test_a_rounded_quotient_times_its_divisor_is_not_the_dividend() -> None:
    third = reals.divide(reals.real_of(H, SINGLE), Real(3), SINGLE)
    assert not reals.multiply(third, Real(3), SINGLE).is_known
    assert str(reals.multiply(third, Real(2), SINGLE)) == "(2*h)/(3)"
    assert not reals.converted(reals.divide(reals.real_of(H, 53), Real(3), 53), 53, SINGLE).is_known


def test_comparisons_with_whole_numbers_survive_rounding() -> None:
    third = reals.divide(Real(symbol("few", 10, 100)), Real(3), SINGLE)
    assert reals.is_less(third, Real(3)) is False
    assert reals.is_less_equal(third, Real(34)) is True
    assert reals.is_less(third, Real(7, 2)) is None


# -- in graphs ---------------------------------------------------------------------------------------------------


def node(op: str, inputs: str, outputs: str, **attributes: object) -> object:
    return helper.make_node(op, ["" if name == "_" else name for name in inputs.split()], outputs.split(), **attributes)


def found(nodes: list[object], *constants: tuple[str, list[float], list[int]], outputs: str = "y") -> tuple[Inferred, str]:
    weights = [helper.make_tensor(name, FLOAT, shape, numbers) for name, numbers, shape in constants]
    weights += [helper.make_tensor("two", INT64, [], [2]), helper.make_tensor("axis", INT64, [1], [0])]
    program = load_model(model(nodes, [value("x", [1, 3, "h", "w"])], outputs=[outputs], initializers=weights))
    inferred = Manager(program).get(Shapes())
    assert not inferred.problems
    return inferred, str(inferred.type_of(program.graph.outputs[0]))


SIZE = [node("Shape", "x", "s"), node("Gather", "s two", "height", axis=0), node("Cast", "height", "real", to=TensorProto.FLOAT)]


def test_range_over_a_cast_quotient() -> None:
    """As detectors make the centres of their cells."""
    nodes = [*SIZE, node("Div", "real eight", "rows"), node("Range", "zero rows one", "y")]
    inferred, type_ = found(nodes, ("eight", [8.0], []), ("zero", [0.0], []), ("one", [1.0], []))
    assert type_ == "f32[(h + 7)//8]"
    assert [(str(assumption.left), assumption.right) for assumption in inferred.assumptions] == [("h", 2**24)]


@pytest.mark.parametrize(("scale", "want"), [(2.0, "2*h"), (0.5, "h//2"), (1.5, "h + h//2")])
def test_resize_to_a_floored_product(scale: float, want: str) -> None:
    nodes = [
        *SIZE,
        node("Mul", "real factor", "product"),
        node("Floor", "product", "floor"),
        node("Cast", "floor", "whole", to=TensorProto.INT64),
        node("Unsqueeze", "whole axis", "list"),
        node("ConstantOfShape", "list", "y"),
    ]
    assert found(nodes, ("factor", [scale], []))[1] == f"f32[{want}]"


def test_resize_by_a_scale_that_is_a_quotient_of_sizes() -> None:
    nodes = [
        *SIZE,
        node("Mul", "real factor", "product"),
        node("Div", "product real", "scale"),
        node("Unsqueeze", "scale axis", "list"),
        node("Concat", "ones list list", "scales", axis=0),
        node("Resize", "x _ scales", "y", mode="nearest"),
    ]
    assert found(nodes, ("factor", [2.0], []), ("ones", [1.0, 1.0], [2]))[1] == "f32[1,3,2*h,2*w]"


def test_a_scale_that_may_round_down_gives_limits() -> None:
    """floor(49 * (1 / 49)) is 0 in 32 bits: the quotient of another size is not sure to give that size back."""
    nodes = [
        *SIZE,
        node("Div", "wanted real", "scale"),
        node("Unsqueeze", "scale axis", "list"),
        node("Concat", "ones list last", "scales", axis=0),
        node("Resize", "x _ scales", "y", mode="nearest"),
    ]
    inferred, _ = found(nodes, ("wanted", [20.0], []), ("ones", [1.0, 1.0], [2]), ("last", [1.0], [1]))
    resized = next(type_ for value, type_ in inferred.types.items() if value.name == "y")
    assert resized.shape is not None
    rows = resized.shape[2]
    assert isinstance(rows, SymDim) and rows.bounds == (19, 20)
