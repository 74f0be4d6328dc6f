"""The results of an audit on disk: Parquet files that other programs read, and an index that says what is in them.

RESULTS/audit.json     what was asked, and the schema
RESULTS/index.sqlite   which models were analysed, under which content; rows that are in no Parquet file yet
RESULTS/models/        one row a model
RESULTS/operators/     the census: kinds of operators with their types
RESULTS/PASS/          one row a model for each pass that was asked for

A row is in the index as soon as it is there, in one transaction, and goes into a Parquet file with many others later. A Parquet file is
complete or not there; one that the index does not know, because the program was killed in between, is written again.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from irscope._version import __version__
from irscope.errors import LoadError, OutputError, UsageError
from irscope.files import as_output_error, make_folder, read_regular, staged, write_text
from irscope.immutable import immutable
from irscope.report.figures import FIGURES
from irscope.report.printable import well_formed
from irscope.report.values import Scalar
from irscope.tools.audit.sources import Item
from irscope.tools.audit.worker import Found, Row, Setup

SCHEMA: Final = "irscope.audit/1"
MODELS, OPERATORS = "models", "operators"
_RESUMED: Final = "what was analysed is kept: the same command goes on when there is room"
_BEGUN: Final = frozenset({".lock", "index.sqlite", "index.sqlite-wal", "index.sqlite-shm", "index.sqlite-journal"})
"""All that is in a folder of results where a full disk ended the first audit before it said what it was for."""
_NOT_HERE: Final = "pip install pyarrow fsspec"
_FIRST: Final = ("uri", "name", "status", "reason", "fits", "peak", "parameters", "flops", "time", "family", "format", "nodes", "size")
"""Columns of the table of models that come first; what else a card has follows by name."""
_LARGEST_WHOLE: Final = 1 << 63
_ROWS_OF_GROUP: Final = 20_000


@immutable
class Known:
    """The index's entry for a model."""

    stamp: str
    reason: str
    """Reason why it has no numbers; empty where it has some."""


def need_parquet() -> Any:
    """Return the library that reads and writes Parquet."""
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError as error:
        raise UsageError("results are Parquet files, which need pyarrow", code="IRS721", hint=_NOT_HERE) from error


class Dataset:
    """A folder of results; one process at a time writes to it, and any number reads."""

    def __init__(self, folder: Path, *, writable: bool = False) -> None:
        self.folder = folder
        self._arrow = need_parquet()
        self._lock: int | None = None
        self._writable = writable
        about = self._about()
        self.digest, self.about = about.get("digest", ""), about
        if not writable:
            return
        with self._writing():
            make_folder(folder)
            self._take_lock()
            self._index = sqlite3.connect(folder / "index.sqlite", isolation_level=None)
            self._index.executescript(
                """
                PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
                CREATE TABLE IF NOT EXISTS models
                (id TEXT PRIMARY KEY, uri TEXT, stamp TEXT, key TEXT, reason TEXT, part INTEGER, found BLOB);
                CREATE INDEX IF NOT EXISTS by_key ON models(key);
                CREATE INDEX IF NOT EXISTS by_part ON models(part);
                """
            )
            self._drop_unknown_parts()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn what the system, SQLite and Arrow say about a disk that is full or may not be written into an OutputError."""
        with as_output_error(self.folder):
            try:
                yield
            except (sqlite3.Error, self._arrow.ArrowException) as error:
                raise OutputError(f"cannot be written: {str(error).splitlines()[0]}", where=str(self.folder), hint=_RESUMED) from error

    # -- what it is for ------------------------------------------------------------------------------------------------

    def _about(self) -> Mapping[str, Any]:
        path = self.folder / "audit.json"
        try:
            found = json.loads(read_regular(path))
        except FileNotFoundError:
            if self._writable and (
                not self.folder.exists() or (self.folder.is_dir() and {path.name for path in self.folder.iterdir()} <= _BEGUN)
            ):
                return {}
            problem = (
                "this folder is not empty, and holds no results of an audit" if self.folder.is_dir() else "there are no results of an audit"
            )
            raise UsageError(
                problem, code="IRS724", where=str(self.folder), hint="`irscope audit SOURCE... -o RESULTS` makes some"
            ) from None
        except (OSError, ValueError) as error:
            raise LoadError(f"cannot be read: {error}", code="IRS724", where=str(path)) from error
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            said = found.get("schema") if isinstance(found, dict) else None
            raise LoadError(
                f"has the schema {said!r}, and this irscope reads {SCHEMA}", code="IRS724", where=str(path), hint="name another folder"
            )
        return found

    def settle(self, setup: Setup, engine: str) -> None:
        """Say in the folder what it is for; UsageError where it is for something else."""
        digest = setup.digest()
        if self.digest and self.digest != digest:
            made = f"by irscope {self.about.get('version')} with devices {','.join(self.about.get('devices', [])) or 'by default'}"
            made += f" and passes {self.about.get('passes') or 'of the card'}"
            raise UsageError(
                f"these results were made {made}",
                code="IRS724",
                where=str(self.folder),
                hint="name another folder; `irscope audit diff` compares two",
            )
        about = {
            "schema": SCHEMA,
            "version": __version__,
            "devices": [*setup.devices],
            "passes": setup.passes,
            "bind": dict(setup.bind),
            "engine": engine,
            "digest": digest,
        }
        if about != self.about:
            write_text(self.folder / "audit.json", [json.dumps(about, indent=1) + "\n"])
        self.digest, self.about = digest, about

    def _take_lock(self) -> None:
        self._lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            import fcntl
        except ImportError:  # Windows
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            self._lock = None
            raise UsageError(
                "another audit is writing there", code="IRS724", where=str(self.folder), hint="wait for it, or name another folder"
            ) from None

    def close(self) -> None:
        """Write what is still only in the index, and let others write."""
        try:
            if self._writable:
                self.flush()
        finally:
            if self._writable:
                self._index.close()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    # -- what is known -------------------------------------------------------------------------------------------------

    def known(self, item: Item) -> Known | None:
        """Return what the index has of a model, under whatever content."""
        found = self._index.execute("SELECT stamp, reason FROM models WHERE id=?", (item.identity,)).fetchone()
        return None if found is None else Known(*found)

    def same_content(self, key: str) -> Found | None:
        """Return what was found about another file of the same content."""
        found = self._index.execute("SELECT found FROM models WHERE key=? LIMIT 1", (key,)).fetchone()
        return None if found is None else _unpacked(found[0])

    def count(self) -> int:
        return int(self._index.execute("SELECT count(*) FROM models").fetchone()[0])

    # -- writing -------------------------------------------------------------------------------------------------------

    def add(self, rows: Iterable[tuple[Item, str, Found]]) -> None:
        """Keep what was found about models; from here on no kill loses it."""
        with self._writing(), self._transaction():
            for item, key, found in rows:
                self._index.execute(
                    "INSERT OR REPLACE INTO models(id, uri, stamp, key, reason, part, found) VALUES (?, ?, ?, ?, ?, NULL, ?)",
                    (item.identity, well_formed(item.uri), item.stamp, key, found.model.get("reason") or "", _packed(item, key, found)),
                )

    def _transaction(self) -> sqlite3.Connection:
        self._index.execute("BEGIN IMMEDIATE")
        return self._index

    def waiting(self) -> int:
        """Return the number of rows that are in no Parquet file yet."""
        return int(self._index.execute("SELECT count(*) FROM models WHERE part IS NULL").fetchone()[0])

    def flush(self) -> None:
        """Write the rows that are in no Parquet file yet into one, and rewrite those whose models have changed since."""
        with self._writing():
            part = 1 + int(self._index.execute("SELECT coalesce(max(part), 0) FROM models").fetchone()[0])
            part = max(part, 1 + max(self._parts(), default=0))
            ids = [one for (one,) in self._index.execute("SELECT id FROM models WHERE part IS NULL ORDER BY uri")]
            if ids:
                self._write(part, ids)
                with self._transaction():
                    self._index.executemany("UPDATE models SET part=? WHERE id=?", ((part, identity) for identity in ids))
            self._rewrite_stale()

    def _rewrite_stale(self) -> None:
        """Parquet files that have rows of models that were analysed again since."""
        parquet = import_module("pyarrow.parquet")
        counts = dict(self._index.execute("SELECT part, count(*) FROM models WHERE part IS NOT NULL GROUP BY part"))
        for part in self._parts():
            path = self._path(MODELS, part)
            if parquet.read_metadata(path).num_rows == counts.get(part, 0):
                continue
            ids = [one for (one,) in self._index.execute("SELECT id FROM models WHERE part=? ORDER BY uri", (part,))]
            self._write(part, ids)
            if not ids:
                for table in self.tables():
                    self._path(table, part).unlink(missing_ok=True)

    def _write(self, part: int, ids: Sequence[str]) -> None:
        """Write the Parquet files of one part; that of models, which makes the others count, comes last."""
        tables: dict[str, list[Row]] = {MODELS: [], OPERATORS: []}
        for identity in ids:
            (packed,) = self._index.execute("SELECT found FROM models WHERE id=?", (identity,)).fetchone()
            found = _unpacked(packed)
            uri = found.model["uri"]
            tables[MODELS].append(found.model)
            tables[OPERATORS] += ({"uri": uri, **row} for row in found.operators)
            for name, row in found.passes.items():
                tables.setdefault(_folder_of(name), []).append({"uri": uri, **row})
        for name in sorted(tables, key=lambda table: table == MODELS):
            self._write_table(name, part, tables[name])

    def _write_table(self, name: str, part: int, rows: list[Row]) -> None:
        path = self._path(name, part)
        path.parent.mkdir(exist_ok=True)
        keys = list(dict.fromkeys(key for row in rows for key in row))
        if name == MODELS:
            keys = [*(key for key in _FIRST), *sorted({*keys} - {*_FIRST})]
        arrow = self._arrow
        schema = arrow.schema([(key, self._type_of(key, name, [row.get(key) for row in rows])) for key in keys])
        columns = [arrow.array([_cell(row.get(field.name), field.type, arrow) for row in rows], type=field.type) for field in schema]
        table = arrow.Table.from_arrays(columns, schema=schema)
        with staged(path) as beside:
            import_module("pyarrow.parquet").write_table(table, beside, compression="zstd", row_group_size=_ROWS_OF_GROUP)

    def _type_of(self, key: str, table: str, values: Sequence[Scalar]) -> Any:
        """Return the type of a column, the same in every part."""
        arrow, key = self._arrow, key.partition("@")[0]
        if table == OPERATORS:
            return {"count": arrow.int64(), "known": arrow.bool_()}.get(key, arrow.string())
        if table == MODELS and key in FIGURES:
            return {"int64": arrow.int64(), "float64": arrow.float64(), "bool": arrow.bool_()}[FIGURES[key].column]
        # Other columns have the same kind in every model; one of which nothing is known has no type, which goes with any.
        kinds = {type(value) for value in values if value is not None}
        if not kinds:
            return arrow.null()
        return arrow.bool_() if kinds == {bool} else arrow.string() if str in kinds else arrow.float64()

    # -- reading -------------------------------------------------------------------------------------------------------

    def tables(self) -> list[str]:
        """Return the names of the tables that there are."""
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir() and any(path.glob("part-*.parquet")))

    def read(self, table: str = MODELS, columns: Sequence[str] | None = None) -> Any:
        """Return a whole table of the dataset, as pyarrow's."""
        files = sorted(str(path) for path in (self.folder / table).glob("part-*.parquet"))
        if not files:
            known = self.tables()
            problem = f"there is no table {table!r}" if known else "no model was analysed yet"
            raise UsageError(problem, code="IRS724", where=str(self.folder), hint=f"tables: {', '.join(known)}" if known else "")
        parquet = import_module("pyarrow.parquet")
        try:
            return self._arrow.concat_tables([parquet.read_table(file, columns=columns) for file in files], promote_options="permissive")
        except (self._arrow.ArrowException, OSError) as error:
            raise LoadError(f"cannot be read: {str(error).splitlines()[0]}", code="IRS724", where=str(self.folder / table)) from error

    def _parts(self) -> list[int]:
        return sorted(int(path.stem.removeprefix("part-")) for path in (self.folder / MODELS).glob("part-*.parquet"))

    def _path(self, table: str, part: int) -> Path:
        return self.folder / table / f"part-{part:06}.parquet"

    def _drop_unknown_parts(self) -> None:
        """Files that were being written when the program was killed: what they had is in the index still."""
        known = {part for (part,) in self._index.execute("SELECT DISTINCT part FROM models WHERE part IS NOT NULL")}
        for path in self.folder.glob("*/part-*.parquet"):
            if int(path.stem.removeprefix("part-")) not in known:
                path.unlink(missing_ok=True)


def _folder_of(name: str) -> str:
    """Return a folder for a pass as it was written, options and all."""
    made = re.sub(r"[^A-Za-z0-9_.=-]+", "_", name).strip("._") or "pass"
    return f"{made}_pass" if made in (MODELS, OPERATORS) else made


def _packed(item: Item, key: str, found: Found) -> bytes:
    """Return a model's rows; which file they are about is added here, since two files of one content have the same rows."""
    row = {
        **found.model,
        "uri": well_formed(item.uri),
        "name": well_formed(item.name),
        "size": item.size or found.model.get("size_on_disk"),
        "content": key,
    }
    return zlib.compress(json.dumps([row, found.operators, found.passes], separators=(",", ":")).encode(), 1)


def _unpacked(packed: bytes) -> Found:
    return Found(*json.loads(zlib.decompress(packed)))


def _cell(value: Scalar, type_: Any, arrow: Any) -> Scalar:
    """Return a value as its column takes it; what does not fit is not there, and never another number."""
    if value is None:
        return None
    if arrow.types.is_null(type_):
        return None
    if arrow.types.is_boolean(type_):
        return value if isinstance(value, bool) else None
    if arrow.types.is_integer(type_):
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST_WHOLE
        return round(value) if is_number else None  # type: ignore[arg-type]  # a number, as was asked
    if arrow.types.is_floating(type_):
        return float(value) if isinstance(value, int | float) else None
    return value if isinstance(value, str) else str(value)
