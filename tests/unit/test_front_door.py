"""What scripts and notebooks use: passes in every form, results as rows, tables and pages, names of the moment, formats of packages."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest

import irscope
from irscope.api import Analysis, Model
from irscope.cli.main import main
from irscope.ir import Graph
from irscope.passes.cost.flops import Flops
from irscope.passkit import PassContext, default_registry
from irscope.report import Column, Document, Kind, Provenance, Quantity, RenderOptions, Report, Series, Table
from irscope.report.renderers import renderer

TAGGER = Path(__file__).parents[2] / "samples" / "tagger.irs"


@pytest.fixture
def model() -> Model:
    return irscope.load(TAGGER, bind={"batch": 2})


@pytest.mark.parametrize("package", ["ir", "passkit", "report", "memory", "ops"])
def test_each_facade_says_what_it_is_and_offers_what_it_names(package: str) -> None:
    facade = importlib.import_module(f"irscope.{package}")
    assert facade.__doc__ and len(facade.__doc__.splitlines()) > 1
    assert all(hasattr(facade, name) for name in facade.__all__)


@pytest.mark.parametrize("passes", ["flops", Flops, Flops(), [Flops], ["flops"], (Flops(),)])
def test_passes_come_as_text_classes_or_instances(model: Model, passes: Any) -> None:
    assert irscope.run(model, passes)["flops"].value == irscope.run(model, "flops")["flops"].value


def test_several_forms_make_one_run(model: Model) -> None:
    assert list(irscope.run(model, ["shapes,params", Flops])) == ["shapes", "params", "flops"]


@pytest.mark.parametrize("wrong", [3, [3], int, [str], None])
def test_what_is_no_pass_is_refused_by_name(model: Model, wrong: Any) -> None:
    with pytest.raises(irscope.IrscopeError):
        irscope.run(model, wrong)


def test_a_run_for_a_device_leaves_the_model_as_it_was(model: Model) -> None:
    before = model.manager.settings
    there = irscope.run(model, "roofline", device="l4")
    assert model.manager.settings == before
    here = irscope.run(model, "roofline")
    assert there["roofline"].report().summary != here["roofline"].report().summary
    said = [assumption.what for assumption in model.document(there).model.assumed]
    assert "device" not in said, "the device was named in that run"
    assert "device" in [assumption.what for assumption in model.document(here).model.assumed]
    unbound = irscope.load(TAGGER)
    irscope.fit(unbound, "1GiB", device="l4")
    assert unbound.manager.settings == before


def test_a_failing_run_leaves_the_model_as_it_was(model: Model) -> None:
    before = model.manager.settings
    with pytest.raises(irscope.IrscopeError):
        irscope.run(model, "no-such-pass", device="l4")
    assert model.manager.settings == before


def test_a_pass_is_named_from_when_it_is_registered(model: Model) -> None:
    @irscope.analysis("front-door-convs")
    def convs(graph: Graph, ctx: PassContext) -> int:
        """Count convolutions."""
        return sum(node.op == "nn.conv" for node in graph.walk())

    @irscope.register
    @dataclass(frozen=True)
    class Nodes(Analysis[int]):
        """Count nodes."""

        name: ClassVar[str] = "front-door-nodes"

        def compute(self, graph: Graph, ctx: PassContext) -> int:
            return sum(1 for _ in graph.walk())

    results = irscope.run(model, "front-door-convs,front-door-nodes")
    assert results["front-door-convs"].value < results["front-door-nodes"].value
    assert {"front-door-convs", "front-door-nodes"} <= set(default_registry().names())


def test_names_of_irscope_stay_its_own(model: Model) -> None:
    class Impostor(Flops):
        """Not the pass of that name."""

    with pytest.raises(irscope.IrscopeError, match="irscope's own"):
        irscope.register(Impostor)
    irscope.analysis("flops")(lambda graph, ctx: 0)
    assert isinstance(irscope.run(model, "flops")["flops"].subject, Flops)
    with pytest.raises(irscope.IrscopeError, match="not a pass"):
        irscope.register(int)  # type: ignore[type-var]


def test_tables_come_by_title_and_as_rows(model: Model) -> None:
    results = irscope.run(model, "liveness,params")
    rows = results["liveness"].table("alive at the peak").to_dicts()
    summary = results["liveness"].report().to_json()["summary"]
    timeline = results["liveness"].value
    assert timeline.device_peak_bytes.value == summary["device_peak_bytes"]
    assert timeline.activation_peak_bytes == summary["activation_peak_bytes"]
    assert rows and {"tensor", "size", "born"} <= set(rows[0])
    assert all(isinstance(row["size"], int) for row in rows)
    assert results["params"].table().title == results["params"].table("PARAMETERS").title == "parameters"
    with pytest.raises(irscope.IrscopeError, match="no table 'nothing'") as caught:
        results["params"].table("nothing")
    assert "'parameters'" in str(caught.value.hint)
    with pytest.raises(KeyError, match="liveness, params"):
        results["flops"]


def test_rows_have_bare_numbers_and_none_for_what_is_unknown() -> None:
    columns = [Column("node"), Column("size", Kind.BYTES)]
    table = Table.of([("a", Quantity(3, Provenance.MODELLED)), ("b", None), ("c", Quantity(None, formula="4*n"))], columns)
    assert table.to_dicts() == [{"node": "a", "size": 3}, {"node": "b", "size": None}, {"node": "c", "size": "4*n"}]


def test_a_table_becomes_a_data_frame_where_pandas_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class DataFrame:
        def __init__(self, columns: dict[str, list[object]]) -> None:
            self.columns = columns

    table = Table.of([("a", 3), ("b", None)], ["node", "size:bytes"], title="t")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(irscope.IrscopeError, match="pandas is not installed"):
        table.to_pandas()
    monkeypatch.setitem(sys.modules, "pandas", type("pandas", (), {"DataFrame": DataFrame}))
    assert table.to_pandas().columns == {"node": ["a", "b"], "size": [3, None]}  # type: ignore[comparison-overlap]
    assert Report("p", tables=(table,)).to_pandas("t").columns == table.to_pandas().columns
    series = Series("s", Column("x"), (Column("y"),), {"x": [1], "y": [2]})
    assert series.to_pandas().columns == {"x": [1], "y": [2]}  # type: ignore[comparison-overlap]


def test_what_a_prompt_shows_is_one_line_each(model: Model) -> None:
    results = irscope.run(model, "params,liveness")
    assert repr(model).startswith("<Model ") and "tagger.irs" in repr(model)
    assert [line.split(":")[0] for line in repr(results).splitlines()] == ["<Report params", "<Report liveness"]
    assert "tables 'parameters'" in repr(results["params"]) and "KiB" in repr(results["params"])
    assert repr(results["params"].table()).startswith("<Table 'parameters': ")
    assert "parameters\n" in str(results["params"]) and str(results["params"].table()).startswith("parameters\n")


def test_what_a_notebook_shows_is_a_part_of_a_page(model: Model) -> None:
    results = irscope.run(model, "params")
    card = irscope.card(model)
    document = model.document(results)
    for part in (results, results["params"], results["params"].report(), results["params"].table(), card, model, document):
        page = part._repr_html_()  # type: ignore[attr-defined]
        assert page.startswith('<div class="irscope">') and page.rstrip().endswith("</div>")
        assert "<html" not in page and "<script" not in page and "parameters" in page
    hostile = Table.of([("<script>alert(1)</script>",)], ["node"], title="<b>")
    assert "<script" not in hostile._repr_html_() and "<b>" not in hostile._repr_html_()
    evil = replace(card, identity=replace(card.identity, path="<script>alert(1)</script>\u202e"))
    assert "<script" not in evil._repr_html_() and "\u202e" not in evil._repr_html_()
    assert len(card._repr_html_()) < 20_000


def test_a_fit_shows_itself_in_a_notebook() -> None:
    found = irscope.fit(irscope.load(TAGGER.with_name("mlp.irs")), memory="1GiB")
    assert "is the largest that fits" in found._repr_html_()


def markdown(document: Document, options: RenderOptions) -> Iterator[str]:
    """A renderer as a package would offer it."""
    for report in document.reports:
        yield f"# {report.pass_name}\n"


def offer(monkeypatch: pytest.MonkeyPatch, **targets: str) -> None:
    points = [EntryPoint(name, target, "irscope.renderers") for name, target in targets.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: [point for point in points if point.group == group])


def test_a_package_adds_a_format(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    offer(monkeypatch, markdown=f"{__name__}:markdown", broken="no_such_package:render", odd=f"{__name__}:TAGGER")
    assert main(["run", "--passes", "params,stats", "--format", "markdown", str(TAGGER)]) == 0
    assert capsys.readouterr().out == "# params\n# stats\n"
    with pytest.raises(irscope.IrscopeError, match="cannot be imported: ModuleNotFoundError") as caught:
        renderer("broken")
    assert caught.value.code == "IRS101"
    with pytest.raises(irscope.IrscopeError, match="is not a function but"):
        renderer("odd")
    with pytest.raises(irscope.IrscopeError, match="no such output format"):
        renderer("yaml")


def test_a_format_that_nobody_offers_is_answered_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--format", "yaml", str(TAGGER)]) == 2
    assert "invalid choice: 'yaml' (choose from text, json, csv, html, md, md-issue, layers-json)" in capsys.readouterr().err


def test_a_name_claimed_twice_is_an_error_that_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, json=f"{__name__}:markdown")
    with pytest.raises(irscope.IrscopeError, match="comes from both irscope and"):
        renderer("yaml")


def test_importing_irscope_stays_cheap() -> None:
    script = "import sys, irscope; print(sorted(name for name in sys.modules if name.startswith('irscope')))"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "['irscope', 'irscope._version', 'irscope.lazy']"


def test_a_report_of_ones_own_prints_itself() -> None:
    report = Report("mine", summary={"peak_bytes": 2048}, tables=(Table("empty", (), {}),))
    assert repr(report) == "<Report mine: peak_bytes 2.00 KiB; tables 'empty'>"
    assert "2.00 KiB" in str(report)
