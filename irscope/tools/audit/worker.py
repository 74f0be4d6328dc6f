"""The process of an audit: it opens one model after another within limits, and reports what it found as rows of tables."""

from __future__ import annotations

import gc
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from irscope._version import __version__
from irscope.diagnostics import Severity
from irscope.errors import ExitCode, IrscopeError
from irscope.frontends.base import LoadOptions
from irscope.immutable import immutable
from irscope.ir.program import Program
from irscope.ops.registry import default_registry
from irscope.passkit.settings import Settings
from irscope.processes import Pipe
from irscope.report.card import Card
from irscope.report.figures import FIGURES
from irscope.report.printable import one_line, well_formed
from irscope.report.report import Report
from irscope.report.values import Scalar, json_value, plain
from irscope.session import Results, open_model
from irscope.tools.audit.sources import DEFAULT_FETCH, Item, Local, content_key, readable, short_digest
from irscope.tools.card import make_card, memory_card
from irscope.tools.config import Chosen, chosen_device

Row: TypeAlias = dict[str, Scalar]

_MOST_SIGNATURES: Final = 2_000
"""Kinds of operators with shapes that one model has in the census; the rest of a larger one is one row."""
_PER_DEVICE: Final = tuple(key for key, figure in FIGURES.items() if figure.per_device)
"""Figures that are computed for each further device, as in peak@l4."""
_BYTES_PER_FILE_BYTE: Final = 6
"""Memory that reading a graph may take for each byte of its file, weights within included: protobuf's message, then the IR."""
_OF_VALUES: Final = ("values", "quant", "spectral", "store-as", "prune")
"""Words in a pipeline whose passes read values of weights."""
_TOO_MUCH: Final = frozenset({"IRS106", "IRS722"})


@immutable
class Setup:
    """Questions to ask of every model, and limits for each."""

    devices: tuple[str, ...] = ()
    """The first is the card's; of the others memory is told."""
    passes: str = ""
    bind: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 60.0
    """CPU time of one model."""
    memory: int = 4 << 30
    """Bytes of one model, the program itself included."""
    files: int = 256
    """Files that are open at once."""
    fetch: int = DEFAULT_FETCH

    @property
    def reads_values(self) -> bool:
        """Return whether passes look at the values of weights, so that two files with one header are two models."""
        return any(word in self.passes for word in _OF_VALUES)

    def digest(self) -> str:
        """Return the digest of what decides the results: the version, the passes, the devices and the sizes, not the limits."""
        return short_digest(__version__, self.passes, ",".join(self.devices), repr(sorted(self.bind.items())))


@dataclass(slots=True)
class Found:
    """Rows about one model: of the table of models, of the census of operators, and of each pass."""

    model: Row
    operators: list[Row] = field(default_factory=list)
    passes: dict[str, Row] = field(default_factory=dict)


_MISSING_DATA: Final = "IRS156"


def failure(reason: str, code: str, message: str) -> Found:
    """Return the row of a model that could not be analysed."""
    return Found({"status": "failed", "reason": reason, "code": code, "message": one_line(message)})


# -- one model ---------------------------------------------------------------------------------------------------------


def analyse(item: Item, setup: Setup, chosen: tuple[Chosen, ...]) -> Found:
    """Return what there is to say about a model; a failure is a row too."""
    started = time.process_time()
    try:
        if item.error is not None:
            return failure("over budget" if item.error[0] in _TOO_MUCH else "unreadable", *item.error)
        with readable(item, setup.fetch, whole=setup.reads_values) as text:
            found = _analysed(text, setup, chosen, lies_here=isinstance(item.place, Local))
    except IrscopeError as error:
        found = failure(_reason(error), error.code, f"{error.message} ({error.hint})" if error.hint else error.message)
    except MemoryError:
        found = failure("memory", "IRS723", f"takes more than the {setup.memory >> 20:,} MiB that one model may")
    except RecursionError:
        found = failure("bug", "IRS900", "nests deeper than can be read")
    except Exception as error:  # one model must not take the others with it
        found = failure("bug", "IRS900", f"{type(error).__name__}: {error}")
    found.model["cpu_seconds"] = round(time.process_time() - started, 4)
    return found


def _reason(error: IrscopeError) -> str:
    if error.code in _TOO_MUCH:
        return "over budget"
    return {ExitCode.LOAD: "unreadable", ExitCode.USAGE: "unsupported"}.get(error.exit_code, "analysis")


def _analysed(text: str, setup: Setup, chosen: tuple[Chosen, ...], *, lies_here: bool) -> Found:
    """Return the rows of a model; of one that was fetched for that nobody knows whether its weights lie beside it."""
    settings = Settings(device=chosen[0].name if setup.devices else "")
    model = open_model(Path(text), LoadOptions(bind=dict(setup.bind)), settings=settings)
    card = make_card(model, chosen[0], brief=True)
    found = Found(_card_row(card))
    for further in chosen[1:]:
        other = memory_card(model, further)
        cells = other.fields()
        found.model |= {f"{key}@{further.name}": cells.get(key) for key in _PER_DEVICE}
    found.operators = census(model.program)
    if setup.passes:
        results = Results(model.manager.run(setup.passes), model.manager.settings)
        for report in results.reports:
            found.passes[report.options or report.pass_name] = _pass_row(report)
    failed = card.failure
    said = dict.fromkeys((*model.diagnostics, *card.diagnostics))
    wrong = next((("contradiction", each) for each in said if each.severity is Severity.ERROR), None)
    wrong = wrong or next((("missing data", each) for each in said if lies_here and each.code == _MISSING_DATA), None)
    reason, fault = (_reason(failed), failed) if failed is not None else wrong or (None, None)
    found.model |= {
        "status": "ok" if fault is None else "failed",
        "reason": reason,
        "code": None if fault is None else fault.code,
        "message": None if fault is None else one_line(fault.message),
        "warnings": sum(remark.severity.text != "note" for remark in said),
    }
    return found


def _card_row(card: Card) -> Row:
    cells = {key: value if not isinstance(value, str) else well_formed(value) for key, value in card.fields().items() if key != "path"}
    written = card.to_json()
    cells["provenance"] = ",".join(f"{key}={word}" for key, word in sorted(written["provenance"].items()))
    cells["unknown_names"] = ",".join(written["unknown"]["operators"]) or None
    return cells


def _pass_row(report: Report) -> Row:
    """Return the summary of a pass; a number that is a formula stands in a column of its own, so that a column has numbers or texts."""
    row: Row = {}
    for entry in report.entries():
        value = json_value(plain(entry.cell))
        if isinstance(value, str) and entry.kind.is_number:
            row[entry.key], row[f"{entry.key}_formula"] = None, value
        elif isinstance(value, int | float | str | bool) or value is None:
            row[entry.key] = value
        else:
            row[entry.key] = json.dumps(value)
    return row


def census(program: Program) -> list[Row]:
    """Return the operators with the types that they are used with, the most frequent first, and whether irscope knows them."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for body in program.bodies():
        for node in body:
            inputs = ", ".join("-" if value is None else str(value.type) for value in node.inputs)
            outputs = ", ".join(str(value.type) for value in node.outputs)
            counts[node.op, node.source or node.op, inputs, outputs] += 1
    registry = default_registry()
    rows: list[Row] = []
    for (op, source, inputs, outputs), count in counts.most_common(_MOST_SIGNATURES):
        rows.append(
            {
                "op": well_formed(op),
                "source": well_formed(source),
                "inputs": well_formed(inputs),
                "outputs": well_formed(outputs),
                "count": count,
                "known": registry.get(op) is not None,
            }
        )
    rest = sum(counts.values()) - sum(int(str(row["count"])) for row in rows)
    if rest:
        rows.append({"op": None, "source": None, "inputs": None, "outputs": None, "count": rest, "known": None})
    return rows


# -- the process -------------------------------------------------------------------------------------------------------


def serve(pipe: Pipe, setup: Setup) -> None:
    """Do what comes through the pipe until it is closed; each answer says which of the items it is about.

    A message is ("analyse" or "key", items); the answers are ("begin", n) and ("done", n, what was found), in order.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who is asked decides what is still done
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _limit_memory(setup)
    chosen = tuple(map(chosen_device, setup.devices)) or (chosen_device(),)
    gc.collect()
    gc.freeze()  # what was imported lives as long as the process
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            task, items = pipe.recv()
            for number, item in enumerate(items):
                pipe.send(("begin", number))
                limit_next(item, setup)
                if task == "key":
                    pipe.send(("done", number, _key(item, setup)))
                else:
                    pipe.send(("done", number, analyse(item, setup, chosen)))
                    gc.collect()  # graphs are full of cycles: without it the next model comes on top of this one


def _key(item: Item, setup: Setup) -> str:
    try:
        found = content_key(item, reads_values=setup.reads_values)
    except (OSError, MemoryError, IrscopeError, RuntimeError):
        found = ""  # the analysis says what is wrong with it
    return short_digest(setup.digest(), found or f"at:{item.identity}:{item.stamp}")


def _limit_memory(setup: Setup) -> None:
    if sys.platform == "win32":  # where the limits are those of the engine, time alone
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = setup.files if hard == resource.RLIM_INFINITY else min(setup.files, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def limit_next(item: Item, setup: Setup) -> None:
    """Time and memory that the next item may take; the system enforces both."""
    if sys.platform == "win32":
        return
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + setup.seconds) + 1
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds if hard == resource.RLIM_INFINITY else min(seconds, hard), hard))
    wanted = max(1 << 30, min(setup.memory, (1 << 30) + _BYTES_PER_FILE_BYTE * item.size))
    kind = getattr(resource, "RLIMIT_DATA", resource.RLIMIT_AS)
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (min(wanted, setup.memory) if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
