"""The Python surface: load, bind, run."""

from __future__ import annotations

from pathlib import Path

import pytest

import irscope
from irscope.errors import LoadError, UsageError
from irscope.ir.dims import symbol
from irscope.passkit.manager import Manager
from tests.cli.test_bad_input import MODEL


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "model.irs"
    target.write_text(MODEL)
    return target


def test_results_are_found_by_pass_name(path: Path) -> None:
    model = irscope.load(path, bind={"batch": 2})
    results = irscope.run(model, "shapes,flops,liveness", device="h200", torch="2.13")
    assert list(results) == ["shapes", "flops", "liveness"]
    assert results["flops"].value.total.matmul == 2 * 2 * 4 * 8
    assert results["liveness"].report().to_json()["summary"]["activation_peak_bytes"] == 64
    assert results.settings.device == "h200" and model.manager.settings.device == ""


def test_types_are_on_the_values_once_a_model_is_loaded(path: Path) -> None:
    graph = irscope.load(path).graph
    assert str(graph.outputs[0].type) == "f32[batch,4]"


def test_binding_replaces_symbols_everywhere(path: Path) -> None:
    path.write_text(MODEL.replace("nn.relu(%y)", "view.reshape(%y, _) {shape=[2*batch, -1]}"), encoding="utf-8")
    model = irscope.load(path, bind={"batch": 3})
    last = model.graph.last
    assert last.attrs["shape"] == (6, -1)
    assert str(model.graph.outputs[0].type) == "f32[6,2]"
    assert model.program.symbols == {}


def test_an_input_may_be_named_by_position(path: Path) -> None:
    assert str(irscope.load(path, inputs={"0": "f16[7,8]"}).graph.inputs[0].type) == "f16[7,8]"


def test_elements_of_integer_inputs_can_be_bound(path: Path) -> None:
    path.write_text(
        "irscope 1\ngraph @main {\n  input %x: f32[6,4]\n  input %to: i64[2]\n  %y: ?[*] = view.reshape(%x, %to)\n  return %y\n}\n",
        encoding="utf-8",
    )
    assert str(irscope.load(path, bind={"to_0": 3, "to_1": 8}).graph.outputs[0].type) == "f32[3,8]"
    with pytest.raises(UsageError, match="no symbol 'to_2'"):
        irscope.load(path, bind={"to_2": 3})


def test_an_input_of_one_element_is_bound_by_its_own_name(path: Path) -> None:
    path.write_text(
        "irscope 1\ngraph @main {\n  input %x: f32[6,4]\n  input %to: i64[1]\n  %y: ?[*] = view.reshape(%x, %to)\n  return %y\n}\n",
        encoding="utf-8",
    )
    assert str(irscope.load(path, bind={"to": 24}).graph.outputs[0].type) == "f32[24]"
    assert str(irscope.load(path, bind={"to_0": 24}).graph.outputs[0].type) == "f32[24]"


def test_errors_have_a_code_and_an_exit_code(tmp_path: Path) -> None:
    with pytest.raises(irscope.IrscopeError) as caught:
        irscope.load(tmp_path / "none.onnx")
    assert isinstance(caught.value, LoadError)
    assert (caught.value.code, caught.value.exit_code) == ("IRS100", 3)


def test_symbols_keep_their_bounds(path: Path) -> None:
    path.write_text(MODEL.replace("[1,*]", "[2,16]"), encoding="utf-8")
    assert irscope.load(path).program.symbols == {"batch": symbol("batch", 2, 16)}
    with pytest.raises(UsageError, match="batch"):
        irscope.load(path, bind={"batch": 17})


def test_a_model_is_inferred_once(path: Path) -> None:
    model = irscope.load(path)
    assert isinstance(model.manager, Manager)
    before = model.manager.get("shapes")
    assert model.manager.get("shapes") is before


def test_a_file_is_hashed_only_where_its_digest_is_asked_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def digest(of: Path) -> str:
        asked.append(of)
        return "digest"

    monkeypatch.setattr("irscope.session.file_digest", digest)
    info = irscope.load(path).info()
    assert not asked and info.facts()
    assert info.sha256 == "digest" and asked == [path]
