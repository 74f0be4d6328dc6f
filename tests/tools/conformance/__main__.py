"""Prints the scores: `python -m tests.tools.conformance [--mode T,V,S] [--engine irscope,onnx] [--filter text] [--list wrong]`."""

from __future__ import annotations

import argparse

from tests.tools.conformance.engines import ENGINES
from tests.tools.conformance.grade import Grade
from tests.tools.conformance.modes import MODES
from tests.tools.conformance.run import score
from tests.tools.conformance.suite import load_suite


def main() -> None:
    """Grade and print; nothing here passes or fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.conformance", description=__doc__)
    parser.add_argument("--mode", default="T,V,S", help="; ".join(f"{mode}: {text}" for mode, text in MODES.items()))
    parser.add_argument("--engine", default=",".join(ENGINES), help="which engines to grade")
    parser.add_argument("--filter", default="", help="only models with this text in their name")
    parser.add_argument("--list", default="", help="name irscope's models of these grades: exact, partial, unknown, wrong, error")
    arguments = parser.parse_args()
    cases = [case for case in load_suite() if arguments.filter in case.name]
    listed = [Grade[text.strip().upper()] for text in arguments.list.split(",") if text]
    header = " ".join(f"{one.name.lower():>8}" for one in Grade)
    print(f"{'engine':10} m  models {header}   exact %   CPU s")
    lines: list[str] = []
    for mode in arguments.mode.split(","):
        for engine in arguments.engine.split(","):
            found = score(engine, mode, cases)
            print(found.row(), flush=True)
            if engine == "irscope":
                lines.extend(f"{mode} {entry.name.lower():8} {outcome.line()}" for entry in listed for outcome in found.of(entry))
    print(*lines, sep="\n")


if __name__ == "__main__":
    main()
