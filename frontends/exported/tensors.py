"""Values and nodes in torch.export's files: types, weights, module calls, source lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from irscope.budget import admit, claim
from irscope.errors import LoadError, form_problem
from irscope.frontends.files.archive import Archive
from irscope.frontends.files.pickled import lies_by_rows, literal_of, span_bytes
from irscope.frontends.torch_lowering.dtypes import SERIALIZED_DTYPES
from irscope.frontends.torch_lowering.expressions import Symbols
from irscope.ir.dims import Dim, SymDim, unknown
from irscope.ir.dtypes import DType
from irscope.ir.places import Loc, Payload, Scope, relative_name
from irscope.ir.types import TensorType, tensor

Json = Any
"""Parsed JSON, of whatever form the file has."""

_STRIDED = 7
PARSED_JSON = 8
"""Bytes of Python objects for a byte of dense JSON, as measured; lists of one digit take most."""


class Types:
    """Reads tensor descriptions; sizes that cannot be read become unknown."""

    def __init__(self, symbols: Symbols, hidden_device: str) -> None:
        self._symbols = symbols
        self._hidden_device = hidden_device
        self._fresh = 0
        self._made: dict[str, TensorType] = {}
        self.examples: dict[str, int] = {}
        """Sizes of symbols in the run that was exported."""

    def dim(self, found: Json) -> Dim:
        """Return an integer or an expression."""
        if "as_int" in found:
            return int(found["as_int"])
        expression = found["as_expr"]
        parsed = self._symbols.parse(expression["expr_str"])
        if parsed is not None:
            hint = expression.get("hint")
            if hint and str(parsed) in self._symbols.named and isinstance(size := hint.get("as_int"), int):
                self.examples.setdefault(str(parsed), size)
            return parsed
        self._fresh += 1
        return unknown(f"file.expr{self._fresh - 1}")

    def device(self, found: Json) -> str:
        """Return a device as text, empty where it is the one that every tensor of the model is on."""
        text = device_name_of(found)
        return "" if text == self._hidden_device else text

    def tensor(self, meta: Json) -> TensorType:
        """Return the type that a description gives; strides are kept only where they are not row-major."""
        key = repr((meta["dtype"], meta["sizes"], meta.get("strides"), meta.get("device"), meta.get("layout")))
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._tensor(meta)
        return made

    def _tensor(self, meta: Json) -> TensorType:
        dtype = SERIALIZED_DTYPES.get(meta["dtype"], DType.UNKNOWN)
        shape = tuple(self.dim(size) for size in meta["sizes"])
        device = self.device(meta.get("device"))
        if meta.get("layout", _STRIDED) not in (0, _STRIDED):
            return tensor(dtype, shape, device, "sparse")
        strides = tuple(self.dim(stride) for stride in meta.get("strides") or ())
        row_major = len(strides) != len(shape) or lies_by_rows(shape, strides)
        return tensor(dtype, shape, device, None if row_major else strides)


def device_name_of(device: Json) -> str:
    """Return a device as text: "cuda:0", "cpu"."""
    if not isinstance(device, dict):
        return ""
    index = device.get("index")
    return str(device["type"]) if index is None else f"{device['type']}:{index}"


def devices(graph: Json) -> Iterator[str]:
    """Yield the devices of a graph's tensors."""
    for meta in graph["tensor_values"].values():
        yield device_name_of(meta.get("device"))


class Weights:
    """Places of parameters, buffers and constants in the archive."""

    def __init__(self, archive: Archive, name: str) -> None:
        self._archive = archive
        self._entries: dict[str, tuple[str, Json]] = {}
        for kind in ("weights", "constants"):
            config = f"data/{kind}/{name}_{kind}_config.json"
            if config in archive:
                self._read_config(kind, config)

    def _read_config(self, kind: str, config: str) -> None:
        try:
            for fqn, entry in read_json(self._archive, config)["config"].items():
                self._entries[fqn] = (f"data/{kind}/{entry['path_name']}", dict(entry))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LoadError(
                f"{config} does not say where tensors are ({form_problem(error)})",
                code="IRS135",
                where=str(self._archive.path),
                hint="the file is damaged; export the model again",
            ) from error

    def payload(self, fqn: str, type_: TensorType, small: bool) -> Payload | None:
        """Return where the values are; small constants are read. None where the archive does not say."""
        found = self._entries.get(fqn)
        if found is None or found[1].get("use_pickle") or found[0] not in self._archive:
            return None
        name, entry = found
        size = self._archive.entries[name].size
        if not size:
            # Tensors of the meta device, or fake ones, are saved without values.
            return None
        meta = entry.get("tensor_meta") or {}
        offset = int((meta.get("storage_offset") or {}).get("as_int", 0)) * (type_.dtype.bits or 8) // 8
        length = type_.nbytes
        if isinstance(length, SymDim) or length is None:
            return self._archive.region(name)
        if type_.layout is None and offset + length > size:
            raise LoadError(
                f"{fqn!r} needs {offset + length:,} bytes, the archive holds {size:,}",
                code="IRS134",
                where=str(self._archive.path),
                hint="the file is damaged; save it again",
            )
        if small and type_.layout is None and offset == 0 and size <= 64 * 1024:
            literal = literal_of(self._archive.read(name), type_)
            if literal is not None:
                return literal
        return self._archive.region(name, offset, length if type_.layout is None else span_bytes(type_), name)

    def close(self) -> None:
        """Do nothing: it opens nothing of its own."""


def read_json(archive: Archive, name: str) -> Json:
    """Return a JSON entry of the archive."""
    try:
        text = archive.read(name, 256 << 20)
        admit(len(text))
        claim(PARSED_JSON * len(text), f"the JSON of {name}")
        return json.loads(text)
    except (ValueError, RecursionError):
        raise LoadError(
            f"{name!r} is not valid JSON", code="IRS135", where=str(archive.path), hint="the file is damaged; save it again"
        ) from None


# -- where a node comes from -------------------------------------------------------------------------------------------


_MOST_FRAMES = 64
_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<function>.*)$')


class Scopes:
    """Module calls in program order: a module that is left and entered again is called again."""

    def __init__(self, root: Scope) -> None:
        self._root = root
        self._open: list[tuple[str, str, Scope]] = []
        self._calls: dict[tuple[Scope, str], int] = {}
        self._last_text: str | None = None

    def at(self, text: str | None) -> Scope:
        """Return the scope of a node with this module stack; nodes without one belong to the call that is open."""
        if text is not None and text != self._last_text:
            entries = _entries(text)
            if entries is not None:
                self._last_text = text
                self._enter(entries)
        return self._open[-1][2] if self._open else self._root

    def _enter(self, entries: list[tuple[str, str, str]]) -> None:
        kept = 0
        while kept < len(entries) and kept < len(self._open) and entries[kept][0] == self._open[kept][0]:
            kept += 1
        del self._open[kept:]
        for key, path, cls in entries[kept:]:
            parent_path = self._open[-1][1] if self._open else ""
            parent = self._open[-1][2] if self._open else self._root
            name = relative_name(path, parent_path)
            call = self._calls.get((parent, name), 0)
            self._calls[parent, name] = call + 1
            self._open.append((key, path, parent.child(name, cls, call)))


def _entries(text: str) -> list[tuple[str, str, str]] | None:
    """(key, path, class) of every module below the root; None where the text is not a module stack."""
    entries: list[tuple[str, str, str]] = []
    for part in text.split(";"):
        fields = part.split(",", 2)
        if len(fields) != 3 or fields[0].startswith("_empty_nn_module_stack"):
            return None
        key, path, cls = fields
        if path:
            entries.append((key, path.partition("@")[0], cls.rpartition(".")[2]))
    return entries


class Locations:
    """Stack traces as locations, each text read once."""

    def __init__(self) -> None:
        self._found: dict[str, Loc | None] = {}

    def at(self, text: str | None) -> Loc | None:
        """Return the innermost place, whose callers hang on it."""
        if not text:
            return None
        if text not in self._found:
            self._found[text] = _read_trace(text)
        return self._found[text]


def _read_trace(text: str) -> Loc | None:
    loc: Loc | None = None
    frames = 0
    pending: tuple[str, int, str] | None = None
    statement: list[str] = []
    for line in [*text.split("\n"), 'File "", line 0, in ']:
        match = _FRAME.match(line)
        if match is None:
            statement.append(line.strip())
            continue
        if pending is not None and frames < _MOST_FRAMES:
            loc = Loc(*pending, " ".join(part for part in statement if part), loc)
            frames += 1
        pending = (match["file"], int(match["line"][:9]), match["function"].strip())
        statement = []
    return loc


def names_in(item: Json) -> Iterator[str]:
    """Yield the names of tensors and numbers in an argument or result; those inside inner graphs are not meant."""
    pending = [item]
    while pending:
        waiting = pending.pop()
        if isinstance(waiting, list):
            pending.extend(waiting)
        elif isinstance(waiting, dict):
            for key, content in waiting.items():
                if key in ("name", "as_name") and isinstance(content, str):
                    yield content
                elif key != "as_graph":
                    pending.append(content)
