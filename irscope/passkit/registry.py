"""Finding passes by name without importing those that are not asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint

from irscope.errors import UsageError
from irscope.passkit.base import Pass

ENTRY_POINT_GROUP = "irscope.passes"
BUILTIN_TABLE = "irscope.passes"


@dataclass(frozen=True, slots=True)
class PassEntry:
    """A pass that can be named: where its class is, and one line on what it does."""

    target: str
    summary: str


@dataclass
class PassRegistry:
    """Names of passes and pipelines. Plugins are looked up when a name is not built in, or for a listing."""

    entries: Mapping[str, PassEntry]
    pipelines: Mapping[str, str]
    _plugins: dict[str, EntryPoint] | None = field(default=None, repr=False)

    def find(self, reference: str) -> type[Pass]:
        """The class of a pass by name, or of `file.py:Name`. Raises KeyError for an unknown name."""
        from irscope.passkit.script import is_script_reference, load_script_pass

        if is_script_reference(reference):
            return load_script_pass(reference)
        entry = self.entries.get(reference)
        if entry is not None:
            module, _, attribute = entry.target.partition(":")
            found = getattr(importlib.import_module(module), attribute)
        else:
            found = self._load_plugin(reference, self.plugins()[reference])
        if not (isinstance(found, type) and issubclass(found, Pass)):
            raise UsageError(f"{reference!r} is not a pass but {found!r}", code="IRS607")
        return found

    @staticmethod
    def _load_plugin(name: str, point: EntryPoint) -> object:
        try:
            return point.load()
        except (Exception, SystemExit) as error:
            owner = point.dist.name if point.dist else point.value
            raise UsageError(f"pass {name!r} of {owner} cannot be imported: {type(error).__name__}: {error}", code="IRS101") from error

    def plugins(self) -> Mapping[str, EntryPoint]:
        """Passes that installed packages offer; a name claimed twice is an error naming both."""
        if self._plugins is None:
            from importlib.metadata import entry_points

            found: dict[str, EntryPoint] = {}
            for point in entry_points(group=ENTRY_POINT_GROUP):
                owner = point.dist.name if point.dist else point.value
                other = found.get(point.name)
                if other is not None or point.name in self.entries:
                    first = (other.dist.name if other.dist else other.value) if other is not None else "irscope"
                    raise UsageError(
                        f"pass {point.name!r} comes from both {first} and {owner}", code="IRS602", hint="uninstall one of them"
                    )
                found[point.name] = point
            self._plugins = found
        return self._plugins

    def names(self) -> list[str]:
        """Every name that stands for a pass or pipeline."""
        return sorted({*self.entries, *self.pipelines, *self.plugins()})


def default_registry() -> PassRegistry:
    """The passes that come with irscope, and those of installed plugins."""
    table = importlib.import_module(BUILTIN_TABLE)
    return PassRegistry(table.PASSES, table.PIPELINES)


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like a mistyped name, if one is like it at all."""
    found = difflib.get_close_matches(name, list(candidates), n=1)
    return found[0] if found else None
