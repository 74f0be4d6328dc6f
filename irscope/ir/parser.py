"""Reading the text form `.irs`: one statement a line; graphs that are still open are kept on a stack."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import NoReturn

from irscope.budget import spend
from irscope.errors import UsageError
from irscope.ir.dims import Dim, SymDim, symbol, unknown
from irscope.ir.graph import Attr, Graph, Node, Role, Value, paused_gc
from irscope.ir.places import FileRegion, Literal, Loc, Payload, Scalar, Scope, root_scope
from irscope.ir.program import FACTS, FORMAT_TRAITS, VALUE_FACTS, Assumed, LocalNames, Program, Runtime, Traits, state_facts
from irscope.ir.spelling import (
    BARE_FUNCTION,
    BARE_KEY,
    BARE_LABEL,
    BARE_NAME,
    BARE_OP,
    BARE_SCOPE,
    END,
    MAX_NESTING,
    STRING,
    TEXT_VERSION,
    TextProblem,
    TypeReader,
    dtype_named,
    fail_at,
    integer,
    name_text,
    scope_component,
    skip_gap,
    string_at,
    unquote,
)
from irscope.ir.types import UNKNOWN_TYPE, Type

# Reading attribute values, literals, and the whole `{key=value, ...}` of a node.

# A number may also be followed by the next key, where a comma was forgotten: then it is not the start of a formula.
_BEHIND = rf"(?=[ \t]*(?:[,\]}})]|\Z)|[ \t]+{BARE_KEY}[ \t]*=)"
_FLOAT = r"-?(?:[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|inf|nan)"
_INT_AT = re.compile(rf"-?[0-9]+{_BEHIND}").match
_FLOAT_AT = re.compile(_FLOAT + _BEHIND).match
_ATTR_WORD_AT = re.compile(rf"(none|true|false){_BEHIND}").match
_COMPLEX_AT = re.compile(rf"complex\(({_FLOAT}),[ \t]*({_FLOAT})\)").match
_DTYPE_AT = re.compile(r"<([a-z0-9_?]+)>").match
_UNKNOWN_TYPE_AT = re.compile(r"<type[ ]\?>").match
_KEY_AT = re.compile(rf"({BARE_KEY}|{STRING})[ \t]*=[ \t]*").match

_WORDS: dict[str, bool | None] = {"none": None, "true": True, "false": False}
_SCALARS = (bool, int, float, complex, str)


class AttrReader:
    """Reads values; the types and sizes in them are read by the given reader."""

    def __init__(self, types: TypeReader) -> None:
        self._types = types

    def attrs_at(self, text: str, at: int) -> tuple[dict[str, Attr], int]:
        """Return the attributes that start with a brace at a column, and the column behind them."""
        attrs: dict[str, Attr] = {}
        opened = at
        at = skip_gap(text, at + 1)
        while text[at : at + 1] != "}":
            match = _KEY_AT(text, at)
            if match is None:
                if at >= len(text):
                    raise TextProblem("this brace is never closed", opened)
                raise TextProblem("an attribute is missing, such as axis=1", at)
            key = unquote(match[1], at) if match[1][0] == '"' else match[1]
            if key in attrs:
                raise TextProblem(f"the attribute {key!r} was given before", at)
            attrs[key], at = self.value_at(text, match.end())
            at = _separated(text, at, "}", opened)
        return attrs, at + 1

    def value_at(self, text: str, at: int, depth: int = 0) -> tuple[Attr, int]:
        """Return the value that starts at a column, and the column behind it."""
        match = _INT_AT(text, at)
        if match is not None:
            return integer(match[0], at), match.end()
        special = _BY_FIRST_CHARACTER.get(text[at : at + 1])
        if special is not None:
            return special(self, text, at, depth)
        match = _FLOAT_AT(text, at)
        if match is not None:
            return float(match[0]), match.end()
        match = _ATTR_WORD_AT(text, at)
        if match is not None:
            return _WORDS[match[1]], match.end()
        match = _COMPLEX_AT(text, at)
        if match is not None:
            return complex(float(match[1]), float(match[2])), match.end()
        return self._size_at(text, at, depth)

    def scalars_at(self, text: str, at: int) -> tuple[tuple[Scalar, ...], int]:
        """Return the list of numbers or strings that starts with a bracket at a column."""
        values, end = self._tuple_at(text, at, 0)
        for value in values:
            if not isinstance(value, _SCALARS):
                raise TextProblem("a list of values may only hold numbers, strings, true and false", at)
        return values, end

    def _tuple_at(self, text: str, at: int, depth: int) -> tuple[tuple[Attr, ...], int]:
        if depth >= MAX_NESTING:
            raise TextProblem(f"values are nested more than {MAX_NESTING} deep", at)
        items: list[Attr] = []
        opened = at
        at = skip_gap(text, at + 1)
        while text[at : at + 1] != "]":
            item, at = self.value_at(text, at, depth + 1)
            items.append(item)
            at = _separated(text, at, "]", opened)
        return tuple(items), at + 1

    def _string_at(self, text: str, at: int, depth: int) -> tuple[str, int]:
        return string_at(text, at)

    def _type_at(self, text: str, at: int, depth: int) -> tuple[Attr, int]:
        match = _DTYPE_AT(text, at)
        if match is not None:
            return dtype_named(match[1], at + 1), match.end()
        match = _UNKNOWN_TYPE_AT(text, at)
        if match is not None:
            return UNKNOWN_TYPE, match.end()
        found: Type
        found, end = self._types.type_at(text, at + 1)
        if text[end : end + 1] != ">":
            raise TextProblem("> is missing after this type", end)
        return found, end + 1

    def _size_at(self, text: str, at: int, depth: int) -> tuple[Attr, int]:
        size, end = self._types.dim_at(text, at)
        return size, end


_BY_FIRST_CHARACTER: dict[str, Callable[[AttrReader, str, int, int], tuple[Attr, int]]] = {
    '"': AttrReader._string_at,
    "[": AttrReader._tuple_at,
    "<": AttrReader._type_at,
    "(": AttrReader._size_at,
}


def _separated(text: str, at: int, closing: str, opened: int) -> int:
    """Return the column of the next item, or of the closing mark; a comma must stand between items."""
    at = skip_gap(text, at)
    char = text[at : at + 1]
    if char == closing:
        return at
    if char == ",":
        return skip_gap(text, at + 1)
    if not char:
        raise TextProblem(f"this is never closed with {closing}", opened)
    raise TextProblem(f"a comma or {closing} is missing", at)


# Reading where nodes come from: scopes, their classes, and locations in the source.

MAX_CALLERS = 250

_LOC_AT = re.compile(
    rf'\(({STRING}):(-?[0-9]+)(?:[ \t]+(?:({BARE_FUNCTION})|({STRING})(?=[ \t]+")))?(?:[ \t]+({STRING}))?\)', re.DOTALL
).match
_CALLER_AT = re.compile(r"[ \t]*<[ \t]*").match
_COMPONENT = re.compile(r"[^#]*(?:#[0-9]+)?")
_CLASS_AT = re.compile(rf"({BARE_SCOPE}|{STRING})[ \t]+({STRING})").match


class PlaceReader:
    """Makes scopes and locations; the same spelling gives the same object."""

    def __init__(self) -> None:
        self.root = root_scope()
        self._scopes: dict[str, Scope] = {}
        self._locs: dict[str, Loc] = {}

    def begin(self, root: Scope) -> None:
        """Start another tree of scopes."""
        self.root = root
        self._scopes = {}

    def scope(self, token: str, at: int) -> Scope:
        """Return the scope that a path stands for, quoted or not."""
        found = self._scopes.get(token)
        if found is not None:
            return found
        path = unquote(token, at) if token[0] == '"' else token
        scope = self.root
        for component in path.split("/") if path else ():
            if _COMPONENT.fullmatch(component) is None:
                raise TextProblem(f"{component!r} is not part of a scope; a call is written name#1, a hash inside a name ~2", at)
            try:
                name, call = scope_component(component)
                scope = scope.child(name, "", call)
            except ValueError:
                raise TextProblem("the number of this call is too large", at) from None
        self._scopes[token] = scope
        return scope

    def class_line(self, line: str, at: int) -> int:
        """Read the scope and the class that a `class` line gives it."""
        match = _CLASS_AT(line, at)
        if match is None:
            raise TextProblem('a scope and its class are missing, as in: class layer1/0 "BasicBlock"', at)
        self.scope(match[1], at).cls = unquote(match[2], match.start(2))
        return match.end()

    def loc_at(self, line: str, at: int) -> tuple[Loc, int]:
        """Return the location that starts with a parenthesis, with its callers, and the column behind it."""
        rest = line[at:]
        found = self._locs.get(rest)
        if found is not None:
            return found, len(line)
        matches: list[re.Match[str]] = []
        end = at
        while True:
            match = _LOC_AT(line, end)
            if match is None:
                raise TextProblem('a location looks like ("model.py":12 forward "x = self.fc(x)")', end)
            matches.append(match)
            if len(matches) > MAX_CALLERS:
                raise TextProblem(f"a location may have up to {MAX_CALLERS} callers", end)
            end = match.end()
            caller = _CALLER_AT(line, end)
            if caller is None:
                break
            end = caller.end()
        loc: Loc | None = None
        for match in reversed(matches):
            key = line[match.start() : end]
            loc = self._locs.get(key) or self._locs.setdefault(key, _make_loc(match, loc))
        assert loc is not None
        return loc, end


def _make_loc(match: re.Match[str], caller: Loc | None) -> Loc:
    file = unquote(match[1], match.start(1))
    line = integer(match[2], match.start(2))
    function = match[3] or (unquote(match[4], match.start(4)) if match[4] else "")
    statement = unquote(match[5], match.start(5)) if match[5] else ""
    return Loc(file, line, function, statement, caller)


# Reading what stands inside a graph or function of the text form: declarations, nodes, regions and returns.

MAX_REGION_DEPTH = 1_000

_NAME = rf"%(?:{BARE_NAME}|{STRING})"
_WORD_AT = re.compile(r"[a-z]+(?=[ \t\r]|\Z)").match
_DEFINED_AT = re.compile(rf"({_NAME})[ \t]*:[ \t]*").match
_BEHIND_OUTPUT_AT = re.compile(r"[ \t]*([,=])[ \t]*").match
_CALL_AT = re.compile(rf'({BARE_OP}|{STRING})\(((?:[^()"]++|{STRING})*+)\)').match
_TAIL_AT = re.compile(
    rf'(?:[ \t]+(\{{(?:[^"{{}}]++|{STRING})*+\}}))?(?:[ \t]+@({BARE_SCOPE}|{STRING}))?(?:[ \t]+!({STRING}))?(?:[ \t]+(?=(\()))?'
).match
_READ_AT = re.compile(rf"[ \t]*({_NAME}|_)[ \t]*").match
_FILE_AT = re.compile(rf"file\(({STRING}),[ \t]*([0-9]+),[ \t]*([0-9]+)(?:,[ \t]*({STRING}))?\)").match
_EQUALS_AT = re.compile(r"[ \t]*=[ \t]*").match
_REGION_AT = re.compile(rf"({BARE_LABEL}|{STRING})[ \t]*\{{").match

_ROLES: dict[str, Role] = {role.value: role for role in (Role.INPUT, Role.ARGUMENT, Role.PARAMETER, Role.BUFFER, Role.CONSTANT)}


@dataclass(slots=True)
class _Level:
    """A graph or region whose closing brace has not come yet."""

    graph: Graph
    last: Node | None = None
    has_returned: bool = False
    tokens: list[str] = field(default_factory=list)


class BodyReader:
    """Reads bodies one after another; what they repeat (types, attributes, locations) is read once."""

    def __init__(self, sizes: Callable[[str], Dim]) -> None:
        self.places = PlaceReader()
        self._types = TypeReader(sizes)
        self._attr_reader = AttrReader(self._types)
        self._levels: list[_Level] = []
        self._names: dict[str, Value | None] = {"_": None}
        self._attrs: dict[str, Mapping[str, Attr]] = {}
        self._sources: dict[str, str] = {}
        self.facts: dict[Value, Mapping[str, Attr]] = {}
        self._statements: dict[str, Callable[[_Level, str, int], int]] = {
            "return": self._return,
            "region": self._region,
            "class": self._class,
            "about": self._about,
        }

    @property
    def is_open(self) -> bool:
        return bool(self._levels)

    @property
    def words(self) -> frozenset[str]:
        """Words that begin a statement inside a body."""
        return frozenset((*self._statements, *_ROLES))

    def open(self, graph: Graph) -> Graph:
        """Begin a body; its scopes start at the graph's own."""
        self.places.begin(graph.scope)
        self._names = {"_": None}
        self._levels.append(_Level(graph))
        return graph

    def check_closed(self, at: int) -> None:
        """Complain where the text ended too early."""
        if self._levels:
            graph = self._levels[-1].graph
            what = f"region {graph.name}" if graph.owner is not None else f"@{graph.name}"
            raise TextProblem(f"the text ends, but {what} was not closed with }}", at)

    def statement(self, line: str, at: int) -> None:
        """Take a line of the body that is open."""
        level = self._levels[-1]
        char = line[at]
        word = _WORD_AT(line, at) if char != "%" else None
        if char == "}":
            end = self._close(level, at)
        elif level.has_returned:
            raise TextProblem("only } may follow return", at)
        elif word is None:
            end = self._node(level, line, at)
        elif word[0] in _ROLES:
            end = self._declaration(level, _ROLES[word[0]], line, at)
        else:
            handler = self._statements.get(word[0])
            if handler is None:
                raise TextProblem(f"there is no statement {word[0]!r} inside a graph", at)
            end = handler(level, line, skip_gap(line, word.end()))
        if END(line, end) is None:
            raise TextProblem("nothing more was expected on this line", skip_gap(line, end))

    def _close(self, level: _Level, at: int) -> int:
        if not level.has_returned:
            raise TextProblem("return is missing before this }", at)
        self._levels.pop()
        for token in level.tokens:
            del self._names[token]
        return at + 1

    def _return(self, level: _Level, line: str, at: int) -> int:
        values: list[Value] = []
        end = at
        while values or END(line, end) is None:
            match = _READ_AT(line, end)
            if match is None:
                raise TextProblem("a value is missing, such as %y", skip_gap(line, end))
            values.append(self._defined(match))
            end = match.end()
            if line[end : end + 1] != ",":
                break
            end += 1
        level.graph.set_outputs(values)
        level.has_returned = True
        return end

    def _region(self, level: _Level, line: str, at: int) -> int:
        if level.last is None:
            raise TextProblem("a region needs a node on a line before it", at)
        if len(self._levels) > MAX_REGION_DEPTH:
            raise TextProblem(f"regions are nested more than {MAX_REGION_DEPTH} deep", at)
        match = _REGION_AT(line, at)
        if match is None:
            raise TextProblem("a name and an opening brace are missing, as in: region then {", at)
        name = unquote(match[1], at) if match[1][0] == '"' else match[1]
        self._levels.append(_Level(level.graph.add_region(level.last, name)))
        return match.end()

    def _class(self, level: _Level, line: str, at: int) -> int:
        if level.graph.owner is not None:
            raise TextProblem("classes of scopes stand before the graph, or first inside a func", at)
        return self.places.class_line(line, at)

    def _about(self, level: _Level, line: str, at: int) -> int:
        match = _READ_AT(line, at)
        if match is None:
            raise TextProblem("a value is missing, such as %y", at)
        self.facts[self._defined(match)], end = self.facts_at(line, match.end(), VALUE_FACTS)
        return end

    def facts_at(self, line: str, at: int, known: Mapping[str, Callable[[Attr], bool]]) -> tuple[dict[str, Attr], int]:
        """Return the facts in the braces that start at a column, and the column behind them."""
        facts, end = self._attr_reader.attrs_at(line, at) if line[at : at + 1] == "{" else ({}, at)
        for name, item in facts.items():
            if name not in known or not known[name](item):
                raise TextProblem(f"the fact {name!r} is unknown or of another kind; known: {', '.join(known)}", at)
        return facts, end

    def _declaration(self, level: _Level, role: Role, line: str, at: int) -> int:
        graph = level.graph
        if role is (Role.INPUT if graph.owner is not None else Role.ARGUMENT):
            inside = "region: its arguments are declared with arg" if graph.owner is not None else "graph: use input"
            raise TextProblem(f"{role.value} cannot stand directly inside a {inside}", at)
        at = skip_gap(line, at + len(role.value))
        match = _DEFINED_AT(line, at)
        if match is None:
            raise TextProblem("a name with its type is missing, as in: %x: f32[2,3]", at)
        token = self._token(match[1], at)
        type_, end = self._types.type_at(line, match.end())
        if role is Role.INPUT or role is Role.ARGUMENT:
            self._define(level, token, graph.add_input(type_, self._name(token)), at)
            return end
        equals = _EQUALS_AT(line, end)
        data: Payload | None = None
        if equals is not None:
            data, end = self._payload_at(line, equals.end())
        self._define(level, token, graph.add_weight(type_, self._name(token), role, data), at)
        return end

    def _payload_at(self, line: str, at: int) -> tuple[Payload, int]:
        if line[at : at + 1] == "[":
            values, end = self._attr_reader.scalars_at(line, at)
            return Literal(values), end
        match = _FILE_AT(line, at)
        if match is None:
            raise TextProblem('data is a list of values, or file("weights.bin", OFFSET, LENGTH)', at)
        path = unquote(match[1], match.start(1))
        storage = unquote(match[4], match.start(4)) if match[4] else ""
        return FileRegion(path, integer(match[2], match.start(2)), integer(match[3], match.start(3)), storage), match.end()

    @staticmethod
    def _token(token: str, at: int) -> str:
        """Return the one spelling under which a name is looked up."""
        return name_text(unquote(token[1:], at + 1)) if token[1] == '"' else token

    @staticmethod
    def _name(token: str) -> str | None:
        """Return the name a value gets; bare numbers stand for unnamed values."""
        if token[1] == '"':
            return unquote(token[1:])
        return None if token[1:].isdigit() else token[1:]

    def _define(self, level: _Level, token: str, value: Value, at: int) -> None:
        if token in self._names:
            raise TextProblem(f"{token} is defined a second time here", at)
        self._names[token] = value
        level.tokens.append(token)

    def _defined(self, match: re.Match[str]) -> Value:
        token, at = match[1], match.start(1)
        value = self._names.get(self._token(token, at)) if token != "_" else None
        if value is None:
            raise TextProblem("_ stands for no value and cannot be returned" if token == "_" else f"{token} is not defined up to here", at)
        return value

    def _node(self, level: _Level, line: str, at: int) -> int:
        outputs, types, at = self._outputs(line, at) if line[at] == "%" else ([], [], at)
        call = _CALL_AT(line, at)
        if call is None:
            self._fail_at_call(line, at)
        op, read = call[1], call[2]
        if op[0] == '"':
            op = unquote(op, at)
        try:
            inputs = [self._names[token] for token in read.split(", ")] if read else []
        except KeyError:
            inputs = self._inputs(line, call.start(2), call.end(2))
        tail = _TAIL_AT(line, call.end())
        assert tail is not None
        attrs_text, scope_token, source_text, has_loc = tail.groups()
        attrs = self._attrs_of(attrs_text, line, tail.start(1)) if attrs_text is not None else None
        scope = self.places.scope(scope_token, tail.start(2)) if scope_token is not None else self.places.root
        source = self._source_of(source_text, tail.start(3)) if source_text is not None else ""
        end = tail.end()
        loc = None
        if has_loc is not None:
            loc, end = self.places.loc_at(line, end)
        elif END(line, end) is None:
            self._fail_at_tail(line, end)
        names = [self._name(token) for token, _ in outputs]
        node = level.last = level.graph.append(op, inputs, types, attrs, names=names, scope=scope, loc=loc, source=source)
        for (token, column), value in zip(outputs, node.outputs, strict=True):
            self._define(level, token, value, column)
        return end

    def _outputs(self, line: str, at: int) -> tuple[list[tuple[str, int]], list[Type], int]:
        """Return names of outputs with their columns, types, and the column of the operator."""
        outputs: list[tuple[str, int]] = []
        types: list[Type] = []
        while True:
            match = _DEFINED_AT(line, at)
            if match is None:
                raise TextProblem("a value with its type is missing, as in: %y: f32[2,3] = ...", at)
            outputs.append((self._token(match[1], at), at))
            type_, at = self._types.type_at(line, match.end())
            types.append(type_)
            behind = _BEHIND_OUTPUT_AT(line, at)
            if behind is None:
                raise TextProblem("= and an operator are missing after this type", at)
            at = behind.end()
            if behind[1] == "=":
                return outputs, types, at

    def _inputs(self, line: str, at: int, end: int) -> list[Value | None]:
        """Return inputs that are not written as the printer does it, or are wrong."""
        inputs: list[Value | None] = []
        if not line[at:end].strip():
            return inputs
        while True:
            match = _READ_AT(line, at)
            if match is None or match.end() > end:
                raise TextProblem("an input is missing, such as %x, or _ for none", skip_gap(line, at))
            inputs.append(None if match[1] == "_" else self._defined(match))
            at = match.end()
            if at == end:
                return inputs
            if line[at] != ",":
                raise TextProblem("a comma or ) is missing", at)
            at += 1

    def _attrs_of(self, text: str, line: str, at: int) -> Mapping[str, Attr]:
        attrs = self._attrs.get(text)
        if attrs is None:
            attrs = self._attrs[text] = self._attr_reader.attrs_at(line, at)[0]
        return attrs

    def _source_of(self, quoted: str, at: int) -> str:
        source = self._sources.get(quoted)
        if source is None:
            source = self._sources[quoted] = unquote(quoted, at)
        return source

    def _fail_at_call(self, line: str, at: int) -> NoReturn:
        match = re.compile(rf"(?:{BARE_OP}|{STRING})").match(line, at)
        if match is None:
            raise TextProblem("an operator is missing, as in math.add(%x, %y)", at)
        if line[match.end() : match.end() + 1] != "(":
            raise TextProblem("the inputs are missing: an operator is followed by ( at once", match.end())
        raise TextProblem("this parenthesis is never closed", match.end())

    def _fail_at_tail(self, line: str, end: int) -> NoReturn:
        at = skip_gap(line, end)
        if line[at] == "{":
            # Where the braces do not even pair up, the reader of attributes tells what is wrong inside them.
            self._attr_reader.attrs_at(line, at)
        raise TextProblem('this cannot stand here; a node ends with {attributes} @scope !"source" ("file":line), in this order', at)


# Reading the text form `.irs`: one statement a line; graphs that are still open are kept on a stack.

MAX_LINE = 1_000_000

_STRING_AT = re.compile(rf"{STRING}(?=[ \t\r]|\Z)").match
_INTEGER_AT = re.compile(r"-?[0-9]+").match
_SIZE_AT = re.compile(r"(\??[A-Za-z_][A-Za-z0-9_.]*)(?:[ \t]+\[[ \t]*(\*|-?[0-9]+)[ \t]*,[ \t]*(\*|-?[0-9]+)[ \t]*\])?").match
_OPENING_AT = re.compile(rf"@({BARE_LABEL}|{STRING})[ \t]*\{{").match


def parse_program(text: str, *, path: str = "<text>") -> Program:
    """Return the program that a text spells; LoadError with line, column and a caret where it is none."""
    with paused_gc():
        return _ProgramReader(path).read(text)


_FLAG = {"true": True, "false": False}
_TRAITS: dict[str, Mapping[str, enum.Enum | str | bool]] = {
    "runtime": {one.value: one for one in Runtime},
    "lifetimes": {one: one for one in ("ssa", "eager", "ort", "xla")},
    "local_names": {one.value: one for one in LocalNames},
    "follows_strides": _FLAG,
    "is_exported": _FLAG,
    "is_session": _FLAG,
    "opens_inputs": _FLAG,
}


class _ProgramReader:
    """Takes the lines one by one: headers here, what stands inside graphs through a `BodyReader`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._version = ""
        self._format = "irs"
        self._traits: dict[str, enum.Enum | str | bool] = {}
        self._metadata: dict[str, str] = {}
        self._given: dict[str, int] = {}
        self._assumed: list[Assumed] = []
        self._facts: dict[str, Attr] = {}
        self._symbols: dict[str, SymDim] = {}
        self._sizes: dict[str, SymDim] = {}
        self._graph: Graph | None = None
        self._functions: dict[str, Graph] = {}
        self._body = BodyReader(self._size)
        self._headers: dict[str, Callable[[str, int], int]] = {
            "irscope": self._irscope_line,
            "format": self._format_line,
            "trait": self._trait_line,
            "meta": self._meta_line,
            "given": self._given_line,
            "guess": partial(self._assumed_line, True),
            "default": partial(self._assumed_line, False),
            "facts": self._facts_line,
            "symbol": self._symbol_line,
            "bound": lambda line, at: self._declare_size(line, at)[1],
            "class": self._class_line,
            "graph": self._graph_line,
            "func": self._func_line,
        }

    def read(self, text: str) -> Program:
        lines = text.removeprefix("\ufeff").split("\n")
        number = 0
        statement = self._statement
        try:
            for number, line in enumerate(lines, 1):  # noqa: B007  # the error below tells the line
                spend(10 + len(line), "the text")
                statement(line)
            number, line = self._last_line(lines)
            return self._finish(len(line))
        except TextProblem as problem:
            fail_at(self._path, number, line, problem)

    @staticmethod
    def _last_line(lines: list[str]) -> tuple[int, str]:
        number = max((number for number, line in enumerate(lines, 1) if line.strip()), default=1)
        return number, lines[number - 1]

    def _finish(self, at: int) -> Program:
        self._body.check_closed(at)
        if self._graph is None:
            raise TextProblem("the text ends without a graph", at)
        path = "" if self._path == "<text>" else self._path
        program = Program(self._graph, self._functions, self._symbols, self._format, path, self._given, metadata=self._metadata)
        program.assumed = self._assumed
        program.traits = replace(FORMAT_TRAITS.get(self._format, Traits()), **self._traits)  # type: ignore[arg-type]  # _TRAITS has the values
        if problem := state_facts(program, self._facts, self._body.facts):
            raise TextProblem(problem, at)
        return program

    def _statement(self, line: str) -> None:
        if len(line) > MAX_LINE:
            raise TextProblem(f"this line has {len(line)} characters; up to {MAX_LINE} are read", 0)
        at = len(line) - len(line.lstrip(" \t"))
        if line[at : at + 1] in ("", "#", "\r"):
            return
        body = self._body
        if body.is_open:
            body.statement(line, at)
            return
        word = _WORD_AT(line, at)
        header = self._headers.get(word[0]) if word is not None else None
        if header is None or word is None:
            self._fail_on_header(line, at)
        if not self._version and word[0] != "irscope":
            raise TextProblem("the first line must be: irscope 1", at)
        end = header(line, skip_gap(line, word.end()))
        if END(line, end) is None:
            raise TextProblem("nothing more was expected on this line", skip_gap(line, end))

    def _fail_on_header(self, line: str, at: int) -> NoReturn:
        if not self._version:
            raise TextProblem("the first line must be: irscope 1", at)
        if line[at] == "}":
            raise TextProblem("there is no open graph that this could close", at)
        word = re.match(r"[^ \t(:]*", line[at:])
        name = word[0] if word is not None else ""
        if line[at] == "%" or name in self._body.words or line[at + len(name) : at + len(name) + 1] == "(":
            raise TextProblem("this may only stand inside a graph", at)
        similar = get_close_matches(name, self._headers, 1)
        raise TextProblem(f"there is no statement {name!r}{f'; is it {similar[0]}?' if similar else ''}", at)

    def _irscope_line(self, line: str, at: int) -> int:
        if self._version:
            raise TextProblem("the version was given before", at)
        self._version = line[at:].split("#")[0].strip()
        if self._version != str(TEXT_VERSION):
            raise TextProblem(f"version {self._version!r} of the text form is unknown; this irscope reads version {TEXT_VERSION}", at)
        return at + len(self._version)

    def _format_line(self, line: str, at: int) -> int:
        self._format, at = _string(line, at)
        return at

    def _trait_line(self, line: str, at: int) -> int:
        name, end = _string(line, at)
        choices = _TRAITS.get(name)
        if choices is None:
            raise TextProblem(f"there is no trait {name!r}; known: {', '.join(_TRAITS)}", at)
        at = skip_gap(line, end)
        text, end = _string(line, at)
        if text not in choices:
            raise TextProblem(f"the trait {name!r} is one of {', '.join(choices)}", at)
        self._traits[name] = choices[text]
        return end

    def _meta_line(self, line: str, at: int) -> int:
        key, end = _string(line, at)
        if key in self._metadata:
            raise TextProblem(f"the metadata {key!r} was given before", at)
        self._metadata[key], end = _string(line, skip_gap(line, end))
        return end

    def _given_line(self, line: str, at: int) -> int:
        name, end = _string(line, at)
        if name in self._given:
            raise TextProblem(f"the value of {name!r} was given before", at)
        match = _INTEGER_AT(line, skip_gap(line, end))
        if match is None:
            raise TextProblem("a whole number is missing", skip_gap(line, end))
        self._given[name] = integer(match[0], match.start())
        return match.end()

    def _assumed_line(self, is_guess: bool, line: str, at: int) -> int:
        what, end = _string(line, at)
        value, end = _string(line, skip_gap(line, end))
        why, end = _string(line, skip_gap(line, end))
        self._assumed.append(Assumed(what, value, why, is_guess))
        return end

    def _facts_line(self, line: str, at: int) -> int:
        self._facts, end = self._body.facts_at(line, at, FACTS)
        return end

    def _symbol_line(self, line: str, at: int) -> int:
        name, end = self._declare_size(line, at)
        self._symbols[name] = self._sizes[name]
        return end

    def _declare_size(self, line: str, at: int) -> tuple[str, int]:
        match = _SIZE_AT(line, at)
        if match is None:
            raise TextProblem("the name of a size is missing, as in: symbol batch [1,64]", at)
        if self._graph is not None:
            raise TextProblem("sizes are declared before the first graph", at)
        name = match[1]
        if name in self._sizes:
            raise TextProblem(f"the size {name} was declared before", at)
        if match[2] is None:
            self._size(name)
            return name, match.end()
        lo, hi = (None if match[group] == "*" else integer(match[group], match.start(group)) for group in (2, 3))
        try:
            self._sizes[name] = unknown(name, lo, hi) if name[0] == "?" else symbol(name, lo, hi)
        except UsageError as error:
            raise TextProblem(error.message, match.start(2)) from None
        return name, match.end()

    def _size(self, name: str) -> Dim:
        """Return the size of that name, with the usual bounds where none were declared."""
        size = self._sizes.get(name)
        if size is None:
            size = self._sizes[name] = unknown(name) if name[0] == "?" else symbol(name)
        return size

    def _class_line(self, line: str, at: int) -> int:
        if self._graph is not None:
            raise TextProblem("classes stand before the graph, or first inside a func", at)
        return self._body.places.class_line(line, at)

    def _graph_line(self, line: str, at: int) -> int:
        if self._graph is not None:
            raise TextProblem("there is a graph already; other bodies are written as func", at)
        name, end = self._opening(line, at)
        self._graph = self._body.open(Graph(name, scope=self._body.places.root))
        return end

    def _func_line(self, line: str, at: int) -> int:
        if self._graph is None:
            raise TextProblem("the graph must come before functions", at)
        name, end = self._opening(line, at)
        if name in self._functions:
            raise TextProblem(f"the function {name!r} is defined twice", at)
        self._functions[name] = self._body.open(Graph(name, scope=root_scope()))
        return end

    @staticmethod
    def _opening(line: str, at: int) -> tuple[str, int]:
        match = _OPENING_AT(line, at)
        if match is None:
            raise TextProblem("a name and an opening brace are missing, as in: graph @main {", at)
        name = match[1]
        return unquote(name, at + 1) if name[0] == '"' else name, match.end()


def _string(line: str, at: int) -> tuple[str, int]:
    match = _STRING_AT(line, at)
    if match is None:
        raise TextProblem("a string in double quotes is missing", at)
    return unquote(match[0], at), match.end()
