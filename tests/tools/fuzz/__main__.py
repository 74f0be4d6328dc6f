"""The process that watches: hands numbers of mutants to workers, ends those that hang, counts, and has what is found made small."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import select
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.tools.fuzz.seeds import FORMATS, ROOT, seeds_of

SLICE = 2000
"""Mutants that one worker examines."""
SILENCE = 180.0
"""Seconds without a line after which a worker is ended: longer than any command may take, also on a busy machine."""

_BETWEEN_SAVES = 5.0


@dataclass
class Tally:
    """What is known of one format."""

    next: int = 0
    loaded: int = 0
    seconds: float = 0.0
    codes: dict[str, int] = field(default_factory=dict)
    found: dict[str, list[int]] = field(default_factory=dict)
    """Numbers of mutants by the signature of what they showed; at most ten of each."""


class Watch:
    """One run of the fuzzer."""

    def __init__(self, folder: Path, stream: str) -> None:
        self.folder = folder
        self.stream = stream
        self._saved = 0.0
        self._state = folder / f"state{stream and '-'}{stream}.json"
        told = json.loads(self._state.read_text()) if self._state.exists() else {}
        self.tallies = {name: Tally(**one) for name, one in told.items()}

    def save(self) -> None:
        """Keep the counts for the next run."""
        made = self._state.with_suffix(".new")
        made.write_text(json.dumps({name: asdict(tally) for name, tally in self.tallies.items()}, indent=1))
        made.replace(self._state)
        self._saved = time.monotonic()

    def slice(self, format: str, count: int, deadline: float) -> None:
        """Run some mutants of a format."""
        tally = self.tallies.setdefault(format, Tally())
        end = tally.next + count
        while tally.next < end and time.monotonic() < deadline:
            self._worker(format, tally, end, deadline)
            self.save()

    def _worker(self, format: str, tally: Tally, end: int, deadline: float) -> None:
        words = [str(self.folder), format, str(tally.next), str(end - tally.next), self.stream]
        command = [sys.executable, "-m", "tests.tools.fuzz.worker", *words]
        errors = self.folder / f"worker-{format}.err"
        with errors.open("wb") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=ROOT) as worker:
            assert worker.stdout is not None
            pending = b""
            silent_since = time.monotonic()
            while time.monotonic() < deadline and time.monotonic() - silent_since < SILENCE:
                if not select.select([worker.stdout], [], [], 1.0)[0]:
                    continue
                chunk = os.read(worker.stdout.fileno(), 1 << 16)
                if not chunk:
                    break
                silent_since = time.monotonic()
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self._take(tally, json.loads(line))
                if time.monotonic() - self._saved > _BETWEEN_SAVES:
                    self.save()
            hung = time.monotonic() - silent_since >= SILENCE
            worker.kill()
        if time.monotonic() < deadline and tally.next < end:
            # It ended before its time: the mutant that it was at is to blame, or the fuzzer itself.
            reason = "hangs" if hung else f"the process died: {errors.read_text(errors='replace')[-500:]}"
            self._take(tally, {"number": tally.next, "code": -1, "loaded": False, "seconds": 0.0, "findings": [(reason[:60], reason)]})

    def _take(self, tally: Tally, line: dict[str, object]) -> None:
        number = line["number"]
        assert isinstance(number, int)
        tally.next = number + 1
        tally.loaded += bool(line["loaded"])
        tally.seconds += float(str(line["seconds"]))
        code = str(line["code"])
        tally.codes[code] = tally.codes.get(code, 0) + 1
        findings = line["findings"]
        assert isinstance(findings, list)
        for signature, text in findings:
            numbers = tally.found.setdefault(signature, [])
            if not numbers:
                print(f"  {number}: {signature}: {text[:300]!r}", flush=True)
            if len(numbers) < 10:
                numbers.append(number)

    def keep(self, format: str) -> None:
        """Make small what was found and is not kept yet."""
        for signature, numbers in self.tallies[format].found.items():
            name = hashlib.sha256(f"{format} {signature}".encode()).hexdigest()[:12]
            path = self.folder / "found" / f"{format}-{name}.json"
            if path.exists() or signature == "hangs" or signature.startswith("the process died"):
                continue
            path.parent.mkdir(exist_ok=True)
            words = [str(self.folder), format, str(numbers[0]), self.stream, signature, str(path)]
            try:
                subprocess.run([sys.executable, "-m", "tests.tools.fuzz.shrink", *words], cwd=ROOT, timeout=300, check=False)
            except subprocess.TimeoutExpired:
                print(f"  {signature}: could not be made small in time")

    def summary(self) -> str:
        """The counts as a table."""
        lines = [f"{'format':12} {'mutants':>9} {'that load':>9} {'CPU ms':>7}  findings"]
        for name, tally in self.tallies.items():
            share = f"{tally.loaded / max(tally.next, 1):.0%}"
            lines.append(f"{name:12} {tally.next:9,} {share:>9} {1000 * tally.seconds / max(tally.next, 1):7.1f}  {len(tally.found)}")
        return "\n".join(lines)


def main() -> int:
    """Run for some minutes, format by format in turns."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--format", action="append", choices=tuple(FORMATS), help="only these; may be given again")
    parser.add_argument("--folder", type=Path, default=ROOT / ".fuzz", help="where counts and cases are kept; default: .fuzz")
    parser.add_argument("--stream", default="", help="another stream of mutants than the usual one, with counts of its own")
    parser.add_argument("--count", type=int, default=0, help="end after so many mutants of each format")
    parser.add_argument("--as-found", action="store_true", help="make nothing small")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    watch = Watch(args.folder.absolute(), args.stream)
    deadline = time.monotonic() + 60 * args.minutes
    formats = [name for name in args.format or FORMATS if seeds_of(name, watch.folder / "seeds")]
    while time.monotonic() < deadline:
        busy = [name for name in formats if not args.count or watch.tallies.setdefault(name, Tally()).next < args.count]
        if not busy:
            break
        for name in busy:
            if time.monotonic() > deadline:
                break
            left = args.count - watch.tallies[name].next if args.count else SLICE
            print(name, flush=True)
            watch.slice(name, min(SLICE, left), deadline)
    for name in formats:
        if name in watch.tallies and not args.as_found:
            watch.keep(name)
    print(watch.summary())
    return int(any(tally.found for tally in watch.tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
