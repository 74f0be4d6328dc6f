"""Pictures of a model's graph: what is drawn of it, coloured by what, folded how far. `irscope export` and reports ask here."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.graph import Node
from irscope.ir.places import is_within, path_key
from irscope.passes.cost.flops import Flops
from irscope.passes.exports.pictures import (
    COLOURINGS,
    Amounts,
    class_paint,
    facts_of,
    share_paint,
)
from irscope.report.boxes import READABLE, BoxTree, nodes_near
from irscope.report.drawing import Drawing, html_file, svg_file
from irscope.session import Model

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
    start = [node for node in graph if named == node.name or any(named == one.name for one in node.outputs)]
    start = start or [node for node in graph if named and is_within(node.scope, named)]
    start = start or [node for node in graph if key in map(path_key, (node.name, *(one.name or "" for one in node.outputs)))]
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
