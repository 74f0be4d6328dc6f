"""The parts of the recorder that work on plain data: no framework, no GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from irscope.errors import PassError, UsageError
from irscope.measure.record import process
from irscope.measure.record.ortrun import OnnxNode, map_nodes, parse_ort_profile
from irscope.measure.record.request import Options, Request, type_bytes
from irscope.measure.record.sink import Progress, is_out_of_memory, last_progress, new_progress, problem_of
from irscope.measure.record.torchrun import match_history
from irscope.measure.record.trace import (
    Allocation,
    Material,
    Operator,
    Trace,
    categorise,
    memory_events,
    op_records,
    times_by_node,
    times_of,
)
from irscope.processes import Ended, Late
from irscope.recording import DeviceRecord, Header, MemoryEvent, ModelRecord, OpRecord, RecordingWriter, read_recording


def test_three_numbers_of_many() -> None:
    times = times_of([float(value) for value in range(100, 0, -1)])
    assert (times.n, times.min_us, times.median_us, times.p95_us) == (100, 1.0, 50.5, 95.0)
    assert times_of([]) is None
    single = times_of([3.0])
    assert single is not None and single.p95_us == 3.0


def trace() -> Trace:
    """An operator whose kernel takes a workspace, one that keeps a temporary between two kernels, and one that returns."""
    first = Operator("aten::conv2d", 10, 20, "conv", kernels=["aten::convolution"], seconds=10)
    second = Operator("aten::max_pool2d", 30, 50, "pool", seconds=20)
    third = Operator("aten::add", 60, 70, "add", seconds=10)
    allocations = [
        Allocation(11, 100, 1, 0, True, 1, "aten::convolution", device="cpu"),
        Allocation(12, 500, 2, 0, True, 1, "aten::convolution"),
        Allocation(13, -500, 2, 0, True, 1, "aten::convolution"),
        Allocation(31, 25, 3, 1, True, 2, "aten::max_pool2d_with_indices"),
        Allocation(32, 50, 4, 1, True, 2, "aten::max_pool2d_with_indices"),
        Allocation(40, -50, 4, 1, True),
        Allocation(55, -100, 1),
        Allocation(61, 25, 5, 2, True, 3, "aten::add", address=7),
        Allocation(62, 8, 6, 2, True, 3, "aten::add"),
        Allocation(75, -25, 3),
    ]
    made = Trace(0, 100, [first, second, third], allocations, frozenset({7}))
    made.settle()
    return made


def test_categories_tell_who_takes_memory_for_how_long() -> None:
    seen = trace()
    found = {block.allocation.block: block.category for block in categorise(seen.allocations, seen.results)}
    assert found == {1: "activation", 2: "workspace", 3: "activation", 4: "temporary", 5: "output", 6: "workspace"}


def test_memory_outside_of_operators_belongs_to_the_one_before() -> None:
    outside = [allocation for allocation in trace().allocations if not allocation.inside]
    assert [(outer.time, outer.op) for outer in outside] == [(55, 1), (75, 2)]


def test_operators_with_what_they_made_took_and_left() -> None:
    seen = trace()
    slower = replace(seen, operators=[replace(operator, seconds=3 * operator.seconds) for operator in seen.operators])
    records = op_records(Material(seen, seen, [seen, slower], results={"conv": ("f32[25]",)}, scopes={"pool": "stem"}))
    assert [(one.made, one.workspace, one.alive) for one in records] == [(100, 500, 100), (25, 50, 125), (25, 8, 58)]
    assert [op_record.sources for op_record in records] == [("conv",), ("pool",), ("add",)]
    assert records[0].outputs == ("f32[25]",) and records[1].scope == "stem"
    assert records[0].time is not None and (records[0].time.min_us, records[0].time.median_us) == (0.01, 0.02)
    events = memory_events(Material(seen, seen))
    assert len(events) == 20 and [event.bytes for event in events[:10]] == [allocation.bytes for allocation in seen.allocations]
    assert [event.time_us for event in events[:2]] == [0.011, 0.012]


def test_times_of_calls_are_summed_by_operator() -> None:
    seen = trace()
    seen.operators[0].outs = [0, 1]
    seen.operators[2].outs = [2]
    times = times_by_node(seen, seen.names, [[1.0, 2.0], [10.0, 30.0], [5.0, 5.0]])
    assert {index: times.min_us for index, times in times.items()} == {0: 11.0, 2: 5.0}
    assert times_by_node(seen, ("other",), [[1.0]] * 3) == {}


def history(*events: tuple[str, int, int, int]) -> list[dict[str, Any]]:
    return [{"action": action, "addr": addr, "size": size, "time_us": time} for action, addr, size, time in events]


def cuda_trace() -> Trace:
    """What the profiler says: blocks as large as the allocator made them."""
    blocks = [(1001, 512, 9), (2001, 1024, 8), (2002, -1024, 8)]
    allocations = [Allocation(time, size, 0, 0, True, 4, "aten::mm", device="cuda", address=addr) for time, size, addr in blocks]
    return Trace(500, 9000, [Operator("aten::mm", 1000, 3000)], allocations)


def test_the_allocators_history_gives_blocks_the_size_that_was_asked_for() -> None:
    seen = cuda_trace()
    match_history(
        seen,
        history(
            ("segment_alloc", 9, 2 << 20, 1),
            ("alloc", 9, 100, 1),
            ("alloc", 8, 700, 2),
            ("free_requested", 8, 700, 2),
            ("free_completed", 8, 700, 2),
            ("free_completed", 9, 100, 99),
        ),
    )
    assert [(block.bytes, block.kernel_name) for block in seen.allocations] == [(100, "aten::mm"), (700, "aten::mm"), (-700, "aten::mm")]
    assert [block.category for block in categorise(seen.allocations, frozenset())] == ["workspace", "workspace", "workspace"]
    assert seen.allocations[1].block == seen.allocations[2].block != seen.allocations[0].block


def test_the_history_decides_where_the_profiler_saw_less() -> None:
    seen = cuda_trace()
    match_history(seen, history(("alloc", 5, 40, 0), ("alloc", 9, 100, 2), ("free_completed", 9, 100, 4), ("alloc", 3, 7, 2000)))
    assert [(block.bytes, block.op, block.inside) for block in seen.allocations] == [(40, None, False), (100, 0, True), (-100, 0, False)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("CUDA out of memory. Tried to allocate 72.00 MiB. GPU 0 has a total capacity of 7.79 GiB of which 1 MiB is free.", 72 << 20),
        (
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.",
            4096,
        ),
        (
            "Non-zero status code returned while running Expand node. Name:'big' requested buffer of size 4398046511104: out of memory",
            1 << 42,
        ),
        ("bad allocation", None),
    ],
)
def test_running_out_of_memory_is_recognised_whoever_says_it(text: str, wanted: int | None) -> None:
    error = RuntimeError(text)
    assert is_out_of_memory(error)
    ops = [OpRecord(0, "aten::relu", "act")]
    problem = problem_of(
        error, ops, [MemoryEvent("cold", 64, 0, block=1), MemoryEvent("cold", 8, 0, block=2), MemoryEvent("cold", -8, 0, block=2)]
    )
    assert (problem.kind, problem.requested, problem.alive_bytes) == ("out_of_memory", wanted, 64)
    if "Expand" in text:
        assert (problem.op, problem.op_name, problem.scope) == (None, "Expand", "big")
    else:
        assert (problem.op, problem.op_name, problem.alive[0].scope) == (0, "aten::relu", "act")


def test_other_errors_are_no_lack_of_memory() -> None:
    problem = problem_of(ValueError("shapes differ\nmore"), [], [])
    assert (problem.kind, problem.text, problem.op, problem.requested) == ("failed", "ValueError: shapes differ", None, None)


def node(text: str, name: str = "", domain: str = "") -> OnnxNode:
    """A node from "y = Op(a, b)"."""
    outputs, _, call = text.partition(" = ")
    op, _, inputs = call.rstrip(")").partition("(")
    return OnnxNode(op, name or op, tuple(filter(None, inputs.split(", "))), tuple(outputs.split(", ")), domain)


MODEL = [
    node("c = Conv(x, w)", "conv"),
    node("b = BatchNormalization(c, s)", "bn"),
    node("r = Relu(b)", "relu"),
    node("n = Shape(x)", "shape"),
    node("k = Gather(n, zero)", "gather"),
    node("f = Reshape(r, k)", "flat"),
    node("i = Identity(f)", "same"),
    node("m = MatMul(i, v)", "mm"),
    node("y = Add(m, bias)", "add"),
    node("d = Neg(y)", "dead"),
]


def test_what_lies_between_results_that_are_still_there_belongs_to_the_node_between() -> None:
    running = [node("r = FusedConv(x, w2)", "fused"), node("f = Reshape(r, k0)", "flat"), node("y = Gemm(f, v, bias)", "gemm")]
    node_map = map_nodes(MODEL, running, ["x"], ["y"])
    assert node_map.sources == ((0, 1, 2), (5,), (6, 7, 8))
    assert (node_map.folded, node_map.unmapped) == ((3, 4, 9), ())


def test_nodes_of_another_layout_are_known_by_their_names() -> None:
    model = [
        node("a = Conv(x, w)", "one"),
        node("p = Relu(a)", "act"),
        node("q = Conv(p, u)", "two"),
        node("z = Add(q, p)", "sum"),
        node("y = Relu(z)", "last"),
    ]
    running = [
        node("r0 = Conv(x, w1)", "act_nchwc", "com.microsoft.nchwc"),
        node("r1 = Conv(r0, u1, r0)", "two_nchwc", "com.microsoft.nchwc"),
        node("y = ReorderOutput(r1)", "ReorderOutput", "com.microsoft.nchwc"),
    ]
    node_map = map_nodes(model, running, ["x"], ["y"])
    assert node_map.sources == ((0, 1), (2, 3, 4), ())
    assert not node_map.unmapped


def test_what_cannot_be_found_again_is_said() -> None:
    node_map = map_nodes([node("a = Relu(x)", "one"), node("y = Relu(a)", "two")], [node("other = Custom(x)", "new")], ["x"], ["y"])
    assert node_map.unmapped == (0, 1)


def kernel_event(name: str, ts: int, dur: int, op: str = "Relu", **args: object) -> dict[str, Any]:
    memory = {
        "mem_bytes_requested_in_use": 100 + ts,
        "mem_bytes_in_use": 256,
        "mem_in_use_peak": 512,
        "mem_arena_held": 1024,
        "mem_requested_in_use_delta": 10,
        "mem_in_use_delta": 16,
    }
    shared = {"op_name": op, "provider": "CPUExecutionProvider", "output_type_shape": [{"float": [1, 4]}]}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "args": {**shared, **memory, **args}}


def test_a_profile_has_runs_of_kernels_without_those_inside_of_others() -> None:
    run = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 50, "args": {}}
    events = [
        {"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 1, "args": {}},
        kernel_event("inner", 12, 3),
        kernel_event("if", 10, 10, "If"),
        kernel_event("after", 30, 5, input_type_shape='[{"int64":[]}]'),
        run,
        kernel_event("inner", 52, 3),
    ]
    profile = parse_ort_profile(events)
    assert [[kernel.name for kernel in run] for run in profile.runs] == [["if", "after"]]
    assert [kernel.name for kernel in profile.unfinished] == ["inner"]
    after = profile.runs[0][1]
    assert (after.inputs, after.outputs, after.microseconds) == (("i64[]",), ("f32[1,4]",), 5.0)
    assert after.memory is not None and (after.memory.requested, after.memory.held, after.memory.change) == (130, 1024, 10)
    assert not profile.has_device_times
    assert parse_ort_profile([{"cat": "Kernel", "name": "k", "ts": 0, "dur": 1, "args": {}}, run]).has_device_times


def test_older_profiles_tell_no_memory() -> None:
    event = kernel_event("k", 0, 1)
    event["args"] = {"op_name": "Relu", "provider": "CPUExecutionProvider"}
    assert parse_ort_profile([event]).unfinished[0].memory is None


def test_bytes_of_types() -> None:
    assert [type_bytes(text) for text in ("f32[2,3]", "i64[]", "u4[3]", "str[2]", "f32", "?[1]")] == [24, 8, 2, None, None, None]


def test_progress_is_there_when_the_process_is_not(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    new_progress(path)
    assert last_progress(path) == ("", "")
    Progress.at(str(path)).at_node("blocks/0", "aten::conv2d")
    assert last_progress(path) == ("blocks/0", "aten::conv2d")
    Progress.at("").at_node("nothing", "happens")


def request(target: Path) -> Request:
    return Request(ModelRecord("m"), Options(), str(target))


def start_of_recording(target: Path) -> None:
    """Write the first lines of a recording."""
    with RecordingWriter(target, Header("torch-cpu", ModelRecord("m"), DeviceRecord("cpu", "p"))) as writer:
        writer.write(OpRecord(0, "aten::relu"))


def test_a_crash_leaves_a_recording_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "r.jsonl"

    def run(command: object, *, asked: bytes, **_: object) -> Ended:
        written = Path(json.loads(asked)["output"])
        start_of_recording(written)
        with written.open("a") as stream:
            stream.write('{"line": "op", "ind')
        Progress.at(json.loads(asked)["progress"]).at_node("conv2d_3", "aten::conv2d")
        return Ended(-9, b"", b"")

    monkeypatch.setattr(process.processes, "run", run)
    recording = process.record_in_process(request(target))
    assert not recording.complete and len(recording.ops) == 1 and not recording.notes
    problem = recording.problems[0]
    assert problem.kind == "crashed" and (problem.scope, problem.op_name) == ("conv2d_3", "aten::conv2d")
    assert problem.text == "the process that ran the model was ended by SIGKILL, as the system does when memory runs out"


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "r.jsonl"

    def run(command: object, *, asked: bytes, **_: object) -> Ended:
        start_of_recording(Path(json.loads(asked)["output"]))
        raise Late

    monkeypatch.setattr(process.processes, "run", run)
    assert process.record_in_process(request(target), timeout=5).problems[0].kind == "timeout"


def test_errors_of_the_child_are_errors_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = json.dumps({"error": "no GPU", "code": "IRS479", "where": "", "hint": "buy one", "kind": "UsageError"})
    monkeypatch.setattr(process.processes, "run", lambda command, **_: Ended(0, answer.encode(), b""))
    with pytest.raises(UsageError, match="no GPU") as caught:
        process.record_in_process(request(tmp_path / "r.jsonl"))
    assert (caught.value.code, caught.value.hint) == ("IRS479", "buy one")


def test_nothing_recorded_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.processes, "run", lambda command, **_: Ended(-11, b"", b""))
    with pytest.raises(PassError, match="was ended by SIGSEGV") as caught:
        process.record_in_process(request(tmp_path / "r.jsonl"))
    assert caught.value.code == "IRS481"


def test_what_was_there_before_is_not_taken_for_the_new_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "r.jsonl"
    start_of_recording(target)
    assert read_recording(target).ops
    monkeypatch.setattr(process.processes, "run", lambda command, **_: Ended(1, b"", b""))
    with pytest.raises(PassError):
        process.record_in_process(request(target))
    assert read_recording(target).ops and [path.name for path in tmp_path.iterdir()] == ["r.jsonl"], "and it stays"
