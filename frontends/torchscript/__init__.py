"""Reads TorchScript archives without torch: their code is Python syntax, evaluated abstractly.

Everything that is not a tensor (numbers, lists, strings, modules) is computed; operations on tensors become nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from irscope.budget import OverBudget
from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.files.archive import Archive
from irscope.frontends.torch_lowering.fake import FakeTypes
from irscope.frontends.torchscript.emit import Emitter
from irscope.frontends.torchscript.inputs import Guess, Inputs, Types, Verdict, find_use, guess_types
from irscope.frontends.torchscript.interpreter import Interpreter
from irscope.frontends.torchscript.state import Origins, Pickles, State
from irscope.frontends.torchscript.values import Function, Item, KnownTensor, ScriptObject, ScriptRaise, Source, TensorList
from irscope.ir.graph import Graph, Value, paused_gc
from irscope.ir.program import TORCHSCRIPT, Assumed, Program
from irscope.ir.types import Type

_RECURSION = 20_000


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Return the program in a TorchScript archive; weights stay in the file and nothing is executed."""
    with Archive(path) as archive, paused_gc():
        return read_model(archive, options, sink)


def read_model(archive: Archive, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """Return the program in the archive."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION))
    try:
        return _Reader(archive, options, sink).read()
    except RecursionError:
        raise LoadError("the code is nested too deeply", code="IRS182", where=str(archive.path)) from None
    finally:
        sys.setrecursionlimit(limit)


class _Reader:
    """Reads the model, and before that tries types for inputs that the user did not give."""

    def __init__(self, archive: Archive, options: LoadOptions, sink: DiagnosticSink) -> None:
        self._archive = archive
        self._options = options
        self._sink = sink
        self._source = Source(archive)
        self._pickles = Pickles(archive)

    def read(self) -> Program:
        """Return the program, its inputs as recorded, given or guessed."""
        run = self._run(self._sink)
        missing = [] if run.is_traced else run.inputs.missing()
        if not missing:
            return run.program({})
        guess = self._guess(run, missing)
        if guess is None:
            example = " ".join(f"--input {name}=f32[1,3,224,224]" for name in missing)
            raise run.inputs.error(
                f"a scripted model does not say what it is called with; the types of {', '.join(missing)} are needed",
                f"for example `{example}`",
            )
        given = " ".join(f"--input {name}={type_}" for name, type_ in guess.types.items())
        said = ", ".join(f"{name}={type_}" for name, type_ in guess.types.items())
        self._sink.warn(
            "IRS186", f"types of inputs are guessed from their use, at {guess.how}: {said}", hint=f"`{given}` gives them", about="inputs"
        )
        program = self._run(self._sink).program(guess.types)
        program.assumed[:0] = [
            Assumed(name, str(type_), f"guessed from its use, at {guess.how}; --input {name}=TYPE gives the real type")
            for name, type_ in guess.types.items()
        ]
        return program

    def _run(self, sink: DiagnosticSink) -> _Run:
        return _Run(self._archive, self._options, sink, self._source, self._pickles)

    def _guess(self, run: _Run, missing: list[str]) -> Guess | None:
        if any(run.method.annotation(name) not in ("Tensor", "") for name in missing):
            return None
        uses = {name: find_use(self._source, run.constants, run.module, run.method, name) for name in missing}
        return guess_types(uses, self._accepts)

    def _accepts(self, types: Types) -> Verdict:
        """Return whether the code can be followed with these types, and no operator contradicts them."""
        sink = DiagnosticSink()
        run = self._run(sink)
        try:
            run.program(types)
        except OverBudget:
            raise
        except LoadError:
            return Verdict(False, run.compared)
        return Verdict(all(diagnostic.code != "IRS172" for diagnostic in sink), run.compared)


class _Run:
    """One abstract run of a method."""

    def __init__(self, archive: Archive, options: LoadOptions, sink: DiagnosticSink, source: Source, pickles: Pickles) -> None:
        self._path = str(archive.path)
        self._graph = Graph()
        self._emitter = Emitter(self._graph, sink, self._path, FakeTypes(sink) if options.use_torch else None)
        self._emitter.calls = {} if options.keep_calls else None
        state = State(archive, source, self._emitter, pickles)
        self.module = state.root()
        self.constants = state.constants()
        self.method = _method(self.module, options.method, self._path)
        traced = state.traced_inputs()
        # The ranges of scripted code hold its source, which says no more than the code.
        origins = Origins(archive, pickles) if traced else None
        self._interpreter = Interpreter(source, self._emitter, self.constants, self._path, origins)
        for item, saved in state.saved:
            self._interpreter.call_method(item, "__setstate__", [saved], {})
        self.inputs = Inputs(self.method, options, self._emitter, sink)
        self._traced = traced.get(self.method.name.rpartition(".")[2])

    @property
    def compared(self) -> list[tuple[int, int]]:
        """Whole numbers that the code compared with one another."""
        return list(self._interpreter.compared)

    @property
    def is_traced(self) -> bool:
        return self._traced is not None

    def program(self, guessed: Mapping[str, Type]) -> Program:
        """Return the program that the method's run leaves."""
        arguments: list[Item] = self.inputs.traced(self._traced) if self._traced is not None else []
        named = self.inputs.scripted(guessed) if self._traced is None else {}
        try:
            item = self._interpreter.call_method(self.module, self.method.name.rpartition(".")[2], arguments, named)
        except ScriptRaise as error:
            raise LoadError(
                f"for these inputs the model raises: {error}", code="IRS184", where=self._path, hint="give other inputs with --input"
            ) from None
        self._graph.set_outputs(self._outputs(item))
        dialect = "script" if self._traced is None else "trace"
        metadata = {"producer": "TorchScript", "dialect": dialect, "class": self.module.cls.name}
        program = Program(self._graph, {}, self.inputs.symbols, "torchscript", self._path, metadata=metadata, traits=TORCHSCRIPT)
        program.assumed, program.calls = list(self.inputs.assumed), self._emitter.calls or {}
        return program

    def _outputs(self, item: Item) -> list[Value]:
        """Return the tensors of what the model returns, in order."""
        values: list[Value] = []
        pending: list[Item] = [item]
        while pending:
            part = pending.pop()
            self._interpreter.step()
            part = self._emitter.value_of(part) if isinstance(part, KnownTensor) else part
            if isinstance(part, Value):
                values.append(part)
            elif isinstance(part, TensorList):
                values.append(part.value)
            elif isinstance(part, list | tuple):
                pending.extend(reversed(part))
            elif isinstance(part, dict):
                pending.extend(reversed(list(part.values())))
            elif isinstance(part, ScriptObject) and not part.cls.is_module:
                pending.extend(reversed([part.attrs.get(name) for name in part.cls.fields]))
        return values


def _method(module: ScriptObject, wanted: str, path: str) -> Function:
    """Return the method to follow; one that is overloaded is stored with a number, the usual form first."""
    methods = module.cls.methods
    for name in (wanted or "forward", f"{wanted or 'forward'}__0", *(() if wanted else ("forward1",))):
        if name in methods:
            return methods[name]
    known = ", ".join(name for name in methods if not name.startswith("__")) or "none"
    raise LoadError(
        f"the module {module.cls.name} has no method {wanted or 'forward'}",
        code="IRS182",
        where=path,
        hint=f"its methods are {known}; --method names one",
    )
