"""A cache on disk of what is dear to compute: entries are files of this user alone, replaced as a whole, never executed.

An entry is a line with the digest of the rest, a line of JSON that describes it, and its content. Whatever is wrong with an entry is a
miss: it is deleted, and computed anew. Several processes may use the folder at once.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from irscope.errors import UsageError
from irscope.files import cache_folder, private_folder, replace_private
from irscope.immutable import immutable
from irscope.jsoncodec import Json, Misfit, loads

OFF: Final = "IRSCOPE_NO_CACHE"
"""Variable that switches the cache off where it is set to anything but 0."""
MOST_BYTES: Final = 512 << 20
"""Of all entries; those that were not used for longest go first."""
_MOST_IN_ENTRY: Final = 64 << 20
_MAGIC: Final = b"irscope cache 1 "
_SUFFIX: Final = ".entry"


@immutable(slots=False)
class Entry:
    """A file of the cache, as `irscope cache ls` lists it."""

    path: Path
    name: str
    size: int
    used: float
    """When it was last written or read, in seconds since 1970."""


def is_off() -> bool:
    """Return whether the user wants nothing read or kept."""
    return os.environ.get(OFF, "") not in ("", "0")


def folder() -> Path:
    """Return where the entries are. It need not exist."""
    return cache_folder() / "programs"


def digest_of(key: str) -> str:
    """Return the name of the file for a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def read(key: str, holds: Callable[[Json], bool]) -> bytes | None:
    """Return the content of the entry for a key, if it is whole and its description still `holds`."""
    path = folder() / f"{digest_of(key)}{_SUFFIX}"
    try:
        private_folder(folder())
        content = _content(path)
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return None
    try:
        first, _, rest = content.partition(b"\n")
        about, _, body = rest.partition(b"\n")
        if first != _first_line(rest):
            raise Misfit("it is damaged")
        described = loads(about)
        if not isinstance(described, dict) or described.get("key") != key or not holds(described.get("about")):
            raise Misfit("it holds no more")
    except (Misfit, TypeError, KeyError, ValueError, IndexError, AttributeError):
        discard(key)
        return None
    with suppress(OSError):
        os.utime(path)
    return body


def keep(key: str, name: str, about: Json, body: bytes) -> bool:
    """Write the entry for a key, and make room for it. False where it is too large or nothing can be written."""
    import json

    described = json.dumps({"name": name, "key": key, "about": about}).encode()
    rest = described + b"\n" + body
    if len(rest) > _MOST_IN_ENTRY:
        return False
    try:
        within = private_folder(folder())
        replace_private(within / f"{digest_of(key)}{_SUFFIX}", [_first_line(rest), b"\n", rest])
    except (OSError, RuntimeError):
        return False
    _make_room()
    return True


def discard(key: str) -> None:
    """Delete the entry for a key, if there is one."""
    with suppress(OSError, RuntimeError):
        (folder() / f"{digest_of(key)}{_SUFFIX}").unlink(missing_ok=True)


def entries() -> list[Entry]:
    """Return every entry, the one that was used last first."""
    return sorted(_entries(), key=lambda entry: (-entry.used, entry.path.name))


def clear() -> tuple[int, int]:
    """Delete every entry; their number, and their bytes. UsageError where the folder is read-only or another user's."""
    count = size = 0
    for path, found in _files():
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"cannot be deleted: {error.strerror}", code="IRS610", where=str(path)) from None
        count, size = count + (path.suffix == _SUFFIX), size + found.st_size
    return count, size


def _first_line(rest: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(rest).hexdigest().encode()


def _content(path: Path) -> bytes:
    """A file's content; OSError for what is not a file of this user's own, or too large."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
        if not stat.S_ISREG(status.st_mode) or not is_own or status.st_size > 2 * _MOST_IN_ENTRY:
            raise OSError("no entry of this user's own")
        return file.read()


def _files() -> Iterator[tuple[Path, os.stat_result]]:
    try:
        paths = [path for path in folder().iterdir() if path.suffix in (_SUFFIX, ".tmp")]
    except (OSError, RuntimeError):
        return
    for path in paths:
        try:
            status = path.lstat()
        except OSError:  # another process deleted it
            continue
        if stat.S_ISREG(status.st_mode):
            yield path, status


def _entries() -> Iterator[Entry]:
    for path, found in _files():
        if path.suffix != _SUFFIX:
            continue
        name = "?"
        try:
            described = loads(_content(path).partition(b"\n")[2].partition(b"\n")[0])
            if isinstance(described, dict) and isinstance(described.get("name"), str):
                name = str(described["name"])
        except (OSError, Misfit):
            pass
        yield Entry(path, name, found.st_size, found.st_mtime)


def _make_room() -> None:
    """Delete what was not used for longest, until the rest is within bounds."""
    found = sorted(_files(), key=lambda item: item[1].st_mtime)
    total = sum(status.st_size for _, status in found)
    for path, status in found[:-1]:
        if total <= MOST_BYTES:
            return
        try:
            path.unlink(missing_ok=True)
        except OSError:
            continue
        total -= status.st_size
