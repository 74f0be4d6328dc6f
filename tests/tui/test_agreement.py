"""Screens tell the numbers of the card and of JSON: one by one, over samples and the models of the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from irscope.cli.main import main
from irscope.report.units import Kind, humanise
from irscope.session import open_model
from irscope.tools.card import memory_card
from irscope.tools.config import chosen_device
from irscope.tui.app import IrscopeApp
from irscope.tui.memory.views import card_verdict
from tests.cli import wild_models
from tests.cli.test_one_target import FILES, SAMPLES, WILD
from tests.tui.driving import drive, press, screen_text
from tests.tui.models import FOREIGN, HOSTILE, NESTED, SYMBOLIC, TWO_LAYERS
from tests.tui.test_folds import layers
from tests.tui.test_graph import BRANCHES

INDUCTOR = Path(__file__).parents[1] / "data" / "inductor" / "mlp"
TEXTS = {"two layers": TWO_LAYERS, "foreign": FOREIGN, "nested": NESTED, "symbolic": SYMBOLIC, "hostile": HOSTILE, "branches": BRANCHES}
TEXTS |= {f"{count} layers": layers(count) for count in (12, 40)}
NAMES = [*FILES, *TEXTS, *WILD.split(), "inductor"]


def path_of(name: str, folder: Path) -> tuple[Path, Mapping[str, int]]:
    """The file of a model and sizes for it."""
    if name == "inductor":
        return INDUCTOR, {}
    if name in FILES:
        file, bind = FILES[name]
        return SAMPLES / file, bind
    if name in TEXTS:
        path = folder / "model.irs"
        path.write_text(TEXTS[name])
        return path, {"batch": 2} if name == "symbolic" else {}
    path = folder / "model.onnx"
    path.write_bytes(getattr(wild_models, name)().SerializeToString())
    return path, {}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_screen_has_the_numbers_of_json_and_of_the_card(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, bind = path_of(name, tmp_path)
    if not path.exists():
        pytest.skip("sample models are built by `make demo`")
    opened = open_model(path)
    opened = opened.rebound(bind) if bind else opened
    options = ["--bind", ",".join(f"{symbol}={size}" for symbol, size in bind.items())] if bind else []
    assert main(["run", "--format", "json", "--passes", "liveness,flops,params,roofline", *options, str(path)]) in (0, 5)
    document = json.loads(capsys.readouterr().out)
    told: dict[str, dict[str, Any]] = {report["pass"]: report["summary"] for report in document["reports"]}

    async def steps(app: IrscopeApp, pilot: Pilot[None]) -> None:
        results, live = app.session.results, told["liveness"]
        has_all = not app.session.program.symbols
        assert results.params is not None and results.costs is not None
        counted = results.params.to_json()["summary"]
        assert [counted[key] for key in ("count", "bytes")] == [told["params"][key] for key in ("count", "bytes")]
        if has_all and isinstance(told["flops"]["total_flops"], int):
            assert results.costs.total.flops == told["flops"]["total_flops"]
        await press(app, pilot, "7")
        report = app.session["reports"].item.report
        assert report.pass_name not in told or report.to_json()["summary"] == told[report.pass_name]
        await press(app, pilot, "2")
        memory = app.session["memory"]
        assert memory.verdict.text == card_verdict(memory_card(opened, chosen_device(app.session.context.device))).text
        assert " ".join(memory.verdict.text.split())[:30] in " ".join(screen_text(app).split())
        counters = memory.counters()
        for moment in ("before", "cold", "warm") if has_all else ():
            for counter, number in live.get(moment, {}).items():
                shown = None if counters is None else counters.numbers.get((moment, counter))
                assert getattr(shown, "value", shown) == number, (moment, counter)
        peak = live.get("device_peak_bytes", live.get("tensor_peak_bytes"))  # XLA's plan has tensors alone
        if has_all and isinstance(peak, int):
            # The chart has what no tensor is, too: XLA's table of results, and gaps between buffers.
            assert memory.stack is not None and memory.stack.total.max() == peak
            assert humanise(peak, Kind.BYTES) in screen_text(app)
            sizes = [memory.size_of(held) for held in memory.held()]
            assert sum(sizes) == memory.whole[memory.step]  # what is alive adds up to the chart
        await press(app, pilot, "4")
        cost = app.session["cost"]
        if has_all and cost.found is not None:
            assert cost.found.times.total == pytest.approx(told["roofline"]["roofline_seconds"] or 0)
            for by in ("layer", "kind", "node"):
                cost.group_by(by)
                assert sum(group.flops for group in cost.groups) == pytest.approx(sum(cost.found.times.flops))
                assert sum(group.seconds for group in cost.groups) == pytest.approx(cost.found.times.total)

    drive(opened, steps)
