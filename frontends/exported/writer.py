"""A `.pt2` archive written again after passes changed its graph, with its weights; torch is not needed.

Nodes that no pass touched keep their JSON, nodes whose operands alone changed get other names, nodes that a pass made come from the rules
of the reader read backwards. Entries of the archive are copied as bytes; new weights are computed one at a time.
"""

from __future__ import annotations

import copy
import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from irscope.diagnostics import DiagnosticSink
from irscope.errors import UsageError
from irscope.files import staged
from irscope.frontends.base import LoadOptions
from irscope.frontends.exported.model import PROGRAM, document_name
from irscope.frontends.exported.tensors import Json, names_in, read_json
from irscope.frontends.files.archive import Archive
from irscope.frontends.rewriting import PIECE, Check, Original, copy_values, in_order, packed_size, weight_error
from irscope.frontends.templates import Attribute, parse_template
from irscope.frontends.torch_lowering.dtypes import SERIALIZED_DTYPES
from irscope.frontends.torch_lowering.lowering import AtenCall
from irscope.frontends.torch_lowering.signatures import Signature, complete, overloads
from irscope.frontends.torch_lowering.table import TEMPLATES, lower
from irscope.ir.dtypes import DType
from irscope.ir.graph import WEIGHT_ROLES, Names, Node, Role, Value
from irscope.ir.program import FileNode
from irscope.ir.types import TensorType
from irscope.weights.source import WeightFiles

_KINDS: Final = {"parameter": "parameter_name", "buffer": "buffer_name", "tensor_constant": "tensor_constant_name"}
_NUMBERS: Final = {dtype: number for number, dtype in SERIALIZED_DTYPES.items()}
_NOT_IN_NAMES: Final = re.compile(r"\W+")
_ALIGNMENT: Final = 64
_STRIDED: Final = 7
"""torch.strided, as the schema of exported programs numbers layouts."""
_POSITIONAL, _KEYWORD = 1, 2


def write_changed(original: Original, target: Path, *, external: bool = False, check: Check | None = None, method: str = "") -> list[Path]:
    """Write the program as it is now. Returns the files.

    UsageError names the node that cannot be written; nothing is written then. `check` looks at what was written before it takes its place.
    `method` names one of several programs of an archive; the others stay as they are.
    """
    if external:
        raise UsageError("a .pt2 file holds its weights itself", code="IRS368", hint="leave --external-data out")
    program = original.program
    path = Path(program.path)
    with Archive(path) as archive:
        entry = document_name(archive, LoadOptions(method=method), DiagnosticSink())
        if entry == PROGRAM:
            raise UsageError(
                "it has the layout that torch wrote before 2.8",
                code="IRS368",
                where=str(path),
                hint="load and save it with a current torch",
            )
        model = entry.removeprefix("models/").removesuffix(".json")
        document = read_json(archive, entry)
        plan = _Plan(original, document)
        plan.make()
        config_name = f"data/weights/{model}_weights_config.json"
        config = read_json(archive, config_name) if config_name in archive else {"config": {}}
        changed = plan.document()
        with WeightFiles(program.path) as files, staged(target) as out:
            others = _paths_of_others(archive, config_name)
            fresh = plan.weights_config(config, others)
            texts = {entry: _dumped(changed), config_name: _dumped(config)}
            _write_archive(archive, out, texts, fresh, plan.dropped_entries(archive, config, others), files)
            if check is not None:
                check(out, plan.weight_names)
    return [target]


def _paths_of_others(archive: Archive, own: str) -> set[str]:
    """Return the files of weights that other programs of the archive read."""
    paths: set[str] = set()
    for name in archive.names("data/weights/"):
        if name.endswith("_weights_config.json") and name != own:
            paths.update(str(entry.get("path_name")) for entry in read_json(archive, name)["config"].values())
    return paths


def _dumped(document: Json) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


@dataclass
class _Item:
    """A node to write."""

    node: Json
    place: float
    number: int = -1
    """Of the file's node that it is."""

    @property
    def makes(self) -> list[str]:
        return list(names_in(self.node["outputs"]))

    @property
    def reads(self) -> list[str]:
        return list(names_in(self.node["inputs"]))


class _Plan:
    """Nodes and weights to write, with their names."""

    def __init__(self, original: Original, document: Json) -> None:
        self.original = original
        self.program = original.program
        self.graph = original.program.graph
        self.document_ = document
        self.module = document["graph_module"]
        self.nodes: list[Json] = self.module["graph"]["nodes"]
        self.rows = original.rows
        self.row_of = {node: number for number, row in enumerate(self.rows) for node in row.nodes}
        self.name_of: dict[Value, str] = {}
        for name, value in original.names.items():
            if value is not None:
                self.name_of.setdefault(value, name)
        self.taken = {name for node in self.nodes for name in (*names_in(node["inputs"]), *names_in(node["outputs"]))}
        self.taken.update(self.module["graph"]["tensor_values"])
        self.new_names = Names("_")
        self.metas: dict[str, Json] = dict(self.module["graph"]["tensor_values"])
        self.items: list[_Item] = []
        self.new_weights: list[Value] = []
        self.weight_names: dict[Value, str] = {}
        """Dotted names of weights, as the program's reader calls them."""
        self.replaced: dict[str, Value] = {}
        """Weights that stand where one of the file's did, by its name in the graph."""

    # -- nodes -------------------------------------------------------------------------------------------------

    def make(self) -> None:
        """Plan the nodes."""
        self._name_weights()
        places = self.original.places()
        position = {node: at for at, node in enumerate(self.graph)}
        seen: set[int] = set()
        for node in self.graph:
            number = self.row_of.get(node, -1)
            if number < 0 and node in self.original.nodes:
                # What the reader adds for results and for state that is written back is not a node of the file.
                continue
            if number >= 0 and number in seen:
                continue
            changes = self.original.substitutions(self.rows[number], self._takes_more) if number >= 0 else None
            if changes is None:
                self.items.append(_Item(self._made_node(node), float(position[node])))
                continue
            seen.add(number)
            self.items.append(_Item(self._kept_node(number, changes), places[number], number))
        made = {name for item in self.items for name in item.makes} | set(self._inputs())
        for number, row in enumerate(self.rows):
            # Checks and arithmetic on sizes have no nodes in the program; they stay where what they read does.
            if not row.nodes and all(name in made or name not in self.original.names for name in names_in(self.nodes[number]["inputs"])):
                self.items.append(_Item(self.nodes[number], places[number], number))
        self._end_in_the_outputs()
        order = in_order([item.makes for item in self.items], [item.reads for item in self.items], [item.place for item in self.items])
        if order is None:
            raise _cannot(None, "its nodes wait for one another")
        self.items = [self.items[at] for at in order]
        known = {name for item in self.items for name in item.makes} | set(self._inputs())
        for item in self.items:
            lost = next((name for name in item.reads if name in self.original.names and name not in known), None)
            if lost is not None:
                raise _cannot(None, f"{item.node['target']} reads {lost}, which nothing makes any more")

    def _inputs(self) -> Iterator[str]:
        for spec in self._specs():
            ((_, content),) = spec.items()
            yield from names_in(content.get("arg"))

    def _takes_more(self, node: Node, row: FileNode) -> bool:
        return len(row.nodes) == 1 and self._absent_argument(node) is not None

    def _absent_argument(self, node: Node) -> tuple[int, str] | None:
        """Return the one argument that may be a tensor and was not given, with its place in the signature."""
        called = self.program.calls.get(node)
        if called is None:
            return None
        name, _, overload = called.operator.rpartition(".")
        signature = next((signature for signature in overloads(name) if (signature.overload or "default") == overload), None)
        absent = [
            (at, param.name)
            for at, param in enumerate(signature.params if signature is not None else ())
            if param.kind == "Tensor?" and called.args.get(param.name) is None
        ]
        return absent[0] if len(absent) == 1 else None

    def _kept_node(self, number: int, changes: Mapping[Value, Value]) -> Json:
        """Return the file's own node, with other operands where these changed."""
        row, node = self.rows[number], self.nodes[number]
        names = list(names_in(node["inputs"]))
        renamed = {
            name: self._name(changes[value])
            for name, value in zip(names, row.inputs, strict=True)
            if value is not None and value in changes
        }
        found: Json = node if not renamed else _renamed(node, renamed)
        for one in row.nodes:
            was = self.original.nodes[one][2]
            added = [now for at, now in enumerate(one.inputs) if now is not None and (at >= len(was) or was[at] is None)]
            if one.graph is not None and added:
                found = self._with_argument(one, found if found is not node else copy.deepcopy(node), added[0])
        return found

    def _with_argument(self, node: Node, found: Json, value: Value) -> Json:
        """Return the node with a tensor for the argument that it lacked."""
        absent = self._absent_argument(node)
        assert absent is not None, "asked before"
        at, name = absent
        argument = {"name": name, "arg": {"as_tensor": {"name": self._name(value)}}, "kind": _POSITIONAL}
        given = next((index for index, one in enumerate(found["inputs"]) if one["name"] == name), None)
        if given is not None:
            found["inputs"][given] = {**argument, "kind": found["inputs"][given].get("kind", _POSITIONAL)}
        elif at <= len(found["inputs"]):
            found["inputs"].insert(at, argument)
        else:
            found["inputs"].append({**argument, "kind": _KEYWORD})
        return found

    def _made_node(self, node: Node) -> Json:
        """Return a node that a pass made, or changed."""
        if node.regions:
            raise _cannot(node, "it holds graphs, which are written only as they were read")
        found = raised(node)
        if found is None:
            raise _cannot(node, f"no ATen operator is known for {node.op} as it is used here")
        signature, args = found
        inputs = [
            {
                "name": param.name,
                "arg": self._argument(node, param.kind, args[param.name]),
                "kind": _KEYWORD if param.keyword_only else _POSITIONAL,
            }
            for param in signature.params
            if param.name in args
        ]
        outputs = [{"as_tensor": {"name": self._result_name(output)}} for output in node.outputs]
        namespace, _, name = signature.name.rpartition("::")
        target = f"torch.ops.{namespace or 'aten'}.{name}.{signature.overload or 'default'}"
        first = outputs[0]["as_tensor"]["name"] if outputs else name
        return {"target": target, "inputs": inputs, "outputs": outputs, "metadata": {}, "is_hop_single_tensor_return": None, "name": first}

    def _argument(self, node: Node, kind: str, value: object) -> Json:
        if isinstance(value, Value):
            return {"as_tensor": {"name": self._name(value)}}
        if value is None:
            return {"as_none": True}
        if isinstance(value, DType):
            return {"as_scalar_type": _NUMBERS[value]}
        if isinstance(value, bool):
            return {"as_bool": value}
        if isinstance(value, int):
            return {"as_float": float(value)} if kind.startswith("float") else {"as_int": value}
        if isinstance(value, float):
            return {"as_float": value}
        if isinstance(value, str):
            return {"as_string": value}
        if isinstance(value, tuple) and all(isinstance(item, int) for item in value):
            return {"as_ints": list(value)}
        if isinstance(value, tuple) and all(isinstance(item, Value) for item in value):
            return {"as_tensors": [{"name": self._name(item)} for item in value]}
        raise _cannot(node, "an argument is a formula, not a number")

    # -- names -------------------------------------------------------------------------------------------------

    def _fresh(self, stem: str) -> str:
        return self.new_names.unique(_NOT_IN_NAMES.sub("_", stem) or "value", self.taken)

    def _name(self, value: Value) -> str:
        if value not in self.name_of:
            return self._result_name(value)
        return self.name_of[value]

    def _result_name(self, value: Value) -> str:
        if value not in self.name_of:
            self.name_of[value] = self._fresh(value.name or (value.node.op.rpartition(".")[2] if value.node is not None else "value"))
            self.metas[self.name_of[value]] = self._meta(value)
        elif self.name_of[value] not in self.metas:
            self.metas[self.name_of[value]] = self._meta(value)
        return self.name_of[value]

    def _meta(self, value: Value) -> Json:
        """Return the description of a tensor."""
        type_ = value.type
        if not isinstance(type_, TensorType) or type_.dtype not in _NUMBERS:
            raise _cannot(value.node, f"a result of type {type_} has no form in an exported program")
        if not type_.is_static:
            # Formulas are written as the file has them, for a tensor of the same type.
            twin = next((name for name, other in self.original.names.items() if other is not None and other.type is type_), None)
            if twin is None:
                raise _cannot(value.node, f"the sizes of its result, {type_}, are formulas that the file has nowhere")
            return {**self.metas[twin], "requires_grad": False}
        device = next((meta["device"] for meta in self.metas.values() if meta.get("device")), {"type": "cpu", "index": None})
        return _tensor_meta(type_, device, value.role is Role.PARAMETER and type_.dtype.is_float)

    def _end_in_the_outputs(self) -> None:
        """Keep the names of values that the model returns or writes back: the node that makes such a value now takes its name."""
        wanted = self._named_results()
        made = {name: item for item in self.items for name in item.makes}
        renames: dict[str, str] = {}
        for name, value in wanted:
            now = self._name(value)
            if now == name or renames.get(now) == name:
                continue
            if name in made or now not in made or now in renames or now in {other for other, _ in wanted}:
                raise _cannot(value.node, f"the result {name} cannot be given another maker")
            renames[now] = name
            self.metas[name] = self.metas[now]
        for item in self.items if renames else ():
            item.node = _renamed(item.node, renames)
        for value, name in list(self.name_of.items()):
            self.name_of[value] = renames.get(name, name)

    def _named_results(self) -> list[tuple[str, Value]]:
        """Return the names in the signature that results have, with what is returned there now."""
        outputs = iter(self.graph.outputs)
        written = iter(node for node in self.graph if node.source.startswith("export::"))
        results: list[tuple[str, Value]] = []
        for spec in self.module["signature"]["output_specs"]:
            ((kind, content),) = spec.items()
            if kind == "token":
                continue
            names = list(names_in(content["arg"])) if kind == "user_output" else [content["arg"]["name"]]
            for name in names:
                if name not in self.original.names:
                    continue
                if kind.endswith("_mutation"):
                    node = next(written, None)
                    source = node.inputs[1] if node is not None and len(node.inputs) > 1 else None
                    if source is None:
                        raise _cannot(None, f"what {kind} wrote back is gone")
                else:
                    source = next(outputs)
                results.append((name, source))
        return results

    # -- weights -----------------------------------------------------------------------------------------------

    def _specs(self) -> list[Json]:
        found: list[Json] = self.module["signature"]["input_specs"]
        return found

    def _name_weights(self) -> None:
        """Name new weights: as those whose place they take, else by new names."""
        here = set(self.graph.weights)
        free: dict[str, str] = {}
        for spec in self._specs():
            ((kind, content),) = spec.items()
            if kind in _KINDS:
                value = self.original.names.get(content["arg"]["name"])
                if value is not None and value not in here:
                    free[str(content[_KINDS[kind]])] = content["arg"]["name"]
                elif value is not None:
                    self.weight_names[value] = value.name or str(content[_KINDS[kind]])
        dotted = {str(content[_KINDS[kind]]) for spec in self._specs() for kind, content in spec.items() if kind in _KINDS}
        for value in self.graph.weights:
            if value in self.name_of and not self.original.has_new_values(value):
                continue
            if value in self.name_of:
                self.replaced[self.name_of[value]] = value
                continue
            stem = value.name or "folded"
            if stem in free:
                self.name_of[value] = free.pop(stem)
                self.replaced[self.name_of[value]] = value
                self.metas[self.name_of[value]] = self._meta(value)
                self.weight_names[value] = stem
                continue
            name, number = stem, 0
            while name in dotted:
                number += 1
                name = f"{stem}_{number}"
            dotted.add(name)
            self.weight_names[value] = name
            letter = "p" if value.role is Role.PARAMETER else "b"
            self.name_of[value] = self._fresh(f"{letter}_{name}")
            self.metas[self.name_of[value]] = self._meta(value)
            self.new_weights.append(value)

    def _gone(self) -> set[str]:
        """Return the names in the graph of weights that the program has no more."""
        here = {self.name_of[value] for value in self.graph.weights if value in self.name_of}
        named = {name for item in self.items for name in item.reads}
        found = set()
        for spec in self._specs():
            ((kind, content),) = spec.items()
            if kind in _KINDS and (name := content["arg"]["name"]) not in here and name not in named:
                found.add(name)
        kept = {
            content.get(key) for spec in self.module["signature"]["output_specs"] for content in spec.values() for key in _KINDS.values()
        }
        return {name for name in found if self._dotted(name) not in kept}

    def _dotted(self, name: str) -> str:
        for spec in self._specs():
            ((kind, content),) = spec.items()
            if kind in _KINDS and content["arg"]["name"] == name:
                return str(content[_KINDS[kind]])
        return name

    def document(self) -> Json:
        """Return the document with the planned nodes and weights."""
        gone = self._gone()
        found = dict(self.document_)
        module = found["graph_module"] = dict(self.module)
        graph = module["graph"] = dict(self.module["graph"])
        signature = module["signature"] = dict(self.module["signature"])
        inputs = [node for node in graph["inputs"] if not any(name in gone for name in names_in(node))]
        specs = [
            spec for spec in self._specs() if not any(name in gone for name in names_in([content.get("arg") for content in spec.values()]))
        ]
        for value in self.new_weights:
            kind = "parameter" if value.role is Role.PARAMETER else "buffer"
            last = max((at for at, spec in enumerate(specs) if kind in spec), default=-1)
            if last < 0 and kind == "buffer":
                last = max((at for at, spec in enumerate(specs) if "parameter" in spec), default=-1)
            name = self.name_of[value]
            more = {"persistent": True} if kind == "buffer" else {}
            specs.insert(last + 1, {kind: {"arg": {"name": name}, _KINDS[kind]: self.weight_names[value], **more}})
            inputs.insert(last + 1, {"as_tensor": {"name": name}})
        signature["input_specs"], graph["inputs"] = specs, inputs
        graph["nodes"] = [item.node for item in self.items]
        named = {name for item in self.items for name in (*item.makes, *item.reads)}
        named.update(names_in(inputs), names_in(graph["outputs"]))
        graph["tensor_values"] = {name: meta for name, meta in self.metas.items() if name in named}
        return found

    def weights_config(self, config: Json, others: set[str]) -> dict[str, Value]:
        """Change the list of weights, without the files of other programs; returns the entries to write, by their names in the archive."""
        entries = config["config"]
        for name in self._gone():
            entries.pop(self._dotted(name), None)
        fresh: dict[str, Value] = {}
        used = others | {str(entry.get("path_name")) for entry in entries.values()}
        both = [(self._dotted(name), value) for name, value in self.replaced.items()]
        for dotted, value in (*both, *((self.weight_names[value], value) for value in self.new_weights)):
            number = len(used)
            while (path := f"weight_{number}") in used:
                number += 1
            used.add(path)
            entries[dotted] = {
                "path_name": path,
                "is_param": value.role is Role.PARAMETER,
                "use_pickle": False,
                "tensor_meta": self.metas[self.name_of[value]],
            }
            fresh[f"data/weights/{path}"] = value
        return fresh

    def dropped_entries(self, archive: Archive, config: Json, others: set[str]) -> set[str]:
        """Return the entries of weights that nothing refers to any more."""
        used = {f"data/weights/{name}" for name in (*others, *(entry.get("path_name") for entry in config["config"].values()))}
        return {name for name in archive.names("data/weights/weight_") if name not in used}


def _tensor_meta(type_: TensorType, device: Json, learned: bool) -> Json:
    sizes = [size for size in type_.shape or () if isinstance(size, int)]
    strides = [1] * len(sizes)
    for at in range(len(sizes) - 2, -1, -1):
        strides[at] = strides[at + 1] * max(sizes[at + 1], 1)
    return {
        "dtype": _NUMBERS[type_.dtype],
        "sizes": [{"as_int": size} for size in sizes],
        "requires_grad": learned,
        "device": device,
        "strides": [{"as_int": stride} for stride in strides],
        "storage_offset": {"as_int": 0},
        "layout": _STRIDED,
    }


def _renamed(node: Json, renames: Mapping[str, str]) -> Json:
    """Return a copy of a node with other names of tensors."""
    found = copy.deepcopy(node)
    pending: list[Any] = [found["inputs"], found["outputs"]]
    while pending:
        waiting = pending.pop()
        if isinstance(waiting, list):
            pending.extend(waiting)
        elif isinstance(waiting, dict):
            for key, content in waiting.items():
                if key in ("name", "as_name") and isinstance(content, str):
                    # The name of an argument is beside its value, that of a tensor is alone.
                    if "arg" not in waiting:
                        waiting[key] = renames.get(content, content)
                elif key != "as_graph":
                    pending.append(content)
    if found.get("name") in renames:
        found["name"] = renames[found["name"]]
    return found


def _cannot(node: Node | None, why: str) -> UsageError:
    where = f"node {node.name[:80]!r} ({node.op})" if node is not None else "the graph"
    return UsageError(f"{where} cannot be written as an exported program: {why}", code="IRS368", hint="leave out the pass that made it")


# From irscope's operators back to ATen's.


def raised(node: Node) -> tuple[Signature, dict[str, object]] | None:
    """Return the ATen operator that a node is, with its arguments: one that the reader makes this very node of."""
    for name, text in TEMPLATES.items():
        if text.split(maxsplit=1)[0] != node.op:
            continue
        base, _, overload = name.partition(".")
        template = parse_template(text)
        for signature in overloads(base):
            if overload and signature.overload != overload:
                continue
            args = _arguments(node, signature, template.operands, template.attributes)
            if args is not None and _is_read_as(node, signature, args):
                return signature, args
    return None


def _arguments(node: Node, signature: Signature, operands: Sequence[str], attributes: Sequence[Attribute]) -> dict[str, object] | None:
    params = {param.name: param for param in signature.params}
    args: dict[str, object] = {}
    attrs = dict(node.attrs)
    for at, word in enumerate(operands):
        value = node.inputs[at] if at < len(node.inputs) else None
        tensor, _, number = word.rstrip("?").partition("|")
        tensor = next((part for part in tensor.split("/") if part.rstrip("*") in params), tensor)
        if word == "_":
            continue
        if tensor.endswith("*"):
            args[tensor[:-1]] = tuple(node.inputs[at:])
        elif value is not None:
            args[tensor] = value
        elif number and number in attrs:
            args[tensor] = attrs.pop(number)
    for attribute in attributes:
        if attribute.theirs is None or attribute.ours not in attrs or attribute.theirs.startswith("("):
            continue
        value_ = attrs[attribute.ours]
        if attribute.words:
            value_ = attribute.words.index(value_) if value_ in attribute.words else value_
        args[attribute.theirs] = value_
    if any(name not in params for name in args) or any(param.required and param.name not in args for param in signature.params):
        return None
    return args


def _is_read_as(node: Node, signature: Signature, args: Mapping[str, object]) -> bool:
    """Return whether the reader makes this node of a call."""
    lowered = lower(AtenCall(signature, complete(signature, dict(args))))
    if lowered is None or lowered.op != node.op or lowered.results is not None:
        return False
    inputs, mine = list(lowered.inputs), list(node.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    while mine and mine[-1] is None:
        mine.pop()
    return inputs == mine and lowered.attrs == dict(node.attrs) and len(signature.results) == len(node.outputs)


def _write_archive(
    archive: Archive, target: Path, texts: Mapping[str, bytes], fresh: Mapping[str, Value], dropped: set[str], files: WeightFiles
) -> None:
    """Copy an archive entry by entry, with other texts and weights. Entries are stored unpacked, at offsets that torch maps."""
    root = archive.root
    with target.open("wb") as out, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED, allowZip64=True) as made:
        for name, entry in archive.entries.items():
            if name in dropped or name in fresh:
                continue
            if name in texts:
                _store(made, out, root + name, [texts[name]], len(texts[name]))
            elif (place := archive.region(name)) is not None:
                with Path(place.path).open("rb") as source:
                    source.seek(place.offset)
                    _store(made, out, root + name, _read_pieces(source, place.length), place.length)
            else:
                _store(made, out, root + name, [archive.read(name)], entry.size)
        for name in texts:
            if name not in archive.entries:
                _store(made, out, root + name, [texts[name]], len(texts[name]))
        for name, value in fresh.items():
            if value.role not in WEIGHT_ROLES or not isinstance(value.type, TensorType):
                raise weight_error(value, "it is not a tensor")
            with made.open(_info(out, root + name), "w", force_zip64=packed_size(value) > 1 << 31) as entry_file:
                copy_values(value, files, entry_file.write)


def _read_pieces(source: Any, length: int) -> Iterator[bytes]:
    left = length
    while left and (piece := source.read(min(PIECE, left))):
        left -= len(piece)
        yield piece


def _store(made: zipfile.ZipFile, out: Any, name: str, pieces: Any, size: int) -> None:
    with made.open(_info(out, name), "w", force_zip64=size > 1 << 31) as entry:
        for piece in pieces:
            entry.write(piece)


def _info(out: Any, name: str) -> zipfile.ZipInfo:
    """Return an entry whose content begins at a multiple of 64 bytes, as torch writes it."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    begin = out.tell() + 30 + len(name.encode())
    gap = -(begin + 4) % _ALIGNMENT
    info.extra = b"FB" + gap.to_bytes(2, "little") + bytes(gap)
    return info
