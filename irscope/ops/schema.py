"""Operator schemas: one line of text that names operands, attributes, defaults, results and aliases.

    nn.conv(Tensor x, Tensor w, Tensor? b, *, int[] strides=[], int groups=1) -> Tensor
    view.reshape(Tensor(a?) x, Dims shape, *, bool allowzero=False) -> Tensor(a?)

Before `*` stand operands, after it attributes. `Tensor?` may be absent, `Tensor[]` takes the rest of the operands (as a
result: any number of results). `Dims` is a list of sizes that may come as an operand or as the attribute of the same name,
`Dim` a single one. `(a)` on an operand and a result says that they share storage, `(a?)` that they may, `(a!)` that the
operand is written.
"""

from __future__ import annotations

import ast
import enum
import re

from irscope.immutable import immutable


class AliasMark(enum.Enum):
    """Statement of a schema about the storage shared by an operand and a result with the same letter."""

    MUST = ""
    MAY = "?"
    WRITES = "!"


@immutable
class Param:
    """One operand or attribute."""

    name: str
    kind: str
    """Tensor, Dims or Dim for operands; the attribute's type else."""
    optional: bool = False
    variadic: bool = False
    default: object = None
    required: bool = True
    alias: str = ""
    mark: AliasMark = AliasMark.MUST


@immutable
class Schema:
    """A parsed operator schema."""

    name: str
    operands: tuple[Param, ...]
    attrs: tuple[Param, ...]
    results: tuple[Param, ...]
    text: str

    @property
    def is_variadic(self) -> bool:
        return bool(self.operands) and self.operands[-1].variadic


_HEAD = re.compile(r"^([a-z_][\w.]*)\((.*)\) -> (.+)$", re.S)
_PARAM = re.compile(
    r"(?P<kind>[A-Za-z]\w*)(?:\((?P<alias>[^)]*)\))?(?P<form>(?:\[\d*\]|\?|\([^)]*\))*)"
    r"(?:\s+(?P<name>[A-Za-z_]\w*))?(?:\s*=\s*(?P<default>.*))?",
    re.S,
)
_ALIAS = re.compile(r"([a-z])([!?]?)")
_OPERAND_KINDS = frozenset({"Tensor", "Dims", "Dim"})
_ATTR_KINDS = frozenset({"int", "int[]", "float", "float[]", "bool", "str", "str[]", "dtype", "Dim", "Dims", "Type", "any"})


class SchemaError(ValueError):
    """A schema text that does not parse: a mistake in an operator's record."""


def parse_schema(text: str) -> Schema:
    """Read a schema; raises SchemaError with the offending part."""
    head = _HEAD.match(text)
    if head is None:
        raise SchemaError(f"not of the form name(...) -> results: {text!r}")
    name, arguments, results = head.groups()
    operands: list[Param] = []
    attrs: list[Param] = []
    target, kinds = operands, _OPERAND_KINDS
    for part in split_arguments(arguments):
        if part == "*":
            target, kinds = attrs, _ATTR_KINDS
            continue
        param = _parse_param(part, text)
        if param.kind not in kinds:
            raise SchemaError(f"{param.kind!r} cannot stand there: {part!r} in {text!r}")
        if not param.name:
            raise SchemaError(f"an argument without a name: {part!r} in {text!r}")
        target.append(param)
    names = [param.name for param in (*operands, *attrs)]
    if len(set(names)) != len(names):
        raise SchemaError(f"two arguments share a name in {text!r}")
    if any(param.variadic for param in operands[:-1]):
        raise SchemaError(f"only the last operand may be a list: {text!r}")
    return Schema(name, tuple(operands), tuple(attrs), _parse_results(results.strip(), text), text)


def _parse_results(text: str, schema: str) -> tuple[Param, ...]:
    if text == "()":
        return ()
    inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    return tuple(_parse_param(part, schema) for part in split_arguments(inner))


def _parse_param(part: str, schema: str) -> Param:
    declaration = read_declaration(part)
    alias = _ALIAS.fullmatch(declaration.alias or "a") if declaration is not None else None
    if declaration is None or alias is None or declaration.form not in ("", "[]", "?", "[]?"):
        raise SchemaError(f"cannot read {part!r} in {schema!r}")
    is_list, optional = declaration.form.startswith("[]"), declaration.form.endswith("?")
    variadic = is_list and declaration.kind == "Tensor"
    try:
        default = read_default(declaration.default) if declaration.default is not None else None
    except ValueError as error:
        raise SchemaError(f"the default in {part!r} is no literal") from error
    return Param(
        name=declaration.name,
        kind=f"{declaration.kind}[]" if is_list and not variadic else declaration.kind,
        optional=optional,
        variadic=variadic,
        default=default,
        required=declaration.default is None and not optional,
        alias=alias[1] if declaration.alias else "",
        mark=AliasMark(alias[2] if declaration.alias else ""),
    )


# -- what signatures of ATen share with these ----------------------------------------------------------------------------


@immutable
class Declaration:
    """One argument or result as it is written: `Tensor(a!)[]? name=default`."""

    kind: str
    alias: str
    form: str
    """Brackets and question marks behind the kind."""
    name: str
    default: str | None


def read_declaration(part: str) -> Declaration | None:
    """Return an argument or result of a signature; None for what has not that form."""
    match = _PARAM.fullmatch(part)
    return None if match is None else Declaration(match["kind"], match["alias"] or "", match["form"], match["name"] or "", match["default"])


def read_default(text: str) -> object:
    """Return the value of a default, lists as tuples; ValueError where it is no literal."""
    try:
        value = ast.literal_eval(text.strip())
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no literal") from error
    return tuple(value) if isinstance(value, list) else value


def split_arguments(text: str) -> list[str]:
    """Return the arguments of a signature: parts between commas that stand in no brackets. Signatures of ATen are written the same way."""
    parts: list[str] = []
    depth, start = 0, 0
    for position, char in enumerate(text):
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    tail = text[start:].strip()
    return [part for part in (*parts, tail) if part]
