"""The parts of a `.pt2` archive put together: versions, signature, weights, graph."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError, form_problem
from irscope.frontends.base import LoadOptions, stated
from irscope.frontends.exported.body import BodyReader
from irscope.frontends.exported.tensors import Json, Locations, Scopes, Types, Weights, devices, read_json
from irscope.frontends.files.archive import Archive
from irscope.frontends.files.pickled import PickledTensor, pickled_payload, read_pickle
from irscope.frontends.torch_lowering.expressions import Symbols
from irscope.ir.dtypes import DType
from irscope.ir.graph import Graph, Names, Role, Value
from irscope.ir.places import Payload
from irscope.ir.program import EXPORTED, FileNodes, Program
from irscope.ir.types import UNKNOWN_TYPE, TensorType, Type, scalar

# -- weights of the layout that torch.export wrote before torch 2.8: archives inside the archive -----------------------


PROGRAM = "serialized_exported_program.json"
# Before torch 2.2 these were called .json, though they never were.
_CHECKPOINTS = ("serialized_state_dict.pt", "serialized_state_dict.json", "serialized_constants.pt", "serialized_constants.json")


class OlderWeights:
    """Where parameters, buffers and constants are."""

    def __init__(self, archive: Archive) -> None:
        self._found: dict[str, tuple[Archive, PickledTensor]] = {}
        self._open = ExitStack()
        for name in _CHECKPOINTS:
            if name in archive and archive.entries[name].size:
                inner = self._open.enter_context(archive.inner(name))
                state = read_pickle(inner.read("data.pkl"), f"{archive.path}:{name}").root
                if isinstance(state, dict):
                    self._found.update({str(fqn): (inner, item) for fqn, item in state.items() if isinstance(item, PickledTensor)})

    def payload(self, fqn: str, type_: TensorType, small: bool) -> Payload | None:
        """Return where the values are; small constants are read. None where the archive does not say."""
        found = self._found.get(fqn)
        return pickled_payload(found[0], "data/", found[1], small) if found is not None else None

    def close(self) -> None:
        """Close the inner archives."""
        self._open.close()


# -- which inputs are parameters, buffers, constants, the user's own ---------------------------------------------------


_WEIGHTS = {
    "parameter": ("parameter_name", Role.PARAMETER),
    "buffer": ("buffer_name", Role.BUFFER),
    "tensor_constant": ("tensor_constant_name", Role.CONSTANT),
}
_SCALARS = {"as_sym_int": DType.I64, "as_sym_float": DType.F64, "as_sym_bool": DType.BOOL}


def declare_inputs(body: BodyReader, module: Json, weights: Weights | OlderWeights, options: LoadOptions) -> None:
    """Declare weights and inputs; names of weights are the model's own dotted ones."""
    metas = module["graph"]["tensor_values"]
    position = 0
    options = options.for_inputs(_names_of_tensors(module))
    for spec in module["signature"]["input_specs"]:
        ((kind, content),) = spec.items()
        if kind in _WEIGHTS:
            key, role = _WEIGHTS[kind]
            _declare_weight(body, content["arg"]["name"], str(content[key]), role, metas, weights)
        elif kind == "user_input":
            _declare_input(body, content["arg"], position, metas, options)
            position += 1
        elif kind == "custom_obj":
            body.env[content["arg"]["name"]] = body.graph.add_weight(
                UNKNOWN_TYPE, body.names.unique(str(content["custom_obj_name"])), Role.CONSTANT
            )
        elif kind == "constant_input":
            position += 1


def _declare_weight(body: BodyReader, name: str, fqn: str, role: Role, metas: Json, weights: Weights | OlderWeights) -> None:
    type_ = body.types.tensor(metas[name])
    small = role is Role.CONSTANT or (role is Role.BUFFER and (type_.dtype.is_integer or type_.dtype is DType.BOOL))
    value = body.graph.add_weight(type_, body.names.unique(fqn), role, weights.payload(fqn, type_, small))
    body.env[name] = value
    if role is Role.PARAMETER and isinstance(metas[name].get("requires_grad"), bool):
        body.graph.trainable[value] = metas[name]["requires_grad"]


def _names_of_tensors(module: Json) -> list[str]:
    """Inputs that are tensors."""
    given = [spec["user_input"]["arg"] for spec in module["signature"]["input_specs"] if "user_input" in spec]
    return [arg["as_tensor"]["name"] for arg in given if "as_tensor" in arg]


def _declare_input(body: BodyReader, arg: Json, position: int, metas: Json, options: LoadOptions) -> None:
    ((kind, content),) = arg.items()
    if kind == "as_tensor":
        name = content["name"]
        type_: Type = body.types.tensor(metas[name])
        given = options.inputs.get(name) or options.inputs.get(str(position))
        if isinstance(given, TensorType):
            type_ = stated(given, type_, name)
        body.env[name] = body.graph.add_input(type_, body.names.unique(name))
    elif kind in _SCALARS and "as_name" in content:
        name = content["as_name"]
        body.graph.add_input(scalar(_SCALARS[kind]), body.names.unique(name))


def set_outputs(body: BodyReader, module: Json) -> list[str]:
    """Declare what the model returns, and write back what it changes in buffers and inputs; the kind of each result comes back."""
    names = _names_of_state(module)
    outputs: list[Value] = []
    kinds: list[str] = []
    for spec in module["signature"]["output_specs"]:
        ((kind, content),) = spec.items()
        if kind.endswith("_mutation"):
            target = body.env.get(names.get((kind.removesuffix("_mutation"), content[_MUTATED[kind]]), ""))
            source = body.value(content["arg"]["name"])
            if isinstance(target, Value):
                body.graph.append("tensor.copy_into", (target, source), (target.type,), {"inplace": 0}, source=f"export::{kind}")
        elif kind != "token":
            found = body.argument(content["arg"]) if kind in ("user_output",) else body.value(content["arg"]["name"])
            if isinstance(found, Value):
                outputs.append(found)
                kinds.append(f"{kind}:{content.get('parameter_name', '')}")
    body.graph.set_outputs(outputs)
    return kinds


_MUTATED = {
    "buffer_mutation": "buffer_name",
    "parameter_mutation": "parameter_name",
    "user_input_mutation": "user_input_name",
}


def _names_of_state(module: Json) -> dict[tuple[str, str], str]:
    """Graph names by what they hold: ("buffer", "bn.running_mean") -> "b_bn_running_mean"."""
    found: dict[tuple[str, str], str] = {}
    for spec in module["signature"]["input_specs"]:
        ((kind, content),) = spec.items()
        if kind in ("parameter", "buffer"):
            found[kind, content[_WEIGHTS[kind][0]]] = content["arg"]["name"]
        elif kind == "user_input" and "as_tensor" in content["arg"]:
            name = content["arg"]["as_tensor"]["name"]
            found["user_input", name] = name
    return found


_MAJOR, _MINOR = 8, 20
_EXPORT_AGAIN = "export the model again with a current torch: torch.export.save(torch.export.export(model, args), 'model.pt2')"


def read_model(archive: Archive, options: LoadOptions, sink: DiagnosticSink) -> Program:
    """The program of the archive's model."""
    name = document_name(archive, options, sink)
    document = read_json(archive, name)
    try:
        with closing(_declared_weights(archive, name)) as weights:
            return _Model(archive, weights, document, options, sink).read()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        raise LoadError(
            f"{name} does not have the form of an exported program ({form_problem(error)})",
            code="IRS135",
            where=str(archive.path),
            hint=_EXPORT_AGAIN,
        ) from error


def _declared_weights(archive: Archive, name: str) -> Weights | OlderWeights:
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
            body.calls, body.made = {}, []
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
        found_in_file = Program(
            graph, {}, dict(symbols.named), "pt2", path, metadata=metadata, origins=body.origins, calls=calls, traits=EXPORTED
        )
        found_in_file.examples = types.examples
        if body.made is not None:
            names_in_file = {name: value for name, value in body.env.items() if isinstance(value, Value)}
            found_in_file.file_nodes = FileNodes(body.made, names_in_file)
        return found_in_file

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
