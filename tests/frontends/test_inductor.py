"""Debug folders of Inductor and packages of AOTInductor: what they allocate is what a run of the same code allocated.

The samples under tests/data/inductor are what PyTorch 2.13 wrote: `output_code.py` with the graphs beside it under TORCH_COMPILE_DEBUG=1,
for CUDA over stand-ins of its libraries, and the code in packages of `aoti_compile_and_package`. `events.json` has the signed sizes that
the caching allocator noted when each wrapper's `call` ran with the arguments of its own `get_args`; of packages for a processor those
of PyTorch's profiler. The package for CUDA was not run: it is of the model of `mlp`, and must ask for the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from irscope.errors import IrscopeError, LoadError
from irscope.frontends.base import LoadOptions
from irscope.frontends.inductor.plan import loops_of
from irscope.ir.dtypes import DType
from irscope.ir.program import Program
from irscope.ir.types import tensor
from irscope.passes.memory.liveness import Liveness
from irscope.session import Model, open_model
from irscope.tools.card import card
from tests.frontends.inductor_layouts import ALLOCATED, LAYOUTS

DATA = Path(__file__).parent.parent / "data" / "inductor"
EVENTS: dict[str, list[int]] = json.loads((DATA / "events.json").read_text())
FOLDERS = ("mlp", "conv_forward", "conv_backward", "attention_forward", "attention_backward", "mlp_dynamic")


def events(program: Program) -> list[int]:
    """Signed sizes in the order of the wrapper."""
    watched = program.watched
    assert watched is not None
    found = []
    for value, life in watched.lives.items():
        size = life.size or value.type.nbytes or 0
        assert isinstance(size, int)
        found.append((life.born, 0, value.index, size))
        if life.died is not None:
            found.append((life.died, 1, life.rank, -size))
    return [item[3] for item in sorted(found) if item[3]]


def package(tmp_path: Path, *names: str, **models: str) -> Path:
    """A package with the code of a sample, without the library it was compiled to."""
    path = tmp_path / "model.pt2"
    given = models or {"model": names[0]}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/archive_format", "pt2")
        for model, name in given.items():
            for file in sorted((DATA / name).glob("*.cpp")):
                archive.writestr(f"model/data/aotinductor/{model}/{file.name}", file.read_text())
    return path


def opened(path: Path, **bind: int) -> Model:
    return open_model(path, LoadOptions(bind=bind))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_wrapper_allocates_what_its_run_allocated(name: str) -> None:
    model = opened(DATA / name / "output_code.py", **({"s77": 64} if name == "mlp_dynamic" else {}))
    wanted = list(EVENTS[name])
    for inside in (4096, 131072, -131072, -4096) if name == "attention_backward" else ():
        wanted.remove(inside)  # what the kernel of attention's backward takes for itself: the library's, not the wrapper's
    assert events(model.program) == wanted
    assert model.program.format == "inductor"
    assert not [diagnostic for diagnostic in model.diagnostics if diagnostic.code == "IRS129"]


@pytest.mark.parametrize(("name", "bind"), [("conv", {}), ("conv_dyn", {"s77": 4}), ("mlp_cuda", {})])
def test_a_package_allocates_what_its_run_allocated(tmp_path: Path, name: str, bind: dict[str, int]) -> None:
    model = opened(package(tmp_path, name), **bind)
    wanted = list(EVENTS["mlp" if name == "mlp_cuda" else name])
    for inside in () if name == "mlp_cuda" else (12336, 1728, -1728, -12336):
        wanted.remove(inside)  # what oneDNN takes within a convolution: the library's, not the wrapper's
    assert events(model.program) == wanted
    assert model.program.format == "aoti"
    assert not [diagnostic for diagnostic in model.diagnostics if diagnostic.code == "IRS129"]


def test_constants_of_a_package_have_their_names_roles_and_sizes(tmp_path: Path) -> None:
    program = opened(package(tmp_path, "conv")).program
    assert [(value.name, str(value.type)) for value in program.graph.weights][:3] == [
        ("c.weight", "f32[8,3,3,3]"),
        ("l.weight", "f32[32,2048]"),
        ("l.bias", "f32[32]"),
    ]
    assert sum(value.type.nbytes or 0 for value in program.parameters()) == sum(4 * count for count in (216, 65536, 32, 320, 10))


def test_kernels_have_their_operators_and_source_lines() -> None:
    graph = opened(DATA / "conv_forward" / "output_code.py").graph
    kernels = {node.source: node for node in graph if node.op == "compiled.kernel"}
    relu = kernels["triton_poi_fused_add_convolution_relu_threshold_backward_1"]
    assert relu.attrs["operators"] == ("convolution", "add", "relu", "threshold_backward")
    assert relu.loc is not None and relu.loc.file.endswith("mk_cuda.py")
    assert [node.op for node in graph if node.op.startswith(("nn.conv", "math.addmm"))] == ["nn.conv", "nn.conv", "math.addmm"]


@pytest.mark.parametrize("name", ALLOCATED)
def test_forms_of_other_versions_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "output_code.py"
    path.write_text(LAYOUTS[name])
    model = opened(path)
    assert events(model.program) == ALLOCATED[name]
    assert not [diagnostic for diagnostic in model.diagnostics if diagnostic.code == "IRS129"]


def test_streams_and_sizes_of_them(tmp_path: Path) -> None:
    path = tmp_path / "output_code.py"
    path.write_text(LAYOUTS["streams"])
    model = opened(path, s72=100)
    assert events(model.program) == [400]
    assert not [diagnostic for diagnostic in model.diagnostics if diagnostic.code == "IRS129"]


def test_branches_are_named_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "output_code.py"
    path.write_text(LAYOUTS["branches"])
    (told,) = [diagnostic for diagnostic in opened(path).diagnostics if diagnostic.code == "IRS129"]
    assert any("if arg0_1.item():" in one.message for one in told.others)


def test_kernels_move_what_inductor_counts() -> None:
    """The bytes are Inductor's own estimates for the same model, as a capture of the compiled module has them."""
    kernels = [node for node in opened(DATA / "mlp" / "output_code.py").graph if node.op == "compiled.kernel"]
    assert [node.attrs["bytes"] for node in kernels] == [133120, 528384, 199680, 528384, 263168]


def test_kernels_compute_what_their_source_says() -> None:
    kernels = [node.attrs for node in opened(DATA / "mlp" / "output_code.py").graph if node.op == "compiled.kernel"]
    # gelu(x + bias): sum, two products with constants, erf, sum, product for each of 64 x 1024 elements.
    assert (kernels[1]["elementwise"], kernels[1]["transcendental"], kernels[1]["reduction"]) == (5 * 65536, 65536, 0)
    # A layer norm over 64 rows of 256: mean and variance are two sums; the square root is taken once a row.
    assert (kernels[0]["transcendental"], kernels[0]["reduction"]) == (64, 2 * 64 * 256)


def test_a_softmax_in_one_block_is_counted() -> None:
    source = """
@triton.jit
def triton_(in_out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr):
    r0_numel = 300
    R0_BLOCK: tl.constexpr = 512
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_index < r0_numel
    r0_1 = r0_index
    x0 = xindex
    tmp0 = tl.load(in_out_ptr0 + (r0_1 + 300*x0), r0_mask & xmask, other=0.0)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp5 = tl.where(r0_mask & xmask, tmp1, float("-inf"))
    tmp6 = triton_helpers.max2(tmp5, 1)[:, None].to(tl.float32)
    tmp7 = tmp1 - tmp6
    tmp8 = libdevice.exp(tmp7)
    tmp11 = tl.where(r0_mask & xmask, tmp8, 0)
    tmp12 = tl.sum(tmp11, 1)[:, None]
    tmp15 = (tmp8 / tmp12)
    tl.store(in_out_ptr0 + (r0_1 + 300*x0), tmp15, r0_mask & xmask)
"""
    loops = loops_of(source, ["in_out_ptr0", "xnumel", "r0_numel"])
    assert loops is not None
    each = 10 * 300
    counts = {"matmul": 0, "elementwise": 2 * each, "transcendental": each, "reduction": 2 * each}
    assert loops.cost([tensor(DType.F32, (10, 300)), None, None], {1: 10, 2: 300}) == (4 * each, 4 * each, counts)


@pytest.mark.parametrize("name", FOLDERS)
def test_no_cost_of_a_triton_kernel_is_unknown(name: str) -> None:
    found = card(opened(DATA / name / "output_code.py", **({"s77": 64} if name == "mlp_dynamic" else {})))
    assert found.unknown.operators == ()


def test_a_package_for_cuda_costs_what_the_folder_does(tmp_path: Path) -> None:
    folder, packed = card(opened(DATA / "mlp" / "output_code.py")), card(opened(package(tmp_path, "mlp_cuda")))
    assert (packed.cost.flops, packed.cost.bytes) == (folder.cost.flops, folder.cost.bytes)


def test_kernels_of_unknown_cost_are_told_together(tmp_path: Path) -> None:
    found = card(opened(package(tmp_path, "conv")))
    (told,) = [diagnostic for diagnostic in found.diagnostics if diagnostic.code == "IRS401"]
    assert "4 generated kernels" in told.message and "cpp_fused_convolution_0, cpp_fused__native" in told.message


def test_code_for_a_processor_is_not_predicted_for_a_gpu(tmp_path: Path) -> None:
    found = card(opened(package(tmp_path, "conv")))
    assert (found.device.name, found.device.reason) == ("xeon-8480", "the default, as the code was compiled for a processor")
    named = card(opened(package(tmp_path, "conv")), device="h100")
    assert named.device.reason == "named by --device, but the code was compiled for a processor"
    assert card(opened(package(tmp_path, "mlp_cuda"))).device.name != "xeon-8480"


def test_kernels_that_change_inputs_are_not_dead_code() -> None:
    graph = opened(DATA / "conv_forward" / "output_code.py").graph
    counts = next(node for node in graph if node.source == "triton_poi_fused_add_copy__3")
    assert counts.attrs["inplace"] == 0


def test_sizes_stay_symbols_until_they_are_bound() -> None:
    program = opened(DATA / "mlp_dynamic" / "output_code.py").program
    assert list(program.symbols) == ["s77"]
    assert program.examples == {"s77": 64}
    assert program.watched is not None


def test_padded_strides_count_before_sizes_are_bound(tmp_path: Path) -> None:
    """A buffer with room between its rows takes its extent, as a formula too."""
    text = (DATA / "mlp_dynamic" / "output_code.py").read_text()
    path = tmp_path / "output_code.py"
    path.write_text(text.replace("buf3 = empty_strided_cuda((s77, 256), (256, 1)", "buf3 = empty_strided_cuda((s77, 256), (304, 1)", 1))
    footprint = opened(path).manager.get(Liveness()).footprint
    # 48 more floats between each two rows than the dense 7168*s77 + 2114600.
    assert footprint is not None and footprint.peak.value == "7360*s77 + 2114408"


def test_of_several_models_one_is_chosen(tmp_path: Path) -> None:
    path = package(tmp_path, first="conv", second="mlp_cuda")
    model = opened(path)
    assert [diagnostic.code for diagnostic in model.diagnostics if diagnostic.code == "IRS137"] == ["IRS137"]
    assert events(open_model(path, LoadOptions(method="second")).program) == EVENTS["mlp"]
    with pytest.raises(LoadError, match="no model 'third'"):
        open_model(path, LoadOptions(method="third"))


def test_a_line_that_is_not_understood_is_named_and_counted(tmp_path: Path) -> None:
    text = (DATA / "mlp" / "output_code.py").read_text()
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "buf5 = buf4; del buf4" in line)
    path = tmp_path / "output_code.py"
    path.write_text(text.replace("            buf5 = buf4; del buf4  # reuse\n", "            buf5 = conjure(buf4)\n", 1))
    model = opened(path)
    (told,) = [diagnostic for diagnostic in model.diagnostics if diagnostic.code == "IRS129"]
    assert f"line {line} (buf5 = conjure(buf4))" in told.message
    assert [node.attrs["line"] for node in model.graph if node.op == "inductor.unread"] == [line]


def mutated(kind: str) -> str:
    text = (DATA / "mlp" / "output_code.py").read_text()
    return {
        "syntax": text.replace("def call(self, args):", "def call(self, args:", 1),
        "no call": text.replace("def call(", "def other("),
        "no return": text.replace("return (buf15, )", "pass"),
        "brackets": text.replace("(64, 256)", "(" * 5000 + "64" + ")" * 5000, 1),
        "operators": text.replace("(64, 256)", "(" + "-" * 100_000 + "64, 256)", 1),
        "sums": text.replace("(64, 256)", "(" + "1+" * 100_000 + "64, 256)", 1),
        "sizes": text.replace("(64, 1024), (1024, 1)", "(9999999999999999999, 1024), (1024, 1)"),
        "products": text.replace("(64, 1024), (1024, 1)", "(9223372036854775807, 9223372036854775807), (1024, 1)"),
        "negative": text.replace("(64, 1024), (1024, 1)", "(-5, 1024), (1024, 1)"),
        "ranks": text.replace("(64, 1024), (1024, 1)", "(64, 1024), (1024, 1, 1)"),
        "cut": text[: len(text) // 2],
        "nul": text.replace("buf15", "buf\0"),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["syntax", "no call", "no return", "brackets", "operators", "sums", "sizes", "products", "negative", "ranks", "cut", "nul"]
)
def test_damaged_code_is_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "output_code.py"
    path.write_text(mutated(kind))
    with pytest.raises(IrscopeError) as caught:
        opened(path)
    assert caught.value.code in ("IRS128", "IRS103")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["cut", "encoding", "lines", "spaces"])
def test_damaged_packages_are_one_line(tmp_path: Path, kind: str) -> None:
    text = (DATA / "conv" / "model.wrapper.cpp").read_text()
    code = {
        "cut": text[: len(text) * 2 // 3].encode(),
        "encoding": text.encode() + b"\xff",
        "lines": text.replace(") {\n", ") {\n" + "    int64_t q = 1;\n" * 500_000, 1).encode(),
        "spaces": b" " * (65 << 20),
    }[kind]
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/archive_format", "pt2")
        archive.writestr("model/data/aotinductor/model/model.wrapper.cpp", code)
    with pytest.raises(IrscopeError) as caught:
        opened(path)
    assert "\n" not in str(caught.value)


def test_a_package_without_code_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/archive_format", "pt2")
        archive.writestr("model/data/aotinductor/model/abc.wrapper.so", b"\x7fELF")
    with pytest.raises(LoadError, match="no generated code"):
        opened(path)


def test_nothing_is_executed_and_torch_is_not_imported(tmp_path: Path) -> None:
    text = (DATA / "mlp" / "output_code.py").read_text()
    path = tmp_path / "output_code.py"
    path.write_text(text.replace("import tempfile\n", "import tempfile\nopen('ran', 'w')\n", 1))
    code = f"import sys, pathlib, irscope.session as s; s.open_model(pathlib.Path({str(path)!r})); print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert found.stdout.strip() == "False"
    assert not (tmp_path / "ran").exists()


def test_reading_is_linear(tmp_path: Path) -> None:
    """Twenty times the statements take no more than some thirty times as long."""
    import time

    def seconds(count: int) -> float:
        body = "\n".join(
            f"        buf{i + 1} = empty_strided_cuda((4, 4), (4, 1), torch.float32)\n        del buf{i}" for i in range(count)
        )
        path = tmp_path / f"{count}.py"
        path.write_text(
            "# AOT ID: ['0_inference']\ndef call(args):\n    x, = args\n    args.clear()\n"
            "    if_ = 1\n    with torch.cuda._DeviceGuard(0):\n        buf0 = empty_strided_cuda((4, 4), (4, 1), torch.float32)\n"
            f"{body}\n    return (buf{count}, )\n"
        )
        started = time.process_time()
        opened(path)
        return time.process_time() - started

    seconds(100)
    small, large = max(seconds(500), 0.02), seconds(10_000)
    assert large < 40 * small


def test_a_folder_whose_code_lies_elsewhere_is_refused(tmp_path: Path) -> None:
    """Links may lead elsewhere within the folder that was named."""
    run = tmp_path / "torchinductor" / "model__0_forward_1.0"
    run.mkdir(parents=True)
    (run / "output_code.py").symlink_to(DATA / "mlp" / "output_code.py")
    for folder in (run, tmp_path):
        with pytest.raises(LoadError, match=r"'.*output_code\.py' is outside the folder of the model") as caught:
            opened(folder)
        assert caught.value.code == "IRS100"
    (run / "output_code.py").unlink()
    (tmp_path / "kept.py").write_bytes((DATA / "mlp" / "output_code.py").read_bytes())
    (run / "output_code.py").symlink_to(tmp_path / "kept.py")
    assert opened(tmp_path).program.graph


def test_a_debug_folder_is_its_graph(tmp_path: Path) -> None:
    run = tmp_path / "torch_compile_debug" / "run_2026_01_01_00_00_00_000000-pid_1" / "torchinductor"
    for name in ("model__0_forward_1.0", "model__0_backward_3.1"):
        (run / name).mkdir(parents=True)
    text = (DATA / "conv_forward" / "output_code.py").read_text()
    (run / "model__0_forward_1.0" / "output_code.py").write_text(text)
    for folder in (run / "model__0_forward_1.0", run, run.parent, tmp_path / "torch_compile_debug", tmp_path):
        assert events(opened(folder).program) == EVENTS["conv_forward"]
    (run / "model__0_backward_3.1" / "output_code.py").write_text(text)
    with pytest.raises(LoadError, match="has 2 compiled graphs"):
        opened(tmp_path)
