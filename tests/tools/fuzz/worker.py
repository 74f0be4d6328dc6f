"""Runs mutants of one format, many in one process: `python -m tests.tools.fuzz.worker FOLDER FORMAT FIRST COUNT STREAM`.

Prints a line of JSON for each. Whoever started it ends it where no line comes for too long.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

from tests.tools.fuzz.check import Outcome, command_for, examine
from tests.tools.fuzz.mutants import Seed, Seeds
from tests.tools.fuzz.seeds import seeds_of
from tests.tools.fuzz.trees import Files

DEEP_EVERY = 4
"""Every so many mutants, what loads is also run a second time, printed, read back and bound."""
_MOST_MEMORY = 8 << 30
_WARM = 50
"""Mutants after which a worker has imported what its format needs."""


def settle_process(folder: Path) -> None:
    """No more memory than the machine can spare, one thread, reproducers out of the way."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    os.environ.update(IRSCOPE_CRASH_DIR=str(folder), IRSCOPE_HOME=str(folder / "home"), OMP_NUM_THREADS="1")
    warnings.simplefilter("ignore")


def one(seeds: Seeds, format: str, number: int, stream: str, folder: Path) -> tuple[Seed, Files, list[str], Outcome]:
    """Make a mutant and examine it, in an empty folder."""
    for old in folder.iterdir():
        if old.is_file():
            old.unlink()
    seed, files = seeds.mutant(number, stream)
    arguments = command_for(format, number)
    return seed, files, arguments, examine(format, files, arguments, seed.companion, folder, deep=number % DEEP_EVERY == 0)


def run(folder: Path, format: str, first: int, count: int, stream: str, report: TextIO) -> None:
    """Examine that many mutants, a line for each."""
    seeds = Seeds(seeds_of(format, folder / "seeds"))
    with TemporaryDirectory() as scratch:
        settle_process(Path(scratch))
        for number in range(first, first + count):
            if number - first == _WARM:  # what was imported until here stays, and is not looked through again and again
                gc.collect()
                gc.freeze()
            _, _, _, outcome = one(seeds, format, number, stream, Path(scratch))
            found = [(finding.signature, finding.text) for finding in outcome.findings]
            line = {"number": number, "code": outcome.code, "loaded": outcome.loaded, "seconds": outcome.seconds, "findings": found}
            report.write(json.dumps(line) + "\n")
            report.flush()


if __name__ == "__main__":
    # What irscope prints is caught; whatever else gets to the standard output must not end up between the lines.
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    run(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5], lines)
