"""Sessions of ONNX Runtime's CUDA provider: where kernels run, copies, and the arena, held against recordings of onnxruntime-gpu 1.31.1."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import irscope
from irscope.frontends.onnx import load_model
from irscope.ir.program import Program
from irscope.passes.memory.liveness import Liveness
from irscope.passes.ort import OrtPlan
from irscope.passes.ort.memory import OrtMemory
from irscope.passkit.manager import Manager
from irscope.passkit.settings import Settings
from irscope.report.values import Provenance

ROOT = Path(__file__).parents[3]
RECORDED = json.loads(gzip.decompress((ROOT / "tests/data/ort/cuda.json.gz").read_bytes()))["models"]
GPU = Settings(device="h200")
MIB = 1 << 20


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), name=outputs.split()[0], **attributes)


def program(
    nodes: list[onnx.NodeProto],
    outputs: str,
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
    shape: tuple[int, ...] = (10, 100),
    dtype: int = TensorProto.FLOAT,
    opset: int = 17,
) -> Program:
    inputs = [helper.make_tensor_value_info("x", dtype, shape)]
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs.split()]
    arrays = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, results, arrays)
    return load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9))


def plan(made: Program, **options: Any) -> OrtPlan:
    return Manager(made, settings=GPU).get(OrtMemory(**options))


def kernels(ort_plan: OrtPlan) -> list[tuple[str, str]]:
    assert ort_plan.cuda is not None
    on_cpu = {id(launch) for launch in ort_plan.cuda.on_cpu}
    return [(launch.name, "cpu" if id(launch) in on_cpu else "gpu") for launch in ort_plan.order]


def fixed(name: str, sizes: dict[str, int], folder: Path) -> Path:
    """A model with its sizes in the file: a session knows more then than where they come with the inputs."""
    light = Path(onnx.__file__).parent / "backend/test/data/light" / name
    model = onnx.load(light if light.exists() else ROOT / "samples/models" / name)
    for info in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
            elif dim.HasField("dim_param"):
                dim.Clear()
    onnx.save(model, folder / name)
    return folder / name


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_kernels_and_requested_bytes_are_those_of_the_provider(name: str, tmp_path: Path) -> None:
    recorded = RECORDED[name]
    found = plan(irscope.load(fixed(name, recorded["sizes"], tmp_path)).program)
    assert kernels(found) == [(op, device) for op, device, _, _ in recorded["kernels"]]
    assert found.figures is not None
    for run, column in ((found.figures.cold, 2), (found.figures.warm, 3)):
        assert run.peak.requested == max(row[column] for row in recorded["kernels"] if row[1] == "gpu")


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_what_the_arena_holds_lies_in_the_interval(name: str, tmp_path: Path) -> None:
    recorded = RECORDED[name]
    found = plan(irscope.load(fixed(name, recorded["sizes"], tmp_path)).program)
    assert found.figures is not None
    assert found.cuda is not None
    for moment, held in zip(("cold", "warm"), recorded["held"], strict=True):
        low, high = found.cuda.counter(found.figures, moment, "reserved").ends
        assert low is not None
        assert low <= held
        assert high is None or held <= high


def test_arithmetic_of_shapes_goes_to_the_cpu_and_what_it_ends_in_stays_on_the_gpu() -> None:
    weights = {"zero": np.array(0), "last": np.array([-1])}
    nodes = [node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Unsqueeze", "n axes", "m")]
    nodes += [node("Concat", "m last", "t", axis=0), node("Reshape", "x t", "y")]
    found = plan(program(nodes, "y", weights | {"axes": np.array([0])}))
    assert kernels(found) == [("Shape", "gpu"), ("Gather", "cpu"), ("Unsqueeze", "cpu"), ("Concat", "cpu"), ("Reshape", "gpu")]
    assert found.cuda is not None
    assert found.cuda.weights == 0
    assert found.cuda.host_weights == 24


def test_half_precision_keeps_arithmetic_on_the_gpu() -> None:
    nodes = [node("Shape", "x", "s"), node("Cast", "s", "h", to=TensorProto.FLOAT16), node("Abs", "h", "a"), node("Mul", "a a", "y")]
    assert ("Abs", "gpu") in kernels(plan(program(nodes, "y")))


@pytest.mark.parametrize(
    ("op", "attributes", "opset", "device"),
    [
        ("MaxPool", {"kernel_shape": [2, 2]}, 17, "gpu"),
        ("MaxPool", {"kernel_shape": [2, 2]}, 22, "cpu"),  # its kernel is for version 12 alone
        ("Erf", {}, 17, "gpu"),
        ("Hardmax", {}, 17, "cpu"),
        ("ArgMax", {"axis": 1}, 17, "gpu"),
        ("ArgMax", {"axis": 1, "select_last_index": 1}, 17, "cpu"),
    ],
)
def test_kernels_are_looked_up_by_version_type_and_attributes(op: str, attributes: dict[str, Any], opset: int, device: str) -> None:
    found = plan(program([node("Abs", "x", "a"), node(op, "a", "y", **attributes)], "y", shape=(1, 2, 8, 8), opset=opset))
    assert dict(kernels(found))[op] == device


def test_what_one_device_makes_and_the_other_reads_is_copied() -> None:
    nodes = [node("Abs", "x", "a"), node("Hardmax", "a", "b"), node("Erf", "b", "y")]
    found = plan(program(nodes, "y"))
    assert [name for name, _ in kernels(found)] == ["Abs", "MemcpyToHost", "Hardmax", "MemcpyFromHost", "Erf"]
    assert found.cuda is not None
    assert found.cuda.copies == 2


def test_recurrent_weights_are_kept_a_second_time_as_cudnn_wants_them() -> None:
    weights = {name: np.ones(shape, np.float32) for name, shape in (("w", (1, 16, 8)), ("r", (1, 16, 4)), ("b", (1, 32)))}
    found = plan(program([node("LSTM", "x w r b", "y", hidden_size=4)], "y", weights, shape=(3, 2, 8)))
    assert found.figures is not None
    assert found.figures.before.requested == 2 * 4 * (16 * 8 + 16 * 4 + 32)


def test_options_of_the_provider_change_the_arena() -> None:
    weights = {"w": np.ones((1000, 1000), np.float32)}
    made = program([node("MatMul", "x w", "a"), node("Erf", "a", "y")], "y", weights, shape=(10, 1000))
    usual = plan(made)
    assert usual.figures is not None
    assert usual.figures.before.reserved == 4 * MIB
    outside = plan(made, weights="outside").figures
    assert outside is not None
    assert outside.before.reserved == 4_000_000
    large = plan(made, first_chunk=64 * MIB).figures
    assert large is not None
    assert large.cold.peak.reserved == 64 * MIB
    exact = plan(made, extension="same_as_requested").figures
    assert exact is not None
    assert exact.before.reserved == 4_000_000 - 4_000_000 % -256
    tight = plan(made, limit=2 * MIB)
    assert tight.cuda is not None
    assert tight.cuda.shortage
    assert tight.figures is not None
    assert tight.cuda.fits(tight.figures).value is False
    assert usual.cuda is not None
    assert usual.cuda.fits(usual.figures).value is True


def test_shrinking_gives_regions_back_after_each_run() -> None:
    nodes = [node("Abs", "x", "a"), node("Exp", "a", "b"), node("Erf", "b", "y")]
    made = program(nodes, "y", shape=(1000, 1000))
    kept, shrunk = plan(made).figures, plan(made, shrink=True).figures
    assert kept is not None
    assert shrunk is not None
    assert shrunk.warm.peak.reserved != kept.warm.peak.reserved


def test_convolutions_have_an_interval_for_their_workspace_and_the_requested_bytes_none() -> None:
    weights = {"w": np.ones((8, 3, 3, 3), np.float32)}
    found = plan(program([node("Conv", "x w", "y")], "y", weights, shape=(1, 3, 64, 64)))
    assert found.cuda is not None
    assert found.figures is not None
    assert found.cuda.counter(found.figures, "cold", "requested").provenance is Provenance.EXACT
    assert found.cuda.scratch.provenance is Provenance.MODELLED
    assert found.cuda.scratch.interval is not None


def test_kernels_whose_scratch_is_not_known_leave_the_upper_end_open() -> None:
    found = plan(program([node("ReduceMean", "x", "y", axes=[1])], "y"))
    assert found.cuda is not None
    assert found.figures is not None
    allocated = found.cuda.counter(found.figures, "cold", "allocated")
    assert allocated.ends[1] is None
    assert "ReduceMean" in allocated.note


def test_the_peak_of_liveness_is_that_of_the_arena_and_its_parts_add_up() -> None:
    weights = {"w": np.ones((100, 100), np.float32)}
    manager = Manager(program([node("MatMul", "x w", "a"), node("Erf", "a", "y")], "y", weights), settings=GPU)
    timeline, figures = manager.get(Liveness()), manager.get(OrtMemory()).figures
    assert figures is not None
    footprint = timeline.footprint
    assert footprint is not None
    assert footprint.peak.value == max(figures.cold.peak.allocated, figures.warm.peak.allocated)
    assert sum(row.size for row in footprint.living(footprint.peak_step)) == footprint.peak.value
    assert Liveness().report(timeline, manager).summary["fits"].value is True


def test_on_a_gpu_of_another_maker_the_plan_is_known_and_the_counters_are_not() -> None:
    manager = Manager(program([node("Abs", "x", "y")], "y"), settings=Settings(device="mi300x"))
    found = manager.get(OrtMemory())
    assert found.device == "mi300x"
    assert not found.is_known
    assert OrtMemory().report(found, manager).summary["cold"]["requested"].value is None
    assert "not what kernels of this device take" in OrtMemory().report(found, manager).notes[-1]


def test_a_model_without_kernels_on_the_gpu_is_planned_for_the_cpu() -> None:
    manager = Manager(program([node("Hardmax", "x", "y")], "y"), settings=GPU)
    found = manager.get(OrtMemory())
    assert found.cuda is None
    assert found.on_cpu
    assert found.stays
    assert "runs on the CPU" in " ".join(OrtMemory().report(found, manager).notes)


def test_the_largest_batch_is_the_one_whose_arena_fits(tmp_path: Path) -> None:
    model = irscope.load(ROOT / "samples/models/cnn.onnx")
    found = irscope.fit(model, free="batch", memory="1GiB", device="l4")
    assert found.counter == "allocated"
    assert found.largest is not None
    assert found.surely is not None
    assert found.surely <= found.largest
    for size, fits in ((found.largest, True), (found.largest + 1, False)):
        bound = irscope.load(ROOT / "samples/models/cnn.onnx", bind={"batch": size})
        session = Manager(bound.program, settings=Settings(device="l4")).get(OrtMemory(limit=1 << 30)).cuda
        assert session is not None
        assert bool(session.shortage) is not fits
    on_cpu = irscope.fit(model, free="batch", memory="1GiB", device="epyc-7763")
    assert on_cpu.counter == "requested"


def test_a_block_that_finds_no_room_is_done_without() -> None:
    nodes = [node("Abs", "x", "a"), node("Exp", "a", "b"), node("Erf", "b", "c"), node("Add", "c b", "y")]
    made = program(nodes, "y", shape=(512, 1024))
    for limit, block in ((10 * MIB, 0), (12 * MIB, 4 * MIB)):
        found = plan(made, limit=limit, extension="same_as_requested")
        assert found.cuda is not None
        assert found.figures is not None
        assert not found.cuda.shortage
        assert found.figures.pattern == block
        assert found.figures.warm.peak.reserved == 8 * MIB + block
