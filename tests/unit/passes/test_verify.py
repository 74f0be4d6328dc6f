"""`verify` holds nodes to the rules of their operators, and a text to the types that it states."""

from __future__ import annotations

from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.session import Model, open_model

_HEAD = "irscope 1\nsymbol n [1,64]\ngraph @main {\n  input %x: f32[n,3]\n"


def opened(tmp_path: Path, body: str, end: str = "%y") -> Model:
    path = tmp_path / "text.irs"
    path.write_text(f"{_HEAD}{body}\n  return {end}\n}}\n")
    return open_model(path)


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("  %y: f32[n,4] = nn.relu(%x)", "IRS207", "f32[n,3]"),
        ("  %y: f16[n,3] = nn.relu(%x)", "IRS207", "f32[n,3]"),
        ("  %y: f32[3] = nn.relu(%x)", "IRS207", "f32[n,3]"),
        ("  %y: seq(f32[n,3]) = nn.relu(%x)", "IRS207", "f32[n,3]"),
        ("  %y: f32[n,3] = nn.reluu(%x)", "IRS206", "nn.reluu"),
        ("  param %w: f32[4,8]\n  %y: f32[n,4] = nn.linear(%x, %w, _)", "IRS201", "3 is not 8"),
        ("  %y: f32[n,3] = nn.softmax(%x) {axis=7}", "IRS201", "7"),
    ],
)
def test_what_an_operator_contradicts_is_a_problem(body: str, code: str, said: str, tmp_path: Path) -> None:
    [report] = opened(tmp_path, body).run("verify").reports
    assert [diagnostic.code for diagnostic in report.diagnostics] == [code]
    assert said in report.diagnostics[0].message
    assert report.summary["problems"] == 1


@pytest.mark.parametrize(
    "body",
    [
        "  %y: f32[*] = nn.relu(%x)",
        "  %y: ? = nn.relu(%x)",
        "  %y: f32[?m,3] = nn.relu(%x)",
        "  %y: f32[7,9] = foreign.window(%x)",
    ],
)
def test_what_is_left_open_or_of_a_foreign_operator_is_none(body: str, tmp_path: Path) -> None:
    assert opened(tmp_path, body).run("verify")["verify"].value == ()


def test_types_hold_for_the_inputs_that_the_text_declares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fixed.irs"
    path.write_text("irscope 1\ngraph @main {\n  input %x: f32[2,3]\n  %y: f32[2,3] = nn.relu(%x)\n  return %y\n}\n")
    assert main(["run", "--passes", "verify", "--strict", "--input", "x=f32[8,3]", str(path)]) == 0
    assert main(["run", "--passes", "verify", "--strict", str(path)]) == 0


def test_show_and_strict_runs_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wrong.irs"
    path.write_text(f"{_HEAD}  %y: f32[n,4] = nn.relu(%x)\n  return %y\n}}\n")
    assert main(["show", str(path)]) == 0
    out, err = capsys.readouterr()
    assert "%y: f32[n,3] = nn.relu" in out and "IRS207" in err
    assert main(["show", "--strict", str(path)]) == 5
    assert main(["run", "--passes", "verify", str(path)]) == 1
    assert capsys.readouterr().err.count("IRS207") >= 1
    assert main(["run", "--passes", "flops", "--strict", str(path)]) == 5
