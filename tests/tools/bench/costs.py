"""FLOPs of large graphs and of the 21 kept models: `python -m tests.tools.bench.costs`."""

from __future__ import annotations

from irscope.ir.program import Program
from irscope.passes.cost.flops import Flops
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.manager import Manager
from tests.tools.bench import clock, ir
from tests.tools.oracle.flops_figures import Figure
from tests.tools.oracle.flops_table import kept_figures

NODES = 100_000
LIMIT = 1.0
"""CPU seconds for so many nodes once the types are known."""
MODEL_LIMIT = 0.050
"""CPU seconds for each of the 21 models once it is loaded."""


def seconds(program: Program) -> float:
    """CPU seconds of counting and of the report, types not included."""

    def fresh() -> Manager:
        manager = Manager(program)
        manager.get(Shapes())
        return manager

    managers = iter([fresh() for _ in range(3)])
    return clock.best_of(3, lambda: next(managers).run_one(Flops()))[0]


def slowest() -> Figure:
    """The kept model that takes longest."""
    return max(kept_figures("models"), key=lambda figure: figure.milliseconds)


def main() -> None:
    """Measure and print; nothing here passes or fails."""
    print(f"calibration loop: {clock.calibrate():.3f} CPU s")
    print(f"flops, {NODES:,} nodes       {seconds(ir.build(NODES)):.3f} CPU s   target {LIMIT}")
    worst = slowest()
    print(f"flops, slowest of the 21   {worst.milliseconds:.1f} CPU ms   target {MODEL_LIMIT * 1000:.0f}   {worst.name} {worst.form}")


if __name__ == "__main__":
    main()
