"""Arguments of a method: recorded by tracing, given by the user, or guessed from the first use of each input."""

from __future__ import annotations

import ast
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from irscope.diagnostics import DiagnosticSink
from irscope.errors import LoadError
from irscope.frontends.base import SOLE, LoadOptions, stated
from irscope.frontends.files.pickled import PickledTensor, pickled_type
from irscope.frontends.torchscript.emit import Emitter, flattened
from irscope.frontends.torchscript.interpreter import dotted
from irscope.frontends.torchscript.values import Function, Item, ScriptObject, Source
from irscope.immutable import immutable
from irscope.ir.dims import SymDim, symbol
from irscope.ir.dtypes import DType
from irscope.ir.graph import Value
from irscope.ir.program import Assumed
from irscope.ir.types import TensorType, Type, tensor

_MOST_ITEMS = 100_000
_PLAIN: dict[str, Item] = {"float": 1.0, "bool": False}


class Inputs:
    """Arguments of the method that is read; tensors become inputs of the graph."""

    def __init__(self, method: Function, options: LoadOptions, emitter: Emitter, sink: DiagnosticSink) -> None:
        self._method = method
        self._options = options = options.for_inputs(self._required(method))
        self._emitter = emitter
        self._sink = sink
        self.names = method.params[1:]
        self.symbols: dict[str, SymDim] = {}
        self.assumed: list[Assumed] = []
        self._items = 0
        known = {*self.names, *(str(index) for index in range(len(self.names)))}
        for name in options.inputs:
            if name != SOLE and name not in known and name.partition(".")[0] not in known:
                raise self.error(f"the model has no input {name!r}", f"its inputs are {', '.join(self.names)}")

    @staticmethod
    def _required(method: Function) -> list[str]:
        """Return the inputs that have no default."""
        return [name for name in method.params[1:] if method.default(name) is None]

    def error(self, what: str, hint: str) -> LoadError:
        return LoadError(what, code="IRS185", where=self._emitter.path, hint=hint)

    def traced(self, items: Sequence[object]) -> list[Item]:
        """Return the arguments like those that the model was traced with."""
        names = self.names
        return [self._traced(item, names[index] if index < len(names) else f"input{index}", str(index)) for index, item in enumerate(items)]

    def _traced(self, item: object, name: str, position: str) -> Item:
        self._items += 1
        if self._items > _MOST_ITEMS:
            raise self.error("the recorded inputs hold one another over and over", "the file is damaged or hostile")
        if isinstance(item, PickledTensor):
            given = self._options.inputs.get(name) or self._options.inputs.get(position)
            return self._input(name, stated(given, pickled_type(item), name) if isinstance(given, TensorType) else pickled_type(item))
        if isinstance(item, list):
            return [self._traced(part, f"{name}.{index}", f"{position}.{index}") for index, part in enumerate(item)]
        if isinstance(item, tuple):
            return tuple(self._traced(part, f"{name}.{index}", f"{position}.{index}") for index, part in enumerate(item))
        if isinstance(item, dict):
            return {key: self._traced(part, f"{name}.{key}", f"{position}.{key}") for key, part in item.items()}
        return item

    def missing(self) -> list[str]:
        """Return the inputs that are neither given, nor optional, nor numbers."""
        return [
            name
            for index, name in enumerate(self.names)
            if not self._given(name, index)
            and self._method.default(name) is None
            and not self._method.annotation(name).startswith("Optional[")
            and self._method.annotation(name) not in ("int", *_PLAIN)
        ]

    def scripted(self, guessed: Mapping[str, Type]) -> dict[str, Item]:
        """Return the arguments by name for a method of which no call was recorded."""
        found: dict[str, Item] = {}
        for index, name in enumerate(self.names):
            given = self._given(name, index) or ({"": guessed[name]} if name in guessed else {})
            if given:
                found[name] = self._built(name, given)
            elif self._method.default(name) is None:
                found[name] = self._default(name)
        return found

    def _given(self, name: str, index: int) -> dict[str, Type]:
        """Return the types that the user gave for an input; for parts of a list or dictionary by the rest of their names."""
        found: dict[str, Type] = {}
        for key, type_ in self._options.inputs.items():
            head, _, rest = key.partition(".")
            if head == name or key == str(index):
                found[rest] = stated(type_, None, name)
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


# -- types from use, at usual sizes, tried out until the model accepts them --------------------------------------------


_MOST_ATTEMPTS = 80
# What published models are trained and evaluated at, the most frequent first.
_PICTURES = (224, 256, 384, 299, 512, 32, 28, 518, 336, 448, 240, 288, 320, 380, 64, 96, 128, 160, 192, 640, 800, 1024)
_LENGTHS = (128, 512, 77, 64, 256, 1024, 32, 16, 8, 2048)
_SAMPLES = 16_000
"""One second of sound as speech models take it."""
_FRAMES = 16
"""Pictures of a video; the classifiers of torchvision take 16 of half the usual height and width."""
_LEAST_ASSERTED, _MOST_ASSERTED = 4, 16_384
"""A number that a size is compared with is a size itself if it is no count of channels or axes."""
_INDEX_NAMES = ("id", "token", "index", "indices", "label")

Types = dict[str, TensorType]


@immutable(slots=False)
class Verdict:
    """Outcome of a run of the code with some types."""

    accepted: bool
    compared: Sequence[tuple[int, int]] = ()
    """Whole numbers that the code compared with one another."""


@immutable(slots=False)
class Guess:
    """A type for every input, such that the model accepts them all."""

    types: Types
    how: str
    """Where the sizes come from."""


@immutable(slots=False)
class _Sizes:
    """Sizes that inputs are tried at."""

    height: int = _PICTURES[0]
    width: int = _PICTURES[0]
    length: int = _LENGTHS[0]

    def asserted(self, verdict: Verdict) -> Iterator[_Sizes]:
        """Yield these sizes with some replaced by numbers that the code compared them with."""
        pairs = [pair for a, b in verdict.compared if a != b for pair in ((a, b), (b, a))]
        for tried, wanted in pairs:
            if _LEAST_ASSERTED <= wanted <= _MOST_ASSERTED:
                height, width, length = (wanted if own == tried else own for own in (self.height, self.width, self.length))
                for one in (
                    _Sizes(height, width, length),
                    _Sizes(height, self.width, self.length),
                    _Sizes(self.height, width, self.length),
                ):
                    if one != self:
                        yield one


def guess_types(uses: Mapping[str, Use | None], accepts: Callable[[Types], Verdict]) -> Guess | None:
    """Usual sizes, those that the code asserts where it takes no others; None where nothing tried is accepted."""
    usual = deque(_usual(uses))
    asserted: deque[_Sizes] = deque()
    tried: set[tuple[TensorType, ...]] = set()
    while usual or asserted:
        is_asserted = bool(asserted)
        sizes = asserted.popleft() if asserted else usual.popleft()
        for types in _combinations(uses, sizes):
            key = tuple(types.values())
            if key in tried:
                continue
            if len(tried) >= _MOST_ATTEMPTS:
                return None
            tried.add(key)
            verdict = accepts(types)
            if verdict.accepted:
                return Guess(types, "sizes that the code asserts" if is_asserted else "usual sizes that the code accepts")
            asserted.extend(sizes.asserted(verdict))
    return None


def _usual(uses: Mapping[str, Use | None]) -> Iterator[_Sizes]:
    """Yield the sizes in the order in which they are tried: of pictures where the model takes any, else of sequences."""
    if any(use is not None and use.kind == "convolution" and use.axes > 1 for use in uses.values()):
        yield from (_Sizes(size, size) for size in (*_PICTURES, *range(16, 513, 16)))
    else:
        yield from (_Sizes(length=length) for length in _LENGTHS)


_LIKELIEST = 6
"""Combinations of types of all inputs that are tried at each size."""


def _combinations(uses: Mapping[str, Use | None], sizes: _Sizes) -> Iterator[Types]:
    """Return the types for all inputs at once, the likeliest first."""
    choices = [_candidates(name, use, sizes) for name, use in uses.items()]
    return (dict(zip(uses, types, strict=True)) for types in itertools.islice(itertools.product(*choices), _LIKELIEST))


def _candidates(name: str, use: Use | None, sizes: _Sizes) -> Sequence[TensorType]:
    length = sizes.length
    if use is None:
        if any(part in name.lower() for part in _INDEX_NAMES):
            return [tensor(DType.I64, (1, length))]
        picture = (1, 3, sizes.height, sizes.width)
        shapes: tuple[tuple[int, ...], ...] = ((1, length), (1, length, length), picture, (length,), (1,), ())
        return [tensor(DType.F32, shape) for shape in shapes]
    dtype = use.dtype if use.dtype.is_float else DType.F32
    if use.kind == "convolution":
        return [tensor(dtype, (1, use.size, *_window_sizes(use.axes, use.size, sizes)))]
    if use.kind == "embedding":
        return [tensor(DType.I64, (1, length)), tensor(DType.I64, (length,))]
    if use.kind == "recurrent":
        shape = (1, length, use.size) if use.batch_first else (length, 1, use.size)
        return [tensor(dtype, shape)]
    if use.kind == "norm":
        return [tensor(dtype, (2, use.size, *_window_sizes(axes, use.size, sizes))) for axes in (2, 0, 1, 3)]
    return [tensor(dtype, (*lead, use.size)) for lead in ((1,), (1, length), (1, length, length), ())]


def _window_sizes(axes: int, channels: int, sizes: _Sizes) -> tuple[int, ...]:
    """Return the sizes of the axes that a convolution goes along: of a sequence or a sound, a picture, a video."""
    if axes == 1:
        return (_SAMPLES if channels == 1 and sizes.length == _LENGTHS[0] else sizes.length,)
    picture = (sizes.height, sizes.width)
    return picture if axes == 2 else (_FRAMES, *(size // 2 for size in picture)) if axes == 3 else ()


# -- the first use of an input, found by use-def chains in the code without running it ---------------------------------


_DEEPEST = 40
_MOST_STEPS = 20_000


@immutable(slots=False)
class Use:
    """A layer that an input reaches: convolution, linear, embedding, recurrent or norm."""

    kind: str
    size: int
    """Channels or features."""
    axes: int = 0
    """Axes of a convolution's window."""
    batch_first: bool = False
    dtype: DType = DType.F32


class _Reached(Exception):
    def __init__(self, use: Use) -> None:
        super().__init__(use.kind)
        self.use = use


_INPUT = object()
"""Marks the input and everything computed from it."""


def find_use(source: Source, constants: Sequence[Item], module: ScriptObject, method: Function, name: str) -> Use | None:
    """Return the first layer that the input of this name reaches; None where there is none."""
    try:
        _Follower(source, constants).run(method, {**dict.fromkeys(method.params[:1], module), name: _INPUT}, 0)
    except _Reached as reached:
        return reached.use
    return None


class _Follower:
    def __init__(self, source: Source, constants: Sequence[Item]) -> None:
        self._source = source
        self._constants = constants
        self._steps = 0

    def run(self, function: Function, env: dict[str, Item], depth: int) -> Item:
        if depth > _DEEPEST:
            return None
        pending: list[ast.stmt] = list(reversed(function.node.body))
        returned: Item = None
        while pending:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                return None
            node = pending.pop()
            if isinstance(node, ast.Assign):
                self._assign(node.targets[0], self._eval(node.value, env, depth), env)
            elif isinstance(node, ast.Expr):
                self._eval(node.value, env, depth)
            elif isinstance(node, ast.Return) and node.value is not None:
                item = self._eval(node.value, env, depth)
                returned = item if returned is None else returned
            elif isinstance(node, ast.If):
                pending.extend([*reversed(node.orelse), *reversed(node.body)])
            elif isinstance(node, ast.For | ast.While):
                pending.extend(reversed(node.body))
        return returned

    def _assign(self, target: ast.expr, item: Item, env: dict[str, Item]) -> None:
        if isinstance(target, ast.Name):
            if item is not None or target.id not in env:
                env[target.id] = item
        elif isinstance(target, ast.Tuple | ast.List):
            parts = list(item) if isinstance(item, list | tuple) and len(item) == len(target.elts) else [item] * len(target.elts)
            for part, value in zip(target.elts, parts, strict=True):
                self._assign(part, value if item is not _INPUT else _INPUT, env)

    def _eval(self, node: ast.expr, env: dict[str, Item], depth: int) -> Item:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return env.get(node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, env, depth)
        if isinstance(node, ast.List | ast.Tuple):
            return [self._eval(part, env, depth) for part in node.elts]
        if isinstance(node, ast.Subscript):
            owner = self._eval(node.value, env, depth)
            place = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(owner, list | tuple) and isinstance(place, int) and -len(owner) <= place < len(owner):
                return owner[place]
            return _INPUT if owner is _INPUT else None
        if isinstance(node, ast.Call):
            return self._call(node, env, depth)
        parts = [self._eval(part, env, depth) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        return _INPUT if _INPUT in parts else None

    def _attribute(self, node: ast.Attribute, env: dict[str, Item], depth: int) -> Item:
        path = dotted(node) or ""
        if path.startswith("CONSTANTS.c") and path[11:].isdigit() and int(path[11:]) < len(self._constants):
            return self._constants[int(path[11:])]
        if path.startswith("__torch__."):
            return self._source.function(path)
        owner = self._eval(node.value, env, depth)
        return owner.attrs.get(node.attr) if isinstance(owner, ScriptObject) else None

    def _call(self, node: ast.Call, env: dict[str, Item], depth: int) -> Item:
        path = dotted(node.func) or ""
        args = [self._eval(arg, env, depth) for arg in node.args]
        if path in ("annotate", "unchecked_cast"):
            return args[-1] if args else None
        if path == "getattr" and len(args) == 2:
            return args[0].attrs.get(str(args[1])) if isinstance(args[0], ScriptObject) else None
        reached = any(arg is _INPUT or (isinstance(arg, list) and _INPUT in arg) for arg in args)
        function = self._source.function(path) if path.startswith("__torch__.") else env.get(path)
        if isinstance(function, Function):
            return self.run(function, dict(zip(function.params, args, strict=False)), depth + 1) if reached else None
        if path.startswith("torch."):
            return self._layer(path[6:], args) if reached else None
        if path.startswith("ops.quantized."):
            return self._quantized(path, args) if reached else None
        owner = self._eval(node.func.value, env, depth) if isinstance(node.func, ast.Attribute) else None
        if isinstance(owner, ScriptObject) and isinstance(node.func, ast.Attribute):
            method = owner.cls.methods.get(node.func.attr)
            if method is None or not reached:
                return None
            return self.run(method, dict(zip(method.params, [owner, *args], strict=False)), depth + 1)
        return _INPUT if owner is _INPUT or reached else None

    def _quantized(self, path: str, args: Sequence[Item]) -> Item:
        """Return a layer with packed weights, which is called like the ordinary one."""
        weights = [item for item in flattened(args[1:2]) if isinstance(item, Value)]
        name = "linear" if ".linear" in path else "conv2d" if ".conv" in path else ""
        return self._layer(name, [args[0], *weights[:1]]) if weights and name else _INPUT

    def _layer(self, name: str, args: Sequence[Item]) -> Item:
        rule = _LAYERS.get(name)
        if rule is not None:
            use = rule(args)
            if use is not None:
                raise _Reached(use)
        return None if name in _QUESTIONS else _INPUT


_QUESTIONS = frozenset({"size", "dim", "len", "numel", "__isnot__", "__is__"})


def _weight(args: Sequence[Item], position: int) -> TensorType | None:
    item = args[position] if position < len(args) else None
    type_ = item.type if isinstance(item, Value) else None
    return type_ if isinstance(type_, TensorType) and type_.shape and all(isinstance(size, int) for size in type_.shape) else None


def _features(kind: str, place: int, weight_at: int, input_at: int = 0) -> Callable[[Sequence[Item]], Use | None]:
    """Return the use by a layer whose weight has the input's features on one of its axes."""

    def read(args: Sequence[Item]) -> Use | None:
        weight = _weight(args, weight_at)
        if weight is None or weight.shape is None or len(weight.shape) < abs(place):
            return None
        if input_at >= len(args) or args[input_at] is not _INPUT:
            return None
        return Use(kind, _int(weight.shape[place]), dtype=weight.dtype)

    return read


def _convolution_use(groups_at: int, transposed: bool = False) -> Callable[[Sequence[Item]], Use | None]:
    def read(args: Sequence[Item]) -> Use | None:
        weight = _weight(args, 1)
        if weight is None or weight.shape is None or args[0] is not _INPUT or len(weight.shape) < 3:
            return None
        groups = args[groups_at] if groups_at < len(args) else 1
        channels = _int(weight.shape[0]) if transposed else _int(weight.shape[1]) * _int(groups)
        return Use("convolution", channels, len(weight.shape) - 2, dtype=weight.dtype)

    return read


def _recurrent_use(args: Sequence[Item]) -> Use | None:
    weights = next((arg for arg in args[2:4] if isinstance(arg, list) and arg and isinstance(arg[0], Value)), None)
    weight = _weight(weights, 0) if isinstance(weights, list) else None
    if weight is None or weight.shape is None or args[0] is not _INPUT:
        return None
    return Use("recurrent", _int(weight.shape[-1]), batch_first=args[-1] is True, dtype=weight.dtype)


def _int(item: object) -> int:
    return item if isinstance(item, int) and not isinstance(item, bool) else 1


_LAYERS: dict[str, Callable[[Sequence[Item]], Use | None]] = {
    **{f"conv{axes}d": _convolution_use(6) for axes in (1, 2, 3)},
    **{f"conv_transpose{axes}d": _convolution_use(6, True) for axes in (1, 2, 3)},
    "_convolution": _convolution_use(8),
    "linear": _features("linear", -1, 1),
    "matmul": _features("linear", -2, 1),
    "mm": _features("linear", -2, 1),
    "addmm": _features("linear", -2, 2, 1),
    "layer_norm": _features("linear", -1, 2),
    "embedding": _features("embedding", 0, 0, 1),
    "embedding_bag": _features("embedding", 0, 0, 1),
    "batch_norm": _features("norm", 0, 1),
    "group_norm": _features("norm", 0, 2),
    "lstm_cell": _features("linear", -1, 2),
    "gru_cell": _features("linear", -1, 2),
    "rnn_tanh_cell": _features("linear", -1, 2),
    "lstm": _recurrent_use,
    "gru": _recurrent_use,
    "rnn_tanh": _recurrent_use,
    "rnn_relu": _recurrent_use,
}
