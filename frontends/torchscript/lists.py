"""Lists of tensors whose length depends on data: sequences in the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from irscope.frontends.torchscript.emit import Emitter
from irscope.frontends.torchscript.plain import NotKnown
from irscope.frontends.torchscript.values import Item, KnownTensor, TensorList
from irscope.ir.dims import SymDim
from irscope.ir.graph import Attr, Value
from irscope.ir.types import UNKNOWN_TYPE, sequence


def to_sequence(emitter: Emitter, items: Sequence[Item] | TensorList) -> Value | None:
    """A list as a value of the current graph; None where it holds something other than tensors."""
    if isinstance(items, TensorList):
        return items.value
    values = [emitter.value_of(item) for item in items]
    if not all(isinstance(value, Value) for value in values):
        return None
    if not values:
        # What its elements are shows when something is added to it.
        return emitter.node("seq.empty", (), (sequence(UNKNOWN_TYPE),), "prim::ListConstruct").outputs[0]
    return emitter.op("seq.construct", [value for value in values if isinstance(value, Value)], {}, "prim::ListConstruct")


def call_list(emitter: Emitter, name: str, items: TensorList, args: Sequence[Item], named: Mapping[str, Item]) -> Item:
    """A call of torch.NAME whose first argument is such a list."""
    rule = _RULES.get(name)
    if rule is None:
        raise NotKnown
    return rule(emitter, items, [*args, *named.values()])


def _append(emitter: Emitter, items: TensorList, args: list[Item]) -> Item:
    added = emitter.value_of(args[0])
    if not isinstance(added, Value):
        raise NotKnown
    items.value = emitter.op("seq.insert", (items.value, added), {}, "aten::append")
    return items


def _length(emitter: Emitter, items: TensorList, args: list[Item]) -> Item:
    emitter.op("seq.length", (items.value,), {}, "aten::len")
    return emitter.fresh(0)


def _at(emitter: Emitter, items: TensorList, args: list[Item]) -> Item:
    position = args[0]
    if not isinstance(position, int | SymDim):
        raise NotKnown
    return emitter.op("seq.at", (items.value, None), {"position": position}, "aten::__getitem__")


def _pop(emitter: Emitter, items: TensorList, args: list[Item]) -> Item:
    last = _at(emitter, items, args or [-1])
    attrs: dict[str, Attr] = {"position": args[0]} if args and isinstance(args[0], int | SymDim) else {}
    items.value = emitter.op("seq.erase", (items.value, None), attrs, "aten::pop")
    return last


def _join(new_axis: bool) -> Callable[[Emitter, TensorList, list[Item]], Item]:
    def join(emitter: Emitter, items: TensorList, args: list[Item]) -> Item:
        axis = args[0].number if args and isinstance(args[0], KnownTensor) else args[0] if args else 0
        if not isinstance(axis, int):
            raise NotKnown
        return emitter.op(
            "seq.concat_from", (items.value,), {"axis": axis, "new_axis": new_axis}, "aten::stack" if new_axis else "aten::cat"
        )

    return join


_RULES: dict[str, Callable[[Emitter, TensorList, list[Item]], Item]] = {
    "append": _append,
    "len": _length,
    "__getitem__": _at,
    "pop": _pop,
    "stack": _join(True),
    "cat": _join(False),
    "concat": _join(False),
}
