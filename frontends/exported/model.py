"""The parts of a `.pt2` archive put together: versions, signature, weights, graph."""

from __future__ import annotations

import json
from contextlib import closing

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.exported.body import BodyReader
from irscope.frontends.exported.metadata import Locations, Scopes
from irscope.frontends.exported.older import PROGRAM, OlderWeights
from irscope.frontends.exported.signature import declare_inputs, set_outputs
from irscope.frontends.exported.tensors import Json, Types, Weights, devices, read_json
from irscope.frontends.torch_common.archive import Archive
from irscope.frontends.torch_common.expressions import Symbols
from irscope.ir.graph import Graph, Names
from irscope.ir.program import EXPORTED, Program

_MAJOR, _MINOR = 8, 20
_EXPORT_AGAIN = "export the model again with a current torch: torch.export.save(torch.export.export(model, args), 'model.pt2')"


def read_model(archive: Archive, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """The program of the archive's model."""
    name = document_name(archive, options, sink)
    document = read_json(archive, name)
    try:
        with closing(_weights(archive, name)) as weights:
            return _Model(archive, weights, document, options, sink).read()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise LoadError(
            f"{name} does not have the form of an exported program ({type(error).__name__}: {str(error)[:80]})",
            code="IRS135",
            where=str(archive.path),
            hint=_EXPORT_AGAIN,
        ) from error


def _weights(archive: Archive, name: str) -> Weights | OlderWeights:
    return OlderWeights(archive) if name == PROGRAM else Weights(archive, name.removeprefix("models/").removesuffix(".json"))


def document_name(archive: Archive, options: LoadOptions, sink: DiagnosticSink) -> str:
    """The entry that describes the program to read."""
    if PROGRAM in archive:
        return PROGRAM
    names = [name.removeprefix("models/").removesuffix(".json") for name in archive.names("models/") if name.endswith(".json")]
    if not names:
        compiled = any(archive.names("data/aotinductor/"))
        what = "is compiled code (AOTInductor) without a graph" if compiled else "holds no models/*.json"
        raise LoadError(f"the archive {what}", code="IRS136", where=str(archive.path), hint=_EXPORT_AGAIN)
    if options.method and options.method not in names:
        raise LoadError(
            f"the archive has no program {options.method!r}", code="IRS137", where=str(archive.path), hint=f"it has {', '.join(names)}"
        )
    usual = next((name for name in ("model", "forward") if name in names), names[0])
    chosen = options.method or usual
    if len(names) > 1 and not options.method:
        others = [name for name in names if name != chosen]
        more = f"; there are {', '.join(others)}" if len(others) > 1 else ""
        sink.warn(
            "IRS137",
            f"the archive holds several programs; {chosen!r} was read",
            hint=f"`--method {others[0]}` reads another{more}",
            about="programs",
        )
    return f"models/{chosen}.json"


class _Model:
    def __init__(
        self, archive: Archive, weights: Weights | OlderWeights, document: Json, options: LoadOptions, sink: DiagnosticSink
    ) -> None:
        self._archive = archive
        self._weights = weights
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
        if self._options.keep_calls:
            body.calls = {}
        declare_inputs(body, module, self._weights, self._options)
        body.add_nodes(module["graph"])
        results = set_outputs(body, module)
        version = self._document["schema_version"]
        metadata = {
            "producer": f"torch {self._document.get('torch_version', '?')}",
            "schema": f"{version['major']}.{version['minor']}",
            "dialect": ", ".join(str(item) for item in self._document.get("verifiers") or ()),
        }
        if any(kind.startswith("loss_output") for kind in results):
            metadata["outputs"] = json.dumps(results)
        path, calls = str(self._archive.path), body.calls or {}
        return Program(graph, {}, dict(symbols.named), "pt2", path, metadata=metadata, origins=body.origins, calls=calls, traits=EXPORTED)

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
