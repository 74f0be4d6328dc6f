"""Named ways to store matrices: the tensors that each makes are those that its own serialiser writes."""

from __future__ import annotations

import pytest

from irscope.errors import UsageError
from irscope.weights.schemes import SCHEMES, parse_scheme, read_packed, scheme_in
from tests.unit.weights.test_packed import (
    AWQ,
    DOUBLE,
    FP8_BLOCKS,
    GPTQ,
    GPTQ3,
    INPUTS,
    INT8,
    LAYOUTS,
    NF4,
    OUTPUTS,
    W4A16,
    Header,
    _ct,
    _stored,
)

WRITTEN: dict[str, Header] = {
    "int8": INT8, "nf4": NF4, "nf4{double}": DOUBLE, "fp8": FP8_BLOCKS, "int4": W4A16, "gptq": GPTQ, "gptq{bits=3}": GPTQ3, "awq": AWQ,
}  # fmt: skip
HOST = ("l.weight_format", "l.weight.quant_state.bitsandbytes__nf4")
"""What bitsandbytes writes for the host: it is not held on the device."""


@pytest.mark.parametrize("text", WRITTEN)
def test_tensors_are_those_that_are_written(text: str) -> None:
    made = {f"l.{part.name}": (part.dtype, part.shape) for part in parse_scheme(text).parts(OUTPUTS, INPUTS)}
    assert made == {name: type_ for name, type_ in _stored(WRITTEN[text]).items() if name not in HOST}


@pytest.mark.parametrize("name", SCHEMES)
def test_what_is_stored_is_read_again(name: str) -> None:
    parts = {f"l.{part.name}": (part.dtype, part.shape) for part in parse_scheme(name).parts(OUTPUTS, INPUTS)}
    if name in ("nf4", "fp4"):
        parts[f"l.weight.quant_state.bitsandbytes__{name}"] = next(iter(parts.values()))[0], (80,)
    packed = read_packed(parts, _ct(4) if name == "int4" else {})
    assert [weight.count for weight in packed.weights] == [OUTPUTS * INPUTS] and not packed.unknown


def test_bits_a_weight() -> None:
    bits = {text: 8 * parse_scheme(text).bytes(4096, 4096) / 4096**2 for text in ("nf4", "nf4{double}", "int8", "int4{group=32}", "mxfp4")}
    assert bits["nf4"] == 4.5 + 16 * 4 * 8 / 4096**2
    assert bits["nf4{double}"] == 4 + 8 / 64 + 32 / 64 / 256 + (16 + 256) * 4 * 8 / 4096**2
    assert bits["int8"] == 8 + 32 / 4096
    assert bits["int4{group=32}"] == 4.5 + 16 * 8 / 4096**2
    assert bits["mxfp4"] == 4.25


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int5", "no way to store weights called 'int5'"),
        ("", "no way to store weights called ''"),
        ("int4{group=100}", "int4 has no group=100"),
        ("gptq{bits=5}", "gptq has no bits=5"),
        ("nf4{group=64}", "nf4 has no setting 'group'"),
        ("int4{group=lots}", "int4 has no setting 'group=lots'"),
        ("int4{group=128", "expected an option or '}'"),
        ("int4{group=128}x", "'x' follows the brace"),
        ("int4{group=64,group=32}", "given twice"),
    ],
)
def test_a_scheme_that_is_not_known_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_scheme(text)
    assert said in str(caught.value) and caught.value.code == "IRS432"


def test_a_scheme_is_written_as_it_is_read() -> None:
    for text in ("nf4", "nf4{double}", "int4{group=64}", "gptq{bits=8 group=32}", "fp8{head}", "nf4{block=128 double embeddings head}"):
        assert parse_scheme(text).text == text
    assert parse_scheme("nf4{double=true}").text == "nf4{double}"
    assert parse_scheme("nf4{double=false,block=64}").text == "nf4"


def test_matrices_that_cannot_be_stored_so() -> None:
    assert parse_scheme("int4").refuses(64, 200) == "groups of 128 do not divide 200 inputs"
    assert parse_scheme("awq").refuses(60, 128) == "60 outputs of 4 bits do not fill words of 32"
    assert parse_scheme("mxfp4").refuses(64, 40) == "groups of 32 do not divide 40 inputs"
    assert parse_scheme("int4").refuses(64, 64) == "", "a row shorter than a group is one group"
    assert parse_scheme("nf4").refuses(7, 5) == ""


@pytest.mark.parametrize(
    ("layout", "scheme"), [("nf4", "nf4"), ("int8", "int8"), ("gptq", "gptq"), ("gptq 3 bit", None), ("awq", "awq"), ("fp8 blocks", "fp8")]
)
def test_the_scheme_of_a_configuration(layout: str, scheme: str | None) -> None:
    found = scheme_in(LAYOUTS[layout][1])
    assert (found.text if found is not None else None) == (scheme or "gptq{bits=3}")


def test_configurations_that_name_none_of_them() -> None:
    assert scheme_in({"quant_method": "aqlm"}) is None
    assert scheme_in({"quant_method": "gptq", "bits": 4, "group_size": 100}) is None
    assert scheme_in({"load_in_4bit": True, "bnb_4bit_quant_type": "nf5"}) is None
