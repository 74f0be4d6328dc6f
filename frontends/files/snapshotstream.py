"""Reads the pickle of a memory snapshot into columns: a small machine that knows data alone, and records of a trace many at a time.

A snapshot is one pickle of lists, dictionaries, numbers and text. The machine below runs its opcodes one after another and knows none that
names a class or calls anything. Most of a large file are the entries of a trace, which differ in a few numbers: once the machine has
read one of them, whatever follows it with the same opcodes is decoded at once, numbers into arrays, stacks as numbers of
stacks that were seen before. What does not match to the byte is left to the machine, so that the two can only agree.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from irscope.budget import spend
from irscope.frontends.files.pickled import PickleStack
from irscope.immutable import immutable

_WINDOW: Final = 2 << 20
"""Bytes of a file that are decoded at once: what the caches of a processor hold."""
_AHEAD: Final = 16
"""More than any opcode of fixed length has."""
_AT_ONCE: Final = 8192
_MOST_ROWS: Final = 1 << 16
_LONGEST_NUMBER: Final = 9
"""Bytes of a number of 64 bits, with its sign."""
_MOST_TEMPLATES: Final = 64
"""Kinds of entries that are learned; a file in which every entry is of its own kind is read one by one."""
_ACTION, _FRAMES = "action", "frames"
_NUMBERS: Final = ("addr", "device_free", "size", "stream", "time_us")
_TEXTS: Final = ("action", "user_metadata")

_Integers: TypeAlias = NDArray[np.int64]
_Bytes: TypeAlias = NDArray[np.uint8]


class NoSnapshot(ValueError):
    """The reason why a file is no snapshot."""


class _RefersBack(Exception):
    """Something refers to a text within an entry that was decoded with others."""


class Frame(NamedTuple):
    """A place on the stack."""

    name: str
    file: str
    line: int

    @property
    def text(self) -> str:
        return f"{self.file}:{self.line}"


def frame_of(record: dict[Any, Any]) -> Frame:
    """Return a frame as it is written; a line that is not known is 0, which before 2.1 was the highest number that there is."""
    name, file, line = record.get("name"), record.get("filename"), record.get("line")
    known = line if isinstance(line, int) and 0 <= line < 1 << 31 else 0
    return Frame(name if isinstance(name, str) else "", file if isinstance(file, str) else "", known)


@dataclass(frozen=True, slots=True)
class Rows:
    """Entries of a trace, by the numbers of their rows."""

    first: int
    count: int


@dataclass
class Columns:
    """The entries of all traces; text, stacks and pools are numbers of what is listed beside."""

    action: _Integers
    address: _Integers
    """Of an entry that tells that memory ran out, what the device had left."""
    size: _Integers
    stream: _Integers
    time: _Integers
    """Microseconds; 0 where none is told."""
    stack: _Integers
    note: _Integers
    pool: _Integers
    """0 for the pools that everybody shares."""
    actions: list[str]
    notes: list[str]
    stacks: list[tuple[int, ...]]
    """Numbers of frames, the innermost first."""
    frames: list[Frame]
    pools: list[tuple[int, ...]]


_NAMES: Final = ("action", "address", "size", "stream", "time", "stack", "note", "pool")


# -- kinds of entries ------------------------------------------------------------------------------------------------------


class _Token(NamedTuple):
    """A part of an entry."""

    kind: str
    """literal, number, text or frames."""
    key: str = ""
    literal: bytes = b""
    memos: int = 0
    """Number of times that a literal puts something into the memo."""


_LIST: Final = re.compile(rb"(?:\((?:h.|j....)+e|(?:h.|j....)a)?", re.DOTALL)
"""Bytes that follow an empty list that references are put into."""
_REF: Final = re.compile(rb"h(.)|j(....)", re.DOTALL)


def _width_table() -> _Integers:
    """Length of a number's opcode and value by its opcode; 0 for what is none, -1 where the next byte tells."""
    widths = np.zeros(256, dtype=np.int64)
    widths[ord("K")], widths[ord("M")], widths[ord("J")], widths[0x8A] = 2, 3, 5, -1
    return widths


_WIDTHS: Final = _width_table()
_MASKS: Final = np.array([0] + [(1 << 8 * count) - 1 for count in range(1, 9)], dtype=np.uint64)


class _Matches:
    """Entries of one kind in a window: where each begins and ends, and its numbers."""

    def __init__(self, data: bytes, tokens: tuple[_Token, ...]) -> None:
        self._bytes = np.frombuffer(data, dtype=np.uint8)
        self._words = np.ndarray((max(len(data) - 8, 0),), "<u8", data, strides=(1,))
        self.values: dict[str, _Integers] = {}
        self.inline: dict[str, NDArray[np.bool_]] = {}
        """Texts that stand in the entry itself: their values are where they begin."""
        self.memos = np.zeros(0, dtype=np.int64)
        first = tokens[0].literal
        places = np.flatnonzero(self._bytes[: max(len(data) - len(first) - 8, 0)] == first[0])
        for number, byte in enumerate(first[1:], 1):
            places = places[self._bytes[places + number] == byte]
        self.starts = places
        self._good = np.ones(len(places), dtype=np.bool_)
        self._at = places + len(first)
        self.memos = np.full(len(places), tokens[0].memos, dtype=np.int64)
        self._last = max(len(self._words) - 1, 0)
        for token in tokens[1:]:
            if not len(places):
                break
            getattr(self, f"_{token.kind}")(token)
        self.ends = self._at
        # What follows an entry is the next one, or the end of a list's part and the beginning of another.
        following = np.append(self.starts[1:], len(data))
        again = (self.ends == following - 2) & (self._byte(self.ends) == ord("e")) & (self._byte(self.ends + 1) == ord("("))
        self._good &= (self.ends <= len(data) - 8) & (self.ends > self.starts)
        self.linked = (self.ends == following) | again

    def run_from(self, place: int) -> tuple[int, int]:
        """Return the matches that follow each other from a place on: the first, and the one after the last."""
        at = int(np.searchsorted(self.starts, place))
        if at == len(self.starts) or self.starts[at] != place or not self._good[at]:
            return at, at
        stops = self._stops
        # The last of a run ends it where nothing that matches follows.
        end = int(stops[np.searchsorted(stops, at)]) + 1
        return at, end if self._good[end - 1] else end - 1

    @property
    def _stops(self) -> _Integers:
        if not hasattr(self, "_found_stops"):
            good = self._good
            goes_on = good & self.linked & np.append(good[1:], False)
            self._found_stops = np.flatnonzero(~goes_on)
        return self._found_stops

    def _byte(self, at: _Integers) -> _Bytes:
        return self._bytes[np.minimum(at, len(self._bytes) - 1)]

    def _word(self, at: _Integers) -> NDArray[np.uint64]:
        word: NDArray[np.uint64] = self._words[np.minimum(at, self._last)]
        return word

    def _literal(self, token: _Token) -> None:
        for number, byte in enumerate(token.literal):
            self._good &= self._byte(self._at + number) == byte
        self._at = self._at + len(token.literal)
        self.memos += token.memos

    def _number(self, token: _Token) -> None:
        at = self._at
        code = self._byte(at)
        widths = _WIDTHS[code]
        is_long = widths < 0
        counts = np.where(is_long, self._byte(at + 1).astype(np.int64), widths - 1)
        self._good &= (widths != 0) & (counts <= 8)
        counts = np.clip(counts, 0, 8)
        found = self._word(at + 1 + is_long) & _MASKS[counts]
        # Of those with a sign: four bytes, and any number of bytes that the opcode tells.
        shift = (64 - 8 * np.clip(counts, 1, 8)).astype(np.uint64)
        signed = (found << shift).view(np.int64) >> shift.view(np.int64)
        values = np.where(is_long | (widths == 5), signed, found.view(np.int64))
        self.values[token.key] = np.where(counts == 0, 0, values)
        self._at = at + 1 + is_long + counts

    def _text(self, token: _Token) -> None:
        at = self._at
        code = self._byte(at)
        short, long, here = code == ord("h"), code == ord("j"), code == 0x8C
        word = self._word(at + 1)
        refs = np.where(short, word & np.uint64(0xFF), word & np.uint64(0xFFFFFFFF)).astype(np.int64)
        length = self._byte(at + 1).astype(np.int64)
        self.values[token.key] = np.where(here, at, refs)
        self.inline[token.key] = here
        width = np.where(short, 2, np.where(long, 5, 3 + length))
        # A new action is read by itself, as others refer to it.
        self._good &= short | long | (here & (token.key != _ACTION) & (self._byte(at + 2 + length) == 0x94))
        self.memos += here
        self._at = at + width

    def _frames(self, token: _Token) -> None:
        """A reference to a list, or a list of references; that ends where the entry does, which is checked when it is looked at."""
        at = self._at
        code = self._byte(at)
        here = (code == ord("]")) & (self._byte(at + 1) == 0x94)
        short, long = code == ord("h"), code == ord("j")
        word = self._word(at + 1)
        refs = np.where(short, word & np.uint64(0xFF), word & np.uint64(0xFFFFFFFF)).astype(np.int64)
        self.values[token.key] = np.where(here, at, refs)
        self.inline[token.key] = here
        self._good &= short | long | here
        self.memos += here
        # The entry ends with the dictionary's `u`; before the next entry stands at most the cut between two parts of a list.
        following = np.append(self.starts[1:], len(self._bytes))
        cut = (self._byte(following - 1) == ord("(")) & (self._byte(following - 2) == ord("e")) & (self._byte(following - 3) == ord("u"))
        # Without a next entry nobody tells where a list ends.
        if len(following):
            self._good[-1] &= ~here[-1]
        self._at = np.where(here, following - np.where(cut, 3, 1), at + np.where(short, 2, 5))


# -- the machine -----------------------------------------------------------------------------------------------------------


@dataclass
class _Written:
    """Rows so far: parts of columns, and rows of which each was read by itself."""

    parts: dict[str, list[_Integers]] = field(default_factory=lambda: {name: [] for name in _NAMES})
    rows: list[tuple[int, ...]] = field(default_factory=list)
    count: int = 0

    def one(self, row: tuple[int, ...]) -> None:
        self.rows.append(row)
        self.count += 1

    def several(self, columns: dict[str, _Integers], count: int) -> None:
        self.flush()
        for name, column in columns.items():
            self.parts[name].append(column)
        self.count += count

    def flush(self) -> None:
        if self.rows:
            made = np.array(self.rows, dtype=np.int64)
            for number, name in enumerate(_NAMES):
                self.parts[name].append(made[:, number])
            self.rows = []

    def column(self, name: str) -> _Integers:
        parts = self.parts.pop(name)
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def read_columns(stream: IO[bytes], window: int = _WINDOW) -> tuple[Any, Columns]:
    """Read one pickle: the object, in which entries of traces are `Rows`, and the columns of those."""
    start = stream.tell()
    try:
        return _Machine(stream, window).read()
    except _RefersBack:
        # No version of torch is known to write that.
        stream.seek(start)
        return _Machine(stream, window, one_by_one=True).read()


class _Machine(PickleStack):
    def __init__(self, stream: IO[bytes], window: int, *, one_by_one: bool = False) -> None:
        super().__init__()
        self._stream = stream
        self._window = window
        self._data = b""
        self._base = 0
        """Where the window begins, less the opcodes of frames that were left out."""
        self._in_frame = 0
        self._raw = False
        self._ended = False
        self._memo_count = 0
        self._starts: dict[int, int] = {}
        """By number of marks, where the last dictionary begins."""
        self._depth = -1
        """Number of marks where entries of traces begin."""
        self._templates: list[tuple[_Token, ...]] = []
        self._learned = _MOST_TEMPLATES if one_by_one else 0
        self._matches: dict[tuple[_Token, ...], _Matches] = {}
        self._lists: list[tuple[_Integers, _Integers]] = []
        """Of lists of frames that were decoded with their entries: numbers in the memo, and of stacks."""
        self._written = _Written()
        self._tables: dict[str, dict[Any, int]] = {name: {} for name in ("actions", "notes", "frames", "stacks", "pools")}
        self._tables["notes"][""] = self._tables["pools"][(0, 0)] = self._tables["stacks"][()] = 0
        self._spans: dict[bytes, int] = {}
        self._stack_of: dict[int, tuple[Any, int]] = {}
        """By identity of a list of frames."""
        self._frame_of: dict[int, tuple[Any, int]] = {}

    # Bytes

    def _more(self, at: int) -> int:
        """Forget what is before a place, and read on; the same place in the new window. Frames of the format are taken off."""
        kept = self._data[at:]
        self._base += at
        found = [kept]
        left = self._window
        while left > 0 and not self._ended:
            if not self._raw and not self._in_frame:
                self._next_frame(found)
                continue
            data = self._stream.read(min(left, self._in_frame) if self._in_frame else left)
            self._ended = not data
            if self._in_frame:
                self._in_frame -= len(data)
            found.append(data)
            left -= len(data)
        self._data = b"".join(found)
        self._matches.clear()
        spend(len(self._data) >> 6, "a snapshot")
        return 0

    def _next_frame(self, found: list[bytes]) -> None:
        """The start of a frame; where something else stands, all of the rest is opcodes."""
        head = self._stream.read(9)
        if len(head) == 9 and head[0] == 0x95:
            self._in_frame = int.from_bytes(head[1:], "little")
            self._raw = not self._in_frame or self._in_frame > 1 << 40
            self._in_frame = 0 if self._raw else self._in_frame
        elif not head:
            self._ended = True
        else:
            found.append(head)
            self._raw = True

    def _need(self, at: int, count: int) -> int:
        """Return a place with so many bytes behind it."""
        if at + count > len(self._data):
            if count > 1 << 32:
                raise NoSnapshot("it is cut off")
            while at + count > len(self._data) and not self._ended:
                at = self._more(at)
            if at + count > len(self._data):
                raise NoSnapshot("it is cut off")
        return at

    # Running

    def read(self) -> tuple[Any, Columns]:
        """Run the pickle to its end."""
        head = self._stream.read(2)
        if len(head) < 2 or head[0] != 0x80 or not 2 <= head[1] <= 5:
            raise NoSnapshot("it is not a pickle of protocol 2 to 5")
        self._raw = head[1] < 4
        try:
            root = self._run()
        except (IndexError, TypeError, struct.error, UnicodeDecodeError):
            raise NoSnapshot("it breaks the rules of pickles, or is cut off") from None
        return root, self._columns()

    def _run(self) -> Any:
        stack, marks, memo = self._stack, self._marks, self._memo
        fixed, handlers = _FIXED, _HANDLERS
        at = self._more(0)
        count = 0
        while True:
            count += 1
            if not count % _AT_ONCE:
                spend(_AT_ONCE, "a snapshot")
            data = self._data
            if at + _AHEAD > len(data) and not self._ended:
                at = self._more(at)
                continue
            code = data[at]
            if code == 0x68:  # BINGET
                stack.append(self._recall(data[at + 1]))
                at += 2
            elif code == 0x94:  # MEMOIZE
                memo[self._memo_count] = stack[-1]
                self._memo_count += 1
                at += 1
            elif code in fixed:
                make, width = fixed[code]
                stack.append(make(data[at + 1 : at + width]))
                at += width
            elif code == 0x28:  # MARK
                marks.append(len(stack))
                at += 1
            elif code == 0x2E:  # STOP
                return self._pop()
            else:
                handler = handlers.get(code)
                if handler is None:
                    raise NoSnapshot(f"its opcode {code:#04x} does not occur in plain data; nothing was executed")
                at = handler(self, at)

    def _recall(self, number: int) -> Any:
        try:
            return self._memo[number]
        except KeyError:
            stack = self._list_stack(np.array([number], dtype=np.int64))
            if stack is None:
                if number < self._memo_count and self._lists:
                    raise _RefersBack from None
                raise NoSnapshot("it refers to what is not there") from None
            return KnownStack(int(stack[0]))

    def error(self, what: str) -> NoSnapshot:
        return NoSnapshot(f"it {what}")

    def _top(self, kind: type[Any]) -> Any:
        target = self._stack[-1]
        if type(target) is not kind:
            raise NoSnapshot("it adds to something that is not a list or dictionary")
        return target

    # Entries of traces

    def _entry(self, entry: dict[Any, Any], end: int) -> None:
        """Turn a dictionary that is an entry of a trace into a row."""
        stream, size = entry.get("stream"), entry.get("size")
        if type(entry.get(_ACTION)) is not str:
            return
        address = entry.get("addr", entry.get("device_free", 0))
        numbers: tuple[Any, ...] = (address, size, stream if stream is not None else 0, entry.get("time_us", 0))
        if any(type(number) is not int or not -(1 << 63) <= number < 1 << 63 for number in numbers):
            raise NoSnapshot("a number of a trace is not a number of 64 bits")
        note, pool = entry.get("user_metadata", ""), entry.get("pool_id", (0, 0))
        key = pool if type(pool) is tuple and len(pool) == 2 and all(type(one) is int for one in pool) else (0, 0)
        self._written.one(
            (
                self._number("actions", entry[_ACTION]),
                *numbers,
                self.stack_number(entry.get(_FRAMES)),
                self._number("notes", note if type(note) is str else ""),
                self._number("pools", key),
            )
        )
        depth = len(self._marks)
        start = self._starts.get(depth, -1) - self._base
        self._depth = depth
        if start >= 0 and self._learned < _MOST_TEMPLATES:
            self._learned += 1
            made = self._template(self._data[start:end])
            if made is not None:
                if made in self._templates:
                    self._templates.remove(made)
                self._templates.insert(0, made)
        entry.clear()
        self._stack[-1] = Rows(self._written.count - 1, 1)

    def _number(self, table: str, value: Any) -> int:
        found = self._tables[table]
        return found.setdefault(value, len(found))

    def stack_number(self, frames: Any) -> int:
        """Return the number of a stack, from a list of dictionaries."""
        if frames is None:
            return 0
        if type(frames) is KnownStack:
            return frames.number
        known = self._stack_of.get(id(frames))
        if known is not None:
            return known[1]
        if type(frames) not in (list, tuple):
            raise NoSnapshot("frames is not a list")
        spend(len(frames), "stacks of a snapshot")
        number = self._number("stacks", tuple(map(self._frame_number, frames)))
        self._stack_of[id(frames)] = frames, number
        return number

    def _frame_number(self, frame: Any) -> int:
        known = self._frame_of.get(id(frame))
        if known is not None:
            return known[1]
        if type(frame) is not dict:
            raise NoSnapshot("an entry of frames is not a dictionary")
        number = self._number("frames", frame_of(frame))
        self._frame_of[id(frame)] = frame, number
        return number

    def _template(self, entry: bytes) -> tuple[_Token, ...] | None:
        """Return the kind of an entry, from its bytes; None for one that others cannot be like."""
        if entry[:3] != b"}\x94(" or entry[-1:] != b"u":
            return None
        tokens: list[_Token] = [_Token("literal", "", entry[:3], 1)]
        at, end = 3, len(entry) - 1
        while at < end:
            match = _REF.match(entry, at)
            key = self._memo.get(_ref(match)) if match is not None else None
            if match is None or type(key) is not str:
                return None
            tokens.append(_Token("literal", "", match[0]))
            at = match.end()
            made = self._value(entry, at, key)
            if made is None:
                return None
            found, at = made
            tokens += found
        if at != end or any(token.kind == "frames" for token in tokens[:-1]):
            return None
        tokens.append(_Token("literal", "", b"u"))
        joined: list[_Token] = []
        for token in tokens:
            if token.kind == "literal" and joined and joined[-1].kind == "literal":
                joined[-1] = _Token("literal", "", joined[-1].literal + token.literal, joined[-1].memos + token.memos)
            else:
                joined.append(token)
        return tuple(joined)

    def _value(self, entry: bytes, at: int, key: str) -> tuple[list[_Token], int] | None:
        """Return what stands behind a key, and where that ends."""
        code = entry[at]
        if key == _FRAMES:
            if code == 0x5D and entry[at + 1] != 0x94:
                return None
            match = _REF.match(entry, at) if code != 0x5D else _LIST.match(entry, at + 2)
            return None if match is None else ([_Token("frames", key)], match.end())
        match = _REF.match(entry, at)
        if match is not None:
            return [_Token("text", key)], match.end()
        if code == 0x8C:
            end = at + 3 + entry[at + 1]
            return ([_Token("text", key)], end) if entry[end - 1] == 0x94 else None
        width = _number_width(entry, at)
        if not width:
            return ([_Token("literal", "", entry[at : at + 1])], at + 1) if code in b"N\x88\x89" else None
        first = at + width
        second = _number_width(entry, first)
        if second and entry[first + second : first + second + 2] == b"\x86\x94":
            pair = [_Token("number", f"{key}[0]"), _Token("number", f"{key}[1]"), _Token("literal", "", b"\x86\x94", 1)]
            return pair, first + second + 2
        return [_Token("number", key)], first

    def _several(self, at: int) -> int:
        """Decode the entries from a place on that are of a kind that is known; returns where they end."""
        for template in self._templates:
            matches = self._matches.get(template)
            if matches is None:
                matches = self._matches[template] = _Matches(self._data, template)
            first, end = matches.run_from(at)
            done = self._take(matches, first, end) if end > first else first
            if done > first:
                if template is not self._templates[0]:
                    self._templates.remove(template)
                    self._templates.insert(0, template)
                return int(matches.ends[done - 1])
        return at

    def _take(self, matches: _Matches, first: int, end: int) -> int:
        """Rows of matches; returns the first that is none after all."""
        end = min(end, first + _MOST_ROWS)
        memos = self._memo_count + np.cumsum(matches.memos[first:end])
        stacks, good = self._stacks(matches, first, end, memos)
        columns: dict[str, _Integers] = {}
        for name, table in (("action", "actions"), ("user_metadata", "notes")):
            columns[name], count = self._texts(matches, name, table, first, first + good)
            good = min(good, count)
        if not good:
            return first
        count = good
        zeros = np.zeros(count, dtype=np.int64)

        def number(*keys: str) -> _Integers:
            return next((matches.values[key][first : first + count] for key in keys if key in matches.values), zeros)

        pools = zeros
        if "pool_id[0]" in matches.values:
            pools = self._pairs(number("pool_id[0]"), number("pool_id[1]"))
        row = self._written.count
        self._written.several(
            {
                "action": columns["action"][:count],
                "address": number("addr", "device_free"),
                "size": number("size"),
                "stream": number("stream"),
                "time": number("time_us"),
                "stack": stacks[:count],
                "note": columns["user_metadata"][:count],
                "pool": pools,
            },
            count,
        )
        inline = matches.inline.get(_FRAMES)
        if inline is not None:
            here = np.flatnonzero(inline[first : first + count])
            # The list of frames is the last that an entry puts into the memo.
            self._lists.append((memos[here] - 1, stacks[here]))
        self._memo_count = int(memos[count - 1])
        spend(count, "entries of a snapshot")
        frame = self._stack[-1] if self._stack and len(self._stack) > (self._marks[-1] if self._marks else 0) else None
        if type(frame) is Rows and frame.first + frame.count == row:
            self._stack[-1] = Rows(frame.first, frame.count + count)
        else:
            self._stack.append(Rows(row, count))
        return first + count

    def _stacks(self, matches: _Matches, first: int, end: int, memos: _Integers) -> tuple[_Integers, int]:
        """Return the stack of each match, and how many of them have one that is right."""
        count = end - first
        values = matches.values.get(_FRAMES)
        if values is None:
            return np.zeros(count, dtype=np.int64), count
        values, inline = values[first:end], matches.inline[_FRAMES][first:end]
        ends = matches.ends[first:end] - 1
        stacks = np.full(count, -1, dtype=np.int64)
        data, spans = self._data, self._spans
        here = np.flatnonzero(inline)
        made: list[int] = []
        for begin, stop in zip((values[here] + 2).tolist(), ends[here].tolist(), strict=True):
            span = data[begin:stop]
            number = spans.get(span)
            if number is None:
                number = self._span(span)
                if number < 0:
                    # Its frames are written where they are first needed: within this entry, perhaps.
                    count = int(here[len(made)])
                    break
            made.append(number)
        here = here[: len(made)]
        stacks[here] = made
        there = np.flatnonzero(~inline[:count])
        if len(there):
            # Lists of this very run are looked for first.
            own = memos[here] - 1
            refs = values[there]
            places = np.searchsorted(own, refs)
            known = np.minimum(places, max(len(own) - 1, 0))
            hits = (own[known] == refs) if len(own) else np.zeros(len(refs), dtype=np.bool_)
            found = np.full(len(refs), -1, dtype=np.int64)
            found[hits] = stacks[here][known[hits]]
            rest = np.flatnonzero(~hits)
            if len(rest):
                found[rest] = self._known_lists(refs[rest])
            stacks[there] = found
        bad = np.flatnonzero(stacks[:count] < 0)
        return stacks, int(bad[0]) if len(bad) else count

    def _span(self, span: bytes) -> int:
        """Return the stack of a list of references, -1 for what is none."""
        if _LIST.fullmatch(span) is None:
            return -1
        first = 1 if span[:1] == b"(" else 0
        frames = [self._memo.get(_ref(match)) for match in _REF.finditer(span, first, max(len(span) - 1, 0))]
        if any(type(frame) is not dict for frame in frames):
            return -1
        spend(len(frames), "stacks of a snapshot")
        number = self._number("stacks", tuple(map(self._frame_number, frames)))
        self._spans[span] = number
        return number

    def _known_lists(self, refs: _Integers) -> _Integers:
        """Stacks of lists of frames in the memo, -1 for what is none."""
        unique, inverse = np.unique(refs, return_inverse=True)
        integers = self._list_stack(unique, strict=False)
        assert integers is not None
        for place in np.flatnonzero(integers < 0).tolist():
            frames = self._memo.get(int(unique[place]))
            if type(frames) is list:
                integers[place] = self.stack_number(frames)
        return integers[inverse]

    def _list_stack(self, refs: _Integers, *, strict: bool = True) -> _Integers | None:
        """Stacks of lists that were decoded with their entries."""
        found = np.full(len(refs), -1, dtype=np.int64)
        left = np.arange(len(refs))
        for memos, stacks in reversed(self._lists):
            if not len(left):
                break
            if not len(memos):
                continue
            places = np.minimum(np.searchsorted(memos, refs[left]), len(memos) - 1)
            hits = memos[places] == refs[left]
            found[left[hits]] = stacks[places[hits]]
            left = left[~hits]
        return None if strict and len(left) else found

    def _texts(self, matches: _Matches, key: str, table: str, first: int, end: int) -> tuple[_Integers, int]:
        """Texts as numbers in a table, and how many of them are texts."""
        count = end - first
        if key not in matches.values:
            return np.zeros(count, dtype=np.int64), count
        if key not in matches.inline:  # a number, where a text belongs
            return np.zeros(count, dtype=np.int64), 0
        values, inline = matches.values[key][first:end], matches.inline[key][first:end]
        found = np.zeros(count, dtype=np.int64)
        there = np.flatnonzero(~inline)
        unique, inverse = np.unique(values[there], return_inverse=True)
        numbers = []
        for ref in unique.tolist():
            text = self._memo.get(ref)
            numbers.append(self._number(table, text) if type(text) is str else -1)
        found[there] = np.array(numbers, dtype=np.int64)[inverse] if numbers else 0
        known: dict[bytes, int] = {}
        for place in np.flatnonzero(inline).tolist():
            at = int(values[place])
            text = self._data[at + 2 : at + 2 + self._data[at + 1]]
            number = known.get(text)
            if number is None:
                number = known[text] = self._number(table, text.decode("utf-8", "surrogatepass"))
            found[place] = number
        bad = np.flatnonzero(found < 0)
        return found, int(bad[0]) if len(bad) else count

    def _pairs(self, first: _Integers, second: _Integers) -> _Integers:
        if not first.any() and not second.any():
            return np.zeros(len(first), dtype=np.int64)
        unique, inverse = np.unique(np.stack((first, second)), axis=1, return_inverse=True)
        numbers = [self._number("pools", (one, other)) for one, other in unique.T.tolist()]
        return np.array(numbers, dtype=np.int64)[inverse.reshape(-1)]

    def _columns(self) -> Columns:
        self._written.flush()
        found: dict[str, Any] = {name: self._written.column(name) for name in _NAMES}
        found.update((name, list(table)) for name, table in self._tables.items())
        return Columns(**found)


@immutable
class KnownStack:
    """A list of frames that was decoded with its entry."""

    number: int


def _ref(match: re.Match[bytes]) -> int:
    return int.from_bytes(match[1] or match[2], "little")


def _number_width(entry: bytes, at: int) -> int:
    """Return the length of a number, 0 where there is none."""
    width = int(_WIDTHS[entry[at]]) if at < len(entry) else 0
    return width if width >= 0 else 2 + entry[at + 1]


# -- other opcodes ---------------------------------------------------------------------------------------------------------


def _unsigned(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _float(data: bytes) -> float:
    (found,) = struct.unpack(">d", data)
    return float(found)


_FIXED: Final[dict[int, tuple[Callable[[bytes], Any], int]]] = {
    ord("K"): (_unsigned, 2),
    ord("M"): (_unsigned, 3),
    ord("J"): (_signed, 5),
    ord("G"): (_float, 9),
    ord("N"): (lambda data: None, 1),
    0x88: (lambda data: True, 1),
    0x89: (lambda data: False, 1),
    ord("]"): (lambda data: [], 1),
    ord(")"): (lambda data: (), 1),
}

_KEYS: Final = frozenset({str, int})
_Handler: TypeAlias = Callable[[_Machine, int], int]


def _text(head: int) -> _Handler:
    """Text behind so many bytes that tell its length."""

    def read(self: _Machine, at: int) -> int:
        at = self._need(at, 1 + head)
        length = _unsigned(self._data[at + 1 : at + 1 + head])
        at = self._need(at, 1 + head + length)
        self._stack.append(self._data[at + 1 + head : at + 1 + head + length].decode("utf-8", "surrogatepass"))
        return at + 1 + head + length

    return read


def _long(self: _Machine, at: int) -> int:
    at = self._need(at, 2)
    length = self._data[at + 1]
    if length > _LONGEST_NUMBER:
        raise NoSnapshot("a number has more than 64 bits")
    at = self._need(at, 2 + length)
    self._stack.append(_signed(self._data[at + 2 : at + 2 + length]))
    return at + 2 + length


def _recalled(self: _Machine, at: int) -> int:
    self._stack.append(self._recall(_unsigned(self._data[at + 1 : at + 5])))
    return at + 5


def _dictionary(self: _Machine, at: int) -> int:
    depth = len(self._marks)
    if depth == self._depth and self._templates:
        ahead = self._several(at)
        if ahead != at:
            return ahead
    self._starts[depth] = self._base + at
    self._stack.append({})
    return at + 1


def _set_items(self: _Machine, at: int) -> int:
    items = self._since_mark()
    target = self._top(dict)
    target.update(_pairs_of(items))
    if _ACTION in target and "size" in target:
        self._entry(target, at + 1)
    return at + 1


def _append(self: _Machine, at: int) -> int:
    value = self._pop()
    self._top(list).append(value)
    return at + 1


def _appends(self: _Machine, at: int) -> int:
    items = self._since_mark()
    target = self._top(list)
    for item in items:
        # Rows that follow each other are one.
        if type(item) is Rows and target and type(target[-1]) is Rows and target[-1].first + target[-1].count == item.first:
            target[-1] = Rows(target[-1].first, target[-1].count + item.count)
        else:
            target.append(item)
    return at + 1


def _set_item(self: _Machine, at: int) -> int:
    value, key = self._pop(), self._pop()
    self._top(dict).update(_pairs_of([key, value]))
    return at + 1


def _tuple_of(count: int) -> _Handler:
    def make(self: _Machine, at: int) -> int:
        self._tuple(count)
        return at + 1

    return make


def _from_mark(make: Callable[[list[Any]], Any]) -> _Handler:
    def run(self: _Machine, at: int) -> int:
        self._stack.append(make(self._since_mark()))
        return at + 1

    return run


def _pairs_of(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise NoSnapshot("a key of a dictionary has no value")
    if not _KEYS.issuperset(map(type, items[::2])):
        # Of tuples within tuples the hash alone could end the process.
        raise NoSnapshot("a key of a dictionary is neither text nor a number")
    return dict(zip(items[::2], items[1::2], strict=True))


def _put_handler(width: int) -> _Handler:
    def run(self: _Machine, at: int) -> int:
        at = self._need(at, 1 + width)
        number = _unsigned(self._data[at + 1 : at + 1 + width])
        if not self._stack:
            raise self.error("takes more from its stack than there is")
        self._memo[number] = self._stack[-1]
        self._memo_count = max(self._memo_count, number + 1)
        # Numbers that a file chooses itself may be chosen twice: its entries are read one by one.
        self._learned = _MOST_TEMPLATES
        self._templates.clear()
        return at + 1 + width

    return run


def _frame(self: _Machine, at: int) -> int:
    return self._need(at, 9) + 9


def _drop(self: _Machine, at: int) -> int:
    self._pop()
    return at + 1


_HANDLERS: Final[dict[int, _Handler]] = {
    0x8C: _text(1),
    ord("X"): _text(4),
    0x8D: _text(8),
    0x8A: _long,
    ord("j"): _recalled,
    ord("}"): _dictionary,
    ord("u"): _set_items,
    ord("a"): _append,
    ord("e"): _appends,
    ord("s"): _set_item,
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    ord("t"): _from_mark(tuple),
    ord("l"): _from_mark(list),
    ord("d"): _from_mark(_pairs_of),
    ord("q"): _put_handler(1),
    ord("r"): _put_handler(4),
    0x95: _frame,
    ord("0"): _drop,
}
