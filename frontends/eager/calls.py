"""The stack of module calls, recorded as a tree of scopes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

from irscope.ir.places import Scope, root_scope


class Calls:
    """Follows calls of modules by replacing `nn.Module._call_impl`.

    Hooks would do as well, but some modules choose other kernels when they have any, and the user's modules are left alone.
    """

    def __init__(self, root: nn.Module | None) -> None:
        self.root = root_scope()
        self.current = self.root
        self.failed: Scope | None = None
        """The innermost call in which an error was raised."""
        self._paths: dict[int, str] = {}
        if root is not None:
            for name, module in root.named_modules():
                self._paths.setdefault(id(module), name)
        self._main = root
        self._counts: dict[tuple[Scope, str], int] = {}

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Within the context calls are followed."""
        kind: Any = nn.Module
        original = kind._call_impl
        follower = self

        def called(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            outer = follower.current
            follower.current = follower.enter(module)
            try:
                return original(module, *args, **kwargs)
            except Exception:
                follower.failed = follower.failed or follower.current
                raise
            finally:
                follower.current = outer

        kind._call_impl = called
        try:
            yield
        finally:
            kind._call_impl = original

    def enter(self, module: nn.Module) -> Scope:
        """The scope of a call that begins now."""
        if module is self._main and self.current is self.root:
            return self.root
        path = self._paths.get(id(module))
        name = _relative(path, self.current.module) if path is not None else f"={type(module).__name__}"
        call = self._counts.get((self.current, name), 0)
        self._counts[self.current, name] = call + 1
        return self.current.child(name, type(module).__name__, call)

    @property
    def names(self) -> Mapping[int, str]:
        """Paths of the model's modules by identity."""
        return self._paths


def _relative(path: str, parent: str) -> str:
    if not parent:
        return path
    return path[len(parent) + 1 :] if path.startswith(f"{parent}.") else f"={path}"
