"""Check that this machine can simulate programs, and change modules once a program has imported them; nothing is imported here."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import platform
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from irscope.errors import UsageError

_ELSEWHERE: Final = "a container of Linux will do; files, ONNX, cards of modules, passes, audits and the screen work here"


def check_machine() -> None:
    """Raise UsageError where programs cannot be simulated."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        here = f"{sys.platform} on {platform.machine()}"
        raise UsageError(f"programs are simulated on Linux on x86-64, not on {here}", code="IRS644", hint=_ELSEWHERE)
    if importlib.util.find_spec("torch") is None:
        raise UsageError("torch is not installed", code="IRS192", hint="a program that is simulated needs it: pip install torch")


class ChangedImports(importlib.abc.MetaPathFinder):
    """Calls a function with each of some modules when it has been executed."""

    def __init__(self, changes: Mapping[str, Callable[[Any], None]]) -> None:
        self._changes = changes

    def install(self) -> None:
        """Change what is imported, and from here on what will be."""
        for name, change in self._changes.items():
            if name in sys.modules:
                change(sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        change = self._changes.get(name)
        spec = None if change is None else importlib.machinery.PathFinder.find_spec(name, path, target)
        if change is not None and spec is not None and spec.loader is not None:
            spec.loader = _Changed(spec.loader, change)
        return spec


class _Changed(importlib.abc.Loader):
    """A loader whose module is changed once it has been executed."""

    def __init__(self, loader: Any, change: Callable[[Any], None]) -> None:
        self._loader, self._change = loader, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # such as the source, for tracebacks

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)
