"""Counters of the CUDA allocator for small programs, worked out by hand."""

from __future__ import annotations

import pytest

from irscope.devices import Target, find_device
from irscope.errors import UsageError
from irscope.ir.parser import parse_program
from irscope.ir.program import Program
from irscope.memory.kernels import workspace_policy
from irscope.passes.memory.cuda import CudaMemory, DeviceMemory
from irscope.passes.memory.liveness import Liveness
from irscope.passes.memory.tapes import moved_weights
from irscope.passkit.manager import Manager
from irscope.passkit.settings import Settings

MIB = 1 << 20


def program(body: str, declared: str = "input %x: f32[256,1024]", format_: str = "pt2") -> Program:
    """A program whose main graph has these lines."""
    return parse_program(f'irscope 1\nformat "{format_}"\ngraph @main {{\n{declared}\n{body}\n}}\n')


def memory(made: Program, **settings: str) -> DeviceMemory:
    return Manager(made, settings=Settings(**settings)).get(CudaMemory())


def summary(made: Program, **settings: str) -> dict[str, object]:
    """The summary of liveness as JSON holds it."""
    (result,) = Manager(made, settings=Settings(**settings)).run("liveness")
    return dict(result.report().to_json()["summary"])


CHAIN = """%a: f32[256,1024] = math.exp(%x) !"aten::exp"
%b: f32[256,1024] = math.neg(%a) !"aten::neg"
return %b"""
LINEAR = """%y: f32[256,512] = nn.linear(%x, %l.weight, %l.bias) !"aten::linear"
return %y"""
LINEAR_WEIGHTS = """input %x: f32[256,1024]
param %l.weight: f32[512,1024]
param %l.bias: f32[512]"""


def test_inputs_results_and_blocks_are_counted() -> None:
    found = summary(program(CHAIN))
    assert found["before"] == {"requested": MIB, "allocated": MIB, "reserved": 2 * MIB}
    # Three tensors of 1 MiB: two fill the first segment of the small pool, the third needs another.
    assert found["cold"] == {"requested": 3 * MIB, "allocated": 3 * MIB, "reserved": 4 * MIB}
    assert found["warm"] == found["cold"]
    assert (found["device"], found["torch"], found["workspace_bytes"], found["fits"]) == ("h200", "2.13", 0, True)


def test_modules_are_moved_children_first_and_ties_once() -> None:
    made = program(
        "return %x",
        """input %x: f32[4]
        param %head: f32[4]
        param %layers.0.weight: f32[4]
        param %layers.2.weight: f32[4]
        param %layers.2.inner.weight: f32[4]
        buffer %layers.1.mean: f32[4]
        buffer %layers.2.mean: f32[4]
        const %table: f32[4]""",
    )
    names = [value.name for value in moved_weights(made.graph)]
    assert names == ["layers.0.weight", "layers.1.mean", "layers.2.inner.weight", "layers.2.weight", "layers.2.mean", "head"]


@pytest.mark.parametrize(
    ("torch", "device", "cold", "warm"),
    [
        # The workspace comes after the result, and stays.
        ("2.13", "h200", 32 * MIB, 32 * MIB),
        ("2.13", "rtx3090", 8_519_680, 8_519_680),
        ("2.11", "b200", 8_519_680 + MIB, 8_519_680 + MIB),
        ("2.13", "b200", 32 * MIB, 32 * MIB),
        # It is given back after the call.
        ("2.15", "h200", MIB, MIB),
    ],
)
def test_workspace_of_matrix_products(torch: str, device: str, cold: int, warm: int) -> None:
    found = memory(program(LINEAR, LINEAR_WEIGHTS), torch=torch, device=device)
    before = found.central.before.requested
    assert before == MIB + 2 * MIB + 2048
    assert found.central.at("cold", "requested") - before == 512 * 1024 + cold
    assert found.central.at("warm", "requested") - before == 512 * 1024 + warm


def test_workspaces_of_the_versions_in_between() -> None:
    old = workspace_policy(Target(find_device("a100"), (2, 8)))
    assert [(buffer.size, buffer.kept) for buffer in old.buffers("lt")] == [(8_519_680, True), (MIB, False)]
    assert [buffer.size for buffer in old.buffers("cublas")] == [8_519_680]


def test_options_of_the_allocator_count() -> None:
    plain, expandable = (summary(program(CHAIN), alloc_conf=conf) for conf in ("", "expandable_segments:True"))
    assert plain["cold"]["requested"] == expandable["cold"]["requested"]  # type: ignore[index]  # a mapping
    assert expandable["alloc_conf"] == "expandable_segments:True"
    with pytest.raises(UsageError, match="has no option 'segments'"):
        memory(program(CHAIN), alloc_conf="segments:1")


@pytest.mark.parametrize(("setting", "value", "says"), [("device", "h2o", "devices: "), ("torch", "1.13", "versions: 2.8, ")])
def test_unknown_targets_are_refused_with_the_list(setting: str, value: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        memory(program(CHAIN), **{setting: value})
    assert says in (raised.value.hint or "")


def test_open_symbols_give_no_number_but_a_reason() -> None:
    made = parse_program(
        """irscope 1
        format "pt2"
        symbol batch
        graph @main {
        input %x: f32[batch,8]
        %a: f32[batch,8] = math.exp(%x) !"aten::exp"
        return %a
        }
        """
    )
    report = Manager(made).run("liveness")[0].report().to_json()
    assert report["summary"]["cold"] == {"requested": None, "allocated": None, "reserved": None}
    assert any("sizes depend on batch" in note for note in report["notes"])


@pytest.mark.parametrize(("format_", "device"), [("irs", "h200"), ("pt2", "epyc-7763")])
def test_where_no_cuda_allocator_runs_there_is_no_number(format_: str, device: str) -> None:
    found = summary(program(CHAIN, format_=format_), device=device)
    assert found["cold"] == {"requested": None, "allocated": None, "reserved": None}
    assert found["activation_peak_bytes"] == 2 * MIB


def test_what_does_not_fit_says_what_is_missing_and_what_would_do() -> None:
    made = program(CHAIN.replace("256,1024", "65536,65536"), "input %x: f32[65536,65536]")
    manager = Manager(made, settings=Settings(device="rtx3090"))
    report = manager.run("liveness")[0].report().to_json()
    assert report["summary"]["fits"] is False
    assert report["summary"]["cold"]["requested"] == 3 * 16384 * MIB  # type: ignore[index]  # a mapping
    assert report["summary"]["missing_bytes"] > 24 * 1024 * MIB  # type: ignore[operator]  # a number
    (finding,) = [one for one in report["diagnostics"] if one["code"] == "IRS302"]
    assert "it needs 48.59 GiB with the CUDA context, 24.90 GiB more" in finding["message"] and "fits on" in finding["hint"]
    assert summary(made, device="h200")["fits"] is True


CONVOLUTION = """%y: f32[1,64,32,32] = nn.conv(%x, %c.weight, _) {groups=1, pads=[1, 1, 1, 1]} !"aten::conv2d"
return %y"""


def test_convolution_workspace_is_a_model_with_an_interval() -> None:
    made = program(CONVOLUTION, "input %x: f32[1,64,32,32]\nparam %c.weight: f32[64,64,3,3]")
    given, filters, result = 4 * 64 * 32 * 32, 4 * 64 * 64 * 9, 4 * 64 * 32 * 32
    recorded, other = memory(made, device="rtx3090"), memory(made, device="h200")
    for found, workspace in ((recorded, given + filters), (other, 0)):
        assert found.central is not None and found.lows and found.high is not None and found.moments is not None
        base = found.central.before.requested
        assert found.central.at("cold", "requested") - base == result + workspace
        assert (min(replayed.at("cold", "requested") for replayed in found.lows) - base, found.high.at("cold", "requested") - base) == (
            result,
            2 * result + given + filters,
        )
        assert found.moments.modelled == workspace
        assert sum(found.moments.by_category["workspace"]) == workspace


def test_depthwise_convolution_takes_no_workspace() -> None:
    body = CONVOLUTION.replace("groups=1", "groups=64")
    found = memory(program(body, "input %x: f32[1,64,32,32]\nparam %c.weight: f32[64,1,3,3]"), device="rtx3090")
    assert found.tape is not None and not found.tape.spreads


def test_constants_without_a_device_stay_with_the_host() -> None:
    made = program(
        """%c: f32[] = tensor.copy(%t) !"aten::lift_fresh_copy"
        %y: f32[256,1024] = math.mul(%x, %c) !"aten::mul.Tensor"
        return %y""",
        "input %x: f32[256,1024]\nconst %t: f32[]",
    )
    found = memory(made)
    assert found.central.before.requested == MIB
    assert found.central.at("cold", "requested") == 2 * MIB


def test_the_timeline_adds_up_to_the_counters() -> None:
    made = program(LINEAR, LINEAR_WEIGHTS)
    (result,) = Manager(made).run("cuda-memory")
    report = result.report().to_json()
    by_category, counters = report["series"]
    parts = [sum(one) for one in zip(*(values for key, values in by_category["data"].items() if key != "step"), strict=True)]
    assert parts == counters["data"]["allocated"]
    for counter in ("requested", "allocated", "reserved"):
        assert max(counters["data"][counter]) == report["summary"]["cold"][counter]  # type: ignore[index]  # a mapping
    alive, segments = report["tables"]
    summary = report["summary"]
    assert summary["device_peak_delta_bytes"] == summary["device_peak_bytes"] - summary["before"]["allocated"]
    assert max(parts) == summary["device_peak_bytes"] == sum(row[1] for row in alive["rows"])
    assert sum(row[2] for row in segments["rows"]) == report["summary"]["cold"]["reserved"]  # type: ignore[index]  # a mapping


AT = '("/lib/transformers/modeling.py":9 forward "mask = create_bidirectional_mask(")'
MASKED = f"""%p: i64[8] = tensor.arange(_, _, _) {{{{start=0, limit=8, delta=1, dtype=<i64>}}}} !"aten::arange" {AT}
%r: i64[8,1] = view.unsqueeze(%p) {{{{axes=[1]}}}} !"aten::unsqueeze" {AT}
%m: bool[8,1] = compare.greater_equal(%r, _) {{{{value={{least}}}}}} !"aten::ge.Scalar" {AT}
%e: bool[2,4,8,8]<0,0,1,0> = view.expand(%m) {{{{shape=[2, 4, 8, 8], mode="keep"}}}} !"aten::expand" {AT}
%y: f32[2,4,8,64] = nn.sdpa(%q, %q, %q, %e) {{{{dropout_p=0.0, is_causal=false}}}} !"aten::scaled_dot_product_attention"
return %y"""


@pytest.mark.parametrize(("least", "made"), [(0, False), (1, True)])
def test_masks_that_mask_nothing_are_not_made(least: int, made: bool) -> None:
    found = memory(program(MASKED.format(least=least), "input %q: f32[2,4,8,64]"))
    assert ("m" in found.tape.labels) == made
    assert ("mask as numbers" in found.tape.labels) == made


def test_liveness_shares_the_prediction() -> None:
    manager = Manager(program(CHAIN))
    manager.get(Liveness())
    assert manager.peek(CudaMemory()) is not None


SMALL = """%y: f32[1,4,8,8] = nn.conv(%x, %c.weight, _) {groups=1, pads=[1, 1, 1, 1]} !"aten::conv2d"
%z: f32[1,65536] = tensor.full() {shape=[1, 65536], value=0.0, dtype=<f32>} !"aten::full"
return %y, %z"""


def test_what_contains_a_modelled_workspace_is_modelled() -> None:
    made = program(CONVOLUTION, "input %x: f32[1,64,32,32]\nparam %c.weight: f32[64,64,3,3]")
    for device in ("rtx4090", "h200"):
        (result,) = Manager(made, settings=Settings(device=device)).run("cuda-memory")
        report = result.report().to_json()
        modelled = {f"{moment}.{counter}" for moment in ("cold", "warm") for counter in ("requested", "allocated", "reserved")}
        modelled |= {f"device_peak{key}" for key in ("_bytes", "_delta_bytes", "_node", "_run", ".workspace", ".rounding")}
        modelled |= {"workspace_bytes", "fragmentation.reserved_not_allocated", "fragmentation.inactive_split"}
        assert {key for key, where in report["provenance"].items() if where == "modelled"} == modelled
        assert set(report["provenance"].values()) == {"modelled"}
        marked = {column["key"] for series in report["series"] for column in series["y"] if column.get("provenance") == "modelled"}
        assert marked == {"workspace", "rounding", "requested", "allocated", "reserved"}
        assert {column["key"] for table in report["tables"] for column in table["columns"] if "provenance" in column} == {
            "size", "allocated", "free", "largest_free", "blocks",
        }  # fmt: skip


def test_a_peak_that_no_workspace_reaches_is_exact() -> None:
    made = program(SMALL, "input %x: f32[1,4,8,8]\nparam %c.weight: f32[4,4,3,3]")
    (result,) = Manager(made, settings=Settings(device="rtx4090")).run("cuda-memory")
    where = result.report().to_json()["provenance"]
    assert "cold.requested" not in where and "workspace_bytes" not in where and "device_peak.workspace" not in where
    # Which block a tensor gets may depend on what was there before.
    assert where["cold.allocated"] == where["cold.reserved"] == where["device_peak_bytes"] == where["device_peak.rounding"] == "modelled"


def test_without_a_modelled_size_everything_is_exact() -> None:
    (result,) = Manager(program(LINEAR, LINEAR_WEIGHTS), settings=Settings(device="rtx4090")).run("cuda-memory")
    report = result.report().to_json()
    assert not report["provenance"]
    assert not any("provenance" in column for series in report["series"] for column in series["y"])
