"""Classes of values: what `@dataclass(frozen=True, slots=True)` means, made in a third of the time.

Of a small model's run a third was spent in making the methods of dataclasses, most of them of classes without an instance: each method
of the standard decorator is compiled from text when its module is imported. Here only `__init__` is, and it stores what it is given
without the detour by which a frozen dataclass stores into itself. That nothing is assigned afterwards is what mypy checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def immutable(cls: type[T], /) -> type[T]: ...


@overload
def immutable(*, slots: bool) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(cls: type[T] | None = None, /, *, slots: bool = True) -> type[T] | Callable[[type[T]], type[T]]:
    """A dataclass whose instances are equal, and have one hash, where their fields are equal. Without slots they may keep what
    `cached_property` computes."""
    return partial(_made, slots=slots) if cls is None else _made(cls, slots=slots)


def _made(cls: type[T], *, slots: bool) -> type[T]:
    # A class that says when its instances are equal has None for a hash until it says more.
    written = {name for name, value in vars(cls).items() if value is not None}
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # else the standard decorator writes the signature there, which takes as long as `__init__`
    made = dataclass(eq=False, repr=False, slots=slots)(cls)
    listed = fields(made)  # type: ignore[arg-type]  # mypy does not know that it is one
    compared = _getter([one.name for one in listed if one.compare])
    hashed = _getter([one.name for one in listed if (one.compare if one.hash is None else one.hash)])
    shown = [one.name for one in listed if one.repr]

    def equals(self: T, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_of(self: T) -> int:
        return hash(hashed(self))

    def text_of(self: T) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    for name, method in (("__eq__", equals), ("__hash__", hash_of), ("__repr__", text_of)):
        if name not in written:
            setattr(made, name, method)
    return made


def _getter(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    """What gives the values of these attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if names:
        (name,) = names
        return lambda one: (getattr(one, name),)
    return lambda one: ()
