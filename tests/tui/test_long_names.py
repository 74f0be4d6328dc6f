"""Names of megabytes: what is shown of them is short, and no screen stops to escape them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from textual.pilot import Pilot

from irscope.cli.main import main
from irscope.session import open_model
from irscope.tui.actions import SCREENS
from irscope.tui.app import IrscopeApp
from tests.tui.driving import drive, press, screen_text

NAME = ("\x1b[2J\u202e" + "名a=" * 10) * 25_000
"""A megabyte that clears the screen, turns the line around and is twice as wide as long."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nodes = [helper.make_node("Relu", ["x"], [NAME], name=NAME), helper.make_node("Relu", [NAME], ["y"], name=f"b{NAME}")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    path = tmp_path_factory.mktemp("names") / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.parametrize("form", ["text", "html"])
def test_reports_show_a_part_of_them(form: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--format", form, str(path)]) == 0
    out, err = capsys.readouterr()
    assert len(out) < 1_000_000 and len(err) < 20_000
    assert "\x1b" not in out and "\u202e" not in out


def test_data_holds_all_of_them(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--format", "json", "--passes", "shapes", str(path)]) == 0
    assert len(capsys.readouterr().out) > len(NAME)


@pytest.mark.slow
def test_every_screen_shows_a_part_of_them(path: Path) -> None:
    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        for record in SCREENS:
            await press(app, pilot, record.key, "down", "end", "enter", record.key, "z", "escape")
            assert all(character.isprintable() or character == "\n" for character in screen_text(app))

    drive(open_model(path), steps)
