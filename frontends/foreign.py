"""Files that are no models irscope reads, told by their first bytes: what each is, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from irscope.errors import LoadError
from irscope.immutable import immutable

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


_WEB: Final = "the download ended on a web page: download the file itself (at a hub `hf download`, or the link that says raw or resolve)"
FOREIGN: Final = (
    Foreign(
        "a Git LFS pointer, which stands for a file that was not downloaded",
        "`git lfs pull` in its repository fetches the file, or `hf download` from the hub",
        _starts(LFS),
    ),
    Foreign("an HTML page", _WEB, _is_html),
    Foreign("an OpenVINO model", "bring the ONNX file or the PyTorch model it was converted from", _is_openvino, _NO_READER),
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
    Foreign("a Core ML model", "bring the PyTorch or ONNX model it was converted from", _is_coreml, _NO_READER),
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
        "bring the PyTorch or ONNX model it was converted from",
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
    first = ", ".join(list(entries)[:2])
    more = f" and {len(entries) - 2} more" if len(entries) > 2 else ""
    hint = f"unpack it, and name the model: {inside}" if inside else f"it holds {first}{more}" if entries else "it holds nothing"
    return LoadError("this zip archive is no PyTorch file", code=_NO_MODEL, where=str(path), hint=hint)
