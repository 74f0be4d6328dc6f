"""What installed packages add: entry points of the groups `irscope.passes`, `irscope.ops`, `irscope.devices` and so on.

Nothing of a package is imported before something of it is asked for by name, and what fails then is one line that names the package.
"""

from __future__ import annotations

import functools
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Final

from irscope.errors import UsageError
from irscope.immutable import immutable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_GROUPS: Final = b"[irscope."
"""How the heading of each of the groups begins."""


@immutable
class Plugin:
    """One entry point of an installed package."""

    group: str
    point: EntryPoint

    @property
    def name(self) -> str:
        return self.point.name

    @property
    def module(self) -> str:
        """The module or package it names."""
        return self.point.value.partition(":")[0]

    @property
    def owner(self) -> str:
        """The package that it comes from."""
        return self.point.dist.name if self.point.dist else self.point.value

    def load(self) -> object:
        """Return the object it names. UsageError (IRS101) where its package cannot be imported, whatever that raises."""
        try:
            found: object = self.point.load()
        except (Exception, SystemExit) as error:
            what = self.group.partition(".")[2]
            raise UsageError(
                f"{what} {self.name!r} of {self.owner} cannot be imported: {type(error).__name__}: {error}", code="IRS101"
            ) from error
        return found


def plugins(group: str) -> list[Plugin]:
    """Return the entry points of a group in the order of their names."""
    if "importlib.metadata" not in sys.modules and not _may_be_there(tuple(sys.path)):
        return []
    from importlib.metadata import entry_points

    return sorted((Plugin(group, point) for point in entry_points(group=group)), key=lambda plugin: plugin.name)


@functools.cache
def _may_be_there(folders: tuple[str, ...]) -> bool:
    """Return whether any installed package may have entry points for irscope: importlib.metadata, which knows, takes longer to import than
    looking into the files takes. What it would find elsewhere than in these folders is left to it."""
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return True
    for folder in map(Path, folders):
        if folder.is_file():
            return True
        try:
            names = [name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info", ".egg"))]
        except OSError:
            continue
        for name in names:
            try:
                if name.endswith(".egg") or _GROUPS in (folder / name / "entry_points.txt").read_bytes():
                    return True
            except OSError:
                continue
    return False


def plugins_by_name(group: str, taken: frozenset[str] = frozenset()) -> dict[str, Plugin]:
    """Return the entry points of a group by name. A name claimed twice, or that irscope itself has, is an error (IRS602) naming both."""
    found: dict[str, Plugin] = {}
    for plugin in plugins(group):
        other = found.get(plugin.name)
        if other is not None or plugin.name in taken:
            first = "irscope" if other is None else other.owner
            what = group.partition(".")[2]
            raise UsageError(
                f"{what} {plugin.name!r} comes from both {first} and {plugin.owner}", code="IRS602", hint="uninstall one of them"
            )
        found[plugin.name] = plugin
    return found
