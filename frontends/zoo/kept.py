"""Programs of named models from the cache on disk: what was made once is not made again while nothing that it follows from changed."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from irscope import diskcache
from irscope._version import __version__
from irscope.devices import target_of
from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo.names import SCRIPT, parse_name
from irscope.frontends.zoo.programform import NoForm, read_program, written
from irscope.ir.program import Program
from irscope.ir.types import Type
from irscope.jsoncodec import Json, Misfit
from irscope.passkit.settings import Settings

_OF_TERMINALS: Final = frozenset(
    {"_", "COLUMNS", "LINES", "OLDPWD", "PWD", "SHLVL", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "WINDOWID", "IRSCOPE_DEBUG"}
)
"""Variables of the environment that differ between terminals and between runs."""
_OF_PACKAGES: Final = ("HF_", "HUGGINGFACE_", "TRANSFORMERS_", "TORCH", "PYTORCH_", "TIMM_", "PYTHON", "CUDA_", "USE_", "XDG_", "IRSCOPE_")
"""Prefixes of variables that packages of models read."""
_LARGEST_HASHED: Final = 64 << 20
"""Bytes of a file above which its size and times stand for its content."""
_FRESH: Final = 2_000_000_000
"""Nanoseconds: a file that was written so shortly before it was looked at may be written again with the same times."""
_SLACK: Final = 30_000_000
"""Nanoseconds: times of files, the start of a process and the time since the machine's each lag by a tick of the kernel."""
_LEAVES_TRACE: Final = ("socket.connect", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")
"""Audit events of Python by which a model's code may get facts that cannot be checked again."""


def key_of(text: str, options: LoadOptions, settings: Settings, more: str) -> str:
    """Return all that is known before anything is imported: the name, what was asked, versions, folders that Python imports from."""
    name = parse_name(text)
    is_own = name.package == SCRIPT or os.path.isdir(name.model)
    asked = {field.name: _plain(getattr(options, field.name)) for field in dataclasses.fields(options) if field.name not in _NO_MATTER}
    variables = {
        key: value
        for key, value in _variables().items()
        if key not in _OF_TERMINALS and (name.package == SCRIPT or key.startswith(_OF_PACKAGES))
    }
    paths = [path for path in sys.path if path not in _added_paths]
    parts = (
        text,
        more,
        os.getcwd() if is_own else "",
        sorted(asked.items()),
        repr(target_of(settings)),
        dataclasses.astuple(settings),
        __version__,
        sys.version,
        sys.prefix,
        [path for path in paths if path],
        _installed(paths),
        _own_code(),
        sorted(variables.items()),
        _importable(Path(name.model.rpartition(":")[0]).parent) if name.package == SCRIPT else (),
    )
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


_NO_MATTER: Final = ("use_cache", "allowance")


def _plain(item: object) -> object:
    if isinstance(item, Mapping):
        return sorted((str(key), _plain(value)) for key, value in item.items())
    if isinstance(item, frozenset | tuple | list):
        return sorted(map(str, item)) if isinstance(item, frozenset) else [_plain(one) for one in item]
    return item.text if isinstance(item, Type) else item


_set_by_models: Final[dict[str, tuple[str | None, str | None]]] = {}
"""Variables of the environment that code of models and of their packages set: what they were before, and what they are since."""
_added_paths: Final[set[str]] = set()
"""Folders that such code added to those which Python imports from."""


def _variables() -> dict[str, str]:
    """Return the environment without what making other models did to it: a process that has made none looks for the same entries."""
    variables = dict(os.environ)
    for name, (before, since) in _set_by_models.items():
        if variables.get(name) == since:
            variables.pop(name, None)
            if before is not None:
                variables[name] = before
    return variables


@contextmanager
def noting_changes() -> Iterator[None]:
    """Note what the code that runs within the block does to the environment and to the folders that Python imports from."""
    variables, paths = dict(os.environ), set(sys.path)
    try:
        yield
    finally:
        for name in variables.keys() | os.environ.keys():
            before, since = variables.get(name), os.environ.get(name)
            if before != since:
                first, noted = _set_by_models.get(name, (before, None))
                _set_by_models[name] = (first if noted == before else before, since)
        _added_paths.update(path for path in sys.path if path not in paths)


def _installed(paths: list[str]) -> list[str]:
    """Packages with their versions, as the names of their folders of metadata say."""
    found: list[str] = []
    for folder in paths:
        try:
            found += [
                f"{folder}/{name}" for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info", ".egg-link", ".pth"))
            ]
        except OSError:
            continue
    return sorted(found)


def _own_code() -> str:
    """Return a number that is another one after irscope itself was edited."""
    said = hashlib.sha256()
    for start in _own_folders():
        for folder, folders, files in os.walk(start):
            folders[:] = sorted(folder for folder in folders if folder != "__pycache__")
            for name in sorted(files):
                if name.endswith((".py", ".json", ".toml")):
                    status = os.stat(os.path.join(folder, name))
                    said.update(f"{folder}/{name} {status.st_size} {status.st_mtime_ns}\n".encode("utf-8", "surrogatepass"))
    return said.hexdigest()


def _own_folders() -> list[str]:
    """Return where irscope's own code lies: its parts need not be below it."""
    specs = [importlib.util.find_spec(name) for name in ("irscope", "irscope.frontends", "irscope.passes")]
    return [folder for spec in specs if spec is not None for folder in spec.submodule_search_locations or ()]


def _importable(folder: Path) -> list[str]:
    """Return the modules and packages in a script's folder: a new one may be what an import finds from then on."""
    try:
        found = list(os.scandir(folder))
    except OSError:
        return []
    return sorted(one.name for one in found if one.name.endswith((".py", ".so")) or os.path.isfile(os.path.join(one.path, "__init__.py")))


def _imported() -> set[str]:
    """Return the files of modules that were imported."""
    return {os.path.abspath(file) for module in list(sys.modules.values()) if isinstance(file := getattr(module, "__file__", None), str)}


def _process_began() -> int:
    """Return the start of this process in nanoseconds since 1970; now, where the system does not say it."""
    now = time.time_ns()
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        lasted = float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return now
    return min(now, now - int(lasted * 1e9))


_BEGUN: Final = _process_began()
"""A file that was written since may be another one than what this process imported, by whichever model that was."""


class Watched:
    """Record of what ran while models were made. What a module once read it keeps, so that everything before goes on to count."""

    def __init__(self, before: Watched | None = None) -> None:
        self.opened: set[str] = set() if before is None else set(before.opened)
        self.is_open_world: bool = before is not None and before.is_open_world
        """True where a question was asked that cannot be asked again: of another program, of another machine."""

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir"):
            path = "." if arguments[0] is None else arguments[0]
            if isinstance(path, bytes):
                path = os.fsdecode(path)
            if isinstance(path, str) and not (_writes(arguments) if event == "open" else _is_import()):
                self.opened.add(os.path.abspath(path))
        elif event in _LEAVES_TRACE:
            self.is_open_world = True

    def files(self) -> list[str]:
        """Return the files that were imported, and others that were opened to read."""
        found = _imported() | {path for path in self.opened if not path.endswith((".pyc", ".pyi")) and "__pycache__" not in path}
        left_out = _left_out()
        return sorted(path for path in found if not path.startswith(left_out))


def _left_out() -> tuple[str, ...]:
    """Folders whose files are in the key already (Python's own, irscope's), and files that are none."""
    import sysconfig

    return (
        "/proc/",
        "/sys/",
        "/dev/",
        *(f"{os.path.abspath(path)}{os.sep}" for path in _own_folders()),
        *_of_python(sysconfig.get_paths()),
    )


def _of_python(paths: Mapping[str, str]) -> list[str]:
    """Python's own modules, without the packages that are installed in the same folder."""
    try:
        below = [entry.path for entry in os.scandir(paths["stdlib"]) if entry.name not in ("site-packages", "dist-packages")]
    except OSError:
        return []
    return [f"{path}{os.sep}" if os.path.isdir(path) else path for path in below]


def _writes(arguments: tuple[Any, ...]) -> bool:
    mode, flags = (*arguments, None, None)[1:3]
    if isinstance(mode, str):
        return any(sign in mode for sign in "wax")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_CREAT))


_FINDERS: Final = ("<frozen importlib", *(os.path.join(os.path.dirname(os.__file__), name) for name in ("importlib", "pkgutil.py")))


def _is_import() -> bool:
    """Return whether a folder is listed to find modules and packages in it."""
    frame: FrameType | None = sys._getframe(3)  # of what raised the event: this one, note, _hook, then that
    return frame is not None and frame.f_code.co_filename.startswith(_FINDERS)


_watching: list[Watched] = []
_latest: list[Watched] = []
"""The last one, once Python tells of what is opened."""


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for watched in _watching:
        watched.note(event, arguments)


@contextmanager
def watching() -> Iterator[Watched]:
    """Record which files are read within the block. Python cannot take an audit hook back, so there is one, which then does nothing."""
    if not _latest:
        sys.addaudithook(_hook)
    watched = Watched(_latest[-1] if _latest else None)
    _latest[:] = [watched]
    _watching.append(watched)
    try:
        with noting_changes():
            yield watched
    finally:
        _watching.remove(watched)


def described(watched: Watched, more: list[str]) -> Json | None:
    """Return every file with what tells whether it is as it was; None where that cannot be told, so that nothing may be kept."""
    if watched.is_open_world:
        return None
    files: list[Json] = []
    packages = _package_folders()
    for path in sorted({*watched.files(), *more}):
        try:
            status = os.stat(path)
        except OSError:
            files.append([path, None])
            continue
        is_package = path.startswith(packages)
        if stat.S_ISDIR(status.st_mode):
            if not is_package:
                files.append([path, _names_in(path)])
            continue
        if not stat.S_ISREG(status.st_mode):
            return None
        if max(status.st_mtime_ns, status.st_ctime_ns) >= _BEGUN - _SLACK and not is_package:
            return None  # it may have been written after it was read
        digest = "" if is_package or status.st_size > _LARGEST_HASHED else _digest(path)
        files.append([path, status.st_size, status.st_mtime_ns, 0 if is_package else status.st_ctime_ns, digest])
    return {"files": files, "at": time.time_ns()}


def still_holds(about: Json) -> bool:
    """Return whether every file is as it was."""
    assert isinstance(about, dict)
    at: Any = about["at"]
    files: Any = about["files"]
    return all(_is_same(file, at) for file in files)


def _names_in(folder: str) -> list[Json]:
    """Return what a folder holds, without what Python itself puts there."""
    return [name for name in sorted(os.listdir(folder)) if name != "__pycache__"]


def _is_same(one: Any, at: int) -> bool:
    try:
        status = os.stat(one[0])
    except OSError:
        return one[1] is None
    if len(one) == 2:
        return isinstance(one[1], list) and stat.S_ISDIR(status.st_mode) and _names_in(one[0]) == one[1]
    path, size, modified, changed, digest = one
    if status.st_size != size:
        return False
    newest = max(status.st_mtime_ns, status.st_ctime_ns if changed else 0)
    if status.st_mtime_ns == modified and changed in (0, status.st_ctime_ns) and (newest < at - _FRESH or not digest):
        return True
    return bool(digest) and _digest(path) == digest


def _package_folders() -> tuple[str, ...]:
    """Folders of installed packages, whose files are not edited within one size and time."""
    folders = {os.path.dirname(path) for path in _installed(sys.path) if path.endswith(".dist-info")}
    return tuple(f"{os.path.abspath(folder)}{os.sep}" for folder in folders)


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "?"


def files_of(text: str, options: LoadOptions) -> list[str]:
    """Files that a name stands for besides what its code reads: a folder's, and those of the model that an adapter goes on top of."""
    files: list[str] = []
    for folder in (parse_name(text).model, options.base):
        if folder and os.path.isdir(folder):
            where = os.path.abspath(folder)
            files += [where, *(os.path.join(where, name) for name in os.listdir(where))]
    return files


def load_kept(text: str, options: LoadOptions, sink: DiagnosticSink, settings: Settings) -> Program:
    """Return the program of a named model: as it was kept, else made and kept."""

    def make(found: DiagnosticSink) -> Program:
        from irscope.frontends.zoo.load import load_named

        return load_named(text, options, found, settings)

    return kept(text, make, options, sink, settings)


def kept(
    text: str, make: Callable[[DiagnosticSink], Program], options: LoadOptions, sink: DiagnosticSink, settings: Settings, asked: str = ""
) -> Program:
    """Return what `make` makes of a named model, kept on disk; `asked` is all else that it depends on besides options and settings."""
    key = key_of(text, options, settings, asked)
    body = diskcache.read(key, still_holds)
    if body is not None:
        try:
            program, said = read_program(body)
        except Misfit:
            diskcache.discard(key)
        else:
            for remark in said:
                sink.add(remark)
            return program
    with noting_changes():
        import irscope.frontends.zoo.load  # noqa: F401  # it imports torch, before the recording begins

    found = DiagnosticSink()
    with watching() as watched:
        program = make(found)
    for remark in found:
        sink.add(remark)
    try:
        form = written(program, list(found))
    except NoForm:
        return program
    about = described(watched, files_of(text, options))
    if about is not None:
        diskcache.keep(key, text, about, form)
    return program
