"""What every frontend is given and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from irscope.budget import Allowance
from irscope.diagnostics import DiagnosticSink
from irscope.ir.program import Program
from irscope.ir.types import Type


@dataclass(frozen=True)
class LoadOptions:
    """What a user may say about a model that is being read."""

    inputs: Mapping[str, Type] = field(default_factory=dict)
    """Types of inputs by name (or by position: "0"), from `--input`."""
    bind: Mapping[str, int] = field(default_factory=dict)
    """Sizes of symbols, from `--bind`; applied to the whole program after it was read."""
    use_torch: bool = False
    """Whether torch may be asked for types of operators that irscope does not know."""
    open_sizes: frozenset[str] = frozenset()
    """Sizes of a named model that stay open, such as its batch; others have a default."""
    keep_calls: bool = False
    """Whether the program is to hold the calls of PyTorch's operators that its nodes were made of, to be made again."""
    method: str = ""
    """Which method or program of a file that holds several; empty for the usual one."""
    allowance: Allowance | None = None
    """Work and memory that reading may take, from `--budget`; None for the default."""


class Frontend(Protocol):
    """A reader of one kind of file. It executes nothing, and it reads weights only where shapes depend on them."""

    def load(self, path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
        """The file as a program; raises LoadError with one clear line where it cannot be read."""
        ...


class AddedFrontend(Frontend, Protocol):
    """A reader that an installed package adds: an entry point of the group `irscope.frontends`, named like the kind of file."""

    def recognises(self, head: bytes, path: Path) -> bool:
        """Whether a file is of the kind, by its first 4096 bytes, where irscope itself does not surely know it. It has to be quick."""
        ...
