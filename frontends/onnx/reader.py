"""Opens an .onnx file and parses it; large weights stay in the file, external ones are not even looked for."""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from irscope.budget import admit
from irscope.errors import LoadError
from irscope.frontends.onnx.failures import NOT_ONNX, TOO_LARGE, UNREADABLE, refuse
from irscope.frontends.onnx.wire import LARGE_DATA, Buffer, StoredData, WireError, take_out_data

_MAPPED_FROM = 64 * 1024 * 1024
_LARGEST_MESSAGE = 2**31 - 1


@dataclass
class ModelFile:
    """A parsed model with what is needed to find the data of its tensors."""

    proto: onnx.ModelProto
    path: Path | None = None
    """The file, absolute but with its links unresolved; None for a model that was given as a message."""
    stored: StoredData | None = None

    @property
    def where(self) -> str:
        return str(self.path) if self.path is not None else "model"


def read_file(path: Path) -> ModelFile:
    """Open and parse a file; nothing besides it is touched."""
    where = str(path)
    absolute = Path(os.path.abspath(path))
    try:
        descriptor = os.open(absolute, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise refuse(UNREADABLE, f"cannot open the file: {reason}", where) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise refuse(UNREADABLE, "not a regular file", where, "give the path of an .onnx file")
        if status.st_size == 0:
            raise refuse(UNREADABLE, "the file is empty", where, "download or export the model again")
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped:
            return parse(mapped if status.st_size >= _MAPPED_FROM else mapped.read(), where, absolute)
    finally:
        os.close(descriptor)


def parse(buffer: Buffer, where: str = "model", path: Path | None = None) -> ModelFile:
    """A model from its bytes; data of large tensors is left where it is if the bytes are those of a file."""
    stored: StoredData | None = None
    if path is not None and len(buffer) > LARGE_DATA:
        found = _without_data(buffer)
        if isinstance(found, str):
            raise _not_onnx(where, f"the file is damaged or cut short ({found})")
        data, stored = found
    else:
        data = bytes(buffer)
    if len(data) > _LARGEST_MESSAGE:
        raise refuse(TOO_LARGE, "the graph alone has more than 2 GiB", where, "such a message cannot have been written by protobuf")
    admit(len(data))
    try:
        proto = onnx.ModelProto.FromString(data)
    except (DecodeError, RuntimeError, ValueError):
        hint = "export or download it again; messages nested more than 100 deep are refused too"
        raise _not_onnx(where, "the file is damaged, cut short, or no ONNX model", hint) from None
    if not proto.HasField("graph"):
        raise _not_onnx(where, "the file holds no ONNX graph", "give the path of an .onnx model")
    return ModelFile(proto, path, stored)


def _without_data(buffer: Buffer) -> tuple[bytes, StoredData] | str:
    """The model without its data, or what is wrong with it: an exception would keep the mapped file in use."""
    try:
        return take_out_data(buffer)
    except (WireError, IndexError) as error:
        return str(error)


def _not_onnx(where: str, message: str, hint: str = "export or download it again") -> LoadError:
    return refuse(NOT_ONNX, message, where, hint)
