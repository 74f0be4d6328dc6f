"""Recording with PyTorch: files in the recording process, live modules in this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from irscope.measure.machine import environment, header, processor
from irscope.measure.record.request import Options, Request
from irscope.measure.record.sink import Sink, problem_of
from irscope.measure.record.torchmodel import Runnable, of_module, runnable, type_text
from irscope.measure.record.torchpasses import Failed, memory_run, plain_runs, result_count, timed_runs, typed_run
from irscope.measure.record.trace import Material, Trace, memory_events, op_records, output_types, times_of, unstable
from irscope.recording.files import read_recording
from irscope.recording.records import Counters, DeviceRecord, Header, Input, Latency, Level, Line, ModelRecord, Recording, Setting

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
    """Run a model with PyTorch and tell the sink what was seen."""
    if request.options.device != "cpu":
        from irscope.measure.record.cudarun import record_cuda

        record_cuda(request, sink)
        return
    if request.options.threads:
        torch.set_num_threads(request.options.threads)
    model = runnable(request, torch.device("cpu"))
    request = with_inputs(request, model)
    sink.begin(torch_header(request, processor(torch.get_num_threads()), OP_TIME))
    record_on_cpu(model, request, sink)


def with_inputs(request: Request, model: Runnable) -> Request:
    """The request with the inputs that a named model was given."""
    return replace(request, model=replace(request.model, inputs=model.inputs)) if model.inputs else request


def record_on_cpu(model: Runnable, request: Request, sink: Sink) -> None:
    """The runs on the processor, whose memory has no counters: the events are summed."""
    before = resident_bytes(model)
    sink.add(_counters("before", before, before))
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
    plain = plain_runs(model, request.options.repeats)
    sink.stage("operators")
    timed, profiled = timed_runs(model, request.options.repeats)
    sink.stage("types")
    typed, calls = typed_run(model)
    outputs = output_types(typed, calls.types, warm.names, result_count)
    material = Material(cold, warm, timed, {}, outputs, model.results, model.scopes, model.names)
    tell(material, sink)
    for run, trace in (("cold", cold), ("warm", warm)):
        peak, end = _summed(trace)
        sink.add(_counters(run, before + end, before + peak))
    tell_latency(plain, profiled, sink)


def tell(material: Material, sink: Sink) -> None:
    """Operators, events, and whether the runs agreed."""
    lines: list[Line] = [*op_records(material), *memory_events(material)]
    for line in lines:
        sink.add(line)
    odd = unstable(material)
    if odd is not None:
        sink.add(odd)


def tell_latency(plain: list[float], profiled: list[float], sink: Sink) -> None:
    """Whole runs without and with profiling."""
    for how, taken in (("plain", plain), ("profiled", profiled)):
        times = times_of(taken)
        if times is not None:
            sink.add(Latency(how, times))


def tell_failure(failed: Failed, model: Runnable, sink: Sink, place: str) -> None:
    """What was seen until the model failed, and at which operator it did."""
    material = Material(failed.trace, failed.trace, results=model.results, scopes=model.scopes, names=model.names, place=place)
    records = op_records(material)
    last = len(records) - 1
    # What is given back after the last operator is the error's way out of the model.
    events = [event for event in memory_events(material) if event.run == "cold" and (event.op != last or event.inside)]
    lines: list[Line] = [*records, *events, problem_of(failed.cause, records, events)]
    for line in lines:
        sink.add(line)
    sink.failed = True


def torch_header(request: Request, device: DeviceRecord, op_time: str) -> Header:
    """The first line, with what else decides how PyTorch runs a model."""
    settings: dict[str, Setting] = {"grad": False, "threads": torch.get_num_threads(), "seed": request.options.seed}
    settings["op_time"] = op_time
    return header(request, device, torch_versions(), settings | environment(*_SETTINGS))


def torch_versions() -> dict[str, str]:
    """Versions that decide what PyTorch does."""
    found = {"torch": str(torch.__version__), "cuda": torch.version.cuda or ""}
    return {name: version for name, version in found.items() if version}


def resident_bytes(model: Runnable) -> int:
    """Bytes of the model and its arguments, each storage counted once."""
    storages = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in model.resident()}
    return sum(storages.values())


def _summed(trace: Trace) -> tuple[int, int]:
    """The highest sum of the run's blocks, and the sum at its end."""
    alive = peak = 0
    for one in trace.allocations:
        if one.device == "cpu":
            alive += one.bytes
            peak = max(peak, alive)
    return peak, alive


def _counters(run: str, current: int, peak: int) -> Counters:
    return Counters(run, Level(current, peak), Level(current, peak))


# ----------------------------------------------------------------------------------------------------
# Recording a live module in this process.


def record_module(
    module: torch.nn.Module,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    output: Path,
    *,
    repeats: int = 20,
    warmup: int = 3,
) -> Recording:
    """Run a module as it is, on the device where its parameters are, and write a recording of it."""
    named = dict(keywords)
    leaves = [leaf for leaf in pytree.tree_leaves((tuple(arguments), named)) if isinstance(leaf, torch.Tensor)]
    inputs = tuple(Input(str(number), type_text(leaf.dtype, leaf.shape)) for number, leaf in enumerate(leaves))
    device = next((one.device for one in (*module.parameters(), *module.buffers(), *leaves)), torch.device("cpu"))
    options = Options(device=str(device), repeats=repeats, warmup=warmup)
    request = Request(ModelRecord(type(module).__name__, "module", "", "", inputs), options, str(output))
    model = of_module(module, tuple(arguments), named)
    sink = Sink(output)
    if device.type == "cuda":
        from irscope.measure.record.cudarun import begin_on_cuda, record_on_cuda

        begin_on_cuda(request, device, sink)
        record_on_cuda(model, request, device, sink)
    else:
        sink.begin(torch_header(request, processor(torch.get_num_threads()), OP_TIME))
        record_on_cpu(model, request, sink)
    sink.finish()
    return read_recording(output)
