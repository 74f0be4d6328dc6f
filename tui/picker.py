"""The files that `irscope tui` offers: those that were opened last, the models of a folder, and samples."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from irscope.errors import IrscopeError, OutputError
from irscope.files import config_folder, is_recording, make_folder, write_text
from irscope.immutable import immutable
from irscope.report.celltext import signed
from irscope.report.figures import FIELD_KINDS
from irscope.report.units import Kind, humanise
from irscope.report.values import Cell, bare
from irscope.session import kind_of
from irscope.tools.audit.dataset import Dataset
from irscope.tools.audit.questions import hub_name, is_dataset, models_of
from irscope.tools.audit.sources import SUFFIXES
from irscope.tui.rows import TableColumn, TableModel
from irscope.tui.text import Symbols

_MOST_LOOKED_AT = 2_000
"""Entries of a folder that are looked at."""
_DEEPEST = 2
_SUFFIXES = frozenset((*SUFFIXES, ".ort", ".jsonl"))
"""Suffixes of the files that are looked into."""
_MOST_RECENT = 20
SAMPLES = Path(__file__).parent / "samples"
"""The folder of the models that come with irscope."""


@immutable
class Known:
    """A file that can be opened."""

    path: Path
    kind: str
    """recent or sample, or in a folder what kind of file it is."""
    size: int | None
    """None where the file is gone."""
    changed: float | None
    found: Mapping[str, Cell] | None = None
    """Its row where it is of an audit."""


def samples(folder: Path = SAMPLES) -> list[Path]:
    """Return the models that come with irscope."""
    return sorted(folder.glob("*.irs"))


def known_files(file: Path | None = None) -> list[Known]:
    """Recent files, then samples."""
    return [_known_file(path, "recent") for path in read_recent(file)] + [_known_file(path, "sample") for path in samples()]


def _known_file(path: Path, kind: str) -> Known:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return Known(path, kind, None, None)
    return Known(path, kind, status.st_size, status.st_mtime)


def files_in(folder: Path) -> list[Known]:
    """Return the models and recordings in a folder and the folders in it, by name; folders of a hub are one model each.

    Of the results of an audit: the models that it is about.
    """
    if is_dataset(folder):
        table = models_of(Dataset(folder))
        keys = [column.key for column in table.columns]
        rows = [dict(zip(keys, row, strict=True)) for row in table.rows()]
        rows.sort(key=lambda row: hub_name(str(row["uri"])))
        return [Known(Path(str(row["uri"])), str(row["format"] or ""), None, None, row) for row in rows]
    files = [_known_file(path, kind) for path, kind in _found_in(folder)]
    return sorted(files, key=lambda file: str(file.path).lower())


def _found_in(folder: Path) -> Iterator[tuple[Path, str]]:
    left = _MOST_LOOKED_AT
    folders = [(folder, 0)]
    while folders and left > 0:
        here, depth = folders.pop(0)
        try:
            entries = sorted(os.scandir(here), key=lambda one: one.name)
        except OSError:
            continue
        for entry in entries[:left]:
            left -= 1
            path = Path(entry.path)
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
            except OSError:
                continue
            if is_folder and not entry.name.startswith("."):
                if (path / "config.json").is_file() or (path / "adapter_config.json").is_file():
                    yield path, "hub folder"
                elif depth < _DEEPEST:
                    folders.append((path, depth + 1))
            elif path.suffix in _SUFFIXES and (kind := _kind(path)):
                yield path, kind


def _kind(path: Path) -> str:
    """Return the kind of a file; empty for a file that cannot be opened."""
    try:
        return "recording" if is_recording(path) else kind_of(path)
    except (IrscopeError, OSError):
        return ""


def files_table(files: Sequence[Known], symbols: Symbols, folder: Path | None = None) -> TableModel:
    """Return the files as rows."""
    clean = symbols.clean
    if files and files[0].found is not None:
        return _audited_table([one.found or {} for one in files], symbols)

    def size(row: int) -> str:
        size = files[row].size
        return "gone" if size is None else humanise(size, Kind.BYTES)

    def changed(row: int) -> str:
        changed = files[row].changed
        return "" if changed is None else datetime.fromtimestamp(changed).strftime("%Y-%m-%d %H:%M")

    def place(row: int) -> str:
        parent = files[row].path.parent
        if files[row].kind == "sample":
            return "comes with irscope"
        return clean(str(parent if folder is None else os.path.relpath(parent, folder)))

    columns = (
        TableColumn("file", 24, lambda row: clean(files[row].path.name), lambda: [one.path.name for one in files], grows=True, role="name"),
        TableColumn("kind", 11, lambda row: clean(files[row].kind), lambda: [one.kind for one in files], role="faint", rank=1),
        TableColumn("size", 11, size, lambda: [one.size for one in files], right=True, rank=2),
        TableColumn("changed", 16, changed, lambda: [one.changed for one in files], rank=3),
        TableColumn("folder", 24, place, grows=True, role="faint", rank=4),
    )
    return TableModel(columns, len(files), symbols, empty="There is no model here; o asks for a path.")


def _audited_table(rows: Sequence[Mapping[str, Cell]], symbols: Symbols) -> TableModel:
    """Models of an audit with what decides about them."""
    clean = symbols.clean
    names = [str(row["model"]) for row in rows]  # without what all of their paths have

    def fits(row: int) -> str:
        if rows[row]["status"] != "ok":
            return "failed"
        found = rows[row]["fits"]
        return symbols.unknown if found is None else "fits" if found else "too large"

    def amount(key: str) -> Callable[[int], str]:
        kind = FIELD_KINDS[key]

        def text(row: int) -> str:
            cell = rows[row][key]
            return symbols.unknown if bare(cell) is None else clean(signed(cell, kind))

        return text

    def said(row: int) -> str:
        found = rows[row]
        return clean(str(found["message"] or found["family"] or found["format"] or ""))

    def values(key: str) -> Callable[[], list[object]]:
        return lambda: [bare(row[key]) for row in rows]

    columns = (
        TableColumn("model", 24, lambda row: clean(names[row]), lambda: list(names), grows=True, role="name"),
        TableColumn("verdict", 9, fits, lambda: [fits(row) for row in range(len(rows))]),
        TableColumn("peak", 11, amount("peak"), values("peak"), right=True, rank=1),
        TableColumn("parameters", 14, amount("parameters"), values("parameters"), right=True, rank=2),
        TableColumn("FLOPs", 14, amount("flops"), values("flops"), right=True, rank=3),
        TableColumn("what, or why not", 30, said, values("family"), grows=True, role="faint", rank=4),
    )
    return TableModel(columns, len(rows), symbols, empty="No model was analysed yet.")


def recent_file() -> Path:
    """Return where the list is kept."""
    return config_folder() / "recent.json"


def read_recent(file: Path | None = None) -> list[Path]:
    """Return the paths, last first; a list that is missing or damaged is an empty one."""
    try:
        found = json.loads((file or recent_file()).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    return [Path(one) for one in found if isinstance(one, str) and one][:_MOST_RECENT] if isinstance(found, list) else []


def note_opened(path: Path, file: Path | None = None) -> None:
    """Put a path at the head of the list. Where it cannot be written, nothing is noted: this is only a convenience."""
    file = file or recent_file()
    full = Path(os.path.abspath(path))
    if full.is_relative_to(SAMPLES):
        return
    paths = [full, *(path for path in read_recent(file) if path != full)][:_MOST_RECENT]
    try:
        make_folder(file.parent)
        write_text(file, [json.dumps([str(path) for path in paths], indent=1), "\n"])
    except (OSError, UnicodeError, OutputError):
        return
