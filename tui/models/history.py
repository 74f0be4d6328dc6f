"""The navigation history, and bookmarks."""

from __future__ import annotations

from dataclasses import dataclass

_MOST = 200


@dataclass(frozen=True, slots=True)
class Place:
    """A row of the outline, seen on a screen."""

    screen: str
    row: int


class History:
    """Places in the order in which they were visited. Moving about changes the present place, a jump makes a new one."""

    def __init__(self, place: Place) -> None:
        self._places = [place]
        self._at = 0

    @property
    def place(self) -> Place:
        """Where the user is."""
        return self._places[self._at]

    def move(self, place: Place) -> None:
        """A small move, which makes no new history entry."""
        self._places[self._at] = place

    def jump(self, place: Place) -> None:
        """A jump, which makes a new history entry."""
        if place != self.place:
            self._places[self._at + 1 :] = [place]
            del self._places[:-_MOST]
            self._at = len(self._places) - 1

    def back(self) -> Place | None:
        """The place before; None at the first."""
        return self._go(-1)

    def forward(self) -> Place | None:
        """The place after; None at the last."""
        return self._go(1)

    def _go(self, by: int) -> Place | None:
        if not 0 <= self._at + by < len(self._places):
            return None
        self._at += by
        return self.place


class Bookmarks:
    """Rows to come back to, in the order of the model."""

    def __init__(self) -> None:
        self._rows: set[int] = set()

    def toggle(self, row: int) -> bool:
        """Put a bookmark on a row or take it away; True when it is there now."""
        self._rows ^= {row}
        return row in self._rows

    def __contains__(self, row: int) -> bool:
        return row in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> list[int]:
        """The rows with a bookmark, in order."""
        return sorted(self._rows)
