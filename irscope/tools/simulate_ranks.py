"""`irscope simulate --rank all`: which ranks of a world differ, and what each kind of them takes; each runs in a process of its own."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import itertools
import json
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, Literal, NamedTuple

from irscope import processes
from irscope.devices import Target
from irscope.diagnostics import Diagnostic, Severity
from irscope.errors import ExitCode, UsageError
from irscope.files import TemporaryFolder
from irscope.frontends.simulation.imports import check_machine
from irscope.immutable import immutable
from irscope.memory.tape import COUNTERS
from irscope.report.names import ranks_text
from irscope.report.picture import Panel, largest_bars
from irscope.report.report import Report, Reported, diagnostic_json
from irscope.report.table import Column, Table
from irscope.report.units import Kind, bytes_text
from irscope.tools.simulate import check_script
from irscope.tools.simulation import INTERRUPTED, SCHEMA, Options, error_line, least_seconds, target_for, verdict_of

_EVERY: Final = 16
"""Worlds up to this size are simulated rank by rank."""
_GOLDEN: Final = 0.6180339887
_SPREAD: Final = 3
"""Ranks of no particular place that are simulated besides those at ends, by golden sections of the world."""
_NAMED: Final = 16
"""Ranks that the program compares something with, of which at most so many are simulated."""
_SOURCES: Final = 50
"""Files beside a script that are searched for such numbers."""
_PEERS: Final = frozenset({"send", "recv"})
"""Who talks to single ranks has a place of its own in the job, as stages of a pipeline: no two are taken to be alike."""
_SEVERITY: Final = ("finished", "steps", "oom", "needs_value", "error")


# -- one run in a process of its own ---------------------------------------------------------------------------------------


@immutable(slots=False)
class Program:
    """The program to run: a script or a module, and its arguments."""

    script: str
    arguments: Sequence[str] = ()
    is_module: bool = False

    def with_values(self, values: Mapping[str, str]) -> Program:
        """Return the program with values in the places of their names in braces."""
        arguments = list(self.arguments)
        for name, value in values.items():
            arguments = [argument.replace(f"{{{name}}}", value) for argument in arguments]
        return replace(self, arguments=arguments)

    def check_place(self, option: str, name: str, values: str, where: str) -> None:
        """Raise UsageError where no argument has a place for the values of an option of irscope's, which stands for `where` in words."""
        place = f"{{{name}}}"
        if any(place in argument for argument in self.arguments):
            return
        likely = next((argument for argument in self.arguments if name in argument), f"--{name}").partition("=")[0]
        raise UsageError(
            f"{option} {name}: no argument of the program has {place}, {where}",
            code="IRS643",
            where=self.script,
            hint=f"`irscope simulate {option} {name}={values} {self.script} {likely} {place}`",
        )


def how_it_ended(document: Mapping[str, Any]) -> tuple[Literal["fits", "oom", "fails"], str, int]:
    """Return whether a run came to its end on the device, the line or error that ended it, and the exit code of a command about it."""
    if document["outcome"] in ("finished", "steps"):
        return "fits", "", ExitCode.OK
    if document["outcome"] == "oom":
        return "oom", document["line"], ExitCode.FINDINGS
    place = f"{document['line']}: " if document["line"] else ""
    return "fails", place + error_line(str(document["error"])), document["exit_code"]


def arguments_of(program: Program, options: Options, *more: str) -> list[str]:
    """Return the arguments of `irscope` that simulate one rank; `more` are further options."""
    line = ["simulate", *(["--world", str(options.world), "--rank", str(options.rank)] if options.world else [])]
    line += ["--events", _events(options), "--local", str(options.local)]
    line += ["--steps", str(options.steps), "--time", str(options.seconds)]
    given = {
        "--device": options.device,
        "--torch": options.torch,
        "--alloc-conf": options.alloc_conf,
        "--answer": options.answer,
        "--routing": options.routing,
    }
    given["--link"] = f"{options.link}B/s" if options.link else ""
    line += [part for setting in options.settings for part in ("--set", setting)] + ["--no-limit"] * options.boundless
    line += ["--allow-unknown-kernels"] * options.allow_unknown + ["--keep-files"] * options.keep_files
    line += [part for name, value in given.items() if value not in (None, "") for part in (name, str(value))]
    return [*line, *more, *(["-m"] if program.is_module else []), program.script, *program.arguments]


def _events(options: Options) -> str:
    return "lazy" if options.pending_frees == "synchronize" else "both" if options.both_ends else "done"


_PATIENCE: Final = 20.0
"""Seconds that interrupted runs have to say what they have simulated, before they are killed."""
_SERVERS: Final = "from irscope.cli.simulate import serve; serve()"


class _Server:
    """A process that has imported torch and simulates nothing itself: each request is a child of it, which begins where others have
    spent their first seconds."""

    def __init__(self, requests: IO[str], answers: IO[str]) -> None:
        self._requests, self._answers = requests, answers
        self._child = 0
        """Process id of the simulation that is running, or 0."""
        self._sent = 0
        """The signal that ends what runs, or 0."""
        self._changing = threading.Lock()

    def run(self, line: Sequence[str], said: Path) -> int:
        """Return the exit status of an `irscope` command line; its standard error goes to a file, its standard output nowhere."""
        try:
            self._requests.write(json.dumps({"line": list(line), "stderr": str(said)}) + "\n")
            self._requests.flush()
        except BrokenPipeError:
            return -signal.SIGKILL
        child = int(self._answers.readline() or 0)
        with self._changing:
            self._child = child
            self._pass_on()  # where it came before the child was forked
        status = self._answers.readline()
        with self._changing:
            self._child = 0
        return int(status or -signal.SIGKILL)

    def send(self, number: int) -> None:
        """Send a signal to what runs, now or as soon as something does."""
        with self._changing:
            self._sent = number
            self._pass_on()

    def _pass_on(self) -> None:
        if self._child and self._sent:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, self._sent)

    def close(self) -> None:
        """Say that nothing more is asked for."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._answers.close()


class _Servers:
    """Servers that one process forks once it has imported torch."""

    def __init__(self, count: int) -> None:
        requests, answers = ([os.pipe() for _ in range(count)] for _ in range(2))
        theirs = [end for request, answer in zip(requests, answers, strict=True) for end in (request[0], answer[1])]
        # As torchrun sets it where several processes share a machine.
        environment = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": "1"}
        # Apart: Ctrl-C at the terminal comes from here, once, and not to the servers.
        command = processes.python(["-c", _SERVERS, *map(str, theirs)])
        self._process = processes.Child(command, pass_fds=theirs, environment=environment, apart=True)
        for end in theirs:
            os.close(end)
        self.servers = [
            _Server(os.fdopen(request[1], "w"), os.fdopen(answer[0])) for request, answer in zip(requests, answers, strict=True)
        ]

    def close(self) -> None:
        """End them, and wait for that."""
        for server in self.servers:
            server.close()
        self._process.wait()


class Children:
    """Simulations in processes of their own, as many at once as there are processors.

    Ctrl-C ends them all and keeps what they have simulated; pressed again, it kills them.
    """

    def __init__(self, program: Program, told: Callable[[int, int | None, str], None] | None = None) -> None:
        self._program = program
        self._told = told
        self._started: list[_Servers] = []
        self.interrupted = self._killed = False

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *raised: object) -> None:
        for servers in self._started:
            servers.close()

    def run(self, several: Sequence[Options], what: str = "ranks", programs: Sequence[Program] = ()) -> list[dict[str, Any]]:
        """Return the JSON document of each, of so many `what`; `exit_code` is added, and where there is no document there is one that says
        why.

        `programs` are run in the place of the one, each with its options.
        """
        cores = len(os.sched_getaffinity(0))  # Linux has it, and programs are simulated nowhere else
        missing = min(cores, len(several)) - sum(len(servers.servers) for servers in self._started)
        if missing > 0:
            self._started.append(_Servers(missing))
        servers = [server for servers in self._started for server in servers.servers]
        free: queue.SimpleQueue[_Server] = queue.SimpleQueue()
        for server in servers:
            free.put(server)
        with ThreadPoolExecutor(max(1, len(servers))) as pool:
            pairs = zip(programs or itertools.repeat(self._program), several, strict=bool(programs))
            made = [pool.submit(self._one, program, options, free) for program, options in pairs]
            try:
                for done, _ in enumerate(as_completed(made), 1):
                    if self._told is not None:
                        self._told(done, len(made), f"simulating {what}:")
            except KeyboardInterrupt:
                self.interrupted = True
                for server in servers:
                    server.send(signal.SIGINT)
                with contextlib.suppress(KeyboardInterrupt):
                    wait(made, _PATIENCE)
                self._killed = True
                for server in servers:  # a program may take an interrupt for its own affair
                    server.send(signal.SIGKILL)
            return [one.result() for one in made]

    def _one(self, program: Program, options: Options, free: queue.SimpleQueue[_Server]) -> dict[str, Any]:
        nothing = {"outcome": "error", "error": INTERRUPTED, "line": "", "steps": [], "collectives": [], "rank": options.rank}
        server = free.get()
        try:
            if self.interrupted:
                return {**nothing, "exit_code": int(ExitCode.INTERRUPTED)}
            with TemporaryFolder() as folder:
                path, said = Path(folder, "run.json"), Path(folder, "stderr")
                status = server.run(arguments_of(program, options, "--quiet", "--format", "json", "-o", str(path)), said)
                if self._killed and status == -signal.SIGKILL:
                    return {**nothing, "exit_code": int(ExitCode.INTERRUPTED)}
                written = said.read_text("utf-8", "replace").splitlines() if status and said.exists() else []
                lines = [text for text in written if text.strip()]
                if path.exists():
                    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
                    own = [text for text in lines if not text.startswith("irscope: ")]
                    if own and found["error"].startswith("it exits with"):
                        found["error"] += f": {own[-1]}"
                else:
                    found = {**nothing, "error": lines[-1].removeprefix("irscope: ") if lines else "it wrote nothing"}
        finally:
            free.put(server)
        if status < 0:
            found["error"] = f"its process {processes.how_it_ended(status)}"
        found["exit_code"] = status if status >= 0 else int(ExitCode.PASS)
        self.interrupted |= status == ExitCode.INTERRUPTED
        return found


def run_otherwise(program: Program, options: Options, what: str) -> dict[str, Any] | None:
    """Return the document of a program at another end of what nobody computes; None where it fails then."""
    with Children(program) as children:
        [document] = children.run([replace(options, both_ends=False, keep_files=False)], what)
    return document if document["outcome"] in ("finished", "steps") else None


def peak_of(document: Mapping[str, Any], key: str) -> int:
    """Return the highest peak of a counter; 0 where nothing was simulated."""
    found: int = document.get("peak", {}).get(key, 0)
    return found


def most_reserved(document: Mapping[str, Any]) -> int:
    """Return the highest peak of reserved, at either end of when work on other streams is done."""
    return max(peak_of(one or {}, "reserved") for one in (document, document.get("lazy"), document.get("in_flight")))


def traffic_seconds(document: Mapping[str, Any], link: float) -> float:
    """Return the least time that a device needs to send or receive its part of all collectives whose part is known."""
    found = (least_seconds(one["op"], len(_members(one["ranks"])), one["bytes"], link) for one in document["collectives"])
    return sum(one or 0 for one in found)


# -- the world as a grid -----------------------------------------------------------------------------------------------------


class Axis(NamedTuple):
    """A dimension of the world: rank = sum of place * stride."""

    name: str
    stride: int
    size: int


def _stretch(members: Sequence[int]) -> tuple[int, int]:
    """Return the stride and the number of ranks that lie evenly; stride 0 where they do not."""
    strides = {b - a for a, b in itertools.pairwise(members)}
    return (strides.pop() if len(strides) == 1 else 0), len(members)


def axes_of(world: int, groups: Iterable[tuple[str, Sequence[int]]]) -> list[Axis]:
    """Return the dimensions that the groups of some ranks show, outermost first; one for all ranks where they are no grid."""
    names: dict[tuple[int, int], str] = {}
    cuts = {1, world}
    for name, members in groups:
        stride, size = _stretch(members)
        if stride:
            names.setdefault((stride, size), name)
            cuts |= {stride, stride * size}
    chain = sorted(cuts)
    if any(b % a for a, b in itertools.pairwise(chain)):
        chain = [1, world]
    found = [Axis(names.get((a, b // a), ""), a, b // a) for a, b in itertools.pairwise(chain)]
    return found[::-1]


# -- classes of ranks --------------------------------------------------------------------------------------------------------


@dataclass
class RankClass:
    """Ranks that do the same with memory."""

    document: Mapping[str, Any]
    """Of the rank that stands for them."""
    ranks: list[int] = field(default_factory=list)
    simulated: list[int] = field(default_factory=list)
    name: str = ""

    @property
    def order(self) -> tuple[int, int]:
        """Those that went worst first, then those that take most."""
        return -_SEVERITY.index(self.document["outcome"]), -most_reserved(self.document)


@dataclass
class Ranks(Reported):
    """All ranks of a world."""

    program: Program
    options: Options
    target: Target
    classes: list[RankClass]
    """The worst first."""
    axes: list[Axis]
    unknown: list[int] = field(default_factory=list)
    """Ranks that no simulated one stands for."""
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """That of the rank that went worst."""
        return ExitCode.INTERRUPTED if self.interrupted else int(self.classes[0].document["exit_code"])

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Return what is to be said about the classes."""
        diagnostics = []
        if self.unknown:
            text = f"{len(self.unknown)} ranks were not simulated, and none that was stands for them: {ranks_text(self.unknown)}"
            diagnostics.append(Diagnostic(Severity.WARNING, "IRS647", text))
        elif (count := sum(len(one.simulated) for one in self.classes)) < self.options.ranks:
            done = ranks_text(sorted(rank for one in self.classes for rank in one.simulated))
            text = (
                f"{count} of {self.options.ranks} ranks were simulated, {done}; the others have the place in their groups of one that was, "
                "and differ only if the program treats them so by something else than a number that stands in it"
            )
            diagnostics.append(Diagnostic(Severity.NOTE, "IRS647", text))
        return diagnostics

    def to_json(self) -> dict[str, Any]:
        """Return the document of the worst rank, and `ranks`: the classes."""
        worst = {key: value for key, value in self.classes[0].document.items() if key != "exit_code"}
        made = [
            {
                "rank": one.document["rank"],
                "ranks": ranks_text(one.ranks),
                "count": len(one.ranks),
                "simulated": ranks_text(one.simulated),
                "name": one.name,
                **{key: one.document[key] for key in ("outcome", "error", "line", "exit_code")},
                "steps": len(one.document["steps"]),
                "peak": {key: peak_of(one.document, key) for key in COUNTERS},
                "most_reserved_bytes": most_reserved(one.document),
            }
            for one in self.classes
        ]
        said = [*worst.get("diagnostics", ()), *map(diagnostic_json, self.diagnostics)]
        return {"schema": SCHEMA, "script": self.program.script, **worst, "diagnostics": said, "ranks": made}

    def ends(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield who, and the document, of each class."""
        if self.interrupted:
            yield "", {"error": INTERRUPTED, "line": "", "outcome": "error"}
        for one in self.classes:
            if one.document["error"] != INTERRUPTED:
                yield f"rank {one.document['rank']}: ", one.document

    def report(self) -> Report:
        """Return the worst rank, and a row for each class."""
        worst = self.classes[0]
        summary: dict[str, Any] = {
            "verdict": self._verdict(),
            "program": f"{self.program.script} on {self.target.text}",
            "worst_rank": f"{worst.document['rank']} of {self.options.ranks}" + (f": {worst.name}" if worst.name else ""),
            "reserved_peak_bytes": peak_of(worst.document, "reserved"),
            "device_bytes": self.target.device.room_bytes or 0,
            "classes_count": len(self.classes),
            "simulated_count": sum(len(one.simulated) for one in self.classes),
        }
        tables = tuple(self._tables())
        return Report("simulate", summary=summary, tables=tables, diagnostics=tuple(self.diagnostics), pictures=self._pictures)

    def _pictures(self) -> list[Panel]:
        """Return the peaks of the classes beside each other."""
        names = [f"rank {one.document['rank']}{f': {one.name}' if one.name else ''}" for one in self.classes]
        columns = [(Column(key, Kind.BYTES), [peak_of(one.document, key) for one in self.classes]) for key in COUNTERS]
        panel = largest_bars("peaks of the classes of ranks", names, columns)
        return [panel] if panel is not None else []

    def _verdict(self) -> str:
        worst = self.classes[0]
        many = self.options.ranks > 1
        who = f", on rank {worst.document['rank']}" if many else ""
        alike = sum(len(one.ranks) for one in self.classes if one.document["outcome"] == worst.document["outcome"])
        if self.interrupted:
            return verdict_of({**worst.document, "outcome": "error", "error": INTERRUPTED}, self.target, who)
        if worst.document["outcome"] in ("error", "needs_value"):
            good = [one for one in self.classes if one.document["outcome"] in ("finished", "steps", "oom")]
            others = "; " + verdict_of(good[0].document, self.target, f", on rank {good[0].document['rank']}") if good else ""
            return f"unknown: {alike} of {self.options.ranks} ranks fail{others}"
        if many and len(self.classes) == 1 and not self.unknown:
            return verdict_of(worst.document, self.target, ", on every rank")
        said = verdict_of(worst.document, self.target, who)
        if worst.document["outcome"] == "oom":
            return f"{said}; {alike} of {self.options.ranks} ranks run out of memory"
        low, high = (choose(most_reserved(one.document) for one in self.classes) for choose in (min, max))
        return said + (f"; ranks reserve {bytes_text(low)} to {bytes_text(high)}" if bytes_text(low) != bytes_text(high) else "")

    def _tables(self) -> Iterator[Table]:
        rows = [
            (
                one.document["rank"],
                ranks_text(one.ranks),
                len(one.ranks),
                one.name,
                INTERRUPTED if one.document["error"] == INTERRUPTED else one.document["outcome"],
                *(peak_of(one.document, key) for key in COUNTERS),
                most_reserved(one.document),
            )
            for one in self.classes
        ]
        columns = ["rank", "stands for", "ranks:count", "place", "outcome", *(f"{key}:bytes" for key in COUNTERS), "at most:bytes"]
        shown = None if any(row[-1] != row[-2] for row in rows) else -1  # where streams or NCCL's watchdog are late
        yield Table.of([row[:shown] for row in rows], columns[:shown], "classes of ranks, the worst first")
        highest = [
            (one.document["rank"], max(one.document["steps"], key=lambda step: step["allocated"]["peak"]))
            for one in self.classes
            if one.document["steps"]
        ]
        kinds = list(dict.fromkeys(kind for _, step in highest for kind, size in step["by_category"].items() if size))
        if kinds:
            made_of = [(rank, step["allocated"]["peak"], *(step["by_category"][kind] for kind in kinds)) for rank, step in highest]
            yield Table.of(
                made_of, ["rank", "allocated:bytes", *(f"{kind}:bytes" for kind in kinds)], "what the peak of allocated is made of"
            )
        failed = [
            (one.document["rank"], one.document["line"], error_line(one.document["error"]))
            for one in self.classes
            if one.document["error"] not in ("", INTERRUPTED)
        ]
        if failed:
            yield Table.of(failed, ["rank", "line", "why"], "ranks that did not end by themselves")


class _Search:
    """Finds the ranks that differ, by simulating as few as it can."""

    def __init__(self, options: Options, most: int, children: Children) -> None:
        self._options, self._most, self.children = options, most, children
        self.found: dict[int, dict[str, Any]] = {}

    def simulate(self, ranks: Iterable[int]) -> None:
        """Simulate those of the ranks that were not simulated yet, within the limit."""
        wanted = [rank for rank in dict.fromkeys(ranks) if rank not in self.found][: max(0, self._most - len(self.found))]
        if wanted and not self.children.interrupted:
            made = self.children.run([replace(self._options, rank=rank) for rank in wanted])
            # One that was interrupted before it began tells nothing.
            self.found.update((rank, one) for rank, one in zip(wanted, made, strict=True) if "peak" in one or one["error"] != INTERRUPTED)

    def alike(self, one: int, other: int) -> bool:
        """Return whether two ranks did the same, as far as they were simulated."""
        return one in self.found and other in self.found and _signature(self.found[one]) == _signature(self.found[other])

    def axes(self) -> list[Axis]:
        """Return the dimensions of the world, as the groups of what was simulated show them."""
        groups = [(one["group"], _members(one["ranks"])) for made in self.found.values() for one in made["collectives"]]
        return axes_of(self._options.ranks, groups)

    def places(self, axis: Axis) -> list[int]:
        """Return for each place along an axis the one that stands for it."""
        collectives = [one for made in self.found.values() for one in made["collectives"] if one["op"] in _PEERS]
        if any(_stretch(_members(collective["ranks"])) == axis[1:] for collective in collectives):
            self.simulate(place * axis.stride for place in range(axis.size))
            return list(range(axis.size))
        stands = list(range(axis.size))
        self._halve(axis, 0, axis.size - 1, stands)
        return stands

    def _halve(self, axis: Axis, low: int, high: int, stands: list[int]) -> None:
        """Halve a range along an axis until neighbours are equal: what changes along it does so in stretches (shards, padded to equal
        sizes, end once).
        """
        self.simulate((low * axis.stride, high * axis.stride))
        if self.alike(low * axis.stride, high * axis.stride):
            stands[low : high + 1] = [stands[low]] * (high - low + 1)
        elif high - low > 1:
            middle = (low + high) // 2
            self._halve(axis, low, middle, stands)
            self._halve(axis, middle, high, stands)

    def classified(self, axes: Sequence[Axis], named: Sequence[int]) -> dict[int, int]:
        """Return for each rank the one that stands for it."""
        world = self._options.ranks
        grids = [self.places(axis) for axis in axes]
        stands = self._crossed(axes, grids)
        # Ranks that the program names, and some of no particular place, may be special without being at an end.
        step = max(1, round(world * _GOLDEN))
        spread = [(number * step) % world for number in range(1, 2 * _SPREAD) if (number * step) % world not in self.found][:_SPREAD]
        probed = list(dict.fromkeys([*named[:_NAMED], *spread]))
        self.simulate(probed)
        special = [rank for rank in probed if rank in self.found and not self.alike(rank, stands[rank])]
        whole = False
        for rank in special:
            for axis, grid in zip(axes, grids, strict=True):
                place = _place(rank, axis)
                if len(axes) > 1 and grid[place] != place:
                    self.simulate([place * axis.stride])
                    if not self.alike(place * axis.stride, grid[place] * axis.stride):
                        grid[place], whole = place, True
        if whole:
            stands = self._crossed(axes, grids)
        stands |= {rank: rank for rank in self.found}
        for low, high in itertools.pairwise(sorted(self.found)):
            between = range(low + 1, high)
            if between and low in special and self.alike(low, high):
                middle = (low + high) // 2
                self.simulate([middle])
                stands |= {rank: low if self.alike(low, middle) else stands[rank] for rank in between} | {middle: middle}
        return stands

    def _crossed(self, axes: Sequence[Axis], grids: Sequence[Sequence[int]]) -> dict[int, int]:
        """Return what differs along two axes may differ again where both do."""
        self.simulate(sum(p * a.stride for p, a in zip(places, axes, strict=True)) for places in itertools.product(*map(_unique, grids)))
        found = range(self._options.ranks)
        return {rank: sum(grid[_place(rank, a)] * a.stride for grid, a in zip(grids, axes, strict=True)) for rank in found}


def named_ranks(program: Program, world: int, axes: Sequence[Axis]) -> list[int]:
    """Ranks and places along the world's dimensions with whose numbers the program compares something; those beside them come last."""
    numbers: set[int] = set()
    for path in _sources(program):
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Compare | ast.MatchValue):
                    numbers |= {node.value for node in ast.walk(node) if isinstance(node, ast.Constant) and type(node.value) is int}
    numbers |= {int(argument) for argument in program.arguments if argument.isdecimal()}
    numbers = {number for number in numbers if 0 < number < world - 1}
    places = [number * axis.stride for number in sorted(numbers) for axis in axes if number < axis.size]
    return list(dict.fromkeys([*sorted(numbers), *places, *(number + side for number in sorted(numbers) for side in (-1, 1))]))


def _sources(program: Program) -> Iterator[Path]:
    """Yield the program's own files: the script, and modules that lie beside it."""
    if program.is_module:
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(program.script)
            if spec is not None and spec.origin:
                yield Path(spec.origin)
        return
    script = Path(program.script)
    yield script
    yield from itertools.islice((path for path in sorted(script.resolve().parent.glob("*.py")) if path.name != script.name), _SOURCES)


def _members(text: str) -> list[int]:
    """Return the ranks that `ranks_text` wrote."""
    members: list[int] = []
    for part in text.split(",") if text else ():
        stretch, _, step = part.partition(":")
        first, _, last = stretch.partition("-")
        members += range(int(first), int(last or first) + 1, int(step or 1))
    return members


def _signature(document: Mapping[str, Any]) -> str:
    """Return what two ranks have in common that do the same with memory: steps and traffic; names of groups differ between ranks."""
    traffic = sorted((one["op"], len(_members(one["ranks"])), one["calls"], one["bytes"]) for one in document["collectives"])
    return json.dumps(
        [document["outcome"], document["line"], document["steps"], document.get("pinned_peak_bytes", 0), traffic], sort_keys=True
    )


def all_ranks(program: Program, options: Options, most: int) -> Ranks:
    """Simulate one of each kind of ranks, at most so many."""
    world = options.ranks
    target = target_for(options)
    check_script(program.script, program.is_module)
    check_machine()
    with Children(program, options.told) as children:
        search = _Search(options, most, children)
        if world <= _EVERY:
            search.simulate(range(world))
            axes = search.axes()
            stands = {rank: rank for rank in range(world)}
        else:
            search.simulate((0, world - 1))
            axes = search.axes()
            stands = search.classified(axes, named_ranks(program, world, axes))
    if not search.found:
        raise KeyboardInterrupt
    classes: dict[str, RankClass] = {}
    unknown = []
    for rank in range(world):
        made = search.found.get(stands[rank])
        if made is None:
            unknown.append(rank)
            continue
        one = classes.setdefault(_signature(made), RankClass(made))
        one.ranks.append(rank)
        if rank in search.found:
            one.simulated.append(rank)
    for one in classes.values():
        one.name = _named(one.ranks, axes)
    return Ranks(program, options, target, sorted(classes.values(), key=lambda one: one.order), axes, unknown, search.children.interrupted)


def _unique(stands: Sequence[int]) -> list[int]:
    return sorted(set(stands))


def _place(rank: int, axis: Axis) -> int:
    return rank // axis.stride % axis.size


def _named(ranks: Sequence[int], axes: Sequence[Axis]) -> str:
    """Return the places that a class has along each axis, where it does not have them all."""
    parts = []
    for axis in axes if len(axes) > 1 else ():
        places = sorted({_place(rank, axis) for rank in ranks})
        if len(places) < axis.size:
            parts.append(f"{axis.name.removeprefix('mesh_') or f'every {axis.stride}'} {ranks_text(places)}")
    return ", ".join(parts)
