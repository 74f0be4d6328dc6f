"""Which symbol a name means: its own name, or what people call the axis that it is the size of."""

from __future__ import annotations

from irscope.ir.dims import Dim, SymDim
from irscope.ir.program import Program
from irscope.ir.types import TensorType

BATCH = frozenset({"batch", "batch_size", "bs", "N"})
SEQUENCE = frozenset({"seq", "sequence", "seq_len", "sequence_length", "length", "tokens"})


def symbol_named(program: Program, name: str) -> str | None:
    """The model's own name of a symbol; None where the model has none that the name can only mean.

    Besides its own name a symbol has the others that people give to such a size: `batch_size` is a batch. Exporters often forget
    names and write s77: that is a `batch` where inputs have it as their first axis, and a `seq` where they have it as their second.
    """
    if name in program.symbols:
        return name
    role = next((role for role in (BATCH, SEQUENCE) if name in role), None)
    if role is None:
        return None
    found = [symbol for symbol in program.symbols if symbol in role]
    if not found:
        first = _nameless(program, 0)
        found = first if role is BATCH else [symbol for symbol in _nameless(program, 1) if symbol not in first]
    return found[0] if len(found) == 1 else None


def _nameless(program: Program, axis: int) -> list[str]:
    """Symbols that are this axis of an input and whose own name does not say that they are something else."""
    return [symbol for symbol in _on_axis(program, axis) if symbol not in BATCH | SEQUENCE]


def _on_axis(program: Program, axis: int) -> list[str]:
    """Symbols that are the size of this axis of an input, each once."""
    sizes: list[Dim] = []
    for value in program.graph.inputs:
        shape = value.type.shape if isinstance(value.type, TensorType) else None
        if shape is not None and axis < len(shape):
            sizes.append(shape[axis])
    names = [str(size) for size in sizes if isinstance(size, SymDim) and str(size) in program.symbols]
    return list(dict.fromkeys(names))
