"""What kind of file a model is, by its content. Suffixes are not trusted."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from irscope.errors import LoadError
from irscope.frontends.files.archive import Archive

_HEAD_BYTES = 4096
_LARGEST_INDEX = 64 << 20
_LEGACY_TORCH = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of file: the frontend that reads it, or what to do instead."""

    name: str
    frontend: str | None
    advice: str = ""


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("irs", "files.text"),
        Kind("onnx", "onnx"),
        Kind("pt2", "exported"),
        Kind("torchscript", "torchscript"),
        Kind("torch-save", "files.checkpoint"),
        Kind("torch-save-legacy", "files.checkpoint"),
        Kind("safetensors", "files.checkpoint"),
        Kind("checkpoint-index", "files.checkpoint"),
        Kind(
            "torchscript-lite",
            None,
            "a mobile TorchScript file holds bytecode only; save the model with torch.jit.save or torch.export.save",
        ),
        Kind("gguf", None, "GGUF holds weights without a graph; bring the model as ONNX or torch.export"),
        Kind("tflite", None, "TensorFlow Lite is not read; convert the original model to ONNX"),
        Kind("executorch", None, "ExecuTorch programs are not read; bring the .pt2 it was lowered from"),
        Kind("tensorrt", None, "a TensorRT engine is compiled for one GPU; bring the ONNX file it was built from"),
    )
}


def detect(path: Path) -> Kind:
    """The kind of a file; raises LoadError for what is no model or no regular file."""
    head = _read_head(path)
    if not head:
        raise LoadError("the file is empty", code="IRS102", where=str(path), hint="export or copy it again")
    name = _by_magic(head, path)
    if name is None:
        start = head[:8].hex(" ")
        raise LoadError(
            f"this is no model that irscope knows (it starts with {start})",
            code="IRS103",
            where=str(path),
            hint="it reads .onnx, .pt2, TorchScript .pt, checkpoints, .safetensors and .irs",
        )
    kind = KINDS[name]
    if kind.frontend is None:
        raise LoadError(f"a {kind.name} file has no reader", code="IRS104", where=str(path), hint=kind.advice)
    return kind


def _read_head(path: Path) -> bytes:
    try:
        # Opening a pipe would wait for a writer; asking first does not.
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise LoadError("this is a folder", code="IRS100", where=str(path), hint="name the model file in it")
        if not stat.S_ISREG(mode):
            raise LoadError("this is no regular file", code="IRS100", where=str(path))
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except FileNotFoundError:
        raise LoadError("there is no such file", code="IRS100", where=str(path)) from None
    except OSError as error:
        raise LoadError(f"cannot read the file: {error.strerror}", code="IRS100", where=str(path)) from None
    except ValueError:
        raise LoadError("this is no path", code="IRS100", where=repr(str(path))) from None


def _by_magic(head: bytes, path: Path) -> str | None:
    if head.startswith(b"PK\x03\x04"):
        return _zip_kind(path)
    name = next((name for name, matches in _TESTS if matches(head)), None)
    return "checkpoint-index" if name is None and _is_index(head, path) else name


def _is_safetensors(head: bytes) -> bool:
    """A length of less than a terabyte, then a JSON object."""
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 40


def _is_index(head: bytes, path: Path) -> bool:
    """A JSON object that maps weights to files; the map may stand far behind."""
    if not head.lstrip().startswith(b"{") or path.stat().st_size > _LARGEST_INDEX:
        return False
    return b'"weight_map"' in path.read_bytes()


def _is_irs(head: bytes) -> bool:
    """Whether the first line that is no comment is the header of the text form."""
    for line in head.splitlines():
        text = line.strip()
        if text and not text.startswith(b"#"):
            return text.startswith(b"irscope ")
    return False


def _looks_like_onnx(head: bytes) -> bool:
    """Whether the bytes can begin a ModelProto: a field number it has, with the wire type of that field."""
    field, wire = head[0] >> 3, head[0] & 7
    varints, messages = (1, 5), (2, 3, 4, 6, 7, 8, 14, 20, 25, 26)
    return (wire == 0 and field in varints) or (wire == 2 and field in messages)


# The text form and ONNX come last: ONNX has no magic number, only a first field.
_TESTS: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("torch-save-legacy", lambda head: head.startswith(_LEGACY_TORCH)),
    ("gguf", lambda head: head.startswith(b"GGUF")),
    ("tflite", lambda head: head[4:8] == b"TFL3"),
    ("executorch", lambda head: head[4:6] == b"ET" and head[6:8].isdigit()),
    ("torchscript-lite", lambda head: head[4:8] == b"PTMF"),
    ("tensorrt", lambda head: head.startswith((b"ftrt", b"ptrt"))),
    ("safetensors", _is_safetensors),
    ("irs", _is_irs),
    ("onnx", _looks_like_onnx),
)


def _zip_kind(path: Path) -> str:
    with Archive(path) as archive:
        names = archive.entries
    if "archive_format" in names or "serialized_exported_program.json" in names:
        return "pt2"
    if "bytecode.pkl" in names:
        return "torchscript-lite"
    if "constants.pkl" in names:
        return "torchscript"
    if "data.pkl" in names:
        return "torch-save"
    raise LoadError("this zip archive is no PyTorch file", code="IRS103", where=str(path))
