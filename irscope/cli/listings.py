"""`irscope devices`, `config`, `cache`, `zoo` and `ops`: what is there to name, and what is set or kept."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from irscope import diskcache
from irscope.cli.args import add_input_arguments, add_output_arguments, load_options, write_answer
from irscope.devices.catalogue import all_devices, find_device
from irscope.errors import ExitCode, UsageError
from irscope.files import write_stream
from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo.names import PACKAGES
from irscope.frontends.zoo.packages import is_installed, names_of
from irscope.ops.registry import default_registry
from irscope.ops.spec import Absent, OpSpec
from irscope.passkit.registry import closest
from irscope.report.report import Coverage, Document, Report
from irscope.report.table import Table
from irscope.session import open_model
from irscope.tools.config import KEYS, check_key, chosen_device, config_file, read_config, set_config
from irscope.tools.devices import device_report, devices_report


class Devices:
    """List the devices that --device knows, or show every figure of one with its source.

    NAME is a device, "this" for this machine once `irscope calibrate` has measured it, or the path of a device file.
    """

    examples = (
        ("irscope devices", "which devices can predictions be for?"),
        ("irscope devices h100", "what is known of one, from which source?"),
        ("irscope devices --format csv --sort memory", "which has the most memory?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", help="a device, or a JSON file that describes one")
        add_output_arguments(parser, rows=0)

    def run(self, args: argparse.Namespace) -> int:
        report = device_report(find_device(args.name)) if args.name else devices_report(all_devices())
        write_answer(Document(reports=(report,)), args)
        return 0


class Config:
    """Show the defaults for all runs, or set them: `irscope config device=rtx4090`.

    --device on a command line overrides the setting. The card of a model is for this machine's GPU if there is one; everything else is
    for the device that is set.

    Exit codes: 0 done, 2 usage, also where the settings file does not fit.
    """

    examples = (
        ("irscope config", "what is set, and which device do cards take?"),
        ("irscope config device=rtx4090", "how do I get answers for the GPU of my other machine?"),
        ("irscope config --unset device", "how do I go back to the default?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help=f"what to set: {', '.join(KEYS)}; without any, what is set")
        parser.add_argument("--unset", action="append", default=[], metavar="NAME", help="go back to the default")
        add_output_arguments(parser, rows=0)

    def run(self, args: argparse.Namespace) -> int:
        wanted: dict[str, str] = {}
        for text in args.settings:
            key, equals, value = text.partition("=")
            check_key(key)
            if not equals or not value:
                raise UsageError(f"{text!r} is not of the form NAME=VALUE", code="IRS425", hint=f"for example {key}=rtx4090")
            wanted[key] = value
        for key in args.unset:
            check_key(key)
            wanted[key] = ""
        for key, value in wanted.items():
            set_config(key, value)
        write_answer(_settings_document(), args)
        return ExitCode.OK


def _settings_document() -> Document:
    """Return every setting, and the device that follows."""
    settings, chosen = read_config(), chosen_device()
    rows = [(key, settings.get(key, "not set"), meaning) for key, meaning in KEYS.items()]
    report = Report(
        "config",
        headline=(f"cards are for {chosen.device.title} ({chosen.device.name}): {chosen.reason}",),
        summary={"file": str(config_file())},
        tables=(Table.of(rows, ["setting:text", "value:text", "meaning:text"], "settings"),),
    )
    return Document(reports=(report,))


class Cache:
    """List what is kept of models that were named, or delete it.

    irscope keeps the program of a name, such as torchvision:resnet50 or ./train.py:build, until a file that it was built from changes.
    When the cache is full, irscope deletes the least recently used models first. --no-cache or IRSCOPE_NO_CACHE=1 builds a model again.
    """

    examples = (
        ("irscope cache ls", "which models are kept, and how large are they?"),
        ("irscope cache ls --sort size --top 5", "which take the most room?"),
        ("irscope cache clear", "how do I delete them all?"),
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("what", nargs="?", choices=("ls", "clear"), default="ls", help="list what is kept (default), or delete it")
        add_output_arguments(parser, rows=0)

    def run(self, args: argparse.Namespace) -> int:
        write_answer(Document(reports=(_cache_cleared() if args.what == "clear" else _cache_listed(),)), args)
        return ExitCode.OK


def _cache_cleared() -> Report:
    count, size = diskcache.clear()
    return Report("cache", headline=(f"{count} deleted",), summary={"entries": count, "bytes": size, "folder": str(diskcache.folder())})


def _cache_listed() -> Report:
    found = diskcache.entries()
    rows = [(one.name, one.size, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.used))) for one in found]
    return Report(
        "cache",
        headline=(f"{len(found)} kept",),
        summary={
            "entries": len(found),
            "bytes": sum(one.size for one in found),
            "limit_bytes": diskcache.MOST_BYTES,
            "folder": str(diskcache.folder()),
        },
        tables=(Table.of(rows, ["name:text", "size:bytes", "used:text"], "kept"),),
    )


_EXAMPLES = {"torchvision": "resnet50", "timm": "vit_base_patch16_224", "transformers": "gpt2"}


class Zoo:
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


class Ops:
    """List the operators irscope knows, or those of a model that it does not know."""

    examples = (
        ("irscope ops", "which operators are known?"),
        ("irscope ops nn.conv", "what is known of one: shapes, cost, aliases?"),
        ("irscope ops --coverage model.onnx", "what would irscope leave unknown in this model?"),
    )
    common = ("--coverage", "--family", "--input", "--bind", "--rows", "--sort", "--top", "--filter", "--format", "--output")

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", help="an operator to explain, such as nn.conv")
        parser.add_argument("--coverage", metavar="MODEL", help="operators of this model, unknown ones first")
        add_input_arguments(parser)
        parser.set_defaults(use_torch=False)
        parser.add_argument("--family", default="", help="only this family")
        add_output_arguments(parser, rows=0)

    def run(self, args: argparse.Namespace) -> int:
        if args.coverage:
            write_answer(_coverage_document(Path(args.coverage), load_options(args)), args)
            return 0
        registry = default_registry()
        if args.name:
            spec = registry.get(args.name)
            if spec is None:
                near = closest(args.name, [one.name for one in registry])
                raise UsageError(f"there is no operator {args.name!r}", code="IRS603", hint=f"did you mean {near!r}?" if near else "")
            write_stream(sys.stdout, [_explain(spec)])
            return 0
        specs = [spec for spec in registry if not args.family or spec.family.value == args.family]
        if not specs:
            known = ", ".join(sorted({spec.family.value for spec in registry}))
            raise UsageError(f"there is no family {args.family!r}", code="IRS603", hint=f"families: {known}")
        width = max(len(spec.name) for spec in specs)
        write_stream(sys.stdout, (f"{spec.name:{width}}  {spec.summary}\n" for spec in specs))
        return 0


def _explain(spec: OpSpec) -> str:
    types, cost = _knowledge(spec)
    facts = [spec.summary, f"  {spec.schema.text}", f"  family: {spec.family.value}", f"  types: {types}; cost: {cost}"]
    for rule in spec.aliases:
        how = "may share" if rule.may else "shares"
        facts.append(f"  result {rule.result} {how} the storage of {spec.schema.operands[rule.operand].name}")
    return "\n".join(facts) + "\n"


def _knowledge(spec: OpSpec | None) -> tuple[str, str]:
    """Return what irscope can say about an operator's types and cost, in a word each."""
    if spec is None:
        return "no record", "no record"
    return ("unknown" if spec.infer is Absent.UNKNOWN else "inferred", "unknown" if spec.cost is Absent.UNKNOWN else "counted")


def _coverage_document(path: Path, options: LoadOptions) -> Document:
    model = open_model(path, options)
    registry = default_registry()
    counts: Counter[tuple[str, str]] = Counter()
    for body in model.program.bodies():
        for node in body:
            counts[node.op, node.source] += 1
    rows = []
    for (name, source), count in counts.items():
        spec = registry.get(name)
        rows.append((name, source or name, count, *_knowledge(spec)))
    rows.sort(key=lambda row: (row[3] != "no record", row[4] == "counted", -row[2], row[0]))
    known = sum(row[2] for row in rows if row[3] != "no record")
    unknown = tuple(sorted({row[0] for row in rows if row[3] == "no record"}))
    table = Table.of(rows, columns=["operator:text", "from:text", "nodes:count", "types:text", "cost:text"], title="operators")
    report = Report("ops", tables=(table,), coverage=Coverage(known, sum(counts.values()), unknown))
    return Document(model=model.info(), reports=(report,))
