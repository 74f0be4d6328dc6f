"""Runs compiled jobs under `irscope simulate`, and lays their counters beside the recorded truth.

python -m tests.tools.compiled_jobs [--truth FILE] [--folder DIR] [--job PART ...] [--show]

The folder has `job.py`, which takes a file of jobs and an ID; the truth is such a file, with what PyTorch's CUDA build counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "data" / "compiled"
KEYS = ("requested", "allocated", "active", "reserved")


def simulated(folder: Path, truth: Path, job: str, limit: float) -> dict[str, Any]:
    """The line that the job's script prints."""
    command = [sys.executable, "-m", "irscope", "simulate", "--device", "h200", str(folder / "job.py"), str(truth), job]
    with tempfile.TemporaryDirectory() as private:
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": private}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=env, check=False)
        except subprocess.TimeoutExpired:
            return {"error": f"it took more than {limit:.0f} s"}
        if os.listdir(private):
            return {"error": "something was written to the user's cache"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or ["nothing was printed"])[-1][:300]}
    made: dict[str, Any] = json.loads(lines[-1])
    return made


def differences(
    truth: dict[str, Any], found: dict[str, Any], iterations: tuple[int, ...] = (1, 2)
) -> Iterator[tuple[int, str, str, str, int, int]]:
    """Figures that differ: iteration, phase, counter, peak or now, the real one and the simulated one."""
    for number in iterations:
        for phase, counters in truth["iterations"][number].items():
            for key in KEYS:
                for when in ("peak", "now"):
                    real, mine = counters[key][when], found["iterations"][number][phase][key][when]
                    if real != mine:
                        yield number + 1, phase, key, when, real, mine


def judged(truth: dict[str, Any], found: dict[str, Any]) -> dict[str, bool]:
    """Which of the wanted figures are met."""
    wrong = list(differences(truth, found))
    return {
        "requested": not any(one[2] == "requested" for one in wrong),
        "allocated": not any(one[2] == "allocated" for one in wrong),
        "saved": not any(one[1] == "forward" and one[2] == "requested" and one[3] == "now" for one in wrong),
        "events": truth["events"] == found["events"],
        "reserved": all(abs(one[5] - one[4]) <= one[4] / 100 for one in wrong if one[2] == "reserved"),
        "first": not any(differences(truth, found, (0,))),
    }


def main() -> None:
    """Print one line a job, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--truth", type=Path, default=FOLDER / "truth.jsonl")
    parser.add_argument("--job", action="append", default=[])
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--show", action="store_true", help="every figure that differs")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.truth.read_text().splitlines()]
    sums: Counter[str] = Counter()
    count = 0
    for truth in rows:
        name = truth["job"]["id"]
        if (options.job and not any(part in name for part in options.job)) or "error" in truth:
            continue
        started = time.perf_counter()
        found = simulated(options.folder, options.truth, name, options.limit)
        took = time.perf_counter() - started
        count += 1
        if "error" in found:
            print(f"{name:44} error {found['error']}", flush=True)
            continue
        verdict = judged(truth, found)
        sums.update(key for key, fine in verdict.items() if fine)
        sums["all"] += all(fine for key, fine in verdict.items() if key not in ("first", "reserved"))
        print(f"{name:44} " + " ".join(key + ("=" if fine else "!") for key, fine in verdict.items()) + f" {took:6.1f} s", flush=True)
        if options.show:
            for number, phase, key, when, real, mine in differences(truth, found, (0, 1, 2)):
                print(f"    {number} {phase} {key} {when}: {real:,} real, {mine:,} simulated, {mine - real:+,}")
            if truth["events"] != found["events"]:
                print("    real     ", truth["events"])
                print("    simulated", found["events"])
    print(f"of {count}: " + ", ".join(f"{key} {value}" for key, value in sums.items()))


if __name__ == "__main__":
    main()
