"""Detection of a model file's kind by its content, and of files that irscope does not read. Suffixes are not trusted.

Installed packages are asked, through the entry point group `irscope.frontends`, only about files that irscope does not surely know.
"""

from __future__ import annotations

import importlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from irscope.diagnostics import few
from irscope.errors import LoadError, UsageError
from irscope.files import is_recording
from irscope.frontends.files.archive import Archive
from irscope.frontends.zoo.names import COREML_COMPILED, definitions
from irscope.immutable import immutable
from irscope.plugins import Plugin, plugins_by_name

if TYPE_CHECKING:
    from irscope.frontends.base import AddedFrontend, Frontend

HEAD_BYTES: Final = 4096
_NO_MODEL, _NO_READER = "IRS103", "IRS104"
LFS: Final = b"version https://git-lfs.github.com/spec/"


@immutable
class Foreign:
    """One kind of file."""

    what: str
    """As in "this is ..."."""
    advice: str
    matches: Callable[[bytes], bool]
    """Recognise a file of the kind by its first bytes; it looks like no other."""
    code: str = _NO_MODEL
    """IRS104 for models of a format that irscope does not read."""


def _starts(*marks: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(marks)


def _is_html(head: bytes) -> bool:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:512].lower()
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<body"))


def _is_openvino(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"<?xml", b"<net")) and re.search(rb"<net\s[^>]*\bversion=", head) is not None


def _is_saved_model(head: bytes) -> bool:
    """Return whether the bytes begin a SavedModel: its schema version, a graph, and the tag "serve" of that graph or its TensorFlow."""
    return head[:3] == b"\x08\x01\x12" and (b"\x05serve" in head or b"saved_model" in head)


def _is_coreml(head: bytes) -> bool:
    """Return whether the bytes begin a Core ML model: a version, then a description that begins with an input, where ONNX has a name."""
    if head[:1] != b"\x08" or len(head) < 5 or head[1] > 0x20 or head[2] != 0x12:
        return False
    at = 3
    while at < min(len(head) - 1, 8) and head[at] & 0x80:
        at += 1
    return head[at + 1 : at + 2] == b"\x0a"


def _is_frozen_graph(head: bytes) -> bool:
    """Return whether the bytes begin TensorFlow's GraphDef: a node of a name and an operator of TensorFlow's."""
    return head[:1] == b"\x0a" and re.search(rb"\x12.(?:Placeholder|Const|NoOp|VarHandleOp|Variable)", head[:300], re.S) is not None


_SOURCE: Final = "bring the PyTorch or ONNX model it was converted from"
COREML: Final = Foreign("a Core ML model", _SOURCE, _is_coreml, _NO_READER)
_OPENVINO: Final = Foreign("an OpenVINO model", "bring the ONNX file or the PyTorch model it was converted from", _is_openvino, _NO_READER)
_WEB: Final = "the download ended on a web page: download the file itself (at a hub `hf download`, or the link that says raw or resolve)"
FOREIGN: Final = (
    Foreign(
        "a Git LFS pointer, which stands for a file that was not downloaded",
        "`git lfs pull` in its repository fetches the file, or `hf download` from the hub",
        _starts(LFS),
    ),
    Foreign("an HTML page", _WEB, _is_html),
    _OPENVINO,
    Foreign("an XML file", "name the model file", _starts(b"<?xml", b"\xef\xbb\xbf<?xml")),
    Foreign(
        "an HDF5 file, as Keras writes it",
        "export the model to ONNX: `model.export('model.onnx', format='onnx')` in Keras 3, or tf2onnx",
        _starts(b"\x89HDF\r\n\x1a\n"),
        _NO_READER,
    ),
    Foreign(
        "a TensorFlow SavedModel",
        "convert it: `python -m tf2onnx.convert --saved-model FOLDER --output model.onnx`",
        _is_saved_model,
        _NO_READER,
    ),
    COREML,
    Foreign(
        "a TensorFlow graph", "convert it: `python -m tf2onnx.convert --graphdef FILE --output model.onnx`", _is_frozen_graph, _NO_READER
    ),
    Foreign("an NCNN model", "bring the ONNX file it was converted from", _starts(b"7767517\n", b"7767517\r"), _NO_READER),
    Foreign("a PDF document", "name the model file", _starts(b"%PDF-")),
    Foreign("a picture", "name the model file", _starts(b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8")),
    Foreign("a NumPy array", "an array is no model; name the model file", _starts(b"\x93NUMPY")),
    Foreign("a Parquet file", "name the model file", _starts(b"PAR1")),
    Foreign("an SQLite database", "name the model file", _starts(b"SQLite format 3\0")),
    Foreign(
        "a compiled library or program",
        "bring the model that it was compiled from; packages of AOTInductor are read as .pt2",
        _starts(b"\x7fELF", b"MZ\x90", b"\xcf\xfa\xed\xfe"),
        _NO_READER,
    ),
    Foreign(
        "a compressed file",
        "unpack it, and name the model in it",
        _starts(b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"BZh", b"7z\xbc\xaf\x27\x1c", b"Rar!"),
    ),
    Foreign("a tar archive", "unpack it, and name the model in it", lambda head: head[257:262] == b"ustar"),
    Foreign(
        "a pickle that PyTorch did not write",
        "irscope runs no pickles: export the model, to ONNX or by torch.export.save, or save its weights as safetensors",
        lambda head: head[:1] == b"\x80" and 2 <= head[1:2][0] <= 5 if len(head) > 1 else False,
    ),
    Foreign(
        "a JSON file", "name the model file, or the folder of a hub that the file lies in", lambda head: head.lstrip()[:1] in (b"{", b"[")
    ),
)
"""The first that matches is meant."""


def foreign_in(head: bytes) -> Foreign | None:
    """Return the kind of a file by its first bytes; None for one that this table does not have."""
    return next((kind for kind in FOREIGN if kind.matches(head)), None)


def refusal(kind: Foreign, path: Path) -> LoadError:
    """Return the error that names a file and says what to do about it."""
    return LoadError(f"this is {kind.what}", code=kind.code, where=str(path), hint=kind.advice)


def lfs_pointer(path: Path) -> LoadError | None:
    """Return the error for a file that stands for one that was not downloaded; None for all others."""
    try:
        with path.open("rb") as file:
            head = file.read(len(LFS))
    except OSError:
        return None
    return refusal(FOREIGN[0], path) if head == LFS else None


# -- zip archives ------------------------------------------------------------------------------------------------------

_MODELS: Final = (".onnx", ".pt2", ".pt", ".pth", ".safetensors", ".gguf")
_ARCHIVES: Final[tuple[tuple[str, str, Callable[[Mapping[str, object]], bool], str], ...]] = (
    (
        "arrays of NumPy (.npz)",
        "arrays are no model; name the model file",
        lambda names: all(name.endswith(".npy") for name in names),
        _NO_MODEL,
    ),
    (
        "a Keras model",
        "export it to ONNX: `model.export('model.onnx', format='onnx')`",
        lambda names: "config.json" in names and any(name.endswith(".weights.h5") for name in names),
        _NO_READER,
    ),
    (
        "a Core ML package",
        _SOURCE,
        lambda names: any(name.endswith(".mlmodel") for name in names),
        _NO_READER,
    ),
    ("a Python wheel", "install it, and name a model", lambda names: any(name.endswith(".dist-info/WHEEL") for name in names), _NO_MODEL),
    ("an office document", "name the model file", lambda names: "[Content_Types].xml" in names, _NO_MODEL),
)


def zip_refusal(names: Iterable[str], path: Path) -> LoadError:
    """Return the error for a zip archive that PyTorch did not write, by the names in it."""
    entries = dict.fromkeys(name for name in names if not name.endswith("/"))
    if entries:
        for what, advice, matches, code in _ARCHIVES:
            if matches(entries):
                return LoadError(f"this is {what}", code=code, where=str(path), hint=advice)
    inside = next((name for name in entries if name.endswith(_MODELS)), "")
    first = few(list(entries), 2, f"all: unzip -l {path.name}") or "nothing"
    hint = f"unpack it, and name the model: {inside}" if inside else f"it holds {first}"
    return LoadError("this zip archive is no PyTorch file", code=_NO_MODEL, where=str(path), hint=hint)


ENTRY_POINT_GROUP: Final = "irscope.frontends"
_LARGEST_INDEX = 64 << 20
_ZIP = b"PK\x03\x04"
_LEGACY_TORCH = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")


@immutable
class Kind:
    """One kind of file: the frontend that reads it, or what to do instead."""

    name: str
    frontend: str | None
    """Its module below `irscope.frontends`."""
    advice: str = ""
    added: Plugin | None = None
    """The entry point of the package that reads it."""

    def reader(self) -> Frontend:
        """Return what reads such files, imported now."""
        if self.added is not None:
            return _frontend_of(self.added)
        return cast("Frontend", importlib.import_module(f"irscope.frontends.{self.frontend}"))


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("irs", "files.text"),
        Kind("stablehlo", "stablehlo"),
        Kind("onnx", "onnx"),
        Kind("pt2", "exported"),
        Kind("inductor", "inductor"),
        Kind("aoti", "inductor.package"),
        Kind("torchscript", "torchscript"),
        Kind("torch-save", "files.checkpoint"),
        Kind("torch-save-legacy", "files.checkpoint"),
        Kind("safetensors", "files.checkpoint"),
        Kind("checkpoint-index", "files.checkpoint"),
        Kind("adapter", "files.folders"),
        Kind("gguf", "files.gguf"),
        Kind(
            "torchscript-lite",
            None,
            "a mobile TorchScript file holds bytecode only; save the model with torch.jit.save or torch.export.save",
        ),
        Kind("tflite", None, "TensorFlow Lite is not read; convert the original model to ONNX"),
        Kind("executorch", None, "ExecuTorch programs are not read; bring the .pt2 it was lowered from"),
        Kind("tensorrt", None, "a TensorRT engine is compiled for one GPU; bring the ONNX file it was built from"),
    )
}


def detect(path: Path) -> Kind:
    """Return the kind of a file; raises LoadError for what is no model or no regular file."""
    head = _read_head(path)
    if not head:
        raise LoadError("the file is empty", code="IRS102", where=str(path), hint="export or copy it again")
    name = _by_magic(head, path)
    kind = KINDS[name] if name is not None else None
    if kind is None and path.suffix == ".onnx" and _looks_like_onnx(head) and foreign_in(head) is None:
        kind = KINDS["onnx"]  # saves the question: other formats begin with such bytes too
    if kind is not None and kind.frontend is not None:
        return kind
    added, broken = _of_packages(head, path, name)
    if added is not None:
        return added
    foreign = foreign_in(head) if kind is None else None
    if kind is None and foreign is None and _looks_like_onnx(head) and path.suffix != ".py":
        return KINDS["onnx"]
    if broken is not None:
        raise broken
    _explain_other_files(head, path)
    if kind is not None:
        raise LoadError(f"a {kind.name} file has no reader", code="IRS104", where=str(path), hint=kind.advice)
    if head.startswith(_ZIP):
        with Archive(path) as archive:
            raise zip_refusal(archive.entries, path)
    if foreign is not None:
        raise refusal(foreign, path)
    raise LoadError(
        f"this is no model that irscope knows (it starts with {head[:8].hex(' ')})",
        code="IRS103",
        where=str(path),
        hint="it reads .onnx, .pt2, TorchScript .pt, StableHLO, checkpoints, .safetensors, .gguf and .irs",
    )


WRAPPER: Final = "output_code.py"
_MOST_LISTED = 4


def wrapper_in(folder: Path) -> Path | None:
    """Return the code in a folder that TORCH_COMPILE_DEBUG=1 wrote; None for other folders. LoadError for a run with several graphs."""
    own = folder / WRAPPER
    if own.is_file():
        return own
    # model__0_forward_1.0 in torchinductor in run_... in torch_compile_debug.
    for pattern in ("model_*", "torchinductor/model_*", "run_*/torchinductor/model_*", "torch_compile_debug/run_*/torchinductor/model_*"):
        paths = sorted(path for path in (each / WRAPPER for each in folder.glob(pattern)) if path.is_file())
        if len(paths) == 1:
            return paths[0]
        if paths:
            listed = few([str(path.parent) for path in paths], _MOST_LISTED, f"all: ls {paths[0].parent.parent}")
            raise LoadError(f"the folder has {len(paths)} compiled graphs", code="IRS100", where=str(folder), hint=f"name one: {listed}")
    return None


def _explain_other_files(head: bytes, path: Path) -> None:
    """Raise LoadError for a file that irscope knows as something else than a model, with the command that it is for."""
    text = str(path)
    if is_recording(path):
        message = "this is a recording of a run, and here a model is wanted"
        hint = f"`irscope run {text}` tells of it, `irscope explain {text}` what held its memory, `irscope compare MODEL {text}` compares"
    elif head[:1] == b"\x80" and any(key in head for key in (b"segments", b"device_traces")):
        message = "this is a snapshot of PyTorch's allocator, which holds no model"
        hint = f"`irscope explain {text}` says what held the memory, `irscope tui {text}` shows it"
    elif path.suffix in (".py", ".pyw") and b"\0" not in head:
        there = definitions(path)
        named = ", ".join(f"{text}:{name}" for name in there[:4]) or f"{text}:FUNCTION, which returns a module or (module, inputs)"
        message = "this is a script, not a model"
        hint = f"name what makes one: {named}; or `irscope simulate {text}` runs it, with `--fit` for the largest batch that fits"
    elif path.name == COREML_COMPILED:
        raise refusal(COREML, path)
    elif path.suffix == ".bin" and (described := path.with_suffix(".xml")).is_file():
        message, hint = f"these are the weights of {described}, {_OPENVINO.what}", _OPENVINO.advice
    elif path.suffix == ".toml":
        message, hint = "this is a file of settings, not a model", f"`irscope check {text}` holds the models that it lists to their budgets"
    else:
        return
    raise LoadError(message, code="IRS103", where=text, hint=hint)


def _of_packages(head: bytes, path: Path, name: str | None) -> tuple[Kind | None, UsageError | None]:
    """Return an installed package's kind: of a name without a reader here, or recognised by its frontend, and one that failed."""
    broken: UsageError | None = None
    for plugin in plugins_by_name(ENTRY_POINT_GROUP, frozenset(one.name for one in KINDS.values() if one.frontend is not None)).values():
        try:
            if plugin.name == name or (name is None and _recognises(plugin, head, path)):
                return Kind(plugin.name, None, added=plugin), None
        except UsageError as error:
            broken = broken or error
    return None, broken


def _recognises(plugin: Plugin, head: bytes, path: Path) -> bool:
    frontend = _frontend_of(plugin)
    try:
        return bool(frontend.recognises(head, path))
    except Exception as error:  # it is the package's, and may raise anything
        said = f"frontend {plugin.name!r} of {plugin.owner} cannot tell what {path.name} is: {type(error).__name__}: {error}"
        raise UsageError(said, code="IRS101", hint=f"uninstall {plugin.owner}, or report it there") from error


def _frontend_of(plugin: Plugin) -> AddedFrontend:
    found = plugin.load()
    missing = [name for name in ("recognises", "load") if not callable(getattr(found, name, None))]
    if missing:
        raise UsageError(f"frontend {plugin.name!r} of {plugin.owner} has no function {' and no '.join(missing)}", code="IRS101")
    return cast("AddedFrontend", found)


def _read_head(path: Path) -> bytes:
    try:
        # Opening a pipe would wait for a writer; asking first does not.
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise LoadError("this is a folder", code="IRS100", where=str(path), hint="name the model file in it")
        if not stat.S_ISREG(mode):
            raise LoadError("this is not a regular file", code="IRS100", where=str(path))
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except FileNotFoundError:
        raise LoadError("there is no such file", code="IRS100", where=str(path)) from None
    except OSError as error:
        raise LoadError(f"cannot read the file: {error.strerror}", code="IRS100", where=str(path)) from None
    except ValueError:
        raise LoadError("this is no path", code="IRS100", where=repr(str(path))) from None


def _by_magic(head: bytes, path: Path) -> str | None:
    """Return the kind that irscope surely knows."""
    if head.startswith(_ZIP):
        return _zip_kind(path)
    name = next((name for name, matches in _TESTS if matches(head)), None)
    if name is None and _is_jax_export(head, path):
        return "stablehlo"
    return _json_kind(head, path) if name is None else name


def _is_safetensors(head: bytes) -> bool:
    """A length of less than a terabyte, then a JSON object."""
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 40


def _json_kind(head: bytes, path: Path) -> str | None:
    """Return what a JSON object is that maps weights to files, or that says of which model an adapter is; the key may stand far behind."""
    if not head.lstrip().startswith(b"{") or path.stat().st_size > _LARGEST_INDEX:
        return None
    data = path.read_bytes()
    return next((kind for key, kind in ((b'"weight_map"', "checkpoint-index"), (b'"peft_type"', "adapter")) if key in data), None)


def _is_irs(head: bytes) -> bool:
    """Return whether the first line that is no comment is the header of the text form."""
    for line in head.splitlines():
        text = line.strip()
        if text and not text.startswith(b"#"):
            return text.startswith(b"irscope ")
    return False


def _looks_like_onnx(head: bytes) -> bool:
    """Return whether the bytes can begin a ModelProto: a field number it has, with the wire type of that field."""
    field, wire = head[0] >> 3, head[0] & 7
    varints, messages = (1, 5), (2, 3, 4, 6, 7, 8, 14, 20, 25, 26)
    return (wire == 0 and field in varints) or (wire == 2 and field in messages)


def _is_wrapper(head: bytes) -> bool:
    """Return whether this is the code that Inductor generated: it begins with the number of its graph, and imports the compiler."""
    imports = (b"torch._inductor.async_compile import AsyncCompile", b"torch._inductor.codecache import AsyncCompile")  # since 2.4, before
    return any(one in head for one in imports) or head.startswith((b"# AOT ID: [", b"\n# AOT ID: ["))


_FARTHEST_ROOT: Final = 256
_MLIR_BYTECODE: Final = b"ML\xefR"
_MLIR_TEXT: Final = re.compile(
    rb'\s*(?:(?://[^\n]*|[#!][\w.-]+\s*=[^\n]*)\s*)*(?:module\b|"builtin\.module"|func\.func\b|#loc\d*\s*=\s*loc\()'
)


def _is_stablehlo(head: bytes) -> bool:
    """Return whether this is MLIR, as text, as bytecode or inside what `jax.export` serialises, compressed or not, or XLA's account."""
    if head.startswith((b"BufferAssignment:", b"HloModule ")):
        return True
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, HEAD_BYTES)
        except zlib.error:
            return False
    return head.startswith(_MLIR_BYTECODE) or _MLIR_TEXT.match(head) is not None


def _is_jax_export(head: bytes, path: Path) -> bool:
    """Return whether `jax.export` serialised this: a flatbuffer, whose first table follows its list of fields, with bytecode inside."""
    root = int.from_bytes(head[:4], "little")
    if not 8 <= root <= _FARTHEST_ROOT or len(head) < root + 4:
        return False
    fields = root - int.from_bytes(head[root : root + 4], "little", signed=True)
    if not 4 <= fields <= root or int.from_bytes(head[fields : fields + 2], "little") > root - fields:
        return False
    with path.open("rb") as file:
        return file.read(_LARGEST_INDEX).find(_MLIR_BYTECODE) >= 0


_TESTS: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("torch-save-legacy", lambda head: head.startswith(_LEGACY_TORCH)),
    ("gguf", lambda head: head.startswith(b"GGUF")),
    ("tflite", lambda head: head[4:8] == b"TFL3"),
    ("executorch", lambda head: head[4:6] == b"ET" and head[6:8].isdigit()),
    ("torchscript-lite", lambda head: head[4:8] == b"PTMF"),
    ("tensorrt", lambda head: head.startswith((b"ftrt", b"ptrt"))),
    ("safetensors", _is_safetensors),
    ("irs", _is_irs),
    ("inductor", _is_wrapper),
    ("stablehlo", _is_stablehlo),
)


def _zip_kind(path: Path) -> str | None:
    with Archive(path) as archive:
        names = archive.entries
    if any(name.startswith("data/aotinductor/") for name in names) and not any(name.startswith("models/") for name in names):
        return "aoti"
    if "archive_format" in names or "serialized_exported_program.json" in names:
        return "pt2"
    if "bytecode.pkl" in names:
        return "torchscript-lite"
    if "constants.pkl" in names:
        return "torchscript"
    if "data.pkl" in names:
        return "torch-save"
    return None
