"""Reading what stands inside a graph or function of the text form: declarations, nodes, regions and returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from irscope.ir.attrtext import AttrReader
from irscope.ir.dims import Dim
from irscope.ir.graph import Attr, Graph, Node, Role, Value
from irscope.ir.payload import FileRegion, Literal, Payload
from irscope.ir.placetext import PlaceReader
from irscope.ir.scanner import END, STRING, TextProblem, integer, skip_gap, unquote
from irscope.ir.spelling import BARE_LABEL, BARE_NAME, BARE_OP, BARE_SCOPE, name_text
from irscope.ir.types import Type
from irscope.ir.typetext import TypeReader

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
_NO_TOKEN = re.compile(r"[^ \t]")

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
        self._statements: dict[str, Callable[[_Level, str, int], int]] = {
            "return": self._return,
            "region": self._region,
            "class": self._class,
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

    # -- structure ---------------------------------------------------------------------------------------------

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

    # -- values ------------------------------------------------------------------------------------------------

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
        """The one spelling under which a name is looked up."""
        return name_text(unquote(token[1:], at + 1)) if token[1] == '"' else token

    @staticmethod
    def _name(token: str) -> str | None:
        """The name a value gets; bare numbers stand for unnamed values."""
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

    # -- nodes -------------------------------------------------------------------------------------------------

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
        """Names of outputs with their columns, types, and the column of the operator."""
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
                raise TextProblem("= and an operator are missing behind this type", at)
            at = behind.end()
            if behind[1] == "=":
                return outputs, types, at

    def _inputs(self, line: str, at: int, end: int) -> list[Value | None]:
        """Inputs that are not written as the printer does it, or are wrong."""
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
