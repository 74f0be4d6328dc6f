"""The document as JSON: ASCII, exact integers, one row of a table a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from irscope.report.options import RenderOptions
from irscope.report.report import Document
from irscope.report.values import compact_json

_STEP = "  "


def render(document: Document, options: RenderOptions) -> Iterator[str]:
    """The document as the published schema describes it; the options change nothing."""
    yield from json_lines(document.to_json())


def json_lines(value: object) -> Iterator[str]:
    """JSON with one entry a line where entries are large, so that it can be read and compared line by line."""
    yield from _value(value, "")
    yield "\n"


def _value(value: object, indent: str) -> Iterator[str]:
    inner = indent + _STEP
    if isinstance(value, Mapping) and _is_large(value.values()):
        before = "{"
        for key, item in value.items():
            yield f"{before}\n{inner}{compact_json(key)}: "
            yield from _value(item, inner)
            before = ","
        yield f"\n{indent}}}"
    elif isinstance(value, list) and _is_large(value):
        before = "["
        for item in value:
            yield f"{before}\n{inner}"
            yield from _value(item, inner) if isinstance(item, Mapping) else [compact_json(item)]
            before = ","
        yield f"\n{indent}]"
    else:
        yield compact_json(value)


def _is_large(items: Iterable[object]) -> bool:
    return any(isinstance(item, Mapping | list) for item in items)
