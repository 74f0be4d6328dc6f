"""A report's summary as text: names with their values, and groups of one make side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from irscope.report.celltext import CellWriter
from irscope.report.grid import GridColumn, fit
from irscope.report.options import RenderOptions
from irscope.report.printable import display_width, pad, printable
from irscope.report.summary import Entry
from irscope.report.values import Quantity

_STEP = "  "


@dataclass(frozen=True, slots=True)
class _Group:
    """Values next to one another below one parent."""

    parent: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def leaves(self) -> tuple[str, ...]:
        return tuple(entry.path[-1] for entry in self.entries)

    def is_like(self, other: _Group) -> bool:
        """Whether both are rows of one small table."""
        return bool(self.parent) and self.parent[:-1] == other.parent[:-1] and len(self.entries) > 1 and self.leaves == other.leaves


def summary_lines(entries: Sequence[Entry], writer: CellWriter, options: RenderOptions) -> Iterator[str]:
    """The lines of a summary, not indented."""
    groups = [_Group(parent, tuple(members)) for parent, members in groupby(entries, lambda entry: entry.path[:-1])]
    width = max((display_width(_label(entry, options)) for entry in entries), default=0)
    while groups:
        alike = 1
        while alike < len(groups) and groups[0].is_like(groups[alike]):
            alike += 1
        run, groups = groups[:alike], groups[alike:]
        if alike > 1:
            yield from _matrix(run, writer, options)
        else:
            yield from _pairs(run[0], width, writer, options)


def _words(part: str, options: RenderOptions) -> str:
    return printable(part.replace("_", " "), options.encoding)


def _label(entry: Entry, options: RenderOptions) -> str:
    return _STEP * (len(entry.path) - 1) + _words(entry.path[-1], options)


def _pairs(group: _Group, width: int, writer: CellWriter, options: RenderOptions) -> Iterator[str]:
    if group.parent:
        yield _STEP * (len(group.parent) - 1) + " ".join(_words(part, options) for part in group.parent)
    for entry in group.entries:
        yield f"{pad(_label(entry, options), width)}  {writer.write(entry.cell, entry.kind)}{_details(entry, options)}"


def _details(entry: Entry, options: RenderOptions) -> str:
    """Formula and remark of a quantity."""
    if not isinstance(entry.cell, Quantity):
        return ""
    formula = f"({entry.cell.formula})" if entry.cell.formula is not None and entry.cell.value is not None else ""
    return "".join(f"  {printable(part, options.encoding)}" for part in (formula, entry.cell.note) if part)


def _matrix(groups: Sequence[_Group], writer: CellWriter, options: RenderOptions) -> Iterator[str]:
    names = GridColumn("", [_words(group.parent[-1], options) for group in groups])
    values = [
        GridColumn(_words(leaf, options), [writer.write(entry.cell, entry.kind) for entry in column], right=True, cuttable=False)
        for leaf, column in zip(groups[0].leaves, zip(*(group.entries for group in groups), strict=True), strict=True)
    ]
    grid = fit([names, *values], None)
    if len(groups[0].parent) > 1:
        yield " ".join(_words(part, options) for part in groups[0].parent[:-1])
    yield grid.head(options.glyphs)
    yield from grid.lines(options.glyphs)
