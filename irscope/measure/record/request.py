"""The request for a recording, in a form that can be handed to another process, and values of inputs that the user brings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.dtypes import DTYPES_BY_TEXT
from irscope.recording.records import ModelRecord
from irscope.training import StepOptions

TORCH = "torch"
ORT = "ort"


@immutable
class InputSpec:
    """An input with all its sizes."""

    name: str
    dtype: str
    """As irscope writes element types: f32."""
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run."""

    executor: str = TORCH
    device: str = "cpu"
    repeats: int = 20
    warmup: int = 3
    threads: int = 0
    """0: as many as the executor takes by itself."""
    seed: int = 0
    optimise: bool = True
    """True where ONNX Runtime may change the graph."""
    arena: bool = True
    """True where ONNX Runtime's arena and memory patterns are on, as they are by default."""
    values: str = ""
    """A .npz file with values of inputs by name."""


@immutable
class Loop:
    """A program whose steps are recorded: a script as it is, or a step of the model in a loop of irscope's own."""

    script: str = ""
    """A file, or a module with `is_module`; empty for a step of the model."""
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    stop: bool = False
    """True where the program is ended once enough is recorded."""
    step: StepOptions = field(default_factory=StepOptions)


@immutable
class Request:
    """One model to run once, in a process of its own."""

    model: ModelRecord
    options: Options
    output: str
    inputs: tuple[InputSpec, ...] = ()
    factory: str = ""
    """For a model without a file: module:function, called with the model's name, types of its inputs, sizes, and whether code in its folder
    may run; returns the module, its arguments by position and by name, and names of the inputs."""
    scopes: Mapping[str, str] = field(default_factory=dict)
    """Module calls by the name of the node."""

    loop: Loop | None = None
    """Training steps are recorded, not a forward."""
    progress: str = ""
    """A file in which the run tells where it is: a process that is killed cannot say it."""
    trusted: bool = False
    """True where code in the folder of a model may run."""

    @property
    def executor(self) -> str:
        return f"{self.options.executor}-{self.options.device.partition(':')[0]}"

    @property
    def target(self) -> Path:
        return Path(self.output)


# Values of inputs that the user brings.


def given_values(path: str, inputs: Sequence[InputSpec]) -> Mapping[str, Any]:
    """Arrays by the names of inputs; empty without a file. Raises UsageError for a file that does not fit the model."""
    if not path:
        return {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"cannot be read as a .npz file: {error}", code="IRS478", where=path) from error
    wanted = {one.name: one for one in inputs}
    for name, array in found.items():
        if name not in wanted:
            known = ", ".join(wanted) or "none"
            raise UsageError(f"the model has no input {name!r}", code="IRS478", where=path, hint=f"inputs: {known}")
        if array.shape != wanted[name].shape:
            raise UsageError(f"--values has {array.shape} for {name}, which is {wanted[name]}", code="IRS478", where=path)
    return found


# Bytes of types as recordings write them.

_TYPE = re.compile(r"(\w+)\[([\d,]*)\]")


def type_bytes(text: str) -> int | None:
    """Return the bytes of a tensor of a type such as f32[1,3,8,8]; None where the text is no such type."""
    match = _TYPE.fullmatch(text)
    dtype = DTYPES_BY_TEXT.get(match[1]) if match else None
    if match is None or dtype is None or dtype.bits is None:
        return None
    count = math.prod(int(size) for size in match[2].split(",") if size)
    return (count * dtype.bits + 7) // 8
