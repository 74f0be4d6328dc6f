"""What has to hold for every file: a documented exit, one short line, a bounded cost; and for what loads, sums that add up."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal, get_args, get_origin

from irscope.budget import BYTES_PER_FILE_BYTE, DEFAULT_BYTES
from irscope.cli.main import main
from irscope.errors import ExitCode, IrscopeError
from irscope.ir.dims import SymDim, bind, parse_dim
from irscope.ir.parser import parse_program
from irscope.ir.printer import print_program
from irscope.passes import PASSES
from irscope.passkit.options import option_types
from irscope.passkit.registry import default_registry
from irscope.report.printable import LONGEST_LINE
from irscope.session import open_model
from irscope.tools.audit.sources import Item, Listing, Packed, list_items, readable
from irscope.tools.audit.worker import Row, Setup, analyse
from irscope.tools.config import chosen_device
from tests.tools.difference import difference
from tests.tools.fuzz.mutants import FLOATS, HUGE, INTEGERS, TEXTS
from tests.tools.fuzz.trees import Files

SECONDS = 20.0
"""CPU time of one command: 10 to read the file, and as much for the passes, which the budget of reading does not hold for."""
ROOT = Path(__file__).parents[3]
FILE, COMPANION, FOLDER = "{file}", "{companion}", "{folder}"

_DOCUMENTED = frozenset(code for code in ExitCode if code < ExitCode.INTERRUPTED)
_TIMED = {name: f"{name}{{seconds=0.05}}" for name in ("schedule", "plan", "reorder", "recompute", "checkpoint")}
_SINGLE = tuple(_TIMED.get(name, name) for name in PASSES if name != "fixpoint")
_PIPELINES = ("default", "default", "cleanup", "params{values}", "liveness{model=ssa}", "liveness{model=jit}", "liveness{model=ort}")
_UNEXPECTED = re.compile(r"\b(\w*(?:Error|Exception|Interrupt|Overflow|StopIteration))\b")
_BEYOND_READER = re.compile(r"does not have the form of a \S+ model \(")
_PLACE = re.compile(r"(?:[\w/.-]*/)?(\w+)(?:\.py)?:(\d+)")


_ASKED_TOO_MUCH = re.compile(r"error IRS(?:3[35]\d|432|62[05]):|--over|/dev/null/")
"""Errors of usage that are none of the file's: a curve over a size that it does not have, a scheme in which none of its weights can be
stored, an output that cannot be written."""


_ASKED = ("device", "reproducer", "archive", "options")
"""Formats in which a file, or what is asked of it, may be an error of usage."""


class TooLong(BaseException):
    """The time is up; nothing that catches errors may catch this."""


@dataclass(frozen=True)
class Finding:
    """Something that does not hold: `signature` is the same for the same cause, most of the time."""

    signature: str
    text: str


@dataclass
class Outcome:
    """What came of one command."""

    code: int = -1
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    loaded: bool = False
    """Whether the file was read."""


def command_for(format: str, number: int) -> list[str]:
    """What to run over a mutant: mostly the reports as JSON, of one pass or of the default ones; now and then another command."""
    chance = random.Random(f"command {number}")
    passes = chance.choice(_PIPELINES) if chance.random() < 0.4 else chance.choice(_SINGLE)
    if format == "device":
        return ["run", "--format", "json", "--device", FILE, "--passes", chance.choice(_FOR_DEVICES), COMPANION]
    if format == "recording":
        return ["compare", "--format", chance.choice(("json", "json", "text", "csv")), COMPANION, FILE]
    if format == "reproducer":
        return ["repro", FILE]
    if format == "snapshot":
        return ["explain", "--no-try", "--format", chance.choice(("json", "json", "text", "csv", "html")), FILE]
    if format == "archive":
        return ["audit", FILE]
    if format == "options":
        return drawn_command(chance)
    target = FOLDER if format == "hub" else FILE
    if chance.random() < 0.8:
        return ["run", "--format", "json", "--passes", passes, target]
    return [*chance.choice(_OTHER_COMMANDS), target]


_FOR_DEVICES = ("roofline", "energy", "cuda-memory", "roofline,energy,liveness", "layers,fusion", "sweep", "advise")
_OTHER_COMMANDS = (
    ["show"],
    ["run"],
    ["run", "--format", "csv"],
    ["run", "--format", "html"],
    ["run", "--strict", "--verify-each", "--passes", "cleanup"],
    ["fit", "--memory", "1GiB"],
    ["sweep"],
    ["ops", "--coverage"],
    ["export", "-o", "/dev/null/timeline.json"],
    ["compare", "--format", "json", str(ROOT / "samples" / "mlp.irs")],
)


# -- drawn options ------------------------------------------------------------------------------------------------------

_GIVEN: Mapping[str, tuple[str, ...]] = {
    "--device": ("h100", "l4", "h200", "cpu"),
    "--torch": ("2.13", "2.8", "2.10"),
    "--memory": ("24GiB", "80GB", "1"),
    "--alloc-conf": ("expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:4"),
    "--format": ("text", "json", "csv", "html", "md"),
    "--rows": ("1", "7", "100"),
    "--top": ("1", "7", "100"),
    "--filter": ("bytes > 1KiB", "flops >= 1M", "op ~ conv", "share < 50%"),
    "--fail-on": ("note", "warning", "error"),
    "--bind": ("batch=4", "batch=17,seq=3", "s0=2"),
    "--budget": ("20s,1GB", "5s", "2GB"),
    "--as": ("int8", "nf4", "int4{group=64}", "mxfp4"),
}
_PLAIN: Mapping[type, tuple[str, ...]] = {
    **{bool: ("true", "false"), int: ("0", "1", "7", "1Ki"), float: ("0.5", "1", "20"), str: ("", "h100", "batch", "f32", "1GiB", "2x")}
}


def drawn_command(chance: random.Random) -> list[str]:
    """A command over a sound file, with options for it and for its passes that are mostly of the right kind."""
    passes = []
    for name in chance.sample(sorted(set(PASSES) - {"fixpoint"}), chance.choice((1, 1, 2))):
        types = option_types(default_registry().find(name))
        chosen = chance.sample(sorted(types), min(len(types), chance.choice((0, 1, 1, 2))))
        options = " ".join(f"{key}={_drawn_value(types[key], chance)}" for key in chosen if key != "seconds")
        limit = "seconds=0.05 " * ("seconds" in types)
        passes.append(f"{name}{{{limit}{options}}}" if limit or options else name)
    words = ["run", "--passes", ",".join(passes)]
    for option in chance.sample(sorted(_GIVEN), chance.choice((0, 1, 1, 2))):
        words += [option, _odd_text(chance) if chance.random() < _ODD_SHARE else chance.choice(_GIVEN[option])]
    return [*words, FILE]


_ODD_SHARE = 0.12


def _odd_text(chance: random.Random) -> str:
    """A text that no option is ready for; a command line has no zeros, and no surrogates alone."""
    text = str(chance.choice((*TEXTS, *INTEGERS, *HUGE, *FLOATS)))
    return text if "\0" not in text and text.isascii() else "\u202e"


def _drawn_value(kind: Any, chance: random.Random) -> str:
    if chance.random() < _ODD_SHARE:
        return json.dumps(_odd_text(chance))
    if get_origin(kind) is Literal:
        return str(chance.choice(get_args(kind)))
    if get_origin(kind) is Annotated:
        return chance.choice(("1", "4096", "64KiB"))
    if get_origin(kind) is tuple:
        return ",".join(_drawn_value(get_args(kind)[0], chance) for _ in range(chance.choice((1, 2))))
    return chance.choice(_PLAIN.get(kind, ("x",)))


_KNOWN: dict[str, Row] = {}
"""Rows by what is brought out of an archive: most mutants of one leave most of the models in it as they are."""
_SMALL = 1 << 20


def _row_of(item: Item, setup: Setup) -> Row:
    known = ""
    with contextlib.suppress(IrscopeError, OSError), readable(item, setup.fetch) as text:
        files = sorted(Path(text).parent.iterdir()) if isinstance(item.place, Packed) else []
        if files and sum(file.stat().st_size for file in files) < _SMALL:
            known = hashlib.sha256(b"\0".join(part for file in files for part in (os.fsencode(file.name), file.read_bytes()))).hexdigest()
            known += Path(text).name
    if known not in _KNOWN:
        row = analyse(item, setup, (chosen_device("h100"),)).model
        row.pop("cpu_seconds", None)
        if not known:
            return row
        _KNOWN[known] = row
    return _KNOWN[known]


def audited(path: str) -> int:
    """Do what `irscope audit` does in its processes, in this one: print a row for each model, and return an exit code."""
    listing, setup = Listing(seconds=5.0), Setup(fetch=64 << 20)
    rows = [_row_of(item, setup) for item in list_items([path], listing)]
    for row in rows:
        if row["status"] != "ok":
            print(f"irscope: error {row['code']}: {row['message']}", file=sys.stderr)
    if not rows:
        print("irscope: error: no model is in it", file=sys.stderr)
    print(json.dumps(rows, default=str))
    return ExitCode.OK if any(row["status"] == "ok" for row in rows) else ExitCode.LOAD


# -- one case -----------------------------------------------------------------------------------------------------------


def examine(format: str, files: Files, arguments: Sequence[str], companion: str, folder: Path, *, deep: bool = False) -> Outcome:
    """Write a case into a folder, run a command over it, and say what does not hold; `deep` also looks at what loads through Python."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    path = folder / next(iter(files))
    before = _files_in(folder)
    meant = {FILE: str(path), FOLDER: str(folder), COMPANION: companion}
    filled = [meant.get(argument, argument) for argument in arguments]
    size = sum(map(len, files.values()))
    outcome, out = _run(filled, size)
    if _files_in(folder) != before:
        outcome.findings.append(Finding("writes files", str(_files_in(folder) ^ before)))
    if outcome.code == ExitCode.USAGE and format not in _ASKED and not _ASKED_TOO_MUCH.search(out.err):
        outcome.findings.append(Finding("exit 2 for a file", out.err[-LONGEST_LINE:]))
    refused = (ExitCode.LOAD, ExitCode.USAGE) if format in _ASKED else (ExitCode.LOAD,)
    outcome.loaded = outcome.code in _DOCUMENTED and outcome.code not in refused
    if outcome.findings or outcome.code not in (ExitCode.OK, ExitCode.PARTIAL):
        return outcome
    outcome.findings += _of_output(filled, out, deep)
    if deep and arguments[0] == "run" and format not in ("device", "hub", "options") and not outcome.findings:
        outcome.findings += _of_program(path)
        if not any(name in " ".join(arguments) for name in ("seconds", "advise", "explain-peak")):
            again, other = _run(filled, size)
            if (again.code, other.out) != (outcome.code, out.out):
                outcome.findings.append(Finding("a second run differs", _first_difference(out.out, other.out)))
        if any("unknown" not in name for name in _symbols(path)):
            outcome.findings += _of_formulas(path, size)
    return outcome


def _files_in(folder: Path) -> set[str]:
    """Paths below a folder, but for irscope's own: its settings, and reproducers of crashes."""
    found = {path.relative_to(folder) for path in folder.rglob("*")}
    return {str(path) for path in found if path.parts[0] != "home" and not path.name.startswith("irscope-crash-")}


# -- one command --------------------------------------------------------------------------------------------------------


@dataclass
class _Streams:
    out: str = ""
    err: str = ""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TooLong, with the place where the time went, in code that takes more CPU time."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong(_place_of(frame))

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _place_of(frame: FrameType | None) -> str:
    """The innermost place in irscope."""
    while frame is not None and (str(ROOT) not in frame.f_code.co_filename or "/tests/" in frame.f_code.co_filename):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).stem}:{frame.f_code.co_name}" if frame else "outside"


def _run(arguments: list[str], size: int) -> tuple[Outcome, _Streams]:
    out, err = io.StringIO(), io.StringIO()
    outcome, streams = Outcome(), _Streams()
    resident = _reset_peak()
    started = time.process_time()
    try:
        with limited(SECONDS), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            outcome.code = audited(arguments[1]) if arguments[0] == "audit" else main(arguments)
    except IrscopeError as error:
        outcome.code = error.exit_code
        print(f"irscope: error {error.code}: {error.message}", file=err)
    except TooLong as place:
        outcome.findings.append(Finding(f"slow at {place}", f"more than {SECONDS} CPU s"))
    except BaseException as error:
        outcome.findings.append(Finding(f"{type(error).__name__} gets out", f"{type(error).__name__}: {error}"[:500]))
    outcome.seconds = time.process_time() - started
    streams.out, streams.err = out.getvalue(), err.getvalue()
    grown = _peak() - resident
    allowed = DEFAULT_BYTES + BYTES_PER_FILE_BYTE * size
    if grown > allowed:
        outcome.findings.append(Finding("memory", f"{grown:,} bytes, allowed are {allowed:,}"))
    if not outcome.findings:
        outcome.findings += _of_streams(outcome.code, streams)
    return outcome, streams


def _of_streams(code: int, streams: _Streams) -> Iterator[Finding]:
    lines = streams.err.splitlines()
    errors = [line for line in lines if line.startswith("irscope: error")]
    if code not in _DOCUMENTED:
        yield Finding(f"exit {code}", streams.err[-LONGEST_LINE:])
    if any(len(line) > LONGEST_LINE for line in lines) or not streams.err.replace("\n", "").isprintable():
        yield Finding("a line that is too long or not printable", max(lines, key=len)[:1000])
    if "Traceback (most" in streams.err and '  File "' in streams.err:
        yield Finding("traceback", streams.err[-2000:])
    for line in errors:
        if "IRS900" in line or _BEYOND_READER.search(line) or " failed: " in line:
            kind = _UNEXPECTED.search(line)
            at = _PLACE.search(line[line.find(", at ") :] if "IRS107" in line else line.removeprefix("irscope: error IRS500: "))
            number = re.search(r"IRS\d+", line)
            place = f"{at[1]}:{at[2]}" if at else "somewhere"
            yield Finding(f"{number[0] if number else 'error'} {kind[1] if kind else 'error'} at {place}", line)
    if code in (ExitCode.LOAD, ExitCode.PASS, ExitCode.USAGE) and not errors:
        yield Finding(f"exit {code} without a line", streams.err[-LONGEST_LINE:])


def _reset_peak() -> int:
    """Start counting the peak of this process's memory anew, where Linux lets us; what it has now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(key: str) -> int:
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    match = re.search(rf"{key}:\s*(\d+) kB", text)
    return int(match[1]) * 1024 if match else 0


def _first_difference(a: str, b: str) -> str:
    at = next((index for index, (left, right) in enumerate(zip(a, b, strict=False)) if left != right), min(len(a), len(b)))
    return f"{a[max(0, at - 100) : at + 100]!r} and {b[max(0, at - 100) : at + 100]!r}"


# -- what loads ---------------------------------------------------------------------------------------------------------


def _of_output(arguments: Sequence[str], streams: _Streams, deep: bool) -> Iterator[Finding]:
    if "json" not in arguments or arguments[0] not in ("run", "compare", "explain") or not streams.out:
        return
    try:
        document = json.loads(streams.out, parse_constant=_no_constant)
        json.dumps(document).encode()
    except (ValueError, RecursionError) as error:
        yield Finding(f"JSON {type(error).__name__}", f"{error} in {streams.out[-300:]!r}")
        return
    schema = {"run": "report", "compare": "compare"}.get(arguments[0])
    problem = next(iter(_validator(schema).iter_errors(document)), None) if deep and schema else None
    if problem is not None:
        yield Finding(f"schema {'/'.join('*' if isinstance(step, int) else str(step) for step in problem.path)}", problem.message[:400])
    for report in document.get("reports", ()):
        yield from _of_summary(report["pass"], report["summary"])


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


@functools.cache
def _validator(name: str) -> Any:
    import jsonschema

    return jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / f"{name}.schema.json").read_text()))


_SUMS = {
    "liveness": (("tensor_peak_bytes", ("tensor_peak",)),),
    "flops": (("total_flops", ("by_class",)), ("total_flops", ("by_arithmetic",))),
}
_AT_LEAST = {"liveness": (("activation_peak_bytes", "lower_bound_bytes"), ("tensor_peak_bytes", "activation_peak_bytes"))}


def _of_summary(name: str, summary: Mapping[str, Any]) -> Iterator[Finding]:
    """Parts add up to the whole, and no peak is lower than what is proven to be needed; formulas at a few sizes."""
    for sizes in (3, 17):
        value = functools.partial(_number, size=sizes)
        for whole, (parts,) in _SUMS.get(name, ()):
            found = [value(part) for part in summary.get(parts, {}).values()]
            # Where the largest of several formulas is the whole, the parts are those of one of them.
            total = None if "max(" in str(summary.get(whole)) else value(summary.get(whole))
            if found and total is not None and None not in found and sum(map(int, filter(None, found))) != total:
                yield Finding(f"{name}: {parts} does not add up", json.dumps(summary)[:1500])
        for more, less in _AT_LEAST.get(name, ()):
            high, low = value(summary.get(more)), value(summary.get(less))
            if high is not None and low is not None and high < low:
                yield Finding(f"{name}: {more} below {less}", json.dumps(summary)[:1500])


def _number(cell: object, size: int) -> int | None:
    """A whole number, or a formula with the same size for every symbol; None for what is unknown."""
    if isinstance(cell, int):
        return cell
    if not isinstance(cell, str) or "?" in cell:
        return None
    try:
        dim = parse_dim(cell)
        if isinstance(dim, SymDim):
            dim = bind(dim, {str(symbol): size for symbol in dim.symbols()})
    except IrscopeError:
        return None
    return dim if isinstance(dim, int) else None


def _of_program(path: Path) -> Iterator[Finding]:
    """The text form prints what was read, and reads back what it prints."""
    program = open_model(path).program
    try:
        text = print_program(program)
        again = parse_program(text, path=str(path))
        other = print_program(again)
    except Exception as error:
        yield Finding(f"print and parse: {type(error).__name__}", str(error)[:500])
        return
    if other != text:
        yield Finding("print and parse and print differ", _first_difference(text, other)[:500])
    found = difference(again, parse_program(other, path=str(path)))
    if found is not None:
        yield Finding("print and parse differ", found[:500])


def _symbols(path: Path) -> Mapping[str, SymDim]:
    return open_model(path).program.symbols


def _of_formulas(path: Path, size: int) -> Iterator[Finding]:
    """A formula at some sizes is what the bound model says, where that has nothing to complain about."""
    open_ones = {name: symbol for name, symbol in _symbols(path).items() if re.fullmatch(r"[A-Za-z_]\w*", name)}
    sizes: dict[str, int] = {}
    for at, (name, one) in enumerate(open_ones.items()):
        low, high = one.bounds
        wanted = max(low if low is not None else 1, 3 + 2 * at)
        sizes[name] = wanted if high is None else min(wanted, high)
    passes = "flops,liveness"
    _, symbolic = _run(["run", "--format", "json", "--passes", passes, str(path)], size)
    told = ",".join(f"{name}={number}" for name, number in sizes.items())
    if not told or any(number < 0 or number > 1 << 40 for number in sizes.values()):
        return
    outcome, bound = _run(["run", "--format", "json", "--passes", passes, "--bind", told, str(path)], size)
    yield from outcome.findings
    if bound.err or not bound.out or not symbolic.out:
        return
    for before, after in zip(_reports(symbolic.out), _reports(bound.out), strict=True):
        if before.get("model") != after.get("model"):
            continue  # such as XLA's, which takes no open sizes
        for key, formula in before.items():
            number = _bound(formula, sizes)
            if number is not None and isinstance(after.get(key), int) and number != after[key]:
                yield Finding(f"formula of {key}", f"{formula} with {told} is {number}, the bound model says {after[key]}"[:600])


def _reports(text: str) -> list[dict[str, Any]]:
    """Exact numbers of each report's summary."""
    reports = []
    for report in json.loads(text)["reports"]:
        inexact = report.get("provenance", {})
        reports.append({key: value for key, value in report["summary"].items() if key not in inexact})
    return reports


def _bound(formula: object, sizes: Mapping[str, int]) -> int | None:
    if not isinstance(formula, str) or "?" in formula:
        return None
    try:
        dim = parse_dim(formula)
    except IrscopeError:
        return None
    number = bind(dim, dict(sizes)) if isinstance(dim, SymDim) else dim
    return number if isinstance(number, int) else None
