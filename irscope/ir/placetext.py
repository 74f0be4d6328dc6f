"""Reading where nodes come from: scopes, their classes, and locations in the source."""

from __future__ import annotations

import re

from irscope.ir.places import Loc, Scope, root_scope
from irscope.ir.scanner import STRING, TextProblem, integer, unquote
from irscope.ir.spelling import BARE_FUNCTION, BARE_SCOPE, scope_component

MAX_CALLERS = 250

_LOC_AT = re.compile(
    rf'\(({STRING}):(-?[0-9]+)(?:[ \t]+(?:({BARE_FUNCTION})|({STRING})(?=[ \t]+")))?(?:[ \t]+({STRING}))?\)', re.DOTALL
).match
_CALLER_AT = re.compile(r"[ \t]*<[ \t]*").match
_COMPONENT = re.compile(r"[^#]*(?:#[0-9]+)?")
_CLASS_AT = re.compile(rf"({BARE_SCOPE}|{STRING})[ \t]+({STRING})").match


class PlaceReader:
    """Makes scopes and locations; the same spelling gives the same object."""

    def __init__(self) -> None:
        self.root = root_scope()
        self._scopes: dict[str, Scope] = {}
        self._locs: dict[str, Loc] = {}

    def begin(self, root: Scope) -> None:
        """Scopes belong to another tree from here on."""
        self.root = root
        self._scopes = {}

    def scope(self, token: str, at: int) -> Scope:
        """The scope that a path stands for, quoted or not."""
        found = self._scopes.get(token)
        if found is not None:
            return found
        path = unquote(token, at) if token[0] == '"' else token
        scope = self.root
        for component in path.split("/") if path else ():
            if _COMPONENT.fullmatch(component) is None:
                raise TextProblem(f"{component!r} is no part of a scope; a call is written name#1, a hash inside a name ~2", at)
            try:
                scope = scope.child(*_named(component))
            except ValueError:
                raise TextProblem("the number of this call is too large", at) from None
        self._scopes[token] = scope
        return scope

    def class_line(self, line: str, at: int) -> int:
        """Read the scope and the class that a `class` line gives it."""
        match = _CLASS_AT(line, at)
        if match is None:
            raise TextProblem('a scope and its class are missing, as in: class layer1/0 "BasicBlock"', at)
        self.scope(match[1], at).cls = unquote(match[2], match.start(2))
        return match.end()

    def loc_at(self, line: str, at: int) -> tuple[Loc, int]:
        """The location that starts with a parenthesis, with its callers, and the column behind it."""
        rest = line[at:]
        found = self._locs.get(rest)
        if found is not None:
            return found, len(line)
        matches: list[re.Match[str]] = []
        end = at
        while True:
            match = _LOC_AT(line, end)
            if match is None:
                raise TextProblem('a location looks like ("model.py":12 forward "x = self.fc(x)")', end)
            matches.append(match)
            if len(matches) > MAX_CALLERS:
                raise TextProblem(f"a location may have up to {MAX_CALLERS} callers", end)
            end = match.end()
            caller = _CALLER_AT(line, end)
            if caller is None:
                break
            end = caller.end()
        loc: Loc | None = None
        for match in reversed(matches):
            key = line[match.start() : end]
            loc = self._locs.get(key) or self._locs.setdefault(key, _make_loc(match, loc))
        assert loc is not None
        return loc, end


def _named(component: str) -> tuple[str, str, int]:
    name, call = scope_component(component)
    return name, "", call


def _make_loc(match: re.Match[str], caller: Loc | None) -> Loc:
    file = unquote(match[1], match.start(1))
    line = integer(match[2], match.start(2))
    function = match[3] or (unquote(match[4], match.start(4)) if match[4] else "")
    statement = unquote(match[5], match.start(5)) if match[5] else ""
    return Loc(file, line, function, statement, caller)
