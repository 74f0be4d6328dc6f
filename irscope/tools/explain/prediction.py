"""What the program, or the model, should have asked for: simulated in a process of its own, and laid beside what the snapshot says."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from irscope.errors import LoadError
from irscope.frontends.files.snapshot import Snapshot, read_snapshot
from irscope.tools.compare.memory import MemoryComparison, Request, compare_runs, of_snapshot
from irscope.tools.simulate_ranks import Program, arguments_of
from irscope.tools.simulation import Options

SCRIPTS: Final = (".py", ".pyw")
_SECONDS: Final = 1800


@dataclass(frozen=True)
class Prediction:
    """What was to be expected."""

    snapshot: Snapshot
    compared: MemoryComparison
    """A is the prediction, B what happened."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """What the simulation of a script says, with what settings save."""

    def parting(self) -> tuple[int, Request | None, Request | None] | None:
        """The number of the first request that differs, with what was expected and what happened; None where all are the same."""
        if not self.compared.parted:
            return None
        at = self.compared.same
        both = [side[at][0] if at < len(side) else None for side in self.compared.sides]
        return at + 1, both[0], both[1]


def predict(snapshot: Snapshot, target: str, arguments: Sequence[str], options: Options, *, tries: bool) -> Prediction:
    """Simulate a script, or a run of a model, and compare."""
    with tempfile.TemporaryDirectory(prefix="irscope-") as folder:
        path = Path(folder, "predicted.pickle")
        if target.endswith(SCRIPTS):
            line = arguments_of(Program(target, arguments), options, "--quiet", "--format", "json", "-o", str(path), *["--try"] * tries)
        else:
            device = ["--device", options.device] if options.device else []
            line = ["export", "--quiet", *device, "-o", str(path), target]
        done = subprocess.run([sys.executable, "-m", "irscope", *line], capture_output=True, text=True, check=False, timeout=_SECONDS)
        if not path.exists():
            said = [one for one in done.stderr.splitlines() if one.strip()]
            raise LoadError(
                f"it cannot be predicted: {said[-1].removeprefix('irscope: ') if said else 'nothing was written'}", where=target
            )
        predicted = read_snapshot(path)
        found: Mapping[str, Any] = {}
        if target.endswith(SCRIPTS):
            try:
                found = json.loads(done.stdout)
            except ValueError:
                found = {}
        return Prediction(predicted, compare_runs(of_snapshot(predicted), of_snapshot(snapshot)), found)
