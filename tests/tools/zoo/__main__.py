"""Exports the zoo and prints how well irscope knows it.

`python -m tests.tools.zoo [--filter text] [--form concrete,dynamic] [--jobs 2]`
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from multiprocessing import get_context

from tests.tools.zoo.check import Verdict, check
from tests.tools.zoo.export import FORMS, exported, is_kept
from tests.tools.zoo.models import catalogue


def main() -> None:
    """Check and print; nothing here passes or fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.zoo", description=__doc__)
    parser.add_argument("--filter", default="", help="only models with this text in their name")
    parser.add_argument("--package", default="", help="only models of this package: torchvision or transformers")
    parser.add_argument("--form", default="concrete,dynamic,traced", help=f"which of {', '.join(FORMS)}")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time; each may need some gigabytes")
    parser.add_argument("--list", type=int, default=3, help="how many disagreements to show for each model")
    parser.add_argument("--cached", action="store_true", help="only what was exported before")
    arguments = parser.parse_args()
    names = [
        (entry.name, form)
        for entry in catalogue().values()
        for form in arguments.form.split(",")
        if arguments.filter in entry.name and arguments.package in ("", entry.package) and (not arguments.cached or is_kept(entry, form))
    ]
    verdicts: list[Verdict] = []
    for verdict in _verdicts(names, arguments.jobs):
        print(verdict.line(), flush=True)
        for text in verdict.mismatches[: arguments.list]:
            print("    " + text)
        verdicts.append(verdict)
    for form in arguments.form.split(","):
        print(summary(form, verdicts))


def _verdicts(names: list[tuple[str, str]], jobs: int) -> Iterator[Verdict]:
    if jobs <= 1:
        yield from map(_one, names)
        return
    with get_context("spawn").Pool(jobs, maxtasksperchild=40) as pool:
        yield from pool.imap(_one, names)


def _one(item: tuple[str, str]) -> Verdict:
    import torch

    torch.set_num_threads(1)
    return check(exported(catalogue()[item[0]], item[1]))


def summary(form: str, verdicts: list[Verdict]) -> str:
    """One line over all models of a form."""
    mine = [verdict for verdict in verdicts if verdict.form == form]
    taken = [verdict for verdict in mine if not verdict.refused]
    good = sum(verdict.good for verdict in taken)
    tensors = sum(verdict.tensors for verdict in taken)
    wrong = sum(len(verdict.mismatches) for verdict in taken)
    unknown = sum(sum(verdict.unknown_operators.values()) for verdict in taken)
    cpu = sum(verdict.cpu for verdict in taken)
    return (
        f"{form}: {good} of {len(taken)} models agree ({len(mine) - len(taken)} refused by the exporter); "
        f"{tensors - wrong} of {tensors} tensors, {unknown} unknown operators, {cpu:.1f} CPU s"
    )


if __name__ == "__main__":
    main()
