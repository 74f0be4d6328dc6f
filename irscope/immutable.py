"""Classes of values, and of what changes: what `@dataclass(frozen=True, slots=True)` and `@dataclass` mean, made in a tenth of the time.

Of a small model's run a third was spent in making the methods of dataclasses, most of them of classes without an instance: each method
of the standard decorator is compiled from text when its module is imported. Here only `__init__` is, when it is first asked for, and it
stores what it is given without the detour by which a frozen dataclass stores into itself. To `dataclasses.fields`, `replace` and the like
these are dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from types import FunctionType, MemberDescriptorType
from typing import Any, Final, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def immutable(cls: type[T], /) -> type[T]: ...


@overload
def immutable(*, slots: bool) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(cls: type[T] | None = None, /, *, slots: bool = True) -> type[T] | Callable[[type[T]], type[T]]:
    """A dataclass whose instances are equal, and have one hash, where their fields are equal. Without slots they may keep what
    `cached_property` computes, and refuse that anything else is assigned; with slots only mypy refuses it, as to store through what refuses
    doubles the time of making one, and there are millions."""
    return partial(_made, slots=slots) if cls is None else _made(cls, slots=slots)


@overload
def mutable(cls: type[T], /) -> type[T]: ...


@overload
def mutable(*, slots: bool = False, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[T] | None = None, /, *, slots: bool = False, eq: bool = True) -> type[T] | Callable[[type[T]], type[T]]:
    """A dataclass whose instances change: equal where their fields are, then without a hash; or with `eq=False` each by itself."""
    made = partial(_made, slots=slots, equal=eq, changes=True)
    return made if cls is None else made(cls)


@dataclass(eq=False, repr=False)
class _Standard:
    """Marks of the standard decorator in a class, so that its own functions take ours for one of theirs."""

    made: list[int] = field(default_factory=list)


_FIELDS: Final = "__dataclass_fields__"
_PARAMETERS: Final = "__dataclass_params__"
_OWN_KIND: Final = getattr(_Standard, _FIELDS)["made"]._field_type
"""What marks a field; arguments of `__init__` that are not stored (`InitVar`) are not known here."""
_OPEN: Final = {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
_MADE_ANEW: Final[object] = (_Standard.__init__.__defaults__ or ())[0]
"""Stands in a signature for a default that is made for each instance."""


def _made(cls: type[T], *, slots: bool, equal: bool = True, changes: bool = False) -> type[T]:
    # A class that says when its instances are equal has None for a hash until it says more.
    written = {name for name, value in vars(cls).items() if value is not None}
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__
    listed: dict[str, Field[Any]] = {}
    for base in cls.__mro__[:0:-1]:
        listed.update(getattr(base, _FIELDS, {}))
    own = {name: _field(cls, name, kind) for name, kind in cls.__annotations__.items() if not str(kind).startswith("ClassVar[")}
    listed |= own
    made: Any = _with_slots(cls, own) if slots else cls
    setattr(made, _FIELDS, listed)
    setattr(made, _PARAMETERS, getattr(_Standard, _PARAMETERS))
    if "__match_args__" not in written:
        names = tuple(name for name, entry in listed.items() if entry.init and not entry.kw_only)
        setattr(made, "__match_args__", names)  # noqa: B010  # mypy takes it for a constant
    if "__init__" not in written:
        made.__init__ = _Init(made)
    compared = _getter([name for name, entry in listed.items() if entry.compare])
    hashed = _getter([name for name, entry in listed.items() if (entry.compare if entry.hash is None else entry.hash)])
    shown = [name for name, entry in listed.items() if entry.repr]

    def equals(self: T, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_of(self: T) -> int:
        return hash(hashed(self))

    @recursive_repr()
    def text_of(self: T) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    methods: dict[str, Any] = {"__repr__": text_of}
    sealed = not slots and not changes and "__init__" not in written and not any(getattr(base, "__slots__", ()) for base in cls.__mro__[1:])
    if sealed or made.__setattr__ is _refuse:
        methods |= dict.fromkeys(("__setattr__", "__delattr__"), _refuse) if sealed else _OPEN
    if equal:
        methods |= {"__eq__": equals, "__hash__": None if changes else hash_of}
    for name, method in methods.items():
        if name not in written:
            setattr(made, name, method)
    found: type[T] = made
    return found


def _refuse(self: object, name: str, *value: object) -> None:
    if vars(type(self)).get(_PARAMETERS) is not getattr(_Standard, _PARAMETERS):  # a class of another kind that goes on from it
        return object.__setattr__(self, name, *value) if value else object.__delattr__(self, name)
    raise FrozenInstanceError(f"{type(self).__name__}.{name} stays as it is: dataclasses.replace makes another")


def _field(cls: type, name: str, kind: object) -> Field[Any]:
    """Return a field as the class declares it; its default stays the class's attribute of that name."""
    default = vars(cls).get(name, MISSING)
    if isinstance(default, MemberDescriptorType):
        default = MISSING
    if isinstance(default, Field):
        found: Field[Any] = default
        if found.default is MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, found.default)
    else:
        found = field(default=default)
    if type(found.default).__hash__ is None:
        raise ValueError(f"{cls.__name__}.{name}: a default that can be changed is made for each instance: default_factory")
    found.name = name
    setattr(found, "type", kind)  # noqa: B010  # annotations are text, of which mypy knows nothing
    setattr(found, "_field_type", _OWN_KIND)  # noqa: B010  # by which `dataclasses.fields` knows one
    if found.kw_only is MISSING:
        found.kw_only = False
    return found


def _with_slots(cls: type[T], own: dict[str, Field[Any]]) -> type[T]:
    """Return the same class with a place for each of its fields, and no others."""
    inherited = {name for base in cls.__mro__[1:] for name in getattr(base, "__slots__", ())}
    members = {name: value for name, value in vars(cls).items() if name not in own and name not in ("__dict__", "__weakref__")}
    members["__slots__"] = tuple(name for name in own if name not in inherited)
    members["__qualname__"] = cls.__qualname__
    metaclass: Any = type(cls)
    made: type[T] = metaclass(cls.__name__, cls.__bases__, members)
    return made


class _Init:
    """A class's `__init__`, which is written where someone first makes an instance or asks what it takes."""

    def __init__(self, cls: type) -> None:
        self._of = cls

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if vars(self._of).get("__init__") is self:
            setattr(self._of, "__init__", _init_of(self._of))  # noqa: B010  # mypy refuses to assign a method
        found: FunctionType = vars(self._of)["__init__"]
        return found if instance is None else found.__get__(instance, owner)


def _init_of(cls: type) -> FunctionType:
    listed: dict[str, Field[Any]] = getattr(cls, _FIELDS)
    known: dict[str, Any] = {"_made_anew": _MADE_ANEW}
    sealed = cls.__setattr__ is _refuse
    place = "_own[{!r}]".format if sealed else "self.{}".format
    taken: tuple[list[str], list[str]] = ([], [])
    body: list[str] = ["_own = self.__dict__"] if sealed else []
    for name, entry in listed.items():
        has_default = entry.default is not MISSING
        if has_default:
            known[f"_default_{name}"] = entry.default
        if entry.default_factory is not MISSING:
            known[f"_make_{name}"] = entry.default_factory
        if entry.init:
            anew = entry.default_factory is not MISSING
            taken[bool(entry.kw_only)].append(f"{name}=_default_{name}" if has_default else f"{name}=_made_anew" if anew else name)
            body.append(f"{place(name)} = _make_{name}() if {name} is _made_anew else {name}" if anew else f"{place(name)} = {name}")
        elif has_default or entry.default_factory is not MISSING:
            body.append(f"{place(name)} = _default_{name}" if has_default else f"{place(name)} = _make_{name}()")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    arguments = ", ".join(["self", *taken[0], *(["*", *taken[1]] if taken[1] else [])])
    found: dict[str, Any] = {}
    exec(f"def __init__({arguments}):\n " + "\n ".join(body or ["pass"]), known, found)
    init: FunctionType = found["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {**{name: entry.type for name, entry in listed.items() if entry.init}, "return": None}
    return init


def _getter(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    """Return what gives the values of these attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if names:
        (name,) = names
        return lambda one: (getattr(one, name),)
    return lambda one: ()
