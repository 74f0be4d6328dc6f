"""Mutants: a seed whose tree was changed in a few places, or whose bytes were. The same number always gives the same mutant."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.tools.fuzz.trees import CODECS, Files, Tree

BYTES_SHARE = 0.07
"""Share of the mutants that are changed byte by byte: few of them get past a checksum or a parser."""
_POOL = 250

AS_IT_IS = "as it is"
"""In place of a codec: the file stays, and the command over it is drawn."""
Path_ = tuple[str | int, ...]
"""Keys and positions from the root to a place."""

INTEGERS = (0, 1, -1, 2, 3, 4, 7, 8, 16, 33, 64, 128, 255, 1000, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 40)
HUGE = (1 << 53, 1 << 62, (1 << 63) - 1, -(1 << 63), 1 << 64, 10**30, 10**400)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-9, 1e30, 1.7e308, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "",
    "x",
    "0",
    "-1",
    "9" * 50,
    "batch",
    "s0*s0 + 1",
    "s0**64",
    "1/0",
    "=1+1",
    "a/b",
    "../x",
    "a b",
    "\n",
    "\x1b[31m",
    "\u202e",
    "\ud800",
    "<b>",
    "%s{}",
    "é",
    "x" * 500,
    "None",
    "torch.ops.aten.relu.default",
    "aten::relu",
    "f32[2,3]",
)
ODD: tuple[Tree, ...] = (None, True, False, 0, -1, 1.5, "x", [], {}, [[]], {"x": 1}, b"", b"\0\xff")


_PICKLED = frozenset({"BININT", "BININT1", "BININT2", "BINUNICODE", "BINFLOAT", "LONG1"})
_EXPORTED = frozenset(
    {
        *("as_int", "as_float", "as_bool", "as_string", "as_scalar_type", "as_memory_format", "as_layout", "target", "expr_str", "hint"),
        *("dtype", "layout", "nn_module_stack", "stack_trace", "torch_fn", "requires_grad", "max_val", "min_val", "torch_version"),
    }
)
_WORDS = frozenset({"number", "element", "operator", "dotted"})
_DEVICES = frozenset(
    {"value", "lo", "hi", "text", "date", "how", "title", "vendor", "notes", "released", "multiprocessors", "input", "filter", "output"}
)
_RECORDED = frozenset(
    {
        *("min_us", "median_us", "p95_us", "allocated", "reserved", "requested", "time_us", "bytes", "alive", "scope", "kernels", "op"),
        *("category", "peak", "current", "workspace", "sources", "inputs", "outputs", "block", "name", "text"),
    }
)
_CONFIGURED = frozenset(
    {
        *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size", "dtype"),
        *("tie_word_embeddings", "rope_theta", "max_position_embeddings", "architectures", "quant_method", "bits", "group_size"),
        *("AutoConfig", "AutoModel", "total_size", "r", "lora_alpha", "target_modules", "base_model_name_or_path", "version", "id"),
        *("content", "library_name", "_class_name", "chat_template", "tokenizer_class", "model_max_length"),
    }
)
SOFT: dict[str, frozenset[str]] = {
    "onnx": frozenset(
        {
            "op_type",
            "i",
            "f",
            "s",
            "ints",
            "floats",
            "dim_value",
            "dim_param",
            "elem_type",
            "data_type",
            "dims",
            "value",
            "doc_string",
            "type",
        }
    ),
    "zip": _PICKLED | _EXPORTED | _WORDS,
    "legacy": _PICKLED,
    "text": _WORDS,
    "json": _DEVICES | {"total_size"},
    "safetensors": frozenset({"dtype", "shape", "data_offsets", "format"}),
    "jsonl": _RECORDED,
    "gguf": frozenset({"value", "items", "key", "name"}),
    "tar": _PICKLED | _EXPORTED | _WORDS | _CONFIGURED | {"name", "link", "kind", "mode", "comment"},
    "models": _PICKLED | _EXPORTED | _WORDS | _CONFIGURED | {"name", "flags", "method", "size"},
    "config": _CONFIGURED,
    "snapshot": frozenset(
        {
            *("action", "addr", "address", "size", "total_size", "allocated_size", "active_size", "requested_size", "stream", "time_us"),
            *("state", "segment_type", "name", "filename", "line", "device", "is_expandable", "compile_context", "user_metadata"),
        }
    ),
    "pickle": _PICKLED,
    "bytecode": frozenset({"numbers", "strings", "bytes"}),
}
"""Keys under which other values still make a file of the format: numbers, kinds of operators, names that nobody refers to."""
_SOFT_SHARE = {"zip": 0.94, "text": 0.9}
_USUAL_SHARE = 0.82


@dataclass(frozen=True)
class Seed:
    """A sound file: how to take it apart, the file itself, and what lies beside it."""

    name: str
    codec: str
    files: Files
    companion: str = ""
    """A sound file that the command also takes: the model of a recording, the model that a device is for."""


@dataclass
class _Taken:
    """A seed's tree with every place in it, so that no mutant has to look for them."""

    seed: Seed
    tree: Tree
    places: list[Path_]
    lists: list[Path_]
    soft: list[Path_]
    """Leaves under its keys of `SOFT`."""


class Seeds:
    """The seeds of one format, as trees, and what stands under each key anywhere in them."""

    def __init__(self, seeds: Sequence[Seed]) -> None:
        chance = random.Random(0)
        seen: dict[str, int] = {}
        self.pool: dict[str, list[Tree]] = {}
        self.taken: list[_Taken] = []
        for seed in seeds:
            tree = {} if seed.codec == AS_IT_IS else CODECS[seed.codec].take(next(iter(seed.files.values())))
            found = list(places(tree))
            lists = [path for path, node in found if isinstance(node, list) and len(node) > 1]
            soft = [path for path, node in found if _is_soft(seed.codec, path, node)]
            self.taken.append(_Taken(seed, tree, [path for path, _ in found], lists, soft))
            for path, node in found:
                key = key_of(path)
                bag = self.pool.setdefault(key, [])
                seen[key] = seen.get(key, 0) + 1
                if len(bag) < _POOL:
                    bag.append(node)
                elif (at := chance.randrange(seen[key])) < _POOL:
                    bag[at] = node

    def mutant(self, number: int, stream: str = "") -> tuple[Seed, Files]:
        """The mutant of that number, of a stream of mutants that has a name."""
        chance = random.Random(f"{stream}{number}")
        taken = chance.choice(self.taken)
        if taken.seed.codec == AS_IT_IS:
            return taken.seed, taken.seed.files
        if chance.random() < BYTES_SHARE:
            return taken.seed, with_main(taken.seed.files, flipped(next(iter(taken.seed.files.values())), chance))
        tree = taken.tree
        for _ in range(chance.choice((1, 1, 1, 1, 1, 2, 4))):
            tree = self._edited(tree, taken, chance)
        return taken.seed, with_main(taken.seed.files, CODECS[taken.seed.codec].make(tree))

    def _edited(self, tree: Tree, taken: _Taken, chance: random.Random) -> Tree:
        """The tree with one place changed; what did not change is shared."""
        if taken.soft and chance.random() < _SOFT_SHARE.get(taken.seed.codec, _USUAL_SHARE):
            path = chance.choice(taken.soft)
            return replaced(tree, path, lambda node: self._other(node, key_of(path), chance))
        if taken.lists and chance.random() < 0.16:
            return replaced(tree, chance.choice(taken.lists), lambda node: _rearranged(node, chance))
        # Going down at random gives rare parts their turn; else any place has the same chance.
        path = chance.choice(taken.places) if chance.random() < 0.4 and taken.places else _descended(tree, chance)
        if not path:
            return chance.choice(ODD)
        if chance.random() < 0.07:
            return replaced(tree, path[:-1], lambda holder: _keys_changed(holder, path[-1], chance))
        return replaced(tree, path, lambda node: self._other(node, key_of(path), chance))

    def _other(self, node: Tree, key: str, chance: random.Random) -> Tree:
        """What stands there elsewhere, mostly of the same kind, or what programs are not ready for."""
        bag = self.pool.get(key, [])
        action = chance.random()
        if action < 0.6:
            alike = [one for one in bag if type(one) is type(node)]
            return chance.choice(alike) if alike else _strange(node, key, chance)
        if action < 0.63 and bag:
            return chance.choice(bag)
        return chance.choice(ODD) if action < 0.65 else _strange(node, key, chance)


def with_main(files: Files, data: bytes) -> Files:
    """The files with another main one."""
    return {**files, next(iter(files)): data}


def flipped(data: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, cut out, doubled, or the end missing."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        if not made:
            break
        at = chance.randrange(len(made))
        action = chance.randrange(8)
        if action < 4:
            made[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, made[at] ^ (1 << chance.randrange(8)), chance.randrange(256)))
        elif action == 4:
            del made[at : at + chance.randrange(1, 40)]
        elif action == 5:
            made[at:at] = made[at : at + chance.randrange(1, 40)] * chance.choice((1, 1, 20))
        elif action == 6:
            made[at : at + 8] = chance.choice((bytes(8), b"\xff" * 8, b"\x7f" + b"\xff" * 7))
        elif chance.random() < 0.3:
            del made[at:]
    return bytes(made)


# -- changes of trees -------------------------------------------------------------------------------------------------


def places(tree: Tree) -> Iterator[tuple[Path_, Tree]]:
    """Every node below the root with the way to it."""
    pending: list[tuple[Path_, Tree]] = [((), tree)]
    while pending:
        path, holder = pending.pop()
        for index in holder if isinstance(holder, dict) else range(len(holder)):
            node = holder[index]
            below = (*path, index)
            yield below, node
            if isinstance(node, dict | list):
                pending.append((below, node))


def key_of(path: Path_) -> str:
    """The nearest key of a dictionary above a place: what kind of thing stands there."""
    return next((step for step in reversed(path) if isinstance(step, str)), "")


def _is_soft(codec: str, path: Path_, node: Tree) -> bool:
    is_name_of_entry = path[0] == "entries" and len(path) == 3
    return key_of(path) in SOFT[codec] and not isinstance(node, dict | list) and not is_name_of_entry


def _descended(tree: Tree, chance: random.Random) -> Path_:
    path: list[str | int] = []
    node = tree
    while isinstance(node, dict | list) and node and not (path and chance.random() < 0.04):
        step = chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
        path.append(step)
        node = node[step]
    return tuple(path)


def replaced(tree: Tree, path: Path_, change: Callable[[Tree], Tree]) -> Tree:
    """The tree with another node at a place; as it is where an earlier change took the place away."""
    if not path:
        return change(tree)
    step, rest = path[0], path[1:]
    if isinstance(tree, dict) and step in tree:
        return {**tree, step: replaced(tree[step], rest, change)}
    if isinstance(tree, list) and isinstance(step, int) and step < len(tree):
        return [*tree[:step], replaced(tree[step], rest, change), *tree[step + 1 :]]
    return tree


def _rearranged(node: Tree, chance: random.Random) -> Tree:
    """A list with an item left out, doubled, swapped or moved."""
    if not isinstance(node, list) or len(node) < 2:
        return node
    items = list(node)
    a, b = chance.randrange(len(items)), chance.randrange(len(items))
    action = chance.randrange(4)
    if action == 0:
        del items[a]
    elif action == 1:
        items.insert(b, items[a])
    elif action == 2:
        items[a], items[b] = items[b], items[a]
    else:
        items.insert(b, items.pop(a))
    return items


def _keys_changed(holder: Tree, step: str | int, chance: random.Random) -> Tree:
    """A dictionary with a key left out, renamed, or there twice."""
    if not isinstance(holder, dict) or step not in holder:
        return holder
    made = dict(holder)
    action = chance.randrange(3)
    value = made[step] if action == 1 else made.pop(step)
    if action:
        made[chance.choice((*TEXTS, *holder))] = value
    return made


def _strange(node: Tree, key: str, chance: random.Random) -> Tree:
    """A value of the same kind that programs are not ready for."""
    if isinstance(node, bool):
        return not node
    if isinstance(node, int):
        return chance.choice((node + 1, node - 1, node * 2, -node, chance.choice(INTEGERS), chance.choice(INTEGERS), chance.choice(HUGE)))
    if isinstance(node, float):
        return chance.choice((node * 2, -node, *FLOATS))
    if isinstance(node, str):
        if key == "number":
            return str(chance.choice((*INTEGERS, *HUGE)))
        return chance.choice((node + node, node[: len(node) // 2], chance.choice(TEXTS), chance.choice(TEXTS)))
    if isinstance(node, bytes):
        return chance.choice((b"", node[: len(node) // 2], bytes(len(node)), b"\xff" * len(node), flipped(node, chance)))
    if isinstance(node, list):
        return chance.choice(([], node[:1], node + node, [node], node[::-1]))
    if isinstance(node, dict):
        return chance.choice(({}, [node], dict(list(node.items())[:1])))
    return chance.choice(ODD)
