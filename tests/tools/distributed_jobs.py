"""Runs the distributed jobs of `tests/data/distributed` under `irscope simulate`, and lays their counters beside the recorded truth.

python -m tests.tools.distributed_jobs [--job NAME ...] [--kind ddp] [--events done|lazy|both] [--further] [--folder DIR]

Jobs that differ from one real run to another were recorded several times; each of their figures has to be that of one of the runs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "data" / "distributed"
KEYS = ("requested", "allocated", "active", "reserved")


def simulated(folder: Path, job: dict[str, Any], rank: int, events: str, limit: float) -> dict[str, Any]:
    """The line that the job's script prints; it runs in a child of this process, which has imported torch."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        signal.alarm(int(limit))
        try:
            found = _run(folder, job, rank, events)
        except BaseException as error:
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    text = b""
    while part := os.read(read, 1 << 20):
        text += part
    os.close(read)
    status = os.waitpid(child, 0)[1]
    made: dict[str, Any] = json.loads(text) if text else {"error": f"ended by signal {status & 127}"}
    return made


def _run(folder: Path, job: dict[str, Any], rank: int, events: str) -> dict[str, Any]:
    from irscope.tools.simulate import simulate_script
    from irscope.tools.simulation import Options

    said = io.StringIO()
    options = Options(device="h200", world=job["world"], rank=rank, pending_frees="synchronize" if events == "lazy" else "next_malloc")
    with contextlib.redirect_stdout(said):
        simulation = simulate_script(str(folder / "job.py"), [str(folder / "jobs.json"), job["job"]], options)
    lines = [line for line in said.getvalue().splitlines() if line.startswith("{")]
    if simulation.outcome != "finished" or not lines:
        return {"error": f"{simulation.outcome}: {simulation.error}"[:300]}
    made: dict[str, Any] = json.loads(lines[-1])
    return made


def main() -> None:
    """Print one line a job and rank, and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--job", action="append", default=[])
    parser.add_argument("--kind", default="")
    parser.add_argument("--events", default="done", choices=("done", "lazy", "both"))
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--show", action="store_true", help="every figure that differs")
    parser.add_argument("--further", action="store_true", help="the jobs that were recorded once all others were right")
    options = parser.parse_args()
    jobs = {job["job"]: job for job in json.loads((options.folder / "jobs.json").read_text())}
    rows = truths(options.folder)
    _warm()
    equal = dict.fromkeys(KEYS, 0)
    all_equal = count = 0
    for (name_of_job, rank, events), runs in rows.items():
        job = jobs[name_of_job]
        wanted = options.events in ("both", events) and (not options.job or name_of_job in options.job)
        wanted = wanted and (bool(options.job) or options.further == job.get("further", False))
        if not wanted or (options.kind and job["spec"]["kind"] != options.kind):
            continue
        started = time.perf_counter()
        found = simulated(options.folder, job, rank, events, options.limit)
        took = time.perf_counter() - started
        count += 1
        name = f"{name_of_job} r{rank} {events}"
        if "error" in found:
            print(f"{name:48} error {found['error']}", flush=True)
            continue
        wrong = list(differences(runs, found))
        fine = {key for key in KEYS if not any(part[2] == key for part in wrong)}
        for key in fine:
            equal[key] += 1
        all_equal += len(fine) == len(KEYS)
        far = max((abs(part[4] - part[3]) / part[3] for part in wrong), default=0)
        marks = " ".join(key + ("=" if key in fine else "!") for key in KEYS)
        print(f"{name:48} {marks} {far:8.3%} {took:6.1f} s", flush=True)
        if options.show:
            for step, when, key, truth, mine in wrong:
                print(f"    {step} {when} {key}: {truth:,} real, {mine:,} simulated, {mine - truth:+,}")
    print(f"{all_equal} of {count} equal in everything; " + ", ".join(f"{key} {equal[key]}" for key in KEYS))


def _warm() -> None:
    """Import what jobs import; none of it touches a device."""
    for name in ("device_mesh", "fsdp", "pipelining", "tensor.parallel"):
        importlib.import_module(f"torch.distributed.{name}")
    importlib.import_module("irscope.frontends.simulation.process")


def truths(folder: Path = FOLDER) -> dict[tuple[str, int, str], list[dict[str, Any]]]:
    """What real runs counted, by job, rank and events."""
    found: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for line in (folder / "truth.jsonl").read_text().splitlines():
        row = json.loads(line)
        found.setdefault((row["job"], row["rank"], row["events"]), []).append(row)
    return found


def differences(runs: list[dict[str, Any]], found: dict[str, Any]) -> Iterator[tuple[int, str, str, int, int]]:
    """Figures that no real run gave: step, moment, counter, what the first of them gave, and what the simulation says."""
    for number, mine in enumerate(found["steps"]):
        for when in ("peak", "after"):
            for key in KEYS:
                real = [run["steps"][number][when][key] for run in runs]
                if mine[when][key] not in real:
                    yield number + 1, when, key, real[0], mine[when][key]


if __name__ == "__main__":
    main()
