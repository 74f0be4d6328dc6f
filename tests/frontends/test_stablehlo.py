"""StableHLO: text as JAX prints it and as anybody may write it, against what XLA's compiler says of the same programs."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import irscope
from irscope.budget import Allowance, reading
from irscope.diagnostics import DiagnosticSink
from irscope.errors import IrscopeError, LoadError
from irscope.frontends.stablehlo import build, read_module
from irscope.frontends.stablehlo.model import type_of
from irscope.frontends.stablehlo.text import parse
from irscope.ir.types import TensorType
from irscope.passes.lifetimes.packed import FusedPlan
from irscope.passes.memory.points import find_symbol
from irscope.report.values import Provenance
from irscope.session import Model
from tests.tables import every
from tests.tools.oracle.jax_truth import compared

DATA = Path(__file__).parents[1] / "data" / "jax"
TRUTH = {row["name"]: row for row in map(json.loads, (DATA / "truth.jsonl").read_text().splitlines())}
DTYPES = {"float32": "f32", "int32": "i32", "bfloat16": "bf16", "bool": "bool", "int8": "i8"}
ONE_DEVICE = [name for name, row in TRUTH.items() if row["devices"] == 1]


def opened(text: str, tmp_path: Path, **options: object) -> Model:
    path = tmp_path / "program.mlir"
    path.write_text(text)
    return irscope.load(path, **options)


def main(body: str, arguments: str = "%x: tensor<4x8xf32>", results: str = "tensor<4x8xf32>") -> str:
    return f"module @m {{\n  func.func public @main({arguments}) -> ({results}) {{\n{body}\n  }}\n}}\n"


def types_of(values: object) -> list[list[object]]:
    return [[value.type.dtype.text, list(value.type.shape)] for value in values]  # type: ignore[attr-defined]


def bytes_of(values: object) -> int:
    return sum(value.type.tensor_bytes for value in values)  # type: ignore[attr-defined]


@every("name", TRUTH)
def test_arguments_and_results_are_those_of_the_program(name: str) -> None:
    row, model = TRUTH[name], irscope.load(DATA / f"{name}.mlir.gz")
    graph = model.program.graph
    assert model.program.format == "stablehlo"
    assert types_of(graph.inputs) == [[DTYPES[dtype], shape] for dtype, shape in row["inputs"]]
    assert types_of(graph.outputs) == [[DTYPES[dtype], shape] for dtype, shape in row["outputs"]]
    if name in ONE_DEVICE:
        assert bytes_of(graph.inputs) == row["argument_bytes"]
        pointers = 8 * len(graph.outputs) if len(graph.outputs) > 1 else 0
        assert bytes_of(graph.outputs) + pointers == row["output_bytes"]


# Those whose fused code computes nothing twice, which have no loop, no padded convolution and no exponential that is counted apart.
SAME_FLOPS = {
    "mlp_forward": 0,
    "mlp_dynamic_batch": 0,
    "int8_dot": 0,
    "einsum_moe": 1e-3,
    "mlp_grad": 1e-3,
    "mlp_sgd": 1e-3,
    "gpt_forward": 1e-3,
}


@pytest.mark.parametrize("name", SAME_FLOPS)
def test_flops_are_those_that_the_compiler_counts(name: str) -> None:
    model = irscope.load(DATA / f"{name}.mlir.gz")
    found = irscope.run(model, "flops")["flops"].report().summary["total_flops"]
    assert found == pytest.approx(TRUTH[name]["flops"], rel=SAME_FLOPS[name], abs=0)


@pytest.mark.parametrize("name", [name for name, row in TRUTH.items() if row["flops"] > 0])
def test_work_is_counted_as_the_compiler_does(name: str) -> None:
    """Of all programs but the one where XLA calls a library, of which it does not know the work."""
    summary = irscope.run(irscope.load(DATA / f"{name}.mlir.gz"), "xla-memory")["xla-memory"].report().summary
    assert summary["cost_analysis_flops"].provenance is Provenance.MODELLED
    assert summary["cost_analysis_flops"].value == pytest.approx(TRUTH[name]["flops"], rel=6e-3)
    assert summary["cost_analysis_transcendentals"].value == (TRUTH[name]["transcendentals"] or 0)


SCALAR = (
    "%c = stablehlo.constant dense<{}> : tensor<f32>\n%s = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> tensor<4x8xf32>\n"
)
COUNTED = {
    "a neutral constant is no work": (SCALAR.format("1.0") + "%0 = stablehlo.multiply %s, %x : tensor<4x8xf32>", 0, 0),
    "another constant is": (SCALAR.format("2.0") + "%0 = stablehlo.multiply %s, %x : tensor<4x8xf32>", 32, 0),
    "nothing less a number is work": (SCALAR.format("0.0") + "%0 = stablehlo.subtract %s, %x : tensor<4x8xf32>", 32, 0),
    "equal operators are there once": (
        "%a = stablehlo.exponential %x : tensor<4x8xf32>\n%b = stablehlo.exponential %x : tensor<4x8xf32>\n"
        "%0 = stablehlo.multiply %a, %b : tensor<4x8xf32>",
        32,
        32,
    ),
    "what differs is there twice": (
        "%a = stablehlo.exponential %x : tensor<4x8xf32>\n%b = stablehlo.exponential %a : tensor<4x8xf32>\n"
        "%0 = stablehlo.multiply %a, %b : tensor<4x8xf32>",
        32,
        64,
    ),
    "a conversion counts its elements": (
        "%a = stablehlo.convert %x : (tensor<4x8xf32>) -> tensor<4x8xi32>\n"
        "%0 = stablehlo.convert %a : (tensor<4x8xi32>) -> tensor<4x8xf32>",
        64,
        0,
    ),
    "narrow floats are computed with in f32": (
        "%a = stablehlo.convert %x : (tensor<4x8xf32>) -> tensor<4x8xbf16>\n%b = stablehlo.multiply %a, %a : tensor<4x8xbf16>\n"
        "%0 = stablehlo.convert %b : (tensor<4x8xbf16>) -> tensor<4x8xf32>",
        5 * 32,
        0,
    ),
    # cost_analysis() of jax.jit of `(x * 2) * 3`, `(broadcast_to(x[0], (4, 8)) + 2) * x` and `x * (x > x * x)` says 32, 8 + 32 and 3 * 32.
    "two constants are one": (
        SCALAR.format("2.0") + "%a = stablehlo.multiply %s, %x : tensor<4x8xf32>\n%0 = stablehlo.multiply %a, %s : tensor<4x8xf32>",
        32,
        0,
    ),
    "what is repeated is computed before": (
        SCALAR.format("2.0") + "%r = stablehlo.slice %x [0:1, 0:8] : (tensor<4x8xf32>) -> tensor<1x8xf32>\n"
        "%b = stablehlo.broadcast_in_dim %r, dims = [0, 1] : (tensor<1x8xf32>) -> tensor<4x8xf32>\n"
        "%a = stablehlo.add %b, %s : tensor<4x8xf32>\n%0 = stablehlo.multiply %a, %x : tensor<4x8xf32>",
        40,
        0,
    ),
    "a truth value that is multiplied is a choice": (
        "%a = stablehlo.multiply %x, %x : tensor<4x8xf32>\n%p = stablehlo.compare GT, %x, %a : (tensor<4x8xf32>, tensor<4x8xf32>) -> "
        "tensor<4x8xi1>\n%m = stablehlo.convert %p : (tensor<4x8xi1>) -> tensor<4x8xf32>\n%0 = stablehlo.multiply %m, %x : tensor<4x8xf32>",
        96,
        0,
    ),
    # Eight for each element of the operand and power of two of the length (HandleFft): 8 * 3 * 32, then 8 * 3 * 20.
    "a Fourier transform counts its operand": (
        "%a = stablehlo.fft %x, type = RFFT, length = [8] : (tensor<4x8xf32>) -> tensor<4x5xcomplex<f32>>\n"
        "%0 = stablehlo.fft %a, type = IRFFT, length = [8] : (tensor<4x5xcomplex<f32>>) -> tensor<4x8xf32>",
        768 + 480,
        0,
    ),
    # cost_analysis() of jax.jit(lax.erf_inv) is 37 FLOPs and 2 functions for each element.
    "a function that is expanded": ("%0 = chlo.erf_inv %x : tensor<4x8xf32> -> tensor<4x8xf32>", 37 * 32, 2 * 32),
    "a call of LAPACK is counted as -1": (
        "%a = stablehlo.custom_call @lapack_spotrf_ffi(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>\n"
        "%0 = stablehlo.multiply %a, %a : tensor<4x8xf32>",
        32 - 1,
        0,
    ),
    "a product that adds nothing up multiplies": (
        "%r = stablehlo.slice %x [0:4, 0:1] : (tensor<4x8xf32>) -> tensor<4x1xf32>\n"
        "%l = stablehlo.slice %x [0:1, 0:8] : (tensor<4x8xf32>) -> tensor<1x8xf32>\n"
        "%0 = stablehlo.dot_general %r, %l, contracting_dims = [1] x [0] : (tensor<4x1xf32>, tensor<1x8xf32>) -> tensor<4x8xf32>",
        32,
        0,
    ),
}


@pytest.mark.parametrize("what", COUNTED)
def test_work_of_small_programs(what: str, tmp_path: Path) -> None:
    body, flops, functions = COUNTED[what]
    summary = irscope.run(opened(main(f"{body}\nreturn %0 : tensor<4x8xf32>"), tmp_path), "xla-memory")["xla-memory"].report().summary
    assert (summary["cost_analysis_flops"].value, summary["cost_analysis_transcendentals"].value) == (flops, functions)


@pytest.mark.parametrize("name", ["gpt_scan", "gpt_scan_grad"])
def test_a_loop_counts_as_often_as_it_runs(name: str) -> None:
    """XLA counts its body once; six layers are run."""
    model = irscope.load(DATA / f"{name}.mlir.gz")
    loops = [node for node in model.graph if node.op == "cf.loop"]
    results = irscope.run(model, "shapes")["shapes"].value
    assert [results.trips[node] for node in loops] == [6] * len(loops)
    assert len(loops) == (1 if name == "gpt_scan" else 2)


def test_types_that_are_inferred_are_those_of_the_file() -> None:
    """Every record of an operator gives the type that the file declares, over all programs."""
    for name in TRUTH:
        model = irscope.load(DATA / f"{name}.mlir.gz")
        declared = parse(gzip.decompress((DATA / f"{name}.mlir.gz").read_bytes()).decode()).functions["main"]
        assert all(isinstance(value.type, TensorType) and value.type.is_static for node in model.graph for value in node.outputs)
        assert [value.type for value in model.graph.outputs] == [type_of(text) for text in declared.result_types]


def planned(name: str) -> FusedPlan:
    return irscope.run(irscope.load(DATA / f"{name}.mlir.gz"), "xla-memory")["xla-memory"].value  # type: ignore[no-any-return]


@every("name", TRUTH)
def test_sums_of_memory_are_those_of_the_compiler(name: str) -> None:
    row, plan = TRUTH[name], planned(name)
    assert (plan.arguments, plan.outputs, plan.aliased) == (row["argument_bytes"], row["output_bytes"], row["alias_bytes"])
    assert plan.high is not None
    assert plan.low <= row["temp_bytes"] <= plan.high


def test_temporaries_are_near_those_of_the_compiler() -> None:
    """Within a tenth for most programs; the rest are fused otherwise than by simple rules."""
    near = [name for name in ONE_DEVICE if abs(planned(name).temporary - TRUTH[name]["temp_bytes"]) <= 0.1 * TRUTH[name]["temp_bytes"]]
    assert len(near) >= 0.7 * len(ONE_DEVICE), sorted(set(ONE_DEVICE) - set(near))


# Programs of each folder, those whose temporaries are within a tenth, and whose FLOPs are within a hundredth, as docs/frontends.md says.
FURTHER = {"more": (43, 37, 40), "fresh": (26, 20, 23), "newest": (26, 22, 25), "again": (29, 27, 29), "kinds": (50, 45, 47)}
FURTHER |= {"varied": (26, 21, 25), "sharded": (18, 13, 16)}


@pytest.mark.slow
@pytest.mark.parametrize("folder", FURTHER)
def test_further_programs_are_inside_the_interval_and_most_are_near(folder: str) -> None:
    """Sums are exact on all; how many were near before any rule was changed for them, says the README of the folder."""
    rows = list(compared(DATA / folder))
    assert [row["name"] for row in rows if not (row["is_exact"] and row["is_inside"])] == []
    near, counted = (sum(bool(row[part]) for row in rows) for part in ("is_near", "is_counted"))
    assert len(rows) == FURTHER[folder][0]
    assert near >= FURTHER[folder][1]
    assert counted >= FURTHER[folder][2]


# Kernels of the library, constants that several kernels share, random bits in a loop, gaps (flax_forward), donated memory that is written
# over and used before (mlp_sgd), batched products that add nothing up (vmap_grads); in `again` a scatter onto what it is added to, sums of
# another order (eqx_mixer), products of two negated factors (vae_adam), and tables of what loops carry (power_iteration).
SAME_TEMPORARIES = {
    "": ("mlp_sgd", "vmap_grads"),
    "more": ("vit_forward", "resnet_forward", "flax_forward", "flax_cnn", "random", "dropout", "fori"),
    "newest": ("eqx_conv_grad", "graph_grad"),
    "again": ("eqx_mixer", "vae_adam", "moe_dense_grad"),
    "kinds": ("linear_attention", "gqa", "mixer_adam", "ssd_grad", "switch_moe_grad"),
    "sharded": ("dp_step", "fsdp_mlp", "dptp_step", "scan_tp", "conv_dp_grad", "out_sharded"),
}
# Parts that several kernels compute (scans in a tree), factors that are moved to what is smaller, and gradients of convolutions by channel.
COMPILED_FLOPS = {
    "more": ("assoc_scan", "unet_grad", "mamba_grad"),
    "fresh": ("mamba_associative", "mixer_forward", "lstm_scan_grad"),
    "newest": ("eqx_gru_grad", "wave_grad"),
    "again": ("mamba_scan", "mamba_scan_grad", "moe_dense_grad"),
    "kinds": ("gnn", "cae_grad", "neural_ode_adjoint", "lstm_grad"),
}


@every("folder", SAME_TEMPORARIES)
def test_programs_whose_temporaries_are_those_of_the_compiler(folder: str) -> None:
    rows = {row["name"]: row for row in map(json.loads, (DATA / folder / "truth.jsonl").read_text().splitlines())}
    for name in SAME_TEMPORARIES[folder]:
        plan = irscope.run(irscope.load(DATA / folder / f"{name}.mlir.gz"), "xla-memory")["xla-memory"].value
        assert plan.temporary == pytest.approx(rows[name]["temp_bytes"], rel=2e-3), name


@every("folder", COMPILED_FLOPS)
def test_programs_whose_flops_are_those_of_the_compiler(folder: str) -> None:
    rows = {row["name"]: row for row in map(json.loads, (DATA / folder / "truth.jsonl").read_text().splitlines())}
    for name in COMPILED_FLOPS[folder]:
        summary = irscope.run(irscope.load(DATA / folder / f"{name}.mlir.gz"), "xla-memory")["xla-memory"].report().summary
        assert summary["cost_analysis_flops"].value == pytest.approx(rows[name]["flops"], rel=3e-5), name


LONG = "%z = stablehlo.sine %x : {w}\n%c = stablehlo.concatenate %z, %x, dim = 1 : ({w}, {w}) -> {t}\n%0 = stablehlo.negate %c : {t}\n"


@every("columns", [32, 64])
def test_a_long_row_is_joined_by_itself(columns: int, tmp_path: Path) -> None:
    """A concatenation of 128 elements along the last axis is a kernel of its own, and so is what it joins."""
    wide, joined = f"tensor<8x{columns}xf32>", f"tensor<8x{2 * columns}xf32>"
    body = LONG.format(w=wide, t=joined) + f"return %0 : {joined}"
    plan = irscope.run(opened(main(body, f"%x: {wide}", joined), tmp_path), "xla-memory")["xla-memory"].value
    stored = sorted(storage.size for storage in plan.storages if not storage.is_output)
    assert stored == ([8 * columns * 4] if columns == 64 else [])


def test_a_program_without_symbols_says_how_jax_exports_one() -> None:
    with pytest.raises(IrscopeError, match="no symbol 'batch'") as caught:
        find_symbol(irscope.load(DATA / "mlp_forward.mlir.gz").program, "batch")
    assert "symbolic_shape" in (caught.value.hint or "")


DUMP = DATA / "dump" / "retention.cpu_after_optimizations-buffer-assignment.txt"


def test_what_the_compiler_assigned_is_exact(tmp_path: Path) -> None:
    row = next(row for row in map(json.loads, (DATA / "newest" / "truth.jsonl").read_text().splitlines()) if row["name"] == "retention")
    results = irscope.run(irscope.load(DUMP), "xla-memory,liveness")
    assert results["liveness"].value.activation_peak_bytes == pytest.approx(row["temp_bytes"] + row["output_bytes"], rel=1e-3)
    summary = results["xla-memory"].report().summary
    sums = ("argument_bytes", "output_bytes", "alias_bytes")
    assert [summary[part] for part in sums] == [row[part] for part in sums]
    assert (summary["temp_bytes"].value, summary["temp_bytes"].provenance) == (row["temp_bytes"], Provenance.EXACT)
    alone = tmp_path / DUMP.name
    alone.write_bytes(DUMP.read_bytes())
    with pytest.raises(LoadError, match=r"cannot read retention.*-live-range.txt, which belongs to it"):
        irscope.load(alone)


def test_an_account_of_buffers_that_is_changed_is_one_line_or_a_program(tmp_path: Path) -> None:
    rng = random.Random(1)
    for _ in range(40):
        for path in DUMP.parent.iterdir():
            data = bytearray(path.read_bytes())
            for _ in range(rng.randrange(1, 40)):
                data[rng.randrange(17, len(data))] = rng.choice(b"0123456789{}()-:, \n")
            (tmp_path / path.name).write_bytes(data[: rng.randrange(17, len(data))])
        with contextlib.suppress(LoadError):
            irscope.run(irscope.load(tmp_path / DUMP.name), "xla-memory")


WIDE = "tensor<64x128xf32>"
LIBRARY = {
    "a sum takes in what it alone reads": ("%a = stablehlo.multiply %x, %x : {w}\n%b = stablehlo.exponential %a : {w}\n", "%b", 0),
    "an operand that something else reads is stored": (
        "%b = stablehlo.multiply %x, %x : {w}\n%c = stablehlo.sine %b : {w}\n",
        "%b",
        64 * 128 * 4,
    ),
    "a choice is not the library's": (
        "%a = stablehlo.compare GT, %x, %x : ({w}, {w}) -> tensor<64x128xi1>\n%b = stablehlo.select %a, %x, %x : tensor<64x128xi1>, {w}\n",
        "%b",
        64 * 128 * 4,
    ),
}


@pytest.mark.parametrize("what", LIBRARY)
def test_what_the_library_of_the_compiler_takes_in(what: str, tmp_path: Path) -> None:
    """A sum of 8192 elements is a kernel of YNNPACK, which has no choices, and reads what it does not take in from memory."""
    body, summed, stored = LIBRARY[what]
    also = "%c" if "%c" in body else "%x"
    text = (
        f"func.func public @main(%x: {WIDE}) -> (tensor<64xf32>, {WIDE}) {{\n{body.format(w=WIDE)}"
        "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
        f"%0 = stablehlo.reduce({summed} init: %z) applies stablehlo.add across dimensions = [1] : "
        f"({WIDE}, tensor<f32>) -> tensor<64xf32>\n"
        f"return %0, {also} : tensor<64xf32>, {WIDE}\n}}"
    )
    plan = irscope.run(opened(text, tmp_path), "xla-memory")["xla-memory"].value
    assert sum(storage.size for storage in plan.storages if storage.size == 64 * 128 * 4 and not storage.is_output) == stored


@every("suffix", [".mlir.gz", ".generic.mlir.gz", ".jaxexport"])
def test_a_sharded_program_has_the_memory_of_one_device(suffix: str) -> None:
    """w1 is cut by columns in 2, w2 by rows in 2, x by rows in 4: the second product leaves partial sums on 2 devices."""
    plan = irscope.run(irscope.load(DATA / f"sharded_mlp{suffix}"), "xla-memory")["xla-memory"].value
    assert plan.temporary == TRUTH["sharded_mlp"]["temp_bytes"] == 128 * 512 * 4 + 128 * 256 * 4
    assert [(one.kind, one.nbytes, one.devices) for one in plan.exchanges] == [("all-reduce", 128 * 256 * 4, 2)]
    assert plan.devices == 8


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ('sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"model"}]>', 8),
        ('mhlo.sharding = "{devices=[4,2]<=[8]}"', 8),
        ('mhlo.sharding = "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"', 4),
        ('mhlo.sharding = "{replicated}"', 1),
    ],
)
def test_arguments_are_cut_as_it_is_said(said: str, parts: int, tmp_path: Path) -> None:
    text = main("return %x : tensor<64x64xf32>", f"%x: tensor<64x64xf32> {{{said}}}", "tensor<64x64xf32>")
    text = text.replace("module @m {", 'module @m {\nsdy.mesh @mesh = <["data"=4, "model"=2]>')
    assert irscope.run(opened(text, tmp_path), "xla-memory")["xla-memory"].value.arguments == 64 * 64 * 4 // parts


def named(names: list[str], tmp_path: Path) -> Model:
    arguments = ", ".join(f'%a{at}: tensor<4x8xf32> loc("{name}")' for at, name in enumerate(names))
    return opened(main("return %a0 : tensor<4x8xf32>", arguments), tmp_path)


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (["params['Dense_0']['kernel']", "params['Dense_0']['bias']", "x"], 64),
        (["variables['params']['w']", "variables['batch_stats']['mean']", "x"], 32),
        (["state.params['w']", "state.opt_state[0].mu['params']['w']", "grads['params']['w']", "x"], 32),
        (["p[0]", "x"], None),
        (["parametric", "x"], None),
    ],
)
def test_parameters_are_told_by_their_names_alone(names: list[str], count: int | None, tmp_path: Path) -> None:
    model = named(names, tmp_path)
    summary = irscope.run(model, "params")["params"].report().summary
    assert (summary["count"].value, summary["bytes"].value) == (count, None if count is None else 4 * count)
    expected = Provenance.UNKNOWN if count is None else Provenance.ASSUMED
    assert summary["count"].provenance is summary["bytes"].provenance is expected
    assert summary["count"].note
    shown = str(irscope.card(model))
    assert ("parameters among the inputs" in shown) == (count is None)
    assert "inputs and parameters" in shown
    assert "0 B f32" not in shown
    assert "parameters among the inputs" in model.info().facts()


FAMILIES = {"gpt_forward": "decoder-only transformer", "gpt_scan": "decoder-only transformer", "mlp_grad": "multilayer perceptron"}


@every("name", [*FAMILIES, "more/vit_forward"])
def test_a_family_is_told_where_weights_are_inputs_and_a_softmax_is_written_out(name: str) -> None:
    verdict = irscope.run(irscope.load(DATA / f"{name}.mlir.gz"), "arch")["arch"].value.verdict
    assert verdict.family == FAMILIES.get(name, "encoder transformer")


def test_remat_is_seen() -> None:
    assert planned("gpt_scan_remat_grad").temporary * 3 < planned("gpt_scan_grad").temporary


def test_liveness_follows_the_compiler() -> None:
    model = irscope.load(DATA / "gpt_scan_grad.mlir.gz")
    summary = irscope.run(model, "liveness")["liveness"].report().summary
    plan = planned("gpt_scan_grad")
    assert summary["model"] == "xla"
    assert summary["tensor_peak_bytes"].value == plan.total.value
    assert summary["tensor_peak_bytes"].provenance is Provenance.MODELLED


def test_nobody_is_told_to_write_over_operands_of_a_compiled_program() -> None:
    model = irscope.load(DATA / "open_batch.jaxexport", bind={"b": 32})
    table = irscope.run(model, "advise")["advise"].report().tables[0].to_dicts()
    assert not [row for row in table if "over its operand" in str(row)]


def test_open_sizes_have_formulas_of_the_last_use() -> None:
    model = irscope.load(DATA / "open_batch.jaxexport")
    assert irscope.run(model, "liveness")["liveness"].report().summary["model"] == "ssa"
    # Operands of a broadcast are its values and its sizes: which of them is followed did depend on their places in memory.
    opened_again = [irscope.load(DATA / "open_batch.jaxexport") for _ in range(8)]
    assert len({str(irscope.run(one, "xla-memory")["xla-memory"].report().summary) for one in opened_again}) == 1


def test_names_of_jax_are_scopes_and_lines() -> None:
    graph = irscope.load(DATA / "gpt_grad.mlir.gz").graph
    assert {node.scope.path for node in graph} >= {"silu", "log_softmax", "tril"}
    assert all(node.loc is not None and node.loc.file == "programs.py" for node in graph if "silu" in node.scope.path)


@pytest.mark.parametrize(
    ("body", "op", "shape"),
    [
        (
            '%0 = "stablehlo.transpose"(%x) <{permutation = array<i64: 1, 0>}> : (tensor<4x8xf32>) -> tensor<8x4xf32>',
            "view.permute",
            (8, 4),
        ),
        ("%0 = stablehlo.slice %x [1:4:2, 0:3] : (tensor<4x8xf32>) -> tensor<2x3xf32>", "view.slice", (2, 3)),
        (
            "%a = stablehlo.constant dense<[1, 0]> : tensor<2xi32>\n%b = stablehlo.constant dense<[4, 6]> : tensor<2xi32>\n"
            "%c = stablehlo.constant dense<[1, 2]> : tensor<2xi32>\n%0 = stablehlo.real_dynamic_slice %x, %a, %b, %c : "
            "(tensor<4x8xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<3x3xf32>",
            "view.slice",
            (3, 3),
        ),
        ("%0 = stablehlo.reverse %x, dims = [0] : tensor<4x8xf32>", "tensor.flip", (4, 8)),
        ("%0 = stablehlo.bitcast_convert %x : (tensor<4x8xf32>) -> tensor<4x8x4xui8>", "view.reshape", (4, 8, 4)),
        ("%0 = chlo.erf_inv %x : tensor<4x8xf32> -> tensor<4x8xf32>", "math.erfinv", (4, 8)),
        (
            "%c = stablehlo.constant dense<0.0> : tensor<f32>\n"
            "%0 = stablehlo.pad %x, %c, low = [1, 0], high = [-1, 2], interior = [1, 0] : "
            "(tensor<4x8xf32>, tensor<f32>) -> tensor<7x10xf32>",
            "tensor.pad_general",
            (7, 10),
        ),
        (
            '%0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> : '
            "(tensor<4x8xf32>) -> tensor<16x8xf32>",
            "collective.all_gather",
            (16, 8),
        ),
        (
            "%c = stablehlo.constant dense<0> : tensor<i32>\n%i = stablehlo.iota dim = 1 : tensor<4x8xi32>\n"
            "%0:2 = stablehlo.reduce(%x init: %x0), (%i init: %c) across dimensions = [1] : (tensor<4x8xf32>, "
            " tensor<4x8xi32>, tensor<f32>, tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>)\n"
            " reducer(%a: tensor<f32>, %b: tensor<f32>) (%k: tensor<i32>, %l: tensor<i32>) {\n"
            "%m = stablehlo.maximum %a, %b : tensor<f32>\n%n = stablehlo.minimum %k, %l : tensor<i32>\n"
            "stablehlo.return %m, %n : tensor<f32>, tensor<i32>\n}",
            "reduce.general",
            (4,),
        ),
    ],
)
def test_operations_in_their_forms(body: str, op: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    names = "%0#0" if "%0:2" in body else "%0"
    result = body.splitlines()[-1].rpartition("->")[2].strip() if "reducer" not in body else "tensor<4xf32>"
    result = result if result.startswith("tensor") else "tensor<4x8xf32>"
    text = main(f"{body}\nreturn {names} : {result}", "%x: tensor<4x8xf32>, %x0: tensor<f32>", result)
    graph = opened(text, tmp_path).graph
    assert [node.op for node in graph][-1] == op
    output = graph.outputs[0].type
    assert isinstance(output, TensorType)
    assert output.shape == shape


def test_a_loop_whose_end_depends_on_data_is_a_loop_of_unknown_length(tmp_path: Path) -> None:
    body = """
    %0 = stablehlo.while(%a = %x) : tensor<f32>
     cond {
      %l = stablehlo.constant dense<1.0> : tensor<f32>
      %1 = stablehlo.compare LT, %a, %l, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %2 = stablehlo.add %a, %a : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }
    return %0 : tensor<f32>"""
    graph = opened(main(body, "%x: tensor<f32>", "tensor<f32>"), tmp_path).graph
    assert [node.op for node in graph] == ["compare.less", "cf.loop"]


def test_case_is_a_chain_of_branches(tmp_path: Path) -> None:
    branch = "({\n%{n} = stablehlo.{op} %x, %x : tensor<4x8xf32>\nstablehlo.return %{n} : tensor<4x8xf32>\n})"
    regions = ", ".join(branch.replace("{n}", str(n)).replace("{op}", op)[1:-1] for n, op in ((5, "add"), (6, "multiply"), (7, "subtract")))
    body = f'%0 = "stablehlo.case"(%i) ({regions}) : (tensor<i32>) -> tensor<4x8xf32>\nreturn %0 : tensor<4x8xf32>'
    graph = opened(main(body, "%x: tensor<4x8xf32>, %i: tensor<i32>"), tmp_path).graph
    inside = [node.op for node in graph.walk()]
    assert inside.count("cf.if") == 2
    assert {"math.add", "math.mul", "math.sub"} <= set(inside)


def test_what_is_not_known_is_named_and_never_free(tmp_path: Path) -> None:
    body = "%0 = stablehlo.custom_call @mystery(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>\nreturn %0 : tensor<4x8xf32>"
    model = opened(main(body), tmp_path)
    assert [node.op for node in model.graph] == ["custom_call.mystery"]
    results = irscope.run(model, "flops,xla-memory")
    coverage, summary = results["flops"].report().coverage, results["xla-memory"].report().summary
    assert coverage is not None
    assert coverage.unknown == ("custom_call.mystery",)
    assert (summary["cost_analysis_flops"].value, summary["cost_analysis_flops"].provenance) == (None, Provenance.UNKNOWN)
    assert summary["temp_bytes"].hi is None
    assert summary["temp_bytes"].note


@pytest.mark.parametrize("path", sorted([*DATA.glob("*.jaxexport"), *DATA.glob("*.generic.mlir.gz")]), ids=lambda path: path.name)
def test_bytecode_and_the_generic_form_are_the_program_of_the_text(path: Path) -> None:
    graph, name = irscope.load(path).graph, path.name.partition(".")[0]
    if name == "open_batch":
        return
    text = irscope.load(DATA / f"{name}.mlir.gz").graph
    assert types_of(graph.outputs) == types_of(text.outputs)
    assert [value.name for value in graph.inputs] == [value.name for value in text.inputs]
    assert [(node.op, dict(node.attrs)) for node in graph.walk()] == [(node.op, dict(node.attrs)) for node in text.walk()]
    places, others = ([(node.scope.path, node.loc and node.loc.line) for node in one] for one in (graph, text))
    assert places == others


def test_open_sizes_have_the_names_of_the_export() -> None:
    model = irscope.load(DATA / "open_batch.jaxexport")
    assert [str(value.type) for value in model.graph.inputs] == ["f32[256,512]", "f32[512]", "f32[b,256]"]
    assert list(model.program.symbols) == ["b"]
    assert [str(value.type) for value in model.graph.outputs] == ["f32[16]", "f32[512]", "i32[b]"]
    bound = irscope.load(DATA / "open_batch.jaxexport", bind={"b": 32})
    assert irscope.run(bound, "flops")["flops"].value.total.matmul == 2 * 32 * 256 * 512


def test_bytecode_that_is_cut_or_changed_is_one_line_or_a_program() -> None:
    whole = (DATA / "cond.jaxexport").read_bytes()
    start, random = whole.index(b"ML\xefR"), Random(0)
    for number in range(400):
        data = bytearray(whole)
        for _ in range(random.randint(1, 3)):
            data[random.randrange(start + 4, len(data))] = random.randrange(256)
        text = bytes(data if number % 2 else data[: random.randrange(start + 4, len(data))])
        with reading("program", len(text)), contextlib.suppress(LoadError):
            build(read_module(text, "program"), "", DiagnosticSink(), "program")


FAKE = {  # what is asked of JAX, for where it is not installed
    "__init__.py": """
import functools
__version__ = "0.0"
class ShapeDtypeStruct:
    def __init__(self, shape, dtype): self.shape, self.dtype = tuple(shape), dtype
class tree_util:
    @staticmethod
    def tree_leaves(tree): return list(tree)
class jit:
    def __init__(self, f): self.f = f
    def lower(self, *args):
        self.said = self.f(*args)
        return self
    def as_text(self, debug_info): return self.said
""",
    "numpy.py": "def dtype(name): return name\n",
}
FUNCTIONS = """
import jax
def text(*args, op="add"):
    types = [f"tensor<{'x'.join(map(str, one.shape))}xf32>" for one in args]
    said = ", ".join(f"%{at}: {type_}" for at, type_ in enumerate(types))
    return (f"module @m {{\\n func.func public @main({said}) -> ({types[0]}) {{\\n"
            f"%r = stablehlo.{op} %0, %0 : {types[0]}\\nreturn %r : {types[0]}\\n}}\\n}}")
def twice(x): return text(x)
def build(n=4): return twice, (jax.ShapeDtypeStruct((n, 8), "float32"),)
def broken(x): raise ValueError("so it is")
def nothing(): return 3
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "jax").mkdir()
    for name, text in FAKE.items():
        (tmp_path / "jax" / name).write_text(text)
    (tmp_path / "model.py").write_text(FUNCTIONS.replace("\\\\n", "\\n"))
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "jax"]:
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path / "model.py"
    for name in [name for name in sys.modules if name.partition(".")[0] == "jax"]:
        del sys.modules[name]


def test_a_function_is_lowered_for_stated_inputs(functions: Path) -> None:
    model = irscope.load(f"jax:{functions}:twice", inputs={"x": "f32[4,8]"})
    assert [node.op for node in model.graph] == ["math.add"]
    assert model.program.metadata["package"] == "jax 0.0"


def test_a_function_may_bring_its_arguments(functions: Path) -> None:
    model = irscope.load(f"jax:{functions}:build{{n=16}}")
    assert [str(value.type) for value in model.graph.inputs] == ["f32[16,8]"]


@pytest.mark.parametrize(
    ("name", "code"), [("broken", "IRS385"), ("missing", "IRS385"), ("nothing", "IRS623"), ("text", "IRS623"), ("twice", "IRS623")]
)
def test_what_goes_wrong_is_one_line(name: str, code: str, functions: Path) -> None:
    inputs = {"x": "f32[4,8]"} if name in ("broken", "missing", "text") else {}
    with pytest.raises(IrscopeError) as caught:
        irscope.load(f"jax:{functions}:{name}", inputs=inputs)
    assert caught.value.code == code


def test_without_jax_the_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    with pytest.raises(LoadError, match="jax is not installed"):
        irscope.load(f"jax:{tmp_path}/model.py:f")


HOSTILE = {
    "a name that nothing makes": main("return %nothing : tensor<4x8xf32>"),
    "a function that calls itself": main("%0 = call @main(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>\nreturn %0 : tensor<4x8xf32>"),
    "an end in the middle": main("%0 = stablehlo.add %x, %x : tensor<4x8xf32>")[:-20],
    "deep nesting": "module @m attributes {a = " + "[" * 100_000,
    "a type of many axes": main("return %x : tensor<1xf32>", f"%x: tensor<{'1x' * 1000}f32>"),
    "no number": main("%0:99999999999 = stablehlo.add %x, %x : tensor<4x8xf32>\nreturn %x : tensor<4x8xf32>"),
    "a constant that is too short": main('%c = stablehlo.constant dense<"0x00"> : tensor<4x8xf32>\nreturn %c : tensor<4x8xf32>'),
    "no main": "module @m {\n}\n",
    "a sign from elsewhere": "module @m {\n \\ }\n",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_bad_text_is_one_line(what: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError) as caught:
        opened(HOSTILE[what], tmp_path)
    assert caught.value.exit_code == 3
    assert "\n" not in caught.value.message


def test_calls_that_double_end_at_the_budget() -> None:
    functions = "".join(
        f"func.func private @f{n}(%x: tensor<f32>) -> tensor<f32> {{\n"
        f"%0 = call @f{n + 1}(%x) : (tensor<f32>) -> tensor<f32>\n%1 = call @f{n + 1}(%0) : (tensor<f32>) -> tensor<f32>\n"
        "return %1 : tensor<f32>\n}\n"
        for n in range(60)
    )
    text = main("%0 = call @f0(%x) : (tensor<f32>) -> tensor<f32>\nreturn %0 : tensor<f32>", "%x: tensor<f32>", "tensor<f32>")
    last = "func.func private @f60(%x: tensor<f32>) -> tensor<f32> {\nreturn %x : tensor<f32>\n}\n"
    with pytest.raises(LoadError) as caught, reading("program.mlir", len(text), Allowance(seconds=0.5)):
        build(parse(text.rstrip()[:-1] + functions + last + "}\n"), "", DiagnosticSink(), "program.mlir")
    assert caught.value.code == "IRS106"
