"""Recipe of a named model, and the inputs that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from irscope.errors import UsageError
from irscope.frontends.base import LoadOptions, several_inputs, stated
from irscope.immutable import immutable
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.program import Assumed
from irscope.ir.types import tensor

if TYPE_CHECKING:
    from torch import nn

Size: TypeAlias = "int | str"
"""A number, or the name of a size that the user may choose."""
Fill: TypeAlias = Literal["noise", "ids", "ones"]

DEFAULT_SIZES: Final = {"batch": 1, "seq": 128}


@immutable(slots=False)
class Wanted:
    """One input of a model."""

    name: str
    shape: tuple[Size, ...]
    dtype: DType = DType.F32
    fill: Fill = "noise"
    below: int = 2
    """Whole numbers are less than this."""
    as_list: bool = False
    """True where the model takes a list of such tensors, one for each element of the batch."""
    keyword: bool = False
    """True where it is passed by keyword."""
    given: object = None
    """Value that the user's own code made for it, where it did."""
    is_plain: bool = False
    """True where it is `given` as it is: a number, a list, nothing."""
    is_usual: bool = False
    """True where some of its sizes are usual ones, because neither the model nor its package gives any."""


@immutable(slots=False)
class Recipe:
    """A model that can be made."""

    make: Callable[[], nn.Module]
    """Makes it, in evaluation mode."""
    inputs: Callable[[nn.Module], Sequence[Wanted]]
    """Its inputs; some depend on what was made."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Default sizes, besides the usual ones."""
    dtype: DType | None = None
    """Element type of weights and inputs, where it is not the usual one."""
    is_cast: bool = True
    """True where the module has to be cast to that type; some packages make it so, and keep parts of it in another."""
    sizes_from: str = "default"
    """Who says the sizes that the user does not."""
    assumed: tuple[Assumed, ...] = ()
    """Settings that the package or the model's own configuration leaves open or gives otherwise."""


@immutable(slots=False)
class Chosen:
    """Inputs as the user wants them."""

    inputs: tuple[Wanted, ...]
    sizes: Mapping[str, int]
    """Each size in the run that is examined."""
    open: frozenset[str]
    """Sizes that stay open."""
    usual: frozenset[str] = frozenset()
    """Sizes that have their default."""

    def assumed(self, sizes_from: str = "default") -> Iterator[Assumed]:
        """Yield what the user left to defaults."""
        for symbol in sorted(self.usual):
            yield Assumed(symbol, str(self.sizes[symbol]), f"{sizes_from}; --bind {symbol}=N", is_guess=False)
        for value in self.inputs:
            if value.is_usual:
                yield Assumed(value.name, shown_type(value), f"default; --input {value.name}=TYPE", is_guess=False)


def chosen_inputs(recipe: Recipe, wanted: Sequence[Wanted], options: LoadOptions, name: str) -> Chosen:
    """Apply --input and --bind; UsageError for inputs and sizes that the model does not have."""
    inputs = list(wanted)
    by_name = {one.name: at for at, one in enumerate(inputs) if not one.is_plain}
    for key, given in options.for_inputs(list(by_name)).inputs.items():
        at = by_name.get(key, int(key) if key.isdigit() and int(key) < len(inputs) else -1)
        type_ = stated(given, None if at < 0 else tensor(inputs[at].dtype, None), key)
        if at < 0 or type_.shape is None:
            known = ", ".join(f"{one.name}={shown_type(one)}" for one in inputs if not one.is_plain) or "none"
            problem = f"the model has no input {key!r}" if key else several_inputs(len(by_name))
            problem = problem if at < 0 else f"--input {key} needs a tensor type with a shape"
            raise UsageError(problem, code="IRS623", where=name, hint=f"inputs: {known}")
        shape = tuple(_recipe_size(dim, name) for dim in type_.shape)
        inputs[at] = replace(inputs[at], shape=shape, dtype=type_.dtype, is_usual=False)
    usual = {**DEFAULT_SIZES, **recipe.sizes}
    sizes_of_inputs = (size for one in inputs for size in (*(("batch",) if one.as_list else ()), *one.shape))
    used = list(dict.fromkeys(size for size in sizes_of_inputs if isinstance(size, str)))
    unknown = [symbol for symbol in (*options.bind, *sorted(options.open_sizes)) if symbol not in used]
    if unknown:
        known = ", ".join(f"{symbol} ({usual[symbol]})" for symbol in used if symbol in usual)
        hint = f"sizes, with their defaults: {known}" if known else f"--input can name them: {inputs[0].name}=f32[{unknown[0]},3,224,224]"
        raise UsageError(f"no input has a size called {unknown[0]!r}", code="IRS671", where=name, hint=hint)
    zero = next((symbol for symbol, size in options.bind.items() if size < 1), "")
    if zero:
        raise UsageError(f"{zero}=0 leaves nothing to run", code="IRS671", where=name, hint="sizes are at least 1")
    sizes = {symbol: options.bind.get(symbol, usual.get(symbol, 2)) for symbol in used}
    # Names that the user gives to sizes of an input are sizes that stay open.
    named = {size for type_ in options.inputs.values() for size in map(str, type_.shape or ())}
    free = {symbol for symbol in used if symbol not in options.bind and (symbol in options.open_sizes or symbol in named)}
    return Chosen(tuple(inputs), sizes, frozenset(free), frozenset(used) - free - set(options.bind))


def _recipe_size(dim: object, name: str) -> Size:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, SymDim) and str(dim).isidentifier():
        return str(dim)
    raise UsageError(f"an input cannot have the size {dim}", code="IRS623", where=name, hint="numbers, or names such as batch")


_WEIGHTS: Final = (DType.F32, DType.BF16, DType.F16, DType.F64)
GENERATING: Final = _WEIGHTS[:-1]
"""Element types in which language models generate."""


def weights_dtype(given: object, name: str, allowed: Sequence[DType] = _WEIGHTS) -> DType | None:
    """Return the element type that the option `dtype` of a model says; None without."""
    if given is None or given == "":
        return None
    dtype = next((dtype for dtype in allowed if dtype.text == given), None)
    if dtype is None:
        *others, last = (dtype.text for dtype in allowed)
        hint = f"{', '.join(others)} or {last}"
        raise UsageError(f"{given!r} is not an element type for weights", code="IRS672", where=name, hint=hint)
    return dtype


def shown_type(wanted: Wanted) -> str:
    """Return the type of an input, as --input takes it."""
    return f"{wanted.dtype.text}[{','.join(map(str, wanted.shape))}]"
