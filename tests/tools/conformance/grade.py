"""How right an answer is. A model is as good as its worst result."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from tests.tools.conformance.suite import Optional_, Sequence_, Tensor, Truth


class Grade(enum.IntEnum):
    """From best to worst."""

    EXACT = 0
    """Element type and every size are known and right."""
    PARTIAL = 1
    """The rank is right, but a size or the element type is not known."""
    UNKNOWN = 2
    """Nothing is known, or not even the rank."""
    WRONG = 3
    """The answer contradicts the reference data."""
    ERROR = 4
    """The engine gave up on the whole model."""


@dataclass(frozen=True)
class TensorAnswer:
    """What an engine says about a tensor. Element types are ONNX numbers, 0 for unknown; sizes that are not known are None."""

    dtype: int
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True)
class ListAnswer:
    """A sequence, or an optional."""

    element: Answer
    is_optional: bool = False


@dataclass(frozen=True)
class OtherAnswer:
    """A type that is neither tensor, sequence nor optional, such as a map."""


Answer = TensorAnswer | ListAnswer | OtherAnswer | None


def worst(grades: Iterable[Grade]) -> Grade:
    """The grade of the whole."""
    return max(grades, default=Grade.EXACT)


def grade(truth: Truth, answer: Answer) -> Grade:
    """Compare one result's answer with its reference."""
    if answer is None:
        return Grade.UNKNOWN
    if isinstance(truth, Tensor):
        return _tensor(truth, answer)
    if isinstance(truth, Sequence_):
        return _sequence(truth, answer)
    if isinstance(truth, Optional_):
        inner = answer.element if isinstance(answer, ListAnswer) and answer.is_optional else answer
        if truth.item is None:
            return Grade.UNKNOWN if inner is None else Grade.EXACT
        return grade(truth.item, inner)
    return Grade.EXACT if isinstance(answer, OtherAnswer) else Grade.WRONG


def _tensor(truth: Tensor, answer: TensorAnswer | ListAnswer | OtherAnswer) -> Grade:
    if not isinstance(answer, TensorAnswer):
        return Grade.WRONG
    if answer.dtype and truth.dtype and answer.dtype != truth.dtype:
        return Grade.WRONG
    if answer.shape is None:
        return Grade.UNKNOWN
    if len(answer.shape) != len(truth.shape):
        return Grade.WRONG
    if any(said is not None and said != size for said, size in zip(answer.shape, truth.shape, strict=True)):
        return Grade.WRONG
    return Grade.PARTIAL if None in answer.shape or not answer.dtype else Grade.EXACT


def _sequence(truth: Sequence_, answer: TensorAnswer | ListAnswer | OtherAnswer) -> Grade:
    if not isinstance(answer, ListAnswer) or answer.is_optional:
        return Grade.WRONG
    element = answer.element
    if element is None:
        return Grade.UNKNOWN
    if not truth.items:
        return Grade.EXACT if isinstance(element, TensorAnswer) and element.dtype == truth.element else Grade.WRONG
    found = worst(grade(item, element) for item in truth.items)
    first = truth.items[0]
    # Where the elements have different shapes, their common element type is all that can be known.
    if len(set(truth.items)) > 1 and found in (Grade.PARTIAL, Grade.UNKNOWN) and isinstance(element, TensorAnswer):
        return Grade.EXACT if isinstance(first, Tensor) and element.dtype == first.dtype else found
    return found
