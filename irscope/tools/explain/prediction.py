"""What the program, or the model, should have asked for: simulated in a process of its own, and laid beside what the snapshot says."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from irscope import processes
from irscope.errors import LoadError
from irscope.frontends.files.snapshot import Snapshot, read_snapshot
from irscope.immutable import immutable
from irscope.tools.compare.memory import MemoryComparison, Request, compare_runs, of_snapshot
from irscope.tools.simulate_ranks import Program, arguments_of
from irscope.tools.simulation import Options

SCRIPTS: Final = (".py", ".pyw")
_SECONDS: Final = 1800
_SAID: Final = re.compile(r"irscope: error (IRS\d+): (.*)")
_LITTLE: Final = 4096
_LITTLE_SHARE: Final = 0.001
"""Bytes, and part of a request, that it may differ by."""


@immutable(slots=False)
class Prediction:
    """What was to be expected."""

    snapshot: Snapshot
    compared: MemoryComparison
    """A is the prediction, B what happened."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """What the simulation of a script says, with what settings save."""

    @functools.cached_property
    def agreed(self) -> tuple[int, int]:
        """How many requests are as expected, and how many of those differ by little, as what kernels take for themselves does by device."""
        a, b = self.compared.sides
        at, little = self.compared.same, 0
        for (expected, _), (happened, _) in zip(a[at:], b[at:], strict=False):
            far = abs(expected.size - happened.size)
            if far > max(_LITTLE, _LITTLE_SHARE * max(expected.size, happened.size)):
                break
            at, little = at + 1, little + (far > 0)
        return at, little

    def parting(self) -> tuple[int, Request | None, Request | None] | None:
        """The number of the first request that differs, with what was expected and what happened; None where all are as expected."""
        at = self.agreed[0]
        both = [side[at][0] if at < len(side) else None for side in self.compared.sides]
        return None if both == [None, None] else (at + 1, both[0], both[1])


def predict(snapshot: Snapshot, target: str, arguments: Sequence[str], options: Options, *, tries: bool) -> Prediction:
    """Simulate a script, or a run of a model, and compare."""
    with tempfile.TemporaryDirectory(prefix="irscope-") as folder:
        path = Path(folder, "predicted.pickle")
        if target.endswith(SCRIPTS):
            line = arguments_of(Program(target, arguments), options, "--quiet", "--format", "json", "-o", str(path), *["--try"] * tries)
        else:
            given = {"--device": options.device, "--torch": options.torch, "--alloc-conf": options.alloc_conf}
            named = [part for flag, value in given.items() if value for part in (flag, value)]
            line = ["export", "--quiet", *named, "-o", str(path), target]
        try:
            done = processes.run(processes.irscope(line), seconds=_SECONDS)
        except processes.Late:
            raise LoadError(f"it cannot be predicted: that took more than {_SECONDS} s", where=target) from None
        if not path.exists():
            said = done.complaints
            told = _SAID.fullmatch(said[-1]) if said else None
            why = told[2].removeprefix(f"{target}: ") if told else said[-1] if said else "nothing was written"
            raise LoadError(f"it cannot be predicted: {why}", code=told[1] if told else None, where=target)
        predicted = read_snapshot(path)
        found: Mapping[str, Any] = {}
        if target.endswith(SCRIPTS):
            try:
                found = json.loads(done.text)
            except ValueError:
                found = {}
        return Prediction(predicted, compare_runs(of_snapshot(predicted), of_snapshot(snapshot)), found)
