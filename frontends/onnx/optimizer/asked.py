"""Asks an installed ONNX Runtime for the graph that a session has after its optimisations, in a process of its own: the session is created
and never run. Values of weights are not taken from what it saves: the file's own are those of the file, others stay unread."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Final

import onnx

from irscope import processes
from irscope.errors import LoadError, UsageError
from irscope.frontends.onnx.reader import ModelFile
from irscope.frontends.onnx.tensors import is_literal
from irscope.frontends.onnx.types import DTYPES, packed_size

CODE: Final = "IRS176"
_SECONDS: Final = 300
_MEMORY: Final = 32 << 30
"""Bytes of address space; of the session, whose weights are read by ONNX Runtime."""
_SMALL: Final = 1024
"""Weights of fewer bytes stay in the saved file, where their values are needed for shapes."""
_LEVELS: Final = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL"}
_SCRIPT: Final = """
import json, sys
model, target, level, seconds, memory, small = sys.argv[1:]
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError, OSError):
    pass
import onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
options.intra_op_num_threads = 1
options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
options.optimized_model_filepath = target
options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", small)
try:
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
except Exception as error:
    print(json.dumps({"error": str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}))
else:
    print(json.dumps({"version": onnxruntime.__version__}))
"""


def ask(file: ModelFile, level: str) -> tuple[ModelFile, str]:
    """The file as the installed ONNX Runtime has it at this level, and its version. LoadError where it refuses the model."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise UsageError(
            "--use-ort asks ONNX Runtime, which is not installed",
            code=CODE,
            hint="install onnxruntime, or leave --use-ort out for a prediction",
        )
    if file.path is None:
        raise UsageError("ONNX Runtime can be asked about files only", code=CODE)
    if level == "off":
        raise UsageError("--use-ort asks for optimisations, and the level is off", code=CODE, hint="add `--ort-level all`")
    with tempfile.TemporaryDirectory(prefix="irscope-ort-") as folder:
        target = Path(folder) / "optimised.onnx"
        limits = (str(_SECONDS), str(_MEMORY), str(_SMALL))
        command = processes.python(["-c", _SCRIPT, str(file.path.absolute()), str(target), _LEVELS[level], *limits])
        try:
            done = processes.run(command, seconds=_SECONDS, folder=folder)
        except processes.Late:
            raise _refused(file, f"it took more than {_SECONDS} s") from None
        answer = _answer(done.text)
        if "version" not in answer or not target.is_file():
            raise _refused(file, answer.get("error") or f"its process {done.how}")
        saved = onnx.load(str(target), load_external_data=False)
    return _with_own_weights(file, saved), answer["version"]


def _answer(text: str) -> dict[str, str]:
    for line in reversed(text.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return {str(key): str(value) for key, value in found.items()}
    return {}


def _refused(file: ModelFile, why: str) -> LoadError:
    return LoadError(
        f"ONNX Runtime makes no session of it: {why[:300]}", code=CODE, where=file.where, hint="leave --use-ort out for a prediction"
    )


def _with_own_weights(file: ModelFile, saved: onnx.ModelProto) -> ModelFile:
    """Return what was saved, each weight that the file has under the same name and of the same type as it is there."""
    derived: set[str] = set()
    _replace_weights(file.proto.graph, saved.graph, derived)
    return ModelFile(saved, file.path, file.stored, frozenset(derived))


def _replace_weights(own: onnx.GraphProto, saved: onnx.GraphProto, derived: set[str]) -> None:
    known = {tensor.name: tensor for tensor in own.initializer}
    for node in own.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                known[node.output[0]] = attribute.t
    for tensor in saved.initializer:
        original = known.get(tensor.name)
        if original is not None and original.data_type == tensor.data_type and list(original.dims) == list(tensor.dims):
            name = tensor.name
            tensor.CopyFrom(original)
            tensor.name = name
        elif tensor.data_location == onnx.TensorProto.EXTERNAL or not _is_read(tensor):
            del tensor.external_data[:]
            tensor.data_location = onnx.TensorProto.DEFAULT
            derived.add(tensor.name)
    bodies = {
        (node.name, node.op_type, attribute.name): attribute.g
        for node in own.node
        for attribute in node.attribute
        if attribute.HasField("g")
    }
    for node in saved.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _replace_weights(bodies.get((node.name, node.op_type, attribute.name), onnx.GraphProto()), attribute.g, derived)


def _is_read(tensor: onnx.TensorProto) -> bool:
    """Return whether the values of a weight that was made are worth keeping: shapes may depend on them."""
    dtype, count = DTYPES[tensor.data_type], 1
    for size in tensor.dims:
        count *= size
    length = packed_size(count, dtype)
    return is_literal(dtype, count) or (length is not None and length <= _SMALL)
