"""Prints FLOPs beside their references: `python -m tests.tools.oracle.flops_table [models|operators|published|symbolic] [--new]`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tests.tools.oracle.flops_figures import Figure, from_text, kept, references


def kept_figures(collection: str) -> Iterator[Figure]:
    """Figures of the programs that are kept as text; no torch is needed."""
    for name, forms in kept(collection).items():
        for form, text in forms.items():
            yield from_text(name, form, text, reference(collection, name))


def reference(collection: str, name: str) -> int:
    """FLOPs of matrix products and convolutions of a kept program."""
    if collection == "models":
        found = references()["models"][name]["flops"]
    else:
        found = 2 * references()["operators"][name]
    assert isinstance(found, int)
    return found


def main() -> None:
    """Print one line a figure and a verdict over all."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.oracle.flops_table", description=__doc__)
    parser.add_argument("what", nargs="?", default="models", choices=("models", "operators", "published", "symbolic"))
    parser.add_argument("--new", action="store_true", help="export anew with the installed torch instead of taking the kept texts")
    parser.add_argument("--record", action="store_true", help="export anew and keep the texts")
    parser.add_argument("--filter", default="", help="only names with this text, for published models")
    arguments = parser.parse_args()
    if arguments.record:
        from tests.tools.oracle.flops_export import record

        record()
    if arguments.what == "symbolic":
        _print_symbolic()
        return
    figures: list[Figure] = []
    for figure in _figures(arguments.what, arguments.new, arguments.filter):
        print(figure.line(), flush=True)
        figures.append(figure)
    if arguments.what == "published":
        near = sum(abs(figure.error) <= 0.005 for figure in figures)
        rounded = sum(_rounds(figure) for figure in figures)
        print(f"{near} of {len(figures)} within 0.5 %, {rounded} equal in the three decimals that are published")
    else:
        names = {figure.name for figure in figures}
        good = {figure.name for figure in figures} - {figure.name for figure in figures if not figure.good}
        print(f"{len(good)} of {len(names)} {arguments.what} within 0.1 % in every form; {len(figures)} files")


def _rounds(figure: Figure) -> bool:
    """Whether the count is the published number once it is written with three decimals; half a unit either way is rounding."""
    return isinstance(figure.counted, int) and abs(figure.counted - figure.reference) <= 1_000_001


def _figures(what: str, new: bool, only: str) -> Iterator[Figure]:
    if what != "published" and not new:
        return kept_figures(what)
    from tests.tools.oracle import flops_export

    if what == "published":
        return flops_export.published(only)
    return flops_export.models() if what == "models" else flops_export.singles()


def _print_symbolic() -> None:
    from tests.tools.oracle.flops_symbolic import SYMBOLIC, counted

    for name, entry in SYMBOLIC.items():
        found = counted(name)
        print(f"{name:10} {found:45} {entry.formula:35} {'ok' if found == entry.formula else 'WRONG'}")


if __name__ == "__main__":
    main()
