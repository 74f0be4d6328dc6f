"""Calling an operator's rules on arrays, and holding them against results that somebody else computed."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from irscope.ir.dims import Dim, SymDim, bind, bounds, symbol
from irscope.ir.dtypes import DTYPES_BY_TEXT, DType
from irscope.ir.graph import Attr
from irscope.ir.types import UNKNOWN_TENSOR, ScalarType, TensorType, Type, tensor
from irscope.ops.cost import Cost
from irscope.ops.registry import find_op
from irscope.ops.spec import Known, OpCall, OpSpec
from irscope.ops.values import Array

Operand = Array | Type | str | None
"""An array has type and values; a text such as "f32[2,n]" only a type."""


def dtype_of(array: Array) -> DType:
    """The element type of an array; objects are integers that may be symbolic."""
    kind, bits = array.dtype.kind, 8 * array.dtype.itemsize
    return DType.I64 if kind == "O" else DType.BOOL if kind == "b" else DTYPES_BY_TEXT[f"{kind}{bits}"]


def t(text: str) -> TensorType:
    """A tensor type from a text such as "f32[2,n]"; names are symbols of at least one, * is an unknown rank."""
    dtype, _, rest = text.partition("[")
    inner = rest.rstrip("]")
    if inner == "*":
        return tensor(DTYPES_BY_TEXT[dtype], None)
    sizes = [int(part) if part.lstrip("-").isdigit() else symbol(part) for part in inner.split(",") if part]
    return tensor(DTYPES_BY_TEXT[dtype], sizes)


def spec_of(name: str) -> OpSpec:
    """The record of an operator that must exist."""
    op_spec = find_op(name)
    assert op_spec is not None, name
    return op_spec


def _type(operand: Operand) -> Type | None:
    if isinstance(operand, np.ndarray):
        return tensor(dtype_of(operand), operand.shape)
    return t(operand) if isinstance(operand, str) else operand


def f32(*shape: Dim) -> TensorType:
    return tensor(DType.F32, shape)


def i64(*shape: Dim) -> TensorType:
    return tensor(DType.I64, shape)


def of_array(array: Array) -> TensorType:
    return tensor(dtype_of(array), array.shape)


def make_call(
    name: str, operands: Sequence[Operand], attrs: Mapping[str, Attr], results: Sequence[Type] = (), values: Sequence[Known | None] = ()
) -> OpCall:
    """A call with the types that the operands have, and their values or those given."""
    known = values or [operand if isinstance(operand, np.ndarray) else None for operand in operands]
    return OpCall(spec_of(name), [_type(operand) for operand in operands], attrs, known, results)


def _made(name: str, operands: Sequence[Operand], attrs: Mapping[str, Attr], results: int | Sequence[Type], values: Any) -> OpCall:
    """A call whose results have the types that the operator's own rule gives."""
    before = [UNKNOWN_TENSOR] * results if isinstance(results, int) else results
    types = spec_of(name).infer_types(make_call(name, operands, attrs, before, values))
    return make_call(name, operands, attrs, types, values)


def infer(
    name: str, *operands: Operand, results: int | Sequence[Type] = (), values: Sequence[Known | None] = (), **attrs: Attr
) -> tuple[Type, ...]:
    """Types of the results."""
    return tuple(_made(name, operands, attrs, results, values).results)


def shape_of(name: str, *operands: Operand, values: Sequence[Known | None] = (), **attrs: Attr) -> tuple[Dim, ...] | None:
    """Shape of the first result."""
    return infer(name, *operands, results=1, values=values, **attrs)[0].shape  # type: ignore[attr-defined]


def shapes(name: str, *operands: Operand, **attrs: Attr) -> list[str]:
    """Spellings of the results' types."""
    return [str(type_) for type_ in infer(name, *operands, **attrs)]


def shape(name: str, *operands: Operand, **attrs: Attr) -> str:
    """Spelling of the first result's type."""
    return shapes(name, *operands, **attrs)[0]


def evaluate(name: str, *operands: Operand, values: Sequence[Known | None] = (), results: int = 0, **attrs: Attr) -> Any:
    """The values of the results, as a list if there are several; None where the rule does not tell."""
    found = spec_of(name).evaluate(_made(name, operands, attrs, results, values))  # type: ignore[misc]
    return found[0] if isinstance(found, list | tuple) and len(found) == 1 else found


def value(name: str, *operands: Operand, **attrs: Attr) -> Any:
    """The first result's value as nested lists."""
    found = evaluate(name, *operands, **attrs)
    return (found if isinstance(found, np.ndarray) else found[0]).tolist()


def cost(name: str, *operands: Operand, results: int | Sequence[Type] = 1, **attrs: Attr) -> Cost | None:
    """The cost of a call."""
    return spec_of(name).cost_of(_made(name, operands, attrs, results, ()))


def agrees_with_symbols(name: str, *types: TensorType | None, results: int = 1, **attrs: Attr) -> None:
    """Sizes named by symbols and bound afterwards give what the sizes themselves give."""
    names: dict[str, int] = {}

    def named(dim: int) -> Dim:
        names[f"d{dim}"] = dim
        return symbol(f"d{dim}") if dim > 1 else dim

    symbolic = [None if type_ is None or type_.shape is None else type_.with_shape(map(named, type_.shape)) for type_ in types]
    plain = infer(name, *types, results=results, **attrs)
    formulas = infer(name, *symbolic, results=results, **attrs)
    for left, right in zip(plain, formulas, strict=True):
        assert left.shape == tuple(bind(dim, names) for dim in right.shape), (name, str(left), str(right))


def check(name: str, operands: Sequence[Operand], attrs: Mapping[str, Attr], expected: Sequence[Array], *, close: float = 1e-5) -> None:
    """Hold every rule of an operator against results of another implementation.

    Types must be exact where values are known. With fewer values, or with symbols for sizes, the answer may say less but
    must not contradict. Values must agree where the rule gives any.
    """
    story = f"{name}({', '.join(str(_type(operand)) for operand in operands)}, {dict(attrs)})"
    exact = spec_of(name).infer_types(make_call(name, operands, attrs, [t("f32[*]")] * len(expected)))
    assert len(exact) >= len(expected), story
    for type_, want in zip(exact, expected, strict=False):
        if isinstance(type_, ScalarType):
            assert want.shape == (), story
            continue
        assert isinstance(type_, TensorType), story
        assert (type_.shape, type_.dtype) == (want.shape, dtype_of(want)), f"{story} -> {type_}, not {dtype_of(want)}{list(want.shape)}"
    _check_less_known(name, operands, attrs, expected, story)
    spec = spec_of(name)
    if spec.evaluate is None or spec.random:
        return
    found = spec.evaluate(make_call(name, operands, attrs, exact))
    if found is None:
        return
    arrays = [found] if isinstance(found, np.ndarray) else list(found)
    for got, want in zip(arrays, expected, strict=False):
        if got is None:
            continue
        assert got.shape == want.shape, story
        assert got.dtype == want.dtype, f"{story}: {got.dtype} is not {want.dtype}"
        if want.size:
            np.testing.assert_allclose(got, want, rtol=close, atol=close, equal_nan=True, err_msg=story)


def _check_less_known(name: str, operands: Sequence[Operand], attrs: Mapping[str, Attr], expected: Sequence[Array], story: str) -> None:
    without_values = [_type(operand) for operand in operands]
    env: dict[str, int] = {}
    symbolic: list[Operand] = []
    for place, operand in enumerate(operands):
        if isinstance(operand, np.ndarray) and operand.dtype.kind in "fc":
            sizes: list[int | SymDim] = []
            for axis, size in enumerate(operand.shape):
                made = symbol(f"s{place}_{axis}", 0)
                env[str(made)] = size
                sizes.append(made)
            symbolic.append(tensor(dtype_of(operand), sizes))
        else:
            symbolic.append(operand)
    results = [t("f32[*]")] * len(expected)
    spec = spec_of(name)
    for less in (without_values, symbolic):
        types = spec.infer_types(make_call(name, less, attrs, results))
        for type_, want in zip(types, expected, strict=False):
            _check_consistent(type_, want, env, story)


def _check_consistent(type_: Type, want: Array, env: dict[str, int], story: str) -> None:
    if not isinstance(type_, TensorType):
        return
    assert type_.dtype in (dtype_of(want), DType.UNKNOWN), story
    if type_.shape is None:
        return
    assert len(type_.shape) == want.ndim, f"{story} -> {type_}, not {list(want.shape)}"
    for size, wanted in zip(type_.shape, want.shape, strict=True):
        bound = bind(size, env)
        if isinstance(bound, SymDim):
            low, high = bounds(bound)
            assert low is None or low <= wanted, f"{story} -> {type_}, not {list(want.shape)}"
            assert high is None or wanted <= high, f"{story} -> {type_}, not {list(want.shape)}"
        else:
            assert bound == wanted, f"{story} -> {type_}, not {list(want.shape)}"


# Against PyTorch on the CPU

CASES = 25
"""Random configurations of each operator."""


def rng_of(name: str) -> random.Random:
    """A generator whose numbers depend on the test's name only."""
    return random.Random(name)


def random_shape(rng: random.Random, low: int = 0, high: int = 4, *, empty: bool = True) -> tuple[int, ...]:
    """A shape with a number of axes in a range; sizes of one and zero are frequent."""
    sizes = [1, 1, 2, 3, 4, 5] + ([0] if empty else [])
    return tuple(rng.choice(sizes) for _ in range(rng.randint(low, high)))


def random_array(rng: random.Random, shape: Sequence[int], dtype: str = "float32") -> Array:
    """An array of moderate numbers."""
    source = np.random.default_rng(rng.getrandbits(32))
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(source.random(shape) < 0.5)
    if kind in "iu":
        return np.asarray(source.integers(0 if kind == "u" else -9, 9, shape)).astype(dtype)
    return np.asarray(source.normal(size=shape)).astype(dtype)


def random_axis(rng: random.Random, rank: int) -> int:
    """An axis counted from either side; tensors without axes have the axes 0 and -1."""
    return rng.randrange(-max(rank, 1), max(rank, 1))


def broadcastable(rng: random.Random, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape that broadcasts with another one: shorter, and one in places."""
    cut = rng.randint(0, len(shape))
    return tuple(1 if rng.random() < 0.3 else size for size in shape[cut:])


def against(
    function: Callable[..., Any], name: str, operands: Sequence[Operand], attrs: Mapping[str, Attr], *args: Any, **options: Any
) -> None:
    """Run PyTorch's function on the operands that are arrays (or on `args`) and hold the record against what it gives."""
    import torch

    close = options.pop("close", 1e-5)
    inputs = args or tuple(torch.from_numpy(operand.copy()) for operand in operands if isinstance(operand, np.ndarray))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = function(*inputs, **options)
    results = found if isinstance(found, tuple | list) else (found,)
    check(name, operands, attrs, [result.detach().numpy() for result in results], close=close)


def cases(name: str, count: int = CASES) -> Iterator[random.Random]:
    """One generator a random configuration."""
    rng = rng_of(name)
    for _ in range(count):
        yield random.Random(rng.getrandbits(64))
