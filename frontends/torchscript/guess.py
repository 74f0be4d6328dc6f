"""Types for the inputs of a scripted model that the user did not give: from their use, tried out until the model accepts them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from irscope.frontends.torchscript.reach import Use
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor

_MOST_ATTEMPTS = 40
_LARGEST_SIZE = 512
_USUAL_SIZES = (224, 384, 299, 518, 28, 96)
_LENGTH = 8
_INDEX_NAMES = ("id", "token", "index", "indices", "label")

Types = dict[str, TensorType]
Accepts = Callable[[Types], bool]


def guess_types(uses: Mapping[str, Use | None], accepts: Accepts) -> Types | None:
    """A type for every input such that the model accepts them all; None where nothing tried is accepted."""
    attempts = itertools.count()

    def accepted(types: Types) -> bool:
        return next(attempts) < _MOST_ATTEMPTS and accepts(types)

    if any(use is not None and use.kind == "convolution" for use in uses.values()):
        return _smallest(uses, accepted)
    for types in _combinations(uses, _LENGTH):
        if accepted(types):
            return types
    return None


def _smallest(uses: Mapping[str, Use | None], accepted: Accepts) -> Types | None:
    """The smallest height and width: doubled until accepted, then the gap is halved. Some models take a single size only."""
    found = None
    size = 1
    while found is None and size <= _LARGEST_SIZE:
        found = next((types for types in itertools.islice(_combinations(uses, size), 3) if accepted(types)), None)
        size *= 1 if found is not None else 2
    if found is None:
        usual = itertools.chain.from_iterable(itertools.islice(_combinations(uses, each), 1) for each in _USUAL_SIZES)
        return next((types for types in usual if accepted(types)), None)
    low = size // 2
    while size - low > 1:
        middle = (low + size) // 2
        better = next((types for types in itertools.islice(_combinations(uses, middle), 1) if accepted(types)), None)
        if better is not None:
            found, size = better, middle
        else:
            low = middle
    return found


def _combinations(uses: Mapping[str, Use | None], size: int) -> Iterator[Types]:
    """Types for all inputs at once, the likeliest first."""
    choices = [_candidates(name, use, size) for name, use in uses.items()]
    return (dict(zip(uses, types, strict=True)) for types in itertools.product(*choices))


def _candidates(name: str, use: Use | None, size: int) -> Sequence[TensorType]:
    if use is None:
        if any(part in name.lower() for part in _INDEX_NAMES):
            return [tensor(DType.I64, (1, _LENGTH))]
        shapes: tuple[tuple[int, ...], ...] = ((1, _LENGTH), (1, _LENGTH, _LENGTH), (1, 3, _LENGTH, _LENGTH), (_LENGTH,), (1,), ())
        return [tensor(DType.F32, shape) for shape in shapes]
    dtype = use.dtype if use.dtype.is_float else DType.F32
    if use.kind == "convolution":
        return [tensor(dtype, (1, use.size, *(size,) * use.axes))]
    if use.kind == "embedding":
        return [tensor(DType.I64, (1, _LENGTH)), tensor(DType.I64, (_LENGTH,))]
    if use.kind == "recurrent":
        shape = (1, _LENGTH, use.size) if use.batch_first else (_LENGTH, 1, use.size)
        return [tensor(dtype, shape)]
    if use.kind == "norm":
        return [tensor(dtype, (2, use.size, *(size,) * axes)) for axes in (2, 0, 1, 3)]
    return [tensor(dtype, (*lead, use.size)) for lead in ((1,), (1, _LENGTH), (1, _LENGTH, _LENGTH), ())]
