"""Where an audit binds when it grows: the driver's cost a model is measured, workers and models are simulated from it.

    python -m tests.tools.bench.audit_scale RESULTS [--models 10M] [--workers 10,100,1000]

RESULTS are of a real audit: its models are the measured costs that are drawn from.
"""

from __future__ import annotations

import argparse
import heapq
import pickle
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from irscope.amounts import COUNT, read_amount
from irscope.tools.audit.dataset import Dataset
from irscope.tools.audit.run import _BATCH_MODELS, _FLUSH_ROWS, _PER_SLOT
from irscope.tools.audit.sources import Item, Local
from irscope.tools.audit.worker import Found, Setup

_ROWS = 10_000


@dataclass(frozen=True)
class DriverCosts:
    """CPU seconds a model, each measured by doing it to many rows."""

    receive: float
    """Taking an answer out of its message."""
    keep: float
    """A row into the index."""
    write: float
    """A row into Parquet files."""
    look: float
    """Whether a model is known."""
    index_bytes: float
    parquet_bytes: float


def measured(folder: Path) -> tuple[DriverCosts, list[float]]:
    """What the driver needs for rows like those of a real audit, and what its models cost."""
    found = Dataset(folder).read().to_pylist()
    operators: dict[str, list[dict]] = {}
    for row in Dataset(folder).read("operators").to_pylist():
        operators.setdefault(row.pop("uri"), []).append(row)
    rows = [
        (Item(Local(f"/{at}{row['uri']}"), row["size"] or 0, str(at)), f"key{at}", Found(row, operators.get(row["uri"], [])))
        for at, row in ((at, found[at % len(found)]) for at in range(_ROWS))
    ]
    messages = [pickle.dumps(one[2]) for one in rows]
    receive = _timed(lambda: [pickle.loads(one) for one in messages])
    with tempfile.TemporaryDirectory() as made:
        dataset = Dataset(Path(made) / "r", writable=True)
        dataset.settle(Setup(), "local")
        keep = _timed(lambda: [dataset.add(rows[at : at + _BATCH_MODELS]) for at in range(0, _ROWS, _BATCH_MODELS)])
        write = _timed(dataset.flush)
        look = _timed(lambda: [dataset.known(one[0]) for one in rows])
        parquet = sum(path.stat().st_size for path in Path(made).rglob("*.parquet"))
        index = (Path(made) / "r" / "index.sqlite").stat().st_size
        dataset.close()
    costs = DriverCosts(receive, keep, write, look, index / _ROWS, parquet / _ROWS)
    return costs, [float(row["cpu_seconds"] or 0.001) for row in found]


def _timed(work) -> float:  # type: ignore[no-untyped-def]
    started = time.process_time()
    work()
    return (time.process_time() - started) / _ROWS


@dataclass(frozen=True)
class Outcome:
    """How a simulated audit goes."""

    seconds: float
    driver_busy: float
    """Share of the time that the driver works."""
    workers_busy: float
    tail: float
    """Seconds at the end in which less than half of the workers have work."""


def simulate(costs: DriverCosts, models: Sequence[float], count: int, workers: int, hang: float, seed: int = 1) -> Outcome:
    """Batches of models through one driver: it gives out, receives, keeps, and stops to write; one model in a million hangs."""
    rng = random.Random(seed)
    batches = -(-count // _BATCH_MODELS)
    taken_up = (costs.receive + costs.keep + 2 * costs.look) * _BATCH_MODELS
    stop = costs.write * _FLUSH_ROWS
    clock = work = driver = half_idle = 0.0
    events: list[tuple[float, int]] = []
    waiting = [0.0] * workers
    given = received = rows = 0
    for _ in range(min(batches, workers * _PER_SLOT)):
        at = given % workers
        waiting[at] = max(waiting[at], clock) + _cost(models, rng, hang)
        heapq.heappush(events, (waiting[at], at))
        given += 1
    while received < batches:
        done, worker = heapq.heappop(events)
        clock = max(clock, done) + taken_up
        driver += taken_up
        received += 1
        rows += _BATCH_MODELS
        if rows >= _FLUSH_ROWS:
            rows, clock, driver = 0, clock + stop, driver + stop
        if given < batches:
            cost = _cost(models, rng, hang)
            work += cost
            waiting[worker] = max(waiting[worker], clock) + cost
            heapq.heappush(events, (waiting[worker], worker))
            given += 1
        elif len(events) < workers / 2 and not half_idle:
            half_idle = clock
    return Outcome(clock, driver / clock, min(1.0, work / (clock * workers)), clock - (half_idle or clock))


def _cost(models: Sequence[float], rng: random.Random, hang: float) -> float:
    cost = sum(rng.choices(models, k=_BATCH_MODELS))
    return cost + (hang if rng.random() < _BATCH_MODELS * 1e-6 else 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--models", default="10M")
    parser.add_argument("--workers", default="10,100,1000")
    args = parser.parse_args()
    count = int(read_amount(args.models, COUNT) or 0)
    costs, models = measured(args.results)
    each = costs.receive + costs.keep + costs.write + 2 * costs.look
    print(f"driver: {each * 1e6:.0f} us of CPU a model (receive {costs.receive * 1e6:.0f}, keep {costs.keep * 1e6:.0f},", end=" ")
    print(f"write {costs.write * 1e6:.0f}, look twice {2 * costs.look * 1e6:.0f}): at most {1 / each:,.0f} models/s")
    print(f"store: {costs.index_bytes:.0f} bytes a model in the index, {costs.parquet_bytes:.0f} in Parquet files:", end=" ")
    print(f"{count * costs.index_bytes / 1e9:.1f} and {count * costs.parquet_bytes / 1e9:.1f} GB for {count:,}")
    print("| models cost | workers | hours | driver busy | workers busy | tail |\n|---|---|---|---|---|---|")
    mean = sum(models) / len(models)
    for factor, name in ((1.0, f"{mean * 1e3:.0f} ms, as measured"), (1.0 / mean, "1 s, spread as measured")):
        drawn = [one * factor for one in models]
        for workers in map(int, args.workers.split(",")):
            found = simulate(costs, drawn, count, workers, hang=270.0)
            shares = f"{found.driver_busy:.0%} | {found.workers_busy:.0%}"
            print(f"| {name} | {workers:,} | {found.seconds / 3600:.1f} | {shares} | {found.tail:.0f} s |")


if __name__ == "__main__":
    main()
