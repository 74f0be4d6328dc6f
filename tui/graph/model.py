"""The state of the Graph screen: what is around the selected node, or the whole model folded by module, and where one is in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Final

from irscope.ir.graph import Node, Value
from irscope.ir.places import Scope
from irscope.report.boxes import Box, BoxKind, BoxTree, bytes_of, nodes_near, outermost, within_module
from irscope.report.names import cut_name
from irscope.report.units import Kind
from irscope.tui.amounts import amount
from irscope.tui.browse.model import Browse
from irscope.tui.graph.canvas import Canvas, Labels
from irscope.tui.text import Line, Span, cut_line, filled

MOST_NEAR: Final = 120
"""Nodes around one; what is read in hundreds of places has a card that lists them."""
_LEAST_HOPS: Final = 2
MOST_HOPS: Final = 6
_MOST_FILLING: Final = 24
"""Edges that are looked along in a chain to fill a tall pane."""
MOST_VISIBLE: Final = 3_000
"""Boxes of a drawing; nobody follows more, and each takes some tenths of a millisecond."""
MOST_KEPT: Final = 20_000
"""Boxes that are kept while another screen is shown; each takes about half a kilobyte."""
AT_ONCE: Final = 80
"""Boxes that are laid out on the UI's thread; more are left to the worker."""
_MOST_INSIDE: Final = 40
"""Nodes of a module that are shown together with what is around it."""
_LONGEST: Final = 30
_MOST_COUNTED: Final = 10_000
_LONGEST_TITLE: Final = 44
_FIRST_BOXES: Final = 24


class Drawn:
    """One drawing: its boxes, which groups are open, and the canvas."""

    def __init__(self, tree: BoxTree, opened: Collection[int]) -> None:
        self.tree = tree
        self.opened: set[int] = {0, *opened}
        self.canvas: Canvas | None = None
        self.box = 0
        """The selected box."""
        self.levels = tree.groups_by_depth()
        self.box_of: dict[Node | Scope | Value, int] = {}
        for box in tree.boxes:
            for key in (box.node, box.value, box.scope if box.kind is BoxKind.MODULE else None):
                if key is not None:
                    self.box_of.setdefault(key, box.number)

    def visible(self, number: int) -> int:
        """Return the box that is shown for a box: itself, or the outermost folded one around it."""
        found = number
        at = self.tree.boxes[number].parent
        while at > 0:
            if at not in self.opened:
                found = at
            at = self.tree.boxes[at].parent
        return found

    def count(self, opened: Collection[int]) -> int:
        """Return the number of visible boxes with these groups open."""
        return sum(1 for _ in self.tree.visible(opened)) - 1


class GraphModel:
    """All logic of the screen, without widgets."""

    def __init__(self, browse: Browse) -> None:
        self.browse = browse
        self.symbols = browse.symbols
        self.is_whole = False
        self.hops = _LEAST_HOPS
        self._fills = True
        """Whether hops are as many as fill the pane, until the user chooses their number."""
        self.near: Drawn | None = None
        self.whole: Drawn | None = None
        self._put_away: tuple[set[int], int] | None = None
        """Which groups of the whole were open, and the selected box, since it was put away."""
        self.left = self.top = 0
        self._size = (0, 0)
        self._row = -1
        self._left_out = 0
        self.later: Callable[[Callable[[], Canvas], Callable[[Canvas], None]], None] | None = None
        """Lays a large drawing out in the worker's thread; set by the screen."""

    @property
    def drawn(self) -> Drawn | None:
        """Return the drawing that is shown."""
        return self.whole if self.is_whole else self.near

    @property
    def is_empty(self) -> bool:
        return not self.browse.program.has_graph or not self.browse.node_count

    def follow(self) -> None:
        """Show the row that is selected on all screens, if it is another one than before."""
        row = self.browse.selected
        if row == self._row or self.is_empty:
            return
        self._row = row
        self.near = None
        if not self.is_whole:
            self.show_near()
        elif self.whole is not None:
            self._reveal(self.whole)

    def show_near(self) -> None:
        """Draw what is around the selected row."""
        if self.near is not None or self.is_empty:
            return
        start = self._nodes_at(self._row if self._row >= 0 else self.browse.selected)
        graph = self.browse.program.graph
        if self._fills:
            self.hops = self._filling_hops(start)
        kept = nodes_near(start, self.hops, graph, MOST_NEAR)
        self._left_out = int(len(kept) >= MOST_NEAR)
        row_of = self.browse.outline.row_of
        tree = BoxTree.of(self.browse.program, kept, order=row_of.__getitem__, is_single=self._is_single)
        self.near = Drawn(tree, [box.number for box in tree.boxes if box.is_group])
        self._reveal(self.near, start)

    def _filling_hops(self, start: Sequence[Node]) -> int:
        """Return the edges to look along so that three quarters of the rows are filled: in a chain a node and its edge take two."""
        wanted, before = 3 * self._size[1] // 8, 0
        for hops in range(_LEAST_HOPS, _MOST_FILLING + 1):
            count = len(nodes_near(start, hops, self.browse.program.graph, MOST_NEAR))
            if count >= wanted or count == before:
                return hops
            before = count
        return _MOST_FILLING

    def revisit(self) -> None:
        """Show the selected row in the other kind of drawing."""
        if not self.is_whole:
            self.show_near()
        if self.drawn is not None:
            self._reveal(self.drawn)

    def make_whole(self) -> Drawn:
        """Return the boxes of the whole model; for the worker's thread."""
        tree = BoxTree.of(self.browse.program)
        tree.contents(0)
        # Boxes of a program have the same numbers each time.
        opened, box = self._put_away or (tree.readable(_FIRST_BOXES)[0], 0)
        whole = Drawn(tree, opened)
        whole.box = box
        return whole

    def put_away(self) -> None:
        """Another screen is shown: the boxes of a large model are made again rather than kept, with the same groups open."""
        whole = self.whole
        if whole is not None and len(whole.tree.boxes) > MOST_KEPT:
            self._put_away = (whole.opened - {0}, whole.box)
            self.whole = None

    def take_whole(self, whole: Drawn) -> None:
        """Show the boxes that `make_whole` has made."""
        self.whole, self._put_away = whole, None
        if self.is_whole:
            self._reveal(self.whole)

    def _is_single(self, scope: Scope) -> bool:
        """Return whether a module holds one node in the program."""
        row = self.browse.outline.row_of_scope.get(scope)
        outline = self.browse.outline
        return row is not None and len(outline.children(row)) == 1

    def _nodes_at(self, row: int) -> list[Node]:
        """Return the node of a row, or those of a module."""
        outline, graph = self.browse.outline, self.browse.program.graph
        nodes: dict[Node, None] = {}
        for index in range(row, min(int(outline.end[row]), row + 2 * _MOST_INSIDE)):
            item = outline.items[index]
            node = outermost(item, graph) if isinstance(item, Node) else None
            if node is not None:
                nodes[node] = None
                if len(nodes) > _MOST_INSIDE:
                    # Of a large module the beginning.
                    return list(nodes)[:1]
        return list(nodes)

    def _reveal(self, drawn: Drawn, nodes: Iterable[Node] = ()) -> None:
        """Select the box of the selected row, opening what hides it."""
        item = self.browse.outline.items[self._row] if self._row >= 0 else None
        keys: list[Node | Scope | None] = [item if isinstance(item, Node) else item.scope if item is not None else None]
        for key in (*keys, *nodes, *self._nodes_at(max(self._row, 0))):
            number = drawn.box_of.get(key) if key is not None else None
            if number is not None:
                hidden = drawn.tree.around(number) - drawn.opened
                drawn.box = number
                if hidden or drawn.canvas is None:
                    self._open(drawn, drawn.opened | hidden)
                self.centre()
                return
        if drawn.canvas is None:
            self._open(drawn, drawn.opened)

    def select(self, number: int) -> bool:
        """Select a visible box; True where the selection of all screens is another one now."""
        drawn = self.drawn
        if drawn is None:
            return False
        drawn.box = number
        row = self.row_at(number)
        if row is None or row == self.browse.selected:
            self.centre(least=True)
            return False
        self.browse.reveal(row)
        self._row = row
        if self.is_whole:
            self.near = None
            self.centre(least=True)
        else:
            self.near = None
            self.show_near()
        return True

    def row_at(self, number: int) -> int | None:
        """Return the row of the outline for a box; None for what has none, such as an input."""
        drawn = self.drawn
        if drawn is None:
            return None
        box = drawn.tree.boxes[number]
        if box.node is not None:
            return self.browse.outline.row_of.get(box.node)
        return self.browse.outline.row_of_scope.get(box.scope) if box.scope is not None else None

    @property
    def box(self) -> Box | None:
        """Return the selected box."""
        drawn = self.drawn
        return None if drawn is None or not drawn.box else drawn.tree.boxes[drawn.box]

    def walk(self, dx: int, dy: int) -> bool:
        """Go to the nearest producer (up) or consumer (down), or to the next box beside; False where there is none."""
        drawn = self.drawn
        if drawn is None or drawn.canvas is None or not drawn.box:
            return False
        if dx:
            beside = drawn.canvas.beside(drawn.box, dx)
            target = None if beside is None else beside.number
        else:
            target = drawn.canvas.nearest(drawn.box, set(self._joined(drawn, drawn.box, upward=dy < 0)))
        if target is None:
            return False
        self.select(target)
        return True

    def _joined(self, drawn: Drawn, number: int, *, upward: bool) -> Iterator[int]:
        """Yield the visible boxes that a box reads from, or that read it."""
        box = drawn.tree.boxes[number]
        found: Iterable[int | None]
        if box.node is not None:
            values = [value for value in box.node.inputs if value is not None] if upward else box.node.outputs
            found = [self._maker(drawn, value) for value in values] if upward else self._readers(drawn, values)
        elif box.value is not None:
            upward_ends = box.kind is BoxKind.OUTPUT
            found = [self._maker(drawn, box.value)] if upward and upward_ends else self._readers(drawn, [box.value]) if not upward else []
        elif number in drawn.opened:
            # The first or last box inside an open module.
            inside = [child for child in box.children if child in drawn.tree.boxes[number].children]
            found = inside[:1] if not upward else inside[-1:]
        else:
            found = self._passing(drawn, box, upward=upward)
        for one in found:
            if one is not None:
                shown = drawn.visible(one)
                if shown != number:
                    yield shown

    def _maker(self, drawn: Drawn, value: Value) -> int | None:
        return drawn.box_of.get(value.node) if value.node is not None else drawn.box_of.get(value)

    def _readers(self, drawn: Drawn, values: Iterable[Value]) -> Iterator[int | None]:
        for value in values:
            for user in value.users or ():
                if isinstance(user, Node):
                    yield drawn.box_of.get(user)
                else:
                    yield drawn.box_of.get(value)

    def _passing(self, drawn: Drawn, box: Box, *, upward: bool) -> Iterator[int]:
        """Yield the boxes that are connected to a folded group."""
        tree = drawn.tree
        for flow, _, _ in tree.contents(box.parent).flows.get(box.number, ()):
            _, source, target = tree.flows[flow]
            is_inside = box.number in tree.around(source) or source == box.number
            if upward and not is_inside:
                yield source
            elif not upward and is_inside:
                yield target

    def toggle(self) -> str:
        """Open or close the selected module, or close the one around a node; returns what is wrong, if anything is."""
        drawn = self.drawn
        if drawn is None or not drawn.box:
            return ""
        box = drawn.tree.boxes[drawn.box]
        if box.is_group and box.number not in drawn.opened:
            return self._try(drawn, drawn.opened | {box.number})
        number = box.number if box.number in drawn.opened else box.parent
        if number <= 0:
            return "It is in no module."
        drawn.box = number
        return self._try(drawn, drawn.opened - {number} - self._inside(drawn, number))

    def level(self, by: int) -> str:
        """Open one level of modules more everywhere, or one less; around a node: look one edge further."""
        drawn = self.drawn
        if not self.is_whole:
            self.hops = min(max(self.hops + by, 1), max(self.hops, MOST_HOPS))
            self._fills, self.near = False, None
            self.show_near()
            return ""
        if drawn is None:
            return ""
        levels = drawn.levels
        level = next((at for at, groups in enumerate(levels) if not groups <= drawn.opened), len(levels))
        opened = set().union(*levels[: max(level + (1 if by > 0 else -1), 1)])
        drawn.box = drawn.box if by > 0 else _shown_in(drawn, opened)
        return self._try(drawn, opened)

    def _inside(self, drawn: Drawn, number: int) -> set[int]:
        return {model for model in drawn.opened if number in drawn.tree.around(model)}

    def _try(self, drawn: Drawn, opened: set[int]) -> str:
        count = drawn.count(opened)
        if count > MOST_VISIBLE:
            return f"That would be {count:,} boxes; open single modules instead."
        self._open(drawn, opened)
        self.centre()
        return ""

    def _open(self, drawn: Drawn, opened: Collection[int]) -> None:
        """Lay out with these groups open."""
        drawn.opened = {0, *opened}
        tree, shown = drawn.tree, frozenset(drawn.opened)

        def make() -> Canvas:
            return Canvas(tree, shown, self.labels, self.symbols)

        def take(canvas: Canvas) -> None:
            if frozenset(drawn.opened) == shown:
                drawn.canvas = canvas
                self.centre()

        if self.later is not None and drawn.count(shown) > AT_ONCE:
            self.later(make, take)
        else:
            drawn.canvas = make()

    def pan(self, dx: int, dy: int) -> None:
        """Move the window over the drawing."""
        canvas = None if self.drawn is None else self.drawn.canvas
        if canvas is not None:
            width, height = self._size
            self.left = min(max(self.left + dx, min(0, canvas.width - width)), max(canvas.width - width, 0))
            self.top = min(max(self.top + dy, 0), max(canvas.height - height, 0))

    def centre(self, *, least: bool = False) -> None:
        """Bring the selected box into sight: into the middle, or as little as needed where it is seen already."""
        drawn = self.drawn
        place = None if drawn is None or drawn.canvas is None else drawn.canvas.place(drawn.box)
        width, height = self._size
        if place is None or not width:
            return
        x, y = place
        margin = 2
        if not least or not (self.left + 8 <= x < self.left + width - 8 and self.top + margin <= y < self.top + height - margin):
            self.left, self.top = x - width // 2, y - height // 2
        self.pan(0, 0)
        canvas = drawn.canvas if drawn is not None else None
        if canvas is not None and canvas.width <= width:
            self.left = -((width - canvas.width) // 2)
        if canvas is not None and canvas.height <= height:
            self.top = 0

    def resize(self, width: int, height: int) -> None:
        """Take the size of the pane, which the drawing fills."""
        if self._size != (width, height):
            self._size = (width, height)
            if self._fills and not self.is_whole:
                self.near = None
                self.show_near()
            self.centre()

    def lines(self, width: int, height: int) -> list[Line]:
        """Return the drawing, in exactly so many lines."""
        self.resize(width, height)
        drawn = self.drawn
        if self.is_empty:
            return self._said("There is no graph: the file has weights alone, or no nodes.", width, height)
        if drawn is None or drawn.canvas is None:
            return self._said(f"{self.symbols.waiting} laying out", width, height)
        if not drawn.canvas.chips:
            return self._said("This is not in the main graph: a function is drawn where it is called.", width, height)
        return drawn.canvas.draw(self.left, self.top, width, height, drawn.box, self.lit)

    def _said(self, text: str, width: int, height: int) -> list[Line]:
        """Return a word in place of a drawing."""
        return filled([cut_line((Span(text, "faint"),), width, self.symbols)], height)

    def at(self, x: int, y: int) -> Box | None:
        """Return the box at a place of the window."""
        canvas = None if self.drawn is None else self.drawn.canvas
        return None if canvas is None else canvas.at(x + self.left, y + self.top)

    @property
    def lit(self) -> set[Value]:
        """Return the values that the selected box reads and makes."""
        box = self.box
        if box is None:
            return set()
        if box.node is not None:
            return {value for value in (*box.node.inputs, *box.node.outputs) if value is not None}
        if box.value is not None:
            return {box.value}
        drawn = self.drawn
        if drawn is None or box.parent < 0:
            return set()
        return {drawn.tree.flows[flow].value for flow, _, _ in drawn.tree.contents(box.parent).flows.get(box.number, ())}

    def title(self) -> str:
        """Return the line above the drawing."""
        separator = self.symbols.glyphs.separator
        drawn, nodes = self.drawn, self.browse.node_count
        if drawn is None or drawn.canvas is None:
            return "Graph"
        if self.is_whole:
            parts = ["Whole graph", f"{len(drawn.canvas.chips):,} of {len(drawn.tree.boxes) - 1:,} boxes"]
        else:
            shown = sum(1 for box in drawn.tree.boxes if box.kind is BoxKind.NODE)
            name = cut_name(self.browse.row_text(self.browse.selected), _LONGEST_TITLE, self.symbols.glyphs.ellipsis)
            parts = [f"Around {name}", f"{self.hops} hop{'s' * (self.hops != 1)}"]
            parts.append(f"{shown:,} of {nodes:,} nodes{', not all that are so near' if self._left_out else ''}")
        return separator.join(parts)

    @cached_property
    def labels(self) -> Labels:
        return Labels(self._chip, self._frame, self._flow, self._beyond)

    def _chip(self, box: Box) -> str:
        clean = self.symbols.clean
        if box.value is not None:
            return f"({cut_name(clean(box.name), _LONGEST, self.symbols.glyphs.ellipsis)})"
        if box.node is not None:
            name = cut_name(clean(within_module(box)), _LONGEST, self.symbols.glyphs.ellipsis)
            inside = f" {self.symbols.collapsed}" if box.is_group else ""
            return f"[{clean(box.detail)}{f' {name}' if name != clean(box.detail) else ''}{inside}]"
        return f"[{self.symbols.collapsed} {self._frame(box)}{self.symbols.glyphs.separator}{box.leaves:,} nodes]"

    def _frame(self, box: Box) -> str:
        clean = self.symbols.clean
        name = cut_name(clean(box.name), _LONGEST, self.symbols.glyphs.ellipsis)
        if box.kind is BoxKind.NODE:
            return f"{clean(box.detail)} {name}"
        return f"{name} ({clean(box.detail)})" if box.detail and box.kind in (BoxKind.MODULE, BoxKind.ALIKE) else name

    def _beyond(self, box: Box) -> tuple[int, int]:
        drawn = self.drawn
        if self.is_whole or drawn is None or box.node is None:
            return 0, 0
        makers = {value.node for value in box.node.inputs if value is not None and value.node is not None}
        readers = {user for output in box.node.outputs for user in islice(output.users or (), _MOST_COUNTED) if isinstance(user, Node)}
        return sum(node not in drawn.box_of for node in makers), sum(node not in drawn.box_of for node in readers)

    def _flow(self, values: tuple[Value, ...]) -> tuple[str, str]:
        size = bytes_of(values)
        number = self.browse.results.binding.of(size)
        text = amount(number, Kind.BYTES, self.symbols)
        kind = self.symbols.clean(values[0].type.text) if len(values) == 1 else f"{len(values)} tensors"
        return cut_name(kind, _LONGEST, self.symbols.glyphs.ellipsis), text if len(text) <= _LONGEST else ""


def _shown_in(drawn: Drawn, opened: Collection[int]) -> int:
    """Return the box that stands for the selected one with these groups open."""
    before, drawn.opened = drawn.opened, {0, *opened}
    found = drawn.visible(drawn.box)
    drawn.opened = before
    return found
