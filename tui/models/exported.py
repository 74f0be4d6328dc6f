"""What `e` writes: a table as CSV or JSON, in a file that was not there before."""

from __future__ import annotations

import json
from pathlib import Path

from irscope.errors import UsageError
from irscope.report.csvout import csv_lines
from irscope.report.jsonout import table_json
from irscope.report.table import Table


def table_text(table: Table, form: str) -> str:
    """A table as CSV or JSON."""
    if form == "csv":
        return "".join(csv_lines(table))
    return json.dumps(table_json(table), indent=2, ensure_ascii=False) + "\n"


def write_new(stem: str, suffix: str, text: str, folder: Path | None = None) -> Path:
    """Write a text into a new file of the current folder; a number keeps what is there already."""
    folder = folder or Path()
    clean = "".join(character if character.isalnum() or character in "-_." else "-" for character in stem).strip(".-") or "irscope"
    for number in range(1, 1000):
        path = folder / f"{clean}{'' if number == 1 else f'-{number}'}.{suffix}"
        try:
            with path.open("x", encoding="utf-8", newline="") as file:
                file.write(text)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"cannot write {path}: {error.strerror or error}", hint="start irscope in a folder you may write to"
            ) from error
        return path
    raise UsageError(f"there are too many files called {clean}", hint="remove some of them")
