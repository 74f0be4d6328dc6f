"""Interface of frontends: the options that each is given, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import ClassVar, Final, Protocol

from irscope.budget import Allowance
from irscope.diagnostics import DiagnosticSink
from irscope.errors import UsageError
from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.ir.program import Program
from irscope.ir.types import TensorType, Type, tensor

SOLE: Final = ""
"""The key of an input that was given without a name, as `--input 1,3,224,224`: the only one."""


@immutable(slots=False)
class LoadOptions:
    """Options for reading a model."""

    inputs: Mapping[str, Type] = field(default_factory=dict)
    """Types of inputs by name (or by position: "0"; or SOLE), from `--input`; `stated` makes them whole."""
    bind: Mapping[str, int] = field(default_factory=dict)
    """Sizes of symbols, from `--bind`; applied to the whole program after it was read."""
    use_torch: bool = False
    """True where torch may be asked for types of operators that irscope does not know."""
    open_sizes: frozenset[str] = frozenset()
    """Sizes of a named model that stay open, such as its batch; others have a default."""
    keep_calls: bool = False
    """True where the program has to hold the origin of its nodes, to be made or written again: calls of operators, nodes of a file."""
    method: str = ""
    """Which method or program of a file that holds several; empty for the usual one."""
    base: str = ""
    """The folder or name of the model that an adapter goes on top of; empty for the one that the adapter names."""
    trust_remote_code: bool = False
    """True where code that lies in a model's folder may run: the user's decision, never a file's."""
    ort_level: str = "off"
    """The graph optimisations of ONNX Runtime that an ONNX file is read with: off (the file as written), basic, extended or all."""
    use_ort: bool = False
    """True where an installed ONNX Runtime is asked for that graph, by making a session in a separate process, instead of predicting it."""
    ort_device: str = ""
    """The device of that session, from `--device`: what it optimises for. Empty for a processor with AVX-512."""
    ort_vector_bits: int | None = None
    """Bits of the vectors of its processor, from a recording; None for those of the device."""
    ort: str = ""
    """The release of ONNX Runtime that optimises it, from `--ort`; as in the settings of passes."""
    file_types: Mapping[str, Type] = field(default_factory=dict)
    """Types of values by name, as inferred from the file alone: what conditions of these optimisations look at."""
    compile: bool | Mapping[str, object] = False
    """True where a named model is compiled before it is captured, from `--compile`; or arguments of torch.compile."""
    use_cache: bool = False
    """True where the program of a name may be taken from the cache on disk, and is kept there. For processes that run one command: others
    may have replaced what a module holds."""
    allowance: Allowance | None = None
    """Work and memory that reading may take, from `--budget`; None for the default."""

    def for_inputs(self, names: Sequence[str]) -> LoadOptions:
        """Return options with the type of the only input under its name. With several nothing changes: `apply_inputs` names them."""
        if SOLE not in self.inputs or len(names) != 1:
            return self
        return replace(self, inputs={names[0]: self.inputs[SOLE], **{key: type_ for key, type_ in self.inputs.items() if key != SOLE}})


class InputError(UsageError):
    """A user says about an input what the model does not admit."""

    default_code: ClassVar[str] = "IRS623"


def stated(given: Type, declared: Type | None, name: str) -> Type:
    """Return the type that a user gave for an input, with the declared element type where sizes alone were given.

    Sizes alone are one for each axis; a whole type may say that a file declares a wrong one.
    """
    if not (isinstance(given, TensorType) and lacks_dtype(given)):
        return given
    check_rank(given, declared, name)
    known = declared.dtype if isinstance(declared, TensorType) else DType.UNKNOWN
    return tensor(known if known is not DType.UNKNOWN else DType.F32, given.shape, given.device)


def lacks_dtype(given: Type) -> bool:
    """Return whether a user gave the sizes of an input alone."""
    return isinstance(given, TensorType) and given.dtype is DType.UNKNOWN


def check_rank(given: Type, declared: Type | None, name: str) -> None:
    """Raise InputError where a user gives an input another number of axes than it is declared with."""
    if not (isinstance(given, TensorType) and isinstance(declared, TensorType)) or given.shape is None or declared.shape is None:
        return
    if len(given.shape) != len(declared.shape):
        said = str(declared).replace("?file.", "")  # what a file calls a size that is the model's no more
        message = f"input {name!r} is {said}, which has {len(declared.shape)} axes, not {len(given.shape)}"
        raise InputError(message, hint="give one size per axis")


def several_inputs(count: int) -> str:
    """Return what is said of `--input 1,3,224,224` where there is not just one input."""
    return f"the model has {count} inputs: say which of them --input is about"


class Frontend(Protocol):
    """A reader of one kind of file. It executes nothing, and it reads weights only where shapes depend on them."""

    def load(self, path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
        """Return the file as a program; raises LoadError with one clear line where it cannot be read."""
        ...


class AddedFrontend(Frontend, Protocol):
    """A reader that an installed package adds: an entry point of the group `irscope.frontends`, named like the kind of file."""

    def recognises(self, head: bytes, path: Path) -> bool:
        """Return whether a file is of the kind, by its first 4096 bytes, where irscope itself is not sure. It has to be quick."""
        ...
