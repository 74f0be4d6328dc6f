"""What an audit is about: models in folders, lists, hub caches, archives and object stores, listed one at a time and made readable."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from irscope.errors import IrscopeError, LoadError, UsageError
from irscope.frontends.zoo.names import file_in, is_name, is_pattern
from irscope.immutable import immutable
from irscope.tools.many import expanded

SUFFIXES: Final = (".onnx", ".pt2", ".pt", ".pth", ".ts", ".torchscript", ".safetensors", ".gguf", ".irs", ".ckpt", ".bin")
"""Of files that are looked at where a folder is searched; a file that is named is always looked at."""
_ARCHIVES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_MEMBER: Final = "!"
"""Between an archive and a file in it, as in models.tar!bert/model.onnx."""
_PART: Final = re.compile(r"-(\d{5})-of-(\d{5})\.")
"""Files that a model's weights are split into: an index or the first of them stands for all."""
_STEM_FILES: Final = ("config.json", "adapter_config.json", "model.safetensors.index.json", "pytorch_model.bin.index.json")
"""Files that a hub's folder says what it is with."""
_BLOB: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""Names of files in a hub cache: the digest of their content."""
_WHOLE: Final = 64 << 20
"""Bytes of a file whose content is hashed as a whole; of a larger one the header is, where its format has one."""
_HEAD: Final = 1 << 20
_PIECE: Final = 1 << 20
DEFAULT_FETCH: Final = 4 << 30
"""Bytes of one file that are brought from an archive or a store, where a format needs the whole file."""


@immutable
class Item:
    """One model, or what was found in its place."""

    uri: str
    """Where it is: a whole path, a URL, ARCHIVE!MEMBER, or a name."""
    size: int = 0
    """Bytes of its file, or of all files that its folder has."""
    stamp: str = ""
    """Changes when the file does; empty where nothing tells."""
    error: tuple[str, str] | None = None
    """Code and message where it could be listed but not looked at."""


@dataclass(slots=True)
class Listing:
    """How a search through sources goes."""

    skipped: int = 0
    """Files of other kinds that were passed over."""
    seen: set[tuple[int, int]] = field(default_factory=set)
    """Folders that were searched, by device and inode: links may lead in a circle."""


def list_items(sources: Sequence[str], listing: Listing) -> Iterator[Item]:
    """Every model of the sources, each once where a source names it once; UsageError for a source that is none."""
    for source in sources:
        yield from _of_source(source, listing)


def _of_source(source: str, listing: Listing) -> Iterator[Item]:
    if source == "-" or source.startswith("@"):
        yield from _of_list(source, listing)
    elif "://" in source:
        yield from _of_store(source, listing)
    elif _MEMBER in source and not os.path.lexists(source):
        archive, _, member = source.partition(_MEMBER)
        archive = os.path.abspath(archive)
        found = [item for item in _of_archive(archive, listing) if item.uri == f"{archive}{_MEMBER}{member}"]
        if not found:
            raise UsageError("the archive has no such file", code="IRS720", where=source)
        yield from found
    elif is_pattern(source):
        for one in expanded([source]):
            yield from _of_path(one, listing)
    else:
        yield from _of_path(source, listing)


def _of_list(source: str, listing: Listing) -> Iterator[Item]:
    """Sources by the lines of a file, or of standard input; empty lines and those that begin with # are passed over."""
    import sys

    try:
        with sys.stdin if source == "-" else Path(source[1:]).open(encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                text = line.strip()
                if text == "-" or text.startswith("@"):
                    raise UsageError(
                        f"{text!r} in a list would be another list", code="IRS720", where=source, hint="name all lists by themselves"
                    )
                if text and not text.startswith("#"):
                    yield from _of_source(text, listing)
    except OSError as error:
        raise _unlisted(source, error) from error


def _unlisted(source: str, error: Exception) -> UsageError:
    said = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
    return UsageError(f"cannot be listed: {said}", code="IRS720", where=source)


# -- files and folders of this machine ---------------------------------------------------------------------------------


def _of_path(text: str, listing: Listing) -> Iterator[Item]:
    if is_name(text) and not os.path.lexists(text):
        yield Item(text, stamp=_version_of(text))
        return
    text = os.path.abspath(text)
    try:
        found = os.stat(text)
    except OSError as error:
        raise _unlisted(text, error) from error
    if stat.S_ISDIR(found.st_mode):
        yield from _of_folder(text, listing, is_top=True)
    elif text.endswith(_ARCHIVES):
        yield from _of_archive(text, listing)
    else:
        yield _item_of_file(text, found)


def _version_of(name: str) -> str:
    """Of the package that makes a named model: another release makes another one. Empty for a script, which may import anything."""
    from importlib.metadata import PackageNotFoundError, version

    package = name.partition(":")[0]
    try:
        return f"{package}=={version(package)}"
    except (PackageNotFoundError, ValueError):
        return ""


def _of_folder(text: str, listing: Listing, *, is_top: bool = False) -> Iterator[Item]:
    """The models below a folder; a hub's folder is one model, beside the graphs that lie in it."""
    try:
        here = os.stat(text)
        if (here.st_dev, here.st_ino) in listing.seen:
            return
        listing.seen.add((here.st_dev, here.st_ino))
        with os.scandir(text) as entries:
            names = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        if is_top:
            raise _unlisted(text, error) from error
        yield Item(text, error=("IRS100", f"cannot be listed: {error.strerror or error}"))
        return
    is_model, own = _of_hub_folder(text, [one.name for one in names])
    if is_model is not None:
        yield is_model
    for entry in names:
        path = os.path.join(text, entry.name)
        # A hub cache keeps the content of all files below names that say nothing, beside the folders that link to it.
        if entry.name.startswith(".") or (entry.name in ("blobs", "refs") and os.path.isdir(os.path.join(text, "snapshots"))):
            continue
        try:
            is_folder = entry.is_dir()
            found = None if is_folder else entry.stat()
        except OSError as error:  # a link that leads nowhere, or to itself
            if path.endswith((*SUFFIXES, *_ARCHIVES)):
                yield Item(path, error=("IRS100", f"cannot be read: {error.strerror or error}"))
            continue
        if is_folder:
            yield from _of_folder(path, listing)
        elif found is None or entry.name in own or not entry.name.endswith((*SUFFIXES, *_ARCHIVES)):
            listing.skipped += entry.name not in own
        elif entry.name.endswith(_ARCHIVES):
            yield from _archive_in_folder(path, listing)
        else:
            yield _item_of_file(path, found)


def _archive_in_folder(path: str, listing: Listing) -> Iterator[Item]:
    try:
        yield from _of_archive(path, listing)
    except IrscopeError as error:
        yield Item(path, error=(error.code, error.message))


def _of_hub_folder(folder: str, names: Sequence[str]) -> tuple[Item | None, frozenset[str]]:
    """The model that a folder as a whole is, and the files of it that are no models of their own."""
    if not any(name in names for name in _STEM_FILES):
        return None, frozenset(name for name in names if _is_later_part(name))
    try:
        model = file_in(Path(folder))
    except IrscopeError:  # such as a configuration alone, or several graphs
        return None, frozenset(name for name in names if _is_later_part(name))
    weights = frozenset(name for name in names if name.endswith((".safetensors", ".bin", ".pt", ".pth")))
    if model.name not in names or (model.name not in weights and not model.name.endswith(".json")):
        return None, frozenset()
    total, stamps = 0, []
    for name in names:
        if name in weights or name.endswith(".json"):
            try:
                found = os.stat(os.path.join(folder, name))
            except OSError:
                continue
            total += found.st_size if name in weights else 0
            stamps.append(f"{name}:{_stamp(found)}")
    return Item(folder, total, hashlib.sha256("\n".join(stamps).encode("utf-8", "surrogateescape")).hexdigest()[:32]), weights


def _is_later_part(name: str) -> bool:
    found = _PART.search(name)
    return found is not None and found.group(1) != "00001"


def _item_of_file(path: str, found: os.stat_result) -> Item:
    return Item(path, found.st_size, _stamp(found) + _beside(path))


def _stamp(found: os.stat_result) -> str:
    return f"{found.st_size}:{found.st_mtime_ns}:{found.st_ino}"


def _beside(path: str) -> str:
    """What tells whether the weights beside a graph have changed: the usual names of them."""
    if not path.endswith(".onnx"):
        return ""
    stamps = ""
    for name in (f"{path}.data", f"{path}_data", f"{path[:-5]}.data", f"{path[:-5]}.onnx_data"):
        try:
            stamps += f"+{_stamp(os.stat(name))}"
        except OSError:
            continue
    return stamps


# -- archives ----------------------------------------------------------------------------------------------------------


@immutable
class _Member:
    name: str
    size: int
    at: int
    """Which of the archive's files it is."""


def _of_archive(archive: str, listing: Listing) -> Iterator[Item]:
    stamp = ""
    try:
        if "://" not in archive:
            stamp = _stamp(os.stat(archive))
        with _opened(archive) as file, _Archive(file, archive) as opened:
            members = opened.members
    except IrscopeError:
        raise
    except Exception as error:  # of the library that reads it, which a broken archive can make raise anything
        raise _unlisted(archive, error) from error
    names: dict[str, int] = {}
    for member in members:
        if not member.name.endswith(SUFFIXES) or _is_later_part(member.name):
            listing.skipped += 1
            continue
        names[member.name] = number = names.get(member.name, 0) + 1
        uri = f"{archive}{_MEMBER}{member.name}" + (f"#{number}" if number > 1 else "")
        yield Item(uri, member.size, f"{stamp}:{member.at}" if stamp else "")


class _Archive:
    """A zip or tar as a list of its files; nothing is unpacked but what is asked for."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._zip = zipfile.ZipFile(file) if name.endswith(".zip") else None
        self._tar = None if self._zip is not None else tarfile.open(fileobj=file)  # noqa: SIM115  # closed where the whole is
        self._infos: list[Any] = []
        if self._zip is not None:
            self._infos = [one for one in self._zip.infolist() if not one.is_dir()]
            self.members = [_Member(one.filename, one.file_size, at) for at, one in enumerate(self._infos)]
        elif self._tar is not None:
            self._infos = [one for one in self._tar if one.isreg()]
            self.members = [_Member(one.name, one.size, at) for at, one in enumerate(self._infos)]

    def __enter__(self) -> _Archive:
        return self

    def __exit__(self, *exc: object) -> None:
        for one in (self._zip, self._tar):
            if one is not None:
                one.close()

    @contextmanager
    def open(self, member: _Member) -> Iterator[IO[bytes]]:
        opened = self._zip.open(self._infos[member.at]) if self._zip is not None else self._tar.extractfile(self._infos[member.at])  # type: ignore[union-attr]
        if opened is None:
            raise LoadError("cannot be read from the archive", code="IRS100", where=member.name)
        with opened:
            yield opened


@contextmanager
def _opened(uri: str) -> Iterator[IO[bytes]]:
    """A file of this machine or of a store, for reading at any place."""
    if "://" in uri:
        store, path = _store_of(uri)
        with store.open(path, "rb") as file:
            yield file
    else:
        with open(uri, "rb") as file:
            yield file


# -- object stores -----------------------------------------------------------------------------------------------------


def _store_of(uri: str) -> tuple[Any, str]:
    """The file system of fsspec that a URL is of, and the path in it; credentials are what its own environment says."""
    try:
        core = import_module("fsspec.core")
    except ImportError as error:
        raise UsageError("reading from a store needs fsspec", code="IRS721", where=uri, hint="pip install fsspec") from error
    try:
        store, path = core.url_to_fs(uri)
    except ImportError as error:
        raise UsageError(f"needs another package: {error}", code="IRS721", where=uri) from error
    except Exception as error:  # each store has errors of its own
        raise _unlisted(uri, error) from error
    return store, str(path)


def _of_store(source: str, listing: Listing) -> Iterator[Item]:
    store, path = _store_of(source)
    protocol = source.partition("://")[0]
    if protocol == "file":
        yield from _of_path(path, listing)
        return
    try:
        if any(sign in path for sign in "*?["):
            found = {name: info for name, info in store.glob(path, detail=True).items() if info.get("type") != "directory"}
        elif store.isfile(path):
            found = {path: store.info(path)}
        else:
            found = store.find(path, detail=True)
            if not found:
                raise UsageError("there is nothing", code="IRS720", where=source)
    except IrscopeError:
        raise
    except Exception as error:
        raise _unlisted(source, error) from error
    for name in sorted(found):
        info = found[name]
        uri = f"{protocol}://{name}"
        if name.endswith(_ARCHIVES):
            yield from _archive_in_folder(uri, listing)
        elif name == path or (name.endswith(SUFFIXES) and not _is_later_part(name)):
            yield Item(uri, int(info.get("size") or 0), _store_stamp(info))
        else:
            listing.skipped += 1


def _store_stamp(info: dict[str, Any]) -> str:
    """What a store says of a file's content or time; empty where it says nothing."""
    for key in ("ETag", "etag", "checksum", "md5Hash", "content_hash", "sha256", "blob_id", "LastModified", "mtime", "created", "updated"):
        if info.get(key):
            return f"{info.get('size')}:{info[key]}"
    return ""


# -- reading one -------------------------------------------------------------------------------------------------------


@contextmanager
def readable(item: Item, fetch: int = DEFAULT_FETCH, *, whole: bool = False) -> Iterator[str]:
    """A path or name to open the model by; what lies in an archive or a store is brought into a folder that is deleted again.

    Of a format whose header says everything only the header is brought, unless the values of weights are wanted: `whole`.
    """
    if "://" not in item.uri and _MEMBER not in item.uri:
        yield item.uri
        return
    with tempfile.TemporaryDirectory(prefix="irscope-audit-") as folder:
        yield _staged(item, Path(folder), fetch, whole)


def _staged(item: Item, folder: Path, fetch: int, whole: bool) -> str:
    """The model's file, and what lies beside it: configurations as they are, weights as files of their size without content."""
    if _MEMBER in item.uri:
        archive, _, name = item.uri.partition(_MEMBER)
        with _opened(archive) as file, _Archive(file, archive) as opened:
            wanted, _, number = name.rpartition("#") if re.search(r"#\d+$", name) else (name, "", "1")
            found = [one for one in opened.members if one.name == wanted]
            if len(found) < int(number or 1):
                raise LoadError("is in the archive no more", code="IRS100", where=item.uri)
            member = found[int(number or 1) - 1]
            here = PurePosixPath(member.name).parent
            for one in opened.members:
                if one is not member and PurePosixPath(one.name).parent == here and one.name != member.name:
                    with opened.open(one) as stream:
                        _stage_beside(folder / PurePosixPath(one.name).name, stream, one.size, fetch, whole)
            with opened.open(member) as stream:
                return str(_stage(folder / PurePosixPath(member.name).name, stream, member.size, fetch, item.uri, whole))
    store, path = _store_of(item.uri)
    for info in store.ls(str(PurePosixPath(path).parent), detail=True):
        name, size = str(info["name"]), int(info.get("size") or 0)
        if info.get("type") == "file" and name != path:
            with store.open(name, "rb") as stream:
                _stage_beside(folder / PurePosixPath(name).name, stream, size, fetch, whole)
    with store.open(path, "rb") as stream:
        return str(_stage(folder / PurePosixPath(path).name, stream, item.size, fetch, item.uri, whole))


def _stage(target: Path, stream: IO[bytes], size: int, fetch: int, where: str, whole: bool) -> Path:
    head = _header_bytes(stream, target.name)
    if head is not None and not whole:
        return _sparse(target, head, size)
    if size > fetch:
        raise LoadError(
            f"has {size:,} bytes, and would have to be brought here as a whole", code="IRS722", where=where, hint="--fetch allows more"
        )
    stream.seek(0)
    taken = 0
    with target.open("xb") as file:
        while piece := stream.read(_PIECE):
            taken += len(piece)
            if taken > min(fetch, max(size, _PIECE)):  # an archive may say less than it unpacks to
                raise LoadError("is larger than it says", code="IRS722", where=where)
            file.write(piece)
    return target


def _stage_beside(target: Path, stream: IO[bytes], size: int, fetch: int, whole: bool) -> None:
    if target.exists():
        return
    if whole and not target.name.endswith(_ARCHIVES):
        _stage(target, stream, size, fetch, target.name, whole)
        return
    if target.suffix == ".json" and size <= _WHOLE:
        with target.open("xb") as file:
            file.write(stream.read(_WHOLE))
    elif target.suffix == ".safetensors" and (head := _header_bytes(stream, target.name)) is not None:
        _sparse(target, head, size)
    elif not target.name.endswith(SUFFIXES) and target.suffix not in (".md", ".txt", ".py"):
        _sparse(target, b"", size)  # such as the weights of a graph, of which only the size is looked at


def _sparse(target: Path, head: bytes, size: int) -> Path:
    with target.open("xb") as file:
        file.write(head)
        file.truncate(max(size, len(head)))
    return target


def _header_bytes(stream: IO[bytes], name: str) -> bytes | None:
    """All that a format has before its weights; None for formats of which the whole file is needed."""
    if not name.endswith(".safetensors"):
        return None
    first = stream.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > 100 << 20:  # the format's own limit
        return None
    return first + stream.read(length)


# -- what a file's content is known by ---------------------------------------------------------------------------------


def content_key(item: Item, *, reads_values: bool = False) -> str:
    """A text that two files share where they surely have the same content, as far as passes look at it.

    The name that a hub cache gave its content, the store's own checksum, the digest of the whole file, or of the header and size where
    nothing behind the header is looked at.
    """
    if "://" in item.uri or _MEMBER in item.uri:
        return f"at:{item.uri}:{item.stamp}" if item.stamp else ""
    path = Path(item.uri)
    if not path.exists():
        return ""  # a name
    if path.is_dir():
        parts = [f"{one.name}={_file_key(one, reads_values)}" for one in sorted(path.iterdir()) if one.is_file() and _matters(one.name)]
        return "folder:" + hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
    return _file_key(path, reads_values) + _beside(item.uri)


def _matters(name: str) -> bool:
    return name.endswith((*SUFFIXES, ".json"))


def _file_key(path: Path, reads_values: bool) -> str:
    real = path.resolve()
    if real.parent.name == "blobs" and _BLOB.fullmatch(real.name):
        return f"blob:{real.name}"
    mode = real.stat()
    if not stat.S_ISREG(mode.st_mode):
        return f"stamp:{_stamp(mode)}"
    with real.open("rb") as file:
        if mode.st_size > _WHOLE and not reads_values:
            head = _header_bytes(file, real.name)
            if head is not None:
                return f"head:{mode.st_size}:{hashlib.sha256(head).hexdigest()}"
            file.seek(0)
            if file.read(4) == b"GGUF":  # what describes its tensors comes before them
                return f"head:{mode.st_size}:{hashlib.sha256(file.read(_WHOLE)).hexdigest()}"
            if _is_zip(file):
                # The directory of a zip is at its end and has the checksum of every file in it.
                file.seek(max(0, mode.st_size - _HEAD))
                return f"zip:{mode.st_size}:{hashlib.sha256(file.read(_HEAD)).hexdigest()}"
            file.seek(0)
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _is_zip(file: IO[bytes]) -> bool:
    file.seek(0)
    return file.read(4) == b"PK\x03\x04"


def short_digest(*parts: str) -> str:
    """A short text for parts that are compared for equality alone."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]
