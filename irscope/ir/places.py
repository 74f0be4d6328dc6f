"""Where things are: the module call and the source line that a node comes from, and the values of weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from irscope.immutable import immutable

CALLED_MODULE: Final = "Module."
"""Begins the function's name in places whose call stack is complete, where the function runs because its module was called."""


class Scope:
    """One module call in the tree of calls; `root_scope()` starts a tree and `child()` extends it.

    A name is relative to the parent ("0" under "layer1"). A module that lives elsewhere in the model but is called
    from here has a name that starts with "=" and gives its full path. `call` counts calls of one module by one parent.
    """

    __slots__ = ("_children", "call", "cls", "depth", "name", "parent")

    _children: dict[str | tuple[str, int], Scope] | None
    """By name, behind the first call of a module by name and call; None where there are none."""
    call: int
    cls: str
    depth: int
    name: str
    parent: Scope | None

    def __init__(self, parent: Scope | None, name: str, cls: str = "", call: int = 0) -> None:
        _set_parent(self, parent)
        _set_name(self, name)
        _set_cls(self, cls)
        _set_call(self, call)
        _set_children(self, None)
        _set_depth(self, 0 if parent is None else parent.depth + 1)

    def __setattr__(self, field: str, to: object) -> None:
        # Whoever reads a file may learn the class after the first node of a module.
        if field != "cls":
            raise AttributeError("a scope is shared by the nodes inside it: give them another one, such as scope.parent.child(...)")
        _set_cls(self, to)

    def child(self, name: str, cls: str = "", call: int = 0) -> Scope:
        """Return the scope of that name below this one, made when it is new."""
        children = self._children
        if children is None:
            children = {}
            _set_children(self, children)
        key = (name, call) if call else name
        child = children.get(key)
        if child is None:
            child = children[key] = Scope(self, name, cls, call)
        elif cls and not child.cls:
            child.cls = cls
        return child

    @property
    def children(self) -> tuple[Scope, ...]:
        return tuple(self._children.values()) if self._children else ()

    @property
    def chain(self) -> tuple[Scope, ...]:
        """Scopes from just below the root down to this one."""
        scopes: list[Scope] = []
        scope: Scope | None = self
        while scope is not None and scope.parent is not None:
            scopes.append(scope)
            scope = scope.parent
        return tuple(reversed(scopes))

    @property
    def path(self) -> str:
        """The way down from the root, "layer1/0/conv1"; later calls of one module carry "#1", "#2"."""
        return "/".join(f"{scope.name}#{scope.call}" if scope.call else scope.name for scope in self.chain)

    @property
    def module(self) -> str:
        """The module's own dotted path in the model, wherever it was called from."""
        dotted = ""
        for scope in self.chain:
            if scope.name.startswith("="):
                dotted = scope.name[1:]
            else:
                dotted = f"{dotted}.{scope.name}" if dotted else scope.name
        return dotted

    def __repr__(self) -> str:
        return f"<Scope {self.path or '(root)'}>"


_set_parent, _set_name, _set_cls, _set_call, _set_children, _set_depth = [
    cast("Callable[[Scope, object], None]", vars(Scope)[name].__set__) for name in ("parent", "name", "cls", "call", "_children", "depth")
]


def relative_name(path: str, parent: str) -> str:
    """Return a module's name in the scope of the module that calls it, from the dotted paths of both."""
    if not parent:
        return path
    return path[len(parent) + 1 :] if path.startswith(f"{parent}.") else f"={path}"


def path_key(text: str) -> str:
    """A module's path, or a name that begins with one, in one spelling: `layer3/1`, `layer3.1` and `/layer3/layer3.1/` are `layer3.1`."""
    parts: list[str] = []
    for part in text.replace("/", ".").split("."):
        # torch.onnx names what is in a Sequential after it once more; numbers do come twice.
        if part and (part.isdecimal() or not parts or part != parts[-1]):
            parts.append(part)
    return ".".join(parts)


def is_within(scope: Scope, module: str) -> bool:
    """Return whether a scope is the module that a path names, as a call or as the model's own, or inside of it."""
    wanted = path_key(module)
    keys = (path_key(scope.path), path_key(scope.module))
    return any(key == wanted or key.startswith(f"{wanted}.") or not wanted for key in keys)


def root_scope() -> Scope:
    """Return the scope of the model itself, start of a new tree."""
    return Scope(None, "")


@immutable
class Loc:
    """A place in the source that defined the model, with the statement there and the call that led to it."""

    file: str
    line: int
    function: str = ""
    statement: str = ""
    caller: Loc | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


# Where the values of parameters, buffers and constants are: in the graph when small, else in a file, unread.

Scalar: TypeAlias = bool | int | float | complex | str


@immutable
class Literal:
    """Values small enough to stand in the graph, flat in row-major order."""

    values: tuple[Scalar, ...]


@immutable
class FileRegion:
    """Bytes in a file, not read yet; weights that share a `storage` are tied."""

    path: str
    offset: int
    length: int
    storage: str = ""


@immutable
class Blob:
    """Packed little-endian bytes that came with the model file; never part of the text form."""

    data: bytes
    storage: str = ""

    def __repr__(self) -> str:
        return f"Blob({len(self.data)} bytes)"


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """Values that follow from those of other weights: a pass that folds weights leaves how, and they are computed when they are read."""

    length: int
    """Bytes, packed and little-endian."""
    compute: Callable[[Any], bytes]
    """Makes them, given what reads weights (irscope.weights.source.WeightFiles)."""
    how: str
    """For people."""

    def __repr__(self) -> str:
        return f"Computed({self.how}, {self.length} bytes)"


Payload: TypeAlias = Literal | FileRegion | Blob | Computed
