"""The page in a real browser, at the width of a desk and of a phone: what it shows, and how it answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import irscope
from irscope.report import Column, Document, Kind, Mark, ModelInfo, Quantity, Report, Series, Table
from irscope.report.picture import bars
from irscope.report.renderers import write_document
from irscope.report.table import Limit
from tests.tools.browser import Browser, browser, find_browser
from tests.unit.report import examples

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no browser is installed")
WIDTHS = (1400, 400)
EVIL = '<img src=x onerror="document.title=1"></script><script>document.title=2</script>'


@pytest.fixture(scope="module")
def page() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "report.html"
    write_document(document(), "html", str(path))
    return path


def document() -> Document:
    rows: list[tuple[object, ...]] = [(f"node{at}", "nn.relu" if at % 3 else "nn.conv", at * at * 1000, 1) for at in range(300)]
    rows += [(EVIL, "math.add", None, 1), ("open", "math.add", Quantity(None, formula="4*batch"), 1)]
    nodes = Table.of(rows, ["node", "operator:text", "flops", "runs:count"], "nodes")
    modules = [("(model)", 0, 100), ("stem", 1, 5), ("layer", 1, 95), ("  conv1", 2, 60), ("  conv2", 2, 35), ("    deep", 3, 35)]
    modules += [(f"block{at}", 1, 1) for at in range(30)]
    tree = replace(Table.of(modules, ["module:text", "depth:index", "size:bytes"], "modules"), depth="depth")
    steps = 40
    data = {"step": list(range(steps)), "kept": [1024] * steps, "made": [1024 * (at % 10) for at in range(steps)]}
    timeline = Series(
        "memory",
        Column("step", Kind.COUNT),
        (Column("kept", Kind.BYTES), Column("made", Kind.BYTES)),
        data,
        (Mark(9, "peak"),),
        limits=(Limit(12_000, "memory of a card"), Limit(10**12, "memory of a large card")),
        names=[f"node{at}" for at in range(steps)],
        parts=lambda place, top: Table.of([(EVIL, place), ("weights", 1024)], ["tensor:value", "size:bytes"], "alive"),
    )
    info = ModelInfo(f"model {EVIL}.onnx", "onnx", nodes=300, parameters=10, parameter_bytes=40)
    reports = (
        Report("flops", summary={"total_flops": 10**9}, tables=(nodes, tree)),
        Report("liveness", series=(timeline,)),
        Report("all", tables=(examples.everything(),)),
    )
    return Document("1", info, reports)


def texts(page: Browser, selector: str) -> Any:
    return page.value(f"[...document.querySelectorAll({selector!r})].map(e => e.textContent)")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_the_window_and_has_no_trouble(page: Browser, written: Path, width: int, dark: bool) -> None:
    page.open(written, width, dark=dark)
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
    assert page.value("document.title").startswith("model <img")
    assert page.troubles() == []
    assert page.value("document.images.length") == 0
    assert page.value("document.querySelector('nav details').open") is (width > 600)


@pytest.mark.parametrize("dark", [False, True])
def test_texts_and_curves_stand_out(page: Browser, written: Path, dark: bool) -> None:
    """WCAG 2.2: text 4.5 to 1, pictures 3 to 1."""
    page.open(written, dark=dark)
    script = """(() => {
      const style = getComputedStyle(document.documentElement);
      const channel = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
      const light = name => { const n = parseInt(style.getPropertyValue(name).trim().slice(1), 16);
        return .2126 * channel(n >> 16) + .7152 * channel(n >> 8 & 255) + .0722 * channel(n & 255); };
      const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
      return {text: Math.min(...["--ink", "--quiet", "--accent", "--warn"].flatMap(n => [ratio(n, "--paper"), ratio(n, "--tint")])),
        bar: ratio("--ink", "--bar"), curves: Math.min(...[...Array(10).keys()].map(n => ratio("--c" + n, "--paper")))};
    })()"""
    found = page.value(script)
    assert found["text"] >= 4.5 and found["bar"] >= 4.5 and found["curves"] >= 3


def test_a_table_sorts_by_raw_value_and_keeps_what_is_unknown_last(page: Browser, written: Path) -> None:
    page.open(written)
    cells = ".table:not(.tree) tbody tr td:first-child"
    assert texts(page, cells)[:2] == ["node0", "node1"] and len(texts(page, "#s1 .table:not(.tree) tbody tr")) == 15
    page.point("#s1 .table thead th:nth-child(3) button", click=True)
    assert texts(page, f"#s1 {cells}")[:2] == ["node299", "node298"]
    assert page.value("document.querySelector('#s1 th:nth-child(3)').ariaSort") == "descending"
    page.point("#s1 .table thead th:nth-child(3) button", click=True)
    assert texts(page, f"#s1 {cells}")[:2] == ["node0", "node1"]
    for _ in range(3):
        page.value("document.querySelector('#s1 .table').querySelectorAll(':scope > button')[0].click()")
    shown = texts(page, f"#s1 {cells}")
    assert len(shown) == 302 and shown[-2:] == [EVIL, "open"]


def test_a_table_filters_all_its_rows(page: Browser, written: Path) -> None:
    page.open(written, 400)
    page.value("document.querySelector('#s1 input').focus()")
    page.type("NODE29")
    assert texts(page, "#s1 .table:not(.tree) tbody td:first-child") == ["node29", *(f"node29{at}" for at in range(10))]
    assert texts(page, "#s1 .tools [role=status]")[0] == "11 of 302 rows"
    assert page.value("document.querySelector('#s1 input').getAttribute('aria-label')") == "filter nodes"


def test_a_tree_opens_and_closes(page: Browser, written: Path) -> None:
    page.open(written)
    first = "#s1 .tree tbody td:first-child"

    def names() -> list[str]:
        return [text.strip("▸▾ ") for text in texts(page, first)]

    assert "(model)" in names() and "conv1" not in names()
    page.value("[...document.querySelectorAll('#s1 .tree td button')].find(e => e.ariaLabel.startsWith('layer')).click()")
    assert names()[:5] == ["(model)", "stem", "layer", "conv1", "conv2"]
    page.value("[...document.querySelectorAll('#s1 .tree .tools button')].find(e => e.textContent == 'open all').click()")
    assert names()[4:6] == ["conv2", "deep"]
    page.value("document.querySelector('#s1 .tree th:nth-child(2) button').click()")
    assert names()[:5] == ["(model)", "layer", "conv1", "conv2", "deep"]
    page.value("(e => { e.value = 'deep'; e.dispatchEvent(new Event('input')) })(document.querySelector('#s1 .tree input'))")
    assert names() == ["(model)", "layer", "conv2", "deep"]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_chart_says_what_is_under_the_pointer_and_at_the_keys(page: Browser, written: Path, width: int) -> None:
    page.open(written, width)
    assert texts(page, "#s2 .reading") == ["step 9, node9: 10.00 KiB"]
    assert texts(page, "#s2 .parts tbody td") == [EVIL, "9 B", "weights", "1.00 KiB"]
    page.point("#s2 .field", x=0.99)
    assert texts(page, "#s2 .reading") == ["step 39, node39: 10.00 KiB"]
    page.point("#s2 .field", x=0.0)
    assert texts(page, "#s2 output") == ["1.00 KiB", "0 B"]
    page.value("document.querySelector('#s2 .plot').focus()")
    for key in ("ArrowRight", "ArrowRight", "PageUp"):
        page.press(key)
    assert texts(page, "#s2 .reading") == ["step 6, node6: 7.00 KiB"]
    assert texts(page, "#s2 .parts tbody td")[:2] == [EVIL, "6 B"]
    assert page.value("document.querySelector('#s2 .plot').ariaValueText") == "step 6, node6: 7.00 KiB"
    page.press("End")
    assert texts(page, "#s2 .reading") == ["step 39, node39: 10.00 KiB"]
    assert texts(page, "#s2 .limit-name") == ["memory of a card: 11.72 KiB"]
    assert "memory of a large card: 931.32 GiB, far above what is drawn" in texts(page, "#s2 p.quiet")


def test_a_print_has_the_whole_tree_and_fits_the_paper(page: Browser, written: Path, tmp_path: Path) -> None:
    page.open(written)
    page.print(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    assert any("deep" in text for text in texts(page, "#s1 .tree td:first-child"))
    page.call("Emulation.setDeviceMetricsOverride", width=720, height=1000, deviceScaleFactor=1, mobile=False)
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
    page.call("Emulation.setEmulatedMedia", media="")


def test_ten_thousand_nodes_open_at_once(page: Browser, tmp_path: Path) -> None:
    nodes = 10_000
    rows = [(f"model.layers.{at}.mlp.down_proj", "math.gemm", at, 4 * at, at % 7) for at in range(nodes)]
    table = Table.of(rows, ["node", "operator:text", "flops", "size:bytes", "n:count"], "nodes")
    data = {"step": list(range(nodes)), "made": [1 + at % 1000 for at in range(nodes)]}
    series = Series("memory", Column("step", Kind.COUNT), (Column("made", Kind.BYTES),), data, names=[row[0] for row in rows])
    path = tmp_path / "large.html"
    write_document(examples.document(*(Report(f"p{at}", tables=(table,), series=(series,)) for at in range(6))), "html", str(path))
    assert path.stat().st_size < 5_000_000
    page.open(path, 400)
    assert page.value("document.querySelectorAll('*').length") < 10_000
    assert page.value("performance.getEntriesByType('navigation')[0].domComplete") < 20_000
    assert page.troubles() == []


@pytest.mark.parametrize("width", WIDTHS)
def test_the_card_stands_on_top(page: Browser, tmp_path: Path, width: int) -> None:
    model = irscope.load(Path(__file__).parents[3] / "samples" / "mlp.irs", bind={"batch": 8})
    card = irscope.card(model, device="l4")
    path = tmp_path / "card.html"
    write_document(replace(model.document(model.run("modules,liveness")), card=card), "html", str(path))
    page.open(path, width)
    assert page.troubles() == [] and page.value("document.documentElement.scrollWidth <= innerWidth")
    assert "fits" in texts(page, "#card .verdict")[0] and "NVIDIA L4" in texts(page, "#card .verdict")[0]
    tiles = dict(zip(texts(page, "#card .tiles span"), texts(page, "#card .tiles strong"), strict=True))
    assert tiles["parameters"] == "33,088" and tiles["FLOPs"] == "529.41 KFLOPs"
    # What memory is the sum of stands as a bar: each part as long as its share, the whole as wide as the page.
    assert page.value("[...document.querySelectorAll('.sum i')].reduce((sum, e) => sum + parseFloat(e.style.width), 0)") == pytest.approx(
        100, 0.1
    )
    assert [text for text in texts(page, "#card code") if text.startswith("irscope")]
    assert page.value("document.querySelector('#card').compareDocumentPosition(document.querySelector('#s1')) & 4")


@pytest.mark.parametrize("width", WIDTHS)
def test_bars_are_as_long_as_what_they_show(page: Browser, tmp_path: Path, width: int) -> None:
    panel = bars("t", ["a", "b", "c"], [(Column("flops", Kind.FLOPS), [100, 90, 25])])
    path = tmp_path / "bars.html"
    write_document(examples.document(Report("p", pictures=lambda: [panel])), "html", str(path))
    page.open(path, width)
    long, middle, short = page.value("[...document.querySelectorAll('.bars i')].map(e => e.getBoundingClientRect().width)")
    assert middle / long == pytest.approx(0.9, abs=0.01) and short / long == pytest.approx(0.25, abs=0.01)
    assert texts(page, ".bars span") == ["100 FLOPs", "90 FLOPs", "25 FLOPs"]
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
