"""The parts of a `.pt2` archive put together: versions, signature, weights, graph."""

from __future__ import annotations

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.exported.body import BodyReader
from irscope.frontends.exported.expressions import Symbols
from irscope.frontends.exported.metadata import Locations, Scopes
from irscope.frontends.exported.signature import declare_inputs, set_outputs
from irscope.frontends.exported.tensors import Json, Types, Weights, devices, read_json
from irscope.frontends.torch_common.archive import Archive
from irscope.frontends.torch_common.names import Names
from irscope.ir.graph import Graph
from irscope.ir.program import Program

_MAJOR, _MINOR = 8, 20
_EXPORT_AGAIN = "export the model again with a current torch: torch.export.save(torch.export.export(model, args), 'model.pt2')"


def read_model(archive: Archive, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """The program of the archive's model."""
    name = _model_name(archive, sink)
    document = read_json(archive, f"models/{name}.json")
    try:
        return _Model(archive, name, document, options, sink).read()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise LoadError(
            f"models/{name}.json does not have the form of an exported program ({type(error).__name__}: {str(error)[:80]})",
            code="IRS135",
            where=str(archive.path),
            hint=_EXPORT_AGAIN,
        ) from error


def _model_name(archive: Archive, sink: DiagnosticSink) -> str:
    if "serialized_exported_program.json" in archive:
        raise LoadError(
            "the file has the layout that torch.export wrote before torch 2.8", code="IRS136", where=str(archive.path), hint=_EXPORT_AGAIN
        )
    names = [name.removeprefix("models/").removesuffix(".json") for name in archive.names("models/") if name.endswith(".json")]
    if not names:
        raise LoadError("the archive holds no models/*.json", code="IRS136", where=str(archive.path), hint=_EXPORT_AGAIN)
    chosen = "model" if "model" in names else names[0]
    if len(names) > 1:
        others = ", ".join(name for name in names if name != chosen)
        sink.note("IRS137", f"the archive holds several models; {chosen!r} was read, not {others}", about="models")
    return chosen


class _Model:
    def __init__(self, archive: Archive, name: str, document: Json, options: LoadOptions, sink: DiagnosticSink) -> None:
        self._archive = archive
        self._name = name
        self._document = document
        self._options = options
        self._sink = sink

    def read(self) -> Program:
        """Read everything."""
        self._check_version()
        module = self._document["graph_module"]
        symbols = Symbols(self._document.get("range_constraints") or {})
        found = list(dict.fromkeys(devices(module["graph"])))
        types = Types(symbols, "cpu" if found == ["cpu"] else "")
        graph = Graph()
        names = Names()
        body = BodyReader(graph, types, names, Scopes(graph.scope), Locations(), self._sink, str(self._archive.path))
        weights = Weights(self._archive, self._name)
        declare_inputs(body, module, weights, self._options)
        body.add_nodes(module["graph"])
        set_outputs(body, module)
        version = self._document["schema_version"]
        metadata = {
            "producer": f"torch {self._document.get('torch_version', '?')}",
            "schema": f"{version['major']}.{version['minor']}",
            "dialect": ", ".join(str(item) for item in self._document.get("verifiers") or ()),
        }
        return Program(graph, {}, dict(symbols.named), "pt2", str(self._archive.path), metadata=metadata)

    def _check_version(self) -> None:
        version = self._document["schema_version"]
        major, minor = int(version["major"]), int(version["minor"])
        if major != _MAJOR:
            raise LoadError(
                f"the file has schema version {major}.{minor}, irscope reads {_MAJOR}.x",
                code="IRS136",
                where=str(self._archive.path),
                hint=_EXPORT_AGAIN,
            )
        if minor > _MINOR:
            self._sink.warn("IRS138", f"the file has schema version {major}.{minor}, newer than {_MAJOR}.{_MINOR}", about="schema")
