"""ONNX Runtime sessions, and graphs as nodes with names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from irscope.errors import PassError, UsageError
from irscope.runtime.record.failing import first_line
from irscope.runtime.record.ortmap import OnnxNode
from irscope.runtime.record.request import InputSpec, Request
from irscope.runtime.record.values import given_values

CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"
_DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "u64": np.uint64,
    "u32": np.uint32,
    "u16": np.uint16,
    "u8": np.uint8,
    "bool": np.bool_,
}


@dataclass(frozen=True, slots=True)
class Graph:
    """The main graph of a model."""

    nodes: tuple[OnnxNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass
class Session:
    """A session whose inputs and outputs stay on the device."""

    session: Any
    run: Callable[[], None]


def graph_of(path: Path) -> Graph:
    """The nodes of a file; weights beside it are not read."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    nodes = tuple(OnnxNode(node.op_type, node.name, tuple(node.input), tuple(node.output), node.domain) for node in graph.node)
    fed = tuple(value.name for value in graph.input if value.name not in weights)
    return Graph(nodes, fed, tuple(value.name for value in graph.output))


def open_session(request: Request, profile: Path | None = None, saved: Path | None = None) -> Session:
    """A session of the model, its inputs bound; a profile and the graph that runs are written where that is asked for."""
    options = _options(request, profile, saved)
    providers: list[Any] = [CPU]
    kind, _, number = request.options.device.partition(":")
    if kind == "cuda":
        providers = [(CUDA, {"device_id": int(number or 0)}), CPU]
    try:
        session = ort.InferenceSession(request.model.path, options, providers=providers)
    except Exception as error:
        raise PassError(f"ONNX Runtime does not load it: {first_line(error)}", code="IRS481", where=request.model.path) from error
    # Where CUDA could not be had, the session silently has none: then everything is bound to the processor.
    on_cuda = session.get_providers()[0] == CUDA
    place, index = ("cuda", int(number or 0)) if on_cuda else ("cpu", 0)
    return Session(session, _bound(session, request, place, index))


def _options(request: Request, profile: Path | None, saved: Path | None) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if request.options.optimise else level.ORT_DISABLE_ALL
    options.enable_mem_pattern = request.options.arena
    options.enable_cpu_mem_arena = request.options.arena
    # A session that knows the sizes plans its memory by them; with open ones it would reuse less.
    for symbol, size in request.model.bind.items():
        options.add_free_dimension_override_by_name(symbol, size)
    if request.options.threads:
        options.intra_op_num_threads = request.options.threads
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    if saved is not None:
        options.optimized_model_filepath = str(saved)
        # Weights of large models do not fit into the file itself.
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", saved.name + ".data")
        options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    return options


def _bound(session: Any, request: Request, place: str, index: int) -> Callable[[], None]:
    values = given_values(request.options.values, request.inputs)
    random = np.random.default_rng(request.options.seed)
    binding = session.io_binding()
    wanted = {spec.name: spec for spec in request.inputs}
    for one in session.get_inputs():
        spec = wanted.get(one.name)
        if spec is None:
            raise UsageError(
                f"input {one.name} has no sizes", code="IRS478", hint=f"say `--input {one.name}=f32[1,3,224,224]` with its sizes"
            )
        array = _array(spec, values, random)
        binding.bind_ortvalue_input(one.name, ort.OrtValue.ortvalue_from_numpy(array, place, index))
    for one in session.get_outputs():
        binding.bind_output(one.name, place, index)

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return run


def _array(spec: InputSpec, values: Mapping[str, Any], random: np.random.Generator) -> Any:
    kind = _DTYPES.get(spec.dtype)
    if kind is None:
        raise UsageError(f"input {spec.name} has element type {spec.dtype}, for which there are no random values", code="IRS478")
    if spec.name in values:
        return np.ascontiguousarray(values[spec.name], dtype=kind)
    if np.issubdtype(kind, np.floating):
        return random.standard_normal(spec.shape).astype(kind)
    # Ones are valid as token ids, as masks and as counts.
    return np.ones(spec.shape, kind)
