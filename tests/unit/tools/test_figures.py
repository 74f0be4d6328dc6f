"""A number of the answer is declared once: what is added to the card and to the record of figures is a typed number everywhere."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from irscope.report.figures import FIGURES
from irscope.report.values import Quantity
from irscope.session import open_model
from irscope.tools.card import make_card
from irscope.tools.config import chosen_device

ROOT = Path(__file__).parents[3]
ADDED = """
import contextlib, io, json, os, sys
from pathlib import Path
from irscope.report import figures
from irscope.report.card import Card
from irscope.report.units import Kind
from irscope.report.values import Quantity

figures.FIGURES["bits_each"] = figures.Figure("bits_each", Kind.NUMBER, compared="bits_each")
figures.FIELD_KINDS["bits_each"] = Kind.NUMBER
own = Card.quantities
Card.quantities = lambda card: {**own(card), "bits_each": Quantity(16.5)}

from irscope.cli.main import main
from irscope.tools.audit.dataset import Dataset
from irscope.tools.audit.sources import Item, Local
from irscope.tools.audit.worker import Setup, analyse
from irscope.tools.config import chosen_device

def said(*line):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main([*line])
    return out.getvalue()

first, second, folder = sys.argv[1:]
Path(folder, "irscope.toml").write_text(f'budgets = ["bits_each < 8"]\\n[[models]]\\nmodel = "{first}"\\nbind = {{ batch = 8 }}\\n')
said("audit", second, "-o", str(Path(folder, "audit")))
dataset = Dataset(Path(folder, "audit"), writable=True)
item = Item(Local(first))
found = analyse(item, Setup(), (chosen_device(),))
found.model["uri"] = item.uri
dataset.add([(item, "key", found)])
dataset.flush()
print(json.dumps({
    "card": json.loads(said("run", "--format", "json", first)),
    "table": said("run", first, second, "--format", "csv"),
    "check": said("check", str(Path(folder, "irscope.toml")), "--format", "json"),
    "compare": json.loads(said("compare", first, second, "--format", "json")),
    "type": str(Dataset(Path(folder, "audit")).read().schema.field("bits_each").type),
    "asked": said("audit", "ask", str(Path(folder, "audit")), "--where", "bits_each > 8", "--format", "csv"),
    "none": said("audit", "ask", str(Path(folder, "audit")), "--where", "bits_each > 17", "--format", "csv"),
}))
"""


@pytest.mark.slow
def test_a_number_that_is_added_is_a_number_everywhere(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    models = [str(ROOT / f"samples/models/{name}.onnx") for name in ("cnn", "transformer")]
    done = subprocess.run([sys.executable, "-c", ADDED, *models, str(tmp_path)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["card"]["card"]["fields"]["bits_each"] == 16.5
    names, *rows = csv.reader(line for line in found["table"].splitlines() if not line.startswith("#"))
    assert {row[names.index("bits_each")] for row in rows} == {"16.5"}
    assert found["compare"]["reports"][0]["summary"]["decides"]["bits_each"] == {"a": 16.5, "b": 16.5, "difference": 0.0, "change": 0.0}
    assert "16.5" in found["check"] and "bits_each" in found["check"]
    assert found["type"] == "double"
    assert "cnn.onnx" in found["asked"] and "cnn.onnx" not in found["none"]


def test_every_number_of_a_card_is_a_figure() -> None:
    card = make_card(open_model(ROOT / "samples/models/cnn.onnx"), chosen_device())
    numbers = {key for key, value in card.fields().items() if isinstance(value, int | float | Quantity)}
    assert numbers <= FIGURES.keys()
