"""Finding passes by name without importing those that are not asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TypeVar

from irscope.errors import UsageError
from irscope.immutable import immutable, mutable
from irscope.passkit.base import Pass
from irscope.plugins import Plugin, plugins_by_name

ENTRY_POINT_GROUP = "irscope.passes"
BUILTIN_TABLE = "irscope.passes"


@immutable
class PassEntry:
    """A pass that can be named: where its class is, and one line on what it does."""

    target: str
    summary: str


_REGISTERED: dict[str, type[Pass]] = {}
"""Passes of this process that were given a name by `register`, or by a decorator."""


@mutable
class PassRegistry:
    """Names of passes and pipelines: irscope's own, those registered in this process, and those of plugins, in this order.

    Words of irscope's own names are joined by `-`; wherever a name is read, `_` means the same.
    """

    entries: Mapping[str, PassEntry]
    pipelines: Mapping[str, str]
    registered: Mapping[str, type[Pass]] = field(default_factory=dict)
    _plugins: dict[str, Plugin] | None = field(default=None, repr=False)

    def find(self, reference: str) -> type[Pass]:
        """Return the class of a pass by name, or of `file.py:Name`. Raises KeyError for an unknown name."""
        from irscope.passkit.script import is_script_reference, load_script_pass

        if is_script_reference(reference):
            return load_script_pass(reference)
        if (own := same_name(reference, self.entries)) is not None:
            module, _, attribute = self.entries[own].target.partition(":")
            found = getattr(importlib.import_module(module), attribute)
        elif (given := same_name(reference, self.registered)) is not None:
            found = self.registered[given]
        else:
            plugins = self.plugins()
            found = plugins[same_name(reference, plugins) or reference].load()
        if not (isinstance(found, type) and issubclass(found, Pass)):
            raise UsageError(f"{reference!r} is not a pass but {found!r}", code="IRS607")
        return found

    def plugins(self) -> Mapping[str, Plugin]:
        """Passes that installed packages offer; a name claimed twice is an error naming both."""
        if self._plugins is None:
            self._plugins = plugins_by_name(ENTRY_POINT_GROUP, frozenset(self.entries))
        return self._plugins

    def names(self) -> list[str]:
        """Return every name that stands for a pass or pipeline."""
        return sorted({*self.entries, *self.pipelines, *self.registered, *self.plugins()})


def same_name(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that a name means: that very name, else one that differs only in `-` and `_`."""
    spellings = list(candidates)
    if name in spellings:
        return name
    return next((spelling for spelling in spellings if spelling.replace("_", "-") == name.replace("_", "-")), None)


P = TypeVar("P", bound=type[Pass])


def register(cls: P) -> P:
    """Let pipelines of this process name a pass; also as a decorator. A later pass of the same name takes the place of the first.

    Names that irscope itself has stay its own.
    """
    given: object = cls  # a script's own types are not checked before it runs
    if not (isinstance(given, type) and issubclass(given, Pass)):
        raise UsageError(f"{cls!r} is not a pass: derive it from Analysis or Transform", code="IRS607")
    if same_name(cls.name, default_registry().entries):
        raise UsageError(f"pass {cls.name!r} is one of irscope's own", code="IRS602", hint="give yours another name")
    _REGISTERED[cls.name] = cls
    return cls


def default_registry() -> PassRegistry:
    """Return the passes that come with irscope, and those of installed plugins."""
    table = importlib.import_module(BUILTIN_TABLE)
    return PassRegistry(table.PASSES, table.PIPELINES, _REGISTERED)


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most like a mistyped name, if one is like it at all."""
    matches = difflib.get_close_matches(name, list(candidates), n=1)
    return matches[0] if matches else None
