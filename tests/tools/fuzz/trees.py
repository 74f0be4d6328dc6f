"""Files as trees of dictionaries, lists and leaves, and back: a changed tree becomes a file whose containers and checksums hold."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import pickle
import pickletools
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from irscope.frontends.stablehlo import bytecode

Tree = Any
"""None, truth values, numbers, texts, bytes, and lists and dictionaries of trees."""
Files = dict[str, bytes]
"""A case: the main file first, then what lies beside it."""


@dataclass(frozen=True)
class Codec:
    """How one kind of file is taken apart and put together."""

    take: Callable[[bytes], Tree]
    make: Callable[[Tree], bytes]


# -- JSON ----------------------------------------------------------------------------------------------------------


def _json_bytes(tree: Tree) -> bytes:
    return json.dumps(tree, default=str).encode("utf-8", "surrogatepass")


def _lines(data: bytes) -> Tree:
    return {"lines": [json.loads(line) for line in data.splitlines()]}


def _jsonl_bytes(tree: Tree) -> bytes:
    return b"".join(_json_bytes(line) + b"\n" for line in _items(tree, "lines"))


def _items(tree: Tree, key: str) -> list[Tree]:
    branch = tree.get(key) if isinstance(tree, dict) else None
    return branch if isinstance(branch, list) else []


# -- protocol buffers ----------------------------------------------------------------------------------------------


def _message_tree(message: Message) -> dict[str, Tree]:
    found: dict[str, Tree] = {}
    for field, value in message.ListFields():
        convert: Callable[[Any], Tree] = _message_tree if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE else lambda item: item
        found[field.name] = [convert(item) for item in value] if field.is_repeated else convert(value)
    return found


def _fill(message: Message, tree: Tree) -> None:
    """Set what the tree says; what a field cannot hold is left out, for no file could say it either."""
    if not isinstance(tree, dict):
        return
    fields = {field.name: field for field in message.DESCRIPTOR.fields}
    for name, value in tree.items():
        field = fields.get(name)
        if field is None:
            continue
        items = value if isinstance(value, list) else [value]
        for item in items if field.is_repeated else items[:1]:
            with contextlib.suppress(TypeError, ValueError, AttributeError):
                if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                    inner = getattr(message, name).add() if field.is_repeated else getattr(message, name)
                    inner.SetInParent()  # an empty shape is that of a scalar, no shape at all is unknown
                    _fill(inner, item)
                elif field.is_repeated:
                    getattr(message, name).append(item)
                else:
                    setattr(message, name, item)


def _onnx_tree(data: bytes) -> Tree:
    return _message_tree(onnx.ModelProto.FromString(data))


def _onnx_bytes(tree: Tree) -> bytes:
    model = onnx.ModelProto()
    _fill(model, tree)
    return model.SerializeToString()


# -- text: lines of words, each under the kind of word that it is ----------------------------------------------------

_KINDS = (
    ("blank", r"[ \t]+"),
    ("quoted", r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\''),
    ("number", r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"),
    ("value", r"%[\w.]+"),
    ("element", r"\b(?:[fiu](?:8|16|32|64)|bf16|bool|c64|c128)\b"),
    ("operator", r"[A-Za-z_]\w*(?:\.\w+)+(?=\()"),
    ("call", r"[A-Za-z_][\w.]*(?=\()"),
    ("dotted", r"[A-Za-z_]\w*(?:\.\w+)+"),
    ("word", r"[A-Za-z_]\w*"),
    ("mark", r"->|==|//|."),
)
_WORD = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS))


def _text_tree(text: str) -> Tree:
    return {"text": [{"line": [{str(match.lastgroup): match[0]} for match in _WORD.finditer(line)]} for line in text.split("\n")]}


def _text_of(tree: Tree) -> str:
    return "\n".join("".join(_flat(line)) for line in _items(tree, "text"))


def _flat(tree: Tree) -> Iterator[str]:
    if isinstance(tree, dict | list):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from _flat(item)
    elif tree is not None:
        yield tree.decode("latin-1") if isinstance(tree, bytes) else str(tree)


# -- pickles: lists of operations ------------------------------------------------------------------------------------

_OPCODES = {opcode.name: opcode for opcode in pickletools.opcodes}
_NUMBERS = {"uint1": "<B", "uint2": "<H", "int4": "<i", "uint4": "<I", "uint8": "<Q", "float8": ">d"}
_PREFIXES = {"unicodestring1": "<B", "unicodestring4": "<I", "unicodestring8": "<Q", "bytes1": "<B", "bytes4": "<I", "string1": "<B"}


def _pickle_tree(data: bytes) -> tuple[Tree, int]:
    """The operations of the first pickle, and where it ends."""
    trees: list[Tree] = []
    end = 0
    stream = io.BytesIO(data)
    for opcode, argument, _ in pickletools.genops(stream):
        end = stream.tell()
        trees.append({opcode.name: argument})
    return trees, end


def _pickle_bytes(tree: Tree) -> bytes:
    return b"".join(_operation(op) for op in (tree if isinstance(tree, list) else []))


def _operation(op: Tree) -> bytes:
    if not isinstance(op, dict) or len(op) != 1:
        return b""
    ((name, argument),) = op.items()
    opcode = _OPCODES.get(str(name))
    if opcode is None:
        return b""
    code = opcode.code.encode("latin-1")
    return code if opcode.arg is None else code + _argument(opcode.arg.name, argument)


def _argument(kind: str, value: Tree) -> bytes:
    if kind in _NUMBERS:
        layout = struct.Struct(_NUMBERS[kind])
        if kind == "float8":
            return layout.pack(float(value) if isinstance(value, int | float) and abs(value) < 1e300 else 0.0)
        number = int(value) if isinstance(value, int | float) and value == value and abs(value) != float("inf") else 0
        return (number % (1 << 8 * layout.size)).to_bytes(layout.size, "little")
    if kind in ("long1", "long4"):
        number = value if isinstance(value, int) else 0
        raw = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
        return (bytes([min(len(raw), 255)]) + raw[:255]) if kind == "long1" else struct.pack("<i", len(raw)) + raw
    raw = value if isinstance(value, bytes) else "".join(_flat(value)).encode("utf-8", "surrogatepass")
    if kind in _PREFIXES:
        size = struct.calcsize(_PREFIXES[kind])
        return struct.pack(_PREFIXES[kind], min(len(raw), (1 << 8 * size) - 1)) + raw[: (1 << 8 * size) - 1]
    # GLOBAL and its like: pairs of lines that pickletools joins with a blank.
    return raw.replace(b"\n", b"").replace(b" ", b"\n", 1) + b"\n"


# -- archives ---------------------------------------------------------------------------------------------------------


def _zip_tree(data: bytes) -> Tree:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {"entries": [_entry(info.filename, file.read(info)) for info in file.infolist()]}


def _entry(name: str, data: bytes) -> Tree:
    if name.endswith(".json") and data[:1] in (b"{", b"["):
        return {"name": name, "json": json.loads(data)}
    if name.endswith(".pkl"):
        operations, end = _pickle_tree(data)
        return {"name": name, "pickle": operations, "raw": data[end:]}
    if name.endswith((".py", ".cpp")):
        return {"name": name, "code": _text_tree(data.decode())}
    if data[:4] == b"PK\x03\x04":
        return {"name": name, "archive": _zip_tree(data)}
    return {"name": name, "raw": data}


def _zip_bytes(tree: Tree) -> bytes:
    buffer = io.BytesIO()
    told: list[tuple[zipfile.ZipInfo, dict[str, Tree]]] = []
    with zipfile.ZipFile(buffer, "w") as file:
        for number, entry in enumerate(_items(tree, "entries")):
            if isinstance(entry, dict):
                name = "".join(_flat(entry.get("name"))).encode("utf-8", "replace").decode()[:60_000]
                # A fixed date, so that the same tree is the same file.
                info = zipfile.ZipInfo(name or str(number))
                if info.filename in file.namelist():
                    file.NameToInfo.pop(info.filename)
                file.writestr(info, _content(entry))
                told.append((info, entry))
    return _with_told(buffer.getvalue(), told)


_TOLD = {"flags": (6, 8, "H"), "method": (8, 10, "H"), "packed_size": (18, 20, "I"), "size": (22, 24, "I")}
"""What an entry may declare of itself against the truth: places in its own header and in that of the directory, and the form."""


def _with_told(made: bytes, told: list[tuple[zipfile.ZipInfo, dict[str, Tree]]]) -> bytes:
    changed, at = bytearray(made), made.rfind(b"PK\5\6")
    directory = struct.unpack_from("<I", made, at + 16)[0] if told else 0
    for info, entry in told:
        for key, (own, listed, form) in _TOLD.items():
            if entry.get(key) is not None:
                number = _gguf_number(form, entry[key])
                for place in (info.header_offset + own, directory + listed):
                    changed[place : place + len(number)] = number
        directory += 46 + sum(struct.unpack_from("<3H", made, directory + 28))
    return bytes(changed)


_CONTENTS: dict[int, tuple[dict[str, Tree], bytes]] = {}
"""Contents of entries that were made before, which most mutants share with their seed; an entry is kept so that its id stays its own."""
_MOST_CONTENTS = 2000


def _content(entry: dict[str, Tree]) -> bytes:
    known = _CONTENTS.get(id(entry))
    if known is None:
        if len(_CONTENTS) >= _MOST_CONTENTS:
            _CONTENTS.clear()
        known = _CONTENTS[id(entry)] = entry, _made_content(entry)
    return known[1]


def _made_content(entry: dict[str, Tree]) -> bytes:
    parts: list[bytes] = []
    for key, value in entry.items():
        if key == "json":
            parts.append(_json_bytes(value))
        elif key == "pickle":
            parts.append(_pickle_bytes(value))
        elif key == "code":
            parts.append(_text_of(value).encode("utf-8", "surrogatepass"))
        elif key == "archive":
            parts.append(_zip_bytes(value))
        elif key == "raw" and isinstance(value, bytes):
            parts.append(value)
    return b"".join(parts)


def _packed_zip_tree(data: bytes) -> Tree:
    """As an archive of models, whose entries may say other things of themselves than what they are."""
    tree = _zip_tree(data)
    return {"entries": [{**dict.fromkeys(_TOLD), **entry} for entry in tree["entries"]]}


_PACKINGS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "gz": (gzip.decompress, lambda data: gzip.compress(data, 1, mtime=0)),
    "bz2": (bz2.decompress, lambda data: bz2.compress(data, 1)),
    "xz": (lzma.decompress, lambda data: lzma.compress(data, preset=0)),
}


def _tar_tree(data: bytes) -> Tree:
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        held = [(one, file.extractfile(one)) for one in file]
        entries = [
            {"kind": "0", "link": "", "size": None, "mode": one.mode, "pax": {"comment": "x"}, **_entry(one.name, content.read())}
            for one, content in held
            if content is not None
        ]
    return {
        "packing": next((name for name, (unpack, _) in _PACKINGS.items() if _opens(unpack, data)), ""),
        "entries": entries,
        "tail": bytes(1024),
    }


def _opens(unpack: Callable[[bytes], bytes], data: bytes) -> bool:
    with contextlib.suppress(OSError, EOFError, lzma.LZMAError):
        return bool(unpack(data))
    return False


def _tar_bytes(tree: Tree) -> bytes:
    parts: list[bytes] = []
    for number, entry in enumerate(_items(tree, "entries")):
        if not isinstance(entry, dict):
            continue
        content = _content(entry)
        info = tarfile.TarInfo("".join(_flat(entry.get("name"))) or str(number))
        info.size = len(content) if entry.get("size") is None else int.from_bytes(_gguf_number("q", entry["size"]), "little", signed=True)
        info.mode = int.from_bytes(_gguf_number("I", entry.get("mode")), "little") % 0o10000
        info.type = ("".join(_flat(entry.get("kind"))) or "0").encode("latin-1", "replace")[:1]
        info.linkname = "".join(_flat(entry.get("link")))
        pax = entry.get("pax")
        info.pax_headers = {str(key): "".join(_flat(value)) for key, value in pax.items()} if isinstance(pax, dict) else {}
        with contextlib.suppress(ValueError, OverflowError):
            parts.append(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogatepass") + content + bytes(-len(content) % 512))
    tail = tree.get("tail") if isinstance(tree, dict) else b""
    made = b"".join(parts) + (tail if isinstance(tail, bytes) else b"")
    packing = _PACKINGS.get(str(tree.get("packing"))) if isinstance(tree, dict) else None
    return made if packing is None else packing[1](made)


# -- other checkpoints --------------------------------------------------------------------------------------------------


def _safetensors_tree(data: bytes) -> Tree:
    length = int.from_bytes(data[:8], "little")
    return {"header": json.loads(data[8 : 8 + length]), "raw": data[8 + length :]}


def _safetensors_bytes(tree: Tree) -> bytes:
    header = _json_bytes(tree.get("header") if isinstance(tree, dict) else tree)
    raw = tree.get("raw") if isinstance(tree, dict) else b""
    return struct.pack("<Q", len(header)) + header + (raw if isinstance(raw, bytes) else b"")


def _legacy_tree(data: bytes) -> Tree:
    """torch.save before archives: five pickles behind one another, then the storages."""
    pickles: list[Tree] = []
    for _ in range(5):
        operations, end = _pickle_tree(data)
        pickles.append({"pickle": operations})
        data = data[end:]
    return {"pickles": pickles, "raw": data}


def _legacy_bytes(tree: Tree) -> bytes:
    raw = tree.get("raw") if isinstance(tree, dict) else b""
    pickles = [item for item in _items(tree, "pickles") if isinstance(item, dict)]
    return b"".join(_pickle_bytes(item.get("pickle")) for item in pickles) + (raw if isinstance(raw, bytes) else b"")


# -- GGUF ------------------------------------------------------------------------------------------------------------------

_GGUF_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def _gguf_tree(data: bytes) -> Tree:
    """Counts are `null` where they are those of what follows, so that a changed list is still a sound file."""
    file = io.BytesIO(data)

    def number(form: str) -> Any:
        return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))[0]

    def text() -> str:
        return file.read(number("Q")).decode()

    def value(kind: int) -> Tree:
        if kind == 9:
            inner, count = number("I"), number("Q")
            return {"items_kind": inner, "items": [value(inner) for _ in range(count)]}
        return text() if kind == 8 else number(_GGUF_NUMBERS[kind])

    file.read(4)
    version, tensors, entries = number("I"), number("Q"), number("Q")
    metadata = [{"key": text(), "kind": (kind := number("I")), "value": value(kind)} for _ in range(entries)]
    table = []
    for _ in range(tensors):
        name, axes = text(), number("I")
        table.append({"name": name, "dims": [number("Q") for _ in range(axes)], "code": number("I"), "offset": number("Q")})
    counts = {"tensor_count": None, "entry_count": None}
    return {"version": version, **counts, "metadata": metadata, "tensors": table, "raw": data[-(-file.tell() // 32) * 32 :]}


def _gguf_number(form: str, value: Tree) -> bytes:
    """A number of any tree, cut to what the form holds."""
    try:
        if form in "fd":
            return struct.pack(f"<{form}", float(value))
        if form == "?":
            return struct.pack("<?", bool(value))
        size = 8 * struct.calcsize(f"<{form}")
        return (int(value) % (1 << size)).to_bytes(size // 8, "little")
    except (TypeError, ValueError, OverflowError):
        return bytes(struct.calcsize(f"<{form}"))


def _gguf_text(value: Tree) -> bytes:
    data = (value if isinstance(value, str) else json.dumps(value, default=str)).encode("utf-8", "replace")
    return struct.pack("<Q", len(data)) + data


def _gguf_value(kind: Tree, value: Tree, depth: int = 0) -> bytes:
    if kind == 9 and depth < 9:
        inner, items = (value.get("items_kind"), _items(value, "items")) if isinstance(value, dict) else (4, [])
        return _gguf_number("I", inner) + _gguf_number("Q", len(items)) + b"".join(_gguf_value(inner, item, depth + 1) for item in items)
    form = _GGUF_NUMBERS.get(kind) if isinstance(kind, int) else None
    return _gguf_text(value) if form is None else _gguf_number(form, value)


def _gguf_bytes(tree: Tree) -> bytes:
    tree = tree if isinstance(tree, dict) else {}
    metadata = [tree for tree in _items(tree, "metadata") if isinstance(tree, dict)]
    table = [tree for tree in _items(tree, "tensors") if isinstance(tree, dict)]
    made = b"GGUF" + _gguf_number("I", tree.get("version"))
    for key, held in (("tensor_count", table), ("entry_count", metadata)):
        made += _gguf_number("Q", len(held) if tree.get(key) is None else tree[key])
    for one in metadata:
        made += _gguf_text(one.get("key", "")) + _gguf_number("I", one.get("kind")) + _gguf_value(one.get("kind"), one.get("value"))
    for one in table:
        dims = _items(one, "dims")
        made += _gguf_text(one.get("name", "")) + _gguf_number("I", len(dims)) + b"".join(_gguf_number("Q", size) for size in dims)
        made += _gguf_number("I", one.get("code")) + _gguf_number("Q", one.get("offset"))
    raw = tree.get("raw")
    return made + bytes(-len(made) % 32) + (raw if isinstance(raw, bytes) else b"")


# -- bytecode of MLIR: its strings, and the attributes and types that are lists of numbers ----------------------------------


def _varint(value: int) -> bytes:
    value %= 1 << 64
    size = max(1, -(-value.bit_length() // 7))
    return ((value << size) | (1 << (size - 1))).to_bytes(size, "little") if size < 9 else b"\0" + value.to_bytes(8, "little")


def _varints(data: bytes) -> list[int] | None:
    """The numbers that bytes are, where they are nothing else."""
    stream, found = bytecode._Stream(data), []
    with contextlib.suppress(IndexError):
        while not stream.is_at_end:
            found.append(stream.number())
        return found if b"".join(map(_varint, found)) == data else None
    return None


def _bytecode_tree(data: bytes) -> Tree:
    start = data.find(bytecode.MAGIC)
    reader = bytecode._Reader(data[start:])
    stream = bytecode._Stream(data, start + len(bytecode.MAGIC))
    stream.number()
    stream.at = data.index(b"\0", stream.at) + 1
    head, sections = data[start : stream.at], []
    while len(sections) < len(reader.sections):
        kind, content = stream.section()
        sections.append({"section": kind, "content": content if kind not in (0, 2) else None})
    entries = [*reader.attribute_entries, *reader.type_entries]
    held = [{"numbers": found} if (found := _varints(raw)) is not None and own else {"bytes": raw} for _, own, raw in entries]
    return {"front": data[:start], "head": head, "strings": reader.strings, "entries": held, "sections": sections, "end": data[stream.at :]}


def _bytecode_bytes(tree: Tree) -> bytes:
    tree = tree if isinstance(tree, dict) else {}
    strings = ["".join(_flat(tree)).encode("utf-8", "surrogatepass") + b"\0" for tree in _items(tree, "strings")]
    entries = [
        b"".join(_varint(int.from_bytes(_gguf_number("Q", tree)[:8], "little")) for tree in _items(entry, "numbers"))
        if isinstance(entry, dict) and "numbers" in entry
        else entry.get("bytes", b"")
        if isinstance(entry, dict) and isinstance(entry.get("bytes"), bytes)
        else b""
        for entry in _items(tree, "entries")
    ]
    made = b"".join(part for key in ("front", "head") if isinstance(part := tree.get(key), bytes))
    for section in _items(tree, "sections"):
        kind = section.get("section") if isinstance(section, dict) else None
        content = section.get("content") if isinstance(section, dict) else b""
        if kind == 0 and content is None:
            content = b"".join([_varint(len(strings)), *(_varint(len(string)) for string in reversed(strings)), *strings])
        elif kind == 2 and content is None:
            content = b"".join(entries)
        elif kind == 3 and isinstance(content, bytes):
            content = _offsets(content, [len(entry) for entry in entries])
        if isinstance(kind, int) and isinstance(content, bytes):
            made += bytes([kind & 0x7F]) + _varint(len(content)) + content
    end = tree.get("end")
    return made + (end if isinstance(end, bytes) else b"")


def _offsets(content: bytes, sizes: list[int]) -> bytes:
    """The table with the lengths that the entries have now."""
    stream, at, made = bytecode._Stream(content), 0, b""
    with contextlib.suppress(IndexError):  # it was changed itself
        counts = [stream.number(), stream.number()]
        made = b"".join(map(_varint, counts))
        for count in counts:
            end = at + count
            while at < end:
                dialect, many = stream.number(), stream.number()
                made += _varint(dialect) + _varint(many)
                for _ in range(many):
                    own = stream.number() & 1
                    made += _varint(((sizes[at] if at < len(sizes) else 0) << 1) | own)
                    at += 1
    return made


CODECS: dict[str, Codec] = {
    "json": Codec(json.loads, _json_bytes),
    "jsonl": Codec(_lines, _jsonl_bytes),
    "onnx": Codec(_onnx_tree, _onnx_bytes),
    "text": Codec(lambda data: _text_tree(data.decode()), lambda tree: _text_of(tree).encode("utf-8", "surrogatepass")),
    "zip": Codec(_zip_tree, _zip_bytes),
    "safetensors": Codec(_safetensors_tree, _safetensors_bytes),
    "legacy": Codec(_legacy_tree, _legacy_bytes),
    "gguf": Codec(_gguf_tree, _gguf_bytes),
    "tar": Codec(_tar_tree, _tar_bytes),
    "models": Codec(_packed_zip_tree, _zip_bytes),
    "config": Codec(json.loads, _json_bytes),
    "snapshot": Codec(pickle.loads, lambda tree: pickle.dumps(tree, 4)),
    "pickle": Codec(lambda data: {"pickle": _pickle_tree(data)[0]}, lambda tree: _pickle_bytes(_items(tree, "pickle"))),
    "bytecode": Codec(_bytecode_tree, _bytecode_bytes),
}
