"""Pipeline text: `shapes,liveness{model=eager top=5},fixpoint{max=4}(dce,fold),./my_pass.py:Mine{threshold=0.5}`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from irscope.errors import IrscopeError, PipelineError
from irscope.immutable import immutable, mutable
from irscope.optiontext import Given, OptionsError, read_options
from irscope.passkit import options
from irscope.passkit.base import Pass
from irscope.passkit.registry import PassRegistry, closest
from irscope.passkit.script import is_script_reference

_REFERENCE = re.compile(r'"(?:\\.|[^"\\])*"(?::[A-Za-z_]\w*)?|[^\s,{}()"]+')
_MAX_DEPTH = 50


@immutable(slots=False)
class Element:
    """One parsed element before its pass is looked up."""

    reference: str
    options: Given
    body: tuple[Element, ...]
    column: int


@mutable
class _Scanner:
    text: str
    position: int = 0
    depth: int = field(default=0)

    def fail(self, message: str, column: int | None = None) -> PipelineError:
        return point_at(self.text, self.position if column is None else column, message)

    def skip_spaces(self) -> None:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1

    def peek(self) -> str:
        self.skip_spaces()
        return self.text[self.position : self.position + 1]

    def take(self, pattern: re.Pattern[str], what: str) -> str:
        self.skip_spaces()
        match = pattern.match(self.text, self.position)
        if match is None:
            found = repr(self.text[self.position]) if self.position < len(self.text) else "the end"
            raise self.fail(f"expected {what}, found {found}")
        self.position = match.end()
        return match.group()

    def expect(self, char: str) -> None:
        if self.peek() != char:
            found = repr(self.text[self.position]) if self.position < len(self.text) else "the end"
            raise self.fail(f"expected {char!r}, found {found}")
        self.position += 1


def point_at(text: str, column: int, message: str) -> PipelineError:
    """Return an error whose second and third line show the pipeline and a caret."""
    return PipelineError(f"{message}\n  {text}\n  {' ' * column}^")


def parse_elements(text: str) -> tuple[Element, ...]:
    """Read a pipeline's structure; names and options are not looked up yet."""
    scanner = _Scanner(text)
    elements = _element_list(scanner)
    if scanner.peek():
        raise scanner.fail(f"unexpected {scanner.peek()!r}")
    return elements


def _element_list(scanner: _Scanner) -> tuple[Element, ...]:
    scanner.depth += 1
    if scanner.depth > _MAX_DEPTH:
        raise scanner.fail("nested too deeply")
    elements = [_element(scanner)]
    while scanner.peek() == ",":
        scanner.position += 1
        elements.append(_element(scanner))
    scanner.depth -= 1
    return tuple(elements)


def _element(scanner: _Scanner) -> Element:
    scanner.skip_spaces()
    column = scanner.position
    reference = scanner.take(_REFERENCE, "the name of a pass")
    given: Given = {}
    if scanner.peek() == "{":
        try:
            given, scanner.position = read_options(text=scanner.text, at=scanner.position + 1)
        except OptionsError as error:
            raise scanner.fail(str(error), error.column) from None
    body: tuple[Element, ...] = ()
    if scanner.peek() == "(":
        scanner.position += 1
        body = _element_list(scanner)
        scanner.expect(")")
    return Element(reference, given, body, column)


def script_in(text: str) -> str | None:
    """Return the first element of a pipeline that names a file to run."""
    pending = list(parse_elements(text))
    while pending:
        element = pending.pop(0)
        if is_script_reference(element.reference):
            return element.reference
        pending[:0] = element.body
    return None


def parse_pipeline(text: str, registry: PassRegistry) -> tuple[Pass, ...]:
    """Return the passes of a pipeline, in order; names of pipelines are replaced by what they stand for."""
    return _resolve(text, parse_elements(text), registry, ())


def _resolve(text: str, elements: Sequence[Element], registry: PassRegistry, within: tuple[str, ...]) -> tuple[Pass, ...]:
    passes: list[Pass] = []
    for element in elements:
        expansion = registry.pipelines.get(element.reference)
        if expansion is not None:
            if element.options or element.body:
                raise point_at(text, element.column, f"{element.reference!r} is a pipeline and takes no options")
            if element.reference in within:
                raise point_at(text, element.column, f"pipeline {element.reference!r} contains itself")
            passes.extend(_resolve(expansion, parse_elements(expansion), registry, (*within, element.reference)))
            continue
        try:
            cls = registry.find(element.reference)
        except KeyError:
            near = closest(element.reference, registry.names())
            hint = f"; did you mean {near!r}?" if near else "; `irscope passes` lists them"
            raise point_at(text, element.column, f"unknown pass {element.reference!r}{hint}") from None
        takes_body = "body" in options.option_types(cls)
        if bool(element.body) != takes_body:
            problem = "needs passes in parentheses" if takes_body else "takes no passes in parentheses"
            raise point_at(text, element.column, f"{element.reference!r} {problem}")
        extra = {"body": _resolve(text, element.body, registry, within)} if takes_body else {}
        try:
            passes.append(options.build(cls, element.options, **extra))
        except PipelineError as error:
            pointed = point_at(text, element.column, str(error))
            pointed.code = error.code
            raise pointed from None
        except (IrscopeError, TypeError, ValueError) as error:
            raise point_at(text, element.column, f"{element.reference!r} refuses its options: {error}") from error
    return tuple(passes)


def pipeline_text(passes: Sequence[Pass]) -> str:
    """Return the text that `parse_pipeline` turns into equal passes."""
    return ",".join(one.text for one in passes)
