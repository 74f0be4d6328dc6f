"""Reads MLIR's textual form: the generic one of any dialect, and the pretty ones of StableHLO, CHLO, func and Shardy.

Pretty forms are read by their shape and not operator by operator: names with % are operands, `word = value` is an attribute, braces behind
a word of control flow are regions, what follows the colon are types. So operators that come later are read too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from typing import Final

from irscope.budget import spend
from irscope.frontends.stablehlo.model import (
    NOWHERE,
    Attribute,
    Dense,
    Function,
    Module,
    Number,
    Operation,
    Place,
    Region,
    mesh_axes,
    quoted,
    refuse,
)
from irscope.immutable import mutable

_NESTED: Final = r"<(?:[^<>]|<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>)*>"
_TOKEN: Final = re.compile(
    r"\s+|//[^\n]*"
    r'|(?P<string>"(?:[^"\\]|\\.)*")'
    rf"|(?P<type>(?:tensor|tuple|vector|memref|complex){_NESTED}|![\w.$-]+(?:{_NESTED})?)"
    r'|(?P<value>%[\w.$-]+(?:\#\d+)?|%"[^"]*")'
    r'|(?P<symbol>@(?:[\w.$-]+|"[^"]*"))'
    r"|(?P<loc>\bloc\((?:\#loc\d*|unknown)\))"
    r"|(?P<hash>\#[\w.$-]+)"
    r"|(?P<block>\^\w+)"
    r"|(?P<number>-?0x[0-9A-Fa-f]+|-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?![\w.]))"
    r"|(?P<word>[A-Za-z_][\w.$-]*(?<!-)|\d+x[\w]*)"
    r"|(?P<sign>->|::|\{-\#|\#-\}|[()\[\]{}<>=,:?*+/|-])",
    re.DOTALL,
)
_ALIAS: Final = re.compile(r"^[ \t]*(#[\w$-]+|![\w$-]+)\s*=\s*(.*)$", re.MULTILINE)
_ENTRY: Final = re.compile(r"([\w.-]+)\s*=\s*(\[[^\[\]]*\]|[^,<>\[\]]+)")
_SHORT: Final = re.compile(r"#(?:stablehlo|chlo|mhlo|vhlo)<\s*\w+\s+(\w+)\s*>$")
_ESCAPE: Final = re.compile(rb'\\([0-9A-Fa-f]{2}|n|t|"|\\)')
_SCALAR_TYPE: Final = re.compile(r"\s*(?:[su]?i\d+|index|b?f\d+\w*)\b")
_DEEPEST: Final = 200
_REGION_WORDS: Final = ("cond", "do", "reducer", "block", "then", "else")
_LOC_DEPTH: Final = 60
_MOST_RESULTS: Final = 100_000
"""XLA's own limit of a tuple is far below; a training step of a large model has thousands."""


def parse(text: str) -> Module:
    """Return the module that a text spells; LoadError with the line where it spells none."""
    reader = _Reader(text)
    try:
        return reader.module()
    except RecursionError:
        raise refuse("regions or attributes are nested too deeply") from None


@mutable
class _Form:
    """State of reading a pretty form."""

    level: int = 0
    """Number of parentheses that are open."""
    words: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    """Names that a loop's regions give its values."""


class _Reader:
    """Goes through the text token by token."""

    def __init__(self, text: str, around: _Reader | None = None) -> None:
        self._text = text
        self._end = len(text)
        self._at = 0
        self.kind = ""
        self.token = ""
        self._start = 0
        self._depth = 0
        self._aliases: dict[str, str] = {} if around is None else around._aliases
        self._places: dict[str, Place] = {} if around is None else around._places
        if around is None:
            for match in _ALIAS.finditer(text):
                self._aliases.setdefault(match[1], match[2])
        self._advance()

    def _advance(self) -> str:
        """Step over the token; returns it."""
        before = self.token
        spend(1, "tokens")
        match_at, text = _TOKEN.match, self._text
        while True:
            match = match_at(text, self._at)
            if match is None:
                if self._at >= self._end:
                    self.kind, self.token, self._start = "end", "", self._end
                    return before
                raise self._error(f"{quoted(text[self._at : self._at + 20])} is not a token of MLIR")
            self._at = match.end()
            kind = match.lastgroup
            if kind is not None:
                self._start, self.kind, self.token = match.start(), kind, match[0]
                return before

    def _error(self, message: str) -> Exception:
        return refuse(message, f"line {self._text.count(chr(10), 0, self._start) + 1}")

    def _accept(self, token: str) -> bool:
        if self.token == token and self.kind != "string":
            self._advance()
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._error(f"'{token}' is expected, not {quoted(self.token) if self.token else 'the end'}")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error("it is nested too deeply")

    def module(self) -> Module:
        """Return the whole file."""
        module = Module()
        while self.kind != "end":
            if self.token == "{-#":
                self._resources(module)
            elif self.kind in ("hash", "type") and self._text[self._at : self._at + 4].lstrip().startswith("="):
                self._skip_line()
            elif self.token in ("module", "builtin.module") or self.token == '"builtin.module"':
                self._module_operation(module)
            else:
                self._top(module)
        return module

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._start)
        self._at = self._end if end < 0 else end
        self._advance()

    def _module_operation(self, module: Module) -> None:
        if self.kind == "string":  # the generic form
            self._advance()
            self._expect("(")
            self._expect(")")
            if self._accept("<"):
                module.attributes.update(self._dictionary())
                self._expect(">")
            self._expect("(")
            self._expect("{")
            if self.kind == "block":
                self._block_head(Region())
            self._module_body(module)
            self._expect(")")
            if self.token == "{":
                module.attributes.update(self._dictionary())
            self._types_behind()
            self._location()
            return
        self._advance()
        if self.kind == "symbol":
            self._advance()
        if self._accept("attributes"):
            module.attributes.update(self._dictionary())
        self._expect("{")
        self._module_body(module)
        self._location()

    def _module_body(self, module: Module) -> None:
        while not self._accept("}"):
            if self.kind == "end":
                raise self._error("the module ends too early")
            self._top(module)

    def _top(self, module: Module) -> None:
        """Read an operation of the module: a function, a mesh, or something that is left alone."""
        if self.token in ("func.func", "func"):
            function = self._function()
            self._add(module, function)
        elif self.token == '"func.func"':
            self._add(module, Function.of(self._operation()))
        elif self.token == "sdy.mesh":
            self._advance()
            name = self._advance().lstrip("@")
            self._expect("=")
            start = self._start
            self._balanced()
            module.meshes[name] = mesh_axes(self._text[start : self._start])
            if self.token == "{":
                self._dictionary()
            self._location()
        elif self.token in ("module", "builtin.module"):
            self._module_operation(module)
        else:
            made = self._operation()
            if made.short == "mesh":
                name, mesh = str(made.attributes.get("sym_name", "")), made.attributes.get("mesh")
                module.meshes[name] = mesh_axes(str(mesh))

    def _add(self, module: Module, function: Function) -> None:
        if function.name in module.functions:
            raise self._error(f"the function {quoted(function.name)} is defined twice")
        module.functions[function.name] = function

    def _function(self) -> Function:
        self._advance()
        is_public = True
        while self.kind == "word":
            is_public = self._advance() != "private"
        name = self._advance().removeprefix("@").strip('"')
        body, attributes = Region(), []
        self._expect("(")
        while not self._accept(")"):
            if self.kind == "value":
                body.arguments.append(self._advance())
                self._expect(":")
            body.types.append(self._type())
            attributes.append(self._dictionary() if self.token == "{" else {})
            body.places.append(self._location())
            self._accept(",")
        results: list[str] = []
        result_attributes: list[dict[str, Attribute]] = []
        if self._accept("->"):
            if self._accept("("):
                while not self._accept(")"):
                    results.append(self._type())
                    result_attributes.append(self._dictionary() if self.token == "{" else {})
                    self._accept(",")
            else:
                results.append(self._type())
                result_attributes.append({})
        if self._accept("attributes"):
            self._dictionary()
        if self._accept("{"):
            self._block(body)
        self._location()
        return Function(name, body, attributes, results, result_attributes, is_public)

    def _block(self, region: Region) -> None:
        """Read operations up to the brace that ends the region."""
        self._enter()
        if self.kind == "block":
            self._block_head(region)
        operations = region.operations
        while not self._accept("}"):
            if self.kind == "block":
                raise self._error("regions of several blocks are not read")
            if self.kind == "end":
                raise self._error("a region ends too early")
            operations.append(self._operation())
        self._depth -= 1

    def _block_head(self, region: Region) -> None:
        self._advance()
        if self._accept("("):
            self._arguments(region)
        self._expect(":")

    def _arguments(self, region: Region) -> None:
        """Read `%a: type loc, %b: type)`"""
        while not self._accept(")"):
            region.arguments.append(self._advance())
            self._expect(":")
            region.types.append(self._type())
            region.places.append(self._location())
            self._accept(",")

    def _operation(self) -> Operation:
        spend(10, "operations")
        results: list[str] = []
        if self.kind == "value":
            while True:
                name = self._advance()
                if self._accept(":"):
                    count = self._integer()
                    if count > _MOST_RESULTS:
                        raise self._error(f"an operation has {count} results")
                    results.extend(f"{name}#{index}" for index in range(count))
                else:
                    results.append(name)
                if not self._accept(","):
                    break
            self._expect("=")
        if self.kind == "string":
            made = self._generic(_unquoted(self._advance()), results)
        elif self.kind == "word":
            made = self._pretty(self._advance(), results)
        else:
            raise self._error(f"an operation is expected, not {quoted(self.token)}")
        made.place = self._location()
        return made

    def _generic(self, name: str, results: list[str]) -> Operation:
        made = Operation(name, [], results, {}, [], [], [], NOWHERE)
        self._expect("(")
        while not self._accept(")"):
            made.operands.append(self._advance())
            self._accept(",")
        if self._accept("<"):
            made.attributes.update(self._dictionary())
            self._expect(">")
        if self._accept("("):
            while not self._accept(")"):
                self._expect("{")
                region = Region()
                self._block(region)
                made.regions.append(region)
                self._accept(",")
        if self.token == "{":
            made.attributes.update(self._dictionary())
        made.operand_types, made.result_types = self._types_behind()
        made.name_callee()
        return made

    def _pretty(self, name: str, results: list[str]) -> Operation:
        made = Operation(name, [], results, {}, [], [], [], NOWHERE)
        if name in ("stablehlo.constant", "mhlo.constant", "arith.constant"):
            if self.token == "{":
                made.attributes.update(self._dictionary())
            value = self._value()
            made.attributes["value"] = value
            made.result_types = [self._type() if self._accept(":") else value.type if isinstance(value, Dense) else ""]
            return made
        form = _Form()
        pieces = {"value": self._operand_piece, "word": self._word_piece, "sign": self._sign_piece}
        while pieces.get(self.kind, self._other_piece)(made, form):
            pass
        made.words = tuple(form.words)
        return made

    def _operand_piece(self, made: Operation, form: _Form) -> bool:
        name = self._advance()
        if form.level and self._accept("="):  # an argument of a loop, and what it is at first
            form.arguments.append(name)
            name = self._advance()
        made.operands.append(name)
        return True

    def _word_piece(self, made: Operation, form: _Form) -> bool:
        word = self._advance()
        if word in _REGION_WORDS and self.token in ("{", "("):
            self._pretty_region(made, form)
            return self.token in _REGION_WORDS
        if word == "attributes" and self.token == "{":
            made.attributes.update(self._dictionary())
        elif self._accept("="):
            made.attributes[word] = self._values_by_x()
        else:
            form.words.append(word)
        return True

    def _sign_piece(self, made: Operation, form: _Form) -> bool:
        token = self.token
        if token == "(":
            if made.name == "sdy.manual_computation" and made.operands and form.level == 0:
                self._pretty_region(made, form)
                return True
            form.level += 1
        elif token == ")":
            form.level -= 1
            if form.level < 0:
                raise self._error("a parenthesis too many")
        elif token in ("[", "<"):
            start = self._start
            self._balanced()
            made.attributes.setdefault("[]" if token == "[" else "<>", self._text[start : self._start].strip())
            return True
        elif token == "{":
            made.attributes.update(self._dictionary())
            return True
        elif token == ":" and form.level == 0:
            made.operand_types, made.result_types = self._types_behind()
            return self.token in _REGION_WORDS or self.token == "attributes"
        elif token not in (",", ":", "->", "?", "-"):
            return False
        self._advance()
        return True

    def _other_piece(self, made: Operation, form: _Form) -> bool:
        """Texts, symbols and attributes of a dialect."""
        kind, token = self.kind, self.token
        if kind == "hash":
            made.attributes.setdefault("#", self._value())
            return True
        if kind not in ("string", "symbol", "number", "type"):
            return False
        if kind in ("string", "symbol"):
            made.callee = made.callee or (token.removeprefix("@").strip('"') if kind == "symbol" else _unquoted(token))
        self._advance()
        return True

    def _pretty_region(self, made: Operation, form: _Form) -> None:
        """Read `{ ... }` of a loop, whose arguments are those in its head; or `(%a: type, %b: type) (...) { ... }` of a reduction, which
        has its arguments in pairs: what is so far, and what comes."""
        region = Region()
        if self.token == "{":
            region.arguments, region.types = list(form.arguments), list(made.operand_types or made.result_types)
        pairs: list[Region] = []
        while self._accept("("):
            pair = Region()
            self._arguments(pair)
            pairs.append(pair)
        if made.short == "reduce":
            for side in (0, 1):
                for pair in pairs:
                    region.arguments.extend(pair.arguments[side : side + 1])
                    region.types.extend(pair.types[side : side + 1])
        else:
            for pair in pairs:
                region.arguments.extend(pair.arguments)
                region.types.extend(pair.types)
        self._expect("{")
        self._block(region)
        made.regions.append(region)

    def _values_by_x(self) -> Attribute:
        """Return a value; or two lists with an x between them, as of batch dimensions; or axes as of a convolution."""
        start = self._start
        first = self._value()
        if self.token == "x" or (self.kind == "word" and self.token.startswith("x")):
            while self.token in ("x", "->") or (self.kind == "word" and self.token.startswith("x")):
                self._advance()
                if self.token == "[":
                    self._balanced()
            return self._text[start : self._start].strip().rstrip(",").strip()
        return first

    def _types_behind(self) -> tuple[list[str], list[str]]:
        """`: (a, b) -> c`, `: a -> (b, c)`, or `: a, b`, where operands and results have the same types."""
        self._expect(":")
        first = self._type_list()
        if self._accept("->"):
            return first, self._type_list()
        return [], first

    def _type_list(self) -> list[str]:
        if self._accept("("):
            found: list[str] = []
            while not self._accept(")"):
                found.append(self._type())
                if self.kind == "loc":
                    self._location()
                self._accept(",")
            return found
        found = [self._type()]
        while self._accept(","):
            found.append(self._type())
        return found

    def _type(self) -> str:
        if self.kind not in ("type", "word"):
            raise self._error(f"a type is expected, not {quoted(self.token)}")
        found = self._advance()
        return self._aliases.get(found, found).strip() if found.startswith("!") else found

    def _dictionary(self) -> dict[str, Attribute]:
        self._expect("{")
        self._enter()
        found: dict[str, Attribute] = {}
        while not self._accept("}"):
            if self.kind not in ("word", "string"):
                raise self._error(f"the name of an attribute is expected, not {quoted(self.token)}")
            key = self._advance()
            key = _unquoted(key) if key.startswith('"') else key
            found[key] = self._value() if self._accept("=") else True
            self._accept(",")
        self._depth -= 1
        return found

    def _value(self) -> Attribute:
        """Return one attribute."""
        kind, token = self.kind, self.token
        if kind in ("string", "symbol") or token in ("@", "*", "?"):
            self._advance()
            while self._accept("::") or (kind == "string" and self._accept(":")):
                self._advance()
            return _unquoted(token) if kind == "string" else token
        if kind == "number":
            self._advance()
            if self.token == ":" and _SCALAR_TYPE.match(self._text, self._at):  # neither the end of a range nor the type of the operation
                self._advance()
                self._type()
            return _number(token)
        by_sign: dict[str, Callable[[], Attribute]] = {"[": self._list, "{": self._dictionary, "<": lambda: self._dialect_text("")}
        if token == "(":  # the type of a function
            start = self._start
            self._balanced()
            if self._accept("->"):
                self._balanced() if self.token == "(" else self._type()
            return self._text[start : self._start].strip()
        by_kind: dict[str, Callable[[], Attribute]] = {"hash": self._hash_value, "type": self._type, "word": self._word_value}
        read = by_kind.get(kind) or by_sign.get(token)
        if read is None:
            raise self._error(f"an attribute is expected, not {quoted(token)}")
        return read()

    def _list(self) -> Attribute:
        self._advance()
        self._enter()
        items: list[Attribute] = []
        while not self._accept("]"):
            items.append(self._value())
            if self.token == ":":  # a range
                while self.token not in (",", "]", ""):
                    self._advance()
            self._accept(",")
        self._depth -= 1
        return tuple(items)

    def _word_value(self) -> Attribute:
        token = self._advance()
        if token in ("true", "false"):
            if self._accept(":"):
                self._type()
            return token == "true"
        if token == "unit":
            return True
        if token in ("dense", "dense_resource", "array", "opaque", "affine_map", "affine_set", "distinct", "sparse") and self.token in (
            "<",
            "[",
        ):
            if token == "dense":
                return self._dense()
            start = self._start
            self._balanced()
            inner = self._text[start : self._start].strip()[1:-1].strip()
            if token == "array":
                _, _, listed = inner.partition(":")
                return tuple(_number_or_word(part.strip()) for part in listed.split(",") if part.strip())
            if token == "dense_resource":
                type_ = self._type() if self._accept(":") else ""
                return Dense(type_, resource=inner.strip('"'))
            if self._accept(":"):
                self._type()
            return inner
        if self.token == "<" and "." not in token:
            return self._dialect_text(token)
        return token

    def _hash_value(self) -> Attribute:
        token = self._advance()
        alias = self._aliases.get(token)
        if alias is not None and not token.startswith("#loc"):
            return _Reader(alias, self)._value()
        return self._dialect_text(token)

    def _dialect_text(self, name: str) -> Attribute:
        """Return an attribute of a dialect: a word, a dictionary of its entries, or its text."""
        if self.token != "<":
            return name
        start = self._start
        self._balanced()
        return _dialect_value(f"{name}{self._text[start : self._start].strip()}")

    def _balanced(self) -> None:
        """Step over a group, from its opening sign to behind its closing one."""
        depth = 0
        while True:
            if self.kind == "end":
                raise self._error("a group is not closed")
            if self.kind == "sign":
                if self.token in ("<", "(", "[", "{"):
                    depth += 1
                elif self.token in (">", ")", "]", "}"):
                    depth -= 1
            self._advance()
            if depth <= 0:
                return

    def _dense(self) -> Dense:
        self._expect("<")
        values: list[Number] = []
        data: bytes | None = None
        is_list = self.token == "["
        while self.token != ">":
            if self.kind == "string":
                data = _hex(self._advance())
            elif self.kind == "number":
                values.append(_number(self._advance()))
            elif self.token in ("true", "false"):
                values.append(self._advance() == "true")
            elif self.token == "(":  # a complex number
                self._advance()
                real = _real(self._advance())
                self._expect(",")
                values.append(complex(real, _real(self._advance())))
                self._expect(")")
            elif self.token in ("[", "]", ","):
                self._advance()
            else:
                raise self._error(f"an element is expected, not {quoted(self.token)}")
        self._advance()
        type_ = self._type() if self._accept(":") else ""
        return Dense(type_, tuple(values), data, "", not is_list and data is None)

    def _integer(self) -> int:
        token = self._advance()
        if not token.isdecimal():
            raise self._error(f"a number is expected, not {quoted(token)}")
        return int(token)

    def _location(self) -> Place:
        if self.kind == "loc":
            name = self.token[4:-1]
            self._advance()
            return self._named_place(name, 0)
        if self.token == "loc" and self.kind == "word":
            return self._in_parentheses(0)
        return NOWHERE

    def _in_parentheses(self, depth: int) -> Place:
        self._expect("loc")
        self._expect("(")
        place = self._place(depth)
        self._expect(")")
        return place

    def _named_place(self, name: str, depth: int) -> Place:
        if name == "unknown":
            return NOWHERE
        found = self._places.get(name)
        if found is None:
            self._places[name] = NOWHERE  # of a name that leads to itself
            text = self._aliases.get(name)
            if text is None or depth > _LOC_DEPTH:
                return NOWHERE
            inner = _Reader(text, self)
            found = inner._named_place(inner.token[4:-1], depth + 1) if inner.kind == "loc" else inner._in_parentheses(depth + 1)
            self._places[name] = found
        return found

    def _place(self, depth: int) -> Place:
        """Return what stands in `loc(...)`."""
        self._enter()
        place = self._place_inside(depth)
        self._depth -= 1
        return place

    def _place_inside(self, depth: int) -> Place:
        if self.kind == "hash":
            return self._named_place(self._advance(), depth + 1)
        if self.kind == "loc":
            return self._location()
        if self.kind == "string":
            name = _unquoted(self._advance())
            if self._accept(":"):
                line = self._integer()
                while self.token not in (")", "at", ",", "]", ""):
                    self._advance()
                return Place("", name, line)
            if self._accept("("):
                inner = self._place(depth)
                self._expect(")")
                return Place(name, inner.file, inner.line, inner.caller)
            return Place(name)
        if self._accept("callsite"):
            self._expect("(")
            callee = self._place(depth)
            self._expect("at")
            caller = self._place(depth)
            self._expect(")")
            return Place(callee.name, callee.file, callee.line, caller if caller.file else None) if callee.file else caller
        if self._accept("fused"):
            if self.token == "<":
                self._balanced()
            self._expect("[")
            places: list[Place] = []
            while not self._accept("]"):
                places.append(self._place(depth))
                self._accept(",")
            name = next((place.name for place in places if place.name), "")
            best = next((place for place in places if place.file), NOWHERE)
            return Place(name, best.file, best.line, best.caller)
        self._advance()  # unknown, or of a dialect
        return NOWHERE

    def _resources(self, module: Module) -> None:
        """Read `{-# dialect_resources: { builtin: { name: "0x..." } } #-}`"""
        self._advance()
        while self.token != "#-}":
            if self.kind == "end":
                raise self._error("the resources end too early")
            name = self._advance()
            if name[:1].isalpha() or name[:1] in ('"', "_"):
                self._accept(":")
                if self.kind == "string":
                    start, end = self._start, self._at
                    module.resources[name.strip('"')] = lambda start=start, end=end: _hex(self._text[start:end])[4:]  # type: ignore[misc]
                    self._advance()
        self._advance()


def _dialect_value(text: str) -> Attribute:
    """`#stablehlo.gather<offset_dims = [2], ...>` as its entries, `#stablehlo<precision DEFAULT>` as DEFAULT, others as text."""
    short = _SHORT.match(text)
    if short is not None:
        return short[1]
    name, _, inner = text.partition("<")
    if name.startswith("#sdy.") or "->" in inner or "=" not in inner:
        return text
    entries: dict[str, Attribute] = {}
    for key, value in _ENTRY.findall(inner):
        if value.startswith("["):
            entries[key] = tuple(_number_or_word(part.strip()) for part in value[1:-1].split(",") if part.strip())
        else:
            entries[key] = _number_or_word(value.strip())
    return entries


def _unquoted(token: str) -> str:
    text = token[1:-1]
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_unescape, text.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return {b"n": b"\n", b"t": b"\t", b'"': b'"', b"\\": b"\\"}.get(code) or bytes([int(code, 16)])


def _hex(token: str) -> bytes:
    text = token.strip('"')
    try:
        return bytes.fromhex(text[2:] if text[:2] in ("0x", "0X") else text)
    except ValueError:
        raise refuse(f"{quoted(text)} is not hexadecimal") from None


def _real(token: str) -> float:
    number = _number(token)
    return number.real if isinstance(number, complex) else float(number)


def _number(token: str) -> Number:
    try:
        if "x" in token or "X" in token:
            return int(token, 16)
        return float(token) if any(sign in token for sign in ".eE") else int(token)
    except ValueError:
        raise refuse(f"{quoted(token)} is not a number") from None


def _number_or_word(text: str) -> Attribute:
    if text in ("true", "false"):
        return text == "true"
    text = text.partition(":")[0].strip() if text[:1] in "-0123456789" else text
    try:
        return _number(text) if text[:1] in "-0123456789" else text
    except Exception:  # a name that begins like a number
        return text
