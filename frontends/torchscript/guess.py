"""Types for inputs of a scripted model that were not given: from their use, at usual sizes, tried out until the model accepts them."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from irscope.frontends.torchscript.reach import Use
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor

_MOST_ATTEMPTS = 80
# What published models are trained and evaluated at, the most frequent first.
_PICTURES = (224, 256, 384, 299, 512, 32, 28, 518, 336, 448, 240, 288, 320, 380, 64, 96, 128, 160, 192, 640, 800, 1024)
_LENGTHS = (128, 512, 77, 64, 256, 1024, 32, 16, 8, 2048)
_SAMPLES = 16_000
"""One second of sound as speech models take it."""
_FRAMES = 16
"""Pictures of a video; the classifiers of torchvision take 16 of half the usual height and width."""
_LEAST_ASSERTED, _MOST_ASSERTED = 4, 16_384
"""A number that a size is compared with is a size itself if it is no count of channels or axes."""
_INDEX_NAMES = ("id", "token", "index", "indices", "label")

Types = dict[str, TensorType]


@dataclass(frozen=True)
class Verdict:
    """What a run of the code with some types said."""

    accepted: bool
    compared: Sequence[tuple[int, int]] = ()
    """Whole numbers that the code compared with one another."""


@dataclass(frozen=True)
class Guess:
    """A type for every input, such that the model accepts them all."""

    types: Types
    how: str
    """Where the sizes come from."""


@dataclass(frozen=True)
class _Sizes:
    """What inputs are tried at."""

    height: int = _PICTURES[0]
    width: int = _PICTURES[0]
    length: int = _LENGTHS[0]

    def asserted(self, verdict: Verdict) -> Iterator[_Sizes]:
        """These sizes with some replaced by numbers that the code compared them with."""
        pairs = [pair for a, b in verdict.compared if a != b for pair in ((a, b), (b, a))]
        for tried, wanted in pairs:
            if _LEAST_ASSERTED <= wanted <= _MOST_ASSERTED:
                height, width, length = (wanted if own == tried else own for own in (self.height, self.width, self.length))
                for one in (
                    _Sizes(height, width, length),
                    _Sizes(height, self.width, self.length),
                    _Sizes(self.height, width, self.length),
                ):
                    if one != self:
                        yield one


def guess_types(uses: Mapping[str, Use | None], accepts: Callable[[Types], Verdict]) -> Guess | None:
    """Usual sizes, those that the code asserts where it takes no others; None where nothing tried is accepted."""
    usual = deque(_usual(uses))
    asserted: deque[_Sizes] = deque()
    tried: set[tuple[TensorType, ...]] = set()
    while usual or asserted:
        is_asserted = bool(asserted)
        sizes = asserted.popleft() if asserted else usual.popleft()
        for types in _combinations(uses, sizes):
            key = tuple(types.values())
            if key in tried:
                continue
            if len(tried) >= _MOST_ATTEMPTS:
                return None
            tried.add(key)
            verdict = accepts(types)
            if verdict.accepted:
                return Guess(types, "sizes that the code asserts" if is_asserted else "usual sizes that the code accepts")
            asserted.extend(sizes.asserted(verdict))
    return None


def _usual(uses: Mapping[str, Use | None]) -> Iterator[_Sizes]:
    """Sizes in the order in which they are tried: of pictures where the model takes any, else of sequences."""
    if any(use is not None and use.kind == "convolution" and use.axes > 1 for use in uses.values()):
        yield from (_Sizes(size, size) for size in (*_PICTURES, *range(16, 513, 16)))
    else:
        yield from (_Sizes(length=length) for length in _LENGTHS)


_LIKELIEST = 6
"""Combinations of types of all inputs that are tried at each size."""


def _combinations(uses: Mapping[str, Use | None], sizes: _Sizes) -> Iterator[Types]:
    """Types for all inputs at once, the likeliest first."""
    choices = [_candidates(name, use, sizes) for name, use in uses.items()]
    return (dict(zip(uses, types, strict=True)) for types in itertools.islice(itertools.product(*choices), _LIKELIEST))


def _candidates(name: str, use: Use | None, sizes: _Sizes) -> Sequence[TensorType]:
    length = sizes.length
    if use is None:
        if any(part in name.lower() for part in _INDEX_NAMES):
            return [tensor(DType.I64, (1, length))]
        picture = (1, 3, sizes.height, sizes.width)
        shapes: tuple[tuple[int, ...], ...] = ((1, length), (1, length, length), picture, (length,), (1,), ())
        return [tensor(DType.F32, shape) for shape in shapes]
    dtype = use.dtype if use.dtype.is_float else DType.F32
    if use.kind == "convolution":
        return [tensor(dtype, (1, use.size, *_window(use.axes, use.size, sizes)))]
    if use.kind == "embedding":
        return [tensor(DType.I64, (1, length)), tensor(DType.I64, (length,))]
    if use.kind == "recurrent":
        shape = (1, length, use.size) if use.batch_first else (length, 1, use.size)
        return [tensor(dtype, shape)]
    if use.kind == "norm":
        return [tensor(dtype, (2, use.size, *_window(axes, use.size, sizes))) for axes in (2, 0, 1, 3)]
    return [tensor(dtype, (*lead, use.size)) for lead in ((1,), (1, length), (1, length, length), ())]


def _window(axes: int, channels: int, sizes: _Sizes) -> tuple[int, ...]:
    """Sizes of the axes that a convolution goes along: of a sequence or a sound, a picture, a video."""
    if axes == 1:
        return (_SAMPLES if channels == 1 and sizes.length == _LENGTHS[0] else sizes.length,)
    picture = (sizes.height, sizes.width)
    return picture if axes == 2 else (_FRAMES, *(size // 2 for size in picture)) if axes == 3 else ()
