"""Programs of named models from the cache on disk: what was made once is not made again while nothing that it follows from changed."""

from __future__ import annotations

from collections.abc import Callable

from irscope import diskcache
from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.zoo.programform import NoForm, read_program, written
from irscope.frontends.zoo.sources import described, files_of, key_of, noting_changes, still_holds, watching
from irscope.ir.program import Program
from irscope.jsoncodec import Misfit
from irscope.passkit.settings import Settings


def load_kept(text: str, options: LoadOptions, sink: DiagnosticSink, settings: Settings) -> Program:
    """The program of a named model: as it was kept, else made and kept."""

    def make(found: DiagnosticSink) -> Program:
        from irscope.frontends.zoo.load import load_named

        return load_named(text, options, found, settings)

    return kept(text, make, options, sink, settings)


def kept(
    text: str, make: Callable[[DiagnosticSink], Program], options: LoadOptions, sink: DiagnosticSink, settings: Settings, asked: str = ""
) -> Program:
    """What `make` makes of a named model, kept on disk; `asked` is all that it depends on besides the name, the options and settings."""
    key = key_of(text, options, settings, asked)
    body = diskcache.read(key, still_holds)
    if body is not None:
        try:
            program, said = read_program(body)
        except Misfit:
            diskcache.discard(key)
        else:
            for one in said:
                sink.add(one)
            return program
    with noting_changes():
        import irscope.frontends.zoo.load  # noqa: F401  # it imports torch, before the recording begins

    found = DiagnosticSink()
    with watching() as watched:
        program = make(found)
    for one in found:
        sink.add(one)
    try:
        form = written(program, list(found))
    except NoForm:
        return program
    about = described(watched, files_of(text, options))
    if about is not None:
        diskcache.keep(key, text, about, form)
    return program
