"""`irscope zoo`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version

from irscope.cli.args import add_output_arguments, write_answer
from irscope.errors import UsageError
from irscope.frontends.zoo.names import PACKAGES
from irscope.frontends.zoo.packages import is_installed, names_of
from irscope.report.report import Document, Report
from irscope.report.table import Table

_EXAMPLES = {"torchvision": "resnet50", "timm": "vit_base_patch16_224", "transformers": "gpt2"}


class Command:
    """List the models that can be named instead of a file, such as torchvision:resnet50.

    They come from installed packages: definitions and configurations, without allocated weights. Nothing is
    downloaded. WHAT is a package, or a part of a name: resnet, "vit_*", transformers:bert. Without it the packages are listed.

    A name may have options in braces: 'transformers:llama{num_hidden_layers=2,dtype=bf16}'. --bind batch=8,seq=256 gives sizes.
    """

    examples = (
        ("irscope zoo", "which packages have models that can be named?"),
        ("irscope zoo resnet", "which models are called something like resnet?"),
        ("irscope zoo --format json timm 'vit_*'", "the names as data?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("what", nargs="*", metavar="WHAT", help="a package, or a part of a name; * and ? stand for any characters")
        parser.add_argument("--all", action="store_true", help="every model of every package")
        add_output_arguments(parser, rows=0)

    def run(self, args: argparse.Namespace) -> int:
        installed = [package for package in PACKAGES if is_installed(package)]
        tables = [_packages(installed)] if not args.what and not args.all else [_models(installed, args.what)]
        notes = [f"not installed: {package} (pip install {package})" for package in PACKAGES if package not in installed]
        if not args.what and not args.all:
            notes.append("`irscope zoo WHAT` lists models: a package, or a part of a name")
        report = Report("zoo", tables=tuple(tables), notes=tuple(notes))
        write_answer(Document(reports=(report,)), args)
        return 0


def _packages(installed: Sequence[str]) -> Table:
    rows = [(package, _package_version(package), len(names_of(package)), f"{package}:{_EXAMPLES[package]}") for package in installed]
    return Table.of(rows, columns=["package", "version", "models:count", "example"], title="packages")


def _models(installed: Sequence[str], what: Sequence[str]) -> Table:
    missing = next((one for one in what if one in PACKAGES and one not in installed), "")
    if missing:
        names_of(missing)  # says what to install
    found: list[tuple[str, str]] = []
    for package in installed:
        if what and not any(_means(package, one) for one in what):
            continue
        names = [name for name in names_of(package) if not what or any(_fits(package, name, one) for one in what)]
        found += [(package, f"{package}:{name}") for name in names]
    if not found:
        raise UsageError(f"no installed package has a model {' or '.join(what)!r}", code="IRS196", hint="`irscope zoo` lists the packages")
    return Table.of(found, columns=["package", "model"], title="models")


def _means(package: str, what: str) -> bool:
    """Return whether a package has to be asked for that."""
    named, colon, _ = what.partition(":")
    return package == named if colon or named in PACKAGES else True


def _fits(package: str, name: str, what: str) -> bool:
    named, colon, part = what.partition(":")
    if what == package:
        return True
    if colon:
        return named == package and _is_like(name, part)
    return what not in PACKAGES and _is_like(name, what)


def _is_like(name: str, part: str) -> bool:
    if "*" in part or "?" in part:
        return fnmatchcase(name.lower(), part.lower())
    return part.lower() in name.lower()


def _package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"
