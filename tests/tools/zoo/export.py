"""Exports of the zoo's models, made once and kept on disk.

Each file lies beside a note in JSON: the types of a real run's results, or why the exporter refused the model.
"""

from __future__ import annotations

import gc
import hashlib
import io
import json
import os
import tempfile
import time
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import torch

from tests.tools.zoo.models import Entry, Flat, tensors_in

FORMS: Final = ("concrete", "dynamic", "decomposed", "traced", "scripted", "onnx")
"""torch.export with fixed sizes, with an open batch and in core operators only, torch.jit.trace, torch.jit.script, torch.onnx.export."""
_SUFFIXES = {"concrete": ".pt2", "dynamic": ".pt2", "decomposed": ".pt2", "traced": ".pt", "scripted": ".pt", "onnx": ".onnx"}


@dataclass(frozen=True)
class Exported:
    """One model in one form."""

    entry: Entry
    form: str
    path: Path
    refused: str = ""
    """Why the exporter did not accept the model; empty where it did."""
    outputs: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Element type and shape of each result of a real run."""
    inputs: tuple[tuple[str, tuple[int, ...]], ...] = ()
    seconds: float = 0.0


class SparseFile(io.RawIOBase):
    """Writes a file in which long runs of zeros take no space on disk."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._end = 0

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """torch.export rewinds what it has written; there is nothing to do."""
        return offset

    def write(self, data: Any) -> int:
        content = memoryview(data).cast("B")
        for start in range(0, len(content), 1 << 20):
            part = content[start : start + (1 << 20)]
            if len(part) < 4096 or any(part[:16]) or part.tobytes().count(0) != len(part):
                self._file.write(part)
            else:
                self._file.seek(len(part), os.SEEK_CUR)
            self._end += len(part)
        return len(content)

    def close(self) -> None:
        if not self._file.closed:
            self._file.truncate(self._end)
            self._file.close()
        super().close()


def cache_folder() -> Path:
    """Where exports are kept: $IRSCOPE_CACHE, or a folder for temporary files."""
    given = os.environ.get("IRSCOPE_CACHE")
    base = Path(given) if given else Path(tempfile.gettempdir()) / "irscope-cache"
    return base / "zoo" / f"torch-{torch.__version__}"


def is_kept(entry: Entry, form: str) -> bool:
    """Whether the model was exported in this form before."""
    return _place(entry, form).with_suffix(".json").exists()


def _place(entry: Entry, form: str) -> Path:
    release = "" if entry.package == "torch" else version(entry.package)
    key = hashlib.sha256(f"{entry.recipe} {entry.batch} {release}".encode()).hexdigest()[:8]
    return cache_folder() / form / f"{entry.name}-{key}{_SUFFIXES[form]}"


def exported(entry: Entry, form: str) -> Exported:
    """The model in one of the forms, made now if it was not made before."""
    path = _place(entry, form)
    if form == "dynamic" and not entry.dynamic:
        return Exported(entry, form, path, "it takes a list of images, which has no batch axis")
    note = path.with_suffix(".json")
    if not note.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        found = _make(entry, form, path)
        partial = note.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(found), encoding="utf-8")
        partial.replace(note)
    found = json.loads(note.read_text(encoding="utf-8"))
    types = {key: tuple((dtype, tuple(shape)) for dtype, shape in found.get(key, ())) for key in ("inputs", "outputs")}
    return Exported(entry, form, path, found.get("refused", ""), types["outputs"], types["inputs"], found["seconds"])


def _make(entry: Entry, form: str, path: Path) -> dict[str, Any]:
    started = time.process_time()
    found: dict[str, Any] = {}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        model = entry.make()
        args = entry.inputs(max(entry.batch, 2) if form == "dynamic" else entry.batch)
        found["inputs"] = [_described(item) for item in tensors_in(list(args))]
        partial = path.with_name(f"{os.getpid()}-{path.name}")
        try:
            _EXPORTERS[form](model, args, partial)
        except Exception as error:  # whatever an exporter raises is why it refused
            found["refused"] = f"{type(error).__name__}: {_shortened(error)}"
        else:
            partial.replace(path)
            if form in ("traced", "scripted"):
                found["outputs"] = [_described(item) for item in tensors_in(model(*args))]
        finally:
            partial.unlink(missing_ok=True)
    torch._dynamo.reset()
    gc.collect()
    return {**found, "seconds": round(time.process_time() - started, 1)}


def _described(item: torch.Tensor) -> tuple[str, list[int]]:
    return str(item.dtype).removeprefix("torch."), list(item.shape)


def _shortened(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def _save_concrete(model: Any, args: tuple[Any, ...], path: Path) -> None:
    with SparseFile(path) as file:
        torch.export.save(torch.export.export(model, args), file)


def _save_decomposed(model: Any, args: tuple[Any, ...], path: Path) -> None:
    program = torch.export.export(model, args).run_decompositions()
    with SparseFile(path) as file:
        torch.export.save(program, file)


def _save_dynamic(model: Any, args: tuple[Any, ...], path: Path) -> None:
    batch = torch.export.Dim("batch", max=1024)
    axes = tuple({0: batch} for _ in args)
    program = torch.export.export(model, args, dynamic_shapes=(axes,) if isinstance(model, Flat) else axes)
    with SparseFile(path) as file:
        torch.export.save(program, file)


def _save_traced(model: Any, args: tuple[Any, ...], path: Path) -> None:
    _save_script(torch.jit.trace(model, args, check_trace=False, strict=False), path)


def _save_scripted(model: Any, args: tuple[Any, ...], path: Path) -> None:
    # What makes results flat takes any number of arguments, which TorchScript does not.
    _save_script(torch.jit.script(model.model if isinstance(model, Flat) else model), path)


def _save_script(module: Any, path: Path) -> None:
    with SparseFile(path) as file:
        file.write(module.save_to_buffer())


def _save_onnx(model: Any, args: tuple[Any, ...], path: Path) -> None:
    # The exporter keeps equal tensors once, which zeros and ones all are.
    for weight in [*model.parameters(), *(buffer for buffer in model.buffers() if buffer.is_floating_point())]:
        weight.uniform_(0.5, 1.5)
    torch.onnx.export(model, args, path, dynamo=True, external_data=False, verbose=False)


_EXPORTERS = {
    "concrete": _save_concrete,
    "dynamic": _save_dynamic,
    "decomposed": _save_decomposed,
    "traced": _save_traced,
    "scripted": _save_scripted,
    "onnx": _save_onnx,
}
