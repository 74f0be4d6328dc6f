"""Questions to a dataset of an audit: which models, why some failed, which operators there are, and what changed since another one."""

from __future__ import annotations

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from irscope.errors import UsageError
from irscope.report.figures import FIELD_KINDS, FIGURES
from irscope.report.report import Coverage, Document, Report, Subject
from irscope.report.table import Column, Series, Table
from irscope.report.units import Kind, humanise
from irscope.report.values import Provenance, Quantity
from irscope.tools.audit.dataset import MODELS, OPERATORS, Dataset
from irscope.tools.audit.run import REASONS
from irscope.tools.many import short_names

Columns: TypeAlias = Mapping[str, Sequence[Any]]

_SHOWN: Final = ("fits", "peak", "parameters", "flops", "time", "family", "nodes", "size", "status", "reason")
"""Columns of models that text has room for."""
_HEADINGS: Final = {"flops": "FLOPs", "intensity": "FLOPs/B"}
_IN_HUB: Final = re.compile(r"(?:^|/)models--([^/]+)/snapshots/[^/]+/?(.*)$")
_DRAWN: Final = {"parameters": "parameters", "peak": "memory at the peak", "flops": "FLOPs", "time": "predicted time"}
_CHANGES: Final = ("status", *(key for key, figure in FIGURES.items() if figure.marks_change))
"""Columns of which a difference is a change of the model, or of what irscope says of it."""


def column_of(key: str, *, detail: bool = False) -> Column:
    """Return the column of a table for one of the dataset's."""
    plain, _, device = key.partition("@")
    heading = _HEADINGS.get(plain, "")
    return Column(key, FIELD_KINDS.get(plain, Kind.TEXT), f"{heading or plain} on {device}" if device else heading, detail=detail)


def _columns(table: Any) -> Columns:
    return {name: table.column(name).to_pylist() for name in table.column_names}


def hub_name(uri: str) -> str:
    """Return what a hub calls a file of its cache: org/name:file; other places as they are."""
    place = _IN_HUB.search(uri)
    return f"{place.group(1).replace('--', '/')}:{place.group(2)}" if place else uri


def models_table(found: Columns, title: str = "models") -> Table:
    """Return the models, one row each, with every column; a terminal shows those that decide, under names without what all have."""
    names, _ = short_names([hub_name(uri) for uri in found["uri"]])
    shown = [one for key in _SHOWN for one in found if one.partition("@")[0] == key]
    order = ["uri", *shown, *(key for key in found if key not in shown and key != "uri")]
    columns = [Column("model"), *(column_of(key, detail=key not in shown) for key in order)]
    origins = [dict(part.split("=", 1) for part in (text or "").split(",") if "=" in part) for text in found.get("provenance", ())]
    data = {key: _with_origin(key, found[key], origins) for key in order if key != "provenance"}
    columns = [column for column in columns if column.key != "provenance"]
    return Table(title, tuple(columns), {"model": names, **data}, keys=list(found["uri"]))


def models_of(dataset: Dataset) -> Table:
    """Return every model with the columns of its card."""
    return models_table(_columns(dataset.read()))


def _with_origin(key: str, values: Sequence[Any], origins: Sequence[Mapping[str, str]]) -> Sequence[Any]:
    """Return the numbers with where they come from, which is the same for further devices."""
    if not FIELD_KINDS.get(key.partition("@")[0], Kind.TEXT).is_number or not origins:
        return values
    words = [origin.get(key.partition("@")[0], "exact") for origin in origins]
    return [
        value if value is None or word == "exact" else Quantity(value, Provenance(word)) for value, word in zip(values, words, strict=True)
    ]


def _failures(dataset: Dataset) -> Table:
    found = _columns(dataset.read(MODELS, ["uri", "status", "reason", "code", "message"]))
    rows = [
        row for row in zip(found["uri"], found["reason"], found["code"], found["message"], found["status"], strict=True) if row[4] != "ok"
    ]
    return Table.of(
        [row[:4] for row in sorted(rows, key=lambda row: (row[1] or "", row[2] or "", row[0]))],
        ["model", "reason", "code", "message"],
        "models that are not ok",
    )


def reasons_table(columns: Columns) -> Table:
    """Return the reasons why models are not ok, the most frequent first, each with an example."""
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for uri, status, reason, code in zip(columns["uri"], columns["status"], columns["reason"], columns["code"], strict=True):
        if status != "ok":
            counts[reason, code] += 1
            examples.setdefault((reason, code), uri)
    rows = [(reason, code, count, REASONS.get(reason, ""), examples[reason, code]) for (reason, code), count in counts.most_common()]
    return Table.of(rows, ["reason", "code", "models:count", "meaning", "example"], "models that are not ok, by reason")


def census_table(dataset: Dataset, *, unknown: bool = False) -> Table:
    """Return the operators over all models: in how many, how often, with which types of their first operand."""
    found = _columns(dataset.read(OPERATORS, ["uri", "op", "source", "inputs", "count", "known"]))
    nodes: Counter[tuple[str, str]] = Counter()
    models: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    types: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    signatures: Counter[tuple[str, str]] = Counter()
    known: dict[tuple[str, str], bool] = {}
    for uri, op, source, inputs, count, is_known in zip(
        *(found[key] for key in ("uri", "op", "source", "inputs", "count", "known")), strict=True
    ):
        if op is None or (unknown and is_known):
            continue
        key = (op, source)
        nodes[key] += count
        models[key].add(uri)
        types[key][(inputs or "").partition("[")[0] or "-"] += count
        signatures[key] += 1
        known[key] = is_known
    order = sorted(nodes, key=lambda key: (known[key], -len(models[key]), -nodes[key], key))
    rows = [
        (
            op,
            source,
            len(models[op, source]),
            nodes[op, source],
            signatures[op, source],
            ", ".join(name for name, _ in types[op, source].most_common()),
            known[op, source],
            min(models[op, source]),
        )
        for op, source in order
    ]
    columns: list[str | Column] = [
        "operator",
        "from",
        "models:count",
        "nodes:count",
        "signatures:count",
        "types",
        "known:bool",
        Column("example", detail=not unknown),
    ]
    return Table.of(rows, columns, "operators that irscope does not know" if unknown else "operators")


def _signatures(dataset: Dataset) -> Table:
    found = _columns(dataset.read(OPERATORS, ["uri", "op", "inputs", "outputs", "count"]))
    nodes: Counter[tuple[str, str, str]] = Counter()
    models: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    for uri, op, inputs, outputs, count in zip(*(found[key] for key in ("uri", "op", "inputs", "outputs", "count")), strict=True):
        if op is not None:
            nodes[op, inputs, outputs] += count
            models[op, inputs, outputs].add(uri)
    rows = [(*key, len(models[key]), count) for key, count in nodes.most_common()]
    return Table.of(
        rows, ["operator", "inputs", "outputs", "models:count", "nodes:count"], "operators with the types that they are used with"
    )


def _slow(dataset: Dataset) -> Table:
    found = _columns(dataset.read(MODELS, ["uri", "cpu_seconds", "size", "nodes", "status"]))
    rows = sorted(
        zip(*(found[key] for key in ("uri", "cpu_seconds", "size", "nodes", "status")), strict=True), key=lambda row: -(row[1] or 0)
    )
    return Table.of(rows, ["model", "cpu_seconds:seconds", "size:bytes", "nodes:count", "status"], "models by the time that irscope took")


def _copies_table(dataset: Dataset) -> Table:
    found = _columns(dataset.read(MODELS, ["uri", "content", "size"]))
    groups: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for uri, content, size in zip(found["uri"], found["content"], found["size"], strict=True):
        groups[content].append((uri, size or 0))
    rows = [(group[0][0], len(group) - 1, (len(group) - 1) * group[0][1], group[1][0]) for group in groups.values() if len(group) > 1]
    rows.sort(key=lambda row: -row[2])
    return Table.of(rows, ["model", "copies:count", "bytes:bytes", "first_copy"], "models of one content")


SETS: Final[Mapping[str, tuple[str, Callable[[Dataset], Table]]]] = {
    "models": ("every model with the columns of its card", models_of),
    "failed": ("models that are not ok, and why", _failures),
    "reasons": ("how many models are not ok, by reason", lambda dataset: reasons_table(_columns(dataset.read()))),
    "operators": ("operators over all models: in how many, how often, with which types", census_table),
    "unknown_ops": ("operators that irscope has no record of", lambda dataset: census_table(dataset, unknown=True)),
    "signatures": ("operators with the shapes and types that they are used with", _signatures),
    "slow": ("models by the time that irscope took", _slow),
    "same": ("models of one content under several names", _copies_table),
}
"""Questions that have a name, each with what it answers."""


def answer(dataset: Dataset, name: str) -> Document:
    """Return the table of a question."""
    if name not in SETS:
        raise UsageError(f"there is no set {name!r}", code="IRS725", hint=f"sets: {', '.join(SETS)}")
    table = SETS[name][1](dataset)
    return Document(reports=(Report("audit", options=name, tables=(table,)),), subjects=_subjects(dataset))


def _subjects(dataset: Dataset) -> tuple[Subject, ...]:
    about = dataset.about
    return (Subject("results", (str(dataset.folder),)), Subject("device", (",".join(about.get("devices") or ()) or "the default",)))


def verdict_lines(columns: Columns, devices: Sequence[str]) -> Iterable[str]:
    """Yield the answer in words: how many models fit, for each device that was asked for."""
    ok = [at for at, status in enumerate(columns["status"]) if status == "ok"]
    yield f"{len(columns['uri']):,} models, {len(columns['uri']) - len(ok):,} not ok"
    for number, device in enumerate(devices):
        key = "fits" if number == 0 else f"fits@{device}"
        fits = Counter(columns[key][at] for at in ok)
        yield f"on {device} {fits[True]:,} fit, {fits[False]:,} do not, of {fits[None]:,} it is not known"


def report_document(dataset: Dataset) -> Document:
    """Return everything on one page: what fits, what fails and why, how the models are spread, the operators, and every model."""
    found = _columns(dataset.read())
    devices = dataset.about.get("devices") or next(([one] for one in found["device"] if one), [])
    census = census_table(dataset)
    known = sum(
        count for count, is_known in zip(census.cells("nodes"), census.cells("known"), strict=True) if is_known and isinstance(count, int)
    )
    total = sum(count for count in census.cells("nodes") if isinstance(count, int))
    unknown = tuple(str(name) for name, is_known in zip(census.cells("operator"), census.cells("known"), strict=True) if not is_known)
    reports = (
        Report(
            "audit",
            headline=tuple(verdict_lines(found, devices)),
            tables=(reasons_table(found), _families(found), models_table(found)),
            series=tuple(_distributions(found)),
        ),
        Report("operators", tables=(census,), coverage=Coverage(known, total, unknown)),
    )
    return Document(reports=reports, subjects=_subjects(dataset))


def _families(columns: Columns) -> Table:
    groups: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for at, (family, form, status) in enumerate(zip(columns["family"], columns["format"], columns["status"], strict=True)):
        if status == "ok":
            groups[family or "-", form or "-"].append(at)
    rows = []
    for (family, form), places in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        peaks = [columns["peak"][at] for at in places if columns["peak"][at] is not None]
        rows.append((family, form, len(places), min(peaks, default=None), max(peaks, default=None)))
    return Table.of(rows, ["family", "format", "models:count", "least_peak:bytes", "largest_peak:bytes"], "kinds of models")


def _distributions(columns: Columns) -> Iterable[Series]:
    """Yield how many models there are of each order of magnitude."""
    for key, title in _DRAWN.items():
        kind, values = FIELD_KINDS.get(key, Kind.COUNT), [value for value in columns.get(key, ()) if value]
        if not values:
            continue
        base = 4 if kind is Kind.BYTES else 10
        counts = Counter(math.floor(math.log(value, base) + 1e-9) for value in values)
        bins = range(min(counts), max(counts) + 1)
        data: dict[str, Sequence[object]] = {
            "from": [f"{humanise(float(base) ** at, kind)} and more" for at in bins],
            "models": [counts[at] for at in bins],
        }
        yield Series(f"models by {title}", Column("from"), (Column("models", Kind.COUNT),), data)


def diff_document(old: Dataset, new: Dataset) -> Document:
    """Models that came, went, or have other numbers; a model is the same where its path below the folder that all share is."""
    before, after = _by_place(_columns(old.read())), _by_place(_columns(new.read()))
    rows = []
    for place in sorted(before.keys() & after.keys()):
        for key in _CHANGES:
            one, two = before[place].get(key), after[place].get(key)
            if one != two:
                rows.append((place, key, _shown(one, key), _shown(two, key), _ratio_of(one, two)))
    changed = len({row[0] for row in rows})
    came, went = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    tables = [
        Table.of(rows, ["model", "what", "old", "new", "ratio:number"], "changed"),
        Table.of([(one, after[one].get("peak"), after[one].get("fits")) for one in came], ["model", "peak:bytes", "fits:bool"], "new"),
        Table.of([(one, before[one].get("peak")) for one in went], ["model", "peak:bytes"], "gone"),
    ]
    same = len(before.keys() & after.keys()) - changed
    headline = (f"{changed:,} models changed, {len(came):,} are new, {len(went):,} are gone, {same:,} are the same",)
    notes = tuple(_difference_of(old, new))
    report = Report("audit", tables=tuple(table for table in tables if len(table)), headline=headline, notes=notes)
    subjects = (Subject("old", (str(old.folder),)), Subject("new", (str(new.folder),)))
    return Document(reports=(report,), subjects=subjects)


def _by_place(columns: Columns) -> dict[str, dict[str, Any]]:
    uris = list(columns["uri"])
    folders = [os.path.dirname(uri) for uri in uris]
    common = os.path.commonpath(folders) if folders and all(os.path.isabs(one) == os.path.isabs(folders[0]) for one in folders) else ""
    names = [uri[len(common) :].lstrip("/") if common and uri.startswith(common) else uri for uri in uris]
    return {name: {key: columns[key][at] for key in columns} for at, name in enumerate(names)}


def _shown(value: Any, key: str) -> str:
    if value is None:
        return "?"
    kind = FIELD_KINDS.get(key, Kind.TEXT)
    return humanise(value, kind) if kind.is_number else str(value)


def _ratio_of(one: Any, two: Any) -> float | None:
    return two / one if isinstance(one, int | float) and isinstance(two, int | float) and one and not isinstance(one, bool) else None


def _difference_of(old: Dataset, new: Dataset) -> Iterable[str]:
    for key, word in (("version", "versions of irscope"), ("devices", "devices"), ("passes", "passes"), ("bind", "sizes")):
        one, two = (str(each.about.get(key) or "the default") for each in (old, new))
        if one != two:
            yield f"the two were made with different {word}: {one} and {two}"


def is_dataset(folder: Path) -> bool:
    """Return whether a folder has results of an audit."""
    return (folder / "audit.json").is_file()
