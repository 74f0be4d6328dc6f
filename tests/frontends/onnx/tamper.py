"""Models that parse but say something else than they should: any field of any message may change."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTEGERS = (0, 1, -1, 2, 3, 7, 8, 9, 16, 64, 255, 1 << 20, (1 << 31) - 1, -(1 << 31))
_LONG = (1 << 31, 1 << 40, (1 << 62), (1 << 63) - 1, -(1 << 63))
_FLOATS = (0.0, -1.0, 0.5, 1e30, float("inf"), float("nan"))
_WHOLE = {
    FieldDescriptor.CPPTYPE_INT32: _INTEGERS,
    FieldDescriptor.CPPTYPE_INT64: _INTEGERS + _LONG,
    FieldDescriptor.CPPTYPE_UINT64: tuple(number for number in _INTEGERS + _LONG if number >= 0),
    FieldDescriptor.CPPTYPE_UINT32: tuple(number for number in _INTEGERS if number >= 0),
}


def tampered(model: onnx.ModelProto, chance: random.Random) -> bytes:
    """A copy in which a few random fields were changed, emptied, doubled or moved."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for _ in range(chance.choice((1, 1, 2, 5))):
        places, texts = _places(made)
        message, field = chance.choice(places)
        _change(message, field, texts, chance)
    return made.SerializeToString()


def _places(model: Message) -> tuple[list[tuple[Message, FieldDescriptor]], list[str]]:
    """Every field that is set, with its message, and every text."""
    places: list[tuple[Message, FieldDescriptor]] = []
    texts: list[str] = []
    pending = [model]
    while pending:
        message = pending.pop()
        for field, value in message.ListFields():
            places.append((message, field))
            items = list(value) if field.is_repeated else [value]
            if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                pending.extend(items)
            elif field.type == FieldDescriptor.TYPE_STRING:
                texts.extend(items)
    return places, texts


def _change(message: Message, field: FieldDescriptor, texts: list[str], chance: random.Random) -> None:
    value: Any = getattr(message, field.name)
    other = _replacement(field, texts, chance)
    if not field.is_repeated:
        if other is None or chance.random() < 0.2:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, other(value))
        return
    index = chance.randrange(len(value))
    action = chance.choice(("delete", "double", "move", "change"))
    if action == "change" and other is not None:
        value[index] = other(value[index])
    elif action == "delete":
        del value[index]
    else:
        item = value[index]
        if action == "move":
            item = _copied(item)
            del value[index]
        if other is None:
            value.add().CopyFrom(item)
        else:
            value.append(item)


def _copied(item: Any) -> Any:
    if isinstance(item, Message):
        copy = type(item)()
        copy.CopyFrom(item)
        return copy
    return item


def _replacement(field: FieldDescriptor, texts: list[str], chance: random.Random) -> Callable[[Any], Any] | None:
    """How to change one value of a field, None for messages."""
    if field.type == FieldDescriptor.TYPE_STRING:
        return lambda value: chance.choice((*texts, "", "x" * 300))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda value: chance.choice((b"", value[: len(value) // 2], value + value, bytes(len(value))))
    if field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return lambda value: chance.choice(_FLOATS)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return lambda value: chance.randrange(12)
    numbers = _WHOLE.get(field.cpp_type)
    return None if numbers is None else lambda value: chance.choice(numbers)
