"""Programs of named models from the cache on disk: what was made once is not made again while nothing that it follows from changed."""

from __future__ import annotations

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
    key = key_of(text, options, settings)
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
        from irscope.frontends.zoo.load import load_named  # it imports torch

    found = DiagnosticSink()
    with watching() as watched:
        program = load_named(text, options, found, settings)
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
