"""From a path to a program, or to the list of its nodes: recognise the file, read it, apply what the user said about inputs and sizes."""

from __future__ import annotations

import importlib
import importlib.util
import os
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol, cast

from irscope.diagnostics import DiagnosticSink
from irscope.errors import IrscopeError, LoadError, UsageError, form_problem
from irscope.frontends.base import SOLE, InputError, LoadOptions, check_rank, several_inputs, stated
from irscope.frontends.detect import detect, wrapper_in
from irscope.frontends.zoo.names import file_in, inside, is_name
from irscope.ir.bind import bind_program, substitute_symbols, symbol_named
from irscope.ir.dims import Dim, SymDim
from irscope.ir.program import Program, state_no_more
from irscope.ir.types import TensorType
from irscope.ir.verify import check

_WITH_METHODS = ("exported", "torchscript", "inductor.package", "stablehlo")


def path_of(text: str) -> Path:
    """Return where the model of a text is: a name as it is, a file, or the model in a folder; raises for what is none of these."""
    path = Path(text)
    if is_name(text):
        return path
    if os.path.isdir(text):
        wrapper = wrapper_in(path)
        return file_in(path) if wrapper is None else inside(path, str(wrapper.relative_to(path)))
    if not os.path.lexists(text) and "\0" not in text:
        from irscope.frontends.zoo.packages import not_found

        raise not_found(text)
    return path


def load_program(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Return the model in a file as a program."""
    kind = detect(path)
    if options.method and kind.frontend not in _WITH_METHODS:
        raise UsageError(f"a {kind.name} file has no methods to choose from", code="IRS623", hint="leave --method out")
    if options.use_torch:
        _say_whether_torch_helps(kind.frontend or "", sink)
    frontend = kind.reader()
    try:
        program = frontend.load(path, options, sink)
        if kind.added is not None:
            _check_added(program, path)
    except (RecursionError, MemoryError) as error:
        raise LoadError(f"the file needs more than may be read ({form_problem(error)})", code="IRS106", where=str(path)) from None
    except InputError:
        raise
    except UsageError as error:  # about a size or a formula, which the file gives and not the user
        raise LoadError(error.message, code=error.code, where=str(path), hint=error.hint) from error
    except IrscopeError:
        raise
    except Exception as error:  # a reader meets something that its author did not think of: the file's fault until proven otherwise
        place = traceback.extract_tb(error.__traceback__)[-1]
        reader = f"{Path(place.filename).stem}:{place.lineno}"
        whom = "" if kind.added is None else f" to {kind.added.owner}"
        raise LoadError(
            f"the file does not have the form of a {kind.name} model ({form_problem(error)}, at {reader})",
            code="IRS107",
            where=str(path),
            hint=f"save it again; if other programs read it, please report it{whom} with the output of --debug",
        ) from error
    program.path = str(path)
    return settled(program, options)


def settled(program: Program, options: LoadOptions) -> Program:
    """Return a program that was read, with what the user said about its inputs and sizes."""
    check_sizes(program)
    apply_inputs(program, options)
    if program.format == "onnx":
        values = (*program.graph.inputs, *(output for node in program.graph for output in node.outputs))
        program.declared = {value: program.declared.get(value, value.type) for value in values}
        state_no_more(program)
    bind_program(program, options.bind)
    return program


def _check_added(program: object, path: Path) -> None:
    """Check that a program from a package's frontend keeps the rules of the IR."""
    if not isinstance(program, Program):
        raise TypeError(f"its frontend returned {type(program).__name__}, no Program")
    program.path = str(path)
    check(program)


def check_sizes(program: Program) -> None:
    """Raise LoadError for an input or weight that cannot be, so that what counts bytes need not be ready for any number."""
    for body in program.bodies():
        for value in (*body.inputs, *body.weights):
            if not value.type.is_possible:
                raise LoadError(
                    f"{value.name or 'an input'!r} is {value.type}: a size is negative, or it has more bytes than 64 bits can count",
                    code="IRS108",
                    where=program.path,
                    hint="the file is damaged or hostile",
                )


def _say_whether_torch_helps(frontend: str, sink: DiagnosticSink) -> None:
    if frontend != "torchscript":
        sink.warn("IRS173", "--use-torch has no effect here: only TorchScript files lack types", about="--use-torch")
    elif importlib.util.find_spec("torch") is None:
        sink.warn("IRS173", "--use-torch was given, but torch is not installed", hint="install torch, or leave it out", about="--use-torch")


def apply_inputs(program: Program, options: LoadOptions) -> None:
    """Give inputs the types a user stated; an input is named or counted."""
    inputs = program.graph.inputs
    by_name = {value.name: value for value in inputs}
    typed = {str(one) for given in options.inputs.values() for dim in given.shape or () if isinstance(dim, SymDim) for one in dim.symbols()}
    bound = {symbol_named(program, name) for name in options.bind.keys() - typed}
    replaced: dict[str, set[Dim]] = {}
    with_axes = [str(place) for place, value in enumerate(inputs) if value.type.shape != ()]
    for key, given in options.for_inputs(with_axes or ["0"]).inputs.items():
        value = by_name.get(key) or (inputs[int(key)] if key.isdigit() and int(key) < len(inputs) else None)
        if value is None:
            known = ", ".join(value.name or str(index) for index, value in enumerate(inputs)) or "none"
            if key == SOLE and inputs:
                raise UsageError(several_inputs(len(inputs)), code="IRS623", where=program.path, hint=f"NAME=SIZES; inputs: {known}")
            raise UsageError(
                f"the model has no input {key!r}" if key else "the model has no inputs", code="IRS623", hint=f"inputs: {known}"
            )
        before = value.type
        check_rank(given, before, value.name or key)
        type_ = stated(given, before, value.name or key)
        program.graph.set_type(value, type_)
        if isinstance(type_, TensorType) and type_ is not before:
            named = (one for dim in type_.shape or () if isinstance(dim, SymDim) for one in dim.symbols())
            program.symbols.update((str(one), one) for one in named if str(one) not in program.symbols)
            for old, new in zip(before.shape or (), type_.shape or (), strict=False):
                if str(old) in program.symbols and str(old) not in bound:
                    replaced.setdefault(str(old), set()).add(new)
    # A symbol is one size wherever it stands, also in inputs whose types nobody stated.
    made = {name: sizes.pop() for name, sizes in replaced.items() if len(sizes) == 1}
    bind_program(program, {name: size for name, size in made.items() if isinstance(size, int)})
    symbols = {name: size for name, size in made.items() if isinstance(size, SymDim) and str(size) in program.symbols.keys() - made.keys()}
    substitute_symbols(program, symbols)


_READERS = {"onnx": "irscope.frontends.onnx.nodefile", "exported": "irscope.frontends.exported.nodefile"}


class NodeFile(Protocol):
    """A file whose main graph is a list of nodes."""

    suffix: ClassVar[str]
    """Suffix of the names of such files."""
    needs: list[tuple[int, ...]]
    """For each node, by its number in the file, those whose results it reads."""
    names: Sequence[str]
    """Name of each node in the file; empty where it has none."""

    def write(self, order: Sequence[int], target: Path) -> list[Path]:
        """Write a copy whose main graph lists the nodes in another order, and nothing else differs. Returns the files written."""
        ...


def open_nodes(path: Path, method: str = "") -> NodeFile:
    """Return the nodes of a file; UsageError for formats that do not list them."""
    kind = detect(path)
    module = _READERS.get(kind.frontend or "")
    if module is None:
        raise UsageError(
            f"a {kind.name} file does not list its nodes, so that they cannot be put into another order",
            code="IRS357",
            where=str(path),
            hint="bring the model as .onnx or .pt2, or write the graph as text: -o FILE.irs",
        )
    return cast("NodeFile", importlib.import_module(module).open_file(path, method))
