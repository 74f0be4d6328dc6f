"""The first use of an input of a scripted model, found by use-def chains in the code without running it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from irscope.frontends.torchscript.expressions import dotted
from irscope.frontends.torchscript.packed import flattened
from irscope.frontends.torchscript.source import Function, Source
from irscope.frontends.torchscript.values import Item, ScriptObject
from irscope.ir.dtypes import DType
from irscope.ir.graph import Value
from irscope.ir.types import TensorType

_DEEPEST = 40
_MOST_STEPS = 20_000


@dataclass(frozen=True)
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
    """The first layer that the input of this name reaches; None where there is none."""
    try:
        _Follower(source, constants).run(method, {method.params[0]: module, name: _INPUT}, 0)
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
                found = self._eval(node.value, env, depth)
                returned = found if returned is None else returned
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
            return args[1]
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
        """A layer with packed weights, which is called like the ordinary one."""
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
    """A layer whose weight has the input's features on one of its axes."""

    def read(args: Sequence[Item]) -> Use | None:
        weight = _weight(args, weight_at)
        if weight is None or weight.shape is None or len(weight.shape) < abs(place):
            return None
        if input_at >= len(args) or args[input_at] is not _INPUT:
            return None
        return Use(kind, _int(weight.shape[place]), dtype=weight.dtype)

    return read


def _convolution(groups_at: int, transposed: bool = False) -> Callable[[Sequence[Item]], Use | None]:
    def read(args: Sequence[Item]) -> Use | None:
        weight = _weight(args, 1)
        if weight is None or weight.shape is None or args[0] is not _INPUT or len(weight.shape) < 3:
            return None
        groups = args[groups_at] if groups_at < len(args) else 1
        channels = _int(weight.shape[0]) if transposed else _int(weight.shape[1]) * _int(groups)
        return Use("convolution", channels, len(weight.shape) - 2, dtype=weight.dtype)

    return read


def _recurrent(args: Sequence[Item]) -> Use | None:
    weights = next((arg for arg in args[2:4] if isinstance(arg, list) and arg and isinstance(arg[0], Value)), None)
    weight = _weight(weights, 0) if isinstance(weights, list) else None
    if weight is None or weight.shape is None or args[0] is not _INPUT:
        return None
    return Use("recurrent", _int(weight.shape[-1]), batch_first=args[-1] is True, dtype=weight.dtype)


def _int(item: object) -> int:
    return item if isinstance(item, int) and not isinstance(item, bool) else 1


_LAYERS: dict[str, Callable[[Sequence[Item]], Use | None]] = {
    **{f"conv{axes}d": _convolution(6) for axes in (1, 2, 3)},
    **{f"conv_transpose{axes}d": _convolution(6, True) for axes in (1, 2, 3)},
    "_convolution": _convolution(8),
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
    "lstm": _recurrent,
    "gru": _recurrent,
    "rnn_tanh": _recurrent,
    "rnn_relu": _recurrent,
}
