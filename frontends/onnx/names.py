"""Names of values: unique in the whole program, raw as in the file wherever that is possible."""

from __future__ import annotations

import re

_NO_IDENTIFIER = re.compile(r"\W+", re.ASCII)


class Names:
    """Hands out names; one that is taken gets a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, name: str) -> str | None:
        """This name, or with ".1", ".2", ... behind it where it is taken; None for no name."""
        if not name:
            return None
        taken = self._taken
        if name not in taken:
            taken.add(name)
            return name
        number = self._next.get(name, 1)
        while (numbered := f"{name}.{number}") in taken:
            number += 1
        self._next[name] = number + 1
        taken.add(numbered)
        return numbered


def identifier(text: str) -> str:
    """A text as an identifier: other characters become underscores."""
    made = _NO_IDENTIFIER.sub("_", text).strip("_")
    return made if made and not made[0].isdigit() else f"s_{made}".rstrip("_")
