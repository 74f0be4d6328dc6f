"""Which rows of an outline are visible: expanding, collapsing and filtering are array operations, no row is ever rebuilt."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.tui.models.folds import Folds, no_folds
from irscope.tui.models.outline import Ints, Outline

Mask: TypeAlias = NDArray[np.bool_]
_FIRST_ROWS = 40
"""A model opens with its outer levels expanded as far as about this many rows."""


class TreeModel:
    """The visible rows. While a filter is set, what it matches is shown with the rows above, and has its own expansion."""

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self._below = outline.end - np.arange(len(outline), dtype=np.int64) - 1
        self._collapsed: Mask = self._below > 0
        self._unfiltered = self._collapsed
        self._matches: Mask | None = None
        self._kept: Mask | None = None
        self.folds: Folds = no_folds(outline)
        self._folded: Mask = np.zeros(0, dtype=np.bool_)
        """The runs of alike modules that are shown as one row."""
        self.visible: Ints = np.zeros(0, dtype=np.int64)
        """Rows of the outline that are shown, in order."""
        self._expand_first_levels()
        self._update()

    def __len__(self) -> int:
        return len(self.visible)

    # -- what is where -----------------------------------------------------------------------------------------

    def row(self, index: int) -> int:
        """The row of the outline that is shown at an index."""
        return int(self.visible[index])

    def index(self, row: int) -> int:
        """Where a row is shown; for one that is not, the nearest shown row above it in the list, 0 if there is none."""
        return max(0, int(np.searchsorted(self.visible, row, side="right")) - 1)

    def is_visible(self, row: int) -> bool:
        """Whether a row is shown."""
        return bool(len(self)) and self.row(self.index(row)) == row

    def is_expanded(self, row: int) -> bool:
        """Whether the rows below a row are shown with it."""
        return not self._collapsed[row] and not self.is_folded(row)

    def is_match(self, row: int) -> bool:
        """Whether the filter matches a row, rather than one below it."""
        return self._matches is not None and bool(self._matches[row])

    def matching(self) -> Mask:
        """Which of the rows that are shown the filter matches."""
        return np.ones(len(self), dtype=np.bool_) if self._matches is None else self._matches[self.visible]

    @property
    def matches(self) -> int | None:
        """How many rows the filter matches, None without a filter."""
        return None if self._matches is None else int(self._matches.sum())

    # -- expanding ---------------------------------------------------------------------------------------------

    def toggle(self, row: int) -> None:
        """Expand a collapsed row, collapse an expanded one; rows with nothing below stay as they are."""
        self.set_expanded(row, not self.is_expanded(row))

    def set_expanded(self, row: int, expanded: bool) -> None:
        """Show or hide the rows below a row; what stands for several modules alike shows these first."""
        if self.is_folded(row):
            if expanded:
                self._folded[self.folds.run_of[row]] = False
                self._update()
        elif self._below[row] > 0 and self.is_expanded(row) != expanded:
            self._collapsed[row] = not expanded
            self._update()

    def expand_all(self) -> None:
        """Show everything."""
        self._collapsed[:] = False
        self._folded[:] = False
        self._update()

    def collapse_all(self) -> None:
        """Show the top level only."""
        np.greater(self._below, 0, out=self._collapsed)
        self._folded[:] = True
        self._update()

    def reveal(self, row: int) -> None:
        """Expand what hides a row; a filter that leaves the row out is dropped."""
        if self._kept is not None and not self._kept[row]:
            self.set_filter(None)
        above = list(self.outline.ancestors(row))
        self._collapsed[above] = False
        for one in (row, *above):
            run = int(self.folds.run_of[one])
            # The first of a run may be selected while it stands for all of them.
            if run >= 0 and not (one == row and row == self.folds.leader[run]):
                self._folded[run] = False
        self._update()

    def _expand_first_levels(self) -> None:
        depth = self.outline.depth
        level = 0
        while int((depth <= level + 1).sum()) <= _FIRST_ROWS and level <= depth.max(initial=0):
            self._collapsed[depth == level] = False
            level += 1

    # -- modules alike -----------------------------------------------------------------------------------------

    def set_folds(self, folds: Folds) -> None:
        """Show each of these runs as one row."""
        self.folds, self._folded = folds, np.ones(len(folds), dtype=np.bool_)
        # Opened, a run shows its modules, not all that is in them.
        self._unfiltered[(folds.run_of >= 0) & (self._below > 0)] = True
        self._update()

    def is_folded(self, row: int) -> bool:
        """Whether a row stands for several modules alike."""
        run = int(self.folds.run_of[row])
        return run >= 0 and self._kept is None and bool(self._folded[run]) and int(self.folds.leader[run]) == row

    def alike(self, row: int) -> list[int]:
        """The modules that a folded row stands for; nothing for other rows."""
        return self.folds.members(int(self.folds.run_of[row]), self.outline) if self.is_folded(row) else []

    def fold(self, row: int) -> int | None:
        """Show the run that a module belongs to as one row again; the row that stands for it, None where there is no run."""
        run = int(self.folds.run_of[row])
        if run < 0 or self._folded[run] or self._kept is not None:
            return None
        self._folded[run] = True
        self._update()
        return int(self.folds.leader[run])

    # -- filtering ---------------------------------------------------------------------------------------------

    def set_filter(self, matches: Mask | None) -> None:
        """Show only the rows that match and those above them; None shows all again, expanded as before."""
        if matches is None:
            if self._matches is not None:
                self._collapsed = self._unfiltered
            self._matches = self._kept = None
        else:
            if self._matches is None:
                self._unfiltered = self._collapsed
            self._collapsed = np.zeros(len(self.outline), dtype=np.bool_)
            self._matches = matches
            before = np.concatenate(([0], np.cumsum(matches)))
            self._kept = before[self.outline.end] > before[:-1]
        self._update()

    def _update(self) -> None:
        count = len(self.outline)
        closed = np.flatnonzero(self._collapsed & (self._below > 0))
        starts = np.bincount(closed + 1, minlength=count + 1)
        ends = np.bincount(self.outline.end[closed], minlength=count + 1)
        if self._kept is None and len(self.folds):
            starts += np.bincount(self.folds.leader[self._folded] + 1, minlength=count + 1)
            ends += np.bincount(self.folds.end[self._folded], minlength=count + 1)
        shown = np.cumsum(starts - ends)[:count] == 0
        self.visible = np.flatnonzero(shown if self._kept is None else shown & self._kept)
