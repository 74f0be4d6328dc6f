"""Tensors that no machine could hold are refused where a file declares them, and unknown where an operator would make them."""

from __future__ import annotations

from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.ir.dtypes import DType
from irscope.ir.spelling import parse_type
from irscope.ir.types import TensorType, tensor
from irscope.session import open_model


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("f32[4,8]", True),
        ("f32[*]", True),
        ("f32[batch,1000000]", True),
        (f"i8[{2**62 - 1}]", True),
        (f"i8[{2**62}]", False),
        (f"f32[{2**40},{2**40}]", False),
        (f"f32[batch,{2**40},{2**40}]", False),
        ("f32[batch - 9]", True),
        (f"f32[0,{2**40},{2**40}]", True),
        (f"f32[{2**64}*batch]", False),
    ],
)
def test_what_a_machine_could_hold(text: str, fits: bool) -> None:
    type_ = parse_type(text)
    assert isinstance(type_, TensorType)
    assert type_.is_possible is fits


def test_an_input_that_no_machine_could_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.irs"
    path.write_text("irscope 1\ngraph @main {\n  input %x: f32[" + "9" * 400 + "]\n  return %x\n}\n")
    assert main(["run", str(path)]) == 3
    err = capsys.readouterr().err
    assert "IRS108" in err and err.count("\n") == 1 and len(err) <= 401


def test_a_result_that_no_machine_could_hold_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "m.irs"
    sizes = ",".join(["1099511627776"] * 2)
    path.write_text(f"irscope 1\ngraph @main {{\n  input %x: f32[1]\n  %y: f32[*] = view.expand(%x) {{shape=[{sizes}]}}\n  return %y\n}}\n")
    model = open_model(path)
    assert str(model.graph.outputs[0].type) == "?[*]"
    assert "more elements than a machine can address" in " ".join(map(str, model.run("shapes")["shapes"].report().diagnostics))


def test_negative_sizes() -> None:
    assert not tensor(DType.F32, (4, -1)).is_possible
