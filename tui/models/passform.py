"""The form for the options of a pass, made from its fields, and checked while it is filled in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields

from irscope.errors import IrscopeError
from irscope.passkit.base import Pass, Transform
from irscope.passkit.options import build, describe, option_types, to_text
from irscope.passkit.pipeline import parse_pipeline
from irscope.passkit.registry import PassRegistry


@dataclass(frozen=True, slots=True)
class Field:
    """One option: what it is called, what may stand in it, and what it is unless something is written."""

    name: str
    what: str
    default: str
    """As it would be written; empty where a value has to be given."""
    is_required: bool


class PassForm:
    """The options of one pass as texts; `made()` is the pass they make."""

    def __init__(self, cls: type[Pass], registry: PassRegistry, given: Pass | None = None) -> None:
        self.cls = cls
        self.registry = registry
        self.fields = form_fields(cls)
        self.texts: dict[str, str] = {}
        if given is not None:
            self.texts = {field.name: _written(given, field) for field in self.fields}

    @property
    def kind(self) -> str:
        """Whether the pass looks at the graph or changes it."""
        return "transform" if issubclass(self.cls, Transform) else "analysis"

    def text(self, name: str) -> str:
        """What stands in a field; empty stands for the default."""
        return self.texts.get(name, "")

    def set(self, name: str, text: str) -> None:
        """Write into a field."""
        self.texts[name] = text.strip()

    def made(self) -> Pass:
        """The pass with these options; raises IrscopeError with one clear line."""
        given = {name: text for name, text in self.texts.items() if text and name != "body"}
        extra: dict[str, object] = {}
        if any(field.name == "body" for field in self.fields):
            extra["body"] = parse_pipeline(self.text("body") or "dce", self.registry)
        try:
            made = build(self.cls, given, **extra)
        except (TypeError, ValueError) as error:
            raise IrscopeError(f"{self.cls.name} refuses these options: {error}", code="IRS606") from error
        assert isinstance(made, Pass)
        return made

    @property
    def problem(self) -> str:
        """What is wrong with what stands in the fields; empty where nothing is."""
        try:
            self.made()
        except IrscopeError as error:
            return str(error)
        return ""

    @property
    def preview(self) -> str:
        """The element of a pipeline that the form makes; empty while it makes none."""
        try:
            return self.made().text
        except IrscopeError:
            return ""


def form_fields(cls: type[Pass]) -> Sequence[Field]:
    """The options of a pass in the order of its fields."""
    types = option_types(cls)
    found: list[Field] = []
    for option in fields(cls):
        if option.name == "body":
            found.append(Field("body", "the passes it works on, such as fold,dce", "dce", is_required=False))
            continue
        value = option.default
        if value is MISSING and option.default_factory is not MISSING:
            value = option.default_factory()
        required = value is MISSING
        found.append(Field(option.name, describe(types[option.name]), "" if required else to_text(value) or '""', required))
    return found


def _written(given: Pass, field: Field) -> str:
    value = getattr(given, field.name)
    if field.name == "body":
        return ",".join(one.text for one in value)
    text = to_text(value)
    return "" if text == field.default and not field.is_required else text


def named_class(text: str, registry: PassRegistry) -> type[Pass] | None:
    """The class that a name or `./file.py:Name` alone stands for; None for anything else, such as a pipeline."""
    try:
        return registry.find(text.strip())
    except KeyError:
        return None
