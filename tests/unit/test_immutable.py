"""Classes of values do what frozen dataclasses with slots do, but for refusing assignments, which mypy does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import dataclass, field
from functools import cached_property, total_ordering
from itertools import product
from types import FunctionType
from typing import Any, ClassVar

import pytest

from irscope.devices import find_device
from irscope.immutable import immutable, mutable


class Point:
    x: int
    y: tuple[int, ...] = (1, 2)
    note: str = field(default="", compare=False)
    hidden: int = field(default=0, repr=False, hash=False)
    made: list[int] = field(default_factory=list, hash=False)
    most: ClassVar[int] = 3


class Single:
    x: float


class Empty:
    """Without a field."""


@total_ordering
class Own:
    x: int

    def __eq__(self, other: object) -> bool:
        return True

    def __lt__(self, other: object) -> bool:
        return False

    def __repr__(self) -> str:
        return "own"


class Later:
    x: int
    double: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "double", 2 * self.x)


GIVEN: dict[type, list[tuple[Any, ...]]] = {
    Point: [(1,), (1, (1, 2)), (1, (1, 2), "seen"), (1, (1, 2), "", 5), (2, (), "", 0, [1])],
    Single: [(1.0,), (1,), (float("nan"),), (0.0,), (-0.0,)],
    Empty: [()],
    Own: [(1,), (2,)],
    Later: [(1,), (2,)],
}


@pytest.mark.parametrize("source", GIVEN)
def test_it_is_as_the_standard_one(source: type) -> None:
    def fresh() -> type:
        return type(source.__name__, (), {key: value for key, value in vars(source).items() if key not in ("__dict__", "__weakref__")})

    ours, theirs = immutable(fresh()), dataclass(frozen=True, slots=True)(fresh())
    assert type(vars(ours)["__init__"]) is not FunctionType, "it is written where someone first asks for it"
    assert [one.name for one in dataclasses.fields(ours)] == [one.name for one in dataclasses.fields(theirs)]
    assert inspect.signature(ours) == inspect.signature(theirs) and ours.__match_args__ == theirs.__match_args__
    for arguments in GIVEN[source]:
        mine, other = ours(*arguments), theirs(*arguments)
        assert repr(mine).rpartition(".")[2] == repr(other).rpartition(".")[2] and hash(mine) == hash(other)
        assert dataclasses.asdict(mine) == dataclasses.asdict(other)
        assert not hasattr(mine, "__dict__")
    for one, two in product(GIVEN[source], repeat=2):
        if any(value != value for value in (*one, *two)):
            continue  # the standard ones compare NaN by identity up to Python 3.12 and by value since
        assert (ours(*one) == ours(*two)) is (theirs(*one) == theirs(*two))
    with pytest.raises(TypeError):
        ours(*range(9))


@immutable
class Kept:
    x: int
    y: str = "y"


@immutable
class Wider(Kept):
    z: int = 0


@immutable(slots=False)
class Computed:
    x: int

    @cached_property
    def double(self) -> int:
        return 2 * self.x


def test_it_is_copied_replaced_and_stored() -> None:
    for one in (Kept(1), Wider(1, "a", 2), Computed(4)):
        assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
        assert dataclasses.replace(one, x=7) != one
        assert {one: 1}[copy.copy(one)] == 1
    assert Wider(1) != Kept(1) and Kept.__match_args__ == ("x", "y")
    computed = Computed(4)
    assert computed.double == 8 and computed == Computed(4)


def test_a_standard_dataclass_goes_on_from_one() -> None:
    @dataclass
    class More(Computed):
        y: int = 5

    assert dataclasses.astuple(More(1)) == (1, 5) and More(3).double == 6


def test_a_default_that_all_instances_would_share_is_refused() -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @immutable
        class Shared:
            x: list[int] = []  # noqa: RUF012  # what is refused


@mutable
class Loop:
    x: int
    inner: list[Loop] = field(default_factory=list)


@mutable(eq=False, slots=True)
class Thing:
    x: int = 0


def test_what_changes_is_as_the_standard_dataclass() -> None:
    one, same = Loop(1), Loop(1)
    assert one == same and Loop.__hash__ is None and pickle.loads(pickle.dumps(one)) == one
    one.inner.append(one)
    assert repr(one) == "Loop(x=1, inner=[...])" and one != same
    with pytest.raises(TypeError):
        hash(one)
    thing = Thing()
    assert thing != Thing() and thing in {thing} and not hasattr(thing, "__dict__")


def test_what_may_keep_what_it_computes_refuses_what_is_assigned() -> None:
    computed = Computed(4)
    assert computed.double == 8
    for change in (lambda: setattr(computed, "x", 5), lambda: setattr(computed, "new", 5), lambda: delattr(computed, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError, match="stays as it is"):
            change()
    assert dataclasses.replace(computed, x=5).double == 10 and computed.x == 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        find_device("h100").memory_bytes = 1
