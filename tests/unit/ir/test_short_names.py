"""Short names of symbols whose own are unwieldy: every option takes them, the heading, the card, JSON and the UI list them."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import irscope
from irscope.cli.main import main
from irscope.frontends.onnx import load_model
from irscope.ir.bind import BATCH, SEQUENCE, bind_program, element_names, short_names, symbol_named
from irscope.ir.program import Program
from irscope.report.cardtext import sizes_text
from irscope.session import stated_sizes
from irscope.tui.context import Context

PADDLE = ["p2o.DynamicDimension.0", 3, "p2o.DynamicDimension.1"]


def file_of(*shapes: list[str | int], names: tuple[str, ...] = ("x", "y_", "z")) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in zip(names, shapes, strict=False)]
    nodes = [helper.make_node("Abs", [one.name], [f"{one.name}_abs"], name=f"{one.name}_abs") for one in inputs]
    results = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None) for node in nodes]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, results), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def program(*shapes: list[str | int]) -> Program:
    return load_model(file_of(*shapes))


def test_numbered_names_keep_their_number_and_words_need_no_other_name() -> None:
    assert short_names(program(PADDLE)) == {"d0": "p2o.DynamicDimension.0", "d1": "p2o.DynamicDimension.1"}
    assert short_names(program(["batch", "encoder_sequence_length", "s77"])) == {}
    assert short_names(program(["past.length", "a.0", "b.0"])) == {"past_length": "past.length", "d0": "a.0", "d0_2": "b.0"}


def test_a_short_name_is_no_name_of_anything_else() -> None:
    assert short_names(program(["d0", "x.0", "d0_2"])) == {"d0_3": "x.0"}
    assert short_names(program(["bat.ch", "batch.size"]))["batch_size_2"] == "batch.size"


@given(st.lists(st.text("ab.-_01 d", min_size=1, max_size=6).filter(str.strip), min_size=1, max_size=5, unique=True))
def test_short_names_are_unique_and_mean_one_symbol(names: list[str]) -> None:
    made = program([*names])
    found = short_names(made)
    assert not set(found) & {*made.symbols, *element_names(made), *BATCH, *SEQUENCE}
    assert len(set(found.values())) == len(found)
    for short, symbol in found.items():
        assert symbol_named(made, short) == symbol == symbol_named(made, symbol)


def test_they_stay_what_they_are_when_some_symbols_are_bound() -> None:
    made = program(["a.0", "b.0"])
    bind_program(made, {"d0": 4})
    assert list(made.symbols) == ["b.0"]
    assert symbol_named(made, "d0_2") == "b.0"
    assert symbol_named(made, "d0") is None


def test_bind_takes_either_name_and_says_both() -> None:
    for name in ("d1", "p2o.DynamicDimension.1"):
        made = program(PADDLE)
        bind_program(made, {name: 5})
        assert str(made.graph.inputs[0].type) == "f32[p2o.DynamicDimension.0,3,5]"
    with pytest.raises(irscope.IrscopeError, match="no symbol") as raised:
        bind_program(program(PADDLE), {"other": 5})
    assert "p2o.DynamicDimension.0 (d0)" in str(raised.value.hint)


def test_headings_the_card_json_and_the_ui_list_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(file_of(PADDLE), path)
    assert main(["run", "--passes", "stats", "--bind", "d0=2", str(path)]) == 0
    assert "d1 = p2o.DynamicDimension.1" in " ".join(capsys.readouterr().out.split())
    assert main(["run", "--passes", "stats", "--format", "json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["short_names"] == {"d0": PADDLE[0], "d1": PADDLE[2]}
    assert main([str(path)]) == 0
    assert "d0 (p2o.DynamicDimension.0)=1" in " ".join(capsys.readouterr().out.split())
    sizes = tuple(stated_sizes(irscope.load(path).program, {}))
    assert "d1 (p2o.DynamicDimension.1)=1" in sizes_text(sizes)
    assert any("d0=1" in text for text in Context(sizes).words(40))


@pytest.mark.parametrize("command", ["fit --free d0 --bind d1=7 --memory 1MiB", "run --passes flops --sweep d0=1,2 --bind d1=7"])
def test_other_options_take_them(command: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(file_of(PADDLE), path)
    assert main([*command.split(), str(path)]) == 0
