"""Functions of TorchScript on what is not a tensor: numbers, lists, dictionaries, strings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from irscope.budget import claim
from irscope.frontends.torchscript.values import Item, KnownTensor, is_integer, is_number
from irscope.ir.dims import Dim, SymDim, dim_max, dim_min, equal, floordiv, less, less_equal, mod
from irscope.ir.graph import Value

_LONGEST = 1_000_000
_MOST_BITS = 100_000


class NotKnown(Exception):
    """The answer depends on a size or value that is not known."""


class TooLarge(Exception):
    """A list or string would exceed the size limit."""


def _verdict(found: bool | None) -> bool:
    if found is None:
        raise NotKnown
    return found


def _equal_items(a: Item, b: Item) -> bool:
    if is_integer(a) and is_integer(b):
        return _verdict(equal(a, b))  # type: ignore[arg-type]  # just checked
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return _equal_parts(a, b)
    if isinstance(a, Value | KnownTensor) or isinstance(b, Value | KnownTensor):
        raise NotKnown
    return bool(a == b)


def _equal_parts(a: Item, b: Item) -> bool:
    """Nested lists part by part; those that hold one another over and over are given up."""
    pending: list[tuple[Item, Item]] = [(a, b)]
    for _ in range(_LONGEST):
        if not pending:
            return True
        left, right = pending.pop()
        if isinstance(left, list | tuple) and isinstance(right, list | tuple):
            if len(left) != len(right):
                return False
            pending.extend(zip(left, right, strict=True))
        elif not _equal_items(left, right):
            return False
    raise TooLarge


def _less_than(a: Item, b: Item) -> bool:
    if is_integer(a) and is_integer(b):
        return _verdict(less(a, b))  # type: ignore[arg-type]  # just checked
    if isinstance(a, SymDim) or isinstance(b, SymDim):
        raise NotKnown
    return bool(a < b)  # type: ignore[operator]  # numbers or strings; a TypeError is reported


def _less_equal(a: Item, b: Item) -> bool:
    if is_integer(a) and is_integer(b):
        return _verdict(less_equal(a, b))  # type: ignore[arg-type]  # just checked
    return not _less_than(b, a)


def _true_division(a: Item, b: Item) -> Item:
    if isinstance(a, SymDim) or isinstance(b, SymDim):
        raise NotKnown
    return a / b  # type: ignore[operator]  # numbers; a TypeError is reported


def _floor_division(a: Item, b: Item) -> Item:
    if is_integer(a) and is_integer(b):
        return floordiv(a, b)  # type: ignore[arg-type]  # just checked
    return a // b  # type: ignore[operator]  # numbers; a TypeError is reported


def _remainder(a: Item, b: Item) -> Item:
    if is_integer(a) and is_integer(b):
        return mod(a, b)  # type: ignore[arg-type]  # just checked
    return a % b  # type: ignore[operator]  # numbers; a TypeError is reported


def _add(a: Item, b: Item, *_: Item) -> Item:
    if isinstance(a, list) and isinstance(b, list):
        _check(len(a) + len(b))
        return [*a, *b]
    _reasonable(a)
    _reasonable(b)
    return a + b  # type: ignore[operator]  # numbers or strings; a TypeError is reported


def _multiply(a: Item, b: Item) -> Item:
    for sequence, count in ((a, b), (b, a)):
        if isinstance(sequence, list | str):
            if not isinstance(count, int):
                raise NotKnown
            _check(len(sequence) * max(count, 0))
            return sequence * count
    if isinstance(a, int) and isinstance(b, int) and a.bit_length() + b.bit_length() > _MOST_BITS:
        raise TooLarge
    return a * b  # type: ignore[operator]  # numbers; a TypeError is reported


def _power(a: Item, b: Item) -> Item:
    if isinstance(a, int) and isinstance(b, int) and (abs(b) > 10_000 or a.bit_length() * abs(b) > _MOST_BITS):
        raise TooLarge
    if isinstance(b, SymDim):
        raise NotKnown
    return a**b  # type: ignore[operator]  # numbers; a TypeError is reported


def _reasonable(item: Item) -> None:
    if isinstance(item, str | list):
        _check(len(item))


def _check(length: int) -> None:
    """Refuse a list or string that would be too long; others cost their length."""
    if length > _LONGEST:
        raise TooLarge
    claim(8 * length, "lists and strings of the model's code")


def _min_or_max(on_dims: Callable[[Dim, Dim], Dim], plain: Callable[..., Item]) -> Callable[..., Item]:
    def apply(*items: Item) -> Item:
        values: Sequence[Item] = items[0] if len(items) == 1 and isinstance(items[0], list) else items
        if any(isinstance(value, SymDim) for value in values):
            item = values[0]
            for value in values[1:]:
                item = on_dims(item, value)  # type: ignore[arg-type]  # symbols only stand beside whole numbers
            return item
        return plain(values)

    return apply


def _float_only(function: Callable[..., Item]) -> Callable[..., Item]:
    def apply(*items: Item) -> Item:
        if any(isinstance(item, SymDim) for item in items):
            raise NotKnown
        return function(*items)

    return apply


def _append(items: Item, item: Item) -> Item:
    assert isinstance(items, list)
    _reasonable(items)
    items.append(item)
    return items


def _extend(items: Item, more: Item) -> None:
    assert isinstance(items, list) and isinstance(more, list)
    _check(len(items) + len(more))
    items.extend(more)


def _extended(items: Item, more: Item) -> Item:
    _extend(items, more)
    return items


def _get(items: Item, key: Item, *default: Item) -> Item:
    if isinstance(items, dict):
        if default or key not in items:
            return items.get(key, default[0] if default else None)
        return items[key]
    if isinstance(key, SymDim):
        raise NotKnown
    return items[key]  # type: ignore[index]  # lists, tuples and strings; others are reported


def _set(items: Item, key: Item, item: Item) -> Item:
    items[key] = item  # type: ignore[index]  # lists and dictionaries; others are reported
    return items


def _slice(items: Item, start: Item = None, end: Item = None, step: Item = 1) -> Item:
    if any(isinstance(part, SymDim) for part in (start, end, step)):
        raise NotKnown
    _check(len(items))  # type: ignore[arg-type]  # as below
    return items[start:end:step]  # type: ignore[index]  # lists and strings; others are reported


def _contains(items: Item, item: Item) -> bool:
    if isinstance(items, dict):
        return item in items
    if isinstance(items, str):
        return str(item) in items
    assert isinstance(items, list | tuple)
    return any(_equal_items(part, item) for part in items)


def _format(text: Item, *items: Item) -> str:
    pieces = str(text).split("{}")
    made = [pieces[0]]
    for index, piece in enumerate(pieces[1:]):
        made.append(_text_of_code(items[index])[:200] if index < len(items) else "{}")
        made.append(piece)
    return "".join(made)[:_LONGEST]


def _text_of_code(item: Item) -> str:
    """Return an item as text; of containers only what they are, as they may hold one another over and over."""
    if isinstance(item, str | int | float | complex | None):
        return str(item)[:_LONGEST]
    return f"<{type(item).__name__}>"


def _join(text: Item, items: Item) -> str:
    parts = [_text_of_code(item) for item in items]  # type: ignore[attr-defined]  # a list; others are reported
    _check(sum(len(part) + len(str(text)) for part in parts))
    return str(text).join(parts)


def _replace(text: Item, old: Item, new: Item, *most: Item) -> str:
    count = str(text).count(str(old))
    _check(count * len(str(new)))
    return str(text).replace(str(old), str(new), *(int(number) for number in most))  # type: ignore[call-overload]  # a number


def _listed(items: Item) -> Item:
    _check(len(items))  # type: ignore[arg-type]  # lists, strings and such; others are reported
    return list(items)  # type: ignore[call-overload]  # lists, strings and such; others are reported


def _whole_operand(item: Item) -> Item:
    return item if isinstance(item, SymDim) else int(item)  # type: ignore[call-overload]  # numbers and strings


def _real(item: Item) -> Item:
    if isinstance(item, SymDim):
        raise NotKnown
    return float(item)  # type: ignore[arg-type]  # numbers and strings


def _truth(item: Item) -> bool:
    if isinstance(item, SymDim):
        return not _verdict(equal(item, 0))
    return bool(item)


def _negate(item: Item) -> Item:
    return -item  # type: ignore[operator]  # numbers; a TypeError is reported


def _pop(items: Item, *key: Item) -> Item:
    return items.pop(*key)  # type: ignore[attr-defined]  # lists and dictionaries; others are reported


def _dictionary_values(items: Item, what: str) -> Item:
    if isinstance(items, list):
        return items
    found: list[Item] = list(getattr(items, what)())
    return found


BUILTINS: dict[str, Callable[..., Item]] = {
    "add": _add,
    "add_": lambda a, b: _extended(a, b),
    "sub": lambda a, b: a - b,
    "mul": _multiply,
    "div": _true_division,
    "floordiv": _floor_division,
    "floor_divide": _floor_division,
    "remainder": _remainder,
    "fmod": _float_only(math.fmod),
    "pow": _power,
    "neg": _negate,
    "abs": lambda a: a if isinstance(a, SymDim) else abs(a),
    "eq": _equal_items,
    "ne": lambda a, b: not _equal_items(a, b),
    "lt": _less_than,
    "gt": lambda a, b: _less_than(b, a),
    "le": _less_equal,
    "ge": lambda a, b: _less_equal(b, a),
    "min": _min_or_max(dim_min, min),
    "max": _min_or_max(dim_max, max),
    "sum": lambda items: sum(items),
    "floor": lambda a: a if isinstance(a, SymDim) else math.floor(a),
    "ceil": lambda a: a if isinstance(a, SymDim) else math.ceil(a),
    "round": _float_only(lambda *a: round(*a)),
    "sqrt": _float_only(math.sqrt),
    "exp": _float_only(math.exp),
    "log": _float_only(math.log),
    "log2": _float_only(math.log2),
    "sin": _float_only(math.sin),
    "cos": _float_only(math.cos),
    "tanh": _float_only(math.tanh),
    "__not__": lambda a: not _truth(a),
    "__and__": lambda a, b: _both(a, b),
    "__or__": lambda a, b: _either(a, b),
    "__xor__": lambda a, b: a ^ b,
    "__lshift__": lambda a, b: _multiply(a, _power(2, b)),
    "__rshift__": lambda a, b: _floor_division(a, _power(2, b)),
    "__contains__": _contains,
    "__range_length": lambda low, high, step: dim_max(0, floordiv(high - low + step - 1, step)),
    "__derive_index": lambda index, start, step: start + index * step,
    "__getitem__": _get,
    "_set_item": _set,
    "all": lambda items: all(items),
    "any": lambda items: any(items),
    "len": lambda items: len(items),
    "append": _append,
    "extend": _extend,
    "insert": lambda items, index, item: items.insert(index, item),
    "pop": _pop,
    "clear": lambda items: items.clear(),
    "copy": lambda items: items.copy(),
    "reverse": lambda items: items.reverse(),
    "remove": lambda items, item: items.remove(item),
    "index": lambda items, item: next(i for i, part in enumerate(items) if _equal_items(part, item)),
    "count": lambda items, item: sum(_equal_items(part, item) for part in items),
    "sort": _float_only(lambda items, *reverse: items.sort(reverse=bool(reverse and reverse[0]))),
    "sorted": _float_only(lambda items: sorted(items)),
    "slice": _slice,
    "list": _listed,
    "dict": lambda items=(): dict(items),
    "keys": lambda items: _dictionary_values(items, "keys"),
    "values": lambda items: _dictionary_values(items, "values"),
    "items": lambda items: _dictionary_values(items, "items"),
    "get": lambda items, key, default=None: items.get(key, default),
    "setdefault": lambda items, key, default: items.setdefault(key, default),
    "update": lambda items, more: items.update(more),
    "Delete": lambda items, key: items.pop(key),
    "format": _format,
    "str": _text_of_code,
    "join": _join,
    "lower": lambda text: text.lower(),
    "upper": lambda text: text.upper(),
    "startswith": lambda text, *rest: text.startswith(*rest),
    "endswith": lambda text, *rest: text.endswith(*rest),
    "find": lambda text, *rest: text.find(*rest),
    "replace": _replace,
    "split": lambda text, *rest: text.split(*rest),
    "strip": lambda text, *rest: text.strip(*rest),
    "ord": lambda text: ord(text),
    "Int": _whole_operand,
    "Float": _real,
    "Bool": _truth,
    "Scalar": lambda item: item,
    "ScalarImplicit": lambda item: item,
    "IntImplicit": _whole_operand,
    "FloatImplicit": _real,
    "device": lambda text, *index: f"{text}:{index[0]}" if index else text,
    "warn": lambda *items: None,
    "is_grad_enabled": lambda: False,
    "is_autocast_enabled": lambda *items: False,
    "is_autocast_cpu_enabled": lambda: False,
    "is_scripting": lambda: True,
    "manual_seed": lambda *items: None,
    "wait": lambda item: item,
}


def _both(a: Item, b: Item) -> Item:
    return a and b if isinstance(a, bool) and isinstance(b, bool) else a & b  # type: ignore[operator]  # whole numbers


def _either(a: Item, b: Item) -> Item:
    return a or b if isinstance(a, bool) and isinstance(b, bool) else a | b  # type: ignore[operator]  # whole numbers


def is_plain_call(name: str, items: Sequence[Item]) -> bool:
    """Return whether a call is one of these functions rather than an operator on tensors."""
    if name not in BUILTINS:
        return False
    if not items:
        return True
    first = items[0]
    if isinstance(first, Value | KnownTensor):
        return False
    if isinstance(first, list | dict | str | tuple) or first is None:
        return True
    return all(is_number(item) or item is None or isinstance(item, str | list) for item in items)
