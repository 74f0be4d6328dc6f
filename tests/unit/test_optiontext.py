"""Options in braces: blanks and commas separate them, in passes, in models by name and in `--schedule`."""

from __future__ import annotations

import json

import pytest

from irscope.cli.export import schedule_of
from irscope.errors import PipelineError
from irscope.frontends.zoo.names import parse_name
from irscope.optiontext import Given, OptionsError, items, read_options
from irscope.passkit.pipeline import parse_pipeline
from irscope.passkit.registry import default_registry


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("a=1 b=2", {"a": "1", "b": "2"}),
        ("a = 1 , b = 2,", {"a": "1", "b": "2"}),
        ("names=a,b,limit=3, deep", {"names": "a,b", "limit": "3", "deep": None}),
        ("over=batch=1,2,seq=4 model=eager", {"over": "batch=1,2,seq=4", "model": "eager"}),
        ("x=[1, [2,3]],y=(1,'a b') z=\"p,q=1\"", {"x": "[1, [2,3]]", "y": "(1,'a b')", "z": '"p,q=1"'}),
        ("a=[1,b=2", {"a": "[1", "b": "2"}),
        ("", {}),
    ],
)
def test_blanks_and_commas_separate(text: str, given: Given) -> None:
    assert read_options(text + "}rest") == (given, len(text) + 1)


@pytest.mark.parametrize(
    ("text", "message"), [("a=}", "a value for 'a'"), ("a=1 a=2}", "given twice"), ("1=2}", "an option"), ("a=1", "the end")]
)
def test_what_does_not_parse(text: str, message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        read_options(text)


def test_items_of_a_list() -> None:
    assert items('a,"b,c",[d,e],') == ["a", '"b,c"', "[d,e]", ""]


@pytest.mark.parametrize(
    "text", ["curve{over=batch=1,2,4 model=eager allocator=false}", "curve{over=batch=1,2,4,model=eager,allocator=false}"]
)
def test_a_pass_has_the_same_options_either_way(text: str) -> None:
    (found,) = parse_pipeline(text, default_registry())
    assert found.text == 'curve{over="batch=1,2,4" model=eager allocator=false}'


def test_flags_stand_between_commas_too() -> None:
    registry = default_registry()
    assert parse_pipeline("params{values,histogram=false}", registry) == parse_pipeline("params{values histogram=false}", registry)
    assert parse_pipeline("params{depth=8,values}", registry) == parse_pipeline("params{values depth=8}", registry)
    with pytest.raises(PipelineError, match="given twice"):
        parse_pipeline("params{depth=8,values,depth=9}", registry)


def test_a_name_takes_both() -> None:
    assert dict(parse_name("timm:x{a=1 b=[1, 2] c='p q'}").options) == {"a": 1, "b": [1, 2], "c": "p q"}
    assert parse_name("timm:x{a=1, b=2}").options == parse_name("timm:x{a=1 b=2}").options


def test_a_schedule_takes_both() -> None:
    assert schedule_of("seconds=30,seed=2") == schedule_of("{seconds=30 seed=2}") == schedule_of("seconds=30 seed=2")


def test_values_are_what_a_published_configuration_holds() -> None:
    rope = {"rope_type": "llama3", "factor": 8.0}
    text = f'a={json.dumps(rope)}, b=[1, {{"c": "}}"}}],d=null e={{}}'
    assert dict(parse_name(f"transformers:llama{{{text}}}").options) == {"a": rope, "b": [1, {"c": "}"}], "d": None, "e": {}}
    given, end = read_options('a={"b": [1, 2]}, c=3} rest')
    assert given == {"a": '{"b": [1, 2]}', "c": "3"} and end == 21
    with pytest.raises(OptionsError, match="expected a value for 'a'"):
        read_options("a={b=1}}")
