"""All that one hour on a physical GPU has to bring home: `python -m benchmarks.gpu_hour OUT [--seconds 3300] [--only STAGE]`.

Stages in the order of what is worth most, each in a process of its own with a share of the time; what one writes stands when a later
one fails, the time is up or the card is gone. `OUT/stages.jsonl` says how each went. `--table SILICON [STAND-IN]` then prints
predicted, stand-in and silicon for docs/runtime.md from folders that were brought, and fits the rules of workspaces with every third
configuration kept out.

| stage | writes |
|---|---|
| `machine` | `machine.json`: context, libraries by size as they are loaded, achievable rates, launch |
| `workspaces` | `workspaces.jsonl`: what cuDNN and cuSOLVER take, by configuration |
| `step` | `step.jsonl`: one training step, by `irscope record --train` |
| `forward` | `forward.jsonl`: a model by name, with energy |
| `generate` | `generate.json`: counters of one `generate` |
| `compiled` | `compiled.jsonl`: eager and compiled, counters and latency |
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

from irscope.errors import IrscopeError

ROOT: Final = Path(__file__).parents[1]
COUNTERS: Final = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes")
STAGES: Final[Mapping[str, float]] = {"machine": 120, "step": 300, "workspaces": 900, "forward": 300, "generate": 300, "compiled": 600}
"""Seconds that each gets at most."""
_RESULT: Final = "RESULT "
_STEP: Final = "samples/resnet.py:build{image=128,depth=50}"


# ----------------------------------------------------------------------------------------------------
# What runs on the card. Each prints one line of JSON for each result, as soon as it is there.


def tell(row: object) -> None:
    """Hand a result to the process that keeps it."""
    print(_RESULT + json.dumps(row), flush=True)


def counters(torch: Any) -> dict[str, dict[str, int]]:
    """Those of the caching allocator."""
    stats = torch.cuda.memory_stats()
    return {name: {"current": stats[f"{name}.all.current"], "peak": stats[f"{name}.all.peak"]} for name in COUNTERS}


def machine() -> None:
    """The card, the context, what each library takes outside the allocator when it is first used, and the rates that a roofline needs."""
    import torch

    def outside() -> int:
        free, total = torch.cuda.mem_get_info()
        return int(total - free - torch.cuda.memory_reserved())

    properties = torch.cuda.get_device_properties(0)
    info: dict[str, Any] = {
        "name": properties.name,
        "capability": [properties.major, properties.minor],
        "sms": properties.multi_processor_count,
        "total_memory": properties.total_memory,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "context_bytes": outside(),
    }
    tell(info)  # what is known before anything can go wrong
    square = torch.randn(1024, 1024, device="cuda")
    uses: dict[str, Callable[[], object]] = {
        "kernels of PyTorch": lambda: square + 1,
        "cuBLAS": lambda: square @ square,
        "cuDNN": lambda: torch.nn.functional.conv2d(square[None, None], square[None, None, :3, :3]),
        "cuSOLVER": lambda: torch.linalg.eigh(square + square.T),
        "cuFFT": lambda: torch.fft.fft(square),
        "cuSPARSE": lambda: torch.sparse.mm(square.to_sparse(), square),
    }
    libraries: dict[str, int | str] = {}
    for name, use in uses.items():
        before = outside()
        try:
            use()
            torch.cuda.synchronize()
            libraries[name] = outside() - before
        except Exception as error:
            libraries[name] = f"{type(error).__name__}: {error}"[:200]
    tell(info | {"library_bytes": libraries})

    def rate(function: Callable[[], object], work: float, count: int = 20) -> float:
        for _ in range(3):
            function()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            function()
        end.record()
        end.synchronize()
        return float(work * count / (begin.elapsed_time(end) / 1e3))

    elements = min(1 << 30, properties.total_memory // 32)
    both = torch.empty(2, elements, device="cuda")
    rates = {"copy_bytes_per_s": rate(lambda both=both: both[0].copy_(both[1]), 8 * elements)}  # type: ignore[misc]
    both = None
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        one = torch.randn(8192, 8192, device="cuda", dtype=dtype)
        name = str(dtype).rpartition(".")[2]
        rates[f"matmul_{name}_flops_per_s"] = rate(lambda one=one: one @ one, 2 * 8192**3)  # type: ignore[misc]
    tiny = torch.zeros(1, device="cuda")
    started = time.perf_counter()
    for _ in range(20_000):
        tiny.add_(1)
    torch.cuda.synchronize()
    tell(info | {"library_bytes": libraries, **rates, "launch_s": (time.perf_counter() - started) / 20_000})


def configurations() -> Iterator[dict[str, Any]]:
    """Convolutions, recurrent layers and decompositions, from small to large; the order is that of worth."""
    passes = ("forward", "backward")
    shapes = ((8, 64, 56), (8, 256, 14), (32, 128, 28), (2, 512, 7), (16, 64, 112))
    for dtype, shape, size, stride, part in product(("float32", "bfloat16"), shapes, (1, 3, 7), (1, 2), passes):
        batch, channels, image = shape
        x, weight = [batch, channels, image, image], [channels, channels, size, size]
        yield {"op": "conv2d", "pass": part, "dtype": dtype, "x": x, "w": weight, "stride": stride}
    for dtype, batch, channels, image, part in product(("float32", "bfloat16"), (8, 32), (64, 256), (14, 56), passes):
        x = [batch, channels, image, image]
        yield {"op": "depthwise", "pass": part, "dtype": dtype, "x": x, "w": [channels, 1, 3, 3], "stride": 1}
        yield {"op": "batch_norm", "pass": part, "dtype": dtype, "x": x}
    for kind, batch, length, hidden, part in product(("lstm", "gru"), (4, 32), (16, 128), (128, 512), passes):
        yield {"op": kind, "pass": part, "dtype": "float32", "x": [length, batch, hidden]}
    for kind, batch, size in product(("cholesky", "eigh", "svd", "qr", "solve", "lu_factor", "inv", "lstsq"), (1, 8), (32, 128, 512, 1024)):
        yield {"op": kind, "pass": "forward", "dtype": "float32", "x": [batch, size, size]}


def workspaces() -> None:
    """What each configuration asks of the allocator beside its results, forward and backward, cold and warm."""
    import torch

    for configuration in configurations():
        try:
            tell({**configuration, "runs": [events_of(torch, call_of(torch, configuration)) for _ in range(2)]})
        except Exception as error:
            tell({**configuration, "error": f"{type(error).__name__}: {error}"[:200]})
            if "CUDA error" in str(error):  # the card, or this process' context, is gone
                raise


def call_of(torch: Any, one: Mapping[str, Any]) -> Callable[[], object]:
    """The call of a configuration, with operands that are there before it is watched."""
    dtype = getattr(torch, one["dtype"])
    x = torch.randn(*one["x"], device="cuda", dtype=dtype)
    match one["op"]:
        case "conv2d" | "depthwise":
            weight = torch.randn(*one["w"], device="cuda", dtype=dtype, requires_grad=True)
            groups, padding = one["x"][1] // one["w"][1], one["w"][2] // 2
            x.requires_grad_()
            return _part(torch, one, lambda: torch.nn.functional.conv2d(x, weight, None, one["stride"], padding, 1, groups), (x, weight))
        case "batch_norm":
            norm = torch.nn.BatchNorm2d(one["x"][1]).cuda().to(dtype)
            x.requires_grad_()
            return _part(torch, one, lambda: norm(x), (x, *norm.parameters()))
        case "lstm" | "gru":
            layer = getattr(torch.nn, one["op"].upper())(one["x"][2], one["x"][2]).cuda()
            return _part(torch, one, lambda: layer(x)[0], (*layer.parameters(),))
        case "cholesky":
            regular = x @ x.mT + one["x"][-1] * torch.eye(one["x"][-1], device="cuda")
            return lambda: torch.linalg.cholesky(regular)
        case "eigh":
            symmetric = x + x.mT
            return lambda: torch.linalg.eigh(symmetric)
        case "solve" | "lstsq":
            right = torch.randn(one["x"][0], one["x"][1], 4, device="cuda")
            return lambda: getattr(torch.linalg, one["op"])(x, right)
        case name:
            return lambda: getattr(torch.linalg, name)(x)


def _part(torch: Any, one: Mapping[str, Any], function: Callable[[], Any], leaves: Sequence[Any]) -> Callable[[], object]:
    """The forward as it is in training, or its backward alone."""
    if one["pass"] == "forward":
        return function
    result = function()
    given = torch.ones_like(result)
    return lambda: torch.autograd.grad(result, leaves, given, retain_graph=True)


def events_of(torch: Any, call: Callable[[], object]) -> list[int]:
    """What a call asks for and gives back, in order, as signed sizes."""
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history(max_entries=100_000, context=None)
    try:
        made = call()
        torch.cuda.synchronize()
        history = torch.cuda.memory._snapshot()["device_traces"][0]
        del made
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    return [one["size"] if one["action"] == "alloc" else -one["size"] for one in history if one["action"] in ("alloc", "free_completed")]


def generate() -> None:
    """Loading, and one `generate` of a small language model: counters before, after and at the peak."""
    import torch
    import transformers

    torch.manual_seed(0)
    heads = {"num_attention_heads": 16, "num_key_value_heads": 4}
    config = transformers.LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, **heads)
    model = transformers.LlamaForCausalLM(config).to(device="cuda", dtype=torch.bfloat16).eval()
    loaded = counters(torch)
    prompt = torch.randint(0, config.vocab_size, (4, 512), device="cuda")
    rows = []
    for new in (1, 128):
        torch.cuda.reset_peak_memory_stats()
        with torch.no_grad():
            model.generate(prompt, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0)
        torch.cuda.synchronize()
        rows.append({"new": new, "counters": counters(torch)})
    tell({"config": config.to_dict(), "batch": 4, "prompt": 512, "transformers": transformers.__version__, "loaded": loaded, "runs": rows})


def compiled() -> None:
    """One model eager and compiled, a forward and a training step each."""
    import torch

    def model() -> Any:
        torch.manual_seed(0)
        layers = [part for _ in range(6) for part in (torch.nn.Linear(1024, 1024), torch.nn.LayerNorm(1024), torch.nn.GELU())]
        return torch.nn.Sequential(*layers).cuda()

    x = torch.randn(64, 1024, device="cuda")
    for how in ("eager", "compiled"):
        net = model() if how == "eager" else torch.compile(model())
        for kind in ("forward", "step"):
            taken = []
            for number in range(8):
                torch.cuda.synchronize()
                if number == 3:
                    torch.cuda.reset_peak_memory_stats()
                started = time.perf_counter()
                if kind == "forward":
                    with torch.no_grad():
                        net(x)
                else:
                    net(x).square().mean().backward()
                    net.zero_grad()
                torch.cuda.synchronize()
                taken.append(time.perf_counter() - started)
            tell({"how": how, "kind": kind, "counters": counters(torch), "seconds": sorted(taken[3:])})


ON_THE_CARD: Final[Mapping[str, Callable[[], None]]] = {
    "machine": machine,
    "workspaces": workspaces,
    "generate": generate,
    "compiled": compiled,
}
RECORDED: Final[Mapping[str, Sequence[str]]] = {
    "step": ("record", "--train", "--device", "cuda", "--repeats", "10", _STEP),
    "forward": ("record", "--device", "cuda", "--repeats", "50", "torchvision:resnet50"),
}
"""Stages that are recordings of irscope's own."""
LAST_ONLY: Final = ("machine", "generate")
"""Stages whose last result has all that the earlier ones have."""


# ----------------------------------------------------------------------------------------------------
# The process that keeps what comes.


def run_stage(name: str, out: Path, seconds: float) -> str:
    """Run a stage for so long at most, writing each result as it comes; how it ended."""
    if name in RECORDED:
        line = [sys.executable, "-m", "irscope", RECORDED[name][0], "-o", str(out / f"{name}.jsonl"), *RECORDED[name][1:]]
    else:
        line = [sys.executable, "-m", "benchmarks.gpu_hour", "--child", name, str(out)]
    errors = out / f"{name}.stderr"
    began = time.monotonic()
    with errors.open("wb") as complaints:
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=complaints, text=True, cwd=ROOT)
        try:
            told, _ = process.communicate(timeout=seconds)
            ended = "done" if process.returncode == 0 else f"ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            told, _ = process.communicate()
            ended = f"stopped after {seconds:.0f} s"
    rows = [json.loads(text.removeprefix(_RESULT)) for text in told.splitlines() if text.startswith(_RESULT)]
    if rows:
        keep(out, name, rows)
    last = [text for text in errors.read_text(errors="replace").splitlines() if text.strip()]
    if ended == "done":
        errors.unlink()
    return f"{ended} in {time.monotonic() - began:.0f} s" + (f": {last[-1][:200]}" if last and ended != "done" else "")


def keep(out: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Results as test data."""
    if name in LAST_ONLY:
        (out / f"{name}.json").write_text(json.dumps(rows[-1], indent=1) + "\n", encoding="utf-8")
    else:
        (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def bring(out: Path, seconds: float, only: str = "") -> list[dict[str, str]]:
    """Run all stages that there is time for."""
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    said: list[dict[str, str]] = []
    for name, most in STAGES.items():
        if only and name != only:
            continue
        left = end - time.monotonic()
        said.append({"stage": name, "ended": run_stage(name, out, min(most, left)) if left > 5 else "there was no time"})
        print(f"{name}: {said[-1]['ended']}", flush=True)
        (out / "stages.jsonl").write_text("".join(json.dumps(remark) + "\n" for remark in said), encoding="utf-8")
    return said


# ----------------------------------------------------------------------------------------------------
# Tables: workspaces as rules with a third kept out; predicted, stand-in and silicon.


def workspace_bytes(events: Sequence[int]) -> int:
    """The most that was alive and was given back before the call ended, above what outlives it."""
    alive = most = 0
    for size in events:
        alive += size
        most = max(most, alive)
    return most - max(alive, 0)


def operand_bytes(row: Mapping[str, Any]) -> int:
    """Bytes of the operands of a configuration."""
    width = 2 if row["dtype"] in ("bfloat16", "float16") else 4
    total = 0
    for key in ("x", "w"):
        count = 1
        for size in row.get(key, ()):
            count *= size
        total += count * width if row.get(key) else 0
    return total


def fitted(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, float, float | None, float | None]]:
    """By operator and type the median factor of workspace to operands, and its median errors on what was fitted and what was kept out."""
    groups: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in rows:
        if "error" not in row:
            groups.setdefault((f"{row['op']}, {row['pass']}", row["dtype"]), []).append(
                (operand_bytes(row), workspace_bytes(row["runs"][-1]))
            )
    for (op, dtype), pairs in sorted(groups.items()):
        kept_out = pairs[2::3]
        used = [pair for at, pair in enumerate(pairs) if at % 3 != 2]
        factors = sorted(workspace / operands for operands, workspace in used)
        factor = factors[len(factors) // 2]
        yield op, dtype, factor, _error(factor, used), _error(factor, kept_out)


def _error(factor: float, pairs: Sequence[tuple[int, int]]) -> float | None:
    errors = sorted(abs(factor * operands - workspace) / max(operands, workspace, 1) for operands, workspace in pairs)
    return errors[len(errors) // 2] if errors else None


def compared(recording: Path, model: str) -> Iterator[tuple[str, str, int | None, int | None]]:
    """Of a recorded step: counter, run, predicted and measured."""
    from irscope.frontends.base import LoadOptions
    from irscope.passkit.settings import Settings
    from irscope.recording import read_recording
    from irscope.tools.compare.steps import compare_step, open_step_for

    found = read_recording(recording)
    made = compare_step(open_step_for(model, found, LoadOptions(), Settings()), found)
    for run in made.runs():
        for figure in made.figures(run):
            predicted = figure.predicted.value
            yield f"{figure.name} ({run})", "step", predicted if isinstance(predicted, int) else None, figure.measured


def _steps(folder: Path) -> dict[str, tuple[int | None, int | None]]:
    """Predicted and measured of the recorded step; nothing where none was recorded."""
    recording = folder / "step.jsonl"
    if not recording.is_file():
        return {}
    try:
        return {name: (predicted, measured) for name, _, predicted, measured in compared(recording, _STEP)}
    except IrscopeError as error:
        print(error, file=sys.stderr)
        return {}


def table(silicon: Path, stand_in: Path | None = None) -> Iterator[str]:
    """Markdown for docs/runtime.md."""
    rows, beside = _steps(silicon), _steps(stand_in) if stand_in is not None else {}
    if rows:
        yield "| training step | predicted | stand-in | silicon | error |"
        yield "|---|---|---|---|---|"
        for name, (predicted, measured) in rows.items():
            error = f"{(predicted - measured) / measured:+.2%}" if predicted is not None and measured else "?"
            cells = (_cell(predicted), _cell(beside[name][1] if name in beside else None), _cell(measured), error)
            yield f"| {name} | {' | '.join(cells)} |"
    path = silicon / "workspaces.jsonl"
    if path.is_file():
        yield ""
        yield "| operator | type | workspace, times its operands | median error | on the third kept out |"
        yield "|---|---|---|---|---|"
        for op, dtype, factor, used, kept in fitted(json.loads(text) for text in path.read_text().splitlines()):
            yield f"| {op} | {dtype} | {factor:.3g} | {_share(used)} | {_share(kept)} |"


def _cell(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _share(value: float | None) -> str:
    return "?" if value is None else f"{value:.1%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=3300)
    parser.add_argument("--only", choices=tuple(STAGES), default="")
    parser.add_argument("--child", choices=tuple(ON_THE_CARD), default="")
    parser.add_argument("--table", action="store_true", help="print tables of what was brought: SILICON [STAND-IN]")
    args = parser.parse_args()
    if args.child:
        ON_THE_CARD[args.child]()
        return 0
    if args.table:
        print("\n".join(table(*args.out[:2])))
        return 0
    said = bring(args.out[0], args.seconds, args.only)
    return 0 if all(remark["ended"].startswith("done") for remark in said) else 1


if __name__ == "__main__":
    sys.exit(main())
