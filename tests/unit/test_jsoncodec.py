"""JSON by the types of dataclasses: what does not fit is named with its path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from irscope.jsoncodec import LARGEST, Misfit, decode, encode, loads
from tests.tools.pages import type_schema


@dataclass(frozen=True)
class Figure:
    value: float
    unit: str = ""


@dataclass(frozen=True)
class Device:
    name: str
    rates: Mapping[str, Figure] = field(default_factory=dict)
    levels: tuple[Figure, ...] = ()
    memory: int | None = None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "an object is wanted, not []"),
        ("{}", "'name' is missing"),
        ('{"name": 3}', "name: text is wanted, not 3"),
        ('{"name": "a", "memory": true}', "memory: a whole number or null is wanted, not True"),
        ('{"name": "a", "memory": 1e3}', "memory: a whole number or null is wanted, not 1000.0"),
        ('{"name": "a", "levels": [{"value": 1}, {"value": "2"}]}', "levels[1].value: a number is wanted, not '2'"),
        ('{"name": "a", "levels": {}}', "levels: a list is wanted, not {}"),
        ('{"name": "a", "rates": {"f16": {}}}', "rates.f16: 'value' is missing"),
        ('{"name": "a", "rates": {"f16": {"value": NaN}}}', "no JSON: NaN is not a JSON number"),
        ('{"name": "a", "rates": {"f16": {"value": 1e999}}}', "rates.f16.value: a number is wanted, not inf"),
        (f'{{"name": "a", "memory": {LARGEST + 1}}}', f"memory: a whole number or null is wanted, not {LARGEST + 1}"),
        ("[" * 100_000, "values nested too deeply"),
        ('{"name": ', "no JSON: Expecting value: line 1 column 10 (char 9)"),
    ],
)
def test_what_does_not_fit_is_named_with_its_path(text: str, says: str) -> None:
    with pytest.raises(Misfit) as caught:
        decode(Device, loads(text))
    assert str(caught.value) == says


def test_unknown_fields_are_left_out_unless_the_form_is_closed() -> None:
    value = loads('{"name": "a", "levels": [{"value": 1, "vlaue": 2}]}')
    assert decode(Device, value) == Device("a", levels=(Figure(1.0),))
    with pytest.raises(Misfit, match=r"levels\[0\].vlaue: there is no such field; there are value, unit"):
        decode(Device, value, closed=True)


def test_what_is_written_is_read_again() -> None:
    device = Device("a", {"f16": Figure(2.5, "TFLOP/s")}, (Figure(1.0),), 5)
    written = encode(device)
    assert written == {"name": "a", "rates": {"f16": {"value": 2.5, "unit": "TFLOP/s"}}, "levels": [{"value": 1.0}], "memory": 5}
    assert decode(Device, written, closed=True) == device
    assert encode(Device("a")) == {"name": "a"}


def test_schemas_follow_the_types() -> None:
    figure = {"type": "object", "properties": {"value": {"type": "number"}, "unit": {"type": "string"}}, "required": ["value"]}
    assert type_schema(Figure) == figure
    definitions: dict[str, object] = {}
    assert type_schema(tuple[Figure, ...], definitions) == {"type": "array", "items": {"$ref": "#/$defs/Figure"}}  # type: ignore[arg-type]
    assert definitions == {"Figure": figure}
