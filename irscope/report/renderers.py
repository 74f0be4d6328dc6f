"""The output formats by name. A renderer is imported when it is used.

Installed packages add formats as entry points of the group `irscope.renderers`, each a function `(document, options)` that yields text.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Protocol, cast

from irscope.errors import UsageError
from irscope.plugins import Plugin, plugins_by_name
from irscope.report.options import RenderOptions
from irscope.report.report import Document

RENDERERS: Mapping[str, str] = MappingProxyType(
    {
        "text": "irscope.report.text:render",
        "json": "irscope.report.jsonout:render",
        "csv": "irscope.report.csvout:render",
        "html": "irscope.report.htmlout:render",
        "layers-json": "irscope.report.layersout:render",
    }
)
FOLDER_RENDERERS: Mapping[str, str] = MappingProxyType({"csv": "irscope.report.csvout:render_files"})
"""Formats that can also fill a folder, one file for each table."""
ENTRY_POINT_GROUP = "irscope.renderers"


class Renderer(Protocol):
    """Writes a document as chunks of text."""

    def __call__(self, document: Document, options: RenderOptions) -> Iterator[str]: ...


class FolderRenderer(Protocol):
    """Writes a document as named files."""

    def __call__(self, document: Document, options: RenderOptions) -> Iterator[tuple[str, Iterator[str]]]: ...


def renderer(name: str, renderers: Mapping[str, str] = RENDERERS) -> Renderer:
    """The renderer of a format; UsageError names those there are."""
    return cast(Renderer, _load(name, renderers))


def folder_renderer(name: str, renderers: Mapping[str, str] = FOLDER_RENDERERS) -> FolderRenderer:
    """The renderer that fills a folder; UsageError where the format is one single file."""
    return cast(FolderRenderer, _load(name, renderers))


def offered_formats() -> dict[str, Plugin]:
    """Formats that installed packages add, by name."""
    return plugins_by_name(ENTRY_POINT_GROUP, frozenset(RENDERERS))


def _load(name: str, renderers: Mapping[str, str]) -> object:
    if name in renderers:
        module, _, attribute = renderers[name].partition(":")
        found: object = getattr(importlib.import_module(module), attribute)
        return found
    offered = offered_formats() if renderers is RENDERERS else {}
    if name not in offered:
        raise UsageError(f"no such output format: {name}", hint=f"formats are {', '.join((*renderers, *offered))}")
    found = offered[name].load()
    if not callable(found):
        raise UsageError(f"format {name!r} of {offered[name].owner} is no function but {type(found).__name__}", code="IRS101")
    return found
