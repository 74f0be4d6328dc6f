"""Recording with PyTorch: files in the recording process, live modules in this one, on a processor or on an NVIDIA GPU."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from irscope.errors import PassError, UsageError
from irscope.measure.machine import LEAST_SECONDS, SAMPLING, driver_version, energy_counter, environment, header, processor
from irscope.measure.monitor import RAPL, processor_energy
from irscope.measure.record.request import Options, Request
from irscope.measure.record.sink import Sink, first_line, problem_of
from irscope.measure.record.torchmodel import Runnable, of_module, runnable, type_text
from irscope.measure.record.torchpasses import Calls, Failed, memory_run, plain_runs, result_count, timed_runs, typed_run
from irscope.measure.record.trace import (
    Allocation,
    Material,
    Trace,
    memory_events,
    op_records,
    output_types,
    times_by_node,
    times_of,
    unstable,
)
from irscope.memory.tape import COUNTERS
from irscope.recording.files import read_recording
from irscope.recording.records import Counters, DeviceRecord, Energy, Header, Input, Latency, Level, Line, ModelRecord, Recording, Setting

OP_TIME = "PyTorch's profiler, each operator with those it calls"
_SETTINGS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_VISIBLE_DEVICES",
)


def record_torch(request: Request, sink: Sink) -> None:
    """Run a model's forward pass with PyTorch and tell the sink what was seen."""
    if request.options.device != "cpu":
        record_cuda(request, sink)
        return
    if request.options.threads:
        torch.set_num_threads(request.options.threads)
    model = runnable(request, torch.device("cpu"))
    request = with_inputs(request, model)
    sink.begin(torch_header(request, processor(torch.get_num_threads()), OP_TIME))
    record_on_cpu(model, request, sink)


def with_inputs(request: Request, model: Runnable) -> Request:
    """Return the request with the inputs that a named model was given."""
    return replace(request, model=replace(request.model, inputs=model.inputs)) if model.inputs else request


def record_on_cpu(model: Runnable, request: Request, sink: Sink) -> None:
    """Record the runs on the processor, whose memory has no counters: the events are summed."""
    before = resident_bytes(model)
    sink.add(_tensor_counters("before", before, before))
    try:
        cold = memory_run(model)
        sink.stage("warm-up")
        plain_runs(model, request.options.warmup)
        sink.stage("memory")
        warm = memory_run(model)
    except Failed as failed:
        tell_failure(failed, model, sink, "cpu")
        return
    sink.stage("latency")
    read = processor_energy()
    before_joules, started = (read() if read is not None else 0.0), time.perf_counter()
    plain = plain_runs(model, request.options.repeats)
    if read is not None and plain and (used := read() - before_joules) > 0:  # a counter that has wrapped tells nothing
        sink.add(Energy(used / len(plain), len(plain), round(time.perf_counter() - started, 3), RAPL))
    sink.stage("operators")
    timed, profiled = timed_runs(model, request.options.repeats)
    sink.stage("types")
    typed, calls = typed_run(model)
    outputs = output_types(typed, calls.types, warm.names, result_count)
    material = Material(cold, warm, timed, {}, outputs, model.results, model.scopes, model.names)
    tell(material, sink)
    for run, trace in (("cold", cold), ("warm", warm)):
        peak, end = _summed(trace)
        sink.add(_tensor_counters(run, before + end, before + peak))
    tell_latency(plain, profiled, sink)


def tell(material: Material, sink: Sink) -> None:
    """Write operators, events, and whether the runs agreed."""
    lines: list[Line] = [*op_records(material), *memory_events(material)]
    for line in lines:
        sink.add(line)
    odd = unstable(material)
    if odd is not None:
        sink.add(odd)


def tell_latency(plain: list[float], profiled: list[float], sink: Sink) -> None:
    """Write the times of whole runs without and with profiling."""
    for how, taken in (("plain", plain), ("profiled", profiled)):
        times = times_of(taken)
        if times is not None:
            sink.add(Latency(how, times))


def tell_failure(failed: Failed, model: Runnable, sink: Sink, place: str) -> None:
    """Write what was seen until the model failed, and the operator at which it did."""
    material = Material(failed.trace, failed.trace, results=model.results, scopes=model.scopes, names=model.names, place=place)
    records = op_records(material)
    last = len(records) - 1
    # What is given back after the last operator is the error's way out of the model.
    events = [event for event in memory_events(material) if event.run == "cold" and (event.op != last or event.inside)]
    lines: list[Line] = [*records, *events, problem_of(failed.cause, records, events)]
    for line in lines:
        sink.add(line)
    sink.failed = True


def torch_header(request: Request, device: DeviceRecord, op_time: str, more: Mapping[str, Setting] | None = None) -> Header:
    """Return the first line, with what else decides how PyTorch runs a model."""
    settings: dict[str, Setting] = {"grad": False, **(more or {}), "threads": torch.get_num_threads(), "seed": request.options.seed}
    settings["op_time"] = op_time
    return header(request, device, torch_versions(), settings | environment(*_SETTINGS))


def torch_versions() -> dict[str, str]:
    """Return the versions that decide what PyTorch does."""
    found = {"torch": str(torch.__version__), "cuda": torch.version.cuda or ""}
    return {name: version for name, version in found.items() if version}


def resident_bytes(model: Runnable) -> int:
    """Return the bytes of the model and its arguments, each storage counted once."""
    storages = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in model.resident()}
    return sum(storages.values())


def _summed(trace: Trace) -> tuple[int, int]:
    """Return the highest sum of the run's blocks, and the sum at its end."""
    alive = peak = 0
    for allocation in trace.allocations:
        if allocation.device == "cpu":
            alive += allocation.bytes
            peak = max(peak, alive)
    return peak, alive


def _tensor_counters(run: str, current: int, peak: int) -> Counters:
    return Counters(run, Level(current, peak), Level(current, peak))


# Recording a live module in this process.


def record_module(
    module: torch.nn.Module, arguments: Sequence[Any], keywords: Mapping[str, Any], output: Path, *, repeats: int = 20, warmup: int = 3
) -> Recording:
    """Run a module as it is, on the device where its parameters are, and write a recording of it."""
    named = dict(keywords)
    leaves = [leaf for leaf in pytree.tree_leaves((tuple(arguments), named)) if isinstance(leaf, torch.Tensor)]
    inputs = tuple(Input(str(number), type_text(leaf.dtype, leaf.shape)) for number, leaf in enumerate(leaves))
    device = next((value.device for value in (*module.parameters(), *module.buffers(), *leaves)), torch.device("cpu"))
    options = Options(device=str(device), repeats=repeats, warmup=warmup)
    request = Request(ModelRecord(type(module).__name__, "module", "", "", inputs), options, str(output))
    model = of_module(module, tuple(arguments), named)
    sink = Sink(output, device=str(device))
    if device.type == "cuda":
        begin_on_cuda(request, device, sink)
        record_on_cuda(model, request, device, sink)
    else:
        sink.begin(torch_header(request, processor(torch.get_num_threads()), OP_TIME))
        record_on_cpu(model, request, sink)
    sink.finish()
    return read_recording(output)


# Recording with PyTorch on an NVIDIA GPU: the caching allocator's own counters and history, and times of CUDA events.

# Joins the history of PyTorch's caching allocator (requested sizes) with the profiler's trace (operators that requested them).

_COUNTED = ("alloc", "free_completed")


def match_history(trace: Trace, events: Sequence[Mapping[str, Any]]) -> None:
    """Give the run's blocks on the GPU their requested sizes; where both sources disagree, the history and its clock decide."""
    wanted = [event for event in events if event["action"] in _COUNTED]
    others = [allocation for allocation in trace.allocations if allocation.device != "cuda"]
    seen = [allocation for allocation in trace.allocations if allocation.device == "cuda"]
    # The history continues until the result is freed.
    wanted = [event for event in wanted if event["time_us"] * 1000 <= trace.end]
    if not _same(seen, wanted):
        seen = [_made(event) for event in wanted]
    blocks: dict[int, int] = {}
    for number, (one, event) in enumerate(zip(seen, wanted, strict=True)):
        size = int(event["size"])
        if event["action"] == "alloc":
            one.bytes, one.block = size, number
            blocks[event["addr"]] = number
        else:
            one.bytes, one.block = -size, blocks.pop(event["addr"], -1 - number)
    trace.allocations = [*others, *seen]
    trace.settle()


def _same(seen: Sequence[Allocation], wanted: Sequence[Mapping[str, Any]]) -> bool:
    return len(seen) == len(wanted) and all(
        one.address == event["addr"] and (one.bytes > 0) == (event["action"] == "alloc") for one, event in zip(seen, wanted, strict=True)
    )


def _made(event: Mapping[str, Any]) -> Allocation:
    """Return a block that only the history knows: the operator is the one that ran at the time."""
    return Allocation(int(event["time_us"]) * 1000, 0, 0, device="cuda", address=int(event["addr"]))


# Recording with PyTorch on an NVIDIA GPU: the caching allocator's own counters and history, and times of CUDA events.

MOST_EVENTS = 1_000_000
CUDA_OP_TIME = "CUDA events around each call below autograd; where the GPU waits for the processor, that is in it"


def record_cuda(request: Request, sink: Sink) -> None:
    """Record the runs on a GPU."""
    device = cuda_device_of(request.options.device)
    torch.cuda.set_device(device)
    try:
        model = runnable(request, device)
    except torch.OutOfMemoryError as error:
        raise PassError(f"the model alone does not fit: {first_line(error)}", code="IRS481", where=request.model.name) from None
    begin_on_cuda(with_inputs(request, model), device, sink)
    record_on_cuda(model, request, device, sink)


def begin_on_cuda(request: Request, device: torch.device, sink: Sink) -> None:
    """Write the first line, when the model and its inputs are on the device."""
    torch.cuda.synchronize(device)
    sink.begin(torch_header(request, described(device), CUDA_OP_TIME))
    sink.add(cuda_counters("before", device))


def record_on_cuda(model: Runnable, request: Request, device: torch.device, sink: Sink) -> None:
    """Record the runs, cold and warm, and those that are timed."""
    try:
        cold = _memory_run("cold", model, device, sink)
        sink.stage("warm-up")
        _plain_runs(model, request.options.warmup, device)
        sink.stage("memory")
        warm = _memory_run("warm", model, device, sink)
    except Failed as failed:
        tell_failure(failed, model, sink, "cuda")
        return
    sink.stage("latency")
    plain = _plain_runs(model, request.options.repeats, device)
    energy = _energy(model, device)
    if energy is not None:
        sink.add(energy)
    sink.stage("operators")
    per_call, profiled = _timed_runs(model, request.options.repeats, device)
    sink.stage("types")
    typed, calls = typed_run(model)
    times = times_by_node(typed, warm.names, per_call)
    outputs = output_types(typed, calls.types, warm.names, result_count)
    tell(Material(cold, warm, (), times, outputs, model.results, model.scopes, model.names, "cuda"), sink)
    tell_latency(plain, profiled, sink)


def cuda_device_of(text: str) -> torch.device:
    """Return the GPU that is asked for. Raises UsageError with what is missing."""
    number = int(text.partition(":")[2] or 0)
    if torch.version.cuda is None:
        hint = "install PyTorch's CUDA build, or record with `--device cpu`"
        raise UsageError(f"this PyTorch ({torch.__version__}) has no CUDA build", code="IRS479", hint=hint)
    try:
        torch.cuda.init()
        count = torch.cuda.device_count()
    except Exception as error:
        lines = str(error).splitlines()
        raise UsageError(
            f"CUDA cannot be used: {lines[0] if lines else type(error).__name__}",
            code="IRS479",
            hint="nvidia-smi reports the driver's version",
        ) from None
    if number >= count:
        raise UsageError(f"there is no GPU {number}; PyTorch sees {count}", code="IRS479")
    return torch.device("cuda", number)


def described(device: torch.device) -> DeviceRecord:
    found = torch.cuda.get_device_properties(device)
    return DeviceRecord("cuda", found.name, int(found.total_memory), None, f"{found.major}.{found.minor}", driver_version())


def cuda_counters(run: str, device: torch.device) -> Counters:
    """Return the allocator's counters now."""
    stats = torch.cuda.memory_stats(device)
    levels = [Level(int(stats.get(f"{name}_bytes.all.current", 0)), int(stats.get(f"{name}_bytes.all.peak", 0))) for name in COUNTERS]
    return Counters(run, *levels)


def _memory_run(run: str, model: Runnable, device: torch.device, sink: Sink) -> Trace:
    """Return one run in which the requested size of every block is known."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    torch.cuda.memory._record_memory_history(max_entries=MOST_EVENTS, context=None)
    try:
        trace = memory_run(model)
    except Failed as failed:
        with_history(failed.trace, device)
        sink.add(cuda_counters(run, device))
        raise
    torch.cuda.synchronize(device)
    sink.add(cuda_counters(run, device))
    with_history(trace, device)
    return trace


def with_history(trace: Trace, device: torch.device) -> None:
    """End the allocator's history, and give the run's blocks the sizes that it tells."""
    events: Sequence[Mapping[str, Any]] = torch.cuda.memory._snapshot()["device_traces"][device.index or 0]
    torch.cuda.memory._record_memory_history(enabled=None)
    match_history(trace, events)


def _plain_runs(model: Runnable, repeats: int, device: torch.device) -> list[float]:
    """Return what runs take by the GPU's own clock, in microseconds."""
    taken: list[float] = []
    begin, end = _event(), _event()
    with torch.no_grad():
        for _ in range(repeats):
            begin.record()
            model.plain()
            end.record()
            end.synchronize()
            taken.append(float(begin.elapsed_time(end)) * 1e3)
    return taken


def _timed_runs(model: Runnable, repeats: int, device: torch.device) -> tuple[list[list[float]], list[float]]:
    """Microseconds of each call below autograd over the runs, and of the whole runs."""
    per_call: list[list[float]] = []
    whole: list[float] = []
    for _ in range(repeats):
        stamps: list[Any] = []

        def watch(stamps: list[Any] = stamps) -> None:
            stamps.append(_event())
            stamps[-1].record()

        begin, end = _event(), _event()
        with torch.no_grad(), Calls(watch):
            begin.record()
            model.marked()
            end.record()
        torch.cuda.synchronize(device)
        whole.append(float(begin.elapsed_time(end)) * 1e3)
        per_call.append([float(first.elapsed_time(second)) * 1e3 for first, second in zip(stamps[::2], stamps[1::2], strict=True)])
    same = [run for run in per_call if len(run) == len(per_call[0])]
    return [list(column) for column in zip(*same, strict=True)], whole


def _energy(model: Runnable, device: torch.device) -> Energy | None:
    read = energy_counter(str(device), str(getattr(torch.cuda.get_device_properties(device), "uuid", "")))
    if read is None:
        return None
    runs = 0
    torch.cuda.synchronize(device)
    before, started = read(), time.perf_counter()
    with torch.no_grad():
        while time.perf_counter() - started < LEAST_SECONDS:
            model.plain()
            torch.cuda.synchronize(device)
            runs += 1
    return Energy((read() - before) / runs, runs, round(time.perf_counter() - started, 3), SAMPLING)


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)
