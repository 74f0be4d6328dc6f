"""An error as lines for a reader: what is wrong, where, what its code means, and what to do."""

from __future__ import annotations

from irscope.codes import CODES
from irscope.errors import IrscopeError
from irscope.tui.models.spans import Line, Span
from irscope.tui.models.symbols import Symbols


def error_lines(error: IrscopeError, symbols: Symbols) -> list[Line]:
    """An error with its place, its code and what to do about it."""
    clean = symbols.clean
    doc = CODES.get(error.code)
    lines: list[Line] = [(), (Span(f"error {error.code}", "error"), Span(f"  {doc.title}" if doc is not None else ""))]
    lines += [(Span(f"  {clean(part)}"),) for part in error.message.splitlines()]
    if error.where:
        lines.append((Span(f"  at {clean(error.where)}", "faint"),))
    if error.hint:
        lines.append((Span(f"  {clean(error.hint)}", "name"),))
    if doc is not None:
        lines += [(), (Span(f"  {doc.text}", "faint"),)]
    return lines
