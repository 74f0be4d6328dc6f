"""Text from a model file made safe to show: nothing in it can move the cursor, change colours or reorder a line."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from irscope.immutable import immutable

LONGEST_TEXT: Final = 2_000
"""Characters of a cell in a terminal or on a page; files of data hold all."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def printable(text: str, encoding: str = "utf-8") -> str:
    """Return the text with every control, format, bidirectional and surrogate character escaped the way Python's repr does.

    Characters that `encoding` lacks are escaped too, so the result can always be written.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = "".join(character if character.isprintable() else escaped(character) for character in text)
    return shown if can_encode(shown, encoding) else shown.encode(encoding, "backslashreplace").decode(encoding)


def legible(text: str, encoding: str = "utf-8") -> str:
    """Return the text as `printable`, but of one that nobody would read to its end only head and tail: escaping ten megabytes takes
    seconds.
    """
    if len(text) > LONGEST_TEXT:
        text = f"{text[: LONGEST_TEXT // 2]}...{text[-LONGEST_TEXT // 2 :]}"
    return printable(text, encoding)


def can_encode(text: str, encoding: str) -> bool:
    """Return whether a stream of this encoding can take the text."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def well_formed(text: str) -> str:
    """Return the text with lone surrogates escaped: other programs refuse JSON and UTF-8 that hold them."""
    if text.isascii() or can_encode(text, "utf-8"):
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def escaped(character: str) -> str:
    """Return a character as Python's repr writes one that cannot be shown."""
    code = ord(character)
    if code < 0x100:
        return _SHORT.get(character) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def display_width(text: str) -> int:
    """Columns a terminal needs for printable text: East Asian wide characters take two, combining marks none."""
    return len(text) if text.isascii() else sum(map(_cell_width, text))


@functools.cache
def _cell_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return the text filled with spaces to a display width; `right` puts the spaces before it."""
    fill = " " * (width - display_width(text))
    return fill + text if right else text + fill


def cut_middle(text: str, width: int, ellipsis: str = "…") -> str:
    """Return the text within a display width, cut in the middle: both ends of a module path tell something."""
    if display_width(text) <= width:
        return text
    room = width - display_width(ellipsis)
    if room <= 0:
        return _head(text, width)
    head = _head(text, (room + 1) // 2)
    return head + ellipsis + _tail(text, room - display_width(head))


@immutable
class ColumnRoom:
    """The room that a column of a table wants: all of it, the least it may be cut to, and when it goes where the room is short."""

    whole: int
    least: int
    rank: int = 0
    """The column of the highest rank goes first, of several of a rank the last; those of rank 0 stay."""
    grows: bool = False
    """True where it takes the width that the others leave."""
    needs: int = 0
    """Width of its longest cell where that is known, else 0: a column that grows takes no more, and what is in a row stays together."""


def column_widths(columns: Sequence[ColumnRoom], width: int, gap: int) -> list[int]:
    """Return the width of each column, 0 for one that has no room: first columns go, then no column is wider than the widest limit that
    fits.

    Columns that grow share what is left, in proportion to the width that they want; none gets more than it is known to need.
    """
    used = [column.least for column in columns]

    def gaps() -> int:
        return gap * (sum(1 for one in used if one) - 1)

    while sum(used) + gaps() > width:
        droppable = [number for number, column in enumerate(columns) if used[number] and column.rank]
        if not droppable:
            break
        used[max(droppable, key=lambda number: (columns[number].rank, number))] = 0
    shown = [number for number, one in enumerate(used) if one]
    fixed = [number for number in shown if not columns[number].grows]
    room = width - gaps() - sum(columns[number].least for number in shown if columns[number].grows)
    low, high = 0, max((columns[number].whole for number in fixed), default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(max(columns[number].least, min(columns[number].whole, middle)) for number in fixed) <= room:
            low = middle
        else:
            high = middle - 1
    for number in fixed:
        used[number] = max(columns[number].least, min(columns[number].whole, low))
    growing = [number for number in shown if columns[number].grows]
    left = max(width - gaps() - sum(used[number] for number in fixed), 0)
    while growing:
        _share(growing, columns, left, used)
        full = [number for number in growing if 0 < columns[number].needs < used[number]]
        if not full:
            break
        for number in full:
            used[number] = columns[number].needs
            left -= used[number]
        growing = [number for number in growing if number not in full]
    return used


def _share(growing: Sequence[int], columns: Sequence[ColumnRoom], left: int, used: list[int]) -> None:
    """Give the columns that grow what is left, in proportion to the width that they want."""
    wanted, begun = sum(columns[number].whole for number in growing), 0
    for number in growing:
        end = begun + columns[number].whole
        used[number] = left * end // wanted - left * begun // wanted
        begun = end


LONGEST_LINE: Final = 400
"""Characters of an error or warning: what a person reads at once, about five lines of a terminal."""
_NAME_IN_LINE: Final = 60


def one_line(text: str) -> str:
    """Return a message of at most 400 characters, printable whatever names a model file holds: long words are cut in the middle, then the
    line.
    """
    if len(text) > LONGEST_TEXT:
        # Words first: what is said between two names of a megabyte stays.
        text = re.sub(r"\S{121,}", lambda word: f"{word[0][:_NAME_IN_LINE]}...{word[0][-_NAME_IN_LINE:]}", text)
    text = legible(text)
    if len(text) > LONGEST_LINE:
        text = re.sub(r"\S{61,}", lambda word: cut_middle(word[0], _NAME_IN_LINE, "..."), text)
    return cut_middle(text, LONGEST_LINE, "...")


def _head(text: str, width: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += _cell_width(character)
        if used > width:
            return text[:index]
    return text


def _tail(text: str, width: int) -> str:
    used = 0
    start = len(text)
    for index in range(len(text) - 1, -1, -1):
        size = _cell_width(text[index])
        used += size
        if used > width:
            break
        if size:  # a combining mark is kept only together with the character it belongs to
            start = index
    return text[start:]
