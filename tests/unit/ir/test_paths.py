"""`layer3.1` and `layer3/1` are one module, wherever one may be named."""

from __future__ import annotations

from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.ir.places import is_within, path_key, root_scope
from irscope.report.boxes import name_within
from irscope.report.select import parse_filter
from irscope.tui.session import find_row
from tests.tui.models import browse

SPELLINGS = ("layer3/1", "layer3.1", "/layer3/1", "/layer3/layer3.1/")
TEXT = """irscope 1
graph @main {
  input %x: f32[2,3]
  %a: f32[2,3] = nn.relu(%x) @layer3/0
  %"/layer3/layer3.1/act/Relu": f32[2,3] = nn.relu(%a) @layer3/1/act
  %c: f32[2,3] = nn.relu(%"/layer3/layer3.1/act/Relu") @layer3/10
  return %c
}
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "net.irs").write_text(TEXT, "utf-8")
    return str(tmp_path / "net.irs")


@pytest.mark.parametrize(
    ("text", "key"),
    [*((one, "layer3.1") for one in SPELLINGS), ("0/0/q", "0.0.q"), ("layer1/layer1.0/conv1", "layer1.0.conv1"), ("", ""), ("/", "")],
)
def test_one_spelling(text: str, key: str) -> None:
    assert path_key(text) == key


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_module_holds_what_is_in_it_and_not_its_neighbours(text: str) -> None:
    layer = root_scope().child("layer3")
    assert is_within(layer.child("1").child("act"), text) and is_within(layer.child("1"), text)
    assert is_within(layer.child("layer3.1").child("act"), text)
    assert not is_within(layer.child("10"), text) and not is_within(layer, text)
    assert is_within(root_scope().child("run").child("=layer3.1"), text)
    assert is_within(layer, "")


@pytest.mark.parametrize("text", SPELLINGS)
def test_commands(text: str, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--scope", text, path]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 1 and "act/Relu" in shown
    assert main(["export", "--around", text, "--hops", "1", "-o", str(tmp_path / f"{len(text)}.svg"), path]) == 0
    assert main(["run", "--passes", "flops", "--explain", f"{text.rstrip('/')}/act/Relu", path]) == 0
    assert main(["run", "--passes", "flops", "--filter", f'module ~ "{text}"', path]) == 0
    assert "act" in capsys.readouterr().out


@pytest.mark.parametrize("text", SPELLINGS)
def test_filters_and_go_to(text: str) -> None:
    shown = browse(TEXT)
    shown.set_filter(f"scope:{text}")
    assert shown.filter_error == ""
    found = [shown.row_name(row).removeprefix("%") for row in shown.tree.visible.tolist() if shown.tree.is_match(row)]
    # What is typed may go on, to layer3.10; a slash at the end says that it does not.
    assert found == ["/layer3/layer3.1/act/Relu", *(["c"] if text[-1] != "/" else [])]
    row = find_row(shown, text)
    assert row is not None and shown.row_name(row) == "layer3/1"
    row = find_row(shown, f"{text.rstrip('/')}.act.Relu")
    assert row is not None and "act/Relu" in shown.row_name(row)
    shown.set_filter("layer3.1.act")
    assert shown.tree.matches == 1


def test_rows_of_tables() -> None:
    condition = parse_filter('module = "layer3.1"')
    assert condition.test({"module": "layer3/1"}) and not condition.test({"module": "layer3/10"})


@pytest.mark.parametrize(
    ("name", "path", "within"),
    [
        ("/model/layers.0/Add_output_0", "model/layers/0", "Add_output_0"),
        ("/layer3/layer3.1/conv1/Conv_output_0", "layer3/1/conv1", "Conv_output_0"),
        ("block.fc1.out", "block/fc1", "out"),
        ("stem/Conv", "stem", "Conv"),
        ("stem", "stem", "stem"),
        ("stem/", "stem", "stem/"),
        ("stemmed/Conv", "stem", "stemmed/Conv"),
        ("x.y", "", "x.y"),
    ],
)
def test_the_path_of_the_module_goes_from_a_name_in_it(name: str, path: str, within: str) -> None:
    scope = root_scope()
    for part in filter(None, path.split("/")):
        scope = scope.child(part)
    assert name_within(name, scope) == within
