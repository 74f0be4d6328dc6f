"""Reads an ONNX model into a program."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.onnx.body import Body, Operators
from irscope.frontends.onnx.failures import BAD_GRAPH, BAD_INPUT_OPTION, INPUT_WITH_VALUE, NOT_ONNX, TOO_LARGE, TRAINING_INFO, refuse, short
from irscope.frontends.onnx.model import Model, model_opsets, show_opsets
from irscope.frontends.onnx.reader import ModelFile, parse, read_file
from irscope.frontends.onnx.scopes import Scopes
from irscope.ir.graph import paused_gc
from irscope.ir.program import ONNX, Assumed, Program
from irscope.ir.types import UNKNOWN_TENSOR, Type

_FIRST_IR_WITH_OPTIONAL_DEFAULTS = 4
_MOST_METADATA = 100
_LONGEST_METADATA = 4096


def load(path: Path, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """The ONNX file as a program. Nothing in it is executed, and external data are not opened unless shapes need them."""
    return _program(read_file(Path(path)), options, sink)


def load_model(
    model: onnx.ModelProto | bytes, base_dir: Path | None = None, options: LoadOptions | None = None, sink: DiagnosticSink | None = None
) -> Program:
    """A model in memory as a program; external data are looked for in `base_dir`, or not at all."""
    file = parse(model) if isinstance(model, bytes) else ModelFile(model)
    if base_dir is not None:
        file.path = Path(base_dir).absolute() / "model.onnx"
    return _program(file, options or LoadOptions(), sink if sink is not None else DiagnosticSink())


def _program(file: ModelFile, options: LoadOptions, sink: DiagnosticSink) -> Program:
    with paused_gc():
        try:
            return _Loader(file, options, sink).load()
        except LoadError as error:
            if not error.where.startswith(file.where):
                error.where = f"{file.where}, {error.where}" if error.where else file.where
            raise
        except (TypeError, AttributeError):
            field = _bad_text(file.proto)
            if field is None:
                raise
            raise refuse(NOT_ONNX, f"a text in it ({field}) is not UTF-8", file.where, "the file is damaged") from None
        except RecursionError:
            raise refuse(TOO_LARGE, "its graphs or types are nested too deeply", file.where) from None


class _Loader:
    """Lowers the main graph of one model."""

    def __init__(self, file: ModelFile, options: LoadOptions, sink: DiagnosticSink) -> None:
        self._file = file
        self._proto = file.proto
        self._options = options
        self._sink = sink
        self._model = Model(file, sink)
        self._assumed: list[Assumed] = []
        self._opsets = model_opsets(file.proto, sink, self._assumed)

    def load(self) -> Program:
        model, graph = self._model, self._proto.graph
        model.functions.check_size(graph)
        body = Body(Operators(model), model.graph, self._opsets, Scopes(model.graph.scope))
        self._add_inputs(body, graph)
        body.add_initializers(graph)
        body.declare(graph.value_info)
        body.declare(graph.output)
        body.lower_nodes(graph.node)
        names = [info.name for info in graph.output]
        for name in names:
            if not body.knows(name):
                raise refuse(BAD_GRAPH, f"nothing makes the output '{short(name)}'", self._file.where, "the model is damaged or incomplete")
        model.graph.set_outputs(body.results(names))
        if self._proto.training_info:
            self._sink.note(TRAINING_INFO, "the file describes its training too; only the inference graph was read")
        path = str(self._file.path) if self._file.path is not None else ""
        symbols = dict(model.symbols.named)
        return Program(
            model.graph,
            symbols=symbols,
            format="onnx",
            path=path,
            metadata=self._metadata(),
            origins=body.origins,
            assumed=self._assumed,
            traits=ONNX,
        )

    def _add_inputs(self, body: Body, graph: onnx.GraphProto) -> None:
        given = dict(self._options.inputs)
        with_value = {tensor.name for tensor in graph.initializer} | {tensor.values.name for tensor in graph.sparse_initializer}
        defaults = 0
        position = 0
        for info in graph.input:
            name = info.name
            asked = given.pop(name, None)
            if name in with_value:
                defaults += 1
                if asked is not None:
                    raise refuse(
                        BAD_INPUT_OPTION,
                        f"the input '{short(name)}' has a value in the file",
                        self._file.where,
                        "it is analysed as a weight; its type cannot be changed",
                    )
                continue
            asked = asked if asked is not None else given.pop(str(position), None)
            position += 1
            type_ = self._input_type(info) if asked is None else asked
            if asked is not None:
                self._model.symbols.adopt(asked)
            body.define(name, body.graph.add_input(type_, body.new_name(name)))
        if given:
            known = ", ".join(short(info.name) for info in list(graph.input)[:12] if info.name not in with_value)
            raise refuse(BAD_INPUT_OPTION, f"the model has no input '{short(next(iter(given)))}'", self._file.where, f"its inputs: {known}")
        if defaults and self._proto.ir_version >= _FIRST_IR_WITH_OPTIONAL_DEFAULTS:
            self._sink.note(INPUT_WITH_VALUE, f"{defaults} inputs have a value in the file and are taken as weights")

    def _input_type(self, info: onnx.ValueInfoProto) -> Type:
        return self._model.types.of_input(info.type, info.name) if info.HasField("type") else UNKNOWN_TENSOR

    def _metadata(self) -> dict[str, str]:
        proto = self._proto
        found = {
            "producer": f"{_as_text(proto.producer_name)} {_as_text(proto.producer_version)}".strip(),
            "ir_version": str(proto.ir_version),
            "opsets": show_opsets(self._opsets),
            "graph": _as_text(proto.graph.name),
            "domain": _as_text(proto.domain),
            "model_version": str(proto.model_version) if proto.model_version else "",
            "description": _as_text(proto.doc_string)[:_LONGEST_METADATA],
        }
        found.update({f"symbol.{name}": text[:_LONGEST_METADATA] for name, text in self._model.symbols.spelling.items()})
        for entry in list(proto.metadata_props)[:_MOST_METADATA]:
            found.setdefault(f"file.{_as_text(entry.key)[:100]}", _as_text(entry.value)[:_LONGEST_METADATA])
        return {key: value for key, value in found.items() if value}


# Texts that are not UTF-8: reading such a field gives bytes, which every use of a name then trips over.


def _bad_text(message: Message) -> str | None:
    """The name of a text field somewhere in a message whose content is not UTF-8; None where all are fine."""
    pending = [message]
    while pending:
        for field, value in pending.pop().ListFields():
            items = [value] if not hasattr(value, "__len__") or isinstance(value, str | bytes) else value
            if field.type == FieldDescriptor.TYPE_STRING:
                if any(isinstance(item, bytes) for item in items):
                    return str(field.full_name)
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                pending.extend(items)
    return None


def _as_text(value: str | bytes) -> str:
    """A text that may be shown, whatever the file holds."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
