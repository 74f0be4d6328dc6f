"""The only reader of archives that models lie in, and of what is brought out of them: everything that it reads is counted.

An archive is hostile: a header of a kilobyte may stand for a gigabyte, a name may be no name of a file here, and what a library says of
it may be any error. What is unpacked counts against the budget in force, and what is put into a folder against what one model may have.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from irscope.budget import OverBudget, spend
from irscope.errors import IrscopeError, LoadError
from irscope.immutable import immutable

SUFFIXES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
PIECE: Final = 1 << 20
_AT_ONCE: Final = 16 << 20
"""Bytes that a library may ask for at once: the directory of a zip with 100,000 files has 10 MB, a header of a tar some kilobytes."""
_MOST_MEMBERS: Final = 100_000
_UNPACKED, _UNPACKED_PER_BYTE = 1 << 30, 100
"""Bytes that a compressed tar may unpack to while it is listed, and more for each of its own. Weights hardly compress."""
_LONGEST_NAME: Final = 255
"""Bytes of a file's name, as file systems have it (NAME_MAX)."""
_CONFIGURATIONS: Final = 128 << 20
"""Bytes of all JSON files beside a model: tokenizers have up to 35 MB."""
_HEADER: Final = 100 << 20
"""Bytes of a safetensors header: the format's own limit."""


@immutable
class Member:
    """One file of an archive."""

    name: str
    size: int
    """As the archive says."""
    at: int
    """Its place among the archive's files."""


@contextmanager
def as_unreadable(where: str) -> Iterator[None]:
    """Turn whatever a library says of a broken archive, or of a store, into a LoadError; the budget's and ours pass."""
    try:
        yield
    except (IrscopeError, MemoryError):
        raise
    except Exception as error:  # an archive that was made for it makes libraries raise anything
        said = str(error.strerror or error) if isinstance(error, OSError) else f"{error}" or type(error).__name__
        raise LoadError(f"cannot be unpacked: {said}", code="IRS100", where=where) from error


class _Counted:
    """A file of which no more is read than it may cost; going back in a compressed one means unpacking it again, which counts too."""

    def __init__(self, stream: Any, where: str, most: int | None) -> None:
        self._stream, self._where, self._left = stream, where, most
        self._at = 0

    def read(self, count: int = -1) -> bytes:
        piece: bytes = self._stream.read(min(count, _AT_ONCE + 1) if count >= 0 else _AT_ONCE + 1)
        if len(piece) > _AT_ONCE:
            raise OverBudget(f"a header of it has more than {_AT_ONCE:,} bytes", where=self._where, hint="it is damaged or hostile")
        self._at += len(piece)
        spend(10 + (len(piece) >> 9), "an archive")
        if self._left is not None:
            self._left -= len(piece)
            if self._left < 0:
                raise OverBudget("it unpacks to far more than it has", where=self._where, hint="the archive is damaged or hostile")
        return piece

    def seek(self, to: int, whence: int = os.SEEK_SET) -> int:
        if self._left is None:
            self._at = self._stream.seek(to, whence)
            return self._at
        to += self._at if whence == os.SEEK_CUR else 0
        if to < self._at:
            self._at = self._stream.seek(0)
        while self._at < to and self.read(min(PIECE, to - self._at)):
            pass
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if self._left is not None:
            self._stream.close()


def _unpacking(file: IO[bytes]) -> Any:
    """Return what unpacks a compressed tar; None for a plain one."""
    file.seek(0)
    start = file.read(6)
    file.seek(0)
    if start.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if start.startswith(b"BZh"):
        return bz2.BZ2File(file)
    return lzma.LZMAFile(file) if start == b"\xfd7zXZ\x00" else None


class Archive:
    """A zip or tar as a list of its files; nothing is unpacked but what is asked for."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._name = name
        self._zip: zipfile.ZipFile | None = None
        self._tar: tarfile.TarFile | None = None
        self._infos: list[Any] = []
        with as_unreadable(name):
            if name.endswith(".zip"):
                plain: Any = _Counted(file, name, None)  # which reads, seeks and tells, and that is enough
                self._zip = zipfile.ZipFile(plain)
                for info in self._zip.infolist():
                    if not info.is_dir():
                        self._add(info)
                self.members = [Member(info.filename, info.file_size, at) for at, info in enumerate(self._infos)]
            else:
                size = file.seek(0, os.SEEK_END)
                packed = _unpacking(file)
                most = None if packed is None else _UNPACKED + _UNPACKED_PER_BYTE * size
                counted: Any = _Counted(packed or file, name, most)
                self._tar = tarfile.open(fileobj=counted, mode="r:")  # noqa: SIM115  # closed with this
                for one in self._tar:
                    if one.isreg():
                        self._add(one)
                self.members = [Member(info.name, info.size, at) for at, info in enumerate(self._infos)]

    def _add(self, info: Any) -> None:
        self._infos.append(info)
        spend(20, "files of an archive")
        if len(self._infos) > _MOST_MEMBERS:
            raise OverBudget(f"it has more than {_MOST_MEMBERS:,} files", where=self._name, hint="unpack it into a folder")

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *raised: object) -> None:
        for one in (self._zip, self._tar):
            if one is not None:
                one.close()

    @contextmanager
    def open(self, member: Member) -> Iterator[IO[bytes]]:
        """Give a file of it for reading."""
        info = self._infos[member.at]
        opened = self._zip.open(info) if self._zip is not None else self._tar.extractfile(info)  # type: ignore[union-attr]
        if opened is None:
            raise LoadError("cannot be read from the archive", code="IRS100", where=member.name)
        with opened:
            yield opened


class Staging:
    """A folder that files of one model are brought to, no more than `most` bytes in all."""

    def __init__(self, folder: Path, most: int, where: str, *, whole: bool) -> None:
        self._folder, self._left, self._where, self._whole = folder, most, where, whole
        self._configurations = _CONFIGURATIONS

    def model(self, name: str, stream: IO[bytes], size: int) -> Path:
        """Bring the model's own file; of a format whose header says everything only the header, unless values are wanted."""
        target = self._target(name)
        if target is None:
            raise LoadError("its name cannot be that of a file here", code="IRS100", where=self._where)
        return self._bring(target, stream, size)

    def beside(self, name: str, stream: IO[bytes], size: int, models: tuple[str, ...]) -> None:
        """Bring a file that lies beside the model: configurations as they are, weights as files of their size without content."""
        target = self._target(name)
        if target is None or target.exists():
            return
        if self._whole and not name.endswith(SUFFIXES):
            self._bring(target, stream, size)
        elif target.suffix == ".json":
            self._configurations -= size
            if self._configurations >= 0:  # of others the model is read without
                self._fill(target, stream, size)
        elif target.suffix == ".safetensors" and (head := header_bytes(stream, name)) is not None:
            self._sparse(target, head, size)
        elif not name.endswith(models) and target.suffix not in (".md", ".txt", ".py"):
            self._sparse(target, b"", size)  # such as the weights of a graph, of which only the size is looked at

    def _target(self, name: str) -> Path | None:
        name = PurePosixPath(name).name
        try:
            fits = 0 < len(os.fsencode(name)) <= _LONGEST_NAME
        except ValueError:  # no name in the encoding of the file system
            return None
        return self._folder / name if fits and "\0" not in name and name not in (".", "..") else None

    def _bring(self, target: Path, stream: IO[bytes], size: int) -> Path:
        head = header_bytes(stream, target.name)
        if head is not None and not self._whole:
            return self._sparse(target, head, size)
        stream.seek(0)
        return self._fill(target, stream, size)

    def _fill(self, target: Path, stream: IO[bytes], size: int) -> Path:
        if size > self._left:
            message = f"has {size:,} bytes, and would have to be brought here as a whole, with what lies beside it"
            raise LoadError(message, code="IRS722", where=self._where, hint="--fetch allows more")
        taken = 0
        with target.open("xb") as file:
            while piece := stream.read(PIECE):
                taken += len(piece)
                if taken > max(size, PIECE):
                    raise LoadError("is larger than it says", code="IRS722", where=self._where)
                file.write(piece)
        self._left -= taken
        return target

    @staticmethod
    def _sparse(target: Path, head: bytes, size: int) -> Path:
        with target.open("xb") as file:
            file.write(head)
            file.truncate(max(size, len(head)))
        return target


def header_bytes(stream: IO[bytes], name: str) -> bytes | None:
    """Return all that a format has before its weights; None for formats of which the whole file is needed."""
    if not name.endswith(".safetensors"):
        return None
    first = stream.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > _HEADER:
        return None
    pieces = [first]
    while length and (piece := stream.read(min(length, PIECE))):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
