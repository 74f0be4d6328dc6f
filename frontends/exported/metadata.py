"""Where a node comes from: the module stack and the stack trace that torch.export keeps for each."""

from __future__ import annotations

import re

from irscope.ir.places import Loc, Scope

_MOST_FRAMES = 64
_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<function>.*)$')


class Scopes:
    """Module calls in program order: a module that is left and entered again is called again."""

    def __init__(self, root: Scope) -> None:
        self._root = root
        self._open: list[tuple[str, str, Scope]] = []
        self._calls: dict[tuple[Scope, str], int] = {}
        self._last_text: str | None = None

    def at(self, text: str | None) -> Scope:
        """The scope of a node with this module stack; nodes without one belong to the call that is open."""
        if text is not None and text != self._last_text:
            entries = _entries(text)
            if entries is not None:
                self._last_text = text
                self._enter(entries)
        return self._open[-1][2] if self._open else self._root

    def _enter(self, entries: list[tuple[str, str, str]]) -> None:
        kept = 0
        while kept < len(entries) and kept < len(self._open) and entries[kept][0] == self._open[kept][0]:
            kept += 1
        del self._open[kept:]
        for key, path, cls in entries[kept:]:
            parent_path = self._open[-1][1] if self._open else ""
            parent = self._open[-1][2] if self._open else self._root
            name = _relative(path, parent_path)
            call = self._calls.get((parent, name), 0)
            self._calls[parent, name] = call + 1
            self._open.append((key, path, parent.child(name, cls, call)))


def _relative(path: str, parent: str) -> str:
    if not parent:
        return path
    return path[len(parent) + 1 :] if path.startswith(f"{parent}.") else f"={path}"


def _entries(text: str) -> list[tuple[str, str, str]] | None:
    """(key, path, class) of every module below the root; None where the text is no module stack."""
    entries: list[tuple[str, str, str]] = []
    for part in text.split(";"):
        fields = part.split(",", 2)
        if len(fields) != 3 or fields[0].startswith("_empty_nn_module_stack"):
            return None
        key, path, cls = fields
        if path:
            entries.append((key, path.partition("@")[0], cls.rpartition(".")[2]))
    return entries


class Locations:
    """Stack traces as locations, each text read once."""

    def __init__(self) -> None:
        self._found: dict[str, Loc | None] = {}

    def at(self, text: str | None) -> Loc | None:
        """The innermost place, whose callers hang on it."""
        if not text:
            return None
        if text not in self._found:
            self._found[text] = _read_trace(text)
        return self._found[text]


def _read_trace(text: str) -> Loc | None:
    loc: Loc | None = None
    frames = 0
    pending: tuple[str, int, str] | None = None
    statement: list[str] = []
    for line in [*text.split("\n"), 'File "", line 0, in ']:
        match = _FRAME.match(line)
        if match is None:
            statement.append(line.strip())
            continue
        if pending is not None and frames < _MOST_FRAMES:
            loc = Loc(*pending, " ".join(part for part in statement if part), loc)
            frames += 1
        pending = (match["file"], int(match["line"][:9]), match["function"].strip())
        statement = []
    return loc
