"""`--format html` and `md` without passes: the whole of a model on one page, whatever is known of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from irscope.cli.main import main

SAMPLES = Path(__file__).parents[2] / "samples"
SECTIONS = ["Modules", "Memory over the run", "What would lower the peak", "Arithmetic", "Least time", "Energy", "Advice", "Parameters"]


def page_of(model: Path, folder: Path, *options: str, code: int = 0) -> str:
    path = folder / "page.html"
    assert main(["run", "--format", "html", "-o", str(path), *options, str(model)]) == code
    return path.read_text(encoding="utf-8")


def test_a_page_has_card_sections_and_graph(tmp_path: Path) -> None:
    page = page_of(SAMPLES / "mlp.irs", tmp_path, "--device", "l4")
    heads = [re.sub(r"\s*<code>.*?</code>", "", head) for head in re.findall(r"<h2>(.*?)</h2>", page)]
    assert heads == ["In short", *SECTIONS, "Shapes", "Graph"]
    # An open size is the one of the card, so that everything is a number, and the page says so.
    assert "bind batch=1" in page and "528 FLOPs" not in page and "batch=1 (assumed)" in page
    assert '<section id="card">' in page and 'class="irscope-graph"' in page


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 5)])
def test_what_is_not_known_is_said_in_its_section(tmp_path: Path, options: tuple[str, ...], code: int) -> None:
    model = tmp_path / "open.irs"
    model.write_text(
        "irscope 1\ngraph @main {\n  input %x: f32[8,64]\n  %n: ?[*] = index.nonzero(%x)\n  %y: ?[*] = acme.thing(%n)\n  return %y\n}\n"
    )
    page = page_of(model, tmp_path, *options, code=code)
    assert "not computed: " in page and "acme.thing" in page
    assert [head for head in SECTIONS if f"<h2>{head}" not in page] == []


def test_a_name_with_markup_is_text(tmp_path: Path) -> None:
    name = '<img src=x onerror="alert(1)"> \u202e|`x`.irs'
    model = tmp_path / name
    model.write_text((SAMPLES / "mlp.irs").read_text(encoding="utf-8"), encoding="utf-8")
    page = page_of(model, tmp_path)
    assert "<img" not in page and "\u202e" not in page and "&lt;img src=x onerror=&quot;alert(1)&quot;&gt; \\u202e" in page


def test_rows_and_pictures_belong_to_a_page(tmp_path: Path) -> None:
    picture = tmp_path / "x.svg"
    page = page_of(SAMPLES / "mlp.irs", tmp_path, "--rows", "1", "--plot", str(picture))
    assert "3 more rows; --rows 0 shows all" in page and '<section id="card">' in page and "memory" in picture.read_text(encoding="utf-8")


def test_a_table_of_several_models_is_a_page_and_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = [str(SAMPLES / name) for name in ("mlp.irs", "pyramid.irs")]
    assert main(["run", "--format", "md", *models]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0].rpartition("/")[2] for line in lines if ".irs" in line] == ["mlp.irs", "pyramid.irs"]
    assert main(["run", "--format", "html", "-o", str(tmp_path / "many.html"), *models]) == 0
    assert "pyramid.irs" in (tmp_path / "many.html").read_text(encoding="utf-8")


def test_what_a_page_was_made_with_stands_in_its_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The numbers of a page are those of the data: the raw value of the peak stands beside what is shown."""
    assert main(["run", "--format", "json", "--passes", "liveness", "--bind", "batch=1", "--device", "l4", str(SAMPLES / "mlp.irs")]) == 0
    summary = json.loads(capsys.readouterr().out)["reports"][0]["summary"]
    page = page_of(SAMPLES / "mlp.irs", tmp_path, "--device", "l4")
    (peak,) = {int(found) for found in re.findall(r'<dt title="tensor_peak_bytes">[^<]*</dt><dd data-value="(\d+)"', page)}
    assert peak == summary["tensor_peak_bytes"]
