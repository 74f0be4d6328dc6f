"""Pictures of graphs: layers and places, boxes that fold by module, and the files that show them."""

from __future__ import annotations

import html
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Collection
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.report.boxes import MOST_CHILDREN, BoxKind, BoxTree, Measure, Scene, scene
from irscope.report.drawing import Drawing, Paint, graph_part, graph_script, html_file, svg_file, under
from irscope.report.layered import Layers, Link, columns, layers_of
from irscope.session import open_model
from irscope.tools.export import View, graph_drawing, picture
from tests.tables import every

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "samples" / "models"
CHROMIUM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
browser = pytest.mark.skipif(CHROMIUM is None, reason="no browser to show the page")

BLOCKS = """irscope 1
class body "Sequential"
class body/0 "Block"
class body/1 "Block"
graph @main {
  input %x: f32[2,8]
  param %w: f32[8,8]
  param %v: f32[8,8]
  %a: f32[2,8] = math.matmul(%x, %w) @body/0
  %b: f32[2,8] = nn.relu(%a) @body/0
  %c: f32[2,8] = math.add(%b, %x) @body/0
  %d: f32[2,8] = math.matmul(%c, %v) @body/1
  %e: f32[2,8] = nn.relu(%d) @body/1
  %f: f32[2,8] = math.add(%e, %c) @body/1
  %g: f32[2,8] = nn.softmax(%f) {axis=1} @head
  return %g
}
"""


def _program(text: str = BLOCKS) -> Program:
    return parse_program(text)


def _names(tree: BoxTree, opened: Collection[int]) -> list[str]:
    return [box.name for box in tree.visible(opened)]


def _check(layers: Layers, links: list[Link]) -> None:
    """Each box and bend has one place, segments go from one layer to the next, and every edge can be followed from end to end."""
    places = [number for row in layers.rows for number in row]
    assert sorted(places) == list(range(len(layers.layer)))
    for segment in layers.segments:
        assert layers.layer[segment.lower] == layers.layer[segment.upper] + 1
    follows: dict[tuple[int, int], set[int]] = {}
    trunks: dict[tuple[int, int], int] = {}
    for link in dict.fromkeys(links):
        trunks.setdefault((link.source, link.trunk), len(trunks))
    for segment in layers.segments:
        follows.setdefault((segment.upper, segment.trunk), set()).add(segment.lower)
        follows.setdefault((segment.lower, -1 - segment.trunk), set()).add(segment.upper)
    for link in links:
        trunk = trunks[link.source, link.trunk]
        down = link.source if layers.layer[link.source] < layers.layer[link.target] else link.target
        goal = link.target if down == link.source else link.source
        reached, todo = {down}, [down]
        while todo:
            at = todo.pop()
            for lower in follows.get((at, trunk), ()):
                if lower not in reached:
                    reached.add(lower)
                    if lower >= layers.count:
                        todo.append(lower)
        assert goal in reached or link.source == link.target


def test_a_residual_goes_past_what_it_leaves_out() -> None:
    links = [Link(0, 1), Link(1, 2), Link(2, 3), Link(0, 3)]
    layers = layers_of(4, links)
    assert [layers.layer[box] for box in range(4)] == [0, 1, 2, 3]
    assert layers.crossings == 0 and len(layers.layer) == 6
    _check(layers, links)


def test_edges_of_one_source_share_their_bends() -> None:
    links = [Link(at, at + 1) for at in range(9)] + [Link(0, at) for at in range(2, 10)]
    assert len(layers_of(10, links).layer) == 10 + 8
    _check(layers_of(10, links), links)
    apart = [Link(0, at, trunk=at) for at in range(2, 10)]
    assert len(layers_of(10, [*links[:9], *apart]).layer) > 10 + 8


@every("seed", range(40))
def test_random_graphs_have_valid_layers(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(1, 40)
    links = [Link(rng.randrange(count), rng.randrange(count), rng.randrange(2)) for _ in range(rng.randrange(80))]
    layers = layers_of(count, links)
    _check(layers, links)
    widths = [rng.uniform(20, 90) for _ in range(count)]
    middle = columns(layers, widths, 10, 2)
    for row in layers.rows:
        for left, right in itertools.pairwise(row):
            both = (widths[left] if left < count else 2) / 2 + (widths[right] if right < count else 2) / 2
            assert middle[right] - middle[left] >= both + 10 - 1e-6
    assert min((at - (widths[number] if number < count else 2) / 2 for number, at in enumerate(middle)), default=0) == pytest.approx(0)


def test_a_cycle_is_cut_and_marked() -> None:
    layers = layers_of(3, [Link(0, 1), Link(1, 2), Link(2, 0)])
    assert [segment.is_back for segment in layers.segments].count(True) == 2
    assert [layers.layer[box] for box in range(3)] == [0, 1, 2]


def test_crossings_are_taken_out_where_they_can_be() -> None:
    # Drawn in the order of numbers, each of these would cross all others.
    links = [Link(0, box) for box in range(1, 9)] + [Link(box, 17 - box) for box in range(1, 9)]
    assert layers_of(17, links).crossings == 0


def test_ports_are_alone_in_the_first_and_the_last_layer() -> None:
    layers = layers_of(4, [Link(2, 0), Link(0, 1), Link(2, 1), Link(1, 3)], first=(2,), last=(3,))
    assert layers.rows[0] == (2,) and layers.rows[-1] == (3,)


def test_a_chain_is_straight() -> None:
    layers = layers_of(6, [*(Link(at, at + 1) for at in range(5)), Link(0, 5)])
    middle = columns(layers, [60.0] * 6, 20, 2)
    assert max(middle[:6]) - min(middle[:6]) < 4


def test_modules_hold_their_nodes_and_modules_of_one_node_are_that_node() -> None:
    tree = BoxTree.of(_program())
    everything = tree.opened_to(tree.deepest)
    assert _names(tree, everything) == ["model", "x", "body", "0", "a", "b", "c", "1", "d", "e", "f", "head", "g"]
    head = next(box for box in tree.boxes if box.name == "head")
    assert head.kind is BoxKind.NODE and head.detail == "nn.softmax"
    body = next(box for box in tree.boxes if box.name == "body")
    assert body.detail == "Sequential" and body.leaves == 6
    assert _names(tree, tree.opened_to(0)) == ["model", "x", "body", "head", "g"]


def test_what_enters_and_leaves_an_open_module_goes_through_ports() -> None:
    tree = BoxTree.of(_program())
    second = next(box for box in tree.boxes if box.name == "1")
    contents = tree.contents(second.number)
    assert len(contents.entries) == 1 and len(contents.exits) == 1
    entry, exit_ = 3, 4
    assert sorted((lane.source, lane.target) for lane in contents.lanes) == [(0, 1), (1, 2), (2, exit_), (entry, 0), (entry, 2)]


def test_a_line_ends_where_the_next_one_begins() -> None:
    tree = BoxTree.of(_program())
    for opened in (tree.opened_to(0), tree.opened_to(1), tree.opened_to(2)):
        found = scene(tree, opened, Measure(lambda box: 60.0, 30, 24, 20, 40, 10))
        _check_scene(found)


def _check_scene(found: Scene) -> None:
    """Boxes of a level do not overlap and lie within theirs; lines without a head go on where another one begins."""
    at = {box.box.number: box for box in found.boxes}
    for box in found.boxes:
        if box.box.parent >= 0:
            around = at[box.box.parent]
            assert around.left - 1e-6 <= box.left and box.left + box.width <= around.left + around.width + 1e-6
            assert around.top <= box.top and box.top + box.height <= around.top + around.height + 1e-6
        for other in found.boxes:
            if other.box.parent == box.box.parent and other.box.number > box.box.number:
                apart = box.left + box.width <= other.left + 1e-6 or other.left + other.width <= box.left + 1e-6
                assert apart or box.top + box.height <= other.top or other.top + other.height <= box.top
    starts = {(round(line.points[0][0], 3), round(line.points[0][1], 3)) for line in found.lines}
    for line in found.lines:
        x, y = line.points[-1]
        assert line.has_head or (round(x, 3), round(y, 3)) in starts
        assert line.points[0][1] <= line.points[1][1] <= line.points[2][1] <= line.points[3][1]


@pytest.mark.parametrize("name", ["cnn.onnx", "control_flow.onnx", "lstm.onnx", "transformer.onnx", "net.pt2", "net.pt"])
def test_samples_are_placed_at_every_depth(name: str) -> None:
    model = open_model(SAMPLES / name)
    tree = BoxTree.of(model.program)
    for depth in range(tree.deepest + 1):
        _check_scene(scene(tree, tree.opened_to(depth), Measure(lambda box: 60.0, 30, 24, 20, 40, 10)))


def test_regions_are_nested() -> None:
    tree = BoxTree.of(open_model(SAMPLES / "control_flow.onnx").program)
    names = {box.name: box for box in tree.boxes}
    assert tree.boxes[names["then_out"].parent].kind is BoxKind.REGION
    assert tree.boxes[names["then_out"].parent].parent == names["chosen"].number
    assert tree.boxes[names["next_state"].parent].detail == "cf.loop"


def _flat(count: int) -> str:
    lines = [f"  %v{at + 1}: f32[2,8] = nn.relu(%v{at})\n" for at in range(count)]
    return f"irscope 1\ngraph @main {{\n  input %v0: f32[2,8]\n{''.join(lines)}  return %v{count}\n}}\n"


def test_many_nodes_without_modules_are_put_into_sections() -> None:
    tree = BoxTree.of(_program(_flat(5000)))
    assert max(len(box.children) for box in tree.boxes) <= MOST_CHILDREN + 2
    shown = [tree.boxes[child].kind for child in tree.boxes[0].children]
    assert shown[0] is BoxKind.INPUT and shown[-1] is BoxKind.OUTPUT and set(shown[1:-1]) == {BoxKind.SECTION}
    assert sum(box.kind is BoxKind.NODE for box in tree.boxes) == 5000
    opened, depth = tree.readable(60)
    assert sum(1 for _ in tree.visible(opened)) <= 61 and depth == 0
    _check_scene(scene(tree, opened, Measure(lambda box: 60.0, 30, 24, 20, 40, 10)))


def test_modules_alike_beside_one_another_are_one_box_until_it_is_opened() -> None:
    lines = [f"  %v{at + 1}: f32[2,8] = nn.relu(%v{at}) @m/layers.{at // 2}\n" for at in range(100)]
    tree = BoxTree.of(_program(f"irscope 1\ngraph @main {{\n  input %v0: f32[2,8]\n{''.join(lines)}  return %v100\n}}\n"))
    box = next(box for box in tree.boxes if box.kind is BoxKind.ALIKE)
    assert (box.name, box.detail, box.leaves, under(box)) == ("layers.0-49", "50 alike", 100, "50 alike, 100 nodes")
    assert box.number not in tree.readable()[0] and max(len(box.children) for box in tree.boxes) <= MOST_CHILDREN
    _check_scene(scene(tree, tree.opened_to(tree.deepest), Measure(lambda box: 60.0, 30, 24, 20, 40, 10)))


@pytest.mark.slow
def test_a_hundred_thousand_nodes_take_seconds() -> None:
    program = _program(_flat(100_000))
    begin = time.process_time()
    tree = BoxTree.of(program)
    scene(tree, tree.readable()[0], Measure(lambda box: 60.0, 30, 24, 20, 40, 10))
    assert time.process_time() - begin < 20


def test_scopes_nested_a_thousand_deep_are_drawn() -> None:
    path = "/".join(f"m{at}" for at in range(1000))
    text = f"""irscope 1
graph @main {{
  input %x: f32[2]
  %a: f32[2] = nn.relu(%x) @{path}
  %b: f32[2] = nn.relu(%a) @{path}
  return %b
}}
"""
    tree = BoxTree.of(_program(text))
    scene(tree, tree.opened_to(tree.deepest), Measure(lambda box: 60.0, 30, 24, 20, 40, 10))
    assert tree.deepest < 100


HOSTILE = """irscope 1
graph @main {
  input %x: f32[2,8]
  %"</title><script>alert(1)</script>": f32[2,8] = nn.relu(%x) @"a\\"]; --> end/<b>"
  %"\\u202eevil\\u0000": f32[2,8] = nn.relu(%"</title><script>alert(1)</script>") @"a\\"]; --> end/<b>"
  return %"\\u202eevil\\u0000"
}
"""


def _drawing(path: Path) -> Drawing:
    return graph_drawing(open_model(path))


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    path = tmp_path / "hostile.irs"
    path.write_text(HOSTILE.encode().decode("unicode_escape") if "\\u202e" not in HOSTILE else HOSTILE, encoding="utf-8")
    return path


def test_names_with_markup_stay_text(hostile: Path) -> None:
    drawing = _drawing(hostile)
    svg = "".join(svg_file(drawing))
    ET.fromstring(svg)
    page = "".join(html_file(drawing))
    assert page.count("<script") == 2 and "alert(1)</script>" not in page
    assert "\u202e" not in page + svg


def test_svg_is_xml_and_tells_names_on_hover() -> None:
    root = ET.fromstring("".join(svg_file(_drawing(SAMPLES / "cnn.onnx"))))
    space = "{http://www.w3.org/2000/svg}"
    boxes = [one for one in root.iter(f"{space}g") if "box" in one.get("class", "").split()]
    assert len(boxes) == 31
    titles = [box.findtext(f"{space}title") or "" for box in boxes]
    assert any("operator: nn.conv, onnx::Conv@11" in title for title in titles)
    assert any("weights: 36.13 KiB" in title for title in titles)


def test_the_page_allows_its_own_script_and_nothing_else() -> None:
    page = "".join(html_file(_drawing(SAMPLES / "cnn.onnx")))
    assert "default-src 'none'" in page and "script-src 'sha256-" in page
    assert not re.search(r"""(src|href)=["']?https?:|@import|url\((?!#)""", page.replace(graph_script(), ""))
    data = json.loads(html.unescape(page.split('<script type="application/json">')[1].split("</script>")[0]))
    assert len(data["boxes"]) == 31 and set(data["opened"]) == {0, 2, 6, 12, 19, 26}


def test_a_page_of_very_many_nodes_stays_small(tmp_path: Path) -> None:
    drawing = Drawing(BoxTree.of(_program(_flat(40_000))), Paint(lambda box: "#ffffff"))
    page = "".join(html_file(drawing))
    assert len(page) < 8_000_000 and "the deepest levels do not unfold here" in page


def _shown(page: Path) -> str:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000", "--dump-dom"]
    return subprocess.run([str(CHROMIUM), *flags, page.as_uri()], capture_output=True, text=True, timeout=120, check=True).stdout


def _coordinates(page: str) -> tuple[list[str], list[tuple[str, ...]]]:
    scene_ = page[page.index('class="scene"') :]
    scene_ = scene_[: scene_.index("</svg>")]
    sides = r'<rect(?: class="[a-z]*")? x="([^"]*)" y="([^"]*)" width="([^"]*)" height="([^"]*)"'
    return re.findall(r'<path class="edge[^"]*" d="([^"]*)"', scene_), re.findall(sides, scene_)


@browser
@pytest.mark.parametrize("name", ["cnn.onnx", "transformer.onnx", "control_flow.onnx"])
def test_the_script_places_boxes_where_python_does(tmp_path: Path, name: str) -> None:
    page = tmp_path / "graph.html"
    page.write_text("".join(html_file(_drawing(SAMPLES / name))), encoding="utf-8")
    shown = _shown(page)
    assert 'class="irscope-graph live"' in shown
    assert _coordinates(shown) == _coordinates(page.read_text(encoding="utf-8"))


@browser
def test_modules_unfold_where_they_are_clicked_and_tell_what_they_are(tmp_path: Path) -> None:
    drawing = graph_drawing(open_model(SAMPLES / "cnn.onnx"), View(depth=0))
    click = """<script>
      const item = () => [...document.querySelectorAll('.box.module')].find(one => one.getAttribute('aria-label').startsWith('layer1'));
      const count = () => document.querySelectorAll('.scene .box').length;
      const found = [count()];
      item().dispatchEvent(new MouseEvent('click', {bubbles: true}));
      found.push(count(), document.querySelector('.graph-facts').textContent);
      item().dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}));
      found.push(count());
      document.querySelector('[data-act=unfold]').click();
      found.push(count());
      document.querySelector('[data-act=fold]').click();
      found.push(count());
      document.title = JSON.stringify(found);
    </script>"""
    page = "".join(
        [
            "<!DOCTYPE html><html><head><meta charset='utf-8'></head><body>",
            *graph_part(drawing, "graph"),
            f"<script>{graph_script()}</script>{click}</body></html>",
        ]
    )
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    shown = _shown(tmp_path / "page.html")
    folded, one_open, facts, again, everything, back = json.loads(html.unescape(re.findall("<title>(.*?)</title>", shown)[0]))
    assert (folded, one_open, again, everything, back) == (9, 15, 9, 31, 9)
    assert "nodes6" in facts and "modulelayer1" in facts


@pytest.mark.parametrize("kind", ["svg", "html"])
def test_the_name_of_the_file_says_what_is_drawn(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / f"graph.{kind}"
    assert main(["export", str(SAMPLES / "cnn.onnx"), "-o", str(target), "--depth", "0"]) == 0
    said = capsys.readouterr().err
    assert "modules are folded from depth 0 on: 8 of 30 boxes are drawn; --depth 1 shows one level more" in said
    assert "layer1" in target.read_text(encoding="utf-8")


def test_around_a_node_only_what_is_near_is_drawn() -> None:
    model = open_model(SAMPLES / "cnn.onnx")
    drawing = graph_drawing(model, View(around="/layer1/Add", hops=1))
    names = {box.name for box in drawing.tree.boxes if box.kind is BoxKind.NODE}
    assert names == {"/layer1/Add", "conv2", "downsample", "/layer1/out"}
    assert drawing.notes == ("4 of 23 nodes: those within 1 hop of /layer1/Add",)
    assert len(graph_drawing(model, View(around="layer1", hops=0)).tree.boxes) == 8


def test_an_unknown_node_and_a_file_of_weights_are_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(SAMPLES / "cnn.onnx"), "-o", str(tmp_path / "a.svg"), "--around", "layer1/Ad"]) == 2
    said = capsys.readouterr().err
    assert "IRS367" in said and "/layer1/Add" in said and said.count("\n") == 1
    assert not (tmp_path / "a.svg").exists()


@pytest.mark.parametrize("colour", ["class", "flops", "bytes", "memory", "parameters"])
def test_every_colouring_has_a_legend(colour: str) -> None:
    text, _ = picture(open_model(SAMPLES / "cnn.onnx"), "svg", View(colour=colour))
    drawn = "".join(text)
    assert "products, convolutions" in drawn if colour == "class" else "25%" in drawn and "share of the model" in drawn


def test_the_picture_of_the_documentation_is_what_is_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    page, shown = Path("docs/export.md").read_text(encoding="utf-8"), ROOT / "docs" / "images" / "graph.svg"
    command = "irscope export samples/models/cnn.onnx -o graph.svg --around layer1 --hops 2 --colour flops"
    assert f"    {command}\n" in page
    _, *arguments = command.split()
    drawn = tmp_path / arguments[3]
    assert main([*arguments[:3], str(drawn), *arguments[4:]]) == 0
    if os.environ.get("IRSCOPE_UPDATE_DOCS"):
        shown.write_text(drawn.read_text())
    assert drawn.read_text() == shown.read_text()
