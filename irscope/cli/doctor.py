"""`irscope doctor`."""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Any, Final

from irscope._version import __version__
from irscope.cli.args import add_output_arguments, write_answer
from irscope.errors import ExitCode, IrscopeError
from irscope.immutable import immutable
from irscope.processes import Late, python, run
from irscope.report.report import Document, Report
from irscope.report.table import Table

_SECONDS: Final = 60.0
"""Time limit for trying them: they take 4 CPU seconds on an idle machine, most of it the import of torch."""


@immutable
class Ability:
    """Something that irscope does with torch, and whether it works here."""

    name: str
    what: str
    problem: str = ""
    """Reason why it does not work, or why that is not known, in a line; empty where it does."""

    @property
    def works(self) -> str:
        """Return "yes", "no", or "?" where it could not be tried."""
        return "?" if self.problem.startswith(_UNKNOWN) else "no" if self.problem else "yes"


@immutable
class Entry:
    """Something of torch's inside that differs between releases, and what of it is here."""

    name: str
    here: str
    problem: str = ""


_UNKNOWN: Final = "not known"
_WITHOUT: Final = "files, ONNX and checkpoints are read without it"
_WHATS: Final = {
    "capture": "cards, passes and fit of live modules",
    "train-plan": "memory of a module's training step",
    "simulate": "programs as they are written, generate",
    "compile": "programs that use torch.compile",
    "distributed": "DDP, FSDP2, pipelines of simulated worlds",
}


def tried() -> tuple[list[Ability], list[Entry]]:
    """Return every ability with what came of trying it, and what is there of torch's inside; files and ONNX need none of them."""
    try:
        ended = run(python(["-m", __name__]), seconds=_SECONDS)
    except Late:
        return [Ability(name, what, f"{_UNKNOWN}: trying took more than {_SECONDS:.0f} s") for name, what in _WHATS.items()], []
    try:
        problems, entries = json.loads(ended.text.splitlines()[-1])
    except (IndexError, ValueError):
        said = ended.complaints[-1] if ended.complaints else ended.how
        problems, entries = {name: f"{_UNKNOWN}: its process {ended.how} ({said})" for name in _WHATS}, []
    return [Ability(name, what, str(problems.get(name, _UNKNOWN))) for name, what in _WHATS.items()], [Entry(*row) for row in entries]


def _capture() -> None:
    import torch

    from irscope.api import capture

    capture(torch.nn.Linear(4, 4), torch.ones(2, 4))


def _train() -> None:
    import torch

    from irscope.api import capture_training

    capture_training(torch.nn.Linear(4, 4), torch.ones(2, 4), loss="sum", optimizer="sgd")


def _simulate() -> None:
    import torch

    from irscope.api import simulate

    def loop() -> None:
        net = torch.nn.Linear(4, 4).to("cuda")
        optimizer = torch.optim.AdamW(net.parameters())
        net(torch.ones(2, 4, device="cuda")).sum().backward()
        optimizer.step()

    found = simulate(loop, device="h100")
    if not found.steps:
        raise RuntimeError("no step was seen")


def _compile() -> None:
    from irscope.frontends.eager import internals
    from irscope.frontends.simulation.process import Process

    internals.dynamo_optimizers()
    if Process.current is None:
        raise RuntimeError("there is no simulated device")
    Process.current.compiler._install()


def _distributed() -> None:
    import importlib

    import torch

    from irscope.frontends.simulation.process import Process

    if Process.current is None or not torch.distributed.is_available():
        raise RuntimeError("there is no simulated device with torch.distributed")
    for name in ("fsdp", "pipelining", "tensor.parallel"):
        importlib.import_module(f"torch.distributed.{name}")


_TRIALS: Final[dict[str, Callable[[], None]]] = {
    "capture": _capture,
    "train-plan": _train,
    "simulate": _simulate,
    "compile": _compile,
    "distributed": _distributed,
}


def _problems() -> Iterator[tuple[str, str]]:
    for name, trial in _TRIALS.items():
        try:
            trial()
        except IrscopeError as error:
            yield name, str(error).splitlines()[0]
        except Exception as error:  # whatever a torch that nobody has seen makes of it
            yield name, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        else:
            yield name, ""


def _entries() -> Iterator[tuple[str, str, str]]:
    try:
        from irscope.frontends.eager.internals import ENTRIES
    except Exception:  # without it nothing that runs torch works, which the abilities say
        return
    for name, look in ENTRIES.items():
        try:
            yield name, look(), ""
        except Exception as error:
            yield name, "", str(error).partition("\n")[0] or type(error).__name__


def _main() -> None:
    warnings.simplefilter("ignore")
    out: Any = sys.stdout
    sys.stdout = sys.stderr
    problems = dict(_problems())
    out.write(json.dumps([problems, list(_entries())]) + "\n")


if __name__ == "__main__":
    _main()


_PACKAGES = {
    "numpy": "needed",
    "onnx": "reads .onnx files",
    "textual": "the terminal UI",
    "torch": "live models and real runs: pip install torch",
    "onnxruntime": "real runs of .onnx files: pip install onnxruntime",
    "onnxruntime-gpu": "real runs of .onnx files on CUDA: pip install onnxruntime-gpu",
    "nvidia-ml-py": "GPU memory and power: pip install nvidia-ml-py",
}
_REQUIRED = ("numpy", "onnx", "textual")


@immutable
class Finding:
    """One thing that is wrong, with what to do."""

    problem: str
    remedy: str


class Command:
    """Check the installation: versions, and packages that break one another. Exit code 1 when something is wrong."""

    examples = (
        ("irscope doctor", "is the installation sound?"),
        ("irscope doctor --format json", "the same for a script or an issue?"),
        ("irscope doctor --format csv", "which versions are installed, as a table?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_output_arguments(parser, rows=0)

    def run(self, args: argparse.Namespace) -> int:
        installed = {name: version(name) for name in _PACKAGES}
        abilities, entries = tried() if installed["torch"] is not None else ([], [])
        findings = [*diagnose(installed), *lacking(abilities, entries, installed["torch"] or "")]
        system = f"{platform.system()} {platform.machine()}"
        packages = Table.of(
            [(name, found or "-", _PACKAGES[name]) for name, found in installed.items()], ["package", "version", "for"], "packages"
        )
        report = Report(
            "doctor",
            headline=tuple(f"problem: {finding.problem}: {finding.remedy}" for finding in findings) or ("no problems found",),
            summary={"irscope": __version__, "python": platform.python_version(), "system": system, "problem_count": len(findings)},
            tables=(packages, *([_table_of(abilities)] if abilities else []), *([_table_inside(entries)] if entries else [])),
        )
        write_answer(Document(reports=(report,)), args)
        return ExitCode.FINDINGS if findings else ExitCode.OK


def lacking(abilities: Sequence[Ability], entries: Sequence[Entry], torch: str) -> list[Finding]:
    """Return a finding for each ability that the installed torch does not give, and for each part of its inside that is missing."""
    inside = [
        Finding(f"torch {torch} differs inside from those that are known ({one.name}): {one.problem}", "programs that do not need it run")
        for one in entries
        if one.problem
    ]
    untried = sorted({one.problem for one in abilities if one.works == "?"})
    return [
        *inside,
        *(Finding(f"what works with torch {torch} is {why}", f"run it again when the machine is idle; {_WITHOUT}") for why in untried),
        *(
            Finding(f"with torch {torch} {one.name} does not work ({one.what}): {one.problem}", _WITHOUT)
            for one in abilities
            if one.works == "no"
        ),
    ]


def _table_of(abilities: Sequence[Ability]) -> Table:
    rows = [(ability.name, ability.works, ability.what, ability.problem) for ability in abilities]
    return Table.of(rows, ["ability", "works", "for", "problem"], "with this torch")


def _table_inside(entries: Sequence[Entry]) -> Table:
    rows = [(entry.name, entry.here or "-", entry.problem) for entry in entries]
    return Table.of(rows, ["entry", "here", "problem"], "what differs between releases of torch")


def version(name: str) -> str | None:
    """Installed version of a distribution, None where it is absent."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def diagnose(installed: dict[str, str | None], importable: bool | None = None) -> list[Finding]:
    """Return what is wrong with these versions. `importable` says whether the module onnxruntime is whole; None looks."""
    findings = [Finding(f"{name} is not installed", f"pip install {name}") for name in _REQUIRED if installed.get(name) is None]
    cpu, gpu = installed.get("onnxruntime"), installed.get("onnxruntime-gpu")
    if cpu and gpu:
        findings.append(
            Finding(
                f"onnxruntime {cpu} and onnxruntime-gpu {gpu} are both installed and overwrite one another's files",
                "pip uninstall -y onnxruntime onnxruntime-gpu, then install the one you want",
            )
        )
    elif (cpu or gpu) and not (_is_whole() if importable is None else importable):
        name = "onnxruntime" if cpu else "onnxruntime-gpu"
        findings.append(
            Finding(
                f"{name} is installed but its files are damaged, as removing the other variant leaves it",
                f"pip install --force-reinstall {name}",
            )
        )
    return findings


def _is_whole() -> bool:
    """Return whether the package onnxruntime still has its code: uninstalling the other variant removes files both own."""
    spec = importlib.util.find_spec("onnxruntime")
    return spec is not None and spec.origin is not None and importlib.util.find_spec("onnxruntime.capi") is not None
