"""How little memory an order needs: `python -m benchmarks.scheduling [literature|stress|layered] [SECONDS]`."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping

from benchmarks.ordergraphs import LITERATURE, STRESS, layered
from irscope.solvers.order.problem import OrderProblem
from irscope.solvers.order.solve import INDUCTOR_ORDERS, SIMPLE_ORDERS, best_order

LAYERED: dict[str, Callable[[], OrderProblem]] = {
    "1,000 operators, layers of up to 8": lambda: layered(1_000, 8),
    "1,000 operators, layers of up to 24": lambda: layered(1_000, 24),
    "10,000 operators, layers of up to 12": lambda: layered(10_000, 12),
    "10,000 operators, layers of up to 60": lambda: layered(10_000, 60),
    "10,000 operators, layers of up to 24, skips over 2,000": lambda: layered(10_000, 24, reach=2_000),
    "10,000 operators, layers of up to 24, dense": lambda: layered(10_000, 24, 1, 0, 3, 0.3),
    "10,000 operators, layers of up to 60, dense": lambda: layered(10_000, 60, 1, 0, 3, 0.3),
    "100,000 operators, layers of up to 12": lambda: layered(100_000, 12),
    "100,000 operators, layers of up to 24, dense, skips over 500": lambda: layered(100_000, 24, 1, 500, 3, 0.3),
}
SETS: dict[str, tuple[Mapping[str, Callable[[], OrderProblem]], float]] = {
    "literature": (LITERATURE, 10),
    "stress": (STRESS, 30),
    "layered": (LAYERED, 60),
}


def main() -> None:
    """Print a table; nothing here passes or fails."""
    graphs, seconds = SETS[sys.argv[1] if len(sys.argv) > 1 else "literature"]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else seconds
    only = sys.argv[3] if len(sys.argv) > 3 else ""
    print("| graph | operators | as written | Inductor's set | simple orders | found | bound | below written | below Inductor's | s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, make in graphs.items():
        if only in name:
            print(row(name, make(), seconds), flush=True)
    print(f"\nmost memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")


def row(name: str, problem: OrderProblem, seconds: float) -> str:
    """One line of the table; sizes in MiB."""
    began = time.process_time()
    ordering = best_order(problem, seconds=seconds)
    taken = time.process_time() - began
    written = problem.peak(range(len(problem)))
    baselines = {"as written": written, **ordering.baselines}
    for order, make in SIMPLE_ORDERS.items():
        if order in INDUCTOR_ORDERS and order not in baselines:
            baselines[order] = problem.peak(make(problem))
    inductor = min(baselines[order] for order in INDUCTOR_ORDERS)
    simple = min(baselines.values())
    bound = "proven" if ordering.proven else f"{ordering.bound / 2**20:.2f} (gap {ordering.peak / ordering.bound - 1:.2%})"
    sizes = " | ".join(f"{size / 2**20:.2f}" for size in (written, inductor, simple, ordering.peak))
    gains = f"{1 - ordering.peak / written:.1%} | {1 - ordering.peak / inductor:.1%}"
    return f"| {name} | {len(problem)} | {sizes} | {bound} | {gains} | {taken:.2f} |"


if __name__ == "__main__":
    main()
