"""Symbolic dimensions against plain integers: whatever a formula says must hold for every binding of its symbols."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from irscope.errors import UsageError
from irscope.ir.dims import (
    Dim,
    SymDim,
    bind,
    bounds,
    broadcast,
    ceildiv,
    dim_max,
    dim_min,
    equal,
    exact_div,
    floordiv,
    less,
    less_equal,
    mod,
    parse_dim,
    product,
    symbol,
    unknown,
)

many = settings(max_examples=max(200, settings().max_examples), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
"""At least 200 examples; 10,000 where conftest.py has loaded the full profile."""

Tree: TypeAlias = Any
"""A formula as nested tuples: an int, a name, or (operation, tree, ...)."""

LIMITS: dict[str, tuple[int | None, int | None]] = {
    "x": (1, None),
    "y": (1, None),
    "m": (0, 9),
    "z": (-5, 5),
    "low": (None, -1),
    "wild": (None, None),
    "?u": (0, None),
    "?w": (2, 30),
}
SYMBOLS: dict[str, SymDim] = {
    name: unknown(name, *limits) if name.startswith("?") else symbol(name, *limits) for name, limits in LIMITS.items()
}

BUILD: dict[str, Callable[[Dim, Dim], Dim]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": floordiv,
    "%": mod,
    "ceil": ceildiv,
    "max": dim_max,
    "min": dim_min,
}
COMPUTE: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "ceil": lambda a, b: -(-a // b),
    "max": max,
    "min": min,
}


def build(tree: Tree) -> Dim:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return SYMBOLS[tree]
    operation, left, right = tree
    return BUILD[operation](build(left), build(right))


def compute(tree: Tree, env: dict[str, int]) -> int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    operation, left, right = tree
    return COMPUTE[operation](compute(left, env), compute(right, env))


def built(tree: Tree) -> Dim:
    """The formula, leaving out examples that always divide by zero."""
    try:
        return build(tree)
    except UsageError as error:
        assume(error.code != "IRS622")
        raise


def computed(tree: Tree, env: dict[str, int]) -> int:
    """The number, leaving out examples that have none."""
    try:
        return compute(tree, env)
    except ZeroDivisionError:
        assume(False)
        raise


def numbers(name: str) -> st.SearchStrategy[int]:
    lo, hi = LIMITS[name]
    small = st.integers(-12 if lo is None else lo, 25 if hi is None else hi)
    if hi is not None and lo is not None:
        return small
    return small | st.integers(-(10**6) if lo is None else lo, 10**6 if hi is None else hi)


names = st.sampled_from(sorted(LIMITS))
leaves = names | names | st.integers(-4, 12) | st.sampled_from([1, 2, 3, 4, 8, 16])
operations = st.sampled_from(["+", "-", "*", "+", "-", "*", "//", "%", "ceil", "max", "min"])
trees = st.recursive(leaves, lambda inner: st.tuples(operations, inner, inner), max_leaves=9)
small_trees = st.recursive(leaves, lambda inner: st.tuples(operations, inner, inner), max_leaves=4)
polynomials = st.recursive(
    st.sampled_from(["x", "y", "wild", "?u"]) | st.integers(-4, 12),
    lambda inner: st.tuples(st.sampled_from(["+", "-", "*"]), inner, inner),
    max_leaves=6,
)
bindings = st.fixed_dictionaries({name: numbers(name) for name in LIMITS})
divisors = st.integers(1, 12)


def check_bounds(dim: Dim, value: int) -> None:
    lo, hi = bounds(dim)
    assert lo is None or lo <= value
    assert hi is None or value <= hi


@many
@given(trees, bindings)
def test_a_formula_has_the_value_of_the_integers(tree: Tree, env: dict[str, int]) -> None:
    value = computed(tree, env)
    # Whatever has a value can be built: division by zero is only found where there always is one.
    dim = build(tree)
    assert bind(dim, env) == value
    check_bounds(dim, value)


@many
@given(trees, bindings)
def test_python_evaluates_the_text_to_the_same_number(tree: Tree, env: dict[str, int]) -> None:
    value = computed(tree, env)
    text = str(build(tree)).replace("?", "unknown_")
    names = {name.replace("?", "unknown_"): number for name, number in env.items()}
    assert eval(text, {"__builtins__": {}, "max": max, "min": min}, names) == value
    assert not re.search(r" \*|\* ", text)


@many
@given(trees)
def test_text_reads_back_as_the_same_object(tree: Tree) -> None:
    dim = built(tree)
    again = parse_dim(str(dim), SYMBOLS.__getitem__)
    assert again is dim or (isinstance(dim, int) and again == dim)


@many
@given(trees)
def test_pickle_gives_the_same_object(tree: Tree) -> None:
    dim = built(tree)
    again = pickle.loads(pickle.dumps(dim))
    assert again is dim or (isinstance(dim, int) and again == dim)


@pytest.mark.slow
@many
@given(small_trees, small_trees, small_trees)
def test_ring_laws_hold_as_identity(first: Tree, second: Tree, third: Tree) -> None:
    a, b, c = built(first), built(second), built(third)
    for left, right in (
        (a + b, b + a),
        (a * b, b * a),
        ((a + b) + c, a + (b + c)),
        ((a * b) * c, a * (b * c)),
        (a * (b + c), a * b + a * c),
        (a - b, -(b - a)),
        (a - a, 0),
        (a + 0, a),
        (a * 1, a),
        (a * 0, 0),
        (a + a, 2 * a),
        (product([a, b, c]), a * b * c),
    ):
        assert left is right or (isinstance(left, int) and left == right)


@pytest.mark.slow
@many
@given(small_trees, small_trees, divisors)
def test_whole_multiples_leave_a_division(first: Tree, second: Tree, divisor: int) -> None:
    a, b = built(first), built(second)
    assert floordiv(a + divisor * b, divisor) == floordiv(a, divisor) + b
    assert mod(a + divisor * b, divisor) == mod(a, divisor)
    assert equal(floordiv(a, divisor) * divisor + mod(a, divisor), a) is not False


@pytest.mark.slow
@many
@given(small_trees, small_trees)
def test_multiples_of_a_symbol_leave_a_division(first: Tree, second: Tree) -> None:
    a, b, k = built(first), built(second), SYMBOLS["x"]
    assert floordiv(a + k * b, k) == floordiv(a, k) + b
    assert mod(a + k * b, k) == mod(a, k)


@pytest.mark.slow
@many
@given(polynomials, polynomials, divisors, divisors)
def test_nested_divisions_become_one(first: Tree, second: Tree, inner: int, outer: int) -> None:
    a, b = build(first), build(second)
    assert floordiv(floordiv(a, inner), outer) == floordiv(a, inner * outer)
    assert floordiv(floordiv(a, inner) + b, outer) == floordiv(a + inner * b, inner * outer)


@pytest.mark.slow
@many
@given(trees, small_trees, divisors, divisors)
def test_nested_divisions_never_differ_from_one(first: Tree, second: Tree, inner: int, outer: int) -> None:
    a, b = built(first), built(second)
    assert equal(floordiv(floordiv(a, inner) + b, outer), floordiv(a + inner * b, inner * outer)) is not False


@pytest.mark.slow
@many
@given(trees, trees, bindings)
def test_comparisons_are_never_wrong(first: Tree, second: Tree, env: dict[str, int]) -> None:
    left, right = computed(first, env), computed(second, env)
    a, b = build(first), build(second)
    assert equal(a, b) in (None, left == right)
    assert less(a, b) in (None, left < right)
    assert less_equal(a, b) in (None, left <= right)
    check_bounds(a - b, left - right)
    assert equal(a, b) is equal(b, a)
    assert (equal(a, a), less(a, a), less_equal(a, a)) == (True, False, True)


@pytest.mark.slow
@many
@given(trees, st.lists(small_trees, min_size=1, max_size=3), bindings)
def test_comparisons_of_related_formulas_are_never_wrong(tree: Tree, changes: list[Tree], env: dict[str, int]) -> None:
    """Formulas over the same parts, where the bounds have most to find out."""
    value = computed(tree, env)
    base = build(tree)
    for change in changes:
        for name in ("+", "-", "max", "min", "//", "%"):
            other = (name, tree, change)
            try:
                number = compute(other, env)
            except ZeroDivisionError:
                continue
            dim = build(other)
            assert less(base, dim) in (None, value < number)
            assert less_equal(dim, base) in (None, number <= value)
            check_bounds(dim - base, number - value)
            check_bounds(2 * base - dim, 2 * value - number)


@pytest.mark.slow
@many
@given(trees, trees, bindings)
def test_an_exact_quotient_is_exact(first: Tree, second: Tree, env: dict[str, int]) -> None:
    left, right = computed(first, env), computed(second, env)
    a, b = build(first), build(second)
    quotient = exact_div(a, b)
    if quotient is not None:
        assert bind(quotient * b, env) == left
        if right:
            assert bind(quotient, env) == left // right


@many
@given(small_trees, small_trees)
def test_a_factor_divides_its_product(first: Tree, second: Tree) -> None:
    a, b = built(first), built(second)
    assume(equal(b, 0) is not True)
    assert exact_div(a * b, b) == a
    assert floordiv(a * b, b) == a
    assert mod(a * b, b) == 0


@pytest.mark.slow
@many
@given(st.lists(small_trees, min_size=1, max_size=4), st.randoms())
def test_order_and_repetition_do_not_change_an_extreme(parts: list[Tree], random: Any) -> None:
    dims = [built(part) for part in parts]
    again = [*dims, dims[0]]
    random.shuffle(again)
    assert dim_max(*again) == dim_max(*dims)
    assert dim_min(*again) == dim_min(*dims)
    assert equal(dim_max(dim_max(*dims), dims[0]), dim_max(*dims)) is True
    for dim in dims:
        assert less_equal(dim, dim_max(*dims)) is not False
        assert less(dim, dim_min(*dims)) is not True


@pytest.mark.slow
@many
@given(trees, small_trees, bindings, st.sampled_from(["x", "y"]))
def test_binding_a_formula_is_substitution(tree: Tree, inner: Tree, env: dict[str, int], name: str) -> None:
    replacement = ("max", inner, 1)
    number = computed(replacement, env)
    value = computed(tree, {**env, name: number})
    partly = bind(build(tree), {name: build(replacement)})
    assert bind(partly, env) == value
    check_bounds(partly, value)


@pytest.mark.slow
@many
@given(trees, bindings, st.sets(names))
def test_binding_in_two_steps_is_binding_at_once(tree: Tree, env: dict[str, int], early: set[str]) -> None:
    value = computed(tree, env)
    partly = bind(build(tree), {name: number for name, number in env.items() if name in early})
    check_bounds(partly, value)
    assert isinstance(partly, int) or early.isdisjoint(partly.symbol_names())
    assert bind(partly, env) == value


@many
@given(
    st.sampled_from([0, 1, 5, "x", "m", "?u", "?w", ("*", "?u", 2), ("//", "x", 2), ("max", "m", 3)]),
    bindings,
    st.sampled_from([1, "same", "symbol"]),
)
def test_broadcasting_has_the_size_numpy_gives(tree: Tree, env: dict[str, int], partner: int | str) -> None:
    a, left = build(tree), compute(tree, env)
    b: Dim = 1
    right = 1
    if partner == "same":
        b, right = a, left
    elif partner == "symbol":
        # Any size that happens to be the same, or 1.
        b, right = unknown("other"), left if env["z"] % 2 else 1
    expected = left if right == 1 else right
    everything = {**env, "?other": right}
    assert bind(broadcast(a, b), everything) == expected
    assert broadcast(a, b) == broadcast(b, a)


@many
@given(st.text(alphabet="xy?u0123456789+-*/%(), .maxinflor#\n", max_size=40))
def test_any_text_is_read_or_refused_with_a_column(text: str) -> None:
    try:
        parse_dim(text)
        return
    except UsageError as error:
        refusal = error
    assert refusal.code == "IRS621"
    assert "column" in str(refusal)
    assert str(refusal).endswith("^")
