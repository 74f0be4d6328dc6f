"""A scene of boxes and lines as characters: chips for nodes, frames for open modules, lines that turn in tracks of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from irscope.immutable import immutable
from irscope.ir.graph import Value
from irscope.report.boxes import Box, BoxTree, Measure, Placed, scene
from irscope.report.boxes import Line as Edge
from irscope.report.printable import cut_middle, display_width
from irscope.tui.text import Line, Role, Span, Symbols, cut_end

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
_UNICODE: Final = " │││─┘┐┤─└┌├─┴┬┼"
_HEAVY: Final = " ┃┃┃━┛┓┫━┗┏┣━┻┳╋"
_ASCII: Final = " |||-+++-+++-+++"
_ASCII_HEAVY: Final = " ###=###=###=###"
"""Characters for lines that go up (1), down (2), left (4), right (8) from a place."""
_GAP, _BORDER = 3.0, 1.0
_LEAST_LABEL, _LEAST_TYPE = 4, 10
_WIDEST_LABEL = 37
"""Room for a type and an amount at both sides of a line; longer ones stand there where neighbours leave room."""


class Track(NamedTuple):
    """A line between two layers: where it begins and ends."""

    begin: int
    end: int


def tracks_of(lines: Sequence[Track]) -> list[int]:
    """Return the row in which each line turns, -1 for one that does not: no two lines run over one another.

    Lines that begin at one place are branches of one line and share a row. What begins above the end of another turns before it does
    (the vertical constraints of channel routing), as far as there is no cycle.
    """
    spans: dict[int, tuple[int, int]] = {}
    for begin, end in lines:
        if begin != end:
            low, high = spans.get(begin, (begin, begin))
            spans[begin] = (min(low, end), max(high, end))
    ends = {begin: {line.end for line in lines if line.begin == begin and line.end != begin} for begin in spans}
    placed: dict[int, int] = {}
    visiting: set[int] = set()

    def place(begin: int) -> int:
        if begin in placed:
            return placed[begin]
        visiting.add(begin)
        # A line that ends in the column where another begins runs below it there.
        first = max((place(other) + 1 for other in spans if other in ends[begin] and other not in visiting), default=0)
        visiting.discard(begin)
        low, high = spans[begin]
        taken = {placed[other] for other in placed if spans[other][0] <= high and low <= spans[other][1]}
        row = first
        while row in taken:
            row += 1
        placed[begin] = row
        return row

    for begin in sorted(spans, key=lambda span: (spans[span][1] - spans[span][0], span)):
        place(begin)
    return [placed[begin] if begin != end else -1 for begin, end in lines]


def _turns(lines: Sequence[tuple[float, float]]) -> float:
    return float(max(tracks_of([Track(int(begin), int(end)) for begin, end in lines]), default=-1) + 1)


@immutable(slots=False)
class Labels:
    """Texts on the parts of a drawing."""

    chip: Callable[[Box], str]
    """On a folded box or a node."""
    frame: Callable[[Box], str]
    """On the upper border of an open module."""
    flow: Callable[[tuple[Value, ...]], tuple[str, str]]
    """At an edge: left and right of the line, where it leaves the box that its values come from."""
    beyond: Callable[[Box], tuple[int, int]]
    """Function that counts the nodes outside the drawing that make its inputs, and those that read its results."""


class Chip(NamedTuple):
    """A box that is not open, where it stands."""

    box: Box
    left: int
    top: int
    text: str

    @property
    def middle(self) -> int:
        return self.left + display_width(self.text) // 2


class Canvas:
    """A scene in rows and columns, drawn where one looks at it."""

    def __init__(self, tree: BoxTree, opened: Collection[int], labels: Labels, symbols: Symbols) -> None:
        self.symbols = symbols
        self._labels = labels
        self._texts: dict[int, str] = {}
        measure = Measure(self._width, 1.0, 1.0, _GAP, 1.0, _BORDER, 1.0, _turns)
        found = scene(tree, opened, measure)
        self.width, self.height = int(found.width), int(found.height)
        self.frames: list[Placed] = []
        self.chips: list[Chip] = []
        self.chip_of: dict[int, Chip] = {}
        for placed in found.boxes:
            if placed.is_open:
                # The model itself is not a module.
                self.frames += [placed] if placed.box.parent >= 0 else []
                continue
            text = self._texts[placed.box.number]
            chip = Chip(placed.box, int(placed.left + (placed.width - display_width(text)) // 2), int(placed.top), text)
            self.chips.append(chip)
            self.chip_of[placed.box.number] = chip
        self.edges = found.lines
        self._turn = self._turn_rows(found.lines)
        self._by_row: dict[int, list[Chip]] = {}
        for chip in self.chips:
            self._by_row.setdefault(chip.top, []).append(chip)
        for chips in self._by_row.values():
            chips.sort(key=lambda chip: chip.left)
        self.rows = sorted(self._by_row)

    def _width(self, box: Box) -> float:
        if box.is_group and box.number not in self._texts:
            # Asked for the heading of an open group too.
            self._texts[box.number] = self._labels.chip(box)
        text = self._texts.setdefault(box.number, self._labels.chip(box))
        wide = max(display_width(text), display_width(self._labels.frame(box)) + 6 if box.is_group else 0)
        values = box.node.outputs[:1] if box.node is not None else [] if box.value is None else [box.value]
        if values:
            wide = max(wide, min(2 * max(map(display_width, self._labels.flow(tuple(values)))) + 5, _WIDEST_LABEL))
        return float(wide + 1 - wide % 2)

    def _turn_rows(self, lines: Sequence[Edge]) -> list[int]:
        """Return the row in which each line turns."""
        tops = {frame.box.number: int(frame.top) for frame in self.frames}
        gaps: dict[tuple[int, int], list[int]] = {}
        for number, line in enumerate(lines):
            gaps.setdefault(line.gap, []).append(number)
        turn_rows = [0] * len(lines)
        for numbers in gaps.values():
            rows = tracks_of([Track(int(lines[number].points[0][0]), int(lines[number].points[3][0])) for number in numbers])
            for number, row in zip(numbers, rows, strict=True):
                leaves = int(lines[number].points[1][1])
                # Below a border there is one row more: the border itself.
                turn_rows[number] = leaves + 1 + max(row, 0) + (tops.get(lines[number].gap[0]) == leaves)
        return turn_rows

    def at(self, x: int, y: int) -> Box | None:
        """Return the box at a place: a chip, or the frame whose upper border is there."""
        for chip in self._by_row.get(y, ()):
            if chip.left <= x < chip.left + display_width(chip.text):
                return chip.box
        for frame in reversed(self.frames):
            if int(frame.top) == y and frame.left <= x < frame.left + frame.width:
                return frame.box
        return None

    def place(self, number: int) -> tuple[int, int] | None:
        """Return the middle of a box: of a chip, or of the upper border of an open one."""
        chip = self.chip_of.get(number)
        if chip is not None:
            return chip.middle, chip.top
        frame = next((frame for frame in self.frames if frame.box.number == number), None)
        return None if frame is None else (int(frame.left + frame.width // 2), int(frame.top))

    def beside(self, number: int, by: int) -> Box | None:
        """Return the nearest chip at one side: of those in the same row, else of all."""
        place = self.place(number)
        if place is None:
            return None
        x, y = place
        there = [chip for chip in self.chips if (chip.middle - x) * by > 0]
        # A row is about as high as two columns are wide.
        best = min(there, key=lambda chip: (chip.top != y, 2 * abs(chip.top - y) + abs(chip.middle - x)), default=None)
        return None if best is None else best.box

    def nearest(self, number: int, boxes: Collection[int]) -> int | None:
        """Return the one of some boxes that is nearest to another from left to right."""
        place = self.place(number)
        found = [(abs(there[0] - (place[0] if place else 0)), other) for other in boxes if (there := self.place(other)) is not None]
        return min(found)[1] if found else None

    def draw(self, left: int, top: int, width: int, height: int, selected: int, lit: Collection[Value]) -> list[Line]:
        """Return the visible part of the drawing at an offset, with one box selected and the lines of some values highlighted."""
        view = _View(left, top, width, height, self.symbols)
        for frame in self.frames:
            view.frame(frame, self._labels.frame(frame.box), frame.box.number == selected)
        for heavy in (False, True):
            for number, line in enumerate(self.edges):
                if any(value in lit for value in line.values) is heavy:
                    view.edge(line, self._turn[number], heavy)
        for row in range(top, top + height):
            for chip in self._by_row.get(row, ()):
                view.chip(chip, chip.box.number == selected, bool(chip.box.is_group))
        for row in range(top - 1, top + height + 1):
            for chip in self._by_row.get(row, ()):
                view.beyond(chip, *self._labels.beyond(chip.box))
        for line in self.edges:
            if line.has_label and top <= int(line.points[0][1]) < top + height:
                view.label(line, self._labels.flow(line.values), any(value in lit for value in line.values))
        return view.lines()


class _View:
    """A window onto a canvas while it is drawn."""

    def __init__(self, left: int, top: int, width: int, height: int, symbols: Symbols) -> None:
        self.left, self.top, self.width, self.height = left, top, width, height
        self.symbols = symbols
        self.is_plain = not symbols.has_braille
        self.bits = [bytearray(width) for _ in range(height)]
        self.heavy = [bytearray(width) for _ in range(height)]
        self.back: set[tuple[int, int]] = set()
        self.texts: list[dict[int, tuple[str, Role]]] = [{} for _ in range(height)]
        """By row: characters that stand over the lines, by their column; a wide one is followed by an empty one."""

    def put(self, x: int, y: int, text: str, role: Role) -> None:
        """Write a text over what is there."""
        row = y - self.top
        if not 0 <= row < self.height:
            return
        at = x - self.left
        for character in text:
            size = display_width(character)
            if not size and at > 0 and at - 1 in self.texts[row]:
                before, its = self.texts[row][at - 1]
                self.texts[row][at - 1] = (before + character, its)
                continue
            if at >= 0 and at + size <= self.width:
                self.texts[row][at] = (character, role)
                if size == 2:
                    self.texts[row][at + 1] = ("", role)
            at += size

    def mark(self, x: int, y: int, bits: int, heavy: bool) -> None:
        row, at = y - self.top, x - self.left
        if 0 <= row < self.height and 0 <= at < self.width:
            self.bits[row][at] |= bits
            if heavy:
                self.heavy[row][at] = 1

    def down(self, x: int, begin: int, end: int, heavy: bool) -> None:
        """Draw a line downward, from the upper edge of a row to that of another."""
        for y in range(max(begin, self.top), min(end, self.top + self.height)):
            self.mark(x, y, UP | DOWN, heavy)

    def edge(self, line: Edge, turn: int, heavy: bool) -> None:
        (x0, y0), _, _, (x1, y1) = line.points
        begin, end, first, last = int(x0), int(x1), int(y0), int(y1)
        if last <= self.top or first >= self.top + self.height:
            return
        if begin == end:
            self.down(begin, first, last, heavy)
        else:
            turn = max(first, min(turn, last - 1))
            self.down(begin, first, turn, heavy)
            self.down(end, turn + 1, last, heavy)
            low, high = min(begin, end), max(begin, end)
            self.mark(begin, turn, UP | (RIGHT if end > begin else LEFT), heavy)
            self.mark(end, turn, DOWN | (LEFT if end > begin else RIGHT), heavy)
            for x in range(max(low + 1, self.left), min(high, self.left + self.width)):
                self.mark(x, turn, LEFT | RIGHT, heavy)
        if line.is_back:
            self.back.update((y, begin) for y in range(max(first, self.top), min(last, self.top + self.height)))

    def frame(self, placed: Placed, title: str, selected: bool) -> None:
        left, top, right, bottom = (
            int(placed.left),
            int(placed.top),
            int(placed.left + placed.width) - 1,
            int(placed.top + placed.height) - 1,
        )
        if bottom < self.top or top >= self.top + self.height or right < self.left or left >= self.left + self.width:
            return
        role: Role = "mark" if selected else "faint"
        h, v, *corners = list("-|++++" if self.is_plain else "╌╎╭╮╰╯")
        for y, begin, end in ((top, corners[0], corners[1]), (bottom, corners[2], corners[3])):
            if self.top <= y < self.top + self.height:
                low, high = max(left, self.left - 1), min(right, self.left + self.width)
                self.put(low, y, h * (high - low + 1), role)
                self.put(left, y, begin, role)
                self.put(right, y, end, role)
        for y in range(max(top + 1, self.top), min(bottom, self.top + self.height)):
            self.put(left, y, v, role)
            self.put(right, y, v, role)
        if top >= self.top:
            # The name stays in sight where the frame begins left of the window.
            at = max(left, self.left) + 2
            room = min(right, self.left + self.width) - at - 1
            if room >= _LEAST_LABEL:
                sign = self.symbols.cursor if selected else ""
                self.put(at, top, cut_end(f" {sign}{title} ", room, self.symbols), "mark" if selected else "module")

    def chip(self, chip: Chip, selected: bool, is_group: bool) -> None:
        text = chip.text
        if selected:
            sign = self.symbols.cursor
            self.put(chip.left, chip.top, sign + text[1:], "selected")
            return
        middle: Role = "module" if is_group else "plain" if chip.box.node is None else "operator"
        self.put(chip.left, chip.top, text[0], "faint")
        self.put(chip.left + 1, chip.top, text[1:-1], middle)
        self.put(chip.left + display_width(text) - 1, chip.top, text[-1], "faint")

    def beyond(self, chip: Chip, above: int, below: int) -> None:
        """Mark where lines that are not drawn go on, with their number."""
        for count, y in ((above, chip.top - 1), (below, chip.top + 1)):
            row, at = y - self.top, chip.middle - self.left
            if not count or not 0 <= row < self.height or not 0 <= at < self.width or self.bits[row][at]:
                continue
            self.put(chip.middle, y, ":" if self.is_plain else "┊", "bar")
            text = f"+{count:,}"
            if self.is_free(row, chip.middle + 1, chip.middle + 3 + len(text), over="╌-"):
                self.put(chip.middle + 1, y, f" {text} ", "faint")

    def label(self, line: Edge, texts: tuple[str, str], lit: bool) -> None:
        """Type and bytes left and right of where a line begins, as far as nothing stands there."""
        x, y = int(line.points[0][0]), int(line.points[0][1])
        row = y - self.top
        role: Role = "plain" if lit else "faint"
        kind, size = texts
        whole = display_width(kind)
        room = next((wide for wide in range(whole, min(whole, _LEAST_TYPE) - 1, -1) if self.is_free(row, x - wide - 2, x - 1)), 0)
        if kind and room:
            shown = cut_middle(kind, room, self.symbols.glyphs.ellipsis)
            self.put(x - display_width(shown) - 1, y, shown, role)
        if size and self.is_free(row, x + 1, x + display_width(size) + 2):
            self.put(x + 2, y, size, role)

    def is_free(self, row: int, begin: int, end: int, over: str = "") -> bool:
        """Return whether some columns of a row hold only characters that may be written over."""
        low, high = begin - self.left, end - self.left
        if not 0 <= row < self.height or low < 0 or high > self.width:
            return False
        texts = self.texts[row]
        return not any(self.bits[row][low:high]) and all(at not in texts or texts[at][0] in over for at in range(low, high))

    def lines(self) -> list[Line]:
        return [tuple(self._spans(row)) for row in range(self.height)]

    def _spans(self, row: int) -> Iterator[Span]:
        texts: Mapping[int, tuple[str, Role]] = self.texts[row]
        bits, heavy = self.bits[row], self.heavy[row]
        begun: list[str] = []
        role: Role = "plain"
        for at in range(self.width):
            bit = bits[at]
            over = texts.get(at)
            # A line passes a frame; nothing else is over a text.
            if over is not None and not (bit and over[0] in "╌╎-|"):
                character, its = over
            elif bit:
                light, strong = (_ASCII, _ASCII_HEAVY) if self.is_plain else (_UNICODE, _HEAVY)
                drawn = strong if heavy[at] else light
                character, its = drawn[bit], "mark" if heavy[at] else "bar"
                if (row + self.top, at + self.left) in self.back:
                    its = "unknown"
            else:
                character, its = " ", "plain"
            if its != role and begun:
                yield Span("".join(begun), role)
                begun = []
            role = its
            begun.append(character)
        if begun:
            yield Span("".join(begun), role)
