"""Runs the command line over damaged copies of a file in one process: `python -m tests.tools.torch_files.mutate FILE CASES SEED`.

Prints JSON: what went wrong, how often a copy was refused, and how much memory was needed. Every case is a file cut off at a
random place, a file with random bytes changed, or an archive whose entries were changed and packed again, so that its checksums
hold.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import resource
import signal
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from irscope.cli.main import main

SECONDS = 20
ONE_LINE = re.compile(r"irscope: error IRS1\d\d: [^\n]+\n")


def truncated(whole: bytes, source: random.Random) -> bytes:
    """The file up to some place."""
    return whole[: source.randrange(len(whole))]


def changed(whole: bytes, source: random.Random) -> bytes:
    """Some bytes of the file are others; the ends of a file, where directories and headers are, more often than the rest."""
    data = bytearray(whole)
    for _ in range(source.randrange(1, 6)):
        low, high = source.choice([(0, len(data)), (0, min(len(data), 400)), (max(0, len(data) - 2000), len(data))])
        data[source.randrange(low, high)] = source.choice([0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)])
    return bytes(data)


def repacked(whole: bytes, source: random.Random) -> bytes:
    """An archive in which the contents of one entry are others."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as old, zipfile.ZipFile(buffer, "w") as new:
        entries = [(info.filename, old.read(info)) for info in old.infolist()]
        described = [name for name, data in entries if data and "/data/" not in name]
        victim = source.choice(described)
        for name, data in entries:
            new.writestr(name, edited(data, source) if name == victim else data)
    return buffer.getvalue()


def edited(data: bytes, source: random.Random) -> bytes:
    """Bytes changed, a piece left out or doubled, a number replaced by a huge or a negative one."""
    kind = source.randrange(4)
    if kind == 0:
        return changed(data, source)
    start = source.randrange(len(data))
    end = min(len(data), start + source.randrange(1, 60))
    if kind == 1:
        return data[:start] + data[end:]
    if kind == 2:
        return data[:end] + data[start:end] * source.choice([1, 100]) + data[end:]
    numbers = list(re.finditer(rb"\d+", data))
    if not numbers:
        return data[:start]
    number = source.choice(numbers)
    other = source.choice([b"-1", b"0", b"1000000000000", b"9" * 400, b"null"])
    return data[: number.start()] + other + data[number.end() :]


def complaint(path: Path) -> tuple[str, bool]:
    """What is wrong with the way a file is treated (empty: nothing), and whether it was refused."""
    out, err = io.StringIO(), io.StringIO()
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["run", "--passes", "shapes,params", str(path)])
    except TimeoutError:
        return "it hangs", False
    except BaseException as error:
        return f"{type(error).__name__} gets out: {error}", False
    finally:
        signal.alarm(0)
    if code == 3:
        return ("" if ONE_LINE.fullmatch(err.getvalue()) else f"not one line: {err.getvalue()[:500]!r}"), True
    # Of a checkpoint nothing but its weights is known, which is exit code 5.
    return ("" if code in (0, 5) else f"exit code {code}: {err.getvalue()[:500]!r}"), False


def give_up(signum: int, frame: object) -> None:
    """Raised in the middle of whatever takes too long."""
    raise TimeoutError


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(path: Path, cases: int, seed: int, scratch: Path) -> dict[str, object]:
    """Every case, a third of each kind."""
    signal.signal(signal.SIGALRM, give_up)
    whole = path.read_bytes()
    makers: list[Callable[[bytes, random.Random], bytes]] = [truncated, changed]
    if whole.startswith(b"PK"):
        makers.append(repacked)
    scratch.write_bytes(whole)
    text, was_refused = complaint(scratch)
    wrong = [f"the whole file is refused: {text}"] if text or was_refused else []
    before = peak_mb()
    refused = 0
    for case in range(cases):
        maker = makers[case % len(makers)]
        scratch.write_bytes(maker(whole, random.Random(f"{seed}/{case}")))
        text, was_refused = complaint(scratch)
        refused += was_refused
        if text:
            wrong.append(f"{maker.__name__} {seed}/{case}: {text}")
    return {"wrong": wrong, "refused": refused, "mb": peak_mb() - before}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[1]).with_suffix(".damaged"))))
