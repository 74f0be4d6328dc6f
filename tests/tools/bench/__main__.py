"""Prints every benchmark: `python -m tests.tools.bench [--big]`."""

from __future__ import annotations

import sys

from tests.tools.bench import clock, ir, start, weights

NODES = 100_000


def main() -> None:
    """Measure and print; nothing here passes or fails."""
    loop = clock.calibrate()
    print(f"calibration loop: {loop:.3f} CPU s\n")

    print("starting, CPU ms above an empty Python")
    for name, taken in start.measure().items():
        print(
            f"  {name:24} {taken * 1000:7.0f}   target {start.LIMIT * 1000:.0f}"
            if "run" not in name
            else f"  {name:24} {taken * 1000:7.0f}"
        )

    print(f"\nIR, {NODES:,} nodes, CPU s")
    found = ir.measure(NODES)
    for activity, taken in found.items():
        target = ir.TARGETS.get(activity)
        print(f"  {activity:8} {taken:7.3f}   {f'target {target}' if target else ''}   {taken / loop:5.1f} loops")
    print(f"  memory   {ir.bytes_per_node():7.0f} bytes a node   target 1024")
    print("  the same graph built by")
    for name, taken in ir.peers(NODES):
        print(f"    {name:10} {taken:7.3f}   {taken / found['build']:5.1f} times irscope's")

    weights.main()

    if "--big" in sys.argv:
        print(f"\nIR, {NODES * 10:,} nodes, CPU s and growth (target: at most 12 times)")
        for activity, taken in ir.measure(NODES * 10, runs=2).items():
            print(f"  {activity:8} {taken:7.3f}   {taken / found[activity]:5.1f} times")


if __name__ == "__main__":
    main()
