"""Texts that are not UTF-8. Reading such a field gives bytes, which every use of a name then trips over."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


def bad_text(message: Message) -> str | None:
    """The name of a text field somewhere in a message whose content is not UTF-8; None where all are fine."""
    pending = [message]
    while pending:
        for field, value in pending.pop().ListFields():
            items = [value] if not hasattr(value, "__len__") or isinstance(value, str | bytes) else value
            if field.type == FieldDescriptor.TYPE_STRING:
                if any(isinstance(item, bytes) for item in items):
                    return str(field.full_name)
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                pending.extend(items)
    return None


def as_text(value: str | bytes) -> str:
    """A text that may be shown, whatever the file holds."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
