"""What the report of a compiled program tells: kernels, buffers, what is saved and why, graph breaks and what they cost."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.forked import irscope

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux")]
PROGRAM = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)
    def forward(self, x):
        y = nn.functional.gelu(self.up(self.norm(x)))
        kept = x * 3
        torch._dynamo.graph_break()
        return self.down(y) + kept.sin()
step = torch.compile(Net().cuda())
for rows in (32, 48):
    step(torch.zeros(rows, 64, device="cuda", requires_grad=True)).sum().backward()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of a program with a graph break and a second size."""
    folder = tmp_path_factory.mktemp("told")
    (folder / "net.py").write_text(PROGRAM.lstrip())
    done = irscope("simulate", "--device", "h200", "--format", "json", "net.py", folder=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)["compiled"]
    return found


def _line(number: int) -> str:
    return f"net.py:{number}"


def _graph(told: dict[str, Any], part: str, number: int) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in told["graphs"] if one["part"] == part and one["line"] == _line(number))
    return found


@pytest.mark.slow
def test_every_operator_of_a_kernel_is_named_with_its_line(told: dict[str, Any]) -> None:
    kernels = {one["name"]: one for one in _graph(told, "forward", 8)["kernels"]}
    assert list(kernels) == ["triton_per_fused_mul_native_layer_norm_0", "extern_kernels.addmm", "triton_poi_fused_gelu_1"]
    gelu = kernels["triton_poi_fused_gelu_1"]
    assert {one["operator"] for one in gelu["parts"]} == {"gelu"} and {one["line"] for one in gelu["parts"]} == {_line(8)}
    assert len({one["node"] for one in gelu["parts"]}) > 3, "erf, multiplications, an addition"
    assert gelu["bytes"] == 2 * 32 * 256 * 4 and kernels["extern_kernels.addmm"]["flops"] == 2 * 32 * 64 * 256


def test_buffers_tell_whose_place_they_take_and_when_they_end(told: dict[str, Any]) -> None:
    forward = {one["name"]: one for one in _graph(told, "forward", 11)["plan"]}
    assert (forward["buf0"]["bytes"], forward["buf0"]["heir"]) == (32 * 64 * 4, "buf1")
    assert (forward["buf1"]["made"], forward["buf1"]["instead"], forward["buf1"]["freed"]) == ("reuse", "buf0", "")
    graph = _graph(told, "backward", 8)
    backward = {node["name"]: node for node in graph["plan"]}
    assert backward["buf0"]["instead"] == "addmm", "the gradient of GELU takes the place of what was saved for it"
    assert backward["buf0"]["freed"] in {node["name"] for node in graph["kernels"]}
    assert sum(node["made"] == "allocated" for node in graph["plan"]) == graph["buffers"]
    assert sum(node["made"] == "reuse" for node in graph["plan"]) == graph["reused"]


def test_what_is_saved_has_the_partitioner_s_reason(told: dict[str, Any]) -> None:
    why = {(one["operator"], one["bytes"]): one["why"] for one in _graph(told, "forward", 8)["saved"]}
    assert why["addmm", 32 * 256 * 4] == "dear to compute"
    assert why["native_layer_norm", 32 * 64 * 4] == "the backward needs it in memory"
    again = _graph(told, "backward", 8)["recomputed"]
    gelu = [one for one in again if one["operator"] == "gelu"]
    assert gelu and {one["bytes"] for one in gelu} == {32 * 256 * 4} and all(_line(8) == one["line"] for one in again)
    assert {kernel for one in gelu for kernel in one["kernels"]} == {"triton_per_fused_gelu_gelu_backward_sum_0"}


def test_sizes_of_symbols_are_those_that_the_graph_was_made_for(told: dict[str, Any]) -> None:
    later = told["graphs"][4:]
    assert {node["bytes"] for graph in later for node in graph["recomputed"] if node["operator"] == "gelu"} == {48 * 256 * 4}
    assert {48 * 256 * 4} <= {node["bytes"] for graph in later for node in graph["saved"]}


def test_a_graph_break_costs_what_is_handed_across_it(told: dict[str, Any]) -> None:
    [stop] = [one for one in told["events"] if one["what"] == "graph break"]
    assert stop["line"] == _line(10) and stop["count"] == 2
    assert stop["across"] == 48 * 256 * 4 + 48 * 64 * 4, "the activation and what was kept beside it, at the larger size"
    again = [one for one in told["events"] if one["what"] == "recompilation"]
    assert [one["line"] for one in again] == [_line(7), _line(10)] and "expected 32, actual 48" in again[0]["cause"]


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    from irscope.devices import Target, find_device
    from irscope.frontends.simulation.compilations import Compilations, Graph, Kernel, Saved
    from irscope.report.table import Table
    from irscope.tools.simulation import compiled_tables

    kernels = [Kernel(name, True, ("add",), (), size, 0, "float32") for name, size in (("first", 1 << 20), ("second", None))]
    saved = [Saved("add", "net.py:1", 64), Saved("add", "net.py:1", None), Saved("mul", "net.py:2", 32)]
    compilations = Compilations([Graph("forward", "net.py:1", kernels, saved=saved)])
    tables: dict[str, Table] = {table.title: table for table in compiled_tables(compilations, Target(find_device("h100")))}
    graph = next(table for title, table in tables.items() if title.startswith("what was compiled")).to_dicts()[0]
    assert (graph["kernels"], graph["moved"], graph["least"], graph["saved"]) == (2, None, None, None)
    rows = next(table for title, table in tables.items() if title.startswith("saved")).to_dicts()
    assert [(row["operator"], row["tensors"], row["bytes"]) for row in rows] == [("mul", 1, 32), ("add", 2, None)]
    assert all(str(table) for table in tables.values())
