"""What is to be recorded, in a form that can be handed to another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from irscope.recording.records import ModelRecord

TORCH = "torch"
ORT = "ort"


@dataclass(frozen=True, slots=True)
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
    """How to run it."""

    executor: str = TORCH
    device: str = "cpu"
    repeats: int = 20
    warmup: int = 3
    threads: int = 0
    """0: as many as the executor takes by itself."""
    seed: int = 0
    optimise: bool = True
    """Whether ONNX Runtime may change the graph."""
    arena: bool = True
    """Whether ONNX Runtime's arena and memory patterns are on, as they are by default."""
    values: str = ""
    """A .npz file with values of inputs by name."""


@dataclass(frozen=True, slots=True)
class Request:
    """One model to run once, in a process of its own."""

    model: ModelRecord
    options: Options
    output: str
    inputs: tuple[InputSpec, ...] = ()
    factory: str = ""
    """For a model without a file: module:function, called with the model's name, types of its inputs and sizes; returns the module,
    its arguments by position and by name, and names of the inputs."""
    scopes: Mapping[str, str] = field(default_factory=dict)
    """Module calls by the name of the node."""

    progress: str = ""
    """A file in which the run tells where it is: a process that is killed cannot say it."""

    @property
    def executor(self) -> str:
        return f"{self.options.executor}-{self.options.device.partition(':')[0]}"

    @property
    def target(self) -> Path:
        return Path(self.output)
