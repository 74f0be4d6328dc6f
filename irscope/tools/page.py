"""What a page about a model shows beside its card: the passes that it runs, at which sizes, and the drawing of the graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from irscope.errors import UsageError
from irscope.ir.program import Assumed
from irscope.report.card import Card
from irscope.report.report import Document
from irscope.session import Model

PAGES: Final = ("html", "md", "md-issue")
"""Formats that show the whole of a model where nobody asked for certain passes."""
DEFAULT_GRID: Final = "WORLD"
"""Whose grid the power comes from where nobody says: the mean of the world, whose source the table of carbon names."""


def page_passes(grid: str) -> str:
    """The pipeline, with carbon for a country's grid or so many grams of CO2 for each kWh."""
    return f"modules,liveness,explain-peak,flops,roofline,energy{{{_grid_option(grid)}}},advise,params,shapes"


def _grid_option(grid: str) -> str:
    try:
        return f"grid={float(grid):g}"
    except ValueError:
        return f"country={grid}"


def at_stated_sizes(model: Model, card: Card) -> Model:
    """The model with numbers for the sizes that the card is for; as it is where it cannot be read again."""
    wanted = {one.symbol: one.size for one in card.sizes if one.is_assumed}
    if not wanted:
        return model
    try:
        found = model.rebound(wanted)
    except UsageError:
        return model
    found.manager.settings = model.manager.settings
    found.manager.instruments = model.manager.instruments
    return found


def with_graph(document: Document, model: Model, grid: str) -> Document:
    """The document of a page: with the drawing of the graph, and what was taken for granted."""
    from irscope.tools.export import graph_drawing  # not at the top, where every run would import what draws

    taken = Assumed("grid", grid, "mean of the world; --grid GRID", is_guess=False)
    info = document.model if grid != DEFAULT_GRID else replace(document.model, assumed=(*document.model.assumed, taken))
    drawing = graph_drawing(model) if model.program.has_graph and len(model.graph) else None
    return replace(document, model=info, drawing=drawing)
