"""Text that does not parse: every mistake is told with its place, and nothing hostile costs more than its length."""

from __future__ import annotations

import contextlib

import pytest

from irscope.errors import LoadError, UsageError
from irscope.ir.parser import parse_program
from irscope.ir.spelling import parse_type

HEAD = "irscope 1\ngraph @g {\n  input %x: f32[2]\n"
TAIL = "  return %x\n}\n"


def problem(text: str) -> LoadError:
    with pytest.raises(LoadError) as caught:
        parse_program(text, path="file.irs")
    assert caught.value.code == "IRS121"
    assert caught.value.__cause__ is None
    return caught.value


def test_an_error_shows_file_line_column_and_a_caret() -> None:
    error = problem(HEAD + "  %y: f32[2] = math.add(%x, %z)\n" + TAIL)
    assert str(error) == ("file.irs:4:29: %z is not defined up to here\n    %y: f32[2] = math.add(%x, %z)\n                              ^")


@pytest.mark.parametrize(
    ("line", "column", "what"),
    [
        # types
        ("%y: f33[2] = a(%x)", 5, "there is no element type 'f33'"),
        ("%y: foo = a(%x)", 5, "there is no type 'foo'"),
        ("%y: f32 = a(%x)", 8, "the sizes of this f32 tensor are missing"),
        ("%y: list(f32[2]) = a(%x)", 5, "there is no type list(...)"),
        ("%y: f32[2,,3] = a(%x)", 11, "this is not a size: there is nothing to read"),
        ("%y: f32[2,b+] = a(%x)", 13, "this is not a size: a number, a name or ( is missing"),
        ("%y: f32[-2] = a(%x)", 9, "a size cannot be negative"),
        ("%y: f32[2 = a(%x)", 8, "the sizes of this f32 tensor are missing"),
        ("%y: seq(f32[2] = a(%x)", 15, ") is missing"),
        ("%y: map(i64 f32[2]) = a(%x)", 12, ", is missing"),
        ("%y: = a(%x)", 5, "a type is missing"),
        ('%y: f32[2]@"gpu = a(%x)', 12, "this string is never closed"),
        ("%y: " + "seq(" * 60 + "?" + ")" * 60 + " = a(%x)", 209, "types are nested more than 50 deep"),
        # values
        ("%y: f32[2] = a(%q)", 16, "%q is not defined up to here"),
        ('%y: f32[2] = a(%x, %"q r")', 20, '%"q r" is not defined up to here'),
        ("%y: f32[2] = a(%y)", 16, "%y is not defined up to here"),
        ("%x: f32[2] = a(%x)", 1, "%x is defined a second time here"),
        ('%"x": f32[2] = a(%x)', 1, "%x is defined a second time here"),
        ("%y: f32[2], %y: f32[2] = a(%x)", 13, "%y is defined a second time here"),
        ("%y: f32[2] = a(%x %x)", 19, "a comma or ) is missing"),
        ("%y: f32[2] = a(%x, )", 20, "an input is missing"),
        ("%y: f32[2] = a(x)", 16, "an input is missing"),
        ("%y: f32[2], = a(%x)", 13, "a value with its type is missing"),
        ("%y f32[2] = a(%x)", 1, "a value with its type is missing"),
        ("%y: f32[2] a(%x)", 11, "= and an operator are missing behind this type"),
        ("input %x: f32[2]", 7, "%x is defined a second time here"),
        ("input x: f32[2]", 7, "a name with its type is missing"),
        ("arg %i: i64[]", 1, "arg cannot stand directly inside a graph"),
        ("param %w: f32[2] = 5", 20, "data is a list of values, or file"),
        ("param %w: f32[2] = [1, b]", 20, "a list of values may only hold numbers"),
        ('param %w: f32[2] = file("w", -1, 2)', 20, "data is a list of values, or file"),
        ("param %w: f32[2] trailing", 18, "nothing more was expected on this line"),
        # nodes
        ("%y: f32[2] = (%x)", 14, "an operator is missing"),
        ("%y: f32[2] = a (%x)", 15, "the inputs are missing"),
        ("%y: f32[2] = a(%x", 15, "this parenthesis is never closed"),
        ("%y: f32[2] = a(%x) {axis}", 21, "an attribute is missing"),
        ("%y: f32[2] = a(%x) {axis=}", 26, "a value is missing"),
        ("%y: f32[2] = a(%x) {axis=1", 20, "this is never closed with }"),
        ("%y: f32[2] = a(%x) {axis=1 b=2}", 28, "a comma or } is missing"),
        ("%y: f32[2] = a(%x) {axis=1, axis=2}", 29, "the attribute 'axis' was given before"),
        ("%y: f32[2] = a(%x) {axis=[1, 2}", 31, "a comma or ] is missing"),
        ("%y: f32[2] = a(%x) {axis=$}", 26, "a value is missing"),
        ("%y: f32[2] = a(%x) {to=<f99>}", 25, "there is no element type 'f99'"),
        ("%y: f32[2] = a(%x) {to=<f32[2]}", 31, "> is missing after this type"),
        ("%y: f32[2] = a(%x) {v=" + "[" * 60 + "]" * 60 + "}", 73, "values are nested more than 50 deep"),
        ("%y: f32[2] = a(%x) {v=" + "9" * 5000 + "}", 23, "a number of 5000 digits is too large"),
        (r'%y: f32[2] = a(%x) {v="\q"}', 24, "this escape is unknown"),
        ("%y: f32[2] = a(%x) @", 20, "this cannot stand here"),
        ("%y: f32[2] = a(%x) @s#x", 21, "'s#x' is no part of a scope"),
        ("%y: f32[2] = a(%x) @s#" + "9" * 5000, 21, "the number of this call is too large"),
        ('%y: f32[2] = a(%x) !"s" @layer', 25, "this cannot stand here; a node ends with"),
        ("%y: f32[2] = a(%x) !source", 20, "this cannot stand here"),
        ("%y: f32[2] = a(%x) (model.py:1)", 20, "a location looks like"),
        ('%y: f32[2] = a(%x) ("m":1) < ', 30, "a location looks like"),
        ('%y: f32[2] = a(%x) ("m":1) x', 28, "nothing more was expected on this line"),
        ("%y: f32[2] = a(%x)" + ' < ("m":1)' * 2, 20, "this cannot stand here"),
        ("%y: f32[2] = a(%x) " + " < ".join(['("m":1)'] * 400), 2520, "a location may have up to 250 callers"),
        # structure
        ("foo", 1, "there is no statement 'foo' inside a graph"),
        ("graph @h {", 1, "there is no statement 'graph' inside a graph"),
        ("region then {", 8, "a region needs a node on a line before it"),
        ("}", 1, "return is missing before this }"),
        ("return %q", 8, "%q is not defined up to here"),
        ("return _", 8, "_ stands for no value and cannot be returned"),
        ("return %x,", 11, "a value is missing"),
        ("return %x %x", 11, "nothing more was expected on this line"),
        ("return %x\n  %y: f32[2] = a(%x)", 1, "only } may follow return"),
        ("a()\n  region r {\n  input %i: ?", 1, "input cannot stand directly inside a region"),
        ('a()\n  region r {\n  class l "L"', 7, "classes of scopes stand before the graph"),
        ("a()\n  region {", 8, "a name and an opening brace are missing"),
        ("a()\n  region r {\n  %y: ? = b()\n  return\n  }\n  c(%y)", 3, "%y is not defined up to here"),
    ],
)
def test_mistakes_inside_a_graph(line: str, column: int, what: str) -> None:
    error = problem(f"{HEAD}  {line}\n{TAIL}")
    at = 3 + line.count("\n") + 1
    assert error.message.startswith(what)
    assert error.where == f"file.irs:{at}:{column + 2}"


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("", "1:1", "the text ends without a graph"),
        ("\n\n", "1:1", "the text ends without a graph"),
        ("irscope 1\n", "1:10", "the text ends without a graph"),
        ("graph @g {\n", "1:1", "the first line must be: irscope 1"),
        ("\u007fELF", "1:1", "the first line must be: irscope 1"),
        ("irscope 2\n", "1:9", "version '2' of the text form is unknown"),
        ("irscope\n", "1:8", "version '' of the text form is unknown"),
        ("irscope 1\nirscope 1\n", "2:9", "the version was given before"),
        ("irscope 1\nformat onnx\n", "2:8", "a string in double quotes is missing"),
        ('irscope 1\nformat "onnx" x\n', "2:15", "nothing more was expected"),
        ('irscope 1\nmeta "a" "b"\nmeta "a" "b"\n', "3:6", "the metadata 'a' was given before"),
        ('irscope 1\ngiven "k" 1\ngiven "k" 1\n', "3:7", "the value of 'k' was given before"),
        ('irscope 1\ngiven "k" x\n', "2:11", "a whole number is missing"),
        ("irscope 1\nsymbol 3\n", "2:8", "the name of a size is missing"),
        ("irscope 1\nsymbol b [5,2]\n", "2:11", "the dimension b has no possible size"),
        ("irscope 1\nsymbol b\nbound b\n", "3:7", "the size b was declared before"),
        ("irscope 1\nsymbol b [1,64\n", "2:10", "nothing more was expected"),
        ("irscope 1\nclass x BasicBlock\n", "2:7", "a scope and its class are missing"),
        ("irscope 1\ngrahp @g {\n", "2:1", "there is no statement 'grahp'; is it graph?"),
        ("irscope 1\n%x: f32[2] = a()\n", "2:1", "this may only stand inside a graph"),
        ("irscope 1\na()\n", "2:1", "this may only stand inside a graph"),
        ("irscope 1\nreturn\n", "2:1", "this may only stand inside a graph"),
        ("irscope 1\n}\n", "2:1", "there is no open graph that this could close"),
        ("irscope 1\ngraph main {\n", "2:7", "a name and an opening brace are missing"),
        ("irscope 1\nfunc @f {\n", "2:6", "the graph must come before functions"),
        (f"{HEAD}{TAIL}graph @h {{\n", "6:7", "there is a graph already"),
        (f"{HEAD}{TAIL}symbol b\n", "6:8", "sizes are declared before the first graph"),
        (f'{HEAD}{TAIL}class l "L"\n', "6:7", "classes stand before the graph"),
        (f"{HEAD}{TAIL}func @f {{\nreturn\n}}\nfunc @f {{\n", "9:6", "the function 'f' is defined twice"),
        (f"{HEAD}{TAIL}junk\n", "6:1", "there is no statement 'junk'"),
        (f"{HEAD}{TAIL}}}\n", "6:1", "there is no open graph"),
        (HEAD, "3:19", "the text ends, but @g was not closed with }"),
        (HEAD + "  return %x\n\n", "4:12", "the text ends, but @g was not closed with }"),
        (HEAD + "  a()\n  region then {\n    return\n", "6:11", "the text ends, but region then was not closed with }"),
    ],
)
def test_mistakes_outside_a_graph(text: str, place: str, what: str) -> None:
    error = problem(text)
    assert error.message.startswith(what)
    assert error.where == f"file.irs:{place}"


def test_every_truncation_of_a_text_is_refused() -> None:
    text = HEAD + '  %y: seq(f32[2]) = a(%x) {k=[1, "b"]} @s !"o" ("f":1 g "s") < ("h":2)\n  region r {\n    return\n  }\n' + TAIL
    parse_program(text.rstrip("\n"))
    for length in range(len(text.rstrip("\n"))):
        problem(text[:length])


def test_control_characters_in_the_shown_line_are_spelled_out() -> None:
    error = problem(HEAD + "  \x1b[31m\u202e(%x)\t!\n" + TAIL)
    assert error.message == "an operator is missing, as in math.add(%x, %y)\n    \\x1b[31m\\u202e(%x) !\n    ^"


def test_a_long_line_is_shown_around_the_mistake() -> None:
    error = problem(HEAD + "  %y: f32[2] = a(" + ", ".join(["%x"] * 5_000) + ", %q)\n" + TAIL)
    what, shown, caret = error.message.split("\n")
    assert what == "%q is not defined up to here"
    assert len(shown) < 150
    assert shown[caret.index("^") :] == "%q)"


def test_lines_have_a_limit() -> None:
    assert "this line has 1000001 characters" in str(problem("irscope 1\n" + "#" * 1_000_001))


def test_regions_have_a_limit() -> None:
    assert "regions are nested more than 1000 deep" in str(problem(HEAD + "  a()\n  region r {\n" * 1_001))
    nested = HEAD + "  a()\n  region r {\n" * 1_000 + "  return\n  }\n" * 1_000 + TAIL
    assert parse_program(nested).node_count == 1_000


HOSTILE = ['"', "(", "{", "[", "\\", '"\\', "%", "a", "=", "%x, ", "f32[", ' < ("m":1)', "@/#", "-", "1.", "<", " ", "k=1 ", "max("]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize(
    "before", ["", "  ", "  %y: ", "  a(", "  a() {k=", "  a() @", "  a() (", '  a() ("m":1) < ', "  param %w: ? = ", "  return "]
)
def test_hostile_lines_cost_no_more_than_their_length(before: str, piece: str) -> None:
    # Reading that is not linear, or recurses, takes minutes or fails at this length.
    with contextlib.suppress(LoadError):
        parse_program(f"{HEAD}{before}{piece * (200_000 // len(piece))}\n{TAIL}")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "column 1: a type is missing"),
        ("f32[2] x", "column 7: nothing may follow the type"),
        ("f32[2,3", "column 4: the sizes of this f32 tensor are missing"),
        ("tensor[2]", "column 1: there is no element type 'tensor'"),
    ],
)
def test_a_type_alone_is_refused_as_usage(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        parse_type(text)
    assert caught.value.code == "IRS629"
    assert parse_type(" f32[2] ").text == "f32[2]"
