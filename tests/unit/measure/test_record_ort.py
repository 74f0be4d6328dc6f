"""What ONNX Runtime ran, tied to the nodes of the file; providers that are missing are said to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ort = pytest.importorskip("onnxruntime")
pytestmark = [pytest.mark.ort]

from irscope.errors import UsageError  # noqa: E402  # only where onnxruntime is installed
from irscope.measure.record import ortrun  # noqa: E402
from irscope.measure.record.ortrun import CUDA  # noqa: E402
from irscope.measure.record.process import record_request  # noqa: E402
from irscope.measure.record.request import ORT, InputSpec, Options, Request  # noqa: E402
from irscope.measure.record.sink import Sink  # noqa: E402
from irscope.recording import DeviceRecord, ModelRecord, Recording, figures, peak_of, read_recording  # noqa: E402

MODELS = Path(__file__).parents[3] / "samples" / "models"
INPUTS = {
    "cnn": (InputSpec("image", "f32", (1, 3, 224, 224)),),
    "transformer": (InputSpec("tokens", "i64", (1, 8)),),
    "lstm": (InputSpec("x", "f32", (4, 1, 32)),),
    "control_flow": (InputSpec("flag", "bool", ()), InputSpec("x", "f32", (1, 8))),
}
OPTIONS = Options(ORT, repeats=3, warmup=2, threads=1)


def recorded(name: str, folder: Path, options: Options = OPTIONS) -> Recording:
    path, target = MODELS / f"{name}.onnx", folder / "r.jsonl"
    record_request(Request(ModelRecord(path.name, "onnx", str(path)), options, str(target), INPUTS[name]), Sink(target))
    return read_recording(target)


@pytest.mark.parametrize("name", sorted(INPUTS))
@pytest.mark.parametrize("optimise", [True, False])
def test_every_node_is_found_again(name: str, optimise: bool, tmp_path: Path) -> None:
    found = recorded(name, tmp_path, replace(OPTIONS, optimise=optimise))
    assert found.complete and not found.problems
    mapping = found.mapping
    assert mapping is not None and not mapping.unmapped
    named = [source for op in found.ops for source in op.sources]
    assert len(named) == len(set(named)) == mapping.mapped and mapping.mapped + len(mapping.folded) == mapping.nodes
    assert optimise or not mapping.folded
    assert all(op.time is not None and op.time.n == 3 for op in found.ops)


def test_memory_is_what_the_allocator_says_after_each_kernel(tmp_path: Path) -> None:
    found = recorded("cnn", tmp_path)
    for run in ("cold", "warm"):
        counters = found.counter(run)
        assert counters is not None and counters.requested is not None and counters.reserved is not None and counters.allocated is not None
        assert 0 < counters.requested.peak <= counters.allocated.peak <= counters.reserved.peak
        assert all(event.category == "net" and event.block is None for event in found.run(run))
    first = figures(found, "cold", "requested")
    assert first.delta == peak_of(found.run("cold")).bytes
    assert found.ops[0].place == "CPUExecutionProvider" and found.ops[0].outputs == ("f32[1,32,112,112]",)


def test_without_a_cuda_provider_that_is_the_answer(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no CUDA execution provider") as caught:
        recorded("cnn", tmp_path, replace(OPTIONS, device="cuda"))
    assert caught.value.code == "IRS479"


class _Pretends:
    """A session that says CUDA is first, while the processor does the work."""

    def __init__(self, session: Any, providers: list[str]) -> None:
        self.session = session
        self.providers = providers

    def get_providers(self) -> list[str]:
        return self.providers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


@pytest.mark.parametrize(("providers", "kinds"), [([CUDA, "CPUExecutionProvider"], []), (["CPUExecutionProvider"], ["cpu_fallback"])])
def test_a_silent_fall_back_is_said(providers: list[str], kinds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = ortrun.open_session

    def pretend(request: Request, *paths: Any) -> Any:
        session = opened(replace(request, options=replace(request.options, device="cpu")), *paths)
        session.session = _Pretends(session.session, providers)
        return session

    monkeypatch.setattr(ortrun, "open_session", pretend)
    monkeypatch.setattr(ortrun.ort, "get_available_providers", lambda: [CUDA])
    monkeypatch.setattr(ortrun, "_device", lambda request, session: DeviceRecord("cuda", "a GPU"))
    found = recorded("cnn", tmp_path, replace(OPTIONS, device="cuda"))
    assert [problem.kind for problem in found.problems] == kinds


def test_missing_device_times_and_operators_on_the_processor_are_said() -> None:
    from irscope.measure.record.ortrun import Kernel, Profile

    def kernel(op: str, provider: str) -> Kernel:
        return Kernel(op, op, provider, 0.0, 1.0, (), (), None)

    kernels = (kernel("MemcpyFromHost", CUDA), kernel("Conv", CUDA), kernel("Shape", "CPUExecutionProvider"))
    request = Request(ModelRecord("m", path=str(MODELS / "cnn.onnx")), replace(OPTIONS, device="cuda"), "r.jsonl")
    for timed, kinds in ((False, ["no_cupti", "cpu_fallback", "copies"]), (True, ["cpu_fallback", "copies"])):
        teller = ortrun._Teller(request, Sink(Path("r.jsonl")), Profile((kernels,), (), timed), None)
        problems = list(teller._problems(kernels))
        assert [problem.kind for problem in problems] == kinds
    assert "1 of 3 operators ran on the processor: Shape" in problems[0].text


def test_out_of_memory_names_the_node(tmp_path: Path) -> None:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save

    nodes = [helper.make_node("Relu", ["x"], ["r"], name="r"), helper.make_node("Expand", ["r", "s"], ["y"], name="big")]
    sizes = numpy_helper.from_array(np.array([1 << 26, 1 << 10, 16], np.int64), "s")
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [sizes],
    )
    path, target = tmp_path / "big.onnx", tmp_path / "r.jsonl"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    record_request(
        Request(ModelRecord("big.onnx", "onnx", str(path)), OPTIONS, str(target), (InputSpec("x", "f32", (1, 16)),)), Sink(target)
    )
    recording = read_recording(target)
    assert not recording.complete
    problem = recording.problems[-1]
    assert (problem.kind, problem.op_name, problem.requested) == ("out_of_memory", "Expand", 1 << 42)
    assert [(one.bytes, one.name) for one in problem.alive] == [(64, "Relu")]
