"""Runs public programs by the commands of their own READMEs under `irscope simulate`, and writes the table of docs/field.md.

    python -m benchmarks.field --field FOLDER [--only NAME ...] [--truth] [--page]

Programs are never kept here: FOLDER has a checkout of each repository under its name (`examples`, `nanoGPT`, `torchtitan`, ...), with data
where a program would download some, and what is missing there is skipped. `--site FOLDER` is a folder of packages that they import.
`--truth` also runs each in PyTorch's CUDA build, in the folder that CUDA_BUILD_OF_TORCH names (`torch-cuda` beside stand-ins for the
libraries that it loads, `stubs`, and an NCCL and a runtime whose events are ordered, `distributed`), until as many steps are done.
Results are merged into `--results`, from which `--page` writes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from irscope import processes

COUNTERS: Final = ("requested", "allocated", "reserved")
ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "field.md"
BEGIN, END = "<!-- programs -->", "<!-- end -->"


@dataclass(frozen=True)
class Row:
    """A program and its command; `world` is what torchrun starts, 0 for python."""

    name: str
    folder: str
    command: str
    world: int = 0
    options: str = ""
    first: bool = True
    """Whether it ran by this command when it was first tried."""
    remark: str = ""
    truth: bool = True
    """Whether the CUDA build can run it over stand-ins."""
    environment: Mapping[str, str] = field(default_factory=dict)


_PYPI: Final = "torchvision"
_DDP: Final = "examples/distributed/ddp-tutorial-series"
_TP: Final = "examples/distributed/tensor_parallelism"
_NANOCHAT: Final = "-m scripts.base_train -- --depth=4 --max-seq-len=512 --device-batch-size=16 --run=dummy --num-iterations=20"
PROGRAMS: Final = (
    Row("examples: mnist", "examples/mnist", "main.py", first=False, remark=_PYPI),
    Row("examples: vae", "examples/vae", "main.py", first=False, remark=_PYPI),
    Row("examples: dcgan", "examples/dcgan", "main.py --dataset fake --accel", first=False, remark=_PYPI, truth=False),
    Row("examples: siamese", "examples/siamese_network", "main.py", first=False, remark=_PYPI, truth=False),
    Row("examples: mnist_rnn", "examples/mnist_rnn", "main.py --accel", first=False, remark=_PYPI, truth=False),
    Row(
        "examples: mnist_hogwild",
        "examples/mnist_hogwild",
        "main.py --cuda",
        first=False,
        remark="`mp.Process`: the rank is played",
        truth=False,
    ),
    Row("examples: gcn", "examples/gcn", "main.py", remark="the download cut out"),
    Row("examples: gat", "examples/gat", "main.py", truth=False),
    Row("examples: word LM, LSTM", "examples/word_language_model", "main.py --accel --epochs 6", truth=False),
    Row("examples: word LM, Transformer", "examples/word_language_model", "main.py --accel --epochs 6 --model Transformer --lr 5"),
    Row("examples: imagenet resnet18", "examples/imagenet", "main.py -a resnet18 --dummy", first=False, remark=_PYPI),
    Row(
        "examples: imagenet, own launcher",
        "examples/imagenet",
        "main.py -a resnet50 --dummy --dist-url tcp://127.0.0.1:23456 --dist-backend nccl --multiprocessing-distributed --world-size 1 "
        "--rank 0",
        first=False,
        remark=_PYPI,
        truth=False,
    ),
    Row("examples: ddp", "examples/distributed/ddp", "example.py", 8),
    Row("examples: ddp tutorial, one GPU", _DDP, "single_gpu.py 50 10"),
    Row("examples: ddp tutorial, spawn", _DDP, "multigpu.py 50 10", 4, truth=False),
    Row("examples: ddp tutorial, torchrun", _DDP, "multigpu_torchrun.py 50 10", 4),
    Row("examples: ddp tutorial, nodes", _DDP, "multinode.py 50 10", 4),
    Row("examples: FSDP2", "examples/distributed/FSDP2", "example.py", 4),
    Row("examples: FSDP2, mixed precision", "examples/distributed/FSDP2", "example.py --mixed-precision", 4),
    Row("examples: tensor parallel", _TP, "tensor_parallel_example.py", 4),
    Row("examples: sequence parallel", _TP, "sequence_parallel_example.py", 4),
    Row("examples: FSDP and tensor parallel", _TP, "fsdp_tp_example.py", 4),
    Row(
        "examples: minGPT-ddp",
        "examples/distributed/minGPT-ddp",
        "mingpt/main.py",
        4,
        remark="a path in its configuration for the download",
    ),
    Row(
        "nanoGPT, one GPU",
        "nanoGPT",
        "train.py config/train_shakespeare_char.py",
        first=False,
        truth=False,
        remark="Triton without libcuda",
    ),
    Row("nanoGPT, GPT-2 DDP", "nanoGPT", "train.py config/train_gpt2.py --wandb_log=False", 8, truth=False),
    Row(
        "torchtitan 0.2.2, debug model",
        "torchtitan",
        "-m torchtitan.train --job.config_file torchtitan/models/llama3/train_configs/debug_model.toml",
        8,
        "--alloc-conf expandable_segments:True",
    ),
    Row(
        "timm benchmark.py",
        "pytorch-image-models",
        "benchmark.py --model vit_base_patch16_224 --bench train --batch-size 64 --amp",
        first=False,
        remark=_PYPI,
        truth=False,
    ),
    Row("litgpt pretrain", "litgpt", "-m litgpt pretrain pythia-14m --config config_hub/pretrain/debug.yaml"),
    Row("DiT-XL/2", "DiT", "train.py --data-path data --num-workers 0", 8, first=False, remark=f"{_PYPI}; a small VAE", truth=False),
    Row("minGPT chargpt", "minGPT/projects/chargpt", "chargpt.py --trainer.num_workers=0"),
    Row(
        "Megatron-core's simple loop",
        "Megatron-LM",
        "examples/run_simple_mcore_train_loop.py",
        2,
        first=False,
        remark="its wrapper has a list named buffers",
        truth=False,
    ),
    Row("nanochat base_train d4", "nanochat", _NANOCHAT, 8, truth=False, remark="own tokenizer and data"),
)

_WORLD: Final = ROOT / "tests" / "data" / "distributed"
"""Where the module with the store that answers for everybody else is."""
_TRUTH: Final = """
import json, os, runpy, sys
steps, module, sys.argv = int(sys.argv[1]), sys.argv[2] == "-m", sys.argv[3 if sys.argv[2] == "-m" else 2:]
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
if "RANK" in os.environ:
    from torch.distributed import rendezvous
    from world import AnsweringStore
    kept = AnsweringStore()
    rendezvous._create_c10d_store = lambda *args, **kwargs: kept
counted = []
def tell():
    stats = torch.cuda.memory_stats()
    found = {key: stats[key + "_bytes.all.peak"] for key in ("requested", "allocated", "reserved")}
    print("\\npeaks of the device", json.dumps(found), file=sys.stderr, flush=True)
    os._exit(0)
def stepped(optimizer, args, kwargs):
    counted.append(id(optimizer))
    if len(counted) >= steps * len(set(counted)):
        tell()
register_optimizer_step_post_hook(stepped)
sys.path[0] = os.getcwd() if module else os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True) if module else runpy.run_path(sys.argv[0], run_name="__main__")
tell()
"""
"""Runs a program until some steps are done and prints the counters of torch.cuda."""


def _environment(row: Row, site: str) -> dict[str, str]:
    paths = [one for one in (os.environ.get("PYTHONPATH", ""), site) if one]
    return {"PYTHONPATH": os.pathsep.join(paths), "MPLBACKEND": "agg", "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1", **row.environment}


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str], limit: float) -> tuple[int, str, str]:
    try:
        done = processes.run(command, folder=str(folder), environment=environment, seconds=limit)
    except processes.Late:
        return 124, "", f"it took longer than {limit:.0f} s"
    return done.code, done.text, done.errors.decode("utf-8", "replace")


def simulated(row: Row, root: Path, site: str, steps: int, limit: float) -> dict[str, Any]:
    """Run a program under `irscope simulate`: how it ended, its peaks, and the CPU time."""
    world = ["--world", str(row.world)] if row.world else []
    options = ["--device", "h100", "--steps", str(steps), *world, *shlex.split(row.options), "--format", "json", "--quiet"]
    before, began = _seconds(), time.monotonic()
    code, text, errors = _run(
        processes.irscope(["simulate", *options, *shlex.split(row.command)]), root / row.folder, _environment(row, site), limit
    )
    found: dict[str, Any] = {"code": code, "cpu": round(_seconds() - before, 1), "wall": round(time.monotonic() - began, 1)}
    try:
        document = json.loads(text)
    except ValueError:
        return found | {"error": (errors.strip().splitlines() or [""])[-1]}
    peaks = {key: max([document["peak"][key], 0]) for key in COUNTERS}
    upper = {key: (document.get("in_flight") or document)["peak"][key] for key in COUNTERS}
    said = [one["code"] for one in document["diagnostics"]]
    return found | {"error": document["error"][:200], "steps": len(document["steps"]), "peak": peaks, "upper": upper, "said": said}


def counted(row: Row, root: Path, site: str, build: str, steps: int, limit: float) -> dict[str, int]:
    """Run a program in PyTorch's CUDA build over stand-ins: its peaks, nothing where it does not run there."""
    environment = _environment(row, site)
    environment["PYTHONPATH"] = os.pathsep.join([f"{build}/torch-cuda", *filter(None, [environment["PYTHONPATH"]])])
    environment |= {"LD_LIBRARY_PATH": f"{build}/distributed:{build}/stubs", "FAKE_DEVICES": str(row.world or 1), "FAKE_CUDNN_WS": "0"}
    environment |= {"TORCH_NCCL_ENABLE_MONITORING": "0", "FAKE_WATCHDOG": "awake"}  # which would keep each rank's first buckets else
    if row.world:
        ranks = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": row.world, "LOCAL_WORLD_SIZE": row.world, "MASTER_PORT": 29533}
        environment |= {key: str(value) for key, value in ranks.items()} | {"MASTER_ADDR": "127.0.0.1"}
        environment["PYTHONPATH"] = os.pathsep.join((environment["PYTHONPATH"], str(_WORLD)))
    command = [*processes.python(["-c", _TRUTH, str(steps)]), *shlex.split(row.command)]
    _, _, errors = _run(command, root / row.folder, environment, limit)
    lines = [line for line in errors.splitlines() if line.startswith("peaks of the device ")]
    return json.loads(lines[-1].removeprefix("peaks of the device ")) if lines else {}


def _figures(found: Mapping[str, Any]) -> str:
    if "peak" not in found:
        return ""
    return " / ".join(f"{found['peak'][key]:,}" for key in COUNTERS)


def _against(found: Mapping[str, Any]) -> str:
    """Say how far the peaks are off those that were counted."""
    truth = found.get("truth")
    if not truth or "peak" not in found:
        return ""
    if all(found["peak"][key] == truth[key] for key in COUNTERS):
        return "equal"
    if any(found["upper"][key] != found["peak"][key] for key in COUNTERS) and all(found["upper"][key] == truth[key] for key in COUNTERS):
        return "equal to the upper end"
    return ", ".join(f"{key} {found['peak'][key] - truth[key]:+,}" for key in COUNTERS if found["peak"][key] != truth[key])


def table(results: Mapping[str, Any]) -> str:
    """Return the rows of the page."""
    heads = ("program", "command after `irscope simulate --device h100 --steps 3`", "first try", "reserved", "truth", "CPU s", "remark")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in PROGRAMS:
        found = results.get(row.name)
        if found is None:
            continue
        command = f"{f'--world {row.world} ' if row.world else ''}{row.options} {row.command}"
        ran = ("yes" if row.first else "no") + (f", exit {found['code']} now" if found["code"] else "")
        remark = row.remark or (found["error"] if found["code"] else "")
        reserved = f"{found['peak']['reserved']:,}" if "peak" in found else ""
        cells = [row.name, f"`{' '.join(command.split())}`", ran, reserved, _against(found)]
        lines.append("| " + " | ".join([*cells, str(found["cpu"]), remark.replace("|", "/")]) + " |")
    tried = [(row, results[row.name]) for row in PROGRAMS if row.name in results]
    graded = [_against(found) for _, found in tried if _against(found)]
    first = sum(row.first and not found["code"] for row, found in tried)
    same = sum(one.startswith("equal") for one in graded)
    run = sum(not found["code"] for _, found in tried)
    said = f"{len(tried)} programs: {first} ran at first try, {run} run now; of {len(graded)} with truth {same} are equal to the byte."
    return "\n".join([said, "", *lines])


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--field", default=os.environ.get("FIELD", ""), help="folder of checkouts; default: FIELD")
    parser.add_argument("--site", default="", help="folder of packages that the programs import")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="programs whose name contains one of these")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--limit", type=float, default=600, help="seconds for each run")
    parser.add_argument("--truth", action="store_true", help="also in the CUDA build")
    parser.add_argument("--results", default="field.json", help="where results are merged into")
    parser.add_argument("--page", action="store_true", help="write the table of docs/field.md")
    args = parser.parse_args()
    path = Path(args.results)
    results: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    build = os.environ.get("CUDA_BUILD_OF_TORCH", "")
    for row in PROGRAMS if args.field else ():
        root = Path(args.field)
        if (args.only and not any(one in row.name for one in args.only)) or not (root / row.folder).is_dir():
            continue
        found = simulated(row, root, args.site, args.steps, args.limit)
        if args.truth and build and row.truth:
            found["truth"] = counted(row, root, args.site, build, args.steps, args.limit)
        elif "truth" in results.get(row.name, {}):
            found["truth"] = results[row.name]["truth"]
        results[row.name] = found
        path.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        print(
            f"{row.name:<40} exit {found['code']} {found['cpu']:>6} s  {_figures(found)}  {_against(found)}  {found['error']}", flush=True
        )
    if args.page:
        before, rest = PAGE.read_text("utf-8").split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{rest.split(END)[1]}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
