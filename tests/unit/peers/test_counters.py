"""Counters on real files: PyTorch's own, and the others where they are installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from irscope.cli.main import main
from irscope.errors import UsageError
from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo import load
from irscope.frontends.zoo.recipes import Recipe, Wanted
from irscope.ir.spelling import parse_type
from irscope.session import open_model
from irscope.tools.peers import PEERS, CannotCount, find_peers
from tests.cli.test_bad_input import MODEL

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("peers") / "model.pt2"
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(512, 10, bias=False)]
    model = torch.nn.Sequential(*layers).eval()
    torch.export.save(torch.export.export(model, (torch.rand(2, 3, 8, 8),)), path)
    return path


PRODUCTS = 2 * (2 * 8 * 64 * 27 + 2 * 512 * 10)


@pytest.mark.parametrize("name", ["torch", "fvcore", "calflops", "deepspeed"])
def test_counters_agree_on_products(exported: Path, name: str) -> None:
    peer = PEERS[name]
    if peer.version is None:
        pytest.skip(f"{peer.package} is not installed")
    counted = peer.count(open_model(exported))
    factor = 2 if counted.unit == "multiply-adds" else 1
    named = {node: number for node, number in counted.by_node.items() if node.startswith(("conv", "linear"))}
    assert sum(named.values()) * factor == PRODUCTS
    assert counted.failed == {}


def test_the_command_explains_until_nothing_is_left(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare-flops", "--against", "torch", "--format", "json", "--strict", str(exported)]) == 0
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    counters, explained = report["tables"]
    row = dict(zip([column["key"] for column in counters["columns"]], counters["rows"][0], strict=True))
    assert (row["counted"], row["unexplained"]) == (PRODUCTS, 0)
    assert row["irscope"] - row["counted"] == row["difference"] > 0
    keys = [column["key"] for column in explained["columns"]]
    assert sum(dict(zip(keys, found, strict=True))["difference"] for found in explained["rows"]) == row["difference"]


def test_nothing_of_the_file_is_unpickled(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **named: object) -> None:
        raise AssertionError("a pickle was opened")

    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr(torch.export, "load", refuse)
    assert PEERS["torch"].count(open_model(exported)).printed == PRODUCTS


def test_open_sizes_must_be_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "open.pt2"
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(torch.nn.Linear(4, 5), (torch.rand(2, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    assert main(["compare-flops", "--against", "torch", str(path)]) == 2
    assert "--bind" in capsys.readouterr().err
    (symbol,) = open_model(path).program.symbols
    for name in (symbol, "batch"):
        assert main(["compare-flops", "--against", "torch", "--bind", f"{name}=8", "--strict", str(path)]) == 0
        assert "320" in capsys.readouterr().out
    assert main(["compare-flops", "--against", "torch", "--bind", "batch=1", str(path)]) == 0


def test_traces_and_models_by_name_are_counted(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(512, 10, bias=False)]
    module = torch.nn.Sequential(*layers).eval()
    traced, scripted = tmp_path / "traced.pt", tmp_path / "scripted.pt"
    torch.jit.save(torch.jit.trace(module, torch.rand(2, 3, 8, 8)), traced)
    torch.jit.save(torch.jit.script(module), scripted)
    assert PEERS["torch"].count(open_model(traced)).printed == PRODUCTS
    stated = LoadOptions(inputs={"input": parse_type("f32[2,3,8,8]")})
    assert PEERS["torch"].count(open_model(scripted, stated)).printed == PRODUCTS
    monkeypatch.setattr(load, "find_recipe", lambda name: Recipe(lambda: module, lambda _: (Wanted("x", ("batch", 3, 8, 8)),)))
    monkeypatch.setattr(load, "_version", lambda package: "0")
    monkeypatch.setattr("irscope.session.check_installed", lambda text: None)
    command = ["compare-flops", "--against", "torch", "--strict", "--format", "json"]
    assert main([*command, "timm:made", "--bind", "batch=2"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    assert report["tables"][0]["rows"][0][4] == PRODUCTS
    assert main([*command, str(exported), str(traced)]) == 0
    totals, *own = json.loads(capsys.readouterr().out)["reports"]
    keys = [column["key"] for column in totals["tables"][0]["columns"]]
    rows = [dict(zip(keys, row, strict=True)) for row in totals["tables"][0]["rows"]]
    assert [(row["model"], row["counted"]) for row in rows] == [(str(exported), PRODUCTS), (str(traced), PRODUCTS)]
    assert all(row["difference_share"] == row["difference"] / row["counted"] > 0 for row in rows)
    assert [report["options"] for report in own] == [str(exported), str(traced)]


def test_a_counter_that_cannot_read_the_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "model.irs"
    path.write_text(MODEL)
    with pytest.raises(CannotCount, match="torch counts pt2 files and torchscript files and models by name, not irs"):
        PEERS["torch"].count(open_model(path))


def test_a_counter_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="there is no counter 'abacus'"):
        find_peers("torch,abacus")


def test_a_counter_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("irscope.tools.peers.Peer.version", None)
    path = tmp_path / "model.irs"
    path.write_text(MODEL)
    assert main(["compare-flops", "--against", "fvcore", "--bind", "batch=2", str(path)]) == 2
    assert capsys.readouterr().err.startswith("irscope: error IRS404: fvcore is not installed (pip install fvcore")
