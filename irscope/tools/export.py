"""Pictures of a model's graph: what is drawn of it, what its boxes say, and their colours. `irscope export` and reports ask here."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.dims import Dim, total_of
from irscope.ir.graph import Node, Value
from irscope.ir.places import is_within, path_key
from irscope.ops.cost import Cost
from irscope.ops.registry import find_op
from irscope.ops.spec import Family
from irscope.passes.cost.count import Costs
from irscope.passes.cost.flops import Flops
from irscope.passes.sizes import scale
from irscope.report.boxes import READABLE, Box, BoxKind, BoxTree, nodes_near, weights_of
from irscope.report.drawing import PLAIN, Drawing, Paint, html_file, svg_file
from irscope.report.printable import legible
from irscope.report.units import Kind, humanise
from irscope.session import Model

COLOURINGS = ("class", "flops", "bytes", "memory", "parameters")
"""Criteria that boxes can be coloured by: the class of the operator, or their share of a measure."""
_LONGEST_ATTR = 120

MEASURES: Final[Mapping[str, tuple[str, Kind]]] = {
    "flops": ("arithmetic", Kind.FLOPS),
    "bytes": ("bytes read and written", Kind.BYTES),
    "memory": ("results", Kind.BYTES),
    "parameters": ("weights", Kind.BYTES),
}


@dataclass
class Amount:
    """A measure of one box: a sum, and how many of its nodes it is not known for."""

    known: Dim = 0
    unknown: int = 0

    def add(self, other: Amount) -> None:
        self.known = self.known + other.known
        self.unknown += other.unknown

    def text(self, kind: Kind) -> str:
        """Return the text for a reader; sums of which a part is not known say so, and are never zero for that."""
        if self.unknown and self.known == 0:
            return "unknown"
        shown = humanise(self.known if isinstance(self.known, int) else str(self.known), kind)
        return f"at least {shown}; {self.unknown:,} nodes unknown" if self.unknown else shown


@dataclass
class Amounts:
    """Measures of all boxes, by the name of the measure and the number of the box."""

    by_measure: dict[str, list[Amount]] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: BoxTree, costs: Costs) -> Amounts:
        """Arithmetic and traffic as `flops` counts them, all runs together, and bytes of results and weights."""
        runs: dict[Node, tuple[Amount, Amount]] = {}
        for entry in costs.entries:
            for amount, more in zip(runs.setdefault(entry.node, (Amount(), Amount())), _of_cost(entry.total), strict=True):
                amount.add(more)
        nameless = {node for nodes in costs.unknown.values() for node in nodes}

        def cost_of(node: Node, which: int) -> Amount:
            if node in nameless:
                return Amount(0, 1)
            cost = costs.by_node.get(node)
            return runs[node][which] if node in runs else Amount(0, 1) if cost is None else _of_cost(cost)[which]

        script = cls()
        script.by_measure["flops"] = _summed(tree, partial(cost_of, which=0), runs)
        script.by_measure["bytes"] = _summed(tree, partial(cost_of, which=1), runs)
        script.by_measure["memory"] = _summed(tree, lambda node: _sum_of(node.outputs), {})
        script.by_measure["parameters"] = _weights(tree)
        return script

    def of_box(self, measure: str, box: Box) -> Amount:
        return self.by_measure[measure][box.number]


def _of_cost(cost: Cost) -> tuple[Amount, Amount]:
    """Arithmetic and traffic."""
    traffic = total_of((cost.read, cost.written))
    return Amount(cost.flops), Amount(0, 1) if traffic is None else Amount(traffic)


def _sum_of(values: Sequence[Value]) -> Amount:
    amount = Amount()
    for value in values:
        size = value.type.tensor_bytes
        amount.add(Amount(0, 1) if size is None else Amount(size))
    return amount


def _summed(tree: BoxTree, amount: Callable[[Node], Amount], whole: Mapping[Node, object]) -> list[Amount]:
    """Return sums over what is inside; an operation with regions has its own number where it is among `whole`, else that of its regions."""
    amounts = [Amount() for _ in tree.boxes]
    for box in reversed(tree.boxes):
        if box.node is not None and (not box.children or box.node in whole):
            amounts[box.number] = amount(box.node)
        if box.parent >= 0:
            amounts[box.parent].add(amounts[box.number])
    return amounts


def _weights(tree: BoxTree) -> list[Amount]:
    """Return the bytes of weights that are read in each box, each once for every box around it."""
    amounts = [Amount() for _ in tree.boxes]
    readers: dict[Value, set[int]] = {}
    for box in tree.boxes:
        for weight in weights_of(box.node) if box.node is not None else ():
            readers.setdefault(weight, set()).add(box.number)
    for weight, numbers in readers.items():
        around = set(numbers)
        for number in numbers:
            while (number := tree.boxes[number].parent) >= 0 and number not in around:
                around.add(number)
        for number in around:
            amounts[number].add(_sum_of([weight]))
    return amounts


_FAMILIES: Final = (
    ("products, convolutions, attention", "#bcd9f0", "#0072b2", "CONTRACTION CONVOLUTION ATTENTION RECURRENT SIGNAL LEARNING"),
    ("normalization, softmax, reductions", "#c5e8da", "#009e73", "NORMALIZATION SOFTMAX REDUCTION POOLING"),
    ("elementwise", "#fbe3ad", "#e69f00", "ELEMENTWISE COMPARISON RANDOM"),
    ("moves, indexing", "#f3d0e2", "#cc79a7", "MOVE INDEXING SORTING SEQUENCE CREATION TEXT"),
    ("quantization", "#d3ecfa", "#56b4e9", "QUANTIZATION"),
    ("control flow", "#f6d2bc", "#d55e00", "CONTROL"),
    ("views", "#e5e7eb", "#777777", "VIEW"),
)
_UNRECORDED: Final = ("operators without a record", "#ffffff", "#111111")
_CLASS_OF: Final = {Family[name]: number for number, (*_, names) in enumerate(_FAMILIES) for name in names.split()}
_STEPS: Final = (0.0, 0.01, 0.05, 0.25, 1.0)
_FULL: Final = (213, 94, 0)


def _class_of(node: Node) -> int:
    """Return which of the classes an operator belongs to; the one behind the last for those without a record."""
    spec = find_op(node.op)
    return len(_FAMILIES) if spec is None else _CLASS_OF[spec.family]


def class_paint(tree: BoxTree) -> Paint:
    """Return the nodes by the class of their operator; folded groups show how many nodes of each they hold."""
    counts: list[Counter[int]] = [Counter() for _ in tree.boxes]
    for box in reversed(tree.boxes):
        if box.node is not None:
            counts[box.number][_class_of(box.node)] += 1
        if box.parent >= 0:
            counts[box.parent].update(counts[box.number])
    looks = [*((name, tint, strong) for name, tint, strong, _ in _FAMILIES), _UNRECORDED]

    def fill(box: Box) -> str:
        if box.node is None:
            return PLAIN if box.is_group else "#ffffff"
        return looks[_class_of(box.node)][1]

    def bars(box: Box) -> list[tuple[str, float]]:
        if not box.is_group:
            return []
        whole = sum(counts[box.number].values()) or 1
        return [(looks[number][2], round(count / whole, 4)) for number, count in sorted(counts[box.number].items())]

    present = sorted(counts[0])
    return Paint(fill, tuple((looks[number][1], looks[number][0]) for number in present), bars)


def share_paint(tree: BoxTree, amounts: Amounts, measure: str, total: Amount) -> Paint:
    """Boxes by their share of the whole model, from white to orange; the tree may be a part of it."""
    found = [scale(amount.known) for amount in amounts.by_measure[measure]]
    whole = max(scale(total.known), 1)
    words, kind = MEASURES[measure]
    is_open = not isinstance(total.known, int)

    def fill(box: Box) -> str:
        if amounts.of_box(measure, box).known == 0 and amounts.of_box(measure, box).unknown:
            return "#d1d5db"
        return _orange(found[box.number] / whole)

    legend = [(_orange(step), f"{step:.0%}" if step else "none") for step in _STEPS]
    if total.unknown:
        legend.append(("#d1d5db", "unknown"))
    note = f"colour: share of the model's {words}, {legible(total.text(kind))}"
    return Paint(fill, tuple(legend), note=f"{note}; open sizes count as typical ones" if is_open else note)


def _orange(share: float) -> str:
    """Small shares are told apart too: by the square root."""
    part = min(max(share, 0.0), 1.0) ** 0.5
    return "#" + "".join(f"{round(255 - (255 - end) * part):02x}" for end in _FULL)


def facts_of(tree: BoxTree, amounts: Amounts | None) -> Callable[[Box], list[tuple[str, str]]]:
    """Return a function that tells what is known of a box, for whoever points at it."""

    def facts(box: Box) -> list[tuple[str, str]]:
        facts = list(_node_facts(box.node) if box.node is not None else _group_facts(box))
        if box.scope is not None and box.scope.path:
            facts.append(("module", box.scope.path))
        if amounts is not None and box.value is None:
            for measure, (words, kind) in MEASURES.items():
                amount = amounts.of_box(measure, box)
                if amount.known != 0 or amount.unknown:
                    facts.append((words, amount.text(kind)))
        return facts

    return facts


def _group_facts(box: Box) -> Iterator[tuple[str, str]]:
    if box.value is not None:
        yield ("type", str(box.value.type))
        return
    if box.detail and box.kind in (BoxKind.MODULE, BoxKind.ALIKE):
        yield ("class", box.detail)
    yield ("nodes", f"{box.leaves:,}")


def _node_facts(node: Node) -> Iterator[tuple[str, str]]:
    yield ("node", node.name)
    yield ("operator", f"{node.op}, {node.source}" if node.source and node.source != node.op else node.op)
    for words, values in (("reads", [value for value in node.inputs if value is not None]), ("makes", node.outputs)):
        for value in values:
            size = value.type.tensor_bytes
            amount = f", {humanise(size, Kind.BYTES)}" if isinstance(size, int) and size else ""
            yield (words, f"{value.name or 'unnamed'}: {value.type}{amount}")
    if node.attrs:
        yield ("attributes", ", ".join(f"{key}={_short(value)}" for key, value in node.attrs.items()))
    if node.loc is not None:
        yield ("source", f"{node.loc}{f': {node.loc.statement}' if node.loc.statement else ''}")


def _short(value: object) -> str:
    text = str(list(value)) if isinstance(value, tuple) else str(value)
    return text if len(text) <= _LONGEST_ATTR else f"{text[:_LONGEST_ATTR]}..."


# What is drawn of a model, and folded how far.

PICTURE_KINDS: Final = ("svg", "html")


@immutable(slots=False)
class View:
    """The part of a graph to draw."""

    colour: str = "class"
    """One of COLOURINGS."""
    depth: int | None = None
    """Number of levels of modules that are open; None: as many as are readable."""
    around: str = ""
    """A node or module: only what is near it."""
    hops: int = 2
    """Largest number of edges from there."""
    most: int = READABLE
    """Boxes that are readable."""


def graph_drawing(model: Model, view: View | None = None) -> Drawing:
    """Return the drawing of a model's graph, for `svg_file`, `html_file` and `graph_part` of irscope.report.drawing."""
    view = view or View()
    if not model.program.has_graph or not len(model.graph):
        raise UsageError(
            "it has no graph to draw",
            code="IRS367",
            where=model.program.path,
            hint="weights alone do not say what runs: give the model's .onnx, .pt2 or .pt file",
        )
    if view.colour not in COLOURINGS:
        raise UsageError(f"no colouring {view.colour!r}", code="IRS367", hint=f"one of {', '.join(COLOURINGS)}")
    keep = _near(model, view) if view.around else None
    tree = BoxTree.of(model.program, keep)
    tree.boxes[0].name = Path(model.program.path).name or "model"
    costs = model.manager.get(Flops())
    amounts = Amounts.of(tree, costs)
    paint = class_paint(tree)
    if view.colour != "class":
        whole = amounts if keep is None else Amounts.of(BoxTree.of(model.program), costs)
        paint = share_paint(tree, amounts, view.colour, whole.by_measure[view.colour][0])
    opened, level = tree.readable(view.most)
    if view.depth is not None or keep is not None:
        level = tree.deepest if view.depth is None else view.depth
        opened = tree.opened_to(level)
    return Drawing(
        tree, paint, model.program.path or "model", tuple(_notes(tree, model, view, keep, level, opened)), opened, facts_of(tree, amounts)
    )


def _notes(tree: BoxTree, model: Model, view: View, keep: set[Node] | None, level: int, opened: set[int]) -> Iterator[str]:
    if keep is not None:
        whole = len(model.graph)
        near = f"{view.hops} hop{'' if view.hops == 1 else 's'} of {view.around}"
        yield f"{sum(node.graph is model.graph for node in keep):,} of {whole:,} nodes: those within {near}"
    if level < tree.deepest:
        shown = sum(1 for _ in tree.visible(opened)) - 1
        hint = f"--depth {level + 1} shows one level more, --depth {tree.deepest} everything"
        yield f"modules are folded from depth {level} on: {shown:,} of {len(tree.boxes) - 1:,} boxes are drawn; {hint}"


def _near(model: Model, view: View) -> set[Node]:
    """Return the nodes of the main graph that are so near a node or module, with what is inside their regions."""
    graph = model.graph
    named = view.around.removeprefix("%")
    key = path_key(named)
    start = [node for node in graph if named == node.name or any(named == value.name for value in node.outputs)]
    start = start or [node for node in graph if named and is_within(node.scope, named)]
    start = start or [node for node in graph if key in map(path_key, (node.name, *(value.name or "" for value in node.outputs)))]
    if not start:
        names = {name for node in graph for name in (node.name, node.scope.path, node.scope.module)}
        near = difflib.get_close_matches(named, [name for name in names if name], n=3)
        raise UsageError(
            f"no node or module {view.around!r} in the main graph", code="IRS367", where=model.program.path, hint=", ".join(near)
        )
    return set(nodes_near(start, view.hops, graph))


def picture(model: Model, kind: str, view: View) -> tuple[Iterator[str], tuple[str, ...]]:
    """Return the text of a picture file, and what there is to say of it."""
    drawing = graph_drawing(model, view)
    return (svg_file if kind == "svg" else html_file)(drawing), drawing.notes
