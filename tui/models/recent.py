"""The files that were opened last, and the samples that come with irscope."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from irscope.errors import OutputError
from irscope.files import config_folder, write_text
from irscope.report.units import Kind, humanise
from irscope.tui.models.rows import TableColumn, TableModel
from irscope.tui.models.symbols import Symbols

_MOST = 20
_SAMPLES = Path(__file__).parent.parent / "samples"


@dataclass(frozen=True, slots=True)
class Known:
    """A file that can be opened."""

    path: Path
    kind: str
    """recent or sample."""
    size: int | None
    """None where the file is gone."""
    changed: float | None


def recent_file() -> Path:
    """Where the list is kept."""
    return config_folder() / "recent.json"


def read_recent(file: Path | None = None) -> list[Path]:
    """The paths, last first; a list that is missing or damaged is an empty one."""
    try:
        found = json.loads((file or recent_file()).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    return [Path(one) for one in found if isinstance(one, str) and one][:_MOST] if isinstance(found, list) else []


def note_opened(path: Path, file: Path | None = None) -> None:
    """Put a path at the head of the list. Where it cannot be written, nothing is noted: this is only a convenience."""
    file = file or recent_file()
    full = Path(os.path.abspath(path))
    if full.is_relative_to(_SAMPLES):
        return
    paths = [full, *(one for one in read_recent(file) if one != full)][:_MOST]
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, [json.dumps([str(one) for one in paths], indent=1), "\n"])
    except (OSError, UnicodeError, OutputError):
        return


def samples(folder: Path = _SAMPLES) -> list[Path]:
    """The models that come with irscope."""
    return sorted(folder.glob("*.irs"))


def known_files(file: Path | None = None) -> list[Known]:
    """Recent files, then samples."""
    return [_known(path, "recent") for path in read_recent(file)] + [_known(path, "sample") for path in samples()]


def _known(path: Path, kind: str) -> Known:
    try:
        found = path.stat()
    except (OSError, ValueError):
        return Known(path, kind, None, None)
    return Known(path, kind, found.st_size, found.st_mtime)


def files_table(files: Sequence[Known], symbols: Symbols) -> TableModel:
    """The files as rows."""
    clean = symbols.clean

    def size(row: int) -> str:
        found = files[row].size
        return "gone" if found is None else humanise(found, Kind.BYTES)

    def changed(row: int) -> str:
        found = files[row].changed
        return "" if found is None else datetime.fromtimestamp(found).strftime("%Y-%m-%d %H:%M")

    def folder(row: int) -> str:
        return "comes with irscope" if files[row].kind == "sample" else clean(str(files[row].path.parent))

    columns = (
        TableColumn("file", 24, lambda row: clean(files[row].path.name), lambda: [one.path.name for one in files], grows=True, role="name"),
        TableColumn("", 6, lambda row: files[row].kind, role="faint", rank=1),
        TableColumn("size", 11, size, lambda: [one.size for one in files], right=True, rank=2),
        TableColumn("changed", 16, changed, lambda: [one.changed for one in files], rank=3),
        TableColumn("folder", 24, folder, grows=True, role="faint", rank=4),
    )
    return TableModel(columns, len(files), symbols, empty="No file was opened yet; o asks for one.")
