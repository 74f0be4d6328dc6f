"""The document as one page that needs nothing else: charts that are read by value, trees that fold, tables that sort and filter.

Without its script, as where a mail program shows it, the page has the same pictures and numbers, but for rows that the script adds. What
it may do is said by its Content-Security-Policy: nothing is loaded from anywhere, and no script runs but the one whose hash stands there.
Names out of a model are only ever text: escaped here, and set as text by the script.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import count, islice

from irscope.report.card import Card
from irscope.report.cardtext import CardView, card_view
from irscope.report.drawing import GRAPH_STYLE, graph_part, graph_script, script_policy
from irscope.report.htmlout import ROWS, PartWriter, bar_length, bar_scales, card_facts, details
from irscope.report.options import RenderOptions
from irscope.report.picture import Panel, Reading, Style, colours_of, panels_of, readings, readings_of, rows_of, ticks
from irscope.report.plot import COLOURS, Plot, svg_text
from irscope.report.printable import legible
from irscope.report.report import Document, ModelInfo, Report, title_of
from irscope.report.table import Entry, Group, Series, Table, grouped
from irscope.report.values import Cell, Provenance, bare, raw_text

_STATIC = 100
"""Rows of a table that stand in the page itself; the script has the others."""
_CELLS = 150_000
"""Cells of a page, some megabytes: what tables of one page may hold together unless the user asked for more."""
_PARTS = 30
"""Rows of what a height is made of, the largest; the last one sums up all others."""
_SHORT_REMARK = 30
"""Letters of a remark that stands beside its number; a longer one stands below all of them, once."""
_FEW_NAMES = 3
_LONGEST_BAR = 70
"""Percent of the room that the longest bar has: the rest is for its value."""
_LETTERS = 60
"""Letters of a label that fit into the width of a chart."""
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; script-src"


def render(document: Document, options: RenderOptions) -> Iterator[str]:
    """Yield the page in pieces."""
    about = document.model.path or ", ".join(subject.parts[0] for subject in document.subjects) or document.about
    style, script, policy = _asset("page.css"), _asset("page.js"), _POLICY
    policy += f" 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    if document.drawing is not None:
        style, policy = style + GRAPH_STYLE, f"{policy} {script_policy()}"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{svg_text(f'{about} - irscope' if about else 'irscope')}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
    yield '<a class="skip" href="#content">Skip to the content</a>\n'
    yield from _table_of_contents(document)
    yield '<main id="content">\n<header>\n'
    if document.model.path and not document.subjects:
        yield from _model(document.model)
    elif about and not document.subjects:
        yield f"<h1>{svg_text(about)}</h1>\n"
    for subject in document.subjects:
        path, *facts = subject.parts
        yield f"<h1>{svg_text(f'{subject.name}: {path}')}</h1>\n<p>{svg_text(', '.join(filter(None, facts)))}</p>\n"
        yield from (f'<p class="quiet">{svg_text(remark)}</p>\n' for remark in subject.remarks)
    yield "</header>\n"
    if document.card is not None:
        yield from _card(document.card)
    writer = _PageWriter(options)
    for report in document.reports:
        yield from writer.section(report)
    if document.drawing is not None:
        yield '<section id="graph-section">\n<h2>Graph</h2>\n'
        yield from graph_part(document.drawing, "graph")
        yield "</section>\n"
    yield f'<footer class="quiet">Written by {svg_text(document.writer)}.</footer>\n</main>\n'
    yield f"<script>{script}</script>\n"
    yield f"<script>{graph_script()}</script>\n" if document.drawing is not None else ""
    yield "</body>\n</html>\n"


@cache
def _asset(name: str) -> str:
    return (files("irscope.report") / "assets" / name).read_text(encoding="utf-8")


def _table_of_contents(document: Document) -> Iterator[str]:
    """Links to the sections and to what is in them."""
    yield '<nav aria-label="Contents">\n<details open><summary>Contents</summary>\n<ol>\n'
    if document.card is not None:
        yield '<li><a href="#card">In short</a></li>\n'
    for number, report in enumerate(document.reports, 1):
        titles = [title for title in (*(one.title for one in report.drawn), *(table.title for table in report.tables)) if title]
        inner = "".join(f'<li><a href="#s{number}-{place}">{svg_text(title)}</a></li>' for place, title in enumerate(titles, 1))
        yield f'<li><a href="#s{number}">{svg_text(title_of(report))}</a>{f"<ol>{inner}</ol>" if inner else ""}</li>\n'
    if document.drawing is not None:
        yield '<li><a href="#graph-section">Graph</a></li>\n'
    yield "</ol>\n</details>\n</nav>\n"


def _model(model: ModelInfo) -> Iterator[str]:
    yield f"<h1>{svg_text(model.path)}</h1>\n<p>{svg_text(', '.join(model.facts()))}"
    yield f'<br><span class="quiet">sha256 {svg_text(model.sha256)}</span></p>\n' if model.sha256 else "</p>\n"
    for line in model.assumed_lines:
        yield f'<p class="{"warning" if model.is_guessed else "quiet"}">{svg_text(line)}</p>\n'
    for diagnostic in model.diagnostics:
        yield f'<p class="{diagnostic.severity.text}">{svg_text(str(diagnostic))}</p>\n'


def _card(card: Card) -> Iterator[str]:
    """Yield the verdict, the numbers that people ask for, what memory is made of, and what to do next."""
    view = card_view(card)
    state = {True: "yes", False: "no", None: "open"}[view.fits]
    yield f'<section id="card">\n<h2>In short</h2>\n<p class="verdict {state}">{svg_text(view.verdict)}</p>\n<div class="tiles">\n'
    for tile in view.tiles:
        yield f"<div><span>{svg_text(tile.name)}</span><strong>{svg_text(tile.number)}</strong><small>{svg_text(tile.note)}</small></div>\n"
    yield "</div>\n"
    yield from _sum_bar(view)
    yield from card_facts(card, view)
    yield "</section>\n"


def _sum_bar(view: CardView) -> Iterator[str]:
    """Yield the peak as a bar of its parts, each named with its size."""
    whole = sum(size for _, size, _ in view.parts)
    if not whole:
        return
    yield '<div class="sum" aria-hidden="true">'
    colours = colours_of([category for category, _, _ in view.parts])
    for colour, (_, size, _) in zip(colours, view.parts, strict=True):
        yield f'<i class="c{colour % len(COLOURS)}" style="width:{100 * size / whole:.2f}%"></i>'
    yield '</div>\n<ul class="legend">'
    for colour, (category, _, text) in zip(colours, view.parts, strict=True):
        yield f'<li><i class="c{colour % len(COLOURS)}"></i>{svg_text(category)} <output>{svg_text(text)}</output></li>'
    yield "</ul>\n"


class _PageWriter(PartWriter):
    """Parts of reports with what the script needs to make them answer."""

    def __init__(self, options: RenderOptions) -> None:
        super().__init__(options)
        self._room = _CELLS
        self._section = 0
        self._part = 0

    def heading(self, report: Report) -> Iterator[str]:
        """Yield a place to link to."""
        self._section += 1
        self._part = 0
        own = f" <code>{svg_text(report.options)}</code>" if report.options and report.options != title_of(report) else ""
        yield f'<section id="s{self._section}">\n<h2>{svg_text(title_of(report))}{own}</h2>\n'

    def body(self, report: Report) -> Iterator[str]:
        """Pictures before tables, and conventions last: they are for who wonders."""
        yield from self.summary(report.entries())
        for part in report.drawn if self.options.charts else ():
            yield from self._titled(part.title, self.chart(part))
        for table in report.tables:
            yield from self._titled(table.title, self.table(table))
        yield from self.notes(report)

    def summary(self, entries: Sequence[Entry]) -> Iterator[str]:
        """In as many columns as there is room for."""
        if not entries:
            return
        remarks: dict[str, list[str]] = {}
        runs = grouped(entries)
        alone = [entry for run in runs if len(run) == 1 for entry in run[0].entries]
        yield '<dl class="summary">\n' if alone else ""
        for entry in alone:
            name = ": ".join(part.replace("_", " ") for part in entry.path)
            shown, more = self.cells.write(entry.cell, entry.kind, Provenance.EXACT), details(entry.cell)
            raw = f' data-value="{svg_text(raw_text(entry.cell))}"' if bare(entry.cell) is not None else ' class="unknown"'
            raw += f' title="{svg_text(more)}"' if more else ""
            yield f'<div><dt title="{svg_text(entry.key)}">{svg_text(name)}</dt><dd{raw}>{svg_text(shown)}'
            yield f" <small>{svg_text(more)}</small></dd></div>\n" if 0 < len(more) <= _SHORT_REMARK else "</dd></div>\n"
            if len(more) > _SHORT_REMARK:
                remarks.setdefault(more, []).append(name)
        yield "</dl>\n" if alone else ""
        for run in runs:
            if len(run) > 1:
                yield from self._matrix(run)
        for more, names in remarks.items():
            about = ", ".join([*names[:_FEW_NAMES], *(["and others"] if len(names) > _FEW_NAMES else [])])
            yield f'<p class="quiet">{svg_text(f"{about}: {more}")}</p>\n'

    def _matrix(self, groups: Sequence[Group]) -> Iterator[str]:
        """Yield groups with the same names in them, beside each other."""
        above = ": ".join(part.replace("_", " ") for part in groups[0].parent[:-1])
        heads = "".join(f'<th scope="col" class="number">{svg_text(leaf.replace("_", " "))}</th>' for leaf in groups[0].leaves)
        yield f'<div class="scroll"><table class="rows">\n<thead><tr><th scope="col">{svg_text(above)}</th>{heads}</tr></thead>\n<tbody>\n'
        for group in groups:
            name = group.parent[-1].replace("_", " ")
            cells = "".join(self.cell(entry.cell, entry.kind, Provenance.EXACT) for entry in group.entries)
            yield f'<tr><th scope="row">{svg_text(name)}</th>{cells}</tr>\n'
        yield "</tbody></table></div>\n"

    def _titled(self, title: str, parts: Iterable[str]) -> Iterator[str]:
        if title:
            self._part += 1
            yield f'<h3 id="s{self._section}-{self._part}">{svg_text(title)}</h3>\n'
        yield from parts

    # Tables: some rows in the page, more of them as data for the script.

    def table(self, table: Table) -> Iterator[str]:
        """Yield a table that sorts, filters, and folds where it is a tree."""
        shown = self.shown(table)
        if not shown.depth:
            yield '<div class="table">\n'
            yield from self._flat(shown)
        else:
            # How deep a row is, its indent says, and the names above it the rest of its path.
            yield '<div class="table tree">\n'
            depths = map(raw_text, shown.cells(shown.depth))
            columns = tuple(column for column in shown.columns if column.key != shown.depth and not column.detail)
            flat = replace(shown, columns=columns, data={column.key: shown.data[column.key] for column in columns})
            yield from self.grid(flat, flat.rows(), (f' data-depth="{svg_text(depth)}"' for depth in depths))
        yield from self.left_out(table, shown)
        yield "</div>\n"

    def _flat(self, table: Table) -> Iterator[str]:
        rows, scales = table.rows(), bar_scales(table)
        last = len(table) - 1 if table.rest else -1
        if len(table):
            yield from self.grid(table, islice(rows, _STATIC), (' class="rest"' if number == last else "" for number in count()))
        if len(table) > _STATIC:
            more = [[self._as_data(table, cell, place, scales) for place, cell in enumerate(row)] for row in rows]
            yield f'<script type="application/json">{_json(more)}</script>\n'

    def shown(self, table: Table) -> Table:
        """Return as many rows as were requested, else as many as leave room for other tables; of a tree the upper levels."""
        limit = self.options.rows
        if limit is None:
            limit = max(min(ROWS, self._room // max(len(table.columns), 1)), _STATIC)
            table = _upper_levels(table, limit)
        shown = table.first(limit)
        self._room -= len(shown) * len(shown.columns)
        return shown

    def _as_data(self, table: Table, cell: Cell, place: int, scales: Sequence[float]) -> object:
        """Return a cell for the script: its text, or its text, raw value, title, and the length of its bar in percent."""
        column = table.columns[place]
        shown = self.cells.write(cell, column.kind, column.provenance)
        value, raw, more = bare(cell), legible(raw_text(cell)), legible(details(cell))
        length = bar_length(cell, scales[place])
        return shown if raw == shown and not more and not length else [shown, None if value is None else raw, more, length]

    # Charts: drawn here, read by the script.

    def chart(self, part: Series | Panel) -> Iterator[str]:
        """Yield the pictures of a series, which say what is at the place that is pointed at."""
        series = part if isinstance(part, Series) else None
        panels = [part] if isinstance(part, Panel) else panels_of(part)
        for number, panel in enumerate(panels):
            yield '<figure class="chart">\n'
            if len(panels) > 1:
                yield f"<figcaption>{svg_text(panel.title)}</figcaption>\n"
            yield from _bars(panel) if panel.names else self._curves(series, panel, with_parts=not number)
            yield "</figure>\n"

    def _curves(self, series: Series | None, panel: Panel, *, with_parts: bool) -> Iterator[str]:
        plot, found = Plot(panel), readings_of(panel) if series is None else readings(series, panel)
        xs = [round(plot.x(one.x) / 10, 2) for one in found]
        top = {peak.x for peak in panel.peaks}
        start = next((number for number, one in enumerate(found) if one.x in top), len(found) - 1)
        label = f"{panel.title}, by {panel.x.heading}: arrow keys move along it"
        yield f'<div class="plot" role="slider" tabindex="0" aria-label="{svg_text(label)}" aria-valuemin="0" '
        yield f'aria-valuemax="{len(found) - 1}" aria-valuenow="{start}" aria-valuetext="{svg_text(found[start].text)}">\n'
        yield from _axes(panel, plot)
        yield f'</div>\n<p class="reading">{svg_text(found[start].text)}</p>\n<ul class="legend">'
        for colour, curve, value in zip(panel.colours, panel.curves, found[start].values, strict=True):
            yield f'<li><i class="c{colour % len(COLOURS)}"></i>{svg_text(curve.name)} <output>{svg_text(value)}</output></li>'
        yield "</ul>\n"
        for limit in panel.beyond:
            yield f'<p class="quiet">{svg_text(limit.text)}, far above what is drawn</p>\n'
        texts = {text: number for number, text in enumerate(dict.fromkeys(text for one in found for text in one.values))}
        data: dict[str, object] = {
            "x": xs,
            "holds": all(curve.style in (Style.AREA, Style.STEPS) for curve in panel.curves),
            "at": [one.text for one in found],
            "texts": list(texts),
            "values": [[texts[text] for text in one.values] for one in found],
        }
        if with_parts and series is not None and series.parts is not None:
            table = series.parts(found[start].place, _PARTS)
            yield '<div class="parts">\n'
            yield from self.grid(table, table.rows())
            yield "</div>\n"
            data |= self._parts_as_data(series.parts, found)
        yield f'<script type="application/json">{_json(data)}</script>\n'

    def _parts_as_data(self, parts: Callable[[int, int], Table], found: Sequence[Reading]) -> dict[str, object]:
        """Return what the height at each place is made of; rows that occur at several places once."""
        rows: dict[str, int] = {}
        made: list[object] = []
        at: list[list[int]] = []
        for reading in found:
            table = parts(reading.place, _PARTS)
            scales = [0.0] * len(table.columns)
            at.append([])
            for row in table.rows():
                if (key := repr(row)) not in rows:
                    rows[key] = len(rows)
                    made.append([self._as_data(table, cell, place, scales) for place, cell in enumerate(row)])
                at[-1].append(rows[key])
        return {"rows": made, "parts": at}


def _axes(panel: Panel, plot: Plot) -> Iterator[str]:
    """Yield a picture that a page stretches to its width, and labels beside it, which stay as they are."""
    heights = ticks(0, panel.top, panel.y.kind)
    lines = rows_of(panel.marks, panel.left, panel.right, _LETTERS)
    yield f'<div class="marks" style="height:{1.3 * (max(lines, default=-1) + 1):.1f}rem" aria-hidden="true">'
    for mark, line in zip(panel.marks, lines, strict=True):
        x = plot.x(mark.x) / 10
        side, words = (f"right:{100 - x:.2f}%", f"{mark.label} ▼") if x > 50 else (f"left:{x:.2f}%", f"▼ {mark.label}")
        yield f'<span style="{side};bottom:{1.3 * line:.1f}rem">{svg_text(words)}</span>'
    yield '</div>\n<div class="ys" aria-hidden="true">'
    yield from (f'<span style="bottom:{100 * height / panel.top:.2f}%">{svg_text(text)}</span>' for height, text in heights)
    yield f'</div>\n<div class="field"><svg viewBox="0 0 {plot.width:g} {plot.bottom:g}" preserveAspectRatio="none" aria-hidden="true">\n'
    yield from plot.shapes()
    yield from (f'<path class="grid" d="M0 {plot.y(height):.2f}h{plot.width:g}"/>' for height, _ in heights)
    yield "</svg>"
    for limit in panel.limits:
        yield f'<span class="limit-name" style="bottom:{100 * limit.y / panel.top:.2f}%">{svg_text(limit.text)}</span>'
    yield '<i class="cursor" hidden></i></div>\n<div class="xs" aria-hidden="true">'
    for place, text in ticks(panel.left, panel.right, panel.x.kind):
        yield f'<span style="left:{plot.x(place) / 10:.2f}%">{svg_text(text)}</span>'
    yield f'</div>\n<div class="xname" aria-hidden="true">{svg_text(panel.x.heading)}</div>\n'


def _bars(panel: Panel) -> Iterator[str]:
    """Bars by name, each with its value beside it."""
    yield '<table class="bars"><tbody>\n'
    for place, name in enumerate(panel.names):
        for number, curve in enumerate(panel.curves):
            head = f'<th scope="row" rowspan="{len(panel.curves)}">{svg_text(name)}</th>' if not number else ""
            width = _LONGEST_BAR * (curve.ys[place] or 0) / panel.top
            bar = f'<i class="c{panel.colours[number] % len(COLOURS)}" style="width:{width:.1f}%"></i>'
            yield f"<tr>{head}<td>{bar}<span>{svg_text(curve.texts[place])}</span></td></tr>\n"
    yield "</tbody></table>\n"
    if panel.has_legend:
        names = (
            f'<li><i class="c{colour % len(COLOURS)}"></i>{svg_text(curve.name)}</li>'
            for colour, curve in zip(panel.colours, panel.curves, strict=True)
        )
        yield f'<ul class="legend">{"".join(names)}</ul>\n'


def _upper_levels(table: Table, limit: int) -> Table:
    """Return the levels of a tree, from its root, that fit whole."""
    if not table.depth or not limit or len(table) <= limit:
        return table
    depths = [int(str(bare(cell))) for cell in table.cells(table.depth)]
    deepest = max((level for level in set(depths) if sum(depth <= level for depth in depths) <= limit), default=0)
    kept = [place for place, depth in enumerate(depths) if depth <= deepest]
    data = {key: [cells[place] for place in kept] for key, cells in zip(table.data, map(table.cells, table.data), strict=True)}
    return replace(table, data=data, keys=None)


def _json(value: object) -> str:
    """Data inside an element of a page: no sign in it can end the element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
