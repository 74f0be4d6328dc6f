"""The names of all rows as one text: little memory, and a word is found in it at once however many rows there are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from irscope.tui.models.outline import Ints
from irscope.tui.models.tree import Mask


class RowTexts:
    """A lower-case text for each row."""

    def __init__(self, texts: Iterable[str]) -> None:
        lines = [text.replace("\n", " ") if "\n" in text else text for text in texts]
        self._count = len(lines)
        self._text = "\n".join(lines).lower()

    @cached_property
    def _starts(self) -> Ints:
        breaks = [match.start() for match in re.finditer("\n", self._text)]
        starts: Ints = np.array([-1, *breaks], dtype=np.int64)[: self._count] + 1
        return starts

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> str:
        end = self._text.find("\n", int(self._starts[row]))
        return self._text[int(self._starts[row]) : end if end >= 0 else len(self._text)]

    def containing(self, word: str) -> Mask:
        """The rows whose text contains a word."""
        found = np.zeros(len(self), dtype=np.bool_)
        if not word:
            found[:] = True
            return found
        if "\n" in word or not len(self):
            return found
        places = [match.start() for match in re.finditer(re.escape(word), self._text)]
        if places:
            found[np.searchsorted(self._starts, np.array(places, dtype=np.int64), side="right") - 1] = True
        return found

    def matching(self, pattern: re.Pattern[str]) -> Mask:
        """The rows in whose text a regular expression is found."""
        lines = self._text.split("\n")[: self._count]
        return np.array([pattern.search(text) is not None for text in lines], dtype=np.bool_)
