"""Zip archives as PyTorch writes them, read without trusting a single field.

The central directory is checked whole before anything else is read: names, sizes against the file, entries that overlap.
Weights are never read; `region` says where they are.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from irscope.errors import LoadError
from irscope.immutable import immutable
from irscope.ir.places import FileRegion

_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_LONGEST_COMMENT = 65_535
_MAX_DIRECTORY = 64 << 20
_MAX_ENTRIES = 300_000
_MAX_READ = 256 << 20
# PyTorch packs only code, which shrinks by a factor of ten at most.
_SMALL, _LARGEST_RATIO = 1 << 20, 25
_STORED, _DEFLATED = 0, 8
_UTF8, _ENCRYPTED = 0x800, 0x1


@immutable
class Entry:
    """One file of an archive, as the central directory describes it."""

    name: str
    method: int
    packed: int
    size: int
    crc: int
    header: int
    record: int
    """Where the central directory describes it."""


class Archive:
    """An open zip archive; names are relative to the one folder that PyTorch puts everything in.

    `window` is an offset and a length: an archive that lies inside another file.
    """

    def __init__(self, path: Path, window: tuple[int, int] | None = None) -> None:
        self.path = path
        self._file: BinaryIO = path.open("rb")
        try:
            self._base, self._length = window or (0, self._file.seek(0, 2))
            entries = self._read_directory()
            self.root = _common_folder([entry.name for entry in entries])
            self.entries: dict[str, Entry] = {}
            for entry in entries:
                name = entry.name[len(self.root) :]
                if name in self.entries:
                    raise self._error(f"names the entry {name!r} twice")
                self.entries[name] = entry
        except BaseException:
            self._file.close()
            raise
        self._read_so_far = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def _error(self, what: str) -> LoadError:
        return LoadError(f"the archive {what}", code="IRS130", where=str(self.path), hint="the file is damaged; save it again")

    # -- the central directory -------------------------------------------------------------------------------------

    def _at(self, offset: int, count: int) -> bytes:
        if offset < 0 or count < 0 or offset + count > self._length:
            raise self._error("is cut off")
        self._file.seek(self._base + offset)
        data = self._file.read(count)
        if len(data) != count:
            raise self._error("is cut off")
        return data

    def _find_directory(self) -> tuple[int, int, int]:
        """Return the offset, length and number of entries of the central directory."""
        tail_length = min(self._length, _END.size + _LONGEST_COMMENT)
        tail = self._at(self._length - tail_length, tail_length)
        position = tail.rfind(b"PK\x05\x06")
        if position < 0 or position + _END.size > len(tail):
            raise self._error("has no directory (it is cut off, or it is not a zip archive)")
        _, disk, first_disk, here, count, length, offset, _ = _END.unpack_from(tail, position)
        end = self._length - tail_length + position
        if 0xFFFF in (disk, first_disk, here, count) or 0xFFFFFFFF in (length, offset):
            signature, _, where, _ = _END64_LOCATOR.unpack(self._at(end - _END64_LOCATOR.size, _END64_LOCATOR.size))
            if signature != b"PK\x06\x07":
                raise self._error("has no directory of large entries")
            signature, _, _, _, disk, first_disk, here, count, length, offset = _END64.unpack(self._at(where, _END64.size))
            if signature != b"PK\x06\x06":
                raise self._error("has no directory of large entries")
            end = where
        if disk or first_disk or here != count:
            raise self._error("is one part of several")
        if length > _MAX_DIRECTORY or count > _MAX_ENTRIES or offset + length > end:
            raise self._error("has a directory that does not fit the file")
        return offset, length, count

    def _read_directory(self) -> list[Entry]:
        start, length, count = self._find_directory()
        data = self._at(start, length)
        entries: list[Entry] = []
        position = 0
        for _ in range(count):
            entry, position = self._read_entry(data, position, start)
            if entry.header + _LOCAL.size + entry.packed > start:
                raise self._error(f"says that {entry.name!r} is larger than the file")
            if not entry.name.endswith("/"):
                entries.append(entry)
        ordered = sorted(entries, key=lambda entry: entry.header)
        for before, after in itertools.pairwise(ordered):
            if before.header + _LOCAL.size + before.packed > after.header:
                raise self._error(f"has entries that overlap: {before.name!r} and {after.name!r}")
        return entries

    def _read_entry(self, data: bytes, position: int, start: int) -> tuple[Entry, int]:
        if position + _CENTRAL.size > len(data):
            raise self._error("has a directory that ends early")
        fields = _CENTRAL.unpack_from(data, position)
        signature, _, _, flags, method, _, _, crc, packed, size, name_length, extra_length, comment_length = fields[:13]
        header = fields[16]
        after_name = position + _CENTRAL.size + name_length
        after = after_name + extra_length + comment_length
        if signature != b"PK\x01\x02" or after > len(data):
            raise self._error("has a directory that does not parse")
        name = self._name(data[after_name - name_length : after_name], flags)
        extra = data[after_name : after_name + extra_length]
        if 0xFFFFFFFF in (packed, size, header):
            size, packed, header = self._large_fields(extra, size, packed, header)
        if flags & _ENCRYPTED or method not in (_STORED, _DEFLATED):
            raise self._error(f"holds {name!r} encrypted or packed in an unknown way")
        if method == _STORED and packed != size:
            raise self._error(f"gives two sizes for {name!r}")
        return Entry(name, method, packed, size, crc, header, start + position), after

    def _name(self, raw: bytes, flags: int) -> str:
        try:
            name = raw.decode("utf-8" if flags & _UTF8 else "ascii")
        except UnicodeDecodeError:
            try:
                name = raw.decode("utf-8")
            except UnicodeDecodeError:
                raise self._error("holds an entry whose name is not text") from None
        parts = name.split("/")
        if not name or "\0" in name or "\\" in name or name.startswith("/") or ".." in parts or ":" in parts[0]:
            raise self._error(f"holds an entry with the unsafe name {name!r}")
        return name

    def _large_fields(self, extra: bytes, size: int, packed: int, header: int) -> tuple[int, int, int]:
        position = 0
        while position + 4 <= len(extra):
            tag, length = struct.unpack_from("<HH", extra, position)
            body = extra[position + 4 : position + 4 + length]
            position += 4 + length
            if tag != 1:
                continue
            values = [int.from_bytes(body[i : i + 8], "little") for i in range(0, len(body) - 7, 8)]
            fields = [size, packed, header]
            for index, field in enumerate(fields):
                if field == 0xFFFFFFFF:
                    if not values:
                        raise self._error("lacks the size of a large entry")
                    fields[index] = values.pop(0)
            return fields[0], fields[1], fields[2]
        raise self._error("lacks the size of a large entry")

    # -- contents --------------------------------------------------------------------------------------------------

    def names(self, folder: str = "") -> list[str]:
        """Entries below a folder, in the order of the archive."""
        return [name for name in self.entries if name.startswith(folder)]

    def _data_offset(self, entry: Entry) -> int:
        fields = _LOCAL.unpack(self._at(entry.header, _LOCAL.size))
        if fields[0] != b"PK\x03\x04":
            raise self._error(f"points to no entry where {entry.name!r} should be")
        start: int = entry.header + _LOCAL.size + fields[9] + fields[10]
        if start + entry.packed > self._length:
            raise self._error(f"says that {entry.name!r} is larger than the file")
        return start

    def read(self, name: str, limit: int = 64 << 20) -> bytes:
        """Return the bytes of a small entry; refused before reading where it is larger than `limit`."""
        entry = self.entries.get(name)
        if entry is None:
            raise LoadError(f"the archive lacks {name!r}", code="IRS131", where=str(self.path), hint="the file is damaged; save it again")
        self._read_so_far += entry.size
        is_bomb = entry.method == _DEFLATED and entry.size > max(_SMALL, _LARGEST_RATIO * entry.packed)
        if entry.size > limit or self._read_so_far > _MAX_READ or is_bomb:
            raise LoadError(
                f"{name!r} would unpack to {entry.size:,} bytes, more than irscope reads",
                code="IRS132",
                where=str(self.path),
                hint="no model needs that much for its description: the file is damaged or hostile",
            )
        packed = self._at(self._data_offset(entry), entry.packed)
        data = packed if entry.method == _STORED else self._inflate(entry, packed)
        if zlib.crc32(data) != entry.crc:
            raise self._error(f"holds {entry.name!r} with a wrong checksum")
        return data

    def _inflate(self, entry: Entry, packed: bytes) -> bytes:
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = stream.decompress(packed, entry.size + 1)
        except zlib.error:
            raise self._error(f"holds {entry.name!r}, which does not unpack") from None
        if len(data) != entry.size:
            raise self._error(f"says {entry.size:,} bytes for {entry.name!r}, but it unpacks to another size")
        return data

    def region(self, name: str, offset: int = 0, length: int | None = None, storage: str = "") -> FileRegion | None:
        """Return where the bytes of an entry are in the file; None for an entry that is packed or absent."""
        entry = self.entries.get(name)
        if entry is None or entry.method != _STORED:
            return None
        count = entry.size - offset if length is None else length
        if offset < 0 or count < 0 or offset + count > entry.size:
            return None
        return FileRegion(str(self.path), self._base + self._data_offset(entry) + offset, count, storage or name)

    def inner(self, name: str) -> Archive:
        """Return an archive that lies unpacked inside this one."""
        place = self.region(name)
        if place is None:
            raise self._error(f"lacks {name!r}, or has it packed")
        return Archive(self.path, (place.offset, place.length))


def _common_folder(names: list[str]) -> str:
    """Return the first folder of every name, with its slash; empty where they do not share one."""
    first = names[0].partition("/")[0] + "/" if names else ""
    return first if first and all(name.startswith(first) for name in names) else ""
