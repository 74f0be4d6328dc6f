"""`irscope doctor`."""

from __future__ import annotations

import argparse
import importlib.util
import platform
from collections.abc import Sequence
from importlib import metadata

from irscope._version import __version__
from irscope.cli.abilities import Ability, Entry, tried
from irscope.cli.args import add_output_arguments, write_answer
from irscope.errors import ExitCode
from irscope.immutable import immutable
from irscope.report.report import Document, Report
from irscope.report.table import Table

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
            headline=tuple(f"problem: {one.problem}: {one.remedy}" for one in findings) or ("no problems found",),
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
    return inside + [
        Finding(
            f"with torch {torch} {one.name} does not work ({one.what}): {one.problem}", "files, ONNX and checkpoints are read without it"
        )
        for one in abilities
        if one.problem
    ]


def _table_of(abilities: Sequence[Ability]) -> Table:
    rows = [(one.name, "no" if one.problem else "yes", one.what, one.problem) for one in abilities]
    return Table.of(rows, ["ability", "works", "for", "problem"], "with this torch")


def _table_inside(entries: Sequence[Entry]) -> Table:
    rows = [(one.name, one.here or "-", one.problem) for one in entries]
    return Table.of(rows, ["entry", "here", "problem"], "what differs between releases of torch")


def version(name: str) -> str | None:
    """Installed version of a distribution, None where it is absent."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def diagnose(installed: dict[str, str | None], importable: bool | None = None) -> list[Finding]:
    """What is wrong with these versions. `importable` says whether the module onnxruntime is whole; None looks."""
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
    """Whether the package onnxruntime still has its code: uninstalling the other variant removes files both own."""
    spec = importlib.util.find_spec("onnxruntime")
    return spec is not None and spec.origin is not None and importlib.util.find_spec("onnxruntime.capi") is not None
