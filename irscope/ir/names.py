"""Names of values that stay unique."""

from __future__ import annotations


class Names:
    """Hands out names, with a number behind those that are taken."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """The name itself where it is free, else with a number."""
        if name not in self._next:
            self._next[name] = 1
            return name
        while True:
            number = self._next[name]
            self._next[name] = number + 1
            candidate = f"{name}.{number}"
            if candidate not in self._next:
                self._next[candidate] = 1
                return candidate
