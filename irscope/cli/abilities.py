"""What the installed torch lets irscope do: each ability is tried on a small example, in a process of its own."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

from irscope.errors import IrscopeError
from irscope.immutable import immutable
from irscope.processes import Late, python, run

_SECONDS: Final = 60.0
"""How long trying them may take: 4 CPU seconds on an idle machine, most of it the import of torch."""


@immutable
class Ability:
    """Something that irscope does with torch, and whether it works here."""

    name: str
    what: str
    problem: str = ""
    """Why it does not work, in a line; empty where it does."""


@immutable
class Entry:
    """Something of torch's inside that differs between releases, and what of it is here."""

    name: str
    here: str
    problem: str = ""


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
        return [Ability(name, what, f"not known: trying took more than {_SECONDS:.0f} s") for name, what in _WHATS.items()], []
    try:
        problems, entries = json.loads(ended.text.splitlines()[-1])
    except (IndexError, ValueError):
        said = ended.complaints[-1] if ended.complaints else ended.how
        problems, entries = {name: f"not known: its process {ended.how} ({said})" for name in _WHATS}, []
    return [Ability(name, what, str(problems.get(name, "not known"))) for name, what in _WHATS.items()], [Entry(*row) for row in entries]


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
