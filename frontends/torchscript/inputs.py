"""What a method is called with: recorded by tracing, given by the user, or missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.torch_common.payloads import pickled_type
from irscope.frontends.torch_common.pickled import PickledTensor
from irscope.frontends.torchscript.emit import Emitter
from irscope.frontends.torchscript.source import Function
from irscope.frontends.torchscript.values import Item
from irscope.ir.dims import SymDim, symbol
from irscope.ir.graph import Value
from irscope.ir.program import Assumed
from irscope.ir.types import TensorType, Type

_MOST_ITEMS = 100_000
_PLAIN: dict[str, Item] = {"float": 1.0, "bool": False}


class Inputs:
    """Arguments of the method that is read; tensors become inputs of the graph."""

    def __init__(self, method: Function, options: LoadOptions, emitter: Emitter, sink: DiagnosticSink) -> None:
        self._method = method
        self._options = options
        self._emitter = emitter
        self._sink = sink
        self.names = method.params[1:]
        self.symbols: dict[str, SymDim] = {}
        self.assumed: list[Assumed] = []
        self._items = 0
        known = {*self.names, *(str(index) for index in range(len(self.names)))}
        for name in options.inputs:
            if name not in known and name.partition(".")[0] not in known:
                raise self.error(f"the model has no input {name!r}", f"its inputs are {', '.join(self.names)}")

    def error(self, what: str, hint: str) -> LoadError:
        return LoadError(what, code="IRS185", where=self._emitter.path, hint=hint)

    def traced(self, items: Sequence[object]) -> list[Item]:
        """Arguments like those that the model was traced with."""
        names = self.names
        return [self._traced(item, names[index] if index < len(names) else f"input{index}", str(index)) for index, item in enumerate(items)]

    def _traced(self, item: object, name: str, position: str) -> Item:
        self._items += 1
        if self._items > _MOST_ITEMS:
            raise self.error("the recorded inputs hold one another over and over", "the file is damaged or hostile")
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

    def missing(self) -> list[str]:
        """Inputs that are neither given, nor optional, nor numbers."""
        return [
            name
            for index, name in enumerate(self.names)
            if not self._given(name, index)
            and self._method.default(name) is None
            and not self._method.annotation(name).startswith("Optional[")
            and self._method.annotation(name) not in ("int", *_PLAIN)
        ]

    def scripted(self, guessed: Mapping[str, Type]) -> dict[str, Item]:
        """Arguments by name for a method of which no call was recorded."""
        found: dict[str, Item] = {}
        for index, name in enumerate(self.names):
            given = self._given(name, index) or ({"": guessed[name]} if name in guessed else {})
            if given:
                found[name] = self._built(name, given)
            elif self._method.default(name) is None:
                found[name] = self._default(name)
        return found

    def _given(self, name: str, index: int) -> dict[str, Type]:
        """Types that the user gave for an input; for parts of a list or dictionary by the rest of their names."""
        found: dict[str, Type] = {}
        for key, type_ in self._options.inputs.items():
            head, _, rest = key.partition(".")
            if head == name or key == str(index):
                found[rest] = type_
        return found

    def _built(self, name: str, given: Mapping[str, Type]) -> Item:
        if "" in given:
            return self._input(name, given[""])
        annotation = self._method.annotation(name).removeprefix("Optional[")
        parts = {key: self._input(f"{name}.{key}", type_) for key, type_ in given.items()}
        if annotation.startswith("Dict"):
            return dict(parts)
        if not all(key.isdigit() for key in parts):
            raise self.error(f"the parts of {name!r} are counted", f"for example `--input {name}.0=f32[1,3,224,224]`")
        ordered = [parts[key] for key in sorted(parts, key=int)]
        return tuple(ordered) if annotation.startswith("Tuple") else ordered

    def _default(self, name: str) -> Item:
        """None for what is optional; a symbol for a whole number; something plain, and said, for others."""
        annotation = self._method.annotation(name)
        if annotation == "int":
            made = symbol(name)
            self.symbols[name] = made
            return self._options.bind.get(name, made)
        if annotation in _PLAIN:
            self._sink.warn("IRS186", f"the argument {name!r} is taken to be {_PLAIN[annotation]}; the file does not say", about=name)
            self.assumed.append(Assumed(name, str(_PLAIN[annotation]), "the file does not say what the argument is"))
            return _PLAIN[annotation]
        return None

    def _input(self, name: str, type_: Type) -> Value:
        if type_.shape is not None:
            for dim in type_.shape:
                if isinstance(dim, SymDim):
                    for part in dim.symbols():
                        self.symbols[str(part)] = part
        return self._emitter.main.add_input(type_, self._emitter.names.unique(name))
