"""Counters on real files: PyTorch's own, and the others where they are installed; every difference is explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irscope.cli.main import main
from irscope.errors import UsageError
from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo import load
from irscope.frontends.zoo.recipes import Recipe, Wanted
from irscope.ir.parser import parse_program
from irscope.ir.spelling import parse_type
from irscope.passes.cost.count import Costs, NodeCosts
from irscope.passkit.manager import Manager
from irscope.session import open_model
from irscope.tools.peers import PEERS, CannotCount, Counted, find_peers, reconcile
from tests.cli.test_bad_input import MODEL

# Counters on real files: PyTorch's own, and the others where they are installed.

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("peers") / "model.pt2"
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1, bias=False), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(512, 10, bias=False)]
    model = torch.nn.Sequential(*layers).eval()
    torch.export.save(torch.export.export(model, (torch.rand(2, 3, 8, 8),)), path)
    return path


PRODUCTS = 2 * (2 * 8 * 64 * 27 + 2 * 512 * 10)


@pytest.mark.parametrize("name", ["torch", "fvcore"])
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
    monkeypatch.setattr(load, "_installed_version", lambda package: "0")
    monkeypatch.setattr("irscope.frontends.zoo.packages.check_installed", lambda text: None)
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


# Every difference from another counter is explained, whatever it counts.

TEXT = """irscope 1
graph @main {
  input %x: f32[8,16]
  param %w: f32[32,16]
  param %b: f32[32]
  %a: f32[8,32] = nn.linear(%x, %w, %b)
  %r: f32[8,32] = nn.relu(%a)
  %t: f32[32,8] = view.transpose(%r) {axis0=0, axis1=1}
  %m: f32[8,8] = math.matmul(%r, %t)
  return %m
}
"""
BY_NODE = {"a": 2 * 8 * 16 * 32, "m": 2 * 8 * 32 * 8}


def costs() -> Costs:
    return Manager(parse_program(TEXT)).get(NodeCosts())


def test_a_counter_of_products_only() -> None:
    reconciled = reconcile(costs(), Counted(sum(BY_NODE.values()), "FLOPs", BY_NODE), "it")
    assert reconciled.rest == 0
    assert reconciled.agreed == sum(BY_NODE.values())
    assert {row.operator: row.difference for row in reconciled.rows if row.difference} == {"nn.linear": 8 * 32, "nn.relu": 8 * 32}


def test_multiply_adds_are_doubled_where_they_are_products() -> None:
    halves = {name: flops / 2 for name, flops in BY_NODE.items()} | {"r": 256}
    reconciled = reconcile(costs(), Counted(sum(halves.values()), "multiply-adds", halves), "it")
    assert reconciled.theirs == sum(BY_NODE.values()) + 256
    assert [row.operator for row in reconciled.rows if row.difference] == ["nn.linear"]


def test_what_a_counter_fails_on_is_said() -> None:
    reconciled = reconcile(costs(), Counted(0, "FLOPs", {}, failed={"m": "TypeError"}), "it")
    row = next(row for row in reconciled.rows if row.operator == "math.matmul")
    assert "fails" in row.reason
    assert reconciled.rest == 0


numbers = st.integers(0, 10**12)


@given(st.dictionaries(st.sampled_from(["a", "r", "t", "m", "elsewhere", "%"]), numbers), st.sampled_from(["FLOPs", "multiply-adds"]))
def test_nothing_stays_unexplained(by_node: dict[str, int], unit: str) -> None:
    whole = costs()
    reconciled = reconcile(whole, Counted(sum(by_node.values()), unit, by_node, {"more": 3}), "it")
    assert reconciled.rest == 0
    assert reconciled.total == whole.total.flops
    assert reconciled.total - sum(row.difference for row in reconciled.rows) == reconciled.theirs
