"""A TorchScript archive as a program: objects, inputs, and one abstract run of `forward`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.torch_common.archive import Archive
from irscope.frontends.torch_common.payloads import pickled_type
from irscope.frontends.torch_common.pickled import PickledTensor
from irscope.frontends.torchscript.emit import Emitter
from irscope.frontends.torchscript.interpreter import Interpreter
from irscope.frontends.torchscript.source import Function, Source
from irscope.frontends.torchscript.state import State
from irscope.frontends.torchscript.values import Item, KnownTensor, ScriptObject, ScriptRaise
from irscope.ir.dims import SymDim
from irscope.ir.graph import Graph, Value
from irscope.ir.program import Program
from irscope.ir.types import TensorType, Type, tensor

_RECURSION = 20_000


def read_model(archive: Archive, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """The program in the archive."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION))
    try:
        return _Model(archive, options, sink).read()
    except RecursionError:
        raise LoadError("the code is nested too deeply", code="IRS182", where=str(archive.path)) from None
    finally:
        sys.setrecursionlimit(limit)


class _Model:
    def __init__(self, archive: Archive, options: LoadOptions, sink: DiagnosticSink) -> None:
        self._archive = archive
        self._options = options
        self._graph = Graph()
        self._emitter = Emitter(self._graph, sink, str(archive.path))
        self._source = Source(archive)
        self._state = State(archive, self._source, self._emitter)
        self._symbols: dict[str, SymDim] = {}

    def read(self) -> Program:
        """Read objects, run `forward`."""
        module = self._state.root()
        method = module.cls.methods.get("forward")
        if method is None:
            raise LoadError(
                f"the module {module.cls.name} has no method forward",
                code="IRS182",
                where=str(self._archive.path),
                hint="save a module that can be called",
            )
        interpreter = Interpreter(self._source, self._emitter, self._state.constants(), str(self._archive.path))
        traced = self._state.traced_inputs().get("forward")
        arguments, named = self._arguments(module, method, traced)
        try:
            found = interpreter.call_method(module, "forward", arguments, named)
        except ScriptRaise as error:
            raise LoadError(
                f"for these inputs the model raises: {error}",
                code="IRS184",
                where=str(self._archive.path),
                hint="give other inputs with --input",
            ) from None
        self._graph.set_outputs(self._outputs(found))
        kind = "script" if traced is None else "trace"
        return Program(
            self._graph,
            {},
            self._symbols,
            "torchscript",
            str(self._archive.path),
            metadata={"producer": "TorchScript", "dialect": kind, "class": module.cls.name},
        )

    # -- inputs ----------------------------------------------------------------------------------------------------

    def _arguments(self, module: ScriptObject, method: Function, traced: Sequence[object] | None) -> tuple[list[Item], dict[str, Item]]:
        names = method.params[1:]
        self._check_names(names)
        if traced is not None:
            return [
                self._traced(item, names[index] if index < len(names) else f"input{index}", str(index)) for index, item in enumerate(traced)
            ], {}
        named: dict[str, Item] = {}
        missing: list[str] = []
        for index, name in enumerate(names):
            given = self._options.inputs.get(name) or self._options.inputs.get(str(index))
            if given is not None:
                named[name] = self._input(name, given)
            elif method.default(name) is None:
                if method.annotation(name).startswith("Optional["):
                    named[name] = None
                else:
                    missing.append(name)
        if missing:
            example = " ".join(f"--input {name}=f32[1,3,224,224]" for name in missing)
            raise LoadError(
                f"a scripted model does not say what it is called with; the types of {', '.join(missing)} are needed",
                code="IRS185",
                where=str(self._archive.path),
                hint=f"for example {example}",
            )
        return [], named

    def _check_names(self, names: Sequence[str]) -> None:
        known = {*names, *(str(index) for index in range(len(names)))}
        for name in self._options.inputs:
            if name not in known and name.partition(".")[0] not in known:
                raise LoadError(
                    f"the model has no input {name!r}",
                    code="IRS185",
                    where=str(self._archive.path),
                    hint=f"its inputs are {', '.join(names)}",
                )

    def _traced(self, item: object, name: str, position: str) -> Item:
        if isinstance(item, PickledTensor):
            given = self._options.inputs.get(name) or self._options.inputs.get(position)
            return self._input(name, given if isinstance(given, TensorType) else pickled_type(item))
        if isinstance(item, list):
            return [self._traced(part, f"{name}.{index}", f"{position}.{index}") for index, part in enumerate(item)]
        if isinstance(item, tuple):
            return tuple(self._traced(part, f"{name}.{index}", f"{position}.{index}") for index, part in enumerate(item))
        if isinstance(item, dict):
            return {key: self._traced(part, f"{name}.{key}", f"{position}.{key}") for key, part in item.items()}
        return item

    def _input(self, name: str, type_: Type) -> Value:
        if isinstance(type_, TensorType) and type_.shape is not None:
            for dim in type_.shape:
                if isinstance(dim, SymDim):
                    for part in dim.symbols():
                        self._symbols[str(part)] = part
            type_ = tensor(type_.dtype, type_.shape, type_.device, type_.layout)
        return self._graph.add_input(type_, self._emitter.names.unique(name))

    # -- outputs ---------------------------------------------------------------------------------------------------

    def _outputs(self, item: Item) -> list[Value]:
        """Tensors of what the model returns, in order."""
        found: list[Value] = []
        pending: list[Item] = [item]
        while pending:
            part = pending.pop()
            part = self._emitter.value_of(part) if isinstance(part, KnownTensor) else part
            if isinstance(part, Value):
                found.append(part)
            elif isinstance(part, list | tuple):
                pending.extend(reversed(part))
            elif isinstance(part, dict):
                pending.extend(reversed(list(part.values())))
            elif isinstance(part, ScriptObject) and not part.cls.is_module:
                pending.extend(reversed([part.attrs.get(name) for name in part.cls.fields]))
        return found
