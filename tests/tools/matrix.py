"""Install irscope beside other releases of what it works with, and try it there: `make test-matrix`.

    python -m tests.tools.matrix [CORNER ...] [--quick] [--keep] [--page]

A corner is an environment as users have: the wheel, installed by pip (or uv, where it is), with the packages that the corner names.
In each, the commands of `STEPS` run in an empty folder outside the repository, and their figures are compared with those that this
environment gives: memory of PyTorch is compared in requested bytes, which do not depend on how a release rounds and caches.
`--quick` also runs the tests that `make quick` runs and that need no more than the corner has. Environments are kept below build/matrix
with `--keep`, and used again. `--page` writes the table of docs/compatibility.md from the results.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "matrix"
PAGE: Final = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- corners -->", "<!-- end -->"
TRIED: Final = ("torch", "onnxruntime", "transformers")
"""Packages that some steps need."""
_TESTING: Final = ("pytest>=8.3", "pytest-asyncio>=1.0", "pytest-xdist>=3.6", "hypothesis>=6.100", "jsonschema>=4.20", "pyyaml>=6")
LIMIT_SECONDS: Final = 300
"""For each command; imports of a CUDA build alone take up to 20 s on a cold disk."""


@dataclass(frozen=True)
class Corner:
    """An environment; its Python is this one's where it names none."""

    name: str
    packages: tuple[str, ...]
    python: str = ""

    def has(self, package: str) -> bool:
        """Return True where the corner installs a package by name."""
        return any(requirement.partition("=")[0].partition(">")[0] == package for requirement in self.packages)


CORNERS: Final = (
    Corner("newest of all", ("torch", "transformers", "onnxruntime", "onnx", "textual", "numpy")),
    Corner("oldest that is supported", ("onnx==1.16.*", "onnxruntime==1.20.*", "numpy==1.26.*", "textual==8.0.*")),
    Corner("onnxruntime 1.24", ("onnxruntime==1.24.*", "numpy>=2")),
    *(Corner(f"torch {release}", (f"torch=={release}.*",)) for release in ("2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15")),
    *(Corner(f"transformers {release}", (f"transformers=={release}.*", "torch==2.13.*")) for release in ("4.57", "5.0")),
    *(Corner(f"Python {release}", ("onnxruntime",), f"python{release}") for release in ("3.12", "3.13", "3.14")),
)


@dataclass(frozen=True)
class Step:
    """A command of irscope, and the path of a figure in the JSON that it prints; `needs` are packages."""

    name: str
    command: tuple[str, ...]
    figure: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


_LOOP: Final = """import torch
net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    net(torch.randn(64, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_JSON: Final = ("--format", "json")
_SIMULATE: Final = ("simulate", "--device", "h100", *_JSON, "--quiet")
_PEAK: Final = ("peak", "requested")
STEPS: Final = (
    Step("card", ("--device", "l4", "mlp.irs")),
    Step("flops of .onnx", ("run", *_JSON, "--passes", "flops", "transformer.onnx"), ("flops", "total_flops")),
    Step("session of .onnx", ("run", "--passes", "ort-memory", "cnn.onnx"), needs=("onnxruntime",)),
    Step("memory of .pt2", ("run", *_JSON, "--device", "l4", "--passes", "liveness", "net.pt2"), ("liveness", "warm", "requested")),
    Step("memory of .pt", ("run", *_JSON, "--device", "l4", "--passes", "liveness", "net.pt"), ("liveness", "warm", "requested")),
    Step("own pass", ("run", "--passes", "./custom_pass.py:NarrowConvs", "cnn.onnx")),
    Step("fit", ("fit", "--memory", "1GiB", "--free", "batch", "cnn.onnx")),
    Step("export", ("export", "cnn.onnx", "-o", "cnn.svg")),
    Step("doctor", ("doctor",)),
    Step("card of a module", ("--device", "h100", "./vision.py:build"), needs=("torch",)),
    Step("train-plan", ("train-plan", *_JSON, "./training.py:build"), ("training", "steady_step", "requested"), ("torch",)),
    Step("simulate", (*_SIMULATE, "loop.py"), _PEAK, ("torch",)),
    Step("simulate, DDP", (*_SIMULATE, "--world", "8", "train_ddp.py"), _PEAK, ("torch",)),
    Step("simulate, FSDP2", (*_SIMULATE, "--world", "8", "train_fsdp2.py"), _PEAK, ("torch",)),
    Step("simulate, compiled", (*_SIMULATE, "train_compiled.py", "resnet"), _PEAK, ("torch",)),
    Step("record", ("record", "--trust", "net.pt2", "-o", "run.jsonl"), needs=("torch",)),
    Step("compare", ("compare", "net.pt2", "run.jsonl"), needs=("torch",)),
    Step("generate", ("generate", "--device", "h100", "--prompt", "128", "--new", "8", *_JSON, "llama"), (), ("torch", "transformers")),
)


def main() -> int:
    """Try the corners that are named, all by default; end with 1 if a command failed in any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corners", nargs="*", metavar="CORNER", help="parts of names, as 'torch 2.15'")
    parser.add_argument("--quick", action="store_true", help="also run the quick tests")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--page", action="store_true", help="write the table of docs/compatibility.md")
    args = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / "results.json"
    results: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    wheel = built()
    results["here"] = {"steps": dict(tried(Path(sys.executable), [name for name in TRIED if find_spec(name)]))}
    failed = False
    for corner in CORNERS:
        if args.corners and not any(name in corner.name for name in args.corners):
            continue
        results[corner.name] = row = result_of(corner, wheel, quick=args.quick, keep=args.keep)
        path.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        print(f"{corner.name}: {summary(row, results['here'])}", flush=True)
        failed |= bool(faults(row, results["here"]))
    if args.page:
        before, rest = PAGE.read_text("utf-8").split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{rest.split(END)[1]}", "utf-8")
    return int(failed)


def built() -> Path:
    """Build the wheel of this tree."""
    shutil.rmtree(FOLDER / "wheel", ignore_errors=True)
    _checked([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(FOLDER / "wheel"), str(ROOT)])
    (wheel,) = (FOLDER / "wheel").glob("*.whl")
    return wheel


def result_of(corner: Corner, wheel: Path, *, quick: bool, keep: bool) -> dict[str, Any]:
    """Make the environment of a corner and run every step in it."""
    began = time.monotonic()
    environment = FOLDER / corner.name.replace(" ", "-")
    try:
        python = installed(corner, environment, wheel)
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        return {"missing": _last_line(getattr(error, "stderr", "") or str(error))}
    versions = _output([str(python), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"])
    row: dict[str, Any] = {
        "versions": {entry["name"]: entry["version"] for entry in json.loads(versions)},
        "install_seconds": round(time.monotonic() - began),
        "steps": dict(tried(python, [name for name in TRIED if corner.has(name)])),
    }
    if quick:
        # Tests import from the tree, which the wheel would hide in part.
        _checked([*_pip(python), "--no-deps", "--editable", str(ROOT)])
        _checked([*_pip(python), *_TESTING])
        options = ["-q", "-p", "no:cacheprovider", "-m", "not full and not slow"]
        done = _run([str(python), "-m", "pytest", *options, *_quick_tests()], ROOT, 3600)
        row["quick"] = _last_line(done.stdout).partition(" in ")[0]
    if not keep:
        shutil.rmtree(environment)
    return row


def installed(corner: Corner, environment: Path, wheel: Path) -> Path:
    """Return the Python of a corner's environment, with the wheel of now in it."""
    python = environment / "bin" / "python"
    fast = shutil.which("uv")
    if not python.exists():
        _checked([_interpreter(corner.python), "-m", "venv", str(environment)])
        if fast:
            _checked([fast, "pip", "install", "--quiet", "--python", str(python), str(wheel), *corner.packages])
        else:
            _checked([*_pip(python), str(wheel), *corner.packages])
    _checked([*_pip(python), "--force-reinstall", "--no-deps", str(wheel)])
    return python


def _interpreter(name: str) -> str:
    """Return a Python by the name of its program, from PATH or from pyenv, whose shims fail for versions that are not selected."""
    if not name:
        return sys.executable
    kept = Path.home().glob(f".pyenv/versions/{name.removeprefix('python')}*/bin/{name}")
    for program in filter(None, [shutil.which(name), *map(str, kept)]):
        if not _run([program, "-c", ""], ROOT, LIMIT_SECONDS).returncode:
            return program
    raise FileNotFoundError(f"there is no {name} here")


def _pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def tried(python: Path, packages: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the steps whose packages are there, in an empty folder: how each ended, and its figure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for source in (*(ROOT / "samples").iterdir(), *(ROOT / "samples" / "models").iterdir()):
            if source.is_file():
                shutil.copy(source, folder)
        shutil.copytree(ROOT / "samples" / "llama-3.1-8b", folder / "llama")
        (folder / "loop.py").write_text(_LOOP, "utf-8")
        for step in STEPS:
            if set(step.needs) <= set(packages):
                yield step.name, _result(_run([str(python), "-m", "irscope", *step.command], folder, LIMIT_SECONDS), step)


def _result(done: subprocess.CompletedProcess[str], step: Step) -> dict[str, Any]:
    if done.returncode:
        return {"code": done.returncode, "error": _last_line(done.stderr)}
    return {"code": 0, "figure": figure_of(json.loads(done.stdout), step.figure)} if step.figure else {"code": 0}


def figure_of(document: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the figure at a path, whose first part names a pass in a document that has reports."""
    place: Any = document
    if "reports" in document:
        place = next(report["summary"] for report in document["reports"] if report["pass"] == path[0])
        path = path[1:]
    for part in path:
        place = place[part]
    return place


def faults(row: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """List the steps of a corner that failed or gave another figure than they give here."""
    listed = []
    for name, step in row.get("steps", {}).items():
        own = here["steps"].get(name, {})
        if step["code"]:
            listed.append(f"{name}: exit {step['code']}, {step['error']}")
        elif "figure" in step and step["figure"] != own.get("figure", step["figure"]):
            listed.append(f"{name}: {step['figure']:,}, here {own['figure']:,}")
    return listed


def summary(row: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Say in a line how a corner did."""
    if "missing" in row:
        return f"not tried: {row['missing']}"
    listed = faults(row, here)
    ran = f"{len(row['steps']) - len(listed)} of {len(row['steps'])} steps"
    return "; ".join([ran, *listed])


def table(results: Mapping[str, Any]) -> str:
    """Return the rows of the page."""
    lines = ["| environment | releases | steps | quick tests |", "|---|---|---|---|"]
    for corner in CORNERS:
        if (row := results.get(corner.name)) is None:
            continue
        shown = ("torch", "transformers", "onnxruntime", "onnx", "numpy", "textual")
        versions = ", ".join(f"{name} {row['versions'][name]}" for name in shown if name in row.get("versions", {}))
        lines.append(f"| {corner.name} | {versions} | {summary(row, results['here']).replace('|', '/')} | {row.get('quick', '')} |")
    return "\n".join(lines)


def _quick_tests() -> list[str]:
    return _output(["make", "-s", "-C", str(ROOT), "list-quick"]).split()


def _run(command: Sequence[str], folder: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"it took longer than {seconds:.0f} s")


def _checked(command: Sequence[str]) -> None:
    subprocess.run(command, capture_output=True, text=True, check=True)


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:200]


if __name__ == "__main__":
    sys.exit(main())
