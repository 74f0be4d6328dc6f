"""Compares FLOPs with references: models and operators that are kept as text in tests/data/flops, or exported anew."""

from __future__ import annotations

import gzip
import json
import math
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any

from irscope.ir.graph import paused_gc
from irscope.ir.places import FileRegion
from irscope.ir.printer import print_program
from irscope.report.values import Quantity
from irscope.session import Model, open_model

DATA = Path(__file__).parents[2] / "data" / "flops"
FORMS = ("concrete", "traced", "onnx")
TOLERANCE = 0.001


@dataclass(frozen=True)
class Figure:
    """What irscope counts for one model in one form, against the reference."""

    name: str
    form: str
    counted: int | str | None
    macs: int | str | None
    reference: int
    """FLOPs of matrix products and convolutions."""
    milliseconds: float
    unknown: tuple[str, ...]

    @property
    def error(self) -> float:
        """Relative, infinite where nothing was counted that should have been."""
        if not isinstance(self.counted, int):
            return math.inf
        if self.reference == 0:
            return 0.0 if self.counted == 0 else math.inf
        return self.counted / self.reference - 1

    @property
    def good(self) -> bool:
        same = isinstance(self.macs, int) and abs(2 * self.macs - self.reference) <= max(1, TOLERANCE * self.reference)
        return abs(self.error) <= TOLERANCE and same and not self.unknown

    def line(self) -> str:
        verdict = "ok" if self.good else "WRONG"
        unknown = f"  unknown: {', '.join(self.unknown)}" if self.unknown else ""
        return (
            f"{self.name:40} {self.form:9} {self.counted!s:>14} {self.reference:>14} {self.error:+10.4%} "
            f"{self.milliseconds:6.1f} ms  {verdict}{unknown}"
        )


def measured(name: str, form: str, path: Path, reference: int) -> Figure:
    """Count a model in a file."""
    model = open_model(path)
    # Models that were looked at before are garbage that must not be collected on this one's time.
    with paused_gc():
        started = process_time()
        report = model.run("flops")["flops"].report()
        spent = (process_time() - started) * 1000
    by_class = report.summary["by_class"]
    assert isinstance(by_class, dict) and report.coverage is not None
    return Figure(name, form, _plain(by_class["matmul"]), _plain(report.summary["macs"]), reference, spent, report.coverage.unknown)


def _plain(cell: Any) -> Any:
    return cell.shown if isinstance(cell, Quantity) else cell


@cache
def references() -> dict[str, Any]:
    """Reference numbers by model, with where each comes from."""
    found: dict[str, Any] = json.loads((DATA / "reference.json").read_text(encoding="utf-8"))
    return found


@cache
def kept(collection: str) -> dict[str, dict[str, str]]:
    """Texts of kept programs by name and form."""
    with gzip.open(DATA / f"{collection}.json.gz", "rt", encoding="utf-8") as file:
        found: dict[str, dict[str, str]] = json.load(file)
    return found


def keep(collection: str, texts: dict[str, dict[str, str]]) -> None:
    """Write programs to the folder of data, the same bytes for the same programs."""
    text = json.dumps(texts, indent=0, sort_keys=True, ensure_ascii=False)
    (DATA / f"{collection}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def text_of(model: Model) -> str:
    """A program as it is kept: without its source places, and without where its weights are."""
    for graph in [model.graph, *model.program.functions.values()]:
        for body in graph.graphs():
            body.data = {value: data for value, data in body.data.items() if not isinstance(data, FileRegion)}
    return print_program(model.program, locations=False)


def from_text(name: str, form: str, text: str, reference: int) -> Figure:
    """Count a kept program."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.irs"
        path.write_text(text, encoding="utf-8")
        return measured(name, form, path, reference)
